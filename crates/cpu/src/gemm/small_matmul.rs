//! Products of very small matrices, computed element by element. Packing, or tiles that are mostly padding, would take far longer.

use super::kernel::HasKernels;
use super::problem::{GemmOperand, GemmOutput, GemmProblem, MatrixLayout, OperandSource, OutputKind};
use super::run::GemmRun;
use crate::thresholds::Threshold;
use half::{bf16, f16};
use ir::DType;
use std::ops::Range;

/// The maximum number of rows, columns and depth for 16-bit floats.
/// For f32, which is multiplied in place, the limit is half of that.
pub(super) const MAX_SMALL: usize = 8;

pub(super) const THRESHOLDS: &[Threshold] = &[Threshold::new(
    "gemm.tiny",
    MAX_SMALL,
    "rows, columns and depth of 16-bit floats: up to here they go one by one",
)];

/// Returns whether a product is computed this way.
pub(super) fn fits(p: &GemmProblem) -> bool {
    let memory = |s: OperandSource| matches!(s, OperandSource::Memory(_));
    let most = match p.dtype {
        DType::BF16 | DType::F16 => MAX_SMALL,
        DType::F32 => MAX_SMALL / 2,
        _ => 0,
    };
    p.m.max(p.n).max(p.k) <= most && memory(p.a) && memory(p.b) && matches!(p.c, OutputKind::Memory { .. })
}

/// A float that is summed in f32.
trait Narrow: Copy {
    fn wide(self) -> f32;
    fn of(x: f32) -> Self;
}

impl Narrow for bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn of(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

impl Narrow for f16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn of(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

impl Narrow for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }
}

/// The offset of an element from the first one.
fn at(l: &MatrixLayout, row: usize, col: usize) -> isize {
    row as isize * l.row + col as isize * l.col
}

impl<T: HasKernels> GemmRun<'_, T> {
    /// Computes some matrices of the batch, one after another.
    ///
    /// # Safety
    /// As for `Plan::run`.
    pub(super) unsafe fn small_matmul(&self, batches: Range<usize>) {
        // SAFETY: operands and result are valid for the problem (`Plan::run`), and their dtype is the problem's.
        unsafe {
            match self.plan.problem.dtype {
                DType::BF16 => self.tiny_of::<bf16>(batches),
                DType::F32 => self.tiny_of::<f32>(batches),
                _ => self.tiny_of::<f16>(batches),
            }
        }
    }

    /// # Safety
    /// Operands and result are valid for the problem (`Plan::run`), and `N` is their dtype.
    unsafe fn tiny_of<N: Narrow>(&self, batches: Range<usize>) {
        let p = &self.plan.problem;
        let (GemmOperand::Memory(a), GemmOperand::Memory(b), GemmOutput::Memory(c)) =
            (self.a.operand, self.b.operand, self.out)
        else {
            return;
        };
        let OutputKind::Memory { dtype, layout, accumulate } = p.c else { return };
        let (m, n, k) = (p.m.min(MAX_SMALL), p.n.min(MAX_SMALL), p.k.min(MAX_SMALL));
        let alpha = p.alpha as f32;
        for batch in batches {
            let [la, lb, lc] = [&self.a.layout, &self.b.layout, &layout].map(|l| (l, p.batch_offset(l, batch)));
            let mut rows = [[0f32; MAX_SMALL]; MAX_SMALL];
            // SAFETY: operands and result are valid for the problem (`Plan::run`), and indices are inside their shapes.
            unsafe {
                let a = a.cast::<N>().offset(la.1);
                let b = b.cast::<N>().offset(lb.1);
                for r in 0..k {
                    let mut line = [0f32; MAX_SMALL];
                    (0..n).for_each(|j| line[j] = (*b.offset(at(lb.0, r, j))).wide());
                    for (i, row) in rows.iter_mut().enumerate().take(m) {
                        let x = (*a.offset(at(la.0, i, r))).wide();
                        (0..MAX_SMALL).for_each(|j| row[j] += x * line[j]);
                    }
                }
                for (i, row) in rows.iter().enumerate().take(m) {
                    for (j, x) in row.iter().enumerate().take(n) {
                        let (x, to) = (x * alpha, lc.1 + at(lc.0, i, j));
                        if dtype == DType::F32 {
                            let to = c.cast::<f32>().offset(to);
                            *to = if accumulate { *to + x } else { x };
                        } else {
                            let to = c.cast::<N>().offset(to);
                            *to = N::of(if accumulate { (*to).wide() + x } else { x });
                        }
                    }
                }
            }
        }
    }
}
