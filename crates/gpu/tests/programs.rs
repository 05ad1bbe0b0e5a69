//! Kernels with the structure of real programs: parallel rows, scratch between the loops of a row, columns, scans over many
//! lanes; and the table of all ops.

mod grids;

use cpu::Cpu;
use grids::device::Device;
use grids::{Arg, Seen, agrees, kernels};
use ir::ops::{ReduceKind, Scan, ScanCheckpoint};
use ir::{Builder, Compare, DType, Graph, GraphBuilder, Op, Scalar, Type, Unary, Value};
use std::sync::Arc;
use tensorloom_gpu::grid::{self, GridLimits, LaunchInfo};
use testing::{Rng, rng::run_seed};

fn graph(inputs: &[(DType, &[usize])], f: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Vec<Value>>) -> Graph {
    let mut b = Builder::new();
    let args: Vec<Value> = inputs.iter().map(|(d, s)| b.graph.input(Type::new(*d, s))).collect();
    let outs = f(&mut b, &args).unwrap();
    b.finish(&outs)
}

fn softmax(d: DType, shape: &[usize]) -> Graph {
    graph(&[(d, shape)], |b, x| {
        let c = ir::composites::softmax::softmax(&Type::new(d, shape))?;
        Ok(vec![b.one(Op::Composite(c), &[x[0]])?])
    })
}

fn layernorm(d: DType, shape: &[usize]) -> Graph {
    let n = shape[shape.len() - 1];
    graph(&[(d, shape), (d, &[n]), (d, &[n])], |b, x| {
        let w = Type::new(d, &[n]);
        let c = ir::composites::norm::layernorm(&Type::new(d, shape), Some(&w), Some(&w), 1e-5)?;
        Ok(vec![b.emit(Op::Composite(c), x)?[0]])
    })
}

/// A scan over time with this many lanes.
fn scan(lanes: usize, length: usize, bounded: bool) -> Graph {
    let body = graph(&[(DType::F32, &[lanes]), (DType::F32, &[lanes])], |b, x| {
        let t = b.unary(Unary::Tanh, x[0])?;
        let next = b.add(t, x[1])?;
        Ok(vec![next, t])
    });
    let count: &[usize] = &[];
    let mut inputs: Vec<(DType, &[usize])> = vec![];
    if bounded {
        inputs.push((DType::I32, count));
    }
    let all = [length, lanes];
    inputs.extend([(DType::F32, &all[1..]), (DType::F32, &all[..])]);
    graph(&inputs, |b, x| {
        let scan = Scan {
            consts: 0,
            carries: 1,
            length,
            reverse: false,
            bounded,
            checkpoint: ScanCheckpoint::All,
            body: Arc::new(body),
        };
        Ok(b.emit(Op::Scan(scan), x)?.to_vec())
    })
}

fn table() -> Vec<(&'static str, Graph)> {
    use DType::*;
    let map = |d: DType, shape: &[usize]| {
        graph(&[(d, shape), (d, shape)], |b, x| {
            let y = b.mul(x[0], x[1])?;
            let z = b.unary(Unary::Logistic, y)?;
            Ok(vec![b.add(z, x[0])?])
        })
    };
    let reduce = |kind: ReduceKind, d: DType, shape: &[usize], axes: &[usize]| {
        graph(&[(d, shape)], |b, x| Ok(vec![b.reduce(kind, x[0], axes)?]))
    };
    vec![
        ("a long map", map(F32, &[40_000])),
        ("a long map of odd length", map(F32, &[40_001])),
        ("a map of bf16", map(BF16, &[7, 4000])),
        ("rows", map(F16, &[100, 333])),
        (
            "a transpose",
            graph(&[(F32, &[96, 130])], |b, x| {
                let y = b.unary(Unary::Sqrt, x[0])?;
                Ok(vec![b.permute(y, &[1, 0])?])
            }),
        ),
        ("softmax of long rows", softmax(F32, &[9, 3000])),
        ("softmax of short rows", softmax(F32, &[2000, 12])),
        ("softmax of bf16", softmax(BF16, &[64, 257])),
        ("softmax of four axes", softmax(F32, &[3, 5, 17, 64])),
        ("layernorm", layernorm(F32, &[70, 300])),
        ("layernorm of bf16", layernorm(BF16, &[5, 9, 256])),
        ("sums of rows", reduce(ReduceKind::Sum, F32, &[60, 700], &[1])),
        ("sums of columns", reduce(ReduceKind::Sum, F32, &[300, 129], &[0])),
        ("sums of a middle axis", reduce(ReduceKind::Sum, F32, &[12, 40, 64], &[1])),
        ("a sum of all", reduce(ReduceKind::Sum, F32, &[50_000], &[0])),
        ("a product of integers", reduce(ReduceKind::Prod, I32, &[30, 500], &[1])),
        ("the largest of i64", reduce(ReduceKind::Max, I64, &[30, 500], &[1])),
        ("the place of the largest", graph(&[(F32, &[40, 300])], |b, x| Ok(vec![b.argmax(x[0], 1, I32)?]))),
        (
            "padding and concatenation",
            graph(&[(F32, &[50, 40]), (F32, &[50, 30])], |b, x| {
                let zero = b.scalar(F32, 0.0)?;
                let p = b.pad(x[0], zero, &[1, 2], &[3, 0], &[0, 0])?;
                let q = b.pad(x[1], zero, &[4, 0], &[0, 0], &[0, 0])?;
                Ok(vec![b.concat(&[p, q], 1)?])
            }),
        ),
        (
            "rows taken by number",
            graph(&[(F32, &[50, 64]), (I32, &[700])], |b, x| {
                Ok(vec![b.take(x[0], x[1], 0, ir::ops::GatherMode::Clip)?])
            }),
        ),
        (
            "a mask",
            graph(&[(F32, &[30, 1500]), (I32, &[30])], |b, x| {
                let i = b.iota(I32, &[30, 1500], 1)?;
                let n = b.broadcast(x[1], &[30, 1500], &[0])?;
                let m = b.compare(Compare::Lt, i, n)?;
                let kept = b.zero_unless(m, x[0])?;
                Ok(vec![kept, b.sum(kept, &[1])?])
            }),
        ),
        ("a scan of few lanes", scan(100, 40, false)),
        ("a scan of many lanes", scan(2048, 20, false)),
        ("a bounded scan", scan(2048, 20, true)),
        ("a bounded scan of few lanes", scan(33, 20, true)),
    ]
}

#[test]
fn kernels_of_programs_are_what_the_reference_computes() {
    let mut rng = Rng::new(run_seed());
    let mut seen = Seen::default();
    for (name, g) in table() {
        for _ in 0..2 {
            let device = Device::random(&mut rng);
            for case in kernels(&g, &device, vec![(0, 0)]).unwrap() {
                agrees(&case, &mut rng, &mut seen).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
    }
    println!("{seen:?}");
    assert!(seen.skipped == 0 && seen.waiting > 5 && seen.aliased > 0, "{seen:?}");
}

#[test]
fn kernels_of_every_op_are_what_the_reference_computes() {
    let mut rng = Rng::new(run_seed());
    let mut seen = Seen::default();
    for row in testing::samples::all_samples() {
        let device = Device::random(&mut rng);
        for case in kernels(&row.graph, &device, Vec::new()).unwrap_or_default() {
            agrees(&case, &mut rng, &mut seen).unwrap_or_else(|e| panic!("{}: {e}", row.name));
        }
    }
    println!("{seen:?}");
    assert!(seen.kernels > 300, "{seen:?}");
}

/// A random permutation of a random shape, optionally with an operand in the order of the result.
fn permuted(rng: &mut Rng) -> Graph {
    let rank = 2 + rng.below(3);
    let mut left = 6000;
    let mut shape = Vec::new();
    for _ in 0..rank {
        let n = (*rng.pick(&[1usize, 2, 5, 7, 15, 16, 17, 31, 32, 33, 64, 100, 129])).min(left);
        left = (left / n).max(1);
        shape.push(n);
    }
    let mut order: Vec<usize> = (0..rank).collect();
    (1..rank).rev().for_each(|i| order.swap(i, rng.below(i + 1)));
    let turned: Vec<usize> = order.iter().map(|&k| shape[k]).collect();
    let d = *rng.pick(&[DType::F32, DType::BF16, DType::U8, DType::I64, DType::Bool]);
    let twice = d != DType::Bool && rng.bernoulli(0.5);
    let inputs = [(d, &shape[..]), (d, &turned[..])];
    graph(&inputs[..1 + twice as usize], |b, x| {
        let y = b.permute(x[0], &order)?;
        Ok(vec![if twice { b.mul(y, x[1])? } else { y }])
    })
}

#[test]
fn permutations_of_every_kind_are_what_the_reference_computes() {
    let seed = run_seed();
    let mut seen = Seen::default();
    let mut tiled = 0;
    for k in 0..150 {
        let mut rng = Rng::new(seed.wrapping_add(k));
        let g = permuted(&mut rng);
        for case in kernels(&g, &Device::grid(), Vec::new()).unwrap() {
            agrees(&case, &mut rng, &mut seen).unwrap_or_else(|e| panic!("TENSORLOOM_SEED={}: {e}", seed + k));
            let cuda = grid::lower(&case.kernel, &GridLimits::CUDA, &case.given).unwrap();
            tiled += (cuda.threads / cuda.teams <= 32 && cuda.teams >= 8) as usize;
        }
    }
    println!("{seen:?}, {tiled} by tiles on CUDA");
    assert!(seen.kernels > 100 && tiled > 10, "{seen:?}, {tiled}");
}

/// How a kernel of a graph is distributed on a CUDA device: threads of a block, teams, blocks, whether they use barriers.
fn spread(g: &Graph) -> Vec<String> {
    let cpu = Cpu::with_target(1, None);
    let mut out = Vec::new();
    for case in kernels(g, &cpu, Vec::new()).unwrap() {
        let given = LaunchInfo { aligned: vec![16; case.kernel.buffers.len()], ..LaunchInfo::default() };
        let g = grid::lower(&case.kernel, &GridLimits::CUDA, &given).unwrap();
        let text = g.to_string();
        let wait = if text.contains("barrier\n") {
            ", block waits"
        } else if text.contains("exchange") || text.contains("barrier") {
            ", subgroup waits"
        } else {
            ""
        };
        let (lanes, wide) = (g.threads / g.teams, grids::lanes::width(&g.body));
        out.push(format!("{} blocks of {} teams of {lanes} lanes, {wide} at once{wait}", g.blocks(&[]), g.teams));
    }
    out
}

#[test]
fn work_is_spread_over_the_whole_device() {
    let check = |g: Graph, expected: &[&str]| assert_eq!(spread(&g), expected);
    let map = |shape: &[usize]| graph(&[(DType::F32, shape)], |b, x| Ok(vec![b.unary(Unary::Tanh, x[0])?]));
    check(map(&[1 << 22]), &["1024 blocks of 1 teams of 256 lanes, 4 at once"]);
    check(map(&[1000]), &["4 blocks of 1 teams of 256 lanes, 1 at once"]);
    check(softmax(DType::F32, &[4096, 1024]), &["512 blocks of 8 teams of 32 lanes, 4 at once, subgroup waits"]);
    check(softmax(DType::F32, &[1 << 16, 64]), &["4096 blocks of 16 teams of 16 lanes, 4 at once, subgroup waits"]);
    check(softmax(DType::F32, &[1, 2048]), &["1 blocks of 1 teams of 256 lanes, 4 at once, block waits"]);
    let turned = |d: DType, shape: &[usize], order: &[usize]| {
        graph(&[(d, shape)], |b, x| {
            let y = b.neg(x[0])?;
            Ok(vec![b.permute(y, order)?])
        })
    };
    check(turned(DType::F32, &[4096, 4096], &[1, 0]), &["16384 blocks of 16 teams of 16 lanes, 1 at once"]);
    check(turned(DType::BF16, &[4096, 4096], &[1, 0]), &["4096 blocks of 32 teams of 16 lanes, 2 at once"]);
    check(turned(DType::F32, &[8, 64, 56, 56], &[0, 2, 3, 1]), &["1568 blocks of 16 teams of 16 lanes, 1 at once"]);
    check(softmax(DType::F32, &[64, 50_000]), &["64 blocks of 1 teams of 1024 lanes, 4 at once, block waits"]);
}

/// One step of decoding: a row of keys and one of values are written to their caches.
fn cached(batch: usize, heads: usize, room: usize, wide: usize) -> Graph {
    let cache: &[usize] = &[batch, heads, room, wide];
    let new: &[usize] = &[batch, 1, 2 * heads * wide];
    let d = DType::BF16;
    graph(&[(d, cache), (d, cache), (d, new), (DType::I32, &[])], |b, x| {
        let zero = b.scalar(DType::I32, 0.0)?;
        let mut outs = Vec::new();
        for i in 0..2 {
            let part = b.slice_axis(x[2], 2, i * heads * wide, (i + 1) * heads * wide)?;
            let rows = b.reshape(part, &[batch, 1, heads, wide])?;
            let rows = b.permute(rows, &[0, 2, 1, 3])?;
            let rows = if i == 0 { b.mul(rows, rows)? } else { rows };
            outs.push(b.dynamic_update_slice(x[i], rows, &[zero, zero, x[3], zero])?);
        }
        Ok(outs)
    })
}

#[test]
fn what_stays_in_a_donated_cache_is_not_touched() {
    let mut rng = Rng::new(run_seed());
    let mut seen = Seen::default();
    for (batch, heads, room, wide) in [(1, 8, 256, 64), (2, 3, 40, 24), (3, 1, 7, 5), (1, 2, 16, 8)] {
        let mut over = 0;
        let donate = vec![(0, 0), (1, 1)];
        for mut case in kernels(&cached(batch, heads, room, wide), &Device::grid(), donate).unwrap() {
            let stays =
                grid::remove_redundant_stores(&case.kernel, &case.given).unwrap_or_else(|| panic!("{}", case.kernel));
            over += stays.over.len();
            let size = |a: &Arg| match a {
                Arg::Memory(v) => v.bytes,
                Arg::Scratch(n) => *n,
            };
            let mut data: Vec<Vec<u8>> =
                case.args.iter().map(|a| (0..size(a)).map(|_| rng.below(60) as u8).collect()).collect();
            for (bytes, b) in data.iter_mut().zip(&case.kernel.buffers) {
                if b.dtype == DType::I32 {
                    bytes.copy_from_slice(
                        &Scalar::from_i64(DType::I32, rng.below(room + 3) as i64).bits().to_le_bytes()[..4],
                    );
                }
            }
            // With separate results, all elements are stored; over copies of their operands, as few as possible.
            let mut disjoint = data.clone();
            let mut bufs: Vec<&mut [u8]> = disjoint.iter_mut().map(|d| &mut d[..]).collect();
            compiler::loops::eval(&case.kernel, &mut bufs, &[]).unwrap();
            for (from, to) in &stays.over {
                data[to.0 as usize] = data[from.0 as usize].clone();
            }
            let mut bufs: Vec<&mut [u8]> = data.iter_mut().map(|d| &mut d[..]).collect();
            compiler::loops::eval(&stays.kernel, &mut bufs, &[]).unwrap();
            for (_, to) in &stays.over {
                assert_eq!(data[to.0 as usize], disjoint[to.0 as usize], "{}", stays.kernel);
            }
            case.kernel = stays.kernel;
            let grid = grid::lower(&case.kernel, &GridLimits::CUDA, &case.given).unwrap();
            assert!(grid.to_string().contains("if "), "what only the new row needs stands behind its mask\n{grid}");
            agrees(&case, &mut rng, &mut seen).unwrap_or_else(|e| panic!("{e}"));
        }
        assert_eq!(over, 2);
    }
}
