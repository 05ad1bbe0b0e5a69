//! Schedules: numbers that depend on the step. Those that have a name are `training`'s, computed with tensors.

use crate::{DType, Tensor, np};
use std::sync::Arc;
use train::schedule::{self, ScheduleScalar};

/// A number for each step, counted from 0.
#[derive(Clone)]
pub enum Schedule {
    /// One that a host can compute too.
    Known(schedule::Schedule),
    /// A function of the step as an f64 of rank 0.
    Of(Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>),
}

impl From<f64> for Schedule {
    fn from(x: f64) -> Schedule {
        Schedule::Known(x.into())
    }
}

impl From<schedule::Schedule> for Schedule {
    fn from(known: schedule::Schedule) -> Schedule {
        Schedule::Known(known)
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
        let _here = crate::record::here();
        let step = step.cast(DType::F64);
        match self {
            Schedule::Known(known) => known.eval(&Step(step)).0,
            Schedule::Of(f) => f(&step),
        }
    }
}

/// A step of a compiled program, as an f64 of rank 0.
#[derive(Clone)]
struct Step(Tensor);

impl ScheduleScalar for Step {
    fn constant(&self, x: f64) -> Step {
        Step(np::full_like(&self.0, x))
    }

    fn add_scalar(&self, x: f64) -> Step {
        Step(&self.0 + x)
    }

    fn mul_scalar(&self, x: f64) -> Step {
        Step(&self.0 * x)
    }

    fn div_scalar(&self, x: f64) -> Step {
        Step(&self.0 / x)
    }

    fn clamp(&self, low: f64, high: f64) -> Step {
        Step(self.0.clamp(low, high))
    }

    fn cos(&self) -> Step {
        Step(self.0.cos())
    }

    fn floor(&self) -> Step {
        Step(self.0.floor())
    }

    fn pow_scalar(&self, exponent: f64) -> Step {
        Step(np::power(&self.0, exponent))
    }

    fn exp_base(&self, base: f64) -> Step {
        Step((&self.0 * base.ln()).exp())
    }

    fn select_below(&self, at: f64, before: &Step, then: &Step) -> Step {
        Step(np::where_(&np::less(&self.0, at), &before.0, &then.0))
    }
}

/// The same number always.
pub fn constant_schedule(value: f64) -> Schedule {
    value.into()
}

/// From `init` to `end` over `steps` steps that begin at `begin`, along a power of the distance.
pub fn polynomial_schedule(init: f64, end: f64, power: f64, steps: usize, begin: usize) -> Schedule {
    schedule::Schedule::Polynomial { init, end, power, steps, begin }.into()
}

/// From `init` to `end` in a straight line.
pub fn linear_schedule(init: f64, end: f64, steps: usize) -> Schedule {
    polynomial_schedule(init, end, 1.0, steps, 0)
}

/// Multiplied by `rate` every `steps` steps, gradually or in `staircase`.
pub fn exponential_decay(init: f64, steps: usize, rate: f64, begin: usize, staircase: bool) -> Schedule {
    schedule::Schedule::Exponential { init, steps, rate, begin, staircase }.into()
}

/// Down to `alpha` times `init` along half a cosine.
pub fn cosine_decay_schedule(init: f64, steps: usize, alpha: f64) -> Schedule {
    schedule::Schedule::cosine(init, init * alpha, steps).into()
}

/// `init`, multiplied by each factor from its boundary on.
pub fn piecewise_constant_schedule(init: f64, boundaries: &[(usize, f64)]) -> Schedule {
    schedule::Schedule::Piecewise { init, factors: boundaries.to_vec() }.into()
}

/// One schedule after another; each counts from its own boundary.
pub fn join_schedules(schedules: &[Schedule], boundaries: &[usize]) -> Schedule {
    let Some((first, rest)) = schedules.split_first() else { return 0.0.into() };
    let known = |s: &Schedule| if let Schedule::Known(known) = s { Some(known.clone()) } else { None };
    let then = rest.iter().zip(boundaries).map(|(s, &at)| Some((at as f64, known(s)?)));
    if let (Some(first), Some(then)) = (known(first), then.collect::<Option<Vec<_>>>()) {
        return schedule::Schedule::Joined { first: Box::new(first), then }.into();
    }
    let (first, rest, boundaries) = (first.clone(), rest.to_vec(), boundaries.to_vec());
    Schedule::of(move |t| {
        rest.iter().zip(&boundaries).fold(first.at(t), |v, (s, &at)| {
            let own = s.at(&(t - at as f64));
            np::where_(&np::less(t, at as f64), &v, &own)
        })
    })
}

/// Up to `peak` in a straight line, then constant.
pub fn warmup_constant_schedule(init: f64, peak: f64, warmup: usize) -> Schedule {
    linear_schedule(init, peak, warmup)
}

/// Up to `peak` in a straight line, then down to `end` along half a cosine until step `steps`.
pub fn warmup_cosine_decay_schedule(init: f64, peak: f64, warmup: usize, steps: usize, end: f64) -> Schedule {
    // A peak of 0 stays there.
    let end = if peak == 0.0 { 0.0 } else { end };
    let down = schedule::Schedule::cosine(peak, end, steps.saturating_sub(warmup));
    join_schedules(&[linear_schedule(init, peak, warmup), down.into()], &[warmup])
}

/// Up to `peak` in a straight line, then multiplied by `rate` every `steps` steps.
pub fn warmup_exponential_decay_schedule(init: f64, peak: f64, warmup: usize, steps: usize, rate: f64) -> Schedule {
    let down = exponential_decay(peak, steps, rate, 0, false);
    join_schedules(&[linear_schedule(init, peak, warmup), down], &[warmup])
}

/// Up to `peak` and down again within `steps`, along half cosines.
pub fn cosine_onecycle_schedule(steps: usize, peak: f64) -> Schedule {
    let (start, end, turn) = (peak / 25.0, peak / 25.0 / 1e4, (0.3 * steps as f64).trunc());
    let between = |from, to, steps: f64| schedule::Schedule::Cosine { from, to, steps: steps.max(1.0), rests: true };
    between(start, peak, turn).then(turn, between(peak, end, steps as f64 - turn)).into()
}
