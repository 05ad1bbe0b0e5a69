//! Thread-local state: the active traces, the tidy scopes, and whether gradients are enabled.

use crate::error::Error;
use crate::profile::OpLabel;
use crate::tensor::{Invalid, Tensor, TensorHandle};
use crate::trace::Trace;
use ir::{DType, Loc};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

#[derive(Default)]
struct ThreadContext {
    traces: RefCell<Vec<Arc<Trace>>>,
    scopes: RefCell<Vec<Vec<Weak<TensorHandle>>>>,
    no_grad: Cell<u32>,
    autocast: Cell<Option<DType>>,
    label: Cell<OpLabel>,
    /// The nesting depth of tidy scopes, so that the lists are skipped when it is 0.
    tidy: Cell<u32>,
    tracing: Cell<u32>,
    /// In-place ops that failed inside functions that run on real tensors.
    watched_failures: RefCell<Vec<Vec<Arc<Invalid>>>>,
    place: Cell<CallSite>,
    /// The device for new tensors, if it differs from the process-wide default.
    device: Cell<Option<usize>>,
    /// The device of the new tensor that is being recorded.
    home: Cell<Option<u8>>,
}

/// The process-wide default device for new tensors.
static DEVICE: AtomicUsize = AtomicUsize::new(0);

/// Sets the device for new tensors, for all threads. The initial default is device 0.
pub fn set_default_device(device: usize) {
    DEVICE.store(device, Ordering::Relaxed);
}

/// The device number for new tensors on this thread.
pub fn default_device() -> usize {
    CONTEXT.with(|c| c.device.get()).unwrap_or_else(|| DEVICE.load(Ordering::Relaxed))
}

/// Runs `f`; new tensors that this thread creates inside live on `device`. Ops on existing tensors run on the device of their
/// operands.
pub fn with_device<R>(device: usize, f: impl FnOnce() -> R) -> R {
    struct Leave(Option<usize>);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.device.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.device.replace(Some(device))));
    f()
}

/// Runs `f`, which records a new tensor on `device`.
pub(crate) fn with_home_device<R>(device: usize, f: impl FnOnce() -> R) -> R {
    struct Leave(Option<u8>);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.home.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.home.replace((device > 0).then_some(device as u8))));
    f()
}

/// The device of the new tensor that is being recorded.
pub(crate) fn home_device() -> Option<u8> {
    CONTEXT.with(|c| c.home.get())
}

/// The line of the user's program that the current library function was called from.
#[derive(Clone, Copy, Default)]
struct CallSite {
    /// The call in progress; ops get its line.
    call: Option<&'static Location<'static>>,
    /// The call that led to the user function that is running now.
    outer: Option<&'static Location<'static>>,
}

thread_local! {
    static CONTEXT: ThreadContext = ThreadContext::default();
}

/// Restores the previous call site when it is dropped.
pub struct CallSiteGuard(CallSite);

impl Drop for CallSiteGuard {
    fn drop(&mut self) {
        CONTEXT.with(|c| c.place.set(self.0));
    }
}

/// Marks the start of a library function: until the guard is dropped, all ops get the line of its caller. A call from
/// inside the library (`own`) belongs to the call that led there.
pub fn enter_library(here: &'static Location<'static>, own: bool) -> CallSiteGuard {
    CONTEXT.with(|c| {
        let p = c.place.get();
        if p.call.is_none() {
            let call = if own { p.outer.or(Some(here)) } else { Some(here) };
            c.place.set(CallSite { call, outer: call });
        }
        CallSiteGuard(p)
    })
}

/// Marks the start of a user function that a library calls; its ops get lines of their own.
pub fn enter_user_code() -> CallSiteGuard {
    CONTEXT.with(|c| {
        let p = c.place.get();
        c.place.set(CallSite { call: None, outer: p.call.or(p.outer) });
        CallSiteGuard(p)
    })
}

/// Whether a line belongs to the user's program and no library function is in progress.
pub(crate) fn is_user_code(at: &Location<'_>) -> bool {
    let own = file!().strip_suffix("context.rs").unwrap_or("?");
    let face = own.replace("engine", "tensorloom");
    CONTEXT.with(|c| c.place.get().call.is_none()) && !at.file().starts_with(own) && !at.file().starts_with(&face)
}

/// The source line that an op is attributed to.
#[inline]
pub fn resolve_loc(at: &Loc) -> Loc {
    CONTEXT.with(|c| c.place.get().call.map_or_else(|| at.clone(), Loc::Rust))
}

/// The innermost active trace.
#[inline]
pub(crate) fn trace() -> Option<Arc<Trace>> {
    CONTEXT.with(|c| if c.tracing.get() == 0 { None } else { c.traces.borrow().last().cloned() })
}

/// Whether `trace` is active on this thread.
pub(crate) fn is_active(trace: &Trace) -> bool {
    CONTEXT.with(|c| c.traces.borrow().iter().any(|t| std::ptr::eq(&**t, trace)))
}

/// Runs `f` with `trace` as the innermost trace.
pub(crate) fn with_trace<R>(trace: Arc<Trace>, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| {
                c.tracing.set(c.tracing.get() - 1);
                c.traces.borrow_mut().pop();
            });
        }
    }
    CONTEXT.with(|c| {
        c.tracing.set(c.tracing.get() + 1);
        c.traces.borrow_mut().push(trace);
    });
    let _leave = Leave;
    f()
}

/// Runs `f` with no active trace, to create state that outlives a region.
pub(crate) fn without_traces<R>(f: impl FnOnce() -> R) -> R {
    struct Leave(u32);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.tracing.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.tracing.replace(0)));
    f()
}

/// Records that an in-place op failed, so its destination does not have the value that the rest of the function expects. The
/// innermost recorded function keeps the error; the returned tensor tells whether the error was read. `None` outside a function.
pub(crate) fn record_write_failure(error: &Error) -> Option<Tensor> {
    let failed = Arc::new(Invalid::new(error.clone()));
    match trace() {
        // Writes in a region are writes of the program: the engine keeps their errors, as it does outside a region.
        Some(trace) if trace.is_region() => return None,
        Some(trace) => trace.fail(failed.clone()),
        None => CONTEXT.with(|c| c.watched_failures.borrow_mut().last_mut().map(|list| list.push(failed.clone())))?,
    }
    Some(Tensor::from_invalid(failed))
}

/// Runs a function on real tensors; returns its result and the in-place ops that failed.
pub(crate) fn watch_write_failures<R>(f: impl FnOnce() -> R) -> (R, Vec<Arc<Invalid>>) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.watched_failures.borrow_mut().pop());
        }
    }
    CONTEXT.with(|c| c.watched_failures.borrow_mut().push(Vec::new()));
    let leave = Leave;
    let result = f();
    let failed = CONTEXT.with(|c| c.watched_failures.borrow_mut().last_mut().map(std::mem::take).unwrap_or_default());
    drop(leave);
    (result, failed)
}

/// Whether ops are recorded for backward.
#[inline]
pub fn is_grad_enabled() -> bool {
    CONTEXT.with(|c| c.no_grad.get() == 0)
}

/// Runs `f` without recording for backward.
///
/// Results inside `f` don't require gradients, and leaves may be changed in place.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    struct Leave(u32);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.no_grad.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.no_grad.replace(c.no_grad.get() + 1)));
    f()
}

/// Runs `f` with recording for backward enabled, also inside `no_grad`.
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    struct Leave(u32);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.no_grad.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.no_grad.replace(0)));
    f()
}

/// The autocast dtype of matrix products, if it is set.
pub(crate) fn autocast() -> Option<DType> {
    CONTEXT.with(|c| c.autocast.get())
}

/// Runs `f` with another autocast dtype.
pub(crate) fn with_autocast<R>(dtype: Option<DType>, f: impl FnOnce() -> R) -> R {
    struct Leave(Option<DType>);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.autocast.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.autocast.replace(dtype)));
    f()
}

/// The phase and module that new ops are labelled with.
#[inline]
pub(crate) fn label() -> OpLabel {
    CONTEXT.with(|c| c.label.get())
}

/// Runs `f` with another phase or module label.
pub(crate) fn with_label<R>(label: OpLabel, f: impl FnOnce() -> R) -> R {
    struct Leave(OpLabel);
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| c.label.set(self.0));
        }
    }
    let _leave = CONTEXT.with(|c| Leave(c.label.replace(label)));
    f()
}

/// Adds a new handle to the innermost tidy scope.
pub(crate) fn track_handle(handle: &Arc<TensorHandle>) {
    CONTEXT.with(|c| {
        if c.tidy.get() > 0
            && let Some(scope) = c.scopes.borrow_mut().last_mut()
        {
            scope.push(Arc::downgrade(handle));
        }
    });
}

/// Runs `f` in a tidy scope; returns its result and the handles created inside.
pub(crate) fn tidy_scope<R>(f: impl FnOnce() -> R) -> (R, Vec<Weak<TensorHandle>>) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CONTEXT.with(|c| {
                c.tidy.set(c.tidy.get() - 1);
                c.scopes.borrow_mut().pop();
            });
        }
    }
    CONTEXT.with(|c| {
        c.tidy.set(c.tidy.get() + 1);
        c.scopes.borrow_mut().push(Vec::new());
    });
    let leave = Leave;
    let result = f();
    let made = CONTEXT.with(|c| c.scopes.borrow_mut().last_mut().map(std::mem::take).unwrap_or_default());
    drop(leave);
    (result, made)
}
