//! SVD with vectors of a matrix with many more rows than columns, or the reverse:
//! the SVD of R of its QR factorization, multiplied by Q.

use super::super::{CpuContext, OpRoutine};
use crate::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, MatrixLayout, OperandSource, OutputKind};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::ops::{Qr, Svd};
use ir::{Op, Type};

/// The minimum ratio of rows to columns.
pub(super) const MIN_ASPECT_RATIO: usize = 2;
/// The minimum number of columns, unless the ratio reaches `MANY_TIMES`: fewer columns gain nothing.
pub(super) const COLUMNS: usize = 16;
/// The ratio of rows to columns from which any number of columns is accepted.
pub(super) const MANY_TIMES: usize = 16;

struct TallSkinnySvd {
    qr: Box<dyn OpRoutine>,
    svd: Box<dyn OpRoutine>,
    product: GemmPlan,
    /// The bytes of an element.
    size: usize,
    batch: usize,
    rows: usize,
    columns: usize,
    /// Whether the matrix has more columns than rows and is transposed first.
    turned: bool,
}

/// Returns the routine where it is faster.
pub(super) fn prepare(args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let a = &args[0];
    let [batch @ .., m, n] = &a.shape[..] else { return None };
    let (rows, columns) = (*m.max(n), *m.min(n));
    if columns == 0 || rows < if columns < COLUMNS { MANY_TIMES } else { MIN_ASPECT_RATIO } * columns {
        return None;
    }
    let of = |sizes: &[usize]| Type::new(a.dtype, &[batch, sizes].concat());
    let (tall, square) = (of(&[rows, columns]), of(&[columns, columns]));
    let qr = super::prepare(&Op::Qr(Qr { full: false }), &[tall.clone()], &[tall, square.clone()], machine)?;
    let outs = [square.clone(), of(&[columns]), square.clone()];
    let svd = super::prepare(&Op::Svd(Svd { vectors: true }), &[square], &outs, machine)?;
    let batch: usize = batch.iter().product();
    let whole =
        |rows: usize| MatrixLayout { batch: [(rows * columns) as isize, 0, 0], ..MatrixLayout::row_major(columns) };
    let problem = GemmProblem {
        batch: [batch, 1, 1],
        a: OperandSource::Memory(whole(rows)),
        b: OperandSource::Memory(whole(columns)),
        c: OutputKind::Memory { dtype: a.dtype, layout: whole(rows), accumulate: false },
        ..GemmProblem::new(rows, columns, columns, a.dtype)
    };
    let product = GemmPlan::with_isa(&problem, machine.threads, machine.isa).ok()?;
    Some(Box::new(TallSkinnySvd { qr, svd, product, size: a.dtype.size(), batch, rows, columns, turned: m < n }))
}

/// Transposes `[rows, cols]` to `[cols, rows]`.
///
/// # Safety
/// `from` and `to` are valid for the matrix and don't overlap.
unsafe fn transpose_copy(size: usize, rows: usize, cols: usize, from: *const u8, to: *mut u8) {
    /// # Safety
    /// As above.
    unsafe fn of<T: Copy>(rows: usize, cols: usize, from: *const T, to: *mut T) {
        for i in 0..rows {
            // SAFETY: `from` and `to` are valid for `rows · cols` elements and don't overlap.
            (0..cols).for_each(|j| unsafe { *to.add(j * rows + i) = *from.add(i * cols + j) });
        }
    }
    // SAFETY: `from` and `to` are valid for `rows · cols` elements of `size` bytes and don't overlap.
    unsafe {
        match size {
            4 => of::<u32>(rows, cols, from.cast(), to.cast()),
            _ => of::<u64>(rows, cols, from.cast(), to.cast()),
        }
    }
}

impl TallSkinnySvd {
    /// The bytes of all matrices of this size.
    fn bytes(&self, rows: usize, cols: usize) -> usize {
        (self.batch * rows * cols * self.size).next_multiple_of(64)
    }

    /// Transposes each matrix of a batch.
    ///
    /// # Safety
    /// As for [`turn`].
    unsafe fn turn_all(&self, rows: usize, cols: usize, from: *const u8, to: *mut u8) {
        for i in 0..self.batch {
            let at = i * rows * cols * self.size;
            // SAFETY: matrix `i` is inside of both batches, which don't overlap.
            unsafe { transpose_copy(self.size, rows, cols, from.add(at), to.add(at)) };
        }
    }
}

impl OpRoutine for TallSkinnySvd {
    fn scratch_bytes(&self) -> usize {
        let own = self.qr.scratch_bytes().max(self.svd.scratch_bytes()).max(self.product.scratch_bytes());
        2 * self.bytes(self.rows, self.columns) + 3 * self.bytes(self.columns, self.columns) + own
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (tall, square) = (self.bytes(self.rows, self.columns), self.bytes(self.columns, self.columns));
        let q = scratch;
        let other = q.wrapping_add(tall);
        let [r, u, v] = [0, 1, 2].map(|i| other.wrapping_add(tall + i * square));
        let rest = other.wrapping_add(tall + 3 * square);
        let (rows, columns) = (self.rows, self.columns);
        // SAFETY: the parts of the scratch are as large as what they are for, and different.
        unsafe {
            let a = if self.turned {
                self.turn_all(columns, rows, args[0], other);
                other.cast_const()
            } else {
                args[0]
            };
            self.qr.run(pool, &[a], &[q, r], rest)?;
            let right = if self.turned { v } else { outs[2] };
            self.svd.run(pool, &[r.cast_const()], &[u, outs[1], right], rest)?;
            let left = if self.turned { other } else { outs[0] };
            self.product.run(pool, GemmOperand::Memory(q), GemmOperand::Memory(u), GemmOutput::Memory(left), rest);
            if self.turned {
                // A = (U·S·V)ᵀ: the right vectors are the left ones of the transposed matrix.
                self.turn_all(columns, columns, v, outs[0]);
                self.turn_all(rows, columns, left, outs[2]);
            }
        }
        Ok(())
    }
}
