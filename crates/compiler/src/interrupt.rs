//! Stopping a run between two of its steps, as Ctrl-C wants it.
//!
//! Who has a user says how to find out whether a run shall stop, for the runs of one thread and for a while ([`asking`]).
//! A backend that can stop asks now and then, and ends such a run with [`crate::Error::Interrupted`]. What the run was to
//! write is then half written: its outputs, and the inputs that were donated to them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

thread_local! {
    static INTERRUPT_CHECK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// A way to wait until a function returns, which returns when a run of another thread has ended.
pub type WaitFn = fn(&(dyn Fn() + Sync));

static WAIT_HOOK: OnceLock<WaitFn> = OnceLock::new();

/// Until the guard goes, runs of this thread ask, now and then, whether they shall stop.
///
/// ```
/// use compiler::interrupt;
///
/// let _asking = interrupt::asking(|| false);
/// assert!(interrupt::ask().is_some());
/// ```
pub fn set_interrupt_check(ask: fn() -> bool) -> InterruptGuard {
    InterruptGuard { previous: INTERRUPT_CHECK.replace(Some(ask)), of_thread: PhantomData }
}

/// Until the guard goes, nothing stops the runs of this thread: they write over what must not be left half written.
pub fn disable_interrupts() -> InterruptGuard {
    InterruptGuard { previous: INTERRUPT_CHECK.replace(None), of_thread: PhantomData }
}

/// How a run of this thread finds out whether it shall stop, for backends; none if nothing stops it.
pub fn interrupt_check() -> Option<fn() -> bool> {
    INTERRUPT_CHECK.get()
}

/// Says how threads wait for the runs of others. Such a run may ask, and the answer may need what the waiting thread
/// holds, as an interpreter's lock: it is let go here. The first way stays.
pub fn set_wait_hook(wait: WaitFn) {
    let _ = WAIT_HOOK.set(wait);
}

/// Waits for the run of another thread.
pub fn wait(until: &(dyn Fn() + Sync)) {
    match WAIT_HOOK.get() {
        Some(wait) => wait(until),
        None => until(),
    }
}

/// What runs of this thread ask, until it goes.
#[must_use = "it holds until it goes"]
pub struct InterruptGuard {
    previous: Option<fn() -> bool>,
    of_thread: PhantomData<*const ()>,
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        INTERRUPT_CHECK.set(self.previous);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_guard_holds_and_on_its_thread_alone() {
        assert!(interrupt_check().is_none());
        let outer = set_interrupt_check(|| true);
        {
            let _inner = disable_interrupts();
            assert!(interrupt_check().is_none());
            let _innermost = set_interrupt_check(|| false);
            assert!(!interrupt_check().unwrap()());
        }
        assert!(interrupt_check().unwrap()());
        assert!(std::thread::spawn(|| interrupt_check().is_none()).join().unwrap());
        drop(outer);
        assert!(interrupt_check().is_none());
    }
}
