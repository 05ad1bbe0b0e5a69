//! Checks between two steps whether a run should stop.

use std::cell::Cell;

/// The number of milliseconds between two checks, since a check may wait for a lock.
/// This is not a threshold: results do not depend on it.
const EVERY: u64 = 50;

thread_local! {
    /// The time of this thread's last check.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// Whether a run may be stopped, and how it checks.
pub(crate) struct InterruptWatch(Option<fn() -> bool>);

impl InterruptWatch {
    /// Returns the setting for runs of the current thread.
    pub(crate) fn for_current_thread() -> InterruptWatch {
        InterruptWatch(compiler::interrupt::interrupt_check())
    }

    /// Returns a setting that never stops the run.
    pub(crate) fn disabled() -> InterruptWatch {
        InterruptWatch(None)
    }

    /// Returns whether the run should stop.
    #[inline(always)]
    pub(crate) fn should_stop(&self) -> bool {
        self.0.is_some_and(asked)
    }
}

#[inline(never)]
fn asked(ask: fn() -> bool) -> bool {
    let now = milliseconds();
    if now.wrapping_sub(ASKED.get()) < EVERY {
        return false;
    }
    ASKED.set(now);
    ask()
}

/// Milliseconds since an arbitrary start, from a clock that is read in nanoseconds and advances every few milliseconds.
#[cfg(target_os = "linux")]
fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since an arbitrary start.
#[cfg(not(target_os = "linux"))]
fn milliseconds() -> u64 {
    use compiler::clock::Instant;
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // Start one interval after zero, so that the first call checks.
    EVERY + BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64
}
