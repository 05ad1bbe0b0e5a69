//! Scaling, momentum, decay.

use super::{Counted, GradientTransformation, Schedule, each, moment, per_leaf, stateless};
use crate::record::rounded;
use crate::{np, record};
use ir::Values;
use train::momentum::momentum;

/// Updates as they are.
pub fn identity() -> GradientTransformation {
    stateless(|updates, _| updates)
}

/// No updates.
pub fn set_to_zero() -> GradientTransformation {
    each(|g, _| np::zeros_like(g))
}

/// Updates times a number.
pub fn scale(factor: f64) -> GradientTransformation {
    each(move |g, _| g * factor)
}

/// Updates times what a schedule gives for the number of steps before.
pub fn scale_by_schedule(schedule: impl Into<Schedule>) -> GradientTransformation {
    let schedule = schedule.into();
    GradientTransformation::new(Counted(
        move |count: &crate::Tensor, updates: Vec<crate::Tensor>, _: &[crate::Tensor]| {
            let rate = schedule.at(count);
            updates.iter().map(|g| g * rate.cast(g.dtype())).collect()
        },
    ))
}

/// Updates times a learning rate, downhill.
pub fn scale_by_learning_rate(rate: impl Into<Schedule>) -> GradientTransformation {
    match rate.into() {
        Schedule::Known(train::Schedule::Constant(c)) => scale(-c),
        schedule => scale_by_schedule(Schedule::of(move |count| -schedule.at(count))),
    }
}

/// The signs of the updates.
pub fn scale_by_sign() -> GradientTransformation {
    each(|g, _| g.sign())
}

/// Momentum: `m ← decay·m + g`, looking ahead with `nesterov`.
pub fn trace(decay: f64, nesterov: bool) -> GradientTransformation {
    per_leaf(&[0.0], move |_, g, _, s| {
        let all =
            record::many(2, &[&s[0], g], |b, v| Ok(Values::from_slice(&momentum(b, v[0], v[1], decay, nesterov)?)));
        (all[0].clone(), vec![all[1].clone()])
    })
}

/// The running mean of updates, corrected for its start at 0 with `debias`.
pub fn ema(decay: f64, debias: bool) -> GradientTransformation {
    per_leaf(&[0.0], move |clock, g, _, s| {
        let m = moment(&s[0], g, decay);
        let u = if debias { &m / clock.correction(decay, 0.0, g) } else { m.clone() };
        (u, vec![m])
    })
}

/// Adds the parameters times a number: decoupled weight decay.
pub fn add_decayed_weights(decay: f64) -> GradientTransformation {
    each(move |g, p| g + p * decay)
}

/// Scales each update by the ratio of its parameter's norm to its own.
pub fn scale_by_trust_ratio(coefficient: f64, eps: f64) -> GradientTransformation {
    each(move |g, p| {
        rounded([g, p], |[g, p]| {
            let (pn, gn) = (p.square().sum().sqrt(), g.square().sum().sqrt());
            let ratio = &pn * coefficient / (&gn + eps);
            let none = np::equal(&pn, 0.0).or(&np::equal(&gn, 0.0));
            g * np::where_(&none, 1.0, &ratio)
        })
    })
}

/// Scales each update by the root of the mean square of its parameter, at least `least`.
pub fn scale_by_param_block_rms(least: f64) -> GradientTransformation {
    each(move |g, p| rounded([g, p], |[g, p]| g * np::maximum(&p.square().mean().sqrt(), least)))
}

/// Subtracts from each update of two axes or more its mean over all but the first.
pub fn centralize() -> GradientTransformation {
    each(|g, _| match g.rank() {
        0 | 1 => g.clone(),
        n => g - g.mean_axes(&(1..n as isize).collect::<Vec<_>>(), true),
    })
}

/// NaN becomes 0.
pub fn zero_nans() -> GradientTransformation {
    each(|g, _| np::where_(&np::isnan(g), 0.0, g))
}

/// Updates that leave parameters at 0 or above.
pub fn keep_params_nonnegative() -> GradientTransformation {
    each(|g, p| np::where_(&np::less(&(p + g), 0.0), &-p, g))
}
