//! A compiled graph with its buffers: parameters shared between sessions, everything else its own.

use crate::budget;
use crate::error::Result;
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Options, Program};
use ir::{Graph, Type};
use std::sync::Arc;

pub(crate) type Buffer = Arc<dyn DeviceBuffer>;

/// A program ready to run.
pub(crate) struct Session {
    executable: Arc<dyn Executable>,
    pub(crate) bindings: Bindings,
    outputs: Vec<Type>,
}

impl Session {
    /// Compiles a graph whose first inputs are `params`.
    pub(crate) fn new(graph: &Graph, backend: &dyn Backend, params: &[Buffer]) -> Result<Session> {
        let program = compiler::compile(graph, backend, &Options::default())?;
        budget::fits("this program", needs(&program), "give shorter or fewer sequences")?;
        let executable = backend.load(program)?;
        let (inputs, outputs) = (&executable.program().inputs, &executable.program().outputs);
        let own = inputs[params.len()..].iter().map(|ty| backend.alloc(ty.bytes()));
        let own = own.collect::<compiler::Result<Vec<_>>>()?;
        let bindings = Bindings {
            inputs: params.iter().cloned().chain(own).collect(),
            outputs: outputs.iter().map(|ty| backend.alloc(ty.bytes())).collect::<compiler::Result<_>>()?,
        };
        let outputs = outputs.clone();
        Ok(Session { executable, bindings, outputs })
    }

    pub(crate) fn write_ints(&self, input: usize, values: impl Iterator<Item = i32>) -> Result<()> {
        let bytes: Vec<u8> = values.flat_map(i32::to_le_bytes).collect();
        Ok(self.bindings.inputs[input].write(0, &bytes)?)
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        Ok(self.executable.run(&mut self.bindings)?)
    }

    /// The bytes of an output with its type.
    pub(crate) fn read(&self, output: usize) -> Result<(Type, Vec<u8>)> {
        let ty = self.outputs[output].clone();
        let mut bytes = vec![0; ty.bytes()];
        self.bindings.outputs[output].read(0, &mut bytes)?;
        Ok((ty, bytes))
    }
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
