//! Scatter: combines slices into an operand, one after the other in the order of the updates.
//!
//! Threads split either the elements of each slice or the rows of the operand, and each thread reads all indices. So every
//! element receives its updates in order, for any number of threads. Slices with a single element per line (a scatter
//! along the last axis) are processed line by line. Integers may be combined in any order: with many updates
//! to few elements, each worker has a private table.
//!
//! [`geometry`] computes the destinations of slices, [`places`] collects those of a part, some hundreds at a time, and
//! [`combine`] applies the updates; this file splits the work over threads. Only `combine` depends on the element type.

mod combine;
mod geometry;
mod places;

use super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::{MIN_STEALING_THREADS, ThreadPool, contiguous_share};
use crate::thresholds::Threshold;
use combine::{Block, Combiner, Count};
use compiler::Result;
use geometry::{Component, Geometry, Part, Walk, geometry};
use ir::ops::{ReduceKind, Scatter, ScatterKind};
use ir::{DType, Type};
use places::BLOCK;
use std::ops::Range;

/// The minimum length of a run that is split over threads.
const LONG_RUN: usize = 64;
/// The maximum length of a run that takes no longer than finding its owner.
const SHORT_RUN: usize = 16;
/// The approximate bytes of an operand that fit in a core's caches.
const NEAR_BYTES: usize = 8 << 20;
/// The bytes of an operand above which the destinations of later updates are prefetched.
const FAR_BYTES: usize = 2 << 20;
/// The maximum number of elements of an operand of which every worker may have a copy.
const TABLE: usize = 1 << 17;

/// The contiguous bytes of the operand that one thread owns.
const STRIP_BYTES: usize = 64;

/// The number of elements that take as long as moving to another row.
const ROW_WORK: usize = 4;

/// The number of updates that are sampled to find how they are distributed.
const SAMPLES: usize = 512;
/// The maximum number of threads for which updates are sampled.
const PARTS: usize = 64;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("scatter.samples", SAMPLES, "slices of long runs: from here threads may have places of their own"),
    Threshold::new(
        "scatter.strip",
        2 * STRIP_BYTES / 4,
        "adjacent places that have updates of their own: from here, strip by strip",
    ),
    Threshold::new("scatter.short", SHORT_RUN, "adjacent elements of a slice: from here few threads share places too"),
    Threshold::new("scatter.near", NEAR_BYTES / 4, "elements of the operand: beyond, few threads share places too"),
    Threshold::new("scatter.far", FAR_BYTES / 4, "elements of the operand: beyond, places are asked for ahead"),
    Threshold::new("scatter.block", BLOCK, "slices of one row each: beyond, they are looked at in several blocks"),
    Threshold::new(
        "scatter.row",
        4 * super::PARALLEL_WORK / ROW_WORK,
        "slices of one short row each: from here threads have rows of their own",
    ),
    Threshold::new("scatter.run", LONG_RUN, "adjacent elements of a slice: from here threads share the run"),
    Threshold::new("scatter.small", TABLE, "integers that are combined: up to here every worker has a table"),
];

/// The number of lines that are processed together, so that positions are computed once for all of them.
const TOGETHER: usize = 32;

struct ScatterRoutine {
    geometry: Box<Geometry>,
    combiner: Combiner,
    threads: usize,
    isa: Isa,
    /// The identity element of the integer operation.
    identity: u64,
}

pub(super) fn prepare(op: &Scatter, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (threads, isa) = (machine.threads, machine.isa);
    let combiner = Combiner::new(op.kind, args[0].dtype, isa)?;
    let geometry = Box::new(geometry(op, &args[0], &args[1], &args[2])?);
    let kind = match op.kind {
        ScatterKind::Set | ScatterKind::Add => ReduceKind::Sum,
        ScatterKind::Mul => ReduceKind::Prod,
        ScatterKind::Min => ReduceKind::Min,
        ScatterKind::Max => ReduceKind::Max,
    };
    let identity = kind.identity(args[0].dtype).bits();
    Some(Box::new(ScatterRoutine { geometry, combiner, threads, isa, identity }))
}

/// The indices, updates and result of a run.
#[derive(Clone, Copy)]
struct Data {
    indices: SharedPtr<u8>,
    updates: SharedPtr<u8>,
    y: SharedPtr<u8>,
}

impl ScatterRoutine {
    /// Combines the updates of a part.
    ///
    /// # Safety
    /// As for [`Routine::run`]; no other part has these elements.
    unsafe fn scatter_part(&self, data: Data, part: Part) {
        let (g, size) = (&self.geometry, self.combiner.size);
        let (start, run) = (part.within.start, part.within.len());
        let far = g.operand * size > FAR_BYTES && run * size >= STRIP_BYTES;
        let meet = |first: [usize; 2], to: &[u32], from: &[u32]| {
            let [y, updates] = first.map(|at| (start + at) * size);
            let block = Block { y: data.y.at(y), updates: data.updates.at(updates), to, from, run, far };
            // SAFETY: all places are inside result and updates, and no other part has these elements of the result.
            unsafe { self.combiner.combine_block(&block) };
        };
        // SAFETY: the indices are valid for their type, and the machine has `isa`.
        unsafe {
            if g.small {
                return g.runs(self.isa, data.indices.at(0), &part, &|to, from| meet([0; 2], to, from));
            }
            // Positions in very large operands are processed one by one.
            g.slices(data.indices.at(0), part.first, &mut |to, from| {
                if part.own.contains(&to) {
                    meet([to, from], &[0], &[0]);
                }
            });
        }
    }

    /// Combines the updates of these lines, where slices are single elements of lines.
    ///
    /// # Safety
    /// As for [`Scattering::part`].
    unsafe fn scatter_lines(&self, data: Data, lines: Range<usize>) {
        let (g, size) = (&self.geometry, self.combiner.size);
        let line = g.window[0];
        for first in lines.clone().step_by(TOGETHER) {
            let meet = |to: &[u32], from: &[u32]| {
                for i in first..lines.end.min(first + TOGETHER) {
                    let (y, updates) = (data.y.at(i * line.operand * size), data.updates.at(i * line.updates * size));
                    // SAFETY: all places are inside result and updates, and only this call has these lines of the
                    // result.
                    unsafe { self.combiner.combine_block(&Block { y, updates, to, from, run: 1, far: false }) };
                }
            };
            // SAFETY: the indices are valid for their type, and the machine has `isa`.
            unsafe { g.firsts(self.isa, data.indices.at(0), &g.whole(), &meet) };
        }
    }
}

impl OpRoutine for ScatterRoutine {
    fn scratch_bytes(&self) -> usize {
        let table = self.geometry.operand * self.combiner.size;
        if self.geometry.operand <= TABLE { table * self.threads } else { 0 }
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (g, size) = (&self.geometry, self.combiner.size);
        let x = SharedPtr(args[0].cast_mut());
        let (indices, updates, y) = (SharedPtr(args[1].cast_mut()), SharedPtr(args[2].cast_mut()), SharedPtr(outs[0]));
        // If the operand and the result share memory, the operand is updated in place.
        let aside = args[0] != outs[0].cast_const();
        let copy = |range: Range<usize>| {
            let (at, bytes) = (range.start * size, range.len() * size);
            // SAFETY: operand and result have as many elements, and don't overlap.
            unsafe { std::ptr::copy_nonoverlapping(x.at(at), y.at(at), bytes) };
        };
        let data = Data { indices, updates, y };
        let work = g.slices * g.rows * g.run;
        // Parts that own whole rows copy these rows, which then are in their cache.
        if let Some((count, stride)) = g.rows().filter(|_| g.aligned && !self.uses_private_tables(work)) {
            let most = g.slices * g.run.max(ROW_WORK) / (2 * super::PARALLEL_WORK);
            let parts = pool.threads().min(most).max(1);
            if parts > 1 && (g.run < LONG_RUN || self.is_evenly_distributed(indices, parts)) {
                pool.run(parts, &|part, _| {
                    let own = contiguous_share(count, parts, part);
                    let end = if part + 1 == parts { g.operand } else { own.end * stride };
                    let own = own.start * stride..end;
                    if aside {
                        copy(own.clone());
                    }
                    // SAFETY: the indices are the operand's; rows are one part's.
                    unsafe { self.scatter_part(data, Part { own, ..g.whole() }) };
                });
                return Ok(());
            }
        }
        if aside {
            in_ranges(pool, g.operand, g.operand, &|range: Range<usize>, _| copy(range));
        }
        // Each index of the first batch axis has its own part of the operand.
        if g.batch.len() > 1 && g.batch[0].operand > 0 && g.aligned {
            in_ranges(pool, g.first(), work, &|first: Range<usize>, _| {
                // SAFETY: the indices are the operand's.
                unsafe { self.scatter_part(data, Part { first, ..g.whole() }) };
            });
            return Ok(());
        }
        // So has each index of the last batch axis. Threads own whole cache lines.
        if let Some(each) = g.strips(size).filter(|_| pool.threads() > 1) {
            let n = g.batch.last().map_or(1, |w| w.size);
            in_ranges(pool, n.div_ceil(each), work, &|range: Range<usize>, _| {
                let last = range.start * each..(range.end * each).min(n);
                // SAFETY: the indices are the operand's.
                unsafe { self.scatter_part(data, Part { last, ..g.whole() }) };
            });
            return Ok(());
        }
        // Every part reads all indices. With few threads and short runs that costs what it saves, unless memory is the bottleneck.
        let worth = g.run >= SHORT_RUN || pool.threads() >= MIN_STEALING_THREADS || g.operand * size > NEAR_BYTES;
        let most = if g.aligned && worth { pool.threads() } else { 1 };
        let parts = most.min(work / (4 * super::PARALLEL_WORK)).max(1);
        if g.run >= LONG_RUN && (parts == 1 || !self.is_evenly_distributed(indices, parts)) {
            let units = g.run.div_ceil(16);
            in_ranges(pool, units, work, &|range: Range<usize>, _| {
                let within = range.start * 16..(range.end * 16).min(g.run);
                // SAFETY: the indices are the operand's.
                unsafe { self.scatter_part(data, Part { within, ..g.whole() }) };
            });
            return Ok(());
        }
        // Elements of one line only receive updates of the same line, in the order of the slices.
        let lines = g.run == 1 && g.window.len() == 1 && g.batch.len() == 1 && g.components.len() == 1;
        if g.small && g.aligned && lines {
            in_ranges(pool, g.rows, work, &|range: Range<usize>, _| {
                // SAFETY: the indices are the operand's; lines are one part's.
                unsafe { self.scatter_lines(data, range) };
            });
            return Ok(());
        }
        if self.uses_private_tables(work) {
            // SAFETY: `Routine::run` requires operands and result to be valid for their types, and scratch for
            // `scratch_bytes`, which has room for the tables.
            unsafe { self.scatter_to_private_tables(pool, data, SharedPtr(scratch)) };
            return Ok(());
        }
        pool.run(parts, &|part, _| {
            let own = contiguous_share(g.operand, parts, part);
            // SAFETY: as above; runs that begin at one place are one part's, and never overlap others.
            unsafe { self.scatter_part(data, Part { own, ..g.whole() }) };
        });
        Ok(())
    }
}

impl ScatterRoutine {
    /// Returns whether every worker has a private table.
    fn uses_private_tables(&self, work: usize) -> bool {
        let g = &self.geometry;
        let small = g.run == 1 && g.operand <= TABLE && g.batch.len() == 1;
        self.combiner.free_order && small && work > 8 * g.operand
    }

    /// Returns whether a sample of the updates is distributed about evenly over parts of the operand. Then each part owns a range of
    /// the operand, which stays in its cache; otherwise the parts split each run.
    fn is_evenly_distributed(&self, indices: SharedPtr<u8>, parts: usize) -> bool {
        let g = &self.geometry;
        let ([c], 1, [last]) = (&g.components[..], g.rows, &g.batch[..]) else { return false };
        if parts > PARTS || last.operand > 0 || g.slices < SAMPLES {
            return false;
        }
        let mut counts = [0; PARTS];
        for i in 0..SAMPLES {
            // SAFETY: there are as many indices as slices.
            let at = unsafe { (g.index)(indices.at(0), i * (g.slices / SAMPLES)) }.clamp(0, c.room) as usize;
            counts[(at * c.stride * parts / g.operand).min(parts - 1)] += 1;
        }
        counts.iter().all(|n| n * parts * 2 <= 3 * SAMPLES)
    }

    /// Combines each worker's share of the updates into a private table, then combines the tables.
    ///
    /// # Safety
    /// As for [`Routine::run`].
    unsafe fn scatter_to_private_tables(&self, pool: &ThreadPool, data: Data, tables: SharedPtr<u8>) {
        let (g, size) = (&self.geometry, self.combiner.size);
        let parts = pool.threads().min(self.threads);
        pool.run(parts, &|part, _| {
            // A single worker needs no table.
            let table = if parts == 1 { data.y } else { SharedPtr(tables.at(part * g.operand * size)) };
            let first = contiguous_share(g.first(), parts, part);
            // SAFETY: each part has a table of its own; places are inside it.
            unsafe {
                if parts > 1 {
                    fill(table.at(0), g.operand, self.identity, size);
                }
                // A histogram: single elements, one after another.
                if let (
                    Some(count),
                    [Component { room, stride: 1 }],
                    [Walk { updates: 1, operand: 0, .. }],
                    1,
                    DType::I32,
                ) = (self.combiner.count, &g.components[..], &g.batch[..], g.rows, g.dtype)
                {
                    return count(&Count {
                        table: table.at(0),
                        index: data.indices.at(4 * first.start).cast(),
                        updates: data.updates.at(first.start * size),
                        n: first.len(),
                        room: *room as u32,
                        clip: g.clip,
                    });
                }
                self.scatter_part(Data { y: table, ..data }, Part { first, ..g.whole() });
            }
        });
        for part in (0..parts).filter(|_| parts > 1) {
            let table = tables.at(part * g.operand * size);
            let whole = Block { y: data.y.at(0), updates: table, to: &[0], from: &[0], run: g.operand, far: false };
            // SAFETY: as above; the tables are complete.
            unsafe { self.combiner.combine_block(&whole) };
        }
    }
}

/// Fills memory with an integer of the given size.
///
/// # Safety
/// There are `n` elements of that size.
unsafe fn fill(to: *mut u8, n: usize, value: u64, size: usize) {
    // SAFETY: `to` is valid for `n` elements of `size` bytes.
    unsafe {
        match size {
            1 => std::slice::from_raw_parts_mut(to, n).fill(value as u8),
            2 => std::slice::from_raw_parts_mut(to.cast::<u16>(), n).fill(value as u16),
            4 => std::slice::from_raw_parts_mut(to.cast::<u32>(), n).fill(value as u32),
            _ => std::slice::from_raw_parts_mut(to.cast::<u64>(), n).fill(value),
        }
    }
}
