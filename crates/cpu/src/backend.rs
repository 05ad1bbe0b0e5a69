//! `Cpu`: the CPU backend.

use crate::arena::ArenaPool;
use crate::codegen::{KernelCache, Target};
use crate::gemm::Isa;
use crate::library;
use crate::load::LoadedProgram;
use crate::memory::HostBuffer;
use crate::pool::{Denormals, ThreadPool};
use crate::thresholds::Threshold;
use compiler::target::{
    CpuSchedule, EpilogueLimits, KernelLimits, LoopSchedule, MatmulTarget, PrologueLimits, RecomputePolicy,
    SplitReduction,
};
use compiler::{Backend, Communicator, DeviceBuffer, Executable, Program, Result};
use ir::ops::Composite;
use ir::{DType, Type};
use std::sync::Arc;

/// The compiler parameters for a CPU.
static TARGET: compiler::Target = target(16);

/// The compiler parameters for a CPU with 256-bit vectors.
static NARROW: compiler::Target = target(8);

/// The compiler parameters for code generators without fast transposes of rows.
static PORTABLE: compiler::Target = target(0);

const fn target(row_vector: i64) -> compiler::Target {
    compiler::Target {
        name: "cpu",
        dtypes: &DType::ALL,
        index: DType::I64,
        host_memory: true,
        kernel: KernelLimits {
            buffers: 40,
            max_operands: 24,
            max_results: 24,
            max_binding_bytes: isize::MAX as usize,
            max_space_splits: 16,
            min_launch_elements: 1,
            // A row that stays in L2.
            row_scratch_bytes: 128 << 10,
        },
        // Expressions with about two transcendental functions are cheap.
        recompute: RecomputePolicy { max_duplicate_cost: 12, max_recompute_cost: 48, min_distance: 6 },
        split_reduction: SplitReduction {
            min_elements: 1 << 18,
            saturating_results: 32,
            min_elements_per_share: 1 << 18,
            min_parallel_results: 8,
            blocks: 128,
            block: (1 << 13, 1 << 16),
            max_stages: 2,
        },
        schedule: LoopSchedule::Workers(CpuSchedule {
            parallel_work: 40_000,
            target_chunks: 64,
            chunk_elements: 256,
            min_parallel_rows: 8,
            block: (512, 8192),
            reduction_block: 64,
            vector_width: row_vector,
            interleaved_rows: (8, 2048),
            max_concat_operands: 64,
            max_register_scan_lanes: 512,
            scan_block_lanes: 1024,
            max_single_block_scan_lanes: 8192,
        }),
        matmul: MatmulTarget {
            dtypes: &[DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I8],
            // Allow a few multiplications and additions, or a conversion.
            prologues: Some(PrologueLimits { min_elements: 4096, max_element_cost: 12 }),
            epilogues: Some(EpilogueLimits { max_row_columns: 1024 }),
        },
    }
}

/// The sizes at which compiled programs for a CPU change.
pub(crate) fn thresholds() -> Vec<Threshold> {
    let t = &TARGET;
    let mut all = vec![
        Threshold::new("kernel.buffers", t.kernel.buffers, "buffers of a kernel: beyond, values join no more"),
        Threshold::new(
            "kernel.reads",
            t.kernel.max_operands,
            "values that an expression reads: beyond, one is kept in memory",
        ),
        Threshold::new(
            "kernel.results",
            t.kernel.max_results,
            "results of a kernel: beyond, another kernel computes them",
        ),
        Threshold::new(
            "kernel.cuts",
            t.kernel.max_space_splits,
            "pieces of an iteration space: beyond, masks take the place of cuts",
        ),
        Threshold::new(
            "kernel.parts",
            t.kernel.max_space_splits / 2,
            "parts of a concatenation: beyond, they are copied by themselves",
        ),
        Threshold::new(
            "kernel.row_scratch",
            t.kernel.row_scratch_bytes / 8,
            "row elements: beyond, costly values are not kept",
        ),
        Threshold::new(
            "keep.costly",
            t.recompute.max_duplicate_cost as usize,
            "cost of a value that several places use: from here it is kept",
        ),
        Threshold::new(
            "partials.least",
            t.split_reduction.min_elements,
            "elements of a reduction: from here it goes through blocks",
        ),
        Threshold::new(
            "partials.few",
            t.split_reduction.saturating_results,
            "results of a long reduction: below, it goes through blocks",
        ),
        Threshold::new("partials.block", t.split_reduction.block.1, "block of a long reduction in elements, at most"),
    ];
    if let LoopSchedule::Workers(w) = t.schedule {
        all.extend([
            Threshold::new(
                "schedule.parallel",
                w.parallel_work as usize,
                "work of a kernel: from here threads share it",
            ),
            Threshold::new("schedule.chunks", w.target_chunks as usize, "outer rows that are shared out"),
            Threshold::new(
                "schedule.few_rows",
                w.min_parallel_rows as usize,
                "outer rows: below, blocks of a row are shared out",
            ),
            Threshold::new("schedule.block", 2 * w.block.0 as usize, "elements of a row: from here it has blocks"),
            Threshold::new(
                "schedule.block_of_sums",
                2 * w.reduction_block as usize,
                "columns that are summed: from here they have blocks",
            ),
            Threshold::new(
                "schedule.short_row",
                2 * w.vector_width as usize,
                "elements of a row that is reduced and used again: below, rows have a lane each",
            ),
            Threshold::new(
                "schedule.row_sum",
                w.vector_width as usize / 2,
                "the same of one sum or product alone: up to here",
            ),
            Threshold::new(
                "schedule.row_vector",
                w.vector_width as usize,
                "the same: rows of sums that fill a vector have it to themselves",
            ),
            Threshold::new(
                "schedule.abreast",
                w.interleaved_rows.0 as usize,
                "short rows: from here they have a lane each",
            ),
            Threshold::new(
                "schedule.abreast_block",
                w.interleaved_rows.1 as usize,
                "elements of short rows with a lane each: beyond, they are cut into blocks",
            ),
            Threshold::new(
                "schedule.scan_lanes",
                w.max_register_scan_lanes as usize,
                "lanes of a scan: beyond, carries are in memory",
            ),
            Threshold::new(
                "schedule.scan_whole",
                w.max_single_block_scan_lanes as usize,
                "lanes of a scan that nothing divides: beyond, each iteration is a step of the program",
            ),
        ]);
    }
    if let Some(p) = t.matmul.prologues {
        let meaning = "elements of an operand: from here its product computes it while it packs it";
        all.push(Threshold::new("products.prologue", p.min_elements, meaning));
    }
    if let Some(e) = t.matmul.epilogues {
        all.push(Threshold::new(
            "products.whole_row",
            e.max_row_columns,
            "columns of a product that is finished by whole rows",
        ));
    }
    all.extend(compiler::fuse::BLOCKS.map(|(name, value, meaning)| Threshold::new(name, value, meaning)));
    all
}

/// The maximum number of cached kernels.
const CACHE: usize = 4096;

/// The CPU backend: a thread pool and a cache of kernels.
pub struct Cpu {
    pub(crate) pool: Arc<ThreadPool>,
    pub(crate) arenas: Arc<ArenaPool>,
    pub(crate) kernels: Option<KernelCache>,
    target: Option<Target>,
    /// The communicator to other ranks, for programs with collectives.
    pub(crate) communicator: Option<Arc<dyn Communicator>>,
}

impl Cpu {
    /// Returns a backend with the given number of threads.
    pub fn new(threads: usize) -> Cpu {
        Cpu::with_target(threads, Target::detect())
    }

    /// Returns a backend that flushes denormal numbers to zero: many CPUs compute with them a hundred times slower, and
    /// training produces them. Training flushes them; everything else keeps them unless requested.
    pub fn with_flush_denormals(threads: usize) -> Cpu {
        let pool = Arc::new(ThreadPool::with_denormals(threads, Denormals::Flush));
        Cpu { pool, ..Cpu::new(1) }
    }

    /// Returns a backend for one instruction set; `None` runs kernels in the slow reference evaluator.
    pub fn with_target(threads: usize, target: Option<Target>) -> Cpu {
        Cpu {
            pool: Arc::new(ThreadPool::new(threads)),
            arenas: Arc::new(ArenaPool::new()),
            kernels: target.map(|t| KernelCache::new(t, CACHE)),
            target,
            communicator: None,
        }
    }

    /// Makes the backend one rank of several: programs loaded from now on run their collectives through `communicator`.
    pub fn with_communicator(self, communicator: Arc<dyn Communicator>) -> Cpu {
        Cpu { communicator: Some(communicator), ..self }
    }

    /// The bytes of memory that runs use in addition to inputs and outputs, including memory kept for later runs.
    pub fn arena_bytes(&self) -> usize {
        self.arenas.bytes()
    }

    /// Returns the machine code of a kernel, for inspection.
    pub fn machine_code(&self, kernel: &compiler::loops::Kernel) -> Result<Vec<u8>> {
        let cache = self.kernels.as_ref().ok_or_else(|| {
            compiler::Error::Backend(
                "there is no machine code: kernels run in the reference evaluator on this machine".into(),
            )
        })?;
        let code = cache.get(kernel).map_err(|e| compiler::Error::Backend(e.to_string()))?;
        Ok(code.bytes().to_vec())
    }

    /// Loads a program that runs in arenas of its callers ([`Executable::run_with_arena`]), without allocating one. With
    /// `general`, its kernels also serve other sizes, like those of [`Backend::load_shape_generic`].
    pub fn load_without_arena(&self, program: Program, general: bool) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(LoadedProgram::new(self, program, general)?))
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

    /// Returns a backend with one thread per core.
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

    fn supports_in_place(&self, op: &ir::Op) -> bool {
        matches!(op, ir::Op::Scatter(_))
    }

    fn target(&self) -> &compiler::Target {
        match self.target {
            Some(Target::Avx512) => &TARGET,
            Some(Target::Avx2) => &NARROW,
            _ => &PORTABLE,
        }
    }

    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool {
        library::supports(composite, args)
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(HostBuffer::new(bytes)?))
    }

    /// A single block can use huge pages: reading it is up to twice as fast.
    fn alloc_group(&self, bytes: &[usize]) -> Result<Vec<Arc<dyn DeviceBuffer>>> {
        let (mut total, mut starts) = (0usize, Vec::with_capacity(bytes.len()));
        for bytes in bytes {
            starts.push(total);
            let fail = || compiler::Error::OutOfMemory { bytes: usize::MAX, hint: "" };
            total =
                bytes.checked_next_multiple_of(compiler::ALIGN).and_then(|n| total.checked_add(n)).ok_or_else(fail)?;
        }
        let block = Arc::new(HostBuffer::new(total)?);
        let part = |(start, bytes): (usize, &usize)| -> Result<Arc<dyn DeviceBuffer>> {
            // SAFETY: parts of a fresh block that don't overlap, and nothing else accesses it.
            Ok(Arc::new(unsafe { HostBuffer::slice(&block, start, *bytes)? }))
        };
        starts.into_iter().zip(bytes).map(part).collect()
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(LoadedProgram::new(self, program, false)?.with_arena()?))
    }

    fn load_shape_generic(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(LoadedProgram::new(self, program, true)?.with_arena()?))
    }

    fn kernels(&self) -> usize {
        self.kernels.as_ref().map_or(0, KernelCache::len)
    }
}
