//! A caller's own backend (§11): a table of C functions as the library's memory and device.

use crate::vsla::error::{Code, guard};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use vsla::{Backend, Device, DeviceRun, Error, MemoryTable, Result, Segment};

/// A segment of a schedule: a fused kernel, a product, a routine, a copy.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vsla_segment_t {
    /// Its place in the schedule.
    pub index: usize,
    /// Segments of the schedule.
    pub count: usize,
    /// 1 if it is a generated kernel.
    pub fused: u32,
    /// What it is, for people; ended by a zero, cut where it is too long.
    pub name: [c_char; 64],
}

impl vsla_segment_t {
    pub(crate) fn new(segments: &[Segment], index: usize) -> vsla_segment_t {
        let mut name = [0; 64];
        let (text, fused) = segments.get(index).map_or(("", false), |s| (s.name.as_str(), s.fused));
        let end = text.floor_char_boundary(name.len() - 1);
        name.iter_mut().zip(&text.as_bytes()[..end]).for_each(|(to, b)| *to = *b as c_char);
        vsla_segment_t { index, count: segments.len(), fused: u32::from(fused), name }
    }
}

/// Functions of a caller's own backend. Each gets `ctx` last, and may be called from any thread; those that return a
/// number return a `vsla_error_t`.
///
/// The first five supply memory that the processor can address: all of them, or none for memory of the system. The others
/// may be null. Segments are compiled for the processor: `launch_segment` and `replay_graph` decide when they run, and run
/// them by `vsla_segment_run`, every segment once and in order. They must not touch the bindings or the profile that is
/// running, which would wait for itself.
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
    /// Runs a segment, by `vsla_segment_run(segment->index)`.
    pub launch_segment: Option<unsafe extern "C" fn(segment: *const vsla_segment_t, ctx: *mut c_void) -> u32>,
    /// Called when a stream has nothing left to do.
    pub synchronize: Option<unsafe extern "C" fn(ctx: *mut c_void) -> u32>,
    /// Records a schedule, for `vsla_profile_record`; `graph` gets what `replay_graph` is given. Goes with `replay_graph`.
    pub record_graph: Option<
        unsafe extern "C" fn(
            segments: *const vsla_segment_t,
            count: usize,
            graph: *mut *mut c_void,
            ctx: *mut c_void,
        ) -> u32,
    >,
    /// Runs all segments of a schedule that was recorded, by `vsla_segment_run`.
    pub replay_graph: Option<unsafe extern "C" fn(graph: *mut c_void, count: usize, ctx: *mut c_void) -> u32>,
    /// A recorded schedule that won't be replayed again.
    pub destroy_graph: Option<unsafe extern "C" fn(graph: *mut c_void, ctx: *mut c_void)>,
}

/// A table with its context.
struct VtableWithContext {
    functions: vsla_backend_vtable_t,
    ctx: *mut c_void,
}

// SAFETY: the header says that the functions may be called from any thread.
unsafe impl Send for VtableWithContext {}
// SAFETY: as above.
unsafe impl Sync for VtableWithContext {}

thread_local! {
    /// The run whose segments the function that is being called may start.
    static RUN: Cell<*mut c_void> = const { Cell::new(null_mut()) };
}

/// Calls a function of the table that may start segments of a run.
fn with_current_run(run: &mut DeviceRun<'_>, call: impl FnOnce() -> u32) -> Result<()> {
    struct Restore(*mut c_void);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUN.set(self.0);
        }
    }
    let _restore = Restore(RUN.replace((&raw mut *run).cast()));
    check_code(call())
}

/// What a caller's function said.
fn check_code(code: u32) -> Result<()> {
    match code {
        0 => Ok(()),
        n => Err(Error::Backend(format!("a function of the backend's table returned {n}"))),
    }
}

impl Device for VtableWithContext {
    fn launch(&self, index: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        let Some(launch) = self.functions.launch_segment else { return run.segment(index) };
        let segment = vsla_segment_t::new(run.segments(), index);
        // SAFETY: the table's functions do what `vsla_backend_vtable_t` says.
        with_current_run(run, || unsafe { launch(&segment, self.ctx) })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the table's functions do what `vsla_backend_vtable_t` says.
        self.functions.synchronize.map_or(Ok(()), |f| check_code(unsafe { f(self.ctx) }))
    }

    fn record(&self, segments: &[Segment]) -> Result<Option<usize>> {
        let Some(record) = self.functions.record_graph else { return Ok(None) };
        let all: Vec<vsla_segment_t> = (0..segments.len()).map(|i| vsla_segment_t::new(segments, i)).collect();
        let mut graph = null_mut();
        // SAFETY: the table's functions do what `vsla_backend_vtable_t` says.
        check_code(unsafe { record(all.as_ptr(), all.len(), &mut graph, self.ctx) })?;
        Ok(Some(graph.expose_provenance()))
    }

    fn replay(&self, graph: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        let Some(replay) = self.functions.replay_graph else {
            return (0..run.segments().len()).try_for_each(|i| run.segment(i));
        };
        let count = run.segments().len();
        // SAFETY: the table's functions do what `vsla_backend_vtable_t` says, and the graph is one that it gave.
        with_current_run(run, || unsafe { replay(with_exposed_provenance_mut(graph), count, self.ctx) })
    }

    fn destroy_graph(&self, graph: usize) {
        if let Some(destroy) = self.functions.destroy_graph {
            // SAFETY: as above; it isn't replayed again.
            unsafe { destroy(with_exposed_provenance_mut(graph), self.ctx) }
        }
    }
}

/// Runs a segment of the run that `launch_segment` or `replay_graph` was called for. For use inside of those functions, on
/// the thread that called them.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_segment_run(index: usize) -> Code {
    guard(|| {
        let run = RUN.get().cast::<DeviceRun<'_>>();
        if run.is_null() {
            return Err(Error::InvalidArg("there is no run; call this inside launch_segment or replay_graph".into()));
        }
        // SAFETY: set by `during`, which still borrows the run and doesn't touch it before its function returns.
        unsafe { &mut *run }.segment(index)
    })
}

/// The processor with the functions of a table.
///
/// # Safety
/// The functions are what `vsla_backend_vtable_t` says, while the backend or anything made by it lives.
pub(crate) unsafe fn custom(cpu: &Backend, t: &vsla_backend_vtable_t, ctx: *mut c_void) -> Result<Backend> {
    if t.record_graph.is_some() != t.replay_graph.is_some() {
        return Err(Error::InvalidArg("record_graph and replay_graph go together; give both or neither".into()));
    }
    let memory = MemoryTable {
        alloc: t.alloc,
        free: t.free,
        memcpy_h2d: t.memcpy_h2d,
        memcpy_d2h: t.memcpy_d2h,
        memset_zero: t.memset_zero,
    };
    let none = t.alloc.is_none()
        && t.free.is_none()
        && t.memcpy_h2d.is_none()
        && t.memcpy_d2h.is_none()
        && t.memset_zero.is_none();
    // SAFETY: the functions and `ctx` are what `vsla_backend_vtable_t` requires, for as long as the backend or anything
    // made by it exists.
    let backend = if none { cpu.clone() } else { unsafe { cpu.with_memory(memory, ctx)? } };
    let runs = t.launch_segment.is_some() || t.synchronize.is_some() || t.record_graph.is_some();
    Ok(if runs { backend.with_device(std::sync::Arc::new(VtableWithContext { functions: *t, ctx })) } else { backend })
}
