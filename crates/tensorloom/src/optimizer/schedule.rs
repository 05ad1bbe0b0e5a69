//! Learning rates that change by step, by PyTorch's names and rules; `training` has what they are.

use super::Optimizer;
use train::Schedule;

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
        let steps = self.every.max(1) as usize;
        let stairs = Schedule::Exponential { init: base, steps, rate: self.gamma, begin: 0, staircase: true };
        stairs.eval(&(step as f64))
    }
}

impl LrSchedule for CosineAnnealingLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let steps = self.steps.max(1) as f64;
        Schedule::Cosine { from: base, to: self.min, steps, rests: false }.eval(&(step as f64))
    }
}

impl LrSchedule for LinearLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let (from, to) = (base * self.start, base * self.end);
        let line = Schedule::Linear { from, to, begin: 0.0, steps: self.steps as usize };
        line.eval(&(step as f64))
    }
}

impl LrSchedule for OneCycleLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let cosine = |from, to, steps| Schedule::Cosine { from, to, steps, rests: true };
        let first = base / self.div;
        let (top, end) = (self.up * self.steps as f64 - 1.0, self.steps as f64 - 1.0);
        cosine(first, base, top).then(top, cosine(base, first / self.final_div, end - top)).eval(&(step as f64))
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
            None => LinearLr { start: 0.0, end: 1.0, steps: self.steps }.lr(base, step),
            Some(step) => self.then.lr(base, step),
        }
    }
}

/// A schedule as data, times the first rate.
impl LrSchedule for Schedule {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.eval(&(step as f64))
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
