//! Basic indexing, `x.i((0, 1..3, ..))`: elements, ranges and new axes, as views.

use super::{Tensor, operand_error};
use crate::context;
use ir::{InferError, Loc};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// An index of one axis.
#[derive(Clone, Debug)]
pub enum Index {
    /// One element, counted from the end if negative; the axis disappears.
    At(isize),
    /// A range with a step; bounds outside the axis are clamped, as in NumPy.
    Range {
        /// The first index; counted from the end if negative.
        start: Option<isize>,
        /// The exclusive end; counted from the end if negative.
        end: Option<isize>,
        /// The step; a negative step goes from the end to the front.
        step: isize,
    },
    /// A new axis of size 1.
    New,
    /// All axes without an index of their own; allowed at most once.
    Remaining,
    /// The slices at the indices in a tensor of rank 1, as a copy.
    Gather(Tensor),
}

/// A new axis of size 1, in [`Tensor::i`].
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// All axes without an index of their own, in [`Tensor::i`]: NumPy's `...`.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// A range with a step, in [`Tensor::i`]: `step(.., 2)` is NumPy's `::2`, `step(.., -1)` its `::-1`.
pub fn step(range: impl OnePick, by: isize) -> Index {
    match range.pick() {
        Index::Range { start, end, step } => Index::Range { start, end, step: step.saturating_mul(by) },
        other => other,
    }
}

/// A type usable as the index of one axis in [`Tensor::i`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index a tensor",
    note = "an axis can be indexed by an integer, a range, `NewAxis`, `Ellipsis`, `step(range, n)` or a tensor of \
         integers"
)]
pub trait OnePick {
    /// Converts to an index.
    fn pick(self) -> Index;
}

impl OnePick for Index {
    fn pick(self) -> Index {
        self
    }
}

impl OnePick for RangeFull {
    fn pick(self) -> Index {
        Index::Range { start: None, end: None, step: 1 }
    }
}

impl OnePick for NewAxis {
    fn pick(self) -> Index {
        Index::New
    }
}

impl OnePick for Ellipsis {
    fn pick(self) -> Index {
        Index::Remaining
    }
}

impl OnePick for &Tensor {
    fn pick(self) -> Index {
        Index::Gather(self.clone())
    }
}

fn signed<T: TryInto<isize>>(x: T) -> isize {
    x.try_into().unwrap_or(isize::MAX)
}

/// The exclusive end after index `end`; `None`, the end of the axis, after −1.
fn after(end: isize) -> Option<isize> {
    if end == -1 { None } else { Some(end.saturating_add(1)) }
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl OnePick for $t {
            fn pick(self) -> Index {
                Index::At(signed(self))
            }
        }

        impl OnePick for Range<$t> {
            fn pick(self) -> Index {
                Index::Range { start: Some(signed(self.start)), end: Some(signed(self.end)), step: 1 }
            }
        }

        impl OnePick for RangeFrom<$t> {
            fn pick(self) -> Index {
                Index::Range { start: Some(signed(self.start)), end: None, step: 1 }
            }
        }

        impl OnePick for RangeTo<$t> {
            fn pick(self) -> Index {
                Index::Range { start: None, end: Some(signed(self.end)), step: 1 }
            }
        }

        impl OnePick for RangeInclusive<$t> {
            fn pick(self) -> Index {
                Index::Range { start: Some(signed(*self.start())), end: after(signed(*self.end())), step: 1 }
            }
        }

        impl OnePick for RangeToInclusive<$t> {
            fn pick(self) -> Index {
                Index::Range { start: None, end: after(signed(self.end)), step: 1 }
            }
        }
    )* };
}
integers!(isize, usize, i64, i32, u32);

/// The argument of [`Tensor::i`]: one index, range, [`NewAxis`] or [`Ellipsis`], or a tuple of them.
pub trait Picks {
    /// The indices, one for each axis from the first.
    fn picks(self) -> Vec<Index>;
}

impl<P: OnePick> Picks for P {
    fn picks(self) -> Vec<Index> {
        vec![self.pick()]
    }
}

impl Picks for &[Index] {
    fn picks(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => { $(
        #[expect(non_snake_case, reason = "type names bind the fields")]
        impl<$($name: OnePick),*> Picks for ($($name,)*) {
            fn picks(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.pick()),*]
            }
        }
    )* };
}
tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

impl Tensor {
    /// Indexes axes from the first on; axes without an index stay whole. Returns a view, which writes to this tensor,
    /// unless an index tensor or a negative step makes it a copy.
    ///
    /// ```ignore
    /// x.i(0);                    // the first row
    /// x.i((.., -1));             // the last column
    /// x.i((0, 1..3, ..));        // of the first block, rows 1 and 2
    /// x.i((Ellipsis, NewAxis));  // a new last axis
    /// x.i(step(.., 2));          // every second row
    /// x.i(&ids);                 // rows by integers of a tensor
    /// ```
    #[track_caller]
    pub fn i(&self, picks: impl Picks) -> Tensor {
        let at = context::resolve_loc(&Loc::caller());
        // The ops below get the source line of this call.
        let _here = context::enter_library(std::panic::Location::caller(), false);
        if self.invalid().is_some() {
            return self.clone();
        }
        let mut picks = picks.picks();
        let used = picks.iter().filter(|p| !matches!(p, Index::New | Index::Remaining)).count();
        let fail = |why: String| {
            let error = crate::Error::from(operand_error("i", &[self.ty()], InferError::other(why)));
            Tensor::with_error(error.with_loc(&at), self.engine())
        };
        if used > self.rank() {
            return fail(format!("{used} indices for {} axes", self.rank()));
        }
        let whole = || Index::Range { start: None, end: None, step: 1 };
        match picks.iter().filter(|p| matches!(p, Index::Remaining)).count() {
            0 => {}
            1 => {
                let place = picks.iter().position(|p| matches!(p, Index::Remaining)).expect("there is one");
                picks.splice(place..=place, (0..self.rank() - used).map(|_| whole()));
            }
            _ => return fail("only one Ellipsis is allowed".into()),
        }
        // Indices are applied from the first axis on; `axis` counts the axes of the result so far.
        let (mut x, mut axis) = (self.clone(), 0isize);
        for pick in picks {
            match pick {
                Index::At(i) => x = x.index(axis, i),
                Index::New => {
                    x = x.unsqueeze(axis);
                    axis += 1;
                }
                Index::Range { start: None, end: None, step: 1 } | Index::Remaining => axis += 1,
                Index::Range { start, end, step } => {
                    let n = x.size(axis) as isize;
                    if step == 0 {
                        return fail("the step must not be 0".into());
                    }
                    let back = step < 0;
                    // A negative step is a positive step on the flipped axis, where index i becomes n − 1 − i.
                    let clip = |i: isize, low: isize, high: isize| (if i < 0 { i + n } else { i }).clamp(low, high);
                    if back {
                        let first = start.map_or(n - 1, |i| clip(i, -1, n - 1));
                        let last = end.map_or(-1, |i| clip(i, -1, n - 1));
                        x = x.flip(axis).slice(axis, n - 1 - first, (n - 1 - last).max(0), step.unsigned_abs());
                    } else {
                        let first = start.map_or(0, |i| clip(i, 0, n));
                        let last = end.map_or(n, |i| clip(i, 0, n));
                        x = x.slice(axis, first, last, step as usize);
                    }
                    axis += 1;
                }
                Index::Gather(index) if index.dtype() == ir::DType::Bool && index.error().is_none() => {
                    return fail(
                        "the number of elements that a mask selects depends on data; use select, masked_fill or \
                         np::nonzero(&mask, size)"
                            .into(),
                    );
                }
                Index::Gather(index) => {
                    x = x.index_select(axis, &index);
                    axis += 1;
                }
            }
        }
        x
    }
}
