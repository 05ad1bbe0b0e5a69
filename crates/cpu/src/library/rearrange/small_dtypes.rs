//! Kernels that combine two operands with elements of one or two bytes. A kernel's lanes are 32 bits wide, so
//! a vector has two or four times as many of these elements as a kernel has lanes. One operand may be a row that all rows
//! share, or may have one element per row.

use super::super::{OpRoutine, SharedPtr, in_ranges};
use super::gather::{self, axes};
use super::read::{digits, nest};
use crate::pool::ThreadPool;
use compiler::Result;
use compiler::loops::{AccessMode, Extent, Index, Kernel, Op, Reg, Size, Stmt};
use ir::{Binary, Compare, DType};
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The minimum number of elements for which this is faster than a kernel.
pub(super) const MIN_ELEMENTS: usize = 4096;
/// The minimum number of elements of a row where rows share an operand.
pub(super) const ROW: usize = 1024;
/// The number of elements processed at a time.
const AT_ONCE: usize = 64;
/// The number of elements of a row per unit of work.
pub(super) const UNIT: usize = 1 << 13;

#[derive(Clone, Copy)]
enum Function {
    Binary(Binary),
    Compare(Compare),
}

pub(super) struct SmallDtypeMap {
    function: Function,
    dtype: DType,
    /// The offsets of the first elements of the operands and of the result.
    first: [usize; 3],
    /// The axis of rows, which may have size 1, and the axis of their elements.
    rows: gather::Axis,
    row: gather::Axis,
}

/// A load: the register that it defines, its buffer and its index.
type Load<'a> = (Reg, u32, &'a Index);

/// Matches a kernel that only combines two operands elementwise. Returns the operation and its buffers: both
/// operands and the result.
pub(super) fn combined(kernel: &Kernel) -> Option<(SmallDtypeMap, [usize; 3])> {
    let (mut vars, known, mut body) = nest(kernel)?;
    let mut loads = SmallVec::<[Load<'_>; 2]>::new();
    loop {
        match body {
            [Stmt::Let { dst, op: Op::Load { buf, index, mask: None } }, rest @ ..] => {
                loads.push((*dst, buf.0, index));
                body = rest;
            }
            // Operands that are constant along a row are loaded before it.
            [Stmt::Loop(l)] if l.carried.is_empty() => {
                let Extent::Exact(Size::Const(n)) = l.extent else { return None };
                vars.push((l.var.0, n));
                body = &l.body;
            }
            _ => break,
        }
    }
    let [Stmt::Let { dst, op }, Stmt::Store { buf: to, index: place, value, mask: None }] = body else { return None };
    let (function, x, y) = match op {
        Op::Binary(op, x, y) => (Function::Binary(*op), x, y),
        Op::Compare(op, x, y) => (Function::Compare(*op), x, y),
        _ => return None,
    };
    let [a, b] = &loads[..] else { return None };
    let (left, right) = match (*x == a.0 && *y == b.0, *x == b.0 && *y == a.0) {
        (true, _) => (a, b),
        (_, true) => (b, a),
        _ => return None,
    };
    let buffers = [left.1, right.1, to.0].map(|b| &kernel.buffers[b as usize]);
    let dtype = buffers[0].dtype;
    let result = if matches!(function, Function::Compare(_)) { DType::Bool } else { dtype };
    let plain = matches!(dtype, DType::U8 | DType::I8 | DType::U16 | DType::I16)
        && buffers[1].dtype == dtype
        && buffers[2].dtype == result
        && knows(function)
        && dst == value;
    let modes = buffers[0].mode == AccessMode::Read
        && buffers[1].mode == AccessMode::Read
        && buffers[2].mode == AccessMode::Write;
    if !plain || !modes {
        return None;
    }
    let [reads, also, writes] = [left.2, right.2, place].map(|i| digits(i, &vars, &known));
    let axes = axes(&vars, &reads?, &writes?, &also?)?;
    let one = gather::Axis { size: 1, from: 0, at: 0, to: 0 };
    let (rows, row) = match axes[..] {
        [row] => (one, row),
        [rows, row] => (rows, row),
        _ => return None,
    };
    let lies = |step: isize| step == 0 || step == 1;
    let whole = rows.size == 1 && row.from == 1 && row.at == 1;
    let pays = row.size * rows.size >= MIN_ELEMENTS && (whole || row.size >= ROW);
    if !pays || row.to != 1 || !lies(row.from) || !lies(row.at) || rows.from < 0 || rows.at < 0 {
        return None;
    }
    let first = [left.2.offset, right.2.offset, place.offset];
    let first = [usize::try_from(first[0]).ok()?, usize::try_from(first[1]).ok()?, usize::try_from(first[2]).ok()?];
    let this = SmallDtypeMap { function, dtype, first, rows, row };
    Some((this, [left.1 as usize, right.1 as usize, to.0 as usize]))
}

fn knows(function: Function) -> bool {
    use Binary::{Add, And, Max, Min, Mul, Or, Sub, Xor};
    match function {
        Function::Binary(op) => matches!(op, Add | Sub | Mul | And | Or | Xor | Max | Min),
        Function::Compare(_) => true,
    }
}

/// An operand of a row: its address, and whether all elements equal the first.
#[derive(Clone, Copy)]
struct Operand<T> {
    first: *const T,
    same: bool,
}

/// Combines elements one by one. Both operands of a step are read before the result is written,
/// so the result may overwrite an operand.
///
/// # Safety
/// Operands and result are valid for `n` elements.
#[inline(always)]
unsafe fn combine_elements<T: Copy, U>(
    x: Operand<T>,
    y: Operand<T>,
    to: *mut U,
    n: usize,
    f: impl Fn(T, T) -> U + Copy,
) {
    // SAFETY: both operands and the result are valid for `n` elements; an operand that is the same everywhere is valid
    // for one.
    unsafe {
        // A single element is read as a constant array.
        let (mut xs, mut ys) = ([*x.first; AT_ONCE], [*y.first; AT_ONCE]);
        let mut i = 0;
        while i + AT_ONCE <= n {
            let a = if x.same { xs.as_ptr() } else { x.first.add(i) };
            let b = if y.same { ys.as_ptr() } else { y.first.add(i) };
            some(a, b, to.add(i), f);
            i += AT_ONCE;
        }
        // The last elements are combined in a full group with padding.
        let left = n - i;
        if left > 0 {
            if !x.same {
                std::ptr::copy_nonoverlapping(x.first.add(i), xs.as_mut_ptr(), left);
            }
            if !y.same {
                std::ptr::copy_nonoverlapping(y.first.add(i), ys.as_mut_ptr(), left);
            }
            let mut last = [const { MaybeUninit::<U>::uninit() }; AT_ONCE];
            some(xs.as_ptr(), ys.as_ptr(), last.as_mut_ptr().cast::<U>(), f);
            std::ptr::copy_nonoverlapping(last.as_ptr().cast::<U>(), to.add(i), left);
        }
    }
}

/// # Safety
/// Operands and result are valid for [`AT_ONCE`] elements.
#[inline(always)]
unsafe fn some<T: Copy, U>(x: *const T, y: *const T, to: *mut U, f: impl Fn(T, T) -> U) {
    // SAFETY: operands and result are valid for `AT_ONCE` elements.
    unsafe {
        let (a, b) = (x.cast::<[T; AT_ONCE]>().read(), y.cast::<[T; AT_ONCE]>().read());
        let mut i = 0;
        while i < AT_ONCE {
            to.add(i).write(f(a[i], b[i]));
            i += 1;
        }
    }
}

macro_rules! of_type {
    ($name:ident, $t:ty, $u:ty) => {
        /// # Safety
        /// Operands and result are valid for `n` elements, and the machine has AVX2 if it is an x86-64.
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
        unsafe fn $name(f: Function, signed: bool, x: Operand<$u>, y: Operand<$u>, to: *mut u8, n: usize) {
            let (sx, sy) = (
                Operand { first: x.first.cast::<$t>(), same: x.same },
                Operand { first: y.first.cast::<$t>(), same: y.same },
            );
            let (own, signs) = (to.cast::<$u>(), to.cast::<$t>());
            // SAFETY: operands and result are valid for `n` elements, results of comparisons for `n` bytes, and the
            // machine has AVX2 if it is an x86-64.
            unsafe {
                match (f, signed) {
                    (Function::Binary(Binary::Add), _) => combine_elements(x, y, own, n, <$u>::wrapping_add),
                    (Function::Binary(Binary::Sub), _) => combine_elements(x, y, own, n, <$u>::wrapping_sub),
                    (Function::Binary(Binary::Mul), _) => combine_elements(x, y, own, n, <$u>::wrapping_mul),
                    (Function::Binary(Binary::And), _) => combine_elements(x, y, own, n, |a, b| a & b),
                    (Function::Binary(Binary::Or), _) => combine_elements(x, y, own, n, |a, b| a | b),
                    (Function::Binary(Binary::Xor), _) => combine_elements(x, y, own, n, |a, b| a ^ b),
                    (Function::Binary(Binary::Max), false) => combine_elements(x, y, own, n, |a, b| a.max(b)),
                    (Function::Binary(Binary::Max), true) => combine_elements(sx, sy, signs, n, |a, b| a.max(b)),
                    (Function::Binary(_), false) => combine_elements(x, y, own, n, |a, b| a.min(b)),
                    (Function::Binary(_), true) => combine_elements(sx, sy, signs, n, |a, b| a.min(b)),
                    (Function::Compare(Compare::Eq), _) => combine_elements(x, y, to, n, |a, b| (a == b) as u8),
                    (Function::Compare(Compare::Ne), _) => combine_elements(x, y, to, n, |a, b| (a != b) as u8),
                    (Function::Compare(Compare::Lt), false) => combine_elements(x, y, to, n, |a, b| (a < b) as u8),
                    (Function::Compare(Compare::Lt), true) => combine_elements(sx, sy, to, n, |a, b| (a < b) as u8),
                    (Function::Compare(Compare::Le), false) => combine_elements(x, y, to, n, |a, b| (a <= b) as u8),
                    (Function::Compare(Compare::Le), true) => combine_elements(sx, sy, to, n, |a, b| (a <= b) as u8),
                    (Function::Compare(Compare::Gt), false) => combine_elements(x, y, to, n, |a, b| (a > b) as u8),
                    (Function::Compare(Compare::Gt), true) => combine_elements(sx, sy, to, n, |a, b| (a > b) as u8),
                    (Function::Compare(Compare::Ge), false) => combine_elements(x, y, to, n, |a, b| (a >= b) as u8),
                    (Function::Compare(Compare::Ge), true) => combine_elements(sx, sy, to, n, |a, b| (a >= b) as u8),
                }
            }
        }
    };
}
of_type!(bytes, i8, u8);
of_type!(pairs, i16, u16);

impl OpRoutine for SmallDtypeMap {
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let ([x, y], [to]) = (args, outs) else { unreachable!("two operands and a result") };
        let (x, y, to) = (SharedPtr(x.cast_mut()), SharedPtr(y.cast_mut()), SharedPtr(*to));
        let (rows, row, size) = (self.rows, self.row, self.dtype.size());
        let result = if matches!(self.function, Function::Compare(_)) { 1 } else { size };
        let signed = matches!(self.dtype, DType::I8 | DType::I16);
        let units = row.size.div_ceil(UNIT);
        // Bytes are weighted by an eighth, because they are that much faster.
        in_ranges(pool, rows.size * units, rows.size * row.size * size / 8, &|range: Range<usize>, _| {
            let (mut i, mut unit) = (range.start / units, range.start % units);
            for _ in range {
                let (at, n) = (unit * UNIT, UNIT.min(row.size - unit * UNIT));
                let operand = |first: usize, raw: SharedPtr<u8>, outer: isize, inner: isize| {
                    raw.at((first + i * outer as usize + at * inner as usize) * size).cast_const()
                };
                let a = operand(self.first[0], x, rows.from, row.from);
                let b = operand(self.first[1], y, rows.at, row.at);
                let to = to.at((self.first[2] + i * rows.to as usize + at) * result);
                let (one, other) = (row.from == 0, row.at == 0);
                // SAFETY: `Routine::run` requires operands and result to be valid for their types; units are disjoint,
                // and the machine has AVX2 where it is used.
                unsafe {
                    match size {
                        1 => {
                            let (a, b) = (Operand { first: a, same: one }, Operand { first: b, same: other });
                            bytes(self.function, signed, a, b, to, n);
                        }
                        _ => {
                            let a = Operand { first: a.cast(), same: one };
                            let b = Operand { first: b.cast(), same: other };
                            pairs(self.function, signed, a, b, to, n);
                        }
                    }
                }
                unit += 1;
                if unit == units {
                    (i, unit) = (i + 1, 0);
                }
            }
        });
        Ok(())
    }
}
