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
    pub keep: Keep,
    /// When reductions are shared out.
    pub partials: Partials,
    /// How loops are laid out.
    pub schedule: Schedule,
    /// What its matrix products do besides multiplying.
    pub products: Products,
}

/// What one kernel can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// Buffers that are its arguments.
    pub buffers: usize,
    /// Values in memory that one expression may read.
    pub reads: usize,
    /// Values that it may compute.
    pub results: usize,
    /// Bytes of one buffer that it can reach.
    pub binding: usize,
    /// How often an iteration space may be cut, so that pads and concatenations need no masks. Where each piece is a launch,
    /// masks are cheaper: 0.
    pub cuts: usize,
    /// Elements that a piece must have where each is a launch.
    pub piece: usize,
    /// Row bytes up to which a costly intermediate is kept from one loop of a row to the next.
    pub row_scratch: usize,
}

/// When computing a value again beats keeping it. Costs are those of `fuse/expr.rs`: rough counts of machine operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Recomputing a value of this cost in several places costs more than keeping it.
    pub costly: u32,
    /// Distant readers get a copy of their own of a value that costs no more than this.
    pub cheap: u32,
    /// Heavy ops (products, library calls, loops) between a value and a distant reader.
    pub distant: usize,
}

/// When a long reduction with few results goes through partial results, so that all threads share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partials {
    /// Elements from which on a reduction is cut.
    pub least: usize,
    /// Results that are work enough for all threads; results along the last axis are shared out by 64.
    pub few: usize,
    /// Elements that each of those shares must have, if there are as many as `lone`: rows that stay in a worker's cache are better left whole.
    pub each: usize,
    /// Results so few that threads would wait for each other.
    pub lone: usize,
    /// How many blocks there should be.
    pub blocks: usize,
    /// Elements of a block, at least and at most.
    pub block: (usize, usize),
    /// Stages that a reduction may take: with 3, partial results have partial results.
    pub stages: u32,
}

/// How loops are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// A few workers with caches and vector units: outer rows are shared out in chunks, the rest of the loops stay with
    /// the worker.
    Workers(Workers),
    /// Thousands of threads: every independent row is parallel, and a vector loop is the threads of a block. How many threads
    /// those are is the grid's business.
    Grid,
}

/// How a few workers share loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Work (elements times cost) below which a kernel stays on one worker.
    pub parallel_work: u64,
    /// Outer rows are shared out until there are so many chunks.
    pub chunks: i64,
    /// Elements that a chunk should keep.
    pub chunk_elements: i64,
    /// Outer rows below which the vector axis is cut into blocks, and those are shared out.
    pub few_rows: i64,
    /// Elements of such a block, at least and at most.
    pub block: (i64, i64),
    /// Elements of such a block where each of them runs through a reduction.
    pub block_of_sums: i64,
    /// Elements of four bytes of the vector that runs along a row. Rows that are reduced and used again, and have fewer than twice as many, run side by
    /// side, one in each lane; 0 for never.
    pub row_vector: i64,
    /// How many such rows there must be at least, and how many elements a block of them has.
    pub abreast: (i64, i64),
    /// Operands of a concatenation that are copied by themselves, beyond what one kernel reads.
    pub parts: usize,
    /// Lanes of a scan up to which its carries stay in registers through all of time.
    pub scan_lanes: i64,
    /// Lanes of a block of a wider scan.
    pub scan_block: i64,
    /// Lanes of a scan up to which they are one block where no size of blocks divides them.
    pub scan_whole: i64,
}

/// What matrix products do besides multiplying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    /// Operand types; others are converted first.
    pub dtypes: &'static [DType],
    /// Whether operands can be computed while they are read, and from how many elements on that pays.
    pub prologues: Option<Prologues>,
    /// Whether tiles can be finished by a kernel while they are hot, and up to how many columns rows can be finished as a
    /// whole.
    pub epilogues: Option<Epilogues>,
}

/// Operands that a product computes while it reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prologues {
    /// Elements from which on an operand is computed by its product.
    pub elements: usize,
    /// What an element may cost.
    pub cost: u32,
}

/// Tiles that a product finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilogues {
    /// Columns up to which a row is finished as a whole; 0 if tiles are always parts of rows.
    pub whole_row: usize,
}

impl Target {
    /// Operands that a concatenation may have: what a kernel reads, or more where many parts are copied by themselves.
    pub(crate) fn parts(&self) -> usize {
        match self.schedule {
            Schedule::Workers(w) => self.kernel.reads.max(w.parts),
            Schedule::Grid => self.kernel.reads,
        }
    }

    /// Refuses a graph with types that the device doesn't have.
    pub(crate) fn check(&self, graph: &Graph) -> Result<()> {
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
                Op::Scan(s) => self.check(&s.body)?,
                Op::While(w) => self.check(&w.cond).and_then(|()| self.check(&w.body))?,
                Op::Cond(c) => c.branches.iter().try_for_each(|b| self.check(b))?,
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
