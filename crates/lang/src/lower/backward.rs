//! Lowers explicit backward graphs: the module becomes a composite whose custom derivative is that graph.
//!
//! The composite's operands are the module's inputs and parameters, including those of contained modules. A tensor that the
//! backward graph reads as `saved.x` is a residual: an additional result of the body, so that it is computed once. A hook or an
//! adapter inside modifies the forward pass, so the explicit backward graph would be wrong: then the derivative is derived.

use super::checkpoint::{RecomputeRegion, substitute_tensors};
use super::frame::{FrameEntry, LoweredInstance, ModuleFrame, io_name};
use super::graph::LoweredOperand;
use super::hooks::ObservedValues;
use super::{Lowerer, Result, fail, op_error, unsupported};
use crate::ast::{Call, Flow, FlowSource, Statement, StepKind};
use crate::check::graph_uses;
use crate::diagnostic::Code;
use crate::resolve::{Entity, ItemRef, ModuleView};
use crate::span::Span;
use ir::attr::Attr;
use ir::ops::{Composite, Derivative};
use ir::{Builder, Graph, GraphBuilder, Type, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An operand of the composite: its name in the module, and its value outside.
struct BoundOperand {
    name: String,
    /// Whether it is a parameter of a contained module.
    inside: bool,
    value: Value,
    ty: Type,
}

impl Lowerer<'_> {
    /// Lowers a module to a composite with a custom derivative.
    pub(super) fn with_custom_backward(
        &mut self,
        view: &ModuleView<'_>,
        frame: &ModuleFrame,
        inputs: &[Option<Value>],
        at: Span,
    ) -> Result<Vec<Value>> {
        let bound = self.operands(view, frame, inputs);
        let saved = saved_names(view);

        let (outer, changed, around) =
            (self.suspend_builder(), self.changed, self.region.replace(RecomputeRegion::save_all()));
        let adapters = self.adapters_found.len();
        let forward = self.forward_graph(view, frame, &bound, &saved);
        self.region = around;
        let (public, body, results, seen) = match forward {
            Ok(forward) if self.changed == changed => forward,
            other => {
                self.restore_builder(outer);
                other?;
                self.adapters_found.truncate(adapters);
                return self.run_plain_body(view, &mut frame.clone());
            }
        };
        self.in_backward = true;
        let vjp = self.with_observed(|l| l.backward_graph(view, frame, &bound, &results, public, &body));
        self.in_backward = false;
        self.restore_builder(outer);
        let (vjp, watched) = vjp?;
        if !watched.is_empty() {
            return unsupported(view.decl.name.span, "a probe or an assert in a backward graph");
        }

        let composite = Composite {
            name: "module".to_string(),
            params: vec![("of".to_string(), Attr::Word(view.decl.name.name.clone()))],
            body: Arc::new(body),
            num_public_outputs: public,
            derivative: Derivative::Vjp(Arc::new(vjp)),
        };
        let args: Vec<Value> = bound.iter().map(|b| b.value).collect();
        let values = self.b.emit(composite.into(), &args);
        let values = values.map_err(|e| op_error(&e, at, &view.decl.name.name))?;
        self.import_observations(seen, &values[results.len()..]);
        Ok(values[..public].to_vec())
    }

    fn suspend_builder(&mut self) -> (Builder, Vec<super::TableRows>) {
        (std::mem::take(&mut self.b), std::mem::take(&mut self.tables))
    }

    fn restore_builder(&mut self, (builder, tables): (Builder, Vec<super::TableRows>)) {
        (self.b, self.tables) = (builder, tables);
    }

    /// All tensors that the module can read, without duplicates: tied parameters occur once.
    fn operands(&self, view: &ModuleView<'_>, frame: &ModuleFrame, inputs: &[Option<Value>]) -> Vec<BoundOperand> {
        let mut bound = Vec::new();
        let mut seen = BTreeSet::new();
        for (slot, value) in view.forward.inputs.iter().zip(inputs) {
            if let Some(value) = value
                && seen.insert(*value)
            {
                let ty = self.b.graph.ty(*value).clone();
                bound.push(BoundOperand { name: io_name(slot, "in"), inside: false, value: *value, ty });
            }
        }
        let mut paths = Vec::new();
        for (name, entry) in &frame.entries {
            tensors(entry, name, false, &mut paths);
        }
        for (name, inside, value) in paths {
            if seen.insert(value) {
                let ty = self.b.graph.ty(value).clone();
                bound.push(BoundOperand { name, inside, value, ty });
            }
        }
        bound
    }

    /// Builds the body: outputs, then residuals. Also returns the names of all results.
    fn forward_graph(
        &mut self,
        view: &ModuleView<'_>,
        frame: &ModuleFrame,
        bound: &[BoundOperand],
        saved: &BTreeSet<String>,
    ) -> Result<(usize, Graph, Vec<String>, ObservedValues)> {
        self.b = Builder::new();
        let mut inner = self.inner_frame(frame, bound);
        let (mut outputs, seen) = self.with_observed(|l| l.run_plain_body(view, &mut inner))?;
        let public = outputs.len();
        let mut names: Vec<String> = view.forward.outputs.iter().map(|t| io_name(t, "out")).collect();
        for name in saved {
            if inner.entries.contains_key(name) && bound.iter().any(|b| b.name == *name) || names.contains(name) {
                continue;
            }
            match inner.entries.get(name) {
                Some(FrameEntry::Tensor(value)) => {
                    outputs.push(*value);
                    names.push(name.clone());
                }
                _ => {
                    let span = view.decl.name.span;
                    return fail(Code::E006, span, format!("`saved.{name}` is not a tensor of the forward graph"), "");
                }
            }
        }
        outputs.extend(seen.iter().map(|(_, value)| *value));
        let builder = std::mem::take(&mut self.b);
        Ok((public, builder.finish(&outputs), names, seen))
    }

    /// The frame inside the composite, with its operands as inputs.
    fn inner_frame(&mut self, frame: &ModuleFrame, bound: &[BoundOperand]) -> ModuleFrame {
        let names: BTreeMap<Value, Value> =
            bound.iter().map(|operand| (operand.value, self.b.graph.input(operand.ty.clone()))).collect();
        let mut inner = frame.clone();
        inner.entries.values_mut().for_each(|entry| *entry = substitute_tensors(entry, &names));
        inner
    }

    /// Builds the graph from operands, results and output cotangents to the cotangents of the float operands.
    fn backward_graph(
        &mut self,
        view: &ModuleView<'_>,
        frame: &ModuleFrame,
        bound: &[BoundOperand],
        results: &[String],
        public: usize,
        body: &Graph,
    ) -> Result<Graph> {
        let Some(graph) = view.backward.as_ref().and_then(|pass| pass.graph) else {
            return fail(Code::E005, view.decl.name.span, "the backward has no graph", "");
        };
        (self.b, self.tables) = (Builder::new(), Vec::new());
        let mut inner = self.inner_frame(frame, bound);
        let names: Vec<String> = inner.entries.keys().cloned().collect();
        for name in names {
            if let Some(entry) = inner.entries.get(&name).cloned() {
                inner.entries.insert(format!("saved.{name}"), entry);
            }
        }
        let mut define = |name: String, value: Value| inner.entries.insert(name, FrameEntry::Tensor(value));
        let types = body.output_types();
        for (index, ty) in types.iter().enumerate() {
            let value = self.b.graph.input(ty.clone());
            // The results are followed by outputs for observation.
            if let Some(name) = results.get(index) {
                define(format!("saved.{name}"), value);
            }
        }
        for (name, ty) in results.iter().zip(&types[..public]) {
            if ty.dtype.is_float() {
                let value = self.b.graph.input(ty.clone());
                define(format!("d_{name}"), value);
            }
        }
        self.statements(&graph.statements, &mut inner)?;
        let mut gradients = Vec::new();
        for operand in bound.iter().filter(|b| b.ty.dtype.is_float()) {
            let name = format!("d_{}", operand.name);
            let short = name.replace('.', "_");
            let gradient = match inner.entries.get(&name).or_else(|| inner.entries.get(&short)) {
                Some(FrameEntry::Tensor(value)) => *value,
                None if operand.inside => {
                    let message = format!("`{name}` is never computed");
                    let module = operand.name.rsplit_once('.').map_or("", |(module, _)| module);
                    let label = format!("needs `{name}`, or `{module}.backward()`");
                    return fail(Code::E005, graph.span, message, label);
                }
                // `@frozen` and `@gradient(skip)` omit gradients on purpose; other missing ones were reported by the checker.
                _ => (self.b.zeros(&operand.ty)).map_err(|e| op_error(&e, graph.span, &name))?,
            };
            let fault = |e: ir::Error| op_error(&e, graph.span, &name);
            let both_float = self.b.graph.ty(gradient).dtype.is_float();
            let gradient = if both_float { self.b.cast(gradient, operand.ty.dtype).map_err(fault)? } else { gradient };
            let found = self.b.graph.ty(gradient).clone();
            if found != operand.ty {
                let label = format!("computed as {found}, but `{}` is {}", operand.name, operand.ty);
                return fail(Code::E018, graph.span, format!("`{name}` does not have its tensor's shape"), label);
            }
            gradients.push(gradient);
        }
        let builder = std::mem::take(&mut self.b);
        Ok(builder.finish(&gradients))
    }
}

/// The target of a backward call.
enum BackwardTarget {
    /// `mlp.backward()`, `StackedBlocksBackward(blocks, n)`: the parameters belong to the instance at this path.
    Entry(String, FrameEntry),
    /// `LinearBackward(w)`: a module called with its weights as arguments.
    Module(ItemRef),
}

impl Lowerer<'_> {
    /// Lowers `(d_y, saved.x, mlp) -> mlp.backward() -> (d_x, d_mlp_params)`: the operands are cotangents of the outputs, then
    /// the inputs; the results are cotangents of the inputs, and those of the module's parameters are added to `d_mlp.weight` and
    /// so on. The same for `StackedBlocksBackward(blocks, n)`, whose inputs are optional: by default
    /// they are those of the forward's `StackedBlocks`.
    pub(super) fn backward_call(
        &mut self,
        call: &Call,
        operands: &[LoweredOperand],
        frame: &mut ModuleFrame,
    ) -> Result<Option<Vec<LoweredOperand>>> {
        let Some(asked) = self.backward_of(call, frame) else { return Ok(None) };
        let mut given = Vec::new();
        for operand in operands.iter().filter(|operand| !matches!(operand, LoweredOperand::Gradients)) {
            given.push(operand.tensor(call.span)?);
        }
        let item = match &asked {
            BackwardTarget::Entry(_, FrameEntry::Instance(instance) | FrameEntry::Stack(_, instance)) => {
                Some(instance.item)
            }
            BackwardTarget::Entry(_, FrameEntry::Array(all)) => all.first().map(|instance| instance.item),
            BackwardTarget::Module(item) => Some(*item),
            BackwardTarget::Entry(..) => None,
        };
        let outputs = match item.and_then(|item| ModuleView::new(self.program, item)) {
            Some(view) if view.forward.graph.is_some() => view.forward.outputs.len(),
            _ => 1,
        };
        if let (BackwardTarget::Entry(array, FrameEntry::Array(_) | FrameEntry::Stack(..)), true) =
            (&asked, given.len() == outputs)
        {
            for name in self.stacked_on(array, frame) {
                if let Some(FrameEntry::Tensor(value)) = frame.entries.get(&format!("saved.{name}")) {
                    given.push(*value);
                }
            }
        }
        if given.len() <= outputs {
            let label = format!("it takes {outputs} gradients of results, then the inputs");
            let message = format!("`{}` needs more tensors", call.callee.path);
            return fail(Code::E003, call.callee.span, message, label);
        }
        let inputs = given.split_off(outputs);
        self.reverse_graph(call, &asked, &given, &inputs, frame).map(Some)
    }

    fn backward_of(&self, call: &Call, frame: &ModuleFrame) -> Option<BackwardTarget> {
        let path = &call.callee.path;
        let (last, owner) = path.parts.split_last()?;
        if last.name == "backward" && !owner.is_empty() {
            let owner = crate::ast::Path { parts: owner.to_vec() };
            return match self.entry(&owner, frame)? {
                entry @ FrameEntry::Instance(_) => Some(BackwardTarget::Entry(owner.to_string(), entry)),
                _ => None,
            };
        }
        let name = path.to_string();
        if name == "StackedBlocksBackward" {
            let array = call.args.iter().flatten().next()?.value.as_path()?;
            let entry = self.entry(&array, frame)?;
            let blocks = matches!(entry, FrameEntry::Array(_) | FrameEntry::Stack(..));
            return blocks.then(|| BackwardTarget::Entry(array.to_string(), entry));
        }
        let base = name.strip_suffix("_backward").or_else(|| name.strip_suffix("Backward"))?;
        let base = crate::ast::Path { parts: vec![crate::ast::Ident { name: base.to_string(), span: last.span }] };
        match self.program.lookup(frame.file, &base)? {
            Entity::Item(item) if ModuleView::new(self.program, item).is_some() => Some(BackwardTarget::Module(item)),
            _ => None,
        }
    }

    /// The inputs of the stack of these blocks in the current module's forward graph.
    fn stacked_on(&self, array: &str, frame: &ModuleFrame) -> Vec<String> {
        let view = frame.item.and_then(|item| ModuleView::new(self.program, item));
        let graph = view.as_ref().and_then(|view| view.forward.graph);
        stack_inputs(graph.map_or(&[], |graph| &graph.statements), array)
    }

    fn reverse_graph(
        &mut self,
        call: &Call,
        asked: &BackwardTarget,
        cotangents: &[Value],
        inputs: &[Value],
        frame: &mut ModuleFrame,
    ) -> Result<Vec<LoweredOperand>> {
        let mut params = Vec::new();
        match asked {
            BackwardTarget::Entry(owner, entry) => tensors(entry, owner, false, &mut params),
            BackwardTarget::Module(_) => {
                for arg in call.args.iter().flatten() {
                    if let Some(path) = arg.value.as_path()
                        && let Some(entry @ FrameEntry::Tensor(_)) = self.entry(&path, frame)
                    {
                        tensors(&entry, &path.to_string(), false, &mut params);
                    }
                }
            }
        }
        let fault = |e: ir::Error| op_error(&e, call.span, &call.callee.path.to_string());
        let types =
            |l: &Self, values: &[Value]| -> Vec<Type> { values.iter().map(|v| l.b.graph.ty(*v).clone()).collect() };
        let mut values: Vec<Value> = params.iter().map(|(_, _, value)| *value).collect();
        values.extend(inputs);
        let (arg_types, ct_types) = (types(self, &values), types(self, cotangents));
        let outer = self.suspend_builder();
        let inner: Vec<Value> = arg_types.iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let names: BTreeMap<Value, Value> = values.iter().copied().zip(inner.iter().copied()).collect();
        let own: Vec<Value> = inner[params.len()..].to_vec();
        let (in_backward, region) = (self.in_backward, self.region.take());
        self.in_backward = false;
        let results = self.with_observed(|l| match asked {
            BackwardTarget::Entry(_, entry) => {
                let operands = own.iter().copied().map(LoweredOperand::Tensor).collect();
                match substitute_tensors(entry, &names) {
                    FrameEntry::Instance(one) => l.run_instance(&one, own.into_iter().map(Some).collect(), call.span),
                    FrameEntry::Array(all) => l.stack(call, &all, operands),
                    FrameEntry::Stack(count, one) => l.scan(call, &one, count, 0..count, operands),
                    _ => Ok(Vec::new()),
                }
            }
            BackwardTarget::Module(item) => {
                let mut inside = ModuleFrame::new(frame.file, frame.constants.clone());
                for (path, _, value) in &params {
                    inside.entries.insert(path.clone(), FrameEntry::Tensor(names[value]));
                }
                let operands = own.iter().copied().map(LoweredOperand::Tensor).collect();
                l.module_call(call, *item, operands, &inside)
            }
        });
        (self.in_backward, self.region) = (in_backward, region);
        let forward = std::mem::take(&mut self.b);
        self.restore_builder(outer);
        let forward = forward.finish(&results?.0);
        let wrt: Vec<usize> = (0..arg_types.len()).filter(|&i| arg_types[i].dtype.is_float()).collect();
        let reverse = transform::vjp(&forward, &wrt).map_err(fault)?;
        let mut args = values.clone();
        for ((ct, have), want) in cotangents.iter().zip(ct_types).zip(forward.output_types()) {
            if have != want {
                let label = format!("this is {have}, but the module returns {want}");
                return fail(Code::E018, call.span, "a gradient does not have its tensor's shape", label);
            }
            args.push(*ct);
        }
        let found = self.b.inline(&reverse, &args).map_err(fault)?;
        let gradients = &found[forward.outputs().len()..];
        let mut of_inputs = Vec::new();
        for (&index, &gradient) in wrt.iter().zip(gradients) {
            match params.get(index) {
                None => of_inputs.push(LoweredOperand::Tensor(gradient)),
                Some((path, ..)) => {
                    let name = format!("d_{path}");
                    let sum = match frame.entries.get(&name) {
                        Some(FrameEntry::Tensor(before)) => self.b.add(*before, gradient).map_err(fault)?,
                        _ => gradient,
                    };
                    frame.entries.insert(name, FrameEntry::Tensor(sum));
                }
            }
        }
        of_inputs.push(LoweredOperand::Gradients);
        Ok(of_inputs)
    }
}

/// The inputs of `StackedBlocks(array, ..)` in a graph.
fn stack_inputs(statements: &[Statement], array: &str) -> Vec<String> {
    let stacks = |flow: &Flow| {
        flow.steps.iter().any(|step| match &step.kind {
            StepKind::Call(call) => {
                let first = call.args.iter().flatten().next().and_then(|arg| arg.value.as_path());
                call.callee.path.to_string() == "StackedBlocks" && first.is_some_and(|path| path.to_string() == array)
            }
            StepKind::Shape(_) => false,
        })
    };
    for statement in statements {
        let found = match statement {
            Statement::Flow(flow) if stacks(flow) => match &flow.source {
                FlowSource::Tensors { items, .. } => {
                    items.iter().filter_map(|item| item.as_path()).map(|path| path.to_string()).collect()
                }
                _ => Vec::new(),
            },
            Statement::If(branch) => {
                let then = stack_inputs(&branch.then, array);
                if then.is_empty() {
                    stack_inputs(branch.otherwise.as_deref().unwrap_or_default(), array)
                } else {
                    then
                }
            }
            _ => Vec::new(),
        };
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The tensors of an entry with their paths, and whether they belong to a contained module.
fn tensors(entry: &FrameEntry, path: &str, inside: bool, found: &mut Vec<(String, bool, Value)>) {
    let mut each = |instance: &LoweredInstance, path: &str| {
        for (name, entry) in &instance.entries {
            tensors(entry, &format!("{path}.{name}"), true, found);
        }
    };
    match entry {
        FrameEntry::Tensor(value) => found.push((path.to_string(), inside, *value)),
        FrameEntry::Instance(instance) => each(instance, path),
        FrameEntry::Stack(_, instance) => each(instance, &format!("{path}[*]")),
        FrameEntry::Array(all) => {
            all.iter().enumerate().for_each(|(i, instance)| each(instance, &format!("{path}[{i}]")));
        }
        FrameEntry::Table(_) | FrameEntry::Absent => {}
    }
}

/// The names that the backward graph reads as `saved.name`, in any branch.
fn saved_names(view: &ModuleView<'_>) -> BTreeSet<String> {
    fn visit(statements: &[Statement], forward: &[Statement], found: &mut BTreeSet<String>) {
        for statement in statements {
            match statement {
                Statement::Flow(flow) => {
                    let names = graph_uses(flow);
                    found.extend(names.iter().filter_map(|(n, _)| n.strip_prefix("saved.")).map(String::from));
                    for step in &flow.steps {
                        if let StepKind::Call(call) = &step.kind
                            && call.callee.path.to_string() == "StackedBlocksBackward"
                            && let Some(array) = call.args.iter().flatten().next().and_then(|arg| arg.value.as_path())
                        {
                            found.extend(stack_inputs(forward, &array.to_string()));
                        }
                    }
                }
                Statement::If(branch) => {
                    visit(&branch.then, forward, found);
                    visit(branch.otherwise.as_deref().unwrap_or_default(), forward, found);
                }
                Statement::Recompute { body, .. } => visit(body, forward, found),
                Statement::Elided(_) | Statement::Empty(_) => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    let graph = view.backward.as_ref().and_then(|pass| pass.graph);
    let forward = view.forward.graph.map_or(&[][..], |g| &g.statements);
    visit(graph.map_or(&[], |g| &g.statements), forward, &mut found);
    found
}
