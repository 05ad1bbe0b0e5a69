//! A caching allocator of buffers by size class. A freed buffer can be reused immediately, because its next user is later in the
//! queue.

use super::device::Buffer;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The size of every buffer is a multiple of this number of bytes.
pub(super) const ALIGN: usize = 256;

/// The size of a buffer for this many bytes: at most an eighth more, or [`ALIGN`].
pub(super) fn class(bytes: usize) -> usize {
    let bytes = bytes.max(1);
    let step = match bytes.ilog2() {
        0..=11 => ALIGN,
        log => 1 << (log - 3),
    };
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

/// A buffer of the device, with a unique number.
#[derive(Clone)]
pub(super) struct Block {
    pub(super) buffer: Buffer,
    pub(super) id: u64,
    pub(super) size: usize,
}

impl Block {
    pub(super) fn new(buffer: Buffer, size: usize) -> Block {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Block { buffer, id: NEXT.fetch_add(1, Relaxed), size }
    }
}

/// The memory statistics of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use.
    pub live: usize,
    /// Cached bytes.
    pub pooled: usize,
    /// The maximum bytes in use.
    pub peak: usize,
}

#[derive(Default)]
pub(super) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    free: FxHashMap<usize, Vec<Block>>,
    usage: Usage,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Allocates a cached buffer of this class, if there is one.
    pub(super) fn take(&self, class: usize) -> Option<Block> {
        let mut s = self.lock();
        let block = s.free.get_mut(&class)?.pop()?;
        s.usage.pooled -= class;
        s.count(class);
        Some(block)
    }

    /// Counts a newly created buffer.
    pub(super) fn made(&self, class: usize) {
        self.lock().count(class);
    }

    pub(super) fn give(&self, block: Block) {
        let mut s = self.lock();
        s.usage.live -= block.size;
        s.usage.pooled += block.size;
        s.free.entry(block.size).or_default().push(block);
    }

    /// Drops cached buffers; the driver frees them when the work that uses them is complete.
    pub(super) fn release(&self) -> usize {
        let mut s = self.lock();
        s.free.clear();
        std::mem::take(&mut s.usage.pooled)
    }

    pub(super) fn usage(&self) -> Usage {
        self.lock().usage
    }
}

impl State {
    fn count(&mut self, bytes: usize) {
        self.usage.live += bytes;
        self.usage.peak = self.usage.peak.max(self.usage.live);
    }
}
