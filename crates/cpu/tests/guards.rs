//! Random ops of odd sizes whose operands, results and scratch end at an inaccessible page. Scratch is filled with NaN before
//! each run. Results have the bits of a run in ordinary memory,
//! the same bits for any number of threads, and are close to the interpreter's.
//!
//! `TENSORLOOM_GUARDS=n` runs `n` times as many cases.
#![cfg(unix)]

mod harness;

use compiler::{ALIGN, Bindings, DeviceBuffer};
use harness::guarded::{Side, guarded};
use harness::{Random, close, load, read, run, same};
use ir::ops::*;
use ir::{Builder, DType, Graph, GraphBuilder, Op, Shape, Type, Unary, interp};
use std::sync::Arc;
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

/// Returns backends for each instruction set, with several thread counts.
fn backends() -> Vec<Vec<Cpu>> {
    Target::available().into_iter().map(|t| [1, 2, 3].map(|n| Cpu::with_target(n, Some(t))).into()).collect()
}

/// Runs a graph in guarded and in ordinary memory;
/// `tolerance` is the tolerance for the interpreter's results, if the results are unique.
fn check(what: &str, graph: &Graph, backends: &[Vec<Cpu>], r: &mut Random, tolerance: Option<f64>) {
    let x: Vec<_> = graph.input_types().iter().map(|t| r.literal(t)).collect();
    let want = tolerance.map(|t| (interp::run(graph, &x).unwrap(), t));
    for cpus in backends {
        let usual = run(&cpus[0], graph, &x, true);
        if let Some((want, tolerance)) = &want {
            close(what, &usual, want, *tolerance);
        }
        for (i, cpu) in cpus.iter().enumerate() {
            let exe = load(cpu, graph, true);
            let program = exe.program();
            let make =
                |t: &Type| Arc::new(guarded(t.bytes(), t.dtype.size(), 0xff, Side::End)) as Arc<dyn DeviceBuffer>;
            let mut b = Bindings {
                inputs: program.inputs.iter().map(make).collect(),
                outputs: program.outputs.iter().map(make).collect(),
            };
            b.inputs.iter().zip(&x).for_each(|(to, x)| to.write(0, x.bytes()).unwrap());
            let mut arena = guarded(exe.arena_bytes(), ALIGN, 0xff, Side::End);
            exe.run_with_arena(&mut b, &mut arena, 0..program.steps.len()).unwrap();
            same(&format!("{what}, backend {i}"), &read(&*exe, &b), &usual);
        }
    }
}

fn graph(op: impl Into<Op>, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op.into(), &args).unwrap();
    b.finish(&outs)
}

fn times() -> usize {
    std::env::var("TENSORLOOM_GUARDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

fn any<T: Copy>(r: &mut Random, of: &[T]) -> T {
    of[r.below(of.len())]
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 2e-5,
    }
}

/// Returns random windows that fit a base: dilated inputs and windows, strides, and padding that may be negative.
fn windows(r: &mut Random, base: &[usize], window: &[usize]) -> WindowConfig {
    let rank = base.len();
    let mut w = WindowConfig::unit_stride(rank);
    for a in 0..rank {
        w.strides[a] = any(r, &[1, 1, 2, 3]);
        w.base_dilation[a] = any(r, &[1, 1, 2, 2, 3]);
        w.window_dilation[a] = any(r, &[1, 1, 1, 2]);
        w.low[a] = any(r, &[0, 0, 1, 2, -1, 5]);
        w.high[a] = any(r, &[0, 0, 1, 3, -1]);
        // Wide enough for one window.
        let spread = (base[a].max(1) as i64 - 1) * w.base_dilation[a] as i64 + 1;
        let wide = (window[a] as i64 - 1) * w.window_dilation[a] as i64 + 1;
        w.high[a] += (wide - (spread + w.low[a] + w.high[a])).max(0);
    }
    w
}

#[test]
fn convolutions() {
    let (backends, mut r) = (backends(), Random(41));
    for round in 0..70 * times() {
        let rank = any(&mut r, &[1, 2, 2, 2, 2, 3]);
        let dtype = any(&mut r, &[DType::F32, DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16]);
        let groups = any(&mut r, &[1, 1, 1, 1, 2, 5]);
        let (images, outs) = (any(&mut r, &[1, 2, 3, 7]), groups * any(&mut r, &[1, 2, 3, 4, 9]));
        let features = any(&mut r, &[1, 2, 3, 5, 8, 17]);
        let base: Vec<usize> = (0..rank).map(|_| any(&mut r, &[1, 2, 3, 4, 5, 7, 8, 11, 16, 17])).collect();
        let mut window: Vec<usize> = (0..rank).map(|_| any(&mut r, &[1, 1, 2, 3, 3, 4, 5])).collect();
        let mut conv = Conv { groups, ..Conv::new(dtype, windows(&mut r, &base, &window)) };
        match r.below(6) {
            // One window over the whole input, or windows of one element: such axes are merged.
            0 => (window, conv.windows) = (base.clone(), WindowConfig::unit_stride(rank)),
            1 => (window, conv.windows) = (vec![1; rank], WindowConfig::unit_stride(rank)),
            _ => {}
        }
        let (x, k) = ([&[images, groups * features], &base[..]].concat(), [&[outs, features], &window[..]].concat());
        let what = format!("round {round}: {conv:?} of {x:?} and {k:?} in {dtype}");
        let forward = graph(conv, &[Type::new(dtype, &x), Type::new(dtype, &k)]);
        check(&what, &forward, &backends, &mut r, Some(tolerance(dtype)));
        let back = transform::vjp(&forward, &[0, 1]).unwrap();
        check(&format!("gradients of {what}"), &back, &backends, &mut r, Some(tolerance(dtype)));
    }
}

#[test]
fn transforms() {
    let (backends, mut r) = (backends(), Random(42));
    let lengths =
        [1, 2, 3, 6, 8, 15, 16, 27, 30, 64, 90, 100, 128, 256, 257, 320, 500, 512, 540, 640, 1000, 1024, 1296];
    for round in 0..30 * times() {
        let dtype = any(&mut r, &[DType::F32, DType::F64]);
        let rank = 1 + r.below(3);
        let mut shape: Vec<usize> = (0..rank).map(|_| any(&mut r, &[1, 2, 3, 5, 9, 17])).collect();
        let mut axes = vec![r.below(rank)];
        shape[axes[0]] = any(&mut r, &lengths);
        if rank > 1 && r.below(3) == 0 {
            let other = (axes[0] + 1) % rank;
            axes.insert(r.below(2), other);
        }
        let last = axes[axes.len() - 1];
        let length = shape[last];
        let mut half = shape.clone();
        half[last] = length / 2 + 1;
        let kind = [FftKind::Forward, FftKind::Inverse, FftKind::Real, FftKind::InverseReal { length }][round % 4];
        let own = Type::new(dtype, if kind == (FftKind::InverseReal { length }) { &half } else { &shape });
        let args = if kind == FftKind::Real { vec![own] } else { vec![own.clone(), own] };
        let what = format!("round {round}: {kind:?} of {dtype} {shape:?} along {axes:?}");
        let g = graph(Fft { kind, axes: axes[..].into() }, &args);
        check(&what, &g, &backends, &mut r, Some(if dtype == DType::F32 { 1e-5 } else { 1e-12 }));
    }
}

const DTYPES: [DType; 8] =
    [DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8];

#[test]
fn routines() {
    let (backends, mut r) = (backends(), Random(43));
    let sizes = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 100, 255, 256, 257, 300];
    for round in 0..100 * times() {
        let dtype = any(&mut r, &DTYPES);
        let rank = 1 + r.below(3);
        let mut shape: Vec<usize> = (0..rank).map(|_| any(&mut r, &sizes)).collect();
        while shape.iter().product::<usize>() > 20_000 {
            shape[r.below(rank)] = 3;
        }
        let axis = r.below(rank);
        let ty = Type::new(dtype, &shape);
        let kind = any(&mut r, &[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min]);
        let flag = r.below(2) == 1;
        let (op, args): (Op, Vec<Type>) = match round % 6 {
            0 => (Cumulative { kind, axis, reverse: flag }.into(), vec![ty]),
            1 => (Sort { axis, num_keys: 1, descending: flag }.into(), vec![ty]),
            2 => {
                let mut other = shape.clone();
                other[axis] = any(&mut r, &sizes[..8]);
                (TakeAlong { axis }.into(), vec![ty, Type::new(any(&mut r, &[DType::I32, DType::I64]), &other)])
            }
            3 => {
                let index = any(&mut r, &[DType::I32, DType::I64]);
                (ArgReduce { max: flag, axis, index }.into(), vec![ty])
            }
            4 => (TopK { k: 1 + r.below(shape[axis]), axis }.into(), vec![ty]),
            _ => {
                // Slices across an axis, with different numbers of indices.
                let n = any(&mut r, &[1, 5, 40, 900]);
                let mut updates = shape.clone();
                updates[axis] = n;
                let kind = any(&mut r, &ScatterKind::ALL);
                let op = Scatter { kind, dims: SliceDims::take(rank, axis, 1), mode: ScatterMode::Drop };
                (op.into(), vec![ty, Type::new(DType::I32, &[n, 1]), Type::new(dtype, &updates)])
            }
        };
        let what = format!("round {round}: {op:?} of {dtype} {shape:?}");
        let t = if dtype.is_float() { tolerance(dtype) } else { 0.0 };
        check(&what, &graph(op, &args), &backends, &mut r, Some(t));
    }
}

#[test]
fn windows_of_all_kinds() {
    let (backends, mut r) = (backends(), Random(44));
    for round in 0..60 * times() {
        let dtype = any(&mut r, &[DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16]);
        let rank = 1 + r.below(4);
        let base: Vec<usize> = (0..rank).map(|_| any(&mut r, &[1, 2, 3, 5, 8, 9, 17, 33])).collect();
        let mut window: Vec<usize> = (0..rank).map(|_| any(&mut r, &[1, 1, 2, 3, 5])).collect();
        let mut w = windows(&mut r, &base, &window);
        // Leading axes are usually batches.
        for a in 0..rank.saturating_sub(2) {
            window[a] = 1;
            (w.strides[a], w.base_dilation[a], w.window_dilation[a], w.low[a], w.high[a]) = (1, 1, 1, 0, 0);
        }
        let what = format!("round {round}: {dtype} {base:?}, {window:?}, {w:?}");
        let (window, ty) = (Shape::from_slice(&window), Type::new(dtype, &base));
        let kind = any(&mut r, &[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]);
        let reduce = graph(ReduceWindow { kind, window: window.clone(), windows: w.clone() }, &[ty.clone()]);
        check(&what, &reduce, &backends, &mut r, Some(tolerance(dtype)));
        let max = r.below(2) == 1;
        let gather = graph(WindowGather { max, window: window.clone(), windows: w.clone() }, &[ty.clone(), ty.clone()]);
        check(&what, &gather, &backends, &mut r, Some(0.0));
        let scatter = graph(WindowScatter { max, window, windows: w }, &[ty, reduce.output_types()[0].clone()]);
        check(&what, &scatter, &backends, &mut r, Some(tolerance(dtype)));
    }
}

#[test]
fn factorisations() {
    let (backends, mut r) = (backends(), Random(45));
    for round in 0..24 * times() {
        let dtype = any(&mut r, &[DType::F32, DType::F64]);
        let (m, n) = match round % 3 {
            0 => (1 + r.below(40), 1 + r.below(40)),
            1 => (90 + r.below(50), 90 + r.below(50)),
            _ => (any(&mut r, &[16, 17, 40]) * any(&mut r, &[2, 3, 7]), any(&mut r, &[16, 17, 40])),
        };
        let batch = any(&mut r, &[1, 1, 2, 3]);
        let (m, n) = if r.below(2) == 0 { (m, n) } else { (n, m) };
        let of = |m: usize, n: usize| Type::new(dtype, &[batch, m, n]);
        let [left, lower, transpose, unit] = [0; 4].map(|_| r.below(2) == 1);
        let solve = TriangularSolve { left, lower, transpose, unit };
        // Random systems may be singular; `factorisations.rs` checks the solutions.
        let others = 1 + r.below(90);
        let cases: [(Op, Vec<Type>); 5] = [
            (Lu.into(), vec![of(m, n)]),
            (Qr { full: r.below(2) == 1 }.into(), vec![of(m, n)]),
            (Svd { vectors: r.below(3) > 0 }.into(), vec![of(m, n)]),
            (Cholesky.into(), vec![of(n, n)]),
            (solve.into(), vec![of(n, n), if left { of(n, others) } else { of(others, n) }]),
        ];
        for (op, args) in cases {
            check(&format!("round {round}: {op:?} of {args:?}"), &graph(op, &args), &backends, &mut r, None);
        }
    }
    for n in [1, 2, 30, 97, 130, 201, 263] {
        for dtype in [DType::F32, DType::F64] {
            let g = graph(Eigh, &[Type::new(dtype, &[n, n])]);
            check(&format!("eigenvalues of {dtype} {n}"), &g, &backends, &mut r, None);
        }
    }
}

#[test]
fn functions_and_products() {
    let (backends, mut r) = (backends(), Random(46));
    for (i, &op) in Unary::ALL.iter().enumerate() {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let n = [1, 3, 7, 9, 15, 17, 31, 65, 1003][(i + dtype.size()) % 9];
            let mut b = Builder::new();
            let x = b.input(dtype, &[n]);
            let Ok(y) = b.unary(op, x) else { continue };
            check(&format!("{op:?} of {dtype} {n}"), &b.finish(&[y]), &backends, &mut r, None);
        }
    }
    for round in 0..50 * times() {
        let [m, k, n] = [0; 3].map(|_| any(&mut r, &[1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 70]));
        let (dtype, out) = any(
            &mut r,
            &[
                (DType::F32, DType::F32),
                (DType::F64, DType::F64),
                (DType::BF16, DType::BF16),
                (DType::BF16, DType::F32),
                (DType::I8, DType::I32),
                (DType::F16, DType::F16),
            ],
        );
        let mut b = Builder::new();
        let turned = [r.below(2) == 1, r.below(2) == 1];
        let shape = |turned: bool, m: usize, n: usize| if turned { [n, m] } else { [m, n] };
        let (x, y) = (b.input(dtype, &shape(turned[0], m, k)), b.input(dtype, &shape(turned[1], k, n)));
        let x = if turned[0] { b.permute(x, &[1, 0]).unwrap() } else { x };
        let y = if turned[1] { b.permute(y, &[1, 0]).unwrap() } else { y };
        let z = b.one(Dot { acc: out.accumulator(), out, ..Dot::matmul(dtype) }.into(), &[x, y]).unwrap();
        let what = format!("round {round}: {m}x{k}x{n} of {dtype} to {out}, turned {turned:?}");
        let t = if out == DType::I32 { 0.0 } else { tolerance(out) };
        check(&what, &b.finish(&[z]), &backends, &mut r, Some(t));
    }
}
