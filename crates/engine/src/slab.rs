//! A table that reuses its slots under new keys.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// A key of a `Slab`: a slot and its generation, so that an old key never finds a new entry.
pub struct SlabKey<T> {
    slot: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for SlabKey<T> {
    fn clone(&self) -> SlabKey<T> {
        *self
    }
}
impl<T> Copy for SlabKey<T> {}
impl<T> PartialEq for SlabKey<T> {
    fn eq(&self, other: &SlabKey<T>) -> bool {
        (self.slot, self.generation) == (other.slot, other.generation)
    }
}
impl<T> Eq for SlabKey<T> {}
impl<T> Hash for SlabKey<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ((self.slot as u64) << 32 | self.generation as u64).hash(state);
    }
}
impl<T> PartialOrd for SlabKey<T> {
    fn partial_cmp(&self, other: &SlabKey<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for SlabKey<T> {
    fn cmp(&self, other: &SlabKey<T>) -> std::cmp::Ordering {
        (self.slot, self.generation).cmp(&(other.slot, other.generation))
    }
}
impl<T> fmt::Debug for SlabKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl<T> fmt::Display for SlabKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

struct SlabSlot<T> {
    generation: u32,
    entry: Option<T>,
}

/// A table of entries with stable keys.
pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub(crate) fn insert(&mut self, entry: T) -> SlabKey<T> {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            place.entry = Some(entry);
            return SlabKey { slot, generation: place.generation, of: PhantomData };
        }
        let slot = self.slots.len() as u32;
        self.slots.push(SlabSlot { generation: 0, entry: Some(entry) });
        SlabKey { slot, generation: 0, of: PhantomData }
    }

    pub(crate) fn get(&self, key: SlabKey<T>) -> Option<&T> {
        let place = self.slots.get(key.slot as usize)?;
        place.entry.as_ref().filter(|_| place.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: SlabKey<T>) -> Option<&mut T> {
        let place = self.slots.get_mut(key.slot as usize)?;
        place.entry.as_mut().filter(|_| place.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: SlabKey<T>) -> Option<T> {
        let place = self.slots.get_mut(key.slot as usize).filter(|p| p.generation == key.generation)?;
        let entry = place.entry.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(entry)
    }

    /// The entries in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlabKey<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(i, p)| {
            let key = SlabKey { slot: i as u32, generation: p.generation, of: PhantomData };
            p.entry.as_ref().map(|e| (key, e))
        })
    }

    /// The entries in slot order, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (SlabKey<T>, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(i, p)| {
            let key = SlabKey { slot: i as u32, generation: p.generation, of: PhantomData };
            p.entry.as_mut().map(|e| (key, e))
        })
    }
}
