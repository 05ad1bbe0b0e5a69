//! The accuracy of the inline functions on sampled inputs; `examples/ulp_sweep.rs` tests all inputs.

use compiler::loops::LoopKind;
use ir::DType;
use ir::special::unary_f64;
use tensorloom_cpu::codegen::ulp::{FUNCTIONS, FUNCTIONS_F64, kernel, ulp_error};
use tensorloom_cpu::codegen::{Target, compile};

/// A small deterministic random number generator (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn inline_functions_keep_their_bounds() {
    let mut rng = Rng(7);
    let mut inputs = vec![];
    for exponent in 0..512u32 {
        for _ in 0..120 {
            inputs.push(f32::from_bits(exponent << 23 | rng.next() as u32 & 0x7f_ffff));
        }
    }
    // The range of typical values, and every special case.
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
    for target in Target::available() {
        for &(op, bound) in FUNCTIONS {
            let code = compile(&kernel(op, DType::F32), target).unwrap();
            let bufs = [inputs.as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
            // SAFETY: both buffers have the length passed.
            unsafe { code.run(&bufs, &[inputs.len() as i64], 0, 1) };
            let mut worst = (0.0, 0.0, 0.0);
            for (&x, &y) in inputs.iter().zip(&out) {
                let d = ulp_error(y, unary_f64(op, x as f64));
                if d > worst.0 || d.is_nan() {
                    worst = (d, x, y);
                }
            }
            let (d, x, y) = worst;
            assert!(d <= bound, "{target:?} {op:?}({x:e}) = {y:e}: {d} ulp; exact {:e}", unary_f64(op, x as f64));
        }
    }
}

/// Every exponent, and the middle of the range.
fn wide_inputs(rng: &mut Rng) -> Vec<f64> {
    let mut inputs: Vec<f64> = (0..2048u64)
        .flat_map(|e| (0..8).map(move |_| e))
        .map(|e| f64::from_bits(e << 52 | rng.next() >> 12 | rng.next() << 63))
        .collect();
    for bits in [53, 57, 60, 63] {
        inputs.extend((0..10_000).map(|_| rng.next() as i64 as f64 / (1u64 << bits) as f64));
    }
    inputs.extend([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, f64::MAX]);
    inputs.extend([709.78, 709.79, 710.4758, 710.4759, -745.1, -745.2, 26.5, 27.2, 1024.0, -1074.0, -1075.0]);
    inputs
}

/// Returns the number of floats between two, 0 if both are NaN or equal.
fn steps(a: f64, b: f64) -> f64 {
    if a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    // Bit patterns of one sign are in the order of the numbers.
    (a.to_bits() as i64).abs_diff(b.to_bits() as i64) as f64
}

#[test]
fn f64_functions_keep_their_bounds() {
    let inputs = wide_inputs(&mut Rng(11));
    let mut out = vec![0f64; inputs.len()];
    for target in Target::available() {
        for &(op, bound) in FUNCTIONS_F64 {
            let code = compile(&kernel(op, DType::F64), target).unwrap();
            let bufs = [inputs.as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
            // SAFETY: both buffers have the length passed.
            unsafe { code.run(&bufs, &[inputs.len() as i64], 0, 1) };
            let found = inputs.iter().zip(&out).map(|(&x, &y)| (steps(y, unary_f64(op, x)), x, y));
            let (d, x, y) = found.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            // The reference itself may be off by one.
            assert!(d <= bound + 1.0, "{target:?} {op:?}({x:e}) = {y:e}: {d} steps from {:e}", unary_f64(op, x));
        }
    }
}

/// Random and difficult arguments of every f64 function, compared with 200-bit results.
#[test]
fn f64_functions_keep_their_bounds_against_exact_results() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/data/ulp.txt");
    let text = std::fs::read_to_string(path).expect("golden data is in the repository");
    let all = tensorloom_cpu::codegen::ulp::parse_points(text.lines().map(str::to_string)).unwrap();
    assert!(all.len() >= 30, "{} functions", all.len());
    let mut wrong = Vec::new();
    for (name, points) in &all {
        let bound = tensorloom_cpu::codegen::ulp::bound_f64(name).expect("a bound for each function");
        // For the reference, only functions that this crate computes rather than the system library.
        let reference = matches!(name.as_str(), "lgamma" | "digamma").then_some(None);
        for target in Target::available().into_iter().map(Some).chain(reference) {
            let got = points.results(name, target);
            let (worst, at) = points.max_error(name, &got);
            if worst > bound {
                let args = (points.args[0][at], points.args[1][at]);
                wrong.push(format!("{target:?} {name}{args:?} = {:e}: {worst} ulp, bound {bound}", got[at]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Evaluates `op(x[i], y[i])` with compiled code.
fn binary<T: Copy + Default>(op: ir::Binary, d: DType, target: Target, x: &[T], y: &[T]) -> Vec<T> {
    use compiler::loops::{AccessMode, KernelBuilder};
    let mut b = KernelBuilder::new(op.name());
    let (p, q) = (b.buffer(d, AccessMode::Read), b.buffer(d, AccessMode::Read));
    let r = b.buffer(d, AccessMode::Write);
    let n = b.size();
    b.for_loop(LoopKind::Vector, n, |b, i| {
        let (v, w) = (b.load(p, i), b.load(q, i));
        let z = b.binary(op, v, w);
        b.store(r, i, z);
    });
    let code = compile(&b.finish(), target).unwrap();
    let mut out = vec![T::default(); x.len()];
    let bufs = [x.as_ptr() as *mut u8, y.as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
    // SAFETY: all buffers have the length passed.
    unsafe { code.run(&bufs, &[x.len() as i64], 0, 1) };
    out
}

#[test]
fn functions_of_two_floats_keep_their_bounds() {
    use ir::Binary;
    let mut rng = Rng(5);
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -3.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, -1e-300];
    let (mut x, mut y) = (vec![], vec![]);
    for a in special {
        for b in special {
            x.push(a);
            y.push(b);
        }
    }
    for i in 0..60_000u64 {
        let unit = |r: u64| r as i64 as f64 / (1u64 << 63) as f64;
        let (a, b) = (unit(rng.next()), unit(rng.next()));
        let (s, t) =
            [(1.0, 1.0), (10.0, 20.0), (1e4, 3.0), (1e-3, 100.0), (1e8, 1e-3), (1e-200, 1e100)][i as usize % 6];
        x.push(a * s);
        y.push(if i % 4 == 0 { (b * t).round() } else { b * t });
    }
    for target in Target::available() {
        for (op, narrow_bound, wide_bound) in
            [(Binary::Pow, 1.0, 1.0), (Binary::Rem, 0.0, 0.0), (Binary::Atan2, 3.0, 3.0)]
        {
            let exact = |a: f64, b: f64| match op {
                Binary::Pow => a.powf(b),
                Binary::Rem => a % b,
                _ => a.atan2(b),
            };
            let got = binary(op, DType::F64, target, &x, &y);
            for ((&a, &b), &z) in x.iter().zip(&y).zip(&got) {
                let d = steps(z, exact(a, b));
                let slack = if wide_bound == 0.0 { 0.0 } else { 1.0 };
                assert!(d <= wide_bound + slack, "{target:?} {op:?}({a:e}, {b:e}) = {z:e}, not {:e}", exact(a, b));
            }
            let (x, y): (Vec<f32>, Vec<f32>) = x.iter().zip(&y).map(|(&a, &b)| (a as f32, b as f32)).unzip();
            let got = binary(op, DType::F32, target, &x, &y);
            for ((&a, &b), &z) in x.iter().zip(&y).zip(&got) {
                let e = exact(a as f64, b as f64);
                let d = if z == 0.0 && e == 0.0 && z.is_sign_negative() == e.is_sign_negative() {
                    0.0
                } else {
                    ulp_error(z, e)
                };
                assert!(d <= narrow_bound, "{target:?} {op:?}({a:e}, {b:e}) = {z:e}, not {e:e}: {d} ulp");
            }
        }
    }
}

#[test]
fn trigamma_keeps_its_bound() {
    let mut rng = Rng(8);
    let mut x: Vec<f32> = (1..255u32)
        .flat_map(|e| (0..40).map(move |_| e))
        .map(|e| f32::from_bits(e << 23 | rng.next() as u32 & 0x7f_ffff))
        .collect();
    x.extend((0..20_000).map(|_| (rng.next() >> 40) as f32 / (1 << 20) as f32));
    x.extend([0.0, -0.0, -1.5, -3.0, f32::INFINITY, f32::NAN]);
    for s in [2.0f32, 3.5] {
        let of = vec![s; x.len()];
        for target in Target::available() {
            let got = binary(ir::Binary::Zeta, DType::F32, target, &of, &x);
            for (&x, &y) in x.iter().zip(&got) {
                let e = ir::special::zeta(s as f64, x as f64);
                // A result that is too large for f32 is infinite.
                let d = if (e as f32).is_infinite() && y.is_infinite() { 0.0 } else { ulp_error(y, e) };
                assert!(d <= 2.0, "{target:?} zeta({s}, {x:e}) = {y:e}, not {e:e}: {d} ulp");
            }
        }
    }
}

#[test]
fn integers_divide_and_rise_as_scalars_do() {
    use ir::{Binary, Scalar};
    let mut rng = Rng(3);
    let edge =
        [0, 1, -1, 2, -2, 7, 100, i32::MIN as i64, i32::MAX as i64, i64::MIN, i64::MAX, 1 << 51, -(1 << 51), 1 << 40];
    let (mut x, mut y) = (vec![], vec![]);
    for a in edge {
        for b in edge {
            x.push(a);
            y.push(b);
        }
    }
    for i in 0..4000 {
        x.push(rng.next() as i64 >> (i % 60));
        y.push(rng.next() as i64 >> (i * 7 % 62));
    }
    for target in Target::available() {
        for op in [Binary::Div, Binary::Rem, Binary::Pow] {
            macro_rules! check {
                ($t:ty, $d:expr) => {{
                    let (x, y): (Vec<$t>, Vec<$t>) = x.iter().zip(&y).map(|(&a, &b)| (a as $t, b as $t)).unzip();
                    let got = binary(op, $d, target, &x, &y);
                    for ((&a, &b), &z) in x.iter().zip(&y).zip(&got) {
                        let want = op.eval(Scalar::from_bits($d, a as u64), Scalar::from_bits($d, b as u64));
                        assert_eq!(want.bits(), Scalar::from_bits($d, z as u64).bits(), "{target:?} {op:?} {a} {b}");
                    }
                }};
            }
            check!(i64, DType::I64);
            check!(u64, DType::U64);
            check!(i32, DType::I32);
            check!(u32, DType::U32);
            check!(i8, DType::I8);
            check!(u8, DType::U8);
            check!(i16, DType::I16);
        }
    }
}

#[test]
fn bits_are_counted() {
    use compiler::loops::{AccessMode, KernelBuilder};
    let mut rng = Rng(9);
    let x: Vec<u64> = (0..999).map(|i| rng.next() >> (i % 64)).chain([0, u64::MAX]).collect();
    for target in Target::available() {
        macro_rules! check {
            ($t:ty, $d:expr) => {{
                let x: Vec<$t> = x.iter().map(|&v| v as $t).collect();
                let mut out: Vec<$t> = vec![0; x.len()];
                let mut b = KernelBuilder::new("count");
                let (p, r) = (b.buffer($d, AccessMode::Read), b.buffer($d, AccessMode::Write));
                let n = b.size();
                b.for_loop(LoopKind::Vector, n, |b, i| {
                    let v = b.load(p, i);
                    let z = b.unary(ir::Unary::PopulationCount, v);
                    b.store(r, i, z);
                });
                let code = compile(&b.finish(), target).unwrap();
                let bufs = [x.as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
                // SAFETY: both buffers have the length passed.
                unsafe { code.run(&bufs, &[x.len() as i64], 0, 1) };
                for (a, z) in x.iter().zip(&out) {
                    assert_eq!(a.count_ones() as $t, *z, "{target:?} {a}");
                }
            }};
        }
        check!(i64, DType::I64);
        check!(u32, DType::U32);
        check!(i16, DType::I16);
        check!(i8, DType::I8);
        check!(u8, DType::U8);
    }
}
