//! Exports views, constants, reductions and sorting.

use super::export_error;
use super::writer::{ExportedValue, ModelWriter, int};
use crate::error::Result;
use ir::ops::{Fft, FftKind, ReduceKind, Sort};
use ir::{DType, Literal, Type};

impl ModelWriter {
    pub(super) fn iota(&mut self, dtype: DType, shape: &[usize], axis: usize) -> ExportedValue {
        let n = shape.get(axis).copied().unwrap_or(0) as i64;
        let list: Vec<i64> = (0..n).collect();
        let v = self.literal(&Literal::new(&[list.len()], &list));
        let v = self.cast(&v, dtype);
        self.broadcast(&v, shape, &[axis])
    }

    pub(super) fn slice(
        &mut self,
        x: &ExportedValue,
        start: &[usize],
        limit: &[usize],
        stride: &[usize],
    ) -> ExportedValue {
        let shape: Vec<usize> =
            (0..start.len()).map(|a| limit[a].saturating_sub(start[a]).div_ceil(stride[a].max(1))).collect();
        if start.is_empty() || shape.as_slice() == x.ty.shape.as_slice() {
            return x.clone();
        }
        let axes: Vec<usize> = (0..start.len()).collect();
        let args = [self.sizes(start), self.sizes(limit), self.sizes(&axes), self.sizes(stride)];
        self.node("Slice", &[x, &args[0], &args[1], &args[2], &args[3]], &x.ty.with_shape(&shape))
    }

    pub(super) fn slice_axis(&mut self, x: &ExportedValue, axis: usize, from: usize, to: usize) -> ExportedValue {
        let rank = x.ty.rank();
        let (mut start, mut limit) = (vec![0; rank], x.ty.shape.to_vec());
        (start[axis], limit[axis]) = (from, to);
        self.slice(x, &start, &limit, &vec![1; rank])
    }

    pub(super) fn flip(&mut self, x: &ExportedValue, axes: &[usize]) -> ExportedValue {
        if axes.is_empty() {
            return x.clone();
        }
        let n = axes.len();
        let (start, end, step) = (vec![-1i64; n], vec![i64::MIN; n], vec![-1i64; n]);
        let args = [self.numbers(&start), self.numbers(&end), self.sizes(axes), self.numbers(&step)];
        self.node("Slice", &[x, &args[0], &args[1], &args[2], &args[3]], &x.ty)
    }

    /// Pads with a value of rank 0; negative amounts crop.
    pub(super) fn pad(
        &mut self,
        x: &ExportedValue,
        fill: &ExportedValue,
        low: &[i64],
        high: &[i64],
        interior: &[usize],
    ) -> ExportedValue {
        let rank = x.ty.rank();
        let mut x = x.clone();
        for a in 0..rank {
            // Appends the gap to each element of the axis, then crops the last gap.
            if interior[a] == 0 || x.ty.shape[a] < 2 {
                continue;
            }
            let n = x.ty.shape[a];
            let mut wide = x.ty.shape.to_vec();
            wide.insert(a + 1, 1);
            let apart = self.reshape(&x, &wide);
            let mut behind = vec![0i64; rank + 1];
            behind[a + 1] = interior[a] as i64;
            let apart = self.pad_edges(&apart, fill, &vec![0; rank + 1], &behind);
            let mut flat = x.ty.shape.to_vec();
            flat[a] = n * (interior[a] + 1);
            let joined = self.reshape(&apart, &flat);
            x = self.slice_axis(&joined, a, 0, n * (interior[a] + 1) - interior[a]);
        }
        // Crops first, so that padding is never cropped.
        let rank_sizes = x.ty.shape.to_vec();
        let cut_low: Vec<usize> = (0..rank).map(|a| (-low[a]).max(0) as usize).collect();
        let cut_high: Vec<usize> = (0..rank).map(|a| (-high[a]).max(0) as usize).collect();
        let inside = (0..rank).all(|a| cut_low[a] + cut_high[a] <= rank_sizes[a]);
        if inside {
            let limit: Vec<usize> = (0..rank).map(|a| rank_sizes[a] - cut_high[a]).collect();
            let x = self.slice(&x, &cut_low, &limit, &vec![1; rank]);
            let (low, high): (Vec<i64>, Vec<i64>) = (0..rank).map(|a| (low[a].max(0), high[a].max(0))).unzip();
            return self.pad_edges(&x, fill, &low, &high);
        }
        // More is cropped than there is: the padding on the other side is cropped too.
        let (grow_low, grow_high): (Vec<i64>, Vec<i64>) = (0..rank).map(|a| (low[a].max(0), high[a].max(0))).unzip();
        let y = self.pad_edges(&x, fill, &grow_low, &grow_high);
        let limit: Vec<usize> = (0..rank).map(|a| y.ty.shape[a].saturating_sub(cut_high[a])).collect();
        self.slice(&y, &cut_low, &limit, &vec![1; rank])
    }

    fn pad_edges(&mut self, x: &ExportedValue, fill: &ExportedValue, low: &[i64], high: &[i64]) -> ExportedValue {
        if low.iter().chain(high).all(|&p| p == 0) {
            return x.clone();
        }
        let shape: Vec<usize> =
            (0..low.len()).map(|a| (x.ty.shape[a] as i64 + low[a] + high[a]).max(0) as usize).collect();
        let pads = self.numbers(&[low, high].concat());
        self.node("Pad", &[x, &pads, fill], &x.ty.with_shape(&shape))
    }

    /// Types that ONNX's reductions support.
    fn reducible(dtype: DType) -> DType {
        match dtype {
            DType::Bool | DType::I8 | DType::I16 | DType::U8 | DType::U16 => DType::I32,
            d => d,
        }
    }

    pub(super) fn reduce(&mut self, kind: ReduceKind, x: &ExportedValue, axes: &[usize]) -> ExportedValue {
        if axes.is_empty() {
            return x.clone();
        }
        let dtype = x.ty.dtype;
        let kept: Vec<usize> = (0..x.ty.rank()).filter(|a| !axes.contains(a)).map(|a| x.ty.shape[a]).collect();
        if axes.iter().any(|&a| x.ty.shape[a] == 0) {
            // An empty reduction gives the identity, which ONNX leaves undefined for extrema.
            let v = self.scalar(kind.identity(dtype));
            return self.expand(&v, &kept);
        }
        let op = match kind {
            ReduceKind::Sum => "ReduceSum",
            ReduceKind::Prod => "ReduceProd",
            ReduceKind::Max | ReduceKind::Any => "ReduceMax",
            ReduceKind::Min | ReduceKind::All => "ReduceMin",
        };
        let wide = self.cast(x, Self::reducible(dtype));
        let list = self.sizes(axes);
        let y = self.node_with_attributes(op, &[&wide, &list], vec![int("keepdims", 0)], &wide.ty.with_shape(&kept));
        self.cast(&y, dtype)
    }

    pub(super) fn cumulative(
        &mut self,
        kind: ReduceKind,
        x: &ExportedValue,
        axis: usize,
        reverse: bool,
    ) -> Result<ExportedValue> {
        let dtype = x.ty.dtype;
        let wide = self.cast(x, Self::reducible(dtype));
        if kind == ReduceKind::Sum {
            let a = self.scalar(ir::Scalar::from_i64(DType::I64, axis as i64));
            let y =
                self.node_with_attributes("CumSum", &[&wide, &a], vec![int("reverse", i64::from(reverse))], &wide.ty);
            return Ok(self.cast(&y, dtype));
        }
        if kind == ReduceKind::Prod && dtype.is_float() {
            return self.cumulative_product(x, axis, reverse);
        }
        // Doubling: after k steps each element combines 2^k elements.
        let op = match kind {
            ReduceKind::Prod => "Mul",
            ReduceKind::Max | ReduceKind::Any => "Max",
            _ => "Min",
        };
        let identity = match dtype {
            DType::Bool => ir::Scalar::from_i64(DType::I32, i64::from(kind.identity(dtype).to_bool())),
            _ => kind.identity(dtype).cast(wide.ty.dtype),
        };
        let fill = self.scalar(identity);
        let n = x.ty.shape[axis];
        let rank = x.ty.rank();
        let mut y = wide;
        let mut step = 1;
        while step < n {
            let (mut low, mut high) = (vec![0i64; rank], vec![0i64; rank]);
            (low[axis], high[axis]) =
                if reverse { (-(step as i64), step as i64) } else { (step as i64, -(step as i64)) };
            let moved = self.pad(&y, &fill, &low, &high, &vec![0; rank]);
            y = self.node(op, &[&y, &moved], &y.ty.clone());
            step *= 2;
        }
        Ok(self.cast(&y, dtype))
    }

    /// Products of floats keep their order, so they are a loop; its carry is in a wider type, and results are rounded once.
    fn cumulative_product(&mut self, x: &ExportedValue, axis: usize, reverse: bool) -> Result<ExportedValue> {
        let dtype = x.ty.dtype;
        let x = &self.cast(x, DType::F64);
        let mut perm: Vec<usize> = (0..x.ty.rank()).filter(|&a| a != axis).collect();
        perm.insert(0, axis);
        let front = self.permute(x, &perm);
        let step = front.ty.unbatched();
        let mut b = ir::Builder::new();
        let (acc, y) = (b.graph.input(step.clone()), b.graph.input(step.clone()));
        let product = ir::GraphBuilder::mul(&mut b, acc, y).map_err(|e| export_error("cumprod", &e.to_string()))?;
        let body = b.finish(&[product, product]);
        let one = self.number(step.dtype, 1.0);
        let start = self.expand(&one, &step.shape);
        let scan = ir::ops::Scan { reverse, ..ir::ops::Scan::over(0, 1, front.ty.shape[0], body) };
        let outs = self.scan(&scan, &[start, front.clone()], &[step, front.ty.clone()])?;
        let mut back: Vec<usize> = (1..=axis).collect();
        back.push(0);
        back.extend(axis + 1..x.ty.rank());
        let y = self.permute(&outs[1], &back);
        Ok(self.cast(&y, dtype))
    }

    pub(super) fn arg_reduce(&mut self, max: bool, x: &ExportedValue, axis: usize, index: DType) -> ExportedValue {
        let x = if x.ty.dtype == DType::Bool { self.cast(x, DType::I32) } else { x.clone() };
        let mut shape = x.ty.shape.to_vec();
        shape.remove(axis);
        let op = if max { "ArgMax" } else { "ArgMin" };
        let attributes = vec![int("axis", axis as i64), int("keepdims", 0)];
        let y = self.node_with_attributes(op, &[&x], attributes, &Type::new(DType::I64, &shape));
        self.cast(&y, index)
    }

    pub(super) fn top_k(&mut self, x: &ExportedValue, k: usize, axis: usize) -> Result<Vec<ExportedValue>> {
        let (values, places) = self.sorted_top_k(x, k, axis, true);
        Ok(vec![values, self.cast(&places, DType::I32)])
    }

    /// The first `k` in sorted order, and their indices as i64.
    fn sorted_top_k(
        &mut self,
        x: &ExportedValue,
        k: usize,
        axis: usize,
        largest: bool,
    ) -> (ExportedValue, ExportedValue) {
        let dtype = x.ty.dtype;
        let wide = match dtype {
            DType::Bool => self.cast(x, DType::I32),
            DType::BF16 => self.cast(x, DType::F32),
            _ => x.clone(),
        };
        let count = self.numbers(&[k as i64]);
        let mut ty = wide.ty.clone();
        ty.shape[axis] = k;
        let attributes = vec![int("axis", axis as i64), int("largest", i64::from(largest)), int("sorted", 1)];
        let outs =
            self.node_with_outputs("TopK", &[&wide, &count], attributes, &[ty.clone(), ty.with_dtype(DType::I64)]);
        (self.cast(&outs[0], dtype), outs[1].clone())
    }

    pub(super) fn sort(&mut self, s: &Sort, args: &[ExportedValue]) -> Result<Vec<ExportedValue>> {
        if s.num_keys != 1 {
            return Err(export_error(
                "sort",
                "ONNX sorts by one key; sort by the last key first, then by the ones before it",
            ));
        }
        let n = args[0].ty.shape[s.axis];
        let (first, places) = self.sorted_top_k(&args[0], n, s.axis, s.descending);
        let mut outs = vec![first];
        for x in &args[1..] {
            outs.push(self.node_with_attributes(
                "GatherElements",
                &[x, &places],
                vec![int("axis", s.axis as i64)],
                &x.ty,
            ));
        }
        Ok(outs)
    }

    pub(super) fn fft(&mut self, f: &Fft, args: &[ExportedValue], types: &[Type]) -> Result<Vec<ExportedValue>> {
        // Complex numbers are pairs along a last axis.
        let column = |w: &mut ModelWriter, x: &ExportedValue| {
            let mut shape = x.ty.shape.to_vec();
            shape.push(1);
            w.reshape(x, &shape)
        };
        let rank = args[0].ty.rank();
        let mut x = column(self, &args[0]);
        if args.len() > 1 {
            let im = column(self, &args[1]);
            x = self.concat(&[x, im], rank);
        }
        let inverse = matches!(f.kind, FftKind::Inverse | FftKind::InverseReal { .. });
        let half = matches!(f.kind, FftKind::Real | FftKind::InverseReal { .. });
        // The half spectrum is along the last given axis: transformed first, inverted last.
        let mut order = f.axes.to_vec();
        if !inverse {
            order.reverse();
        }
        let last = f.axes.last().copied();
        for axis in order {
            let onesided = half && Some(axis) == last;
            let mut shape = x.ty.shape.to_vec();
            let real = onesided && inverse;
            let n = match f.kind {
                FftKind::InverseReal { length } if onesided => length,
                _ => shape[axis],
            };
            shape[axis] = if onesided && !inverse { n / 2 + 1 } else { n };
            shape[rank] = if real { 1 } else { 2 };
            let (length, at) = (
                self.scalar(ir::Scalar::from_i64(DType::I64, n as i64)),
                self.scalar(ir::Scalar::from_i64(DType::I64, axis as i64)),
            );
            if real {
                // Some implementations don't support the inverse of a half spectrum: the full one is computed.
                let full = self.full_spectrum(&x, axis, n);
                let mut wide = full.ty.shape.to_vec();
                wide[axis] = n;
                let y = self.node_with_attributes(
                    "DFT",
                    &[&full, &length, &at],
                    vec![int("inverse", 1)],
                    &full.ty.with_shape(&wide),
                );
                x = self.slice_axis(&y, rank, 0, 1);
                continue;
            }
            let attributes = vec![int("inverse", i64::from(inverse)), int("onesided", i64::from(onesided))];
            x = self.node_with_attributes("DFT", &[&x, &length, &at], attributes, &x.ty.with_shape(&shape));
        }
        let mut outs = Vec::new();
        for (k, ty) in types.iter().enumerate() {
            let part = self.slice_axis(&x, rank, k, k + 1);
            outs.push(self.reshape(&part, &ty.shape));
        }
        Ok(outs)
    }

    /// The full spectrum of a real signal of `n` points from its half, by conjugate symmetry.
    fn full_spectrum(&mut self, x: &ExportedValue, axis: usize, n: usize) -> ExportedValue {
        let rank = x.ty.rank();
        let have = x.ty.shape[axis];
        // The imaginary part at both ends is ignored.
        let (re, im) = (self.slice_axis(x, rank - 1, 0, 1), self.slice_axis(x, rank - 1, 1, 2));
        let ends: Vec<bool> = (0..have).map(|k| k == 0 || (n % 2 == 0 && k == n / 2)).collect();
        let mask = self.literal(&Literal::new(&[have], &ends));
        let mask = self.broadcast(&mask, &im.ty.shape, &[axis]);
        let zero = self.number(im.ty.dtype, 0.0);
        let im = self.node("Where", &[&mask, &zero, &im], &im.ty.clone());
        let tail: Vec<i64> = (n / 2 + 1..n).map(|k| (n - k) as i64).collect();
        let at = self.numbers(&tail);
        let mut shape = re.ty.shape.to_vec();
        shape[axis] = tail.len();
        let ty = re.ty.with_shape(&shape);
        let (mirror_re, mirror_im) = (
            self.node_with_attributes("Gather", &[&re, &at], vec![int("axis", axis as i64)], &ty),
            self.node_with_attributes("Gather", &[&im, &at], vec![int("axis", axis as i64)], &ty),
        );
        let mirror_im = self.node("Neg", &[&mirror_im], &ty);
        let (re, im) = (self.concat(&[re, mirror_re], axis), self.concat(&[im, mirror_im], axis));
        self.concat(&[re, im], rank - 1)
    }

    /// JAX's random bits: Threefry, round by round.
    pub(super) fn threefry(&mut self, args: &[ExportedValue]) -> Vec<ExportedValue> {
        let ty = args[0].ty.clone();
        let word = |w: &mut ModelWriter, x: u64| w.scalar(ir::Scalar::from_bits(DType::U32, x));
        let parity = word(self, 0x1bd1_1bda);
        let k01 = self.node("BitwiseXor", &[&args[0], &args[1]], &ty);
        let k2 = self.node("BitwiseXor", &[&k01, &parity], &ty);
        let keys = [args[0].clone(), args[1].clone(), k2];
        let mut x = [self.node("Add", &[&args[2], &keys[0]], &ty), self.node("Add", &[&args[3], &keys[1]], &ty)];
        let rotations = [[13u64, 15, 26, 6], [17, 29, 16, 24]];
        for group in 0..5u64 {
            for r in rotations[group as usize % 2] {
                x[0] = self.node("Add", &[&x[0], &x[1]], &ty);
                let (l, s) = (word(self, r), word(self, 32 - r));
                let direction = |d: &str| vec![super::writer::string("direction", d)];
                let a = self.node_with_attributes("BitShift", &[&x[1], &l], direction("LEFT"), &ty);
                let b = self.node_with_attributes("BitShift", &[&x[1], &s], direction("RIGHT"), &ty);
                let turned = self.node("BitwiseOr", &[&a, &b], &ty);
                x[1] = self.node("BitwiseXor", &[&turned, &x[0]], &ty);
            }
            let (a, b) = (&keys[(group as usize + 1) % 3], &keys[(group as usize + 2) % 3]);
            x[0] = self.node("Add", &[&x[0], a], &ty);
            let count = word(self, group + 1);
            let b = self.node("Add", &[b, &count], &ty);
            x[1] = self.node("Add", &[&x[1], &b], &ty);
        }
        x.to_vec()
    }
}
