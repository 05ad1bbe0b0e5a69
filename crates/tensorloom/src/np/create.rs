//! New tensors, and facts about dtypes.

use super::need_rank;
use crate::record;
use crate::{DType, Data, Dims, Number, Operand, Tensor, engine, engine_of};
use ir::{Compare, GraphBuilder, Scalar, Type, Value};

/// A tensor from data in row-major order.
#[track_caller]
pub fn array(data: impl Data, shape: impl Dims) -> Tensor {
    let _here = crate::record::here();
    crate::tensor(data, shape)
}

/// Zeros.
#[track_caller]
pub fn zeros(shape: impl Dims, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::sizes("zeros", &shape).map_or_else(|bad| bad, |shape| engine().zeros(dtype, &shape))
}

/// Ones.
#[track_caller]
pub fn ones(shape: impl Dims, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::sizes("ones", &shape).map_or_else(|bad| bad, |shape| engine().ones(dtype, &shape))
}

/// One number everywhere.
#[track_caller]
pub fn full(shape: impl Dims, x: impl Into<Number>, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::sizes("full", &shape).map_or_else(|bad| bad, |shape| engine().full(dtype, &shape, x))
}

/// Zeros of the same shape and dtype.
#[track_caller]
pub fn zeros_like(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    full_like(x, 0)
}

/// Ones of the same shape and dtype.
#[track_caller]
pub fn ones_like(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    full_like(x, 1)
}

/// One number everywhere, with the same shape and dtype.
#[track_caller]
pub fn full_like(x: &Tensor, n: impl Into<Number>) -> Tensor {
    let _here = crate::record::here();
    if x.error().is_some() {
        return x.clone();
    }
    engine_of(x).full(x.dtype(), x.shape(), n)
}

/// Numbers computed on the host.
#[track_caller]
fn host(dtype: DType, n: usize, f: impl Fn(usize) -> f64) -> Tensor {
    let ty = Type::new(dtype, &[n]);
    engine().literal(&ir::Literal::from_fn(ty, |i| Scalar::from_f64(dtype, f(i))))
}

/// `start, start + step, ..` up to but without `stop`, as f32; use [`crate::arange`] for indices.
#[track_caller]
pub fn arange(start: f64, stop: f64, step: f64) -> Tensor {
    let _here = crate::record::here();
    let n = ((stop - start) / step).ceil();
    if !(n.is_finite() && n < 1e12) {
        return record::invalid("arange", format!("the range from {start} to {stop} by {step} is infinite"));
    }
    host(DType::F32, n.max(0.0) as usize, |i| start + i as f64 * step)
}

/// `n` numbers from `start` to `stop`, which is the last unless `endpoint` is off.
#[track_caller]
pub fn linspace(start: f64, stop: f64, n: usize, endpoint: bool, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    host(dtype, n, |i| point(start, stop, n, endpoint, i))
}

fn point(start: f64, stop: f64, n: usize, endpoint: bool, i: usize) -> f64 {
    let steps = if endpoint { n.saturating_sub(1) } else { n };
    if endpoint && i + 1 == n && n > 1 {
        return stop;
    }
    start + i as f64 * ((stop - start) / steps.max(1) as f64)
}

/// `n` powers of a base, their exponents evenly spaced.
#[track_caller]
pub fn logspace(start: f64, stop: f64, n: usize, endpoint: bool, base: f64, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    host(dtype, n, |i| base.powf(point(start, stop, n, endpoint, i)))
}

/// `n` numbers in geometric progression.
#[track_caller]
pub fn geomspace(start: f64, stop: f64, n: usize, endpoint: bool, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let (a, b) = (start.abs().log10(), stop.abs().log10());
    host(dtype, n, |i| match i {
        0 => start,
        i if endpoint && i + 1 == n => stop,
        i => start.signum() * 10f64.powf(point(a, b, n, endpoint, i)),
    })
}

/// Where column − row compares with `k`.
fn band(b: &mut dyn GraphBuilder, shape: &[usize], by: Compare, k: i64) -> ir::Result<Value> {
    let rank = shape.len();
    let row = b.iota(DType::I64, shape, rank - 2)?;
    let column = b.iota(DType::I64, shape, rank - 1)?;
    let d = b.sub(column, row)?;
    let k = b.full_like(d, k as f64)?;
    b.compare(by, d, k)
}

/// Ones on the k-th diagonal.
#[track_caller]
pub fn eye(n: usize, m: usize, k: i64, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::one(&[], |b, _| {
        let c = band(b, &[n, m], Compare::Eq, k)?;
        b.cast(c, dtype)
    })
}

/// The identity matrix.
#[track_caller]
pub fn identity(n: usize, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    eye(n, n, 0, dtype)
}

/// Ones on and below the k-th diagonal.
#[track_caller]
pub fn tri(n: usize, m: usize, k: i64, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::one(&[], |b, _| {
        let c = band(b, &[n, m], Compare::Le, k)?;
        b.cast(c, dtype)
    })
}

#[track_caller]
fn triangle(op: &'static str, x: &Tensor, by: Compare, k: i64) -> Tensor {
    if let Some(e) = need_rank(op, x, 2) {
        return e;
    }
    record::one(&[x], |b, v| {
        let shape = b.ty(v[0]).shape;
        let c = band(b, &shape, by, k)?;
        b.zero_unless(c, v[0])
    })
}

/// The elements on and below the k-th diagonal of matrices, zeros above.
#[track_caller]
pub fn tril(x: &Tensor, k: i64) -> Tensor {
    let _here = crate::record::here();
    triangle("tril", x, Compare::Le, k)
}

/// The elements on and above the k-th diagonal of matrices, zeros below.
#[track_caller]
pub fn triu(x: &Tensor, k: i64) -> Tensor {
    let _here = crate::record::here();
    triangle("triu", x, Compare::Ge, k)
}

/// A function of index tensors, one for each axis.
#[track_caller]
pub fn fromfunction(f: impl Fn(&[Tensor]) -> Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let axes: Vec<Tensor> = (0..shape.len()).map(|a| record::one(&[], |b, _| b.iota(dtype, shape, a))).collect();
    let _user = engine::enter_user_code();
    f(&axes)
}

/// The index along each axis, stacked.
#[track_caller]
pub fn indices(shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    fromfunction(
        |axes| match axes {
            [] => engine().zeros(dtype, &[0]),
            axes => Tensor::stack(&axes.iter().collect::<Vec<_>>(), 0),
        },
        shape,
        dtype,
    )
}

/// Coordinate tensors from coordinate vectors; `xy` gives the second the rows, `ij` the first.
#[track_caller]
pub fn meshgrid(xs: &[&Tensor], indexing: &str) -> Vec<Tensor> {
    let _here = crate::record::here();
    let mut shape: Vec<isize> = xs.iter().map(|x| x.numel() as isize).collect();
    let xy = indexing == "xy" && xs.len() > 1;
    if xy {
        shape.swap(0, 1);
    }
    let along = |(i, x): (usize, &&Tensor)| {
        let axis = match i {
            0 | 1 if xy => 1 - i,
            i => i,
        };
        let own: Vec<isize> = (0..shape.len()).map(|a| if a == axis { -1 } else { 1 }).collect();
        x.reshape(&own).expand(&shape).copy()
    };
    xs.iter().enumerate().map(along).collect()
}

/// Powers of a vector as columns, highest first unless `increasing`.
#[track_caller]
pub fn vander(x: &Tensor, n: Option<usize>, increasing: bool) -> Tensor {
    let _here = crate::record::here();
    let n = n.unwrap_or(x.numel());
    let mut columns: Vec<Tensor> = Vec::new();
    let mut power = ones_like(x);
    for _ in 0..n {
        columns.push(power.clone());
        power = &power * x;
    }
    if !increasing {
        columns.reverse();
    }
    if columns.is_empty() {
        return engine_of(x).zeros(x.dtype(), &[x.numel(), 0]);
    }
    Tensor::stack(&columns.iter().collect::<Vec<_>>(), -1)
}

macro_rules! windows {
    ($($(#[$doc:meta])* $name:ident => $f:expr),* $(,)?) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(n: usize) -> Tensor {
            let _here = crate::record::here();
            let f: fn(f64) -> f64 = $f;
            host(DType::F32, n, |i| if n == 1 { 1.0 } else { f(i as f64 / (n - 1) as f64) })
        }
    )* };
}

fn cos_turn(x: f64) -> f64 {
    (2.0 * std::f64::consts::PI * x).cos()
}

windows! {
    /// Bartlett's triangular window.
    bartlett => |x| 1.0 - (2.0 * x - 1.0).abs(),
    /// Blackman's window.
    blackman => |x| 0.42 - 0.5 * cos_turn(x) + 0.08 * cos_turn(2.0 * x),
    /// Hamming's window.
    hamming => |x| 0.54 - 0.46 * cos_turn(x),
    /// Hann's window.
    hanning => |x| 0.5 - 0.5 * cos_turn(x),
}

/// Facts about a float dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatInfo {
    /// Bits.
    pub bits: u32,
    /// The spacing of numbers at 1.
    pub eps: f64,
    /// The largest number.
    pub max: f64,
    /// The smallest normal number.
    pub tiny: f64,
}

/// Facts about a float dtype; none for others.
pub fn finfo(dtype: DType) -> Option<FloatInfo> {
    let eps = match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => return None,
    };
    let tiny = match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => 2f64.powi(-14),
        _ => f64::from(f32::MIN_POSITIVE),
    };
    Some(FloatInfo { bits: dtype.bits(), eps, max: super::largest(dtype), tiny })
}

/// The least and the largest number of an integer dtype; none for others.
pub fn iinfo(dtype: DType) -> Option<(i128, i128)> {
    (!dtype.is_float() && dtype != DType::Bool).then(|| crate::random::range(dtype))
}

/// The dtype of results of two dtypes.
pub fn promote_types(a: DType, b: DType) -> Option<DType> {
    a.promote(b)
}

/// The dtype of results of several tensors.
pub fn result_type(xs: &[&Tensor]) -> Option<DType> {
    let (first, rest) = xs.split_first()?;
    rest.iter().try_fold(first.dtype(), |d, x| d.promote(x.dtype()))
}

/// Converts the elements.
#[track_caller]
pub fn astype(x: &Tensor, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    x.cast(dtype)
}

/// A number or tensor as a tensor.
#[track_caller]
pub fn asarray(x: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    x.into().to_tensor_like(&crate::zeros(&[]))
}

/// Kaiser's window with a shape parameter.
#[track_caller]
pub fn kaiser(n: usize, beta: f64) -> Tensor {
    let _here = crate::record::here();
    // The series of I₀ in f64; its terms fall fast for any useful beta.
    let i0 = |x: f64| {
        let q = x * x / 4.0;
        let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
        while term > sum * 1e-17 {
            term *= q / (k * k);
            sum += term;
            k += 1.0;
        }
        sum
    };
    let at = |i: usize| 2.0 * i as f64 / (n.max(2) - 1) as f64 - 1.0;
    host(DType::F32, n, |i| if n == 1 { 1.0 } else { i0(beta * (1.0 - at(i) * at(i)).max(0.0).sqrt()) / i0(beta) })
}

/// A vector from the bytes of its elements, little-endian.
#[track_caller]
pub fn frombuffer(bytes: &[u8], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    match ir::Literal::from_bytes(Type::new(dtype, &[bytes.len() / dtype.size()]), bytes) {
        Some(l) => engine().literal(&l),
        None => {
            record::invalid("frombuffer", format!("{} bytes are not a whole number of {dtype} elements", bytes.len()))
        }
    }
}
