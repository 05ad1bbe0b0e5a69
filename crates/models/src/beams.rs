//! Beam search: finds the most probable sequences, as transformers does.

use crate::batch_engine::BatchEngine;
use crate::error::{Error, Result};
use crate::sample::top_logprobs;

/// Options of a beam search.
#[derive(Clone, Debug)]
pub struct BeamSearchOptions {
    /// Number of beams.
    pub num_beams: usize,
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// Scores are divided by the length to this power.
    pub length_penalty: f64,
    /// Tokens that end a sequence.
    pub eos_ids: Vec<i32>,
}

/// A finished sequence: its new tokens, including the end token, and its score.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamResult {
    /// The new token IDs.
    pub ids: Vec<i32>,
    /// The sum of its tokens' log probabilities, divided by its length to a power.
    pub score: f64,
}

impl BatchEngine {
    /// Returns the best continuations of a prompt, one per beam, best first. The batch must be empty, with a row for each beam.
    pub fn beam_search(&mut self, prompt: &[i32], beams: &BeamSearchOptions) -> Result<Vec<BeamResult>> {
        let (count, most) = (beams.num_beams, beams.max_new_tokens);
        if count == 0 || most == 0 || !self.is_empty() || self.sizes().max_batch < count {
            return Err(Error::Input(format!(
                "beam search with {count} beams needs an empty batch with at least that many rows"
            )));
        }
        if prompt.len() + most > self.sizes().max_seq_len {
            return Err(Error::Input(format!(
                "{} tokens and {most} new tokens exceed the maximum sequence length of {}",
                prompt.len(),
                self.sizes().max_seq_len
            )));
        }
        self.start_prefill(prompt, 0)?;
        let first = loop {
            if let Some(logits) = self.prefill_chunk()? {
                break logits;
            }
        };
        self.admit()?;
        let scored = |sum: f64, length: usize| sum / (length as f64).powf(beams.length_penalty);
        let mut done: Vec<BeamResult> = Vec::new();
        // For each beam: token IDs, sum, and the logits of the next token.
        let mut open: Vec<(Vec<i32>, f64, Vec<f32>)> = vec![(Vec::new(), 0.0, first)];
        for step in 1..=most {
            // Enough candidates that the number of unfinished ones is at least the number of beams.
            let wide = count * (1 + beams.eos_ids.len().max(1));
            let mut candidates: Vec<(f64, usize, i32)> = Vec::new();
            for (beam, (_, sum, logits)) in open.iter().enumerate() {
                let (_, best) = top_logprobs(logits, 0, wide);
                candidates.extend(best.into_iter().map(|(id, x)| (sum + x, beam, id)));
            }
            candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
            candidates.truncate(wide);
            let mut next: Vec<(f64, usize, i32)> = Vec::new();
            for (rank, (sum, beam, id)) in candidates.into_iter().enumerate() {
                if beams.eos_ids.contains(&id) {
                    // A finished candidate counts only if it is among the best `count`.
                    if rank < count {
                        let ids: Vec<i32> = open[beam].0.iter().copied().chain([id]).collect();
                        done.push(BeamResult { ids, score: scored(sum, step) });
                    }
                } else if next.len() < count {
                    next.push((sum, beam, id));
                }
            }
            done.sort_by(|a, b| b.score.total_cmp(&a.score));
            done.truncate(count);
            let best_left = next.first().map_or(f64::NEG_INFINITY, |(sum, ..)| scored(*sum, step));
            let finished = done.len() == count && done[count - 1].score >= best_left;
            if finished || step == most || next.is_empty() {
                if !finished {
                    let ids = |beam: usize, id: i32| open[beam].0.iter().copied().chain([id]).collect();
                    done.extend(
                        next.iter()
                            .map(|(sum, beam, id)| BeamResult { ids: ids(*beam, *id), score: scored(*sum, step) }),
                    );
                }
                break;
            }
            self.reorder_cache(&next.iter().map(|(_, beam, _)| *beam).collect::<Vec<_>>())?;
            let ids: Vec<i32> = next.iter().map(|(.., id)| *id).collect();
            let (logits, width) = self.step(&ids)?;
            let rows = logits.chunks_exact(width);
            let grown = next.iter().zip(rows).map(|((sum, beam, id), row)| {
                (open[*beam].0.iter().copied().chain([*id]).collect(), *sum, row.to_vec())
            });
            open = grown.collect();
        }
        while !self.is_empty() {
            self.evict(self.len() - 1)?;
        }
        done.sort_by(|a, b| b.score.total_cmp(&a.score));
        done.truncate(count);
        Ok(done)
    }
}
