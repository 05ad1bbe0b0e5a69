//! Programs: read, run, freed.

use crate::status::{Failure, Status, guard};
use crate::types::CTensorType;
use compiler::{ALIGN, Backend, Bindings, DeviceBuffer, Executable, Program};
use cpu::{Cpu, HostBuffer};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// A program ready to run.
pub struct LoadedProgram {
    exe: Arc<dyn Executable>,
    pub(crate) inputs: Vec<CTensorType>,
    pub(crate) outputs: Vec<CTensorType>,
    /// Its threads; they end with it.
    _cpu: Cpu,
}

fn load(bytes: &[u8], threads: u32) -> Result<Box<LoadedProgram>, Failure> {
    let program = Program::from_bytes(bytes)?.verify()?;
    if !program.donated.is_empty() {
        return Err(Failure(Status::File, "the program changes its inputs; compile it without donation".into()));
    }
    let cpu = if threads == 0 { Cpu::for_machine() } else { Cpu::new(threads as usize) };
    let exe = cpu.load(program)?;
    let shown = |list: &[ir::Type]| list.iter().map(CTensorType::new).collect();
    let (inputs, outputs) = (shown(&exe.program().inputs), shown(&exe.program().outputs));
    Ok(Box::new(LoadedProgram { exe, inputs, outputs, _cpu: cpu }))
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn write_handle(
    out: *mut *mut LoadedProgram,
    read: impl FnOnce() -> Result<Box<LoadedProgram>, Failure>,
) -> Status {
    guard(|| {
        if out.is_null() {
            return Err(Failure::argument("the pointer for the program is null"));
        }
        let loaded = read()?;
        // SAFETY: `out` is not null, and the header requires it to be valid for a write.
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
    out: *mut *mut LoadedProgram,
) -> Status {
    let read = || {
        if data.is_null() {
            return Err(Failure::argument("the pointer to the program's bytes is null"));
        }
        // SAFETY: `data` is not null, and the header requires it to be valid for reads of `bytes` bytes.
        load(unsafe { std::slice::from_raw_parts(data.cast(), bytes) }, threads)
    };
    // SAFETY: `give` refuses a null `out`, and the header requires any other to be valid for a write.
    unsafe { write_handle(out, read) }
}

/// A program from a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_open(path: *const c_char, threads: u32, out: *mut *mut LoadedProgram) -> Status {
    let read = || {
        if path.is_null() {
            return Err(Failure::argument("the path is null"));
        }
        // SAFETY: `path` is not null, and the header requires a string that ends with a zero byte.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
        let bytes = std::fs::read(&*path).map_err(|e| Failure(Status::File, format!("{path}: {e}")))?;
        load(&bytes, threads).map_err(|Failure(status, text)| Failure(status, format!("{path}: {text}")))
    };
    // SAFETY: `give` refuses a null `out`, and the header requires any other to be valid for a write.
    unsafe { write_handle(out, read) }
}

/// Frees a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_free(program: *mut LoadedProgram) {
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
pub unsafe extern "C" fn loom_program_arena(program: *const LoadedProgram) -> usize {
    // SAFETY: the header requires `program` to be null or a program that was loaded and not freed.
    unsafe { program.as_ref() }.map_or(0, |p| p.exe.arena_bytes())
}

/// Memory of the caller's, for the length of a call.
fn borrowed_buffer(what: &str, i: usize, at: *mut u8, shown: &CTensorType) -> Result<Arc<dyn DeviceBuffer>, Failure> {
    let bytes = shown.ty.bytes();
    let at = match NonNull::new(at) {
        Some(at) => at,
        None if bytes == 0 => NonNull::<u64>::dangling().cast(),
        None => return Err(Failure::argument(format!("the pointer for {what} {i}, which is {}, is null", shown.ty))),
    };
    if !(at.as_ptr() as usize).is_multiple_of(shown.ty.dtype.size().max(1)) {
        return Err(Failure::argument(format!(
            "{what} {i} is not aligned to its elements, which are {}",
            shown.ty.dtype
        )));
    }
    // SAFETY: the header requires the address to be valid for the bytes of its type, which nothing else uses during the
    // call; null and misaligned addresses were refused above.
    Ok(Arc::new(unsafe { HostBuffer::from_raw(at, bytes, Arc::new(())) }))
}

/// Runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_run(
    program: *const LoadedProgram,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
    arena: *mut c_void,
    arena_bytes: usize,
) -> Status {
    guard(|| {
        // SAFETY: the header requires `program` to be null or a program that was loaded and not freed, and both lists
        // to have one valid address per input and output.
        let p = unsafe { program.as_ref() }.ok_or_else(|| Failure::argument("the program is null"))?;
        let (ins, outs) = (p.inputs.len(), p.outputs.len());
        if (inputs.is_null() && ins > 0) || (outputs.is_null() && outs > 0) {
            return Err(Failure::argument("the list of inputs or outputs is null"));
        }
        let mut bindings = Bindings { inputs: Vec::with_capacity(ins), outputs: Vec::with_capacity(outs) };
        for (i, shown) in p.inputs.iter().enumerate() {
            // SAFETY: a list of so many. Programs write to no inputs but donated ones, which `load` refuses.
            let at = unsafe { *inputs.add(i) }.cast_mut().cast();
            bindings.inputs.push(borrowed_buffer("input", i, at, shown)?);
        }
        for (i, shown) in p.outputs.iter().enumerate() {
            // SAFETY: a list of so many.
            let at = unsafe { *outputs.add(i) }.cast();
            bindings.outputs.push(borrowed_buffer("output", i, at, shown)?);
        }
        let Some(arena) = NonNull::new(arena.cast::<u8>()) else {
            return Ok(p.exe.run(&mut bindings)?);
        };
        let needed = p.exe.arena_bytes();
        if arena_bytes < needed || !(arena.as_ptr() as usize).is_multiple_of(ALIGN) {
            return Err(Failure::argument(format!(
                "the arena has {arena_bytes} bytes at {arena:?}; it must have {needed} bytes and be aligned to {ALIGN}"
            )));
        }
        // SAFETY: `arena` was checked for its size and alignment, and the header requires it to be valid for
        // `arena_bytes` bytes that nothing else uses during the call.
        let mut arena = unsafe { HostBuffer::from_raw(arena, arena_bytes, Arc::new(())) };
        let steps = p.exe.program().steps.len();
        Ok(p.exe.run_with_arena(&mut bindings, &mut arena, 0..steps)?)
    })
}
