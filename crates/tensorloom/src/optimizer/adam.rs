//! Adam and AdamW.

use super::{Optimizer, Shared, Update};
use crate::{Result, Tensor, engine_of, record};
use ir::Values;
use train::adam::{self, BiasCorrection, apply_update};

/// Moves a parameter and its moments; `kept` is the factor that decays the parameter first.
fn update(numbers: adam::Adam, mut u: Update<'_>, grad: &Tensor, kept: Option<f64>) -> Result<()> {
    let (m, v) = (u.moment(0), u.moment(1));
    let t = u.step.min(i32::MAX as u64) as i32;
    let (c1, c2) = (1.0 - numbers.beta1.powi(t), 1.0 - numbers.beta2.powi(t));
    // Numbers that change from step to step are inputs of a region's program.
    let number = |x: f64| engine_of(u.param).full(u.param.dtype(), &[], x);
    let (rate, root2, kept) = (number(u.lr / c1), number(c2.sqrt()), kept.map(number));
    let args: Vec<&Tensor> = [u.param, &m, &v, grad, &rate, &root2].into_iter().chain(&kept).collect();
    let new = record::many(3, &args, |b, x| {
        let mut param = x[0];
        if let Some(kept) = x.get(6) {
            let shape = b.ty(param).shape;
            let kept = b.splat(*kept, &shape)?;
            param = b.mul(param, kept)?;
        }
        let grad = b.cast(x[3], b.ty(param).dtype)?;
        let found = numbers.update(b, [x[1], x[2]], grad, BiasCorrection::PyTorchOrder { root2: x[5] })?;
        let param = apply_update(b, param, found.direction, 0.0, x[4])?;
        Ok(Values::from_slice(&[param, found.first_moment, found.second_moment]))
    });
    for (old, new) in [u.param, &m, &v].into_iter().zip(&new) {
        old.copy_(new).check()?;
    }
    Ok(())
}

/// Adam; weight decay is added to the gradient.
#[derive(Debug)]
pub struct Adam {
    shared: Shared,
    numbers: adam::Adam,
}

/// Adam with weight decay beside the gradient.
#[derive(Debug)]
pub struct AdamW {
    shared: Shared,
    numbers: adam::Adam,
}

macro_rules! build {
    ($name:ident, $decay:expr) => {
        impl $name {
            /// With PyTorch's usual numbers.
            pub fn new(params: Vec<Tensor>, lr: f64) -> $name {
                $name { shared: Shared::new(params, lr, $decay), numbers: adam::Adam::default() }
            }

            /// With a weight decay.
            pub fn weight_decay(self, weight_decay: f64) -> $name {
                self.shared.lock().groups.iter_mut().for_each(|g| g.weight_decay = weight_decay);
                self
            }

            /// With other decays of the moments.
            pub fn betas(mut self, beta1: f64, beta2: f64) -> $name {
                (self.numbers.beta1, self.numbers.beta2) = (beta1, beta2);
                self
            }

            /// With another `eps`.
            pub fn eps(mut self, eps: f64) -> $name {
                self.numbers.eps = eps;
                self
            }
        }
    };
}
build!(Adam, 0.0);
build!(AdamW, 0.01);

impl Optimizer for Adam {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn update(&self, u: Update<'_>) -> Result<()> {
        let grad = if u.weight_decay != 0.0 { &u.grad + u.param * u.weight_decay } else { u.grad.clone() };
        update(self.numbers, u, &grad, None)
    }
}

impl Optimizer for AdamW {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn update(&self, u: Update<'_>) -> Result<()> {
        let kept = (u.weight_decay != 0.0).then_some(1.0 - u.lr * u.weight_decay);
        let grad = u.grad.clone();
        update(self.numbers, u, &grad, kept)
    }
}
