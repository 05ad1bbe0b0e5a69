//! Routines of a given size: along axes, attention, convolutions, factorizations.

use super::{Case, Maker, Round};
use ir::composites::attention::{AttentionOptions, attention};
use ir::composites::quantized::{QuantFormat, QuantScheme, dequantize};
use ir::ops::*;
use ir::{Builder, Compare, DType, Graph, GraphBuilder, Type};

fn one(op: impl Into<ir::Op>, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op.into(), &args).unwrap();
    b.finish(&outs)
}

fn f32s(shape: &[usize]) -> Type {
    Type::new(DType::F32, shape)
}

fn running(axis: usize) -> Cumulative {
    Cumulative { kind: ReduceKind::Sum, axis, reverse: false }
}

fn extremum(axis: usize) -> ArgReduce {
    ArgReduce { max: true, axis, index: DType::I32 }
}

fn parallel(q: usize, round: Round) -> Vec<Case> {
    let mut all = Vec::new();
    for threads in [2, 3, 5] {
        let n = round.divide(q * threads, 50);
        let quantity = round.divide(n * 50, threads);
        for t in [f32s(&[50, n]), Type::new(DType::I32, &[50, n])] {
            all.push(Case::new(quantity, one(running(1), std::slice::from_ref(&t))));
            all.push(Case::new(quantity, one(extremum(1), std::slice::from_ref(&t))));
            all.push(Case::new(quantity, one(extremum(0), std::slice::from_ref(&t))));
            let sort = Sort { axis: 1, num_keys: 1, descending: true };
            all.push(Case::new(quantity, one(sort, std::slice::from_ref(&t))));
        }
        all.push(Case::new(quantity, one(TopK { k: 3, axis: 1 }, &[f32s(&[50, n])])));
    }
    all
}

/// A quantized matrix times rows.
fn packed(quantity: usize, [m, n, k]: [usize; 3]) -> Case {
    let packing = QuantScheme::new(QuantFormat::Int8, Some(1)).unwrap();
    let types = packing.part_types(&[n, k], DType::F32).unwrap();
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[m, k]);
    let parts: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let w = b.one(dequantize(&packing, &types, DType::F32).unwrap().into(), &parts).unwrap();
    let y = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[x, w]).unwrap();
    Case::new(quantity, b.finish(&[y]))
}

/// Dequantizes quantized rows.
fn packed_alone(quantity: usize, k: usize) -> Case {
    let packing = QuantScheme::new(QuantFormat::Int8, Some(1)).unwrap();
    let types = packing.part_types(&[3, k], DType::F32).unwrap();
    Case::new(quantity, one(dequantize(&packing, &types, DType::BF16).unwrap(), &types))
}

/// Attention over queries and keys, with several heads per group.
fn attend(quantity: usize, (tq, tk): (usize, usize), causal: bool, gradient: bool) -> Case {
    let (q, k) = (f32s(&[2, 2, tq, 8]), f32s(&[2, 2, tk, 8]));
    let options = AttentionOptions { causal, ..AttentionOptions::default() };
    let c = attention(&q, &k, &k, &options).unwrap();
    let mut b = Builder::new();
    let args: Vec<_> = c.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let y = b.emit(c.into(), &args).unwrap()[0];
    let g = b.finish(&[y]);
    Case::new(quantity, if gradient { transform::vjp(&g, &[0, 1, 2]).unwrap() } else { g })
}

fn attends(quantity: usize, t: (usize, usize), gradient: bool) -> Vec<Case> {
    [false, true].map(|causal| attend(quantity, t, causal && t.0 <= t.1, gradient)).into()
}

fn convolution(quantity: usize, x: &[usize], k: &[usize], dtype: DType) -> Vec<Case> {
    let rank = x.len() - 2;
    let padded = WindowConfig::strided(&vec![1; rank], &vec![1; rank]);
    let mut all = Vec::new();
    for windows in [WindowConfig::unit_stride(rank), padded] {
        all.push(Case::new(quantity, one(Conv::new(dtype, windows), &[Type::new(dtype, x), Type::new(dtype, k)])));
    }
    all
}

/// Depthwise convolutions, with both gradients, with several strides.
fn alone(quantity: usize, size: usize, window: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for stride in [1, 2, 3] {
        let windows = WindowConfig::strided(&[stride, stride], &[1, 1]);
        let base = stride * (size - 1) + window - 2;
        let (x, k) = (f32s(&[2, 3, window + 3, base]), f32s(&[6, 1, window, window]));
        let g = one(Conv { groups: 3, ..Conv::new(DType::F32, windows) }, &[x, k]);
        all.push(Case::new(quantity, transform::vjp(&g, &[0, 1]).unwrap()));
    }
    all
}

/// Cumulative sums and maxima, forward and reversed.
fn runs(quantity: usize, shape: &[usize]) -> Vec<Case> {
    let mut all = Vec::new();
    for kind in [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max] {
        for reverse in [false, true] {
            all.push(Case::new(quantity, one(Cumulative { kind, axis: 1, reverse }, &[f32s(shape)])));
        }
    }
    all
}

/// Integers added to a number of elements.
fn counted(quantity: usize, _: Round) -> Vec<Case> {
    let op = Scatter { kind: ScatterKind::Add, dims: SliceDims::take(1, 0, 1), mode: ScatterMode::Clip };
    let types = [&[quantity][..], &[9 * quantity, 1], &[9 * quantity]].map(|s| Type::new(DType::I32, s));
    vec![Case::new(quantity, one(op, &types))]
}

/// A number of rows added to those of an operand, or replacing them, some of them several times.
fn to_rows(quantity: usize, operand: &[usize], slices: usize) -> Vec<Case> {
    let kinds = [ScatterKind::Add, ScatterKind::Set, ScatterKind::Max];
    let dtypes = [(DType::F32, DType::I32), (DType::BF16, DType::I64)];
    let of = |kind, (dtype, index)| {
        let op = Scatter { kind, dims: SliceDims::take(2, 0, 1), mode: ScatterMode::Clip };
        let types =
            [Type::new(dtype, operand), Type::new(index, &[slices, 1]), Type::new(dtype, &[slices, operand[1]])];
        Case::new(quantity, one(op, &types))
    };
    kinds.into_iter().flat_map(|kind| dtypes.map(|d| of(kind, d))).collect()
}

/// Lines with many equal elements, in both orders, with indices as an additional operand.
fn sorts(quantity: usize, shape: &[usize]) -> Vec<Case> {
    let mut all = Vec::new();
    for descending in [false, true] {
        for dtype in [DType::F32, DType::I8, DType::I64] {
            let op = Sort { axis: 1, num_keys: 1, descending };
            all.push(Case::new(quantity, one(op, &[Type::new(dtype, shape), Type::new(DType::I32, shape)])));
        }
    }
    all
}

fn grouped(mode: RaggedMode, quantity: usize, [rows, k, n]: [usize; 3]) -> Case {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[rows, k]);
    let w = match mode {
        RaggedMode::Contract => b.input(DType::F32, &[rows, n]),
        _ => b.input(DType::F32, &[3, k, n]),
    };
    // Groups of a few rows, of most rows, and of none.
    let offsets = [0, 2.min(rows) as i32, rows as i32, rows as i32];
    let o = b.constant(ir::Literal::new(&[4], &offsets)).unwrap();
    let y = b.one(RaggedDot { mode, ..RaggedDot::rows(DType::F32) }.into(), &[x, w, o]).unwrap();
    Case::new(quantity, b.finish(&[y]))
}

/// Cholesky, LU and other factors of `A·Aᵀ + n·I`.
fn factors(n: usize, right: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F64, &[n, n]);
    let t = b.permute(x, &[1, 0]).unwrap();
    let product = b.matmul(x, t).unwrap();
    let (row, column) = (b.iota(DType::I32, &[n, n], 0).unwrap(), b.iota(DType::I32, &[n, n], 1).unwrap());
    let diagonal = b.compare(ir::Compare::Eq, row, column).unwrap();
    let unit = b.cast(diagonal, DType::F64).unwrap();
    let unit = b.scale(unit, n as f64).unwrap();
    let a = b.add(product, unit).unwrap();
    let l = b.one(Cholesky.into(), &[a]).unwrap();
    let other = b.input(DType::F64, &[n, right]);
    let solve = TriangularSolve { left: true, lower: true, transpose: false, unit: false };
    let solved = b.one(solve.into(), &[l, other]).unwrap();
    let back = b.one(TriangularSolve { transpose: true, ..solve }.into(), &[l, solved]).unwrap();
    let lu = b.emit(Lu.into(), &[a]).unwrap();
    let qr = b.emit(Qr { full: false }.into(), &[a]).unwrap();
    b.finish(&[l, solved, back, lu[0], qr[0], qr[1]])
}

fn factored(quantity: usize, n: usize, right: usize) -> Case {
    Case { tolerance: 1e-9, ..Case::new(quantity, factors(n, right)) }
}

fn convolved(quantity: usize, rows: usize, length: usize) -> Case {
    // The second signal is short, so that the interpreter, which uses the direct sum, is fast.
    let (x, y) = (f32s(&[rows, length - 8]), f32s(&[rows, 9]));
    let c = ir::composites::convolve::fft_convolve(&x, &y).unwrap();
    Case { tolerance: 2e-4, ..Case::new(quantity, one(c, &[x, y])) }
}

/// Results whose transforms have at most, or at least, a number of points.
fn points(q: usize, round: Round) -> Vec<Case> {
    let length = match round {
        Round::Down => (1..=q).rev().find(|&n| tensorloom_cpu::convolution_points(n) <= q).unwrap_or(1),
        Round::Up => (q..).find(|&n| tensorloom_cpu::convolution_points(n) >= q).unwrap_or(q),
    };
    [1, 3].map(|rows| convolved(tensorloom_cpu::convolution_points(length), rows, length)).into()
}

/// Slices of a number of adjacent elements added to rows.
fn scattered(q: usize, _: Round) -> Vec<Case> {
    let (table, ids) = (f32s(&[40, q]), Type::new(DType::I32, &[900]));
    let c = ir::composites::embedding::embedding(&table, &ids, None).unwrap();
    vec![Case::new(q, transform::vjp(&one(c, &[table, ids]), &[0]).unwrap())]
}

fn windows(q: usize, _: Round) -> Vec<Case> {
    let mut all = Vec::new();
    for (size, stride) in [(2, 2), (3, 1), (3, 2)] {
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[3, 2 * size, stride * (q - 1) + size]);
        let w = WindowConfig::strided(&[1, stride, stride], &[0, 0, 0]);
        let max = b.reduce_window(ReduceKind::Max, x, &[1, size, size], w.clone()).unwrap();
        let sum = b.reduce_window(ReduceKind::Sum, x, &[1, size, size], w).unwrap();
        all.push(Case::new(q, b.finish(&[max, sum])));
    }
    all
}

/// A matrix recomposed from its singular vectors and eigenvectors, whose signs are arbitrary.
fn rebuilt(quantity: usize, m: usize, n: usize) -> Case {
    rebuilt_in(DType::F64, quantity, m, n)
}

fn rebuilt_in(dtype: DType, quantity: usize, m: usize, n: usize) -> Case {
    let mut b = Builder::new();
    let x = b.input(dtype, &[2, m, n]);
    let parts = b.emit(Svd { vectors: true }.into(), &[x]).unwrap();
    let product = |b: &mut Builder, x, y| b.one(Dot::batched_matmul(dtype, 1).into(), &[x, y]).unwrap();
    let scale = |b: &mut Builder, v, s| {
        let shape = b.ty(v).shape;
        let s = b.broadcast(s, &shape, &[0, 2]).unwrap();
        b.mul(v, s).unwrap()
    };
    let left = scale(&mut b, parts[0], parts[1]);
    let again = product(&mut b, left, parts[2]);
    let t = b.permute(x, &[0, 2, 1]).unwrap();
    let square = product(&mut b, t, x);
    let eigen = b.emit(Eigh.into(), &[square]).unwrap();
    let v = scale(&mut b, eigen[1], eigen[0]);
    let t = b.permute(eigen[1], &[0, 2, 1]).unwrap();
    let symmetric = product(&mut b, v, t);
    let tolerance = if dtype == DType::F32 { 1e-4 } else { 1e-9 };
    Case { tolerance, ..Case::new(quantity, b.finish(&[again, symmetric, parts[1], eigen[0]])) }
}

/// The eigenvalues of a symmetric matrix.
fn eigenvalues(quantity: usize, n: usize) -> Case {
    let mut b = Builder::new();
    let x = b.input(DType::F64, &[n, n]);
    let t = b.permute(x, &[1, 0]).unwrap();
    let symmetric = b.add(x, t).unwrap();
    let eigen = b.emit(Eigh.into(), &[symmetric]).unwrap();
    Case { tolerance: 1e-10, ..Case::new(quantity, b.finish(&[eigen[0]])) }
}

/// Elements gathered along a number of lines, and added back.
fn read_along(q: usize, _: Round) -> Vec<Case> {
    let of = |x: &[usize], i: &[usize], axis: usize| {
        let mut b = Builder::new();
        let (x, i) = (b.input(DType::F32, x), b.input(DType::I32, i));
        let y = b.take_along_axis(x, i, axis, GatherMode::Clip).unwrap();
        transform::vjp(&b.finish(&[y]), &[0]).unwrap()
    };
    [of(&[30, q], &[50, q], 0), of(&[3, 20, q], &[3, 30, q], 1), of(&[q, 40], &[q, 9], 1)]
        .map(|g| Case::new(q, g))
        .into()
}

/// Transforms of all kinds along an axis.
fn transforms(quantity: usize, shape: &[usize], axis: usize) -> Vec<Case> {
    let fft = |kind| Fft { kind, axes: [axis][..].into() };
    let mut half = shape.to_vec();
    half[axis] = shape[axis] / 2 + 1;
    let (t, h) = (f32s(shape), f32s(&half));
    let graphs = [
        one(fft(FftKind::Forward), &[t.clone(), t.clone()]),
        one(fft(FftKind::Inverse), &[t.clone(), t.clone()]),
        one(fft(FftKind::Real), &[t]),
        one(fft(FftKind::InverseReal { length: shape[axis] }), &[h.clone(), h]),
    ];
    graphs.map(|g| Case::new(quantity, g)).into()
}

/// Transposes, with elements of every size.
fn exchanged(quantity: usize, shape: &[usize], dtypes: &[DType]) -> Vec<Case> {
    let of = |&d: &DType| {
        let mut b = Builder::new();
        let x = b.input(d, shape);
        let last = shape.len() - 1;
        let y = b.move_axis(x, last - 1, last).unwrap();
        let flipped = b.flip(x, &[last]).unwrap();
        Case { tolerance: 0.0, ..Case::new(quantity, b.finish(&[y, flipped])) }
    };
    dtypes.iter().map(of).collect()
}

/// Two operands of small dtypes, one of which may be broadcast along some axes.
fn narrow(q: usize, shape: &[usize], other: &[usize], axes: &[usize]) -> Vec<Case> {
    use ir::Binary::{Add, And, Max, Min, Mul, Or, Sub, Xor};
    let mut all = Vec::new();
    for d in [DType::U8, DType::I8, DType::I16, DType::U16] {
        for k in 0..14 {
            let mut b = Builder::new();
            let (x, y) = (b.input(d, shape), b.input(d, other));
            let y = b.broadcast(y, shape, axes).unwrap();
            let v = match [Add, Sub, Mul, And, Or, Xor, Max, Min].get(k) {
                Some(&op) => b.binary(op, x, y).unwrap(),
                None => b.compare(Compare::ALL[k - 8], y, x).unwrap(),
            };
            all.push(Case { tolerance: 0.0, ..Case::new(q, b.finish(&[v])) });
        }
    }
    all
}

/// Sorts of lines without other operands.
fn lone_lines(q: usize, _: Round) -> Vec<Case> {
    let of = |d: DType, axis: usize, descending: bool| {
        let shape = if axis == 0 { [q, 3] } else { [3, q] };
        let ty = Type::new(d, &shape);
        Case { tolerance: 0.0, ..Case::new(q, one(Sort { axis, num_keys: 1, descending }, &[ty])) }
    };
    let dtypes = [DType::F32, DType::I32, DType::BF16, DType::F64, DType::I64, DType::U16, DType::I8];
    dtypes.into_iter().flat_map(|d| [of(d, 1, false), of(d, 0, true), of(d, 1, true)]).collect()
}

pub(super) const MAKERS: &[(&str, Maker)] = &[
    ("library.parallel", parallel),
    ("along.lanes", |q, _| {
        let t = [f32s(&[30, q])];
        vec![Case::new(q, one(running(0), &t)), Case::new(q, one(extremum(0), &t))]
    }),
    ("along.piece", |q, _| {
        [vec![q], vec![3, q], vec![2, q, 3]]
            .map(|s| Case::new(q, one(extremum(s.len().min(2) - 1), &[f32s(&s)])))
            .into()
    }),
    ("along.strip", read_along),
    ("along.run", |q, _| [vec![q], vec![5, q]].map(|s| Case::new(q, one(extremum(s.len() - 1), &[f32s(&s)]))).into()),
    ("along.few", |q, _| vec![Case::new(q, one(extremum(1), &[f32s(&[q, 33_000])]))]),
    ("along.short", |q, _| [vec![40, q], vec![16, q]].map(|s| Case::new(q, one(extremum(1), &[f32s(&s)]))).into()),
    ("along.few_lanes", |q, _| {
        let all = [vec![900, q], vec![3, 70, q]].into_iter();
        let of = |s: Vec<usize>| {
            [DType::F32, DType::BF16, DType::I64].map(|d| one(extremum(s.len() - 2), &[Type::new(d, &s)]))
        };
        all.flat_map(of).map(|g| Case::new(q, g)).collect()
    }),
    ("running.long", |q, _| runs(q, &[3, q])),
    ("running.many", |q, _| runs(q, &[q, 9000])),
    ("running.strip", |q, _| {
        let all = [(vec![30, q], 0), (vec![3, 9, q], 1), (vec![2, 5, 2 * q + 3], 1)];
        all.map(|(shape, axis)| Case::new(q, one(running(axis), &[f32s(&shape)]))).into()
    }),
    ("running.turns", |q, _| runs(q, &[q, 37])),
    ("running.left", |q, _| runs(q, &[q, 37])),
    ("running.short", |q, _| runs(q, &[77, q])),
    ("running.full", |q, _| runs(q, &[77, q])),
    ("running.block", |q, _| runs(q, &[77, q])),
    ("running.wide", |q, _| {
        let op = |reverse| Cumulative { kind: ReduceKind::Prod, axis: 1, reverse };
        let types = [DType::F64, DType::I64].map(|d| [Type::new(d, &[21, q])]);
        types.iter().flat_map(|t| [Case::new(q, one(op(false), t)), Case::new(q, one(op(true), t))]).collect()
    }),
    ("scatter.block", |q, _| to_rows(q, &[40, 3], q)),
    ("scatter.row", |q, _| to_rows(q, &[40, 3], q)),
    ("running.ahead", |q, _| runs(q, &[70, q])),
    ("running.kept", |q, _| runs(q, &[70, q])),
    ("attention.few_rows", |q, _| attends(q, (q, 40), false)),
    ("attention.keys", |q, _| attends(q, (10, q), false)),
    ("attention.queries", |q, _| attends(q, (q, 90), true)),
    ("attention.span", |q, _| attends(q, (1, q), false)),
    ("attention.keys_back", |q, _| attends(q, (12, q), true)),
    ("conv.positions", |q, _| convolution(q, &[2, 3, q + 2], &[4, 3, 3], DType::F32)),
    ("conv.depth", |q, _| convolution(q, &[1, q, 6, 5], &[5, q, 1, 1], DType::F32)),
    ("conv.width", |q, _| {
        let of = |d: DType| convolution(q, &[2, 3, 60], &[4, 3, q], d);
        [DType::F32, DType::F64, DType::BF16].into_iter().flat_map(of).collect()
    }),
    ("conv.panel", |q, round| {
        // A stride that is so large that windows are written out.
        let n = round.divide(q, 16);
        let windows = WindowConfig::strided(&[9], &[0]);
        let (x, k) = (f32s(&[1, 4, 9 * n]), f32s(&[5, 4, 4]));
        vec![Case::new(n * 16, one(Conv::new(DType::F32, windows), &[x, k]))]
    }),
    ("conv.volumes", |q, round| {
        // Three planes of two features for each of eight results, of three images.
        let n = round.divide(q, 3 * 3 * 2 * 8 * 64);
        let windows = WindowConfig::strided(&[1, 1, 8], &[1, 0, 0]);
        let (x, k) = (f32s(&[3, 2, 8, 64, n]), f32s(&[2, 2, 3, 1, 1]));
        vec![Case::new(n * 3 * 3 * 2 * 8 * 64, one(Conv::new(DType::F32, windows), &[x, k]))]
    }),
    ("conv.seen", |q, round| {
        let lines = round.divide(q, 16 * 62);
        convolution(lines * 16 * 62, &[1, 16, lines, 62], &[3, 16, 3, 2], DType::F32)
    }),
    ("conv.chain", |q, _| {
        let of = |x: &[usize], k: &[usize]| {
            let g = one(Conv::new(DType::F32, WindowConfig::unit_stride(x.len() - 2)), &[f32s(x), f32s(k)]);
            Case::new(q, transform::vjp(&g, &[0, 1]).unwrap())
        };
        vec![of(&[3, 2, q + 2], &[6, 2, 3]), of(&[2, 3, q / 8 + 1, 10], &[6, 3, 2, 3])]
    }),
    ("conv.narrow", |q, _| alone(q, 20, q)),
    ("conv.gradients", |q, _| {
        let of = |stride: usize| {
            let windows = WindowConfig::strided(&[stride, stride], &[1, 1]);
            let (x, k) = (f32s(&[3, 6, 11, 19]), f32s(&[2 * q, 3, 3, 3]));
            let g = one(Conv { groups: 2, ..Conv::new(DType::F32, windows) }, &[x, k]);
            Case::new(q, transform::vjp(&g, &[0, 1]).unwrap())
        };
        vec![of(1), of(2)]
    }),
    ("conv.fewer", |q, _| {
        let of = |spread: [usize; 2], low: i64, window: [usize; 2]| {
            let spread = WindowConfig {
                base_dilation: spread[..].into(),
                low: [low, 2][..].into(),
                high: [1, low][..].into(),
                ..WindowConfig::unit_stride(2)
            };
            // So few results that windows of phases are not read in place.
            let (x, k) = (f32s(&[3, 5 * q, 3, 3]), f32s(&[5, 5 * q, window[0], window[1]]));
            Case::new(q, one(Conv::new(DType::F32, spread), &[x, k]))
        };
        vec![
            of([2, 2], 2, [3, 3]),
            of([2, 3], 1, [4, 5]),
            of([1, 2], 0, [2, 4]),
            of([2, 2], 6, [7, 2]),
            of([3, 2], -1, [3, 3]),
        ]
    }),
    ("conv.longest", |q, _| {
        let (x, k) = (f32s(&[1, 2, q]), f32s(&[2, 1, 3]));
        vec![Case::new(q, one(Conv { groups: 2, ..Conv::new(DType::F32, WindowConfig::unit_stride(1)) }, &[x, k]))]
    }),
    ("conv.results", |q, _| alone(q, q, 3)),
    ("conv.lanes", |q, _| alone(q, q, 3)),
    ("conv.piece", |q, round| {
        let lines = round.divide(q, 48 * 40);
        convolution(lines * 48 * 40, &[1, 16, lines, 42], &[3, 16, 1, 3], DType::F64)
    }),
    ("convolve.least", points),
    ("convolve.many", |q, _| vec![convolved(q, q, 8192)]),
    ("convolve.points", |q, _| [1, 4].map(|rows| convolved(q, rows, q)).into()),
    ("fourier.registers", |q, round| {
        // Primes, and lengths that are multiples of them.
        let prime = |n: &usize| (2..*n).all(|d| n % d != 0);
        let p = match round {
            Round::Down => (2..=q).rev().find(prime).unwrap_or(2),
            Round::Up => (q..).find(prime).unwrap_or(q),
        };
        [[9, p], [8, 2 * p], [3, p * p]].iter().flat_map(|s| transforms(p, s, 1)).collect()
    }),
    ("fourier.pages", |q, round| {
        let columns = round.divide(q, 24 * 4);
        transforms(columns * 24 * 4, &[24, columns], 0).into_iter().take(2).collect()
    }),
    ("fourier.matrix", |q, _| {
        // A single line, which threads share; several; two axes; and longer lines, with factors that fill vectors or do not.
        let shapes = [[1, q], [9, q], [2, 2 * q], [1, 5 * q]];
        shapes.iter().flat_map(|s| transforms(q, s, 1)).collect()
    }),
    ("linalg.least", |q, _| vec![factored(q, q, 40), rebuilt(q, q, q)]),
    ("linalg.vectors", |q, _| {
        let qr = one(Qr { full: false }, &[f32s(&[2, q + 3, q])]);
        let again = [(q, q), (q + 7, q), (q, q + 1)].map(|(m, n)| rebuilt_in(DType::F32, q, m, n));
        again.into_iter().chain([Case { tolerance: 1e-4, ..Case::new(q, qr) }]).collect()
    }),
    ("linalg.strip", |q, _| vec![rebuilt(q, q, q), rebuilt(q, q + 9, q), rebuilt(q, q, q + 2)]),
    ("linalg.tall", |q, round| {
        let of = |d: DType| {
            let mut b = Builder::new();
            let rows = round.divide(q, 40);
            let x = b.input(d, &[rows, 40]);
            let parts = b.emit(Qr { full: false }.into(), &[x]).unwrap();
            let back = b.matmul(parts[0], parts[1]).unwrap();
            Case { tolerance: 3e-5, ..Case::new(rows * 40, b.finish(&[parts[0], parts[1], back])) }
        };
        vec![of(DType::F32), of(DType::F64)]
    }),
    ("linalg.few", |q, _| {
        let g = one(Qr { full: false }, &[f32s(&[q, 240, 40])]);
        let values = one(Svd { vectors: false }, &[Type::new(DType::F64, &[q, 97, 96])]);
        vec![Case { tolerance: 3e-5, ..Case::new(q, g) }, Case { tolerance: 1e-10, ..Case::new(q, values) }]
    }),
    ("linalg.slender", |q, _| vec![rebuilt(q, 20 * q, 20), rebuilt(q, 20, 20 * q)]),
    ("linalg.slender_times", |q, _| vec![rebuilt(q, 5 * q, 5), rebuilt(q, 5, 5 * q)]),
    ("linalg.abreast", |q, _| {
        let of = |d: DType| {
            let (mut b, product) = (Builder::new(), Dot::batched_matmul(d, 1));
            let x = b.input(d, &[16, q, 2 * q + 9]);
            let t = b.permute(x, &[0, 2, 1]).unwrap();
            let square = b.one(product.clone().into(), &[x, t]).unwrap();
            let lower = b.one(Cholesky.into(), &[square]).unwrap();
            let lu = b.emit(Lu.into(), &[square]).unwrap();
            Case { tolerance: if d == DType::F32 { 1e-3 } else { 1e-10 }, ..Case::new(q, b.finish(&[lower, lu[0]])) }
        };
        vec![of(DType::F32), of(DType::F64)]
    }),
    ("linalg.slender_columns", |q, _| vec![rebuilt(q, 3 * q, q), rebuilt(q, q, 3 * q)]),
    ("linalg.own", |q, round| {
        let rows = round.divide(q, 8);
        let g = one(Qr { full: false }, &[f32s(&[3, rows, 8])]);
        vec![Case { tolerance: 3e-5, ..Case::new(rows * 8, g) }]
    }),
    ("linalg.others", |q, _| vec![factored(q, 100, q)]),
    ("linalg.high", |q, _| {
        let of = |d: DType, n: usize| {
            let g = one(Lu, &[Type::new(d, &[q * n, n])]);
            Case { tolerance: if d == DType::F32 { 1e-4 } else { 1e-11 }, ..Case::new(q, g) }
        };
        [(DType::F32, 33), (DType::F64, 21)].map(|(d, n)| of(d, n)).into()
    }),
    // The first column is reduced by itself; the multiplication covers the rest.
    ("linalg.pieces", |q, _| vec![eigenvalues(q, q + 1)]),
    ("packed.few", |q, _| vec![packed(q, [q, 40, 64]), packed_alone(q, 40)]),
    ("packed.run", |q, _| vec![packed(q, [3, 20, q]), packed_alone(q, q)]),
    ("linalg.singular", |q, _| {
        let of = |m, n| one(Svd { vectors: false }, &[Type::new(DType::F64, &[3, m, n])]);
        [of(q, q), of(q + 5, q), of(q, q + 9)].map(|g| Case { tolerance: 1e-10, ..Case::new(q, g) }).into()
    }),
    ("ragged.rows", |q, _| vec![grouped(RaggedMode::Rows, q, [q + 2, 20, 30])]),
    ("ragged.depth", |q, _| vec![grouped(RaggedMode::Contract, q, [q + 2, 20, 30])]),
    ("ragged.strip", |q, _| vec![grouped(RaggedMode::Contract, q, [50, q, 30])]),
    ("rearrange.short", |q, _| {
        let dtypes = [DType::U8, DType::BF16, DType::F32, DType::F64];
        [&[3, q, 70][..], &[70, q]].into_iter().flat_map(|s| exchanged(q, s, &dtypes)).collect()
    }),
    ("rearrange.bytes", |q, _| narrow(q, &[q], &[q], &[0])),
    ("rearrange.unit", |q, _| {
        let whole = narrow(q, &[q], &[q], &[0]).into_iter();
        whole.chain(narrow(q, &[3, q], &[q], &[1])).chain(narrow(q, &[3, q], &[3], &[0])).collect()
    }),
    ("rearrange.narrow", |q, _| {
        let row = narrow(q, &[9, q], &[q], &[1]).into_iter();
        row.chain(narrow(q, &[9, q], &[9], &[0])).chain(narrow(q, &[3, 4, q], &[3, q], &[0, 2])).collect()
    }),
    ("rearrange.flat", |q, _| {
        let of = |d: DType, lines: usize, from: usize| {
            let mut b = Builder::new();
            let (x, i) = (b.input(d, &[lines, from]), b.input(DType::I32, &[lines, q]));
            let y = b.take_along_axis(x, i, 1, GatherMode::Clip).unwrap();
            Case { tolerance: 0.0, ..Case::new(q, b.finish(&[y])) }
        };
        [of(DType::F32, 700, 23), of(DType::F64, 700, 5), of(DType::U8, 3, 23), of(DType::BF16, 97, 300)].into()
    }),
    ("rearrange.batch", |q, _| {
        let dtypes = [DType::U8, DType::BF16];
        [[q, 4, 5], [q, 7, 6], [q, 8, 2]].iter().flat_map(|s| exchanged(q, s, &dtypes)).collect()
    }),
    ("rearrange.shuffled", |q, _| {
        let dtypes = [DType::U8, DType::BF16];
        let shapes = [[5, q], [7, q], [q, 3], [q, 6]];
        shapes.iter().flat_map(|s| exchanged(q, s, &dtypes)).collect()
    }),
    ("rearrange.row", |q, _| {
        let of = |d: DType, indices: DType| {
            let mut b = Builder::new();
            let (x, at) = (b.input(d, &[40, q]), b.input(indices, &[300]));
            let y = b.take(x, at, 0, ir::ops::gather::GatherMode::Clip).unwrap();
            Case { tolerance: 0.0, ..Case::new(q, b.finish(&[y])) }
        };
        vec![of(DType::F32, DType::I32), of(DType::I32, DType::I64)]
    }),
    ("rearrange.tile", |q, _| {
        let dtypes = [DType::U8, DType::I16, DType::F32, DType::I64];
        [[2, q, 90], [2, 90, q], [2, q, q], [2, q, 2 * q + 1]].iter().flat_map(|s| exchanged(q, s, &dtypes)).collect()
    }),
    ("rearrange.block", |q, round| {
        let n = |bytes: usize| round.divide(q, bytes);
        let sizes = [(DType::U8, 1), (DType::F16, 2), (DType::I32, 4), (DType::F64, 8)];
        let shapes = |b: usize| [[2, n(b), 90], [2, 90, n(b)], [2, n(b), n(b)]];
        let of = |(d, b): (DType, usize)| shapes(b).into_iter().flat_map(move |s| exchanged(n(b) * b, &s, &[d]));
        sizes.into_iter().flat_map(of).collect()
    }),
    ("rearrange.line", |q, _| {
        let of = |d: DType| {
            let mut b = Builder::new();
            let x = b.input(d, &[3, q]);
            let y = b.concat(&[x, x], 1).unwrap();
            Case { tolerance: 0.0, ..Case::new(q, b.finish(&[y])) }
        };
        [DType::U8, DType::BF16, DType::F32, DType::F64].map(of).into()
    }),
    ("rearrange.steps", |q, _| {
        let of = |d: DType| {
            let mut b = Builder::new();
            let x = b.input(d, &[30, q]);
            let y = b.flip(x, &[1]).unwrap();
            Case { tolerance: 0.0, ..Case::new(q, b.finish(&[y])) }
        };
        [DType::U8, DType::BF16, DType::F32, DType::F64].map(of).into()
    }),
    ("concat.block", |q, _| {
        // One row of that many bytes, and two that have as many together.
        let of = |line: usize| {
            let mut b = Builder::new();
            let mut sizes: Vec<usize> = (1..40).collect();
            sizes.push(line - sizes.iter().sum::<usize>());
            let parts: Vec<_> = sizes.iter().map(|n| b.input(DType::U8, &[5, *n])).collect();
            let y = b.concat(&parts, 1).unwrap();
            Case { tolerance: 0.0, ..Case::new(q, b.finish(&[y])) }
        };
        vec![of(q), of(q / 2)]
    }),
    ("scatter.run", scattered),
    ("scatter.short", |q, _| {
        let (table, ids) = (f32s(&[400, q]), Type::new(DType::I32, &[17_000]));
        let c = ir::composites::embedding::embedding(&table, &ids, None).unwrap();
        vec![Case::new(q, transform::vjp(&one(c, &[table, ids]), &[0]).unwrap())]
    }),
    ("scatter.near", |q, _| {
        let op = Scatter { kind: ScatterKind::Max, dims: SliceDims::take(1, 0, 1), mode: ScatterMode::Clip };
        let at = Type::new(DType::I32, &[250_000, 1]);
        vec![Case::new(q, one(op, &[f32s(&[q]), at, f32s(&[250_000])]))]
    }),
    ("scatter.far", |q, _| {
        let of = |kind: ScatterKind, mode: ScatterMode, row: usize| {
            let op = Scatter { kind, dims: SliceDims::take(2, 0, 1), mode };
            let (rows, n) = (q / row, 700);
            Case::new(q, one(op, &[f32s(&[rows, row]), Type::new(DType::I32, &[n, 1]), f32s(&[n, row])]))
        };
        vec![of(ScatterKind::Add, ScatterMode::Drop, 64), of(ScatterKind::Max, ScatterMode::Clip, 32)]
    }),
    ("scatter.samples", |q, _| {
        let (table, ids) = (f32s(&[300, 400]), Type::new(DType::I32, &[q]));
        let c = ir::composites::embedding::embedding(&table, &ids, None).unwrap();
        vec![Case::new(q, transform::vjp(&one(c, &[table, ids]), &[0]).unwrap())]
    }),
    ("scatter.strip", |q, _| {
        let of = |mode: ScatterMode, shape: [usize; 2], mut at: Vec<usize>| {
            at.push(1);
            let axes = |a: usize| [a][..].into();
            let dims = SliceDims {
                offset: [][..].into(),
                collapsed: axes(0),
                operand_batch: axes(1),
                index_batch: axes(at.len() - 2),
                index_map: axes(0),
            };
            let updates = f32s(&at[..at.len() - 1]);
            let types = [f32s(&shape), Type::new(DType::I32, &at), updates];
            Case::new(q, one(Scatter { kind: ScatterKind::Add, dims, mode }, &types))
        };
        let clip = ScatterMode::Clip;
        vec![
            of(clip, [7, q], vec![50, q]),
            of(ScatterMode::Drop, [40, q], vec![50, q]),
            of(clip, [7, q], vec![3, 9, q]),
        ]
    }),
    ("scatter.small", counted),
    ("sort.long", |q, _| sorts(q, &[2, q])),
    ("sort.alone", lone_lines),
    ("sort.alone_wide", lone_lines),
    ("sort.bytes", |q, _| {
        let of = |d: DType, descending: bool| {
            let ty = Type::new(d, &[3, q]);
            Case::new(q, one(Sort { axis: 1, num_keys: 1, descending }, &[ty]))
        };
        [(DType::U8, false), (DType::I8, false), (DType::I8, true)].map(|(d, down)| of(d, down)).into()
    }),
    ("sort.inserted", |q, _| {
        let all = [(DType::F32, [7, 230]), (DType::F64, [7, 230]), (DType::I64, [7, 230]), (DType::BF16, [500, 3])];
        let of = |(dtype, shape): (DType, [usize; 2])| {
            Case::new(q, one(TopK { k: q, axis: usize::from(shape[1] > 3) }, &[Type::new(dtype, &shape)]))
        };
        all.map(of).into()
    }),
    ("sort.bounded", |q, _| {
        let types = [f32s(&[4, q]), Type::new(DType::I8, &[4, q]), Type::new(DType::F16, &[4, q]), f32s(&[3, q + 70])];
        let all = types.into_iter().flat_map(|t| [1, 2, 5, 32].map(|k| one(TopK { k, axis: 1 }, &[t.clone()])));
        all.map(|g| Case { tolerance: 0.0, ..Case::new(q, g) }).collect()
    }),
    ("sort.network", |q, _| {
        let mut all = sorts(q, &[21, q]);
        for (d, shape, axis) in [(DType::F16, [q, 19], 0), (DType::U8, [9, q], 1), (DType::F32, [q, 3], 0)] {
            let op = Sort { axis, num_keys: 1, descending: d == DType::U8 };
            all.push(Case { tolerance: 0.0, ..Case::new(q, one(op, &[Type::new(d, &shape)])) });
            let op = TopK { k: 5, axis };
            all.push(Case { tolerance: 0.0, ..Case::new(q, one(op, &[Type::new(d, &shape)])) });
        }
        all
    }),
    ("sort.few", |q, _| sorts(q, &[5, q])),
    ("sort.share", |q, _| {
        let types = [f32s(&[4, 3 * q]), Type::new(DType::I8, &[4, 3 * q]), Type::new(DType::I64, &[4, 3 * q])];
        types.map(|t| Case::new(q, one(TopK { k: 3, axis: 1 }, &[t]))).into()
    }),
    ("window.together", windows),
    ("window.block", windows),
    ("window.flat", |q, _| {
        let of = |kind: ReduceKind, shape: [usize; 3], window: [usize; 2], dtype: DType| {
            let w = WindowConfig::strided(&[1, 2, 3], &[0; 3]);
            let op = ReduceWindow { kind, window: [1, window[0], window[1]][..].into(), windows: w };
            Case::new(q, one(op, &[Type::new(dtype, &shape)]))
        };
        let back = |kind, shape, window, dtype| {
            let forward = of(kind, shape, window, dtype);
            Case { graph: transform::vjp(&forward.graph, &[0]).unwrap(), ..forward }
        };
        vec![
            of(ReduceKind::Max, [40, 9, q], [5, 7], DType::F32),
            of(ReduceKind::Min, [7, 5, q], [5, 3], DType::BF16),
            of(ReduceKind::Max, [3, 31, q], [1, 4], DType::F64),
            of(ReduceKind::Prod, [9, 4, q], [2, 5], DType::I32),
            back(ReduceKind::Max, [40, 9, q], [5, 7], DType::F32),
            back(ReduceKind::Min, [7, 5, q], [5, 3], DType::BF16),
            back(ReduceKind::Max, [3, 31, q], [1, 4], DType::F64),
        ]
    }),
    ("window.low", |q, _| {
        let of = |low: i64, stride: usize, dtype: DType| {
            let w = WindowConfig::strided(&[1, stride, 1], &[0, low, 1]);
            let op = ReduceWindow { kind: ReduceKind::Sum, window: [1, q, 3][..].into(), windows: w };
            Case::new(q, one(op, &[Type::new(dtype, &[2, q + 3, 21])]))
        };
        vec![of(0, 1, DType::F32), of(2, 2, DType::F32), of(1, 1, DType::I32), of(3, 1, DType::BF16)]
    }),
    ("window.plane", |q, _| {
        let w = WindowConfig::strided(&[1, 1, 1], &[0, 1, 1]);
        let op = ReduceWindow { kind: ReduceKind::Sum, window: [1, 3, 3][..].into(), windows: w };
        vec![Case::new(q, one(op, &[f32s(&[2, 60, q / 8 / 61 - 2])]))]
    }),
];
