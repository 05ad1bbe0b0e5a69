//! Concatenation of many parts, copied line by line.
//! (With few parts, the compiler writes them with kernels directly into the result.)

use super::memcpy::{self, StridedCopy};
use super::{OpRoutine, Pointers, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::Type;
use ir::ops::Concat;
use std::ops::Range;

/// The bytes of the result that all parts fill before the next rows.
const BLOCK: usize = 1 << 14;

pub(super) const THRESHOLDS: &[Threshold] =
    &[Threshold::new("concat.block", BLOCK, "bytes of some rows, which each part is copied to at a time")];

struct ConcatRoutine {
    /// The bytes of a line of each part, and its offset in a line of the result.
    lines: Vec<(usize, usize)>,
    line: usize,
    outer: usize,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    avx2: bool,
}

pub(super) fn prepare(op: &Concat, args: &[Type], outs: &[Type], isa: Isa) -> Option<Box<dyn OpRoutine>> {
    let line = |t: &Type| t.shape[op.axis..].iter().product::<usize>() * t.dtype.size();
    let mut lines = Vec::with_capacity(args.len());
    let mut at = 0;
    for t in args {
        lines.push((line(t), at));
        at += line(t);
    }
    Some(Box::new(ConcatRoutine {
        lines,
        line: at,
        outer: outs[0].shape[..op.axis].iter().product(),
        avx2: isa != Isa::Portable,
    }))
}

impl OpRoutine for ConcatRoutine {
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let (x, y, parts) = (Pointers(args), SharedPtr(outs[0]), self.lines.len());
        // The constant cost of a line, in bytes.
        let work = self.outer * (self.line + 16 * parts) / 4;
        in_ranges(pool, self.outer * parts, work, &|range: Range<usize>, _| {
            // SAFETY: those of the result are this range's.
            unsafe { self.copy(x.get(), y, range) };
        });
        Ok(())
    }
}

impl ConcatRoutine {
    /// # Safety
    /// Operands and result are those of the op, and nothing else writes these lines.
    unsafe fn copy(&self, x: &[*const u8], y: SharedPtr<u8>, range: Range<usize>) {
        #[cfg(target_arch = "x86_64")]
        {
            /// # Safety
            /// As for `copy_inline`, and the machine has the target features.
            #[target_feature(enable = "avx2")]
            unsafe fn wide(p: &ConcatRoutine, x: &[*const u8], y: SharedPtr<u8>, range: Range<usize>) {
                // SAFETY: `copy_inline` has the contract of this function, and gets its arguments unchanged.
                unsafe { p.copy_inline(x, y, range) }
            }
            if self.avx2 {
                // SAFETY: operands and result are those of the op, only this range writes its rows, and the machine has
                // AVX2.
                return unsafe { wide(self, x, y, range) };
            }
        }
        // SAFETY: operands and result are those of the op, and only this range writes its rows.
        unsafe { self.copy_inline(x, y, range) }
    }

    /// Copies whole rows in blocks, part by part, so that consecutive copies have the same length.
    ///
    /// # Safety
    /// Operands and result are those of the op, and only this call writes these rows.
    #[inline(always)]
    unsafe fn copy_inline(&self, x: &[*const u8], y: SharedPtr<u8>, range: Range<usize>) {
        let parts = self.lines.len();
        let rows = (BLOCK / self.line.max(1)).max(1);
        let mut at = range.start;
        while at < range.end {
            let (row, first) = (at / parts, at % parts);
            let (count, last) = match (range.end - at) / parts {
                whole @ 1.. if first == 0 => (whole.min(rows), parts),
                _ => (1, parts.min(first + range.end - at)),
            };
            for (part, &(bytes, to)) in self.lines[..last].iter().enumerate().skip(first) {
                let (from, to) = (x[part].wrapping_add(row * bytes), y.at(row * self.line + to));
                let lines = StridedCopy { bytes, count, from: bytes as isize, to: self.line as isize };
                // SAFETY: lines are inside of operand and result.
                unsafe { memcpy::copy_lines(from, to, lines) };
            }
            at += (count - 1) * parts + last - first;
        }
    }
}
