//! Buffers for use again (§14).
//!
//! A released buffer first waits in `pending`: the device may still read it. It can be acquired again only after `flush`,
//! which the executor calls between segments whose work is complete.

use crate::storage::Storage;
use compiler::{Backend, DeviceBuffer, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes that values use now.
    pub live_bytes: usize,
    /// The most that values ever used at once.
    pub peak_bytes: usize,
    /// Buffers that wait for the fence.
    pub pending: usize,
    /// Bytes ready to be used again.
    pub free_bytes: usize,
    /// Buffers taken from the device.
    pub allocations: u64,
    /// Buffers used again.
    pub reuses: u64,
}

#[derive(Default)]
struct Shelves {
    free: BTreeMap<usize, Vec<Arc<dyn DeviceBuffer>>>,
    pending: Vec<Arc<dyn DeviceBuffer>>,
    stats: PoolStats,
}

/// The buffers of one device.
pub(crate) struct Pool {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) device: usize,
    shelves: Mutex<Shelves>,
    next_id: AtomicU64,
    /// Free bytes kept at most.
    limit: usize,
}

/// Sizes are rounded up to an eighth of a power of two, so that almost equal sizes share buffers.
fn size_class(bytes: usize) -> usize {
    let step = (bytes.max(512).next_power_of_two() / 8).max(64);
    bytes.max(1).next_multiple_of(step)
}

impl Pool {
    pub(crate) fn new(backend: Arc<dyn Backend>, device: usize, limit: usize) -> Pool {
        Pool { backend, device, shelves: Mutex::default(), next_id: AtomicU64::new(0), limit }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Memory for a value.
    pub(crate) fn acquire(self: &Arc<Pool>, bytes: usize) -> Result<Arc<Storage>> {
        let class = size_class(bytes);
        let mut s = self.shelves();
        let shelf = s.free.range_mut(class..=2 * class).find(|(_, shelf)| !shelf.is_empty());
        let buffer = match shelf.and_then(|(_, shelf)| shelf.pop()) {
            Some(b) => {
                s.stats.free_bytes -= b.bytes();
                s.stats.reuses += 1;
                b
            }
            None => {
                drop(s);
                let b = self.backend.alloc(class)?;
                s = self.shelves();
                s.stats.allocations += 1;
                b
            }
        };
        s.stats.live_bytes += buffer.bytes();
        s.stats.peak_bytes = s.stats.peak_bytes.max(s.stats.live_bytes);
        drop(s);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Storage::new(id, buffer, self.clone())))
    }

    /// Takes a buffer back; it waits for the next `flush`.
    pub(crate) fn release(&self, buffer: Arc<dyn DeviceBuffer>) {
        let mut s = self.shelves();
        s.stats.live_bytes -= buffer.bytes();
        s.stats.pending += 1;
        s.pending.push(buffer);
    }

    /// Everything submitted so far is complete: released buffers may be used again.
    pub(crate) fn flush(&self) {
        let mut dropped = Vec::new();
        let mut s = self.shelves();
        let s = &mut *s;
        s.stats.pending = 0;
        for b in s.pending.drain(..) {
            if s.stats.free_bytes + b.bytes() > self.limit {
                dropped.push(b);
            } else {
                s.stats.free_bytes += b.bytes();
                s.free.entry(b.bytes()).or_default().push(b);
            }
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.shelves().stats
    }
}
