//! Arenas: the memory that a run uses in addition to its inputs and outputs.
//!
//! All programs of a backend share them. There are never more arenas than the maximum number of concurrent runs, and none is
//! larger than the largest loaded program needs: a cache full of programs keeps one arena, not one per program.

use crate::memory::HostBuffer;
use compiler::{DeviceBuffer, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// The maximum number of free arenas; a run never grows this list.
const FREE: usize = 64;

/// The arenas of a backend.
pub(crate) struct ArenaPool(Mutex<State>);

struct State {
    /// The free arenas, sorted by size.
    free: Vec<HostBuffer>,
    in_use: usize,
    bytes_in_use: usize,
    /// The maximum number of concurrent runs so far.
    most: usize,
    /// The number of programs that need each size in bytes.
    sizes: BTreeMap<usize, usize>,
}

impl State {
    fn largest(&self) -> usize {
        self.sizes.last_key_value().map_or(0, |(bytes, _)| *bytes)
    }

    /// Removes small arenas until there is room for `more` new ones.
    fn make_room(&mut self, more: usize) -> Vec<HostBuffer> {
        let over = (self.in_use + self.free.len() + more).saturating_sub(self.most.max(1));
        let over = over.min(self.free.len());
        self.free.drain(..over).collect()
    }

    fn keep(&mut self, arena: HostBuffer) -> Option<HostBuffer> {
        if self.free.len() == FREE || arena.bytes() > self.largest() {
            return Some(arena);
        }
        let at = self.free.partition_point(|a| a.bytes() <= arena.bytes());
        self.free.insert(at, arena);
        None
    }
}

impl ArenaPool {
    pub(crate) fn new() -> ArenaPool {
        let free = Vec::with_capacity(FREE);
        ArenaPool(Mutex::new(State { free, in_use: 0, bytes_in_use: 0, most: 0, sizes: BTreeMap::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers a program that needs `bytes` bytes and allocates an arena for it, so that no run has to allocate.
    pub(crate) fn add(&self, bytes: usize) -> Result<()> {
        let too_small = {
            let mut s = self.state();
            *s.sizes.entry(bytes).or_default() += 1;
            if s.free.last().is_some_and(|a| a.bytes() >= bytes) || (s.free.is_empty() && s.in_use >= s.most.max(1)) {
                return Ok(());
            }
            s.make_room(1)
        };
        drop(too_small);
        match HostBuffer::new(bytes) {
            Ok(arena) => {
                let spare = self.state().keep(arena);
                drop(spare);
                Ok(())
            }
            Err(e) => {
                self.remove(bytes);
                Err(e)
            }
        }
    }

    /// Unregisters such a program and frees arenas that only it needed.
    pub(crate) fn remove(&self, bytes: usize) {
        let mut s = self.state();
        if let Some(n) = s.sizes.get_mut(&bytes) {
            *n -= 1;
            if *n == 0 {
                s.sizes.remove(&bytes);
            }
        }
        let largest = s.largest();
        let kept = s.free.partition_point(|a| a.bytes() <= largest);
        let stale: Vec<HostBuffer> = s.free.drain(kept..).collect();
        drop(s);
        drop(stale);
    }

    /// Returns an arena for a run.
    pub(crate) fn lease(&self, bytes: usize) -> Result<HostBuffer> {
        let mut s = self.state();
        s.in_use += 1;
        s.most = s.most.max(s.in_use);
        let fits = s.free.partition_point(|a| a.bytes() < bytes);
        if fits < s.free.len() {
            let arena = s.free.remove(fits);
            s.bytes_in_use += arena.bytes();
            return Ok(arena);
        }
        let too_small = s.make_room(0);
        drop(s);
        drop(too_small);
        let arena = HostBuffer::new(bytes);
        let mut s = self.state();
        match &arena {
            Ok(a) => s.bytes_in_use += a.bytes(),
            Err(_) => s.in_use -= 1,
        }
        arena
    }

    /// Returns an arena after a run.
    pub(crate) fn release(&self, arena: HostBuffer) {
        let mut s = self.state();
        s.in_use -= 1;
        s.bytes_in_use -= arena.bytes();
        let spare = s.keep(arena);
        drop(s);
        drop(spare);
    }

    /// The bytes of all arenas, in use and free.
    pub(crate) fn bytes(&self) -> usize {
        let s = self.state();
        s.bytes_in_use + s.free.iter().map(|a| a.bytes()).sum::<usize>()
    }
}
