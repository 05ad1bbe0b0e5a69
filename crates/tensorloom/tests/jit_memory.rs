//! A program that calls a compiled function with ever new shapes holds no more and no more memory.

use tensorloom::{Tensor, engine, jit, ones};

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn ever_new_shapes_hold_bounded_memory() {
    let w = ones(&[1]);
    let f = jit(|x: Tensor| ((&x * &w).tanh() + x.sum()).exp().mean()).capacity(32);
    let run = |shapes: std::ops::Range<usize>| {
        for n in shapes {
            let y = f.call(ones(&[n]));
            y.item::<f32>().unwrap();
        }
        (f.signatures().len(), engine().inspect().variants.0)
    };
    // Caches of the engine fill first.
    run(1..700);
    let before = resident();
    let (kept, variants) = run(700..2100);
    let grown = resident().saturating_sub(before);
    assert!(kept <= 32 && variants <= 256, "{kept} signatures, {variants} programs");
    assert!(grown < 24 << 20, "{grown} bytes more after twice as many shapes");
    assert_eq!(f.stats().misses, 2099);
    // What was used last is still there; what was not is made again.
    f.call(ones(&[2099])).item::<f32>().unwrap();
    assert_eq!((f.stats().misses, f.stats().hits), (2099, 1));
    f.call(ones(&[5])).item::<f32>().unwrap();
    assert_eq!(f.stats().misses, 2100);
}
