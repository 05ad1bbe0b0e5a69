//! A bounded cache that evicts the least recently used entries.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

struct Entry<K, V> {
    key: K,
    value: V,
    bytes: usize,
    used: u64,
}

/// A cache looked up by a hash and a comparison, so that a hit needs no owned key. It is bounded by the
/// number of entries and by the bytes that the caller declared for them.
pub struct LruCache<K, V> {
    buckets: FxHashMap<u64, Vec<Entry<K, V>>>,
    len: usize,
    bytes: usize,
    clock: u64,
    capacity: usize,
    max_bytes: usize,
    /// The number of lookups that found an entry.
    pub hits: u64,
    /// The number of lookups that found none.
    pub misses: u64,
}

/// Hashes a value with the hash function of the caches.
pub fn hash_of(x: &impl Hash) -> u64 {
    let mut h = FxHasher::default();
    x.hash(&mut h);
    h.finish()
}

impl<K, V: Clone> LruCache<K, V> {
    /// Creates a cache of at most `capacity` entries.
    pub fn new(capacity: usize) -> LruCache<K, V> {
        LruCache::with_byte_limit(capacity, usize::MAX)
    }

    /// Creates a cache of at most `capacity` entries and `bytes` bytes. The newest entry is always kept.
    pub fn with_byte_limit(capacity: usize, bytes: usize) -> LruCache<K, V> {
        let buckets = FxHashMap::default();
        LruCache { buckets, len: 0, bytes: 0, clock: 0, capacity, max_bytes: bytes, hits: 0, misses: 0 }
    }

    /// Returns the value of a key.
    pub fn get(&mut self, hash: u64, is: impl Fn(&K) -> bool) -> Option<V> {
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

    /// Adds an entry.
    pub fn insert(&mut self, hash: u64, key: K, value: V) {
        self.insert_sized(hash, key, value, 0);
    }

    /// Adds an entry with its size in bytes.
    pub fn insert_sized(&mut self, hash: u64, key: K, value: V, bytes: usize) {
        self.clock += 1;
        self.evict(bytes);
        self.len += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.buckets.entry(hash).or_default().push(Entry { key, value, bytes, used: self.clock });
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sum of the entries' declared sizes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all entries; the hit and miss counts stay.
    pub fn clear(&mut self) {
        self.buckets.clear();
        (self.len, self.bytes) = (0, 0);
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, capacity: usize, bytes: usize) {
        (self.capacity, self.max_bytes) = (capacity, bytes);
        self.evict(0);
    }

    /// The keys, values and sizes, the least recently used first.
    pub fn entries(&self) -> Vec<(&K, &V, usize)> {
        let mut all: Vec<&Entry<K, V>> = self.buckets.values().flatten().collect();
        all.sort_by_key(|e| e.used);
        all.into_iter().map(|e| (&e.key, &e.value, e.bytes)).collect()
    }

    /// Makes room for an entry of `more` bytes. Evicts at least an eighth of the entries, so that a full cache does not sort by
    /// age at every insertion.
    fn evict(&mut self, more: usize) {
        let fits =
            |len: usize, bytes: usize| len < self.capacity.max(1) && bytes.saturating_add(more) <= self.max_bytes;
        if fits(self.len, self.bytes) {
            return;
        }
        let mut ages: Vec<(u64, usize)> = self.buckets.values().flatten().map(|e| (e.used, e.bytes)).collect();
        ages.sort_unstable();
        let (mut len, mut bytes, mut cut) = (self.len, self.bytes, 0);
        for (i, (used, size)) in ages.into_iter().enumerate() {
            if i >= self.len / 8 && fits(len, bytes) {
                break;
            }
            (len, bytes, cut) = (len - 1, bytes - size, used);
        }
        self.buckets.retain(|_, bucket| {
            bucket.retain(|e| e.used > cut);
            !bucket.is_empty()
        });
        self.len = self.buckets.values().map(Vec::len).sum();
        self.bytes = self.buckets.values().flatten().map(|e| e.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(c: &LruCache<u32, ()>) -> Vec<u32> {
        c.entries().iter().map(|e| *e.0).collect()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut c: LruCache<u32, ()> = LruCache::new(3);
        for k in 0..3 {
            c.insert(hash_of(&k), k, ());
        }
        assert!(c.get(hash_of(&0u32), |k| *k == 0).is_some());
        c.insert(hash_of(&3u32), 3, ());
        assert_eq!(keys(&c), [2, 0, 3]);
        c.set_limits(2, usize::MAX);
        assert!(c.len() <= 2);
        c.clear();
        assert_eq!((c.len(), c.bytes()), (0, 0));
    }

    #[test]
    fn bytes_are_bounded_and_the_newest_is_kept() {
        let mut c: LruCache<u32, ()> = LruCache::with_byte_limit(100, 1000);
        for k in 0..50 {
            c.insert_sized(hash_of(&k), k, (), 90);
            assert!(c.bytes() <= 1000 && keys(&c).contains(&k));
        }
        c.insert_sized(hash_of(&50u32), 50, (), 5000);
        assert_eq!(keys(&c), [50]);
    }

    #[test]
    fn a_thousand_times_its_capacity_goes_through() {
        let mut c: LruCache<u32, ()> = LruCache::new(64);
        for k in 0..64_000 {
            c.insert(hash_of(&k), k, ());
            assert!(c.len() <= 64);
        }
        assert_eq!(keys(&c).last(), Some(&63_999));
    }
}
