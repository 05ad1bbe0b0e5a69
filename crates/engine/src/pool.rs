//! A pool of reusable buffers (§14).
//!
//! A released buffer first goes to `pending`, because the device may still read it. It can be acquired again only after `flush`,
//! which the executor calls between segments whose work is complete.
//!
//! The limit of cached free bytes follows the program: at most its recent peak of bytes in use. A loop of equal steps
//! finds all its buffers in the pool; the memory of one large computation is returned to the system soon after it.

use crate::storage::Storage;
use compiler::{Backend, DeviceBuffer, Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Statistics of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// The number of bytes in use.
    pub live_bytes: usize,
    /// The peak number of bytes in use.
    pub peak_bytes: usize,
    /// The number of released buffers that wait for the next flush.
    pub pending: usize,
    /// The number of free bytes that can be reused.
    pub free_bytes: usize,
    /// The number of buffers allocated from the device.
    pub allocations: u64,
    /// The number of buffers reused from the pool.
    pub reuses: u64,
}

/// Allocation counts of one buffer size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeStats {
    /// The size of a buffer in bytes.
    pub bytes: usize,
    /// The number of buffers allocated from the device.
    pub allocations: u64,
    /// The number of buffers reused from the pool.
    pub reuses: u64,
    /// The number of buffers in use.
    pub live: usize,
    /// The number of free buffers.
    pub free: usize,
}

/// The limits of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolLimits {
    /// The limit of free bytes; `None` stands for the program's recent peak of bytes in use.
    pub(crate) free: Option<usize>,
    /// The limit of bytes in use.
    pub(crate) live: Option<usize>,
}

/// The number of acquired buffers per window of the recent peak; the end of a step also ends a window.
const PEAK_WINDOW: u64 = 8192;
/// The number of free bytes that are always kept, because small programs need no limit.
const MIN_CACHED_BYTES: usize = 1 << 20;

#[derive(Default)]
struct FreeLists {
    free: BTreeMap<usize, Vec<Arc<dyn DeviceBuffer>>>,
    pending: Vec<Arc<dyn DeviceBuffer>>,
    sizes: BTreeMap<usize, SizeStats>,
    stats: PoolStats,
    /// The peak of bytes in use in this window and in the previous one.
    peaks: [usize; 2],
    buffers_issued: u64,
}

impl FreeLists {
    fn next_window(&mut self) {
        self.peaks = [self.stats.live_bytes, self.peaks[0]];
        self.buffers_issued = 0;
    }

    /// Whether the pool has a free buffer of this size, or slightly larger.
    fn has(&self, class: usize) -> bool {
        self.free.range(class..=2 * class).any(|(_, shelf)| !shelf.is_empty())
    }

    /// Takes a free buffer of this size, or slightly larger.
    fn find(&mut self, class: usize) -> Option<Arc<dyn DeviceBuffer>> {
        let (_, shelf) = self.free.range_mut(class..=2 * class).find(|(_, shelf)| !shelf.is_empty())?;
        let buffer = shelf.pop()?;
        self.stats.free_bytes -= buffer.bytes();
        self.stats.reuses += 1;
        self.sizes.entry(buffer.bytes()).or_default().reuses += 1;
        Some(buffer)
    }

    /// Makes released buffers reusable after all submitted work is complete. Returns the buffers above the limit.
    fn reclaim_pending(&mut self, bounds: PoolLimits) -> Vec<Arc<dyn DeviceBuffer>> {
        self.stats.pending = 0;
        for b in self.pending.drain(..) {
            self.stats.free_bytes += b.bytes();
            self.free.entry(b.bytes()).or_default().push(b);
        }
        self.trim(bounds.free.unwrap_or_else(|| self.peaks[0].max(self.peaks[1]).max(MIN_CACHED_BYTES)))
    }

    /// Removes free buffers, large ones first, until at most `bytes` are left.
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

/// The buffer pool of one device.
pub(crate) struct Pool {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) device: usize,
    shelves: Mutex<FreeLists>,
    next_id: AtomicU64,
    bounds: PoolLimits,
}

/// Rounds a size up to a multiple of an eighth of a power of two, so that almost equal sizes share buffers.
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

    /// Acquires memory for a value.
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
            // Free buffers are returned to the device if live and free bytes together exceed the limit.
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

    /// Wraps external memory as storage; it does not count as the pool's.
    pub(crate) fn adopt(self: &Arc<Pool>, buffer: Arc<dyn DeviceBuffer>) -> Arc<Storage> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(Storage::external(id, buffer, self.clone()))
    }

    /// Allocates memory from the device. If the device has none left, returns the free buffers to it and tries again.
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

    /// Releases a buffer; it becomes reusable at the next `flush`.
    pub(crate) fn release(&self, buffer: Arc<dyn DeviceBuffer>) {
        let mut s = self.shelves();
        s.stats.live_bytes -= buffer.bytes();
        s.stats.pending += 1;
        if let Some(size) = s.sizes.get_mut(&buffer.bytes()) {
            size.live -= 1;
        }
        s.pending.push(buffer);
    }

    /// Makes released buffers reusable; the caller guarantees that all submitted work is complete.
    pub(crate) fn flush(&self) {
        let stale = self.shelves().reclaim_pending(self.bounds);
        drop(stale);
    }

    /// Ends a step and with it the window of the recent peak.
    pub(crate) fn end_step(&self) {
        self.shelves().next_window();
    }

    /// Returns all free buffers to the device.
    pub(crate) fn release_all(&self) {
        let mut s = self.shelves();
        let mut stale = s.reclaim_pending(self.bounds);
        stale.extend(s.trim(0));
        drop(s);
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.shelves().stats
    }

    /// The allocation counts of each size, in ascending order of size.
    pub(crate) fn sizes(&self) -> Vec<SizeStats> {
        let s = self.shelves();
        let free = |bytes: &usize| s.free.get(bytes).map_or(0, Vec::len);
        s.sizes.iter().map(|(bytes, x)| SizeStats { bytes: *bytes, free: free(bytes), ..*x }).collect()
    }
}
