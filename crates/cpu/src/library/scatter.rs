//! Scatter: slices combined into an operand, one after the other in the order of the updates.
//!
//! Threads share either the elements of each slice or the places in the operand, and each goes over all indices: so every
//! element sees its updates in order, whatever the number of threads.

use super::element::{Element, Index, by_dtype, index};
use super::{Machine, Raw, Routine, in_ranges};
use crate::pool::{Pool, share};
use crate::thresholds::Threshold;
use compiler::Result;
use ir::Type;
use ir::ops::{Scatter, ScatterKind, ScatterMode};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Range;

/// Shorter runs are not divided.
const LONG_RUN: usize = 64;

pub(super) const THRESHOLDS: &[Threshold] =
    &[Threshold::new("scatter.run", LONG_RUN, "adjacent elements of a slice: from here threads share the run")];

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
    clip: bool,
    operand: usize,
    /// A run of the operand is only ever met as a whole.
    aligned: bool,
}

/// How an update meets the element that is there.
trait Combine<T>: Send + Sync + 'static {
    fn apply(old: T, new: T) -> T;
}

macro_rules! combines {
    ($($name:ident, ($a:ident, $b:ident) => $e:expr);*) => {$(
        struct $name;
        impl<T: Element> Combine<T> for $name {
            #[inline(always)]
            fn apply($a: T, $b: T) -> T {
                $e
            }
        }
    )*};
}
combines!(Set, (_a, b) => b; Add, (a, b) => a.add(b); Mul, (a, b) => a.mul(b); Min, (a, b) => a.smaller(b); Max, (a, b) => a.larger(b));

struct Scattering<T, C> {
    geometry: Geometry,
    types: PhantomData<fn() -> (T, C)>,
}

pub(super) fn prepare(op: &Scatter, args: &[Type], _: Machine) -> Option<Box<dyn Routine>> {
    let geometry = geometry(op, &args[0], &args[1], &args[2])?;
    macro_rules! of {
        ($t:ty, $c:ty) => {
            Box::new(Scattering::<$t, $c> { geometry, types: PhantomData }) as Box<dyn Routine>
        };
    }
    by_dtype!(args[0].dtype, T => match op.kind {
        ScatterKind::Set => of!(T, Set),
        ScatterKind::Add => of!(T, Add),
        ScatterKind::Mul => of!(T, Mul),
        ScatterKind::Min => of!(T, Min),
        ScatterKind::Max => of!(T, Max),
    })
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
    /// Calls `f` with the operand's and the updates' place of each run, in order.
    ///
    /// # Safety
    /// `indices` is good for all index vectors.
    #[inline(always)]
    unsafe fn runs(&self, indices: *const u8, mut f: impl FnMut(usize, usize)) {
        let (mut at, mut along, mut from) = ([0; 16], 0, 0);
        for slice in 0..self.slices {
            let mut base = Some(along);
            for (k, c) in self.components.iter().enumerate() {
                // SAFETY: the caller's promise.
                let i = unsafe { (self.index)(indices, slice * self.components.len() + k) };
                let inside = self.clip || (0..=c.room).contains(&i);
                base = base.filter(|_| inside).map(|b| b + i.clamp(0, c.room) as usize * c.stride);
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
}

impl<T: Element, C: Combine<T>> Routine for Scattering<T, C> {
    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
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
        let apply = |to: usize, from: usize, n: usize| {
            for i in 0..n {
                // SAFETY: inside result and updates; no other thread has these elements.
                unsafe { *y.at(to + i) = C::apply(*y.at(to + i), *updates.at(from + i)) };
            }
        };
        let work = g.slices * g.rows * g.run;
        if g.run >= LONG_RUN {
            let units = g.run.div_ceil(16);
            in_ranges(pool, units, work, &|range: Range<usize>, _| {
                let (start, end) = (range.start * 16, (range.end * 16).min(g.run));
                // SAFETY: the indices are the operand's.
                unsafe { g.runs(indices.at(0), |to, from| apply(to + start, from + start, end - start)) };
            });
            return Ok(());
        }
        let parts = if g.aligned { pool.threads().min(work / (4 * super::PARALLEL_WORK)).max(1) } else { 1 };
        pool.run(parts, &|part, _| {
            let own = share(g.operand, parts, part);
            // SAFETY: as above; runs that begin at one place are one part's, and never overlap others.
            unsafe {
                g.runs(indices.at(0), |to, from| {
                    if own.contains(&to) {
                        apply(to, from, g.run);
                    }
                });
            }
        });
        Ok(())
    }
}
