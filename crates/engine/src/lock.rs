//! The execution lock (§6.8): one execution at a time, with an owner and a nesting depth.

use crate::error::{Error, Result};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

#[derive(Default)]
struct LockState {
    owner: Option<(ThreadId, &'static str)>,
    depth: usize,
    /// The number of waiting threads; at 0 the notification, a system call, is skipped.
    waiting: usize,
}

/// The lock for executing. A second entry from the owner's thread is refused; another thread waits, unless the lock is strict.
#[derive(Default)]
pub(crate) struct ExecLock {
    held: Mutex<LockState>,
    free: Condvar,
    strict: bool,
}

/// A guard that proves that the lock is held.
pub(crate) struct ExecGuard<'a> {
    lock: &'a ExecLock,
}

impl ExecLock {
    pub(crate) fn new(strict: bool) -> ExecLock {
        ExecLock { strict, ..ExecLock::default() }
    }

    fn held(&self) -> MutexGuard<'_, LockState> {
        self.held.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the lock for a public entry point.
    pub(crate) fn acquire(&self, wanted: &'static str) -> Result<ExecGuard<'_>> {
        let me = thread::current().id();
        loop {
            let mut held = self.held();
            let Some((owner, holder)) = held.owner else {
                (held.owner, held.depth) = (Some((me, wanted)), 1);
                return Ok(ExecGuard { lock: self });
            };
            if owner == me || self.strict {
                return Err(Error::EngineBusy { holder, wanted });
            }
            drop(held);
            compiler::interrupt::wait(&|| self.wait_until_free());
        }
    }

    fn wait_until_free(&self) {
        let mut held = self.held();
        held.waiting += 1;
        while held.owner.is_some() {
            held = self.free.wait(held).unwrap_or_else(|e| e.into_inner());
        }
        held.waiting -= 1;
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_acquire(&self, wanted: &'static str) -> Option<ExecGuard<'_>> {
        let mut held = self.held();
        if held.owner.is_some() {
            return None;
        }
        (held.owner, held.depth) = (Some((thread::current().id(), wanted)), 1);
        Some(ExecGuard { lock: self })
    }

    /// The owner's entry point and the nesting depth, for inspection.
    pub(crate) fn state(&self) -> Option<(&'static str, usize)> {
        let held = self.held();
        held.owner.map(|(_, what)| (what, held.depth))
    }
}

impl ExecGuard<'_> {
    /// Adds a nested entry by the owner of the lock.
    pub(crate) fn enter_nested(&self) -> NestedGuard<'_> {
        self.lock.held().depth += 1;
        NestedGuard { lock: self.lock }
    }
}

/// A guard for a nested entry; dropping it decrements the depth.
pub(crate) struct NestedGuard<'a> {
    lock: &'a ExecLock,
}

impl Drop for NestedGuard<'_> {
    fn drop(&mut self) {
        self.lock.held().depth -= 1;
    }
}

impl Drop for ExecGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.held();
        (held.owner, held.depth) = (None, 0);
        if held.waiting > 0 {
            self.lock.free.notify_one();
        }
    }
}
