//! Schedules: a number for each step, in closed form and as data, so that a host and a compiled program read the same.

use std::f64::consts::PI;

/// A number for each step, counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The same always.
    Constant(f64),
    /// From one number to another in a straight line, constant before and behind.
    Linear {
        /// Until `begin`.
        from: f64,
        /// `steps` behind it.
        to: f64,
        /// When change begins; −1 says that step 0 is one step on its way.
        begin: f64,
        /// Steps of change.
        steps: usize,
    },
    /// From `init` to `end` along a power of the distance that is left.
    Polynomial {
        /// Before `begin`.
        init: f64,
        /// `steps` behind it.
        end: f64,
        /// The power.
        power: f64,
        /// Steps of change.
        steps: usize,
        /// When change begins.
        begin: usize,
    },
    /// Multiplied by `rate` every `steps` steps behind `begin`.
    Exponential {
        /// Until `begin`.
        init: f64,
        /// Steps for one factor.
        steps: usize,
        /// The factor.
        rate: f64,
        /// When change begins.
        begin: usize,
        /// All at once rather than gradually.
        staircase: bool,
    },
    /// Half a cosine from one number to another.
    Cosine {
        /// At step 0.
        from: f64,
        /// At `steps`.
        to: f64,
        /// Steps of change, which need not be whole.
        steps: f64,
        /// Whether it rests before and behind; otherwise the wave goes on.
        rests: bool,
    },
    /// `init`, multiplied by each factor from its step on.
    Piecewise {
        /// At first.
        init: f64,
        /// Steps and factors.
        factors: Vec<(usize, f64)>,
    },
    /// One schedule after another, each from a step on, from which it counts.
    Joined {
        /// The first.
        first: Box<Schedule>,
        /// The others with their steps, in order.
        then: Vec<(f64, Schedule)>,
    },
}

/// What a schedule is computed with: a number of the host, or a tensor of rank 0.
pub trait Real: Clone {
    /// This number, of the same kind.
    fn number(&self, x: f64) -> Self;
    /// `self + x`.
    fn plus(&self, x: f64) -> Self;
    /// `self · x`.
    fn times(&self, x: f64) -> Self;
    /// `self / x`.
    fn over(&self, x: f64) -> Self;
    /// Not below `low`, not above `high`.
    fn clamp(&self, low: f64, high: f64) -> Self;
    /// The cosine.
    fn cos(&self) -> Self;
    /// Rounded down.
    fn floor(&self) -> Self;
    /// `self` to a power.
    fn power(&self, exponent: f64) -> Self;
    /// `base` to the power `self`.
    fn exponent_of(&self, base: f64) -> Self;
    /// `before` where `self < at`, else `then`.
    fn below(&self, at: f64, before: &Self, then: &Self) -> Self;
}

impl Real for f64 {
    fn number(&self, x: f64) -> f64 {
        x
    }

    fn plus(&self, x: f64) -> f64 {
        self + x
    }

    fn times(&self, x: f64) -> f64 {
        self * x
    }

    fn over(&self, x: f64) -> f64 {
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

    fn power(&self, exponent: f64) -> f64 {
        self.powf(exponent)
    }

    fn exponent_of(&self, base: f64) -> f64 {
        // Whole powers are products.
        match self.fract() == 0.0 && self.abs() <= f64::from(i32::MAX) {
            true => base.powi(*self as i32),
            false => base.powf(*self),
        }
    }

    fn below(&self, at: f64, before: &f64, then: &f64) -> f64 {
        if *self < at { *before } else { *then }
    }
}

impl From<f64> for Schedule {
    fn from(x: f64) -> Schedule {
        Schedule::Constant(x)
    }
}

impl Schedule {
    /// Half a cosine from `from` to `to` over `steps`, where it rests.
    pub fn cosine(from: f64, to: f64, steps: usize) -> Schedule {
        Schedule::Cosine { from, to, steps: steps.max(1) as f64, rests: true }
    }

    /// A warm-up in a straight line whose step `warmup − 1` is the first at `peak`, then half a cosine down to `floor` times the
    /// peak until step `steps`.
    pub fn warmup_cosine(peak: f64, warmup: usize, steps: usize, floor: f64) -> Schedule {
        let down = Schedule::cosine(peak, peak * floor, steps.saturating_sub(warmup));
        if warmup == 0 {
            return down;
        }
        let up = Schedule::Linear { from: 0.0, to: peak, begin: -1.0, steps: warmup };
        up.then(warmup as f64, down)
    }

    /// This schedule until a step, another from there on.
    pub fn then(self, at: f64, next: Schedule) -> Schedule {
        Schedule::Joined { first: Box::new(self), then: vec![(at, next)] }
    }

    /// The number at a step of the host.
    pub fn rate(&self, step: usize) -> f64 {
        self.at(&(step as f64))
    }

    /// The number at a step.
    pub fn at<R: Real>(&self, step: &R) -> R {
        match self {
            Schedule::Constant(x) => step.number(*x),
            Schedule::Linear { to, steps: 0, .. } => step.number(*to),
            Schedule::Linear { from, to, begin, steps } => {
                let steps = *steps as f64;
                step.plus(-begin).clamp(0.0, steps).over(steps).times(to - from).plus(*from)
            }
            Schedule::Polynomial { init, steps: 0, .. } => step.number(*init),
            Schedule::Polynomial { init, end, power, steps, begin } => {
                let steps = *steps as f64;
                let done = step.plus(-(*begin as f64)).clamp(0.0, steps);
                let left = done.over(steps).times(-1.0).plus(1.0);
                left.power(*power).times(init - end).plus(*end)
            }
            Schedule::Exponential { init, steps, rate, begin, staircase } => {
                let begin = *begin as f64;
                let p = step.plus(-begin).over((*steps).max(1) as f64);
                let p = if *staircase { p.floor() } else { p };
                step.below(begin, &step.number(*init), &p.exponent_of(*rate).times(*init))
            }
            Schedule::Cosine { to, steps, .. } if *steps <= 0.0 => step.number(*to),
            Schedule::Cosine { from, to, steps, rests } => {
                let p = step.over(*steps);
                let p = if *rests { p.clamp(0.0, 1.0) } else { p };
                p.times(PI).cos().plus(1.0).times((from - to) * 0.5).plus(*to)
            }
            Schedule::Piecewise { init, factors } => {
                factors.iter().fold(step.number(*init), |v, (at, factor)| step.below(*at as f64, &v, &v.times(*factor)))
            }
            Schedule::Joined { first, then } => {
                then.iter().fold(first.at(step), |v, (at, schedule)| step.below(*at, &v, &schedule.at(&step.plus(-at))))
            }
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
                let found = schedule.rate(*step);
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
