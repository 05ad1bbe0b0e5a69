//! What tensors are made of.

use crate::Element;

/// Elements in row-major order: arrays, slices and vectors of any element type.
///
/// An array of literals without a suffix must have one type for Rust to find; it is f32. So an array of f64 is no `Data`:
/// write `tensor_of::<f64>(&[..], shape)`, or hand it over as a slice, `&array[..]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not valid data for a tensor",
    note = "use an array, slice or vector of numbers or bools; for an array of f64 write `tensor_of::<f64>(&[..], shape)`"
)]
pub trait Data {
    /// What it holds.
    type Element: Element;

    /// The elements.
    fn elements(&self) -> &[Self::Element];
}

impl<T: Element> Data for &[T] {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

impl<T: Element> Data for Vec<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

impl<T: Element> Data for &Vec<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

macro_rules! arrays {
    ($($t:ty),*) => { $(
        impl<const N: usize> Data for [$t; N] {
            type Element = $t;

            fn elements(&self) -> &[$t] {
                self
            }
        }

        impl<const N: usize> Data for &[$t; N] {
            type Element = $t;

            fn elements(&self) -> &[$t] {
                *self
            }
        }

        impl<const N: usize, const M: usize> Data for &[[$t; N]; M] {
            type Element = $t;

            fn elements(&self) -> &[$t] {
                self.as_flattened()
            }
        }
    )* };
}
arrays!(f32, half::f16, half::bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool);
