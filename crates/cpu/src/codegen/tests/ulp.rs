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
            assert!(d <= bound, "{target:?} {op:?}({x:e}) = {y:e}: {d} ulp; exact {:e}", unary_f64(op, x as f64));
        }
    }
}

#[test]
fn f64_functions_stay_within_three_ulp() {
    use compiler::loops::{Builder, Mode};
    use ir::Unary;
    let mut rng = Rng(11);
    let mut inputs: Vec<f64> = (0..2048u64)
        .flat_map(|e| (0..8).map(move |_| e))
        .map(|e| f64::from_bits(e << 52 | rng.next() >> 12 | rng.next() << 63))
        .collect();
    inputs.extend((0..20_000).map(|_| rng.next() as i64 as f64 / (1u64 << 57) as f64));
    inputs.extend((0..20_000).map(|_| rng.next() as i64 as f64 / (1u64 << 53) as f64));
    inputs.extend([0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, 709.78, 709.79, -745.1, -745.2]);
    let mut out = vec![0f64; inputs.len()];
    for target in targets() {
        for op in [Unary::Exp, Unary::Expm1, Unary::Log, Unary::Tanh, Unary::Logistic] {
            let mut b = Builder::new(op.name());
            let x = b.buffer(DType::F64, Mode::Read);
            let y = b.buffer(DType::F64, Mode::Write);
            let n = b.size();
            b.each(LoopKind::Vector, n, |b, i| {
                let v = b.load(x, i);
                let w = b.unary(op, v);
                b.store(y, i, w);
            });
            let code = compile(&b.finish(), target).unwrap();
            let bufs = [inputs.as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
            // SAFETY: both buffers have the length passed.
            unsafe { code.run(&bufs, &[inputs.len() as i64], 0, 1) };
            for (&x, &y) in inputs.iter().zip(&out) {
                let exact = unary_f64(op, x);
                // The order of bit patterns of one sign is that of the numbers.
                let near = (y.to_bits() as i64).abs_diff(exact.to_bits() as i64) <= 4;
                assert!(near || (y.is_nan() && exact.is_nan()), "{target:?} {op:?}({x:e}) = {y:e}, not {exact:e}");
            }
        }
    }
}
