//! Which core a worker runs on.
//!
//! Linux may wake a thread on the core of who wakes it though another is idle. The caller of a job goes on computing there, so the
//! worker does not run before the system balances its load, a tenth of a second later: all that time the caller works alone.
//! So a worker that sleeps, or was late for the last job, is forbidden the caller's core until it has begun.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// A worker as the system knows it.
#[derive(Default)]
pub(super) struct ThreadAffinity {
    /// The thread; 0 while it isn't known.
    thread: AtomicI32,
    /// Whether it is kept from a core.
    kept: AtomicBool,
    #[cfg(target_os = "linux")]
    before: std::sync::Mutex<Option<libc::cpu_set_t>>,
}

#[cfg(target_os = "linux")]
const BYTES: usize = size_of::<libc::cpu_set_t>();

#[cfg(target_os = "linux")]
impl ThreadAffinity {
    /// Says which thread this is; called by the worker itself, before it first sleeps.
    pub(super) fn register_current_thread(&self) {
        // SAFETY: asks for a number.
        self.thread.store(unsafe { libc::gettid() }, Relaxed);
    }

    /// Keeps the worker from the caller's core until it calls [`Placement::anywhere`]. Where that can't be done, or would leave it no
    /// core, nothing happens.
    pub(super) fn avoid_core(&self) {
        let thread = self.thread.load(Relaxed);
        let mut before = super::lock(&self.before);
        // SAFETY: a set without cores is all zeros; the calls read and write one set, and ask for a core's number.
        unsafe {
            let mut all: libc::cpu_set_t = std::mem::zeroed();
            match *before {
                Some(set) => all = set,
                None if thread == 0 || libc::sched_getaffinity(thread, BYTES, &raw mut all) != 0 => return,
                None => {}
            }
            let core = libc::sched_getcpu();
            if core < 0 || core as usize >= 8 * BYTES || !libc::CPU_ISSET(core as usize, &all) {
                return;
            }
            let mut others = all;
            libc::CPU_CLR(core as usize, &mut others);
            if libc::CPU_COUNT(&others) > 0 && libc::sched_setaffinity(thread, BYTES, &raw const others) == 0 {
                *before = Some(all);
                self.kept.store(true, Relaxed);
            }
        }
    }

    /// Lets the worker, which has a job, run on every core that it might run on before.
    pub(super) fn allow_all_cores(&self) {
        if self.kept.load(Relaxed)
            && let Some(set) = super::lock(&self.before).take()
        {
            self.kept.store(false, Relaxed);
            // SAFETY: reads the set.
            unsafe { libc::sched_setaffinity(0, BYTES, &raw const set) };
        }
    }
}

/// Elsewhere the system places threads.
#[cfg(not(target_os = "linux"))]
impl ThreadAffinity {
    pub(super) fn register_current_thread(&self) {
        self.thread.store(0, Relaxed);
    }

    pub(super) fn avoid_core(&self) {}

    pub(super) fn allow_all_cores(&self) {
        self.kept.store(false, Relaxed);
    }
}
