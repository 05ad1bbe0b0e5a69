//! Activation checkpointing (§7.2): `@checkpoint`, `@memory`, `@lifetime`, `save:` and `recompute:`.
//!
//! If anything is to be recomputed, a whole region becomes a `remat` that saves values with the name [`SAVED_NAME`]: results to
//! be saved get that name, others don't. The order of precedence is that of §7.2.0.

use super::annotations::{AnnotationArgs, find, words};
use super::frame::{FrameEntry, LoweredInstance, ModuleFrame};
use super::graph::LoweredOperand;
use super::{Lowerer, Result, op_error};
use crate::ast::{Annotation, Flow, NamePattern, Statement};
use crate::resolve::ModuleView;
use crate::span::Span;
use ir::ops::{Name, Remat, RematPolicy};
use ir::{Builder, Graph, GraphBuilder, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The name of values that a region saves.
const SAVED_NAME: &str = "keep";

/// A region of the graph that the backward pass recomputes, except for its saved values.
#[derive(Clone, Debug)]
pub(super) struct RecomputeRegion {
    /// Whether results are saved by default.
    save_by_default: bool,
    /// Results that are saved in any case.
    preserve: Vec<String>,
}

impl RecomputeRegion {
    /// A region that saves all results by default.
    pub(super) fn save_all() -> RecomputeRegion {
        RecomputeRegion { save_by_default: true, preserve: Vec::new() }
    }
}

/// The region that annotations request.
pub(super) fn requested_region(notes: &[&Annotation]) -> Option<RecomputeRegion> {
    let note = find(notes, "checkpoint")?;
    let preserve = note.argument("preserve").map(words).unwrap_or_default();
    let keep = matches!(note.word("granularity").as_deref(), Some("selective" | "none"));
    Some(RecomputeRegion { save_by_default: keep, preserve })
}

/// Whether annotations disable checkpointing here.
fn is_disabled(notes: &[&Annotation]) -> bool {
    find(notes, "checkpoint").is_some_and(|note| note.word("granularity").as_deref() == Some("none"))
}

/// Whether annotations of a result save it.
fn annotated_policy(notes: &[&Annotation]) -> Option<bool> {
    if let Some(mode) = find(notes, "memory").and_then(|note| note.word("mode")) {
        return Some(!matches!(mode.as_str(), "recompute" | "temporary"));
    }
    // A tensor whose lifetime ends with its layer or earlier is not available in the backward pass.
    find(notes, "lifetime").map(|note| note.word("scope").as_deref() == Some("global"))
}

/// The save and recompute lists of a module.
#[derive(Clone, Debug, Default)]
pub(super) struct SaveLists {
    save: Vec<NamePattern>,
    recompute: Vec<NamePattern>,
}

impl SaveLists {
    pub(super) fn of(view: &ModuleView<'_>) -> SaveLists {
        let items = |list: Option<&crate::ast::NameList>| list.map(|list| list.items.clone()).unwrap_or_default();
        SaveLists { save: items(view.forward.save), recompute: items(view.forward.recompute) }
    }

    /// Whether the backward pass uses a saved result of this name.
    fn is_saved(&self, name: &str, notes: &[&Annotation], region: &RecomputeRegion) -> bool {
        let listed = |list: &[NamePattern]| list.iter().any(|item| item.matches(name));
        if let Some(kept) = annotated_policy(notes) {
            return kept;
        }
        if region.preserve.iter().any(|kept| kept == name) {
            return true;
        }
        region.save_by_default && (listed(&self.save) || !listed(&self.recompute))
    }
}

/// Whether a module recomputes any of its results.
fn recomputes(statements: &[Statement], lists: &SaveLists) -> bool {
    let region = RecomputeRegion::save_all();
    let drops = |flow: &Flow| {
        flow.dest.items.iter().any(|item| {
            let notes: Vec<&Annotation> = flow.annotations.iter().chain(&item.annotations).collect();
            item.name.as_ref().is_some_and(|name| !lists.is_saved(&name.to_string(), &notes, &region))
        })
    };
    statements.iter().any(|statement| match statement {
        Statement::Flow(flow) => drops(flow),
        Statement::If(branch) => {
            recomputes(&branch.then, lists) || recomputes(branch.otherwise.as_deref().unwrap_or_default(), lists)
        }
        Statement::Recompute { .. } | Statement::Elided(_) | Statement::Empty(_) => false,
    })
}

impl Lowerer<'_> {
    /// The region of a module's body, if it requests one and is not inside another.
    pub(super) fn body_region(&self, view: &ModuleView<'_>) -> Option<RecomputeRegion> {
        if self.options.decode.is_some() {
            return None;
        }
        let own: Vec<&Annotation> = view.annotations.iter().map(|(note, _)| *note).collect();
        if let Some(region) = requested_region(&own) {
            return (!is_disabled(&own)).then_some(region);
        }
        let statements = view.forward.graph.map_or(&[][..], |graph| &graph.statements);
        (self.region.is_none() && recomputes(statements, &SaveLists::of(view))).then(RecomputeRegion::save_all)
    }

    /// Names a value that is to be saved, inside a region.
    pub(super) fn mark_saved(
        &mut self,
        name: &str,
        notes: &[&Annotation],
        value: Value,
        frame: &ModuleFrame,
    ) -> Result<Value> {
        match &self.region {
            Some(region) if frame.lists.is_saved(name, notes, region) => {
                let at = notes.first().map_or(Span::default(), |note| note.span);
                self.b.one(Name::new(SAVED_NAME).into(), &[value]).map_err(|e| op_error(&e, at, "@memory"))
            }
            _ => Ok(value),
        }
    }

    /// Lowers the steps of a flow in the region that its annotations request.
    pub(super) fn in_region(
        &mut self,
        flow: &Flow,
        operands: Vec<LoweredOperand>,
        frame: &mut ModuleFrame,
        part: impl FnOnce(&mut Self, &mut ModuleFrame, Vec<LoweredOperand>) -> Result<Vec<LoweredOperand>>,
    ) -> Result<Vec<LoweredOperand>> {
        let notes: Vec<&Annotation> = flow.annotations.iter().collect();
        match requested_region(&notes).filter(|_| self.options.decode.is_none()) {
            None => part(self, frame, operands),
            Some(region) if self.region.is_some() => {
                let outer = self.region.replace(region);
                let results = part(self, frame, operands);
                self.region = outer;
                results
            }
            Some(_) if is_disabled(&notes) => part(self, frame, operands),
            Some(region) => self.recomputed(frame, &operands, region, flow.span, part),
        }
    }

    /// Lowers a part into a separate graph, whose call is recomputed in the backward pass.
    pub(super) fn recomputed(
        &mut self,
        frame: &ModuleFrame,
        operands: &[LoweredOperand],
        region: RecomputeRegion,
        at: Span,
        part: impl FnOnce(&mut Self, &mut ModuleFrame, Vec<LoweredOperand>) -> Result<Vec<LoweredOperand>>,
    ) -> Result<Vec<LoweredOperand>> {
        let mut captured = BTreeSet::new();
        frame.entries.values().for_each(|entry| collect_tensors(entry, &mut captured));
        for operand in operands {
            if let LoweredOperand::Tensor(value) = operand {
                captured.insert(*value);
            }
        }
        if let Some(super::hooks::LayerIndex::Traced(value)) = self.layer {
            captured.insert(value);
        }
        let captured: Vec<Value> = captured.into_iter().collect();
        let types: Vec<_> = captured.iter().map(|v| self.b.graph.ty(*v).clone()).collect();

        let outer = std::mem::take(&mut self.b);
        let tables = std::mem::take(&mut self.tables);
        let inside: BTreeMap<Value, Value> =
            (captured.iter().copied()).zip(types.into_iter().map(|ty| self.b.graph.input(ty))).collect();
        let mut inner = frame.clone();
        inner.entries.values_mut().for_each(|entry| *entry = substitute_tensors(entry, &inside));
        let given = operands.iter().map(|operand| match operand {
            LoweredOperand::Tensor(value) => LoweredOperand::Tensor(inside[value]),
            other => other.clone(),
        });
        let given = given.collect();
        let (layer, around) = (self.layer, self.region.replace(region));
        if let Some(super::hooks::LayerIndex::Traced(value)) = layer {
            self.layer = Some(super::hooks::LayerIndex::Traced(inside[&value]));
        }
        let results = self.with_observed(|l| part(l, &mut inner, given));
        (self.layer, self.region) = (layer, around);
        let body = std::mem::replace(&mut self.b, outer);
        self.tables = tables;

        let (results, seen) = results?;
        let mut outputs = Vec::new();
        for result in &results {
            outputs.push(result.tensor(at)?);
        }
        outputs.extend(seen.iter().map(|(_, value)| *value));
        let fault = |e: ir::Error| op_error(&e, at, "@checkpoint");
        let (body, used) = without_unused(&body.finish(&outputs)).map_err(fault)?;
        let args: Vec<Value> = used.iter().map(|&i| captured[i]).collect();
        let remat = Remat::with_policy(body, RematPolicy::Names(vec![SAVED_NAME.to_string()]));
        let values = self.b.emit(remat.into(), &args).map_err(fault)?;
        self.import_observations(seen, &values[results.len()..]);
        Ok(values[..results.len()].iter().copied().map(LoweredOperand::Tensor).collect())
    }
}

/// Collects the tensors of an entry.
pub(super) fn collect_tensors(entry: &FrameEntry, found: &mut BTreeSet<Value>) {
    match entry {
        FrameEntry::Tensor(value) => {
            found.insert(*value);
        }
        FrameEntry::Instance(instance) | FrameEntry::Stack(_, instance) => {
            instance.entries.values().for_each(|e| collect_tensors(e, found));
        }
        FrameEntry::Array(all) => all.iter().flat_map(|i| i.entries.values()).for_each(|e| collect_tensors(e, found)),
        FrameEntry::Table(_) | FrameEntry::Absent => {}
    }
}

/// Replaces the tensors of an entry by other values.
pub(super) fn substitute_tensors(entry: &FrameEntry, names: &BTreeMap<Value, Value>) -> FrameEntry {
    let instance = |instance: &Rc<LoweredInstance>| {
        let entries = instance.entries.iter();
        Rc::new(LoweredInstance {
            item: instance.item,
            given: instance.given.clone(),
            entries: entries.map(|(name, e)| (name.clone(), substitute_tensors(e, names))).collect(),
            path: instance.path.clone(),
        })
    };
    match entry {
        FrameEntry::Tensor(value) => FrameEntry::Tensor(names[value]),
        FrameEntry::Instance(one) => FrameEntry::Instance(instance(one)),
        FrameEntry::Array(all) => FrameEntry::Array(all.iter().map(instance).collect()),
        FrameEntry::Stack(count, one) => FrameEntry::Stack(*count, instance(one)),
        FrameEntry::Table(_) | FrameEntry::Absent => entry.clone(),
    }
}

/// Removes unused inputs of a graph; returns the indices of the others.
fn without_unused(graph: &Graph) -> ir::Result<(Graph, Vec<usize>)> {
    let inputs = graph.inputs();
    let read: BTreeSet<Value> =
        (graph.nodes().iter().flat_map(|node| node.args.iter())).chain(graph.outputs()).copied().collect();
    let used: Vec<usize> = (0..inputs.len()).filter(|&i| read.contains(&inputs[i])).collect();
    let mut b = Builder::new();
    let kept: Vec<Value> = used.iter().map(|&i| b.graph.input(graph.ty(inputs[i]).clone())).collect();
    let Some(&first) = kept.first() else {
        return Ok((graph.clone(), (0..inputs.len()).collect()));
    };
    // Arguments of unused inputs are never read.
    let mut args = vec![first; inputs.len()];
    used.iter().zip(&kept).for_each(|(&i, &v)| args[i] = v);
    let outputs = b.inline(graph, &args)?;
    Ok((b.finish(&outputs), used))
}
