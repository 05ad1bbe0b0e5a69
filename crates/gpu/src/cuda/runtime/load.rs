//! Loads a program on the device: compiles kernels, plans matrix products, uploads constants.

use super::CudaState;
use super::backend::device_caps;
use super::blas::{CublasLtPlan, GemmKey};
use super::collective::CollectiveStep;
use super::cuda_graph::CudaGraphCache;
use super::dnn::{self, LoadedCudnnAttention};
use super::fp8_gemm::{Fp8Gemm, LoadedFp8Gemm, TransposeLaunch};
use super::gemm::{self, GemmMapping};
use super::kernels::CudaFunction;
use super::memory::CudaBuffer;
use super::scatter::RowScatter;
use super::size_classes::ALIGN;
use super::strided_copy::{self, KernelSource};
use crate::cuda::transpose::{self, transpose_launch};
use crate::cuda::{self, CudaAttention, CumulativeSum, LaunchSequence, RadixSort, SkinnyMatmul, TemplateArg};
use crate::grid::alignment::aligned;
use crate::grid::{self, AddressSpace, Buf, GridLimits};
use crate::host::HostFallback;
use crate::library;
use compiler::debug::Report;
use compiler::loops::{self, Kernel, Reg, Stmt};
use compiler::program::{
    BufferKind, BufferRef, BufferSlice, KernelArg, LoopStep, Matmul, MatmulOperand, Program, Step, TripCount,
};
use compiler::{DeviceBuffer, Error, Result};
use ir::{Op, Type};
use std::sync::{Arc, Mutex};

/// The maximum nesting of loops.
pub(crate) const MAX_LEVELS: usize = 8;

/// A loaded step.
pub(crate) enum LoadedStep {
    Kernel(Launch),
    /// Kernel launches in order.
    Kernels(Vec<Launch>),
    Product(Box<LoadedMatmul>),
    /// An attention with cuDNN.
    CudnnAttention(Box<LoadedCudnnAttention>),
    /// A product of fp8 codes.
    Fp8Matmul(Box<LoadedFp8Gemm>),
    Host(Box<HostFallback>),
    /// A collective with other ranks.
    Collective(Box<CollectiveStep>),
    Copy {
        from: BufferSlice,
        to: BufferSlice,
        bytes: usize,
    },
    Zero {
        to: BufferSlice,
        bytes: usize,
    },
    Branch {
        index: BufferSlice,
        branches: Vec<Vec<LoadedStep>>,
    },
    Loop {
        level: usize,
        trip: LoadedTripCount,
        reverse: bool,
        body: Vec<LoadedStep>,
        after: Vec<(BufferSlice, BufferSlice, usize)>,
    },
}

/// The trip count of a loop.
pub(crate) enum LoadedTripCount {
    Exact(usize),
    Bounded { bound: usize, count: BufferSlice },
    While { test: Vec<LoadedStep>, flag: BufferSlice },
}

/// A launch of a kernel.
pub(crate) struct Launch {
    /// The index of the function in the program.
    pub(crate) function: usize,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
    pub(crate) args: Vec<LaunchArgument>,
    pub(crate) sizes: Vec<i64>,
    /// Operands and results that must share memory, with their bytes; if they do not, the operand is copied first.
    pub(crate) in_place_pairs: Vec<(BufferSlice, BufferSlice, usize)>,
    pub(crate) name: String,
}

/// A pointer argument of a kernel.
pub(crate) enum LaunchArgument {
    Place(BufferSlice),
    /// At this offset of the run's scratch.
    Scratch(usize),
}

/// A matrix product.
pub(crate) struct LoadedMatmul {
    pub(crate) shape: Matmul,
    pub(crate) a: BufferSlice,
    pub(crate) b: BufferSlice,
    pub(crate) c: BufferSlice,
    pub(crate) how: MatmulStrategy,
}

/// The implementation of a matrix product.
pub(crate) enum MatmulStrategy {
    /// The result has no elements.
    Empty,
    /// The contracted axis is empty: fills this many bytes of dense memory with zeros.
    ZeroFill(usize),
    /// cuBLASLt; with copies of A, B and C where necessary, at offsets of the run's scratch.
    CublasLt { plan: Box<CublasLtPlan>, mapped: GemmMapping, copies: [Option<DenseCopy>; 3] },
    /// A kernel of this crate for few rows.
    SkinnyMatmul {
        function: usize,
        few: SkinnyMatmul,
        /// Whether the program does not write the large matrix.
        read_only: bool,
    },
    /// A kernel of this crate.
    CustomKernel { function: usize },
}

/// A dense copy of an operand of a product.
#[derive(Clone, Copy)]
pub(crate) struct DenseCopy {
    pub(crate) offset: usize,
    /// The function of the strided copy.
    pub(crate) function: usize,
    pub(crate) sizes: [usize; 3],
    pub(crate) own: [isize; 3],
    pub(crate) dense: [isize; 3],
}

/// A loaded program.
pub(crate) struct LoadedProgram {
    /// Declared before the objects that it refers to, so that it is dropped first.
    pub(crate) recordings: Mutex<CudaGraphCache>,
    pub(crate) inner: Arc<CudaState>,
    pub(crate) program: Program,
    pub(crate) steps: Vec<LoadedStep>,
    pub(crate) functions: Vec<Arc<CudaFunction>>,
    /// All constants in one buffer, and the offset of each buffer of the program in it.
    pub(crate) constants: Option<CudaBuffer>,
    pub(crate) constant_at: Vec<usize>,
    pub(crate) arena_bytes: usize,
    pub(crate) scratch_at: usize,
    /// The number of launches of a run, if it is known in advance and nothing is read back.
    pub(crate) launches: Option<usize>,
}

impl LoadedProgram {
    pub(crate) fn new(inner: &Arc<CudaState>, program: Program) -> Result<LoadedProgram> {
        if program.max_loop_depth > MAX_LEVELS {
            return Err(Error::Backend(format!(
                "loops are nested {} levels deep, but at most {MAX_LEVELS} are supported",
                program.max_loop_depth
            )));
        }
        inner.device.context.enter()?;
        let capability = inner.device.context.capability;
        let report = Report::code(&program, || "cuda".into());
        let program = library::expand(program, &device_caps(), &|op, args| has_custom_kernel(capability, op, args));
        let mut loader = Loader { inner, program: &program, texts: Vec::new(), scratch: 0, report };
        let steps = loader.steps(&program.steps)?;
        let (texts, scratch) = (loader.texts, loader.scratch);
        let functions = inner.kernels.get(&texts)?;
        for (function, bytes) in shared_memory_limit(&steps) {
            functions[function].allow_shared(&inner.device.context, bytes)?;
        }
        let mut at = 0;
        let mut constant_at = vec![0; program.buffers.len()];
        let mut data = Vec::new();
        for (i, b) in program.buffers.iter().enumerate() {
            if let BufferKind::Constant(l) = &b.kind {
                data.resize(at, 0);
                data.extend_from_slice(l.bytes());
                constant_at[i] = at;
                at = data.len().next_multiple_of(ALIGN);
            }
        }
        let constants = match data.is_empty() {
            true => None,
            false => {
                let buffer = CudaBuffer::new(&inner.device, data.len())?;
                buffer.write(0, &data)?;
                Some(buffer)
            }
        };
        let scratch_at = program.arena_bytes.next_multiple_of(ALIGN);
        let launches = launches(&steps);
        Ok(LoadedProgram {
            inner: inner.clone(),
            steps,
            functions,
            constants,
            constant_at,
            arena_bytes: scratch_at + scratch,
            scratch_at,
            launches,
            recordings: Mutex::default(),
            program,
        })
    }
}

/// The dynamic shared memory of kernels.
fn shared_memory_limit(steps: &[LoadedStep]) -> Vec<(usize, u32)> {
    let one = |l: &Launch| (l.shared > 0).then_some((l.function, l.shared));
    let each = |s: &LoadedStep| match s {
        LoadedStep::Kernel(l) => one(l).into_iter().collect(),
        LoadedStep::Kernels(all) => all.iter().filter_map(one).collect(),
        LoadedStep::Branch { branches, .. } => branches.iter().flat_map(|b| shared_memory_limit(b)).collect(),
        LoadedStep::Loop { trip, body, .. } => {
            let mut found = shared_memory_limit(body);
            if let LoadedTripCount::While { test, .. } = trip {
                found.extend(shared_memory_limit(test));
            }
            found
        }
        _ => Vec::new(),
    };
    steps.iter().flat_map(each).collect()
}

/// The number of launches of some steps; none if it depends on data, or steps run on the host.
fn launches(steps: &[LoadedStep]) -> Option<usize> {
    let mut sum = 0usize;
    for s in steps {
        sum = sum.saturating_add(match s {
            LoadedStep::Kernel(_) | LoadedStep::Copy { .. } | LoadedStep::Zero { .. } => 1,
            LoadedStep::Kernels(launches) => launches.len(),
            LoadedStep::Product(_) | LoadedStep::Fp8Matmul(_) | LoadedStep::CudnnAttention(_) => 1,
            LoadedStep::Host(_) | LoadedStep::Collective(_) | LoadedStep::Branch { .. } => return None,
            LoadedStep::Loop { trip: LoadedTripCount::Exact(n), body, after, .. } => {
                launches(body)?.saturating_mul(*n).saturating_add(after.len())
            }
            LoadedStep::Loop { .. } => return None,
        });
    }
    Some(sum)
}

/// The launches of an op that has templates for devices of a compute capability.
pub(crate) fn claimed(capability: (i32, i32), op: &Op, args: &[Type]) -> Option<LaunchSequence> {
    let Op::Composite(c) = op else {
        let sorted = RadixSort::of(op, args).map(|r| r.routine());
        return sorted.or_else(|| CumulativeSum::of(op, args).map(|r| r.routine()));
    };
    // The attention templates use matrix instructions that only Hopper has.
    if capability != (9, 0) {
        return None;
    }
    Some(CudaAttention::of(c, args)?.routine())
}

/// Whether the device has a custom kernel for an op that is faster than the generated kernels.
pub(crate) fn has_custom_kernel(capability: (i32, i32), op: &Op, args: &[Type]) -> bool {
    RowScatter::of(op, args).is_some() || Fp8Gemm::of(op, args).is_some() || claimed(capability, op, args).is_some()
}

/// The lowered form of a kernel step.
pub(crate) struct LoweredKernel {
    pub(crate) grid: grid::GridKernel,
    pub(crate) text: KernelSource,
    /// Operands and results that must share memory, with their bytes.
    pub(crate) over: Vec<(BufferSlice, BufferSlice, usize)>,
}

/// The grid of a kernel step and its source.
pub(crate) fn lowered(program: &Program, kernel: &Kernel, args: &[KernelArg]) -> Result<LoweredKernel> {
    if args.len() != kernel.buffers.len() {
        return Err(Error::Internal(format!(
            "kernel {} has {} buffers, but the step gives {}",
            kernel.name,
            kernel.buffers.len(),
            args.len()
        )));
    }
    let given = grid::launch_info(program, kernel, args, ALIGN);
    let stays = grid::remove_redundant_stores(kernel, &given)
        .filter(|s| s.over.iter().all(|o| is_full_buffer_pair(program, args, *o).is_some()));
    let over = stays.iter().flat_map(|s| &s.over).filter_map(|o| is_full_buffer_pair(program, args, *o)).collect();
    let kernel = stays.as_ref().map_or(kernel, |s| &s.kernel);
    let grid = grid::lower(kernel, &GridLimits::CUDA, &given).map_err(|e| Error::Backend(e.to_string()))?;
    let text = super::text(&grid);
    Ok(LoweredKernel { grid, text, over })
}

/// An operand and a result that are whole buffers of equal types, with their bytes.
fn is_full_buffer_pair(
    program: &Program,
    args: &[KernelArg],
    (from, to): (Buf, Buf),
) -> Option<(BufferSlice, BufferSlice, usize)> {
    let of = |b: Buf| match args.get(b.0 as usize)? {
        KernelArg::Place(p) => match p.buffer {
            BufferRef::Fixed(id) if *p == BufferSlice::of(id) => Some((p.clone(), &program.buffers[id.0 as usize].ty)),
            _ => None,
        },
        KernelArg::Scratch(_) => None,
    };
    let ((from, ty), (to, other)) = (of(from)?, of(to)?);
    (ty == other).then(|| (from, to, ty.bytes()))
}

/// Whether no step writes a slice while its program runs.
fn steady(program: &Program, p: &BufferSlice) -> bool {
    p.buffers().all(|b| match &program.buffers[b.0 as usize].kind {
        BufferKind::Constant(_) => true,
        BufferKind::Input(i) => !program.donated.iter().any(|(from, _)| from == i),
        _ => false,
    })
}

/// Whether a slice is known to contain only zeros: one step writes its buffer, and writes zeros.
fn is_known_zero(program: &Program, p: &BufferSlice) -> bool {
    let BufferRef::Fixed(id) = p.buffer else { return false };
    match &program.buffers[id.0 as usize].kind {
        BufferKind::Constant(l) => return l.bytes().iter().all(|b| *b == 0),
        BufferKind::Activation => {}
        _ => return false,
    }
    let writes = |s: &Step| {
        let mut found = false;
        s.for_each_slice(&mut |place, written| found |= written && place.buffers().any(|b| b == id));
        found
    };
    let mut writers = program.steps.iter().filter(|s| writes(s));
    match (writers.next(), writers.next()) {
        (Some(Step::Zero { to, bytes }), None) => {
            *to == BufferSlice::of(id) && *bytes == program.buffers[id.0 as usize].ty.bytes()
        }
        (Some(Step::Kernel { kernel, args, .. }), None) => {
            let own = |a: &KernelArg| matches!(a, KernelArg::Place(place) if place.buffers().any(|b| b == id));
            let all = args.iter().enumerate().filter(|(_, a)| own(a)).map(|(i, _)| i);
            all.into_iter().all(|i| stores_zeros(&kernel.body, Buf(i as u32), &mut Vec::new()))
        }
        _ => false,
    }
}

/// Whether everything that a kernel stores to a buffer is the constant 0.
fn stores_zeros(body: &[Stmt], buf: Buf, known: &mut Vec<Reg>) -> bool {
    body.iter().all(|s| match s {
        Stmt::Let { dst, op: loops::Op::Const(c) } if c.bits() == 0 => {
            known.push(*dst);
            true
        }
        Stmt::Let { .. } => true,
        Stmt::Store { buf: to, value, .. } => *to != buf || known.contains(value),
        Stmt::Loop(l) => stores_zeros(&l.body, buf, known),
    })
}

struct Loader<'a> {
    inner: &'a Arc<CudaState>,
    program: &'a Program,
    texts: Vec<KernelSource>,
    /// The maximum scratch bytes of a step; steps reuse the same scratch.
    scratch: usize,
    /// Prints the code of the kernels.
    report: Option<Report>,
}

impl Loader<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<LoadedStep>> {
        steps.iter().map(|s| self.step(s)).collect()
    }

    fn step(&mut self, step: &Step) -> Result<LoadedStep> {
        Ok(match step {
            Step::Kernel { kernel, args, .. } => LoadedStep::Kernel(self.kernel(kernel, args)?),
            Step::Matmul { shape, a, b, c, epilogue } => {
                let (MatmulOperand::Memory(a), MatmulOperand::Memory(b), Some(c), None) = (a, b, c, epilogue) else {
                    return Err(Error::Internal(
                        "matrix products with a prologue or epilogue are not supported by cuda".into(),
                    ));
                };
                LoadedStep::Product(Box::new(self.product(shape, a, b, c)?))
            }
            Step::Library { op, args, outs } => {
                let types: Vec<Type> = args.iter().map(|(_, t)| t.clone()).collect();
                if let Some(talk) = self.load_collective(op, args, outs)? {
                    return Ok(LoadedStep::Collective(Box::new(talk)));
                }
                if let Some(narrow) = Fp8Gemm::of(op, &types) {
                    return Ok(LoadedStep::Fp8Matmul(Box::new(self.narrow(&narrow, args, &outs[0].0)?)));
                }
                if let Some(ready) = self.load_cudnn_attention(op, &types, args, outs) {
                    return Ok(LoadedStep::CudnnAttention(Box::new(ready)));
                }
                if let Some(routine) = claimed(self.inner.device.context.capability, op, &types) {
                    return Ok(self.routine(routine, args, outs));
                }
                match RowScatter::of(op, &types) {
                    Some(rows) => {
                        self.scratch = self.scratch.max(rows.scratch().next_multiple_of(ALIGN));
                        let functions = rows.texts().map(|text| self.function(text));
                        let places: Vec<BufferSlice> = args.iter().map(|(p, _)| p.clone()).collect();
                        LoadedStep::Kernels(rows.launches(functions, &places, &outs[0].0))
                    }
                    None => LoadedStep::Host(Box::new(HostFallback::new(&self.inner.host, op, args, outs)?)),
                }
            }
            Step::Copy { from, to, bytes } => LoadedStep::Copy { from: from.clone(), to: to.clone(), bytes: *bytes },
            Step::Zero { to, bytes } => LoadedStep::Zero { to: to.clone(), bytes: *bytes },
            Step::Branch { index, branches } => LoadedStep::Branch {
                index: index.clone(),
                branches: branches.iter().map(|b| self.steps(b)).collect::<Result<_>>()?,
            },
            Step::Loop(l) => {
                let LoopStep { depth: level, trip_count: trip, reverse, body, copies_after: after } = &**l;
                let trip = match trip {
                    TripCount::Exact(n) => LoadedTripCount::Exact(*n),
                    TripCount::Bounded { bound, count } => {
                        LoadedTripCount::Bounded { bound: *bound, count: count.clone() }
                    }
                    TripCount::While { test, flag } => {
                        LoadedTripCount::While { test: self.steps(test)?, flag: flag.clone() }
                    }
                };
                let body = self.steps(body)?;
                LoadedStep::Loop { level: *level, trip, reverse: *reverse, body, after: after.clone() }
            }
        })
    }

    /// A collective on the device, if it has a device communicator.
    fn load_collective(
        &mut self,
        op: &Op,
        args: &[(BufferSlice, Type)],
        outs: &[(BufferSlice, Type)],
    ) -> Result<Option<CollectiveStep>> {
        let (Op::Collective(op), Some(others)) = (op, &self.inner.communicator) else { return Ok(None) };
        let named = |p: ir::InferError| Error::Backend(format!("{}: {p}", ir::Rules::name(op)));
        others.mesh().set(&op.axes).map_err(named)?;
        let me = others.mesh().index(others.rank(), &op.axes);
        let Some(talk) = CollectiveStep::of(op, args.first().map(|(p, t)| (p, t)), &outs[0].0, me)? else {
            return Ok(None);
        };
        if talk.communicates() {
            others.prepare(&op.axes)?;
        }
        self.scratch = self.scratch.max(talk.scratch());
        Ok(Some(talk))
    }

    fn routine(
        &mut self,
        routine: LaunchSequence,
        args: &[(BufferSlice, Type)],
        outs: &[(BufferSlice, Type)],
    ) -> LoadedStep {
        self.scratch = self.scratch.max(routine.scratch.next_multiple_of(ALIGN));
        let argument = |a: &TemplateArg| match *a {
            TemplateArg::Operand(i) => LaunchArgument::Place(args[i].0.clone()),
            TemplateArg::Result(i) => LaunchArgument::Place(outs[i].0.clone()),
            TemplateArg::Scratch(offset) => LaunchArgument::Scratch(offset),
        };
        let launch = |c: cuda::TemplateLaunch| Launch {
            blocks: c.blocks as u32,
            threads: c.threads,
            shared: c.dynamic_shared_bytes,
            args: c.args.iter().map(argument).collect(),
            sizes: c.sizes,
            in_place_pairs: Vec::new(),
            name: c.entry_point.clone(),
            function: self.function(KernelSource { entry: c.entry_point, text: c.source }),
        };
        LoadedStep::Kernels(routine.calls.into_iter().map(launch).collect())
    }

    /// An attention with cuDNN, if that is faster than the template and has a plan.
    fn load_cudnn_attention(
        &mut self,
        op: &Op,
        types: &[Type],
        args: &[(BufferSlice, Type)],
        outs: &[(BufferSlice, Type)],
    ) -> Option<LoadedCudnnAttention> {
        let Op::Composite(c) = op else { return None };
        let asked = CudaAttention::of(c, types).filter(|a| dnn::is_faster(a))?;
        let tensors: Vec<BufferSlice> = match (asked.backward, args, outs) {
            (false, [q, k, v, ..], [out, lse]) => [q, k, v, out, lse].map(|(p, _)| p.clone()).to_vec(),
            (true, [q, k, v, out, lse, dout, dlse], [dq, dk, dv]) if is_known_zero(self.program, &dlse.0) => {
                [q, k, v, out, dout, lse, dq, dk, dv].map(|(p, _)| p.clone()).to_vec()
            }
            _ => return None,
        };
        if tensors.iter().any(|p| aligned(self.program, p, ALIGN) < transpose::TRANSPOSE_MULTIPLE) {
            return None;
        }
        let plan = self.inner.dnn()?.plan(&asked)?;
        self.scratch = self.scratch.max(plan.workspace.next_multiple_of(ALIGN));
        Some(LoadedCudnnAttention { plan, tensors })
    }

    fn narrow(&mut self, narrow: &Fp8Gemm, args: &[(BufferSlice, Type)], out: &BufferSlice) -> Result<LoadedFp8Gemm> {
        let none = || Error::Internal(format!("cuBLASLt does not support {narrow:?}"));
        let blas = self.inner.blas.as_ref().ok_or_else(none)?;
        let places = [&args[0].0, &args[1].0, out];
        // Operands with strides that cuBLASLt does not support are copied to dense memory.
        let (mut copies, mut scratch) = ([None; 3], 0);
        for ((copy, place), bytes) in copies.iter_mut().zip(places).zip(narrow.bytes()) {
            if aligned(self.program, place, ALIGN) < transpose::TRANSPOSE_MULTIPLE {
                *copy = Some(scratch);
                scratch += bytes.next_multiple_of(ALIGN);
            }
        }
        let mut turned = [None, None];
        for (side, turned) in turned.iter_mut().enumerate().filter(|(side, _)| narrow.across[*side]) {
            let (rows, cols) = narrow.sizes(side);
            let c = transpose_launch(rows, cols, TemplateArg::Operand(side), TemplateArg::Scratch(scratch));
            let function = self.function(KernelSource { entry: c.entry_point, text: c.source });
            *turned = Some((
                scratch,
                TransposeLaunch { function, blocks: c.blocks as u32, threads: c.threads, sizes: c.sizes },
            ));
            scratch += narrow.bytes()[side].next_multiple_of(ALIGN);
        }
        self.scratch = self.scratch.max(scratch);
        let plan = blas.plan(&narrow.call())?.ok_or_else(none)?;
        let [a, b, out] = places.map(BufferSlice::clone);
        let scales = [args[2].0.clone(), args[3].0.clone()];
        Ok(LoadedFp8Gemm { plan, a, b, scales, out, bytes: narrow.bytes(), copies, transposes: turned })
    }

    fn function(&mut self, text: KernelSource) -> usize {
        let entry = text.entry.clone();
        self.named(&entry, text)
    }

    /// The function of a text, printed with the name of its kernel.
    fn named(&mut self, name: &str, text: KernelSource) -> usize {
        self.report.iter_mut().for_each(|r| r.kernel_code(name, &text.text));
        match self.texts.iter().position(|t| *t == text) {
            Some(i) => i,
            None => {
                self.texts.push(text);
                self.texts.len() - 1
            }
        }
    }

    fn kernel(&mut self, kernel: &Kernel, args: &[KernelArg]) -> Result<Launch> {
        let LoweredKernel { grid, text, over } = lowered(self.program, kernel, args)?;
        let blocks = grid.blocks(&[]);
        let mut spills = grid.spill_bytes(blocks).into_iter();
        let mut scratch = 0;
        let mut arguments = Vec::with_capacity(grid.memory.len());
        for (i, m) in grid.memory.iter().enumerate() {
            match m.space {
                AddressSpace::Shared(_) => {}
                AddressSpace::Spill(_) => {
                    arguments.push(LaunchArgument::Scratch(scratch));
                    scratch += spills.next().unwrap_or(0).next_multiple_of(ALIGN);
                }
                AddressSpace::Global(_) => match args.get(i) {
                    Some(KernelArg::Place(p)) => arguments.push(LaunchArgument::Place(p.clone())),
                    _ => return Err(Error::Internal(format!("kernel {}: no memory for argument {i}", kernel.name))),
                },
            }
        }
        self.scratch = self.scratch.max(scratch);
        let function = self.named(&kernel.name, text);
        let name = kernel.name.clone();
        let (threads, sizes) = (grid.threads, Vec::new());
        Ok(Launch { function, blocks, threads, shared: 0, args: arguments, sizes, in_place_pairs: over, name })
    }

    fn product(&mut self, s: &Matmul, a: &BufferSlice, b: &BufferSlice, c: &BufferSlice) -> Result<LoadedMatmul> {
        let how = self.how(s, a, b, c)?;
        Ok(LoadedMatmul { shape: s.clone(), a: a.clone(), b: b.clone(), c: c.clone(), how })
    }

    fn how(&mut self, s: &Matmul, a: &BufferSlice, b: &BufferSlice, c: &BufferSlice) -> Result<MatmulStrategy> {
        let results = s.batch * s.m * s.n;
        if results == 0 {
            return Ok(MatmulStrategy::Empty);
        }
        let dense = (s.c[2] == 1 || s.n == 1)
            && (s.c[1] == s.n as isize || s.m == 1)
            && (s.c[0] == (s.m * s.n) as isize || s.batch == 1);
        if s.k == 0 && dense {
            return Ok(MatmulStrategy::ZeroFill(results * s.out.size()));
        }
        let align = [a, b].map(|p| aligned(self.program, p, ALIGN));
        if let Some(few) = SkinnyMatmul::of(s, align) {
            let (entry, text) = few.text();
            let function = self.function(KernelSource { entry, text });
            let steady = steady(self.program, if few.swapped() { a } else { b });
            return Ok(MatmulStrategy::SkinnyMatmul { function, few, read_only: steady });
        }
        let own = |loader: &mut Self| MatmulStrategy::CustomKernel {
            function: loader.function(strided_copy::product(s.dtype, s.out)),
        };
        let Some(blas) = self.inner.blas.as_ref().filter(|_| s.k > 0) else { return Ok(own(self)) };
        let mapped = gemm::map(s);
        let sides = [
            (a, s.dtype, s.a, [s.batch, s.m, s.k]),
            (b, s.dtype, s.b, [s.batch, s.k, s.n]),
            (c, s.out, s.c, [s.batch, s.m, s.n]),
        ];
        let mut copies = [None; 3];
        let mut aligns = [ALIGN as u32; 3];
        let mut scratch = 0;
        for (i, (place, dtype, own, mut sizes)) in sides.into_iter().enumerate() {
            match mapped.dense[i] {
                None => aligns[i] = aligned(self.program, place, ALIGN) as u32,
                Some(dense) => {
                    if dense[0] == 0 {
                        sizes[0] = 1;
                    }
                    let function = self.function(strided_copy::strided_copy(dtype.size()));
                    copies[i] = Some(DenseCopy { offset: scratch, function, sizes, own, dense });
                    let bytes = sizes.iter().product::<usize>() * dtype.size();
                    scratch += bytes.next_multiple_of(ALIGN);
                }
            }
        }
        let [in_a, in_b, in_c] = aligns;
        let aligned = if mapped.gemm.swapped { [in_b, in_a, in_c] } else { [in_a, in_b, in_c] };
        let call = GemmKey { gemm: mapped.gemm, dtype: s.dtype, second: s.dtype, out: s.out, aligned };
        match blas.plan(&call)? {
            Some(plan) => {
                self.scratch = self.scratch.max(scratch);
                Ok(MatmulStrategy::CublasLt { plan: Box::new(plan), mapped, copies })
            }
            None => Ok(own(self)),
        }
    }
}
