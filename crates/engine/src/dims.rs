//! Shape arguments: lists, arrays and tuples of any integer type.

use ir::Shape;
use smallvec::SmallVec;

/// An integer usable as a size; −1 stands for a size to infer.
pub trait Size: Copy {
    /// Converts to `isize`; a value that doesn't fit becomes `isize::MAX`, which no tensor can have.
    fn size(self) -> isize;
}

macro_rules! sizes {
    ($($t:ty),*) => { $(
        impl Size for $t {
            fn size(self) -> isize {
                isize::try_from(self).unwrap_or(isize::MAX)
            }
        }
    )* };
}
sizes!(usize, isize, i64, i32, u64, u32);

/// A list of sizes as the caller passed them.
pub type Sizes = SmallVec<[isize; 6]>;

/// A shape argument: `&[2, 3]`, `[n, 3]`, `(n, -1)`, `x.shape()`, a vector, or one size.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    note = "a shape must be a list, an array or a tuple of integers, like `&[2, 3]` or `(n, -1)`"
)]
pub trait Dims {
    /// The sizes in order.
    fn sizes(&self) -> Sizes;
}

/// The shape of a new tensor; `Err` with the first negative size.
pub fn shape_of(dims: &impl Dims) -> Result<Shape, isize> {
    dims.sizes().into_iter().map(|n| usize::try_from(n).map_err(|_| n)).collect()
}

impl<S: Size> Dims for &[S] {
    fn sizes(&self) -> Sizes {
        self.iter().map(|n| n.size()).collect()
    }
}

impl<S: Size> Dims for Vec<S> {
    fn sizes(&self) -> Sizes {
        self.as_slice().sizes()
    }
}

impl<S: Size> Dims for &Vec<S> {
    fn sizes(&self) -> Sizes {
        self.as_slice().sizes()
    }
}

impl Dims for &Shape {
    fn sizes(&self) -> Sizes {
        self.as_slice().sizes()
    }
}

impl Dims for Shape {
    fn sizes(&self) -> Sizes {
        self.as_slice().sizes()
    }
}

// The element type of an empty array can't be inferred, so `[usize; 0]` is implemented, and other arrays by their length.
impl Dims for [usize; 0] {
    fn sizes(&self) -> Sizes {
        Sizes::new()
    }
}

impl Dims for &[usize; 0] {
    fn sizes(&self) -> Sizes {
        Sizes::new()
    }
}

impl Dims for () {
    fn sizes(&self) -> Sizes {
        Sizes::new()
    }
}

macro_rules! arrays {
    ($($n:literal)*) => { $(
        impl<S: Size> Dims for [S; $n] {
            fn sizes(&self) -> Sizes {
                self.as_slice().sizes()
            }
        }

        impl<S: Size> Dims for &[S; $n] {
            fn sizes(&self) -> Sizes {
                self.as_slice().sizes()
            }
        }
    )* };
}
arrays!(1 2 3 4 5 6 7 8 9 10);

macro_rules! tuples {
    ($($($name:ident)*;)*) => { $(
        #[expect(non_snake_case, reason = "type names bind the fields")]
        impl<$($name: Size),*> Dims for ($($name,)*) {
            fn sizes(&self) -> Sizes {
                let ($($name,)*) = *self;
                [$($name.size()),*].into_iter().collect()
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

macro_rules! single {
    ($($t:ty),*) => { $(
        impl Dims for $t {
            fn sizes(&self) -> Sizes {
                [self.size()].into_iter().collect()
            }
        }
    )* };
}
single!(usize, isize, i64, i32);
