//! Kernels that only gather elements or short rows: `take`, `take_along_axis`, embeddings with few features.
//!
//! A hardware gather is no faster than loading the elements one by one, and the generated kernel clamps every index again for each
//! row that uses it. Here indices are clamped once for all rows that share them, some thousands at a time, and elements or rows are
//! copied one by one.

use super::super::memcpy::copy;
use super::super::{OpRoutine, SharedPtr, in_ranges};
use super::read::{Digit, Known, Value, digits, value};
use crate::pool::ThreadPool;
use compiler::Result;
use compiler::loops::{AccessMode, Atom, Buf, Extent, Index, Kernel, Op, Reg, Size, Stmt};
use ir::{Binary, DType};
use smallvec::SmallVec;
use std::ops::Range;

/// The maximum bytes of a gathered row; longer rows are copied equally well by generated kernels.
pub(super) const ROW_BYTES: usize = 128;
/// The maximum number of indices of a line for which several lines are processed as one.
pub(super) const FLAT: usize = 64;
/// The number of indices that are clamped at a time.
const AT_ONCE: usize = 2048;

/// A loaded index and its bounds.
#[derive(Clone)]
struct LoadedIndex {
    buf: Buf,
    index: Index,
    low: bool,
    high: Option<i64>,
}

/// An axis of the result, with its strides in the result, in the operand and in the indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) to: isize,
    pub(super) from: isize,
    pub(super) at: isize,
}

/// The description of a gather.
#[derive(Debug)]
pub(super) struct GatherMoves {
    /// The offsets of the first element of the result, the operand and the indices.
    to: isize,
    from: isize,
    at: isize,
    /// The axes of the indices except the last, the axes along which the indices are the same,
    /// and the last, along which indices are adjacent.
    groups: SmallVec<[Axis; 4]>,
    shared: SmallVec<[Axis; 4]>,
    along: Axis,
    /// The number of adjacent elements per index.
    run: usize,
    /// The largest index, and the operand's stride per index.
    high: i64,
    step: usize,
    bytes: usize,
    /// Whether indices have 64 bits.
    wide: bool,
}

/// Matches a kernel that only gathers; returns the gather and its buffers: operand, indices, result.
pub(super) fn match_gather(kernel: &Kernel) -> Option<(GatherMoves, [usize; 3])> {
    let mut vars = SmallVec::<[(u32, i64); 6]>::new();
    let mut known = Known::new();
    let mut looked = SmallVec::<[(Reg, LoadedIndex); 4]>::new();
    let mut body = &kernel.body[..];
    let (element, load, store) = loop {
        match body {
            [
                Stmt::Let { dst, op: Op::Load { buf, index, mask: None } },
                Stmt::Store { buf: to, index: place, value, mask: None },
            ] => {
                if dst != value {
                    return None;
                }
                break ((*buf, *to), index, place);
            }
            [Stmt::Let { dst, op }, rest @ ..] => {
                match bounded(op, &known, &looked) {
                    Some(l) => looked.push((*dst, l)),
                    None => known.push((*dst, value(op, &vars, &known)?)),
                }
                body = rest;
            }
            [Stmt::Loop(l)] => {
                let Extent::Exact(Size::Const(n)) = l.extent else { return None };
                if !l.carried.is_empty() || n < 1 {
                    return None;
                }
                vars.push((l.var.0, n));
                body = &l.body;
            }
            _ => return None,
        }
    };
    // One index is loaded; the others are digits of loop variables.
    let of = |a: &Atom| match a {
        Atom::Reg(r) => looked.iter().find(|(l, _)| l == r).map(|l| &l.1),
        Atom::Var(_) => None,
    };
    let mut own = load.terms.iter().filter_map(|(a, size)| Some((of(a)?, *size)));
    let (Some((found, Size::Const(step))), None) = (own.next(), own.next()) else { return None };
    let terms = load.terms.iter().filter(|(a, _)| of(a).is_none()).cloned().collect();
    let rest = Index { terms, ..load.clone() };
    let [x, i, y] = [element.0, found.buf, element.1].map(|b| &kernel.buffers[b.0 as usize]);
    let plain =
        x.mode == AccessMode::Read && i.mode == AccessMode::Read && y.mode == AccessMode::Write && x.dtype == y.dtype;
    let high = found.high.filter(|&h| found.low && h >= 0)?;
    if !plain || x.dtype.size() > 8 || step < 1 || high.checked_mul(step)? > i32::MAX as i64 {
        return None;
    }
    let [reads, writes, places] = [&rest, store, &found.index].map(|i| digits(i, &vars, &known));
    let axes = axes(&vars, &reads?, &writes?, &places?)?;
    let takes = GatherMoves {
        to: store.offset as isize,
        from: rest.offset as isize,
        at: found.index.offset as isize,
        groups: SmallVec::new(),
        shared: SmallVec::new(),
        along: Axis { size: 1, to: 1, from: 0, at: 1 },
        run: 1,
        high,
        step: step as usize,
        bytes: x.dtype.size(),
        wide: i.dtype == DType::I64,
    };
    let buffers = [element.0, found.buf, element.1].map(|b| b.0 as usize);
    Some((takes.along(axes)?, buffers)).filter(|_| matches!(i.dtype, DType::I32 | DType::I64))
}

/// Matches an index that is loaded, or one that is clamped further.
fn bounded(op: &Op, known: &Known, looked: &[(Reg, LoadedIndex)]) -> Option<LoadedIndex> {
    let of = |r: &Reg| looked.iter().find(|(l, _)| l == r).map(|l| l.1.clone());
    let number = |r: &Reg| match known.iter().find(|k| k.0 == *r)?.1 {
        Value::Number(n) => Some(n),
        Value::Digit(..) => None,
    };
    match op {
        Op::Load { buf, index, mask: None } => {
            Some(LoadedIndex { buf: *buf, index: index.clone(), low: false, high: None })
        }
        Op::Cast(DType::I64, r) => of(r),
        Op::Binary(f @ (Binary::Max | Binary::Min), a, b) => {
            let (found, bound) = match (of(a), of(b)) {
                (Some(l), None) => (l, number(b)?),
                (None, Some(l)) => (l, number(a)?),
                _ => return None,
            };
            match f {
                Binary::Max if bound == 0 && !found.low && found.high.is_none() => {
                    Some(LoadedIndex { low: true, ..found })
                }
                Binary::Min if found.high.is_none() => Some(LoadedIndex { high: Some(bound), ..found }),
                _ => None,
            }
        }
        _ => None,
    }
}

type Digits = [(Digit, i64)];

/// Returns the axes of the result, the outermost first. Every digit of every loop variable must determine a position in the result.
pub(super) fn axes(
    vars: &[(u32, i64)],
    reads: &Digits,
    writes: &Digits,
    places: &Digits,
) -> Option<SmallVec<[Axis; 6]>> {
    let mut axes = SmallVec::<[Axis; 6]>::new();
    for &(var, n) in vars.iter().filter(|v| v.1 > 1) {
        let mut own: SmallVec<[(Digit, i64); 6]> = writes.iter().copied().filter(|(d, _)| d.var == var).collect();
        own.sort_by_key(|(d, _)| d.over);
        let mut over = 1;
        for (digit, to) in own {
            if digit.over != over || to <= 0 {
                return None;
            }
            over *= digit.size;
            let by = |all: &Digits| all.iter().find(|(d, _)| *d == digit).map_or(0, |r| r.1) as isize;
            axes.push(Axis { size: digit.size as usize, to: to as isize, from: by(reads), at: by(places) });
        }
        if over != n {
            return None;
        }
    }
    let strange = |all: &Digits| all.iter().any(|(d, by)| *by != 0 && !writes.iter().any(|(w, _)| w == d));
    if strange(reads) || strange(places) {
        return None;
    }
    axes.retain(|a| a.size > 1);
    axes.sort_by_key(|a| std::cmp::Reverse(a.to));
    let mut joined = SmallVec::<[Axis; 6]>::new();
    for a in axes {
        let next = |step: isize| step * a.size as isize;
        match joined.last_mut() {
            Some(o) if o.to == next(a.to) && o.from == next(a.from) && o.at == next(a.at) => {
                *o = Axis { size: o.size * a.size, ..a };
            }
            _ => joined.push(a),
        }
    }
    Some(joined)
}

impl GatherMoves {
    /// Classifies the axes, if rows are short and indices are adjacent.
    fn along(mut self, mut axes: SmallVec<[Axis; 6]>) -> Option<GatherMoves> {
        if let Some(&Axis { size, to: 1, from: 1, at: 0 }) = axes.last() {
            self.run = size;
            axes.pop();
        }
        let last = axes.iter().rposition(|a| a.at == 1)?;
        self.along = axes.remove(last);
        // Copy single elements where the result is dense along the indices; otherwise copy rows.
        let dense = self.run > 1 || (self.along.to == 1 && last == axes.len());
        for a in axes {
            if a.at == 0 { &mut self.shared } else { &mut self.groups }.push(a);
        }
        let positive = self.along.from >= 0;
        (dense && positive && self.run * self.bytes <= ROW_BYTES).then_some(self)
    }

    /// Returns the offsets of an index over some axes in the result, the operand and the indices.
    fn offsets_at(axes: &[Axis], mut index: usize) -> [isize; 3] {
        let mut place = [0; 3];
        for a in axes.iter().rev() {
            let i = (index % a.size) as isize;
            index /= a.size;
            place = [place[0] + i * a.to, place[1] + i * a.from, place[2] + i * a.at];
        }
        place
    }

    /// Clamps indices and converts them to offsets.
    ///
    /// # Safety
    /// There are as many indices.
    #[inline(always)]
    unsafe fn clamp_indices(&self, indices: *const u8, at: isize, to: &mut [u32]) {
        let (high, step) = (self.high, self.step as u32);
        // SAFETY: `indices` is valid for `to.len()` indices from `at` on.
        unsafe {
            match self.wide {
                true => {
                    let from = std::slice::from_raw_parts(indices.cast::<i64>().offset(at), to.len());
                    to.iter_mut().zip(from).for_each(|(to, &i)| *to = i.clamp(0, high) as u32 * step);
                }
                false => {
                    let (from, high) =
                        (std::slice::from_raw_parts(indices.cast::<i32>().offset(at), to.len()), high as i32);
                    to.iter_mut().zip(from).for_each(|(to, &i)| *to = i.clamp(0, high) as u32 * step);
                }
            }
        }
    }

    /// # Safety
    /// As for [`Routine::run`].
    unsafe fn run_as<T: Copy + Send + Sync>(&self, pool: &ThreadPool, x: *const u8, indices: *const u8, y: *mut u8) {
        let (x, y, indices) =
            (SharedPtr(x.cast_mut().cast::<T>()), SharedPtr(y.cast::<T>()), SharedPtr(indices.cast_mut()));
        let count = |axes: &[Axis]| axes.iter().map(|a| a.size).product::<usize>();
        let (groups, shared) = (count(&self.groups), count(&self.shared));
        let chunks = self.along.size.div_ceil(AT_ONCE);
        let work = groups * shared * self.along.size * (2 + self.run / 8);
        let units =
            if self.is_flattenable() { (groups * self.along.size).div_ceil(AT_ONCE) } else { groups * chunks * shared };
        in_ranges(pool, units, work, &|range: Range<usize>, _| {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// Operands and result are those of the op, only this range writes its results, and the machine has
                /// AVX2.
                #[target_feature(enable = "avx2")]
                unsafe fn wide<T: Copy>(
                    t: &GatherMoves,
                    x: *const T,
                    i: *const u8,
                    y: *mut T,
                    s: [usize; 2],
                    r: Range<usize>,
                ) {
                    // SAFETY: operands and result are those of the op, only this range writes its results, and the
                    // machine has AVX2.
                    unsafe { t.range(x, i, y, s, r) }
                }
                // SAFETY: operands and result are those of the op, only this range writes its results, and `prepare`
                // makes this routine for machines with AVX2 only.
                unsafe { wide(self, x.at(0).cast_const(), indices.at(0), y.at(0), [chunks, shared], range) };
            }
            #[cfg(not(target_arch = "x86_64"))]
            // SAFETY: operands and result are those of the op, and only this range writes its results.
            unsafe {
                self.range(x.at(0).cast_const(), indices.at(0), y.at(0), [chunks, shared], range)
            };
        });
    }

    /// Returns whether the lines of indices are short and contiguous in indices and result, so that they are processed as one.
    fn is_flattenable(&self) -> bool {
        let [g] = &self.groups[..] else { return false };
        let (n, hop) = (self.along.size as isize, self.along.from);
        let room = g.from >= 0 && g.from < (i32::MAX as usize / AT_ONCE) as isize;
        self.run == 1 && self.shared.is_empty() && hop == 0 && g.to == n && g.at == n && n <= FLAT as isize && room
    }

    /// Runs some units of work where lines are processed as one.
    ///
    /// # Safety
    /// Operands and result are those of the op, and only this range writes its results.
    ///
    /// # Safety
    /// Operands and result are those of the op, and only this range writes its results.
    #[inline(always)]
    unsafe fn flat_range<T: Copy>(&self, x: *const T, indices: *const u8, y: *mut T, range: Range<usize>) {
        let (group, n) = (self.groups[0], self.along.size);
        let mut places = [0u32; AT_ONCE];
        for first in range.map(|chunk| chunk * AT_ONCE) {
            let own = &mut places[..AT_ONCE.min(group.size * n - first)];
            // SAFETY: the kernel's own places; bounded indices are inside their lines.
            unsafe {
                self.clamp_indices(indices, self.at + first as isize, own);
                let (mut base, mut left) = (0, n - first % n);
                for p in own.iter_mut() {
                    *p += base;
                    left -= 1;
                    (base, left) = if left == 0 { (base + group.from as u32, n) } else { (base, left) };
                }
                let from = x.offset(self.from + (first / n) as isize * group.from);
                elements(from, y.offset(self.to + first as isize), own, 0);
            }
        }
    }

    /// Runs some units of work: chunks of indices, for each row that shares them.
    #[inline(always)]
    unsafe fn range<T: Copy>(
        &self,
        x: *const T,
        indices: *const u8,
        y: *mut T,
        [chunks, shared]: [usize; 2],
        range: Range<usize>,
    ) {
        if self.is_flattenable() {
            // SAFETY: operands and result are those of the op, and only this range writes its results.
            return unsafe { self.flat_range(x, indices, y, range) };
        }
        let mut places = [0u32; AT_ONCE];
        let mut there = usize::MAX;
        let (mut n, mut group, mut first) = (0, [0; 3], 0);
        for unit in range {
            let (chunk, row) = (unit / shared, unit % shared);
            // SAFETY: the kernel's own places; bounded indices are inside the operand.
            unsafe {
                if chunk != there {
                    there = chunk;
                    group = GatherMoves::offsets_at(&self.groups, chunk / chunks);
                    first = chunk % chunks * AT_ONCE;
                    n = AT_ONCE.min(self.along.size - first);
                    self.clamp_indices(indices, self.at + group[2] + first as isize, &mut places[..n]);
                }
                let own = &places[..n];
                let row = GatherMoves::offsets_at(&self.shared, row);
                let along = first as isize;
                let from = x.offset(self.from + group[1] + row[1] + along * self.along.from);
                let to = y.offset(self.to + group[0] + row[0] + along * self.along.to);
                let (by, hop) = (self.along.to as usize, self.along.from as usize);
                match self.run * size_of::<T>() {
                    _ if self.run == 1 && hop == 0 => elements(from, to, own, 0),
                    _ if self.run == 1 && hop == 1 => elements(from, to, own, 1),
                    _ if self.run == 1 => elements(from, to, own, hop),
                    8 => rows::<T, 8>(from, to, own, by, hop),
                    16 => rows::<T, 16>(from, to, own, by, hop),
                    32 => rows::<T, 32>(from, to, own, by, hop),
                    64 => rows::<T, 64>(from, to, own, by, hop),
                    _ => own.iter().enumerate().for_each(|(j, &i)| {
                        copy(from.add(i as usize + j * hop), to.add(j * by), self.run);
                    }),
                }
            }
        }
    }
}

/// Copies elements one by one. The compiler would vectorize them with gathers, which are slower.
///
/// # Safety
/// All elements are inside both.
#[inline(always)]
unsafe fn elements<T: Copy>(from: *const T, to: *mut T, places: &[u32], hop: usize) {
    const SIDE_BY_SIDE: usize = 8;
    let (whole, rest) = places.as_chunks::<SIDE_BY_SIDE>();
    let mut j = 0;
    // SAFETY: every place, `j * hop` further on, is inside of `from`, and `to` is valid for `places.len()` elements.
    unsafe {
        for eight in whole {
            for &i in eight {
                // The volatile write prevents vectorization.
                to.add(j).write_volatile(*from.add(i as usize + j * hop));
                j += 1;
            }
        }
        for &i in rest {
            *to.add(j) = *from.add(i as usize + j * hop);
            j += 1;
        }
    }
}

/// Copies rows of `N` bytes.
///
/// # Safety
/// All rows are inside both.
#[inline(always)]
unsafe fn rows<T: Copy, const N: usize>(from: *const T, to: *mut T, places: &[u32], by: usize, hop: usize) {
    for (j, &i) in places.iter().enumerate() {
        // SAFETY: every place, `j * hop` further on, begins a row of `N` bytes inside of `from`, and `to` has a row for
        // each, `by` apart.
        unsafe {
            let row = from.add(i as usize + j * hop).cast::<[u8; N]>().read_unaligned();
            to.add(j * by).cast::<[u8; N]>().write_unaligned(row);
        }
    }
}

impl OpRoutine for GatherMoves {
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let ([x, indices], [y]) = (args, outs) else { unreachable!("two operands and a result") };
        // SAFETY: `Routine::run` requires operands and result to be valid for their types.
        unsafe {
            match self.bytes {
                1 => self.run_as::<u8>(pool, *x, *indices, *y),
                2 => self.run_as::<u16>(pool, *x, *indices, *y),
                4 => self.run_as::<u32>(pool, *x, *indices, *y),
                _ => self.run_as::<u64>(pool, *x, *indices, *y),
            }
        }
        Ok(())
    }
}
