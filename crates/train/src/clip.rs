//! Gradients that are shortened where they are too long.

use ir::{Build, Compare, Result, Value};

/// The sum of a gradient's squares.
pub fn sum_of_squares<B: Build + ?Sized>(b: &mut B, g: Value) -> Result<Value> {
    let square = b.mul(g, g)?;
    b.sum_all(square)
}

/// The factor that shortens something of length `norm` to `limit`, if it is longer; 1e-6 is added to the norm as PyTorch does.
pub fn shrink<B: Build + ?Sized>(b: &mut B, norm: Value, limit: f64) -> Result<Value> {
    let below = b.offset(norm, 1e-6)?;
    let dtype = b.ty(norm).dtype;
    let limit = b.scalar(dtype, limit)?;
    let ratio = b.div(limit, below)?;
    let one = b.scalar(dtype, 1.0)?;
    let long = b.compare(Compare::Lt, ratio, one)?;
    b.select(long, ratio, one)
}
