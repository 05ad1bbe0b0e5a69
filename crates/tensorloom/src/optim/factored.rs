//! Adafactor: second moments of matrices as an outer product.

use super::{
    GradientTransformation, Schedule, Transform, chain, clip_by_block_rms, counter, scale, scale_by_param_block_rms,
    scale_by_schedule,
};
use crate::np::{self, axes};
use crate::{DType, Tensor, engine_of};

struct Factored {
    decay: f64,
    least: usize,
    eps: f64,
}

impl Factored {
    /// The axes of the largest and the second largest size, if a factored moment is worth it.
    fn axes(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|&a| shape[a]);
        let (d0, d1) = (*order.last()?, *order.iter().rev().nth(1)?);
        (shape[d1] >= self.least).then_some((d0, d1))
    }
}

/// Over the root of a mean square that is kept as rows and columns for tensors with two axes of at least `least`.
pub fn scale_by_factored_rms(decay: f64, least: usize, eps: f64) -> GradientTransformation {
    GradientTransformation::new(Factored { decay, least, eps })
}

impl Transform for Factored {
    fn init(&self, params: &[Tensor]) -> Vec<Tensor> {
        let mut state = vec![counter(params)];
        for p in params {
            let zeros = |without: usize| {
                let shape: Vec<usize> = (0..p.rank()).filter(|&a| a != without).map(|a| p.shape()[a]).collect();
                engine_of(p).zeros(p.dtype(), &shape)
            };
            match self.axes(p.shape()) {
                Some((d0, d1)) => state.extend([zeros(d0), zeros(d1)]),
                None => state.extend([np::zeros_like(p), engine_of(p).zeros(p.dtype(), &[])]),
            }
        }
        state
    }

    fn update(&self, updates: Vec<Tensor>, state: &[Tensor], _: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
        let t = state[0].cast(DType::F64) + 1.0;
        let decay = 1.0 - (t.log() * -self.decay).exp();
        let mut new = vec![&state[0] + 1];
        let mut out = Vec::new();
        for (g, s) in updates.iter().zip(state[1..].chunks(2)) {
            let d = decay.cast(g.dtype());
            let mix = |old: &Tensor, x: &Tensor| &d * old + (1.0 - &d) * x;
            let sq = g.square() + self.eps;
            match self.axes(g.shape()) {
                Some((d0, d1)) => {
                    let row = mix(&s[0], &np::mean(&sq, d0 as isize));
                    let column = mix(&s[1], &np::mean(&sq, d1 as isize));
                    let left = if d1 > d0 { d1 - 1 } else { d1 } as isize;
                    let rows = (&row / np::mean(&row, axes(left).keep())).rsqrt();
                    out.push(g * rows.unsqueeze(d0 as isize) * column.rsqrt().unsqueeze(d1 as isize));
                    new.extend([row, column]);
                }
                None => {
                    let v = mix(&s[0], &sq);
                    out.push(g * v.rsqrt());
                    new.extend([v, s[1].clone()]);
                }
            }
        }
        (out, new)
    }
}

/// Adafactor: updates are clipped, and scaled by the size of their parameters.
pub fn adafactor(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    chain([
        scale_by_factored_rms(0.8, 128, 1e-30),
        clip_by_block_rms(1.0),
        scale_by_schedule(learning_rate),
        scale_by_param_block_rms(1e-3),
        scale(-1.0),
    ])
}
