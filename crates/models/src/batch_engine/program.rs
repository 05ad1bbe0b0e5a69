//! The programs of a batch: a prefill chunk of one prompt, and a decode step for several rows.
//!
//! The second is the graph of a decode step for one sequence, mapped over rows by `transform::vmap`: positions, token IDs, caches
//! and the adapter have a batch axis, parameters are shared.

use super::adapters::StackedAdapters;
use crate::budget;
use crate::error::Result;
use crate::last_token::{head_input, select_last_token};
use crate::model::Model;
use crate::session::{Buffer, required_bytes};
use compiler::{Backend, Bindings, Executable, Options as Compiling};
use ir::{Builder, Graph, GraphBuilder, Type, Value};
use lang::lower::{LowerOptions, Lowered};
use std::sync::Arc;
use train::named_tensor::from_bytes;

/// A compiled program. Inputs: shared ones (stacks of adapters, parameters), token IDs, position, caches, the index of the
/// adapter if there are several, and for a prefill chunk the row whose logits are needed. Outputs: the result, caches.
pub(super) struct BatchProgram {
    executable: Arc<dyn Executable>,
    bindings: Bindings,
    shared: usize,
    caches: usize,
    /// Caches that could not be updated in place.
    copied: Vec<usize>,
    adapters: bool,
    result: Type,
}

/// The common inputs from which all programs of a batch are built.
pub(super) struct ProgramBuilder<'a> {
    pub(super) model: &'a Model,
    pub(super) stacked: Option<&'a StackedAdapters>,
    pub(super) capacity: usize,
    pub(super) shared: &'a [Buffer],
    pub(super) backend: &'a dyn Backend,
}

/// Lowers a decode step of `count` tokens, without the outputs for observation.
pub(super) fn decode_step_graph(model: &Model, count: usize, capacity: usize) -> Result<Lowered> {
    let options =
        LowerOptions { dtype: model.dtype, decode: Some(capacity), custom_backward: false, ..LowerOptions::default() };
    model.architecture.lower_with(1, count, &options)
}

impl ProgramBuilder<'_> {
    /// A program that prefills `count` tokens of one sequence; it returns the logits after one of them.
    pub(super) fn prefill_program(&self, count: usize, caches: &[Buffer]) -> Result<BatchProgram> {
        let lowered = decode_step_graph(self.model, count, self.capacity)?;
        let graph = self.with_adapters(&lowered.graph)?;
        self.compile(&select_last_token(&graph, 1)?, &lowered, caches)
    }

    /// A program that returns the hidden states before the head for `count` tokens of one sequence; none if the graph has no head.
    pub(super) fn hidden_state_program(&self, count: usize, caches: &[Buffer]) -> Result<Option<BatchProgram>> {
        let lowered = decode_step_graph(self.model, count, self.capacity)?;
        let mut graph = lowered.graph.clone();
        let Some(hidden) = head_input(&graph) else { return Ok(None) };
        let outs: Vec<Value> = std::iter::once(hidden).chain(graph.outputs()[1..].iter().copied()).collect();
        graph.set_outputs(outs);
        let graph = self.with_adapters(&graph)?;
        self.compile(&graph, &lowered, caches).map(Some)
    }

    /// A program that decodes one token for each of `rows` rows.
    pub(super) fn decode_program(&self, rows: usize, caches: &[Buffer]) -> Result<BatchProgram> {
        let lowered = decode_step_graph(self.model, 1, self.capacity)?;
        let graph = self.with_adapters(&lowered.graph)?;
        let inputs = graph.inputs().len();
        let batched: Vec<bool> = (0..inputs).map(|i| i >= self.shared.len()).collect();
        let want = vec![true; graph.outputs().len()];
        let (graph, _) = transform::vmap(&graph, &batched, &want, rows)?;
        self.compile(&graph, &lowered, caches)
    }

    fn with_adapters(&self, graph: &Graph) -> Result<Graph> {
        let graph = match self.stacked {
            Some(stacked) => stacked.insert_adapters(graph)?,
            None => graph.clone(),
        };
        // Parameters follow the stacks, quantized ones as their parts.
        self.model.read_packed(&graph, self.shared.len() - self.model.param_inputs())
    }

    fn compile(&self, graph: &Graph, lowered: &Lowered, caches: &[Buffer]) -> Result<BatchProgram> {
        let (shared, count) = (self.shared.len(), lowered.caches.len());
        let graph = keep_logits_and_caches(graph, lowered.outputs.len(), count)?;
        let donate = (0..count).map(|i| (shared + 2 + i, 1 + i)).collect();
        let program = compiler::compile(&graph, self.backend, &Compiling { donate, ..Compiling::default() })?;
        budget::check_fits("this program", required_bytes(&program), "reduce `--max-batch` or `--max-seq-len`")?;
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
        Ok(BatchProgram { executable, bindings, shared, caches: count, copied, adapters, result })
    }
}

/// A graph with only its first result and its caches.
fn keep_logits_and_caches(graph: &Graph, results: usize, caches: usize) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let outs = b.inline(graph, &args)?;
    let kept: Vec<Value> = std::iter::once(outs[0]).chain(outs[results..results + caches].iter().copied()).collect();
    Ok(b.finish(&kept))
}

impl BatchProgram {
    /// Runs the program. Token IDs are those of all rows, positions and adapters one per row; `row` is the requested token of a chunk.
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

    /// The result of the last run, row by row, and the length of a row.
    pub(super) fn result(&self) -> Result<(Vec<f32>, usize)> {
        let mut bytes = vec![0; self.result.bytes()];
        self.bindings.outputs[0].read(0, &mut bytes)?;
        Ok((from_bytes(&bytes, self.result.dtype), self.result.shape.last().copied().unwrap_or(1)))
    }

    /// The number of caches that are updated in place, and of all caches.
    pub(super) fn in_place(&self) -> (usize, usize) {
        (self.caches - self.copied.len(), self.caches)
    }
}
