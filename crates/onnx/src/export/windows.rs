//! Exports reductions of sliding windows: a slice for each element of the window, combined elementwise.

use super::export_error;
use super::writer::{ExportedValue, ModelWriter, ints, signed};
use crate::error::Result;
use ir::ops::{ReduceKind, ReduceWindow};

/// Windows of more elements are not supported.
const MAX_WINDOW_ELEMENTS: usize = 1024;

impl ModelWriter {
    pub(super) fn reduce_window(&mut self, r: &ReduceWindow, x: &ExportedValue) -> Result<ExportedValue> {
        let rank = x.ty.rank();
        let w = &r.windows;
        let dtype = x.ty.dtype;
        let identity = self.scalar(r.kind.identity(dtype));
        let interior: Vec<usize> = w.base_dilation.iter().map(|d| d - 1).collect();
        let padded = self.pad(x, &identity, &w.low, &w.high, &interior);
        let spans: Vec<usize> = (0..rank).map(|a| r.window[a].saturating_sub(1) * w.window_dilation[a] + 1).collect();
        let counts: Vec<usize> = (0..rank)
            .map(|a| match padded.ty.shape[a] {
                _ if r.window[a] == 0 => 0,
                n if n < spans[a] => 0,
                n => (n - spans[a]) / w.strides[a] + 1,
            })
            .collect();
        if counts.contains(&0) || r.window.contains(&0) {
            // Windows without elements, or no windows at all.
            let shape: Vec<usize> = ir::ops::Op::from(r.clone())
                .infer(std::slice::from_ref(&x.ty))
                .map(|t| t[0].shape.to_vec())
                .map_err(|p| export_error("reduce_window", &p.to_string()))?;
            return Ok(self.expand(&identity, &shape));
        }
        let pooled = rank >= 3 && r.window[..2] == [1, 1] && w.strides[..2] == [1, 1];
        if r.kind == ReduceKind::Max && pooled && dtype.is_float() {
            let attributes = vec![
                ints("kernel_shape", &signed(&r.window[2..])),
                ints("strides", &signed(&w.strides[2..])),
                ints("dilations", &signed(&w.window_dilation[2..])),
            ];
            return Ok(self.node_with_attributes("MaxPool", &[&padded], attributes, &x.ty.with_shape(&counts)));
        }
        let cells: usize = r.window.iter().product();
        if cells > MAX_WINDOW_ELEMENTS {
            return Err(export_error(
                r.kind.name(),
                &format!("windows of {cells} elements cannot be unrolled: the maximum is {MAX_WINDOW_ELEMENTS}"),
            ));
        }
        let mut sum: Option<ExportedValue> = None;
        for cell in 0..cells {
            let (mut rest, mut start) = (cell, vec![0; rank]);
            for a in (0..rank).rev() {
                start[a] = rest % r.window[a] * w.window_dilation[a];
                rest /= r.window[a];
            }
            let limit: Vec<usize> = (0..rank).map(|a| start[a] + (counts[a] - 1) * w.strides[a] + 1).collect();
            let part = self.slice(&padded, &start, &limit, &w.strides);
            sum = Some(match sum {
                None => part,
                Some(s) => self.binary_op(r.kind.combine(), &s, &part)?,
            });
        }
        sum.ok_or_else(|| export_error(r.kind.name(), "a window without elements"))
    }
}
