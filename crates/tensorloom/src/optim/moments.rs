//! Scaling by running moments: Adam and its relatives.

use super::{Clock, GradientTransformation, moment, per_leaf};
use crate::{Tensor, np, record};
use ir::Values;
use train::{Adam, BiasCorrection, momentum};

/// Adam's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Betas {
    /// Decay of the mean.
    pub b1: f64,
    /// Decay of the mean square.
    pub b2: f64,
    /// Added to the root.
    pub eps: f64,
    /// Added under the root.
    pub eps_root: f64,
    /// Looks ahead, as Nesterov's momentum does.
    pub nesterov: bool,
}

impl Default for Betas {
    fn default() -> Betas {
        Betas { b1: 0.9, b2: 0.999, eps: 1e-8, eps_root: 0.0, nesterov: false }
    }
}

/// The corrected mean, which with `nesterov` looks one step ahead.
fn mean(c: &Clock, mu: &Tensor, g: &Tensor, b1: f64, nesterov: bool) -> Tensor {
    if !nesterov {
        return mu / c.correction(b1, 0.0, mu);
    }
    mu * b1 / c.correction(b1, 1.0, mu) + g * (1.0 - b1) / c.correction(b1, 0.0, mu)
}

/// Adam.
pub fn scale_by_adam(b: Betas) -> GradientTransformation {
    let adam = Adam { beta1: b.b1, beta2: b.b2, eps: b.eps, eps_root: b.eps_root };
    per_leaf(&[0.0, 0.0], move |c, g, _, s| {
        let ahead = if b.nesterov { 1.0 } else { 0.0 };
        let corrections = [c.correction(b.b1, 0.0, g), c.correction(b.b2, 0.0, g), c.correction(b.b1, ahead, g)];
        let args = [&s[0], &s[1], g, &corrections[0], &corrections[1], &corrections[2]];
        let mut all = record::many(3, &args, |w, v| {
            let corrections = BiasCorrection::OptaxOrder { c1: v[3], c2: v[4], ahead: b.nesterov.then_some(v[5]) };
            let found = adam.update(w, [v[0], v[1]], v[2], corrections)?;
            Ok(Values::from_slice(&[found.direction, found.first_moment, found.second_moment]))
        });
        let state = all.split_off(1);
        (all.swap_remove(0), state)
    })
}

/// AMSGrad: Adam whose mean square never falls.
pub fn scale_by_amsgrad(b: Betas) -> GradientTransformation {
    per_leaf(&[0.0, 0.0, 0.0], move |c, g, _, s| {
        let (mu, nu) = (moment(&s[0], g, b.b1), moment(&s[1], &g.square(), b.b2));
        let v = np::maximum(&s[2], &nu / c.correction(b.b2, 0.0, g));
        let m = &mu / c.correction(b.b1, 0.0, g);
        (m / ((&v + b.eps_root).sqrt() + b.eps), vec![mu, nu, v])
    })
}

/// Adamax: Adam with the largest gradient in place of the mean square.
pub fn scale_by_adamax(b: Betas) -> GradientTransformation {
    per_leaf(&[0.0, 0.0], move |c, g, _, s| {
        let mu = moment(&s[0], g, b.b1);
        let nu = np::maximum(g.abs() + b.eps, &s[1] * b.b2);
        (&mu / c.correction(b.b1, 0.0, g) / &nu, vec![mu, nu])
    })
}

/// AdaBelief: Adam with the spread around the mean.
pub fn scale_by_belief(b: Betas) -> GradientTransformation {
    per_leaf(&[0.0, 0.0], move |c, g, _, s| {
        let mu = moment(&s[0], g, b.b1);
        let nu = moment(&s[1], &(g - &mu).square(), b.b2) + b.eps_root;
        let m = mean(c, &mu, g, b.b1, b.nesterov);
        let v = &nu / c.correction(b.b2, 0.0, g);
        (m / (v.sqrt() + b.eps), vec![mu, nu])
    })
}

/// Yogi: Adam whose mean square changes by no more than a gradient's square.
pub fn scale_by_yogi(b: Betas) -> GradientTransformation {
    per_leaf(&[1e-6, 1e-6], move |c, g, _, s| {
        let (mu, sq) = (moment(&s[0], g, b.b1), g.square());
        let nu = &s[1] - (&s[1] - &sq).sign() * &sq * (1.0 - b.b2);
        let (m, v) = (&mu / c.correction(b.b1, 0.0, g), &nu / c.correction(b.b2, 0.0, g));
        (m / ((v + b.eps_root).sqrt() + b.eps), vec![mu, nu])
    })
}

/// RAdam: Adam that waits until its mean square can be believed.
pub fn scale_by_radam(b: Betas, threshold: f64) -> GradientTransformation {
    let most = 2.0 / (1.0 - b.b2) - 1.0;
    per_leaf(&[0.0, 0.0], move |c, g, _, s| {
        let (mu, nu) = (moment(&s[0], g, b.b1), moment(&s[1], &g.square(), b.b2));
        let m = mean(c, &mu, g, b.b1, b.nesterov);
        let v = &nu / c.correction(b.b2, 0.0, g);
        let p = c.power(b.b2, 0.0);
        let ro = most - (&c.before + 1.0) * 2.0 * &p / (1.0 - &p);
        let rate = (&ro - 4.0) * (&ro - 2.0) * most / (&ro * ((most - 4.0) * (most - 2.0)));
        let ready = np::greater_equal(&ro, threshold);
        let rate = np::where_(&ready, &rate, 1.0).sqrt().cast(g.dtype());
        let full = rate * &m / ((v + b.eps_root).sqrt() + b.eps);
        (np::where_(&ready, &full, &m), vec![mu, nu])
    })
}

/// Lion: the sign of a mean.
pub fn scale_by_lion(b1: f64, b2: f64) -> GradientTransformation {
    per_leaf(&[0.0], move |_, g, _, s| {
        let lion = record::many(2, &[&s[0], g], |w, v| {
            Ok(Values::from_slice(&momentum::lion(w, v[0], v[1], [b1, b2], false)?))
        });
        (lion[0].clone(), vec![lion[1].clone()])
    })
}

/// RMSProp: over the root of the mean square.
pub fn scale_by_rms(decay: f64, eps: f64) -> GradientTransformation {
    per_leaf(&[0.0], move |_, g, _, s| {
        let nu = moment(&s[0], &g.square(), decay);
        (g * (&nu + eps).rsqrt(), vec![nu])
    })
}

/// RMSProp around the mean: over the standard deviation.
pub fn scale_by_stddev(decay: f64, eps: f64) -> GradientTransformation {
    per_leaf(&[0.0, 0.0], move |_, g, _, s| {
        let (mu, nu) = (moment(&s[0], g, decay), moment(&s[1], &g.square(), decay));
        (g * (&nu - mu.square() + eps).rsqrt(), vec![mu, nu])
    })
}

/// Adagrad: over the root of the sum of squares so far.
pub fn scale_by_rss(start: f64, eps: f64) -> GradientTransformation {
    per_leaf(&[start], move |_, g, _, s| {
        let sum = &s[0] + g.square();
        let rate = np::where_(&np::greater(&sum, 0.0), (&sum + eps).rsqrt(), 0.0);
        (g * rate, vec![sum])
    })
}

/// Adadelta: in the units of earlier updates.
pub fn scale_by_adadelta(rho: f64, eps: f64) -> GradientTransformation {
    per_leaf(&[0.0, 0.0], move |_, g, _, s| {
        let sq = moment(&s[0], &g.square(), rho);
        let u = (&s[1] + eps).sqrt() / (&sq + eps).sqrt() * g;
        let ux = moment(&s[1], &u.square(), rho);
        (u, vec![sq, ux])
    })
}

/// Adan: Adam with a mean of the gradients' differences.
pub fn scale_by_adan(b1: f64, b2: f64, b3: f64, eps: f64, eps_root: f64) -> GradientTransformation {
    per_leaf(&[0.0; 4], move |c, g, _, s| {
        let diff = np::where_(&c.is_first(), 0.0, &(g - &s[3]));
        let (m, v) = (moment(&s[0], g, b1), moment(&s[1], &diff, b2));
        let n = moment(&s[2], &(g + &diff * (1.0 - b2)).square(), b3);
        let fix = |x: &Tensor, b: f64| x / c.correction(b, 0.0, g);
        let u = fix(&m, b1) + fix(&v, b2) * (1.0 - b2);
        let u = u / ((fix(&n, b3) + eps_root).sqrt() + eps);
        (u, vec![m, v, n, g.clone()])
    })
}

/// NovoGrad: gradients over the root of the mean of their squared norm, with momentum.
pub fn scale_by_novograd(b1: f64, b2: f64, eps: f64, eps_root: f64, weight_decay: f64) -> GradientTransformation {
    per_leaf(&[0.0, 0.0], move |c, g, p, s| {
        let first = c.is_first();
        let sq = g.square().sum();
        // One number for each leaf, kept in its shape.
        let nu = np::where_(&first, &sq, &moment(&s[1], &sq, b2));
        let u = g / ((&nu + eps_root).sqrt() + eps) + p * weight_decay;
        let mu = np::where_(&first, &u, &(&s[0] * b1 + &u));
        (mu.clone(), vec![mu, nu])
    })
}
