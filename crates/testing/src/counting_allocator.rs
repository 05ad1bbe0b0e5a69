//! A global allocator that counts allocations, for tests of memory use.
//!
//! A test declares it as the global allocator, and disables the test harness, whose threads allocate at any time:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: tensorloom_testing::counting::Counting = tensorloom_testing::counting::Counting;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system allocator with counters.
pub struct CountingAllocator;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// The number of allocations of the process so far.
pub fn allocations() -> usize {
    TAKEN.load(Ordering::SeqCst)
}

/// The number of allocations and deallocations so far.
pub fn calls() -> usize {
    allocations() + GIVEN.load(Ordering::SeqCst)
}

thread_local! {
    /// The bytes that this thread has allocated minus those freed since [`peak_bytes`] started: the current value and the maximum.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The maximum number of bytes that this thread allocates while it runs a function, relative to the start.
pub fn peak_bytes<T>(run: impl FnOnce() -> T) -> (T, usize) {
    LIVE.set((0, 0));
    let result = run();
    (result, LIVE.get().1.unsigned_abs())
}

fn note(bytes: isize) {
    // The thread-local variable does not exist any more when a thread ends.
    let _ = LIVE.try_with(|live| {
        let now = live.get().0 + bytes;
        live.set((now, live.get().1.max(now)));
    });
}

// SAFETY: every call is handed on to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::SeqCst);
        note(layout.size() as isize);
        // SAFETY: `GlobalAlloc::alloc` has the same contract for the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.fetch_add(1, Ordering::SeqCst);
        note(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
