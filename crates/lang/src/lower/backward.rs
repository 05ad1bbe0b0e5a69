//! Written backward graphs: the module becomes a composite whose derivative is the graph as written.
//!
//! The composite's operands are the module's inputs and parameters, those of the modules it contains too. What the backward
//! reads as `saved.x` is a private result of its body, so forward computes it once. A hook or an adapter inside changes the
//! forward in a way that no written backward knows: there it is derived.

use super::checkpoint::{Region, renamed};
use super::frame::{Entry, Frame, Instance, io_name};
use super::graph::Operand;
use super::hooks::Seen;
use super::{Lowerer, Result, fail, misfit, unsupported};
use crate::ast::{Call, Flow, Source, Statement, StepKind};
use crate::check::graph_uses;
use crate::diagnostic::Code;
use crate::resolve::{Entity, ItemRef, ModuleView};
use crate::span::Span;
use ir::attr::Attr;
use ir::ops::{Composite, Derivative};
use ir::{Build, Builder, Graph, Type, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An operand of the composite: its name in the module, and its value outside.
struct Bound {
    name: String,
    /// A parameter of a module inside.
    inside: bool,
    value: Value,
    ty: Type,
}

impl Lowerer<'_> {
    /// Runs a module as a composite with its own derivative.
    pub(super) fn with_written_backward(
        &mut self,
        view: &ModuleView<'_>,
        frame: &Frame,
        inputs: &[Option<Value>],
        at: Span,
    ) -> Result<Vec<Value>> {
        let bound = self.operands(view, frame, inputs);
        let saved = saved_names(view);

        let (outer, changed, around) = (self.set_aside(), self.changed, self.region.replace(Region::keeping()));
        let adapters = self.adapters_found.len();
        let forward = self.forward_graph(view, frame, &bound, &saved);
        self.region = around;
        let (public, body, results, seen) = match forward {
            Ok(forward) if self.changed == changed => forward,
            other => {
                self.bring_back(outer);
                other?;
                self.adapters_found.truncate(adapters);
                return self.run_plain_body(view, &mut frame.clone());
            }
        };
        self.in_backward = true;
        let vjp = self.with_observed(|l| l.backward_graph(view, frame, &bound, &results, public, &body));
        self.in_backward = false;
        self.bring_back(outer);
        let (vjp, watched) = vjp?;
        if !watched.is_empty() {
            return unsupported(view.decl.name.span, "a probe or an assert in a backward graph");
        }

        let composite = Composite {
            name: "module".to_string(),
            params: vec![("of".to_string(), Attr::Word(view.decl.name.name.clone()))],
            body: Arc::new(body),
            public,
            derivative: Derivative::Vjp(Arc::new(vjp)),
        };
        let args: Vec<Value> = bound.iter().map(|b| b.value).collect();
        let values = self.b.emit(composite.into(), &args);
        let values = values.map_err(|e| misfit(&e, at, &view.decl.name.name))?;
        self.seen_outside(seen, &values[results.len()..]);
        Ok(values[..public].to_vec())
    }

    fn set_aside(&mut self) -> (Builder, Vec<super::TableRows>) {
        (std::mem::take(&mut self.b), std::mem::take(&mut self.tables))
    }

    fn bring_back(&mut self, (builder, tables): (Builder, Vec<super::TableRows>)) {
        (self.b, self.tables) = (builder, tables);
    }

    /// Everything that the module can read, each once: a tied parameter is its first.
    fn operands(&self, view: &ModuleView<'_>, frame: &Frame, inputs: &[Option<Value>]) -> Vec<Bound> {
        let mut bound = Vec::new();
        let mut seen = BTreeSet::new();
        for (slot, value) in view.forward.inputs.iter().zip(inputs) {
            if let Some(value) = value
                && seen.insert(*value)
            {
                let ty = self.b.graph.ty(*value).clone();
                bound.push(Bound { name: io_name(slot, "in"), inside: false, value: *value, ty });
            }
        }
        let mut paths = Vec::new();
        for (name, entry) in &frame.entries {
            tensors(entry, name, false, &mut paths);
        }
        for (name, inside, value) in paths {
            if seen.insert(value) {
                let ty = self.b.graph.ty(value).clone();
                bound.push(Bound { name, inside, value, ty });
            }
        }
        bound
    }

    /// The body: outputs, then what is saved. Also gives the names of all results.
    fn forward_graph(
        &mut self,
        view: &ModuleView<'_>,
        frame: &Frame,
        bound: &[Bound],
        saved: &BTreeSet<String>,
    ) -> Result<(usize, Graph, Vec<String>, Seen)> {
        self.b = Builder::new();
        let mut inner = self.inside(frame, bound);
        let (mut outputs, seen) = self.with_observed(|l| l.run_plain_body(view, &mut inner))?;
        let public = outputs.len();
        let mut names: Vec<String> = view.forward.outputs.iter().map(|t| io_name(t, "out")).collect();
        for name in saved {
            if inner.entries.contains_key(name) && bound.iter().any(|b| b.name == *name) || names.contains(name) {
                continue;
            }
            match inner.entries.get(name) {
                Some(Entry::Tensor(value)) => {
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

    /// The frame inside the composite: its operands are inputs.
    fn inside(&mut self, frame: &Frame, bound: &[Bound]) -> Frame {
        let names: BTreeMap<Value, Value> =
            bound.iter().map(|operand| (operand.value, self.b.graph.input(operand.ty.clone()))).collect();
        let mut inner = frame.clone();
        inner.entries.values_mut().for_each(|entry| *entry = renamed(entry, &names));
        inner
    }

    /// From operands, results and cotangents of the outputs to cotangents of the float operands.
    fn backward_graph(
        &mut self,
        view: &ModuleView<'_>,
        frame: &Frame,
        bound: &[Bound],
        results: &[String],
        public: usize,
        body: &Graph,
    ) -> Result<Graph> {
        let Some(graph) = view.backward.as_ref().and_then(|pass| pass.graph) else {
            return fail(Code::E005, view.decl.name.span, "the backward has no graph", "");
        };
        (self.b, self.tables) = (Builder::new(), Vec::new());
        let mut inner = self.inside(frame, bound);
        let names: Vec<String> = inner.entries.keys().cloned().collect();
        for name in names {
            if let Some(entry) = inner.entries.get(&name).cloned() {
                inner.entries.insert(format!("saved.{name}"), entry);
            }
        }
        let mut define = |name: String, value: Value| inner.entries.insert(name, Entry::Tensor(value));
        let types = body.output_types();
        for (index, ty) in types.iter().enumerate() {
            let value = self.b.graph.input(ty.clone());
            // Behind the results come outputs for onlookers.
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
                Some(Entry::Tensor(value)) => *value,
                None if operand.inside => {
                    let message = format!("`{name}` is never computed");
                    let module = operand.name.rsplit_once('.').map_or("", |(module, _)| module);
                    let label = format!("needs `{name}`, or `{module}.backward()`");
                    return fail(Code::E005, graph.span, message, label);
                }
                // `@frozen` and `@gradient(skip)` leave gradients out on purpose; others the checker has reported.
                _ => (self.b.zeros(&operand.ty)).map_err(|e| misfit(&e, graph.span, &name))?,
            };
            let fault = |e: ir::Error| misfit(&e, graph.span, &name);
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

/// What a backward is asked of.
enum Asked {
    /// `mlp.backward()`, `StackedBlocksBackward(blocks, n)`: parameters are found inside, by this path.
    Entry(String, Entry),
    /// `LinearBackward(w)`: a module called with its weights.
    Module(ItemRef),
}

impl Lowerer<'_> {
    /// `(d_y, saved.x, mlp) -> mlp.backward() -> (d_x, d_mlp_params)`: cotangents of the outputs, then the inputs; gives
    /// cotangents of the inputs, and adds those of the module's parameters to `d_mlp.weight` and the like. The same for
    /// `StackedBlocksBackward(blocks, n)`, whose inputs may be left out: they are those of the forward's `StackedBlocks`.
    pub(super) fn backward_call(
        &mut self,
        call: &Call,
        operands: &[Operand],
        frame: &mut Frame,
    ) -> Result<Option<Vec<Operand>>> {
        let Some(asked) = self.backward_of(call, frame) else { return Ok(None) };
        let mut given = Vec::new();
        for operand in operands.iter().filter(|operand| !matches!(operand, Operand::Gradients)) {
            given.push(operand.tensor(call.span)?);
        }
        let item = match &asked {
            Asked::Entry(_, Entry::Instance(instance) | Entry::Stack(_, instance)) => Some(instance.item),
            Asked::Entry(_, Entry::Array(all)) => all.first().map(|instance| instance.item),
            Asked::Module(item) => Some(*item),
            Asked::Entry(..) => None,
        };
        let outputs = match item.and_then(|item| ModuleView::new(self.program, item)) {
            Some(view) if view.forward.graph.is_some() => view.forward.outputs.len(),
            _ => 1,
        };
        if let (Asked::Entry(array, Entry::Array(_) | Entry::Stack(..)), true) = (&asked, given.len() == outputs) {
            for name in self.stacked_on(array, frame) {
                if let Some(Entry::Tensor(value)) = frame.entries.get(&format!("saved.{name}")) {
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
        self.reversed(call, &asked, &given, &inputs, frame).map(Some)
    }

    fn backward_of(&self, call: &Call, frame: &Frame) -> Option<Asked> {
        let path = &call.callee.path;
        let (last, owner) = path.parts.split_last()?;
        if last.name == "backward" && !owner.is_empty() {
            let owner = crate::ast::Path { parts: owner.to_vec() };
            return match self.entry(&owner, frame)? {
                entry @ Entry::Instance(_) => Some(Asked::Entry(owner.to_string(), entry)),
                _ => None,
            };
        }
        let name = path.to_string();
        if name == "StackedBlocksBackward" {
            let array = call.args.iter().flatten().next()?.value.as_path()?;
            let entry = self.entry(&array, frame)?;
            let blocks = matches!(entry, Entry::Array(_) | Entry::Stack(..));
            return blocks.then(|| Asked::Entry(array.to_string(), entry));
        }
        let base = name.strip_suffix("_backward").or_else(|| name.strip_suffix("Backward"))?;
        let base = crate::ast::Path { parts: vec![crate::ast::Ident { name: base.to_string(), span: last.span }] };
        match self.program.lookup(frame.file, &base)? {
            Entity::Item(item) if ModuleView::new(self.program, item).is_some() => Some(Asked::Module(item)),
            _ => None,
        }
    }

    /// What the forward graph of the module at hand gives to the stack of these blocks.
    fn stacked_on(&self, array: &str, frame: &Frame) -> Vec<String> {
        let view = frame.item.and_then(|item| ModuleView::new(self.program, item));
        let graph = view.as_ref().and_then(|view| view.forward.graph);
        stack_inputs(graph.map_or(&[], |graph| &graph.statements), array)
    }

    fn reversed(
        &mut self,
        call: &Call,
        asked: &Asked,
        cotangents: &[Value],
        inputs: &[Value],
        frame: &mut Frame,
    ) -> Result<Vec<Operand>> {
        let mut params = Vec::new();
        match asked {
            Asked::Entry(owner, entry) => tensors(entry, owner, false, &mut params),
            Asked::Module(_) => {
                for arg in call.args.iter().flatten() {
                    if let Some(path) = arg.value.as_path()
                        && let Some(entry @ Entry::Tensor(_)) = self.entry(&path, frame)
                    {
                        tensors(&entry, &path.to_string(), false, &mut params);
                    }
                }
            }
        }
        let fault = |e: ir::Error| misfit(&e, call.span, &call.callee.path.to_string());
        let types =
            |l: &Self, values: &[Value]| -> Vec<Type> { values.iter().map(|v| l.b.graph.ty(*v).clone()).collect() };
        let mut values: Vec<Value> = params.iter().map(|(_, _, value)| *value).collect();
        values.extend(inputs);
        let (arg_types, ct_types) = (types(self, &values), types(self, cotangents));
        let outer = self.set_aside();
        let inner: Vec<Value> = arg_types.iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let names: BTreeMap<Value, Value> = values.iter().copied().zip(inner.iter().copied()).collect();
        let own: Vec<Value> = inner[params.len()..].to_vec();
        let (in_backward, region) = (self.in_backward, self.region.take());
        self.in_backward = false;
        let results = self.with_observed(|l| match asked {
            Asked::Entry(_, entry) => {
                let operands = own.iter().copied().map(Operand::Tensor).collect();
                match renamed(entry, &names) {
                    Entry::Instance(one) => l.run_instance(&one, own.into_iter().map(Some).collect(), call.span),
                    Entry::Array(all) => l.stack(call, &all, operands),
                    Entry::Stack(count, one) => l.scan(call, &one, count, 0..count, operands),
                    _ => Ok(Vec::new()),
                }
            }
            Asked::Module(item) => {
                let mut inside = Frame::new(frame.file, frame.constants.clone());
                for (path, _, value) in &params {
                    inside.entries.insert(path.clone(), Entry::Tensor(names[value]));
                }
                let operands = own.iter().copied().map(Operand::Tensor).collect();
                l.module_call(call, *item, operands, &inside)
            }
        });
        (self.in_backward, self.region) = (in_backward, region);
        let forward = std::mem::take(&mut self.b);
        self.bring_back(outer);
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
                None => of_inputs.push(Operand::Tensor(gradient)),
                Some((path, ..)) => {
                    let name = format!("d_{path}");
                    let sum = match frame.entries.get(&name) {
                        Some(Entry::Tensor(before)) => self.b.add(*before, gradient).map_err(fault)?,
                        _ => gradient,
                    };
                    frame.entries.insert(name, Entry::Tensor(sum));
                }
            }
        }
        of_inputs.push(Operand::Gradients);
        Ok(of_inputs)
    }
}

/// The names that a graph gives to `StackedBlocks(array, ..)`.
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
                Source::Tensors { items, .. } => {
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

/// The tensors of an entry with their paths, and whether they belong to a module inside.
fn tensors(entry: &Entry, path: &str, inside: bool, found: &mut Vec<(String, bool, Value)>) {
    let mut each = |instance: &Instance, path: &str| {
        for (name, entry) in &instance.entries {
            tensors(entry, &format!("{path}.{name}"), true, found);
        }
    };
    match entry {
        Entry::Tensor(value) => found.push((path.to_string(), inside, *value)),
        Entry::Instance(instance) => each(instance, path),
        Entry::Stack(_, instance) => each(instance, &format!("{path}[*]")),
        Entry::Array(all) => {
            all.iter().enumerate().for_each(|(i, instance)| each(instance, &format!("{path}[{i}]")));
        }
        Entry::Table(_) | Entry::Absent => {}
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
