//! Dropout with random bits as an operand, so that the graph is pure and backward drops the same elements.

use super::{BatchRole, CompositeBuilder, arity_mismatch, composite, float_param, operand_mismatch};
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::literal::Literal;
use crate::ops::Composite;
use crate::scalar::{Compare, Scalar};
use crate::types::Type;

pub(super) const DROPOUT: CompositeBuilder = CompositeBuilder {
    name: "dropout",
    roles: |_| vec![BatchRole::Rows],
    build: |p, types| match types {
        [x, bits] => dropout(x, bits, p.float("rate")?),
        _ => Err(arity_mismatch("dropout", types, "x and random bits")),
    },
    saves: (&[1], &[]),
};

/// `x / (1 - rate)` for kept elements, else 0. An element is kept if its `bits` (u32, uniform) are at least
/// `rate · 2³²`; a bool operand instead of bits is the mask itself.
pub fn dropout(x: &Type, bits: &Type, rate: f64) -> Result<Composite> {
    if !(0.0..=1.0).contains(&rate) {
        return Err(Error::Invalid(format!("dropout needs a rate between 0 and 1, got {rate}")));
    }
    if !x.dtype.is_float() || bits.shape != x.shape || !matches!(bits.dtype, DType::U32 | DType::Bool) {
        let text = "needs a float operand, and u32 bits or a bool mask of the same shape";
        return Err(operand_mismatch("dropout", &[x, bits], text));
    }
    let drop = |b: &mut Builder, x: Value, bits: Value| -> Result<Value> {
        if rate == 1.0 {
            return b.full_like(x, 0.0);
        }
        let scaled = b.scale(x, 1.0 / (1.0 - rate))?;
        let keep = if b.ty(bits).dtype == DType::Bool {
            bits
        } else {
            let shape = b.ty(bits).shape;
            let threshold = Scalar::from_f64(DType::U32, (rate * 4294967296.0).round());
            let threshold = b.constant(Literal::scalar(threshold))?;
            let threshold = b.splat(threshold, &shape)?;
            b.compare(Compare::Ge, bits, threshold)?
        };
        b.zero_unless(keep, scaled)
    };
    let mut b = Builder::new();
    let (xv, bv) = (b.graph.input(x.clone()), b.graph.input(bits.clone()));
    let y = drop(&mut b, xv, bv)?;
    let body = b.finish(&[y]);

    let mut b = Builder::new();
    let (_x, bv) = (b.graph.input(x.clone()), b.graph.input(bits.clone()));
    let (_y, g) = (b.graph.input(x.clone()), b.graph.input(x.clone()));
    let dx = drop(&mut b, g, bv)?;
    let vjp = b.finish(&[dx]);
    Ok(composite("dropout", vec![float_param("rate", rate)], body, 1, Some(vjp)))
}
