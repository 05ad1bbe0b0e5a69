//! A cached call of a compiled function allocates only what its outputs are, counted by the global allocator.

use tensorloom::{Tensor, block_until_ready, jit, ones};
use testing::counting_allocator::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Allocations of one call, run.
fn of_a_call(n: usize) -> usize {
    let f = jit(|x: Tensor| (0..n).map(|i| &x * i as f64).collect::<Vec<Tensor>>());
    let x = ones(&[16]);
    for _ in 0..100 {
        block_until_ready(f.call(x.clone())).unwrap();
    }
    let mut least = usize::MAX;
    for _ in 0..50 {
        let x = x.clone();
        let before = allocations();
        let y = f.call(x);
        least = least.min(allocations() - before);
        block_until_ready(y).unwrap();
    }
    least
}

fn main() {
    for n in [1, 2, 4, 8] {
        let count = of_a_call(n);
        println!("a cached call with {n} outputs allocates {count} times");
        // Each output has a handle, a value and a place in memory; there are the list that the function gives, and the
        // lists of operands and results of the run.
        assert!(count <= 4 * n + 8, "{count} allocations for {n} outputs");
    }
}
