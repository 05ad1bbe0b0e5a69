//! What is kept for backward (§7.2): `@checkpoint`, `@memory`, `@lifetime`, `save:` and `recompute:`.
//!
//! Where something is to be computed again, a whole region becomes a `remat` that keeps what goes by the name [`KEEP`]:
//! results that are to be saved get that name, the others don't. The order of precedence is §7.2.0's.

use super::annotations::{Notes, find, words};
use super::frame::{Entry, Frame, Instance};
use super::graph::Operand;
use super::{Lowerer, Result, misfit};
use crate::ast::{Annotation, Flow, NamePattern, Statement};
use crate::resolve::ModuleView;
use crate::span::Span;
use ir::ops::{Name, Remat, RematPolicy};
use ir::{Builder, Graph, GraphBuilder, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The name of values that a region keeps.
const KEEP: &str = "keep";

/// A part of the graph whose inside backward computes again, but for what is kept.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// Whether results are kept unless something says otherwise.
    keep: bool,
    /// Results that are kept even so.
    preserve: Vec<String>,
}

impl Region {
    /// A region that keeps what isn't marked.
    pub(super) fn keeping() -> Region {
        Region { keep: true, preserve: Vec::new() }
    }
}

/// The region that annotations ask for.
pub(super) fn wanted(notes: &[&Annotation]) -> Option<Region> {
    let note = find(notes, "checkpoint")?;
    let preserve = note.argument("preserve").map(words).unwrap_or_default();
    let keep = matches!(note.word("granularity").as_deref(), Some("selective" | "none"));
    Some(Region { keep, preserve })
}

/// Whether annotations ask for no checkpoint here.
fn unwanted(notes: &[&Annotation]) -> bool {
    find(notes, "checkpoint").is_some_and(|note| note.word("granularity").as_deref() == Some("none"))
}

/// What annotations on a result say about keeping it.
fn noted(notes: &[&Annotation]) -> Option<bool> {
    if let Some(mode) = find(notes, "memory").and_then(|note| note.word("mode")) {
        return Some(!matches!(mode.as_str(), "recompute" | "temporary"));
    }
    // What ends with its layer or before is not there any more in backward.
    find(notes, "lifetime").map(|note| note.word("scope").as_deref() == Some("global"))
}

/// The lists of a module.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    save: Vec<NamePattern>,
    recompute: Vec<NamePattern>,
}

impl Lists {
    pub(super) fn of(view: &ModuleView<'_>) -> Lists {
        let items = |list: Option<&crate::ast::NameList>| list.map(|list| list.items.clone()).unwrap_or_default();
        Lists { save: items(view.forward.save), recompute: items(view.forward.recompute) }
    }

    /// Whether backward keeps a result of this name.
    fn keeps(&self, name: &str, notes: &[&Annotation], region: &Region) -> bool {
        let listed = |list: &[NamePattern]| list.iter().any(|item| item.matches(name));
        if let Some(kept) = noted(notes) {
            return kept;
        }
        if region.preserve.iter().any(|kept| kept == name) {
            return true;
        }
        region.keep && (listed(&self.save) || !listed(&self.recompute))
    }
}

/// Whether a module wants some of its results to be computed again.
fn recomputes(statements: &[Statement], lists: &Lists) -> bool {
    let region = Region::keeping();
    let drops = |flow: &Flow| {
        flow.dest.items.iter().any(|item| {
            let notes: Vec<&Annotation> = flow.annotations.iter().chain(&item.annotations).collect();
            item.name.as_ref().is_some_and(|name| !lists.keeps(&name.to_string(), &notes, &region))
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
    /// The region that a module's body is to be, if it asks for one and is in none.
    pub(super) fn body_region(&self, view: &ModuleView<'_>) -> Option<Region> {
        if self.options.decode.is_some() {
            return None;
        }
        let own: Vec<&Annotation> = view.notes.iter().map(|(note, _)| *note).collect();
        if let Some(region) = wanted(&own) {
            return (!unwanted(&own)).then_some(region);
        }
        let statements = view.forward.graph.map_or(&[][..], |graph| &graph.statements);
        (self.region.is_none() && recomputes(statements, &Lists::of(view))).then(Region::keeping)
    }

    /// The name of a kept value, where it matters.
    pub(super) fn kept(&mut self, name: &str, notes: &[&Annotation], value: Value, frame: &Frame) -> Result<Value> {
        match &self.region {
            Some(region) if frame.lists.keeps(name, notes, region) => {
                let at = notes.first().map_or(Span::default(), |note| note.span);
                self.b.one(Name::new(KEEP).into(), &[value]).map_err(|e| misfit(&e, at, "@memory"))
            }
            _ => Ok(value),
        }
    }

    /// Runs the steps of a flow in the region that its annotations ask for.
    pub(super) fn in_region(
        &mut self,
        flow: &Flow,
        operands: Vec<Operand>,
        frame: &mut Frame,
        part: impl FnOnce(&mut Self, &mut Frame, Vec<Operand>) -> Result<Vec<Operand>>,
    ) -> Result<Vec<Operand>> {
        let notes: Vec<&Annotation> = flow.annotations.iter().collect();
        match wanted(&notes).filter(|_| self.options.decode.is_none()) {
            None => part(self, frame, operands),
            Some(region) if self.region.is_some() => {
                let outer = self.region.replace(region);
                let results = part(self, frame, operands);
                self.region = outer;
                results
            }
            Some(_) if unwanted(&notes) => part(self, frame, operands),
            Some(region) => self.recomputed(frame, &operands, region, flow.span, part),
        }
    }

    /// Lowers a part into a graph of its own, called so that its inside is computed again in backward.
    pub(super) fn recomputed(
        &mut self,
        frame: &Frame,
        operands: &[Operand],
        region: Region,
        at: Span,
        part: impl FnOnce(&mut Self, &mut Frame, Vec<Operand>) -> Result<Vec<Operand>>,
    ) -> Result<Vec<Operand>> {
        let mut captured = BTreeSet::new();
        frame.entries.values().for_each(|entry| collect(entry, &mut captured));
        for operand in operands {
            if let Operand::Tensor(value) = operand {
                captured.insert(*value);
            }
        }
        if let Some(super::hooks::Layer::Traced(value)) = self.layer {
            captured.insert(value);
        }
        let captured: Vec<Value> = captured.into_iter().collect();
        let types: Vec<_> = captured.iter().map(|v| self.b.graph.ty(*v).clone()).collect();

        let outer = std::mem::take(&mut self.b);
        let tables = std::mem::take(&mut self.tables);
        let inside: BTreeMap<Value, Value> =
            (captured.iter().copied()).zip(types.into_iter().map(|ty| self.b.graph.input(ty))).collect();
        let mut inner = frame.clone();
        inner.entries.values_mut().for_each(|entry| *entry = renamed(entry, &inside));
        let given = operands.iter().map(|operand| match operand {
            Operand::Tensor(value) => Operand::Tensor(inside[value]),
            other => other.clone(),
        });
        let given = given.collect();
        let (layer, around) = (self.layer, self.region.replace(region));
        if let Some(super::hooks::Layer::Traced(value)) = layer {
            self.layer = Some(super::hooks::Layer::Traced(inside[&value]));
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
        let fault = |e: ir::Error| misfit(&e, at, "@checkpoint");
        let (body, used) = without_unused(&body.finish(&outputs)).map_err(fault)?;
        let args: Vec<Value> = used.iter().map(|&i| captured[i]).collect();
        let remat = Remat::with(body, RematPolicy::Names(vec![KEEP.to_string()]));
        let values = self.b.emit(remat.into(), &args).map_err(fault)?;
        self.seen_outside(seen, &values[results.len()..]);
        Ok(values[..results.len()].iter().copied().map(Operand::Tensor).collect())
    }
}

/// The tensors that an entry leads to.
pub(super) fn collect(entry: &Entry, found: &mut BTreeSet<Value>) {
    match entry {
        Entry::Tensor(value) => {
            found.insert(*value);
        }
        Entry::Instance(instance) | Entry::Stack(_, instance) => {
            instance.entries.values().for_each(|e| collect(e, found));
        }
        Entry::Array(all) => all.iter().flat_map(|i| i.entries.values()).for_each(|e| collect(e, found)),
        Entry::Table(_) | Entry::Absent => {}
    }
}

/// The entry with other values for its tensors.
pub(super) fn renamed(entry: &Entry, names: &BTreeMap<Value, Value>) -> Entry {
    let instance = |instance: &Rc<Instance>| {
        let entries = instance.entries.iter();
        Rc::new(Instance {
            item: instance.item,
            given: instance.given.clone(),
            entries: entries.map(|(name, e)| (name.clone(), renamed(e, names))).collect(),
            path: instance.path.clone(),
        })
    };
    match entry {
        Entry::Tensor(value) => Entry::Tensor(names[value]),
        Entry::Instance(one) => Entry::Instance(instance(one)),
        Entry::Array(all) => Entry::Array(all.iter().map(instance).collect()),
        Entry::Stack(count, one) => Entry::Stack(*count, instance(one)),
        Entry::Table(_) | Entry::Absent => entry.clone(),
    }
}

/// The graph with only the inputs it reads, and which those are.
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
    // What stands for an unused input is never read.
    let mut args = vec![first; inputs.len()];
    used.iter().zip(&kept).for_each(|(&i, &v)| args[i] = v);
    let outputs = b.inline(graph, &args)?;
    Ok((b.finish(&outputs), used))
}
