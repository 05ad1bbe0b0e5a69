//! Convolution of two signals along the last axis, which a backend may compute by FFT.

use super::{BatchRole, CompositeBuilder, arity_mismatch, composite, operand_mismatch};
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Value;
use crate::ops::window::WindowConfig;
use crate::ops::{Composite, Derivative};
use crate::types::Type;
use std::sync::Arc;

const NAME: &str = "fft_convolve";

pub(super) const FFT_CONVOLVE: CompositeBuilder = CompositeBuilder {
    name: NAME,
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| match types {
        [x, y] => fft_convolve(x, y),
        _ => Err(arity_mismatch(NAME, types, "two signals")),
    },
    saves: (&[0, 1], &[]),
};

/// `z[k] = Σ x[i]·y[k - i]` for `[.., m]` and `[.., n]`: the full convolution, `[.., m + n - 1]`, summed in f64.
///
/// A backend may use an FFT: errors are then relative to the largest element of a row, and a non-finite element affects
/// its whole row.
pub fn fft_convolve(x: &Type, y: &Type) -> Result<Composite> {
    let plain = without_rule(x, y)?;
    let z = plain.body.output_types().remove(0);
    let mut b = Builder::new();
    let (xv, yv) = (b.graph.input(x.clone()), b.graph.input(y.clone()));
    let (_z, g) = (b.graph.input(z.clone()), b.graph.input(z));
    let last = x.rank() - 1;
    let dx = correlate(&mut b, g, yv, x.shape[last])?;
    let dy = correlate(&mut b, g, xv, y.shape[last])?;
    let vjp = b.finish(&[dx, dy]);
    Ok(Composite { derivative: Derivative::Vjp(Arc::new(vjp)), ..plain })
}

/// The composite, differentiated through its body. It is used in the reverse rule, because a composite with a reverse rule there
/// would recurse without end.
fn without_rule(x: &Type, y: &Type) -> Result<Composite> {
    let rank = x.rank();
    if rank == 0 || x.dtype != y.dtype || !x.dtype.is_float() || rank != y.rank() {
        return Err(operand_mismatch(NAME, &[x, y], "needs two floats of one dtype and rank, with at least one axis"));
    }
    let (lead, m, n) = (&x.shape[..rank - 1], x.shape[rank - 1], y.shape[rank - 1]);
    if lead != &y.shape[..rank - 1] || m == 0 || n == 0 {
        return Err(operand_mismatch(NAME, &[x, y], "needs equal leading axes, and signals that aren't empty"));
    }
    let mut shape = x.shape.clone();
    shape[rank - 1] = m + n - 1;
    let z = Type::checked(x.dtype, &shape).map_err(|p| operand_mismatch(NAME, &[x, y], p.to_string()))?;
    let mut b = Builder::new();
    let (xv, yv) = (b.graph.input(x.clone()), b.graph.input(y.clone()));
    let out = direct(&mut b, xv, yv, &z)?;
    Ok(composite(NAME, Vec::new(), b.finish(&[out]), 1, None))
}

/// Computes the rows as the groups of one convolution op, with the kernel reversed.
fn direct(b: &mut Builder, x: Value, y: Value, z: &Type) -> Result<Value> {
    let last = z.rank() - 1;
    let (m, n) = (b.ty(x).shape[last], b.ty(y).shape[last]);
    let rows: usize = z.shape[..last].iter().product();
    if rows == 0 {
        return b.zeros(z);
    }
    let (x, y) = (b.cast(x, DType::F64)?, b.cast(y, DType::F64)?);
    let x = b.reshape(x, &[1, rows, m])?;
    let y = b.flip(y, &[last])?;
    let y = b.reshape(y, &[rows, 1, n])?;
    let v = b.conv(x, y, WindowConfig::strided(&[1], &[n as i64 - 1]), rows)?;
    let v = b.reshape(v, &z.shape)?;
    b.cast(v, z.dtype)
}

/// `Σ g[i + j]·y[j]` for the `keep` positions where `y` fully overlaps `g`: `(g * reversed y)[i + n - 1]`.
fn correlate(b: &mut Builder, g: Value, y: Value, keep: usize) -> Result<Value> {
    let last = b.ty(y).rank() - 1;
    let n = b.ty(y).shape[last];
    let reversed = b.flip(y, &[last])?;
    let op = without_rule(&b.ty(g), &b.ty(reversed))?;
    let full = b.one(op.into(), &[g, reversed])?;
    b.slice_axis(full, last, n - 1, n - 1 + keep)
}
