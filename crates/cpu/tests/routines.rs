//! Every routine compared with the interpreter, with the same bits for any number of threads.

mod harness;

use harness::{Random, close, run, same};
use ir::ops::*;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Shape, Type};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

const DTYPES: [DType; 9] =
    [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8, DType::U32, DType::Bool];

fn graph(op: Op, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op, &args).unwrap();
    b.finish(&outs)
}

/// Compares with the interpreter, bit by bit unless there is a tolerance.
fn check(op: impl Into<Op>, inputs: &[Literal], tolerance: f64) {
    let op = op.into();
    let types: Vec<Type> = inputs.iter().map(|x| x.ty().clone()).collect();
    let what = format!("{} of {types:?}", op.name());
    let graph = graph(op, &types);
    let one = run(&Cpu::new(1), &graph, inputs, true);
    let want = ir::interp::run(&graph, inputs).unwrap();
    if tolerance == 0.0 {
        same(&what, &one, &want)
    } else {
        close(&what, &one, &want, tolerance)
    }
    for threads in [2, 3] {
        same(&what, &run(&Cpu::new(threads), &graph, inputs, true), &one);
    }
}

/// Returns values with ties, and with NaN and zeros of both signs among floats.
fn tied(random: &mut Random, ty: &Type) -> Literal {
    Literal::from_fn(ty.clone(), |_| {
        let x = random.below(9) as i64 - 4;
        match ty.dtype {
            DType::Bool => Scalar::bool(x > 0),
            d if !d.is_float() => Scalar::from_i64(d, if d.to_string().starts_with('u') { x.abs() } else { x }),
            d => Scalar::from_f64(
                d,
                [x as f64, f64::NAN, -0.0, 0.0]
                    [if x == 4 { 1 } else { random.below(3).min(x.unsigned_abs() as usize * 4) }.min(3)],
            ),
        }
    })
}

fn indices(random: &mut Random, ty: &Type, bound: usize) -> Literal {
    let signed = ty.dtype.to_string().starts_with('i');
    Literal::from_fn(ty.clone(), |_| {
        Scalar::from_i64(ty.dtype, random.below(bound + 3) as i64 - if signed { 1 } else { 0 })
    })
}

/// Cumulative products that overflow or underflow f64 equal the results of multiplying one after the other.
#[test]
fn running_products_keep_their_order_where_it_shows() {
    let mut random = Random(4);
    let around = |r: &mut Random| 1.0 + 0.5 * r.unit();
    let lines: Vec<Vec<f64>> = vec![
        (0..300).map(|_| around(&mut random)).collect(),
        (0..300).map(|i| if i / 20 % 2 == 0 { 1e-37 } else { 1e37 }).collect(),
        (0..300).map(|i| if i % 90 < 40 { 3e38 } else { 1e-38 }).collect(),
        (0..300).map(|i| if i % 16 < 9 { 1e-44 } else { 1e38 }).collect(),
        (0..300).map(|i| if i == 200 { f64::INFINITY } else { around(&mut random) }).collect(),
        (0..300).map(|i| [1.5, -0.75, 0.0, f64::NAN][(i / 97).min(3)]).collect(),
        // To the limit of f64, beyond it once, and back: infinities and zeros stay.
        (0..300).map(|i| [3e18, 1e37, 1e-14][(i / 16).min(2).max((i > 16) as usize * 2)]).collect(),
        (0..300).map(|i| [3e-19, 1e-37, 1e14][(i / 16).min(2).max((i > 16) as usize * 2)]).collect(),
    ];
    for n in (1..40).chain([64, 299, 300]) {
        let x = Literal::from_fn(Type::new(DType::F32, &[lines.len(), n]), |i| {
            Scalar::from_f64(DType::F32, lines[i / n][i % n])
        });
        for reverse in [false, true] {
            for kind in [ReduceKind::Prod, ReduceKind::Sum] {
                check(Cumulative { kind, axis: 1, reverse }, &[x.clone()], 1e-6);
            }
        }
    }
}

/// Cumulative sums and products of 16-bit floats are rounded once,
/// for all layouts, also for numbers that underflow or overflow in 16 bits.
#[test]
fn running_folds_of_sixteen_bits() {
    let mut random = Random(12);
    for dtype in [DType::BF16, DType::F16] {
        for (lines, n) in [(1, 40), (2, 7), (3, 8), (7, 9), (8, 33), (9, 16), (19, 100), (3, 9001)] {
            let x = Literal::from_fn(Type::new(dtype, &[lines, n]), |_| {
                let exponent = [0, 0, 1, -1, 9, -9, 14, -24, -130, 120][random.below(10)];
                Scalar::from_f64(dtype, random.unit() * 2f64.powi(exponent))
            });
            for (kind, reverse) in [ReduceKind::Sum, ReduceKind::Prod].into_iter().flat_map(|k| [(k, false), (k, true)])
            {
                check(Cumulative { kind, axis: 1, reverse }, &[x.clone()], 0.0);
            }
        }
    }
}

/// Lines in SIMD lanes: as many elements as a block, fewer and more, with different numbers of lines. The results have the bits
/// of a sequential scan.
#[test]
fn running_folds_of_lines_side_by_side() {
    let mut random = Random(5);
    for dtype in DTYPES {
        let kinds: &[ReduceKind] = match dtype {
            DType::Bool => &[ReduceKind::Any, ReduceKind::All],
            _ => &[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min],
        };
        let short = (1..=18).flat_map(|n| [1, 3, 6, 8, 9, 13, 16, 29].map(|lines| (lines, n)));
        for (lines, n) in short.chain([(9000, 2), (30_001, 3), (9002, 7), (7000, 9), (21, 3001), (2, 40_000)]) {
            let ty = Type::new(dtype, &[lines, n]);
            let (x, ties) = (random.literal(&ty), tied(&mut random, &ty));
            for (i, &kind) in kinds.iter().enumerate() {
                let cut = n > 8000 && dtype.is_float() && kind == ReduceKind::Sum;
                let reverse = random.below(2) == i % 2;
                check(Cumulative { kind, axis: 1, reverse }, &[x.clone()], if cut { 1e-6 } else { 0.0 });
                check(Cumulative { kind, axis: 1, reverse: !reverse }, &[ties.clone()], 0.0);
                // Without AVX-512, 16-bit floats use this algorithm too.
                let op = graph(Cumulative { kind, axis: 1, reverse }.into(), &[ty.clone()]);
                let inputs = std::slice::from_ref(&ties);
                let want = ir::interp::run(&op, inputs).unwrap();
                let what = format!("{kind:?} of {ty:?}");
                Target::available().into_iter().for_each(|target| {
                    same(&what, &run(&Cpu::with_target(2, Some(target)), &op, inputs, true), &want);
                });
            }
        }
    }
}

#[test]
fn running_folds_and_extrema() {
    let mut random = Random(3);
    for dtype in DTYPES {
        for shape in [&[7][..], &[3, 40, 5], &[2, 3], &[0, 4], &[4, 1, 37], &[20_000], &[3, 300, 70]] {
            let x = tied(&mut random, &Type::new(dtype, shape));
            for axis in 0..shape.len() {
                let kinds: &[ReduceKind] = match dtype {
                    DType::Bool => &[ReduceKind::Any, ReduceKind::All],
                    _ => &[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min],
                };
                for (i, &kind) in kinds.iter().enumerate() {
                    check(Cumulative { kind, axis, reverse: i % 2 == 1 }, &[x.clone()], 0.0);
                }
                for (max, index) in [(true, DType::I32), (false, DType::I64)] {
                    if dtype != DType::Bool && shape[axis] > 0 {
                        check(ArgReduce { max, axis, index }, &[x.clone()], 0.0);
                    }
                }
            }
        }
    }
}

#[test]
fn sorting() {
    let mut random = Random(4);
    for dtype in DTYPES {
        for shape in [&[9][..], &[3, 25, 4], &[0, 3], &[2, 0], &[1], &[4, 3000]] {
            let ty = Type::new(dtype, shape);
            let (x, y) = (tied(&mut random, &ty), tied(&mut random, &Type::new(DType::I32, shape)));
            for axis in 0..shape.len() {
                for descending in [false, true] {
                    let sort = |num_keys| Sort { axis, num_keys, descending };
                    check(sort(1), &[x.clone()], 0.0);
                    check(sort(1), &[x.clone(), y.clone()], 0.0);
                    check(sort(2), &[y.clone(), x.clone(), y.clone()], 0.0);
                }
                for k in [0, 1, shape[axis] / 2, shape[axis]] {
                    check(TopK { k: k.min(shape[axis]), axis }, &[x.clone()], 0.0);
                }
            }
        }
    }
}

/// The largest few elements of long lines, also with many equal ones, and with only the smallest number.
#[test]
fn the_largest_of_long_lines() {
    let mut random = Random(71);
    for dtype in DTYPES {
        for (shape, axis) in [(&[3, 400][..], 1), (&[400, 3], 0), (&[2, 97], 1)] {
            for k in [1, 3, 16] {
                let x = tied(&mut random, &Type::new(dtype, shape));
                check(TopK { k, axis }, &[x], 0.0);
            }
        }
        let least = Literal::from_fn(Type::new(dtype, &[2, 200]), |_| ReduceKind::Max.identity(dtype));
        check(TopK { k: 4, axis: 1 }, &[least], 0.0);
    }
}

/// Singular vectors are complete bases where singular values are zero: a zero matrix, one vector, few vectors, equal values, and
/// a bidiagonal matrix that splits.
#[test]
fn singular_vectors_are_whole_bases() {
    let mut random = Random(31);
    for (m, n) in [(12usize, 12usize), (30, 20), (20, 30), (33, 33)] {
        for rank in [0usize, 1, 3, 98, 99, 100] {
            let left: Vec<f64> = (0..m * 3).map(|_| random.unit()).collect();
            let right: Vec<f64> = (0..n * 3).map(|_| random.unit()).collect();
            let data: Vec<f64> = (0..m * n)
                .map(|i| match (rank, i / n, i % n) {
                    (98, _, _) => random.unit(),
                    (99, r, c) => (r == c) as u8 as f64,
                    (100, r, c) => ((r == c || r + 1 == c) && r != 5) as u8 as f64,
                    (_, r, c) => (0..rank).map(|k| left[r * 3 + k] * right[c * 3 + k]).sum(),
                })
                .collect();
            let a = Literal::from_fn(Type::new(DType::F64, &[m, n]), |i| Scalar::from_f64(DType::F64, data[i]));
            let graph = graph(Svd { vectors: true }.into(), &[Type::new(DType::F64, &[m, n])]);
            let got = run(&Cpu::new(2), &graph, &[a], true);
            let value = |l: &Literal| -> Vec<f64> { l.scalars().map(Scalar::to_f64).collect() };
            let (u, s, v) = (value(&got[0]), value(&got[1]), value(&got[2]));
            let k = m.min(n);
            orthogonal(&u, m, k);
            let turned: Vec<f64> = (0..n * k).map(|i| v[i % k * n + i / k]).collect();
            orthogonal(&turned, n, k);
            assert!(s.windows(2).all(|w| w[0] >= w[1]) && s.iter().all(|x| *x >= 0.0), "{s:?}");
            for i in 0..m {
                for j in 0..n {
                    let back: f64 = (0..k).map(|l| u[i * k + l] * s[l] * v[l * n + j]).sum();
                    assert!((back - data[i * n + j]).abs() < 1e-12, "{m}x{n} of rank {rank}: {back}");
                }
            }
        }
    }
}

fn orthogonal(q: &[f64], m: usize, k: usize) {
    for a in 0..k {
        for b in 0..k {
            let dot: f64 = (0..m).map(|i| q[i * k + a] * q[i * k + b]).sum();
            assert!((dot - (a == b) as u8 as f64).abs() < 1e-12, "columns {a} and {b}: {dot}");
        }
    }
}

/// Even and odd lengths, along any axes, of every kind.
#[test]
fn fourier_transforms() {
    let mut random = Random(72);
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F64, 1e-11)] {
        for (shape, axes) in [
            (&[1][..], &[0][..]),
            (&[2], &[0]),
            (&[37], &[0]),
            (&[64], &[0]),
            (&[5, 12], &[1]),
            (&[12, 35], &[0]),
            (&[3, 10, 19], &[1]),
            (&[4, 6, 8], &[0, 2]),
            (&[4, 6, 9], &[2, 1]),
            (&[3, 4, 17, 2], &[3, 2, 1]),
        ] {
            let last = axes[axes.len() - 1];
            let mut half = shape.to_vec();
            half[last] = shape[last] / 2 + 1;
            let mut x = |s: &[usize]| random.literal(&Type::new(dtype, s));
            let of = |kind: FftKind| Fft { kind, axes: axes.into() };
            check(of(FftKind::Forward), &[x(shape), x(shape)], tolerance);
            check(of(FftKind::Inverse), &[x(shape), x(shape)], tolerance);
            check(of(FftKind::Real), &[x(shape)], tolerance);
            check(of(FftKind::InverseReal { length: shape[last] }), &[x(&half), x(&half)], tolerance);
        }
    }
}

#[test]
fn taking_and_putting_along() {
    let mut random = Random(5);
    for dtype in DTYPES {
        for (shape, axis, m) in [(&[6][..], 0, 9), (&[3, 7, 4], 1, 5), (&[2, 200, 300], 1, 150), (&[2, 0, 3], 1, 4)] {
            let mut other = shape.to_vec();
            other[axis] = m;
            let index_dtype = if dtype == DType::F64 { DType::U64 } else { DType::I32 };
            let index = indices(&mut random, &Type::new(index_dtype, &other), shape[axis]);
            let x = tied(&mut random, &Type::new(dtype, shape));
            check(TakeAlong { axis }, &[x, index.clone()], 0.0);
            if dtype != DType::Bool {
                let y = random.literal(&Type::new(dtype, &other));
                check(PutAlong { axis, size: shape[axis] }, &[y, index], 0.0);
            }
        }
    }
}

/// Random windows with all strides, and sums over dilated inputs, like their gradients.
#[test]
fn windows_by_lot() {
    let mut random = Random(8);
    for round in 0..60 {
        let rank = 1 + random.below(4).min(1);
        let (mut shape, mut window, mut windows) = (vec![2; 3 - rank], vec![1; 3 - rank], WindowConfig::unit_stride(3));
        for a in 3 - rank..3 {
            let (base, own) = (1 + random.below(if a == 2 { 40 } else { 7 }), 1 + random.below(6));
            shape.push(base);
            window.push(own);
            let low = random.below(2 * own) as i64 - 1;
            (windows.low[a], windows.high[a]) = (low, own as i64 + random.below(3) as i64);
            match round % 2 {
                0 => windows.base_dilation[a] = 1 + random.below(4),
                _ => windows.strides[a] = 1 + random.below(7),
            }
        }
        let dtype = [DType::F32, DType::F64, DType::BF16, DType::I32][round % 4];
        let x = tied(&mut random, &Type::new(dtype, &shape));
        for kind in [ReduceKind::Sum, ReduceKind::Max] {
            let op = ReduceWindow { kind, window: window[..].into(), windows: windows.clone() };
            check(op, &[x.clone()], 0.0);
        }
        let gather = WindowGather { max: true, window: window[..].into(), windows: windows.clone() };
        let count = graph(gather.clone().into(), &[x.ty().clone(), x.ty().clone()]).output_types()[0].clone();
        check(gather, &[x.clone(), x.clone()], 0.0);
        let scatter = WindowScatter { max: true, window: window[..].into(), windows };
        check(scatter, &[x.clone(), random.literal(&count)], 0.0);
    }
}

#[test]
fn windows() {
    let mut random = Random(6);
    let cases: &[(&[usize], &[usize], WindowConfig)] = &[
        (&[2, 3, 8, 8], &[1, 1, 2, 2], WindowConfig::strided(&[1, 1, 2, 2], &[0, 0, 0, 0])),
        (&[2, 3, 9, 7], &[1, 1, 3, 3], WindowConfig::strided(&[1, 1, 2, 2], &[0, 0, 1, 1])),
        (&[11], &[4], WindowConfig::strided(&[1], &[2])),
        (&[3, 0, 4], &[1, 1, 2], WindowConfig::strided(&[1, 1, 1], &[0, 0, 0])),
        (&[16, 8, 40, 40], &[1, 1, 2, 2], WindowConfig::strided(&[1, 1, 2, 2], &[0, 0, 0, 0])),
        (
            &[2, 7, 6],
            &[1, 2, 3],
            WindowConfig {
                strides: [1, 2, 1][..].into(),
                low: [0, 3, -1][..].into(),
                high: [0, 2, 2][..].into(),
                base_dilation: [1, 2, 1][..].into(),
                window_dilation: [1, 1, 2][..].into(),
            },
        ),
    ];
    for dtype in DTYPES {
        for (shape, window, windows) in cases {
            let kinds: &[ReduceKind] = match dtype {
                DType::Bool => &[ReduceKind::Any, ReduceKind::All],
                _ => &[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min],
            };
            let x = tied(&mut random, &Type::new(dtype, shape));
            for &kind in kinds {
                let op = ReduceWindow { kind, window: (*window).into(), windows: windows.clone() };
                check(op, &[x.clone()], 0.0);
            }
            if !dtype.is_float() {
                continue;
            }
            for max in [true, false] {
                let (window, windows) = (Shape::from_slice(window), windows.clone());
                let gather = WindowGather { max, window: window.clone(), windows: windows.clone() };
                let values = random.literal(x.ty());
                check(gather.clone(), &[x.clone(), values.clone()], 0.0);
                let count = graph(gather.into(), &[x.ty().clone(), x.ty().clone()]).output_types()[0].clone();
                check(WindowScatter { max, window, windows }, &[x.clone(), random.literal(&count)], 0.0);
            }
        }
    }
}

#[test]
fn scattering() {
    let mut random = Random(7);
    let dims =
        |offset: &[usize], collapsed: &[usize], operand_batch: &[usize], index_batch: &[usize], map: &[usize]| {
            SliceDims {
                offset: offset.into(),
                collapsed: collapsed.into(),
                operand_batch: operand_batch.into(),
                index_batch: index_batch.into(),
                index_map: map.into(),
            }
        };
    // dimensions, operand, indices, updates
    let cases: &[(SliceDims, &[usize], &[usize], &[usize])] = &[
        (SliceDims::take(2, 0, 1), &[50, 128], &[300, 1], &[300, 128]),
        (SliceDims::take(2, 0, 1), &[5, 3], &[9, 1], &[9, 3]),
        (SliceDims::take(2, 1, 1), &[5, 30], &[9, 1], &[5, 9]),
        (SliceDims::take(1, 0, 2), &[40], &[70, 20, 1], &[70, 20]),
        (SliceDims::take(1, 0, 1), &[400], &[200_000, 1], &[200_000]),
        (SliceDims::leading(3, 2, 1), &[4, 5, 6], &[7, 2], &[7, 6]),
        (SliceDims::along_axis(2, 1), &[3, 8], &[3, 5, 1], &[3, 5]),
        (dims(&[1, 2], &[], &[], &[], &[0, 1]), &[9, 10], &[6, 2], &[6, 3, 4]),
        (dims(&[0], &[], &[], &[], &[0]), &[9], &[1], &[4]),
        (dims(&[0], &[], &[], &[], &[0]), &[9], &[6, 1], &[4, 6]),
        (dims(&[1], &[1], &[0], &[0], &[1]), &[3, 6, 5], &[3, 1], &[3, 5]),
        (SliceDims::take(2, 0, 1), &[0, 3], &[4, 1], &[4, 3]),
        (SliceDims::take(2, 0, 1), &[5, 3], &[0, 1], &[0, 3]),
        (dims(&[1], &[], &[], &[], &[0]), &[3], &[2, 1], &[2, 5]),
    ];
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32, DType::U8, DType::Bool] {
        for (dims, operand, index, updates) in cases {
            for kind in ScatterKind::ALL {
                for mode in [ScatterMode::Clip, ScatterMode::Drop] {
                    let small = updates.iter().product::<usize>() < 10_000 || dtype == DType::F32;
                    let op: Op = Scatter { kind, dims: dims.clone(), mode }.into();
                    let index =
                        indices(&mut random, &Type::new(DType::I32, index), operand[0].max(operand[operand.len() - 1]));
                    let (x, u) = (Type::new(dtype, operand), Type::new(dtype, updates));
                    let fits = op.infer(&[x.clone(), index.ty().clone(), u.clone()]).is_ok();
                    if small && fits {
                        let (x, u) = (tied(&mut random, &x), random.literal(&u));
                        check(op, &[x, index, u], 0.0);
                    }
                }
            }
        }
    }
}

/// Rows with few and many elements, enough that threads own rows: each row receives its updates in order.
#[test]
fn scattering_rows() {
    let mut random = Random(8);
    let dtypes = [DType::F32, DType::BF16, DType::F64, DType::I32, DType::F16, DType::U8];
    for (i, width) in (1..=9).chain([16, 17, 33, 64, 100]).enumerate() {
        for (k, kind) in ScatterKind::ALL.into_iter().enumerate() {
            let (dtype, index) = (dtypes[(i + k) % dtypes.len()], [DType::I32, DType::I64, DType::U16][(i + k) % 3]);
            let (rows, slices) = ([300, 7, 20_000][(i + 2 * k) % 3], 140_000 / width.max(4));
            let mode = if (i + k) % 2 == 0 { ScatterMode::Clip } else { ScatterMode::Drop };
            let op = graph(
                Scatter { kind, dims: SliceDims::take(2, 0, 1), mode }.into(),
                &[(dtype, [rows, width]), (index, [slices, 1]), (dtype, [slices, width])]
                    .map(|(d, s)| Type::new(d, &s)),
            );
            let types = op.input_types();
            let at = indices(&mut random, &types[1], rows);
            let inputs = [tied(&mut random, &types[0]), at, random.literal(&types[2])];
            let want = ir::interp::run(&op, &inputs).unwrap();
            for target in Target::available() {
                for threads in [1, 2, 3] {
                    let what = format!("{kind:?} {types:?} on {target:?}, {threads} threads");
                    same(&what, &run(&Cpu::with_target(threads, Some(target)), &op, &inputs, true), &want);
                }
            }
        }
    }
}

/// Errors of a transform are relative to a row's largest element.
#[test]
fn convolutions_through_transforms() {
    use ir::composites::convolve::fft_convolve;
    let mut random = Random(11);
    let shapes: [(&[usize], usize, usize); 7] = [
        (&[], 1, 1),
        (&[], 2, 1),
        (&[3], 3, 2),
        (&[2, 2], 17, 40),
        (&[5], 100, 129),
        (&[], 700, 650),
        (&[40], 300, 31),
    ];
    for (lead, m, n) in shapes {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let make = |random: &mut Random, n: usize| {
                let ty = Type::new(dtype, &[lead, &[n]].concat());
                Literal::from_fn(ty, |_| Scalar::from_f64(dtype, random.below(2001) as f64 / 1000.0 - 1.0))
            };
            let (x, y) = (make(&mut random, m), make(&mut random, n));
            let tolerance = match dtype {
                DType::F64 => 1e-12,
                DType::F32 => 1e-6,
                _ => 1e-2,
            };
            check(fft_convolve(x.ty(), y.ty()).unwrap(), &[x, y], tolerance);
        }
    }
}

/// Long rows are computed by all threads, with the same precision, and with the same bits for any number of threads.
#[test]
fn a_long_convolution_has_the_same_bits_at_any_thread_count() {
    use ir::composites::convolve::fft_convolve;
    let mut random = Random(12);
    for (rows, m, n) in [(1, 5000, 4000), (1, 4097, 4096), (2, 17, 8300), (1, 10_000, 10_000), (7, 4100, 4200)] {
        let make = |random: &mut Random, n: usize| {
            Literal::from_fn(Type::new(DType::F64, &[rows, n]), |_| {
                Scalar::from_f64(DType::F64, random.below(2001) as f64 / 1000.0 - 1.0)
            })
        };
        let (x, y) = (make(&mut random, m), make(&mut random, n));
        let (a, b) = (x.to_vec::<f64>(), y.to_vec::<f64>());
        let graph = graph(fft_convolve(x.ty(), y.ty()).unwrap().into(), &[x.ty().clone(), y.ty().clone()]);
        let mut first: Option<Vec<f64>> = None;
        for threads in [1, 2, 3, 5] {
            let got = run(&Cpu::new(threads), &graph, &[x.clone(), y.clone()], true).remove(0).to_vec::<f64>();
            let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
            assert_eq!(bits(first.get_or_insert_with(|| got.clone())), bits(&got), "{rows} of {m} × {n}");
        }
        let got = first.unwrap();
        let length = m + n - 1;
        for row in 0..rows {
            for k in (0..length).step_by(97).chain([length - 1]) {
                let terms = k.saturating_sub(n - 1)..=k.min(m - 1);
                let sum: f64 = terms.map(|i| a[row * m + i] * b[row * n + k - i]).sum();
                assert!((got[row * length + k] - sum).abs() < 1e-11, "{rows} of {m} × {n} at {k}");
            }
        }
    }
}

#[test]
fn transforms_of_convolutions_are_long_enough_and_not_too_long() {
    for length in (1..5000).chain([10_000, 19_999, 32_769, 1_000_001]) {
        let points = tensorloom_cpu::convolution_points(length);
        assert!(
            points >= length && points <= length.max(2).next_power_of_two() && points.is_multiple_of(2),
            "{length}: {points}"
        );
        let mut rest = points;
        for p in [2, 3, 5] {
            while rest.is_multiple_of(p) {
                rest /= p;
            }
        }
        assert_eq!(rest, 1, "{length}: {points}");
    }
    assert_eq!(tensorloom_cpu::convolution_points(19_999), 20_480);
}
