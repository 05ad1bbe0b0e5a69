//! Schedules: a value for each step, in closed form and as data, so that the host and a compiled program compute the same.

use std::f64::consts::PI;

/// A value for each step, counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// A constant.
    Constant(f64),
    /// Linear interpolation between two values, constant before and after.
    Linear {
        /// The value until `begin`.
        from: f64,
        /// The value from `steps` after it.
        to: f64,
        /// The step at which the change begins; −1 means that step 0 is already one step of it.
        begin: f64,
        /// Number of steps of the change.
        steps: usize,
    },
    /// `init` to `end` along a power of the remaining fraction.
    Polynomial {
        /// The value before `begin`.
        init: f64,
        /// The value from `steps` after it.
        end: f64,
        /// The exponent.
        power: f64,
        /// Number of steps of the change.
        steps: usize,
        /// The step at which the change begins.
        begin: usize,
    },
    /// Multiplied by `rate` every `steps` steps after `begin`.
    Exponential {
        /// The value until `begin`.
        init: f64,
        /// Number of steps per factor.
        steps: usize,
        /// The factor.
        rate: f64,
        /// The step at which the change begins.
        begin: usize,
        /// Whether the value changes in discrete steps and not gradually.
        staircase: bool,
    },
    /// A half cosine from one value to another.
    Cosine {
        /// The value at step 0.
        from: f64,
        /// The value at `steps`.
        to: f64,
        /// Number of steps of the change; it may be fractional.
        steps: f64,
        /// Whether the value is constant before and after; otherwise the cosine continues periodically.
        rests: bool,
    },
    /// `init`, multiplied by each factor from the factor's step on.
    Piecewise {
        /// The initial value.
        init: f64,
        /// Pairs of a step and a factor.
        factors: Vec<(usize, f64)>,
    },
    /// A sequence of schedules. Each begins at a given step and counts steps from there.
    Joined {
        /// The first schedule.
        first: Box<Schedule>,
        /// The following schedules with their first steps, in order.
        then: Vec<(f64, Schedule)>,
    },
}

/// A scalar that a schedule is computed with: a number on the host, or a tensor of rank 0.
pub trait ScheduleScalar: Clone {
    /// A constant of the same kind as `self`.
    fn constant(&self, x: f64) -> Self;
    /// `self + x`.
    fn add_scalar(&self, x: f64) -> Self;
    /// `self · x`.
    fn mul_scalar(&self, x: f64) -> Self;
    /// `self / x`.
    fn div_scalar(&self, x: f64) -> Self;
    /// `self` clamped to `low..=high`.
    fn clamp(&self, low: f64, high: f64) -> Self;
    /// The cosine.
    fn cos(&self) -> Self;
    /// Rounded down.
    fn floor(&self) -> Self;
    /// `self` to a power.
    fn pow_scalar(&self, exponent: f64) -> Self;
    /// `base` to the power `self`.
    fn exp_base(&self, base: f64) -> Self;
    /// `before` where `self < at`, else `then`.
    fn select_below(&self, at: f64, before: &Self, then: &Self) -> Self;
}

impl ScheduleScalar for f64 {
    fn constant(&self, x: f64) -> f64 {
        x
    }

    fn add_scalar(&self, x: f64) -> f64 {
        self + x
    }

    fn mul_scalar(&self, x: f64) -> f64 {
        self * x
    }

    fn div_scalar(&self, x: f64) -> f64 {
        self / x
    }

    fn clamp(&self, low: f64, high: f64) -> f64 {
        self.max(low).min(high)
    }

    fn cos(&self) -> f64 {
        f64::cos(*self)
    }

    fn floor(&self) -> f64 {
        f64::floor(*self)
    }

    fn pow_scalar(&self, exponent: f64) -> f64 {
        self.powf(exponent)
    }

    fn exp_base(&self, base: f64) -> f64 {
        // Integer powers are computed as products.
        match self.fract() == 0.0 && self.abs() <= f64::from(i32::MAX) {
            true => base.powi(*self as i32),
            false => base.powf(*self),
        }
    }

    fn select_below(&self, at: f64, before: &f64, then: &f64) -> f64 {
        if *self < at { *before } else { *then }
    }
}

impl From<f64> for Schedule {
    fn from(x: f64) -> Schedule {
        Schedule::Constant(x)
    }
}

impl Schedule {
    /// A half cosine from `from` to `to` over `steps`, constant before and after.
    pub fn cosine(from: f64, to: f64, steps: usize) -> Schedule {
        Schedule::Cosine { from, to, steps: steps.max(1) as f64, rests: true }
    }

    /// A linear warm-up that reaches `peak` at step `warmup − 1`, then a half cosine decay to `floor` times the peak at step `steps`.
    pub fn warmup_cosine(peak: f64, warmup: usize, steps: usize, floor: f64) -> Schedule {
        let down = Schedule::cosine(peak, peak * floor, steps.saturating_sub(warmup));
        if warmup == 0 {
            return down;
        }
        let up = Schedule::Linear { from: 0.0, to: peak, begin: -1.0, steps: warmup };
        up.then(warmup as f64, down)
    }

    /// Continues with another schedule from step `at` on.
    pub fn then(self, at: f64, next: Schedule) -> Schedule {
        Schedule::Joined { first: Box::new(self), then: vec![(at, next)] }
    }

    /// The value at a step, on the host.
    pub fn value_at(&self, step: usize) -> f64 {
        self.eval(&(step as f64))
    }

    /// The value at a step.
    pub fn eval<R: ScheduleScalar>(&self, step: &R) -> R {
        match self {
            Schedule::Constant(x) => step.constant(*x),
            Schedule::Linear { to, steps: 0, .. } => step.constant(*to),
            Schedule::Linear { from, to, begin, steps } => {
                let steps = *steps as f64;
                step.add_scalar(-begin).clamp(0.0, steps).div_scalar(steps).mul_scalar(to - from).add_scalar(*from)
            }
            Schedule::Polynomial { init, steps: 0, .. } => step.constant(*init),
            Schedule::Polynomial { init, end, power, steps, begin } => {
                let steps = *steps as f64;
                let done = step.add_scalar(-(*begin as f64)).clamp(0.0, steps);
                let left = done.div_scalar(steps).mul_scalar(-1.0).add_scalar(1.0);
                left.pow_scalar(*power).mul_scalar(init - end).add_scalar(*end)
            }
            Schedule::Exponential { init, steps, rate, begin, staircase } => {
                let begin = *begin as f64;
                let p = step.add_scalar(-begin).div_scalar((*steps).max(1) as f64);
                let p = if *staircase { p.floor() } else { p };
                step.select_below(begin, &step.constant(*init), &p.exp_base(*rate).mul_scalar(*init))
            }
            Schedule::Cosine { to, steps, .. } if *steps <= 0.0 => step.constant(*to),
            Schedule::Cosine { from, to, steps, rests } => {
                let p = step.div_scalar(*steps);
                let p = if *rests { p.clamp(0.0, 1.0) } else { p };
                p.mul_scalar(PI).cos().add_scalar(1.0).mul_scalar((from - to) * 0.5).add_scalar(*to)
            }
            Schedule::Piecewise { init, factors } => factors.iter().fold(step.constant(*init), |v, (at, factor)| {
                step.select_below(*at as f64, &v, &v.mul_scalar(*factor))
            }),
            Schedule::Joined { first, then } => then.iter().fold(first.eval(step), |v, (at, schedule)| {
                step.select_below(*at, &v, &schedule.eval(&step.add_scalar(-at)))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_rise_fall_and_rest() {
        let check = |schedule: &Schedule, expected: &[(usize, f64)]| {
            for (step, rate) in expected {
                let found = schedule.value_at(*step);
                assert!((found - rate).abs() < 1e-12, "{schedule:?}, step {step}: {found}");
            }
        };
        let warm = Schedule::warmup_cosine(1.0, 10, 110, 0.1);
        check(&warm, &[(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.55), (110, 0.1), (500, 0.1)]);
        check(&Schedule::warmup_cosine(2.0, 0, 4, 0.5), &[(0, 2.0), (2, 1.5), (4, 1.0), (9, 1.0)]);
        check(&Schedule::warmup_cosine(2.0, 3, 3, 0.0), &[(0, 2.0 / 3.0), (2, 2.0), (3, 2.0), (4, 0.0)]);
        check(&Schedule::Constant(0.3), &[(0, 0.3), (1 << 40, 0.3)]);
        let line = Schedule::Linear { from: 1.0, to: 3.0, begin: 2.0, steps: 4 };
        check(&line, &[(0, 1.0), (2, 1.0), (4, 2.0), (6, 3.0), (7, 3.0)]);
        check(&Schedule::Linear { from: 1.0, to: 3.0, begin: 0.0, steps: 0 }, &[(0, 3.0), (5, 3.0)]);
        let square = Schedule::Polynomial { init: 4.0, end: 0.0, power: 2.0, steps: 2, begin: 1 };
        check(&square, &[(0, 4.0), (1, 4.0), (2, 1.0), (3, 0.0), (4, 0.0)]);
        let halves = Schedule::Exponential { init: 8.0, steps: 2, rate: 0.25, begin: 1, staircase: false };
        check(&halves, &[(0, 8.0), (1, 8.0), (2, 4.0), (3, 2.0), (5, 0.5)]);
        let stairs = Schedule::Exponential { init: 8.0, steps: 2, rate: 0.25, begin: 0, staircase: true };
        check(&stairs, &[(0, 8.0), (1, 8.0), (2, 2.0), (3, 2.0), (4, 0.5)]);
        let wave = Schedule::Cosine { from: 1.0, to: 0.0, steps: 2.0, rests: false };
        check(&wave, &[(0, 1.0), (1, 0.5), (2, 0.0), (3, 0.5), (4, 1.0)]);
        check(&Schedule::Cosine { from: 1.0, to: 0.25, steps: 0.0, rests: true }, &[(0, 0.25)]);
        let pieces = Schedule::Piecewise { init: 1.0, factors: vec![(2, 0.5), (4, 0.1)] };
        check(&pieces, &[(0, 1.0), (1, 1.0), (2, 0.5), (3, 0.5), (4, 0.05)]);
    }
}
