//! Equations, inverses, determinants.

use super::{lu, matrix, square, svd};
use crate::np::{self, axes};
use crate::{DType, Tensor, custom_jvp, engine_of, record};
use ir::ops::TriangularSolve;

/// Two operands with one dtype and the same leading axes, of which the last two stay.
#[track_caller]
fn batches(op: &'static str, a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    let lead = |t: &Tensor| t.shape()[..t.rank() - 2].to_vec();
    let (la, lb) = (lead(a), lead(b));
    let Some(batch) = record::broadcast(&[&la, &lb]) else {
        let bad = record::invalid(op, format!("leading axes of {} and {} don't broadcast", a.ty(), b.ty()));
        return (bad.clone(), bad);
    };
    let Some(d) = a.dtype().promote(b.dtype()) else {
        let bad = record::invalid(op, format!("{} and {} have no common dtype", a.ty(), b.ty()));
        return (bad.clone(), bad);
    };
    let wide = |t: &Tensor| {
        let shape: Vec<usize> = batch.iter().chain(&t.shape()[t.rank() - 2..]).copied().collect();
        np::broadcast_to(&t.cast(d), &shape)
    };
    (wide(a), wide(b))
}

/// Solves `op(A)·X = B` for triangular `A`, or `X·op(A) = B` unless `left`; `op` transposes if asked.
///
/// ```
/// use tensorloom::{linalg, tensor};
///
/// let l = tensor(&[2.0f32, 0.0, 1.0, 4.0], &[2, 2]);
/// let x = linalg::triangular_solve(&l, &tensor(&[2.0f32, 9.0], &[2, 1]), true, true, false);
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn triangular_solve(a: &Tensor, b: &Tensor, left: bool, lower: bool, transpose: bool) -> Tensor {
    let _here = crate::record::here();
    triangular(a, b, TriangularSolve { left, lower, transpose, unit: false })
}

#[track_caller]
fn triangular(a: &Tensor, b: &Tensor, op: TriangularSolve) -> Tensor {
    let (a, b) = (square("triangular_solve", a), matrix("triangular_solve", b));
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    let (a, b) = batches("triangular_solve", &a, &b);
    Tensor::apply(op, &[&a, &b], 1).swap_remove(0)
}

/// Solves `A·X = B`; a `B` of one axis is one vector.
#[track_caller]
pub fn solve(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let a = square("solve", a);
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    if b.rank() == 1 {
        return solve(&a, &b.unsqueeze(-1)).squeeze(-1);
    }
    let b = matrix("solve", b);
    if b.error().is_some() {
        return b;
    }
    if b.size(-2) != a.size(-1) {
        return record::invalid("solve", format!("{} has other than {} rows", b.ty(), a.size(-1)));
    }
    let (a, b) = batches("solve", &a, &b);
    let (factors, _, permutation) = lu(&a);
    let rows = np::take_along_axis(&b, &permutation.unsqueeze(-1), -2);
    substitute(&factors, &rows)
}

/// Solves `L·U·X = B` for the factors of [`lu`] in one matrix.
#[track_caller]
fn substitute(factors: &Tensor, b: &Tensor) -> Tensor {
    let half = TriangularSolve { left: true, lower: true, transpose: false, unit: true };
    let y = triangular(factors, b, half);
    triangular(factors, &y, TriangularSolve { lower: false, unit: false, ..half })
}

/// The inverse of square matrices.
#[track_caller]
pub fn inv(a: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let a = square("inv", a);
    if a.error().is_some() {
        return a;
    }
    solve(&a, &np::identity(a.size(-1), a.dtype()))
}

/// The sign of each permutation that pivots make, and the diagonal of `U`.
#[track_caller]
fn signed_diagonal(a: &Tensor) -> (Tensor, Tensor) {
    let (factors, pivots, _) = lu(a);
    let n = a.size(-1);
    let stayed = pivots.eq(&engine_of(a).arange(DType::I32, n));
    let swaps = np::sum(&stayed.not(), -1);
    let odd = np::remainder(&swaps, 2).cast(a.dtype());
    (1.0 - odd * 2.0, np::diagonal(&factors, 0, -2, -1))
}

/// The determinant of square matrices.
#[track_caller]
pub fn det(a: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let a = square("det", a);
    if a.error().is_some() {
        return a;
    }
    custom_jvp(|a: Tensor| product_of_pivots(&a), |(a, da): (Tensor, Tensor)| determinant_slope(&a, &da)).call(a)
}

#[track_caller]
fn product_of_pivots(a: &Tensor) -> Tensor {
    let (sign, diagonal) = signed_diagonal(a);
    sign * np::prod(&diagonal, -1)
}

/// `det A · tr(A⁻¹ dA)`. Pivots that are 0 are replaced by a number far below the roundings of the matrix, so that there is an inverse:
/// the cofactors, which are the product of both, change as little.
#[track_caller]
fn determinant_slope(a: &Tensor, da: &Tensor) -> Tensor {
    let (factors, _, permutation) = lu(a);
    let (sign, diagonal) = signed_diagonal(a);
    let zero = np::equal(&diagonal, 0.0);
    let eps = np::finfo(a.dtype()).map_or(0.0, |f| f.eps);
    let most = np::max(&a.abs(), axes(&[-2, -1])).stop_gradient();
    let most = np::where_(&np::equal(&most, 0.0), 1.0, &most).unsqueeze(-1);
    let more = np::where_(&zero, &(most * eps.powf(1.25)), 0.0);
    let factors = factors + np::identity(a.size(-1), a.dtype()) * more.unsqueeze(-1);
    let rows = np::take_along_axis(da, &permutation.unsqueeze(-1), -2);
    let change = substitute(&factors, &rows);
    sign * np::prod(&(diagonal + more), -1) * np::sum(&np::diagonal(&change, 0, -2, -1), -1)
}

/// The sign of the determinant and the logarithm of its size.
#[track_caller]
pub fn slogdet(a: &Tensor) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let a = square("slogdet", a);
    if a.error().is_some() {
        return (a.clone(), a);
    }
    let (sign, diagonal) = signed_diagonal(&a);
    let sign = (sign * np::prod(&diagonal.sign(), -1)).stop_gradient();
    (sign, np::sum(&diagonal.abs().log(), -1))
}

/// What singular values count: those above `rcond` times the largest, by default a few roundings.
#[track_caller]
fn counted(a: &Tensor, s: &Tensor, rcond: Option<f64>, most: f64) -> Tensor {
    let eps = np::finfo(a.dtype()).map_or(0.0, |f| f.eps);
    let rcond = rcond.unwrap_or(most * eps);
    s.gt(&(np::max(s, axes(-1).keep()) * rcond)).stop_gradient()
}

/// `1/s` where a singular value counts, else 0.
#[track_caller]
fn inverses(s: &Tensor, counts: &Tensor) -> Tensor {
    np::where_(counts, 1.0 / np::where_(counts, s, 1.0), 0.0)
}

/// The pseudo-inverse; singular values up to `rcond` times the largest count as 0.
#[track_caller]
pub fn pinv(a: &Tensor, rcond: Option<f64>) -> Tensor {
    let _here = crate::record::here();
    let a = matrix("pinv", a);
    if a.error().is_some() {
        return a;
    }
    let (u, s, vt) = svd(&a);
    let n = a.size(-1).max(a.size(-2)) as f64;
    let counts = counted(&a, &s, rcond, 10.0 * n);
    let t = |x: &Tensor| x.transpose(-1, -2);
    (t(&vt) * inverses(&s, &counts).unsqueeze(-2)).matmul(&t(&u))
}

/// Least squares: the `x` of least size that makes `‖A·x − b‖` smallest, the squared residuals of the columns, the rank,
/// and the singular values.
#[track_caller]
pub fn lstsq(a: &Tensor, b: &Tensor, rcond: Option<f64>) -> (Tensor, Tensor, Tensor, Tensor) {
    let _here = crate::record::here();
    let a = matrix("lstsq", a);
    if let Some(e) = a.error().or_else(|| b.error()) {
        let bad = Tensor::from_error(e);
        return (bad.clone(), bad.clone(), bad.clone(), bad);
    }
    if a.rank() != 2 || b.rank() == 0 || b.rank() > 2 || b.size(0) != a.size(0) {
        let bad = record::invalid("lstsq", format!("the shapes {} and {} do not form a linear system", a.ty(), b.ty()));
        return (bad.clone(), bad.clone(), bad.clone(), bad);
    }
    let flat = b.rank() == 1;
    let b = if flat { b.unsqueeze(-1) } else { b.clone() };
    let (m, n) = (a.size(0), a.size(1));
    let (u, s, vt) = svd(&a);
    let counts = counted(&a, &s, rcond, m.max(n) as f64);
    let c = inverses(&s, &counts).unsqueeze(-1) * u.t().matmul(&b);
    let x = vt.t().matmul(&c);
    let residuals = np::sum(&(a.matmul(&x) - &b).square(), 0);
    let rank = np::sum(&counts, ());
    (if flat { x.squeeze(-1) } else { x }, residuals, rank, s)
}

/// A square matrix multiplied by itself; a negative power inverts it first.
#[track_caller]
pub fn matrix_power(a: &Tensor, n: i64) -> Tensor {
    let _here = crate::record::here();
    let a = square("matrix_power", a);
    if a.error().is_some() {
        return a;
    }
    let (mut base, mut k) = if n < 0 { (inv(&a), n.unsigned_abs()) } else { (a.clone(), n as u64) };
    let mut result: Option<Tensor> = None;
    while k > 0 {
        if k % 2 == 1 {
            result = Some(result.map_or(base.clone(), |r| r.matmul(&base)));
        }
        k /= 2;
        if k > 0 {
            base = base.matmul(&base);
        }
    }
    result.unwrap_or_else(|| np::broadcast_to(&np::identity(a.size(-1), a.dtype()), a.shape()).copy())
}

/// The product of several matrices in the order that costs least; the first and the last may be vectors.
#[track_caller]
pub fn multi_dot(xs: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    let (Some(first), Some(last)) = (xs.first(), xs.last()) else {
        return record::invalid("multi_dot", "there is nothing to multiply");
    };
    if let Some(e) = xs.iter().find_map(|x| x.error()) {
        return Tensor::from_error(e);
    }
    let n = xs.len();
    let inner = if n > 2 { &xs[1..n - 1] } else { &[] };
    if n < 2
        || first.rank() > 2
        || last.rank() > 2
        || first.rank() * last.rank() == 0
        || inner.iter().any(|x| x.rank() != 2)
    {
        let types: Vec<String> = xs.iter().map(|x| x.ty().to_string()).collect();
        return record::invalid("multi_dot", format!("{} is not a chain of at least two matrices", types.join(", ")));
    }
    let mut sizes: Vec<f64> = vec![if first.rank() == 1 { 1.0 } else { first.size(0) as f64 }];
    sizes.extend(xs.iter().enumerate().map(|(i, x)| match (i + 1 == n, x.rank()) {
        (true, 1) => 1.0,
        (_, 1) => x.size(0) as f64,
        _ => x.size(1) as f64,
    }));
    // best[i][j]: the cost of the product i..=j, and where it is cut.
    let mut best = vec![vec![(0.0, 0); n]; n];
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            let cost = |k: usize| (best[i][k].0 + best[k + 1][j].0 + sizes[i] * sizes[k + 1] * sizes[j + 1], k);
            best[i][j] = (i..j).map(cost).fold((f64::INFINITY, i), |a, b| if b.0 < a.0 { b } else { a });
        }
    }
    chain(xs, &best, 0, n - 1)
}

#[track_caller]
fn chain(xs: &[&Tensor], best: &[Vec<(f64, usize)>], i: usize, j: usize) -> Tensor {
    if i == j {
        return xs[i].clone();
    }
    let k = best[i][j].1;
    chain(xs, best, i, k).matmul(&chain(xs, best, k + 1, j))
}

/// The inverse of a tensor whose first `ind` axes together are as large as the others.
#[track_caller]
pub fn tensorinv(a: &Tensor, ind: usize) -> Tensor {
    let _here = crate::record::here();
    if a.error().is_some() {
        return a.clone();
    }
    if ind == 0 || ind > a.rank() {
        return record::invalid("tensorinv", format!("{} cannot be split at axis {ind}", a.ty()));
    }
    let (head, tail) = a.shape().split_at(ind);
    let (m, n): (usize, usize) = (head.iter().product(), tail.iter().product());
    let shape: Vec<isize> = tail.iter().chain(head).map(|&n| n as isize).collect();
    inv(&a.reshape(&[m as isize, n as isize])).reshape(&shape)
}

/// The `x` with `tensordot(a, x, x's axes) = b`.
#[track_caller]
pub fn tensorsolve(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    if b.rank() > a.rank() {
        return record::invalid(
            "tensorsolve",
            format!("the shapes {} and {} do not form a linear system", a.ty(), b.ty()),
        );
    }
    let shape: Vec<isize> = a.shape()[b.rank()..].iter().map(|&n| n as isize).collect();
    solve(&a.reshape(&[b.numel() as isize, -1]), &np::ravel(b)).reshape(&shape)
}
