//! Where the slices of a scatter go: runs of adjacent elements, one after the other in the order of the updates.

use super::STRIP_BYTES;
use crate::library::element::{Index, index};
use ir::ops::{Scatter, ScatterMode};
use ir::{DType, Type};
use smallvec::SmallVec;
use std::ops::Range;

/// How many updates ahead places are asked for.
pub(super) const AHEAD: usize = 12;

/// No place is asked for ahead.
pub(super) const NEAR: Option<fn(usize)> = None;

/// An axis that is walked: size, elements of the operand and of the updates from one index to the next.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub(super) size: usize,
    pub(super) operand: usize,
    pub(super) updates: usize,
}

/// A component of an index vector: how far a slice may start, and the operand's stride.
#[derive(Clone, Copy)]
pub(super) struct Component {
    pub(super) room: i64,
    pub(super) stride: usize,
}

pub(super) struct Geometry {
    /// Axes of the batch of slices; `operand` is the stride of an operand axis that goes along.
    pub(super) batch: SmallVec<[Walk; 4]>,
    pub(super) slices: usize,
    pub(super) components: SmallVec<[Component; 4]>,
    /// Outer axes of a slice, then elements that are adjacent in both.
    pub(super) window: SmallVec<[Walk; 4]>,
    pub(super) rows: usize,
    pub(super) run: usize,
    pub(super) index: Index,
    pub(super) dtype: DType,
    pub(super) clip: bool,
    pub(super) operand: usize,
    /// A run of the operand is only ever met as a whole.
    pub(super) aligned: bool,
}

/// The geometry of a scatter, unless the order of its updates is none of slices.
pub(super) fn geometry(op: &Scatter, operand: &Type, indices: &Type, updates: &Type) -> Option<Geometry> {
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
    let mut batch = SmallVec::<[Walk; 4]>::new();
    for (i, &d) in outer.iter().enumerate() {
        let along = dims.index_batch.iter().position(|&x| x == i).map_or(0, |p| strides[dims.operand_batch[p]]);
        let walk = Walk { size: updates.shape[d], operand: along, updates: update_strides[d] };
        match batch.last_mut() {
            // Slices of both axes follow each other as those of one.
            Some(before) if before.operand + along == 0 && before.updates == walk.size * walk.updates => {
                *before = Walk { size: before.size * walk.size, ..walk };
            }
            _ => batch.push(walk),
        }
    }
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
    pub(super) unsafe fn runs(
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
    pub(super) fn lines(
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
    pub(super) fn strip(
        &self,
        c: Component,
        strip: Range<usize>,
        index: impl Fn(usize) -> i64,
        mut f: impl FnMut(usize, usize),
    ) {
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
    pub(super) fn strips(&self, size: usize) -> Option<usize> {
        let (last, outer) = self.batch.split_last()?;
        let own = last.operand > 0 && self.aligned && self.rows * self.run == 1 && self.components.len() == 1;
        let each = STRIP_BYTES / size;
        (own && !outer.is_empty() && self.slices > 0 && last.size >= 2 * each).then_some(each)
    }

    /// Any geometry, slice by slice; one piece of code for all types.
    ///
    /// # Safety
    /// `indices` is good for all index vectors.
    pub(super) unsafe fn slices(&self, indices: *const u8, part: Range<usize>, f: &mut dyn FnMut(usize, usize)) {
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
    pub(super) fn first(&self) -> usize {
        self.batch.first().map_or(1, |w| w.size)
    }
}

/// Runs that are kept until there are so many.
const KEPT: usize = 128;

/// Calls `f` with those places of a walk through all that begin among `own`. Which those are can't be foreseen, so they are noted
/// without a branch and met afterwards, in order. All of them may be asked for ahead.
///
/// # Safety
/// As for [`Geometry::runs`].
#[inline(always)]
pub(super) unsafe fn owned(
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
