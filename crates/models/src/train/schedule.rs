//! The learning rate over a run.

/// Linear warm-up, then half a cosine down to a share of the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The rate after warm-up.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: usize,
    /// Steps of the run.
    pub steps: usize,
    /// The last rate as a share of the peak.
    pub floor: f64,
}

impl Schedule {
    /// The rate of a step, counted from 0.
    pub fn rate(&self, step: usize) -> f64 {
        if step < self.warmup {
            return self.peak * (step + 1) as f64 / self.warmup as f64;
        }
        let done = (step - self.warmup) as f64 / (self.steps.saturating_sub(self.warmup).max(1)) as f64;
        let wave = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
        self.peak * (self.floor + (1.0 - self.floor) * wave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_falls_and_rests() {
        let schedule = Schedule { peak: 1.0, warmup: 10, steps: 110, floor: 0.1 };
        let expected = [(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.55), (110, 0.1), (500, 0.1)];
        for (step, rate) in expected {
            assert!((schedule.rate(step) - rate).abs() < 1e-12, "step {step}: {}", schedule.rate(step));
        }
    }
}
