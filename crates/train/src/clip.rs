//! Gradient clipping by norm.

use ir::{Compare, GraphBuilder, Result, Value};

/// The sum of a gradient's squares.
pub fn sum_of_squares<B: GraphBuilder + ?Sized>(b: &mut B, g: Value) -> Result<Value> {
    let square = b.mul(g, g)?;
    b.sum_all(square)
}

/// The factor that scales a gradient of norm `norm` down to the norm `limit`, or 1; 1e-6 is added to the norm as PyTorch does.
pub fn clip_factor<B: GraphBuilder + ?Sized>(b: &mut B, norm: Value, limit: f64) -> Result<Value> {
    let below = b.offset(norm, 1e-6)?;
    let dtype = b.ty(norm).dtype;
    let limit = b.scalar(dtype, limit)?;
    let ratio = b.div(limit, below)?;
    let one = b.scalar(dtype, 1.0)?;
    let long = b.compare(Compare::Lt, ratio, one)?;
    b.select(long, ratio, one)
}
