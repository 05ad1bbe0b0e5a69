//! Asking between two steps whether a run shall stop.

use std::cell::Cell;

/// Milliseconds between two questions: asking may mean to wait for a lock. No threshold: results don't depend on it.
const EVERY: u64 = 50;

thread_local! {
    /// When this thread asked last.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// Whether a run may be stopped, and how it finds out.
pub(crate) struct InterruptWatch(Option<fn() -> bool>);

impl InterruptWatch {
    /// What holds for runs of this thread.
    pub(crate) fn for_current_thread() -> InterruptWatch {
        InterruptWatch(compiler::interrupt::interrupt_check())
    }

    /// Nothing stops it.
    pub(crate) fn disabled() -> InterruptWatch {
        InterruptWatch(None)
    }

    /// Whether the run shall stop.
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

/// From any beginning. A clock that is read in some nanoseconds and moves every few milliseconds.
#[cfg(target_os = "linux")]
fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// From any beginning.
#[cfg(not(target_os = "linux"))]
fn milliseconds() -> u64 {
    use compiler::clock::Instant;
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // One question's time past the beginning, so that the first look asks.
    EVERY + BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64
}
