//! Library ops as kernels and products: every supported sample of the table, and lines, windows and scatters of random sizes; the
//! grid interpreter is compared with the reference interpreter.

mod grids;

use compiler::program::{BufferKind, BufferRef, BufferSlice, KernelArg, Matmul, MatmulOperand, Program, Step};
use compiler::{Backend, Options};
use ir::ops::gather::Gather;
use ir::ops::scatter::ScatterMode;
use ir::ops::{
    ArgReduce, Conv, Cumulative, GatherMode, PutAlong, RaggedDot, RaggedMode, ReduceKind, ReduceWindow, Scatter,
    ScatterKind, SliceDims, Sort, TakeAlong, TopK, WindowConfig, WindowGather, WindowScatter,
};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Type};
use tensorloom_gpu::grid::{self, GridLimits, Launch, View};
use tensorloom_gpu::library::{DeviceCaps, expand, supports};
use testing::rng::run_seed;
use testing::{FillKind, Rng};

const PRODUCTS: &[DType] = &[DType::F32, DType::F64, DType::BF16, DType::F16];

/// The capabilities of a test device with these limits.
fn means(rng: &mut Rng) -> DeviceCaps {
    let limits = match rng.below(4) {
        0 => GridLimits::CUDA,
        1 => GridLimits::WEBGPU,
        // Chunks of a few hundred elements, so that short lines are merged.
        _ => {
            GridLimits { max_shared_bytes: *rng.pick(&[3 << 10, 4 << 10]), saturating_threads: 64, ..GridLimits::CUDA }
        }
    };
    DeviceCaps { limits, matmul_dtypes: PRODUCTS, max_temporary_bytes: 1 << 30 }
}

/// A program's memory.
struct Memory<'a> {
    program: &'a Program,
    regions: Vec<Vec<u8>>,
    homes: Vec<(usize, usize)>,
}

impl Memory<'_> {
    fn view(&self, p: &BufferSlice) -> View {
        let BufferRef::Fixed(b) = p.buffer else { panic!("no loops here") };
        let (region, at) = self.homes[b.0 as usize];
        let offset = p.offset as usize;
        let bytes = self.program.buffers[b.0 as usize].ty.bytes() - offset;
        View { region, offset: at + offset, bytes }
    }
}

/// Runs a program without loops on grids, thread by thread.
fn evaluate(program: &Program, inputs: &[Literal], limits: &GridLimits, rng: &mut Rng) -> Result<Vec<Literal>, String> {
    let mut regions = vec![vec![0x5A; program.arena_bytes]];
    let mut homes = Vec::new();
    for b in &program.buffers {
        homes.push(match &b.kind {
            BufferKind::Activation => (0, b.offset),
            class => {
                regions.push(match class {
                    BufferKind::Input(i) => inputs[*i].bytes().to_vec(),
                    BufferKind::Constant(l) => l.bytes().to_vec(),
                    _ => vec![0xA5; b.ty.bytes()],
                });
                (regions.len() - 1, 0)
            }
        });
    }
    let mut m = Memory { program, regions, homes };
    for step in &program.steps {
        match step {
            Step::Kernel { kernel, args, .. } => {
                let given = grid::launch_info(program, kernel, args, 256);
                let g = grid::lower(kernel, limits, &given).map_err(|e| e.to_string())?;
                grid::verify(&g).map_err(|e| format!("{e}\n{g}"))?;
                let place = |a: &KernelArg| match a {
                    KernelArg::Place(p) => Some(m.view(p)),
                    KernelArg::Scratch(_) => None,
                };
                let views: Vec<View> = args.iter().filter_map(place).collect();
                let launch = Launch { sizes: &[], seed: rng.bits() };
                grid::eval(&g, &mut grids::slices(&mut m.regions), &views, launch)
                    .map_err(|e| format!("{}: {e}\n{limits:?}\n{g}\n{kernel}", kernel.name))?;
            }
            Step::Matmul { shape, a: MatmulOperand::Memory(a), b: MatmulOperand::Memory(b), c: Some(c), .. } => {
                product(&mut m, shape, [a, b, c]);
            }
            Step::Copy { from, to, bytes } => {
                let (from, to) = (m.view(from), m.view(to));
                let data = m.regions[from.region][from.offset..from.offset + bytes].to_vec();
                m.regions[to.region][to.offset..to.offset + bytes].copy_from_slice(&data);
            }
            other => return Err(format!("a step that no library op becomes: {}", other.label())),
        }
    }
    let mut outs: Vec<(usize, Literal)> = Vec::new();
    for (i, b) in program.buffers.iter().enumerate() {
        if let BufferKind::Output(o) = b.kind {
            let data = m.regions[m.homes[i].0].clone();
            outs.push((o, Literal::from_bytes(b.ty.clone(), &data).ok_or("bytes of another size")?));
        }
    }
    outs.sort_by_key(|(o, _)| *o);
    Ok(outs.into_iter().map(|(_, l)| l).collect())
}

fn product(m: &mut Memory<'_>, s: &Matmul, places: [&BufferSlice; 3]) {
    let [a, b, c] = places.map(|p| m.view(p));
    let at = |v: View, d: DType, i: isize| (v.region, v.offset + i as usize * d.size(), d);
    let get = |m: &Memory<'_>, (region, at, d): (usize, usize, DType)| {
        let mut word = [0; 8];
        word[..d.size()].copy_from_slice(&m.regions[region][at..at + d.size()]);
        ir::Scalar::from_bits(d, u64::from_le_bytes(word))
    };
    for (batch, i, j) in (0..s.batch)
        .flat_map(|x| (0..s.m).flat_map(move |i| (0..s.n).map(move |j| (x as isize, i as isize, j as isize))))
    {
        let mut sum = 0.0;
        for k in 0..s.k as isize {
            let x = get(m, at(a, s.dtype, batch * s.a[0] + i * s.a[1] + k * s.a[2])).to_f64();
            let y = get(m, at(b, s.dtype, batch * s.b[0] + k * s.b[1] + j * s.b[2])).to_f64();
            sum += x * y;
        }
        let (region, to, d) = at(c, s.out, batch * s.c[0] + i * s.c[1] + j * s.c[2]);
        let bits = ir::Scalar::from_f64(d, sum).bits().to_le_bytes();
        m.regions[region][to..to + d.size()].copy_from_slice(&bits[..d.size()]);
    }
}

/// A graph of one op, with its operands as inputs.
fn alone(op: &Op, args: &[Type]) -> Graph {
    let mut b = Builder::new();
    let inputs: Vec<_> = args.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op.clone(), &inputs).expect("it type-checks");
    b.finish(&outs)
}

/// Compiles a single op, expands and evaluates it, and compares it with the interpreter: data movement bit for bit, sums within
/// their error.
fn agrees(op: &Op, inputs: &[Literal], means: &DeviceCaps, rng: &mut Rng) -> Result<(), String> {
    let types: Vec<Type> = inputs.iter().map(|l| l.ty().clone()).collect();
    let graph = alone(op, &types);
    let host = cpu::Cpu::with_target(1, None);
    let program = compiler::compile(&graph, &host as &dyn Backend, &Options::default()).map_err(|e| e.to_string())?;
    let steps = program.steps.len();
    let program = expand(program, means, &|_, _| false);
    for b in &program.buffers {
        if let Some((first, last)) = b.lifetime
            && (first > last || last >= program.steps.len().max(1))
        {
            return Err(format!("a buffer lives from {first} to {last} of {} steps", program.steps.len()));
        }
    }
    assert!(steps > 0);
    let got = evaluate(&program, inputs, &means.limits, rng)?;
    let want = ir::interp::run(&graph, inputs).map_err(|e| e.to_string())?;
    for (o, (got, want)) in got.iter().zip(&want).enumerate() {
        let d = want.ty().dtype;
        // Sums of at most a few thousand numbers below ten.
        let sums =
            matches!(op, Op::Cumulative(_) | Op::ReduceWindow(_) | Op::Conv(_) | Op::PutAlong(_) | Op::RaggedDot(_));
        let summed = sums && d.is_float();
        let unit = match d {
            DType::F64 => 1e-12,
            DType::F32 => 2e-5,
            DType::F16 => 2e-3,
            _ => 2e-2,
        };
        for i in 0..want.ty().numel() {
            let (x, y) = (got.get(i), want.get(i));
            let (a, b) = (x.to_f64(), y.to_f64());
            let same = x.bits() == y.bits() || (d.is_float() && a.is_nan() && b.is_nan());
            let close = summed && (a == b || (a - b).abs() <= unit * (1.0 + b.abs()));
            if !same && !close {
                return Err(format!("result {o}, element {i}: {x:?} instead of {y:?}"));
            }
        }
    }
    Ok(())
}

fn check(op: Op, inputs: &[Literal], rng: &mut Rng) {
    let mut means = means(rng);
    let types: Vec<Type> = inputs.iter().map(|l| l.ty().clone()).collect();
    // A device that lacks a dtype runs its ops on the host, and without f64 cumulative products too.
    let product = matches!(&op, Op::Cumulative(Cumulative { kind: ReduceKind::Prod, .. }))
        || matches!(&op, Op::ReduceWindow(ReduceWindow { kind: ReduceKind::Prod, .. }));
    if product && types[0].dtype.is_float() && types[0].numel() > 0 && !means.limits.has_f64 {
        assert!(!supports(&op, &types, &means), "{op:?} of {types:?}");
        means.limits.has_f64 = true;
    }
    means.limits.has_f64 |= types.iter().any(|t| t.dtype == DType::F64);
    let outs = op.infer(&types).unwrap();
    means.limits.has_int64 |= types.iter().chain(&outs).any(|t| matches!(t.dtype, DType::I64 | DType::U64));
    assert!(supports(&op, &types, &means), "{op:?} of {types:?}");
    agrees(&op, inputs, &means, rng).unwrap_or_else(|e| panic!("{op:?} of {types:?}: {e}"));
}

fn rounds(usual: usize) -> usize {
    std::env::var("TENSORLOOM_GRIDS").ok().and_then(|n| n.parse::<usize>().ok()).map_or(usual, |n| n / 10)
}

fn data(d: DType, shape: &[usize], rng: &mut Rng) -> Literal {
    let fill = *rng.pick(&[FillKind::Smooth, FillKind::Duplicates, FillKind::Special]);
    fill.random_tensor(&Type::new(d, shape), rng)
}

fn smooth(d: DType, shape: &[usize], rng: &mut Rng) -> Literal {
    FillKind::Smooth.random_tensor(&Type::new(d, shape), rng)
}

const ANY: &[DType] =
    &[DType::F32, DType::F32, DType::BF16, DType::F64, DType::I32, DType::I8, DType::U16, DType::Bool, DType::I64];

/// A shape with an axis of this length.
fn around(length: usize, rng: &mut Rng) -> (Vec<usize>, usize) {
    let most = (6000 / length.max(1)).clamp(1, 5);
    let mut shape: Vec<usize> = (0..rng.below(3)).map(|_| 1 + rng.below(most)).collect();
    let axis = rng.below(shape.len() + 1);
    shape.insert(axis, length);
    (shape, axis)
}

#[test]
fn lines_of_any_length_are_sorted() {
    let mut rng = Rng::new(run_seed());
    let lengths = [0, 1, 2, 3, 7, 31, 32, 33, 64, 100, 127, 128, 129, 200, 255, 257, 300, 511, 513, 600];
    for k in 0..rounds(60) {
        let n = lengths[k % lengths.len()];
        let (shape, axis) = around(n, &mut rng);
        let key = *rng.pick(ANY);
        let mut inputs = vec![data(key, &shape, &mut rng)];
        for _ in 0..rng.below(3) {
            let d = *rng.pick(ANY);
            inputs.push(data(d, &shape, &mut rng));
        }
        let num_keys = 1 + rng.below(inputs.len());
        check(Sort { axis, num_keys, descending: rng.bernoulli(0.5) }.into(), &inputs, &mut rng);
        let k = rng.below(n + 1);
        check(TopK { k, axis }.into(), &inputs[..1], &mut rng);
    }
}

#[test]
fn extrema_of_lines_are_found() {
    let mut rng = Rng::new(run_seed());
    for _ in 0..rounds(40) {
        let length = *rng.pick(&[1, 2, 31, 33, 255, 256, 700, 1025, 3000]);
        let (shape, axis) = around(length, &mut rng);
        let d = *rng.pick(&[
            DType::F32,
            DType::F32,
            DType::BF16,
            DType::F16,
            DType::I32,
            DType::U8,
            DType::Bool,
            DType::F64,
            DType::I64,
        ]);
        let x = data(d, &shape, &mut rng);
        let index = *rng.pick(&[DType::I32, DType::I64]);
        check(ArgReduce { max: rng.bernoulli(0.5), axis, index }.into(), &[x], &mut rng);
    }
}

#[test]
fn elements_are_taken_and_put_along_lines() {
    let mut rng = Rng::new(run_seed());
    for _ in 0..rounds(30) {
        let length = *rng.pick(&[0, 1, 3, 40, 300]);
        let (shape, axis) = around(length, &mut rng);
        let (d, ids) = (
            *rng.pick(&[DType::F32, DType::BF16, DType::I32, DType::U8]),
            *rng.pick(&[DType::I32, DType::U8, DType::I64]),
        );
        let size = 1 + rng.below(400);
        let mut places = shape.clone();
        places[axis] = rng.below(300);
        // Some are out of bounds.
        let place = |n: usize, rng: &mut Rng| {
            let low = if ids == DType::U8 { 0 } else { -2 };
            ir::Scalar::from_i64(ids, rng.range(low, (n as i64 + 2).min(200)))
        };
        let i = Literal::from_fn(Type::new(ids, &places), |_| place(length, &mut rng));
        check(TakeAlong { axis }.into(), &[data(d, &shape, &mut rng), i], &mut rng);
        let i = Literal::from_fn(Type::new(ids, &shape), |_| place(size, &mut rng));
        check(PutAlong { axis, size }.into(), &[smooth(d, &shape, &mut rng), i], &mut rng);
    }
}

#[test]
fn groups_of_rows_are_multiplied() {
    let mut rng = Rng::new(run_seed());
    for _ in 0..rounds(30) {
        let (rows, k, n, groups) = (rng.below(70), rng.below(40), rng.below(40), rng.below(6));
        let batch: Vec<usize> = (0..rng.below(2)).map(|_| 1 + rng.below(3)).collect();
        let d = *rng.pick(&[DType::F32, DType::F32, DType::BF16, DType::F16]);
        let mode = *rng.pick(&[RaggedMode::Rows, RaggedMode::Contract]);
        let shape = |own: &[usize]| [&batch[..], own].concat();
        let right = match mode {
            RaggedMode::Rows => shape(&[groups, k, n]),
            RaggedMode::Contract => shape(&[rows, n]),
        };
        let ids = *rng.pick(&[DType::I32, DType::I64]);
        // They may be unordered or out of bounds.
        let offsets = Literal::from_fn(Type::new(ids, &shape(&[groups + 1])), |_| {
            ir::Scalar::from_i64(ids, if rng.bernoulli(0.1) { i32::MAX as i64 } else { rng.range(-3, rows as i64 + 4) })
        });
        let op = RaggedDot { mode, batch: batch.len(), ..RaggedDot::rows(d) };
        check(op.into(), &[smooth(d, &shape(&[rows, k]), &mut rng), smooth(d, &right, &mut rng), offsets], &mut rng);
    }
}

#[test]
fn values_run_along_lines() {
    let mut rng = Rng::new(run_seed());
    for k in 0..rounds(60) {
        let n = [0, 1, 5, 32, 33, 127, 128, 129, 160, 1000, 1025, 4500][k % 12];
        let (shape, axis) = around(n, &mut rng);
        let kind = *rng.pick(&ReduceKind::ALL);
        let d = match kind {
            ReduceKind::Any | ReduceKind::All => DType::Bool,
            _ => *rng.pick(&[DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::U8]),
        };
        let x = match kind {
            ReduceKind::Sum => smooth(d, &shape, &mut rng),
            _ => data(d, &shape, &mut rng),
        };
        check(Cumulative { kind, axis, reverse: rng.bernoulli(0.5) }.into(), &[x], &mut rng);
    }
}

/// Windows over a base: both of random sizes, with at least one window.
fn windows(rank: usize, most: usize, rng: &mut Rng) -> (Vec<usize>, Vec<usize>, WindowConfig) {
    loop {
        let mut size = |least: usize, most: usize| (0..rank).map(|_| least + rng.below(most)).collect::<Vec<_>>();
        let (base, window) = (size(1, most), size(1, 3));
        let (strides, base_dilation, window_dilation) = (size(1, 2), size(1, 2), size(1, 2));
        let low: Vec<i64> = size(0, 4).iter().map(|n| *n as i64 - 1).collect();
        let high: Vec<i64> = size(0, 4).iter().map(|n| *n as i64 - 1).collect();
        let w = WindowConfig {
            strides: strides[..].into(),
            low: low[..].into(),
            high: high[..].into(),
            base_dilation: base_dilation[..].into(),
            window_dilation: window_dilation[..].into(),
        };
        let op = ReduceWindow { kind: ReduceKind::Sum, window: window[..].into(), windows: w.clone() };
        let made = Op::from(op).infer(&[Type::new(DType::F32, &base)]);
        if made.is_ok_and(|t| t[0].numel() > 0) {
            return (base, window, w);
        }
    }
}

#[test]
fn windows_are_reduced_and_give_back() {
    let mut rng = Rng::new(run_seed());
    for _ in 0..rounds(60) {
        let rank = 1 + rng.below(4);
        let (base, window, windows) = windows(rank, 7, &mut rng);
        let kind = *rng.pick(&ReduceKind::ALL);
        let d = match kind {
            ReduceKind::Any | ReduceKind::All => DType::Bool,
            _ => *rng.pick(&[DType::F32, DType::BF16, DType::I32, DType::F64]),
        };
        let x = if kind == ReduceKind::Sum { smooth(d, &base, &mut rng) } else { data(d, &base, &mut rng) };
        check(ReduceWindow { kind, window: window[..].into(), windows: windows.clone() }.into(), &[x], &mut rng);
        let max = rng.bernoulli(0.5);
        let keys = data(*rng.pick(&[DType::F32, DType::BF16, DType::I32]), &base, &mut rng);
        let d = *rng.pick(&[DType::F32, DType::F16, DType::I32]);
        let x = smooth(d, &base, &mut rng);
        let gather = WindowGather { max, window: window[..].into(), windows: windows.clone() };
        let out =
            Op::from(gather.clone()).infer(&[keys.ty().clone(), x.ty().clone()]).expect("it type-checks").remove(0);
        check(gather.into(), &[keys.clone(), x], &mut rng);
        let y = smooth(d, &out.shape, &mut rng);
        check(WindowScatter { max, window: window[..].into(), windows }.into(), &[keys, y], &mut rng);
    }
}

#[test]
fn images_are_convolved() {
    let mut rng = Rng::new(run_seed());
    for _ in 0..rounds(60) {
        let rank = rng.below(4);
        let (base, window, windows) = match rank {
            0 => (vec![], vec![], WindowConfig::unit_stride(0)),
            n => windows(n, if n == 3 { 4 } else { 9 }, &mut rng),
        };
        let mut number = |most: usize| 1 + rng.below(most);
        let (images, ins, outs, groups) =
            (number(4), number(4), number(4), *[1, 1, 1, 2, 3, 20].get(number(6) - 1).unwrap_or(&1));
        let by_batch = groups < 20 && rng.bernoulli(0.4);
        let (n, c, g, b) = match by_batch {
            true => (images * groups, ins, 1, groups),
            false => (images, ins * groups, groups, 1),
        };
        let d = *rng.pick(&[DType::F32, DType::F32, DType::BF16, DType::F64, DType::I32, DType::I8]);
        let x = smooth(d, &[&[n, c][..], &base].concat(), &mut rng);
        let k = smooth(d, &[&[outs * groups, ins][..], &window].concat(), &mut rng);
        let op = Conv { groups: g, batch_groups: b, ..Conv::new(d, windows) };
        check(op.into(), &[x, k], &mut rng);
    }
}

#[test]
fn updates_go_where_they_should_in_their_order() {
    let mut rng = Rng::new(run_seed());
    for _ in 0..rounds(60) {
        let rank = 1 + rng.below(3);
        let shape: Vec<usize> = (0..rank).map(|_| 1 + rng.below(6)).collect();
        let d = *rng.pick(&[DType::F32, DType::BF16, DType::I32, DType::F64, DType::U8]);
        let table = Type::new(d, &shape);
        let mode = *rng.pick(&[ScatterMode::Clip, ScatterMode::Drop]);
        let kind = *rng.pick(&ScatterKind::ALL);
        let ids = *rng.pick(&[DType::I32, DType::I64, DType::I8, DType::U8]);
        let axis = rng.below(rank);
        let most = if rng.bernoulli(0.2) { 300 } else { 9 };
        let count = 1 + rng.below(most);
        // Indices along an axis, an index per element along an axis, or slices that may partially overlap.
        let (dims, indices, updates) = match rng.below(3) {
            0 => {
                let dims = Gather::take(&table, axis, 1, GatherMode::Clip).dims;
                let mut u = shape.clone();
                u.splice(axis..=axis, [count]);
                (dims, vec![count, 1], u)
            }
            1 => {
                let mut u = shape.clone();
                u[axis] = count;
                let mut i = u.clone();
                i.push(1);
                (SliceDims::along_axis(rank, axis), i, u)
            }
            _ => {
                let part: Vec<usize> = shape.iter().map(|n| 1 + rng.below(*n)).collect();
                let dims =
                    SliceDims { offset: (1..=rank).collect(), index_map: (0..rank).collect(), ..SliceDims::default() };
                let few = count.min(12);
                (dims, vec![few, rank], [&[few][..], &part].concat())
            }
        };
        let places = Literal::from_fn(Type::new(ids, &indices), |_| {
            ir::Scalar::from_i64(ids, rng.below(9) as i64 - if ids == DType::U8 { 0 } else { 2 })
        });
        let op = Scatter { kind, dims, mode };
        check(op.into(), &[smooth(d, &shape, &mut rng), places, smooth(d, &updates, &mut rng)], &mut rng);
    }
}

/// Checks that ops run on the host only if they are listed here.
#[test]
fn most_library_ops_of_the_table_are_taken() {
    let mut rng = Rng::new(run_seed());
    let means = DeviceCaps { limits: GridLimits::CUDA, matmul_dtypes: PRODUCTS, max_temporary_bytes: 1 << 30 };
    let (mut taken, mut left) = (0, std::collections::BTreeSet::new());
    let mut names = std::collections::BTreeSet::new();
    for row in testing::samples::all_samples() {
        for node in row.graph.nodes() {
            let types: Vec<Type> = node.args.iter().map(|v| row.graph.ty(*v).clone()).collect();
            if !matches!(node.op.semantics(), ir::Semantics::Opaque) {
                continue;
            }
            if !supports(&node.op, &types, &means) {
                left.insert(node.op.name());
                continue;
            }
            taken += 1;
            names.insert(node.op.name());
            let inputs: Vec<Literal> = types
                .iter()
                .enumerate()
                .map(|(i, t)| match &node.op {
                    Op::Scatter(_) | Op::TakeAlong(_) | Op::PutAlong(_) if i == 1 => {
                        Literal::from_fn(t.clone(), |_| ir::Scalar::from_i64(t.dtype, rng.below(4) as i64))
                    }
                    _ => FillKind::Smooth.random_tensor(t, &mut rng),
                })
                .collect();
            agrees(&node.op, &inputs, &means, &mut rng).unwrap_or_else(|e| panic!("{}: {:?}: {e}", row.name, node.op));
        }
    }
    println!("{taken} taken, left to the host: {left:?}");
    // Ops with separate steps in backends, ops that the compiler decomposes, and ops that the host computes.
    let steps = ["cond", "scan", "while"];
    let talk = ["all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppart", "ppermute", "psum", "psum_scatter"];
    let host = ["cholesky", "eigh", "fft", "ifft", "irfft", "lu", "qr", "rfft", "svd", "triangular_solve"];
    // Only for some sizes or dtypes.
    let some = ["conv", "reduce_window_max", "reduce_window_min", "reduce_window_prod", "reduce_window_sum"];
    let told = [&steps[..], &talk, &host, &some].concat();
    let forgotten: Vec<_> = left.iter().filter(|n| !told.contains(n)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?} are left to the host");
    assert!(some.iter().all(|n| names.contains(n)), "{names:?}");
    assert!(taken > 30, "{taken}");
}
