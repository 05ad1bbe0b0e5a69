//! Program → something that runs on the device: kernels compiled, products planned, constants in memory.

use super::attention::Attention;
use super::backend::Inner;
use super::launch::{Argument, Launch, Reach};
use super::memory::WgpuBuffer;
use super::moves;
use super::pipelines::Pipeline;
use super::pool::ALIGN;
use super::product;
use super::roots::Roots;
use super::rows::Rows;
use crate::grid::places::aligned;
use crate::grid::{self, Space};
use crate::host::Host;
use crate::library;
use crate::wgpu::{Text, print};
use compiler::debug::Report;
use compiler::loops::Kernel;
use compiler::program::{Class, Factor, KernelArg, LoopStep, Matmul, Place, Program, Step, Trip};
use compiler::{DeviceBuffer, Error, Result};
use ir::Type;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The most loops inside each other.
pub(super) const MAX_LEVELS: usize = 8;

/// A step ready to run.
pub(super) enum Ready {
    /// Dispatches, one after another.
    Launches(Vec<Launch>),
    Host(Box<Host>),
    Branch {
        index: Place,
        branches: Vec<Vec<Ready>>,
    },
    Loop {
        level: usize,
        trip: ReadyTrip,
        reverse: bool,
        body: Vec<Ready>,
        after: Vec<Launch>,
    },
}

/// How often a loop runs.
pub(super) enum ReadyTrip {
    Exact(usize),
    Bounded { bound: usize, count: Place },
    While { test: Vec<Ready>, flag: Place },
}

/// A program ready to run.
pub(super) struct Loaded {
    pub(super) inner: Arc<Inner>,
    pub(super) program: Program,
    pub(super) steps: Vec<Ready>,
    pub(super) pipelines: Vec<Arc<Pipeline>>,
    pub(super) roots: Roots,
    pub(super) constants: Option<WgpuBuffer>,
    pub(super) arena_bytes: usize,
}

impl Loaded {
    pub(super) fn new(inner: &Arc<Inner>, program: Program) -> Result<Loaded> {
        if program.levels > MAX_LEVELS {
            return Err(Error::Backend(format!(
                "loops nest {} deep, at most {MAX_LEVELS} are supported",
                program.levels
            )));
        }
        let mut report = Report::code(&program, || "wgpu".into());
        let program = library::expand(program, &inner.means(), &|op, args| Rows::of(op, args).is_some());
        let mut constant_at = vec![0; program.buffers.len()];
        let mut data = Vec::new();
        for (i, b) in program.buffers.iter().enumerate() {
            if let Class::Constant(l) = &b.class {
                constant_at[i] = data.len();
                data.extend_from_slice(l.bytes());
                data.resize(data.len().next_multiple_of(ALIGN), 0);
            }
        }
        let roots = Roots::new(&program, &constant_at);
        let scratch_at = program.arena.next_multiple_of(ALIGN);
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
            // Only now is it known that the arena, scratch included, is more than a kernel can bind.
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
        // Even what has no elements has to be bound.
        let constants = match program.buffers.iter().any(|b| matches!(b.class, Class::Constant(_))) {
            false => None,
            true => {
                let buffer = WgpuBuffer::new(&inner.device, data.len())?;
                buffer.write(0, &data)?;
                Some(buffer)
            }
        };
        let activations = program.buffers.iter().any(|b| matches!(b.class, Class::Activation));
        let arena_bytes = (scratch_at + scratch).max(activations as usize);
        Ok(Loaded { inner: inner.clone(), steps, pipelines, roots, constants, arena_bytes, program })
    }
}

/// The texts of a program, each once.
#[derive(Default)]
struct Texts {
    all: Vec<Text>,
    known: FxHashMap<Text, usize>,
    /// Names of those that are kernels of the program.
    names: FxHashMap<usize, String>,
}

impl Texts {
    fn number(&mut self, text: Text) -> usize {
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
    roots: &'a Roots,
    texts: Texts,
    scratch_at: usize,
    /// Bytes of scratch that the neediest step wants: steps follow each other.
    scratch: usize,
    /// Bytes of all constants.
    constants: usize,
    /// Whether kernels bind the arena as a whole.
    whole: bool,
}

impl Loader<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<Ready>> {
        steps.iter().map(|s| self.step(s)).collect()
    }

    fn step(&mut self, step: &Step) -> Result<Ready> {
        Ok(match step {
            Step::Kernel { kernel, args, .. } => Ready::Launches(self.kernel(kernel, args)?.into_iter().collect()),
            Step::Matmul { shape, a, b, c, epilogue } => {
                let (Factor::Memory(a), Factor::Memory(b), Some(c), None) = (a, b, c, epilogue) else {
                    return Err(Error::Internal(
                        "a product with a prologue or epilogue, which wgpu has none of".into(),
                    ));
                };
                Ready::Launches(self.product(shape, [a, b, c])?)
            }
            Step::Library { op, args, outs } => {
                let types: Vec<Type> = args.iter().map(|(_, t)| t.clone()).collect();
                if let Some(attention) = Attention::of(op, &types, &self.inner.limits) {
                    return Ok(Ready::Launches(self.attention(&attention, args, outs)?));
                }
                match Rows::of(op, &types) {
                    Some(rows) => Ready::Launches(self.rows(&rows, args, &outs[0].0)?),
                    None => Ready::Host(Box::new(Host::new(&self.inner.host, op, args, outs)?)),
                }
            }
            Step::Copy { from, to, bytes } => Ready::Launches(self.copy(from, to, *bytes)?),
            Step::Zero { to, bytes } => {
                let args = vec![Argument::place(to, 1)];
                match bytes {
                    0 => Ready::Launches(Vec::new()),
                    &n => {
                        Ready::Launches(vec![self.launch(args, vec![n as u32], moves::grid(n), &moves::zero_text)?])
                    }
                }
            }
            Step::Branch { index, branches } => Ready::Branch {
                index: index.clone(),
                branches: branches.iter().map(|b| self.steps(b)).collect::<Result<_>>()?,
            },
            Step::Loop(l) => {
                let LoopStep { level, trip, reverse, body, after } = &**l;
                let trip = match trip {
                    Trip::Exact(n) => ReadyTrip::Exact(*n),
                    Trip::Bounded { bound, count } => ReadyTrip::Bounded { bound: *bound, count: count.clone() },
                    Trip::While { test, flag } => ReadyTrip::While { test: self.steps(test)?, flag: flag.clone() },
                };
                let body = self.steps(body)?;
                let mut copies = Vec::new();
                for (from, to, bytes) in after {
                    copies.extend(self.copy(from, to, *bytes)?);
                }
                let after = copies;
                Ready::Loop { level: *level, trip, reverse: *reverse, body, after }
            }
        })
    }

    fn launch(
        &mut self,
        args: Vec<Argument>,
        params: Vec<u32>,
        grid: [u32; 3],
        text: &dyn Fn(&[usize]) -> Text,
    ) -> Result<Launch> {
        let device = &self.inner.device;
        let count = device.limits.max_storage_buffers_per_shader_stage as usize;
        let constants = self.constants <= device.binding();
        let reach = Reach { binding: device.binding(), count, whole: self.whole, constants };
        let texts = &mut self.texts;
        Launch::new(self.roots, reach, args, params, grid, text, &mut |t| texts.number(t))
    }

    fn copy(&mut self, from: &Place, to: &Place, bytes: usize) -> Result<Vec<Launch>> {
        if bytes == 0 || from == to {
            return Ok(Vec::new());
        }
        let args = vec![Argument::place(to, 1), Argument::place(from, 1)];
        Ok(vec![self.launch(args, vec![bytes as u32], moves::grid(bytes), &moves::copy_text)?])
    }

    fn kernel(&mut self, kernel: &Kernel, args: &[KernelArg]) -> Result<Option<Launch>> {
        if args.len() != kernel.buffers.len() {
            return Err(Error::Internal(format!(
                "kernel {} has {} buffers, the step gives {}",
                kernel.name,
                kernel.buffers.len(),
                args.len()
            )));
        }
        let given = grid::given(self.program, kernel, args, ALIGN);
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
                Space::Shared(_) => {}
                Space::Spill(_) => {
                    let bytes = spills.next().unwrap_or(0);
                    arguments.push(Argument { size, ..Argument::scratch(self.scratch_at + scratch, bytes) });
                    scratch += bytes.next_multiple_of(ALIGN);
                }
                Space::Global(_) => match args.get(i) {
                    Some(KernelArg::Place(p)) => arguments.push(Argument::place(p, size)),
                    _ => return Err(Error::Internal(format!("kernel {}: no memory for argument {i}", kernel.name))),
                },
            }
        }
        self.scratch = self.scratch.max(scratch);
        // Equal kernels are one, whatever the programs call them.
        let nameless = grid::Kernel { name: String::new(), ..grid };
        let text = |homes: &[usize]| {
            // Shared arrays have no home.
            let mut own = homes.iter();
            let all: Vec<usize> = nameless
                .memory
                .iter()
                .map(|m| match m.space {
                    Space::Shared(_) => 0,
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

    fn rows(&mut self, rows: &Rows, args: &[(Place, Type)], out: &Place) -> Result<Vec<Launch>> {
        self.scratch = self.scratch.max(rows.scratch().next_multiple_of(ALIGN));
        let places: Vec<Place> = args.iter().map(|(p, _)| p.clone()).collect();
        let parts = rows.parts(&places, out, self.scratch_at);
        parts.into_iter().map(|p| self.launch(p.args, p.params, p.grid, &p.text)).collect()
    }

    fn attention(&mut self, a: &Attention, args: &[(Place, Type)], outs: &[(Place, Type)]) -> Result<Vec<Launch>> {
        self.scratch = self.scratch.max(a.scratch().next_multiple_of(ALIGN));
        let places = |all: &[(Place, Type)]| all.iter().map(|(p, _)| p.clone()).collect::<Vec<Place>>();
        let (args, outs) = (places(args), places(outs));
        // One of them that is not is enough to store parts of words.
        let align = if outs.iter().all(|p| aligned(self.program, p, ALIGN).is_multiple_of(4)) { 4 } else { 1 };
        let parts = a.parts(&args, &outs, align, self.scratch_at, &self.inner.limits);
        parts.into_iter().map(|p| self.launch(p.args, p.params, p.grid, &p.text)).collect()
    }

    fn product(&mut self, shape: &Matmul, places: [&Place; 3]) -> Result<Vec<Launch>> {
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
