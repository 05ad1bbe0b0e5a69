//! Cumulative folds (scans) along one axis of `[outer, n, inner]`.
//!
//! Each step of a fold waits for the previous one, so several folds run at once to keep the machine busy. Adjacent lines with
//! `inner > 1` already run in parallel. If the elements of a line are adjacent, eight lines use one lane each ([`lanes`];
//! [`lanes16`] for sums and products of 16-bit floats), or fewer lines are interleaved ([`interleaved`]), and a long line is
//! split at positions that depend on its length:
//! the parts are folded, then each part is scanned from the fold of the parts before it.
//!
//! This file chooses the algorithm for all element types and folds. Code that depends on those is called through pointers
//! ([`Code`]), for many elements at a time.

mod interleaved;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod lanes16;

use super::along::{AxisLines, prefetch_line};
use super::element::{Element, FoldOp, by_dtype, by_fold};
use super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use interleaved::{Code, KEPT};
use ir::Type;
use ir::ops::{Cumulative, ReduceKind};
use lanes16::{LINES, Walk, Walks, walks};
use std::ops::Range;

/// The prefetch distance in bytes, for the lines that follow.
const AHEAD_BYTES: usize = 8 << 10;
/// The number of adjacent lines, or parts of a line, that are interleaved.
const TURNS: usize = LINES;
/// The minimum number of elements of lines that are scanned with vectors.
/// Shorter lines are scanned one by one; out-of-order execution overlaps them.
const SHORT: usize = 12;
/// The same minimum for elements of eight bytes, of which a vector has few lanes.
const SHORT_WIDE: usize = 64;
/// The minimum number of elements of a short line that fills a block well enough.
const FULL: usize = 6;
/// The maximum number of remaining lines that are interleaved as a group of this size.
const LEFT: usize = 4;
/// The number of adjacent lines that are scanned together: long runs of each row, whose states stay in the L1 cache.
const STRIP: usize = 128;
/// The minimum number of elements of a line that is split.
const LONG: usize = 1 << 13;
/// The number of lines that provide enough work without splitting them.
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
    Threshold::new("running.block", LINES, "elements of adjacent lines of f32: beyond, each is walked along by itself"),
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

/// A scan. Elements and states are untyped bytes here.
struct CumulativeRoutine {
    lines: AxisLines,
    reverse: bool,
    /// The number of parts of a line; 1 if it is not split.
    parts: usize,
    /// Whether the machine has the vector instructions that most of the code is compiled for.
    vectors: bool,
    /// For sums and products of 16-bit floats, whose states are f64.
    walks: Option<Walks>,
    code: Code,
}

/// The states of lines that are scanned together, stored contiguously with the fold's own state type.
type States = [u64; LINES];

pub(super) fn cumulative(op: &Cumulative, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let lines = AxisLines::new(&args[0], op.axis);
    let identity = op.kind.identity(args[0].dtype);
    let vectors = machine.isa != Isa::Portable || !cfg!(target_arch = "x86_64");
    // Products of parts can overflow or underflow where the product of the whole does not.
    let cut = vectors && !(op.kind == ReduceKind::Prod && args[0].dtype.is_float());
    let parts = if cut && lines.inner == 1 && lines.outer < MANY && lines.n >= LONG { 2 * TURNS } else { 1 };
    let code = by_fold!(args[0].dtype, op.kind, T, F => Code::new::<T, F>(<T as Element>::from_scalar(identity)))?;
    let walks = walks(args[0].dtype, op.kind, machine.isa);
    Some(Box::new(CumulativeRoutine { lines, reverse: op.reverse, parts, vectors, walks, code }))
}

impl CumulativeRoutine {
    /// The address of element `i`.
    fn at(&self, x: SharedPtr<u8>, i: usize) -> *mut u8 {
        x.at(i * self.code.size)
    }

    /// The length up to which adjacent lines are scanned one by one.
    fn max_short_line(&self) -> usize {
        if self.code.size == 8 { SHORT_WIDE } else { SHORT }
    }

    /// Returns initial states.
    fn initial_states(&self) -> States {
        let mut states = [0; LINES];
        for i in 0..LINES {
            let to = states.as_mut_ptr().cast::<u8>().wrapping_add(i * self.code.state);
            // SAFETY: eight states of no more than eight bytes are there.
            unsafe { to.copy_from_nonoverlapping((&raw const self.code.start).cast(), self.code.state) };
        }
        states
    }

    /// Scans lines one after the other: the number of lines, the strides between lines and between elements. The state is carried
    /// from each line to the next.
    ///
    /// # Safety
    /// `x` and `y` are valid for all elements of the lines, and nothing else writes those of `y`.
    unsafe fn scan_one_by_one(
        &self,
        (x, y): (SharedPtr<u8>, SharedPtr<u8>),
        first: usize,
        lines: usize,
        n: usize,
        states: &mut States,
    ) {
        let (apart, step) = if self.lines.inner == 1 { (n, 1) } else { (1, self.lines.inner) };
        let (first, step) = match self.reverse {
            false => (first, step as isize),
            true => (first + n.saturating_sub(1) * step, -(step as isize)),
        };
        // SAFETY: `x` and `y` are valid for the lines from `first` on, which nothing else writes, and `states` has room
        // for a state.
        unsafe { (self.code.walk)(self.at(x, first), self.at(y, first), [lines, n, apart], step, states.as_mut_ptr()) }
    }

    /// Scans adjacent lines in parallel, one strip at a time.
    unsafe fn scan_strips(&self, pool: &ThreadPool, x: SharedPtr<u8>, y: SharedPtr<u8>) {
        let l = self.lines;
        let each = l.inner.div_ceil(STRIP);
        in_ranges(pool, l.outer * each, l.numel(), &|range: Range<usize>, _| {
            for i in range {
                let first = i % each * STRIP;
                let (lanes, first) = (STRIP.min(l.inner - first), i / each * l.n * l.inner + first);
                // SAFETY: inside the operand and this strip's part of the result; the machine has what it says.
                unsafe {
                    if !self.vectors {
                        self.scan_one_by_one((x, y), first, lanes, l.n, &mut self.initial_states());
                        continue;
                    }
                    let (rows, step) = (l.n, l.inner as isize);
                    let (first, step) = match self.reverse {
                        false => (first, step),
                        true => (first + rows.saturating_sub(1) * l.inner, -step),
                    };
                    (self.code.strip)(self.at(x, first), self.at(y, first), [lanes, rows], step, &self.code.start);
                }
            }
        });
    }

    /// Scans with vectors.
    ///
    /// # Safety
    /// As for `singly`; the walk is one of this fold's.
    unsafe fn walk(
        &self,
        walk: Walk,
        (x, y): (SharedPtr<u8>, SharedPtr<u8>),
        starts: [usize; LINES],
        len: usize,
        states: &mut States,
    ) {
        debug_assert!(self.code.size == 2 && self.code.state == 8);
        // SAFETY: elements have two bytes, states are f64, and both are valid for the lines.
        unsafe {
            walk((SharedPtr(x.0.cast()), SharedPtr(y.0.cast())), starts, len, self.reverse, states.as_mut_ptr().cast())
        };
    }

    /// Scans whole lines with adjacent elements.
    unsafe fn scan_adjacent_lines(&self, pool: &ThreadPool, x: SharedPtr<u8>, y: SharedPtr<u8>) {
        let (rows, n) = (self.lines.outer, self.lines.n);
        if rows * n == 0 {
            return;
        }
        // With few lines, threads get single lines.
        let each = TURNS.min(rows.div_ceil(pool.threads()));
        in_ranges(pool, rows.div_ceil(each), rows * n, &|range: Range<usize>, _| {
            let own = range.start * each..rows.min(range.end * each);
            // SAFETY: these lines are inside, and this range's own.
            unsafe { self.some_lines(own, x, y) }
        });
    }

    /// Scans some lines with adjacent elements; there is at least one.
    unsafe fn some_lines(&self, own: Range<usize>, x: SharedPtr<u8>, y: SharedPtr<u8>) {
        let (n, start, code) = (self.lines.n, self.initial_states(), &self.code);
        let mut first = own.start;
        if !self.vectors || n < self.max_short_line() && self.walks.is_none() {
            // SAFETY: `x` and `y` are valid for all lines, only this call writes these, and `vectors` says that the
            // machine has AVX2.
            unsafe {
                // Conversions between f32 states and elements are faster with vectors.
                #[cfg(target_arch = "x86_64")]
                if let (true, FULL..=LINES, Some(short)) = (self.vectors, n, code.short) {
                    let way = lanes::Way { apart: n as isize, n, reverse: self.reverse };
                    return short(self.at(x, first * n), self.at(y, first * n), own.len(), way, &code.start);
                }
                return self.scan_one_by_one((x, y), first * n, own.len(), n, &mut start.clone());
            }
        }
        while first < own.end {
            let left = own.end - first;
            let mut states = start;
            // SAFETY: `x` and `y` are valid for all lines, only this call writes these, and `vectors` says that the
            // machine has AVX2.
            unsafe {
                if left >= TURNS {
                    // Hardware prefetchers do not recognize the access pattern of several interleaved lines.
                    let bytes = TURNS * n * code.size;
                    if bytes <= AHEAD_BYTES {
                        for b in (0..bytes).step_by(64) {
                            prefetch_line(self.at(x, first * n).wrapping_add(bytes + b));
                            prefetch_line(self.at(y, first * n).wrapping_add(bytes + b));
                        }
                    }
                }
                #[cfg(target_arch = "x86_64")]
                if let (Some(steps), None) = (code.lanes, self.walks)
                    && own.len() >= LINES
                    && left > LEFT
                {
                    // The last group of eight lines may overlap lines that are done, and writes the same results again.
                    let at = first.min(own.end - LINES) * n;
                    let way = lanes::Way { apart: n as isize, n, reverse: self.reverse };
                    lanes::long(code.size, self.at(x, at), self.at(y, at), way, steps, true, &mut states);
                    first += LINES;
                    continue;
                }
                // With fewer lines, the last one is scanned several times, with the same results.
                let starts = std::array::from_fn(|i| (first + i).min(own.end - 1) * n);
                let (ends, way) = ((x.0.cast_const(), y.0), (n, self.reverse));
                match (left, self.walks, code.turns, code.few) {
                    (2.., Some(walks), ..) => self.walk(walks.scan, (x, y), starts, n, &mut states),
                    (_, None, Some(turns), _) if left > LEFT => {
                        (turns.scan)(ends, starts.as_ptr(), way, states.as_mut_ptr());
                    }
                    (2.., None, _, Some(few)) => {
                        few(ends, starts.as_ptr(), way, states.as_mut_ptr());
                        first += LEFT;
                        continue;
                    }
                    _ => self.scan_one_by_one((x, y), first * n, left.min(TURNS), n, &mut states),
                }
            }
            first += TURNS;
        }
    }

    /// Returns the start of part `part` of a line, in the order of the scan.
    fn part(&self, line: usize, part: usize) -> usize {
        let each = self.lines.n / self.parts;
        line * self.lines.n + each * if self.reverse { self.parts - 1 - part } else { part }
    }

    /// Folds or scans consecutive parts, in either direction.
    ///
    /// # Safety
    /// As for `singly`; what is only folded is not written.
    unsafe fn combine_parts(
        &self,
        write: bool,
        ends: (SharedPtr<u8>, SharedPtr<u8>),
        unit: usize,
        states: &mut States,
    ) {
        let (each, groups) = (self.lines.n / self.parts, self.parts / TURNS);
        let starts: [usize; TURNS] = std::array::from_fn(|i| self.part(unit / groups, unit % groups * TURNS + i));
        let (x, y) = ends;
        // SAFETY: `x` is valid for the parts of this unit; `y` is written only if `write`, and then by this call alone.
        unsafe {
            if let Some(walks) = self.walks {
                return self.walk(if write { walks.scan } else { walks.fold }, ends, starts, each, states);
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(steps) = self.code.lanes {
                let apart = if self.reverse { -(each as isize) } else { each as isize };
                let way = lanes::Way { apart, n: each, reverse: self.reverse };
                return lanes::long(
                    self.code.size,
                    self.at(x, starts[0]),
                    self.at(y, starts[0]),
                    way,
                    steps,
                    write,
                    states,
                );
            }
            if let Some(turns) = self.code.turns {
                let turn = if write { turns.scan } else { turns.fold };
                turn((x.0, y.0), starts.as_ptr(), (each, self.reverse), states.as_mut_ptr());
            }
        }
    }

    /// Scans a few long lines. In a reversed scan, the remainder that is not a whole part comes first.
    unsafe fn scan_in_parts(&self, pool: &ThreadPool, x: SharedPtr<u8>, y: SharedPtr<u8>, totals: SharedPtr<u8>) {
        let (rows, n, parts) = (self.lines.outer, self.lines.n, self.parts);
        let (whole, work, groups) = (n / parts * parts, rows * n, parts / TURNS);
        let bytes = TURNS * self.code.state;
        in_ranges(pool, rows * groups, work, &|range: Range<usize>, _| {
            for unit in range {
                let mut states = self.initial_states();
                // SAFETY: inside the operand; totals have a place for each part.
                unsafe {
                    self.combine_parts(false, (x, y), unit, &mut states);
                    totals.at(unit * bytes).copy_from_nonoverlapping(states.as_ptr().cast(), bytes);
                }
            }
        });
        // Replace the fold of each part by the state before it.
        for row in 0..rows {
            let mut before = self.initial_states();
            let (rest, own) = (row * n + whole, totals.at(row * parts * self.code.state));
            // SAFETY: inside the operands; each total is read before it is replaced.
            unsafe {
                if self.reverse {
                    self.scan_one_by_one((x, y), rest, 1, n - whole, &mut before);
                }
                (self.code.chain)(own, parts, before.as_mut_ptr());
                if !self.reverse {
                    self.scan_one_by_one((x, y), rest, 1, n - whole, &mut before);
                }
            }
        }
        in_ranges(pool, rows * groups, work, &|range: Range<usize>, _| {
            for unit in range {
                let mut states = [0; LINES];
                // SAFETY: as above; these parts of the result are this range's own.
                unsafe {
                    states.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(totals.at(unit * bytes), bytes);
                    self.combine_parts(true, (x, y), unit, &mut states);
                }
            }
        });
    }
}

impl OpRoutine for CumulativeRoutine {
    fn scratch_bytes(&self) -> usize {
        if self.parts > 1 { self.lines.outer * self.parts * self.code.state } else { 0 }
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (x, y) = (SharedPtr(args[0].cast_mut()), SharedPtr(outs[0]));
        // SAFETY: `Routine::run` requires operand and result to be valid for their types, and scratch for
        // `scratch_bytes`.
        unsafe {
            match (self.lines.inner, self.parts) {
                (1, 1) => self.scan_adjacent_lines(pool, x, y),
                (1, _) => self.scan_in_parts(pool, x, y, SharedPtr(scratch)),
                _ => self.scan_strips(pool, x, y),
            }
        }
        Ok(())
    }
}
