//! Permutations and samples without order.

use super::bits::draw;
use crate::{DType, Tensor, record};
use ir::ops::{GatherMode, Sort};

/// How often sorting by random words makes collisions of words negligible.
fn rounds(n: usize) -> usize {
    (3.0 * (n.max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize
}

/// `0..n` in random order, as i32.
///
/// ```
/// use tensorloom::random;
///
/// let mut p = random::permutation(&random::key(3), 10).to_vec::<i32>()?;
/// p.sort();
/// assert_eq!(p, (0..10).collect::<Vec<i32>>());
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn permutation(key: &Tensor, n: usize) -> Tensor {
    let _here = crate::record::here();
    let mut key = key.clone();
    let mut x = crate::engine_of(&key).arange(DType::I32, n);
    for _ in 0..rounds(n) {
        let (next, sub) = super::split2(&key);
        key = next;
        x = record::many(2, &[&sub, &x], |b, v| {
            let words = draw(b, v[0], &[n], DType::U32)?;
            let op = Sort { axis: 0, num_keys: 1, descending: false };
            b.emit(op.into(), &[words, v[1]])
        })
        .swap_remove(1);
    }
    x
}

/// The slices of `x` along an axis in random order.
#[track_caller]
pub fn shuffle(key: &Tensor, x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    let order = permutation(key, x.size(axis));
    take(x, &order, axis)
}

#[track_caller]
fn take(x: &Tensor, indices: &Tensor, axis: isize) -> Tensor {
    record::one(&[x, indices], |b, v| {
        let ty = b.ty(v[0]);
        let axis = record::axis("take", &ty, axis)?;
        b.take(v[0], v[1], axis, GatherMode::fill(ty.dtype))
    })
}

/// Slices of `a` along its first axis, drawn with or without putting back, with probabilities `p` if given.
///
/// ```
/// use tensorloom::{arange, random};
///
/// let x = random::choice(&random::key(0), &arange(5), &[5], false, None);
/// let mut v = x.to_vec::<i64>()?;
/// v.sort();
/// assert_eq!(v, [0, 1, 2, 3, 4]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn choice(key: &Tensor, a: &Tensor, shape: &[usize], replace: bool, p: Option<&Tensor>) -> Tensor {
    let _here = crate::record::here();
    if a.error().is_some() {
        return a.clone();
    }
    let n = a.shape().first().copied().unwrap_or(0);
    let draws: usize = shape.iter().product();
    if n == 0 || (!replace && draws > n) {
        return record::invalid("choice", format!("{draws} draws from {} along its first axis", a.ty()));
    }
    let index = match p {
        None if replace => super::randint(key, shape, DType::I32, 0, n as i64),
        None => permutation(key, n).narrow(0, 0, draws),
        Some(p) if p.shape() != [n] => {
            return record::invalid("choice", format!("the probabilities are {}, not one for each of {n}", p.ty()));
        }
        Some(p) if replace => weighted(key, p, shape),
        Some(p) => {
            let noise = super::gumbel(key, &[n], record::float_of(p.dtype()));
            crate::lax::top_k(&(noise + p.log()), draws).1
        }
    };
    let index = index.reshape(&shape.iter().map(|&n| n as isize).collect::<Vec<_>>());
    take(a, &index, 0)
}

/// Where uniform numbers fall in the running sums of probabilities.
#[track_caller]
fn weighted(key: &Tensor, p: &Tensor, shape: &[usize]) -> Tensor {
    let n = p.numel();
    let u = super::uniform(key, shape, record::float_of(p.dtype()), 0.0, 1.0);
    record::one(&[p, &u], |b, v| {
        let sums = b.cumulative(ir::ops::ReduceKind::Sum, v[0], 0, false)?;
        let last = b.slice_axis(sums, 0, n - 1, n)?;
        let last = b.reshape(last, &[])?;
        let last = b.broadcast_to(last, shape)?;
        let minus = b.neg(v[1])?;
        let rest = b.offset(minus, 1.0)?;
        let r = b.mul(last, rest)?;
        let wide: Vec<usize> = shape.iter().copied().chain([n]).collect();
        let r = b.broadcast(r, &wide, &(0..shape.len()).collect::<Vec<_>>())?;
        let sums = b.broadcast_to(sums, &wide)?;
        let below = b.compare(ir::Compare::Lt, sums, r)?;
        let below = b.cast(below, DType::I32)?;
        b.sum(below, &[shape.len()])
    })
}
