//! Kernels that combine bytes: a lane of a kernel is as wide as a number of 32 bits, so a vector has four times as many bytes as lanes.

use super::super::{Raw, Routine, in_ranges};
use super::read::{digits, nest};
use super::take::axes;
use crate::gemm::Isa;
use crate::pool::Pool;
use compiler::Result;
use compiler::loops::{Kernel, Mode, Op, Stmt};
use ir::{Binary, DType};
use std::ops::Range;

/// Bytes from which on this beats a kernel.
pub(super) const BYTES_LEAST: usize = 4096;
/// Bytes gone through at a time.
const AT_ONCE: usize = 64;

pub(super) struct Bytewise {
    op: Binary,
    signed: bool,
    first: usize,
    count: usize,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    isa: Isa,
}

/// What a kernel does that combines two operands of bytes as they lie and nothing else, and its buffers: both operands and the result.
pub(super) fn bytewise(kernel: &Kernel, isa: Isa) -> Option<(Bytewise, [usize; 3])> {
    let (vars, known, body) = nest(kernel)?;
    let [
        Stmt::Let { dst: a, op: Op::Load { buf: left, index: from, mask: None } },
        Stmt::Let { dst: b, op: Op::Load { buf: right, index: also, mask: None } },
        Stmt::Let { dst, op: Op::Binary(op, x, y) },
        Stmt::Store { buf: to, index: place, value: stored, mask: None },
    ] = body
    else {
        return None;
    };
    let (left, right) = match (x == a && y == b, x == b && y == a) {
        (true, _) => (left, right),
        (_, true) => (right, left),
        _ => return None,
    };
    let buffers = [left, right, to].map(|b| &kernel.buffers[b.0 as usize]);
    let known_op =
        matches!(op, Binary::Add | Binary::Sub | Binary::And | Binary::Or | Binary::Xor | Binary::Max | Binary::Min);
    let dtype = buffers[0].dtype;
    let plain = matches!(dtype, DType::U8 | DType::I8) && buffers.iter().all(|b| b.dtype == dtype);
    let modes = buffers[0].mode == Mode::Read && buffers[1].mode == Mode::Read && buffers[2].mode == Mode::Write;
    if !known_op || !plain || !modes || dst != stored || from != place || also != place {
        return None;
    }
    let all = digits(place, &vars, &known)?;
    let axes = axes(&vars, &all, &all, &[])?;
    let [axis] = &axes[..] else { return None };
    let signed = dtype == DType::I8;
    let this = Bytewise { op: *op, signed, first: usize::try_from(place.offset).ok()?, count: axis.size, isa };
    (axis.to == 1 && axis.size >= BYTES_LEAST).then_some((this, [left, right, to].map(|b| b.0 as usize)))
}

/// Combines bytes one by one. Both operands of a step are read before it is written, so the result may stand where an operand does.
#[inline(always)]
unsafe fn combined(x: *const u8, y: *const u8, to: *mut u8, n: usize, f: impl Fn(u8, u8) -> u8) {
    let whole = n / AT_ONCE * AT_ONCE;
    // SAFETY: the caller vouches for `n` bytes of each.
    unsafe {
        for i in (0..whole).step_by(AT_ONCE) {
            let (a, b) = (x.add(i).cast::<[u8; AT_ONCE]>().read(), y.add(i).cast::<[u8; AT_ONCE]>().read());
            to.add(i).cast::<[u8; AT_ONCE]>().write(std::array::from_fn(|k| f(a[k], b[k])));
        }
        (whole..n).for_each(|i| *to.add(i) = f(*x.add(i), *y.add(i)));
    }
}

impl Bytewise {
    #[inline(always)]
    unsafe fn range(&self, x: *const u8, y: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.op, self.signed) {
                (Binary::Add, _) => combined(x, y, to, n, u8::wrapping_add),
                (Binary::Sub, _) => combined(x, y, to, n, u8::wrapping_sub),
                (Binary::And, _) => combined(x, y, to, n, |a, b| a & b),
                (Binary::Or, _) => combined(x, y, to, n, |a, b| a | b),
                (Binary::Xor, _) => combined(x, y, to, n, |a, b| a ^ b),
                (Binary::Max, false) => combined(x, y, to, n, |a, b| a.max(b)),
                (Binary::Max, true) => combined(x, y, to, n, |a, b| (a as i8).max(b as i8) as u8),
                (_, false) => combined(x, y, to, n, |a, b| a.min(b)),
                (_, true) => combined(x, y, to, n, |a, b| (a as i8).min(b as i8) as u8),
            }
        }
    }
}

impl Routine for Bytewise {
    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let ([x, y], [to]) = (args, outs) else { unreachable!("two operands and a result") };
        let (x, y, to) = (Raw(x.cast_mut()), Raw(y.cast_mut()), Raw(*to));
        // Whole vectors are shared out; bytes are counted by eights: they are that much quicker.
        in_ranges(pool, self.count.div_ceil(AT_ONCE), self.count / 8, &|range: Range<usize>, _| {
            let at = self.first + range.start * AT_ONCE;
            let n = (range.end * AT_ONCE).min(self.count) - range.start * AT_ONCE;
            let (x, y, to) = (x.at(at).cast_const(), y.at(at).cast_const(), to.at(at));
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw")]
                unsafe fn avx512(this: &Bytewise, x: *const u8, y: *const u8, to: *mut u8, n: usize) {
                    // SAFETY: the caller's promise.
                    unsafe { this.range(x, y, to, n) }
                }
                #[target_feature(enable = "avx2")]
                unsafe fn avx2(this: &Bytewise, x: *const u8, y: *const u8, to: *mut u8, n: usize) {
                    // SAFETY: the caller's promise.
                    unsafe { this.range(x, y, to, n) }
                }
                // SAFETY: by the caller's promise; ranges are disjoint, and the machine has the instruction set.
                match self.isa {
                    Isa::Avx512 => return unsafe { avx512(self, x, y, to, n) },
                    Isa::Avx2 => return unsafe { avx2(self, x, y, to, n) },
                    Isa::Portable => {}
                }
            }
            // SAFETY: by the caller's promise; ranges are disjoint.
            unsafe { self.range(x, y, to, n) };
        });
        Ok(())
    }
}
