//! A cached call of a compiled function allocates only what its outputs are, counted by the global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorloom::{Tensor, block_until_ready, jit, ones};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of one call, recorded and not yet run.
fn of_a_call(n: usize) -> usize {
    let f = jit(|x: Tensor| (0..n).map(|i| &x * i as f64).collect::<Vec<Tensor>>());
    let x = ones(&[16]);
    for _ in 0..100 {
        block_until_ready(f.call(x.clone())).unwrap();
    }
    let mut least = usize::MAX;
    for _ in 0..50 {
        let x = x.clone();
        let before = COUNT.load(Ordering::Relaxed);
        let y = f.call(x);
        least = least.min(COUNT.load(Ordering::Relaxed) - before);
        block_until_ready(y).unwrap();
    }
    least
}

fn main() {
    for n in [1, 2, 4, 8] {
        let count = of_a_call(n);
        println!("a cached call with {n} outputs allocates {count} times");
        // A handle for each output, the list that the function gives, and the recorded call with its lists.
        assert!(count <= n + 4, "{count} allocations for {n} outputs");
    }
}
