//! Generation: the prompt in one run, then one token a run.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::Sampling;
use compiler::Backend;
use std::time::{Duration, Instant};

/// New tokens, and how long they took.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The new ids.
    pub ids: Vec<i32>,
    /// From the call to the first token, compiling included.
    pub first: Duration,
    /// Running the prompt, without compiling.
    pub prompt: Duration,
    /// Running all tokens after the first, without compiling.
    pub rest: Duration,
}

impl Model {
    /// The most probable continuation of a prompt.
    pub fn generate(&self, prompt: &[i32], max_new: usize, backend: &dyn Backend) -> Result<Generation> {
        self.generate_with(prompt, max_new, &Sampling::GREEDY, backend, &mut |_| true)
    }

    /// A continuation of a prompt. Each new id is shown to `heard` at once, which says whether to go on.
    pub fn generate_with(
        &self,
        prompt: &[i32],
        max_new: usize,
        sampling: &Sampling,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let started = Instant::now();
        let length = self.check_ids(&[prompt.to_vec()])?;
        if let Some(most) = self.longest().filter(|most| length + max_new > *most) {
            return Err(Error::Input(format!(
                "{length} ids and {max_new} new ones: the model takes at most {most} in all"
            )));
        }
        let mut found =
            Generation { ids: Vec::new(), first: Duration::ZERO, prompt: Duration::ZERO, rest: Duration::ZERO };
        let mut decoding = self.decoding(length + max_new, backend)?;
        let mut random = sampling.random();
        let mut input = prompt.to_vec();
        while found.ids.len() < max_new {
            let logits = decoding.push(&input)?;
            let id = sampling.choose(&logits, &mut random) as i32;
            found.ids.push(id);
            if found.ids.len() == 1 {
                (found.first, found.prompt) = (started.elapsed(), decoding.ran());
            } else {
                found.rest += decoding.ran();
            }
            if !heard(id) {
                break;
            }
            input = vec![id];
        }
        Ok(found)
    }
}
