//! The destinations of the slices of a scatter: runs of adjacent elements, in the order of the updates.

use super::STRIP_BYTES;
use super::places::{Line, Places};
use crate::gemm::Isa;
use crate::library::element::{Index, index};
use ir::ops::{Scatter, ScatterMode};
use ir::{DType, Type};
use smallvec::SmallVec;
use std::ops::Range;

/// The prefetch distance in updates.
pub(super) const AHEAD: usize = 12;

/// An axis of a loop: its size, and the strides of the operand and of the updates.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub(super) size: usize,
    pub(super) operand: usize,
    pub(super) updates: usize,
}

/// A component of an index vector: the maximum start of a slice, and the operand's stride.
#[derive(Clone, Copy)]
pub(super) struct Component {
    pub(super) room: i64,
    pub(super) stride: usize,
}

pub(super) struct Geometry {
    /// The batch axes of the slices; `operand` is the stride of the corresponding operand axis.
    pub(super) batch: SmallVec<[Walk; 4]>,
    pub(super) slices: usize,
    pub(super) components: SmallVec<[Component; 4]>,
    /// The outer axes of a slice, then the number of elements that are adjacent in both.
    pub(super) window: SmallVec<[Walk; 4]>,
    pub(super) rows: usize,
    pub(super) run: usize,
    pub(super) index: Index,
    pub(super) dtype: DType,
    pub(super) clip: bool,
    pub(super) operand: usize,
    /// Whether runs of the operand never overlap partially.
    pub(super) aligned: bool,
    /// Whether offsets in the operand and the updates fit in 31 bits.
    pub(super) small: bool,
}

/// Returns the geometry of a scatter, unless the order of its updates is not an order of slices.
pub(super) fn geometry(op: &Scatter, operand: &Type, indices: &Type, updates: &Type) -> Option<Geometry> {
    let dims = &op.dims;
    let rank = operand.rank();
    let sizes = dims.slice_sizes(rank, &updates.shape);
    let (strides, update_strides) = (operand.strides(), updates.strides());
    let fits = (0..rank).all(|a| sizes[a] <= operand.shape[a]);
    let outer: Vec<usize> = (0..updates.rank()).filter(|d| !dims.offset.contains(d)).collect();
    // Consecutive slices are in the row-major order of the updates if the slice axes come last, or if an element of the
    // operand is always at the same position of its slice.
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
            // Merge two axes whose slices follow each other as those of a single axis.
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
        small: operand.numel().max(updates.numel()) <= i32::MAX as usize,
    })
}

/// Advances to the next index of some axes, and updates the offsets into the operand and the updates.
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

/// The part of a scatter that one thread processes, and what the thread owns.
#[derive(Clone)]
pub(super) struct Part {
    /// The indices of the first batch axis, and of the last.
    pub(super) first: Range<usize>,
    pub(super) last: Range<usize>,
    /// The operand elements at which the part's runs may begin.
    pub(super) own: Range<usize>,
    /// The elements of every run.
    pub(super) within: Range<usize>,
}

impl Geometry {
    /// Returns the part that covers everything.
    pub(super) fn whole(&self) -> Part {
        let last = 0..self.batch.last().map_or(1, |w| w.size);
        Part { first: 0..self.first(), last, own: 0..self.operand, within: 0..self.run }
    }

    /// Calls `meet` with the positions of a part's runs, in order, and with the positions of their updates.
    ///
    /// # Safety
    /// `indices` is valid for all index vectors, and the machine has the instruction set.
    pub(super) unsafe fn runs(&self, isa: Isa, indices: *const u8, part: &Part, meet: &dyn Fn(&[u32], &[u32])) {
        let mut places = Places::new(part.own.clone(), meet);
        // SAFETY: `indices` is valid for all index vectors, and the machine has `isa`.
        unsafe {
            // Fast path for most scatters: one component, one run per slice.
            match (&self.components[..], self.rows, &self.batch[..]) {
                ([c], 1, [outer @ .., last]) => self.lines(isa, indices, part, *c, (outer, *last), &mut places),
                _ => self.slices(indices, part.first.clone(), &mut |to, from| places.push(to, from)),
            }
        }
        places.finish();
    }

    /// Calls `meet` with the position of the first element of each of a part's slices, and with the position of its update.
    ///
    /// # Safety
    /// As for [`Geometry::runs`].
    pub(super) unsafe fn firsts(&self, isa: Isa, indices: *const u8, part: &Part, meet: &dyn Fn(&[u32], &[u32])) {
        let mut places = Places::new(part.own.clone(), meet);
        if let ([c], [outer @ .., last]) = (&self.components[..], &self.batch[..]) {
            // SAFETY: `indices` is valid for all index vectors, and the machine has `isa`.
            unsafe { self.lines(isa, indices, part, *c, (outer, *last), &mut places) };
        }
        places.finish();
    }

    /// Visits slices along the last batch axis, for all indices of the other axes.
    ///
    /// # Safety
    /// As for [`Geometry::runs`].
    unsafe fn lines(
        &self,
        isa: Isa,
        indices: *const u8,
        part: &Part,
        component: Component,
        (outer, axis): (&[Walk], Walk),
        places: &mut Places,
    ) {
        if self.slices == 0 {
            return;
        }
        // With a single batch axis, the first is the last.
        let (along, numbers) = match outer {
            [] => (part.first.start.max(part.last.start)..part.first.end.min(part.last.end), 0..1),
            [_, rest @ ..] => {
                let each: usize = rest.iter().map(|w| w.size).product();
                (part.last.clone(), part.first.start * each..part.first.end * each)
            }
        };
        for number in numbers {
            let (mut operand, mut updates, mut rest) = (0, 0, number);
            for w in outer.iter().rev() {
                let at = rest % w.size;
                rest /= w.size;
                operand += at * w.operand;
                updates += at * w.updates;
            }
            let line = Line { index: number * axis.size, operand, updates, axis, component };
            // SAFETY: `indices` is valid for all index vectors, `line` is one of the batch, and the machine has `isa`.
            unsafe { places.line(self, isa, indices, &line, along.clone()) };
        }
    }

    /// Returns the number of indices of the last batch axis per thread, if each index has its own elements of the operand: as
    /// many as fill a cache line.
    pub(super) fn strips(&self, size: usize) -> Option<usize> {
        let (last, outer) = self.batch.split_last()?;
        let own = last.operand > 0 && self.aligned && self.rows * self.run == 1 && self.components.len() == 1;
        let each = STRIP_BYTES / size;
        (own && !outer.is_empty() && self.slices > 0 && last.size >= 2 * each).then_some(each)
    }

    /// Visits any geometry slice by slice: calls `f` with the operand and update offset of each run, in order,
    /// for these indices of the first batch axis.
    ///
    /// # Safety
    /// `indices` is valid for all index vectors.
    pub(super) unsafe fn slices(&self, indices: *const u8, part: Range<usize>, f: &mut dyn FnMut(usize, usize)) {
        let (mut at, mut along, mut from) = ([0; 16], 0, 0);
        let each = self.slices / self.batch.first().map_or(1, |w| w.size).max(1);
        for slice in 0..self.slices {
            let mut base = Some(along).filter(|_| part.contains(&(slice / each.max(1))));
            if base.is_some() {
                for (k, c) in self.components.iter().enumerate() {
                    // SAFETY: `slice` is below the number of index vectors, for all of which `indices` is valid.
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

    /// Returns the number of rows of the operand and their stride, for a scatter along one axis whose slices are adjacent elements.
    pub(super) fn rows(&self) -> Option<(usize, usize)> {
        let ([c], 1, [last]) = (&self.components[..], self.rows, &self.batch[..]) else { return None };
        (self.small && last.operand == 0 && self.slices > 0 && c.room >= 0).then(|| (c.room as usize + 1, c.stride))
    }

    /// Returns the size of the first batch axis.
    pub(super) fn first(&self) -> usize {
        self.batch.first().map_or(1, |w| w.size)
    }
}
