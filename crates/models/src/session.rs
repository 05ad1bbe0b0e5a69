//! A compiled graph with its buffers: parameters are shared between sessions, other buffers are not.

use crate::budget;
use crate::error::Result;
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Options, Program};
use ir::ops::{Composite, Derivative};
use ir::{Builder, Graph, GraphBuilder, Op, Type, Value};
use std::sync::Arc;

pub(crate) type Buffer = Arc<dyn DeviceBuffer>;

/// A compiled program with bound buffers.
pub(crate) struct ProgramSession {
    executable: Arc<dyn Executable>,
    pub(crate) bindings: Bindings,
    outputs: Vec<Type>,
    /// Pairs (input, output) that share one buffer, and those that are swapped after a run.
    shared: Vec<(usize, usize)>,
    swapped: Vec<(usize, usize)>,
}

impl ProgramSession {
    /// Compiles a graph whose first inputs are `params`.
    pub(crate) fn new(graph: &Graph, backend: &dyn Backend, params: &[Buffer]) -> Result<ProgramSession> {
        ProgramSession::donating(graph, backend, params, Vec::new())
    }

    /// Like `new`, for outputs that replace inputs: in place if possible, otherwise by [`ProgramSession::swap`].
    pub(crate) fn donating(
        graph: &Graph,
        backend: &dyn Backend,
        params: &[Buffer],
        donate: Vec<(usize, usize)>,
    ) -> Result<ProgramSession> {
        ProgramSession::with_resident_inputs(graph, backend, params, donate, &[])
    }

    /// Like `donating`, with further inputs that are on the device already, each with its index.
    pub(crate) fn with_resident_inputs(
        graph: &Graph,
        backend: &dyn Backend,
        params: &[Buffer],
        donate: Vec<(usize, usize)>,
        held: &[(usize, Buffer)],
    ) -> Result<ProgramSession> {
        let options = Options { donate: donate.clone(), ..Options::default() };
        let program = compiler::compile(&without_derivatives(graph)?, backend, &options)?;
        budget::check_fits("this program", required_bytes(&program), "use shorter or fewer sequences")?;
        let executable = backend.load(program)?;
        let program = executable.program();
        let own = program.inputs.iter().enumerate().skip(params.len()).map(|(i, ty)| {
            let held = held.iter().find(|(place, _)| *place == i);
            held.map_or_else(|| backend.alloc(ty.bytes()), |(_, buffer)| Ok(buffer.clone()))
        });
        let own = own.collect::<compiler::Result<Vec<_>>>()?;
        let inputs: Vec<Buffer> = params.iter().cloned().chain(own).collect();
        let mut outputs = Vec::new();
        for (o, ty) in program.outputs.iter().enumerate() {
            outputs.push(match program.donated.iter().find(|(_, output)| *output == o) {
                Some((input, _)) => inputs[*input].clone(),
                None => backend.alloc(ty.bytes())?,
            });
        }
        let (shared, swapped) = donate.into_iter().partition(|pair| program.donated.contains(pair));
        let types = program.outputs.clone();
        Ok(ProgramSession { bindings: Bindings { inputs, outputs }, outputs: types, shared, swapped, executable })
    }

    pub(crate) fn write_ints(&self, input: usize, values: impl Iterator<Item = i32>) -> Result<()> {
        let bytes: Vec<u8> = values.flat_map(i32::to_le_bytes).collect();
        Ok(self.bindings.inputs[input].write(0, &bytes)?)
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        Ok(self.executable.run(&mut self.bindings)?)
    }

    /// Swaps the buffers of outputs and the inputs that they replace.
    pub(crate) fn swap(&mut self) {
        for &(i, o) in &self.swapped {
            std::mem::swap(&mut self.bindings.inputs[i], &mut self.bindings.outputs[o]);
        }
    }

    /// Exchanges an input with one of another session, including the output that shares its buffer.
    pub(crate) fn exchange_input(&mut self, input: usize, other: &mut ProgramSession, theirs: usize) {
        std::mem::swap(&mut self.bindings.inputs[input], &mut other.bindings.inputs[theirs]);
        self.share(input);
        other.share(theirs);
    }

    fn share(&mut self, input: usize) {
        if let Some((_, output)) = self.shared.iter().find(|(own, _)| *own == input) {
            self.bindings.outputs[*output] = self.bindings.inputs[input].clone();
        }
    }

    /// Returns the type and the bytes of an output.
    pub(crate) fn read(&self, output: usize) -> Result<(Type, Vec<u8>)> {
        let ty = self.outputs[output].clone();
        let mut bytes = vec![0; ty.bytes()];
        self.bindings.outputs[output].read(0, &mut bytes)?;
        Ok((ty, bytes))
    }
}

/// Removes the custom derivatives of composites, which the program does not use: it would keep those of every layer.
fn without_derivatives(graph: &Graph) -> Result<Graph> {
    let mut b = Builder::new();
    let inputs = graph.input_types().into_iter().map(|ty| b.graph.input(ty));
    let mut map: Vec<Option<Value>> = vec![None; graph.num_values()];
    for (input, new) in graph.inputs().iter().zip(inputs.collect::<Vec<_>>()) {
        map[input.0 as usize] = Some(new);
    }
    for node in graph.nodes() {
        let op = match &node.op {
            Op::Composite(composite) => {
                Composite { derivative: Derivative::Body, ..Composite::clone(composite) }.into()
            }
            op => op.clone(),
        };
        let args: Vec<Value> = node.args.iter().filter_map(|arg| map[arg.0 as usize]).collect();
        b.loc = node.loc.clone();
        for (out, new) in node.outs.iter().zip(b.emit(op, &args)?) {
            map[out.0 as usize] = Some(new);
        }
    }
    let outs: Vec<Value> = graph.outputs().iter().filter_map(|out| map[out.0 as usize]).collect();
    Ok(b.finish(&outs))
}

/// Bytes that a program needs: inputs, outputs and the arena of intermediate values.
pub(crate) fn required_bytes(program: &Program) -> u128 {
    let ends = program.inputs.iter().chain(&program.outputs);
    program.arena_bytes as u128 + ends.map(|ty| ty.bytes() as u128).sum::<u128>()
}

/// Uploads tensors to new buffers.
pub(crate) fn upload(backend: &dyn Backend, tensors: &[Vec<u8>]) -> Result<Vec<Buffer>> {
    let mut buffers = Vec::new();
    for bytes in tensors {
        let buffer = backend.alloc(bytes.len())?;
        buffer.write(0, bytes)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}
