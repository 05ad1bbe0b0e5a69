//! Interruption of a program run between two steps, for example by Ctrl-C.
//!
//! A front end registers a function that tells whether to stop, for the runs of one thread and for a limited time
//! ([`set_interrupt_check`]). A backend that supports interruption calls it regularly and ends the run with
//! [`crate::Error::Interrupted`]. The outputs of that run, and the inputs donated to them, are then incomplete.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

thread_local! {
    static INTERRUPT_CHECK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// A function that runs its argument, which blocks until a run of another thread has ended.
pub type WaitFn = fn(&(dyn Fn() + Sync));

static WAIT_HOOK: OnceLock<WaitFn> = OnceLock::new();

/// Sets the function that runs of this thread call regularly to find out whether to stop, until the guard is dropped.
///
/// ```
/// use tensorloom_compiler::interrupt;
///
/// let _guard = interrupt::set_interrupt_check(|| false);
/// assert!(interrupt::interrupt_check().is_some());
/// ```
pub fn set_interrupt_check(ask: fn() -> bool) -> InterruptGuard {
    InterruptGuard { previous: INTERRUPT_CHECK.replace(Some(ask)), of_thread: PhantomData }
}

/// Disables interruption for the runs of this thread until the guard is dropped, because they update data that must stay
/// consistent.
pub fn disable_interrupts() -> InterruptGuard {
    InterruptGuard { previous: INTERRUPT_CHECK.replace(None), of_thread: PhantomData }
}

/// The function that a run of this thread calls to find out whether to stop, for backends; none if it cannot be interrupted.
pub fn interrupt_check() -> Option<fn() -> bool> {
    INTERRUPT_CHECK.get()
}

/// Sets how threads wait for runs of other threads. Such a run may call its interrupt check, which may need a resource of the
/// waiting thread, such as an interpreter's lock; the function releases it while it waits. Only the first call has an effect.
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

/// Restores the previous interrupt check of this thread when it is dropped.
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
