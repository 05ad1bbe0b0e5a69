//! Gradient descent.

use super::{Optimizer, Shared, Update};
use crate::{Result, Tensor, record};
use ir::Values;
use train::momentum::momentum_with_dampening;

/// Gradient descent with momentum.
#[derive(Debug)]
pub struct Sgd {
    shared: Shared,
    /// How much of the last update stays.
    pub momentum: f64,
    /// How much of the gradient does not enter the momentum.
    pub dampening: f64,
    /// Looks one step ahead.
    pub nesterov: bool,
}

impl Sgd {
    /// Without momentum.
    pub fn new(params: Vec<Tensor>, lr: f64) -> Sgd {
        Sgd { shared: Shared::new(params, lr, 0.0), momentum: 0.0, dampening: 0.0, nesterov: false }
    }

    /// With momentum.
    pub fn with_momentum(params: Vec<Tensor>, lr: f64, momentum: f64) -> Sgd {
        Sgd { momentum, ..Sgd::new(params, lr) }
    }

    /// With a weight decay.
    pub fn weight_decay(self, weight_decay: f64) -> Sgd {
        self.shared.lock().groups.iter_mut().for_each(|g| g.weight_decay = weight_decay);
        self
    }
}

impl Optimizer for Sgd {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn update(&self, mut u: Update<'_>) -> Result<()> {
        let mut grad = u.grad.clone();
        if u.weight_decay != 0.0 {
            grad = grad + u.param * u.weight_decay;
        }
        if self.momentum != 0.0 {
            let buffer = u.moment(0);
            // The first gradient enters whole, as in PyTorch.
            let share = if u.step == 1 { 1.0 } else { 1.0 - self.dampening };
            let entering = if share == 1.0 { grad.clone() } else { &grad * share };
            let new = record::many(2, &[&buffer, &grad, &entering], |b, v| {
                Ok(Values::from_slice(&momentum_with_dampening(b, v[0], v[1], v[2], self.momentum, self.nesterov)?))
            });
            buffer.copy_(&new[1]).check()?;
            grad = new[0].clone();
        }
        u.param.sub_(&(grad * u.lr)).check()
    }
}
