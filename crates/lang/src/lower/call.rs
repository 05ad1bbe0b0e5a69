//! Lowers calls: tensors bind to inputs and parameters, constants to attributes and to a module's own parameters.

use super::declare::header;
use super::frame::{FrameEntry, LoweredInstance, ModuleFrame};
use super::graph::LoweredOperand;
use super::primitives::PrimitiveCall;
use super::{Lowerer, Result, fail, primitives, unsupported};
use crate::ast::{Arg, Call, DeclKind, Expr, ExprKind, IndexItem, Param, TypeKind};
use crate::check::primitives as table;
use crate::consteval::ConstValue as Const;
use crate::diagnostic::Code;
use crate::resolve::{Entity, ItemRef, ModuleView};
use ir::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A classified argument.
enum LoweredArgument {
    Operand(LoweredOperand),
    Constant(Const),
    Absent,
}

impl Lowerer<'_> {
    /// Lowers a call and returns its results.
    pub(super) fn call(
        &mut self,
        call: &Call,
        operands: Vec<LoweredOperand>,
        frame: &mut ModuleFrame,
    ) -> Result<Vec<Value>> {
        let path = &call.callee.path;
        let args = call.args.as_deref().unwrap_or_default();
        match self.entry(path, frame) {
            Some(FrameEntry::Instance(instance)) => return self.instance_call(call, &instance, operands, frame),
            Some(FrameEntry::Array(instances)) => {
                let chosen = self.select_blocks(call, &instances, frame)?;
                return self.stack(call, &chosen, operands);
            }
            Some(FrameEntry::Stack(count, instance)) => {
                let (start, end) = self.block_range(call, count, frame)?;
                return self.scan(call, &instance, count, start..end, operands);
            }
            _ => {}
        }
        let name = path.to_string();
        let entity = self.program.lookup(frame.file, path);
        let item = match entity {
            Some(Entity::Item(item)) => Some(item),
            _ => None,
        };
        if let Some(item) = item
            && (self.program.decl(item).is_some_and(|decl| decl.kind != DeclKind::Primitive)
                || self.program.has_graph(item))
        {
            return self.module_call(call, item, operands, frame);
        }
        let primitive = match &entity {
            Some(Entity::Primitive(name)) => table::find(name),
            _ => match item.and_then(|item| self.program.decl(item)) {
                Some(decl) => table::find(&decl.name.name),
                None => table::find_by_module_name(&path.last().name).filter(|_| path.parts.len() == 1),
            },
        };
        if let Some(primitive) = primitive {
            return self.primitive_call(call, primitive, operands, frame);
        }
        if name == "StackedBlocks" {
            let array = args.first().and_then(|arg| arg.value.as_path());
            return match array.and_then(|path| self.entry(&path, frame)) {
                Some(FrameEntry::Array(instances)) => self.stack(call, &instances, operands),
                Some(FrameEntry::Stack(count, instance)) => self.scan(call, &instance, count, 0..count, operands),
                _ => fail(Code::E003, call.span, "`StackedBlocks` needs an array of blocks", ""),
            };
        }
        unsupported(call.callee.span, format!("`{name}`"))
    }

    /// Selects the blocks of `blocks[0:8]` or `blocks[i]`.
    fn select_blocks(
        &mut self,
        call: &Call,
        all: &[Rc<LoweredInstance>],
        frame: &ModuleFrame,
    ) -> Result<Vec<Rc<LoweredInstance>>> {
        let (start, end) = self.block_range(call, all.len(), frame)?;
        Ok(all[start..end].to_vec())
    }

    fn block_range(&mut self, call: &Call, count: usize, frame: &ModuleFrame) -> Result<(usize, usize)> {
        let timed = call.callee.index.iter().flatten().any(|item| match item {
            IndexItem::At(e) => frame.mentions_time(e),
            IndexItem::Slice { start, end, .. } => start.iter().chain(end).any(|e| frame.mentions_time(e)),
        });
        if timed {
            self.mark_all_cross_position("a choice of blocks by the sequence length");
        }
        // Negative numbers count from the end; an index before the start is out of range.
        let place = |expr: &Expr| -> Result<usize> {
            let value = frame.constant(expr)?;
            let Some(n) = value.as_int() else {
                return fail(Code::E003, expr.span, "an index must be an integer", format!("this is {value}"));
            };
            Ok(usize::try_from(if n < 0 { n + count as i64 } else { n }).unwrap_or(usize::MAX - 1))
        };
        let bound = |expr: &Option<Expr>, default: usize| match expr {
            Some(expr) => place(expr),
            None => Ok(default),
        };
        let (start, end) = match call.callee.index.as_deref() {
            None => (0, count),
            Some([IndexItem::At(expr)]) => {
                let index = place(expr)?;
                (index, index + 1)
            }
            Some([IndexItem::Slice { start, end, .. }]) => (bound(start, 0)?, bound(end, count)?),
            Some(_) => return unsupported(call.callee.span, "more than one index of an array"),
        };
        if start <= end && end <= count {
            return Ok((start, end));
        }
        let label = format!("the array has {count} elements");
        fail(Code::E004, call.callee.span, "index past the end of the array", label)
    }

    fn instance_call(
        &mut self,
        call: &Call,
        instance: &LoweredInstance,
        operands: Vec<LoweredOperand>,
        frame: &ModuleFrame,
    ) -> Result<Vec<Value>> {
        let mut inputs = Vec::new();
        for operand in &operands {
            inputs.push(match operand {
                LoweredOperand::Absent(_) => None,
                operand => Some(operand.tensor(call.span)?),
            });
        }
        for arg in call.args.iter().flatten() {
            match self.argument(&arg.value, frame, true)? {
                LoweredArgument::Operand(operand) => inputs.push(Some(operand.tensor(arg.value.span)?)),
                LoweredArgument::Absent => inputs.push(None),
                LoweredArgument::Constant(_) => return unsupported(arg.value.span, "a constant given to an instance"),
            }
        }
        self.run_instance(instance, inputs, call.span)
    }

    /// `x -> Linear(weight) -> y`: tensors bind to the module's parameters in order, sizes are inferred from them.
    pub(super) fn module_call(
        &mut self,
        call: &Call,
        item: ItemRef,
        operands: Vec<LoweredOperand>,
        frame: &ModuleFrame,
    ) -> Result<Vec<Value>> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return fail(Code::E002, call.span, "not a module", "");
        };
        let header = header(&view);
        let named = view.params.iter().filter_map(|e| e.path.as_name());
        let params: Vec<String> = named.map(|n| n.name.clone()).collect();
        let mut given: BTreeMap<String, Const> = BTreeMap::new();
        let mut operands = operands;
        let mut timed = BTreeMap::new();
        let mut weights: BTreeMap<String, Value> = BTreeMap::new();
        let (mut next_weight, mut next_constant) = (0, 0);
        for arg in call.args.iter().flatten() {
            let key = arg.name.as_ref().map(|name| name.name.clone());
            // A name that is both a flag and a tensor binds to a tensor argument, if there is one.
            let tensor_first = key.as_ref().is_none_or(|key| !header.contains(key) || params.contains(key));
            let too_many = || fail(Code::E003, arg.span(), format!("`{}` takes fewer arguments", call.callee.path), "");
            match self.argument(&arg.value, frame, tensor_first)? {
                LoweredArgument::Operand(operand) if view.decl.kind == DeclKind::Primitive => operands.push(operand),
                LoweredArgument::Operand(operand) => {
                    let name = key.clone().or_else(|| params.get(next_weight).cloned());
                    next_weight += usize::from(key.is_none());
                    match name.filter(|name| params.contains(name)) {
                        Some(name) => weights.insert(name, operand.tensor(arg.value.span)?),
                        None => return too_many(),
                    };
                }
                LoweredArgument::Constant(value) => {
                    let name = key.clone().or_else(|| header.get(next_constant).cloned());
                    next_constant += usize::from(key.is_none());
                    match name.filter(|name| header.contains(name)) {
                        Some(name) => {
                            frame.propagate_position_dependence(&arg.value, &name, &mut timed);
                            given.insert(name, value)
                        }
                        None => return too_many(),
                    };
                }
                LoweredArgument::Absent => {}
            }
        }
        let mut inner = ModuleFrame::new(item.file, given);
        inner.position_dependent = timed;
        for entry in &view.params {
            let Some(weight) = entry.path.as_name().and_then(|name| weights.get(&name.name)) else {
                continue;
            };
            inner.infer_sizes(&entry.ty, &self.b.graph.ty(*weight).shape);
            self.learn_time(&mut inner, &entry.ty, *weight);
            // A tensor for a conditional parameter decides the condition, if that is a flag of the module.
            if let Some(flag) = entry.condition.as_ref().and_then(Expr::as_name)
                && header.iter().any(|name| name == flag)
            {
                inner.constants.insert(flag.to_string(), Const::bool(true));
            }
        }
        let mut inputs = Vec::new();
        for (operand, slot) in operands.iter().zip(&view.forward.inputs) {
            let value = operand.tensor(call.span)?;
            if let Some(ty) = &slot.ty {
                inner.infer_sizes(ty, &self.b.graph.ty(value).shape);
                self.learn_time(&mut inner, ty, value);
            }
            inputs.push(Some(value));
        }
        inner.defaults(&view, call.span)?;
        inner.eval_lets(&view, false)?;
        // Sizes of the call's own tensors are inferred again inside; only constants and parameters are passed.
        inner.variadic_dims = None;
        for entry in &view.params {
            let Some(name) = entry.path.as_name() else { continue };
            let value = match weights.get(&name.name) {
                Some(weight) => {
                    inner.check_shape(&name.name, &entry.ty, &self.b.graph.ty(*weight).shape, call.span)?;
                    FrameEntry::Tensor(*weight)
                }
                None => match &entry.condition {
                    Some(condition) if !self.guard(condition, &inner)? => FrameEntry::Absent,
                    _ if matches!(entry.ty.kind, TypeKind::Optional(_)) => FrameEntry::Absent,
                    _ => {
                        let message = format!("`{}` needs its parameter `{}`", call.callee.path, name.name);
                        return fail(Code::E012, call.span, message, "missing");
                    }
                },
            };
            inner.entries.insert(name.name.clone(), value);
        }
        for constant in &view.constants {
            if inner.mentions_time(&constant.value) {
                self.mark_all_cross_position("rotary embeddings that depend on the sequence length");
            }
            let table = super::rope_table::RopeTable::of(&constant.value, &inner)?;
            inner.entries.insert(constant.name.name.clone(), FrameEntry::Table(Rc::new(table)));
        }
        self.run_module(&view, inner, inputs, call.span)
    }

    fn primitive_call(
        &mut self,
        call: &Call,
        primitive: &'static table::Primitive,
        operands: Vec<LoweredOperand>,
        frame: &ModuleFrame,
    ) -> Result<Vec<Value>> {
        let mut p = PrimitiveCall::new(primitive.name, call.span);
        let mut by_length = false;
        let mut inputs = operands;
        let mut named: BTreeMap<String, LoweredOperand> = BTreeMap::new();
        let attribute_names: Vec<&str> = primitive.attributes.iter().filter_map(super::param_name).collect();
        let mut next = 0;
        for arg in call.args.iter().flatten() {
            if let Some(name) = &arg.name {
                let is_attribute = attribute_names.contains(&name.name.as_str());
                match self.argument(&arg.value, frame, !is_attribute)? {
                    LoweredArgument::Constant(value) => {
                        match name.name == "shape" {
                            true => p.time_axis = self.time_axis(&arg.value, frame),
                            false => by_length |= frame.mentions_time(&arg.value),
                        }
                        p.attributes.insert(name.name.clone(), value);
                    }
                    LoweredArgument::Operand(operand) => {
                        named.insert(name.name.clone(), operand);
                    }
                    LoweredArgument::Absent => {
                        p.attributes.insert(name.name.clone(), Const::None);
                    }
                }
                continue;
            }
            match self.argument(&arg.value, frame, true)? {
                LoweredArgument::Operand(operand) => inputs.push(operand),
                LoweredArgument::Absent => {}
                LoweredArgument::Constant(value)
                    if matches!(
                        primitive.rule,
                        table::ShapeRule::Broadcast | table::ShapeRule::Divide | table::ShapeRule::Compare
                    ) =>
                {
                    by_length |= frame.mentions_time(&arg.value);
                    let number = match value {
                        Const::Float(Some(x)) => x,
                        ref other => other.as_int().map_or(f64::NAN, |n| n as f64),
                    };
                    let like = match inputs.first() {
                        Some(operand) => self.b.graph.ty(operand.tensor(arg.value.span)?).dtype,
                        None => self.options.dtype,
                    };
                    let like = match (like.is_float(), primitive.rule) {
                        (false, table::ShapeRule::Divide) => ir::DType::F32,
                        (false, _) if number.fract() != 0.0 => {
                            let text = format!("{number} would lose its fraction when combined with integers");
                            return fail(Code::E015, arg.span(), text, "convert the tensor to a float dtype first");
                        }
                        _ => like,
                    };
                    let scalar = ir::GraphBuilder::scalar(&mut self.b, like, number);
                    inputs.push(LoweredOperand::Tensor(
                        scalar.map_err(|e| super::op_error(&e, arg.value.span, primitive.name))?,
                    ));
                }
                LoweredArgument::Constant(value) => {
                    let Some(name) = attribute_names.get(next) else {
                        return fail(Code::E003, arg.span(), format!("`{}` takes fewer arguments", primitive.name), "");
                    };
                    next += 1;
                    match *name == "shape" {
                        true => p.time_axis = self.time_axis(&arg.value, frame),
                        false => by_length |= frame.mentions_time(&arg.value),
                    }
                    p.attributes.insert((*name).to_string(), value);
                }
            }
        }
        for param in &primitive.attributes {
            if let Param::Named { name, default: Some(default), .. } = param
                && !p.attributes.contains_key(&name.name)
                && name.name != "dtype"
            {
                let value = match default.as_name() {
                    Some(word) => Const::Identifier(word.to_string()),
                    None => frame.constant(default)?,
                };
                p.attributes.insert(name.name.clone(), value);
            }
        }
        if primitive.inputs.iter().any(|slot| slot.variadic) {
            p.operands = inputs.into_iter().map(Some).collect();
        } else {
            let mut inputs = inputs.into_iter();
            for slot in &primitive.inputs {
                let name = slot.name.as_ref().map_or("", |name| &name.name);
                let given = named.remove(name).or_else(|| inputs.next());
                let optional =
                    slot.optional || matches!(slot.ty.as_ref().map(|ty| &ty.kind), Some(TypeKind::Optional(_)));
                p.operands.push(given.filter(|operand| !(optional && matches!(operand, LoweredOperand::Absent(_)))));
            }
            if inputs.next().is_some() {
                let label = format!("takes {} tensors", primitive.inputs.len());
                return fail(Code::E003, call.span, format!("too many tensors for `{}`", p.name), label);
            }
        }
        if let Some(name) =
            named.keys().find(|name| !(p.name.starts_with("flash_attention") && *name == "alibi_slopes"))
        {
            let message = format!("`{name}` of `{}` is not a tensor", p.name);
            return fail(Code::E003, call.span, message, "it must be known when the model is compiled");
        }
        p.named = named;
        self.at(call.span);
        let product_of = self.dequantized(&mut p)?;
        if let Some(dtype) = self.compute {
            for operand in p.operands.iter_mut().flatten().chain(p.named.values_mut()) {
                if let LoweredOperand::Tensor(value) = operand
                    && self.b.graph.ty(*value).dtype.is_float()
                {
                    let cast = ir::GraphBuilder::cast(&mut self.b, *value, dtype);
                    *value = cast.map_err(|e| super::op_error(&e, call.span, "@precision"))?;
                }
            }
        }
        self.promote(&mut p)?;
        self.round_sum_operand(&mut p)?;
        if p.name == "moe_experts" {
            return self.experts(&p);
        }
        let mut results = primitives::lower(self, &p)?;
        if let Some(dtype) = product_of.filter(|_| self.compute.is_none() && self.few.is_none()) {
            for value in &mut results {
                *value = ir::GraphBuilder::cast(&mut self.b, *value, dtype)
                    .map_err(|e| super::op_error(&e, p.span, p.name))?;
            }
        }
        if by_length {
            self.set_cross_position(&results, "a number that depends on the sequence length");
        }
        Ok(results)
    }

    /// Converts operands of several float dtypes to the widest (§7.4.4), so that their order does not matter.
    fn promote(&mut self, p: &mut PrimitiveCall) -> Result<()> {
        // These use several dtypes on purpose: expert weights, tables of rotary embeddings, states of a scan.
        let apart = ["moe_", "mamba_", "rope", "embedding", "cross_entropy", "quantize", "dequantize"];
        if apart.iter().any(|prefix| p.name.starts_with(prefix)) {
            return Ok(());
        }
        // Saved statistics of the forward pass have a wider dtype than their tensors.
        let kept = |slot: usize| {
            let inputs = table::find(p.name).map_or(&[][..], |primitive| &primitive.inputs);
            let name = inputs.get(slot).and_then(|slot| slot.name.as_ref()).map_or("", |name| name.name.as_str());
            p.name.ends_with("_backward") && (name.ends_with("rstd") || matches!(name, "mean" | "lse"))
        };
        let counts: Vec<bool> = (0..p.operands.len()).map(|slot| !kept(slot)).collect();
        let floats = p.operands.iter().zip(&counts).filter_map(|(operand, counts)| match operand {
            Some(LoweredOperand::Tensor(value)) if *counts => {
                Some(self.b.graph.ty(*value).dtype).filter(|d| d.is_float())
            }
            _ => None,
        });
        let Some(widest) = floats.reduce(wider_dtype) else { return Ok(()) };
        for (operand, _) in p.operands.iter_mut().zip(&counts).filter(|(_, counts)| **counts) {
            if let Some(LoweredOperand::Tensor(value)) = operand
                && self.b.graph.ty(*value).dtype.is_float()
            {
                *value = ir::GraphBuilder::cast(&mut self.b, *value, widest)
                    .map_err(|e| super::op_error(&e, p.span, p.name))?;
            }
        }
        Ok(())
    }

    /// `(permuted, experts, indices) -> moe_experts() -> y`: applies to each row the expert that it was sorted to. Experts are
    /// arbitrary modules, so every expert computes all rows; `grouped_gemm` computes each row only once.
    fn experts(&mut self, p: &PrimitiveCall) -> Result<Vec<Value>> {
        let (rows, experts, indices) = match &p.operands[..] {
            [Some(rows), Some(LoweredOperand::Experts(experts)), Some(indices)] => {
                (rows.tensor(p.span)?, experts.clone(), indices.tensor(p.span)?)
            }
            _ => return fail(Code::E003, p.span, "`moe_experts` takes rows, an array of modules, and indices", ""),
        };
        let chosen = primitives::sorted_experts(self, indices).map_err(|e| super::op_error(&e, p.span, p.name))?;
        let mut result: Option<Value> = None;
        for (number, expert) in experts.iter().enumerate() {
            let y = self.run_instance(expert, vec![Some(rows)], p.span)?;
            let Some(&y) = y.first() else { return fail(Code::E003, p.span, "an expert has no result", "") };
            let merged = primitives::where_expert(self, chosen, number, y, result);
            result = Some(merged.map_err(|e| super::op_error(&e, p.span, p.name))?);
        }
        match result {
            Some(result) => Ok(vec![result]),
            None => fail(Code::E003, p.span, "`moe_experts` needs at least one expert", ""),
        }
    }

    /// Classifies an argument as a tensor or a constant; `tensor_first` decides for names that are both.
    fn argument(&mut self, expr: &Expr, frame: &ModuleFrame, tensor_first: bool) -> Result<LoweredArgument> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.argument(inner, frame, tensor_first),
            ExprKind::None => Ok(LoweredArgument::Absent),
            ExprKind::IfElse { then, condition, otherwise } => {
                let branch = if self.guard(condition, frame)? { then } else { otherwise };
                self.argument(branch, frame, tensor_first)
            }
            ExprKind::Name(name) => {
                let constant = frame.constants.get(name);
                match frame.entries.get(name) {
                    Some(FrameEntry::Absent) if constant.is_none() => Ok(LoweredArgument::Absent),
                    Some(FrameEntry::Tensor(_) | FrameEntry::Table(_) | FrameEntry::Array(_))
                        if tensor_first || constant.is_none() =>
                    {
                        self.operand(expr, frame).map(LoweredArgument::Operand)
                    }
                    _ => match constant {
                        Some(Const::None) => Ok(LoweredArgument::Absent),
                        Some(value) => Ok(LoweredArgument::Constant(value.clone())),
                        None => Ok(LoweredArgument::Constant(Const::Identifier(name.clone()))),
                    },
                }
            }
            ExprKind::Attr(..) | ExprKind::Index(..) => {
                match expr.as_path().and_then(|path| self.entry(&path, frame)) {
                    Some(FrameEntry::Absent) => Ok(LoweredArgument::Absent),
                    _ => self.operand(expr, frame).map(LoweredArgument::Operand),
                }
            }
            _ => match frame.constant(expr)? {
                Const::None => Ok(LoweredArgument::Absent),
                value => Ok(LoweredArgument::Constant(value)),
            },
        }
    }
}

/// The narrowest float dtype that represents both.
pub(super) fn wider_dtype(a: ir::DType, b: ir::DType) -> ir::DType {
    match a.size().cmp(&b.size()) {
        _ if a == b => a,
        std::cmp::Ordering::Less => b,
        std::cmp::Ordering::Greater => a,
        std::cmp::Ordering::Equal => ir::DType::F32,
    }
}

/// The arguments of tables of rotary embeddings, by name or positional.
pub(super) fn constant_arguments(args: &[Arg], names: &[&str], frame: &ModuleFrame) -> Result<BTreeMap<String, Const>> {
    let mut values = BTreeMap::new();
    for (index, arg) in args.iter().enumerate() {
        let name = match (&arg.name, names.get(index)) {
            (Some(name), _) if names.contains(&name.name.as_str()) => name.name.as_str(),
            (None, Some(name)) => name,
            _ => return fail(Code::E003, arg.span(), "unknown argument", format!("known are {}", names.join(", "))),
        };
        values.insert(name.to_string(), frame.constant(&arg.value)?);
    }
    Ok(values)
}
