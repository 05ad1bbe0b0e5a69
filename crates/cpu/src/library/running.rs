//! Running folds along one axis of `[outer, n, inner]`.
//!
//! A fold waits for the element before; several at once keep the machine busy. Lines beside each other go side by side
//! already. Where elements of a line are adjacent, eight lines have a lane each ([`lanes`]; [`eight_lines`] for sums and products of
//! 16-bit floats) or fewer are taken in turn ([`turns`]), and a long line is cut at places that its
//! length decides: the parts are folded, then each is run through from what the ones before it gave.

mod eight_lines;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod turns;

use super::along::{Lines, ask_for};
use super::element::{Element, Fold, by_dtype, by_fold};
use super::{Machine, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::pool::Pool;
use crate::thresholds::Threshold;
use compiler::Result;
use eight_lines::{EIGHT, Walk, Walks, walks};
use ir::Type;
use ir::ops::{Cumulative, ReduceKind};
use std::marker::PhantomData;
use std::ops::Range;
use turns::{KEPT, fold, scan, scan_by, singly};

/// Bytes of lines that are asked for while those before them are walked along.
const AHEAD_BYTES: usize = 8 << 10;
/// Adjacent lines, or parts of one, that are taken in turn.
const TURNS: usize = EIGHT;
/// Elements of lines that are walked along by vectors. Of shorter ones each is walked along by itself: the processor goes on with the next while it waits.
const SHORT: usize = 12;
/// The same for elements of eight bytes, of which vectors hold few.
const SHORT_WIDE: usize = 64;
/// Elements of a short line from which it fills a block well enough.
const FULL: usize = 6;
/// Lines that are left, of which so few are taken in turn.
const LEFT: usize = 4;
/// Lines beside each other that are walked along together: long runs of each row, whose states stay in the first cache.
const STRIP: usize = 128;
/// Elements of a line from which it is cut.
const LONG: usize = 1 << 13;
/// Lines that are work enough without cutting them.
const MANY: usize = 64;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new(
        "running.short",
        SHORT,
        "elements of adjacent lines: from here they are walked along block by block",
    ),
    Threshold::new(
        "running.wide",
        SHORT_WIDE,
        "elements of adjacent lines of eight bytes each: from here block by block",
    ),
    Threshold::new(
        "running.full",
        FULL,
        "elements of adjacent lines of f32: from here up to a block's, one block has all of them",
    ),
    Threshold::new("running.block", EIGHT, "elements of adjacent lines of f32: beyond, each is walked along by itself"),
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

/// How short adjacent lines are that are walked along one by one.
const fn short<T>() -> usize {
    if size_of::<T>() == 8 { SHORT_WIDE } else { SHORT }
}

impl<T: Element, F: Fold<T>> Running<T, F> {
    /// Whether lines have lanes: of integers, and of floats that are converted for it. Extrema of f32 wait longer for what a NaN needs than vectors
    /// save, and few elements of eight bytes fit in one.
    #[cfg(target_arch = "x86_64")]
    const LANES: bool = size_of::<T>() < 8 && (T::IS_INT || size_of::<F::State>() > size_of::<T>());

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
        if rows * n == 0 {
            return;
        }
        // Few lines are shared out one by one.
        let each = TURNS.min(rows.div_ceil(pool.threads()));
        in_ranges(pool, rows.div_ceil(each), rows * n, &|range: Range<usize>, _| {
            let own = range.start * each..rows.min(range.end * each);
            // SAFETY: these lines are inside, and this range's own.
            unsafe { self.some_lines(own, x, y) }
        });
    }

    /// These adjacent lines, of which there is one at least.
    unsafe fn some_lines(&self, own: Range<usize>, x: Raw<T>, y: Raw<T>) {
        let (n, start) = (self.lines.n, F::start(self.identity));
        let mut first = own.start;
        if n < short::<T>() && self.walks.is_none() {
            let (x, y) = (x.at(first * n), y.at(first * n));
            // SAFETY: the caller's promise.
            unsafe {
                // States of f32 are converted back and forth, which vectors do several at a time.
                #[cfg(target_arch = "x86_64")]
                if self.avx2 && (FULL..=EIGHT).contains(&n) && size_of::<T>() == 4 && size_of::<F::State>() == 8 {
                    let way = lanes::Way { apart: n as isize, n, reverse: self.reverse };
                    return lanes::short::<T, F>(x, y, own.len(), way, start);
                }
                return singly::<T, F>(x, y, [own.len(), n], self.reverse, start);
            }
        }
        while first < own.end {
            let left = own.end - first;
            // SAFETY: the caller's promise.
            unsafe {
                if left >= TURNS {
                    // Walking along several lines at once is no pattern that a processor foresees.
                    let bytes = TURNS * n * size_of::<T>();
                    if bytes <= AHEAD_BYTES {
                        for b in (0..bytes).step_by(64) {
                            ask_for(x.at(first * n).wrapping_byte_add(bytes + b));
                            ask_for(y.at(first * n).wrapping_byte_add(bytes + b));
                        }
                    }
                }
                #[cfg(target_arch = "x86_64")]
                if Self::LANES && self.avx2 && self.walks.is_none() && own.len() >= EIGHT && left > LEFT {
                    // The last eight lines may begin with some that are done, and give the same again.
                    let at = first.min(own.end - EIGHT) * n;
                    let way = lanes::Way { apart: n as isize, n, reverse: self.reverse };
                    lanes::long::<T, F, true>(x.at(at), y.at(at), way, [start; EIGHT]);
                    first += EIGHT;
                    continue;
                }
                // Of fewer lines the last is walked along several times at once, to the same results.
                let at = |i: usize| (first + i).min(own.end - 1) * n;
                match (left, self.walks) {
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
            first += TURNS;
        }
    }

    /// Where parts of a line begin, in the order of the walk.
    fn part(&self, line: usize, part: usize) -> usize {
        let each = self.lines.n / self.parts;
        line * self.lines.n + each * if self.reverse { self.parts - 1 - part } else { part }
    }

    /// Parts that follow each other in one of both directions, by vectors if the machine has them.
    ///
    /// # Safety
    /// As for `scan` or, if nothing is written, `fold`.
    unsafe fn folded<const WRITE: bool>(
        &self,
        (x, y): (Raw<T>, Raw<T>),
        starts: [usize; TURNS],
        each: usize,
        states: [F::State; TURNS],
    ) -> [F::State; TURNS] {
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if Self::LANES && self.avx2 {
                let apart = if self.reverse { -(each as isize) } else { each as isize };
                let way = lanes::Way { apart, n: each, reverse: self.reverse };
                return lanes::long::<T, F, WRITE>(x.at(starts[0]), y.at(starts[0]), way, states);
            }
            match WRITE {
                true => scan_by::<T, F, TURNS>(self.avx2, (x, y), starts, each, self.reverse, states),
                false => fold::<T, F, TURNS>(x, starts, each, self.reverse, states),
            }
        }
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
                        None => self.folded::<false>((x, y), starts(unit), each, [start; TURNS]),
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
                        None => self.folded::<true>((x, y), starts(unit), each, before),
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
