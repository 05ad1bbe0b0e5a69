//! Neural network functions as methods; each is recorded as one composite op.

use super::Tensor;
use crate::intern::composite;
use crate::record::{Recorder, one, record};
use ir::composites::{activation, dropout, embedding, norm, softmax};
use ir::{DType, Loc, Op};

impl Tensor {
    /// Records any op of the Graph on tensors; returns its `n` results.
    #[track_caller]
    pub fn apply(op: impl Into<Op>, args: &[&Tensor], n: usize) -> Vec<Tensor> {
        let op = op.into();
        record(&Loc::caller(), n, None, args, |b: &mut dyn Recorder, v| b.emit(op, v)).into_vec()
    }

    /// RMS normalization over the last axis: `w · x / √(mean(x²) + eps)`.
    #[track_caller]
    pub fn rmsnorm(&self, w: &Tensor, eps: f64) -> Tensor {
        one(&Loc::caller(), &[self, w], |b, v| {
            let types = [b.ty(v[0]), b.ty(v[1])];
            let op = composite("rmsnorm", &types, &[eps], || norm::rmsnorm(&types[0], &types[1], eps))?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// Layer normalization over the last axis.
    #[track_caller]
    pub fn layernorm(&self, w: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        one(&Loc::caller(), &[self, w, bias], |b, v| {
            let types = [b.ty(v[0]), b.ty(v[1]), b.ty(v[2])];
            let make = || norm::layernorm(&types[0], Some(&types[1]), Some(&types[2]), eps);
            let op = composite("layernorm", &types, &[eps], make)?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// Softmax over the last axis.
    #[track_caller]
    pub fn softmax(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let types = [b.ty(v[0])];
            let op = composite("softmax", &types, &[], || softmax::softmax(&types[0]))?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// The logarithm of the softmax over the last axis.
    #[track_caller]
    pub fn log_softmax(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let types = [b.ty(v[0])];
            let op = composite("log_softmax", &types, &[], || softmax::log_softmax(&types[0]))?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// The SiLU activation `x · sigmoid(x)`.
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let types = [b.ty(v[0])];
            let op = composite("silu", &types, &[], || activation::silu(&types[0]))?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// The rows of this table at integer indices; indices out of range are clamped.
    #[track_caller]
    pub fn embedding(&self, ids: &Tensor) -> Tensor {
        one(&Loc::caller(), &[self, ids], |b, v| {
            let types = [b.ty(v[0]), b.ty(v[1])];
            let op = composite("embedding", &types, &[], || embedding::embedding(&types[0], &types[1], None))?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// Dropout with a given mask: `x/(1 − rate)` where the mask is true, else 0.
    #[track_caller]
    pub fn dropout_mask(&self, keep: &Tensor, rate: f64) -> Tensor {
        one(&Loc::caller(), &[self, keep], |b, v| {
            let op = dropout::dropout(&b.ty(v[0]), &b.ty(v[1]), rate)?;
            Ok(b.emit(op.into(), v)?[0])
        })
    }

    /// The mean squared error.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Tensor {
        let at = Loc::caller();
        one(&at, &[self, target], |b, v| {
            let (x, y) = (crate::amp::to_f32(b, v[0])?, crate::amp::to_f32(b, v[1])?);
            let (x, y) = crate::record::promote_and_broadcast(b, x, y)?;
            // The square of an f16 may exceed the largest f16, and so may the sum.
            let ty = b.ty(x);
            let dtype = if ty.dtype.is_float() { ty.dtype } else { DType::F32 };
            let (x, y) = (b.cast(x, dtype.accumulator())?, b.cast(y, dtype.accumulator())?);
            let d = b.sub(x, y)?;
            let sq = b.mul(d, d)?;
            let axes: Vec<usize> = (0..ty.rank()).collect();
            let m = b.mean(sq, &axes)?;
            b.cast(m, dtype)
        })
    }
}
