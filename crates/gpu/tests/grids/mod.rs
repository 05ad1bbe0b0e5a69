//! Compares kernels of programs on grids with the reference interpreter and a model of lanes.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod device;
pub(crate) mod lanes;
pub(crate) mod rows;

use compiler::loops::{self, AccessMode, Extent, Index, Kernel, Op, Size, Stmt};
use compiler::program::{BufferKind, BufferRef, BufferSlice, KernelArg, Program, Step, TripCount};
use compiler::{Backend, Options};
use ir::{DType, Graph, Scalar, Type};
use tensorloom_gpu::grid::{self, GridLimits, Launch, LaunchInfo, View};
use testing::{FillKind, Rng};

/// A kernel with its arguments: a region and an offset, or scratch of this many bytes.
pub(crate) struct Case {
    pub(crate) kernel: Kernel,
    pub(crate) args: Vec<Arg>,
    pub(crate) regions: Vec<usize>,
    pub(crate) given: LaunchInfo,
}

#[derive(Clone, Copy)]
pub(crate) enum Arg {
    Memory(View),
    Scratch(usize),
}

/// Every kernel step of a program.
pub(crate) fn cases(program: &Program) -> Vec<Case> {
    let mut out = Vec::new();
    steps(program, &program.steps, &mut out);
    out
}

/// Compiles a graph and returns its kernels.
pub(crate) fn kernels(graph: &Graph, backend: &dyn Backend, donate: Vec<(usize, usize)>) -> Result<Vec<Case>, String> {
    let options = Options { donate, ..Options::default() };
    let program = compiler::compile(graph, backend, &options).map_err(|e| e.to_string())?;
    Ok(cases(&program))
}

fn steps(program: &Program, list: &[Step], out: &mut Vec<Case>) {
    for s in list {
        match s {
            Step::Kernel { kernel, args, .. } => out.push(case(program, kernel, args)),
            Step::Loop(l) => {
                if let TripCount::While { test, .. } = &l.trip_count {
                    steps(program, test, out);
                }
                steps(program, &l.body, out);
            }
            Step::Branch { branches, .. } => branches.iter().for_each(|b| steps(program, b, out)),
            _ => {}
        }
    }
}

/// The arena is region 0; every other buffer is a separate region.
fn case(program: &Program, kernel: &Kernel, args: &[KernelArg]) -> Case {
    let mut regions = vec![program.arena_bytes];
    let mut homes = Vec::new();
    for (i, b) in program.buffers.iter().enumerate() {
        let shared = match &b.kind {
            BufferKind::Activation => Some((0, b.offset)),
            BufferKind::Output(o) => {
                let from = program.donated.iter().find(|(_, to)| to == o).map(|(from, _)| *from);
                let home = |from: usize| program.buffers.iter().position(|b| b.kind == BufferKind::Input(from));
                from.and_then(home).filter(|k| *k < i).map(|k| homes[k])
            }
            _ => None,
        };
        homes.push(shared.unwrap_or_else(|| {
            regions.push(b.ty.bytes());
            (regions.len() - 1, 0)
        }));
    }
    let view = |p: &BufferSlice| {
        let id = match p.buffer {
            BufferRef::Fixed(b) | BufferRef::DoubleBuffered(_, b, _) => b.0 as usize,
        };
        let (region, at) = homes[id];
        let offset = p.offset.max(0) as usize;
        View { region, offset: at + offset, bytes: program.buffers[id].ty.bytes().saturating_sub(offset) }
    };
    // The assumed alignment of regions.
    let given = grid::launch_info(program, kernel, args, 256);
    let args = args
        .iter()
        .map(|a| match a {
            KernelArg::Place(p) => Arg::Memory(view(p)),
            KernelArg::Scratch(n) => Arg::Scratch(*n),
        })
        .collect();
    Case { kernel: kernel.clone(), args, regions, given }
}

/// The same kernel with its sizes as arguments, and their values.
pub(crate) fn general(k: &Kernel) -> (Kernel, Vec<i64>) {
    if k.sizes > 0 {
        return (k.clone(), Vec::new());
    }
    let (mut k, mut sizes) = (k.clone(), Vec::new());
    fn size(s: &mut Size, sizes: &mut Vec<i64>) {
        if let Size::Const(n) = *s
            && !(-1..=1).contains(&n)
        {
            sizes.push(n);
            *s = Size::Arg(sizes.len() as u32 - 1);
        }
    }
    fn index(i: &mut Index, sizes: &mut Vec<i64>) {
        if i.offset != 0 {
            sizes.push(i.offset);
            i.offset_args.push(sizes.len() as u32 - 1);
            i.offset = 0;
        }
        i.terms.iter_mut().for_each(|(_, s)| size(s, sizes));
    }
    fn block(body: &mut [Stmt], sizes: &mut Vec<i64>) {
        for s in body {
            match s {
                Stmt::Let { op: Op::Index(i) | Op::Load { index: i, .. }, .. } | Stmt::Store { index: i, .. } => {
                    index(i, sizes);
                }
                Stmt::Let { .. } => {}
                Stmt::Loop(l) => {
                    match &mut l.extent {
                        Extent::Exact(n) => size(n, sizes),
                        Extent::Bounded { bound, index: i, .. } => {
                            size(bound, sizes);
                            index(i, sizes);
                        }
                    }
                    block(&mut l.body, sizes);
                }
            }
        }
    }
    block(&mut k.body, &mut sizes);
    for b in &mut k.buffers {
        if let AccessMode::Scratch(n) = &mut b.mode {
            *n = 0;
        }
    }
    k.sizes = sizes.len() as u32;
    (k, sizes)
}

/// Limits of every kind, mostly small ones, so that small kernels test every boundary.
pub(crate) fn limits(rng: &mut Rng) -> GridLimits {
    if rng.bernoulli(0.05) {
        return *rng.pick(&[GridLimits::CUDA, GridLimits { has_int64: true, has_f64: true, ..GridLimits::WEBGPU }]);
    }
    let subgroup = *rng.pick(&[None, Some(1), Some(2), Some(4), Some(8)]);
    let usual = subgroup.unwrap_or(1) * *rng.pick(&[1, 2, 4]);
    GridLimits {
        threads: usual * *rng.pick(&[1, 2, 4]),
        default_threads: usual,
        subgroup_size: subgroup,
        max_shared_bytes: *rng.pick(&[0, 64, 1024, 48 << 10]),
        blocks: *rng.pick(&[1, 2, 7, 65_535]),
        max_spill_blocks: *rng.pick(&[1, 3]),
        saturating_threads: *rng.pick(&[1, 1, 16, 4096]),
        tile: *rng.pick(&[1, 2, 4, 16]),
        max_access_bytes: *rng.pick(&[1, 8, 16]),
        min_store_bytes: *rng.pick(&[1, 1, 4]),
        has_int64: true,
        has_f64: true,
    }
}

/// Statistics of the grids that were compared.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    pub(crate) kernels: usize,
    pub(crate) waiting: usize,
    pub(crate) wide: usize,
    pub(crate) aliased: usize,
    pub(crate) spilled: usize,
    pub(crate) looped: usize,
    pub(crate) reassociated: usize,
    pub(crate) skipped: usize,
}

/// A kernel lowered for a launch over random data.
pub(crate) struct Prepared {
    pub(crate) kernel: Kernel,
    pub(crate) sizes: Vec<i64>,
    pub(crate) limits: GridLimits,
    pub(crate) given: LaunchInfo,
    pub(crate) regions: Vec<Vec<u8>>,
    pub(crate) views: Vec<View>,
    pub(crate) grid: grid::GridKernel,
}

/// Lowers a kernel, optionally with its sizes as arguments; none if it already has size arguments.
pub(crate) fn prepare(case: &Case, limits: GridLimits, rng: &mut Rng) -> Result<Option<Prepared>, String> {
    let (kernel, sizes) = if rng.bernoulli(0.4) { general(&case.kernel) } else { (case.kernel.clone(), Vec::new()) };
    if kernel.sizes as usize != sizes.len() {
        return Ok(None);
    }
    let k = &kernel;
    // Data for all buffers that are read, in their dtypes.
    let mut regions: Vec<Vec<u8>> = case.regions.iter().map(|n| vec![0x5A; *n]).collect();
    for (b, a) in k.buffers.iter().zip(&case.args) {
        if let (AccessMode::Read | AccessMode::ReadWrite, Arg::Memory(v)) = (b.mode, a) {
            let n = v.bytes / b.dtype.size();
            let fill = *rng.pick(&[FillKind::Smooth, FillKind::Smooth, FillKind::Duplicates, FillKind::Special]);
            let data = fill.random_tensor(&Type::new(b.dtype, &[n]), rng);
            regions[v.region][v.offset..v.offset + n * b.dtype.size()].copy_from_slice(data.bytes());
        }
    }
    let given = LaunchInfo { sizes: sizes.clone(), ..case.given.clone() };
    let memory = |a: &Arg| match a {
        Arg::Memory(v) => Some(*v),
        Arg::Scratch(_) => None,
    };
    let views = case.args.iter().filter_map(memory).collect();
    let g = grid::lower(k, &limits, &given).map_err(|e| e.to_string())?;
    grid::verify(&g).map_err(|e| format!("{e}\n{g}"))?;
    Ok(Some(Prepared { sizes, limits, given, regions, views, grid: g, kernel }))
}

/// Lowers and evaluates one kernel on random data: the bits must equal those of the model of lanes; with one lane, or without
/// reassociation, also those of the reference.
pub(crate) fn agrees(case: &Case, rng: &mut Rng, seen: &mut Seen) -> Result<(), String> {
    let limits = limits(rng);
    let Some(prepared) = prepare(case, limits, rng)? else { return Ok(()) };
    let Prepared { kernel, sizes, limits, given, mut regions, views, grid: g } = prepared;
    let k = &kernel;
    // Before anything is written.
    let own = |regions: &[Vec<u8>]| -> Vec<Vec<u8>> {
        case.args
            .iter()
            .map(|a| match a {
                Arg::Memory(v) => regions[v.region][v.offset..v.offset + v.bytes].to_vec(),
                Arg::Scratch(n) => vec![0xA5; *n],
            })
            .collect()
    };
    let mut reference = own(&regions);
    let mut model = own(&regions);
    // Steps of a loop that never runs may have no valid memory.
    if loops::eval(k, &mut slices(&mut reference), &sizes).is_err() {
        seen.skipped += 1;
        return Ok(());
    }
    let lanes = lanes::Lanes::of(&g, &limits);
    lanes::eval(k, &mut slices(&mut model), &sizes, &lanes)?;
    let launch = Launch { sizes: &sizes, seed: rng.bits() };
    grid::eval(&g, &mut slices(&mut regions), &views, launch).map_err(|e| format!("{limits:?}\n{e}\n{g}\n{k}"))?;
    let got = own(&regions);
    seen.add(&g, &given);
    let same = |want: &[Vec<u8>]| {
        k.buffers
            .iter()
            .enumerate()
            .filter(|(_, b)| matches!(b.mode, AccessMode::Write | AccessMode::ReadWrite))
            .find_map(|(i, b)| {
                let n = b.dtype.size();
                let differs = |(x, y): &(&[u8], &[u8])| x != y && !(is_nan(b.dtype, x) && is_nan(b.dtype, y));
                let at = got[i].chunks_exact(n).zip(want[i].chunks_exact(n)).position(|p| differs(&p))?;
                let show = |v: &[u8]| scalar(b.dtype, &v[at * n..at * n + n]);
                Some(format!("b{i}[{at}]: {:?}, expected {:?}", show(&got[i]), show(&want[i])))
            })
    };
    if let Some(wrong) = same(&model) {
        return Err(format!("{limits:?}\n{wrong}\n{g}\n{k}"));
    }
    match same(&reference) {
        Some(wrong) if !lanes::reassociates(k) || lanes.count * lanes.width == 1 => {
            Err(format!("reference: {wrong}\n{g}\n{k}"))
        }
        Some(_) => {
            seen.reassociated += 1;
            Ok(())
        }
        None => Ok(()),
    }
}

pub(crate) fn slices(v: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    v.iter_mut().map(|x| &mut x[..]).collect()
}

fn scalar(d: DType, raw: &[u8]) -> Scalar {
    let mut word = [0; 8];
    word[..raw.len()].copy_from_slice(raw);
    Scalar::from_bits(d, u64::from_le_bytes(word))
}

pub(crate) fn is_nan(d: DType, raw: &[u8]) -> bool {
    d.is_float() && scalar(d, raw).to_f64().is_nan()
}

impl Seen {
    fn add(&mut self, g: &grid::GridKernel, given: &LaunchInfo) {
        let text = g.to_string();
        self.kernels += 1;
        self.waiting += (text.contains("barrier") || text.contains("exchange")) as usize;
        self.wide += (lanes::width(&g.body) > 1) as usize;
        self.aliased += !given.aliases.is_empty() as usize;
        self.spilled += g.spills() as usize;
        self.looped += text.contains("= blocks") as usize;
    }
}
