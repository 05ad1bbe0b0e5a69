//! Checks graphs: the tensors that are in scope, the order of statements, and single assignment.

use super::annotation_table::AnnotationTarget;
use super::annotations;
use super::rules::CheckedOperand;
use super::scope::ConstantScope;
use super::types::{Shape, TensorType};
use crate::ast::{Annotation, Call, Expr, ExprKind, Flow, FlowSource, FlowStep, Path, Statement, StepKind};
use crate::consteval::{ConstValue, Ternary};
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::{Dim, ExactDivision};
use crate::resolve::{ItemRef, ModuleProgram};
use crate::span::Span;
use crate::suggest::closest;
use std::collections::{BTreeMap, BTreeSet};

/// A condition that must be decided before the graph is known.
pub(super) struct OpenCondition(pub(super) String);

/// A module with its arguments.
#[derive(Clone, Debug)]
pub(super) struct ModuleInstance {
    pub(super) item: ItemRef,
    pub(super) given: BTreeMap<String, ConstValue>,
}

/// The meaning of a name in a graph.
#[derive(Clone, Debug)]
pub(super) enum GraphEntry {
    Tensor(TensorType),
    Instance(ModuleInstance),
    /// An array of instances with its length.
    Instances(ModuleInstance, Option<Dim>),
    /// An optional parameter that is absent in this variant.
    Absent,
}

/// An entry with the location of its definition.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) entry: GraphEntry,
    pub(super) span: Span,
}

/// The operation that computed a tensor, and its operands.
#[derive(Clone, Debug, Default)]
pub(super) struct Producer {
    pub(super) reads: Vec<String>,
    /// The primitives of the statement with the names of their operands.
    pub(super) primitives: Vec<(String, Vec<String>)>,
}

pub(super) struct GraphChecker<'a> {
    pub(super) program: &'a ModuleProgram,
    pub(super) file: usize,
    pub(super) scope: ConstantScope,
    pub(super) entries: BTreeMap<String, Definition>,
    /// Names of parameters and constants.
    pub(super) params: BTreeSet<String>,
    pub(super) saved: BTreeMap<String, TensorType>,
    pub(super) saved_used: BTreeSet<String>,
    /// Gradients that a module's backward pass computes, because it is called with the parameters.
    pub(super) requested_gradients: BTreeSet<String>,
    /// The inputs of each stack of blocks.
    pub(super) stacks: BTreeMap<String, Vec<String>>,
    pub(super) in_backward: bool,
    pub(super) producers: BTreeMap<String, Producer>,
    /// The annotations of the statement that defines each tensor.
    pub(super) annotations: BTreeMap<String, Vec<Annotation>>,
    /// Tensors used as indices, which have no gradient.
    pub(super) integers: BTreeSet<String>,
    pub(super) exact_divisions: Vec<ExactDivision>,
    pub(super) elided: bool,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The operations of the current graph, and the names of its tensors.
    operations: BTreeSet<String>,
    defined_names: BTreeSet<String>,
    next_scope: u32,
    current: Producer,
}

impl<'a> GraphChecker<'a> {
    pub(super) fn new(program: &'a ModuleProgram, file: usize, scope: ConstantScope) -> Self {
        GraphChecker {
            program,
            file,
            scope,
            entries: BTreeMap::new(),
            params: BTreeSet::new(),
            saved: BTreeMap::new(),
            saved_used: BTreeSet::new(),
            requested_gradients: BTreeSet::new(),
            stacks: BTreeMap::new(),
            in_backward: false,
            producers: BTreeMap::new(),
            annotations: BTreeMap::new(),
            integers: BTreeSet::new(),
            exact_divisions: Vec::new(),
            elided: false,
            diagnostics: Vec::new(),
            operations: BTreeSet::new(),
            defined_names: BTreeSet::new(),
            next_scope: 1,
            current: Producer::default(),
        }
    }

    pub(super) fn fresh_scope(&mut self) -> u32 {
        self.next_scope += 1;
        self.next_scope
    }

    pub(super) fn tensor_types(&self) -> BTreeMap<String, TensorType> {
        let tensor = |(name, defined): (&String, &Definition)| match &defined.entry {
            GraphEntry::Tensor(ty) => Some((name.clone(), ty.clone())),
            _ => None,
        };
        self.entries.iter().filter_map(tensor).collect()
    }

    pub(super) fn report_elided(&mut self, span: Span, what: &str) {
        self.elided = true;
        self.diagnostics.push(
            Diagnostic::new(Code::L001, span, format!("{what} left out with `...`"))
                .with_label("this cannot be compiled")
                .with_hint("write it out"),
        );
    }

    pub(super) fn undefined(&mut self, span: Span, name: &str, what: &str) {
        let mut found =
            Diagnostic::new(Code::E002, span, format!("{what} named `{name}`")).with_label("not defined here");
        let known: Vec<&str> = self.entries.keys().map(|s| &**s).collect();
        if let Some(close) = closest(name, known) {
            found = found.with_hint(format!("did you mean `{close}`?"));
        } else if self.in_backward && self.saved.contains_key(name) {
            found = found.with_hint(format!("tensors of the forward graph are read as `saved.{name}`"));
        } else if name == "in" || name == "out" {
            found = found.with_hint(format!("declare it: `{name}: [B, T, C]`"));
        }
        self.diagnostics.push(found);
    }

    /// Decides a condition, or requests a decision.
    pub(super) fn guard(&mut self, expr: &Expr) -> Result<bool, OpenCondition> {
        match crate::consteval::truth(expr, &self.scope) {
            Ok(Ternary::Known(value)) => Ok(value),
            Ok(Ternary::Undecided(condition)) => Err(OpenCondition(condition)),
            Err(error) => {
                let found = self.scope.eval_diagnostic(error, Code::E016);
                let found = match found.code {
                    Code::E016 => Diagnostic { message: "`if` guard must be a constant expression".into(), ..found },
                    _ => found,
                };
                self.diagnostics.push(found);
                Ok(true)
            }
        }
    }

    /// Checks the statements of a graph. A cycle is reported with the code `circle`.
    pub(super) fn graph(&mut self, statements: &[Statement], circle: Code) -> Result<(), OpenCondition> {
        let mut flows = Vec::new();
        self.flatten(statements, false, &mut flows)?;
        let made: BTreeSet<String> = flows
            .iter()
            .flat_map(|(flow, _)| &flow.dest.items)
            .filter_map(|item| item.name.as_ref().map(Path::to_string))
            .collect();
        self.operations = flows
            .iter()
            .flat_map(|(flow, _)| super::reachability::calls(flow))
            .map(|c| c.callee.path.to_string())
            .collect();
        self.defined_names.clone_from(&made);
        let mut waiting: Vec<(&Flow, bool)> = flows;
        while !waiting.is_empty() {
            let before = waiting.len();
            let mut blocked = Vec::new();
            for (flow, replay) in waiting {
                let ready =
                    names_read(flow).iter().all(|(name, _)| !made.contains(name) || self.entries.contains_key(name));
                if ready {
                    self.flow(flow)?;
                } else {
                    blocked.push((flow, replay));
                }
            }
            if blocked.len() == before {
                self.report_cycle(&blocked, circle);
                for (flow, _) in &blocked {
                    let names = names_read(flow);
                    self.saved_used
                        .extend(names.iter().filter_map(|(n, _)| n.strip_prefix("saved.")).map(String::from));
                    self.define(flow, None);
                }
                return Ok(());
            }
            waiting = blocked;
        }
        Ok(())
    }

    fn flatten<'s>(
        &mut self,
        statements: &'s [Statement],
        replay: bool,
        flows: &mut Vec<(&'s Flow, bool)>,
    ) -> Result<(), OpenCondition> {
        for statement in statements {
            match statement {
                Statement::Flow(flow) => flows.push((flow, replay)),
                Statement::If(cond) => {
                    if self.guard(&cond.guard)? {
                        self.flatten(&cond.then, replay, flows)?;
                    } else if let Some(otherwise) = &cond.otherwise {
                        self.flatten(otherwise, replay, flows)?;
                    }
                }
                Statement::Recompute { body, .. } => self.flatten(body, true, flows)?,
                Statement::Elided(span) => self.report_elided(*span, "statements"),
                Statement::Empty(_) => {}
            }
        }
        Ok(())
    }

    fn report_cycle(&mut self, blocked: &[(&Flow, bool)], code: Code) {
        // Follows unresolved operands until a statement repeats.
        let maker = |name: &str| {
            blocked.iter().position(|(flow, _)| {
                flow.dest.items.iter().any(|item| item.name.as_ref().is_some_and(|path| path.to_string() == name))
            })
        };
        let mut visited: Vec<usize> = Vec::new();
        let mut names = Vec::new();
        let mut at = 0;
        while !visited.contains(&at) {
            visited.push(at);
            let next = names_read(blocked[at].0).into_iter().find_map(|(name, _)| {
                (!self.entries.contains_key(&name)).then(|| maker(&name).map(|flow| (name, flow))).flatten()
            });
            let Some((name, flow)) = next else { break };
            names.push(name);
            at = flow;
        }
        let start = visited.iter().position(|flow| *flow == at).unwrap_or(0);
        let circle = &names[start.min(names.len())..];
        let code = if blocked.iter().any(|(_, replay)| *replay) { Code::E022 } else { code };
        let mut shown: Vec<&str> = circle.iter().map(|s| &**s).collect();
        if let Some(first) = shown.first().copied() {
            shown.push(first);
        }
        let mut found = Diagnostic::new(code, blocked[at].0.span, code.title())
            .with_label("cannot run before the others")
            .with_note(format!("each needs the next: {}", shown.join(" <- ")));
        for flow in visited[start..].iter().filter(|flow| **flow != at) {
            found = found.with_secondary(blocked[*flow].0.span, "part of the cycle");
        }
        self.diagnostics.push(found);
    }

    fn flow(&mut self, flow: &Flow) -> Result<(), OpenCondition> {
        self.current =
            Producer { reads: names_read(flow).into_iter().map(|(name, _)| name).collect(), primitives: Vec::new() };
        let mut operands = match &flow.source {
            FlowSource::Tensors { items, .. } => Some(items.iter().map(|item| self.operand(item)).collect()),
            FlowSource::Call(call) => self.call(call, Vec::new())?.map(|types| as_operands(&types, call.span)),
            FlowSource::Elided(span) => {
                self.report_elided(*span, "the source is");
                None
            }
        };
        for (index, step) in flow.steps.iter().enumerate() {
            if index > 0
                && let Some(results) = &mut operands
                && !is_concat(step)
            {
                // Further results, such as the rstd of a norm, are for the backward pass.
                results.truncate(1);
            }
            operands = self.step(step, operands)?;
        }
        self.define(flow, operands.map(|operands| operands.into_iter().map(|o| o.ty).collect()));
        self.annotations(flow);
        Ok(())
    }

    /// Checks the annotations of a statement, after its results are defined.
    fn annotations(&mut self, flow: &Flow) {
        let place = if self.in_backward { AnnotationTarget::Backward } else { AnnotationTarget::Output };
        let found = &mut self.diagnostics;
        annotations::check(&flow.annotations, place, &self.scope, found);
        for step in &flow.steps {
            annotations::check(&step.annotations, AnnotationTarget::Step, &self.scope, found);
        }
        for item in &flow.dest.items {
            let place = if self.in_backward { AnnotationTarget::Backward } else { AnnotationTarget::Item };
            annotations::check(&item.annotations, place, &self.scope, found);
            if let (None, Some(note)) = (&item.name, item.annotations.first()) {
                found.push(
                    Diagnostic::new(Code::E008, note.span, format!("`@{}` on a result without a name", note.name.name))
                        .with_label("`_` is discarded")
                        .with_hint("give the result a name"),
                );
            }
        }
        if flow.dest.items.iter().all(|item| item.name.is_none())
            && let Some(note) = flow.annotations.first()
        {
            found.push(
                Diagnostic::new(Code::E008, note.span, format!("`@{}` on results without names", note.name.name))
                    .with_label("`_` is discarded")
                    .with_hint("give one of the results a name"),
            );
        }
        annotations::check_stages(flow, found);
        annotations::check_alias(flow, found);
        let notes = || flow.annotations.iter().chain(flow.dest.items.iter().flat_map(|item| &item.annotations));
        if notes().any(|note| matches!(note.name.name.as_str(), "fuse" | "fuse_required" | "checkpoint" | "lifetime")) {
            let reach = self.reachable_names(flow);
            annotations::check_fuse(flow, &reach.primitives, &mut self.diagnostics);
            self.check_preserved(flow, &reach.tensors);
            self.check_lifetimes(flow);
        }
    }

    /// `preserve=[..]` names tensors of this graph or of the modules that the statement calls.
    fn check_preserved(&mut self, flow: &Flow, inside: &BTreeSet<String>) {
        let notes = flow.annotations.iter().filter(|note| note.name.name == "checkpoint");
        let lists = notes.flat_map(|note| note.args.iter().flatten());
        for arg in lists.filter(|arg| arg.name.as_ref().is_some_and(|name| name.name == "preserve")) {
            for item in annotations::list_items(&arg.value) {
                let Some(name) = annotations::string_value(item) else { continue };
                if self.entries.contains_key(name) || self.defined_names.contains(name) || inside.contains(name) {
                    continue;
                }
                let mut found = Diagnostic::new(Code::E002, item.span, format!("no tensor named `{name}`"))
                    .with_label("neither this graph nor what the statement runs computes it");
                let known = self.entries.keys().chain(&self.defined_names).chain(inside).map(String::as_str);
                if let Some(close) = closest(name, known) {
                    found = found.with_hint(format!("did you mean `{close}`?"));
                }
                self.diagnostics.push(found);
            }
        }
    }

    /// `@lifetime(start=op, end=op)` names operations: the one that computes the tensor, and one of this graph.
    fn check_lifetimes(&mut self, flow: &Flow) {
        let notes = flow.annotations.iter().chain(flow.dest.items.iter().flat_map(|item| &item.annotations));
        let own: BTreeSet<String> =
            super::reachability::calls(flow).iter().map(|c| c.callee.path.to_string()).collect();
        let args = notes.filter(|note| note.name.name == "lifetime").flat_map(|note| note.args.iter().flatten());
        for arg in args {
            let key = arg.name.as_ref().map_or("scope", |name| name.name.as_str());
            let known = match key {
                "start" => &own,
                "end" => &self.operations,
                _ => continue,
            };
            let name = arg.value.as_path().map(|path| path.to_string());
            let name = name.or_else(|| annotations::string_value(&arg.value).map(str::to_string)).unwrap_or_default();
            if known.contains(&name) {
                continue;
            }
            let label = if key == "start" { "the statement does not run it" } else { "the graph does not run it" };
            let mut found =
                Diagnostic::new(Code::E008, arg.value.span, format!("no operation `{name}` here")).with_label(label);
            if let Some(close) = closest(&name, known.iter().map(String::as_str)) {
                found = found.with_hint(format!("did you mean `{close}`?"));
            }
            self.diagnostics.push(found);
        }
    }

    fn step(
        &mut self,
        step: &FlowStep,
        operands: Option<Vec<CheckedOperand>>,
    ) -> Result<Option<Vec<CheckedOperand>>, OpenCondition> {
        match &step.kind {
            StepKind::Call(call) => {
                let Some(operands) = operands else {
                    // The callee is still resolved, so that a misspelled name is reported.
                    self.callee_exists(call);
                    return Ok(None);
                };
                Ok(self.call(call, operands)?.map(|types| as_operands(&types, call.span)))
            }
            StepKind::Shape(dims) => {
                let stated: Option<Vec<Dim>> = dims.iter().map(|dim| self.scope.dim(dim)).collect();
                let Some(mut operands) = operands else { return Ok(None) };
                if let (Some(dims), Some(operand)) = (stated, operands.first_mut()) {
                    let stated = Shape::fixed(dims);
                    if let Some(shape) = &operand.ty.shape {
                        self.note_exactness(shape, &stated);
                    }
                    match &operand.ty.shape {
                        Some(shape) if !shape.equal(&stated) => self.diagnostics.push(
                            Diagnostic::new(Code::E004, step.span, "the shape differs from the stated one")
                                .with_label(format!("the tensor here is {shape}")),
                        ),
                        _ => operand.ty.shape = Some(stated),
                    }
                }
                Ok(Some(operands))
            }
        }
    }

    /// Defines the destinations of a flow with their types; `None` if the types are unknown.
    fn define(&mut self, flow: &Flow, types: Option<Vec<TensorType>>) {
        if let Some(types) = &types
            && flow.dest.items.len() > types.len()
        {
            let (names, results) = (flow.dest.items.len(), types.len());
            let plural = if results == 1 { "" } else { "s" };
            self.diagnostics.push(
                Diagnostic::new(Code::E003, flow.dest.span, "more names than results")
                    .with_label(format!("{names} names for {results} result{plural}")),
            );
        }
        let accumulates = flow.steps.last().is_some_and(accumulates);
        for (index, item) in flow.dest.items.iter().enumerate() {
            let Some(path) = &item.name else { continue };
            let name = path.to_string();
            let mut ty = types.as_ref().and_then(|types| types.get(index)).cloned().unwrap_or_default();
            let notes: Vec<Annotation> = flow.annotations.iter().chain(&item.annotations).cloned().collect();
            ty.dtype = annotations::dtype(&notes).or(ty.dtype);
            if let Some(earlier) = self.entries.get(&name) {
                let gradient = self.in_backward && name.strip_prefix("d_").is_some_and(|p| self.params.contains(p));
                if !(gradient && accumulates) {
                    let mut again = Diagnostic::new(Code::E017, item.span, format!("`{name}` is already defined"))
                        .with_label("second definition")
                        .with_secondary(earlier.span, "first definition");
                    again = if gradient {
                        again.with_hint("add `accumulate=true` to sum contributions to a gradient")
                    } else {
                        again.with_hint("give the new tensor a different name")
                    };
                    self.diagnostics.push(again);
                }
                continue;
            }
            self.annotations.insert(name.clone(), notes);
            self.producers.insert(name.clone(), self.current.clone());
            self.define_quietly(&name, GraphEntry::Tensor(ty), item.span);
        }
    }

    pub(super) fn define_quietly(&mut self, name: &str, entry: GraphEntry, span: Span) {
        self.scope.tensors.insert(name.to_string());
        self.entries.insert(name.to_string(), Definition { entry, span });
    }

    pub(super) fn record_primitive(&mut self, name: &str, operands: &[CheckedOperand]) {
        let operands = operands.iter().map(|operand| operand.text.clone()).collect();
        self.current.primitives.push((name.to_string(), operands));
    }

    /// Records the divisions that must be exact for two shapes to agree.
    pub(super) fn note_exactness(&mut self, a: &Shape, b: &Shape) {
        let pairs = a.dims.iter().zip(&b.dims);
        self.note_exact(pairs.flat_map(|(x, y)| x.equal(y).unwrap_or_default()).collect());
    }

    pub(super) fn note_exact(&mut self, exact: Vec<ExactDivision>) {
        self.exact_divisions.extend(exact);
        self.exact_divisions.sort();
        self.exact_divisions.dedup();
    }
}

fn as_operands(types: &[TensorType], span: Span) -> Vec<CheckedOperand> {
    types.iter().map(|ty| CheckedOperand { text: "the result before".to_string(), ty: ty.clone(), span }).collect()
}

fn is_concat(step: &FlowStep) -> bool {
    matches!(&step.kind, StepKind::Call(call) if call.callee.path.to_string() == "concat")
}

fn accumulates(step: &FlowStep) -> bool {
    let StepKind::Call(Call { args: Some(args), .. }) = &step.kind else {
        return false;
    };
    args.iter().any(|arg| {
        arg.name.as_ref().is_some_and(|name| name.name == "accumulate")
            && matches!(arg.value.peel().kind, ExprKind::Bool(true))
    })
}

/// The names that a flow uses anywhere.
pub(crate) fn names_read(flow: &Flow) -> Vec<(String, Span)> {
    fn collect(expr: &Expr, names: &mut Vec<(String, Span)>) {
        if let Some(path) = expr.as_path() {
            names.push((path.parts[0].name.clone(), expr.span));
            if path.parts.len() > 1 {
                names.push((path.to_string(), expr.span));
            }
            return;
        }
        for child in expr.children() {
            collect(child, names);
        }
    }
    let mut names = Vec::new();
    let call = |call: &Call, names: &mut Vec<(String, Span)>| {
        for arg in call.args.iter().flatten() {
            collect(&arg.value, names);
        }
    };
    match &flow.source {
        FlowSource::Tensors { items, .. } => items.iter().for_each(|item| collect(item, &mut names)),
        FlowSource::Call(source) => call(source, &mut names),
        FlowSource::Elided(_) => {}
    }
    for step in &flow.steps {
        if let StepKind::Call(step) = &step.kind {
            call(step, &mut names);
        }
    }
    names
}
