//! Scatter: slices combined into an operand, one after the other in the order of the updates.
//!
//! Threads share either the elements of each slice or the places in the operand, and each goes over all indices: so every
//! element sees its updates in order, whatever the number of threads. Slices that are single elements of each line (a scatter
//! along the last axis) are taken line by line. Integers may be combined in any order: with many updates
//! to few places each worker has a table of its own.
//!
//! [`geometry`] says where slices go, [`places`] which of them go to some rows, [`combine`] how they meet what is there; here threads share them.

mod combine;
mod geometry;
mod places;

use super::along::ask_for;
use super::element::{Element, by_dtype, by_sum_dtype};
use super::{Machine, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::pool::{HELPERS, Pool, share};
use crate::thresholds::Threshold;
use combine::{Add, Combine, Max, Min, Mul, Set, apply, apply_few, counted};
use compiler::Result;
use geometry::{AHEAD, Component, Geometry, NEAR, Walk, geometry, owned};
use ir::ops::{ReduceKind, Scatter, ScatterKind};
use ir::{DType, Type};
use places::{BLOCK, Rows};
use std::marker::PhantomData;
use std::ops::Range;

/// Shorter runs are not divided.
const LONG_RUN: usize = 64;
/// Runs that take no longer than finding out whose they are.
const SHORT_RUN: usize = 16;
/// Bytes of an operand that a core's caches hold, about.
const NEAR_BYTES: usize = 8 << 20;
/// Bytes of an operand beyond which places of updates to come are asked for ahead.
const FAR_BYTES: usize = 2 << 20;
/// Elements of an operand of which every worker may have a copy.
const TABLE: usize = 1 << 17;

/// Bytes of the operand, side by side, that one thread has.
const STRIP_BYTES: usize = 64;

/// Elements that take as long as going to a row does.
const ROW_WORK: usize = 4;

/// Updates that are looked at to see where most go.
const SAMPLES: usize = 512;
/// The most threads for which that is asked.
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

struct Scattering<T, C> {
    geometry: Box<Geometry>,
    threads: usize,
    isa: Isa,
    /// What combining leaves as it is.
    identity: T,
    types: PhantomData<fn() -> (T, C)>,
}

pub(super) fn prepare(op: &Scatter, args: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    let geometry = Box::new(geometry(op, &args[0], &args[1], &args[2])?);
    let (threads, isa) = (machine.threads, machine.isa);
    let kind = match op.kind {
        ScatterKind::Set | ScatterKind::Add => ReduceKind::Sum,
        ScatterKind::Mul => ReduceKind::Prod,
        ScatterKind::Min => ReduceKind::Min,
        ScatterKind::Max => ReduceKind::Max,
    };
    let identity = kind.identity(args[0].dtype);
    macro_rules! of {
        ($t:ty, $c:ty) => {
            Box::new(Scattering::<$t, $c> {
                geometry,
                threads,
                isa,
                identity: <$t>::from_scalar(identity),
                types: PhantomData,
            }) as Box<dyn Routine>
        };
    }
    // Code for every pair of type and kind would be much: only those are made that differ.
    let kind = match (op.kind, args[0].dtype) {
        // `or` and `and`.
        (ScatterKind::Add, DType::Bool) => ScatterKind::Max,
        (ScatterKind::Mul, DType::Bool) => ScatterKind::Min,
        (kind, _) => kind,
    };
    match kind {
        ScatterKind::Set => match args[0].dtype.size() {
            1 => Some(of!(u8, Set)),
            2 => Some(of!(u16, Set)),
            4 => Some(of!(u32, Set)),
            8 => Some(of!(u64, Set)),
            _ => None,
        },
        ScatterKind::Add => by_sum_dtype!(args[0].dtype, T => of!(T, Add)),
        ScatterKind::Mul => by_sum_dtype!(args[0].dtype, T => of!(T, Mul)),
        ScatterKind::Min => by_dtype!(args[0].dtype, T => of!(T, Min)),
        ScatterKind::Max => by_dtype!(args[0].dtype, T => of!(T, Max)),
    }
}

/// Operand, indices, updates and result of a run.
#[derive(Clone, Copy)]
struct Data<T> {
    indices: Raw<u8>,
    updates: Raw<T>,
    y: Raw<T>,
}

/// What a part does.
#[derive(Clone)]
enum Part {
    /// These indices of the first batch axis, which have elements to themselves.
    Batch(Range<usize>),
    /// These elements of every run.
    Run(Range<usize>),
    /// These indices of the last batch axis, which have elements to themselves.
    Strip(Range<usize>),
    /// Slices are single elements of lines: these lines.
    Lines(Range<usize>),
    /// Runs that begin among these elements of the result.
    Owned(Range<usize>),
    /// These rows of the result.
    Rows(Rows, Range<usize>),
}

impl<T: Element, C: Combine<T>> Scattering<T, C> {
    /// # Safety
    /// As for [`Routine::run`]; no other part has these elements.
    unsafe fn part(&self, data: Data<T>, part: Part) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2")]
            unsafe fn wide<T: Element, C: Combine<T>>(s: &Scattering<T, C>, data: Data<T>, part: Part) {
                // SAFETY: the caller's promise.
                unsafe { s.part_inline(data, part) }
            }
            if self.isa != Isa::Portable {
                // SAFETY: every instruction set but the portable one has AVX2.
                return unsafe { wide(self, data, part) };
            }
            // SAFETY: the caller's promise. Old machines have one short piece of code.
            unsafe { self.part_plain(data, part) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: the caller's promise.
        unsafe {
            self.part_inline(data, part)
        }
    }

    /// # Safety
    /// As for [`Scattering::part`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn part_plain(&self, data: Data<T>, part: Part) {
        let g = &self.geometry;
        let Data { indices, updates, y } = data;
        let (own, within, first) = match part {
            Part::Batch(range) => (0..g.operand, 0..g.run, range),
            Part::Run(within) => (0..g.operand, within, 0..g.first()),
            Part::Owned(own) => (own, 0..g.run, 0..g.first()),
            Part::Strip(_) | Part::Lines(_) | Part::Rows(..) => unreachable!("such parts are for vectors"),
        };
        let mut put = |to: usize, from: usize| {
            if own.contains(&to) {
                for i in within.clone() {
                    // SAFETY: by the caller's promise; places are inside result and updates.
                    unsafe { *y.at(to + i) = C::apply(*y.at(to + i), *updates.at(from + i)) };
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { g.slices(indices.at(0), first, &mut put) }
    }

    /// # Safety
    /// As for [`Scattering::part`].
    #[inline(always)]
    unsafe fn part_inline(&self, data: Data<T>, part: Part) {
        let g = &self.geometry;
        let Data { indices, updates, y } = data;
        let (i, all) = (indices.at(0), 0..g.first());
        // SAFETY: by the caller's promise; places are inside result and updates.
        unsafe {
            let (part, own, within) = match part {
                Part::Strip(strip) => {
                    let c = g.components[0];
                    let put = |to: usize, from: usize| apply_few::<T, C, 1>(y.at(to), updates.at(from));
                    match g.dtype {
                        DType::I32 if C::OFTEN => g.strip(c, strip, |k: usize| *i.cast::<i32>().add(k) as i64, put),
                        _ => g.strip(c, strip, |k| (g.index)(i, k), put),
                    }
                    return;
                }
                Part::Rows(rows, own) => return self.rows(data, rows, own, 0..g.run),
                Part::Run(within) => match g.rows() {
                    Some(rows) => return self.rows(data, rows, 0..rows.count as usize, within),
                    None => (all, 0..g.operand, within),
                },
                Part::Batch(range) => (range, 0..g.operand, 0..g.run),
                Part::Owned(own) => (all, own, 0..g.run),
                Part::Lines(range) => {
                    let (line, last) = (g.window[0], g.batch[0]);
                    for row in range {
                        let (y, updates) = (y.at(row * line.operand), updates.at(row * line.updates));
                        let put = |to: usize, from: usize| apply_few::<T, C, 1>(y.add(to), updates.add(from));
                        let (c, all) = (g.components[0], 0..g.slices);
                        match g.dtype {
                            DType::I32 if C::OFTEN => {
                                let index = |k: usize| *i.cast::<i32>().add(k) as i64;
                                g.lines(c, &[], last, all, index, NEAR, put);
                            }
                            _ => g.lines(c, &[], last, all, |k| (g.index)(i, k), NEAR, put),
                        }
                    }
                    return;
                }
            };
            let (start, n) = (within.start, within.len());
            // Few elements are combined where they are met.
            let (y, updates) = (y.at(start), updates.at(start));
            match n {
                1 if C::OFTEN => {
                    owned(g, i, part, own, NEAR, |to, from| apply_few::<T, C, 1>(y.add(to), updates.add(from)))
                }
                4 if C::OFTEN => {
                    owned(g, i, part, own, NEAR, |to, from| apply_few::<T, C, 4>(y.add(to), updates.add(from)))
                }
                n => owned(g, i, part, own, NEAR, |to, from| apply::<T, C>(y.add(to), updates.add(from), n)),
            }
        }
    }

    /// These elements of every slice that goes to one of these rows.
    ///
    /// # Safety
    /// As for [`Scattering::part`].
    #[inline(always)]
    unsafe fn rows(&self, data: Data<T>, rows: Rows, own: Range<usize>, within: Range<usize>) {
        let (n, bytes) = (within.len(), within.len() * size_of::<T>());
        let (y, updates) = (data.y.at(within.start), data.updates.at(within.start).cast_const());
        let far = self.geometry.operand * size_of::<T>() > FAR_BYTES && bytes >= STRIP_BYTES;
        // SAFETY: by the caller's promise; rows are inside of result and updates.
        unsafe {
            rows.each_block(self.isa, data.indices.at(0), own.start as u32..own.end as u32, |to, from| {
                macro_rules! few {
                    ($($n:literal)*) => {
                        match n {
                            $($n if C::OFTEN => {
                                for (&to, &from) in to.iter().zip(from) {
                                    let (to, from) = (to as usize * rows.stride, from as usize * rows.updates);
                                    apply_few::<T, C, $n>(y.add(to), updates.add(from));
                                }
                            })*
                            _ => {
                                for (k, (&row, &from)) in to.iter().zip(from).enumerate() {
                                    if let Some(&later) = to.get(k + AHEAD).filter(|_| far) {
                                        let later = y.wrapping_add(later as usize * rows.stride);
                                        (0..bytes).step_by(STRIP_BYTES).for_each(|b| ask_for(later.wrapping_byte_add(b)));
                                    }
                                    let (to, from) = (row as usize * rows.stride, from as usize * rows.updates);
                                    apply::<T, C>(y.add(to), updates.add(from), n);
                                }
                            }
                        }
                    };
                }
                few!(1 2 3 4 5 6 7 8);
            });
        }
    }
}

impl<T: Element, C: Combine<T>> Routine for Scattering<T, C> {
    fn scratch_bytes(&self) -> usize {
        let table = self.geometry.operand * size_of::<T>();
        if self.geometry.operand <= TABLE { table * self.threads } else { 0 }
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let g = &self.geometry;
        let x = Raw(args[0].cast_mut().cast::<T>());
        let indices = Raw(args[1].cast_mut());
        let updates = Raw(args[2].cast_mut().cast::<T>());
        let y = Raw(outs[0].cast::<T>());
        // Given one memory for both, it changes that in place.
        let aside = args[0] != outs[0].cast_const();
        let copy = |range: Range<usize>| {
            // SAFETY: operand and result have as many elements, and don't overlap.
            unsafe { std::ptr::copy_nonoverlapping(x.at(range.start), y.at(range.start), range.len()) };
        };
        let data = Data { indices, updates, y };
        let work = g.slices * g.rows * g.run;
        let vectors = self.isa != Isa::Portable || !cfg!(target_arch = "x86_64");
        let rows = g.rows().filter(|_| vectors && !self.tables(work));
        // Parts with rows of their own copy them, and find them in their cache.
        if let Some(rows) = rows.filter(|_| g.aligned) {
            let most = g.slices * g.run.max(ROW_WORK) / (2 * super::PARALLEL_WORK);
            let parts = pool.threads().min(most).max(1);
            if parts > 1 && (g.run < LONG_RUN || self.even(indices, parts)) {
                pool.run(parts, &|part, _| {
                    let own = share(rows.count as usize, parts, part);
                    if aside {
                        let end = if part + 1 == parts { g.operand } else { own.end * rows.stride };
                        copy(own.start * rows.stride..end);
                    }
                    // SAFETY: the indices are the operand's; rows are one part's.
                    unsafe { self.part(data, Part::Rows(rows, own)) };
                });
                return Ok(());
            }
        }
        if aside {
            in_ranges(pool, g.operand, g.operand, &|range: Range<usize>, _| copy(range));
        }
        // Each index of the first batch axis has a part of the operand to itself.
        if g.batch.len() > 1 && g.batch[0].operand > 0 && g.aligned {
            in_ranges(pool, g.first(), work, &|range: Range<usize>, _| {
                // SAFETY: the indices are the operand's.
                unsafe { self.part(data, Part::Batch(range)) };
            });
            return Ok(());
        }
        // So has each index of the last one. Threads share whole cache lines out.
        if let Some(each) = g.strips(size_of::<T>()).filter(|_| vectors && pool.threads() > 1) {
            let last = g.batch.last().map_or(1, |w| w.size);
            in_ranges(pool, last.div_ceil(each), work, &|range: Range<usize>, _| {
                // SAFETY: the indices are the operand's.
                unsafe { self.part(data, Part::Strip(range.start * each..(range.end * each).min(last))) };
            });
            return Ok(());
        }
        // Every part goes over all indices. For few threads and short runs that costs what they save, unless they wait for memory.
        let worth = g.run >= SHORT_RUN || pool.threads() >= HELPERS || g.operand * size_of::<T>() > NEAR_BYTES;
        let most = if g.aligned && worth { pool.threads() } else { 1 };
        let parts = most.min(work / (4 * super::PARALLEL_WORK)).max(1);
        if g.run >= LONG_RUN && (parts == 1 || !self.even(indices, parts)) {
            let units = g.run.div_ceil(16);
            in_ranges(pool, units, work, &|range: Range<usize>, _| {
                // SAFETY: the indices are the operand's.
                unsafe { self.part(data, Part::Run(range.start * 16..(range.end * 16).min(g.run))) };
            });
            return Ok(());
        }
        // Elements of one line meet updates of that line alone, in the order of the slices.
        let lines = g.run == 1 && g.window.len() == 1 && g.batch.len() == 1 && g.components.len() == 1;
        if vectors && g.aligned && lines {
            in_ranges(pool, g.rows, work, &|range: Range<usize>, _| {
                // SAFETY: the indices are the operand's; lines are one part's.
                unsafe { self.part(data, Part::Lines(range)) };
            });
            return Ok(());
        }
        // One part has no need of notes to go to single elements.
        if let Some(rows) = rows.filter(|_| g.run > 1) {
            // SAFETY: the indices are the operand's.
            unsafe { self.part(data, Part::Rows(rows, 0..rows.count as usize)) };
            return Ok(());
        }
        if self.tables(work) {
            // SAFETY: the caller's promise.
            unsafe { self.privately(pool, indices, updates, y, Raw(scratch.cast::<T>())) };
            return Ok(());
        }
        pool.run(parts, &|part, _| {
            // SAFETY: as above; runs that begin at one place are one part's, and never overlap others.
            unsafe { self.part(data, Part::Owned(share(g.operand, parts, part))) };
        });
        Ok(())
    }
}

impl<T: Element, C: Combine<T>> Scattering<T, C> {
    /// Whether every worker has a table of its own.
    fn tables(&self, work: usize) -> bool {
        let g = &self.geometry;
        let small = g.run == 1 && g.operand <= TABLE && g.batch.len() == 1;
        C::free_order(PhantomData::<T>) && small && work > 8 * g.operand
    }

    /// Whether updates are spread about evenly over parts of the operand, by some of them: then each part has its own places, which
    /// stay in its cache. Else parts share each run.
    fn even(&self, indices: Raw<u8>, parts: usize) -> bool {
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

    /// Every worker combines its share of the updates into a table of its own; then the tables are combined.
    ///
    /// # Safety
    /// As for [`Routine::run`].
    unsafe fn privately(&self, pool: &Pool, indices: Raw<u8>, updates: Raw<T>, y: Raw<T>, tables: Raw<T>) {
        let g = &self.geometry;
        let parts = pool.threads().min(self.threads);
        pool.run(parts, &|part, _| {
            // Who is alone needs no table.
            let table = if parts == 1 { y.at(0) } else { tables.at(part * g.operand) };
            // SAFETY: each part has a table of its own; places are inside it.
            unsafe {
                for i in (0..g.operand).filter(|_| parts > 1) {
                    *table.add(i) = self.identity;
                }
                let own = share(g.first(), parts, part);
                let put = |to: usize, from: usize| *table.add(to) = C::apply(*table.add(to), *updates.at(from));
                // A histogram: single elements, one after another.
                if let ([Component { room, stride: 1 }], [Walk { updates: 1, operand: 0, .. }], 1, DType::I32) =
                    (&g.components[..], &g.batch[..], g.rows, g.dtype)
                {
                    let index = indices.at(4 * own.start).cast_const().cast::<i32>();
                    counted::<T, C>(table, index, updates.at(own.start), own.len(), *room as u32, g.clip);
                    return;
                }
                g.runs(indices.at(0), own, NEAR, put);
            }
        });
        for i in (0..g.operand).filter(|_| parts > 1) {
            for part in 0..parts {
                // SAFETY: as above; the tables are complete.
                unsafe { *y.at(i) = C::apply(*y.at(i), *tables.at(part * g.operand + i)) };
            }
        }
    }
}
