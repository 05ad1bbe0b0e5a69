//! Written backward graphs: the module becomes a composite whose derivative is the graph as written.
//!
//! The composite's operands are the module's inputs and parameters. What the backward reads as `saved.x` is a private
//! result of its body, so forward computes it once.

use super::frame::{Entry, Frame, io_name};
use super::{Lowerer, Result, fail, misfit, unsupported};
use crate::ast::Statement;
use crate::check::graph_uses;
use crate::diagnostic::Code;
use crate::resolve::ModuleView;
use crate::span::Span;
use ir::attr::Attr;
use ir::ops::{Composite, Derivative};
use ir::{Build, Builder, Graph, Type, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An operand of the composite: its name in the module, and its value outside.
struct Bound {
    name: String,
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
        let bound = self.operands(view, frame, inputs)?;
        let saved = saved_names(view);

        let outer = self.set_aside();
        let forward = self.forward_graph(view, frame, &bound, &saved);
        let (public, body, results) = match forward {
            Ok(forward) => forward,
            Err(found) => {
                self.bring_back(outer);
                return Err(found);
            }
        };
        let vjp = self.backward_graph(view, frame, &bound, &results, public, &body);
        self.bring_back(outer);

        let composite = Composite {
            name: "module".to_string(),
            params: vec![("of".to_string(), Attr::Word(view.decl.name.name.clone()))],
            body: Arc::new(body),
            public,
            derivative: Derivative::Vjp(Arc::new(vjp?)),
        };
        let args: Vec<Value> = bound.iter().map(|b| b.value).collect();
        let values = self.b.emit(composite.into(), &args);
        Ok(values.map_err(|e| misfit(&e, at, &view.decl.name.name))?[..public].to_vec())
    }

    fn set_aside(&mut self) -> (Builder, Vec<super::TableRows>) {
        (std::mem::take(&mut self.b), std::mem::take(&mut self.tables))
    }

    fn bring_back(&mut self, (builder, tables): (Builder, Vec<super::TableRows>)) {
        (self.b, self.tables) = (builder, tables);
    }

    fn operands(&self, view: &ModuleView<'_>, frame: &Frame, inputs: &[Option<Value>]) -> Result<Vec<Bound>> {
        let mut bound = Vec::new();
        let mut bind = |name: String, value: Value| {
            let ty = self.b.graph.ty(value).clone();
            bound.push(Bound { name, value, ty });
        };
        for (slot, value) in view.forward.inputs.iter().zip(inputs) {
            if let Some(value) = value {
                bind(io_name(slot, "in"), *value);
            }
        }
        for entry in &view.params {
            let Some(name) = entry.path.as_name() else { continue };
            match frame.entries.get(&name.name) {
                Some(Entry::Tensor(value)) => bind(name.name.clone(), *value),
                Some(Entry::Instance(_) | Entry::Array(_)) => {
                    return unsupported(name.span, "a written backward of a module that contains modules");
                }
                _ => {}
            }
        }
        Ok(bound)
    }

    /// The body: outputs, then what is saved. Also gives the names of all results.
    fn forward_graph(
        &mut self,
        view: &ModuleView<'_>,
        frame: &Frame,
        bound: &[Bound],
        saved: &BTreeSet<String>,
    ) -> Result<(usize, Graph, Vec<String>)> {
        self.b = Builder::new();
        let mut inner = frame.clone();
        for operand in bound {
            let value = self.b.graph.input(operand.ty.clone());
            inner.entries.insert(operand.name.clone(), Entry::Tensor(value));
        }
        let mut outputs = self.run_body(view, &mut inner)?;
        let public = outputs.len();
        let mut names: Vec<String> = view.forward.outputs.iter().map(|t| io_name(t, "out")).collect();
        for name in saved {
            if bound.iter().any(|b| b.name == *name) || names.contains(name) {
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
        let builder = std::mem::take(&mut self.b);
        Ok((public, builder.finish(&outputs), names))
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
        let mut inner = frame.clone();
        let mut define = |name: String, value: Value| inner.entries.insert(name, Entry::Tensor(value));
        for operand in bound {
            let value = self.b.graph.input(operand.ty.clone());
            define(operand.name.clone(), value);
            define(format!("saved.{}", operand.name), value);
        }
        let types = body.output_types();
        for (name, ty) in results.iter().zip(&types) {
            let value = self.b.graph.input(ty.clone());
            define(format!("saved.{name}"), value);
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
            let gradient = match inner.entries.get(&name) {
                Some(Entry::Tensor(value)) => *value,
                // `@frozen` and `@gradient(skip)` leave gradients out on purpose; others the checker has reported.
                _ => (self.b.zeros(&operand.ty)).map_err(|e| misfit(&e, graph.span, &name))?,
            };
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
