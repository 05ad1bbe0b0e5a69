//! Accuracy of the inline functions on sampled inputs; `examples/ulp_sweep.rs` tries all of them.

use super::*;
use crate::codegen::ulp::{FUNCTIONS, distance, kernel};
use ir::special::unary_f64;

#[test]
fn inline_functions_keep_their_bounds() {
    let mut rng = Rng(7);
    let mut inputs = vec![];
    for exponent in 0..512u32 {
        for _ in 0..120 {
            inputs.push(f32::from_bits(exponent << 23 | rng.next() as u32 & 0x7f_ffff));
        }
    }
    // The interesting middle, and every special case.
    inputs.extend((0..60_000).map(|_| (rng.next() as i32) as f32 / (1 << 24) as f32));
    inputs.extend([
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-45,
        88.72,
        88.73,
        -103.9,
        -104.1,
    ]);
    let mut out = vec![0f32; inputs.len()];
    for target in targets() {
        for &(op, bound) in FUNCTIONS {
            let code = compile(&kernel(op), target).unwrap();
            let bufs = [inputs.as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
            // SAFETY: both buffers have the length passed.
            unsafe { code.run(&bufs, &[inputs.len() as i64], 0, 1) };
            let mut worst = (0.0, 0.0, 0.0);
            for (&x, &y) in inputs.iter().zip(&out) {
                let d = distance(y, unary_f64(op, x as f64));
                if d > worst.0 || d.is_nan() {
                    worst = (d, x, y);
                }
            }
            let (d, x, y) = worst;
            if std::env::var("LOOM_DUMP").is_ok() {
                eprintln!("{target:?} {op:?}: {d}");
                continue;
            }
            assert!(
                d <= bound,
                "{target:?} {op:?}({x:e}) = {y:e}: {d} ulp; exact {:e}",
                unary_f64(op, x as f64)
            );
        }
    }
}
