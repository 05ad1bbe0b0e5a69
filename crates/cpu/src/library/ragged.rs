//! Matrix products over groups of rows whose sizes are known only at run time: only existing rows are multiplied.
//!
//! Rows are processed in chunks of fixed heights, each with a plan.
//! How a group is split into chunks depends only on its size.

use super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use crate::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, MatrixLayout, OperandSource, OutputKind};
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use half::{bf16, f16};
use ir::ops::{RaggedDot, RaggedMode};
use ir::{DType, Type};

/// The largest chunk of rows; the others are the smaller powers of two.
const ROWS: usize = 64;
/// The largest chunk of rows that are summed over.
const DEPTH: usize = 256;
/// The number of rows of a result of `Contract` that one part computes.
const STRIP: usize = 96;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("ragged.rows", ROWS, "rows of a group: beyond, they are several chunks"),
    Threshold::new("ragged.depth", DEPTH, "rows that are summed over: beyond, they are several pieces"),
    Threshold::new("ragged.strip", STRIP, "rows of a summed product: beyond, they are several strips"),
];

/// A grouped product.
struct Ragged {
    mode: RaggedMode,
    /// The plans by chunk size, the largest first, each half of the one before.
    /// `Contract` has them for a full strip and for the last strip.
    plans: Vec<GemmPlan>,
    last: Vec<GemmPlan>,
    batch: usize,
    rows: usize,
    groups: usize,
    offsets: super::element::Index,
    /// The number of columns of the left operand and of the right one.
    m: usize,
    n: usize,
    size: usize,
    dtype: DType,
    out: DType,
    /// The bytes of scratch of a plan, and of a strip of sums before rounding.
    each: usize,
    strip: usize,
    threads: usize,
}

pub(super) fn prepare(op: &RaggedDot, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (a, b, offsets, at) = (&args[0], &args[1], &args[2], op.batch);
    let accumulator = if a.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let floats = matches!(a.dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
    if !floats || b.dtype != a.dtype || (op.out != a.dtype && op.out != accumulator) {
        return None;
    }
    let (rows, m) = (a.shape[at], a.shape[at + 1]);
    let n = outs[0].shape[outs[0].rank() - 1];
    let plan = |problem: GemmProblem| GemmPlan::with_isa(&problem, 1, machine.isa).ok();
    let halves = |most: usize| std::iter::successors(Some(most), |c| (*c > 1).then_some(c / 2));
    let contract = |m_strip: usize| -> Option<Vec<GemmPlan>> {
        halves(DEPTH)
            .map(|k| {
                plan(GemmProblem {
                    a: OperandSource::Memory(MatrixLayout::row_major(m).transposed()),
                    c: OutputKind::Memory { dtype: accumulator, layout: MatrixLayout::row_major(n), accumulate: true },
                    ..GemmProblem::new(m_strip, k, n, a.dtype)
                })
            })
            .collect()
    };
    let (plans, last) = match op.mode {
        RaggedMode::Rows => {
            let c = OutputKind::Memory { dtype: op.out, layout: MatrixLayout::row_major(n), accumulate: false };
            (
                halves(ROWS)
                    .map(|r| plan(GemmProblem { c, ..GemmProblem::new(r, m, n, a.dtype) }))
                    .collect::<Option<_>>()?,
                vec![],
            )
        }
        RaggedMode::Contract => (contract(STRIP.min(m))?, contract(m % STRIP)?),
    };
    let each = plans.iter().chain(&last).map(GemmPlan::scratch_bytes).max()?.next_multiple_of(64);
    let rounded = op.mode == RaggedMode::Contract && op.out != accumulator;
    Some(Box::new(Ragged {
        mode: op.mode,
        plans,
        last,
        batch: a.shape[..at].iter().product(),
        rows,
        groups: offsets.shape[at].saturating_sub(1),
        offsets: super::element::index(offsets.dtype),
        m,
        n,
        size: a.dtype.size(),
        dtype: a.dtype,
        out: op.out,
        each,
        strip: if rounded { (STRIP * n * 4).next_multiple_of(64) } else { 0 },
        threads: machine.threads,
    }))
}

impl Ragged {
    /// Returns the rows of a group, clamped to the existing rows.
    unsafe fn group_rows(&self, offsets: *const u8, batch: usize, group: usize) -> (usize, usize) {
        let (mut last, mut before) = (0, 0);
        for k in 0..=group + 1 {
            before = last;
            // SAFETY: `offsets` is valid for `groups + 1` offsets of each batch entry.
            last = unsafe { (self.offsets)(offsets, batch * (self.groups + 1) + k) }.clamp(last, self.rows as i64);
        }
        (before as usize, last as usize)
    }

    /// Returns part `part` of the chunks of all groups: a group and the chunk's first row.
    ///
    /// # Safety
    /// `offsets` is valid for `groups + 1` offsets of each batch entry.
    unsafe fn chunk(&self, offsets: *const u8, batch: usize, part: usize) -> Option<(usize, usize, usize)> {
        let (mut left, mut last) = (part, 0i64);
        for k in 0..=self.groups {
            // SAFETY: as in `bounds`.
            let next = unsafe { (self.offsets)(offsets, batch * (self.groups + 1) + k) }.clamp(last, self.rows as i64);
            if k > 0 {
                let chunks = ((next - last) as usize).div_ceil(ROWS);
                if left < chunks {
                    let row = last as usize + left * ROWS;
                    return Some((k - 1, row, ROWS.min(next as usize - row)));
                }
                left -= chunks;
            }
            last = next;
        }
        None
    }

    /// # Safety
    /// Operands and result are valid for their types, and scratch for `scratch_bytes`.
    unsafe fn rows(&self, pool: &ThreadPool, args: &[*const u8], out: *mut u8, scratch: *mut u8) {
        let (args, out, scratch) = (Pointers(args), SharedPtr(out), SharedPtr(scratch));
        let size = self.out.size();
        let parts = self.rows.div_ceil(ROWS) + self.groups;
        pool.run(self.batch * parts, &|part, worker| {
            let (args, batch) = (args.get(), part / parts);
            // SAFETY: chunks are disjoint rows of operand and result; each worker has its own scratch.
            unsafe {
                let Some((group, mut row, mut left)) = self.chunk(args[2], batch, part % parts) else {
                    return;
                };
                let b = args[1].add((batch * self.groups + group) * self.m * self.n * self.size);
                for (i, plan) in self.plans.iter().enumerate() {
                    let height = ROWS >> i;
                    if left < height {
                        continue;
                    }
                    let at = batch * self.rows + row;
                    let a = args[0].add(at * self.m * self.size);
                    let c = out.at(at * self.n * size);
                    let scratch = scratch.at(worker * self.each);
                    plan.run(pool, GemmOperand::Memory(a), GemmOperand::Memory(b), GemmOutput::Memory(c), scratch);
                    (row, left) = (row + height, left - height);
                }
            }
        });
        // Rows before the first group and after the last group belong to none.
        for batch in 0..self.batch {
            // SAFETY: rows that no chunk wrote.
            unsafe {
                let (first, end) = self.start_and_end(args.get()[2], batch);
                let base = out.at(batch * self.rows * self.n * size);
                std::ptr::write_bytes(base, 0, first * self.n * size);
                std::ptr::write_bytes(base.add(end * self.n * size), 0, (self.rows - end) * self.n * size);
            }
        }
    }

    /// # Safety
    /// Operands and result are valid for their types, and scratch for `scratch_bytes`.
    /// # Safety
    /// `offsets` is valid for the bounds of all groups of each batch entry, and there is at least one group.
    unsafe fn start_and_end(&self, offsets: *const u8, batch: usize) -> (usize, usize) {
        if self.groups == 0 {
            return (0, 0);
        }
        // SAFETY: `offsets` is valid for the bounds of all groups of each batch entry, and there is at least one group.
        unsafe { (self.group_rows(offsets, batch, 0).0, self.group_rows(offsets, batch, self.groups - 1).1) }
    }

    unsafe fn contract(&self, pool: &ThreadPool, args: &[*const u8], out: *mut u8, scratch: *mut u8) {
        let (args, out, scratch) = (Pointers(args), SharedPtr(out), SharedPtr(scratch));
        let strips = self.m.div_ceil(STRIP);
        pool.run(self.batch * self.groups * strips, &|part, worker| {
            let args = args.get();
            let (matrix, first) = (part / strips, part % strips * STRIP);
            let (batch, group) = (matrix / self.groups, matrix % self.groups);
            let height = STRIP.min(self.m - first);
            let plans = if height == STRIP.min(self.m) { &self.plans } else { &self.last };
            // SAFETY: strips are disjoint parts of the result; each worker has its own scratch.
            unsafe {
                let own = scratch.at(worker * (self.each + self.strip));
                let to = out.at((matrix * self.m + first) * self.n * self.out.size());
                let sums = if self.strip > 0 { own.add(self.each) } else { to };
                let width = if self.dtype == DType::F64 { 8 } else { 4 };
                std::ptr::write_bytes(sums, 0, height * self.n * width);
                let (mut row, end) = self.group_rows(args[2], batch, group);
                for (i, plan) in plans.iter().enumerate() {
                    let depth = DEPTH >> i;
                    while end - row >= depth {
                        let at = batch * self.rows + row;
                        let a = args[0].add((at * self.m + first) * self.size);
                        let b = args[1].add(at * self.n * self.size);
                        plan.run(pool, GemmOperand::Memory(a), GemmOperand::Memory(b), GemmOutput::Memory(sums), own);
                        row += depth;
                    }
                }
                let sums = sums.cast::<f32>();
                match self.out {
                    DType::BF16 if self.strip > 0 => {
                        (0..height * self.n).for_each(|i| *to.cast::<bf16>().add(i) = bf16::from_f32(*sums.add(i)));
                    }
                    DType::F16 if self.strip > 0 => {
                        (0..height * self.n).for_each(|i| *to.cast::<f16>().add(i) = f16::from_f32(*sums.add(i)));
                    }
                    _ => {}
                }
            }
        });
    }
}

impl OpRoutine for Ragged {
    fn scratch_bytes(&self) -> usize {
        (self.each + self.strip) * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        // SAFETY: `Routine::run` requires operands and result to be valid for their types, and scratch for
        // `scratch_bytes`.
        unsafe {
            match self.mode {
                RaggedMode::Rows => self.rows(pool, args, outs[0], scratch),
                RaggedMode::Contract => self.contract(pool, args, outs[0], scratch),
            }
        }
        Ok(())
    }
}
