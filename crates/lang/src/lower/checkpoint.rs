//! `@checkpoint`: a part of a graph that backward computes again instead of keeping what is inside (§7.2.2).

use super::frame::{Entry, Frame, Instance};
use super::graph::Operand;
use super::{Lowerer, Result, misfit};
use crate::ast::{Annotation, ExprKind};
use crate::span::Span;
use ir::ops::Remat;
use ir::{Build, Builder, Graph, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Whether annotations ask for a checkpoint.
pub(super) fn wanted<'n>(mut notes: impl Iterator<Item = &'n Annotation>) -> bool {
    let off = |note: &Annotation| {
        note.args.iter().flatten().any(|arg| {
            arg.name.as_ref().is_some_and(|name| name.name == "granularity")
                && matches!(&arg.value.kind, ExprKind::Name(word) if word == "none")
        })
    };
    notes.any(|note| note.name.name == "checkpoint" && !off(note))
}

impl Lowerer<'_> {
    /// Lowers a part into a graph of its own, called so that its inside is computed again in backward.
    pub(super) fn recomputed(
        &mut self,
        frame: &Frame,
        operands: &[Operand],
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
            table => table.clone(),
        });
        let results = part(self, &mut inner, given.collect());
        let body = std::mem::replace(&mut self.b, outer);
        self.tables = tables;

        let mut outputs = Vec::new();
        for result in results? {
            outputs.push(result.tensor(at)?);
        }
        let fault = |e: ir::Error| misfit(&e, at, "@checkpoint");
        let (body, used) = without_unused(&body.finish(&outputs)).map_err(fault)?;
        let args: Vec<Value> = used.iter().map(|&i| captured[i]).collect();
        let values = self.b.emit(Remat::new(body).into(), &args).map_err(fault)?;
        Ok(values.iter().copied().map(Operand::Tensor).collect())
    }
}

fn collect(entry: &Entry, found: &mut BTreeSet<Value>) {
    match entry {
        Entry::Tensor(value) => {
            found.insert(*value);
        }
        Entry::Instance(instance) => instance.entries.values().for_each(|e| collect(e, found)),
        Entry::Array(all) => all.iter().flat_map(|i| i.entries.values()).for_each(|e| collect(e, found)),
        Entry::Table(_) | Entry::Absent => {}
    }
}

fn renamed(entry: &Entry, names: &BTreeMap<Value, Value>) -> Entry {
    let instance = |instance: &Rc<Instance>| {
        let entries = instance.entries.iter();
        Rc::new(Instance {
            item: instance.item,
            given: instance.given.clone(),
            entries: entries.map(|(name, e)| (name.clone(), renamed(e, names))).collect(),
        })
    };
    match entry {
        Entry::Tensor(value) => Entry::Tensor(names[value]),
        Entry::Instance(one) => Entry::Instance(instance(one)),
        Entry::Array(all) => Entry::Array(all.iter().map(instance).collect()),
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
