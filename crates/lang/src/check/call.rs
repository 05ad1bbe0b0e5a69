//! Calls: which operation a name means, which argument goes where, and what comes out.
//!
//! Tensors bind to inputs and then to parameters in order, constants to attributes or to the module's parameters in
//! order; sizes that are not given follow from the tensors.

use super::graph::{Entry, GraphChecker, Instance, Undecided};
use super::primitives::{self, Primitive};
use super::rules::Operand;
use super::signature::{Misfit, Signature};
use super::types::{TensorType, float_bits, promoted};
use crate::ast::{Arg, Call, DeclKind, Expr, ExprKind, IndexItem};
use crate::consteval::Value;
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::Dim;
use crate::resolve::{Entity, ItemRef};
use crate::span::Span;
use crate::suggest::closest;

/// What a call names.
enum Target {
    Primitive(&'static Primitive),
    Module(ItemRef),
    Instance(Instance),
    /// Something whose results are not followed: a backward of a module, a declared primitive.
    Opaque,
    /// A declared primitive that nothing says how to compute.
    Bodiless(ItemRef),
    /// A stack of blocks, each fed with the results of the one before.
    Stacked,
    Unknown,
}

/// An argument once it is known to be a tensor or a constant.
pub(super) enum Argument {
    Tensor(Operand),
    Constant(Value),
    Absent,
}

impl GraphChecker<'_> {
    fn target(&mut self, call: &Call) -> Target {
        let path = &call.callee.path;
        match self.entries.get(&path.parts[0].name).map(|defined| defined.entry.clone()) {
            Some(Entry::Instances(instance, length)) if path.parts.len() == 1 => {
                self.slice_in_range(call, length);
                return Target::Instance(instance);
            }
            Some(Entry::Instance(instance)) if path.parts.len() == 1 => return Target::Instance(instance),
            Some(Entry::Instance(_) | Entry::Instances(..)) if path.last().name == "backward" => {
                return Target::Opaque;
            }
            Some(Entry::Instance(_) | Entry::Instances(..)) => {
                if let Some(Entry::Instance(inner)) = self.path_entry(path) {
                    return Target::Instance(inner);
                }
            }
            _ => {}
        }
        match self.program.lookup(self.file, path) {
            Some(Entity::Item(item)) => {
                return match self.program.decl(item).map(|decl| decl.kind) {
                    // A declared primitive with a graph is that graph; without one it describes the built-in one.
                    Some(DeclKind::Primitive) if self.program.has_graph(item) => Target::Module(item),
                    Some(DeclKind::Primitive) => {
                        match self.program.decl(item).and_then(|d| primitives::find(&d.name.name)) {
                            Some(primitive) => Target::Primitive(primitive),
                            None => Target::Bodiless(item),
                        }
                    }
                    Some(_) => Target::Module(item),
                    None => Target::Unknown,
                };
            }
            Some(Entity::Primitive(name)) => {
                if let Some(primitive) = primitives::find(&name) {
                    return Target::Primitive(primitive);
                }
            }
            _ => {}
        }
        let name = path.to_string();
        if let Some(primitive) = primitives::spelled(&name) {
            return Target::Primitive(primitive);
        }
        match name.as_str() {
            "StackedBlocks" => return Target::Stacked,
            "StackedBlocksBackward" => return Target::Opaque,
            _ => {}
        }
        // `Linear_backward` and `LinearBackward` are the backward of a module in reach.
        let base = name.strip_suffix("_backward").or_else(|| name.strip_suffix("Backward"));
        if let Some(base) = base
            && (self.entries.contains_key(base) || self.program.files[self.file].scope.contains_key(base))
        {
            return Target::Opaque;
        }
        Target::Unknown
    }

    /// `blocks[8:16]()` must lie inside the array, where both are numbers.
    fn slice_in_range(&mut self, call: &Call, length: Option<Dim>) {
        let Some(length) = length.and_then(|length| length.as_constant()) else {
            return;
        };
        for item in call.callee.index.iter().flatten() {
            // Negative numbers count from the end.
            let mut place = |expr: &Expr| {
                let n = self.scope.constant(expr).as_int()?;
                Some(if n < 0 { n + length } else { n })
            };
            let (ok, span) = match item {
                IndexItem::At(expr) => (place(expr).is_none_or(|n| (0..length).contains(&n)), expr.span),
                IndexItem::Slice { start, end, span } => {
                    let start = start.as_ref().map_or(Some(0), &mut place);
                    let end = end.as_ref().map_or(Some(length), &mut place);
                    let ok = start.zip(end).is_none_or(|(start, end)| 0 <= start && start <= end && end <= length);
                    (ok, *span)
                }
            };
            if !ok {
                self.diagnostics.push(
                    Diagnostic::new(Code::E004, span, "index past the end of the array")
                        .label(format!("`{}` has {length} elements", call.callee.path)),
                );
            }
        }
    }

    /// Reports a callee that does not exist.
    pub(super) fn callee_exists(&mut self, call: &Call) -> bool {
        let unknown = matches!(self.target(call), Target::Unknown);
        if unknown {
            self.report_unknown(call);
        }
        !unknown
    }

    fn report_unknown(&mut self, call: &Call) {
        let name = call.callee.path.to_string();
        let is_module = call.callee.path.last().name.starts_with(|c: char| c.is_ascii_uppercase());
        let (code, message) = match is_module {
            true => (Code::E002, format!("no module named `{name}`")),
            false => (Code::E014, format!("no operation named `{name}`")),
        };
        let own = self.program.files[self.file].scope.keys().chain(self.entries.keys());
        let own: Vec<&str> = own.map(String::as_str).collect();
        let close = closest(&name, own).or_else(|| closest(&name, primitives::names())).map(str::to_string);
        let label = if is_module { "not declared and not imported" } else { "neither a primitive nor a module" };
        let mut found = Diagnostic::new(code, call.callee.span, message).label(label);
        if let Some(close) = close {
            found = found.hint(format!("did you mean `{close}`?"));
        }
        self.diagnostics.push(found);
    }

    /// The results of a call; `None` if they are not followed.
    pub(super) fn call(&mut self, call: &Call, inputs: Vec<Operand>) -> Result<Option<Vec<TensorType>>, Undecided> {
        let target = self.target(call);
        let args = call.args.as_deref().unwrap_or_default();
        match target {
            Target::Unknown => {
                self.report_unknown(call);
                Ok(None)
            }
            Target::Bodiless(item) => {
                let name = call.callee.path.to_string();
                let mut found =
                    Diagnostic::new(Code::E014, call.callee.span, format!("`{name}` has no implementation"))
                        .label("declared without a graph, and no primitive has its name")
                        .hint("give its `forward:` a `graph:`");
                if let Some(decl) = self.program.decl(item) {
                    found = found.also(decl.name.span, "declared here");
                }
                self.diagnostics.push(found);
                Ok(None)
            }
            Target::Opaque => {
                self.visit_arguments(args)?;
                self.asks_backward(call, args);
                Ok(None)
            }
            Target::Primitive(primitive) => self.primitive_call(call, primitive, inputs, args),
            Target::Module(item) => self.module_call(call, item, None, inputs, args),
            Target::Instance(instance) => self.module_call(call, instance.item, Some(instance.given), inputs, args),
            Target::Stacked => self.stacked_call(call, inputs, args),
        }
    }

    /// `LinearBackward(w)` computes the gradients of the parameters it is given; `StackedBlocksBackward(blocks, n)` reads
    /// what the forward graph gave to the stack.
    fn asks_backward(&mut self, call: &Call, args: &[Arg]) {
        let name = call.callee.path.to_string();
        if !name.ends_with("ackward") {
            return;
        }
        for given in args.iter().filter_map(|arg| arg.value.as_name()).filter(|name| self.params.contains(*name)) {
            self.asked.insert(format!("d_{given}"));
        }
        if let (true, Some(array)) = (name == "StackedBlocksBackward", args.first().and_then(|arg| arg.value.as_path()))
        {
            let inputs = self.stacks.get(&array.to_string()).cloned().unwrap_or_default();
            self.saved_used.extend(inputs);
        }
    }

    fn visit_arguments(&mut self, args: &[Arg]) -> Result<(), Undecided> {
        for arg in args {
            self.argument(&arg.value, true)?;
        }
        Ok(())
    }

    /// Whether an argument is a tensor or a constant; names that are both are what `tensor_first` says.
    pub(super) fn argument(&mut self, expr: &Expr, tensor_first: bool) -> Result<Argument, Undecided> {
        match &expr.kind {
            ExprKind::Paren(inner) => return self.argument(inner, tensor_first),
            ExprKind::None => return Ok(Argument::Absent),
            ExprKind::Ellipsis => {
                self.left_out(expr.span, "arguments");
                return Ok(Argument::Absent);
            }
            ExprKind::IfElse { then, condition, otherwise } => {
                let branch = if self.guard(condition)? { then } else { otherwise };
                return self.argument(branch, tensor_first);
            }
            ExprKind::Name(name) => {
                let tensor = self.entries.contains_key(name);
                let constant = self.scope.has_constant(name);
                if let Some(super::graph::Defined { entry: Entry::Absent, .. }) = self.entries.get(name)
                    && !constant
                {
                    return Ok(Argument::Absent);
                }
                if tensor && (tensor_first || !constant) {
                    return Ok(Argument::Tensor(self.operand(expr)));
                }
                if !tensor && !constant {
                    return Ok(Argument::Constant(Value::Word(name.clone())));
                }
            }
            ExprKind::Attr(..) | ExprKind::Index(..) | ExprKind::Spread(_) => {
                return Ok(Argument::Tensor(self.operand(expr)));
            }
            _ => {}
        }
        if let ExprKind::List(items) | ExprKind::Tuple(items) = &expr.kind
            && items.iter().all(|item| item.as_name().is_none_or(|name| !self.scope.has_constant(name)))
            && items.iter().any(|item| item.as_name().is_some_and(|name| self.entries.contains_key(name)))
        {
            return Ok(Argument::Constant(Value::Unknown));
        }
        // Runtime dimensions such as B may stand in shapes given as arguments.
        let value = match &expr.kind {
            // Sizes, unless something in it is plainly none.
            ExprKind::List(items) if !items.iter().any(|item| matches!(item.peel().kind, ExprKind::Float(_))) => {
                Value::List(items.iter().map(|item| self.scope.dim(item).map_or(Value::Unknown, Value::Int)).collect())
            }
            _ => self.scope.constant(expr),
        };
        Ok(Argument::Constant(value))
    }

    /// Fits operands to the inputs of a signature and returns the types of its results.
    pub(super) fn fit_all(
        &mut self,
        span: Span,
        signature: &mut Signature,
        inputs: &[Option<Operand>],
    ) -> Option<Vec<TensorType>> {
        let operands: Vec<Operand> = inputs.iter().flatten().cloned().collect();
        let slots = signature.inputs.clone();
        for (slot, operand) in slots.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            if let Err(misfit) = signature.fit(&slot.ty, &operand.ty) {
                let hint = format!("`{}` should be {}", operand.text, misfit.expected);
                self.shape_error(span, misfit, &operands, Some(hint));
                return None;
            }
        }
        self.note_exact(signature.unifier.exactness().to_vec());
        for (slot, operand) in slots.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            if let (Some(want), Some(have)) = (&slot.ty.dtype, &operand.ty.dtype)
                && float_bits(want).zip(float_bits(have)).is_some_and(|(want, have)| want < have)
            {
                // Few bits need scales, which nobody gives without a word (§7.4.4).
                if float_bits(want).is_some_and(|bits| bits < 16) {
                    self.diagnostics.push(
                        Diagnostic::new(
                            Code::E015,
                            operand.span,
                            format!("`{}` is not converted to {want} implicitly", operand.text),
                        )
                        .label(format!("this is {have}, and `{}` is declared as {want}", slot.name))
                        .hint("`quantize` it, or write `@scaling(per_tensor)` after the input's declaration"),
                    );
                    continue;
                }
                self.diagnostics.push(
                    Diagnostic::new(
                        Code::W005,
                        operand.span,
                        format!("`{}` is rounded from {have} to {want}", operand.text),
                    )
                    .label(format!("`{}` is declared as {want}", slot.name))
                    .hint(format!("write `@dtype({want})` where it is computed to make this explicit")),
                );
            }
        }
        let dtype = promoted(operands.iter().map(|operand| operand.ty.dtype.as_deref()));
        Some(
            signature
                .outputs
                .iter()
                .map(|slot| {
                    let mut ty = signature.solved(&slot.ty);
                    ty.dtype = ty.dtype.or_else(|| dtype.clone());
                    ty
                })
                .collect(),
        )
    }

    pub(super) fn shape_error(&mut self, span: Span, misfit: Misfit, operands: &[Operand], hint: Option<String>) {
        let mut found = Diagnostic::new(Code::E004, span, "shapes do not fit").label(misfit.label);
        let shown: Vec<String> = operands.iter().map(|o| format!("{}: {}", o.text, o.ty)).collect();
        found = found.note(shown.join("   "));
        found.hint = hint;
        self.diagnostics.push(found);
    }

    pub(super) fn too_many(&mut self, call: &Call, span: Span) {
        let name = call.callee.path.to_string();
        self.diagnostics.push(
            Diagnostic::new(Code::E003, span, format!("`{name}` takes fewer arguments")).label("unexpected argument"),
        );
    }
}
