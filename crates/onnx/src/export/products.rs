//! Contractions and convolutions.

use super::refused;
use super::writer::{V, Writer, int, ints, signed};
use crate::error::Result;
use ir::ops::{Conv, Dot};
use ir::{DType, Type};

impl Writer {
    /// Axes in the order batch, free, contracted (and the other way around), then one MatMul.
    pub(super) fn dot(&mut self, d: &Dot, a: &V, b: &V, out: &Type) -> V {
        let size = |v: &V, axes: &[usize]| -> usize { axes.iter().map(|&i| v.ty.shape[i]).product() };
        let (fa, fb) = (d.lhs_free(a.ty.rank()), d.rhs_free(b.ty.rank()));
        let batch = size(a, &d.lhs_batch);
        let (m, k, n) = (size(a, &fa), size(a, &d.lhs_contract), size(b, &fb));
        // Types that MatMul takes; narrow floats are summed as the accumulator says.
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
            // Sums of nothing are 0.
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

    pub(super) fn conv(&mut self, c: &Conv, x: &V, kernel: &V, out: &Type) -> Result<V> {
        if c.batch_groups > 1 {
            return Err(refused(
                "conv",
                "groups of the batch, which the gradient of a grouped convolution has, are not ONNX's",
            ));
        }
        let n = x.ty.rank() - 2;
        if n == 0 {
            return Err(refused("conv", "a convolution without spatial axes; write it as a product"));
        }
        if out.numel() == 0 {
            let zero = self.scalar(ir::Scalar::zero(out.dtype));
            return Ok(self.expand(&zero, &out.shape));
        }
        // Integers are convolved in f64, which holds sums up to 2^53.
        let wide = if x.ty.dtype.is_float() { c.acc } else { DType::F64 };
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
        let y = self.with("Conv", &[&x, &kernel], attributes, &out.with_dtype(wide));
        Ok(self.cast(&y, out.dtype))
    }
}
