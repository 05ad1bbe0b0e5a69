//! Scatter: slices combined into an operand, one after the other in the order of the updates.
//!
//! Threads share either the elements of each slice or the places in the operand, and each goes over all indices: so every
//! element sees its updates in order, whatever the number of threads. Slices that are single elements of each line (a scatter
//! along the last axis) are taken line by line. Integers may be combined in any order: with many updates
//! to few places each worker has a table of its own.

use super::along::ask_for;
use super::element::{Element, Index, by_dtype, by_sum_dtype, index};
use super::{Machine, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::pool::{HELPERS, Pool, share};
use crate::thresholds::Threshold;
use compiler::Result;
use ir::ops::{ReduceKind, Scatter, ScatterKind, ScatterMode};
use ir::{DType, Type};
use smallvec::SmallVec;
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
/// How many updates ahead.
const AHEAD: usize = 12;
/// Elements of an operand of which every worker may have a copy.
const TABLE: usize = 1 << 17;

/// Bytes of the operand, side by side, that one thread has.
const STRIP_BYTES: usize = 64;

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
    Threshold::new("scatter.run", LONG_RUN, "adjacent elements of a slice: from here threads share the run"),
    Threshold::new("scatter.small", TABLE, "integers that are combined: up to here every worker has a table"),
];

/// An axis that is walked: size, elements of the operand and of the updates from one index to the next.
#[derive(Clone, Copy)]
struct Walk {
    size: usize,
    operand: usize,
    updates: usize,
}

/// A component of an index vector: how far a slice may start, and the operand's stride.
#[derive(Clone, Copy)]
struct Component {
    room: i64,
    stride: usize,
}

struct Geometry {
    /// Axes of the batch of slices; `operand` is the stride of an operand axis that goes along.
    batch: SmallVec<[Walk; 4]>,
    slices: usize,
    components: SmallVec<[Component; 4]>,
    /// Outer axes of a slice, then elements that are adjacent in both.
    window: SmallVec<[Walk; 4]>,
    rows: usize,
    run: usize,
    index: Index,
    dtype: DType,
    clip: bool,
    operand: usize,
    /// A run of the operand is only ever met as a whole.
    aligned: bool,
}

/// How an update meets the element that is there.
trait Combine<T>: Send + Sync + 'static {
    /// Whether programs often do so: then few updates, and indices of 32 bits, have code of their own.
    const OFTEN: bool;
    /// Whether the result is one of both.
    const PICKS: bool;
    fn apply(old: T, new: T) -> T;
    /// Whether updates may be combined in any order and grouping: integers that are added, multiplied or compared.
    fn free_order(_: PhantomData<T>) -> bool {
        false
    }
}

macro_rules! combines {
    ($($name:ident, $free:expr, $often:expr, $picks:expr, ($a:ident, $b:ident) => $e:expr);*) => {$(
        struct $name;
        impl<T: Element> Combine<T> for $name {
            const OFTEN: bool = $often;
            const PICKS: bool = $picks;
            fn free_order(_: PhantomData<T>) -> bool {
                $free && T::IS_INT
            }
            #[inline(always)]
            fn apply($a: T, $b: T) -> T {
                $e
            }
        }
    )*};
}
combines!(
    Set, false, true, false, (_a, b) => b;
    Add, true, size_of::<T>() >= 4 || (size_of::<T>() == 2 && !T::IS_INT), false, (a, b) => a.add(b);
    Mul, true, false, false, (a, b) => a.mul(b);
    Min, true, size_of::<T>() >= 4 || (size_of::<T>() == 2 && !T::IS_INT), true, (a, b) => a.smaller(b);
    Max, true, size_of::<T>() >= 4 || (size_of::<T>() == 2 && !T::IS_INT), true, (a, b) => a.larger(b)
);

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

fn geometry(op: &Scatter, operand: &Type, indices: &Type, updates: &Type) -> Option<Geometry> {
    let dims = &op.dims;
    let rank = operand.rank();
    let sizes = dims.slice_sizes(rank, &updates.shape);
    let (strides, update_strides) = (operand.strides(), updates.strides());
    let fits = (0..rank).all(|a| sizes[a] <= operand.shape[a]);
    let outer: Vec<usize> = (0..updates.rank()).filter(|d| !dims.offset.contains(d)).collect();
    // Slices one after the other are the row-major order of the updates if slices come last, or if an element of the
    // operand is always at the same place of its slice.
    let fixed = dims.index_map.iter().all(|&a| sizes[a] == 1);
    let last = dims.offset.iter().all(|&d| d >= outer.len());
    if !fixed && !last {
        return None;
    }
    let batch = outer
        .iter()
        .enumerate()
        .map(|(i, &d)| {
            let along = dims.index_batch.iter().position(|&x| x == i).map_or(0, |p| strides[dims.operand_batch[p]]);
            Walk { size: updates.shape[d], operand: along, updates: update_strides[d] }
        })
        .collect();
    let inside = |a: &usize| !dims.collapsed.contains(a) && !dims.operand_batch.contains(a);
    let mut window: SmallVec<[Walk; 4]> = (0..rank)
        .filter(inside)
        .zip(&dims.offset)
        .map(|(a, &d)| Walk { size: sizes[a], operand: strides[a], updates: update_strides[d] })
        .collect();
    let mut run = 1;
    while let Some(w) = window.last()
        && (w.size == 1 || (w.operand == run && w.updates == run))
    {
        run *= w.size;
        window.pop();
    }
    let components = dims
        .index_map
        .iter()
        .map(|&a| Component { room: operand.shape[a] as i64 - sizes[a] as i64, stride: strides[a] })
        .collect();
    Some(Geometry {
        slices: if fits { outer.iter().map(|&d| updates.shape[d]).product() } else { 0 },
        batch,
        components,
        rows: window.iter().map(|w| w.size).product(),
        window,
        run,
        index: index(indices.dtype),
        dtype: indices.dtype,
        clip: op.mode == ScatterMode::Clip,
        operand: operand.numel(),
        aligned: fixed,
    })
}

/// Goes to the next index of some axes; offsets into operand and updates follow.
fn advance(axes: &[Walk], at: &mut [usize], operand: &mut usize, updates: &mut usize) {
    for (a, w) in axes.iter().enumerate().rev() {
        at[a] += 1;
        *operand += w.operand;
        *updates += w.updates;
        if at[a] < w.size {
            return;
        }
        *operand -= w.operand * w.size;
        *updates -= w.updates * w.size;
        at[a] = 0;
    }
}

impl Geometry {
    /// Calls `f` with the operand's and the updates' place of each run, in order, for these indices of the first batch axis; and `soon`, if there is
    /// one, with the operand's place of a run to come.
    ///
    /// # Safety
    /// `indices` is good for all index vectors.
    #[inline(always)]
    unsafe fn runs(
        &self,
        indices: *const u8,
        part: Range<usize>,
        soon: Option<impl Fn(usize)>,
        mut f: impl FnMut(usize, usize),
    ) {
        if self.slices == 0 {
            return;
        }
        // One component, one run for each slice, which is most scatters: the index's type is known in the loop.
        if let ([c], 1, [outer @ .., last]) = (&self.components[..], self.rows, &self.batch[..]) {
            // SAFETY: the caller's promise.
            unsafe {
                match self.dtype {
                    DType::I32 => {
                        return self.lines(*c, outer, *last, part, |i| *indices.cast::<i32>().add(i) as i64, soon, f);
                    }
                    _ => return self.lines(*c, outer, *last, part, |i| (self.index)(indices, i), soon, f),
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.slices(indices, part, &mut f) }
    }

    /// Runs along the last batch axis, for all indices of the others.
    #[expect(clippy::too_many_arguments, reason = "axes, indices, and what is called")]
    #[inline(always)]
    fn lines(
        &self,
        c: Component,
        outer: &[Walk],
        last: Walk,
        part: Range<usize>,
        index: impl Fn(usize) -> i64,
        soon: Option<impl Fn(usize)>,
        mut f: impl FnMut(usize, usize),
    ) {
        // A part is one of the first batch axis.
        let (along, inner) = match outer {
            [] => (part, 0..1),
            [_, rest @ ..] => {
                let each: usize = rest.iter().map(|w| w.size).product();
                (0..last.size, part.start * each..part.end * each)
            }
        };
        let room = c.room as u64;
        for number in inner {
            let (mut operand, mut updates, mut rest) = (0, 0, number);
            for w in outer.iter().rev() {
                let at = rest % w.size;
                rest /= w.size;
                operand += at * w.operand;
                updates += at * w.updates;
            }
            for j in along.clone() {
                if let Some(soon) = &soon {
                    let (later, most) = (j + AHEAD, along.end - 1);
                    let j = if later < most { later } else { most };
                    let place = index(number * last.size + j).clamp(0, c.room) as usize;
                    soon(operand + j * last.operand + place * c.stride);
                }
                let i = index(number * last.size + j);
                let place = if self.clip { i.clamp(0, c.room) } else { i };
                if place as u64 <= room {
                    f(operand + j * last.operand + place as usize * c.stride, updates + j * last.updates);
                }
            }
        }
    }

    /// Calls `f` as [`Geometry::runs`] does, for some indices of the last batch axis and all of the others.
    #[inline(always)]
    fn strip(&self, c: Component, strip: Range<usize>, index: impl Fn(usize) -> i64, mut f: impl FnMut(usize, usize)) {
        let Some((last, outer)) = self.batch.split_last() else { return };
        let (mut at, mut operand, mut updates) = ([0; 16], 0, 0);
        for number in 0..outer.iter().map(|w| w.size).product() {
            for j in strip.clone() {
                let i = index(number * last.size + j);
                let place = if self.clip { i.clamp(0, c.room) } else { i };
                if place as u64 <= c.room as u64 {
                    f(operand + j * last.operand + place as usize * c.stride, updates + j * last.updates);
                }
            }
            advance(outer, &mut at, &mut operand, &mut updates);
        }
    }

    /// How many indices of the last batch axis are one thread's, if each has elements of the operand to itself: as many as fill a cache line.
    fn strips(&self, size: usize) -> Option<usize> {
        let (last, outer) = self.batch.split_last()?;
        let own = last.operand > 0 && self.aligned && self.rows * self.run == 1 && self.components.len() == 1;
        let each = STRIP_BYTES / size;
        (own && !outer.is_empty() && self.slices > 0 && last.size >= 2 * each).then_some(each)
    }

    /// Any geometry, slice by slice; one piece of code for all types.
    ///
    /// # Safety
    /// `indices` is good for all index vectors.
    unsafe fn slices(&self, indices: *const u8, part: Range<usize>, f: &mut dyn FnMut(usize, usize)) {
        let (mut at, mut along, mut from) = ([0; 16], 0, 0);
        let each = self.slices / self.batch.first().map_or(1, |w| w.size).max(1);
        for slice in 0..self.slices {
            let mut base = Some(along).filter(|_| part.contains(&(slice / each.max(1))));
            if base.is_some() {
                for (k, c) in self.components.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    let i = unsafe { (self.index)(indices, slice * self.components.len() + k) };
                    let inside = self.clip || (0..=c.room).contains(&i);
                    base = base.filter(|_| inside).map(|b| b + i.clamp(0, c.room) as usize * c.stride);
                }
            }
            if let Some(base) = base {
                let (mut inner, mut to, mut source) = ([0; 16], base, from);
                for _ in 0..self.rows {
                    f(to, source);
                    advance(&self.window, &mut inner, &mut to, &mut source);
                }
            }
            advance(&self.batch, &mut at, &mut along, &mut from);
        }
    }

    /// How many indices the first batch axis has.
    fn first(&self) -> usize {
        self.batch.first().map_or(1, |w| w.size)
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
}

/// The same place, which the compiler doesn't know for it: told that what is there stays where an extremum is no new one, it would write
/// the others alone, and processors are slow at that.
#[inline(always)]
fn unknown<T>(p: *mut T) -> *mut T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut p = p;
        // SAFETY: nothing happens.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags)) };
        p
    }
    #[cfg(not(target_arch = "x86_64"))]
    p
}

/// Combines so few adjacent updates that they are read before the first is written: vectors of them need not ask whether both overlap.
///
/// # Safety
/// Both are good for `N` elements that nobody else has.
#[inline(always)]
unsafe fn apply_few<T: Element, C: Combine<T>, const N: usize>(y: *mut T, updates: *const T) {
    // SAFETY: the caller's promise.
    unsafe {
        let (old, new) = (y.cast::<[T; N]>().read(), updates.cast::<[T; N]>().read());
        let to = if C::PICKS && N > 1 { unknown(y) } else { y };
        to.cast::<[T; N]>().write(std::array::from_fn(|i| C::apply(old[i], new[i])));
    }
}

/// Adjacent updates that are combined together.
const AT_ONCE: usize = 16;

/// Runs that are kept until there are so many.
const KEPT: usize = 128;

/// No place is asked for ahead.
const NEAR: Option<fn(usize)> = None;

/// Calls `f` with those places of a walk through all that begin among `own`. Which those are can't be foreseen, so they are noted
/// without a branch and met afterwards, in order. All of them may be asked for ahead.
///
/// # Safety
/// As for [`Geometry::runs`].
#[inline(always)]
unsafe fn owned(
    g: &Geometry,
    indices: *const u8,
    part: Range<usize>,
    own: Range<usize>,
    soon: Option<impl Fn(usize)>,
    f: impl Fn(usize, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        match own.len() == g.operand {
            true => g.runs(indices, part, soon, f),
            false => some(g, indices, part, own, &mut |kept| kept.iter().for_each(|&(to, from)| f(to, from))),
        }
    }
}

/// Calls `meet` with places that begin among `own`, many at a time; one piece of code for all types.
///
/// # Safety
/// As for [`Geometry::runs`].
#[inline(never)]
unsafe fn some(
    g: &Geometry,
    indices: *const u8,
    part: Range<usize>,
    own: Range<usize>,
    meet: &mut dyn FnMut(&[(usize, usize)]),
) {
    let (mut kept, mut n) = ([(0, 0); KEPT], 0);
    let note = |to, from| {
        kept[n] = (to, from);
        n += own.contains(&to) as usize;
        if n == KEPT {
            meet(&kept);
            n = 0;
        }
    };
    // SAFETY: the caller's promise.
    unsafe { g.runs(indices, part, NEAR, note) };
    meet(&kept[..n]);
}

/// Combines single updates with a table: a histogram.
///
/// # Safety
/// There are `n` indices and updates, and places of the table up to `room`.
unsafe fn counted<T: Element, C: Combine<T>>(
    table: *mut T,
    index: *const i32,
    updates: *const T,
    n: usize,
    room: u32,
    clip: bool,
) {
    // Pointers are plain arguments here: what closures catch would be read again after every write.
    #[inline(always)]
    unsafe fn all<T: Element, C: Combine<T>, const CLIP: bool>(
        table: *mut T,
        index: *const i32,
        updates: *const T,
        n: usize,
        room: u32,
    ) {
        for j in 0..n {
            // SAFETY: the caller's promise.
            unsafe {
                let i = *index.add(j);
                let place = if CLIP { i.clamp(0, room as i32) as u32 } else { i as u32 };
                if place <= room {
                    let to = table.add(place as usize);
                    *to = C::apply(*to, *updates.add(j));
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match clip {
            true => all::<T, C, true>(table, index, updates, n, room),
            false => all::<T, C, false>(table, index, updates, n, room),
        }
    }
}

/// Combines `n` adjacent updates.
///
/// # Safety
/// Both are good for `n` elements that nobody else has.
#[inline(always)]
unsafe fn apply<T: Element, C: Combine<T>>(y: *mut T, updates: *const T, n: usize) {
    let mut i = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while i + AT_ONCE <= n {
            apply_few::<T, C, AT_ONCE>(y.add(i), updates.add(i));
            i += AT_ONCE;
        }
        if C::OFTEN && n - i >= AT_ONCE / 2 {
            apply_few::<T, C, { AT_ONCE / 2 }>(y.add(i), updates.add(i));
            i += AT_ONCE / 2;
        }
        if C::OFTEN && n - i >= AT_ONCE / 4 {
            apply_few::<T, C, { AT_ONCE / 4 }>(y.add(i), updates.add(i));
            i += AT_ONCE / 4;
        }
        while i < n {
            apply_few::<T, C, 1>(y.add(i), updates.add(i));
            i += 1;
        }
    }
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
            Part::Strip(_) | Part::Lines(_) => unreachable!("such parts are for vectors"),
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
                Part::Batch(range) => (range, 0..g.operand, 0..g.run),
                Part::Run(within) => (all, 0..g.operand, within),
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
                n => {
                    let put = |to: usize, from: usize| apply::<T, C>(y.add(to), updates.add(from), n);
                    let far = C::OFTEN && g.operand * size_of::<T>() > FAR_BYTES && n * size_of::<T>() >= STRIP_BYTES;
                    let lines = || (0..n).step_by(STRIP_BYTES / size_of::<T>());
                    let soon = |to: usize| lines().for_each(|i| ask_for(y.wrapping_add(to + i)));
                    match far {
                        true => owned(g, i, part, own, Some(soon), put),
                        false => owned(g, i, part, own, NEAR, put),
                    }
                }
            }
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
        if args[0] != outs[0].cast_const() {
            in_ranges(pool, g.operand, g.operand, &|range: Range<usize>, _| {
                // SAFETY: operand and result have as many elements, and don't overlap.
                unsafe { std::ptr::copy_nonoverlapping(x.at(range.start), y.at(range.start), range.len()) };
            });
        }
        let data = Data { indices, updates, y };
        let work = g.slices * g.rows * g.run;
        // Each index of the first batch axis has a part of the operand to itself.
        if g.batch.len() > 1 && g.batch[0].operand > 0 && g.aligned {
            in_ranges(pool, g.first(), work, &|range: Range<usize>, _| {
                // SAFETY: the indices are the operand's.
                unsafe { self.part(data, Part::Batch(range)) };
            });
            return Ok(());
        }
        // So has each index of the last one. Threads share whole cache lines out.
        let vectors = self.isa != Isa::Portable || !cfg!(target_arch = "x86_64");
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
        if C::free_order(PhantomData::<T>)
            && g.run == 1
            && g.operand <= TABLE
            && work > 8 * g.operand
            && g.batch.len() == 1
        {
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
