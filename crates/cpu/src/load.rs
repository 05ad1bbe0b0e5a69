//! Prepares a program to run: compiles kernels, plans matmuls, places constants in memory, and allocates an arena.

use crate::arena::ArenaPool;
use crate::backend::Cpu;
use crate::codegen::{CodegenError, CompiledKernel};
use crate::execute;
use crate::gemm::{GemmPlan, GemmProblem, MatrixLayout, OperandSource, OutputKind};
use crate::library::{self, OpRoutine};
use crate::memory::HostBuffer;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::debug::Report;
use compiler::loops::Kernel;
use compiler::program::{
    BufferKind, BufferRef, BufferSlice, KernelArg, LoopStep, Matmul, MatmulOperand, Program, Step, TripCount,
};
use compiler::{ALIGN, Backend, Bindings, DeviceBuffer, Error, Executable, Fence, Result, Timing};
use ir::{Literal, Type};
use std::ops::Range;
use std::sync::Arc;

/// The minimum rows, columns and depth for which a constant operand is packed when the program is loaded.
const PACKED_AHEAD: usize = 16;

pub(crate) const THRESHOLDS: &[Threshold] = &[Threshold::new(
    "load.packed_ahead",
    PACKED_AHEAD,
    "the least side of a product with a constant: from here it is packed ahead",
)];

/// The maximum nesting depth of loops.
pub(crate) const MAX_LEVELS: usize = 8;
/// The maximum number of buffers of a kernel.
pub(crate) const MAX_ARGS: usize = 64;
/// The maximum bytes of an arena on the stack: enough for the buffer addresses of a small program.
const ON_STACK: usize = 256;

/// An arena on the stack.
#[repr(align(64))]
struct OnStack([u8; ON_STACK]);

const _: () = assert!(align_of::<OnStack>() == ALIGN);

/// An executable kernel.
pub(crate) enum Code {
    Machine(Arc<CompiledKernel>),
    /// There is no code generator for this machine, so the reference evaluator runs it.
    Reference(Arc<Kernel>),
}

/// A step that is ready to run.
pub(crate) enum LoadedStep {
    Kernel {
        code: Code,
        sizes: Box<[i64]>,
        args: Vec<KernelArg>,
        parallel: Option<i64>,
        scratch: usize,
    },
    Matmul {
        plan: Box<GemmPlan>,
        a: LoadedOperand,
        b: LoadedOperand,
        out: MatmulOutput,
    },
    Library {
        routine: Box<dyn OpRoutine>,
        args: Vec<BufferSlice>,
        outs: Vec<BufferSlice>,
    },
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

/// The source of a matmul operand.
pub(crate) enum LoadedOperand {
    Memory(BufferSlice),
    /// A kernel writes the operand block by block while it is packed.
    Generated {
        code: Code,
        args: Vec<BufferSlice>,
    },
    /// The operand was packed when the program was loaded.
    Packed(HostBuffer),
}

/// The destination of a matmul.
pub(crate) enum MatmulOutput {
    Memory(BufferSlice),
    Tiles { code: Code, args: Vec<BufferSlice> },
}

/// The memory of one run.
pub(crate) struct Arena<'a> {
    pub(crate) memory: *mut u8,
    /// The address of every buffer, stored in the same memory.
    pub(crate) bases: &'a [*mut u8],
}

/// A program that is ready to run.
pub(crate) struct LoadedProgram {
    pub(crate) program: Program,
    pub(crate) pool: Arc<ThreadPool>,
    pub(crate) steps: Vec<LoadedStep>,
    /// For each step that is a collective, the step before which its result must be complete;
    /// `None` where starting it early is not worthwhile.
    pub(crate) needed: Vec<Option<usize>>,
    /// For each input, the output that may share its memory, if any.
    donated: Vec<Option<usize>>,
    constants: Vec<Option<HostBuffer>>,
    /// The bytes of the whole arena: activations, then scratch of matmuls and routines, then per-worker scratch of kernels,
    /// then the addresses of the buffers.
    arena_bytes: usize,
    pub(crate) gemm_at: usize,
    pub(crate) scratch_at: usize,
    pub(crate) scratch_each: usize,
    bases_at: usize,
    /// The arenas for runs whose callers provide none.
    arenas: Arc<ArenaPool>,
    /// Whether this program is registered with `arenas`.
    counted: bool,
}

impl LoadedProgram {
    /// Loads a program. `general` makes kernels that other sizes can share.
    pub(crate) fn new(cpu: &Cpu, program: Program, general: bool) -> Result<LoadedProgram> {
        if program.max_loop_depth > MAX_LEVELS {
            return Err(Error::Backend(format!(
                "loops are nested {} levels deep, but at most {MAX_LEVELS} are supported",
                program.max_loop_depth
            )));
        }
        let report = Report::code(&program, || cpu.name());
        let mut needs = Needs { general, report, ..Needs::default() };
        let steps = load_steps(cpu, &program, &program.steps, &mut needs)?;
        let needed = crate::collective_overlap::collective_deadlines(&program);
        let mut constants = Vec::with_capacity(program.buffers.len());
        for b in &program.buffers {
            constants.push(match &b.kind {
                BufferKind::Constant(l) => {
                    let m = HostBuffer::new(l.bytes().len())?;
                    m.write(0, l.bytes())?;
                    Some(m)
                }
                _ => None,
            });
        }
        let mut donated = Vec::new();
        for &(i, o) in &program.donated {
            donated.resize(donated.len().max(i + 1), None);
            donated[i] = Some(o);
        }
        let up = |n: usize| n.checked_next_multiple_of(ALIGN);
        let scratch_each = up(needs.kernel);
        let places = || {
            let gemm_at = up(program.arena_bytes)?;
            let scratch_at = gemm_at.checked_add(up(needs.gemm)?)?;
            let bases_at = scratch_at.checked_add(scratch_each?.checked_mul(cpu.pool.threads())?)?;
            let bases = up(program.buffers.len().checked_mul(size_of::<*mut u8>())?)?;
            Some((gemm_at, scratch_at, bases_at, bases_at.checked_add(bases)?))
        };
        let hint = "; use smaller shapes";
        let too_large = || Error::OutOfMemory { bytes: usize::MAX, hint };
        let (gemm_at, scratch_at, bases_at, arena_bytes) = places().ok_or_else(too_large)?;
        let scratch_each = scratch_each.ok_or_else(too_large)?;
        Ok(LoadedProgram {
            program,
            pool: cpu.pool.clone(),
            steps,
            needed,
            donated,
            constants,
            arena_bytes,
            gemm_at,
            scratch_at,
            scratch_each,
            bases_at,
            arenas: cpu.arenas.clone(),
            counted: false,
        })
    }

    /// Allocates an arena in advance, so that no run has to.
    pub(crate) fn with_arena(mut self) -> Result<LoadedProgram> {
        if self.arena_bytes > ON_STACK {
            self.arenas.add(self.arena_bytes)?;
            self.counted = true;
        }
        Ok(self)
    }
}

impl Drop for LoadedProgram {
    fn drop(&mut self) {
        if self.counted {
            self.arenas.remove(self.arena_bytes);
        }
    }
}

impl Executable for LoadedProgram {
    fn program(&self) -> &Program {
        &self.program
    }

    fn submit(&self, bindings: &mut Bindings) -> Result<Fence> {
        self.run_leased(bindings, None).map(|()| Fence::completed())
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    fn run_with_arena(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
        let memory = host(arena)?;
        if arena.bytes() < self.arena_bytes || memory.align_offset(ALIGN) != 0 {
            return Err(Error::Bindings(format!(
                "the arena has {} bytes at {memory:p}, but a run needs {} bytes aligned to {ALIGN}",
                arena.bytes(),
                self.arena_bytes
            )));
        }
        if self.steps.get(steps.clone()).is_none() {
            return Err(Error::Bindings(format!(
                "steps {steps:?} are out of range for a program with {} steps",
                self.steps.len()
            )));
        }
        let (start, end) = (memory.addr(), memory.addr() + arena.bytes());
        for (what, list) in [("input", &bindings.inputs), ("output", &bindings.outputs)] {
            for (i, b) in list.iter().enumerate() {
                let at = host(&**b)?.addr();
                if at < end && start < at.saturating_add(b.bytes()) && b.bytes() > 0 {
                    return Err(Error::Bindings(format!(
                        "{what} {i} lies in the arena; give the run a separate arena"
                    )));
                }
            }
        }
        // SAFETY: size and alignment were checked, the arena is borrowed for this call alone, and no input or output lies in it.
        unsafe { self.run_at(bindings, memory, steps, None) }
    }

    fn run_timed(&self, bindings: &mut Bindings) -> Result<Vec<Timing>> {
        let timer = execute::Timer::default();
        self.run_leased(bindings, Some(&timer))?;
        Ok(timer.timings(self))
    }
}

impl LoadedProgram {
    fn run_leased(&self, bindings: &mut Bindings, timer: Option<&execute::Timer>) -> Result<()> {
        if self.arena_bytes <= ON_STACK {
            let mut arena = OnStack([0; ON_STACK]);
            // SAFETY: large enough, aligned, and this call's.
            return unsafe { self.run_at(bindings, arena.0.as_mut_ptr(), 0..self.steps.len(), timer) };
        }
        let arena = self.arenas.lease(self.arena_bytes)?;
        // SAFETY: the arena has the size asked for or more, and is this run's until it is given back.
        let result = unsafe { self.run_at(bindings, arena.as_ptr(), 0..self.steps.len(), timer) };
        self.arenas.release(arena);
        result
    }

    /// Runs some steps of this program.
    ///
    /// # Safety
    /// `memory` is aligned to `ALIGN` and valid for `arena_bytes` initialised bytes, which nothing else uses during the
    /// call.
    unsafe fn run_at(
        &self,
        bindings: &mut Bindings,
        memory: *mut u8,
        steps: Range<usize>,
        timer: Option<&execute::Timer>,
    ) -> Result<()> {
        let uses = Uses::begin(bindings, self)?;
        // SAFETY: `memory` is valid for `arena_bytes` initialised bytes, and the table of addresses, `bases_at` bytes
        // on, is inside of it and aligned to a word.
        let bases = unsafe {
            std::slice::from_raw_parts_mut(memory.add(self.bases_at).cast::<*mut u8>(), self.program.buffers.len())
        };
        for (i, b) in self.program.buffers.iter().enumerate() {
            bases[i] = match &b.kind {
                BufferKind::Input(n) => uses.input(*n).as_ptr(),
                BufferKind::Output(n) => uses.output(*n).as_ptr(),
                BufferKind::Constant(_) => self.constants[i].as_ref().expect("made when loaded").as_ptr(),
                // SAFETY: the planner keeps offsets inside the arena.
                BufferKind::Activation => unsafe { memory.add(b.offset) },
            };
        }
        let _denormals = self.pool.denormals().here();
        execute::run(self, &Arena { memory, bases }, steps, timer)
    }
}

/// Marks the inputs and outputs of a run as in use:
/// during the run nothing else may write them, and nothing else may use its outputs.
///
/// A buffer that only these bindings reference needs no mark: they are borrowed for the run, so no other code can reach it. This
/// saves most of the overhead of a small program.
struct Uses<'a> {
    bindings: &'a Bindings,
    loaded: &'a LoadedProgram,
    /// The number of inputs and of outputs that have been handled.
    inputs: usize,
    outputs: usize,
    /// A bit for each of the first inputs (outputs) that nothing else references.
    own_inputs: u64,
    own_outputs: u64,
    /// Whether any buffer is marked.
    noted: bool,
}

/// Returns a bit for each of the first buffers that has a single reference. `Arc::get_mut` locks the weak count while it checks,
/// so a thread that converts its `Arc` to a `Weak` and back is detected.
#[inline]
fn unshared(buffers: &mut [Arc<dyn DeviceBuffer>]) -> u64 {
    let mut bits = 0;
    for (i, b) in buffers.iter_mut().take(64).enumerate() {
        bits |= u64::from(Arc::get_mut(b).is_some()) << i;
    }
    bits
}

#[inline]
fn bit(bits: u64, i: usize) -> bool {
    i < 64 && bits >> i & 1 == 1
}

impl<'a> Uses<'a> {
    #[inline]
    fn begin(bindings: &'a mut Bindings, loaded: &'a LoadedProgram) -> Result<Uses<'a>> {
        let (own_inputs, own_outputs) = (unshared(&mut bindings.inputs), unshared(&mut bindings.outputs));
        let (bindings, program) = (&*bindings, &loaded.program);
        if bindings.inputs.len() != program.inputs.len() || bindings.outputs.len() != program.outputs.len() {
            bindings.check(program)?;
        }
        let mut uses = Uses { bindings, loaded, inputs: 0, outputs: 0, own_inputs, own_outputs, noted: false };
        for (i, b) in bindings.outputs.iter().enumerate() {
            let buffer = fits(b, &program.outputs[i], bindings, program)?;
            if !bit(own_outputs, i) {
                uses.write_begins(i, buffer)?;
            }
            uses.outputs = i + 1;
        }
        for (i, b) in bindings.inputs.iter().enumerate() {
            let buffer = fits(b, &program.inputs[i], bindings, program)?;
            if !bit(own_inputs, i) {
                uses.read_begins(i, buffer)?;
            }
            uses.inputs = i + 1;
        }
        Ok(uses)
    }

    fn write_begins(&mut self, i: usize, b: &HostBuffer) -> Result<()> {
        if !b.run_write_begins() {
            return Err(Error::InUse(format!("output {i} is used by another run, read or write, or is bound twice")));
        }
        self.noted = true;
        Ok(())
    }

    fn read_begins(&mut self, i: usize, b: &HostBuffer) -> Result<()> {
        if !self.is_donated(i) && !b.run_read_begins() {
            let what = "is written by another run or write, or is bound to an output too";
            return Err(Error::InUse(format!("input {i} {what}")));
        }
        self.noted = true;
        Ok(())
    }

    /// Returns whether an input shares the memory of the output that it is donated to.
    fn is_donated(&self, input: usize) -> bool {
        let same = |o: usize| {
            let (from, to) = (&self.bindings.inputs[input], &self.bindings.outputs[o]);
            std::ptr::addr_eq(Arc::as_ptr(from), Arc::as_ptr(to))
        };
        self.loaded.donated.get(input).copied().flatten().is_some_and(same)
    }

    fn end(&self) {
        for i in (0..self.inputs).filter(|i| !bit(self.own_inputs, *i) && !self.is_donated(*i)) {
            self.input(i).run_read_ends();
        }
        for o in (0..self.outputs).filter(|o| !bit(self.own_outputs, *o)) {
            self.output(o).run_write_ends();
        }
    }

    /// Returns an input of a run that has started.
    #[inline]
    fn input(&self, i: usize) -> &HostBuffer {
        // SAFETY: `begin` found it to be one of ours, and the bindings are borrowed since.
        unsafe { &*Arc::as_ptr(&self.bindings.inputs[i]).cast::<HostBuffer>() }
    }

    /// Returns an output of a run that has started.
    #[inline]
    fn output(&self, i: usize) -> &HostBuffer {
        // SAFETY: as above.
        unsafe { &*Arc::as_ptr(&self.bindings.outputs[i]).cast::<HostBuffer>() }
    }
}

impl Drop for Uses<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.noted {
            self.end();
        }
    }
}

/// Returns a host buffer that is large enough for a type.
#[inline]
fn fits<'b>(b: &'b Arc<dyn DeviceBuffer>, ty: &Type, bindings: &Bindings, program: &Program) -> Result<&'b HostBuffer> {
    let Some(own) = b.as_any().downcast_ref::<HostBuffer>() else {
        return Err(Error::Bindings("the buffer belongs to another device".into()));
    };
    if DeviceBuffer::bytes(own) < ty.bytes() {
        // This gives the error that names the binding.
        bindings.check(program)?;
    }
    Ok(own)
}

/// Returns the address of a host buffer.
fn host(b: &dyn DeviceBuffer) -> Result<*mut u8> {
    let ours = b.as_any().downcast_ref::<HostBuffer>();
    ours.map(HostBuffer::as_ptr).ok_or_else(|| Error::Bindings("the buffer belongs to another device".into()))
}

#[derive(Default)]
struct Needs {
    gemm: usize,
    kernel: usize,
    /// An input rather than a result: whether kernels take their sizes as arguments.
    general: bool,
    /// Not a need: prints the code of the kernels.
    report: Option<Report>,
}

fn load_steps(cpu: &Cpu, program: &Program, steps: &[Step], needs: &mut Needs) -> Result<Vec<LoadedStep>> {
    steps.iter().map(|s| load_step(cpu, program, s, needs)).collect()
}

fn load_step(cpu: &Cpu, program: &Program, step: &Step, needs: &mut Needs) -> Result<LoadedStep> {
    Ok(match step {
        Step::Kernel { kernel, args, parallel } => {
            if args.len() > MAX_ARGS {
                return Err(Error::Internal(format!("a kernel of {} buffers", args.len())));
            }
            if let Some((routine, from, to)) = library::rearrangement(kernel, cpu.isa()) {
                let place = |i: usize| match &args[i] {
                    KernelArg::Place(p) => Some(p.clone()),
                    KernelArg::Scratch(_) => None,
                };
                if let (Some(from), Some(to)) = (from.into_iter().map(place).collect(), place(to)) {
                    needs.report.iter_mut().for_each(|r| r.kernel_code(&kernel.name, "a library routine"));
                    return Ok(LoadedStep::Library { routine, args: from, outs: vec![to] });
                }
            }
            let scratch = args
                .iter()
                .map(|a| match a {
                    KernelArg::Scratch(n) => n.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX),
                    KernelArg::Place(_) => 0,
                })
                .fold(0, usize::saturating_add);
            needs.kernel = needs.kernel.max(scratch);
            let (code, sizes) = if needs.general {
                let (kernel, sizes) = crate::shape_generic::make_shape_generic(kernel);
                (code(cpu, &Arc::new(kernel), needs)?, sizes.into())
            } else {
                (code(cpu, kernel, needs)?, Box::default())
            };
            LoadedStep::Kernel { code, sizes, args: args.clone(), parallel: *parallel, scratch }
        }
        Step::Matmul { shape, a, b, c, epilogue } => {
            let mut side = |f: &MatmulOperand| -> Result<LoadedOperand> {
                Ok(match f {
                    MatmulOperand::Memory(p) => LoadedOperand::Memory(p.clone()),
                    MatmulOperand::Computed(c) => {
                        LoadedOperand::Generated { code: code(cpu, &c.kernel, needs)?, args: c.args.clone() }
                    }
                })
            };
            let constant = constant_matrix(program, shape, b);
            let (a, mut b) = (side(a)?, side(b)?);
            let whole_rows = epilogue.as_ref().map(|e| e.needs_full_rows);
            if let Some((data, offset)) = constant {
                b = prepack_constant(cpu, shape, data, offset, &a, whole_rows)?;
            }
            let plan = plan(cpu, shape, [&a, &b], whole_rows)?;
            needs.gemm = needs.gemm.max(plan.scratch_bytes());
            let out = match (c, epilogue) {
                (_, Some(e)) => MatmulOutput::Tiles { code: code(cpu, &e.kernel, needs)?, args: e.args.clone() },
                (Some(c), None) => MatmulOutput::Memory(c.clone()),
                (None, None) => return Err(Error::Internal("a product without a destination".into())),
            };
            LoadedStep::Matmul { plan: Box::new(plan), a, b, out }
        }
        Step::Library { op, args, outs } => {
            let split = |x: &[(BufferSlice, Type)]| -> (Vec<BufferSlice>, Vec<Type>) { x.iter().cloned().unzip() };
            let ((args, arg_types), (outs, out_types)) = (split(args), split(outs));
            let routine = library::prepare(op, &arg_types, &out_types, cpu)?;
            needs.gemm = needs.gemm.max(routine.scratch_bytes());
            LoadedStep::Library { routine, args, outs }
        }
        Step::Copy { from, to, bytes } => LoadedStep::Copy { from: from.clone(), to: to.clone(), bytes: *bytes },
        Step::Zero { to, bytes } => LoadedStep::Zero { to: to.clone(), bytes: *bytes },
        Step::Branch { index, branches } => LoadedStep::Branch {
            index: index.clone(),
            branches: branches.iter().map(|b| load_steps(cpu, program, b, needs)).collect::<Result<_>>()?,
        },
        Step::Loop(l) => {
            let LoopStep { depth: level, trip_count: trip, reverse, body, copies_after: after } = &**l;
            LoadedStep::Loop {
                level: *level,
                trip: match trip {
                    TripCount::Exact(n) => LoadedTripCount::Exact(*n),
                    TripCount::Bounded { bound, count } => {
                        LoadedTripCount::Bounded { bound: *bound, count: count.clone() }
                    }
                    TripCount::While { test, flag } => {
                        LoadedTripCount::While { test: load_steps(cpu, program, test, needs)?, flag: flag.clone() }
                    }
                },
                reverse: *reverse,
                body: load_steps(cpu, program, body, needs)?,
                after: after.clone(),
            }
        }
    })
}

fn code(cpu: &Cpu, kernel: &Arc<Kernel>, needs: &mut Needs) -> Result<Code> {
    let compiled = match cpu.kernels.as_ref().map(|cache| cache.get(kernel)) {
        Some(Err(e)) if !matches!(e, CodegenError::Refused(_)) => return Err(Error::Backend(e.to_string())),
        compiled => compiled,
    };
    if let Some(report) = &mut needs.report {
        let evaluator = "the reference evaluator runs the loops";
        let text = match &compiled {
            Some(Ok(code)) => code.text(),
            Some(Err(why)) => format!("{evaluator}: {why}"),
            None => evaluator.into(),
        };
        report.kernel_code(&kernel.name, &text);
    }
    Ok(match compiled {
        Some(Ok(code)) => Code::Machine(code),
        _ => Code::Reference(kernel.clone()),
    })
}

/// Returns the data of a constant B that is the same for all matrices, of a matmul that packs it, and the offset of its first
/// element.
fn constant_matrix<'a>(program: &'a Program, s: &Matmul, b: &MatmulOperand) -> Option<(&'a Literal, usize)> {
    let MatmulOperand::Memory(BufferSlice { buffer: BufferRef::Fixed(id), offset, strides }) = b else { return None };
    let BufferKind::Constant(data) = &program.buffers[id.0 as usize].kind else { return None };
    let shared = s.batch == 1 || s.b[0] == 0;
    (shared && strides.is_empty() && s.m.min(s.n).min(s.k) >= PACKED_AHEAD).then_some((data, *offset as usize))
}

/// Packs a constant B once for all runs.
fn prepack_constant(
    cpu: &Cpu,
    s: &Matmul,
    data: &Literal,
    offset: usize,
    a: &LoadedOperand,
    whole_rows: Option<bool>,
) -> Result<LoadedOperand> {
    let from = HostBuffer::new(data.bytes().len())?;
    from.write(0, data.bytes())?;
    let plan = plan(cpu, s, [a, &LoadedOperand::Packed(HostBuffer::new(0)?)], whole_rows)?;
    let to = HostBuffer::new(plan.packed_b_bytes())?;
    let layout = MatrixLayout { row: s.b[1], col: s.b[2], batch: [0; 3] };
    // SAFETY: the compiler's strides stay inside of the constant, and `to` has the size that the plan says.
    unsafe { plan.prepack_b(&cpu.pool, from.as_ptr().wrapping_add(offset), &layout, to.as_ptr()) };
    Ok(LoadedOperand::Packed(to))
}

fn plan(cpu: &Cpu, s: &Matmul, [a, b]: [&LoadedOperand; 2], tiles: Option<bool>) -> Result<GemmPlan> {
    let layout = |x: [isize; 3]| MatrixLayout { row: x[1], col: x[2], batch: [x[0], 0, 0] };
    let source = |side: &LoadedOperand, strides: [isize; 3]| match side {
        LoadedOperand::Memory(_) => OperandSource::Memory(layout(strides)),
        LoadedOperand::Generated { .. } => OperandSource::Generated { batched: s.batch > 1 },
        LoadedOperand::Packed(_) => OperandSource::Packed,
    };
    let problem = GemmProblem {
        batch: [s.batch, 1, 1],
        a: source(a, s.a),
        b: source(b, s.b),
        c: match tiles {
            Some(whole_rows) => OutputKind::Epilogue { whole_rows },
            None => OutputKind::Memory { dtype: s.out, layout: layout(s.c), accumulate: false },
        },
        ..GemmProblem::new(s.m, s.k, s.n, s.dtype)
    };
    GemmPlan::new(&problem, cpu.pool.threads()).map_err(|e| Error::Backend(e.to_string()))
}
