//! Exports contractions and convolutions.

use super::export_error;
use super::writer::{ExportedValue, ModelWriter, int, ints, signed};
use crate::error::Result;
use ir::ops::{Conv, Dot, RaggedDot, RaggedMode, ReduceKind};
use ir::{DType, Type};

impl ModelWriter {
    /// Transposes to the order batch, free, contracted (and the reverse), then uses one MatMul.
    pub(super) fn dot(&mut self, d: &Dot, a: &ExportedValue, b: &ExportedValue, out: &Type) -> ExportedValue {
        let size = |v: &ExportedValue, axes: &[usize]| -> usize { axes.iter().map(|&i| v.ty.shape[i]).product() };
        let (fa, fb) = (d.lhs_free(a.ty.rank()), d.rhs_free(b.ty.rank()));
        let batch = size(a, &d.lhs_batch);
        let (m, k, n) = (size(a, &fa), size(a, &d.lhs_contract), size(b, &fb));
        // Types that MatMul supports; narrow floats are summed in the accumulator's type.
        let own = a.ty.dtype;
        let wide = match own {
            DType::I8 | DType::I16 | DType::U8 | DType::U16 if d.acc.size() <= 4 => DType::I32,
            DType::I8 | DType::I16 | DType::U8 | DType::U16 => d.acc,
            _ => d.acc,
        };
        let (a, b) = (self.cast(a, wide), self.cast(b, wide));
        let order = |x: &[usize], y: &[usize], z: &[usize]| -> Vec<usize> { [x, y, z].concat() };
        let a = self.permute(&a, &order(&d.lhs_batch, &fa, &d.lhs_contract));
        let b = self.permute(&b, &order(&d.rhs_batch, &d.rhs_contract, &fb));
        if m == 0 || n == 0 || k == 0 || batch == 0 {
            // A sum of no terms is 0.
            let zero = self.scalar(ir::Scalar::zero(out.dtype));
            return self.expand(&zero, &out.shape);
        }
        let plain = d.lhs_batch.is_empty();
        let (a, b) = if plain {
            (self.reshape(&a, &[m, k]), self.reshape(&b, &[k, n]))
        } else {
            (self.reshape(&a, &[batch, m, k]), self.reshape(&b, &[batch, k, n]))
        };
        let shape = if plain { vec![m, n] } else { vec![batch, m, n] };
        let y = self.node("MatMul", &[&a, &b], &Type::new(wide, &shape));
        let y = self.reshape(&y, &out.shape);
        self.cast(&y, out.dtype)
    }

    /// The mask of rows that belong to each group, `[.., groups, rows]`.
    fn groups(&mut self, offsets: &ExportedValue, rows: usize) -> Result<ExportedValue> {
        let rank = offsets.ty.rank();
        let (axis, n) = (rank - 1, offsets.ty.shape[rank - 1] - 1);
        let o = self.cast(offsets, DType::I64);
        let (zero, most) = (self.number(DType::I64, 0.0), self.number(DType::I64, rows as f64));
        let o = self.extremum("Max", &o, &zero);
        let o = self.extremum("Min", &o, &most);
        let o = self.cumulative(ReduceKind::Max, &o, axis, false)?;
        let mut shape = o.ty.shape.to_vec();
        shape[axis] = n;
        shape.push(1);
        let (from, to) = (self.slice_axis(&o, axis, 0, n), self.slice_axis(&o, axis, 1, n + 1));
        let (from, to) = (self.reshape(&from, &shape), self.reshape(&to, &shape));
        shape[rank] = rows;
        let row = self.iota(DType::I64, &[rows], 0);
        let truth = Type::new(DType::Bool, &shape);
        let (begun, ended) =
            (self.node("GreaterOrEqual", &[&row, &from], &truth), self.node("Less", &[&row, &to], &truth));
        Ok(self.node("And", &[&begun, &ended], &truth))
    }

    /// ONNX has no grouped products: every group multiplies all rows, with the rows of other groups set to zero.
    pub(super) fn ragged_dot(
        &mut self,
        d: &RaggedDot,
        a: &ExportedValue,
        b: &ExportedValue,
        offsets: &ExportedValue,
        out: &Type,
    ) -> Result<ExportedValue> {
        let n = d.batch;
        let (rows, width) = (a.ty.shape[n], a.ty.shape[n + 1]);
        let count = offsets.ty.shape[n] - 1;
        if out.numel() == 0 || rows == 0 || width == 0 || count == 0 {
            let zero = self.scalar(ir::Scalar::zero(out.dtype));
            return Ok(self.expand(&zero, &out.shape));
        }
        let lead = a.ty.shape[..n].to_vec();
        let shaped = |tail: &[usize]| -> Vec<usize> { [&lead[..], tail].concat() };
        let mask = self.groups(offsets, rows)?;
        let mask = self.reshape(&mask, &shaped(&[count, rows, 1]));
        let zero = self.number(d.acc, 0.0);
        let (a, b) = (self.cast(a, d.acc), self.cast(b, d.acc));
        let own = |w: &mut ModelWriter, x: &ExportedValue| -> ExportedValue {
            let size = x.ty.shape[n + 1];
            let x = w.reshape(x, &shaped(&[1, rows, size]));
            w.node("Where", &[&mask, &x, &zero], &Type::new(d.acc, &shaped(&[count, rows, size])))
        };
        let y = match d.mode {
            RaggedMode::Rows => {
                let a = own(self, &a);
                let y = Type::new(d.acc, &shaped(&[count, rows, b.ty.shape[n + 2]]));
                let y = self.node("MatMul", &[&a, &b], &y);
                self.reduce(ReduceKind::Sum, &y, &[n])
            }
            RaggedMode::Contract => {
                let (a, b) = (own(self, &a), own(self, &b));
                let perm: Vec<usize> = (0..=n).chain([n + 2, n + 1]).collect();
                let a = self.permute(&a, &perm);
                let y = Type::new(d.acc, &shaped(&[count, width, b.ty.shape[n + 2]]));
                self.node("MatMul", &[&a, &b], &y)
            }
        };
        Ok(self.cast(&y, out.dtype))
    }

    pub(super) fn conv(
        &mut self,
        c: &Conv,
        x: &ExportedValue,
        kernel: &ExportedValue,
        out: &Type,
    ) -> Result<ExportedValue> {
        if c.batch_groups > 1 {
            return Err(export_error(
                "conv",
                "batch groups, which the gradient of a grouped convolution has, do not exist in ONNX",
            ));
        }
        let n = x.ty.rank() - 2;
        if n == 0 {
            return Err(export_error("conv", "a convolution without spatial axes; write it as a product"));
        }
        if out.numel() == 0 {
            let zero = self.scalar(ir::Scalar::zero(out.dtype));
            return Ok(self.expand(&zero, &out.shape));
        }
        // Integers are convolved in f64, which represents sums up to 2^53; the result wraps to their type by way of i64.
        let whole = !x.ty.dtype.is_float();
        let wide = if whole { DType::F64 } else { c.acc };
        let (x, kernel) = (self.cast(x, wide), self.cast(kernel, wide));
        let zero = self.number(wide, 0.0);
        let w = &c.windows;
        let front = |list: &[i64]| -> Vec<i64> { [&[0, 0], list].concat() };
        let interior: Vec<usize> = [0, 0].into_iter().chain(w.base_dilation.iter().map(|d| d - 1)).collect();
        let x = self.pad(&x, &zero, &front(&w.low), &front(&w.high), &interior);
        let attributes = vec![
            int("group", c.groups as i64),
            ints("strides", &signed(&w.strides)),
            ints("dilations", &signed(&w.window_dilation)),
            ints("kernel_shape", &signed(&kernel.ty.shape[2..])),
        ];
        let mut y = self.node_with_attributes("Conv", &[&x, &kernel], attributes, &out.with_dtype(wide));
        if whole {
            y = self.cast(&y, DType::I64);
        }
        Ok(self.cast(&y, out.dtype))
    }
}
