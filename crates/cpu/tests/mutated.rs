//! Corrupted saved programs: they are rejected, or a run stays inside its buffers. Each buffer and the arena lie between
//! inaccessible pages, and inputs must be unchanged.
//!
//! `TENSORLOOM_ROUNDS=n` runs `n` times as many cases. `TENSORLOOM_KEEP=file` writes each program to the file before it runs, so
//! that the file contains the one that crashed the process.
#![cfg(unix)]

mod harness;

use compiler::loops::{self, Extent, Index, Kernel, Op, Size, Stmt};
use compiler::program::{
    BufferId, BufferKind, BufferRef, BufferSlice, KernelArg, MatmulOperand, ProgramParts, Step, TripCount,
};
use compiler::{ALIGN, Backend, Bindings, DeviceBuffer, Error, Options, Program, UncheckedProgram};
use harness::guarded::{Side, guarded};
use ir::{DType, Graph, Scalar, Type};
use std::sync::Arc;
use tensorloom_cpu::Cpu;
use testing::Rng;
use testing::rng::run_seed;

fn rounds() -> usize {
    std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1)
}

const PRODUCTS: [&str; 3] = [
    // An epilogue, over tiles and over whole rows.
    "graph (%x: f32[40,24], %w: f32[24,50], %b: f32[50]) {
      %p = dot(%x, %w) {lhs_contract=[1], rhs_contract=[0], lhs_batch=[], rhs_batch=[], acc=f32, out=f32} : f32[40,50]
      %c = broadcast(%b) {shape=[40,50], dims=[1]} : f32[40,50]
      %s = add(%p, %c) : f32[40,50]
      %t = tanh(%s) : f32[40,50]
      return %t
    }",
    "graph (%x: f32[3,20,24], %w: f32[3,24,50]) {
      %p = dot(%x, %w) {lhs_contract=[2], rhs_contract=[1], lhs_batch=[0], rhs_batch=[0], acc=f32, out=f32} : f32[3,20,50]
      %m = reduce_max(%p) {axes=[2]} : f32[3,20]
      return %p, %m
    }",
    // An operand that is computed while it is packed.
    "graph (%x: f32[90,80], %w: f32[80,90]) {
      %e = exp(%x) : f32[90,80]
      %p = dot(%e, %w) {lhs_contract=[1], rhs_contract=[0], lhs_batch=[], rhs_batch=[], acc=f32, out=f32} : f32[90,90]
      return %p
    }",
];

/// Programs of many kinds: every row of the op table, random graphs, matmuls with kernels around them.
fn corpus(cpu: &Cpu, graphs: u64) -> Vec<(String, Program)> {
    let compile = |g: &Graph| {
        let donate = (0..g.inputs().len().min(g.outputs().len())).map(|i| (i, i)).collect();
        compiler::compile(g, cpu, &Options { donate, ..Options::default() })
    };
    let mut all: Vec<(String, Graph)> =
        testing::samples::all_samples().into_iter().map(|r| (r.name, r.graph)).collect();
    let shapes = testing::random::SampleOptions { max_numel: 400, ..testing::random::SampleOptions::ANY };
    all.extend((0..graphs).map(|k| (format!("random {k}"), testing::random::sample(k, &shapes).graph)));
    all.extend(PRODUCTS.iter().map(|text| ("product".to_string(), ir::text::parse(text).expect(text))));
    let (mut compiled, mut unproved) = (Vec::new(), Vec::new());
    for (name, graph) in all {
        match compile(&graph) {
            Ok(program) => compiled.push((name, program)),
            // With `TENSORLOOM_VERIFY` the program is verified at once.
            Err(e @ Error::Program(_)) => unproved.push(format!("{name}: {e}")),
            // A composite over several ranks, for which this backend has no communicator.
            Err(_) => {}
        }
    }
    assert!(unproved.is_empty(), "{} programs:\n{}", unproved.len(), unproved.join("\n"));
    compiled.retain(|(_, p)| p.to_bytes().is_ok_and(|b| b.len() < 1 << 16));
    compiled
}

#[test]
fn what_the_compiler_saves_is_verified() {
    let cpu = Cpu::new(1);
    let mut kinds = [0; 7];
    for (name, program) in corpus(&cpu, 300 * rounds() as u64) {
        let read = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
        assert_eq!(read.verify().unwrap_or_else(|e| panic!("{name}: {e}\n{program}")), program, "{name}");
        count(&program.steps, &mut kinds);
    }
    assert!(kinds.iter().all(|n| *n > 0), "{kinds:?}");
}

fn count(steps: &[Step], kinds: &mut [usize; 7]) {
    for step in steps {
        let kind = match step {
            Step::Kernel { .. } => 0,
            Step::Matmul { .. } => 1,
            Step::Library { .. } => 2,
            Step::Copy { .. } => 3,
            Step::Zero { .. } => return,
            Step::Loop(l) => {
                count(&l.body, kinds);
                if matches!(l.trip_count, TripCount::While { .. }) { 4 } else { 5 }
            }
            Step::Branch { branches, .. } => {
                branches.iter().for_each(|b| count(b, kinds));
                6
            }
        };
        kinds[kind] += 1;
    }
}

/// The number of programs with each outcome.
#[derive(Debug, Default)]
struct Tally {
    unreadable: usize,
    refused: usize,
    not_loaded: usize,
    too_long: usize,
    failed: usize,
    ran: usize,
}

#[test]
fn changed_programs_are_refused_or_stay_inside() {
    let seed = run_seed();
    println!("seed {seed}");
    let mut r = Rng::new(seed);
    let cpus = [Cpu::new(1), Cpu::new(2), Cpu::with_target(1, None)];
    let corpus = corpus(&cpus[0], 150);
    let bytes: Vec<Vec<u8>> = corpus.iter().map(|(_, p)| p.to_bytes().unwrap()).collect();
    let mut tally = Tally::default();
    for k in 0..1500 * rounds() {
        let at = if k % 8 == 0 { corpus.len() - 1 - r.below(PRODUCTS.len()) } else { r.below(corpus.len()) };
        let unchecked = match r.below(3) {
            0 => match Program::from_bytes(&bent(&bytes[at], &mut r)) {
                Ok(p) => p,
                Err(e) => {
                    assert!(e.to_string().starts_with("a saved program: "), "{e}");
                    tally.unreadable += 1;
                    continue;
                }
            },
            _ => UncheckedProgram::new(changed(&corpus[at].1, &mut r)),
        };
        let program = match unchecked.verify() {
            Ok(p) => p,
            Err(e) => {
                assert!(matches!(e, Error::Program(_)), "{e}");
                tally.refused += 1;
                continue;
            }
        };
        let cpu = &cpus[if r.below(8) == 0 { 2 } else { r.below(2) }];
        run(cpu, program, &mut r, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.ran > 100 && tally.refused > 100 && tally.unreadable > 20, "{tally:?}");
}

/// Returns the bytes with some of them changed, and a valid checksum.
fn bent(bytes: &[u8], r: &mut Rng) -> Vec<u8> {
    let mut bad = bytes.to_vec();
    for _ in 0..1 + r.below(3) {
        let at = 20 + r.below(bad.len() - 20);
        match r.below(4) {
            0 => bad[at] = r.bits() as u8,
            1 => bad[at] = bad[at].wrapping_add(1),
            2 => bad[at] ^= 1 << r.below(8),
            _ => bad[at] = 0xff,
        }
    }
    let sum =
        bad[20..].iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    bad[12..20].copy_from_slice(&sum.to_le_bytes());
    bad
}

/// Estimates the number of elements that a run processes.
fn work(steps: &[Step]) -> f64 {
    steps
        .iter()
        .map(|s| match s {
            Step::Kernel { kernel, .. } => kernel_work(&kernel.body),
            Step::Matmul { shape: s, a, b, epilogue, .. } => {
                let inner = |k: &Kernel, times: f64| kernel_work(&k.body) * times.max(1.0);
                let computed = [a, b].into_iter().map(|f| match f {
                    MatmulOperand::Computed(c) => inner(&c.kernel, s.batch as f64),
                    MatmulOperand::Memory(_) => 0.0,
                });
                let product = [s.batch, s.m, s.n, s.k].iter().map(|n| n.max(&1)).map(|n| *n as f64).product::<f64>();
                product
                    + computed.sum::<f64>()
                    + epilogue.as_ref().map_or(0.0, |e| inner(&e.kernel, (s.batch * s.m) as f64))
            }
            Step::Library { args, outs, .. } => {
                args.iter().chain(outs).map(|(_, t)| t.numel().max(1) as f64).product::<f64>()
            }
            Step::Copy { bytes, .. } | Step::Zero { bytes, .. } => *bytes as f64,
            Step::Branch { branches, .. } => branches.iter().map(|b| work(b)).sum(),
            Step::Loop(l) => match &l.trip_count {
                TripCount::Exact(n) => (1.0 + work(&l.body)) * *n as f64,
                TripCount::Bounded { bound, .. } => (1.0 + work(&l.body)) * *bound as f64,
                TripCount::While { .. } => f64::INFINITY,
            },
        })
        .sum()
}

fn kernel_work(body: &[Stmt]) -> f64 {
    body.iter()
        .map(|s| match s {
            Stmt::Loop(l) => {
                let n = match l.extent {
                    Extent::Exact(Size::Const(n)) | Extent::Bounded { bound: Size::Const(n), .. } => n as f64,
                    _ => 100.0,
                };
                n.max(0.0) * (1.0 + kernel_work(&l.body))
            }
            _ => 1.0,
        })
        .sum()
}

fn run(cpu: &Cpu, program: Program, r: &mut Rng, tally: &mut Tally) {
    if work(&program.steps) > 2e6
        || program.arena_bytes > 1 << 26
        || program.inputs.iter().chain(&program.outputs).any(|t| t.bytes() > 1 << 24)
    {
        tally.too_long += 1;
        return;
    }
    if let Some(path) = std::env::var_os("TENSORLOOM_KEEP") {
        std::fs::write(path, program.to_bytes().unwrap_or_default()).unwrap();
    }
    let Ok(exe) = cpu.load(program) else {
        tally.not_loaded += 1;
        return;
    };
    let program = exe.program();
    let side = *r.pick(&[Side::Start, Side::End, Side::End]);
    let make = |t: &Type| Arc::new(guarded(t.bytes(), t.dtype.size(), 0xff, side)) as Arc<dyn DeviceBuffer>;
    let inputs: Vec<_> = program.inputs.iter().map(make).collect();
    let shared = |o: usize| {
        program.donated.iter().find(|d| d.1 == o).filter(|_| r.clone().below(2) == 0).map(|d| inputs[d.0].clone())
    };
    let outputs: Vec<_> =
        program.outputs.iter().enumerate().map(|(o, t)| shared(o).unwrap_or_else(|| make(t))).collect();
    let mut given = Vec::new();
    for (b, t) in inputs.iter().zip(&program.inputs) {
        let wild = r.below(3) == 0;
        let data: Vec<u8> = match wild {
            true => (0..t.bytes()).map(|_| *r.pick(&[0, 1, 0x7f, 0x80, 0xff, r.clone().bits() as u8])).collect(),
            false => {
                ir::Literal::from_fn(t.clone(), |_| Scalar::from_f64(t.dtype, r.range(-3, 9) as f64)).bytes().to_vec()
            }
        };
        b.write(0, &data).unwrap();
        given.push(data);
    }
    let mut b = Bindings { inputs, outputs };
    let mut arena = guarded(exe.arena_bytes(), ALIGN, 0xff, side);
    match exe.run_with_arena(&mut b, &mut arena, 0..program.steps.len()) {
        Ok(()) => tally.ran += 1,
        Err(_) => tally.failed += 1,
    }
    for (i, (buffer, data)) in b.inputs.iter().zip(&given).enumerate() {
        if program.donated.iter().any(|d| d.0 == i) {
            continue;
        }
        let mut now = vec![0; data.len()];
        buffer.read(0, &mut now).unwrap();
        assert!(now == *data, "input {i} was written\n{program}");
    }
}

/// Returns the parts of a program with one or two of them changed.
fn changed(program: &Program, r: &mut Rng) -> ProgramParts {
    let mut p = program.clone().into_parts();
    for _ in 0..1 + r.below(2) {
        match r.below(8) {
            0 => header(&mut p, r),
            _ => {
                let (count, level) = (p.buffers.len(), p.max_loop_depth.min(8));
                steps(&mut p.steps, (count, level), r);
            }
        }
    }
    p
}

/// Returns a number near another one, or far from it.
fn number(n: i64, r: &mut Rng) -> i64 {
    match r.below(10) {
        0 => n.wrapping_add(1),
        1 => n.wrapping_sub(1),
        2 => n.wrapping_neg(),
        3 => 2 * (n % (1 << 40)),
        4 => n / 2,
        5 => 0,
        6 => n.wrapping_add(r.range(-70, 70)),
        7 => n.wrapping_add(4),
        8 => *r.pick(&[i64::MAX, i64::MIN, 1 << 62, 1 << 32, -1 << 31, 1 << 61]),
        _ => 1,
    }
}

fn size(n: usize, r: &mut Rng) -> usize {
    number(n as i64, r) as usize
}

fn header(p: &mut ProgramParts, r: &mut Rng) {
    let n = p.buffers.len();
    match r.below(7) {
        0 => p.arena_bytes = size(p.arena_bytes, r),
        1 => p.max_loop_depth = size(p.max_loop_depth, r),
        2 => p.donated.push((r.below(p.inputs.len() + 1), r.below(p.outputs.len() + 1))),
        3 if n > 0 => p.buffers[r.below(n)].lifetime = None,
        4 if n > 0 => {
            let b = &mut p.buffers[r.below(n)];
            b.offset = if r.bernoulli(0.5) { size(b.offset, r) } else { b.offset.saturating_sub(64 * r.below(3)) };
        }
        5 if n > 0 => {
            let b = &mut p.buffers[r.below(n)];
            if let Some(d) = b.ty.shape.first_mut() {
                *d = size(*d, r);
            }
            match b.kind {
                BufferKind::Input(i) => p.inputs[i] = b.ty.clone(),
                BufferKind::Output(o) => p.outputs[o] = b.ty.clone(),
                _ => {}
            }
        }
        _ if n > 0 => {
            let class = p.buffers[r.below(n)].kind.clone();
            p.buffers[r.below(n)].kind = class;
        }
        _ => {}
    }
}

fn place(p: &mut BufferSlice, (buffers, levels): (usize, usize), r: &mut Rng) {
    match r.below(4) {
        0 => p.offset = number(p.offset, r),
        1 => match p.strides.first_mut() {
            Some(s) => s.1 = number(s.1, r),
            None => p.strides.push((r.below(levels + 1), number(4, r))),
        },
        2 => p.buffer = BufferRef::Fixed(BufferId(r.below(buffers + 1) as u32)),
        _ => {
            let id = |r: &mut Rng| BufferId(r.below(buffers) as u32);
            p.buffer = BufferRef::DoubleBuffered(r.below(levels + 1), id(r), id(r));
        }
    }
}

fn steps(list: &mut Vec<Step>, of: (usize, usize), r: &mut Rng) {
    if list.is_empty() {
        return;
    }
    if r.below(20) == 0 {
        let (a, b) = (r.below(list.len()), r.below(list.len()));
        return list.swap(a, b);
    }
    let at = r.below(list.len());
    match &mut list[at] {
        Step::Kernel { kernel: k, args, parallel } => match r.below(6) {
            0 if !args.is_empty() => {
                let n = r.below(args.len());
                match &mut args[n] {
                    KernelArg::Place(p) => place(p, of, r),
                    KernelArg::Scratch(n) => *n = size(*n, r),
                }
            }
            1 => *parallel = parallel.map(|n| number(n, r)),
            2 if args.len() > 1 => {
                let (a, b) = (r.below(args.len()), r.below(args.len()));
                args.swap(a, b);
            }
            _ => kernel(Arc::make_mut(k), r),
        },
        Step::Matmul { shape: s, a, b, c, epilogue } => match r.below(8) {
            0 => s.m = size(s.m, r),
            1 => s.n = size(s.n, r),
            2 => s.k = size(s.k, r),
            3 => s.batch = size(s.batch, r),
            4 => {
                let strides = *r.pick(&[0, 1, 2]);
                let list = [&mut s.a, &mut s.b, &mut s.c].into_iter().nth(strides).unwrap();
                let at = r.below(3);
                list[at] = number(list[at] as i64, r) as isize;
            }
            5 => s.dtype = *r.pick(&[DType::F32, DType::F64, DType::F16, DType::I8]),
            6 => match c {
                Some(c) => place(c, of, r),
                None => s.out = DType::F64,
            },
            _ => {
                if let Some(e) = epilogue.as_mut().filter(|_| r.clone().bernoulli(0.6)) {
                    match r.below(4) {
                        0 => e.needs_full_rows = !e.needs_full_rows,
                        1 if !e.args.is_empty() => place(&mut e.args[0], of, r),
                        _ => kernel(Arc::make_mut(&mut e.kernel), r),
                    }
                    return;
                }
                let side = if r.bernoulli(0.5) { a } else { b };
                match side {
                    MatmulOperand::Memory(p) => place(p, of, r),
                    MatmulOperand::Computed(c) => match c.args.first_mut() {
                        Some(p) if r.bernoulli(0.3) => place(p, of, r),
                        _ => kernel(Arc::make_mut(&mut c.kernel), r),
                    },
                }
            }
        },
        Step::Library { args, outs, .. } => {
            let list = if r.bernoulli(0.5) { args } else { outs };
            if !list.is_empty() {
                let n = r.below(list.len());
                place(&mut list[n].0, of, r);
            }
        }
        Step::Copy { from, to, bytes } => match r.below(3) {
            0 => place(from, of, r),
            1 => place(to, of, r),
            _ => *bytes = size(*bytes, r),
        },
        Step::Zero { to, bytes } => match r.below(2) {
            0 => place(to, of, r),
            _ => *bytes = size(*bytes, r),
        },
        Step::Branch { index, branches } => match r.below(4) {
            0 => place(index, of, r),
            1 => branches.clear(),
            _ => {
                let n = branches.len().max(1);
                if let Some(b) = branches.get_mut(r.below(n)) {
                    steps(b, of, r);
                }
            }
        },
        Step::Loop(l) => match r.below(6) {
            0 => l.depth = size(l.depth, r),
            1 => match &mut l.trip_count {
                TripCount::Exact(n) => *n = size(*n, r),
                TripCount::Bounded { bound, count } => {
                    if r.bernoulli(0.5) {
                        *bound = size(*bound, r)
                    } else {
                        place(count, of, r)
                    }
                }
                TripCount::While { flag, .. } => place(flag, of, r),
            },
            2 => l.reverse = !l.reverse,
            3 => {
                if let Some(a) = l.copies_after.first_mut() {
                    match r.below(3) {
                        0 => place(&mut a.0, of, r),
                        1 => place(&mut a.1, of, r),
                        _ => a.2 = size(a.2, r),
                    }
                }
            }
            _ => steps(&mut l.body, of, r),
        },
    }
}

fn index(i: &mut Index, r: &mut Rng) {
    match r.below(3) {
        0 => i.offset = number(i.offset, r),
        1 => {
            let n = i.terms.len();
            if n > 0 {
                let s = &mut i.terms[r.below(n)].1;
                *s = match *s {
                    Size::Const(n) => Size::Const(number(n, r)),
                    Size::Arg(n) => Size::Arg((n + r.below(3) as u32) % 6),
                };
            }
        }
        _ => {
            i.terms.pop();
        }
    }
}

fn kernel(k: &mut Kernel, r: &mut Rng) {
    let bufs = k.buffers.len();
    if bufs > 0 && r.below(8) == 0 {
        let b = &mut k.buffers[r.below(bufs)];
        match r.below(2) {
            0 => b.dtype = *r.pick(&[DType::F64, DType::I64, DType::I8, DType::F16, DType::I32]),
            _ => {
                b.mode = *r.pick(&[
                    loops::AccessMode::Read,
                    loops::AccessMode::Write,
                    loops::AccessMode::ReadWrite,
                    loops::AccessMode::Scratch(1 << 20),
                ])
            }
        }
        return;
    }
    statements(&mut k.body, bufs, r);
}

fn statements(body: &mut Vec<Stmt>, bufs: usize, r: &mut Rng) {
    if body.is_empty() {
        return;
    }
    let at = r.below(body.len());
    match &mut body[at] {
        Stmt::Let { op, .. } => match op {
            Op::Const(s) if s.dtype().is_int() => *s = Scalar::from_i64(s.dtype(), number(s.to_i64(), r)),
            Op::Index(i) => index(i, r),
            Op::Load { buf, index: i, mask } => match r.below(4) {
                0 => buf.0 = r.below(bufs + 1) as u32,
                1 => *mask = None,
                _ => index(i, r),
            },
            Op::Binary(b, x, y) => match r.below(3) {
                0 => std::mem::swap(x, y),
                1 => *y = *x,
                _ => {
                    *b = *r.pick(&[
                        ir::Binary::Add,
                        ir::Binary::Sub,
                        ir::Binary::Mul,
                        ir::Binary::Max,
                        ir::Binary::Min,
                        ir::Binary::Div,
                        ir::Binary::Rem,
                    ])
                }
            },
            Op::Compare(c, x, y) => match r.below(2) {
                0 => std::mem::swap(x, y),
                _ => *c = *r.pick(&[ir::Compare::Ge, ir::Compare::Lt, ir::Compare::Ne]),
            },
            Op::Select(_, x, y) => std::mem::swap(x, y),
            _ => {
                body.remove(at);
            }
        },
        Stmt::Store { buf, index: i, mask, .. } => match r.below(4) {
            0 => buf.0 = r.below(bufs + 1) as u32,
            1 => *mask = None,
            _ => index(i, r),
        },
        Stmt::Loop(l) => match r.below(5) {
            0 => match &mut l.extent {
                Extent::Exact(Size::Const(n)) => *n = number(*n, r),
                Extent::Exact(n) => *n = Size::Arg(r.below(6) as u32),
                Extent::Bounded { bound: Size::Const(n), .. } => *n = number(*n, r),
                Extent::Bounded { index: i, .. } => index(i, r),
            },
            1 => l.kind = *r.pick(&[loops::LoopKind::Vector, loops::LoopKind::Serial]),
            _ => statements(&mut l.body, bufs, r),
        },
    }
}
