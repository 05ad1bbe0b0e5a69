//! The CUDA kernels of sorts and cumulative sums, compiled by the host's C++ compiler (skipped without one), compared with the
//! interpreter.

mod host;

use host::{Run, compiler, host, single};
use ir::ops::{Cumulative, Permute, ReduceKind, Sort, TopK};
use ir::{DType, Literal, Op, Scalar, Type};
use tensorloom_gpu::cuda::transpose::transpose_launch;
use tensorloom_gpu::cuda::{CumulativeSum, LaunchSequence, RadixSort, TemplateArg};
use testing::{Rng, rng::run_seed};

fn values(t: &Type, rng: &mut Rng) -> Literal {
    let d = t.dtype;
    Literal::from_fn(t.clone(), |_| match d {
        // With many equal elements, some NaNs, and signed zeros.
        _ if d.is_float() => match rng.below(40) {
            0 => Scalar::from_f64(d, f64::NAN),
            1 => Scalar::from_f64(d, f64::NEG_INFINITY),
            2 => Scalar::from_f64(d, -0.0),
            3 => Scalar::from_f64(d, 0.0),
            4..20 => Scalar::from_f64(d, rng.uniform(-1e3, 1e3)),
            _ => Scalar::from_i64(d, rng.range(-9, 10)),
        },
        _ => Scalar::from_i64(d, rng.range(-70_000, 70_000)),
    })
}

fn finite(t: &Type, rng: &mut Rng) -> Literal {
    Literal::from_fn(t.clone(), |_| match t.dtype.is_float() {
        true => Scalar::from_f64(t.dtype, rng.uniform(-1.0, 1.0)),
        false => Scalar::from_i64(t.dtype, rng.range(i32::MIN as i64, i32::MAX as i64)),
    })
}

#[test]
fn long_lines_are_sorted_and_added_up_and_bytes_transposed() {
    let Some(cxx) = compiler() else { return };
    let seed = run_seed();
    let mut rng = Rng::new(seed);
    let mut cases: Vec<(Op, Vec<Type>, LaunchSequence)> = Vec::new();
    let sort = |descending: bool| Op::from(Sort { axis: 1, num_keys: 1, descending });
    for (d, lines, n) in [(DType::F32, 2, 5000), (DType::BF16, 1, 4097), (DType::F16, 1, 6143), (DType::I32, 1, 4100)] {
        let types = vec![Type::new(d, &[lines, n]), Type::new(DType::U8, &[lines, n])];
        let op = sort(rng.bernoulli(0.5));
        let routine = RadixSort::of(&op, &types).expect("a long line").routine();
        cases.push((op, types, routine));
    }
    let (op, types) = (Op::from(TopK { k: 7, axis: 1 }), vec![Type::new(DType::F32, &[3, 4500])]);
    let routine = RadixSort::of(&op, &types).expect("long lines").routine();
    cases.push((op, types, routine));
    for (k, d) in [DType::F32, DType::BF16, DType::F64, DType::I32, DType::I64, DType::F32].into_iter().enumerate() {
        // Several tiles, or one that may be partially filled.
        let n = if k % 2 == 0 { 4097 + rng.below(13_000) } else { 1024 + rng.below(3073) };
        let op = Op::from(Cumulative { kind: ReduceKind::Sum, axis: 1, reverse: rng.bernoulli(0.5) });
        let types = vec![Type::new(d, &[1 + rng.below(2), n])];
        let routine = CumulativeSum::of(&op, &types).expect("a long line").routine();
        cases.push((op, types, routine));
    }
    for (rows, cols) in [(16, 16), (128, 64), (16 * (1 + rng.below(20)), 16 * (1 + rng.below(20)))] {
        let op = Op::from(Permute { perm: [1, 0].into_iter().collect() });
        let routine = LaunchSequence {
            calls: vec![transpose_launch(rows, cols, TemplateArg::Operand(0), TemplateArg::Result(0))],
            scratch: 0,
        };
        cases.push((op, vec![Type::new(DType::U8, &[rows, cols])], routine));
    }
    let (mut runs, mut expected) = (Vec::new(), Vec::new());
    for (op, types, routine) in cases {
        let sums = matches!(op, Op::Cumulative(_));
        let operands: Vec<Literal> =
            types.iter().map(|t| if sums { finite(t, &mut rng) } else { values(t, &mut rng) }).collect();
        let want = ir::interp::run(&single(&op, &types), &operands).unwrap();
        let results = want.iter().map(|l| l.ty().clone()).collect();
        runs.push(Run { routine, operands, results });
        expected.push((format!("TENSORLOOM_SEED={seed} {} of {}", op.name(), types[0]), sums, want));
    }
    for (got, (what, sums, want)) in host(&cxx, "routines", &runs).iter().zip(&expected) {
        for (n, (g, w)) in got.iter().zip(want).enumerate() {
            for i in 0..w.ty().numel() {
                let (a, b) = (g.get(i), w.get(i));
                let near = match w.ty().dtype {
                    DType::BF16 => 8e-3,
                    DType::F32 => 1e-6,
                    _ => 1e-12,
                };
                // Sums are compared with the precision of their dtype; moved elements bit for bit.
                let close = (a.to_f64() - b.to_f64()).abs() <= near * b.to_f64().abs().max(1.0);
                let same = if *sums && w.ty().dtype.is_float() { close } else { a.bits() == b.bits() };
                assert!(same, "{what}: result {n}, element {i} is {a:?}, expected {b:?}");
            }
        }
    }
}

#[test]
fn infinities_stay_where_they_are() {
    let Some(cxx) = compiler() else { return };
    let op = Op::from(Cumulative { kind: ReduceKind::Sum, axis: 0, reverse: false });
    let t = Type::new(DType::F32, &[9000]);
    let x = Literal::from_fn(t.clone(), |i| Scalar::from_f64(DType::F32, if i == 5003 { f64::INFINITY } else { 1.0 }));
    let routine = CumulativeSum::of(&op, std::slice::from_ref(&t)).expect("a long line").routine();
    let got = host(&cxx, "infinities", &[Run { routine, operands: vec![x], results: vec![t] }]);
    for i in 0..9000 {
        let want = if i < 5003 { (i + 1) as f64 } else { f64::INFINITY };
        assert_eq!(got[0][0].get(i).to_f64(), want, "element {i}");
    }
}

#[test]
fn what_is_short_strided_or_wide_is_left_to_the_library() {
    let sort = |axis: usize, num_keys: usize| Op::from(Sort { axis, num_keys, descending: false });
    let of = |d: DType, shape: &[usize]| vec![Type::new(d, shape), Type::new(d, shape)];
    assert!(RadixSort::of(&sort(1, 1), &of(DType::F32, &[3, 5000])).is_some());
    assert!(RadixSort::of(&sort(1, 1), &of(DType::F32, &[3, 4096])).is_none());
    assert!(RadixSort::of(&sort(0, 1), &of(DType::F32, &[5000, 3])).is_none());
    assert!(RadixSort::of(&sort(1, 2), &of(DType::F32, &[3, 5000])).is_none());
    assert!(RadixSort::of(&sort(1, 1), &of(DType::F64, &[3, 5000])).is_none());
    let run = |kind: ReduceKind, axis: usize| Op::from(Cumulative { kind, axis, reverse: false });
    assert!(CumulativeSum::of(&run(ReduceKind::Sum, 1), &of(DType::F32, &[3, 9000])).is_some());
    assert!(CumulativeSum::of(&run(ReduceKind::Max, 1), &of(DType::F32, &[3, 9000])).is_none());
    assert!(CumulativeSum::of(&run(ReduceKind::Sum, 0), &of(DType::F32, &[9000, 3])).is_none());
    assert!(CumulativeSum::of(&run(ReduceKind::Sum, 1), &of(DType::F32, &[3, 900])).is_none());
}
