//! The axis arguments of reductions.

use crate::dims::Size;

/// Axes of a reduction: all (`()`), one (`-1`) or several (`[0, 2]`), counted from the end if negative, and whether to keep them.
#[derive(Clone, Debug)]
pub struct ReduceAxes {
    /// The axes; `None` means all.
    pub axes: Option<Vec<isize>>,
    /// Whether the reduced axes stay in the result, with size 1.
    pub keep: bool,
}

/// Creates the axes of a reduction, as in `axes(1).keep()`.
pub fn axes(axes: impl Into<ReduceAxes>) -> ReduceAxes {
    axes.into()
}

impl ReduceAxes {
    /// Keeps the reduced axes with size 1.
    pub fn keep(mut self) -> ReduceAxes {
        self.keep = true;
        self
    }

    /// The single axis, `None` for all axes; `Err` with the list if there are several.
    pub fn single(&self) -> Result<Option<isize>, &[isize]> {
        match self.axes.as_deref() {
            None => Ok(None),
            Some([a]) => Ok(Some(*a)),
            Some(list) => Err(list),
        }
    }

    fn of(axes: impl Iterator<Item = isize>) -> ReduceAxes {
        ReduceAxes { axes: Some(axes.collect()), keep: false }
    }
}

impl From<()> for ReduceAxes {
    fn from((): ()) -> ReduceAxes {
        ReduceAxes { axes: None, keep: false }
    }
}

impl From<Option<isize>> for ReduceAxes {
    fn from(axis: Option<isize>) -> ReduceAxes {
        ReduceAxes { axes: axis.map(|a| vec![a]), keep: false }
    }
}

impl<S: Size> From<&[S]> for ReduceAxes {
    fn from(axes: &[S]) -> ReduceAxes {
        ReduceAxes::of(axes.iter().map(|a| a.size()))
    }
}

impl<S: Size> From<Vec<S>> for ReduceAxes {
    fn from(axes: Vec<S>) -> ReduceAxes {
        ReduceAxes::of(axes.iter().map(|a| a.size()))
    }
}

impl<S: Size> From<&Vec<S>> for ReduceAxes {
    fn from(axes: &Vec<S>) -> ReduceAxes {
        ReduceAxes::of(axes.iter().map(|a| a.size()))
    }
}

impl From<[isize; 0]> for ReduceAxes {
    fn from(_: [isize; 0]) -> ReduceAxes {
        ReduceAxes::of(std::iter::empty())
    }
}

impl From<&[isize; 0]> for ReduceAxes {
    fn from(_: &[isize; 0]) -> ReduceAxes {
        ReduceAxes::of(std::iter::empty())
    }
}

macro_rules! arrays {
    ($($n:literal)*) => { $(
        impl<S: Size> From<[S; $n]> for ReduceAxes {
            fn from(axes: [S; $n]) -> ReduceAxes {
                ReduceAxes::of(axes.iter().map(|a| a.size()))
            }
        }

        impl<S: Size> From<&[S; $n]> for ReduceAxes {
            fn from(axes: &[S; $n]) -> ReduceAxes {
                ReduceAxes::of(axes.iter().map(|a| a.size()))
            }
        }
    )* };
}
arrays!(1 2 3 4 5 6 7 8);

macro_rules! single {
    ($($t:ty),*) => { $(
        impl From<$t> for ReduceAxes {
            fn from(axis: $t) -> ReduceAxes {
                ReduceAxes::of(std::iter::once(axis.size()))
            }
        }
    )* };
}
single!(isize, usize, i64, i32);
