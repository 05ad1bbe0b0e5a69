//! Counting into bins.

use super::{need_rank, ravel, searchsorted, where_};
use crate::{DType, Tensor, engine_of, lax, record};

/// How often each of `0..n` occurs.
#[track_caller]
pub fn bincount(x: &Tensor, n: usize) -> Tensor {
    let _here = crate::record::here();
    let zeros = engine_of(x).zeros(DType::I64, &[n]);
    let one = engine_of(x).ones(DType::I64, &[]);
    // A negative index would count from the end; here it is none.
    let at = where_(&super::less(x, 0), n, x);
    lax::index_add(&zeros, &[&ravel(&at)], &one)
}

/// Which bin each element falls into, for edges in increasing or decreasing order: how many edges are not beyond it, or
/// with `right` how many it is beyond.
#[track_caller]
pub fn digitize(x: &Tensor, bins: &Tensor, right: bool) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("digitize", bins, 1) {
        return e;
    }
    let n = bins.size(0);
    if n < 2 {
        return searchsorted(bins, x, !right);
    }
    // Decreasing edges count from their end.
    let falls = super::greater(&bins.index(0, 0), &bins.index(0, -1));
    let i = searchsorted(&falls.select(&bins.flip(&[0]), bins), x, !right);
    falls.select(&(n as i64 - &i), &i)
}

/// The edges of equal bins over a range, or over all elements.
#[track_caller]
pub fn histogram_bin_edges(x: &Tensor, bins: usize, range: Option<(f64, f64)>) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(record::float_of(x.dtype()));
    record::rounded([&x], |[x]| edges_of(&x, bins, range))
}

fn edges_of(x: &Tensor, bins: usize, range: Option<(f64, f64)>) -> Tensor {
    let number = |v: f64| engine_of(x).full(x.dtype(), &[], v);
    let (low, high) = match range {
        Some((a, b)) => (number(a), number(b)),
        // As NumPy has it where there are no elements.
        None if x.numel() == 0 => (number(0.0), number(1.0)),
        None => (super::min(x, ()), super::max(x, ())),
    };
    // A range without width is widened, as NumPy does.
    let flat = low.eq(&high);
    let (low, high) = (where_(&flat, &(&low - 0.5), &low), where_(&flat, &(&high + 0.5), &high));
    // As NumPy has it, so that numbers at an edge fall into the same bin.
    let inner = super::arange(0.0, bins as f64 + 1.0, 1.0).cast(x.dtype()) * ((&high - &low) / bins as f64) + &low;
    // The last edge is the end itself.
    let at = engine_of(x).tensor(&[bins as i64], &[1]);
    lax::index_set(&inner, &[&at], &high.unsqueeze(0))
}

/// The bin of each element, the last edge included; `bins` for those outside.
#[track_caller]
fn bin_of(x: &Tensor, edges: &Tensor) -> Tensor {
    let bins = edges.numel() - 1;
    let i = searchsorted(edges, x, true) - 1;
    let i = where_(&x.eq(&edges.index(0, bins as isize)), bins - 1, &i);
    where_(&super::less(&i, 0), bins, &i)
}

/// How many elements fall into each of equal bins, and the edges.
///
/// ```
/// use tensorloom::{np, tensor};
///
/// let (counts, edges) = np::histogram(&tensor(&[0.0f32, 1.0, 2.0, 4.0], &[4]), 2, None);
/// assert_eq!((counts.to_vec::<i64>()?, edges.to_vec::<f32>()?), (vec![2, 2], vec![0.0, 2.0, 4.0]));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn histogram(x: &Tensor, bins: usize, range: Option<(f64, f64)>) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    if bins == 0 {
        let bad = record::invalid("histogram", "there are no bins");
        return (bad.clone(), bad);
    }
    let edges = histogram_bin_edges(x, bins, range);
    (bincount(&bin_of(&ravel(x).cast(edges.dtype()), &edges), bins), edges)
}

/// How many points, which are rows, fall into each of equal bins along every coordinate, and the edges.
#[track_caller]
pub fn histogramdd(points: &Tensor, bins: &[usize]) -> (Tensor, Vec<Tensor>) {
    let _here = crate::record::here();
    let bad = |e: Tensor| (e.clone(), vec![e; bins.len()]);
    if let Some(e) = need_rank("histogramdd", points, 2) {
        return bad(e);
    }
    if points.size(1) != bins.len() || bins.contains(&0) {
        return bad(record::invalid("histogramdd", format!("{} has no coordinates for bins {bins:?}", points.ty())));
    }
    let columns: Vec<Tensor> = (0..bins.len()).map(|k| points.index(1, k as isize)).collect();
    let edges: Vec<Tensor> = columns.iter().zip(bins).map(|(c, &n)| histogram_bin_edges(c, n, None)).collect();
    let at: Vec<Tensor> = columns.iter().zip(&edges).map(|(c, e)| bin_of(&c.cast(e.dtype()), e)).collect();
    let zeros = engine_of(points).zeros(DType::I64, bins);
    let one = engine_of(points).ones(DType::I64, &[]);
    (lax::index_add(&zeros, &at.iter().collect::<Vec<_>>(), &one), edges)
}

/// [`histogramdd`] of two coordinates.
#[track_caller]
pub fn histogram2d(x: &Tensor, y: &Tensor, bins: [usize; 2]) -> (Tensor, Tensor, Tensor) {
    let (counts, mut edges) = histogramdd(&Tensor::stack(&[&ravel(x), &ravel(y)], 1), &bins);
    let second = edges.swap_remove(1);
    (counts, edges.swap_remove(0), second)
}
