//! Normalisations over the last axis.

use super::{Family, Params, Role};
use crate::attr::Attr;
use crate::build::{Build, Builder};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::ops::{Composite, Derivative};
use crate::scalar::{Scalar, Unary};
use crate::types::Type;
use std::sync::Arc;

pub(super) const RMSNORM: Family = Family {
    name: "rmsnorm",
    roles: &[Role::Rows, Role::Shared],
    build: |p: &Params<'_>, types: &[Type]| match types {
        [x, w] => rmsnorm(x, w, p.float("eps")?),
        _ => Err(Error::Invalid("rmsnorm takes x and a weight".into())),
    },
    saves: (&[0, 1], &[1]),
};

/// The dtype that statistics are computed in.
fn wide(dtype: DType) -> DType {
    dtype.accumulator()
}

fn last_axis(x: &Type) -> Result<usize> {
    x.rank()
        .checked_sub(1)
        .ok_or_else(|| Error::Invalid(format!("a norm needs a last axis, got {x}")))
}

/// Repeats a row statistic along the last axis.
fn along_row(b: &mut Builder, stat: Value, like: &Type) -> Result<Value> {
    b.unreduce(stat, &like.shape, &[like.rank() - 1])
}

/// Repeats a weight of the last axis over all rows.
fn over_rows(b: &mut Builder, w: Value, like: &Type) -> Result<Value> {
    b.broadcast(w, &like.shape, &[like.rank() - 1])
}

fn row_mean(b: &mut Builder, x: Value) -> Result<Value> {
    let ty = b.ty(x);
    let axis = ty.rank() - 1;
    let s = b.sum(x, &[axis])?;
    b.scale(s, 1.0 / ty.shape[axis] as f64)
}

/// `rmsnorm(x, w)` = `x · rsqrt(mean(x²) + eps) · w` over the last axis; the second, private result is the factor
/// `rsqrt(mean(x²) + eps)`. Statistics are computed in f32 or wider.
pub fn rmsnorm(x: &Type, w: &Type, eps: f64) -> Result<Composite> {
    let axis = last_axis(x)?;
    if w.shape.as_slice() != [x.shape[axis]] || w.dtype != x.dtype {
        return Err(Error::Invalid(format!(
            "rmsnorm of {x} needs a weight of {}, got {w}",
            x.with_shape(&[x.shape[axis]])
        )));
    }
    let acc = wide(x.dtype);
    let mut b = Builder::new();
    let (xv, wv) = (b.graph.input(x.clone()), b.graph.input(w.clone()));
    let xa = b.cast(xv, acc)?;
    let wide_ty = b.ty(xa);
    let sq = b.mul(xa, xa)?;
    let mean = row_mean(&mut b, sq)?;
    let shifted = b.offset(mean, eps)?;
    let rstd = b.unary(Unary::Rsqrt, shifted)?;
    let r = along_row(&mut b, rstd, &wide_ty)?;
    let wa = b.cast(wv, acc)?;
    let wr = over_rows(&mut b, wa, &wide_ty)?;
    let hat = b.mul(xa, r)?;
    let y = b.mul(hat, wr)?;
    let y = b.cast(y, x.dtype)?;
    let rstd_ty = b.ty(rstd);
    let body = b.finish(&[y, rstd]);

    // dx = r·(g·w - x̂·mean(g·w·x̂)), dw = Σ g·x̂ over rows, with x̂ = x·r.
    let mut b = Builder::new();
    let (xv, wv) = (b.graph.input(x.clone()), b.graph.input(w.clone()));
    let _y = b.graph.input(x.clone());
    let rstd = b.graph.input(rstd_ty);
    let g = b.graph.input(x.clone());
    let (xa, wa, ga) = (b.cast(xv, acc)?, b.cast(wv, acc)?, b.cast(g, acc)?);
    let r = along_row(&mut b, rstd, &wide_ty)?;
    let wr = over_rows(&mut b, wa, &wide_ty)?;
    let hat = b.mul(xa, r)?;
    let gw = b.mul(ga, wr)?;
    let p = b.mul(gw, hat)?;
    let m = row_mean(&mut b, p)?;
    let m = along_row(&mut b, m, &wide_ty)?;
    let mh = b.mul(hat, m)?;
    let diff = b.sub(gw, mh)?;
    let dx = b.mul(diff, r)?;
    let dx = b.cast(dx, x.dtype)?;
    let gh = b.mul(ga, hat)?;
    let rows: Vec<usize> = (0..axis).collect();
    let dw = b.sum(gh, &rows)?;
    let dw = b.cast(dw, w.dtype)?;
    let vjp = b.finish(&[dx, dw]);
    Ok(Composite {
        name: "rmsnorm".into(),
        params: vec![("eps".into(), Attr::Scalar(Scalar::from_f64(DType::F64, eps)))],
        body: Arc::new(body),
        public: 1,
        derivative: Derivative::Vjp(Arc::new(vjp)),
    })
}
