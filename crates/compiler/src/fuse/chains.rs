//! Tests of chains of writes through views: each write reads the result of the previous one in two places. The compile time and
//! the size of the output must grow with the number of writes, not with the number of paths through them.

use super::generate::WRITTEN;
use crate::loops::Stmt;
use crate::program::Step;
use crate::target::{KernelLimits, LoopSchedule};
use crate::{Options, Target, compile};
use ir::{Builder, DType, Graph, GraphBuilder, Scalar, Type, Value};

#[path = "../../tests/plain/mod.rs"]
mod plain;

const N: usize = 128;

/// A range of elements along an axis: the start, the end, and the step.
type Range = (usize, usize, usize);

/// Replaces `view(x)` in `x` by `view(x) + c`, where the view is a slice, with the same ops as `engine::view::put`.
fn put(b: &mut Builder, x: Value, ranges: &[Range], new: impl FnOnce(&mut Builder, Value) -> Value) -> Value {
    let ty = b.ty(x);
    let of = |f: fn(&Range) -> usize| -> Vec<usize> { ranges.iter().map(f).collect() };
    let (start, limit, stride) = (of(|r| r.0), of(|r| r.1), of(|r| r.2));
    let seen = b.slice(x, &start, &limit, &stride).unwrap();
    let new = new(b, seen);
    let low: Vec<i64> = start.iter().map(|&i| i as i64).collect();
    let inner = b.ty(new);
    let last = |a: usize| start[a] + (inner.shape[a] - 1) * stride[a];
    let high: Vec<i64> = (0..ranges.len()).map(|a| (ty.shape[a] - 1 - last(a)) as i64).collect();
    let interior: Vec<usize> = stride.iter().map(|s| s - 1).collect();
    let zero = b.zeros(&Type::scalar(ty.dtype)).unwrap();
    let wide = b.pad(new, zero, &low, &high, &interior).unwrap();
    let here = b.full(&inner.with_dtype(DType::Bool), Scalar::bool(true)).unwrap();
    let nowhere = b.zeros(&Type::scalar(DType::Bool)).unwrap();
    let mask = b.pad(here, nowhere, &low, &high, &interior).unwrap();
    b.select(mask, wide, x).unwrap()
}

fn add(c: usize) -> impl Fn(&mut Builder, Value) -> Value {
    move |b, x| b.offset(x, 1.0 + c as f64).unwrap()
}

/// Adds the `k`-th write to a graph.
type Write = fn(&mut Builder, Value, usize) -> Value;

/// The kinds of writes, and the shape of the tensor that is written to.
const WRITES: &[(&str, &[usize], Write)] = &[
    ("x[k:k+1] += c", &[N], |b, x, k| put(b, x, &[(k, k + 1, 1)], add(k))),
    ("x[k] += c", &[N], |b, x, k| {
        put(b, x, &[(k, k + 1, 1)], |b, x| {
            let one = b.reshape(x, &[]).unwrap();
            let sum = add(k)(b, one);
            b.reshape(sum, &[1]).unwrap()
        })
    }),
    ("x[k:] *= x[k:]", &[N], |b, x, k| put(b, x, &[(k, N, 1)], |b, x| b.mul(x, x).unwrap())),
    ("x[k:k+7] += c", &[N + 7], |b, x, k| put(b, x, &[(k, k + 7, 1)], add(k))),
    ("x[k::2] += c", &[2 * N], |b, x, k| put(b, x, &[(k, 2 * N, 2)], add(k))),
    ("x[k::3] += c", &[3 * N], |b, x, k| put(b, x, &[(k % 5, 3 * N, 3)], add(k))),
    ("x[k, :] += c", &[N, 3], |b, x, k| put(b, x, &[(k, k + 1, 1), (0, 3, 1)], add(k))),
    ("x[:, k] += c", &[3, N], |b, x, k| put(b, x, &[(0, 3, 1), (k, k + 1, 1)], add(k))),
    ("x[i:i+1, j:j+1] += c", &[16, 8], |b, x, k| {
        let (i, j) = (k / 8, k % 8);
        put(b, x, &[(i, i + 1, 1), (j, j + 1, 1)], add(k))
    }),
    ("x[k:k+1] = exp(x[k:k+1])", &[N], |b, x, k| {
        put(b, x, &[(k, k + 1, 1)], |b, x| b.unary(ir::Unary::Exp, x).unwrap())
    }),
    ("x[k:k+1] += x[0:1]", &[N], |b, x, k| {
        let first = b.slice(x, &[0], &[1], &[1]).unwrap();
        put(b, x, &[(k, k + 1, 1)], |b, x| b.add(x, first).unwrap())
    }),
    ("x.T[k:k+1] += c", &[4, N], |b, x, k| {
        let t = b.permute(x, &[1, 0]).unwrap();
        let t = put(b, t, &[(k, k + 1, 1), (0, 4, 1)], add(k));
        b.permute(t, &[1, 0]).unwrap()
    }),
    ("x.flip(0)[k:k+1] += c", &[N], |b, x, k| {
        let t = b.flip(x, &[0]).unwrap();
        let t = put(b, t, &[(k, k + 1, 1)], add(k));
        b.flip(t, &[0]).unwrap()
    }),
    ("x.view(2, -1)[:, k:k+1] += c", &[2 * N], |b, x, k| {
        let t = b.reshape(x, &[2, N]).unwrap();
        let t = put(b, t, &[(0, 2, 1), (k, k + 1, 1)], add(k));
        b.reshape(t, &[2 * N]).unwrap()
    }),
    ("x = concat(x[:k], x[k:k+1] + c, x[k+1:])", &[N], |b, x, k| {
        let part = |b: &mut Builder, from, to| b.slice(x, &[from], &[to], &[1]).unwrap();
        let (low, here, high) = (part(b, 0, k), part(b, k, k + 1), part(b, k + 1, N));
        let here = add(k)(b, here);
        b.concat(&[low, here, high], 0).unwrap()
    }),
    ("x = dynamic_update_slice(x, x[k:k+1] + c, i + k)", &[N], |b, x, k| {
        let part = b.slice(x, &[k], &[k + 1], &[1]).unwrap();
        let part = add(k)(b, part);
        let at = b.constant(ir::Literal::scalar(Scalar::from_i64(DType::I32, k as i64))).unwrap();
        b.dynamic_update_slice(x, part, &[at]).unwrap()
    }),
];

fn chain(shape: &[usize], write: Write, count: usize) -> Graph {
    let mut b = Builder::new();
    let mut x = b.input(DType::F32, shape);
    for k in 0..count {
        x = write(&mut b, x, k);
    }
    b.finish(&[x])
}

/// The number of generated expressions, and the number of steps plus the ops of their kernels.
fn work(graph: &Graph, target: &Target) -> [usize; 2] {
    WRITTEN.set(0);
    let program = compile(graph, &plain::Plain(target.clone()), &Options::default()).unwrap();
    let size = |s: &Step| match s {
        Step::Kernel { kernel, .. } => 1 + ops(&kernel.body),
        _ => 1,
    };
    [WRITTEN.get(), program.steps.iter().map(size).sum()]
}

fn ops(body: &[Stmt]) -> usize {
    body.iter().map(|s| 1 + if let Stmt::Loop(l) = s { ops(&l.body) } else { 0 }).sum()
}

#[test]
fn the_work_of_writes_grows_with_their_number() {
    let cpu = plain::TARGET;
    let grid = Target {
        schedule: LoopSchedule::Grid,
        kernel: KernelLimits { max_space_splits: 0, ..cpu.kernel },
        ..cpu.clone()
    };
    for target in [cpu, grid] {
        for (name, shape, write) in WRITES {
            let mut before = [usize::MAX / 4; 2];
            for count in [8, 16, 32, 64, 128] {
                let now = work(&chain(shape, *write, count), &target);
                let text = format!("{count} writes `{name}` take {now:?}, half as many {before:?}");
                assert!(now[0] <= 2000 * count && now[1] <= 50 * count, "{text}");
                // A kernel is generated again for each result that joins it, up to 24 results; below that number the work grows
                // faster than linearly.
                if count > 4 * target.kernel.max_results {
                    assert!((0..2).all(|i| 10 * now[i] <= 25 * before[i]), "{text}");
                }
                before = now;
            }
        }
    }
}
