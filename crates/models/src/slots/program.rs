//! The programs of a batch: a part of one prompt, and one more id for each of several rows.
//!
//! The second is the graph of a step for one sequence, mapped over rows by `transform::vmap`: positions, ids, caches and the
//! adapter have an entry for each row, parameters are shared.

use super::adapters::Stacked;
use crate::budget;
use crate::error::Result;
use crate::last_row::{before_head, last_row};
use crate::model::Model;
use crate::session::{Buffer, needs};
use compiler::{Backend, Bindings, Executable, Options as Compiling};
use ir::{Build, Builder, Graph, Type, Value};
use lang::lower::{Lowered, Options};
use std::sync::Arc;
use train::named_tensor::from_bytes;

/// A compiled program. Inputs: what is shared (stacks of adapters, parameters), ids, position, caches, the adapter where there
/// are several, the row that is asked for where it is a part of a prompt. Outputs: the result, caches.
pub(super) struct Program {
    executable: Arc<dyn Executable>,
    bindings: Bindings,
    shared: usize,
    caches: usize,
    /// Caches that it could not change in place.
    copied: Vec<usize>,
    adapters: bool,
    result: Type,
}

/// What all programs of a batch are made of.
pub(super) struct Source<'a> {
    pub(super) model: &'a Model,
    pub(super) stacked: Option<&'a Stacked>,
    pub(super) capacity: usize,
    pub(super) shared: &'a [Buffer],
    pub(super) backend: &'a dyn Backend,
}

/// One step of decoding some ids, without the outputs that are for onlookers.
pub(super) fn step_of(model: &Model, count: usize, capacity: usize) -> Result<Lowered> {
    let options = Options { dtype: model.dtype, decode: Some(capacity), written_backward: false, ..Options::default() };
    model.architecture.lower_with(1, count, &options)
}

impl Source<'_> {
    /// Runs so many ids of one sequence; gives the logits behind one of them.
    pub(super) fn part(&self, count: usize, caches: &[Buffer]) -> Result<Program> {
        let lowered = step_of(self.model, count, self.capacity)?;
        let graph = self.with_adapters(&lowered.graph)?;
        self.program(&last_row(&graph, 1)?, &lowered, caches)
    }

    /// The states that the head would score of so many ids of one sequence; none where the graph has no head.
    pub(super) fn hidden(&self, count: usize, caches: &[Buffer]) -> Result<Option<Program>> {
        let lowered = step_of(self.model, count, self.capacity)?;
        let mut graph = lowered.graph.clone();
        let Some(hidden) = before_head(&graph) else { return Ok(None) };
        let outs: Vec<Value> = std::iter::once(hidden).chain(graph.outputs()[1..].iter().copied()).collect();
        graph.set_outputs(outs);
        let graph = self.with_adapters(&graph)?;
        self.program(&graph, &lowered, caches).map(Some)
    }

    /// Runs one id for each of so many rows.
    pub(super) fn rows(&self, rows: usize, caches: &[Buffer]) -> Result<Program> {
        let lowered = step_of(self.model, 1, self.capacity)?;
        let graph = self.with_adapters(&lowered.graph)?;
        let inputs = graph.inputs().len();
        let batched: Vec<bool> = (0..inputs).map(|i| i >= self.shared.len()).collect();
        let want = vec![true; graph.outputs().len()];
        let (graph, _) = transform::vmap(&graph, &batched, &want, rows)?;
        self.program(&graph, &lowered, caches)
    }

    fn with_adapters(&self, graph: &Graph) -> Result<Graph> {
        let graph = match self.stacked {
            Some(stacked) => stacked.injected(graph)?,
            None => graph.clone(),
        };
        // Parameters come behind the stacks, packed ones as their parts.
        self.model.read_packed(&graph, self.shared.len() - self.model.param_inputs())
    }

    fn program(&self, graph: &Graph, lowered: &Lowered, caches: &[Buffer]) -> Result<Program> {
        let (shared, count) = (self.shared.len(), lowered.caches.len());
        let graph = only(graph, lowered.outputs.len(), count)?;
        let donate = (0..count).map(|i| (shared + 2 + i, 1 + i)).collect();
        let program = compiler::compile(&graph, self.backend, &Compiling { donate, ..Compiling::default() })?;
        budget::fits("this program", needs(&program), "give fewer `--slots` or a smaller `--context`")?;
        let executable = self.backend.load(program)?;
        let program = executable.program();
        let mut inputs: Vec<Buffer> = self.shared.to_vec();
        for (i, ty) in program.inputs.iter().enumerate().skip(shared) {
            let own = i.checked_sub(shared + 2).and_then(|c| caches.get(c));
            inputs.push(match own {
                Some(cache) => cache.clone(),
                None => self.backend.alloc(ty.bytes())?,
            });
        }
        let donated = |i: usize| program.donated.contains(&(shared + 2 + i, 1 + i));
        let mut outputs = Vec::new();
        for (o, ty) in program.outputs.iter().enumerate() {
            outputs.push(match o.checked_sub(1).filter(|i| donated(*i)) {
                Some(i) => caches[i].clone(),
                None => self.backend.alloc(ty.bytes())?,
            });
        }
        let copied = (0..count).filter(|i| !donated(*i)).collect();
        let result = program.outputs[0].clone();
        let bindings = Bindings { inputs, outputs };
        let adapters = self.stacked.is_some();
        Ok(Program { executable, bindings, shared, caches: count, copied, adapters, result })
    }
}

/// A graph with its first result and its caches alone.
fn only(graph: &Graph, results: usize, caches: usize) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let outs = b.inline(graph, &args)?;
    let kept: Vec<Value> = std::iter::once(outs[0]).chain(outs[results..results + caches].iter().copied()).collect();
    Ok(b.finish(&kept))
}

impl Program {
    /// Runs it. Ids are those of all rows, positions and adapters one for each; `row` is the id of a part that is asked for.
    pub(super) fn run(
        &mut self,
        ids: &[i32],
        positions: &[i32],
        adapters: &[i32],
        row: Option<i32>,
        backend: &dyn Backend,
    ) -> Result<()> {
        let bytes = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let inputs = &self.bindings.inputs;
        inputs[self.shared].write(0, &bytes(ids))?;
        inputs[self.shared + 1].write(0, &bytes(positions))?;
        let mut next = self.shared + 2 + self.caches;
        if self.adapters {
            inputs[next].write(0, &bytes(adapters))?;
            next += 1;
        }
        if let Some(row) = row {
            inputs[next].write(0, &row.to_le_bytes())?;
        }
        self.executable.run(&mut self.bindings)?;
        for i in &self.copied {
            let (from, to) = (&self.bindings.outputs[1 + i], &self.bindings.inputs[self.shared + 2 + i]);
            let bytes = self.executable.program().outputs[1 + i].bytes();
            backend.copy(&**from, &**to, bytes)?;
        }
        Ok(())
    }

    /// The result of the last run, its rows one after the other, and the length of a row.
    pub(super) fn result(&self) -> Result<(Vec<f32>, usize)> {
        let mut bytes = vec![0; self.result.bytes()];
        self.bindings.outputs[0].read(0, &mut bytes)?;
        Ok((from_bytes(&bytes, self.result.dtype), self.result.shape.last().copied().unwrap_or(1)))
    }

    /// How many caches are changed in place, of how many.
    pub(super) fn in_place(&self) -> (usize, usize) {
        (self.caches - self.copied.len(), self.caches)
    }
}
