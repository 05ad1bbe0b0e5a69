//! `Cpu`: the backend.

use crate::arena::Arenas;
use crate::codegen::{KernelCache, Target};
use crate::gemm::Isa;
use crate::library;
use crate::load::Loaded;
use crate::memory::HostBuffer;
use crate::pool::{Denormals, Pool};
use crate::thresholds::Threshold;
use compiler::target::{Epilogues, Keep, KernelLimits, Partials, Products, Prologues, Schedule, Workers};
use compiler::{Backend, Communicator, DeviceBuffer, Executable, Program, Result};
use ir::ops::Composite;
use ir::{DType, Type};
use std::sync::Arc;

/// What programs for a CPU look like.
static TARGET: compiler::Target = target(16);

/// The same with vectors of half the size.
static NARROW: compiler::Target = target(8);

/// The same where code is generated that doesn't turn rows into columns quickly.
static PORTABLE: compiler::Target = target(0);

const fn target(row_vector: i64) -> compiler::Target {
    compiler::Target {
        name: "cpu",
        dtypes: &DType::ALL,
        index: DType::I64,
        host_memory: true,
        kernel: KernelLimits {
            buffers: 40,
            reads: 24,
            results: 24,
            binding: isize::MAX as usize,
            cuts: 16,
            piece: 1,
            // A row that stays in the second cache.
            row_scratch: 128 << 10,
        },
        // About two transcendental functions are cheap.
        keep: Keep { costly: 12, cheap: 48, distant: 6 },
        partials: Partials {
            least: 1 << 18,
            few: 32,
            each: 1 << 18,
            lone: 8,
            blocks: 128,
            block: (1 << 13, 1 << 16),
            stages: 2,
        },
        schedule: Schedule::Workers(Workers {
            parallel_work: 40_000,
            chunks: 64,
            chunk_elements: 256,
            few_rows: 8,
            block: (512, 8192),
            block_of_sums: 64,
            row_vector,
            abreast: (8, 2048),
            parts: 64,
            scan_lanes: 512,
            scan_block: 1024,
            scan_whole: 8192,
        }),
        products: Products {
            dtypes: &[DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I8],
            // Some products and sums, a conversion.
            prologues: Some(Prologues { elements: 4096, cost: 12 }),
            epilogues: Some(Epilogues { whole_row: 1024 }),
        },
    }
}

/// Where programs for a CPU change with the sizes of a graph.
pub(crate) fn thresholds() -> Vec<Threshold> {
    let t = &TARGET;
    let mut all = vec![
        Threshold::new("kernel.buffers", t.kernel.buffers, "buffers of a kernel: beyond, values join no more"),
        Threshold::new(
            "kernel.reads",
            t.kernel.reads,
            "values that an expression reads: beyond, one is kept in memory",
        ),
        Threshold::new("kernel.results", t.kernel.results, "results of a kernel: beyond, another kernel computes them"),
        Threshold::new(
            "kernel.cuts",
            t.kernel.cuts,
            "pieces of an iteration space: beyond, masks take the place of cuts",
        ),
        Threshold::new(
            "kernel.parts",
            t.kernel.cuts / 2,
            "parts of a concatenation: beyond, they are copied by themselves",
        ),
        Threshold::new(
            "kernel.row_scratch",
            t.kernel.row_scratch / 8,
            "row elements: beyond, costly values are not kept",
        ),
        Threshold::new(
            "keep.costly",
            t.keep.costly as usize,
            "cost of a value that several places use: from here it is kept",
        ),
        Threshold::new("partials.least", t.partials.least, "elements of a reduction: from here it goes through blocks"),
        Threshold::new("partials.few", t.partials.few, "results of a long reduction: below, it goes through blocks"),
        Threshold::new("partials.block", t.partials.block.1, "block of a long reduction in elements, at most"),
    ];
    if let Schedule::Workers(w) = t.schedule {
        all.extend([
            Threshold::new(
                "schedule.parallel",
                w.parallel_work as usize,
                "work of a kernel: from here threads share it",
            ),
            Threshold::new("schedule.chunks", w.chunks as usize, "outer rows that are shared out"),
            Threshold::new(
                "schedule.few_rows",
                w.few_rows as usize,
                "outer rows: below, blocks of a row are shared out",
            ),
            Threshold::new("schedule.block", 2 * w.block.0 as usize, "elements of a row: from here it has blocks"),
            Threshold::new(
                "schedule.block_of_sums",
                2 * w.block_of_sums as usize,
                "columns that are summed: from here they have blocks",
            ),
            Threshold::new(
                "schedule.short_row",
                2 * w.row_vector as usize,
                "elements of a row that is reduced and used again: below, rows have a lane each",
            ),
            Threshold::new(
                "schedule.row_sum",
                w.row_vector as usize / 2,
                "the same of one sum or product alone: up to here",
            ),
            Threshold::new(
                "schedule.row_vector",
                w.row_vector as usize,
                "the same: rows of sums that fill a vector have it to themselves",
            ),
            Threshold::new("schedule.abreast", w.abreast.0 as usize, "short rows: from here they have a lane each"),
            Threshold::new(
                "schedule.abreast_block",
                w.abreast.1 as usize,
                "elements of short rows with a lane each: beyond, they are cut into blocks",
            ),
            Threshold::new(
                "schedule.scan_lanes",
                w.scan_lanes as usize,
                "lanes of a scan: beyond, carries are in memory",
            ),
            Threshold::new(
                "schedule.scan_whole",
                w.scan_whole as usize,
                "lanes of a scan that nothing divides: beyond, each iteration is a step of the program",
            ),
        ]);
    }
    if let Some(p) = t.products.prologues {
        let meaning = "elements of an operand: from here its product computes it while it packs it";
        all.push(Threshold::new("products.prologue", p.elements, meaning));
    }
    if let Some(e) = t.products.epilogues {
        all.push(Threshold::new(
            "products.whole_row",
            e.whole_row,
            "columns of a product that is finished by whole rows",
        ));
    }
    all.extend(compiler::fuse::BLOCKS.map(|(name, value, meaning)| Threshold::new(name, value, meaning)));
    all
}

/// Kernels kept compiled.
const CACHE: usize = 4096;

/// The CPU: a thread pool and a cache of kernels.
pub struct Cpu {
    pub(crate) pool: Arc<Pool>,
    pub(crate) arenas: Arc<Arenas>,
    pub(crate) kernels: Option<KernelCache>,
    target: Option<Target>,
    /// The way to other ranks, for programs with collectives.
    pub(crate) communicator: Option<Arc<dyn Communicator>>,
}

impl Cpu {
    /// A backend of so many threads.
    pub fn new(threads: usize) -> Cpu {
        Cpu::with_target(threads, Target::detect())
    }

    /// A backend that reads and writes denormal numbers as zero: many CPUs compute with them a hundred times slower, and
    /// training makes them. Training flushes them; everything else keeps them unless asked.
    pub fn flushing_denormals(threads: usize) -> Cpu {
        let pool = Arc::new(Pool::with_denormals(threads, Denormals::Flush));
        Cpu { pool, ..Cpu::new(1) }
    }

    /// A backend for one instruction set; `None` runs kernels in the slow reference evaluator.
    pub fn with_target(threads: usize, target: Option<Target>) -> Cpu {
        Cpu {
            pool: Arc::new(Pool::new(threads)),
            arenas: Arc::new(Arenas::new()),
            kernels: target.map(|t| KernelCache::new(t, CACHE)),
            target,
            communicator: None,
        }
    }

    /// The same as a rank among others: programs loaded from now on run their collectives through `communicator`.
    pub fn with_communicator(self, communicator: Arc<dyn Communicator>) -> Cpu {
        Cpu { communicator: Some(communicator), ..self }
    }

    /// Bytes of memory that runs use besides inputs and outputs, or have used and will use again.
    pub fn arena_bytes(&self) -> usize {
        self.arenas.bytes()
    }

    /// The machine code of a kernel, for people who want to read it.
    pub fn machine_code(&self, kernel: &compiler::loops::Kernel) -> Result<Vec<u8>> {
        let cache = self.kernels.as_ref().ok_or_else(|| {
            compiler::Error::Backend(
                "there is no machine code: kernels run in the reference evaluator on this machine".into(),
            )
        })?;
        let code = cache.get(kernel).map_err(|e| compiler::Error::Backend(e.to_string()))?;
        Ok(code.bytes().to_vec())
    }

    /// Prepares a program that will run in arenas of its callers ([`Executable::run_in`]), and takes none for it. With
    /// `general`, its kernels serve other sizes too, as [`Backend::load_general`] makes them.
    pub fn load_bare(&self, program: Program, general: bool) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Loaded::new(self, program, general)?))
    }

    /// The instruction set of kernels that are not generated.
    pub(crate) fn isa(&self) -> Isa {
        match self.target {
            Some(Target::Avx512) => Isa::Avx512,
            Some(Target::Avx2) => Isa::Avx2,
            Some(Target::Portable) => Isa::Portable,
            #[cfg(target_arch = "wasm32")]
            Some(Target::Wasm) => Isa::Portable,
            None => Isa::Portable,
        }
    }

    /// A backend with a thread for each core.
    pub fn for_machine() -> Cpu {
        Cpu::new(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        let target = match self.target {
            Some(Target::Avx512) => "avx512",
            Some(Target::Avx2) => "avx2",
            Some(Target::Portable) => "cranelift",
            #[cfg(target_arch = "wasm32")]
            Some(Target::Wasm) => "wasm",
            None => "reference",
        };
        format!("cpu ({target}, {} threads)", self.pool.threads())
    }

    fn overwrites(&self, op: &ir::Op) -> bool {
        matches!(op, ir::Op::Scatter(_))
    }

    fn target(&self) -> &compiler::Target {
        match self.target {
            Some(Target::Avx512) => &TARGET,
            Some(Target::Avx2) => &NARROW,
            _ => &PORTABLE,
        }
    }

    fn claims(&self, composite: &Composite, args: &[Type]) -> bool {
        library::claims(composite, args)
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(HostBuffer::new(bytes)?))
    }

    /// In one block, so that all of it can lie in large pages: reading it is up to twice as fast.
    fn alloc_together(&self, bytes: &[usize]) -> Result<Vec<Arc<dyn DeviceBuffer>>> {
        let (mut total, mut starts) = (0usize, Vec::with_capacity(bytes.len()));
        for bytes in bytes {
            starts.push(total);
            let fail = || compiler::Error::OutOfMemory { bytes: usize::MAX, hint: "" };
            total =
                bytes.checked_next_multiple_of(compiler::ALIGN).and_then(|n| total.checked_add(n)).ok_or_else(fail)?;
        }
        let block = Arc::new(HostBuffer::new(total)?);
        let part = |(start, bytes): (usize, &usize)| -> Result<Arc<dyn DeviceBuffer>> {
            // SAFETY: parts of a fresh block that don't overlap, and nobody else has it.
            Ok(Arc::new(unsafe { HostBuffer::part(&block, start, *bytes)? }))
        };
        starts.into_iter().zip(bytes).map(part).collect()
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Loaded::new(self, program, false)?.with_arena()?))
    }

    fn load_general(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Loaded::new(self, program, true)?.with_arena()?))
    }

    fn kernels(&self) -> usize {
        self.kernels.as_ref().map_or(0, KernelCache::len)
    }
}
