//! Bindings: the memory of a program's inputs, outputs, parameters and intermediate values.

use crate::ValueSignature;
use crate::backend::Backend;
use crate::describe::ValueId;
use crate::error::{Error, Result};
use crate::memory::{ExclusiveUse, Memory, arenas, begin_use};
use crate::plan::{ArenaClass, CompiledLayout};
use crate::program::Program;
use crate::tensor::Tensor;
use crate::zero_copy::ExternalBuffers;
use compiler::DeviceBuffer;
use cpu::HostBuffer;
use std::sync::Arc;

/// Memory that the runs of one plan read and write. It is written and read between runs, and neither allocates.
pub struct Bindings {
    pub(crate) program: Arc<Program>,
    pub(crate) backend: Backend,
    pub(crate) inner: compiler::Bindings,
    /// The arena of a run: activations and workspace.
    pub(crate) arena: HostBuffer,
    /// Buffers that point to the caller's data.
    pub(crate) spares: ExternalBuffers,
    /// The shared arenas that contain this memory: its own arena, and those of inputs linked to other bindings.
    pub(crate) shared: Vec<ExclusiveUse>,
}

/// Returns the memory of an input or output (inputs are numbered first) in its arena.
pub(crate) fn edge_buffer(
    layout: &CompiledLayout,
    arena: &Arc<HostBuffer>,
    edge: usize,
) -> Result<Arc<dyn DeviceBuffer>> {
    let i = &layout.intervals[layout.edge_intervals[edge]];
    // SAFETY: the plan gives values that live together places that don't overlap, and runs of one bindings follow each other.
    Ok(Arc::new(unsafe { HostBuffer::slice(arena, i.offset, i.bytes)? }))
}

impl Bindings {
    pub(crate) fn new(
        program: &Arc<Program>,
        layout: &CompiledLayout,
        backend: &Backend,
        share: Option<&Bindings>,
        block: Option<Memory>,
    ) -> Result<Bindings> {
        let made = arenas(layout.arenas(share.is_some()), backend, block)?;
        Bindings::in_arenas(program, layout, backend, share, made)
    }

    /// Creates bindings in the arenas that `CompiledLayout::arenas` lists.
    pub(crate) fn in_arenas(
        program: &Arc<Program>,
        layout: &CompiledLayout,
        backend: &Backend,
        share: Option<&Bindings>,
        [params, external, kept, arena]: [HostBuffer; 4],
    ) -> Result<Bindings> {
        let arenas = [params, external, kept].map(Arc::new);
        let mut buffers = Vec::with_capacity(layout.edge_intervals.len());
        for i in 0..layout.edge_intervals.len() {
            buffers.push(match layout.intervals[layout.edge_intervals[i]].class {
                ArenaClass::Params if share.is_some() => continue,
                ArenaClass::Params => edge_buffer(layout, &arenas[0], i)?,
                ArenaClass::Activations => edge_buffer(layout, &arenas[2], i)?,
                _ => edge_buffer(layout, &arenas[1], i)?,
            });
        }
        if let Some(other) = share {
            same_params(program, &other.program)?;
            let params = other.inner.inputs[other.program.inputs().len()..].iter().take(program.params().len());
            let at = program.inputs().len();
            buffers.splice(at..at, params.cloned());
        }
        Ok(Bindings::with_edge_buffers(program, layout, backend, buffers, arena))
    }

    /// Creates bindings with given memory for every input and output.
    pub(crate) fn with_edge_buffers(
        program: &Arc<Program>,
        layout: &CompiledLayout,
        backend: &Backend,
        mut edges: Vec<Arc<dyn DeviceBuffer>>,
        arena: HostBuffer,
    ) -> Bindings {
        let outputs = edges.split_off(layout.executable.program().inputs.len());
        let inner = compiler::Bindings { inputs: edges, outputs };
        let spares = ExternalBuffers::new(program.inputs().len(), inner.outputs.len());
        Bindings { program: program.clone(), backend: backend.clone(), inner, arena, spares, shared: Vec::new() }
    }

    /// Returns the program of the bindings.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn value_buffer(&self, v: ValueId) -> Result<&Arc<dyn DeviceBuffer>> {
        let p = &self.program;
        let find = |list: &[ValueId]| list.iter().position(|x| *x == v);
        if let Some(i) = find(p.inputs()) {
            return Ok(&self.inner.inputs[i]);
        }
        if let Some(i) = find(p.params()) {
            return Ok(&self.inner.inputs[p.inputs().len() + i]);
        }
        match find(p.outputs()) {
            Some(i) => Ok(&self.inner.outputs[i]),
            None => {
                Err(Error::invalid_arg(format!("value {} is not an input, parameter or output of this program", v.0)))
            }
        }
    }

    /// Sets an input or parameter. A tensor of smaller shape is promoted: the rest is zero.
    pub fn write(&mut self, v: ValueId, t: &Tensor) -> Result<()> {
        self.set(v, |backend, buffer, wanted| {
            check_signature(wanted, t)?;
            if wanted.shape != t.shape() {
                zero(backend, buffer, wanted.bytes())?;
            }
            t.rows_in(&wanted.shape, |at, row| backend.write(buffer, at, row))
        })
    }

    /// Sets an input or parameter from dense little-endian bytes of exactly its shape.
    pub fn write_bytes(&mut self, v: ValueId, bytes: &[u8]) -> Result<()> {
        self.set(v, |backend, buffer, wanted| {
            check_len(wanted.bytes(), bytes.len())?;
            backend.write(buffer, 0, bytes)
        })
    }

    /// Sets an input or parameter from dense little-endian bytes of a smaller shape, which is promoted: the rest is zero.
    /// Allocates nothing.
    pub fn write_part(&mut self, v: ValueId, shape: &[usize], bytes: &[u8]) -> Result<()> {
        self.set(v, |backend, buffer, wanted| {
            if !crate::shape::fits_inside(shape, &wanted.shape) {
                let text = format!("shape {shape:?} exceeds the capacity {:?}; use a larger profile", wanted.shape);
                return Err(Error::shape("write", text));
            }
            let size = wanted.dtype.size();
            check_len(shape.iter().product::<usize>() * size, bytes.len())?;
            if shape != wanted.shape {
                zero(backend, buffer, wanted.bytes())?;
            }
            let Some((&row, lead)) = shape.split_last().filter(|_| !bytes.is_empty()) else { return Ok(()) };
            for (r, from) in bytes.chunks(row * size).enumerate() {
                let (mut rest, mut at, mut stride) = (r, 0, wanted.shape[lead.len()]);
                for (n, capacity) in lead.iter().zip(&wanted.shape).rev() {
                    at += rest % n * stride;
                    rest /= n;
                    stride *= capacity;
                }
                backend.write(buffer, at * size, from)?;
            }
            Ok(())
        })
    }

    /// Sets an input or parameter by calling a function with its memory.
    fn set(
        &mut self,
        v: ValueId,
        write: impl FnOnce(&Backend, &dyn DeviceBuffer, &ValueSignature) -> Result<()>,
    ) -> Result<()> {
        let held = begin_use(&self.shared)?;
        write(&self.backend, &**self.value_buffer(v)?, self.program.signature(v))?;
        drop(held);
        if let Some(i) = self.program.inputs().iter().position(|x| *x == v) {
            self.spares.mark_written(i);
        }
        Ok(())
    }

    /// Returns the value of an input, parameter or output.
    pub fn read(&self, v: ValueId) -> Result<Tensor> {
        let signature = self.program.value(v)?.signature.clone();
        let mut bytes = vec![0; signature.bytes()];
        self.read_bytes(v, &mut bytes)?;
        Tensor::from_bytes(signature, &bytes)
    }

    /// Copies the value of an input, parameter or output to `to` as dense little-endian bytes.
    pub fn read_bytes(&self, v: ValueId, to: &mut [u8]) -> Result<()> {
        let _held = begin_use(&self.shared)?;
        let buffer = self.value_buffer(v)?;
        check_len(self.program.signature(v).bytes(), to.len())?;
        let p = &self.program;
        let output =
            p.outputs().iter().position(|x| *x == v).filter(|_| !p.inputs().contains(&v) && !p.params().contains(&v));
        if output.is_some_and(|i| self.spares.is_gone(i)) {
            return Err(Error::invalid_arg(format!(
                "output {} is in the memory that was passed to the last run; read it there",
                v.0
            )));
        }
        self.backend.read(&**buffer, 0, to)
    }

    /// Seeds the random ops of the next runs; the same seed gives the same masks.
    pub fn seed(&mut self, seed: u64) -> Result<()> {
        let _held = begin_use(&self.shared)?;
        let at = self.program.inputs().len() + self.program.params().len();
        match self.inner.inputs.get(at) {
            Some(b) => self.backend.write(&**b, 0, &seed.to_le_bytes()),
            None => Err(Error::invalid_arg("this program has no seed, because it has no random op")),
        }
    }

    /// Checks that every input has a value: its own, or data of the caller's for this run.
    pub(crate) fn check_inputs(&self) -> Result<()> {
        let Some(i) = self.spares.missing() else { return Ok(()) };
        let v = self.program.inputs()[i].0;
        Err(Error::invalid_arg(format!(
            "input {v} was only passed to an earlier run; pass it again, or write it into the bindings"
        )))
    }

    /// Returns the memory of a value, for a link to another program.
    pub fn export(&self, v: ValueId) -> Result<ExportedBuffer> {
        let signature = self.program.value(v)?.signature.clone();
        let buffer = self.value_buffer(v)?.clone();
        Ok(ExportedBuffer { signature, buffer, shared: self.shared.clone() })
    }

    /// Uses the memory of another program's value as an input, without a copy (§10.1).
    pub fn import(&mut self, input: ValueId, from: ExportedBuffer) -> Result<()> {
        let Some(i) = self.program.inputs().iter().position(|x| *x == input) else {
            return Err(Error::invalid_arg(format!("value {} is not an input of the destination", input.0)));
        };
        let wanted = self.program.signature(input);
        if *wanted != from.signature {
            return Err(Error::shape(
                "link",
                format!("{} to {wanted}; both ends need the same signature", from.signature),
            ));
        }
        self.inner.inputs[i] = from.buffer;
        for block in from.shared {
            if !self.shared.iter().any(|own| own.is_same(&block)) {
                self.shared.push(block);
            }
        }
        self.spares.mark_written(i);
        Ok(())
    }
}

/// The memory of a program's value, for use as an input of another program.
pub struct ExportedBuffer {
    signature: ValueSignature,
    buffer: Arc<dyn DeviceBuffer>,
    shared: Vec<ExclusiveUse>,
}

pub(crate) fn check_len(needed: usize, got: usize) -> Result<()> {
    if needed == got {
        return Ok(());
    }
    Err(Error::invalid_arg(format!("{got} bytes were given, but the value has {needed}")))
}

/// Checks that a tensor has the dtype, model and rank of a signature and fits in its shape.
pub(crate) fn check_signature(wanted: &ValueSignature, t: &Tensor) -> Result<()> {
    let s = t.signature();
    if s.dtype != wanted.dtype {
        return Err(Error::invalid_arg(format!("the tensor is {}, but the program expects {}", s.dtype, wanted.dtype)));
    }
    if s.model != wanted.model {
        return Err(Error::invalid_arg(format!(
            "the tensor is of model {:?}, but the program expects {:?}",
            s.model, wanted.model
        )));
    }
    if s.shape.len() != wanted.shape.len() || s.shape.iter().zip(&wanted.shape).any(|(a, b)| a > b) {
        return Err(Error::shape(
            "write",
            format!(
                "shape {:?} exceeds the capacity {:?}; use a larger profile, or shrink the tensor",
                s.shape, wanted.shape
            ),
        ));
    }
    Ok(())
}

pub(crate) fn zero(backend: &Backend, to: &dyn DeviceBuffer, bytes: usize) -> Result<()> {
    static ZEROS: [u8; 4096] = [0; 4096];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(ZEROS.len());
        backend.write(to, at, &ZEROS[..n])?;
        at += n;
    }
    Ok(())
}

fn same_params(a: &Program, b: &Program) -> Result<()> {
    let list = |p: &Program| -> Vec<ValueSignature> { p.params().iter().map(|v| p.signature(*v).clone()).collect() };
    if list(a) == list(b) {
        return Ok(());
    }
    Err(Error::invalid_arg("programs share parameters only if they declare the same ones in the same order"))
}
