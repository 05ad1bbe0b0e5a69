//! Adam and AdamW.

use super::{Optimizer, Shared, Update};
use crate::{Result, Tensor};

/// Numbers of Adam.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    beta1: f64,
    beta2: f64,
    eps: f64,
}

impl Numbers {
    const USUAL: Numbers = Numbers { beta1: 0.9, beta2: 0.999, eps: 1e-8 };

    fn update(self, mut u: Update<'_>, grad: &Tensor) -> Result<()> {
        let (m, v) = (u.moment(0), u.moment(1));
        m.lerp_(grad, 1.0 - self.beta1);
        v.mul_scalar_(self.beta2);
        v.addcmul_(grad, grad, 1.0 - self.beta2);
        let t = u.step.min(i32::MAX as u64) as i32;
        let (c1, c2) = (1.0 - self.beta1.powi(t), 1.0 - self.beta2.powi(t));
        let scale = v.sqrt() / c2.sqrt() + self.eps;
        u.param.addcdiv_(&m, &scale, -u.lr / c1).check()
    }
}

/// Adam; weight decay is added to the gradient.
#[derive(Debug)]
pub struct Adam {
    shared: Shared,
    numbers: Numbers,
}

/// Adam with weight decay beside the gradient.
#[derive(Debug)]
pub struct AdamW {
    shared: Shared,
    numbers: Numbers,
}

macro_rules! build {
    ($name:ident, $decay:expr) => {
        impl $name {
            /// With PyTorch's usual numbers.
            pub fn new(params: Vec<Tensor>, lr: f64) -> $name {
                $name { shared: Shared::new(params, lr, $decay), numbers: Numbers::USUAL }
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
        self.numbers.update(u, &grad)
    }
}

impl Optimizer for AdamW {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn update(&self, u: Update<'_>) -> Result<()> {
        if u.weight_decay != 0.0 {
            u.param.mul_scalar_(1.0 - u.lr * u.weight_decay);
        }
        let grad = u.grad.clone();
        self.numbers.update(u, &grad)
    }
}
