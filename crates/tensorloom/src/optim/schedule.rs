//! Schedules: numbers that depend on the step.

use crate::{DType, Tensor, np};
use std::f64::consts::PI;
use std::sync::Arc;

/// A number for each step, counted from 0.
#[derive(Clone)]
pub enum Schedule {
    /// The same for all.
    Constant(f64),
    /// A function of the step as an f64 of rank 0.
    Of(Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>),
}

impl From<f64> for Schedule {
    fn from(x: f64) -> Schedule {
        Schedule::Constant(x)
    }
}

impl Schedule {
    /// A schedule of your own: a function of the step as an f64 of rank 0.
    pub fn of(f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> Schedule {
        Schedule::Of(Arc::new(f))
    }

    /// The number at a step.
    #[track_caller]
    pub fn at(&self, step: &Tensor) -> Tensor {
        let _here = crate::write::here();
        let step = step.cast(DType::F64);
        match self {
            Schedule::Constant(x) => np::full_like(&step, *x),
            Schedule::Of(f) => f(&step),
        }
    }
}

/// The same number always.
pub fn constant_schedule(value: f64) -> Schedule {
    value.into()
}

/// From `init` to `end` over `steps` steps that begin at `begin`, along a power of the distance.
pub fn polynomial_schedule(init: f64, end: f64, power: f64, steps: usize, begin: usize) -> Schedule {
    if steps == 0 {
        return init.into();
    }
    Schedule::of(move |t| {
        let done = (t - begin as f64).clamp(0.0, steps as f64);
        let left = 1.0 - done / steps as f64;
        np::power(left, power) * (init - end) + end
    })
}

/// From `init` to `end` in a straight line.
pub fn linear_schedule(init: f64, end: f64, steps: usize) -> Schedule {
    polynomial_schedule(init, end, 1.0, steps, 0)
}

/// Multiplied by `rate` every `steps` steps, gradually or in `staircase`.
pub fn exponential_decay(init: f64, steps: usize, rate: f64, begin: usize, staircase: bool) -> Schedule {
    Schedule::of(move |t| {
        let passed = t - begin as f64;
        let p = &passed / steps.max(1) as f64;
        let p = if staircase { p.floor() } else { p };
        np::where_(&np::less_equal(&passed, 0.0), init, (p * rate.ln()).exp() * init)
    })
}

/// Down to `alpha` times `init` along half a cosine.
pub fn cosine_decay_schedule(init: f64, steps: usize, alpha: f64) -> Schedule {
    Schedule::of(move |t| {
        let p = np::minimum(t, steps as f64) / steps.max(1) as f64;
        let cosine = ((p * PI).cos() + 1.0) * 0.5;
        (cosine * (1.0 - alpha) + alpha) * init
    })
}

/// `init`, multiplied by each factor from its boundary on.
pub fn piecewise_constant_schedule(init: f64, boundaries: &[(usize, f64)]) -> Schedule {
    let boundaries = boundaries.to_vec();
    Schedule::of(move |t| {
        let start = np::full_like(t, init);
        boundaries.iter().fold(start, |v, &(at, factor)| {
            let passed = np::greater_equal(t, at as f64);
            &v * np::where_(&passed, factor, &np::ones_like(t))
        })
    })
}

/// One schedule after another; each counts from its own boundary.
pub fn join_schedules(schedules: &[Schedule], boundaries: &[usize]) -> Schedule {
    let (schedules, boundaries) = (schedules.to_vec(), boundaries.to_vec());
    Schedule::of(move |t| {
        let Some((first, rest)) = schedules.split_first() else { return np::zeros_like(t) };
        rest.iter().zip(&boundaries).fold(first.at(t), |v, (s, &b)| {
            let own = s.at(&(t - b as f64));
            np::where_(&np::less(t, b as f64), &v, &own)
        })
    })
}

/// Up to `peak` in a straight line, then constant.
pub fn warmup_constant_schedule(init: f64, peak: f64, warmup: usize) -> Schedule {
    linear_schedule(init, peak, warmup)
}

/// Up to `peak` in a straight line, then down to `end` along half a cosine until step `steps`.
pub fn warmup_cosine_decay_schedule(init: f64, peak: f64, warmup: usize, steps: usize, end: f64) -> Schedule {
    let alpha = if peak == 0.0 { 0.0 } else { end / peak };
    let down = cosine_decay_schedule(peak, steps.saturating_sub(warmup), alpha);
    join_schedules(&[linear_schedule(init, peak, warmup), down], &[warmup])
}

/// Up to `peak` in a straight line, then multiplied by `rate` every `steps` steps.
pub fn warmup_exponential_decay_schedule(init: f64, peak: f64, warmup: usize, steps: usize, rate: f64) -> Schedule {
    let down = exponential_decay(peak, steps, rate, 0, false);
    join_schedules(&[linear_schedule(init, peak, warmup), down], &[warmup])
}

/// Up to `peak` and down again within `steps`, along half cosines.
pub fn cosine_onecycle_schedule(steps: usize, peak: f64) -> Schedule {
    let (start, end, turn) = (peak / 25.0, peak / 25.0 / 1e4, (0.3 * steps as f64).trunc());
    let between = |a: f64, b: f64, p: Tensor| ((p * PI).cos() + 1.0) * ((a - b) * 0.5) + b;
    Schedule::of(move |t| {
        let up = between(start, peak, (t / turn.max(1.0)).clamp(0.0, 1.0));
        let down = between(peak, end, ((t - turn) / (steps as f64 - turn).max(1.0)).clamp(0.0, 1.0));
        np::where_(&np::less(t, turn), &up, &down)
    })
}
