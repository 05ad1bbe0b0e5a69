//! The description of a device for the compiler, returned by [`crate::Backend::target`].
//!
//! Fusion, scheduling and the decisions about matrix products read it; no other part of the compiler depends on the machine.
//! The schedule itself is chosen in `fuse/lower.rs` (`choose_loops`).

use crate::{Error, Result};
use ir::{DType, Graph, Op, Type};

/// The properties of a device that affect compiled programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// A short name for messages and saved programs: `cpu`, `cuda`, `wgpu`.
    pub name: &'static str,
    /// The dtypes that the device can store and compute with.
    pub dtypes: &'static [DType],
    /// The integer type of its address computations.
    pub index: DType,
    /// Whether it computes in the host's memory, so that host buffers can be used without a copy.
    pub host_memory: bool,
    /// The limits of one kernel.
    pub kernel: KernelLimits,
    /// When a value is recomputed instead of stored.
    pub recompute: RecomputePolicy,
    /// When reductions are split over threads.
    pub split_reduction: SplitReduction,
    /// How loops are laid out.
    pub schedule: LoopSchedule,
    /// The prologues and epilogues that its matrix products support.
    pub matmul: MatmulTarget,
}

/// The limits of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// The maximum number of buffer arguments.
    pub buffers: usize,
    /// The maximum number of values in memory that one expression reads.
    pub max_operands: usize,
    /// The maximum number of results.
    pub max_results: usize,
    /// The maximum bytes of one buffer that a kernel can address.
    pub max_binding_bytes: usize,
    /// The maximum number of splits of an iteration space, which avoid masks for pads and concatenations. On devices where each
    /// part is a kernel launch, masks are cheaper: 0.
    pub max_space_splits: usize,
    /// The minimum number of elements of a part, if each part is a kernel launch.
    pub min_launch_elements: usize,
    /// The maximum bytes per row for which an expensive intermediate is kept in scratch from one loop of a row to the next.
    pub row_scratch_bytes: usize,
}

/// When a value is recomputed instead of stored. Costs are those of `fuse/expr.rs`: approximate counts of machine operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecomputePolicy {
    /// The cost from which a value with several consumers is stored instead of recomputed.
    pub max_duplicate_cost: u32,
    /// The maximum cost of a value that is recomputed for a distant consumer.
    pub max_recompute_cost: u32,
    /// The number of heavy ops (matrix products, library calls, loops) between a value and its consumer that makes the consumer
    /// distant.
    pub min_distance: usize,
}

/// When a long reduction with few results is split into partial results, so that all threads take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitReduction {
    /// The minimum number of elements of a reduction that is split.
    pub min_elements: usize,
    /// The number of results that gives all threads enough work; results along the last axis are distributed in groups of 64.
    pub saturating_results: usize,
    /// The minimum number of elements per share, if there are at least `min_parallel_results` shares without a split: rows that
    /// fit in a worker's cache are not split.
    pub min_elements_per_share: usize,
    /// The number of shares below which threads would wait for each other.
    pub min_parallel_results: usize,
    /// The target number of blocks.
    pub blocks: usize,
    /// The minimum and maximum number of elements of a block.
    pub block: (usize, usize),
    /// The maximum number of stages of a reduction: with 3, partial results are reduced to partial results again.
    pub max_stages: u32,
}

/// How loops are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopSchedule {
    /// A few workers with caches and vector units: outer rows are distributed in chunks, and the other loops run within
    /// a worker.
    Workers(CpuSchedule),
    /// Thousands of threads: every independent row is parallel, and a vector loop maps to the threads of a block. The grid
    /// lowering chooses the number of threads.
    Grid,
}

/// How a few workers divide loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSchedule {
    /// Work (elements times cost) below which a kernel stays on one worker.
    pub parallel_work: u64,
    /// The target number of chunks that outer rows are divided into.
    pub target_chunks: i64,
    /// The minimum number of elements of a chunk.
    pub chunk_elements: i64,
    /// The number of outer rows below which the vector axis is split into blocks that run in parallel.
    pub min_parallel_rows: i64,
    /// The minimum and maximum number of elements of such a block.
    pub block: (i64, i64),
    /// The number of elements of such a block if it contains a reduction.
    pub reduction_block: i64,
    /// The number of 4-byte elements of the vector along a row. Rows that are reduced and used again, and have fewer than twice
    /// as many elements, are processed side by side, one per SIMD lane; 0 for never.
    pub vector_width: i64,
    /// The minimum number of such rows, and the number of elements of a block of them.
    pub interleaved_rows: (i64, i64),
    /// The maximum number of operands of a concatenation that are copied separately, beyond the operands that one kernel reads.
    pub max_concat_operands: usize,
    /// The maximum number of lanes of a scan whose carries stay in registers for all iterations.
    pub max_register_scan_lanes: i64,
    /// The number of lanes of a block of a wider scan.
    pub scan_block_lanes: i64,
    /// The maximum number of lanes of a scan that form one block if no block size divides them.
    pub max_single_block_scan_lanes: i64,
}

/// The fusion that matrix products support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulTarget {
    /// The operand dtypes; other dtypes are converted first.
    pub dtypes: &'static [DType],
    /// Whether operands can be computed while they are packed, and the minimum size for it.
    pub prologues: Option<PrologueLimits>,
    /// Whether a kernel can process finished tiles while they are in cache, and the maximum number of columns for whole
    /// rows.
    pub epilogues: Option<EpilogueLimits>,
}

/// The limits for operands that a matrix product computes while it packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrologueLimits {
    /// The minimum number of elements of an operand that is computed by its matrix product.
    pub min_elements: usize,
    /// The maximum cost per element.
    pub max_element_cost: u32,
}

/// The limits for epilogues of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpilogueLimits {
    /// The maximum number of columns of a row that is processed as a whole; 0 if tiles never span whole rows.
    pub max_row_columns: usize,
}

impl Target {
    /// The maximum number of operands of a concatenation: the limit of a kernel, or more if many operands are copied separately.
    pub(crate) fn max_concat_operands(&self) -> usize {
        match self.schedule {
            LoopSchedule::Workers(w) => self.kernel.max_operands.max(w.max_concat_operands),
            LoopSchedule::Grid => self.kernel.max_operands,
        }
    }

    /// Returns an error for a graph with dtypes that the device does not support.
    pub(crate) fn check_dtypes(&self, graph: &Graph) -> Result<()> {
        let lacks = |t: &Type| (!self.dtypes.contains(&t.dtype)).then_some(t.dtype);
        for (i, t) in graph.input_types().iter().enumerate() {
            if let Some(d) = lacks(t) {
                return Err(self.refused(d, &format!("input {i}")));
            }
        }
        for node in graph.nodes() {
            if let Some(d) = node.outs.iter().find_map(|v| lacks(graph.ty(*v))) {
                return Err(self.refused(d, &format!("the result of `{}` at {}", node.op.name(), node.loc)));
            }
            match &node.op {
                Op::Scan(s) => self.check_dtypes(&s.body)?,
                Op::While(w) => self.check_dtypes(&w.cond).and_then(|()| self.check_dtypes(&w.body))?,
                Op::Cond(c) => c.branches.iter().try_for_each(|b| self.check_dtypes(b))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn refused(&self, d: DType, what: &str) -> Error {
        let known: Vec<String> = self.dtypes.iter().map(ToString::to_string).collect();
        Error::Backend(format!(
            "{what} is {d}, which {} does not support (it supports {}); cast it first, or use another device",
            self.name,
            known.join(", ")
        ))
    }
}
