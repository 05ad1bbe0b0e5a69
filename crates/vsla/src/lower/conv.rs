//! Convolution along the last axis, by Toeplitz matrix products or by a Fourier transform.
//!
//! Both algorithms compute `y[k] = Σ a[i]·b[k - i]` in f64. The gradient of either operand is the correlation of the cotangent
//! with the other operand, which is a convolution with the other operand reversed.

use super::{ProgramLowering, promote, slice_leading};
use crate::error::Result;
use crate::infer::ValueSignature;
use crate::shape::common;
use cpu::{CONVOLUTION_COSTS as COSTS, convolution_points};
use ir::composites::convolve::fft_convolve;
use ir::ops::{Composite, Derivative, Dot};
use ir::{Builder, DType, Graph, GraphBuilder, Type, Value};
use std::sync::Arc;

/// The algorithm of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvAlgorithm {
    /// By sums of products.
    Direct,
    /// By a Fourier transform.
    Fft,
}

/// The number of rows of a Toeplitz block. The longer operand is split into pieces of this length.
const TOEPLITZ_BLOCK: usize = 64;
/// The maximum number of overlapping blocks that are added as shifted rows.
const MAX_SHIFTED_BLOCKS: usize = 6;

/// Returns the cheaper algorithm for operands of lengths `m` and `n`, by the backend's cost model.
pub fn conv_path(m: usize, n: usize) -> ConvAlgorithm {
    let (short, long) = (m.min(n), m.max(n));
    if short <= 1 {
        return ConvAlgorithm::Direct;
    }
    let points = convolution_points(m + n - 1) as f64;
    let transform = points * points.log2() * COSTS.transform + COSTS.transform_call;
    if direct_cost(short, long) <= transform { ConvAlgorithm::Direct } else { ConvAlgorithm::Fft }
}

fn direct_cost(short: usize, long: usize) -> f64 {
    if unrolls(short, long) {
        return COSTS.call + short as f64 * (COSTS.term + long as f64 * COSTS.shifted);
    }
    let rows = piece_length(long);
    let (pieces, width) = (long.div_ceil(rows) as f64, short + rows - 1);
    let (matrix, blocks) = ((rows * width) as f64, width.div_ceil(rows));
    let skewed = if blocks > MAX_SHIFTED_BLOCKS { pieces * (pieces + blocks as f64) * rows as f64 } else { 0.0 };
    COSTS.call + matrix * (pieces * COSTS.blocked + COSTS.toeplitz) + skewed * COSTS.skewed
}

/// Whether the convolution is a sum of shifted products, one for each element of the shorter operand.
fn unrolls(short: usize, long: usize) -> bool {
    short <= if long < TOEPLITZ_BLOCK { 4 } else { 24 }
}

/// Returns the length of the pieces that the longer operand is split into.
fn piece_length(long: usize) -> usize {
    TOEPLITZ_BLOCK.min(long.next_multiple_of(8))
}

impl ProgramLowering {
    pub(super) fn conv(&mut self, x: Value, y: Value, out: &ValueSignature) -> Result<Value> {
        let b = &mut self.builder;
        let (xs, ys) = (b.ty(x).shape, b.ty(y).shape);
        let last = xs.len() - 1;
        // Batch entries that one operand lacks are zero, and so is their convolution.
        let batch = common(&xs[..last], &ys[..last]);
        if batch.contains(&0) {
            return Ok(b.zeros(&out.ty())?);
        }
        let rows: usize = batch.iter().product();
        let (m, n) = (xs[last], ys[last]);
        let x = slice_leading(b, x, &[&batch[..], &[m]].concat())?;
        let x = b.reshape(x, &[rows, m])?;
        let y = slice_leading(b, y, &[&batch[..], &[n]].concat())?;
        let y = b.reshape(y, &[rows, n])?;
        let op = composite(out.dtype, rows, m, n, self.numerics.conv)?;
        let v = b.one(op.into(), &[x, y])?;
        let v = b.reshape(v, &[&batch[..], &[m + n - 1]].concat())?;
        promote(b, v, &out.shape)
    }
}

/// Returns the composite `[rows, m] * [rows, n] -> [rows, m + n - 1]` with its gradient.
fn composite(dtype: DType, rows: usize, m: usize, n: usize, path: Option<ConvAlgorithm>) -> Result<Composite> {
    let (xt, yt) = (Type::new(dtype, &[rows, m]), Type::new(dtype, &[rows, n]));
    let zt = Type::new(dtype, &[rows, m + n - 1]);
    let mut b = Builder::new();
    let (x, y) = (b.graph.input(xt.clone()), b.graph.input(yt.clone()));
    let z = product(&mut b, x, y, path)?;
    let body = b.finish(&[z]);

    let mut b = Builder::new();
    let (x, y) = (b.graph.input(xt), b.graph.input(yt));
    let (_z, g) = (b.graph.input(zt.clone()), b.graph.input(zt));
    // corr(g, y)[i] = Σ g[i + j]·y[j] = (g * reversed y)[i + n - 1].
    let dx = correlate(&mut b, g, y, m, path)?;
    let dy = correlate(&mut b, g, x, n, path)?;
    let vjp = b.finish(&[dx, dy]);
    Ok(named(body, vjp))
}

fn named(body: Graph, vjp: Graph) -> Composite {
    Composite {
        name: "vsla.conv1d".to_string(),
        params: Vec::new(),
        body: Arc::new(body),
        num_public_outputs: 1,
        derivative: Derivative::Vjp(Arc::new(vjp)),
    }
}

/// Returns the `keep` elements of the correlation of `g` with `y` at which `y` overlaps `g` completely.
fn correlate(b: &mut Builder, g: Value, y: Value, keep: usize, path: Option<ConvAlgorithm>) -> Result<Value> {
    let n = b.ty(y).shape[1];
    let reversed = b.flip(y, &[1])?;
    let full = product(b, g, reversed, path)?;
    Ok(b.slice_axis(full, 1, n - 1, n - 1 + keep)?)
}

fn product(b: &mut Builder, x: Value, y: Value, path: Option<ConvAlgorithm>) -> Result<Value> {
    let dtype = b.ty(x).dtype;
    let (m, n) = (b.ty(x).shape[1], b.ty(y).shape[1]);
    if path.unwrap_or_else(|| conv_path(m, n)) == ConvAlgorithm::Fft {
        let op = fft_convolve(&b.ty(x), &b.ty(y))?;
        return Ok(b.one(op.into(), &[x, y])?);
    }
    let (x, y) = (b.cast(x, DType::F64)?, b.cast(y, DType::F64)?);
    let (short, long) = if m <= n { (x, y) } else { (y, x) };
    let z =
        if unrolls(m.min(n), m.max(n)) { shifted_products(b, short, long)? } else { toeplitz_blocks(b, short, long)? };
    Ok(b.cast(z, dtype)?)
}

/// Computes `Σ short[i] · (long shifted by i)`.
fn shifted_products(b: &mut Builder, short: Value, long: Value) -> Result<Value> {
    let (s, l) = (b.ty(short).shape[1], b.ty(long).shape[1]);
    let rows = b.ty(short).shape[0];
    let shape = [rows, s + l - 1];
    let zero = b.scalar(DType::F64, 0.0)?;
    let mut sum: Option<Value> = None;
    for i in 0..s {
        let c = b.slice_axis(short, 1, i, i + 1)?;
        let c = b.broadcast(c, &shape, &[0, 1])?;
        let shifted = b.pad(long, zero, &[0, i as i64], &[0, (s - 1 - i) as i64], &[0, 0])?;
        let term = b.mul(c, shifted)?;
        sum = b.add_optional(sum, Some(term))?;
    }
    Ok(sum.expect("the shorter operand is not empty"))
}

/// Splits the longer operand into pieces, multiplies each by a Toeplitz matrix of the shorter, and adds the overlapping results.
fn toeplitz_blocks(b: &mut Builder, short: Value, long: Value) -> Result<Value> {
    let (rows, s) = (b.ty(short).shape[0], b.ty(short).shape[1]);
    let l = b.ty(long).shape[1];
    let p = piece_length(l);
    let q = l.div_ceil(p);
    let width = s + p - 1;
    // T[i, k] = short[k - i]: the rows of `short` with p zeros appended, reshaped with a row length that is smaller by one.
    let padded = promote(b, short, &[rows, s + p])?;
    let many = b.broadcast(padded, &[rows, p, s + p], &[0, 2])?;
    let flat = b.reshape(many, &[rows, p * (s + p)])?;
    let flat = slice_leading(b, flat, &[rows, p * width])?;
    let toeplitz = b.reshape(flat, &[rows, p, width])?;
    let pieces = promote(b, long, &[rows, q * p])?;
    let pieces = b.reshape(pieces, &[rows, q, p])?;
    let parts = b.one(Dot::batched_matmul(DType::F64, 1).into(), &[pieces, toeplitz])?;
    let blocks = width.div_ceil(p);
    let sum = if blocks <= MAX_SHIFTED_BLOCKS {
        add_overlapping(b, parts, p)?
    } else {
        add_overlapping_by_reshape(b, parts, blocks)?
    };
    slice_leading(b, sum, &[rows, s + l - 1])
}

/// Adds overlapping blocks: column block `c` of piece `k` is added at offset `(k + c)·p`, as a sum of shifted rows.
fn add_overlapping(b: &mut Builder, parts: Value, p: usize) -> Result<Value> {
    let shape = b.ty(parts).shape;
    let (rows, q, width) = (shape[0], shape[1], shape[2]);
    let blocks = width.div_ceil(p);
    let zero = b.scalar(DType::F64, 0.0)?;
    let mut sum: Option<Value> = None;
    for c in 0..blocks {
        let limit = ((c + 1) * p).min(width);
        let block = b.slice_axis(parts, 2, c * p, limit)?;
        let block = promote(b, block, &[rows, q, p])?;
        let line = b.reshape(block, &[rows, q * p])?;
        let high = ((blocks - 1 - c) * p) as i64;
        let line = b.pad(line, zero, &[0, (c * p) as i64], &[0, high], &[0, 0])?;
        sum = b.add_optional(sum, Some(line))?;
    }
    Ok(sum.expect("a matrix has columns"))
}

/// Adds many overlapping blocks: a reshape with a row length that is smaller by one block aligns them, then a reduction adds
/// them.
fn add_overlapping_by_reshape(b: &mut Builder, parts: Value, blocks: usize) -> Result<Value> {
    let shape = b.ty(parts).shape;
    let (rows, q) = (shape[0], shape[1]);
    let wide = q + blocks;
    let padded = promote(b, parts, &[rows, q, wide * TOEPLITZ_BLOCK])?;
    let flat = b.reshape(padded, &[rows, q * wide, TOEPLITZ_BLOCK])?;
    let flat = slice_leading(b, flat, &[rows, q * (wide - 1), TOEPLITZ_BLOCK])?;
    let stacked = b.reshape(flat, &[rows, q, wide - 1, TOEPLITZ_BLOCK])?;
    let sum = b.sum(stacked, &[1])?;
    Ok(b.reshape(sum, &[rows, (wide - 1) * TOEPLITZ_BLOCK])?)
}
