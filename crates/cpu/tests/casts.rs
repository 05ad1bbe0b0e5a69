//! Casts between all dtypes, with the vectors of each instruction set: ties, limits of ranges, halves of wide integers, denormals,
//! infinities and NaN. The bits equal the interpreter's, except for the payload of NaN.

mod harness;

use harness::{Random, run};
use ir::{Builder, DType, GraphBuilder, Literal, Scalar, Type, interp};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

fn backends() -> Vec<Cpu> {
    let targets = match Target::detect() {
        Some(Target::Avx512) => vec![Target::Avx2, Target::Avx512],
        other => other.into_iter().collect(),
    };
    targets.into_iter().map(|t| Cpu::with_target(1, Some(t))).collect()
}

/// Powers of two plus or minus a much smaller number: double rounding gives wrong results for them.
fn integers(r: &mut Random) -> Vec<i64> {
    let mut all = vec![0, 1, -1, i64::MIN, i64::MAX, i64::MIN + 1, u32::MAX as i64, i32::MIN as i64];
    for k in 0..63 {
        for far in 1..=k.min(40) {
            let tie = (1i64 << k) + (1 << (k - far));
            all.extend([tie, tie - 1, tie.wrapping_add(1), -tie, -tie - 1, 1 - tie]);
        }
    }
    all.extend((0..3000).map(|_| ((r.bits() as i64) << 32 | r.bits() as i64) >> r.below(64)));
    all
}

fn floats(r: &mut Random) -> Vec<f64> {
    let mut all = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 5e-324];
    // Ties of all small floats, with a last bit more and less, including denormals of f16, bf16 and f32.
    for k in (-160..=130).step_by(3).chain([62, 63, 64, 31, 32, 15, 16, 127, 128, -126, -127, -133, -134, -24, -25]) {
        for far in [1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 23, 24, 25, 30] {
            let tie = 2f64.powi(k) * (1.0 + 2f64.powi(-far));
            for x in [tie, f64::from_bits(tie.to_bits() + 1), f64::from_bits(tie.to_bits() - 1)] {
                all.extend([x, -x]);
            }
        }
    }
    all.extend((0..3000).map(|_| f64::from_bits((r.bits() as u64) << 32 | r.bits() as u64)));
    all.extend((0..3000).map(|_| r.unit() * 2f64.powi(r.below(70) as i32)));
    all
}

#[test]
fn between_all_dtypes() {
    let (backends, mut r) = (backends(), Random(11));
    let (integers, floats) = (integers(&mut r), floats(&mut r));
    for from in DType::ALL {
        let values: Vec<Scalar> = match from {
            DType::Bool => (0..67).map(|i| Scalar::bool(i % 3 == 0)).collect(),
            d if d.is_float() => floats.iter().map(|&x| Scalar::from_f64(d, x)).collect(),
            d => integers.iter().map(|&x| Scalar::from_i64(d, x)).collect(),
        };
        let x = Literal::from_fn(Type::new(from, &[values.len()]), |i| values[i]);
        for to in DType::ALL {
            let mut b = Builder::new();
            let v = b.input(from, &[values.len()]);
            let y = b.cast(v, to).unwrap();
            let graph = b.finish(&[y]);
            let want = &interp::run(&graph, std::slice::from_ref(&x)).unwrap()[0];
            for cpu in &backends {
                let got = &run(cpu, &graph, std::slice::from_ref(&x), true)[0];
                for (i, value) in values.iter().enumerate() {
                    let (a, b) = (got.get(i), want.get(i));
                    let nan = to.is_float() && a.to_f64().is_nan() && b.to_f64().is_nan();
                    assert!(a.bits() == b.bits() || nan, "{from} to {to}: {value:?} gives {a:?} instead of {b:?}");
                }
            }
        }
    }
}
