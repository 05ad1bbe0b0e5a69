//! Dropout in training steps, with a random key that the caller changes at every step.

use ir::{Compare, DType, GraphBuilder, Result, Value};

/// Sets a fraction of the elements of `x` to zero and scales the others up. `key` is `u32[2]`; equal keys and streams give equal masks.
pub fn dropout<B: GraphBuilder + ?Sized>(b: &mut B, x: Value, key: Value, stream: Value, share: f64) -> Result<Value> {
    let ty = b.ty(x);
    let n = ty.numel();
    let word = |b: &mut B, i: usize| -> Result<Value> {
        let word = b.slice_axis(key, 0, i, i + 1)?;
        let word = b.reshape(word, &[])?;
        b.splat(word, &[n])
    };
    let keys = [word(b, 0)?, word(b, 1)?];
    let stream = b.cast(stream, DType::U32)?;
    let (stream, place) = (b.splat(stream, &[n])?, b.iota(DType::U32, &[n], 0)?);
    let [bits, _] = b.threefry2x32(keys, [stream, place])?;
    let limit = b.scalar(DType::U32, (share * 4_294_967_296.0).floor())?;
    let limit = b.splat(limit, &[n])?;
    let left_out = b.compare(Compare::Lt, bits, limit)?;
    let left_out = b.reshape(left_out, &ty.shape)?;
    let kept = b.scale(x, 1.0 / (1.0 - share))?;
    let zero = b.full_like(x, 0.0)?;
    b.select(left_out, zero, kept)
}
