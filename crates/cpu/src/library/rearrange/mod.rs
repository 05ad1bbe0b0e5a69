//! Kernels that only move elements: transposes, flips, strided slices, interleaved channels.
//!
//! A generated loop over one axis of the result reads its operand with a stride, whichever axis that is. This module recognizes
//! such kernels by their loops ([`read::match_moves`]; gathers in [`gather`], and operations on two operands with elements of one
//! or two bytes in [`small_dtypes`]). It runs them in tiles that are transposed in registers ([`tiles`]), or line by line where
//! one axis is short or no axis of the operand is dense ([`lines`]). Lines that are contiguous on both sides are copied
//! ([`memcpy`](super::memcpy)): a kernel's lanes are at least 32 bits wide,
//! and its masked ends cost as much as many full vectors.

mod gather;
mod lines;
mod read;
mod small_dtypes;
pub(super) mod tiles;
#[cfg(all(unix, target_arch = "x86_64"))]
mod transpose_rows;

#[cfg(all(unix, target_arch = "x86_64"))]
pub(crate) use transpose_rows::TransposeRoutine;

use super::{OpRoutine, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use compiler::loops::Kernel;
use smallvec::SmallVec;
use std::ops::Range;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("rearrange.short", lines::SHORT, "elements of an axis: up to here lines are dealt out one by one"),
    Threshold::new("rearrange.steps", lines::ROW, "elements of a row that is read in steps: beyond, row by row"),
    Threshold::new(
        "rearrange.line",
        lines::CHUNK,
        "elements of a line that is copied: from here it is cut into pieces",
    ),
    Threshold::new(
        "rearrange.row",
        gather::ROW_BYTES / 4,
        "elements of a row that is looked up: beyond, by the kernel",
    ),
    Threshold::new(
        "rearrange.bytes",
        small_dtypes::MIN_ELEMENTS,
        "elements of one or two bytes that are combined: from here whole vectors of them",
    ),
    Threshold::new("rearrange.batch", lines::BATCH, "small matrices that are turned: beyond, threads share them"),
    Threshold::new("rearrange.flat", gather::FLAT, "elements of a line that are looked up: up to here lines go as one"),
    Threshold::new("rearrange.unit", small_dtypes::UNIT, "the same: elements of a row beyond which it is cut"),
    Threshold::new(
        "rearrange.shuffled",
        lines::SHUFFLED,
        "elements of one or two bytes along lines of a short axis: from here their bytes are shuffled",
    ),
    Threshold::new("rearrange.narrow", small_dtypes::ROW, "the same with one operand for many rows: elements of a row"),
    Threshold::new("rearrange.tile", tiles::LEAST, "elements of both axes: from here tiles are transposed"),
    Threshold::new("rearrange.block", tiles::LINE, "bytes of an axis: beyond, its tiles are gone through in blocks"),
];

/// An axis: its number of elements, and its strides in the operand and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

/// The moves of a kernel.
#[derive(Clone, Debug)]
struct StridedMoves {
    /// The offsets of the first element.
    from: isize,
    to: isize,
    axes: SmallVec<[Axis; 6]>,
    /// The bytes of an element.
    bytes: usize,
}

/// The strategy for moving elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveStrategy {
    /// Tiles over the operand's dense axis (the second) and the result's (the first).
    Tiles(usize, usize),
    /// Lines along a dense axis are interleaved into a short axis, or deinterleaved from it: the short axis, then the other.
    Interleave(usize, usize),
    Deinterleave(usize, usize),
    /// Interleaving for small matrices: the axis of matrices, then both of their axes.
    Small(usize, usize, usize),
    /// Copies along the result's dense axis.
    Along(usize),
    /// Copies along a short dense axis of the result: the axis of rows, then the dense one.
    Rows(usize, usize),
    /// Copies of lines that are contiguous on both sides: the axis of lines, then the dense one.
    Lines(usize, usize),
    /// Copies of long lines, in pieces.
    Pieces(usize),
}

struct RearrangeRoutine {
    moves: StridedMoves,
    way: MoveStrategy,
    isa: Isa,
}

/// A routine, the buffers of its operands, and the buffer of its result.
type Prepared = (Box<dyn OpRoutine>, SmallVec<[usize; 2]>, usize);

/// Returns the routine of a kernel that only moves or gathers elements, if it is faster than the kernel.
pub(crate) fn prepare(kernel: &Kernel, isa: Isa) -> Option<Prepared> {
    if isa == Isa::Portable {
        return None;
    }
    if let Some((moves, [from, to])) = read::match_moves(kernel) {
        let way = choose_strategy(&moves)?;
        return Some((Box::new(RearrangeRoutine { moves, way, isa }), [from][..].into(), to));
    }
    if let Some((takes, [from, at, to])) = gather::match_gather(kernel) {
        return Some((Box::new(takes), [from, at][..].into(), to));
    }
    let (own, [left, right, to]) = small_dtypes::combined(kernel)?;
    Some((Box::new(own), [left, right][..].into(), to))
}

impl StridedMoves {
    /// Sorts the axes in the result's order and merges those that are contiguous.
    fn merge_axes(&mut self) {
        self.axes.sort_by_key(|a| std::cmp::Reverse(a.to));
        let mut joined = SmallVec::<[Axis; 6]>::new();
        for a in &self.axes {
            match joined.last_mut() {
                Some(outer) if outer.to == a.to * a.size as isize && outer.from == a.from * a.size as isize => {
                    *outer = Axis { size: outer.size * a.size, ..*a };
                }
                _ => joined.push(*a),
            }
        }
        self.axes = joined;
    }

    fn elements(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Returns the offsets of an index over some of the axes; the last one varies fastest.
    fn offset_at(&self, outer: &[usize], mut index: usize) -> (isize, isize) {
        let (mut from, mut to) = (self.from, self.to);
        for (k, &a) in outer.iter().enumerate().rev() {
            let axis = self.axes[a];
            let at = if k == 0 { index } else { index % axis.size } as isize;
            if k > 0 {
                index /= axis.size;
            }
            from += at * axis.from;
            to += at * axis.to;
        }
        (from, to)
    }
}

/// Returns the best strategy; `None` where the kernel is equally good.
fn choose_strategy(m: &StridedMoves) -> Option<MoveStrategy> {
    let last = m.axes.len().checked_sub(1)?;
    let inner = m.axes[last];
    if inner.to != 1 || inner.from == 0 || m.bytes > 8 {
        return None;
    }
    if inner.from == 1 {
        return Some(match last.checked_sub(1) {
            Some(rows) if inner.size < lines::CHUNK => MoveStrategy::Lines(rows, last),
            _ => MoveStrategy::Pieces(last),
        });
    }
    let dense = (0..last).find(|&a| m.axes[a].from == 1);
    let Some(dense) = dense else {
        // A flip, or every second element.
        return Some(match last.checked_sub(1) {
            Some(rows) if inner.size <= lines::ROW => MoveStrategy::Rows(rows, last),
            _ => MoveStrategy::Along(last),
        });
    };
    let other = m.axes[dense];
    let (short, long) = (|n: usize| (2..=lines::SHORT).contains(&n), |n: usize| n > 2 * lines::SHORT);
    // For four bytes and more, hardware gathers are as fast.
    if (dense, last) == (1, 2) && m.bytes <= 2 && short(inner.size) && other.size <= 2 * lines::SHORT {
        return (other.to == inner.size as isize).then_some(MoveStrategy::Small(0, last, dense));
    }
    if short(inner.size) && other.to == inner.size as isize && long(other.size) {
        return Some(MoveStrategy::Interleave(last, dense));
    }
    if short(other.size) && inner.from == other.size as isize && long(inner.size) {
        return Some(MoveStrategy::Deinterleave(dense, last));
    }
    if inner.size.min(other.size) >= tiles::LEAST {
        return Some(MoveStrategy::Tiles(last, dense));
    }
    None
}

impl OpRoutine for RearrangeRoutine {
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        // SAFETY: `Routine::run` requires operand and result to be valid for their types, and `prepare` chose
        // instructions that the machine has.
        unsafe {
            match self.moves.bytes {
                1 => self.run_as::<u8>(pool, args[0], outs[0]),
                2 => self.run_as::<u16>(pool, args[0], outs[0]),
                4 => self.run_as::<u32>(pool, args[0], outs[0]),
                _ => self.run_as::<u64>(pool, args[0], outs[0]),
            }
        }
        Ok(())
    }
}

/// The number of units of work along one axis, with `each` elements per unit.
fn units(size: usize, each: usize) -> usize {
    size.div_ceil(each).max(1)
}

impl RearrangeRoutine {
    /// # Safety
    /// Operand and result are those of the kernel.
    unsafe fn run_as<T: tiles::Transpose>(&self, pool: &ThreadPool, from: *const u8, to: *mut u8) {
        let m = &self.moves;
        let (x, y) = (SharedPtr(from.cast_mut().cast::<T>()), SharedPtr(to.cast::<T>()));
        let outer =
            |inner: &[usize]| -> SmallVec<[usize; 6]> { (0..m.axes.len()).filter(|a| !inner.contains(a)).collect() };
        // Bytes are weighted by an eighth, because they move that much faster.
        let work = m.elements() * m.bytes.div_ceil(2) / 2;
        let (cut, each, around) = match self.way {
            MoveStrategy::Tiles(_, s) => (s, tiles::LINE / m.bytes, outer(&[s])),
            MoveStrategy::Interleave(_, n) | MoveStrategy::Deinterleave(_, n) => (n, lines::CHUNK, outer(&[n])),
            MoveStrategy::Along(d) | MoveStrategy::Pieces(d) => (d, lines::CHUNK, outer(&[d])),
            MoveStrategy::Lines(rows, _) | MoveStrategy::Rows(rows, _) => (rows, 1, outer(&[rows])),
            MoveStrategy::Small(batch, short, long) => (batch, lines::BATCH, outer(&[batch, short, long])),
        };
        // The outer axes: all but the two axes of a tile, or all but the axis of a line.
        let around: SmallVec<[usize; 6]> = match self.way {
            MoveStrategy::Tiles(d, _)
            | MoveStrategy::Interleave(d, _)
            | MoveStrategy::Deinterleave(d, _)
            | MoveStrategy::Lines(_, d)
            | MoveStrategy::Rows(_, d) => around.into_iter().filter(|&a| a != d).collect(),
            MoveStrategy::Along(_) | MoveStrategy::Pieces(_) | MoveStrategy::Small(..) => around,
        };
        let count = units(m.axes[cut].size, each);
        let rows: usize = around.iter().map(|&a| m.axes[a].size).product();
        in_ranges(pool, rows * count, work, &|range: Range<usize>, _| {
            let mut at = range.start;
            while at < range.end {
                let (row, first) = (at / count, at % count);
                let n = (range.end - at).min(count - first);
                let part = first * each..((first + n) * each).min(m.axes[cut].size);
                let (from, to) = m.offset_at(&around, row);
                // SAFETY: `place` and `part` are inside of operand and result, and each element of the result belongs
                // to one range.
                unsafe {
                    let (x, y) = (x.at(0).cast_const().offset(from), y.at(0).offset(to));
                    match self.way {
                        MoveStrategy::Tiles(d, s) => tiles::transpose(x, y, m.axes[d], m.axes[s], part, self.isa),
                        MoveStrategy::Interleave(d, s) => lines::deal(x, y, m.axes[d], m.axes[s], part),
                        MoveStrategy::Deinterleave(s, d) => lines::collect(x, y, m.axes[s], m.axes[d], part),
                        // Larger elements never use this strategy.
                        MoveStrategy::Small(b, d, s) if size_of::<T>() <= 2 => {
                            lines::small(x, y, m.axes[b], m.axes[d], m.axes[s], part)
                        }
                        MoveStrategy::Small(..) => {}
                        MoveStrategy::Along(d) => lines::along(x, y, m.axes[d], part),
                        MoveStrategy::Lines(rows, d) => lines::copies(x, y, m.axes[rows], m.axes[d].size, part),
                        MoveStrategy::Pieces(_) => {
                            let (x, y) = (x.add(part.start), y.add(part.start));
                            lines::copies(x, y, Axis { size: 1, from: 0, to: 0 }, part.len(), 0..1);
                        }
                        MoveStrategy::Rows(rows, d) => lines::rows(x, y, m.axes[rows], m.axes[d], part),
                    }
                }
                at += n;
            }
        });
    }
}
