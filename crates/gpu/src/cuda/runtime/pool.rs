//! A caching memory allocator.
//!
//! Work in progress may still use a block that was freed. The block is reused for the next allocation, whose
//! work is later in the device's only queue: this order makes reuse safe.

use super::size_classes::{ALIGN, size_class};
use compiler::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Blocks up to this size are parts of slabs.
const SMALL: usize = 64 << 10;
const SLAB: usize = 2 << 20;

/// The memory source of a pool.
pub(crate) trait MemorySource {
    /// Allocates memory at a multiple of [`ALIGN`]; none if the device is out of memory.
    fn take(&self, bytes: usize) -> Result<Option<u64>>;

    /// Frees memory that nothing uses any more.
    fn give(&self, address: u64);

    /// Waits until nothing uses the blocks that were freed to the pool.
    fn synchronize(&self) -> Result<()>;
}

/// Memory from a pool, which must be freed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    /// The size in bytes.
    pub(crate) bytes: usize,
}

/// The allocator.
pub(crate) struct Pool {
    state: Mutex<State>,
    hint: &'static str,
}

#[derive(Default)]
struct State {
    /// The free blocks by size, the most recently freed one last.
    free: BTreeMap<usize, Vec<u64>>,
    slabs: Vec<u64>,
    usage: MemoryStats,
}

/// The memory statistics of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Allocated bytes.
    pub allocated_bytes: usize,
    /// Bytes reserved from the driver.
    pub reserved_bytes: usize,
    /// The maximum of the allocated bytes.
    pub peak_allocated_bytes: usize,
}

impl Pool {
    /// `hint` is the remedy in out-of-memory errors.
    pub(crate) fn new(hint: &'static str) -> Pool {
        Pool { state: Mutex::default(), hint }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Allocates a block of at least this many bytes.
    pub(crate) fn take(&self, bytes: usize, source: &dyn MemorySource) -> Result<Block> {
        let size = size_class(bytes);
        let mut s = self.state();
        // A slightly larger free block is better than a new one.
        let most = if size <= SMALL { size } else { size.saturating_add(size / 4) };
        let there = s.free.range(size..=most).next().map(|(size, _)| *size);
        if let Some(bytes) = there
            && let Some(list) = s.free.get_mut(&bytes)
            && let Some(address) = list.pop()
        {
            if list.is_empty() {
                s.free.remove(&bytes);
            }
            return Ok(s.lent(Block { address, bytes }));
        }
        if size > SMALL {
            let address = self.from_source(&mut s, size, bytes, source)?;
            return Ok(s.lent(Block { address, bytes: size }));
        }
        let slab = self.from_source(&mut s, SLAB, bytes, source)?;
        s.slabs.push(slab);
        let blocks = (0..SLAB / size).rev().map(|i| slab + (i * size) as u64);
        s.free.entry(size).or_default().extend(blocks);
        let list = s.free.get_mut(&size).expect("was just filled");
        let address = list.pop().expect("a slab holds many");
        Ok(s.lent(Block { address, bytes: size }))
    }

    /// Allocates new memory; if there is none, returns free blocks to the driver first.
    fn from_source(&self, s: &mut State, bytes: usize, asked: usize, source: &dyn MemorySource) -> Result<u64> {
        let fail = || Error::OutOfMemory { bytes: asked, hint: self.hint };
        if bytes > isize::MAX as usize {
            return Err(fail());
        }
        let mut found = source.take(bytes)?;
        if found.is_none() && s.release(source)? > 0 {
            found = source.take(bytes)?;
        }
        let address = found.ok_or_else(fail)?;
        debug_assert!(address.is_multiple_of(ALIGN as u64));
        s.usage.reserved_bytes += bytes;
        Ok(address)
    }

    /// Frees a block.
    pub(crate) fn give(&self, block: Block) {
        let mut s = self.state();
        s.usage.allocated_bytes -= block.bytes;
        s.free.entry(block.bytes).or_default().push(block.address);
    }

    /// Returns free blocks to the driver, and returns their bytes.
    pub(crate) fn release(&self, source: &dyn MemorySource) -> Result<usize> {
        self.state().release(source)
    }

    /// Returns all memory; no block may be in use, unless the context is lost.
    pub(crate) fn clear(&self, source: &dyn MemorySource) {
        let mut s = self.state();
        for (size, list) in std::mem::take(&mut s.free) {
            if size > SMALL {
                list.into_iter().for_each(|a| source.give(a));
            }
        }
        std::mem::take(&mut s.slabs).into_iter().for_each(|a| source.give(a));
        s.usage.reserved_bytes = 0;
    }

    pub(crate) fn usage(&self) -> MemoryStats {
        self.state().usage
    }
}

impl State {
    fn lent(&mut self, block: Block) -> Block {
        self.usage.allocated_bytes += block.bytes;
        self.usage.peak_allocated_bytes = self.usage.peak_allocated_bytes.max(self.usage.allocated_bytes);
        block
    }

    /// Small blocks are kept, because their slabs are seldom completely free.
    fn release(&mut self, source: &dyn MemorySource) -> Result<usize> {
        if !self.free.keys().any(|size| *size > SMALL) {
            return Ok(0);
        }
        source.synchronize()?;
        let mut bytes = 0;
        let large = self.free.split_off(&(SMALL + 1));
        for (size, list) in large {
            bytes += size * list.len();
            list.into_iter().for_each(|a| source.give(a));
        }
        self.usage.reserved_bytes -= bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Memory of a fixed size, allocated linearly.
    struct Card {
        left: Cell<usize>,
        next: Cell<u64>,
        out: RefCell<BTreeMap<u64, usize>>,
        settled: Cell<usize>,
    }

    impl Card {
        fn new(bytes: usize) -> Card {
            Card { left: Cell::new(bytes), next: Cell::new(4096), out: RefCell::default(), settled: Cell::new(0) }
        }
    }

    impl MemorySource for Card {
        fn take(&self, bytes: usize) -> Result<Option<u64>> {
            if bytes > self.left.get() {
                return Ok(None);
            }
            self.left.set(self.left.get() - bytes);
            let at = self.next.get();
            self.next.set(at + bytes as u64);
            self.out.borrow_mut().insert(at, bytes);
            Ok(Some(at))
        }

        fn give(&self, address: u64) {
            let bytes = self.out.borrow_mut().remove(&address).expect("given back once, and ours");
            self.left.set(self.left.get() + bytes);
        }

        fn synchronize(&self) -> Result<()> {
            self.settled.set(self.settled.get() + 1);
            Ok(())
        }
    }

    #[test]
    fn blocks_that_are_lent_never_overlap_and_come_back() {
        let (pool, card) = (Pool::new(""), Card::new(1 << 32));
        let mut lent: Vec<Block> = Vec::new();
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if x >> 63 == 0 || lent.is_empty() {
                let bytes = (x >> 20) as usize % (1 << ((x >> 10) % 22));
                let b = pool.take(bytes, &card).unwrap();
                assert!(b.bytes >= bytes && b.address.is_multiple_of(ALIGN as u64));
                let disjoint =
                    |o: &Block| o.address + o.bytes as u64 <= b.address || b.address + b.bytes as u64 <= o.address;
                assert!(lent.iter().all(disjoint), "{b:?}");
                lent.push(b);
            } else {
                pool.give(lent.swap_remove((x >> 8) as usize % lent.len()));
            }
            assert_eq!(pool.usage().allocated_bytes, lent.iter().map(|b| b.bytes).sum::<usize>());
        }
        lent.drain(..).for_each(|b| pool.give(b));
        pool.clear(&card);
        assert!(card.out.borrow().is_empty(), "everything went back to the driver");
    }

    #[test]
    fn the_same_block_comes_again() {
        let (pool, card) = (Pool::new(""), Card::new(1 << 30));
        let a = pool.take(5 << 20, &card).unwrap();
        pool.give(a);
        assert_eq!(pool.take(5 << 20, &card).unwrap(), a);
        pool.give(a);
        assert_eq!(pool.take(4_500_000, &card).unwrap(), a, "a little larger is good enough");
        assert_ne!(pool.take(1 << 20, &card).unwrap().bytes, a.bytes);
    }

    #[test]
    fn what_is_free_is_given_up_before_memory_runs_out() {
        let (pool, card) = (Pool::new("; wait"), Card::new(100 << 20));
        let a = pool.take(60 << 20, &card).unwrap();
        let b = pool.take(20 << 20, &card).unwrap();
        pool.give(a);
        let c = pool.take(79 << 20, &card).unwrap();
        assert_eq!((card.settled.get(), pool.usage().reserved_bytes), (1, b.bytes + c.bytes));
        match pool.take(30 << 20, &card) {
            Err(Error::OutOfMemory { bytes, hint }) => assert_eq!((bytes, hint), (30 << 20, "; wait")),
            other => panic!("{other:?}"),
        }
        assert!(matches!(pool.take(usize::MAX, &card), Err(Error::OutOfMemory { .. })));
        pool.give(c);
        assert!(pool.take(30 << 20, &card).is_ok(), "life goes on");
    }
}
