//! A compiled graph with its buffers: parameters shared between sessions, everything else its own.

use crate::budget;
use crate::error::Result;
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Options, Program};
use ir::ops::{Composite, Derivative};
use ir::{Build, Builder, Graph, Op, Type, Value};
use std::sync::Arc;

pub(crate) type Buffer = Arc<dyn DeviceBuffer>;

/// A program ready to run.
pub(crate) struct Session {
    executable: Arc<dyn Executable>,
    pub(crate) bindings: Bindings,
    outputs: Vec<Type>,
    /// (input, output) pairs that are one buffer, and those that change places after a run.
    shared: Vec<(usize, usize)>,
    swapped: Vec<(usize, usize)>,
}

impl Session {
    /// Compiles a graph whose first inputs are `params`.
    pub(crate) fn new(graph: &Graph, backend: &dyn Backend, params: &[Buffer]) -> Result<Session> {
        Session::donating(graph, backend, params, Vec::new())
    }

    /// The same where outputs replace inputs: in place if they can, otherwise by [`Session::swap`].
    pub(crate) fn donating(
        graph: &Graph,
        backend: &dyn Backend,
        params: &[Buffer],
        donate: Vec<(usize, usize)>,
    ) -> Result<Session> {
        Session::holding(graph, backend, params, donate, &[])
    }

    /// The same with more inputs that are there already, each with its place.
    pub(crate) fn holding(
        graph: &Graph,
        backend: &dyn Backend,
        params: &[Buffer],
        donate: Vec<(usize, usize)>,
        held: &[(usize, Buffer)],
    ) -> Result<Session> {
        let options = Options { donate: donate.clone(), ..Options::default() };
        let program = compiler::compile(&bare(graph)?, backend, &options)?;
        budget::fits("this program", needs(&program), "use shorter or fewer sequences")?;
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
        Ok(Session { bindings: Bindings { inputs, outputs }, outputs: types, shared, swapped, executable })
    }

    pub(crate) fn write_ints(&self, input: usize, values: impl Iterator<Item = i32>) -> Result<()> {
        let bytes: Vec<u8> = values.flat_map(i32::to_le_bytes).collect();
        Ok(self.bindings.inputs[input].write(0, &bytes)?)
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        Ok(self.executable.run(&mut self.bindings)?)
    }

    /// Outputs that replace inputs take their places.
    pub(crate) fn swap(&mut self) {
        for &(i, o) in &self.swapped {
            std::mem::swap(&mut self.bindings.inputs[i], &mut self.bindings.outputs[o]);
        }
    }

    /// Exchanges an input with one of another session, with what it shares its buffer with.
    pub(crate) fn trade(&mut self, input: usize, other: &mut Session, theirs: usize) {
        std::mem::swap(&mut self.bindings.inputs[input], &mut other.bindings.inputs[theirs]);
        self.share(input);
        other.share(theirs);
    }

    fn share(&mut self, input: usize) {
        if let Some((_, output)) = self.shared.iter().find(|(own, _)| *own == input) {
            self.bindings.outputs[*output] = self.bindings.inputs[input].clone();
        }
    }

    /// The bytes of an output with its type.
    pub(crate) fn read(&self, output: usize) -> Result<(Type, Vec<u8>)> {
        let ty = self.outputs[output].clone();
        let mut bytes = vec![0; ty.bytes()];
        self.bindings.outputs[output].read(0, &mut bytes)?;
        Ok((ty, bytes))
    }
}

/// The graph without the derivatives of its composites, which nobody asks a program for: it would keep those of every layer.
fn bare(graph: &Graph) -> Result<Graph> {
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

/// Bytes that a program works on: inputs, outputs and the arena of what lies between.
pub(crate) fn needs(program: &Program) -> u128 {
    let ends = program.inputs.iter().chain(&program.outputs);
    program.arena as u128 + ends.map(|ty| ty.bytes() as u128).sum::<u128>()
}

/// Buffers with these bytes in them.
pub(crate) fn upload(backend: &dyn Backend, tensors: &[Vec<u8>]) -> Result<Vec<Buffer>> {
    let mut buffers = Vec::new();
    for bytes in tensors {
        let buffer = backend.alloc(bytes.len())?;
        buffer.write(0, bytes)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}
