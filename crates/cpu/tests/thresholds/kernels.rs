//! Fused kernels of a given size: elementwise ops, reductions, rows, scans.

use super::{Case, Maker, Round};
use ir::ops::{ReduceKind, Scan};
use ir::{Builder, DType, Graph, GraphBuilder, Unary, Value};

/// Sums, extrema and a softmax over one axis, each separately and all on one operand.
fn reductions(shape: &[usize], axes: &[usize], dtype: DType) -> Vec<Graph> {
    let mut graphs = Vec::new();
    for kind in [ReduceKind::Sum, ReduceKind::Max] {
        let mut b = Builder::new();
        let x = b.input(dtype, shape);
        let y = b.reduce(kind, x, axes).unwrap();
        graphs.push(b.finish(&[y]));
    }
    // Factors near 1 keep the product of many in range, so that its rounding can be checked. `sums.rs` tests larger products.
    let length: usize = axes.iter().map(|&a| shape[a]).product();
    if length <= 1 << 14 || dtype == DType::F64 {
        let mut b = Builder::new();
        let x = b.input(dtype, shape);
        let small = b.scale(x, 1.0 / (length as f64).sqrt().max(1.0)).unwrap();
        let factors = b.offset(small, 1.0).unwrap();
        let y = b.reduce(ReduceKind::Prod, factors, axes).unwrap();
        graphs.push(b.finish(&[y]));
    }
    let mut b = Builder::new();
    let x = b.input(dtype, shape);
    let sum = b.sum(x, axes).unwrap();
    let square = b.mul(x, x).unwrap();
    let squares = b.sum(square, axes).unwrap();
    let min = b.reduce(ReduceKind::Min, square, axes).unwrap();
    let norm = b.unary(Unary::Sqrt, squares).unwrap();
    graphs.push(b.finish(&[sum, norm, min]));
    graphs
}

fn softmax(shape: &[usize], axis: usize) -> Graph {
    softmax_of(DType::F32, shape, axis)
}

fn softmax_of(dtype: DType, shape: &[usize], axis: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(dtype, shape);
    let most = b.reduce(ReduceKind::Max, x, &[axis]).unwrap();
    let most = b.expand_reduced(most, shape, &[axis]).unwrap();
    let d = b.sub(x, most).unwrap();
    let e = b.unary(Unary::Exp, d).unwrap();
    let s = b.sum(e, &[axis]).unwrap();
    let s = b.expand_reduced(s, shape, &[axis]).unwrap();
    let y = b.div(e, s).unwrap();
    b.finish(&[y])
}

/// Rows minus their mean: only sums.
fn normalised(shape: &[usize]) -> Graph {
    map(shape, |b, x| {
        let sum = b.sum(x, &[1]).unwrap();
        let mean = b.scale(sum, 1.0 / shape[1] as f64).unwrap();
        let mean = b.expand_reduced(mean, shape, &[1]).unwrap();
        vec![b.sub(x, mean).unwrap()]
    })
}

/// Rows minus their mean, multiplied by the mean of their squares: one sum after the other.
fn standardised(shape: &[usize]) -> Graph {
    map(shape, |b, x| {
        let wide = |b: &mut Builder, x| {
            let sum = b.sum(x, &[1]).unwrap();
            let mean = b.scale(sum, 1.0 / shape[1] as f64).unwrap();
            b.expand_reduced(mean, shape, &[1]).unwrap()
        };
        let mean = wide(b, x);
        let d = b.sub(x, mean).unwrap();
        let square = b.mul(d, d).unwrap();
        let squares = wide(b, square);
        vec![b.mul(d, squares).unwrap()]
    })
}

/// A number of rows of a given length, along the last axis and along others.
fn short_rows(quantity: usize, rows: usize, elements: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for d in [DType::F32, DType::F64, DType::BF16] {
        all.push(softmax_of(d, &[rows, elements], 1));
        all.push(softmax_of(d, &[2, elements, rows], 1));
    }
    cases(quantity, all)
}

fn cases(quantity: usize, graphs: Vec<Graph>) -> Vec<Case> {
    graphs.into_iter().map(|g| Case::new(quantity, g)).collect()
}

fn map(shape: &[usize], f: impl FnOnce(&mut Builder, Value) -> Vec<Value>) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F32, shape);
    let outs = f(&mut b, x);
    b.finish(&outs)
}

fn lanes(q: usize, _: Round) -> Vec<Case> {
    let mut all = cases(q, reductions(&[3, q], &[1], DType::F32));
    all.extend(cases(q, reductions(&[q, 3], &[0], DType::F64)));
    all.push(Case::new(q, softmax(&[5, q], 1)));
    all.push(Case::new(q, map(&[q], |b, x| vec![b.unary(Unary::Exp, x).unwrap()])));
    all
}

/// A number of parts of several sizes, concatenated along each axis, some of them computed.
fn joined(q: usize, _: Round) -> Vec<Case> {
    let of = |axis: usize, d: DType| {
        let mut b = Builder::new();
        let shape = |i: usize| (0..3).map(|a| if a == axis { i % 4 } else { 5 + a }).collect::<Vec<_>>();
        let mut parts: Vec<Value> = (0..q).map(|i| b.input(d, &shape(i))).collect();
        parts[1] = b.add(parts[1], parts[1]).unwrap();
        let whole = b.concat(&parts, axis).unwrap();
        let doubled = b.add(whole, whole).unwrap();
        Case::new(q, b.finish(&[whole, doubled]))
    };
    let axes = [0, 1, 2].into_iter();
    axes.flat_map(|a| [DType::F32, DType::U8, DType::BF16].map(|d| of(a, d))).collect()
}

/// Short rows reduced, and elements with a given stride, of 4 and 8 bytes.
fn strided(q: usize, _: Round) -> Vec<Case> {
    let mut all = vec![];
    for d in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        all.extend(cases(q, reductions(&[1000, q], &[1], d)));
        all.extend(cases(q, reductions(&[1003, q], &[0], d)));
    }
    for d in [DType::F32, DType::I16, DType::U16, DType::BF16] {
        let mut b = Builder::new();
        let x = b.input(d, &[q * 300 + 1]);
        let y = b.slice(x, &[0], &[q * 300 + 1], &[q]).unwrap();
        let z = b.flip(y, &[0]).unwrap();
        let sum = b.add(y, z).unwrap();
        all.push(Case::new(q, b.finish(&[sum])));
    }
    all
}

/// The first input times each of the others.
fn many(q: usize, inputs: usize) -> Case {
    let mut b = Builder::new();
    let x: Vec<Value> = (0..inputs).map(|_| b.input(DType::F32, &[50])).collect();
    let outs: Vec<Value> = x[1..].iter().map(|&v| b.mul(x[0], v).unwrap()).collect();
    Case::new(q, b.finish(&outs))
}

fn sum_of(q: usize, _: Round) -> Vec<Case> {
    let mut b = Builder::new();
    let x: Vec<Value> = (0..q).map(|_| b.input(DType::F32, &[70])).collect();
    let sum = x[1..].iter().fold(x[0], |s, &v| b.add(s, v).unwrap());
    let e = b.unary(Unary::Tanh, sum).unwrap();
    vec![Case::new(q, b.finish(&[e]))]
}

fn pieces(q: usize, _: Round) -> Vec<Case> {
    let mut b = Builder::new();
    let x: Vec<Value> = (0..q).map(|i| b.input(DType::F32, &[3 + i % 4, 5])).collect();
    let joined = b.concat(&x, 0).unwrap();
    let y = b.scale(joined, 2.0).unwrap();
    let rows = b.sum(joined, &[1]).unwrap();
    let mut alone = Builder::new();
    let x: Vec<Value> = (0..q).map(|i| alone.input(DType::F32, &[2 + i % 3])).collect();
    let joined = alone.concat(&x, 0).unwrap();
    let total = alone.sum(joined, &[0]).unwrap();
    vec![Case::new(q, b.finish(&[y, rows])), Case::new(q, alone.finish(&[total]))]
}

/// A value of about this cost that several results use, over different domains.
fn costly(q: usize, _: Round) -> Vec<Case> {
    vec![Case::new(
        q,
        map(&[30, 20], |b, x| {
            let v = (1..q).fold(x, |v, i| b.offset(v, i as f64 * 0.25).unwrap());
            let double = b.scale(v, 2.0).unwrap();
            let rows = b.sum(v, &[1]).unwrap();
            let turned = b.permute(v, &[1, 0]).unwrap();
            let wave = b.unary(Unary::Sin, turned).unwrap();
            vec![double, rows, wave]
        }),
    )]
}

/// The elements of a row repeated, so that large sums take little memory.
fn repeated(q: usize, round: Round) -> Vec<Case> {
    let rows = round.divide(q * 128, 4096);
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[4096]);
    let wide = b.broadcast(x, &[rows, 4096], &[1]).unwrap();
    let square = b.mul(wide, wide).unwrap();
    let y = b.sum(square, &[0, 1]).unwrap();
    vec![Case::new(rows * 4096 / 128, b.finish(&[y]))]
}

/// Elementwise ops of increasing size: their cost is a few operations per element.
fn work(q: usize, round: Round) -> Vec<Case> {
    let sizes = match round {
        Round::Down => vec![q / 30, q / 8, q / 5],
        Round::Up => vec![q / 4, q / 3, q / 2, q, 3 * q],
    };
    let mut all = Vec::new();
    for n in sizes {
        all.push(Case::new(q, map(&[n], |b, x| vec![b.mul(x, x).unwrap()])));
        all.extend(cases(q, reductions(&[n / 60 + 1, 61], &[1], DType::F32)));
        all.extend(cases(q, reductions(&[61, n / 60 + 1], &[0], DType::F32)));
        all.push(Case::new(q, softmax(&[n / 100 + 1, 101], 1)));
    }
    all
}

fn rows(q: usize, _: Round) -> Vec<Case> {
    let mut all = cases(q, reductions(&[q, 900], &[1], DType::F32));
    all.push(Case::new(q, softmax(&[q, 900], 1)));
    all.push(Case::new(q, softmax(&[2, q, 450], 2)));
    all.push(Case::new(q, map(&[q, 900], |b, x| vec![b.unary(Unary::Exp, x).unwrap()])));
    all
}

/// A filter along time over a number of lanes.
fn scan(q: usize, _: Round) -> Vec<Case> {
    let mut all = Vec::new();
    for lanes in [vec![q], vec![3, q]] {
        let mut body = Builder::new();
        let (c, x) = (body.input(DType::F32, &lanes), body.input(DType::F32, &lanes));
        let s = body.scale(c, 0.5).unwrap();
        let next = body.add(s, x).unwrap();
        let body = body.finish(&[next, next]);
        let mut b = Builder::new();
        let (c, x) = (b.input(DType::F32, &lanes), b.input(DType::F32, &[&[7][..], &lanes].concat()));
        let outs = b.emit(Scan::over(0, 1, 7, body).into(), &[c, x]).unwrap();
        all.push(Case::new(q, b.finish(&outs)));
    }
    all
}

pub(super) const MAKERS: &[(&str, Maker)] = &[
    ("kernel.parts", joined),
    ("codegen.near", strided),
    ("codegen.lanes", lanes),
    ("codegen.copies", lanes),
    ("kernel.buffers", |q, round| vec![many(q, round.divide(q + 1, 2))]),
    ("kernel.reads", sum_of),
    ("kernel.results", |q, _| {
        vec![Case::new(q, map(&[60], |b, x| (1..=q).map(|i| b.scale(x, i as f64).unwrap()).collect()))]
    }),
    ("kernel.cuts", pieces),
    ("kernel.row_scratch", |q, _| vec![Case::new(q, softmax(&[33, q], 1))]),
    ("keep.costly", costly),
    ("partials.least", |q, round| {
        let mut all = cases(q, reductions(&[q], &[0], DType::F32));
        let n = round.divide(q, 8);
        all.extend(cases(n * 8, reductions(&[n, 8], &[0], DType::F32)));
        all.extend(cases(n * 8, reductions(&[2, n, 4], &[1], DType::BF16)));
        all
    }),
    ("partials.few", |q, _| cases(q, reductions(&[q, 9001], &[1], DType::F32))),
    ("partials.block", repeated),
    ("schedule.parallel", work),
    ("schedule.chunks", rows),
    ("schedule.few_rows", |q, _| {
        let mut all = cases(q, reductions(&[q, 9001], &[0], DType::F32));
        all.push(Case::new(q, map(&[q, 9000], |b, x| vec![b.unary(Unary::Exp, x).unwrap()])));
        all.push(Case::new(q, softmax(&[q, 9, 700], 1)));
        all
    }),
    ("schedule.block", |q, _| {
        // Expensive enough that few elements are split over threads.
        let waves = |b: &mut Builder, x| (0..8).fold(x, |x, _| b.unary(Unary::Tanh, x).unwrap());
        vec![Case::new(q, map(&[q], |b, x| vec![waves(b, x)])), Case::new(q, map(&[3, q], |b, x| vec![waves(b, x)]))]
    }),
    ("schedule.block_of_sums", |q, _| {
        let mut all = cases(q, reductions(&[900, q], &[0], DType::F32));
        all.extend(cases(q, reductions(&[2, 700, q], &[1], DType::F64)));
        all.push(Case::new(q, softmax(&[900, q], 0)));
        all
    }),
    ("schedule.short_row", |q, _| [3, 61, 300].into_iter().flat_map(|n| short_rows(q, n, q)).collect()),
    ("schedule.row_sum", |q, _| {
        let of = |n: usize| normalised(&[n, q]);
        [3, 61, 300].map(of).into_iter().map(|g| Case::new(q, g)).collect()
    }),
    ("schedule.row_vector", |q, _| {
        let of = |n: usize| standardised(&[n, q]);
        [3, 61, 300].map(of).into_iter().map(|g| Case::new(q, g)).collect()
    }),
    ("schedule.abreast", |q, _| [2, 5, 8, 19].into_iter().flat_map(|n| short_rows(q, q, n)).collect()),
    ("schedule.abreast_block", |q, round| {
        let rows = |n| (round.divide(q, n), n);
        [2, 7, 19, 32].map(rows).into_iter().flat_map(|(rows, n)| short_rows(rows * n, rows, n)).collect()
    }),
    ("schedule.scan_lanes", scan),
    ("schedule.scan_whole", scan),
    ("sums.vector_block", |q, _| {
        let mut all = cases(q, reductions(&[40, q], &[1], DType::F32));
        all.push(Case::new(q, softmax(&[40, q], 1)));
        all.extend(cases(q, reductions(&[40, q], &[1], DType::F16)));
        all
    }),
    ("sums.serial_block", |q, _| {
        let mut all = cases(q, reductions(&[q, 70], &[0], DType::F32));
        all.extend(cases(q, reductions(&[6, q, 40], &[1], DType::F64)));
        all.push(Case::new(q, softmax(&[q, 40], 0)));
        all
    }),
];
