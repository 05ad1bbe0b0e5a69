//! A global allocator that counts, for tests that say how much is allocated.
//!
//! A test declares it as its own, and has no harness, whose threads allocate when they like:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: oracle::counting::Counting = oracle::counting::Counting;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counted.
pub struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// How many blocks the process has taken so far.
pub fn allocations() -> usize {
    TAKEN.load(Ordering::SeqCst)
}

/// How many blocks were taken or given back so far.
pub fn calls() -> usize {
    allocations() + GIVEN.load(Ordering::SeqCst)
}

// SAFETY: every call is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
