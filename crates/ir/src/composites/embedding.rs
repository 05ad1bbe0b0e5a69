//! Embedding lookup: rows of a table by integer indices.

use super::rows::broadcast_along_row;
use super::{BatchRole, CompositeBuilder, arity_mismatch, composite, operand_mismatch};
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::error::Result;
use crate::graph::Value;
use crate::literal::Literal;
use crate::ops::gather::GatherMode;
use crate::ops::scatter::{ScatterKind, ScatterMode};
use crate::ops::slice_dims::SliceDims;
use crate::ops::{Composite, StopGradient};
use crate::scalar::{Compare, Scalar};
use crate::types::Type;

pub(super) const EMBEDDING: CompositeBuilder = CompositeBuilder {
    name: "embedding",
    roles: |_| vec![BatchRole::Shared, BatchRole::Rows],
    build: |p, types| match types {
        [table, ids] => {
            let padding = p.int("padding_idx").and_then(|i| usize::try_from(i).ok());
            embedding(table, ids, padding)
        }
        _ => Err(arity_mismatch("embedding", types, "a table and ids")),
    },
    saves: (&[1], &[]),
};

/// `table[ids]` for a table `[V, D]` and integer indices `[..]`: `[.., D]`. An index out of range gives NaN, as an invalid
/// label does in a loss, and has no gradient, so that the error is visible. The row `padding_idx` is read like any
/// other, but has no gradient.
///
/// The gradient of the table is summed in f32 or wider, because many positions may have one index.
pub fn embedding(table: &Type, ids: &Type, padding_idx: Option<usize>) -> Result<Composite> {
    const NAME: &str = "embedding";
    if table.rank() != 2 || !table.dtype.is_float() || !ids.dtype.is_int() {
        return Err(operand_mismatch(NAME, &[table, ids], "needs a float table [V, D] and integer ids"));
    }
    let rows = table.shape[0];
    if rows == 0 || padding_idx.is_some_and(|p| p >= rows) {
        let text = match padding_idx {
            Some(p) => format!("has no row {p} for padding"),
            None => "needs a table with a row".into(),
        };
        return Err(operand_mismatch(NAME, &[table, ids], text));
    }
    let mut b = Builder::new();
    let (tv, iv) = (b.graph.input(table.clone()), b.graph.input(ids.clone()));
    let mut y = b.take(tv, iv, 0, GatherMode::fill(table.dtype))?;
    if let Some(p) = padding_idx {
        let is_padding = equals_row(&mut b, iv, p)?;
        let at = broadcast_along_row(&mut b, is_padding, y)?;
        let fixed = b.one(StopGradient.into(), &[y])?;
        y = b.select(at, fixed, y)?;
    }
    let out = b.ty(y);
    let body = b.finish(&[y]);

    let mut b = Builder::new();
    let (_table, iv) = (b.graph.input(table.clone()), b.graph.input(ids.clone()));
    let (_y, g) = (b.graph.input(out.clone()), b.graph.input(out));
    let mut ga = b.cast(g, table.dtype.accumulator())?;
    if let Some(p) = padding_idx {
        let is_padding = equals_row(&mut b, iv, p)?;
        let at = broadcast_along_row(&mut b, is_padding, ga)?;
        let zero = b.full_like(ga, 0.0)?;
        ga = b.select(at, zero, ga)?;
    }
    let zeros = b.zeros(&table.with_dtype(table.dtype.accumulator()))?;
    let vectors = b.index_vectors(iv)?;
    let dims = SliceDims::take(2, 0, ids.rank());
    let dt = b.scatter(ScatterKind::Add, dims, ScatterMode::Drop, zeros, vectors, ga)?;
    let dt = b.cast(dt, table.dtype)?;
    let vjp = b.finish(&[dt]);
    let params = padding_idx.map(|p| ("padding_idx".into(), Attr::Int(p as i64)));
    Ok(composite(NAME, params.into_iter().collect(), body, 1, Some(vjp)))
}

/// Whether each index is this row.
fn equals_row(b: &mut Builder, ids: Value, row: usize) -> Result<Value> {
    let ty = b.ty(ids);
    if row as u64 > ty.dtype.int_max() {
        // The index dtype cannot represent the row: nothing is padding.
        return b.compare(Compare::Ne, ids, ids);
    }
    let row = b.constant(Literal::scalar(Scalar::from_bits(ty.dtype, row as u64)))?;
    let row = b.splat(row, &ty.shape)?;
    b.compare(Compare::Eq, ids, row)
}
