//! Sums of many numbers: their precision, and that they do not depend on the number of threads.

mod harness;

use harness::{Random, bindings, load, read, same};
use ir::ops::{Cumulative, Dot, ReduceKind};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary};
use tensorloom_cpu::Cpu;

/// Returns the results, after checking that 1, 2, 3, 5 and 16 threads give the same bits.
fn results(what: &str, g: &Graph, inputs: &[Literal]) -> Vec<Literal> {
    let mut first: Option<Vec<Literal>> = None;
    for threads in [1, 2, 3, 5, 16] {
        let cpu = Cpu::new(threads);
        let exe = load(&cpu, g, true);
        let mut b = bindings(&cpu, &*exe, inputs);
        exe.run(&mut b).unwrap();
        let got = read(&*exe, &b);
        same(&format!("{what}, {threads} threads"), &got, first.get_or_insert_with(|| got.clone()));
    }
    first.unwrap()
}

fn close(what: &str, got: f64, want: f64, scale: f64, bound: f64) {
    let error = (got - want).abs() / scale.abs().max(f64::MIN_POSITIVE);
    assert!(error <= bound, "{what}: {got} instead of {want}, error {error:e} (at most {bound:e})");
}

/// Sums of one repeated number, written as a broadcast so that they take no memory.
#[test]
fn a_number_summed_many_times_is_that_many_times_the_number() {
    let cases: [(&[usize], &[usize]); 8] = [
        (&[1 << 28], &[0]),
        (&[1 << 20], &[0]),
        (&[(1 << 20) + 17], &[0]),
        (&[3, 1 << 22], &[1]),
        (&[1 << 20, 40], &[0]),
        (&[40, 99_991, 5], &[1]),
        (&[70, 50_000], &[1]),
        (&[64, 1000, 6, 1000], &[1, 3]),
    ];
    for number in [0.1, 1.1, 1.0 / 3.0] {
        for (shape, axes) in cases {
            let mut b = Builder::new();
            let x = b.input(DType::F32, &[]);
            let x = b.broadcast(x, shape, &[]).unwrap();
            let sum = b.sum(x, axes).unwrap();
            let count: usize = axes.iter().map(|&a| shape[a]).product();
            let mean = b.scale(sum, 1.0 / count as f64).unwrap();
            let squares = b.mul(x, x).unwrap();
            let squares = b.sum(squares, axes).unwrap();
            let norm = b.unary(Unary::Sqrt, squares).unwrap();
            let g = b.finish(&[sum, mean, norm]);
            let number = number as f32;
            let what = format!("{number} of {shape:?} over {axes:?}");
            // Only one thread count, because these sizes are slow.
            let cpu = Cpu::new(2);
            let exe = load(&cpu, &g, true);
            let mut bound = bindings(&cpu, &*exe, &[Literal::new(&[], &[number])]);
            exe.run(&mut bound).unwrap();
            let got = read(&*exe, &bound);
            let want = [number as f64 * count as f64, number as f64, number as f64 * (count as f64).sqrt()];
            for (got, want) in got.iter().zip(want) {
                got.scalars().for_each(|s| close(&what, s.to_f64(), want, want, 1e-6));
            }
        }
    }
}

/// Sums of random numbers compared with f64, relative to the sum of their magnitudes, over every kind of axes.
#[test]
fn sums_over_any_axes_have_a_bounded_error() {
    let cases: [(&[usize], &[usize]); 9] = [
        (&[700_001], &[0]),
        (&[1 << 19], &[0]),
        (&[2, 300_000], &[1]),
        (&[300_000, 3], &[0]),
        (&[9_000, 70], &[0]),
        (&[5, 60_000, 3], &[1]),
        (&[30, 20, 40, 25], &[0, 2]),
        (&[30, 20, 40, 25], &[0, 1, 2, 3]),
        (&[100, 5_000], &[1]),
    ];
    let mut r = Random(3);
    for (shape, axes) in cases {
        for (dtype, bound) in [(DType::F32, 1e-6), (DType::F64, 1e-14), (DType::BF16, 4e-3), (DType::F16, 1e-3)] {
            let ty = Type::new(dtype, shape);
            let x = Literal::from_fn(ty.clone(), |_| Scalar::from_f64(dtype, (r.unit() + 0.5) / 64.0));
            let mut b = Builder::new();
            let v = b.input(dtype, shape);
            let sum = b.sum(v, axes).unwrap();
            let (max, min) = (b.reduce(ReduceKind::Max, v, axes).unwrap(), b.reduce(ReduceKind::Min, v, axes).unwrap());
            let g = b.finish(&[sum, max, min]);
            let what = format!("{ty} over {axes:?}");
            let got = results(&what, &g, std::slice::from_ref(&x));
            let kept: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
            let mut want = vec![(0f64, 0f64, f64::NEG_INFINITY, f64::INFINITY); got[0].ty().numel()];
            let strides = ty.strides();
            for i in 0..ty.numel() {
                let to = kept.iter().fold(0, |at, &a| at * shape[a] + i / strides[a] % shape[a]);
                let (e, w) = (x.get(i).to_f64(), &mut want[to]);
                *w = (w.0 + e, w.1 + e.abs(), w.2.max(e), w.3.min(e));
            }
            for (i, (sum, scale, max, min)) in want.into_iter().enumerate() {
                close(&what, got[0].get(i).to_f64(), sum, scale, bound);
                assert_eq!((got[1].get(i).to_f64(), got[2].get(i).to_f64()), (max, min), "{what}");
            }
        }
    }
}

/// Products of factors near 1 compared with f64, over every kind of axes, with their gradients.
#[test]
fn products_over_any_axes_have_a_bounded_error() {
    let cases: [(&[usize], &[usize]); 8] = [
        (&[300_001], &[0]),
        (&[3, 100_001], &[1]),
        (&[300_001, 3], &[0]),
        (&[9_000, 70], &[0]),
        (&[70, 9_000], &[1]),
        (&[5, 6_000, 3], &[1]),
        (&[30, 20, 40, 25], &[0, 2]),
        (&[10, 20, 40, 25], &[0, 1, 2, 3]),
    ];
    let mut r = Random(4);
    for (shape, axes) in cases {
        let count: usize = axes.iter().map(|&a| shape[a]).product();
        // Every factor adds one rounding error of random sign.
        let rounding = (count as f64).sqrt();
        for (dtype, bound) in
            [(DType::F32, 2.4e-7 * rounding), (DType::F64, 4.5e-16 * rounding), (DType::F16, 1e-3 + 2.4e-7 * rounding)]
        {
            // The product of many f16 factors overflows or underflows.
            if dtype == DType::F16 && count > 5_000 {
                continue;
            }
            let ty = Type::new(dtype, shape);
            let width = if dtype == DType::F16 { 0.25 } else { 1.0 };
            let x = Literal::from_fn(ty.clone(), |_| {
                Scalar::from_f64(dtype, 1.0 + width * r.unit() / (count as f64).sqrt())
            });
            let mut b = Builder::new();
            let v = b.input(dtype, shape);
            let product = b.reduce(ReduceKind::Prod, v, axes).unwrap();
            let g = b.finish(&[product]);
            let what = format!("product of {ty} over {axes:?}");
            let got = results(&what, &g, std::slice::from_ref(&x));
            let kept: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
            let mut want = vec![1f64; got[0].ty().numel()];
            let strides = ty.strides();
            for i in 0..ty.numel() {
                let to = kept.iter().fold(0, |at, &a| at * shape[a] + i / strides[a] % shape[a]);
                want[to] *= x.get(i).to_f64();
            }
            want.iter().enumerate().for_each(|(i, &w)| close(&what, got[0].get(i).to_f64(), w, w, bound));
        }
    }
}

#[test]
fn long_products_keep_zeros_signs_infinities_and_nans() {
    for shape in [[1usize, 500_000], [3, 9_000], [9_000, 3]] {
        let axis = (shape[1] > shape[0]) as usize;
        for (a, b, want) in [
            (f32::INFINITY, -1.0, f32::NEG_INFINITY),
            (f32::INFINITY, 0.0, f32::NAN),
            (f32::NAN, 0.0, f32::NAN),
            (f32::MAX, f32::MAX, f32::INFINITY),
            (-0.0, 3.0, -0.0),
            (-0.0, -3.0, 0.0),
            (-2.0, 4.0, -8.0),
        ] {
            let n = shape[0] * shape[1];
            let mut data = vec![1f32; n];
            let line = |i: usize| if axis == 1 { i / shape[1] } else { i % shape[1] };
            let other = (0..n).find(|&i| i != n / 3 && line(i) == line(n / 3)).unwrap();
            (data[n / 3], data[other]) = (a, b);
            let mut g = Builder::new();
            let x = g.input(DType::F32, &shape);
            let y = g.reduce(ReduceKind::Prod, x, &[axis]).unwrap();
            let got = results("special", &g.finish(&[y]), &[Literal::new(&shape, &data)]);
            let got = got[0].get(line(n / 3)).to_f64() as f32;
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{a} {b}: {got}");
        }
    }
}

#[test]
fn long_sums_keep_infinities_and_nans() {
    for shape in [[1usize, 500_000], [3, 9_000], [9_000, 3]] {
        let axis = (shape[1] > shape[0]) as usize;
        for (a, b, want) in [
            (f32::INFINITY, 1.0, f32::INFINITY),
            (f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY),
            (f32::INFINITY, f32::NEG_INFINITY, f32::NAN),
            (f32::NAN, 1.0, f32::NAN),
            (f32::MAX, f32::MAX, f32::INFINITY),
            (-0.0, -0.0, 0.0),
        ] {
            let n = shape[0] * shape[1];
            let fill = if a == 0.0 { a } else { 0.25 };
            let mut data = vec![fill; n];
            (data[n / 3], data[n - 1]) = (a, b);
            let line = |i: usize| if axis == 1 { i / shape[1] } else { i % shape[1] };
            // Both in one line.
            let other = (0..n).find(|&i| i != n / 3 && line(i) == line(n / 3)).unwrap();
            data[other] = b;
            let mut g = Builder::new();
            let x = g.input(DType::F32, &shape);
            let y = g.sum(x, &[axis]).unwrap();
            let got = results("special", &g.finish(&[y]), &[Literal::new(&shape, &data)]);
            let got = got[0].get(line(n / 3)).to_f64() as f32;
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{a} {b}: {got}");
        }
    }
}

#[test]
fn first_extrema_of_long_lines_are_found_by_all_threads() {
    let mut r = Random(9);
    for (shape, axis) in [([1usize, 200_000, 1], 1), ([2, 100_003, 1], 1), ([1, 70_000, 5], 1), ([40, 700, 1], 1)] {
        for special in [None, Some(f32::NAN), Some(f32::INFINITY), Some(f32::NEG_INFINITY)] {
            let n: usize = shape.iter().product();
            // Few distinct values, so that the first of equal ones matters.
            let mut data: Vec<f32> = (0..n).map(|_| r.below(50) as f32 * 0.5 - 12.0).collect();
            if let Some(s) = special {
                data[n * 2 / 3] = s;
                data[n * 2 / 3 + 11] = s;
            }
            let x = Literal::new(&shape, &data);
            let mut b = Builder::new();
            let v = b.input(DType::F32, &shape);
            let ops = [true, false].map(|max| ir::ops::ArgReduce { max, axis, index: DType::I32 });
            let outs: Vec<_> = ops.iter().map(|op| b.one(op.clone().into(), &[v]).unwrap()).collect();
            let g = b.finish(&outs);
            let want = ir::interp::run(&g, std::slice::from_ref(&x)).unwrap();
            same(&format!("{shape:?} {special:?}"), &results("extrema", &g, &[x]), &want);
        }
    }
}

/// Matmuls over a long inner axis, of vectors and matrices, with either operand transposed.
#[test]
fn products_over_a_long_axis_have_a_bounded_error() {
    for (m, k, n) in [(1usize, 1usize << 22, 1usize), (1, 200_000, 3), (3, 200_000, 1), (4, 100_000, 5), (1, 5_000, 40)]
    {
        for turned in [false, true] {
            let mut b = Builder::new();
            let (x, y) = (b.input(DType::F32, &[m, k]), b.input(DType::F32, &if turned { [n, k] } else { [k, n] }));
            let dot = Dot {
                lhs_batch: [].into_iter().collect(),
                rhs_batch: [].into_iter().collect(),
                lhs_contract: [1].into_iter().collect(),
                rhs_contract: [turned as usize].into_iter().collect(),
                acc: DType::F32,
                out: DType::F32,
            };
            let z = b.one(dot.into(), &[x, y]).unwrap();
            let g = b.finish(&[z]);
            let ty = g.input_types();
            let fill = |t: &Type, c: f64| Literal::from_fn(t.clone(), |_| Scalar::from_f64(DType::F32, c));
            let got = results("product", &g, &[fill(&ty[0], 0.1), fill(&ty[1], 0.3)]);
            let want = 0.1f32 as f64 * 0.3f32 as f64 * k as f64;
            let bound = if m.min(n) == 1 { 3e-6 } else { 3e-5 };
            got[0].scalars().for_each(|s| close(&format!("{m} {k} {n} {turned}"), s.to_f64(), want, want, bound));
        }
    }
}

#[test]
fn running_sums_are_exact_to_the_last_place() {
    let n = 1 << 20;
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n]);
    let y = b.one(Cumulative { kind: ReduceKind::Sum, axis: 0, reverse: false }.into(), &[x]).unwrap();
    let g = b.finish(&[y]);
    let got = results("running", &g, &[Literal::new(&[n], &vec![0.1f32; n])]);
    for i in [0, 999, n / 2, n - 1] {
        let want = 0.1f32 as f64 * (i + 1) as f64;
        close("running", got[0].get(i).to_f64(), want, want, 6e-8);
    }
}
