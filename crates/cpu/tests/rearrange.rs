//! Ops that only move elements: transposes, flips, strided slices and their combinations, with every element size, with the
//! vectors of each instruction set, on several thread counts. The bits equal the interpreter's.

mod harness;

use harness::{Random, run, same};
use ir::ops::gather::GatherMode;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, interp};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

const DTYPES: [DType; 6] = [DType::U8, DType::Bool, DType::BF16, DType::F32, DType::F64, DType::I64];

fn backends() -> Vec<Cpu> {
    Target::available().into_iter().flat_map(|t| [1, 2, 3, 16].map(|n| Cpu::with_target(n, Some(t)))).collect()
}

fn check(what: &str, graph: &Graph, backends: &[Cpu], r: &mut Random) {
    let x: Vec<_> = graph.input_types().iter().map(|t| r.literal(t)).collect();
    let want = interp::run(graph, &x).unwrap();
    for cpu in backends {
        same(what, &run(cpu, graph, &x, true), &want);
    }
}

fn order(r: &mut Random, rank: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..rank).collect();
    (1..rank).for_each(|i| all.swap(i, r.below(i + 1)));
    all
}

#[test]
fn random_rearrangements() {
    let (backends, mut r) = (backends(), Random(5));
    let sizes = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 70];
    for round in 0..120 {
        let rank = 1 + r.below(4);
        let mut shape: Vec<usize> = (0..rank).map(|_| sizes[r.below(sizes.len())]).collect();
        while shape.iter().product::<usize>() > 60_000 {
            shape[r.below(rank)] = 2;
        }
        let dtype = DTYPES[r.below(DTYPES.len())];
        let mut b = Builder::new();
        let mut v = b.input(dtype, &shape);
        for _ in 0..1 + r.below(2) {
            let shape = b.ty(v).shape.to_vec();
            v = match r.below(4) {
                0 => b.flip(v, &[r.below(rank)]).unwrap(),
                1 => {
                    let axis = r.below(rank);
                    let (mut start, mut stride) = (vec![0; rank], vec![1; rank]);
                    start[axis] = r.below(shape[axis]);
                    stride[axis] = 1 + r.below(5);
                    b.slice(v, &start, &shape, &stride).unwrap()
                }
                _ => b.permute(v, &order(&mut r, rank)).unwrap(),
            };
        }
        let what = format!("round {round}: {dtype} {shape:?}");
        check(&what, &b.finish(&[v]), &backends, &mut r);
    }
}

/// Copied lines: parts with one or several widths side by side, few and many, with space around them.
#[test]
fn concatenations_and_pads() {
    let (backends, mut r) = (backends(), Random(21));
    let sizes = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70];
    for round in 0..100 {
        let rank = 1 + r.below(3);
        let axis = r.below(rank);
        let mut shape: Vec<usize> = (0..rank).map(|_| sizes[r.below(sizes.len())]).collect();
        let count = [1, 2, 3, 7, 9, 16, 40][r.below(7)];
        while shape.iter().product::<usize>() * count > 100_000 {
            shape[r.below(rank)] = 2;
        }
        let (dtype, even) = (DTYPES[r.below(DTYPES.len())], r.below(2) == 0);
        let mut b = Builder::new();
        let mut parts = vec![];
        for _ in 0..count {
            let mut own = shape.clone();
            own[axis] = if even { shape[axis] } else { r.below(2 * shape[axis] + 1) };
            parts.push(b.input(dtype, &own));
        }
        let all = b.concat(&parts, axis).unwrap();
        let (twice, zero) = (b.concat(&[all, all], r.below(rank)).unwrap(), b.scalar(dtype, 0.0).unwrap());
        let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
        (low[r.below(rank)], high[r.below(rank)]) = (r.below(4) as i64, r.below(4) as i64);
        let around = b.pad(all, zero, &low, &high, &vec![0; rank]).unwrap();
        let what = format!("round {round}: {count} of {dtype} {shape:?} along {axis}");
        check(&what, &b.finish(&[all, twice, around]), &backends, &mut r);
    }
    // Lines on both sides of the length from which another copy algorithm is used.
    for (rows, size) in
        [(3, 4095), (3, 4096), (3, 4097), (1, 9000), (40, 127), (40, 128), (40, 256), (9, 1023), (9, 1024)]
    {
        for dtype in DTYPES {
            let mut b = Builder::new();
            let x = b.input(dtype, &[rows, size]);
            let (twice, turned) = (b.concat(&[x, x], 1).unwrap(), b.flip(x, &[0]).unwrap());
            check(&format!("{dtype} {rows} × {size}"), &b.finish(&[twice, turned]), &backends, &mut r);
        }
    }
}

/// Elements and rows gathered along any axis, by indices inside and outside of the range.
#[test]
fn lookups() {
    let (backends, mut r) = (backends(), Random(8));
    let sizes = [1, 2, 3, 4, 7, 8, 16, 17, 33, 130];
    for round in 0..80 {
        let rank = 1 + r.below(3);
        let mut shape: Vec<usize> = (0..rank).map(|_| sizes[r.below(sizes.len())]).collect();
        while shape.iter().product::<usize>() > 20_000 {
            shape[r.below(rank)] = 2;
        }
        let axis = r.below(rank);
        let (dtype, n) = (DTYPES[r.below(DTYPES.len())], [1, 5, 64, 300, 2100][r.below(5)]);
        let index = [DType::I32, DType::I64][r.below(2)];
        let mut b = Builder::new();
        let x = b.input(dtype, &shape);
        let along = r.below(2) == 0;
        let mut places = shape.clone();
        places[axis] = if shape.iter().product::<usize>() / shape[axis] * n > 60_000 { 3 } else { n };
        let at = b.input(index, if along { &places } else { &places[axis..axis + 1] });
        let v = match along {
            true => b.take_along_axis(x, at, axis, GatherMode::Clip).unwrap(),
            false => b.take(x, at, axis, GatherMode::Clip).unwrap(),
        };
        let graph = b.finish(&[v]);
        let what = format!("round {round}: {dtype} {shape:?} along {axis} by {n} of {index}, each its own: {along}");
        let mut inputs: Vec<_> = graph.input_types().iter().map(|t| r.literal(t)).collect();
        let most = shape[axis] + 4;
        let place = |_| Scalar::from_i64(index, r.below(most) as i64 - 2);
        inputs[1] = Literal::from_fn(inputs[1].ty().clone(), place);
        let want = interp::run(&graph, &inputs).unwrap();
        for cpu in &backends {
            same(&what, &run(cpu, &graph, &inputs, true), &want);
        }
    }
}

#[test]
fn long_lines_are_shared_out() {
    let (backends, mut r) = (backends(), Random(6));
    for dtype in [DType::U8, DType::BF16, DType::F32, DType::F64] {
        for shape in [&[3, 41_003][..], &[41_003, 3], &[331, 517], &[517, 331], &[4, 65, 800], &[7, 30_001], &[8193, 8]]
        {
            let rank = shape.len();
            let mut b = Builder::new();
            let x = b.input(dtype, shape);
            let moved = b.move_axis(x, rank - 2, rank - 1).unwrap();
            let flipped = b.flip(x, &[rank - 1]).unwrap();
            let mut step = vec![1; rank];
            step[rank - 1] = 2;
            let halved = b.slice(x, &vec![0; rank], shape, &step).unwrap();
            check(&format!("{dtype} {shape:?}"), &b.finish(&[moved, flipped, halved]), &backends, &mut r);
        }
    }
}
