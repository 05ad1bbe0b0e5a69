//! Lion.

use super::{Optimizer, Shared, Update};
use crate::{Result, Tensor, record};
use ir::Values;
use train::momentum::lion;

/// Descent along the sign of a mix of gradient and momentum, with weight decay beside it.
#[derive(Debug)]
pub struct Lion {
    shared: Shared,
    beta1: f64,
    beta2: f64,
}

impl Lion {
    /// Decays 0.9 and 0.99, no weight decay.
    pub fn new(params: Vec<Tensor>, lr: f64) -> Lion {
        Lion { shared: Shared::new(params, lr, 0.0), beta1: 0.9, beta2: 0.99 }
    }

    /// With a weight decay.
    pub fn weight_decay(self, weight_decay: f64) -> Lion {
        self.shared.lock().groups.iter_mut().for_each(|g| g.weight_decay = weight_decay);
        self
    }

    /// With other decays.
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Lion {
        (self.beta1, self.beta2) = (beta1, beta2);
        self
    }
}

impl Optimizer for Lion {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn update(&self, mut u: Update<'_>) -> Result<()> {
        let m = u.moment(0);
        if u.weight_decay != 0.0 {
            u.param.mul_scalar_(1.0 - u.lr * u.weight_decay);
        }
        let new = record::many(2, &[&m, &u.grad], |b, v| {
            Ok(Values::from_slice(&lion(b, v[0], v[1], [self.beta1, self.beta2], true)?))
        });
        u.param.sub_(&(&new[0] * u.lr)).check()?;
        m.copy_(&new[1]).check()
    }
}
