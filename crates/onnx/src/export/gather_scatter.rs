//! Gather and scatter at computed indices. Except for common cases, they use flat indices: the index of each element in row-major
//! order, computed from the index vectors.

use super::writer::{ExportedValue, ModelWriter, int, string};
use crate::error::Result;
use ir::ops::{Gather, GatherMode, Scatter, ScatterKind, ScatterMode, SliceDims};
use ir::types::{offset, row_major};
use ir::{DType, Literal, Scalar, Type};

impl ModelWriter {
    /// For slices of a tensor `operand` at index vectors: the flat index of each of their elements (i64, with the slices' shape),
    /// and whether its slice is in bounds.
    fn flat_indices(
        &mut self,
        dims: &SliceDims,
        operand: &Type,
        indices: &ExportedValue,
        sizes: &[usize],
        slices: &[usize],
        clip: bool,
    ) -> (ExportedValue, ExportedValue) {
        let strides = row_major(&operand.shape);
        let batch_shape = &indices.ty.shape[..indices.ty.rank() - 1];
        let batch_axes: Vec<usize> = (0..slices.len()).filter(|a| !dims.offset.contains(a)).collect();
        let indices = if indices.ty.dtype == DType::U64 {
            // Values beyond i64 are out of bounds on every axis.
            let most = self.scalar(Scalar::from_i64(DType::U64, i64::MAX));
            let i = self.arith("Min", indices, &most);
            self.cast(&i, DType::I64)
        } else {
            self.cast(indices, DType::I64)
        };
        let rank = indices.ty.rank();
        let mut start: Option<ExportedValue> = None;
        let mut inside: Option<ExportedValue> = None;
        for (k, &a) in dims.index_map.iter().enumerate() {
            let component = self.slice_axis(&indices, rank - 1, k, k + 1);
            let component = self.reshape(&component, batch_shape);
            let last = operand.shape[a] as i64 - sizes[a] as i64;
            let (zero, most) =
                (self.scalar(Scalar::from_i64(DType::I64, 0)), self.scalar(Scalar::from_i64(DType::I64, last)));
            let bools = component.ty.with_dtype(DType::Bool);
            let (low, high) = (
                self.node("GreaterOrEqual", &[&component, &zero], &bools),
                self.node("LessOrEqual", &[&component, &most], &bools),
            );
            let both = self.node("And", &[&low, &high], &bools);
            inside = Some(match inside {
                Some(m) => self.node("And", &[&m, &both], &bools),
                None => both,
            });
            // Clamped in any case, so that every index is valid.
            let c = self.arith("Max", &component, &zero);
            let most = self.scalar(Scalar::from_i64(DType::I64, last.max(0)));
            let c = self.arith("Min", &c, &most);
            let stride = self.scalar(Scalar::from_i64(DType::I64, strides[a] as i64));
            let c = self.arith("Mul", &c, &stride);
            start = Some(match start {
                Some(s) => self.arith("Add", &s, &c),
                None => c,
            });
        }
        // The part that doesn't depend on the index vectors: offsets inside a slice and along batch axes.
        let walking: Vec<usize> =
            (0..operand.rank()).filter(|a| !dims.collapsed.contains(a) && !dims.operand_batch.contains(a)).collect();
        let own_shape: Vec<usize> = (0..slices.len())
            .map(|a| {
                let batch = batch_axes.iter().position(|&b| b == a);
                let goes_along = batch.is_some_and(|b| dims.index_batch.contains(&b));
                if batch.is_none() || goes_along { slices[a] } else { 1 }
            })
            .collect();
        let mut fixed = Vec::new();
        ir::types::for_each_index(&own_shape, |index| {
            let mut at = 0usize;
            for (&axis, &a) in dims.offset.iter().zip(&walking) {
                at += index[axis] * strides[a];
            }
            for (&a, &i) in dims.operand_batch.iter().zip(&dims.index_batch) {
                at += offset(&[index[batch_axes[i]]], &[strides[a]]);
            }
            fixed.push(at as i64);
        });
        let fixed = self.literal(&Literal::new(&own_shape, &fixed));
        let places = match start {
            Some(s) => {
                let s = self.broadcast(&s, slices, &batch_axes);
                self.arith("Add", &s, &fixed)
            }
            None => self.expand(&fixed, slices),
        };
        let inside = match inside {
            Some(m) if !clip => self.broadcast(&m, slices, &batch_axes),
            _ => {
                let yes = self.scalar(Scalar::bool(true));
                self.expand(&yes, slices)
            }
        };
        (places, inside)
    }

    pub(super) fn gather(
        &mut self,
        g: &Gather,
        x: &ExportedValue,
        indices: &ExportedValue,
        out: &Type,
    ) -> Result<ExportedValue> {
        let n = x.ty.numel();
        if out.numel() == 0 || n == 0 {
            let fill = match g.mode {
                GatherMode::Fill(s) => s,
                GatherMode::Clip => Scalar::zero(out.dtype),
            };
            let v = self.scalar(fill);
            return Ok(self.expand(&v, &out.shape));
        }
        let clip = matches!(g.mode, GatherMode::Clip);
        let (places, inside) = self.flat_indices(&g.dims, &x.ty, indices, &g.slice_sizes, &out.shape, clip);
        let flat = self.reshape(x, &[n]);
        let y = self.node_with_attributes("Gather", &[&flat, &places], vec![int("axis", 0)], out);
        Ok(match g.mode {
            GatherMode::Clip => y,
            GatherMode::Fill(s) => {
                let fill = self.scalar(s);
                self.node("Where", &[&inside, &y, &fill], out)
            }
        })
    }

    pub(super) fn scatter(
        &mut self,
        s: &Scatter,
        x: &ExportedValue,
        indices: &ExportedValue,
        updates: &ExportedValue,
    ) -> Result<ExportedValue> {
        let (n, m) = (x.ty.numel(), updates.ty.numel());
        if n == 0 || m == 0 {
            return Ok(x.clone());
        }
        let sizes = s.dims.slice_sizes(x.ty.rank(), &updates.ty.shape);
        let clip = s.mode == ScatterMode::Clip;
        let (places, inside) = self.flat_indices(&s.dims, &x.ty, indices, &sizes, &updates.ty.shape, clip);
        // Elements out of bounds are written to an additional element at the end, which is dropped.
        let behind = self.scalar(Scalar::from_i64(DType::I64, n as i64));
        let places = self.node("Where", &[&inside, &places, &behind], &places.ty.clone());
        let reduction = match s.kind {
            ScatterKind::Set => "none",
            ScatterKind::Add => "add",
            ScatterKind::Mul => "mul",
            ScatterKind::Max => "max",
            ScatterKind::Min => "min",
        };
        self.scatter_flat(x, &places, updates, reduction)
    }

    /// Scatters updates to flat indices of a tensor with an additional element, which is dropped.
    fn scatter_flat(
        &mut self,
        x: &ExportedValue,
        places: &ExportedValue,
        updates: &ExportedValue,
        reduction: &str,
    ) -> Result<ExportedValue> {
        let (n, m) = (x.ty.numel(), updates.ty.numel());
        let dtype = x.ty.dtype;
        let wide = if dtype == DType::Bool && reduction != "none" { DType::I32 } else { dtype };
        let (x_wide, updates) = (self.cast(x, wide), self.cast(updates, wide));
        let flat = self.reshape(&x_wide, &[n]);
        let zero = self.scalar(Scalar::zero(wide));
        let longer = self.pad(&flat, &zero, &[0], &[1], &[0]);
        let (places, updates) = (self.reshape(places, &[m]), self.reshape(&updates, &[m]));
        let attributes = vec![int("axis", 0), string("reduction", reduction)];
        let y = self.node_with_attributes("ScatterElements", &[&longer, &places, &updates], attributes, &longer.ty);
        let y = self.slice_axis(&y, 0, 0, n);
        let y = self.reshape(&y, &x.ty.shape);
        Ok(self.cast(&y, dtype))
    }

    /// Clamps the start of a slice.
    fn clamp_start(&mut self, start: &ExportedValue, room: usize) -> ExportedValue {
        let s = if start.ty.dtype == DType::U64 {
            let most = self.scalar(Scalar::from_i64(DType::U64, room as i64));
            let s = self.arith("Min", start, &most);
            self.cast(&s, DType::I64)
        } else {
            self.cast(start, DType::I64)
        };
        let (zero, most) =
            (self.scalar(Scalar::from_i64(DType::I64, 0)), self.scalar(Scalar::from_i64(DType::I64, room as i64)));
        let s = self.arith("Max", &s, &zero);
        self.arith("Min", &s, &most)
    }

    pub(super) fn dynamic_slice(
        &mut self,
        x: &ExportedValue,
        starts: &[ExportedValue],
        sizes: &[usize],
    ) -> ExportedValue {
        let mut y = x.clone();
        for (a, start) in starts.iter().enumerate() {
            let room = x.ty.shape[a] - sizes[a];
            if room == 0 {
                continue;
            }
            let s = self.clamp_start(start, room);
            let steps = self.iota(DType::I64, &[sizes[a]], 0);
            let at = self.arith("Add", &steps, &s);
            let mut shape = y.ty.shape.to_vec();
            shape[a] = sizes[a];
            y = self.node_with_attributes("Gather", &[&y, &at], vec![int("axis", a as i64)], &y.ty.with_shape(&shape));
        }
        y
    }

    pub(super) fn dynamic_update(
        &mut self,
        x: &ExportedValue,
        update: &ExportedValue,
        starts: &[ExportedValue],
    ) -> ExportedValue {
        if update.ty.numel() == 0 || starts.is_empty() {
            return if starts.is_empty() { update.clone() } else { x.clone() };
        }
        let strides = row_major(&x.ty.shape);
        let shape = update.ty.shape.to_vec();
        let mut places: Option<ExportedValue> = None;
        for (a, start) in starts.iter().enumerate() {
            let s = self.clamp_start(start, x.ty.shape[a] - shape[a]);
            let steps = self.iota(DType::I64, &[shape[a]], 0);
            let at = self.arith("Add", &steps, &s);
            let stride = self.scalar(Scalar::from_i64(DType::I64, strides[a] as i64));
            let at = self.arith("Mul", &at, &stride);
            let at = self.broadcast(&at, &shape, &[a]);
            places = Some(match places {
                Some(p) => self.arith("Add", &p, &at),
                None => at,
            });
        }
        match places {
            Some(p) => self.scatter_flat(x, &p, update, "none").unwrap_or_else(|_| x.clone()),
            None => update.clone(),
        }
    }

    /// Indices along an axis: the clamped index, and whether it was in bounds.
    fn clamp_indices(&mut self, i: &ExportedValue, size: usize) -> (ExportedValue, ExportedValue) {
        let i = if i.ty.dtype == DType::U64 {
            let most = self.scalar(Scalar::from_i64(DType::U64, i64::MAX));
            let i = self.arith("Min", i, &most);
            self.cast(&i, DType::I64)
        } else {
            self.cast(i, DType::I64)
        };
        let bools = i.ty.with_dtype(DType::Bool);
        let (zero, n) =
            (self.scalar(Scalar::from_i64(DType::I64, 0)), self.scalar(Scalar::from_i64(DType::I64, size as i64)));
        let (low, high) = (self.node("GreaterOrEqual", &[&i, &zero], &bools), self.node("Less", &[&i, &n], &bools));
        let inside = self.node("And", &[&low, &high], &bools);
        (self.node("Where", &[&inside, &i, &zero], &i.ty.clone()), inside)
    }

    pub(super) fn take_along(&mut self, x: &ExportedValue, i: &ExportedValue, axis: usize) -> ExportedValue {
        let ty = i.ty.with_dtype(x.ty.dtype);
        let zero = self.scalar(Scalar::zero(x.ty.dtype));
        if ty.numel() == 0 || x.ty.numel() == 0 {
            return self.expand(&zero, &ty.shape);
        }
        let (at, inside) = self.clamp_indices(i, x.ty.shape[axis]);
        let y = self.node_with_attributes("GatherElements", &[x, &at], vec![int("axis", axis as i64)], &ty);
        self.node("Where", &[&inside, &y, &zero], &ty)
    }

    pub(super) fn put_along(&mut self, y: &ExportedValue, i: &ExportedValue, axis: usize, out: &Type) -> ExportedValue {
        let zero = self.scalar(Scalar::zero(out.dtype));
        let zeros = self.expand(&zero, &out.shape);
        if y.ty.numel() == 0 || out.numel() == 0 {
            return zeros;
        }
        let (at, inside) = self.clamp_indices(i, out.shape[axis]);
        let kept = self.node("Where", &[&inside, y, &zero], &y.ty);
        let attributes = vec![int("axis", axis as i64), string("reduction", "add")];
        self.node_with_attributes("ScatterElements", &[&zeros, &at, &kept], attributes, out)
    }
}
