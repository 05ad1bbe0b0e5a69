//! A global allocator that counts, for tests that say how much is allocated.
//!
//! A test declares it as its own, and has no harness, whose threads allocate when they like:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: tensorloom_testing::counting::Counting = tensorloom_testing::counting::Counting;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
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

thread_local! {
    /// Bytes that this thread took and gave back since [`peak`] began: now, and the most so far.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The most bytes that this thread had taken at a time while it ran something, beyond what it had before.
pub fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    LIVE.set((0, 0));
    let result = run();
    (result, LIVE.get().1.unsigned_abs())
}

fn note(bytes: isize) {
    // A thread that ends has no such place any more.
    let _ = LIVE.try_with(|live| {
        let now = live.get().0 + bytes;
        live.set((now, live.get().1.max(now)));
    });
}

// SAFETY: every call is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::SeqCst);
        note(layout.size() as isize);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.fetch_add(1, Ordering::SeqCst);
        note(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
