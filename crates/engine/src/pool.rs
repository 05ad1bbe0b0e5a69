//! Buffers for use again (§14).
//!
//! A released buffer first waits in `pending`: the device may still read it. It can be acquired again only after `flush`,
//! which the executor calls between segments whose work is complete.
//!
//! How many bytes wait to be used again follows the program: never more than it lately had in use at once. A step that
//! repeats finds all its buffers; what one large computation needed goes back to the system soon after.

use crate::storage::Storage;
use compiler::{Backend, DeviceBuffer, Error, Result};
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

/// How often buffers of one size were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeStats {
    /// Bytes of a buffer.
    pub bytes: usize,
    /// Buffers taken from the device.
    pub allocations: u64,
    /// Buffers used again.
    pub reuses: u64,
    /// Buffers in use.
    pub live: usize,
    /// Buffers ready to be used again.
    pub free: usize,
}

/// Bounds on what a pool holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolLimits {
    /// Bytes ready to be used again; without a number, what the program lately used at once.
    pub(crate) free: Option<usize>,
    /// Bytes in use.
    pub(crate) live: Option<usize>,
}

/// Buffers handed out in what "lately" means, unless the step ends before.
const PEAK_WINDOW: u64 = 8192;
/// Bytes that are always kept: what small programs hold does not matter.
const MIN_CACHED_BYTES: usize = 1 << 20;

#[derive(Default)]
struct FreeLists {
    free: BTreeMap<usize, Vec<Arc<dyn DeviceBuffer>>>,
    pending: Vec<Arc<dyn DeviceBuffer>>,
    sizes: BTreeMap<usize, SizeStats>,
    stats: PoolStats,
    /// The most in use at once, in this window and in the one before.
    peaks: [usize; 2],
    buffers_issued: u64,
}

impl FreeLists {
    fn next_window(&mut self) {
        self.peaks = [self.stats.live_bytes, self.peaks[0]];
        self.buffers_issued = 0;
    }

    /// Whether a buffer of a size, or a little larger, is free.
    fn has(&self, class: usize) -> bool {
        self.free.range(class..=2 * class).any(|(_, shelf)| !shelf.is_empty())
    }

    /// A free buffer of a size, or a little larger.
    fn find(&mut self, class: usize) -> Option<Arc<dyn DeviceBuffer>> {
        let (_, shelf) = self.free.range_mut(class..=2 * class).find(|(_, shelf)| !shelf.is_empty())?;
        let buffer = shelf.pop()?;
        self.stats.free_bytes -= buffer.bytes();
        self.stats.reuses += 1;
        self.sizes.entry(buffer.bytes()).or_default().reuses += 1;
        Some(buffer)
    }

    /// Everything submitted is complete: released buffers may be used again. Gives those that are too many.
    fn reclaim_pending(&mut self, bounds: PoolLimits) -> Vec<Arc<dyn DeviceBuffer>> {
        self.stats.pending = 0;
        for b in self.pending.drain(..) {
            self.stats.free_bytes += b.bytes();
            self.free.entry(b.bytes()).or_default().push(b);
        }
        self.trim(bounds.free.unwrap_or_else(|| self.peaks[0].max(self.peaks[1]).max(MIN_CACHED_BYTES)))
    }

    /// Takes free buffers out, large ones first, until no more bytes are left.
    fn trim(&mut self, bytes: usize) -> Vec<Arc<dyn DeviceBuffer>> {
        let mut out = Vec::new();
        while self.stats.free_bytes > bytes {
            let Some(mut shelf) = self.free.last_entry() else { break };
            match shelf.get_mut().pop() {
                Some(b) => {
                    self.stats.free_bytes -= b.bytes();
                    out.push(b);
                }
                None => drop(shelf.remove()),
            }
        }
        out
    }
}

/// The buffers of one device.
pub(crate) struct Pool {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) device: usize,
    shelves: Mutex<FreeLists>,
    next_id: AtomicU64,
    bounds: PoolLimits,
}

/// Sizes are rounded up to an eighth of a power of two, so that almost equal sizes share buffers.
fn size_class(bytes: usize) -> Option<usize> {
    let step = (bytes.max(512).checked_next_power_of_two()? / 8).max(64);
    bytes.max(1).checked_next_multiple_of(step)
}

impl Pool {
    pub(crate) fn new(backend: Arc<dyn Backend>, device: usize, bounds: PoolLimits) -> Pool {
        Pool { backend, device, shelves: Mutex::default(), next_id: AtomicU64::new(0), bounds }
    }

    fn shelves(&self) -> MutexGuard<'_, FreeLists> {
        self.shelves.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Memory for a value.
    pub(crate) fn acquire(self: &Arc<Pool>, bytes: usize) -> Result<Arc<Storage>> {
        let none = || Error::OutOfMemory { bytes, hint: "; use smaller shapes or a smaller batch" };
        let class = size_class(bytes).ok_or_else(none)?;
        let mut s = self.shelves();
        let mut stale = Vec::new();
        if let Some(limit) = self.bounds.live {
            let live = s.stats.live_bytes;
            if live.saturating_add(class) > limit {
                return Err(Error::MemoryLimit { bytes: class, live, limit });
            }
            // What waits to be used again counts as soon as there would be too much of both.
            if !s.has(class) {
                stale = s.trim(limit - live - class);
            }
        }
        let buffer = match s.find(class) {
            Some(b) => b,
            None => {
                drop(s);
                drop(stale);
                let b = self.allocate(class)?;
                s = self.shelves();
                s.stats.allocations += 1;
                s.sizes.entry(b.bytes()).or_default().allocations += 1;
                b
            }
        };
        s.stats.live_bytes += buffer.bytes();
        s.stats.peak_bytes = s.stats.peak_bytes.max(s.stats.live_bytes);
        s.sizes.entry(buffer.bytes()).or_default().live += 1;
        s.buffers_issued += 1;
        if s.buffers_issued > PEAK_WINDOW {
            s.next_window();
        }
        s.peaks[0] = s.peaks[0].max(s.stats.live_bytes);
        drop(s);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Storage::new(id, buffer, self.clone())))
    }

    /// Memory of someone else as that of a value; it isn't counted as the pool's.
    pub(crate) fn adopt(self: &Arc<Pool>, buffer: Arc<dyn DeviceBuffer>) -> Arc<Storage> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(Storage::external(id, buffer, self.clone()))
    }

    /// Memory from the device; if it has none left, after giving back what waits to be used again.
    fn allocate(&self, class: usize) -> Result<Arc<dyn DeviceBuffer>> {
        match self.backend.alloc(class) {
            Err(Error::OutOfMemory { .. }) => {
                let free = self.shelves().trim(0);
                if free.is_empty() {
                    return self.backend.alloc(class);
                }
                drop(free);
                self.backend.alloc(class)
            }
            done => done,
        }
    }

    /// Takes a buffer back; it waits for the next `flush`.
    pub(crate) fn release(&self, buffer: Arc<dyn DeviceBuffer>) {
        let mut s = self.shelves();
        s.stats.live_bytes -= buffer.bytes();
        s.stats.pending += 1;
        if let Some(size) = s.sizes.get_mut(&buffer.bytes()) {
            size.live -= 1;
        }
        s.pending.push(buffer);
    }

    /// Everything submitted so far is complete: released buffers may be used again.
    pub(crate) fn flush(&self) {
        let stale = self.shelves().reclaim_pending(self.bounds);
        drop(stale);
    }

    /// A step has ended.
    pub(crate) fn end_step(&self) {
        self.shelves().next_window();
    }

    /// Gives everything that is not in use back to the device.
    pub(crate) fn release_all(&self) {
        let mut s = self.shelves();
        let mut stale = s.reclaim_pending(self.bounds);
        stale.extend(s.trim(0));
        drop(s);
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.shelves().stats
    }

    /// How often each size was asked for, from small to large.
    pub(crate) fn sizes(&self) -> Vec<SizeStats> {
        let s = self.shelves();
        let free = |bytes: &usize| s.free.get(bytes).map_or(0, Vec::len);
        s.sizes.iter().map(|(bytes, x)| SizeStats { bytes: *bytes, free: free(bytes), ..*x }).collect()
    }
}
