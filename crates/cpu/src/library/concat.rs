//! Concatenation of many parts, copied line by line. (Few parts are pieces of a kernel, which computes them where they go.)

use super::{Pointers, Raw, Routine, in_ranges};
use crate::pool::Pool;
use compiler::Result;
use ir::Type;
use ir::ops::Concat;
use std::ops::Range;

struct Parts {
    /// Bytes of a line of each part, and where it begins in a line of the result.
    lines: Vec<(usize, usize)>,
    line: usize,
    outer: usize,
}

pub(super) fn prepare(op: &Concat, args: &[Type], outs: &[Type]) -> Option<Box<dyn Routine>> {
    let line = |t: &Type| t.shape[op.axis..].iter().product::<usize>() * t.dtype.size();
    let mut lines = Vec::with_capacity(args.len());
    let mut at = 0;
    for t in args {
        lines.push((line(t), at));
        at += line(t);
    }
    Some(Box::new(Parts { lines, line: at, outer: outs[0].shape[..op.axis].iter().product() }))
}

impl Routine for Parts {
    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let (x, y, parts) = (Pointers(args), Raw(outs[0]), self.lines.len());
        // A line costs as much as some bytes.
        let work = self.outer * (self.line + 16 * parts) / 4;
        in_ranges(pool, self.outer * parts, work, &|range: Range<usize>, _| {
            let (mut row, mut part) = (range.start / parts, range.start % parts);
            for _ in range {
                let (bytes, at) = self.lines[part];
                let from = x.get()[part].wrapping_add(row * bytes);
                // SAFETY: lines are inside of operand and result; those of the result are this range's.
                unsafe { std::ptr::copy_nonoverlapping(from, y.at(row * self.line + at), bytes) };
                part += 1;
                if part == parts {
                    (row, part) = (row + 1, 0);
                }
            }
        });
        Ok(())
    }
}
