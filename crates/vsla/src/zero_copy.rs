//! The caller's data that one run uses without a copy (§7.2, §10.1).
//!
//! Every input and output of bindings has a second buffer that can point to any memory. A borrow replaces the bindings' own
//! buffer by it, and the end of the borrow restores the own buffer, also if a run fails or panics. After that the borrowed data
//! is no longer available: running without a new value for that input, and reading such an output, are errors.

use crate::backend::Backend;
use crate::bindings::Bindings;
use crate::describe::ValueId;
use crate::error::Result;
use compiler::DeviceBuffer;
use cpu::HostBuffer;
use ir::DType;
use std::ptr::NonNull;
use std::sync::Arc;

/// The buffers that can point to any memory, one for each input and output.
pub(crate) struct ExternalBuffers {
    inputs: Vec<ExternalBuffer>,
    outputs: Vec<ExternalBuffer>,
}

struct ExternalBuffer {
    pointer: Arc<HostBuffer>,
    /// The bindings' own buffer, while it is replaced by the pointer.
    own: Option<Arc<dyn DeviceBuffer>>,
    /// Whether the value was in borrowed memory in the last run, so that the bindings don't have it.
    gone: bool,
}

impl ExternalBuffers {
    pub(crate) fn new(inputs: usize, outputs: usize) -> ExternalBuffers {
        let make = |n| (0..n).map(|_| ExternalBuffer::new()).collect();
        ExternalBuffers { inputs: make(inputs), outputs: make(outputs) }
    }

    /// Marks an input as available in the bindings again.
    pub(crate) fn mark_written(&mut self, input: usize) {
        if let Some(s) = self.inputs.get_mut(input) {
            s.gone = false;
        }
    }

    /// Returns the first input whose value was borrowed for an earlier run and is no longer available.
    pub(crate) fn missing(&self) -> Option<usize> {
        self.inputs.iter().position(|s| s.gone && s.own.is_none())
    }

    /// Marks the outputs as available in the bindings after a run.
    pub(crate) fn finish_run(&mut self) {
        self.outputs.iter_mut().for_each(|s| s.gone = false);
    }

    /// Whether an output was written to memory that was borrowed for an earlier run.
    pub(crate) fn is_gone(&self, output: usize) -> bool {
        self.outputs.get(output).is_some_and(|s| s.gone && s.own.is_none())
    }
}

impl ExternalBuffer {
    fn new() -> ExternalBuffer {
        // SAFETY: no bytes.
        let nothing = unsafe { HostBuffer::from_raw(NonNull::<u64>::dangling().cast(), 0, Arc::new(())) };
        ExternalBuffer { pointer: Arc::new(nothing), own: None, gone: false }
    }

    /// Replaces a buffer of the bindings by the memory at a pointer.
    ///
    /// # Safety
    /// `ptr` is valid for `bytes` bytes until [`Spare::restore`].
    unsafe fn redirect(&mut self, place: &mut Arc<dyn DeviceBuffer>, ptr: NonNull<u8>, bytes: usize) -> bool {
        // There is no other reference: runs keep no buffers, and `restore` has dropped the last clone.
        let Some(pointer) = Arc::get_mut(&mut self.pointer) else { return false };
        // SAFETY: `ptr` is valid for `bytes` bytes until `Spare::restore`, which puts the buffer's own memory back.
        unsafe { pointer.repoint(ptr, bytes) };
        self.own = Some(std::mem::replace(place, self.pointer.clone()));
        true
    }

    fn restore(&mut self, place: &mut Arc<dyn DeviceBuffer>) {
        if let Some(own) = self.own.take() {
            *place = own;
            self.gone = true;
        }
    }

    fn holds(&self, ptr: *const u8, bytes: usize) -> bool {
        let (start, end) = (self.pointer.as_ptr().addr(), self.pointer.as_ptr().addr() + self.pointer.bytes());
        self.own.is_some() && ptr.addr() < end && start < ptr.addr() + bytes
    }
}

/// Bindings that use borrowed data, from [`Bindings::borrow_data`] until this is dropped.
pub struct BorrowedBindings<'a>(&'a mut Bindings);

impl Bindings {
    /// Begins to borrow the caller's data for the next run.
    pub fn borrow_data(&mut self) -> BorrowedBindings<'_> {
        BorrowedBindings(self)
    }
}

impl BorrowedBindings<'_> {
    /// Returns the bindings to run with.
    pub fn bindings(&mut self) -> &mut Bindings {
        self.0
    }

    /// Sets an input to data that is read in place. Data that can't be used in place is copied, and so are parameters, which
    /// persist between runs.
    ///
    /// # Safety
    /// `ptr` is valid for reads of `bytes` bytes, which nothing writes until the loan ends.
    pub unsafe fn input(&mut self, v: ValueId, ptr: *mut u8, bytes: usize) -> Result<()> {
        let b = &mut *self.0;
        let i = b.program.inputs().iter().position(|x| *x == v);
        let usable = i.and_then(|i| Some((i, usable_pointer(&b.backend, b.program.signature(v).dtype, ptr)?)));
        if let Some((i, at)) = usable {
            crate::bindings::check_len(b.program.signature(v).bytes(), bytes)?;
            let (spare, place) = (&mut b.spares.inputs[i], &mut b.inner.inputs[i]);
            spare.restore(place);
            // SAFETY: `ptr` is valid for reads of `bytes` bytes, which nothing writes until the loan ends; runs don't
            // write inputs.
            if unsafe { spare.redirect(place, at, bytes) } {
                return Ok(());
            }
        }
        // SAFETY: as above; no bytes may come with any pointer.
        let data = if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(ptr, bytes) } };
        b.write_bytes(v, data)
    }

    /// Makes an output be written to the caller's memory. If that is not possible, [`BorrowedBindings::copy_back`] copies it
    /// there after the run.
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `bytes` bytes, which nothing else uses until the loan ends.
    pub unsafe fn output(&mut self, v: ValueId, ptr: *mut u8, bytes: usize) -> Result<()> {
        let b = &mut *self.0;
        let Some(i) = b.program.outputs().iter().position(|x| *x == v) else { return Ok(()) };
        crate::bindings::check_len(b.program.signature(v).bytes(), bytes)?;
        let Some(at) = usable_pointer(&b.backend, b.program.signature(v).dtype, ptr) else { return Ok(()) };
        let spares = &mut b.spares;
        let taken = spares.inputs.iter().chain(&spares.outputs).any(|s| s.holds(ptr, bytes));
        // An output that is linked to another program must be in the bindings' own memory.
        let linked = Arc::strong_count(&b.inner.outputs[i]) > 1;
        if !taken && !linked && spares.outputs[i].own.is_none() {
            // SAFETY: `ptr` is valid for `bytes` bytes that nothing else uses until the loan ends.
            unsafe { spares.outputs[i].redirect(&mut b.inner.outputs[i], at, bytes) };
        }
        Ok(())
    }

    /// Copies an output to the caller's data after a run, unless it was written there.
    pub fn copy_back(&self, v: ValueId, data: &mut [u8]) -> Result<()> {
        let i = self.0.program.outputs().iter().position(|x| *x == v);
        let there = |i: usize| {
            let s = &self.0.spares.outputs[i];
            s.own.is_some() && s.pointer.as_ptr().cast_const() == data.as_ptr()
        };
        match i.is_some_and(there) {
            true => Ok(()),
            false => self.0.read_bytes(v, data),
        }
    }
}

impl Drop for BorrowedBindings<'_> {
    fn drop(&mut self) {
        let b = &mut *self.0;
        b.spares.inputs.iter_mut().zip(&mut b.inner.inputs).for_each(|(s, place)| s.restore(place));
        b.spares.outputs.iter_mut().zip(&mut b.inner.outputs).for_each(|(s, place)| s.restore(place));
    }
}

/// Returns the pointer if kernels can use it directly: they can address it, and it is aligned to its elements.
fn usable_pointer(backend: &Backend, dtype: DType, ptr: *mut u8) -> Option<NonNull<u8>> {
    let aligned = ptr.addr().is_multiple_of(dtype.size().max(1));
    NonNull::new(ptr).filter(|_| aligned && !backend.has_memory())
}
