//! Batched generation: up to as many prompts at once as there are rows, each with the same result as alone.

use crate::batch_engine::BatchEngine;
use crate::error::Result;
use crate::random::SplitMix64;
use crate::sample::{SamplingOptions, TokenHistory};

/// Options of a batched generation.
#[derive(Clone, Debug)]
pub struct BatchGenerateOptions {
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// The sampling options; each prompt has its own seed, derived from this one and its index.
    pub sampling: SamplingOptions,
    /// Tokens that end a text and are not part of it.
    pub eos_ids: Vec<i32>,
}

struct Sequence {
    prompt: usize,
    ids: Vec<i32>,
    next: i32,
    random: SplitMix64,
    history: TokenHistory,
    sampling: SamplingOptions,
}

impl BatchEngine {
    /// Continues prompts; calls `done` with the index of each when it is finished, in any order. The batch must be empty.
    pub fn generate_batch(
        &mut self,
        prompts: &[Vec<i32>],
        wanted: &BatchGenerateOptions,
        done: &mut dyn FnMut(usize, &[i32]) -> Result<()>,
    ) -> Result<()> {
        for prompt in prompts {
            self.check_prompt(prompt, 0)?;
        }
        let mut growing: Vec<Sequence> = Vec::new();
        let mut waiting = 0;
        while waiting < prompts.len() || !growing.is_empty() {
            while waiting < prompts.len() && self.has_room() {
                self.start_prefill(&prompts[waiting], 0)?;
                let logits = loop {
                    if let Some(logits) = self.prefill_chunk()? {
                        break logits;
                    }
                };
                let row = self.admit()?;
                let sampling =
                    SamplingOptions { seed: wanted.sampling.seed.wrapping_add(waiting as u64), ..wanted.sampling };
                growing.push(Sequence {
                    prompt: waiting,
                    ids: Vec::new(),
                    next: 0,
                    random: sampling.generator(),
                    history: TokenHistory::from_prompt(&prompts[waiting]),
                    sampling,
                });
                waiting += 1;
                if self.sample_row(&mut growing[row], logits, wanted, row) {
                    done(growing[row].prompt, &growing[row].ids)?;
                    growing.swap_remove(row);
                    self.evict(row)?;
                }
            }
            if growing.is_empty() {
                continue;
            }
            let next: Vec<i32> = growing.iter().map(|row| row.next).collect();
            let (logits, width) = self.step(&next)?;
            for row in (0..growing.len()).rev() {
                let own = logits[row * width..(row + 1) * width].to_vec();
                if self.sample_row(&mut growing[row], own, wanted, row) {
                    done(growing[row].prompt, &growing[row].ids)?;
                    growing.swap_remove(row);
                    self.evict(row)?;
                }
            }
        }
        Ok(())
    }

    /// Samples a row's next token; returns whether the row is finished.
    fn sample_row(&self, row: &mut Sequence, mut logits: Vec<f32>, wanted: &BatchGenerateOptions, at: usize) -> bool {
        row.sampling.apply_penalties(&mut logits, &row.history);
        row.next = row.sampling.sample(&logits, &mut row.random) as i32;
        if wanted.eos_ids.contains(&row.next) {
            return true;
        }
        row.history.push(row.next);
        row.ids.push(row.next);
        row.ids.len() >= wanted.max_new_tokens || self.row_length(at) + 1 >= self.sizes().max_seq_len
    }
}
