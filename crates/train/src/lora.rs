//! Low-rank updates of a projection (LoRA): `x·Wᵀ + scale·x·Aᵀ·Bᵀ`, with A `[rank, in]` and B `[out, rank]`.

use ir::ops::Dot;
use ir::{GraphBuilder, Result, Value};

/// The term that is added to a projection of `x` `[.., in]`: `[.., out]`. It multiplies by A first,
/// so no matrix of the weight's size is materialised.
pub fn delta<B: GraphBuilder + ?Sized>(b: &mut B, x: Value, [down, up]: [Value; 2], scale: f64) -> Result<Value> {
    let ty = b.ty(x);
    let mut y = x;
    for matrix in [down, up] {
        let matrix = b.cast(matrix, ty.dtype)?;
        y = b.one(Dot::last_axes(ty.dtype, ty.rank(), 2).into(), &[y, matrix])?;
    }
    b.scale(y, scale)
}

/// Adds an update to the results of a projection `y` from `start` on.
pub fn add_delta<B: GraphBuilder + ?Sized>(b: &mut B, y: Value, update: Value, start: usize) -> Result<Value> {
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

/// The weight update itself: `scale·B·A`, `[out, in]`.
pub fn delta_weight<B: GraphBuilder + ?Sized>(b: &mut B, [down, up]: [Value; 2], scale: f64) -> Result<Value> {
    let update = b.matmul(up, down)?;
    b.scale(update, scale)
}
