//! Routines along one axis of `[outer, n, inner]`: argmax and argmin, gather and scatter-add along the axis.

use super::element::{Element, Index, by_dtype, index};
use super::rearrange::tiles::Transpose;
use super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::ops::{ArgReduce, PutAlong, TakeAlong};
use ir::{DType, Type};
use std::marker::PhantomData;
use std::ops::Range;

/// The number of adjacent lines that are processed together.
pub(super) const LANES: usize = 16;

/// A tensor as lines along an axis.
#[derive(Clone, Copy)]
pub(super) struct AxisLines {
    pub(super) outer: usize,
    pub(super) n: usize,
    pub(super) inner: usize,
}

impl AxisLines {
    pub(super) fn new(ty: &Type, axis: usize) -> AxisLines {
        AxisLines {
            outer: ty.shape[..axis].iter().product(),
            n: ty.shape[axis],
            inner: ty.shape[axis + 1..].iter().product(),
        }
    }

    /// The number of bundles of up to `LANES` adjacent lines.
    pub(super) fn bundles(&self) -> usize {
        self.outer * self.inner.div_ceil(LANES)
    }

    /// Returns the outer index, first line and number of lines of a bundle.
    pub(super) fn bundle(&self, i: usize) -> (usize, usize, usize) {
        let each = self.inner.div_ceil(LANES);
        let first = i % each * LANES;
        (i / each, first, LANES.min(self.inner - first))
    }

    pub(super) fn numel(&self) -> usize {
        self.outer * self.n * self.inner
    }
}

/// The number of elements of a line that one part searches.
const PIECE: usize = 1 << 15;
/// The number of elements whose extremum is computed before its position is searched.
const RUN: usize = 2048;
/// The number of extrema that are kept in parallel.
const SIDE_BY_SIDE: usize = 64;

/// The maximum number of adjacent lines that are not worth a bundle's lanes.
const FEW_LANES: usize = 3;
/// The maximum number of elements of a line for which a block of lines is transposed first.
const SHORT: usize = 64;
/// The number of adjacent lines whose sums are kept at a time.
const STRIP: usize = 64;
/// The number of bundles of lines that provide enough work without splitting lines.
const FEW: usize = 32;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("along.lanes", LANES, "lines beside each other: beyond, they are several bundles"),
    Threshold::new("along.piece", PIECE, "elements of a line whose extremum is found: beyond, it is cut into pieces"),
    Threshold::new("along.run", RUN, "elements whose extremum is found before its place is looked for"),
    Threshold::new("along.short", SHORT, "elements of adjacent lines whose extrema are found side by side"),
    Threshold::new("along.strip", STRIP, "lines beside each other that are added to: beyond, they are several strips"),
    Threshold::new("along.few_lanes", FEW_LANES, "lines beside each other: up to here they are no bundle"),
    Threshold::new("along.few", FEW, "bundles of lines: from here lines are not cut"),
];

/// A block of transposed lines, whose rows are whole cache lines for elements of four bytes.
#[repr(align(64))]
struct TransposedLines([std::mem::MaybeUninit<u64>; SHORT * LANES]);

struct Extremum {
    lines: AxisLines,
    max: bool,
    long: bool,
    isa: Isa,
    /// The bytes of an element.
    size: usize,
    of: Extrema,
}

/// The functions that depend on the element type.
#[derive(Clone, Copy)]
struct Extrema {
    first: unsafe fn(*const u8, usize, bool) -> usize,
    across: unsafe fn(*const u8, usize, usize, bool) -> [i32; LANES],
    few: unsafe fn(*const u8, Range<usize>, usize, bool, &mut [usize]),
}

pub(super) fn arg_reduce(op: &ArgReduce, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (lines, long, isa) = (AxisLines::new(&args[0], op.axis), op.index == DType::I64, machine.isa);
    let of = by_dtype!(args[0].dtype, T => {
        Extrema { first: first_extremum::<T>, across: extrema_across::<T>, few: few_lines::<T> }
    })?;
    Some(Box::new(Extremum { lines, max: op.max, long, isa, size: args[0].dtype.size(), of }))
}

impl Extremum {
    /// The number of pieces of a line: one, unless lines are few and long.
    fn pieces(&self) -> usize {
        if self.lines.bundles() < FEW { self.lines.n.div_ceil(PIECE).max(1) } else { 1 }
    }

    /// Returns whether vector code is used; machines without AVX2 use one short scalar loop.
    fn vectors(&self) -> bool {
        self.isa != Isa::Portable || !cfg!(target_arch = "x86_64")
    }

    /// Processes adjacent short lines: a block of them is transposed so that the lines are side by side.
    ///
    /// # Safety
    /// `x` is valid for the operand, `y` for the result.
    unsafe fn short_lines(&self, pool: &ThreadPool, x: SharedPtr<u8>, y: SharedPtr<u8>) {
        let (rows, n, size) = (self.lines.outer, self.lines.n, self.size);
        in_ranges(pool, rows.div_ceil(LANES), rows * n, &|range: Range<usize>, _| {
            for first in range.map(|i| i * LANES) {
                let count = LANES.min(rows - first);
                // SAFETY: inside the operand; the rows are this range's own.
                unsafe {
                    let mut turned = TransposedLines([const { std::mem::MaybeUninit::uninit() }; SHORT * LANES]);
                    let to = turned.0.as_mut_ptr().cast::<u8>();
                    let from = x.at(first * n * size).cast_const();
                    match size {
                        1 => transpose_lines::<u8>(from.cast(), n, count, (rows - first) * n, to.cast()),
                        2 => transpose_lines::<u16>(from.cast(), n, count, (rows - first) * n, to.cast()),
                        4 => transpose_lines::<u32>(from.cast(), n, count, (rows - first) * n, to.cast()),
                        _ => transpose_lines::<u64>(from.cast(), n, count, (rows - first) * n, to.cast()),
                    }
                    let best = (self.of.across)(to, n, LANES, self.max);
                    match self.long {
                        true => {
                            let to = std::slice::from_raw_parts_mut(y.at(0).cast::<i64>().add(first), count);
                            to.iter_mut().zip(best).for_each(|(to, b)| *to = b as i64);
                        }
                        false => {
                            let to = y.at(0).cast::<i32>().add(first);
                            std::ptr::copy_nonoverlapping(best.as_ptr(), to, count);
                        }
                    }
                }
            }
        });
    }

    /// Computes the positions of the first extrema of a bundle's lines within a piece.
    ///
    /// # Safety
    /// `x` is valid for the operand.
    unsafe fn find_extrema(&self, x: SharedPtr<u8>, bundle: usize, piece: Range<usize>) -> [usize; LANES] {
        let l = self.lines;
        let (outer, first, lanes) = l.bundle(bundle);
        let mut best = [piece.start; LANES];
        // The address of the first element of each line.
        let lines = x.at((outer * l.n * l.inner + first) * self.size);
        let start = lines.wrapping_add(piece.start * l.inner * self.size);
        let mut rest = piece.start + 1..piece.end;
        if l.inner == 1 && self.vectors() {
            // SAFETY: the line is inside the operand, and adjacent.
            best[0] += unsafe { (self.of.first)(start, piece.len(), self.max) };
            return best;
        }
        // Lanes after the last line read whatever follows in memory, if it is inside the operand, and are ignored.
        let at = (outer * l.n + piece.start) * l.inner + first + LANES;
        let safe = ((l.numel() + l.inner).saturating_sub(at) / l.inner).min(piece.len());
        if safe > 1 && lanes > FEW_LANES && l.n <= i32::MAX as usize && self.vectors() {
            // SAFETY: the last of these rows is the last from which so many elements are inside the operand.
            let found = unsafe { (self.of.across)(start, safe, l.inner, self.max) };
            for (b, k) in best.iter_mut().zip(found) {
                *b += k as usize;
            }
            rest.start = piece.start + safe;
        }
        // SAFETY: inside the operand.
        unsafe { (self.of.few)(lines, rest, l.inner, self.max, &mut best[..lanes]) };
        best
    }
}

impl OpRoutine for Extremum {
    fn scratch_bytes(&self) -> usize {
        match self.pieces() {
            1 => 0,
            pieces => self.lines.bundles() * pieces * size_of::<[usize; LANES]>(),
        }
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let l = self.lines;
        let (x, y) = (SharedPtr(args[0].cast_mut()), SharedPtr(outs[0]));
        let (bundles, pieces) = (l.bundles(), self.pieces());
        if l.inner == 1 && l.n <= SHORT && self.vectors() {
            // SAFETY: `Routine::run` requires operand and results to be valid for their types, and results to overlap
            // nothing else.
            unsafe { self.short_lines(pool, x, y) };
            return Ok(());
        }
        let found = SharedPtr(scratch.cast::<[usize; LANES]>());
        let store = |bundle: usize, best: [usize; LANES]| {
            let (outer, first, lanes) = l.bundle(bundle);
            let to = outer * l.inner + first;
            // SAFETY: this bundle's part of the result.
            unsafe {
                match self.long {
                    true => {
                        let to = std::slice::from_raw_parts_mut(y.at(0).cast::<i64>().add(to), lanes);
                        to.iter_mut().zip(best).for_each(|(to, b)| *to = b as i64);
                    }
                    false => {
                        let to = std::slice::from_raw_parts_mut(y.at(0).cast::<i32>().add(to), lanes);
                        to.iter_mut().zip(best).for_each(|(to, b)| *to = b as i32);
                    }
                }
            }
        };
        in_ranges(pool, bundles * pieces, l.numel(), &|range: Range<usize>, _| {
            for unit in range {
                let (bundle, piece) = (unit / pieces, unit % pieces);
                let piece = if pieces == 1 { 0..l.n } else { piece * PIECE..l.n.min((piece + 1) * PIECE) };
                // SAFETY: the operand is valid for its type, and scratch has an entry for each unit.
                unsafe {
                    let best = self.find_extrema(x, bundle, piece);
                    match pieces {
                        1 => store(bundle, best),
                        _ => *found.at(unit) = best,
                    }
                }
            }
        });
        if pieces == 1 {
            return Ok(());
        }
        for bundle in 0..bundles {
            let (outer, first, lanes) = l.bundle(bundle);
            // SAFETY: every unit has written its place; extrema are inside the operand.
            unsafe {
                let mut best = *found.at(bundle * pieces);
                for piece in 1..pieces {
                    let next = *found.at(bundle * pieces + piece);
                    for j in 0..lanes {
                        let line = x.at((outer * l.n * l.inner + first + j) * self.size);
                        (self.of.few)(line, next[j]..next[j] + 1, l.inner, self.max, &mut best[j..j + 1]);
                    }
                }
                store(bundle, best);
            }
        }
        Ok(())
    }
}

/// Transposes `count` contiguous lines of `n` elements to be side by side, and repeats the first line up to `LANES` lines. Where
/// full tiles stay inside the `there` readable elements, they are transposed in registers.
///
/// # Safety
/// `x` is valid for `there` elements, `to` for `SHORT` rows of `LANES`, and the machine has AVX2 if it is an x86-64.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn transpose_lines<U: Transpose>(x: *const U, n: usize, count: usize, there: usize, to: *mut U) {
    #[cfg(target_arch = "x86_64")]
    if (LANES - 1) * n + n.next_multiple_of(U::TILE) <= there {
        for k in (0..n).step_by(U::TILE) {
            for j in (0..LANES).step_by(U::TILE) {
                // SAFETY: the tile ends before element `there`, for which `x` is valid, and inside the `SHORT` rows for
                // which `to` is.
                unsafe { U::tile(x.add(j * n + k), n as isize, to.add(k * LANES + j), LANES as isize) };
            }
        }
        return;
    }
    let _ = there;
    for j in 0..LANES {
        let row = if j < count { j * n } else { 0 };
        for k in 0..n {
            // SAFETY: `j * n + k` is below `there` for a line that exists, and the first line stands for the others;
            // `to` has `SHORT` rows. These are the last few lines, which are not worth vectors: volatile writes keep
            // the compiler from making any.
            unsafe { to.add(k * LANES + j).write_volatile(*x.add(row + k)) };
        }
    }
}

/// Returns the position of the first extremum of adjacent elements; there is at least one.
///
/// # Safety
/// There are `n` elements, and the machine has AVX2 if it is an x86-64.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn first_extremum<T: Element>(x: *const u8, n: usize, max: bool) -> usize {
    // SAFETY: `x` is valid for `n` elements.
    let x = unsafe { std::slice::from_raw_parts(x.cast::<T>(), n) };
    if max { scan_runs::<T, true>(x) } else { scan_runs::<T, false>(x) }
}

/// Returns the positions of the first extrema of `LANES` adjacent lines; rows are `stride` elements apart.
///
/// # Safety
/// `x` is valid for `n` rows, of which there is at least one, and the machine has AVX2 if it is an x86-64.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn extrema_across<T: Element>(x: *const u8, n: usize, stride: usize, max: bool) -> [i32; LANES] {
    let x = x.cast::<T>();
    // SAFETY: `x` is valid for `n ≥ 1` rows of `LANES` elements that are `stride` apart.
    unsafe { if max { scan_across::<T, true>(x, n, stride) } else { scan_across::<T, false>(x, n, stride) } }
}

/// Updates the positions of the first extrema of some adjacent lines with further rows.
///
/// # Safety
/// `x` is valid for the rows that were found and for `rows`.
unsafe fn few_lines<T: Element>(x: *const u8, rows: Range<usize>, stride: usize, max: bool, best: &mut [usize]) {
    let x = x.cast::<T>();
    for k in rows {
        for (j, b) in best.iter_mut().enumerate() {
            // SAFETY: both rows are valid for `best.len()` elements: `k` is in `rows`, and `b` is the row of an
            // extremum that was found.
            if unsafe { (*x.add(k * stride + j)).beats(*x.add(*b * stride + j), max) } {
                *b = k;
            }
        }
    }
}

/// # Safety
/// `x` is valid for `n ≥ 1` rows of `LANES` elements that are `stride` apart.
#[inline(always)]
unsafe fn scan_across<T: Element, const MAX: bool>(x: *const T, n: usize, stride: usize) -> [i32; LANES] {
    let mut place = [0i32; LANES];
    // SAFETY: `x` is valid for `n ≥ 1` rows of `LANES` elements that are `stride` apart.
    let mut best = unsafe { *x.cast::<[T; LANES]>() }.map(T::compared);
    for k in 1..n {
        // SAFETY: as above.
        let row = unsafe { *x.add(k * stride).cast::<[T; LANES]>() }.map(T::compared);
        for j in 0..LANES {
            let better = row[j].beats(best[j], MAX);
            best[j] = if better { row[j] } else { best[j] };
            place[j] = if better { k as i32 } else { place[j] };
        }
    }
    place
}

/// Searches run by run: computes a run's extremum with vectors, and its position only if it beats the best so far.
#[inline(always)]
fn scan_runs<T: Element, const MAX: bool>(x: &[T]) -> usize {
    let mut best = 0;
    for (r, run) in x.chunks(RUN).enumerate() {
        let value = extremum_of::<T, MAX>(run);
        if value.beats(x[best], MAX) {
            let same = |e: &T| if value.is_nan() { e.is_nan() } else { !e.less(value) & !value.less(*e) & !e.is_nan() };
            // Vector compares find the group of elements that contains it.
            let few =
                run.chunks(SIDE_BY_SIDE).position(|few| few.iter().fold(false, |any, e| any | same(e))).unwrap_or(0);
            best = r * RUN + few * SIDE_BY_SIDE + run[few * SIDE_BY_SIDE..].iter().position(same).unwrap_or(0);
        }
    }
    best
}

/// Prefetches a cache line; the address need not be valid.
#[inline(always)]
pub(super) fn prefetch_line<T>(p: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast())
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Returns an extremum of the elements, or NaN if there is one. NaN is checked in a separate pass, so that selecting one of two
/// numbers is one instruction.
#[inline(always)]
fn extremum_of<T: Element, const MAX: bool>(run: &[T]) -> T {
    if run.iter().fold(false, |any, e| any | e.is_nan()) {
        return run.iter().copied().find(|e| e.is_nan()).unwrap_or(run[0]);
    }
    let pick = |a: T, e: T| if if MAX { e.less(a) } else { a.less(e) } { a } else { e };
    let mut acc = [run[0]; SIDE_BY_SIDE];
    let (parts, rest) = run.as_chunks::<SIDE_BY_SIDE>();
    for part in parts {
        // The run is in cache by now; prefetch the next run.
        (0..size_of_val(part))
            .step_by(64)
            .for_each(|b| prefetch_line(part.as_ptr().wrapping_add(RUN).wrapping_byte_add(b)));
        for (a, &e) in acc.iter_mut().zip(part) {
            *a = pick(*a, e);
        }
    }
    let mut width = SIDE_BY_SIDE / 2;
    while width > 0 {
        for i in 0..width {
            acc[i] = pick(acc[i], acc[i + width]);
        }
        width /= 2;
    }
    rest.iter().fold(acc[0], |a, &e| pick(a, e))
}

/// Calls a function with a closure that reads indices of this type.
macro_rules! by_index {
    ($dtype:expr, $index:expr, $at:expr, $read:ident => $body:expr) => {{
        let (index, at): (Index, SharedPtr<u8>) = ($index, $at);
        match $dtype {
            DType::I32 => {
                // SAFETY: the indices are valid for index `k`.
                let $read = |k: usize| unsafe { *at.at(0).cast::<i32>().add(k) as i64 };
                $body
            }
            DType::I64 => {
                // SAFETY: as above.
                let $read = |k: usize| unsafe { *at.at(0).cast::<i64>().add(k) };
                $body
            }
            _ => {
                // SAFETY: as above.
                let $read = |k: usize| unsafe { index(at.at(0), k) };
                $body
            }
        }
    }};
}

struct Take<T> {
    from: AxisLines,
    to: AxisLines,
    index: Index,
    dtype: DType,
    element: PhantomData<fn() -> T>,
}

pub(super) fn take(op: &TakeAlong, args: &[Type]) -> Option<Box<dyn OpRoutine>> {
    let (from, to) = (AxisLines::new(&args[0], op.axis), AxisLines::new(&args[1], op.axis));
    let (index, dtype) = (index(args[1].dtype), args[1].dtype);
    macro_rules! of {
        ($t:ty) => {
            Some(Box::new(Take::<$t> { from, to, index, dtype, element: PhantomData }))
        };
    }
    match args[0].dtype.size() {
        1 => of!(u8),
        2 => of!(u16),
        4 => of!(u32),
        _ => of!(u64),
    }
}

impl<T: Copy + Default + 'static> Take<T> {
    /// # Safety
    /// Operand and result are those of the op; the rows are this call's.
    #[inline(always)]
    unsafe fn rows(&self, range: Range<usize>, x: SharedPtr<T>, y: SharedPtr<T>, index: impl Fn(usize) -> i64) {
        let (from, to) = (self.from, self.to);
        if to.inner == 1 {
            // Lines of adjacent elements, complete or in part.
            let mut at = range.start;
            while at < range.end {
                let (line, end) = (at / to.n, (at / to.n + 1) * to.n);
                let x = x.at(line * from.n);
                for at in at..end.min(range.end) {
                    let k = index(at) as u64;
                    // SAFETY: indices are checked against the axis.
                    unsafe { *y.at(at) = if k < from.n as u64 { *x.add(k as usize) } else { T::default() } };
                }
                at = end;
            }
            return;
        }
        for row in range {
            let slab = row / to.n * from.n * from.inner;
            for j in 0..to.inner {
                let at = row * to.inner + j;
                let k = index(at);
                // SAFETY: indices are checked against the axis.
                unsafe {
                    *y.at(at) = match (k as u64) < from.n as u64 {
                        true => *x.at(slab + k as usize * from.inner + j),
                        false => T::default(),
                    };
                }
            }
        }
    }
}

impl<T: Copy + Default + 'static> OpRoutine for Take<T> {
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let to = self.to;
        let (x, i) = (SharedPtr(args[0].cast_mut().cast::<T>()), SharedPtr(args[1].cast_mut()));
        let y = SharedPtr(outs[0].cast::<T>());
        in_ranges(pool, to.outer * to.n, to.numel(), &|range: Range<usize>, _| {
            // SAFETY: `Routine::run` requires operands and result to be valid for their types; only this range writes
            // these rows.
            by_index!(self.dtype, self.index, i, read => unsafe { self.rows(range, x, y, read) });
        });
        Ok(())
    }
}

struct Put<T: Element> {
    from: AxisLines,
    to: AxisLines,
    index: Index,
    dtype: DType,
    threads: usize,
    element: PhantomData<fn() -> T>,
}

pub(super) fn put(op: &PutAlong, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (from, to) = (AxisLines::new(&args[0], op.axis), AxisLines::new(&outs[0], op.axis));
    let (index, dtype, threads) = (index(args[1].dtype), args[1].dtype, machine.threads);
    by_dtype!(args[0].dtype, T => {
        Box::new(Put::<T> { from, to, index, dtype, threads, element: PhantomData }) as Box<dyn OpRoutine>
    })
}

impl<T: Element> Put<T> {
    /// The number of adjacent lines whose sums are kept at a time.
    fn lines_per_strip(&self) -> usize {
        self.to.inner.min(STRIP)
    }

    fn slab(&self) -> usize {
        (self.to.n * self.lines_per_strip() * 8).next_multiple_of(64)
    }
}

impl<T: Element> OpRoutine for Put<T> {
    fn scratch_bytes(&self) -> usize {
        self.slab() * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (from, to, inner) = (self.from, self.to, self.to.inner);
        let (x, i) = (SharedPtr(args[0].cast_mut().cast::<T>()), SharedPtr(args[1].cast_mut()));
        let (y, scratch) = (SharedPtr(outs[0].cast::<T>()), SharedPtr(scratch));
        let strips = inner.div_ceil(STRIP);
        in_ranges(pool, to.outer * strips, from.numel() + to.numel(), &|range: Range<usize>, worker| {
            for unit in range {
                let (outer, first) = (unit / strips, unit % strips * STRIP);
                let width = STRIP.min(inner - first);
                let n = to.n * width;
                // SAFETY: each worker has its own slab, and a sum takes at most 8 bytes.
                let sums =
                    unsafe { std::slice::from_raw_parts_mut(scratch.at(worker * self.slab()).cast::<T::Sum>(), n) };
                sums.fill(T::zero());
                if inner == 1 {
                    let line = outer * from.n;
                    by_index!(self.dtype, self.index, i, read => {
                        for at in line..line + from.n {
                            let place = read(at) as u64;
                            if place < to.n as u64 {
                                // SAFETY: inside the operands.
                                let value = unsafe { *x.at(at) };
                                let s = &mut sums[place as usize];
                                *s = T::sum(*s, value.widen());
                            }
                        }
                    });
                    for (p, &s) in sums.iter().enumerate() {
                        // SAFETY: this unit's own part of the result.
                        unsafe { *y.at(outer * to.n + p) = T::rounded(s) };
                    }
                    continue;
                }
                by_index!(self.dtype, self.index, i, read => {
                    for k in 0..from.n {
                        for j in 0..width {
                            let at = (outer * from.n + k) * inner + first + j;
                            let place = read(at) as u64;
                            if place < to.n as u64 {
                                // SAFETY: inside the operands.
                                let value = unsafe { *x.at(at) };
                                let s = &mut sums[place as usize * width + j];
                                *s = T::sum(*s, value.widen());
                            }
                        }
                    }
                });
                for (p, row) in sums.chunks_exact(width).enumerate() {
                    for (j, &s) in row.iter().enumerate() {
                        // SAFETY: this unit's own part of the result.
                        unsafe { *y.at((outer * to.n + p) * inner + first + j) = T::rounded(s) };
                    }
                }
            }
        });
        Ok(())
    }
}
