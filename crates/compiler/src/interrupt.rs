//! Stopping a run between two of its steps, as Ctrl-C wants it.
//!
//! Who has a user says how to find out whether a run shall stop, for the runs of one thread and for a while ([`asking`]).
//! A backend that can stop asks now and then, and ends such a run with [`crate::Error::Interrupted`]. What the run was to
//! write is then half written: its outputs, and the inputs that were donated to them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

thread_local! {
    static ASK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// A way to wait until a function returns, which returns when a run of another thread has ended.
pub type Wait = fn(&(dyn Fn() + Sync));

static WAIT: OnceLock<Wait> = OnceLock::new();

/// Until the guard goes, runs of this thread ask, now and then, whether they shall stop.
///
/// ```
/// use tensorloom_compiler::interrupt;
///
/// let _asking = interrupt::asking(|| false);
/// assert!(interrupt::ask().is_some());
/// ```
pub fn asking(ask: fn() -> bool) -> Asking {
    Asking { before: ASK.replace(Some(ask)), of_thread: PhantomData }
}

/// Until the guard goes, nothing stops the runs of this thread: they write over what must not be left half written.
pub fn undisturbed() -> Asking {
    Asking { before: ASK.replace(None), of_thread: PhantomData }
}

/// How a run of this thread finds out whether it shall stop, for backends; none if nothing stops it.
pub fn ask() -> Option<fn() -> bool> {
    ASK.get()
}

/// Says how threads wait for the runs of others. Such a run may ask, and the answer may need what the waiting thread
/// holds, as an interpreter's lock: it is let go here. The first way stays.
pub fn wait_with(wait: Wait) {
    let _ = WAIT.set(wait);
}

/// Waits for the run of another thread.
pub fn wait(until: &(dyn Fn() + Sync)) {
    match WAIT.get() {
        Some(wait) => wait(until),
        None => until(),
    }
}

/// What runs of this thread ask, until it goes.
#[must_use = "it holds until it goes"]
pub struct Asking {
    before: Option<fn() -> bool>,
    of_thread: PhantomData<*const ()>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASK.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_guard_holds_and_on_its_thread_alone() {
        assert!(ask().is_none());
        let outer = asking(|| true);
        {
            let _inner = undisturbed();
            assert!(ask().is_none());
            let _innermost = asking(|| false);
            assert!(!ask().unwrap()());
        }
        assert!(ask().unwrap()());
        assert!(std::thread::spawn(|| ask().is_none()).join().unwrap());
        drop(outer);
        assert!(ask().is_none());
    }
}
