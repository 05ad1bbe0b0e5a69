//! Integers, choices among a few.

use super::bits::{draw, unsigned};
use super::uniform::{gumbel_of, sample, unit};
use crate::{DType, Operand, Tensor, record};
use ir::{Binary, Compare, Scalar, Type, Unary};

/// Uniform integers in `[minval, maxval)`.
///
/// ```
/// use tensorloom::{DType, random};
///
/// let die = random::randint(&random::key(7), &[100], DType::I32, 1, 7);
/// assert!(die.to_vec::<i32>()?.iter().all(|d| (1..7).contains(d)));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn randint(key: &Tensor, shape: &[usize], dtype: DType, minval: i64, maxval: i64) -> Tensor {
    let _here = crate::record::here();
    if dtype.bits() < 32 && !dtype.is_float() && dtype != DType::Bool {
        // Narrow integers are drawn in 32 bits, so that the remainder hardly favours any.
        let (least, most) = range(dtype);
        let clip = |x: i64, most: i128| i128::from(x).clamp(least, most) as i64;
        let wide = randint(key, shape, DType::I32, clip(minval, most), clip(maxval, most + 1));
        return wide.cast(dtype);
    }
    let keys = super::split(key, 2);
    record::one(&[&keys], |b, v| {
        if dtype.is_float() || dtype == DType::Bool {
            return Err(record::misfit("randint", &[Type::scalar(dtype)], "samples need an integer dtype"));
        }
        let (least, most) = range(dtype);
        let (low, high) = (i128::from(minval).clamp(least, most), i128::from(maxval).clamp(least, most));
        let word = unsigned(dtype.bits());
        let modulus = 1i128 << dtype.bits();
        let mut span = if high <= low { 1 } else { high - low };
        if i128::from(maxval) > most && high > low {
            span = (span + 1) % modulus;
        }
        let mut halves = Vec::new();
        for i in 0..2 {
            let k = b.slice_axis(v[0], 0, i, i + 1)?;
            let k = b.reshape(k, &[2])?;
            halves.push(draw(b, k, shape, word)?);
        }
        let ty = b.ty(halves[0]);
        let number = |x: i128| Scalar::from_bits(word, (x % modulus) as u64);
        // Two words make one twice as wide, modulo the span.
        let rem = |x: i128, by: i128| if by == 0 { x } else { x % by };
        let half = rem(1 << (dtype.bits() / 2), span);
        let multiplier = rem(half * half % modulus, span);
        let span_v = b.full(&ty, number(span))?;
        let multiplier = b.full(&ty, number(multiplier))?;
        let rem = |b: &mut dyn ir::GraphBuilder, x| if span == 0 { Ok(x) } else { b.binary(Binary::Rem, x, span_v) };
        let high_part = rem(b, halves[0])?;
        let high_part = b.mul(high_part, multiplier)?;
        let low_part = rem(b, halves[1])?;
        let sum = b.add(high_part, low_part)?;
        let offset = rem(b, sum)?;
        let offset = b.cast(offset, dtype)?;
        let ty = b.ty(offset);
        let low = b.full(&ty, Scalar::from_bits(dtype, low as u64))?;
        b.add(low, offset)
    })
}

/// The least and the largest value of an integer dtype.
pub(crate) fn range(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) {
        (0, (1 << bits) - 1)
    } else {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    }
}

/// True with probability `p`, a number or an f32 or f64 tensor that broadcasts to the shape.
#[track_caller]
pub fn bernoulli(key: &Tensor, shape: &[usize], p: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let p = p.into();
    let dtype = p.tensor().map_or(DType::F32, |t| record::float_of(t.dtype()));
    sample(key, shape, dtype, [p], |b, key, [p]| {
        let u = unit(b, key, shape, dtype)?;
        b.compare(Compare::Lt, u, p)
    })
}

/// −1 or 1.
#[track_caller]
pub fn rademacher(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let coin = bernoulli(key, shape, 0.5).cast(dtype);
    &coin + &coin - 1
}

/// The number of trials up to the first success, of probability `p`.
#[track_caller]
pub fn geometric(key: &Tensor, shape: &[usize], dtype: DType, p: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let p = p.into();
    let float = p.tensor().map_or(DType::F32, |t| record::float_of(t.dtype()));
    sample(key, shape, float, [p], |b, key, [p]| {
        let u = unit(b, key, shape, float)?;
        let (zero, one) = (b.full_like(u, 0.0)?, b.full_like(u, 1.0)?);
        let is_zero = b.compare(Compare::Eq, u, zero)?;
        let u = b.select(is_zero, one, u)?;
        let n = b.neg(p)?;
        let (x, y) = (b.unary(Unary::Log, u)?, b.unary(Unary::Log1p, n)?);
        let q = b.div(x, y)?;
        let f = b.unary(Unary::Floor, q)?;
        let g = b.offset(f, 1.0)?;
        b.cast(g, dtype)
    })
}

/// Indices drawn with the probabilities `softmax(logits)` along an axis. The shape is `prefix` and then that of the other
/// axes of the logits. Gives i32.
///
/// ```
/// use tensorloom::{random, tensor};
///
/// let logits = tensor(&[0.0f32, -50.0], &[2]);
/// assert_eq!(random::categorical(&random::key(1), &logits, -1, &[3]).to_vec::<i32>()?, [0, 0, 0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn categorical(key: &Tensor, logits: &Tensor, axis: isize, prefix: &[usize]) -> Tensor {
    let _here = crate::record::here();
    record::one(&[key, logits], |b, v| {
        let ty = b.ty(v[1]);
        let axis = record::axis("categorical", &ty, axis)?;
        let shape: Vec<usize> = prefix.iter().chain(&ty.shape).copied().collect();
        let noise = gumbel_of(b, v[0], &shape, ty.dtype)?;
        let logits = b.broadcast_to(v[1], &shape)?;
        let x = b.add(noise, logits)?;
        b.argmax(x, prefix.len() + axis, DType::I32)
    })
}
