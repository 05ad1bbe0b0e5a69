//! The cache of bind groups, by their buffers.

use super::super::binding::{Bound, Layout};
use super::host;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Mutex;

/// The maximum number of cached groups; beyond this half of them are dropped.
const KEPT: usize = 8192;

/// A group's layout, and the id, offset and size of each of its buffers.
type Key = (Layout, SmallVec<[(u64, usize, usize); 8]>);

/// The cache of a device.
#[derive(Default)]
pub(super) struct Groups(Mutex<FxHashMap<Key, u32>>);

impl Groups {
    /// Drops all groups, and their references to buffers.
    pub(super) fn clear(&self) {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        all.drain().for_each(|(_, group)| host::gpu_forget(group));
    }

    /// The group of these buffers.
    pub(super) fn group(&self, layout: Layout, bound: &[Bound<'_>]) -> u32 {
        let key: Key = (layout, bound.iter().map(|b| (b.block.id, b.start, b.bytes.unwrap_or(0))).collect());
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(g) = all.get(&key) {
            return *g;
        }
        if all.len() >= KEPT {
            // JavaScript keeps dropped groups until the next submission, because recorded commands may refer to them.
            let old: Vec<Key> = all.keys().take(KEPT / 2).cloned().collect();
            old.iter().filter_map(|k| all.remove(k)).for_each(|group| host::gpu_forget(group));
        }
        let entries: SmallVec<[u32; 24]> =
            bound.iter().flat_map(|b| [b.block.buffer.number(), b.start as u32, b.bytes.unwrap_or(0) as u32]).collect();
        let group = host::gpu_group(layout.0 as u32, layout.1 as u32, entries.as_ptr());
        all.insert(key, group);
        group
    }
}
