//! What the compiler has to know about a device: one value, from [`crate::Backend::target`].
//!
//! Fusion, schedules and the decisions about products read it; nothing else in the compiler knows a machine's figures.
//! The schedule itself is chosen in `fuse/lower.rs` (`choose_loops`).

use crate::{Error, Result};
use ir::{DType, Graph, Op, Type};

/// A kind of device, as far as programs for it differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Short, for people and for saved programs: `cpu`, `cuda`, `wgpu`.
    pub name: &'static str,
    /// Types that it can keep in memory and compute with.
    pub dtypes: &'static [DType],
    /// The integers that it computes addresses with.
    pub index: DType,
    /// Whether it computes in the host's memory: buffers may be lent to it where they are.
    pub host_memory: bool,
    /// What one kernel can take.
    pub kernel: KernelLimits,
    /// When computing a value again beats keeping it.
    pub recompute: RecomputePolicy,
    /// When reductions are shared out.
    pub split_reduction: SplitReduction,
    /// How loops are laid out.
    pub schedule: LoopSchedule,
    /// What its matrix products do besides multiplying.
    pub matmul: MatmulTarget,
}

/// What one kernel can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// Buffers that are its arguments.
    pub buffers: usize,
    /// Values in memory that one expression may read.
    pub max_operands: usize,
    /// Values that it may compute.
    pub max_results: usize,
    /// Bytes of one buffer that it can reach.
    pub max_binding_bytes: usize,
    /// How often an iteration space may be cut, so that pads and concatenations need no masks. Where each piece is a launch,
    /// masks are cheaper: 0.
    pub max_space_splits: usize,
    /// Elements that a piece must have where each is a launch.
    pub min_launch_elements: usize,
    /// Row bytes up to which a costly intermediate is kept from one loop of a row to the next.
    pub row_scratch_bytes: usize,
}

/// When computing a value again beats keeping it. Costs are those of `fuse/expr.rs`: rough counts of machine operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecomputePolicy {
    /// Recomputing a value of this cost in several places costs more than keeping it.
    pub max_duplicate_cost: u32,
    /// Distant readers get a copy of their own of a value that costs no more than this.
    pub max_recompute_cost: u32,
    /// Heavy ops (products, library calls, loops) between a value and a distant reader.
    pub min_distance: usize,
}

/// When a long reduction with few results goes through partial results, so that all threads share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitReduction {
    /// Elements from which on a reduction is cut.
    pub min_elements: usize,
    /// Results that are work enough for all threads; results along the last axis are shared out by 64.
    pub saturating_results: usize,
    /// Elements that each of those shares must have, if there are as many as `lone`: rows that stay in a worker's cache are better left whole.
    pub min_elements_per_share: usize,
    /// Results so few that threads would wait for each other.
    pub min_parallel_results: usize,
    /// How many blocks there should be.
    pub blocks: usize,
    /// Elements of a block, at least and at most.
    pub block: (usize, usize),
    /// Stages that a reduction may take: with 3, partial results have partial results.
    pub max_stages: u32,
}

/// How loops are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopSchedule {
    /// A few workers with caches and vector units: outer rows are shared out in chunks, the rest of the loops stay with
    /// the worker.
    Workers(CpuSchedule),
    /// Thousands of threads: every independent row is parallel, and a vector loop is the threads of a block. How many threads
    /// those are is the grid's business.
    Grid,
}

/// How a few workers share loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSchedule {
    /// Work (elements times cost) below which a kernel stays on one worker.
    pub parallel_work: u64,
    /// Outer rows are shared out until there are so many chunks.
    pub target_chunks: i64,
    /// Elements that a chunk should keep.
    pub chunk_elements: i64,
    /// Outer rows below which the vector axis is cut into blocks, and those are shared out.
    pub min_parallel_rows: i64,
    /// Elements of such a block, at least and at most.
    pub block: (i64, i64),
    /// Elements of such a block where each of them runs through a reduction.
    pub reduction_block: i64,
    /// Elements of four bytes of the vector that runs along a row. Rows that are reduced and used again, and have fewer than twice as many, run side by
    /// side, one in each lane; 0 for never.
    pub vector_width: i64,
    /// How many such rows there must be at least, and how many elements a block of them has.
    pub interleaved_rows: (i64, i64),
    /// Operands of a concatenation that are copied by themselves, beyond what one kernel reads.
    pub max_concat_operands: usize,
    /// Lanes of a scan up to which its carries stay in registers through all of time.
    pub max_register_scan_lanes: i64,
    /// Lanes of a block of a wider scan.
    pub scan_block_lanes: i64,
    /// Lanes of a scan up to which they are one block where no size of blocks divides them.
    pub max_single_block_scan_lanes: i64,
}

/// What matrix products do besides multiplying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulTarget {
    /// Operand types; others are converted first.
    pub dtypes: &'static [DType],
    /// Whether operands can be computed while they are read, and from how many elements on that pays.
    pub prologues: Option<PrologueLimits>,
    /// Whether tiles can be finished by a kernel while they are hot, and up to how many columns rows can be finished as a
    /// whole.
    pub epilogues: Option<EpilogueLimits>,
}

/// Operands that a product computes while it reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrologueLimits {
    /// Elements from which on an operand is computed by its product.
    pub min_elements: usize,
    /// What an element may cost.
    pub max_element_cost: u32,
}

/// Tiles that a product finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpilogueLimits {
    /// Columns up to which a row is finished as a whole; 0 if tiles are always parts of rows.
    pub max_row_columns: usize,
}

impl Target {
    /// Operands that a concatenation may have: what a kernel reads, or more where many parts are copied by themselves.
    pub(crate) fn max_concat_operands(&self) -> usize {
        match self.schedule {
            LoopSchedule::Workers(w) => self.kernel.max_operands.max(w.max_concat_operands),
            LoopSchedule::Grid => self.kernel.max_operands,
        }
    }

    /// Refuses a graph with types that the device doesn't have.
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
            "{what} is {d}, which {} doesn't have (it has {}); cast it before, or run this on another device",
            self.name,
            known.join(", ")
        ))
    }
}
