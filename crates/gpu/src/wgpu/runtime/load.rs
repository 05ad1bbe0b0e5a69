//! Loads a program on the device: compiles kernels, plans matrix products, uploads constants.

use super::allocations::Allocations;
use super::attention::Attention;
use super::backend::Inner;
use super::copy_fill;
use super::launch::{Argument, BindingLimits, Launch};
use super::memory::WgpuBuffer;
use super::pipelines::Pipeline;
use super::pool::ALIGN;
use super::product;
use super::scatter_rows::RowScatter;
use crate::grid::alignment::aligned;
use crate::grid::{self, AddressSpace};
use crate::host::HostFallback;
use crate::library;
use crate::wgpu::{ShaderSource, print};
use compiler::debug::Report;
use compiler::loops::Kernel;
use compiler::program::{
    BufferKind, BufferSlice, KernelArg, LoopStep, Matmul, MatmulOperand, Program, Step, TripCount,
};
use compiler::{DeviceBuffer, Error, Result};
use ir::Type;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The maximum nesting of loops.
pub(super) const MAX_LEVELS: usize = 8;

/// A loaded step.
pub(super) enum LoadedStep {
    /// Dispatches in order.
    Launches(Vec<Launch>),
    Host(Box<HostFallback>),
    Branch {
        index: BufferSlice,
        branches: Vec<Vec<LoadedStep>>,
    },
    Loop {
        level: usize,
        trip: LoadedTripCount,
        reverse: bool,
        body: Vec<LoadedStep>,
        after: Vec<Launch>,
    },
}

/// The trip count of a loop.
pub(super) enum LoadedTripCount {
    Exact(usize),
    Bounded { bound: usize, count: BufferSlice },
    While { test: Vec<LoadedStep>, flag: BufferSlice },
}

/// A loaded program.
pub(super) struct LoadedProgram {
    pub(super) inner: Arc<Inner>,
    pub(super) program: Program,
    pub(super) steps: Vec<LoadedStep>,
    pub(super) pipelines: Vec<Arc<Pipeline>>,
    pub(super) roots: Allocations,
    pub(super) constants: Option<WgpuBuffer>,
    pub(super) arena_bytes: usize,
}

impl LoadedProgram {
    pub(super) fn new(inner: &Arc<Inner>, program: Program) -> Result<LoadedProgram> {
        if program.max_loop_depth > MAX_LEVELS {
            return Err(Error::Backend(format!(
                "loops are nested {} levels deep, but at most {MAX_LEVELS} are supported",
                program.max_loop_depth
            )));
        }
        let mut report = Report::code(&program, || "wgpu".into());
        let program = library::expand(program, &inner.means(), &|op, args| RowScatter::of(op, args).is_some());
        let mut constant_at = vec![0; program.buffers.len()];
        let mut data = Vec::new();
        for (i, b) in program.buffers.iter().enumerate() {
            if let BufferKind::Constant(l) = &b.kind {
                constant_at[i] = data.len();
                data.extend_from_slice(l.bytes());
                data.resize(data.len().next_multiple_of(ALIGN), 0);
            }
        }
        let roots = Allocations::new(&program, &constant_at);
        let scratch_at = program.arena_bytes.next_multiple_of(ALIGN);
        let fresh = |whole| Loader {
            inner,
            program: &program,
            roots: &roots,
            texts: Texts::default(),
            scratch_at,
            scratch: 0,
            constants: data.len(),
            whole,
        };
        let mut loader = fresh(true);
        let mut steps = loader.steps(&program.steps)?;
        if scratch_at + loader.scratch > inner.device.binding() {
            // Only now it is known that the arena, including scratch, exceeds the binding limit.
            loader = fresh(false);
            steps = loader.steps(&program.steps)?;
        }
        let (Texts { all: texts, names, .. }, scratch) = (loader.texts, loader.scratch);
        if let Some(report) = &mut report {
            for (i, text) in texts.iter().enumerate() {
                report.kernel_code(&names.get(&i).cloned().unwrap_or_else(|| format!("shader {i}")), &text.source);
            }
        }
        let pipelines = inner.device.pipelines.get(&inner.device, &texts)?;
        // A buffer without elements also needs a binding.
        let constants = match program.buffers.iter().any(|b| matches!(b.kind, BufferKind::Constant(_))) {
            false => None,
            true => {
                let buffer = WgpuBuffer::new(&inner.device, data.len())?;
                buffer.write(0, &data)?;
                Some(buffer)
            }
        };
        let activations = program.buffers.iter().any(|b| matches!(b.kind, BufferKind::Activation));
        let arena_bytes = (scratch_at + scratch).max(activations as usize);
        Ok(LoadedProgram { inner: inner.clone(), steps, pipelines, roots, constants, arena_bytes, program })
    }
}

/// The shader sources of a program, each once.
#[derive(Default)]
struct Texts {
    all: Vec<ShaderSource>,
    known: FxHashMap<ShaderSource, usize>,
    /// Names of those that are kernels of the program.
    names: FxHashMap<usize, String>,
}

impl Texts {
    fn number(&mut self, text: ShaderSource) -> usize {
        if let Some(k) = self.known.get(&text) {
            return *k;
        }
        self.all.push(text.clone());
        self.known.insert(text, self.all.len() - 1);
        self.all.len() - 1
    }
}

struct Loader<'a> {
    inner: &'a Arc<Inner>,
    program: &'a Program,
    roots: &'a Allocations,
    texts: Texts,
    scratch_at: usize,
    /// The maximum scratch bytes of a step; steps reuse the same scratch.
    scratch: usize,
    /// The bytes of all constants.
    constants: usize,
    /// Whether kernels bind the arena as a whole.
    whole: bool,
}

impl Loader<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<LoadedStep>> {
        steps.iter().map(|s| self.step(s)).collect()
    }

    fn step(&mut self, step: &Step) -> Result<LoadedStep> {
        Ok(match step {
            Step::Kernel { kernel, args, .. } => LoadedStep::Launches(self.kernel(kernel, args)?.into_iter().collect()),
            Step::Matmul { shape, a, b, c, epilogue } => {
                let (MatmulOperand::Memory(a), MatmulOperand::Memory(b), Some(c), None) = (a, b, c, epilogue) else {
                    return Err(Error::Internal(
                        "matrix products with a prologue or epilogue are not supported by wgpu".into(),
                    ));
                };
                LoadedStep::Launches(self.product(shape, [a, b, c])?)
            }
            Step::Library { op, args, outs } => {
                let types: Vec<Type> = args.iter().map(|(_, t)| t.clone()).collect();
                if let Some(attention) = Attention::of(op, &types, &self.inner.limits) {
                    return Ok(LoadedStep::Launches(self.attention(&attention, args, outs)?));
                }
                match RowScatter::of(op, &types) {
                    Some(rows) => LoadedStep::Launches(self.rows(&rows, args, &outs[0].0)?),
                    None => LoadedStep::Host(Box::new(HostFallback::new(&self.inner.host, op, args, outs)?)),
                }
            }
            Step::Copy { from, to, bytes } => LoadedStep::Launches(self.copy(from, to, *bytes)?),
            Step::Zero { to, bytes } => {
                let args = vec![Argument::place(to, 1)];
                match bytes {
                    0 => LoadedStep::Launches(Vec::new()),
                    &n => LoadedStep::Launches(vec![self.launch(
                        args,
                        vec![n as u32],
                        copy_fill::grid(n),
                        &copy_fill::zero_text,
                    )?]),
                }
            }
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
                let mut copies = Vec::new();
                for (from, to, bytes) in after {
                    copies.extend(self.copy(from, to, *bytes)?);
                }
                let after = copies;
                LoadedStep::Loop { level: *level, trip, reverse: *reverse, body, after }
            }
        })
    }

    fn launch(
        &mut self,
        args: Vec<Argument>,
        params: Vec<u32>,
        grid: [u32; 3],
        text: &dyn Fn(&[usize]) -> ShaderSource,
    ) -> Result<Launch> {
        let device = &self.inner.device;
        let count = device.limits.max_storage_buffers_per_shader_stage as usize;
        let constants = self.constants <= device.binding();
        let reach =
            BindingLimits { binding: device.binding(), count, arena_fits: self.whole, constants_fit: constants };
        let texts = &mut self.texts;
        Launch::new(self.roots, reach, args, params, grid, text, &mut |t| texts.number(t))
    }

    fn copy(&mut self, from: &BufferSlice, to: &BufferSlice, bytes: usize) -> Result<Vec<Launch>> {
        if bytes == 0 || from == to {
            return Ok(Vec::new());
        }
        let args = vec![Argument::place(to, 1), Argument::place(from, 1)];
        Ok(vec![self.launch(args, vec![bytes as u32], copy_fill::grid(bytes), &copy_fill::copy_text)?])
    }

    fn kernel(&mut self, kernel: &Kernel, args: &[KernelArg]) -> Result<Option<Launch>> {
        if args.len() != kernel.buffers.len() {
            return Err(Error::Internal(format!(
                "kernel {} has {} buffers, but the step gives {}",
                kernel.name,
                kernel.buffers.len(),
                args.len()
            )));
        }
        let given = grid::launch_info(self.program, kernel, args, ALIGN);
        let limits = &self.inner.limits;
        let grid = grid::lower(kernel, limits, &given).map_err(|e| Error::Backend(e.to_string()))?;
        let blocks = grid.blocks(&[]);
        if blocks == 0 {
            return Ok(None);
        }
        let mut spills = grid.spill_bytes(blocks).into_iter();
        let mut scratch = 0;
        let mut arguments = Vec::with_capacity(grid.memory.len());
        for (i, m) in grid.memory.iter().enumerate() {
            let size = m.dtype.size();
            match m.space {
                AddressSpace::Shared(_) => {}
                AddressSpace::Spill(_) => {
                    let bytes = spills.next().unwrap_or(0);
                    arguments.push(Argument { size, ..Argument::scratch(self.scratch_at + scratch, bytes) });
                    scratch += bytes.next_multiple_of(ALIGN);
                }
                AddressSpace::Global(_) => match args.get(i) {
                    Some(KernelArg::Place(p)) => arguments.push(Argument::place(p, size)),
                    _ => return Err(Error::Internal(format!("kernel {}: no memory for argument {i}", kernel.name))),
                },
            }
        }
        self.scratch = self.scratch.max(scratch);
        // Equal kernels with different names are shared.
        let nameless = grid::GridKernel { name: String::new(), ..grid };
        let text = |homes: &[usize]| {
            // Shared arrays have no binding.
            let mut own = homes.iter();
            let all: Vec<usize> = nameless
                .memory
                .iter()
                .map(|m| match m.space {
                    AddressSpace::Shared(_) => 0,
                    _ => own.next().copied().unwrap_or(0),
                })
                .collect();
            print(&nameless, &all)
        };
        let launch = self.launch(arguments, Vec::new(), [blocks, 1, 1], &text)?;
        for pipeline in launch.pipelines() {
            self.texts.names.entry(pipeline).or_insert_with(|| kernel.name.clone());
        }
        Ok(Some(launch))
    }

    fn rows(&mut self, rows: &RowScatter, args: &[(BufferSlice, Type)], out: &BufferSlice) -> Result<Vec<Launch>> {
        self.scratch = self.scratch.max(rows.scratch().next_multiple_of(ALIGN));
        let places: Vec<BufferSlice> = args.iter().map(|(p, _)| p.clone()).collect();
        let parts = rows.parts(&places, out, self.scratch_at);
        parts.into_iter().map(|p| self.launch(p.args, p.params, p.grid, &p.text)).collect()
    }

    fn attention(
        &mut self,
        a: &Attention,
        args: &[(BufferSlice, Type)],
        outs: &[(BufferSlice, Type)],
    ) -> Result<Vec<Launch>> {
        self.scratch = self.scratch.max(a.scratch().next_multiple_of(ALIGN));
        let places = |all: &[(BufferSlice, Type)]| all.iter().map(|(p, _)| p.clone()).collect::<Vec<BufferSlice>>();
        let (args, outs) = (places(args), places(outs));
        // If one of them is not aligned, stores change partial words.
        let align = if outs.iter().all(|p| aligned(self.program, p, ALIGN).is_multiple_of(4)) { 4 } else { 1 };
        let parts = a.parts(&args, &outs, align, self.scratch_at, &self.inner.limits);
        parts.into_iter().map(|p| self.launch(p.args, p.params, p.grid, &p.text)).collect()
    }

    fn product(&mut self, shape: &Matmul, places: [&BufferSlice; 3]) -> Result<Vec<Launch>> {
        let align = places.map(|p| aligned(self.program, p, ALIGN));
        let way = self.inner.tuned.way(shape);
        let squares = self.inner.device.squares();
        let (parts, scratch) = product::plan(shape, places, align, self.scratch_at, way, squares)?;
        self.scratch = self.scratch.max(scratch.next_multiple_of(ALIGN));
        let launches = parts.into_iter().map(|p| {
            let kind = p.kind;
            self.launch(p.args, p.params, p.grid, &|homes| kind.text(homes))
        });
        launches.collect()
    }
}
