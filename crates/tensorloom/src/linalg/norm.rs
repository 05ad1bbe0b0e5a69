//! Norms and what is said with them.

use super::{matrix, svdvals};
use crate::np::{self, ReduceAxes, axes};
use crate::{DType, Tensor, record};

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// The 2-norm of vectors, Frobenius' norm of matrices.
    Default,
    /// The p-norm of vectors; of matrices the norm induced by p = 1, 2 or ∞, or its opposite for −1, −2, −∞.
    P(f64),
    /// The root of the sum of squares.
    Frobenius,
    /// The sum of singular values.
    Nuclear,
}

impl From<()> for Norm {
    fn from((): ()) -> Norm {
        Norm::Default
    }
}

impl From<f64> for Norm {
    fn from(p: f64) -> Norm {
        Norm::P(p)
    }
}

impl From<i32> for Norm {
    fn from(p: i32) -> Norm {
        Norm::P(f64::from(p))
    }
}

/// The norm of vectors (one axis) or matrices (two axes); of all elements for `()`.
///
/// ```
/// use tensorloom::{linalg, tensor};
///
/// let x = tensor(&[3.0f32, -4.0], &[2]);
/// assert_eq!(linalg::norm(&x, (), ()).item::<f32>()?, 5.0);
/// assert_eq!(linalg::norm(&x, 1, 0).item::<f32>()?, 7.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn norm(x: &Tensor, ord: impl Into<Norm>, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let (ord, axes) = (ord.into(), axes.into());
    if x.error().is_some() {
        return x.clone();
    }
    let count = axes.axes.as_ref().map_or(x.rank(), Vec::len);
    match (ord, count) {
        (Norm::Default, _) => vector_norm(x, ord, axes),
        (_, 1) => vector_norm(x, ord, axes),
        (_, 2) => norm_of_planes(x, ord, axes),
        _ => record::invalid("norm", format!("a norm of {count} axes of {} is not defined", x.ty())),
    }
}

/// A norm of the matrices whose rows and columns are counted by two axes, in this order.
#[track_caller]
fn norm_of_planes(x: &Tensor, ord: Norm, axes: ReduceAxes) -> Tensor {
    let planes = match record::axes("norm", x.ty(), axes.axes.as_deref()) {
        Ok(planes) => planes,
        Err(e) => return Tensor::from_error(e.at(&record::place()).into()),
    };
    let &[row, column] = planes.as_slice() else {
        return record::invalid("norm", format!("{} has no matrix along {:?}", x.ty(), axes.axes));
    };
    if row == column {
        return record::invalid("norm", format!("the axes of a matrix of {} are both {row}", x.ty()));
    }
    let moved = np::moveaxis(x, &[row as isize, column as isize], &[-2, -1]);
    let y = matrix_norm(&moved, ord, false);
    if !axes.keep {
        return y;
    }
    let shape: Vec<isize> =
        x.shape().iter().enumerate().map(|(i, &n)| if i == row || i == column { 1 } else { n as isize }).collect();
    y.reshape(&shape)
}

#[track_caller]
fn root(x: &Tensor, axes: ReduceAxes) -> Tensor {
    np::sum(&x.square(), axes).sqrt()
}

/// The p-norm along axes, as of one vector.
#[track_caller]
pub fn vector_norm(x: &Tensor, ord: impl Into<Norm>, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let (ord, axes) = (ord.into(), axes.into());
    let x = x.cast(record::float_of(x.dtype()));
    // Powers of an f16 may be larger than the largest f16.
    record::rounded([&x], |[x]| match ord {
        Norm::Default | Norm::Frobenius | Norm::P(2.0) => root(&x, axes),
        Norm::P(f64::INFINITY) => np::max(&x.abs(), axes),
        Norm::P(f64::NEG_INFINITY) => np::min(&x.abs(), axes),
        Norm::P(0.0) => np::sum(&np::not_equal(&x, 0.0).cast(x.dtype()), axes),
        Norm::P(1.0) => np::sum(&x.abs(), axes),
        Norm::P(p) => np::power(np::sum(&np::power(x.abs(), p), axes), 1.0 / p),
        Norm::Nuclear => record::invalid("vector_norm", "the nuclear norm needs matrices"),
    })
}

/// A norm of the matrices in the last two axes, which stay with size 1 if `keep`.
#[track_caller]
pub fn matrix_norm(x: &Tensor, ord: impl Into<Norm>, keep: bool) -> Tensor {
    let _here = crate::record::here();
    let ord = ord.into();
    let x = matrix("matrix_norm", x);
    record::rounded([&x], |x| wide_matrix_norm(x, ord, keep))
}

#[track_caller]
fn wide_matrix_norm([x]: [Tensor; 1], ord: Norm, keep: bool) -> Tensor {
    let lines = |axis: isize, most: bool| {
        let sums = np::sum(&x.abs(), axes(axis).keep());
        if most { np::max(&sums, axes([-2, -1]).keep()) } else { np::min(&sums, axes([-2, -1]).keep()) }
    };
    let values = || svdvals(&x).unsqueeze(-1);
    let y = match ord {
        Norm::Default | Norm::Frobenius => root(&x, axes([-2, -1]).keep()),
        Norm::Nuclear => np::sum(&values(), axes(-2).keep()),
        Norm::P(1.0) => lines(-2, true),
        Norm::P(-1.0) => lines(-2, false),
        Norm::P(f64::INFINITY) => lines(-1, true),
        Norm::P(f64::NEG_INFINITY) => lines(-1, false),
        Norm::P(2.0) => np::max(&values(), axes(-2).keep()),
        Norm::P(-2.0) => np::min(&values(), axes(-2).keep()),
        Norm::P(p) => return record::invalid("matrix_norm", format!("matrices have no norm of order {p}")),
    };
    if keep { y } else { y.squeeze(-1).squeeze(-1) }
}

/// How many singular values are above `rtol` times the largest.
#[track_caller]
pub fn matrix_rank(x: &Tensor, rtol: Option<f64>) -> Tensor {
    let _here = crate::record::here();
    let x = matrix("matrix_rank", x);
    if x.error().is_some() {
        return x;
    }
    let s = svdvals(&x);
    let eps = np::finfo(x.dtype()).map_or(0.0, |f| f.eps);
    let rtol = rtol.unwrap_or(x.size(-1).max(x.size(-2)) as f64 * eps);
    np::sum(&s.gt(&(np::max(&s, axes(-1).keep()) * rtol)), -1).cast(DType::I64)
}

/// The condition number for a norm; the default is the ratio of the extreme singular values.
#[track_caller]
pub fn cond(x: &Tensor, ord: impl Into<Norm>) -> Tensor {
    let _here = crate::record::here();
    let x = matrix("cond", x);
    match ord.into() {
        _ if x.error().is_some() => x,
        Norm::Default | Norm::P(2.0) => {
            let s = svdvals(&x);
            np::max(&s, -1) / np::min(&s, -1)
        }
        Norm::P(-2.0) => {
            let s = svdvals(&x);
            np::min(&s, -1) / np::max(&s, -1)
        }
        ord => matrix_norm(&x, ord, false) * matrix_norm(&super::inv(&x), ord, false),
    }
}
