//! Rows of a table by integer ids.

use super::rows::along_row;
use super::{Family, Role, composite, misfit, misfit_arity};
use crate::attr::Attr;
use crate::build::{Build, Builder};
use crate::error::Result;
use crate::graph::Value;
use crate::literal::Literal;
use crate::ops::gather::GatherMode;
use crate::ops::scatter::{ScatterKind, ScatterMode};
use crate::ops::slice_dims::SliceDims;
use crate::ops::{Clamp, Composite, StopGradient};
use crate::scalar::{Compare, Scalar};
use crate::types::Type;

pub(super) const EMBEDDING: Family = Family {
    name: "embedding",
    roles: |_| vec![Role::Shared, Role::Rows],
    build: |p, types| match types {
        [table, ids] => {
            let padding = p.int("padding_idx").and_then(|i| usize::try_from(i).ok());
            embedding(table, ids, padding)
        }
        _ => Err(misfit_arity("embedding", types, "a table and ids")),
    },
    saves: (&[1], &[]),
};

/// `table[ids]` for a table `[V, D]` and integer ids `[..]`: `[.., D]`. Ids outside of the table are clipped. The row
/// `padding_idx` is read like any other, but has no gradient.
///
/// The gradient of the table is summed in f32 or wider: many places may hold one id.
pub fn embedding(table: &Type, ids: &Type, padding_idx: Option<usize>) -> Result<Composite> {
    const NAME: &str = "embedding";
    if table.rank() != 2 || !table.dtype.is_float() || !ids.dtype.is_int() {
        return Err(misfit(NAME, &[table, ids], "needs a float table [V, D] and integer ids"));
    }
    let rows = table.shape[0];
    if rows == 0 || padding_idx.is_some_and(|p| p >= rows) {
        let text = match padding_idx {
            Some(p) => format!("has no row {p} for padding"),
            None => "needs a table with a row".into(),
        };
        return Err(misfit(NAME, &[table, ids], text));
    }
    let mut b = Builder::new();
    let (tv, iv) = (b.graph.input(table.clone()), b.graph.input(ids.clone()));
    let mut y = b.take(tv, iv, 0, GatherMode::Clip)?;
    if let Some(p) = padding_idx {
        let is_padding = equals_row(&mut b, iv, rows, p)?;
        let at = along_row(&mut b, is_padding, y)?;
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
        let is_padding = equals_row(&mut b, iv, rows, p)?;
        let at = along_row(&mut b, is_padding, ga)?;
        let zero = b.full_like(ga, 0.0)?;
        ga = b.select(at, zero, ga)?;
    }
    let zeros = b.zeros(&table.with_dtype(table.dtype.accumulator()))?;
    let vectors = b.index_vectors(iv)?;
    let dims = SliceDims::take(2, 0, ids.rank());
    let dt = b.scatter(ScatterKind::Add, dims, ScatterMode::Clip, zeros, vectors, ga)?;
    let dt = b.cast(dt, table.dtype)?;
    let vjp = b.finish(&[dt]);
    let params = padding_idx.map(|p| ("padding_idx".into(), Attr::Int(p as i64)));
    Ok(composite(NAME, params.into_iter().collect(), body, 1, Some(vjp)))
}

/// Whether each id, clipped to the table, is this row.
fn equals_row(b: &mut Builder, ids: Value, rows: usize, row: usize) -> Result<Value> {
    let ty = b.ty(ids);
    // A bound that the ids' dtype can't reach clips nothing.
    let top = (rows as u64 - 1).min(ty.dtype.int_max());
    let all = |b: &mut Builder, x: u64| -> Result<Value> {
        let c = b.constant(Literal::scalar(Scalar::from_bits(ty.dtype, x)))?;
        b.splat(c, &ty.shape)
    };
    let (low, high) = (all(b, 0)?, all(b, top)?);
    let clipped = b.one(Clamp.into(), &[ids, low, high])?;
    if row as u64 > top {
        // No id reaches the row: nothing is padding.
        return b.compare(Compare::Ne, clipped, clipped);
    }
    let row = all(b, row as u64)?;
    b.compare(Compare::Eq, clipped, row)
}
