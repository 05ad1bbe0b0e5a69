//! Running folds along one axis of `[outer, n, inner]`.
//!
//! A fold waits for the element before; several at once keep the machine busy. Lines beside each other go side by side
//! already. Where elements of a line are adjacent, several lines are taken in turn, and a long line is cut at places that its
//! length decides: the parts are folded, then each is run through from what the ones before it gave. Sums and products of 16-bit floats have
//! vectors for it ([`eight_lines`](super::eight_lines)).

use super::along::{Lines, ask_for};
use super::eight_lines::{EIGHT, Walk, Walks, walks};
use super::element::{Element, Fold, by_dtype, by_fold};
use super::{Machine, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::pool::Pool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::Type;
use ir::ops::{Cumulative, ReduceKind};
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of lines that are asked for while those before them are walked along.
const AHEAD_BYTES: usize = 8 << 10;
/// Steps whose results are made together.
const KEPT: usize = 32;
/// Adjacent lines, or parts of one, that are taken in turn.
const TURNS: usize = EIGHT;
/// Elements of lines of which each is walked along by itself: the processor goes on with the next while it waits.
const SHORT: usize = 16;
/// Lines that are left, of which so few are taken in turn.
const LEFT: usize = 4;
/// Lines beside each other that are walked along together: long runs of each row, whose states stay in the first cache.
const STRIP: usize = 128;
/// Elements of a line from which it is cut.
const LONG: usize = 1 << 13;
/// Lines that are work enough without cutting them.
const MANY: usize = 64;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("running.short", SHORT, "elements of adjacent lines: up to here one is taken after the other"),
    Threshold::new("running.long", LONG, "elements of adjacent lines: from here a few lines are cut into parts"),
    Threshold::new("running.many", MANY, "adjacent lines: from here they are not cut"),
    Threshold::new("running.strip", STRIP, "lines beside each other: beyond, they are several strips"),
    Threshold::new(
        "running.ahead",
        AHEAD_BYTES / TURNS / 4,
        "elements of adjacent lines: beyond, they are not asked for ahead",
    ),
    Threshold::new("running.kept", KEPT, "elements of adjacent lines: beyond, results are made in pieces"),
    Threshold::new("running.turns", TURNS, "adjacent lines that are taken in turn"),
    Threshold::new(
        "running.left",
        LEFT,
        "adjacent lines of which all are taken in turn with themselves: beyond, of twice as many",
    ),
];

struct Running<T: Element, F: Fold<T>> {
    lines: Lines,
    identity: T,
    reverse: bool,
    /// Parts of a line; 1 where it is not cut.
    parts: usize,
    avx2: bool,
    /// For sums and products of 16-bit floats, whose states are f64.
    walks: Option<Walks>,
    fold: PhantomData<fn() -> F>,
}

pub(super) fn cumulative(op: &Cumulative, args: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    let lines = Lines::new(&args[0], op.axis);
    let identity = op.kind.identity(args[0].dtype);
    // Products of parts overflow and vanish elsewhere than those of the whole.
    let cut = !(op.kind == ReduceKind::Prod && args[0].dtype.is_float());
    let parts = if cut && lines.inner == 1 && lines.outer < MANY && lines.n >= LONG { 2 * TURNS } else { 1 };
    by_fold!(args[0].dtype, op.kind, T, F => {
        let identity = <T as Element>::from_scalar(identity);
        let avx2 = machine.isa != Isa::Portable;
        let walks = walks(args[0].dtype, op.kind, machine.isa);
        Box::new(Running::<T, F> { lines, identity, reverse: op.reverse, parts, avx2, walks, fold: PhantomData }) as Box<dyn Routine>
    })
}

/// Several walks of equal length, taken in turn: through `x`, to the last states.
///
/// # Safety
/// All elements are there to read.
#[inline(always)]
unsafe fn fold<T: Element, F: Fold<T>, const N: usize>(
    x: Raw<T>,
    starts: [usize; N],
    len: usize,
    reverse: bool,
    mut states: [F::State; N],
) -> [F::State; N] {
    for step in 0..len {
        let k = if reverse { len - 1 - step } else { step };
        for (s, &start) in states.iter_mut().zip(&starts) {
            // SAFETY: the caller's promise.
            *s = F::step(*s, unsafe { *x.at(start + k) });
        }
    }
    states
}

/// As `fold`, writing every result on the way.
///
/// # Safety
/// All elements are there to read and to write, the latter by nobody else.
#[inline(always)]
unsafe fn scan<T: Element, F: Fold<T>, const N: usize>(
    (x, y): (Raw<T>, Raw<T>),
    starts: [usize; N],
    len: usize,
    reverse: bool,
    mut states: [F::State; N],
) -> [F::State; N] {
    // The last states of some steps are kept, and made results together: that is where vectors help.
    let mut kept = [[std::mem::MaybeUninit::<F::State>::uninit(); KEPT]; N];
    for first in (0..len).step_by(KEPT) {
        let n = KEPT.min(len - first);
        // Where these results begin; they end with the first one if the walk is reversed.
        let low = if reverse { len - first - n } else { first };
        for step in 0..n {
            let k = if reverse { n - 1 - step } else { step };
            for ((s, &start), kept) in states.iter_mut().zip(&starts).zip(&mut kept) {
                // SAFETY: the caller's promise.
                *s = F::step(*s, unsafe { *x.at(start + low + k) });
                kept[k].write(*s);
            }
        }
        for (&start, kept) in starts.iter().zip(&kept) {
            let y = y.at(start + low);
            for (k, &s) in kept[..n].iter().enumerate() {
                // SAFETY: as above; as many states were kept.
                unsafe { *y.add(k) = F::result(s.assume_init()) };
            }
        }
    }
    states
}

/// Adjacent lines, `[lines, elements]`, one after the other: a function of its own, so that pointers stay in registers.
///
/// # Safety
/// As for `scan`.
#[inline(never)]
unsafe fn singly<T: Element, F: Fold<T>>(
    x: *const T,
    y: *mut T,
    [lines, n]: [usize; 2],
    reverse: bool,
    start: F::State,
) {
    let (first, step) = if reverse { (n.wrapping_sub(1), usize::MAX) } else { (0, 1) };
    for line in 0..lines {
        let (mut at, mut state) = ((line * n).wrapping_add(first), start);
        for _ in 0..n {
            // SAFETY: the caller's promise.
            unsafe {
                state = F::step(state, *x.add(at));
                *y.add(at) = F::result(state);
            }
            at = at.wrapping_add(step);
        }
    }
}

/// `scan` by the vectors of AVX2, if the machine has them.
///
/// # Safety
/// As for `scan`.
#[inline(always)]
unsafe fn scan_by<T: Element, F: Fold<T>, const N: usize>(
    avx2: bool,
    ends: (Raw<T>, Raw<T>),
    starts: [usize; N],
    len: usize,
    reverse: bool,
    states: [F::State; N],
) -> [F::State; N] {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        unsafe fn wide<T: Element, F: Fold<T>, const N: usize>(
            ends: (Raw<T>, Raw<T>),
            starts: [usize; N],
            len: usize,
            reverse: bool,
            states: [F::State; N],
        ) -> [F::State; N] {
            // SAFETY: the caller's promise.
            unsafe { scan::<T, F, N>(ends, starts, len, reverse, states) }
        }
        if avx2 {
            // SAFETY: the caller's promise.
            return unsafe { wide::<T, F, N>(ends, starts, len, reverse, states) };
        }
    }
    let _ = avx2;
    // SAFETY: the caller's promise.
    unsafe { scan::<T, F, N>(ends, starts, len, reverse, states) }
}

impl<T: Element, F: Fold<T>> Running<T, F> {
    /// Lines side by side, a strip of them at a time.
    unsafe fn across(&self, pool: &Pool, x: Raw<T>, y: Raw<T>) {
        let l = self.lines;
        let each = l.inner.div_ceil(STRIP);
        in_ranges(pool, l.outer * each, l.numel(), &|range: Range<usize>, _| {
            for i in range {
                let first = i % each * STRIP;
                let strip = (i / each * l.n * l.inner + first, STRIP.min(l.inner - first));
                // SAFETY: inside the operand and this strip's part of the result; the machine has what it says.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    if self.avx2 {
                        self.strip_avx2(strip, x, y);
                        continue;
                    }
                    self.strip(strip, x, y);
                }
            }
        });
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn strip_avx2(&self, strip: (usize, usize), x: Raw<T>, y: Raw<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.strip(strip, x, y) }
    }

    /// So many lines from the one on that begins at `first`.
    #[inline(always)]
    unsafe fn strip(&self, (first, lanes): (usize, usize), x: Raw<T>, y: Raw<T>) {
        let l = self.lines;
        let mut states = [F::start(self.identity); STRIP];
        for step in 0..l.n {
            let k = if self.reverse { l.n - 1 - step } else { step };
            let at = first + k * l.inner;
            for (j, s) in states[..lanes].iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                unsafe {
                    *s = F::step(*s, *x.at(at + j));
                    *y.at(at + j) = F::result(*s);
                }
            }
        }
    }

    /// A walk by vectors.
    ///
    /// # Safety
    /// As for `scan` and `fold`; the walk is one of this fold's.
    unsafe fn walk(
        &self,
        walk: Walk,
        (x, y): (Raw<T>, Raw<T>),
        starts: [usize; EIGHT],
        len: usize,
        mut states: [F::State; EIGHT],
    ) -> [F::State; EIGHT] {
        debug_assert!(size_of::<T>() == 2 && size_of::<F::State>() == 8);
        // SAFETY: elements have two bytes, states are f64, and the caller vouches for the rest.
        unsafe { walk((Raw(x.0.cast()), Raw(y.0.cast())), starts, len, self.reverse, states.as_mut_ptr().cast()) };
        states
    }

    /// Adjacent lines, whole.
    unsafe fn lines(&self, pool: &Pool, x: Raw<T>, y: Raw<T>) {
        let (rows, n) = (self.lines.outer, self.lines.n);
        let start = F::start(self.identity);
        in_ranges(pool, rows.div_ceil(TURNS), rows * n, &|range: Range<usize>, _| {
            if n <= SHORT && self.walks.is_none() {
                let first = range.start * TURNS;
                let count = rows.min(range.end * TURNS) - first;
                // SAFETY: these lines are inside, and this range's own.
                return unsafe { singly::<T, F>(x.at(first * n), y.at(first * n), [count, n], self.reverse, start) };
            }
            for first in range.map(|i| i * TURNS) {
                // SAFETY: these lines are inside, and this range's own.
                unsafe {
                    if first + TURNS <= rows {
                        // Walking along several lines at once is no pattern that a processor foresees.
                        let bytes = TURNS * n * size_of::<T>();
                        if bytes <= AHEAD_BYTES {
                            for b in (0..bytes).step_by(64) {
                                ask_for(x.at(first * n).wrapping_byte_add(bytes + b));
                                ask_for(y.at(first * n).wrapping_byte_add(bytes + b));
                            }
                        }
                    }
                    // Of fewer lines the last is walked along several times at once, to the same results.
                    let at = |i: usize| (first + i).min(rows - 1) * n;
                    match (rows - first, self.walks) {
                        (1, _) => {
                            scan::<T, F, 1>((x, y), [at(0)], n, self.reverse, [start]);
                        }
                        (_, Some(walks)) => {
                            self.walk(walks.scan, (x, y), std::array::from_fn(at), n, [start; EIGHT]);
                        }
                        (..=LEFT, None) => {
                            let starts = std::array::from_fn(at);
                            scan_by::<T, F, LEFT>(self.avx2, (x, y), starts, n, self.reverse, [start; LEFT]);
                        }
                        _ => {
                            let starts = std::array::from_fn(at);
                            scan_by::<T, F, TURNS>(self.avx2, (x, y), starts, n, self.reverse, [start; TURNS]);
                        }
                    }
                }
            }
        });
    }

    /// Where parts of a line begin, in the order of the walk.
    fn part(&self, line: usize, part: usize) -> usize {
        let each = self.lines.n / self.parts;
        line * self.lines.n + each * if self.reverse { self.parts - 1 - part } else { part }
    }

    /// Few long adjacent lines. The last elements, which are no whole part, come first where the walk is reversed.
    unsafe fn parts(&self, pool: &Pool, x: Raw<T>, y: Raw<T>, totals: Raw<F::State>) {
        let (rows, n, parts) = (self.lines.outer, self.lines.n, self.parts);
        let (each, work) = (n / parts, rows * n);
        let (whole, start) = (each * parts, F::start(self.identity));
        let groups = parts / TURNS;
        let starts = |unit: usize| -> [usize; TURNS] {
            std::array::from_fn(|i| self.part(unit / groups, unit % groups * TURNS + i))
        };
        in_ranges(pool, rows * groups, work, &|range: Range<usize>, _| {
            for unit in range {
                // SAFETY: inside the operand; totals have a place for each part.
                unsafe {
                    let found = match self.walks {
                        Some(walks) => self.walk(walks.fold, (x, y), starts(unit), each, [start; TURNS]),
                        None => fold::<T, F, TURNS>(x, starts(unit), each, self.reverse, [start; TURNS]),
                    };
                    for (i, s) in found.into_iter().enumerate() {
                        *totals.at(unit * TURNS + i) = s;
                    }
                }
            }
        });
        // From what each part gives to what stands before each.
        for row in 0..rows {
            let mut before = start;
            let rest = row * n + whole;
            // SAFETY: inside the operands; each total is read before it is replaced.
            unsafe {
                if self.reverse {
                    [before] = scan::<T, F, 1>((x, y), [rest], n - whole, true, [before]);
                }
                for part in 0..parts {
                    let total = *totals.at(row * parts + part);
                    *totals.at(row * parts + part) = before;
                    before = F::join(before, total);
                }
                if !self.reverse {
                    scan::<T, F, 1>((x, y), [rest], n - whole, false, [before]);
                }
            }
        }
        in_ranges(pool, rows * groups, work, &|range: Range<usize>, _| {
            for unit in range {
                // SAFETY: as above; these parts of the result are this range's own.
                unsafe {
                    let before = std::array::from_fn(|i| *totals.at(unit * TURNS + i));
                    match self.walks {
                        Some(walks) => self.walk(walks.scan, (x, y), starts(unit), each, before),
                        None => scan_by::<T, F, TURNS>(self.avx2, (x, y), starts(unit), each, self.reverse, before),
                    };
                }
            }
        });
    }
}

impl<T: Element, F: Fold<T>> Routine for Running<T, F> {
    fn scratch_bytes(&self) -> usize {
        if self.parts > 1 { self.lines.outer * self.parts * size_of::<F::State>() } else { 0 }
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (x, y) = (Raw(args[0].cast_mut().cast::<T>()), Raw(outs[0].cast::<T>()));
        // SAFETY: the caller's promise.
        unsafe {
            match (self.lines.inner, self.parts) {
                (1, 1) => self.lines(pool, x, y),
                (1, _) => self.parts(pool, x, y, Raw(scratch.cast())),
                _ => self.across(pool, x, y),
            }
        }
        Ok(())
    }
}
