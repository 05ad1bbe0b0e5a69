//! Inserting, deleting, writing at indices; flat and multi-dimensional indices.

use super::{need_rank, ravel, signed};
use crate::Operand;
use crate::record;
use crate::{DType, ReduceAxes, Tensor, engine_of, lax};

/// `x` without the slices at indices along an axis, or without those elements in order.
#[track_caller]
pub fn delete(x: &Tensor, indices: &[isize], axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("delete", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let Some(axis) = axis else {
        return delete(&ravel(x), indices, Some(0));
    };
    if let Some(e) = need_rank("delete", x, 1) {
        return e;
    }
    let n = x.size(axis) as isize;
    let gone: Vec<isize> = indices.iter().map(|&i| if i < 0 { i + n } else { i }).collect();
    if let Some(i) = gone.iter().find(|i| !(0..n).contains(*i)) {
        return record::invalid("delete", format!("index {i} is outside an axis of {n}"));
    }
    let kept: Vec<i64> = (0..n).filter(|i| !gone.contains(i)).map(|i| i as i64).collect();
    super::take(x, &engine_of(x).tensor(&kept, &[kept.len()]), Some(axis))
}

/// `x` with values before the slice at an index along an axis, or before that element in order.
#[track_caller]
pub fn insert(x: &Tensor, at: usize, values: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("insert", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let Some(axis) = axis else {
        return insert(&ravel(x), at, &ravel(values), Some(0));
    };
    if let Some(e) = need_rank("insert", x, 1) {
        return e;
    }
    let (n, rank) = (x.size(axis), x.rank());
    if at > n {
        return record::invalid("insert", format!("index {at} is outside an axis of {n}"));
    }
    let a = if axis < 0 { axis + rank as isize } else { axis };
    let values = if values.rank() < rank {
        // New axes stand in front; the entries have none along `axis`.
        (values.rank()..rank - 1).fold(values.clone(), |v, _| v.unsqueeze(0)).unsqueeze(a)
    } else {
        values.clone()
    };
    let mut shape = signed(x.shape());
    shape[a as usize] = values.size(axis) as isize;
    let values = values.expand(&shape).cast(x.dtype());
    let (head, tail) = (x.slice(axis, 0, at as isize, 1), x.slice(axis, at as isize, n as isize, 1));
    Tensor::concat(&[&head, &values, &tail], axis)
}

/// `x` with values, repeated as needed, at flat indices.
#[track_caller]
pub fn put(x: &Tensor, indices: &Tensor, values: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let (index, values) = (ravel(indices), ravel(values));
    if values.numel() == 0 {
        return x.clone();
    }
    let spread = resize(&values, &[index.numel()]);
    lax::index_set(&ravel(x), &[&index], &spread).reshape(&signed(x.shape()))
}

/// `x` with one value for each index along an axis; the other axes go along.
#[track_caller]
pub fn put_along_axis(x: &Tensor, indices: &Tensor, values: impl Into<Operand>, axis: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("put_along_axis", x, 1).or_else(|| need_rank("put_along_axis", indices, 1)) {
        return e;
    }
    let rank = x.rank();
    if indices.rank() != rank {
        return record::invalid("put_along_axis", format!("{} and {} need equally many axes", x.ty(), indices.ty()));
    }
    let axis = match record::axis("put_along_axis", x.ty(), axis) {
        Ok(a) => a,
        Err(e) => return Tensor::from_error(e.at(&crate::record::place()).into()),
    };
    let index: Vec<Tensor> = (0..rank)
        .map(|a| match a == axis {
            true => indices.clone(),
            false => record::one(&[indices], |b, v| {
                let shape = b.ty(v[0]).shape;
                b.iota(DType::I64, &shape, a)
            }),
        })
        .collect();
    let values = values.into().to_tensor_like(x).expand(&signed(indices.shape()));
    lax::index_set(x, &index.iter().collect::<Vec<_>>(), &values)
}

/// `x` with a value along its main diagonal.
#[track_caller]
pub fn fill_diagonal(x: &Tensor, value: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("fill_diagonal", x, 2) {
        return e;
    }
    let n = x.shape().iter().copied().min().unwrap_or(0);
    let at = engine_of(x).arange(DType::I64, n);
    lax::index_set(x, &vec![&at; x.rank()], &value.into().to_tensor_like(x))
}

/// The elements in order, repeated or cut to a shape.
#[track_caller]
pub fn resize(x: &Tensor, shape: &[usize]) -> Tensor {
    let _here = crate::record::here();
    let (n, m) = (shape.iter().product::<usize>(), x.numel());
    if m == 0 && n > 0 {
        return record::invalid("resize", format!("{} has no elements to repeat", x.ty()));
    }
    let flat = ravel(x);
    let long = if n > m { super::tile(&flat, &[n.div_ceil(m.max(1))]) } else { flat };
    long.slice(0, 0, n as isize, 1).reshape(&signed(shape))
}

/// The indices along each axis of flat indices into a shape.
#[track_caller]
pub fn unravel_index(flat: &Tensor, shape: &[usize]) -> Vec<Tensor> {
    let _here = crate::record::here();
    let mut rest = flat.cast(DType::I64);
    let mut index = Vec::new();
    for &n in shape.iter().rev() {
        let (q, r) = super::divmod(&rest, n.max(1));
        index.push(r);
        rest = q;
    }
    index.reverse();
    index
}

/// The flat index into a shape of indices along each axis, which are moved inside.
#[track_caller]
pub fn ravel_multi_index(index: &[&Tensor], shape: &[usize]) -> Tensor {
    let _here = crate::record::here();
    let (Some(first), true) = (index.first(), index.len() == shape.len()) else {
        let text = format!("{} indices for {} axes", index.len(), shape.len());
        return record::invalid("ravel_multi_index", text);
    };
    let zero = super::zeros_like(first).cast(DType::I64);
    index.iter().zip(shape).fold(zero, |flat, (i, &n)| {
        let i = super::clip(&i.cast(DType::I64), Some(0.into()), Some((n.max(1) - 1).into()));
        flat * n as i64 + i
    })
}

/// Row and column indices on the host of the part of a matrix where a test holds.
#[track_caller]
fn part(n: usize, m: usize, test: impl Fn(i64) -> bool) -> (Tensor, Tensor) {
    let all = (0..n).flat_map(|r| (0..m).map(move |c| (r as i64, c as i64)));
    let (rows, columns): (Vec<i64>, Vec<i64>) = all.filter(|(r, c)| test(c - r)).unzip();
    (crate::tensor(&rows, &[rows.len()]), crate::tensor(&columns, &[columns.len()]))
}

/// The indices on and below the k-th diagonal of an `n`×`m` matrix.
#[track_caller]
pub fn tril_indices(n: usize, k: i64, m: usize) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    part(n, m, |d| d <= k)
}

/// The indices on and above the k-th diagonal of an `n`×`m` matrix.
#[track_caller]
pub fn triu_indices(n: usize, k: i64, m: usize) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    part(n, m, |d| d >= k)
}

/// The indices on and below the k-th diagonal of a matrix.
#[track_caller]
pub fn tril_indices_from(x: &Tensor, k: i64) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    tril_indices(x.size(-2), k, x.size(-1))
}

/// The indices on and above the k-th diagonal of a matrix.
#[track_caller]
pub fn triu_indices_from(x: &Tensor, k: i64) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    triu_indices(x.size(-2), k, x.size(-1))
}
