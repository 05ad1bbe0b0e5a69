//! Programs: read, run, freed.

use crate::status::{Failure, Status, guard};
use crate::types::Shown;
use compiler::{ALIGN, Backend, Bindings, DeviceBuffer, Executable, Program};
use cpu::{Cpu, HostBuffer};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// A program ready to run.
pub struct Loaded {
    exe: Arc<dyn Executable>,
    pub(crate) inputs: Vec<Shown>,
    pub(crate) outputs: Vec<Shown>,
    /// Its threads; they end with it.
    _cpu: Cpu,
}

fn load(bytes: &[u8], threads: u32) -> Result<Box<Loaded>, Failure> {
    let program = Program::from_bytes(bytes)?.verify()?;
    if !program.donated.is_empty() {
        return Err(Failure(Status::File, "the program changes its inputs; compile it without donation".into()));
    }
    let cpu = if threads == 0 { Cpu::for_machine() } else { Cpu::new(threads as usize) };
    let exe = cpu.load(program)?;
    let shown = |list: &[ir::Type]| list.iter().map(Shown::new).collect();
    let (inputs, outputs) = (shown(&exe.program().inputs), shown(&exe.program().outputs));
    Ok(Box::new(Loaded { exe, inputs, outputs, _cpu: cpu }))
}

unsafe fn give(out: *mut *mut Loaded, read: impl FnOnce() -> Result<Box<Loaded>, Failure>) -> Status {
    guard(|| {
        if out.is_null() {
            return Err(Failure::argument("null for where the program goes"));
        }
        let loaded = read()?;
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(loaded)) };
        Ok(())
    })
}

/// A program from bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_load(
    data: *const c_void,
    bytes: usize,
    threads: u32,
    out: *mut *mut Loaded,
) -> Status {
    let read = || {
        if data.is_null() {
            return Err(Failure::argument("null for the program's bytes"));
        }
        // SAFETY: the caller's promise.
        load(unsafe { std::slice::from_raw_parts(data.cast(), bytes) }, threads)
    };
    // SAFETY: the caller's promise.
    unsafe { give(out, read) }
}

/// A program from a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_open(path: *const c_char, threads: u32, out: *mut *mut Loaded) -> Status {
    let read = || {
        if path.is_null() {
            return Err(Failure::argument("null for the file's path"));
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
        let bytes = std::fs::read(&*path).map_err(|e| Failure(Status::File, format!("{path}: {e}")))?;
        load(&bytes, threads).map_err(|Failure(status, text)| Failure(status, format!("{path}: {text}")))
    };
    // SAFETY: the caller's promise.
    unsafe { give(out, read) }
}

/// Frees a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_free(program: *mut Loaded) {
    if !program.is_null() {
        // SAFETY: made by `give`, freed once.
        let loaded = unsafe { Box::from_raw(program) };
        guard(|| {
            drop(loaded);
            Ok(())
        });
    }
}

/// Bytes that a run needs besides its inputs and outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_arena(program: *const Loaded) -> usize {
    // SAFETY: the caller's promise.
    unsafe { program.as_ref() }.map_or(0, |p| p.exe.arena_bytes())
}

/// Memory of the caller's, for the length of a call.
fn lent(what: &str, i: usize, at: *mut u8, shown: &Shown) -> Result<Arc<dyn DeviceBuffer>, Failure> {
    let bytes = shown.ty.bytes();
    let at = match NonNull::new(at) {
        Some(at) => at,
        None if bytes == 0 => NonNull::<u64>::dangling().cast(),
        None => return Err(Failure::argument(format!("null for {what} {i}, which is {}", shown.ty))),
    };
    if !(at.as_ptr() as usize).is_multiple_of(shown.ty.dtype.size().max(1)) {
        return Err(Failure::argument(format!(
            "{what} {i} is not aligned to its elements, which are {}",
            shown.ty.dtype
        )));
    }
    // SAFETY: the caller's promise: so many bytes lie there, and nobody else uses them meanwhile.
    Ok(Arc::new(unsafe { HostBuffer::from_raw(at, bytes, Arc::new(())) }))
}

/// Runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_run(
    program: *const Loaded,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
    arena: *mut c_void,
    arena_bytes: usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let p = unsafe { program.as_ref() }.ok_or_else(|| Failure::argument("null for the program"))?;
        let (ins, outs) = (p.inputs.len(), p.outputs.len());
        if (inputs.is_null() && ins > 0) || (outputs.is_null() && outs > 0) {
            return Err(Failure::argument("null for the list of inputs or outputs"));
        }
        let mut bindings = Bindings { inputs: Vec::with_capacity(ins), outputs: Vec::with_capacity(outs) };
        for (i, shown) in p.inputs.iter().enumerate() {
            // SAFETY: a list of so many. Programs write to no inputs but donated ones, which `load` refuses.
            let at = unsafe { *inputs.add(i) }.cast_mut().cast();
            bindings.inputs.push(lent("input", i, at, shown)?);
        }
        for (i, shown) in p.outputs.iter().enumerate() {
            // SAFETY: a list of so many.
            let at = unsafe { *outputs.add(i) }.cast();
            bindings.outputs.push(lent("output", i, at, shown)?);
        }
        let Some(arena) = NonNull::new(arena.cast::<u8>()) else {
            return Ok(p.exe.run(&mut bindings)?);
        };
        let needed = p.exe.arena_bytes();
        if arena_bytes < needed || !(arena.as_ptr() as usize).is_multiple_of(ALIGN) {
            return Err(Failure::argument(format!(
                "an arena of {arena_bytes} bytes at {arena:?}; it has to have {needed}, from a multiple of {ALIGN} on"
            )));
        }
        // SAFETY: the caller's promise.
        let mut arena = unsafe { HostBuffer::from_raw(arena, arena_bytes, Arc::new(())) };
        let steps = p.exe.program().steps.len();
        Ok(p.exe.run_in(&mut bindings, &mut arena, 0..steps)?)
    })
}
