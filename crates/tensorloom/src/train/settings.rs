//! What may be chosen about a run.

use crate::{Result, record};
use std::path::PathBuf;
use train::{AdamW, Intervals, Schedule};

/// What may be chosen about a run.
///
/// Everything random comes from `seed` and the number of the step, so a run that is resumed gives the bits of one that was never
/// stopped.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of checkpoints, `log.jsonl`, `index.html` and `model.safetensors`.
    pub out: PathBuf,
    /// What is trained, for the report.
    pub name: String,
    /// Steps of the run.
    pub steps: usize,
    /// Micro-batches of a step, whose gradients are averaged.
    pub accumulate: usize,
    /// The learning rate.
    pub rate: Schedule,
    /// Numbers of the optimiser; matrices decay, vectors don't. `clip` shortens longer gradients, 0 leaves them.
    pub optimizer: AdamW,
    /// For what is random in a step.
    pub seed: u64,
    /// Steps between lines of the log.
    pub log_every: usize,
    /// Steps between validations.
    pub eval_every: usize,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Checkpoints that are kept.
    pub keep: usize,
    /// Goes on from the newest good checkpoint in the folder.
    pub resume: bool,
    /// Writes TensorBoard's files too.
    pub tensorboard: bool,
    /// Serves the report while the run goes on, on this port (0: a free one), to this machine alone.
    pub live: Option<u16>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            out: PathBuf::from("run"),
            name: "module".to_string(),
            steps: 1000,
            accumulate: 1,
            rate: Schedule::Constant(1e-3),
            optimizer: AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, max_grad_norm: 1.0 },
            seed: 0,
            log_every: 10,
            eval_every: 100,
            checkpoint_every: 100,
            keep: 2,
            resume: false,
            tensorboard: false,
            live: None,
        }
    }
}

impl Settings {
    /// What is wrong with them, with the remedy.
    pub(super) fn check(&self) -> Result<()> {
        let fail = |reason: String| Err(record::error("Trainer", reason));
        let counts = [
            ("steps", self.steps),
            ("accumulate", self.accumulate),
            ("log_every", self.log_every),
            ("eval_every", self.eval_every),
            ("checkpoint_every", self.checkpoint_every),
            ("keep", self.keep),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, n)| *n == 0) {
            return fail(format!("`{name}` is 0, but it must be at least 1"));
        }
        let AdamW { beta1, beta2, eps, weight_decay: decay, max_grad_norm: clip } = self.optimizer;
        for (name, beta) in [("beta1", beta1), ("beta2", beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return fail(format!("`optimizer.{name}` is {beta}, but it must be at least 0 and less than 1"));
            }
        }
        for (name, x) in [("eps", eps), ("decay", decay), ("clip", clip)] {
            if !(x.is_finite() && x >= 0.0) {
                return fail(format!("`optimizer.{name}` is {x}, but it must be finite and non-negative"));
            }
        }
        for step in [0, self.steps / 2, self.steps - 1] {
            let rate = self.rate.value_at(step);
            if !(rate.is_finite() && rate >= 0.0) {
                return fail(format!(
                    "the learning rate of step {step} is {rate}, but it must be finite and non-negative"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn cadence(&self) -> Intervals {
        Intervals {
            steps: self.steps,
            log_every: self.log_every,
            eval_every: self.eval_every,
            sample_every: usize::MAX,
            checkpoint_every: self.checkpoint_every,
            save_total_limit: self.keep,
        }
    }

    /// What must be the same where a run goes on, by name. Steps may become more.
    pub(super) fn lasting(&self) -> Vec<(&'static str, String)> {
        let AdamW { beta1, beta2, eps, weight_decay, max_grad_norm } = self.optimizer;
        // Checkpoints contain these texts: they stay the same where names in the code change.
        let optimizer = format!(
            "AdamW {{ beta1: {beta1:?}, beta2: {beta2:?}, eps: {eps:?}, decay: {weight_decay:?}, clip: {max_grad_norm:?} }}"
        );
        vec![
            ("accumulate", self.accumulate.to_string()),
            ("rate", format!("{:?}", self.rate)),
            ("optimizer", optimizer),
            ("seed", self.seed.to_string()),
        ]
    }
}
