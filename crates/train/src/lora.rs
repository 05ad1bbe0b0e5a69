//! Low-rank updates of a projection (LoRA): `x·Wᵀ + scale·x·Aᵀ·Bᵀ`, with A `[rank, in]` and B `[out, rank]`.

use ir::ops::Dot;
use ir::{Build, Result, Value};

/// What is added to a projection of `x` `[.., in]`: `[.., out]`. The product through the rank comes first, so nothing as large
/// as the matrix is made.
pub fn update<B: Build + ?Sized>(b: &mut B, x: Value, [down, up]: [Value; 2], scale: f64) -> Result<Value> {
    let ty = b.ty(x);
    let mut y = x;
    for matrix in [down, up] {
        let matrix = b.cast(matrix, ty.dtype)?;
        y = b.one(Dot::last_axes(ty.dtype, ty.rank(), 2).into(), &[y, matrix])?;
    }
    b.scale(y, scale)
}

/// A projection `y` with an update added to its results from `start` on.
pub fn add<B: Build + ?Sized>(b: &mut B, y: Value, update: Value, start: usize) -> Result<Value> {
    let ty = b.ty(y);
    let update = b.cast(update, ty.dtype)?;
    let last = ty.rank() - 1;
    let size = b.ty(update).shape[last];
    let (mut low, mut high) = (vec![0; last + 1], vec![0; last + 1]);
    low[last] = start as i64;
    high[last] = (ty.shape[last] - start - size) as i64;
    let zero = b.scalar(ty.dtype, 0.0)?;
    let wide = b.pad(update, zero, &low, &high, &vec![0; last + 1])?;
    b.add(y, wide)
}

/// The update of the matrix itself: `scale·B·A`, `[out, in]`.
pub fn matrix<B: Build + ?Sized>(b: &mut B, [down, up]: [Value; 2], scale: f64) -> Result<Value> {
    let update = b.matmul(up, down)?;
    b.scale(update, scale)
}
