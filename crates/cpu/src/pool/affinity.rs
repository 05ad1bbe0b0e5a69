//! The cores that a worker may run on.
//!
//! Linux may wake a thread on the core of the thread that wakes it although another core is idle. The caller of a job continues
//! computing there, so the worker does not run before the system balances its load, a tenth of a second later, and the caller
//! works alone until then. So a worker that sleeps,
//! or was late for the last job, is excluded from the caller's core until it has started.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// A worker's identity in the operating system.
#[derive(Default)]
pub(super) struct ThreadAffinity {
    /// The thread ID; 0 while it is not known.
    thread: AtomicI32,
    /// Whether the worker is excluded from a core.
    kept: AtomicBool,
    #[cfg(target_os = "linux")]
    before: std::sync::Mutex<Option<libc::cpu_set_t>>,
}

#[cfg(target_os = "linux")]
const BYTES: usize = size_of::<libc::cpu_set_t>();

#[cfg(target_os = "linux")]
impl ThreadAffinity {
    /// Registers the calling thread; the worker calls this itself before it first sleeps.
    pub(super) fn register_current_thread(&self) {
        // SAFETY: asks for a number.
        self.thread.store(unsafe { libc::gettid() }, Relaxed);
    }

    /// Excludes the worker from the caller's core until it calls [`ThreadAffinity::allow_all_cores`]. Does nothing where that is
    /// not possible or would leave it no core.
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

    /// Allows the worker, which has a job, to run on all its previous cores again.
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

/// On other systems this does nothing.
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
