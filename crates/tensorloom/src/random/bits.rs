//! Keys and random bits.

use crate::{DType, Tensor, record};
use ir::{Binary, GraphBuilder, Scalar, Type, Value};

/// The key of a seed.
#[track_caller]
pub fn key(seed: u64) -> Tensor {
    let _here = crate::record::here();
    crate::tensor(&[(seed >> 32) as u32, seed as u32], &[2])
}

/// The two halves of a key.
pub(super) fn halves(b: &mut dyn GraphBuilder, key: Value) -> ir::Result<[Value; 2]> {
    let ty = b.ty(key);
    if ty != Type::new(DType::U32, &[2]) {
        return Err(record::misfit("random", &[ty], "a key must be u32[2]; map over several with vmap"));
    }
    let mut half = |i| {
        let h = b.slice_axis(key, 0, i, i + 1)?;
        b.reshape(h, &[])
    };
    Ok([half(0)?, half(1)?])
}

/// One block for each place of a shape: counters are places in row-major order.
fn blocks(b: &mut dyn GraphBuilder, key: Value, shape: &[usize]) -> ir::Result<[Value; 2]> {
    let key = halves(b, key)?;
    let ty = Type::checked(DType::U32, shape).map_err(|p| record::misfit("random", &[], p.to_string()))?;
    if ty.numel() > u32::MAX as usize {
        return Err(record::misfit("random", &[ty], "more than 2³² draws from one key; split it"));
    }
    let low = b.iota(DType::U32, &[ty.numel()], 0)?;
    let low = b.reshape(low, shape)?;
    let high = b.zeros(&ty)?;
    let k = [b.splat(key[0], shape)?, b.splat(key[1], shape)?];
    b.threefry2x32(k, [high, low])
}

/// `n` new keys, `u32[n, 2]`.
///
/// ```
/// use tensorloom::random;
///
/// let keys = random::split(&random::key(0), 2);
/// assert_eq!(keys.to_vec::<u32>()?, [1797259609, 2579123966, 928981903, 3453687069]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn split(key: &Tensor, n: usize) -> Tensor {
    let _here = crate::record::here();
    record::one(&[key], |b, v| {
        let [x, y] = blocks(b, v[0], &[n])?;
        let (x, y) = (b.reshape(x, &[n, 1])?, b.reshape(y, &[n, 1])?);
        b.concat(&[x, y], 1)
    })
}

/// Two new keys.
#[track_caller]
pub fn split2(key: &Tensor) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let keys = split(key, 2);
    (keys.index(0, 0), keys.index(0, 1))
}

/// A new key from a key and a number, such as a step or a layer.
#[track_caller]
pub fn fold_in(key: &Tensor, data: u32) -> Tensor {
    let _here = crate::record::here();
    record::one(&[key], |b, v| {
        let k = halves(b, v[0])?;
        let high = b.scalar(DType::U32, 0.0)?;
        let low = b.constant(ir::Literal::scalar(Scalar::from_i64(DType::U32, i64::from(data))))?;
        let [x, y] = b.threefry2x32(k, [high, low])?;
        let (x, y) = (b.reshape(x, &[1])?, b.reshape(y, &[1])?);
        b.concat(&[x, y], 0)
    })
}

/// Random bits of an unsigned dtype.
#[track_caller]
pub fn bits(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::one(&[key], |b, v| draw(b, v[0], shape, dtype))
}

pub(super) fn draw(b: &mut dyn GraphBuilder, key: Value, shape: &[usize], dtype: DType) -> ir::Result<Value> {
    let [x, y] = blocks(b, key, shape)?;
    match dtype {
        DType::U64 => {
            let (x, y) = (b.cast(x, dtype)?, b.cast(y, dtype)?);
            let by = b.full_like(x, 32.0)?;
            let x = b.binary(Binary::Shl, x, by)?;
            b.binary(Binary::Or, x, y)
        }
        DType::U8 | DType::U16 | DType::U32 => {
            let z = b.binary(Binary::Xor, x, y)?;
            b.cast(z, dtype)
        }
        other => Err(record::misfit("bits", &[Type::scalar(other)], "random bits need an unsigned dtype")),
    }
}

/// The unsigned dtype of a width.
pub(super) fn unsigned(bits: u32) -> DType {
    match bits {
        8 => DType::U8,
        16 => DType::U16,
        32 => DType::U32,
        _ => DType::U64,
    }
}
