//! Elements that only move: transposes, flips, strided slices and what they make together, of every size of element, with the
//! vectors of each instruction set, on several thread counts. The interpreter's bits.

mod harness;

use cpu::Cpu;
use cpu::codegen::Target;
use harness::{Random, run, same};
use ir::{Build, Builder, DType, Graph, interp};

const DTYPES: [DType; 6] = [DType::U8, DType::Bool, DType::BF16, DType::F32, DType::F64, DType::I64];

fn backends() -> Vec<Cpu> {
    let targets = match Target::detect() {
        Some(Target::Avx512) => vec![Target::Avx2, Target::Avx512],
        other => other.into_iter().collect(),
    };
    targets.into_iter().flat_map(|t| [1, 2, 3, 16].map(|n| Cpu::with_target(n, Some(t)))).collect()
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
