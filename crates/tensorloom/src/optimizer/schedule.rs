//! Learning rates that change by step, in closed form, by PyTorch's names and rules.

use super::Optimizer;
use std::f64::consts::PI;

/// The learning rate at a step.
pub trait LrSchedule {
    /// For a group's first rate and a step, counted from 0.
    fn lr(&self, base: f64, step: u64) -> f64;
}

/// Multiplies by `gamma` every `every` steps: `StepLR`.
#[derive(Clone, Copy, Debug)]
pub struct StepLr {
    /// Steps between changes.
    pub every: u64,
    /// The factor.
    pub gamma: f64,
}

/// Half a cosine from the first rate to `min`: `CosineAnnealingLR`.
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLr {
    /// Steps until `min`.
    pub steps: u64,
    /// The last rate.
    pub min: f64,
}

/// A line from `start` to `end` times the first rate, then constant: `LinearLR`. With `start` near 0 and `end` 1 a warm-up.
#[derive(Clone, Copy, Debug)]
pub struct LinearLr {
    /// The first factor.
    pub start: f64,
    /// The last factor.
    pub end: f64,
    /// Steps until the last factor.
    pub steps: u64,
}

/// Up and down again by cosines: `OneCycleLR`. A group's first rate is the top.
#[derive(Clone, Copy, Debug)]
pub struct OneCycleLr {
    /// All steps.
    pub steps: u64,
    /// The share of the steps that go up (PyTorch: 0.3).
    pub up: f64,
    /// The top over the first rate (PyTorch: 25).
    pub div: f64,
    /// The first rate over the last (PyTorch: 1e4).
    pub final_div: f64,
}

/// A function of the step times the first rate: `LambdaLR`.
pub struct LambdaLr<F>(pub F);

/// A warm-up of `steps` along a line from 0, then another schedule that begins there.
#[derive(Clone, Copy, Debug)]
pub struct WarmupLr<S> {
    /// Steps of the warm-up.
    pub steps: u64,
    /// What follows.
    pub then: S,
}

impl LrSchedule for StepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powi((step / self.every.max(1)).min(i32::MAX as u64) as i32)
    }
}

impl LrSchedule for CosineAnnealingLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let x = step as f64 / self.steps.max(1) as f64;
        self.min + (base - self.min) * (1.0 + (PI * x).cos()) / 2.0
    }
}

impl LrSchedule for LinearLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let x = step.min(self.steps) as f64 / self.steps.max(1) as f64;
        base * (self.start + (self.end - self.start) * x)
    }
}

impl LrSchedule for OneCycleLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let cosine = |from: f64, to: f64, x: f64| to + (from - to) / 2.0 * (1.0 + (PI * x).cos());
        let first = base / self.div;
        let (top, end) = (self.up * self.steps as f64 - 1.0, self.steps as f64 - 1.0);
        let step = (step as f64).min(end);
        if step <= top {
            cosine(first, base, step / top)
        } else {
            cosine(base, first / self.final_div, (step - top) / (end - top))
        }
    }
}

impl<F: Fn(u64) -> f64> LrSchedule for LambdaLr<F> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (self.0)(step)
    }
}

impl<S: LrSchedule> LrSchedule for WarmupLr<S> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        match step.checked_sub(self.steps) {
            None => base * step as f64 / self.steps as f64,
            Some(step) => self.then.lr(base, step),
        }
    }
}

/// Sets an optimiser's learning rates step by step.
pub struct Scheduler<S> {
    schedule: S,
    bases: Vec<f64>,
    step: u64,
}

impl<S: LrSchedule> Scheduler<S> {
    /// Takes the groups' rates as first rates and sets those of step 0.
    pub fn new(optimizer: &impl Optimizer, schedule: S) -> Scheduler<S> {
        let scheduler = Scheduler { schedule, bases: optimizer.lrs(), step: 0 };
        scheduler.apply(optimizer);
        scheduler
    }

    fn apply(&self, optimizer: &impl Optimizer) {
        let lrs: Vec<f64> = self.bases.iter().map(|&b| self.schedule.lr(b, self.step)).collect();
        optimizer.set_lrs(&lrs);
    }

    /// Goes on to the next step.
    pub fn step(&mut self, optimizer: &impl Optimizer) {
        self.step += 1;
        self.apply(optimizer);
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.step
    }
}
