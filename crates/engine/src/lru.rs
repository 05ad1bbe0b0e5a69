//! A bounded cache that forgets what was not used for longest.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

struct Entry<K, V> {
    key: K,
    value: V,
    used: u64,
}

/// A cache from keys to values, looked up by hash and a comparison so that no key is built for a hit.
pub(crate) struct Lru<K, V> {
    buckets: FxHashMap<u64, Vec<Entry<K, V>>>,
    len: usize,
    clock: u64,
    capacity: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// The hash that the cache uses.
pub(crate) fn hash_of(x: &impl Hash) -> u64 {
    let mut h = FxHasher::default();
    x.hash(&mut h);
    h.finish()
}

impl<K, V: Clone> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Lru<K, V> {
        Lru { buckets: FxHashMap::default(), len: 0, clock: 0, capacity, hits: 0, misses: 0 }
    }

    pub(crate) fn get(&mut self, hash: u64, is: impl Fn(&K) -> bool) -> Option<V> {
        self.clock += 1;
        let found = self.buckets.get_mut(&hash).and_then(|b| b.iter_mut().find(|e| is(&e.key)));
        match found {
            Some(e) => {
                e.used = self.clock;
                self.hits += 1;
                Some(e.value.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    pub(crate) fn insert(&mut self, hash: u64, key: K, value: V) {
        if self.len >= self.capacity {
            self.shrink();
        }
        self.len += 1;
        self.buckets.entry(hash).or_default().push(Entry { key, value, used: self.clock });
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets the older half.
    fn shrink(&mut self) {
        let mut ages: Vec<u64> = self.buckets.values().flatten().map(|e| e.used).collect();
        ages.sort_unstable();
        let cut = ages.get(ages.len() / 2).copied().unwrap_or(0);
        self.buckets.retain(|_, bucket| {
            bucket.retain(|e| e.used > cut);
            !bucket.is_empty()
        });
        self.len = self.buckets.values().map(Vec::len).sum();
    }
}
