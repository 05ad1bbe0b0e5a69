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
use crate::ast::{Call, Statement};
use crate::check::graph_uses;
use crate::diagnostic::Code;
use crate::resolve::ModuleView;
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

impl Lowerer<'_> {
    /// `(d_y, saved.x, mlp) -> mlp.backward() -> (d_x, d_mlp_params)`: cotangents of the outputs, then the inputs; gives
    /// cotangents of the inputs, and adds those of the module's parameters to `d_mlp.weight` and the like.
    pub(super) fn instance_backward(
        &mut self,
        call: &Call,
        operands: &[Operand],
        frame: &mut Frame,
    ) -> Result<Option<Vec<Operand>>> {
        let parts = &call.callee.path.parts;
        let Some((last, owner)) =
            parts.split_last().filter(|(last, owner)| last.name == "backward" && !owner.is_empty())
        else {
            return Ok(None);
        };
        let owner = crate::ast::Path { parts: owner.to_vec() };
        let Some(Entry::Instance(instance)) = self.entry(&owner, frame) else { return Ok(None) };
        let mut given = Vec::new();
        for operand in operands.iter().filter(|operand| !matches!(operand, Operand::Gradients)) {
            given.push(operand.tensor(call.span)?);
        }
        let outputs = match ModuleView::new(self.program, instance.item) {
            Some(view) if view.forward.graph.is_some() => view.forward.outputs.len(),
            _ => 1,
        };
        if given.len() <= outputs {
            let label = format!("takes {outputs} gradients of results, then the inputs");
            return fail(Code::E003, last.span, format!("`{}` needs more tensors", call.callee.path), label);
        }
        let (cotangents, inputs) = given.split_at(outputs);
        let mut params = Vec::new();
        tensors(&Entry::Instance(instance.clone()), &owner.to_string(), false, &mut params);
        let fault = |e: ir::Error| misfit(&e, call.span, &call.callee.path.to_string());

        let types =
            |l: &Self, values: &[Value]| -> Vec<Type> { values.iter().map(|v| l.b.graph.ty(*v).clone()).collect() };
        let mut values: Vec<Value> = params.iter().map(|(_, _, value)| *value).collect();
        values.extend(inputs);
        let (arg_types, ct_types) = (types(self, &values), types(self, cotangents));
        let outer = self.set_aside();
        let inner: Vec<Value> = arg_types.iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let names: BTreeMap<Value, Value> = values.iter().copied().zip(inner.iter().copied()).collect();
        self.in_backward = false;
        let results = match renamed(&Entry::Instance(instance), &names) {
            Entry::Instance(instance) => {
                let own = inner[params.len()..].iter().copied().map(Some).collect();
                self.with_observed(|l| l.run_instance(&instance, own, call.span))
            }
            _ => Ok((Vec::new(), Vec::new())),
        };
        self.in_backward = true;
        let forward = std::mem::take(&mut self.b);
        self.bring_back(outer);
        let forward = forward.finish(&results?.0);
        let wrt: Vec<usize> = (0..arg_types.len()).filter(|&i| arg_types[i].dtype.is_float()).collect();
        let reverse = transform::vjp(&forward, &wrt).map_err(fault)?;
        let mut args = values.clone();
        for ((ct, have), want) in cotangents.iter().zip(ct_types).zip(forward.output_types()) {
            if have != want {
                let label = format!("this is {have}, the module gives {want}");
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
        Ok(Some(of_inputs))
    }
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
    fn visit(statements: &[Statement], found: &mut BTreeSet<String>) {
        for statement in statements {
            match statement {
                Statement::Flow(flow) => {
                    let names = graph_uses(flow);
                    found.extend(names.iter().filter_map(|(n, _)| n.strip_prefix("saved.")).map(String::from));
                }
                Statement::If(branch) => {
                    visit(&branch.then, found);
                    visit(branch.otherwise.as_deref().unwrap_or_default(), found);
                }
                Statement::Recompute { body, .. } => visit(body, found),
                Statement::Elided(_) => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    let graph = view.backward.as_ref().and_then(|pass| pass.graph);
    visit(graph.map_or(&[], |g| &g.statements), &mut found);
    found
}
