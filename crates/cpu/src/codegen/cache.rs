//! A bounded cache of compiled kernels, keyed by content.

use super::{CodegenError, CompiledKernel, Target, compile};
use compiler::loops::Kernel;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

/// A cache that evicts the least recently used kernels above its limit. A kernel's name is not part of its key.
pub struct KernelCache {
    target: Target,
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Entries by hash of their structure.
    slots: FxHashMap<u64, Vec<Entry>>,
    len: usize,
    clock: u64,
}

struct Entry {
    kernel: Kernel,
    code: Arc<CompiledKernel>,
    used: u64,
}

fn structure_hash(k: &Kernel) -> u64 {
    let mut h = FxHasher::default();
    k.buffers.hash(&mut h);
    k.sizes.hash(&mut h);
    k.regs.hash(&mut h);
    k.body.hash(&mut h);
    h.finish()
}

fn same(a: &Kernel, b: &Kernel) -> bool {
    a.buffers == b.buffers && a.sizes == b.sizes && a.regs == b.regs && a.vars == b.vars && a.body == b.body
}

impl KernelCache {
    /// Makes an empty cache for one target that keeps at most `limit` kernels.
    pub fn new(target: Target, limit: usize) -> KernelCache {
        KernelCache { target, limit: limit.max(1), inner: Mutex::default() }
    }

    /// Returns the compiled kernel, from the cache or newly compiled.
    pub fn get(&self, k: &Kernel) -> Result<Arc<CompiledKernel>, CodegenError> {
        let key = structure_hash(k);
        if let Some(code) = self.inner().find(key, k) {
            return Ok(code);
        }
        // Compile outside the lock; two threads may then compile the same kernel.
        let code = Arc::new(compile(k, self.target)?);
        let mut inner = self.inner();
        if let Some(code) = inner.find(key, k) {
            return Ok(code);
        }
        inner.clock += 1;
        inner.len += 1;
        let entry = Entry { kernel: k.clone(), code: code.clone(), used: inner.clock };
        inner.slots.entry(key).or_default().push(entry);
        if inner.len > self.limit {
            inner.drop_oldest();
        }
        Ok(code)
    }

    /// The number of kernels in the cache.
    pub fn len(&self) -> usize {
        self.inner().len
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Inner {
    fn find(&mut self, key: u64, k: &Kernel) -> Option<Arc<CompiledKernel>> {
        self.clock += 1;
        let clock = self.clock;
        let entry = self.slots.get_mut(&key)?.iter_mut().find(|e| same(&e.kernel, k))?;
        entry.used = clock;
        Some(entry.code.clone())
    }

    /// Evicts the oldest eighth at once, so that a full cache does not sort at every miss.
    fn drop_oldest(&mut self) {
        let mut ages: Vec<u64> = self.slots.values().flatten().map(|e| e.used).collect();
        ages.sort_unstable();
        let limit = ages[(self.len / 8).min(self.len - 1)];
        self.slots.retain(|_, list| {
            list.retain(|e| e.used > limit);
            !list.is_empty()
        });
        self.len = ages.iter().filter(|&&a| a > limit).count();
    }
}
