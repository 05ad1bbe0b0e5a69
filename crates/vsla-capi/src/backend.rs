//! Backends and streams (§7.4, §11).

use crate::error::{Code, guard};
use crate::handles::{Object, put, want};
use crate::pointers::{set, writable};
use std::ffi::c_void;
use vsla::{Backend, Error, MemoryTable, Stream};

/// Where programs run.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_backend_t;

/// An order of execution.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_stream_t;

/// Functions of a caller's own backend. The first five supply memory that the processor can address; every one of them
/// is needed, and each may be called from any thread. The others are for devices that run segments themselves: they must
/// be null, or creating the backend gives `VSLA_ERR_NOT_IMPLEMENTED`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vsla_backend_vtable_t {
    /// Memory of so many bytes at this alignment, or null.
    pub alloc: Option<unsafe extern "C" fn(bytes: usize, alignment: usize, ctx: *mut c_void) -> *mut c_void>,
    /// Gives memory back.
    pub free: Option<unsafe extern "C" fn(ptr: *mut c_void, ctx: *mut c_void)>,
    /// Copies from the host.
    pub memcpy_h2d: Option<unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, bytes: usize, ctx: *mut c_void)>,
    /// Copies to the host.
    pub memcpy_d2h: Option<unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, bytes: usize, ctx: *mut c_void)>,
    /// Fills with zeros.
    pub memset_zero: Option<unsafe extern "C" fn(dst: *mut c_void, bytes: usize, ctx: *mut c_void)>,
    /// Runs a segment. Not supported.
    pub launch_segment: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// Records a graph. Not supported.
    pub record_graph: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// Replays a graph. Not supported.
    pub replay_graph: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
}

/// The processor with so many threads; 0 takes one for each core. Results don't depend on the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_cpu(threads: u32, out: *mut *mut vsla_backend_t) -> Code {
    guard(|| {
        writable(out)?;
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Backend(cpu(threads)?))) }
    })
}

fn cpu(threads: u32) -> vsla::Result<Backend> {
    match threads {
        0 => Ok(Backend::shared().clone()),
        1..=1024 => Ok(Backend::cpu(threads as usize)),
        n => Err(Error::InvalidArg(format!("{n} threads; 1024 at most"))),
    }
}

/// The processor with memory from the caller's functions, which get `ctx` as their last argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_custom(
    table: *const vsla_backend_vtable_t,
    ctx: *mut c_void,
    threads: u32,
    out: *mut *mut vsla_backend_t,
) -> Code {
    guard(|| {
        writable(out)?;
        // SAFETY: the caller's promise; null is refused.
        let Some(t) = (unsafe { crate::pointers::slice(table, 1, "the table")?.first() }) else {
            return Err(Error::InvalidArg("the table is null".into()));
        };
        if t.launch_segment.is_some() || t.record_graph.is_some() || t.replay_graph.is_some() {
            return Err(Error::NotImplemented(
                "a caller's backend supplies memory; leave launch_segment, record_graph and replay_graph null".into(),
            ));
        }
        let memory = MemoryTable {
            alloc: t.alloc,
            free: t.free,
            memcpy_h2d: t.memcpy_h2d,
            memcpy_d2h: t.memcpy_d2h,
            memset_zero: t.memset_zero,
        };
        // SAFETY: the table's promise, which the header states.
        let backend = unsafe { cpu(threads)?.with_memory(memory, ctx)? };
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Backend(backend))) }
    })
}

/// A stream of a backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_stream(
    backend: *const vsla_backend_t,
    out: *mut *mut vsla_stream_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(backend, Backend, backend);
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Stream(Stream::new(backend)))) }
    })
}

/// Returns when all that was started on the stream has ended.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_backend_synchronize(stream: *const vsla_stream_t) -> Code {
    guard(|| {
        want!(stream, Stream, stream);
        stream.synchronize()
    })
}
