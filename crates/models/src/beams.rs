//! Beam search: the texts that are most probable as a whole, as transformers finds them.

use crate::error::{Error, Result};
use crate::sample::log_probabilities;
use crate::slots::Slots;

/// What may be chosen about a search.
#[derive(Clone, Debug)]
pub struct Beams {
    /// Texts that are followed at once.
    pub count: usize,
    /// New ids at most.
    pub most: usize,
    /// Scores are divided by the length to this power.
    pub length_penalty: f64,
    /// Ids that end a text.
    pub ends: Vec<i32>,
}

/// A text that was found: its new ids, the end among them, and its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// New ids.
    pub ids: Vec<i32>,
    /// The sum of the logarithms of its tokens' probabilities, divided by its length to a power.
    pub score: f64,
}

impl Slots {
    /// The best continuations of a prompt, as many as there are beams, best first. The batch must be empty, with a row for each.
    pub fn search(&mut self, prompt: &[i32], beams: &Beams) -> Result<Vec<Found>> {
        let (count, most) = (beams.count, beams.most);
        if count == 0 || most == 0 || !self.is_empty() || self.sizes().rows < count {
            return Err(Error::Input(format!(
                "beam search with {count} beams needs an empty batch with at least that many rows"
            )));
        }
        if prompt.len() + most > self.sizes().context {
            return Err(Error::Input(format!(
                "{} tokens and {most} new tokens exceed the maximum sequence length of {}",
                prompt.len(),
                self.sizes().context
            )));
        }
        self.begin(prompt, 0)?;
        let first = loop {
            if let Some(logits) = self.advance()? {
                break logits;
            }
        };
        self.join()?;
        let scored = |sum: f64, length: usize| sum / (length as f64).powf(beams.length_penalty);
        let mut done: Vec<Found> = Vec::new();
        // Of each text that is followed: ids, sum, and the logits of what comes next.
        let mut open: Vec<(Vec<i32>, f64, Vec<f32>)> = vec![(Vec::new(), 0.0, first)];
        for step in 1..=most {
            // Enough that ends can't leave too few that go on.
            let wide = count * (1 + beams.ends.len().max(1));
            let mut candidates: Vec<(f64, usize, i32)> = Vec::new();
            for (beam, (_, sum, logits)) in open.iter().enumerate() {
                let (_, best) = log_probabilities(logits, 0, wide);
                candidates.extend(best.into_iter().map(|(id, x)| (sum + x, beam, id)));
            }
            candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
            candidates.truncate(wide);
            let mut next: Vec<(f64, usize, i32)> = Vec::new();
            for (rank, (sum, beam, id)) in candidates.into_iter().enumerate() {
                if beams.ends.contains(&id) {
                    // An end behind better ones that go on is no find.
                    if rank < count {
                        let ids: Vec<i32> = open[beam].0.iter().copied().chain([id]).collect();
                        done.push(Found { ids, score: scored(sum, step) });
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
                        next.iter().map(|(sum, beam, id)| Found { ids: ids(*beam, *id), score: scored(*sum, step) }),
                    );
                }
                break;
            }
            self.rearrange(&next.iter().map(|(_, beam, _)| *beam).collect::<Vec<_>>())?;
            let ids: Vec<i32> = next.iter().map(|(.., id)| *id).collect();
            let (logits, width) = self.step(&ids)?;
            let rows = logits.chunks_exact(width);
            let grown = next.iter().zip(rows).map(|((sum, beam, id), row)| {
                (open[*beam].0.iter().copied().chain([*id]).collect(), *sum, row.to_vec())
            });
            open = grown.collect();
        }
        while !self.is_empty() {
            self.leave(self.len() - 1)?;
        }
        done.sort_by(|a, b| b.score.total_cmp(&a.score));
        done.truncate(count);
        Ok(done)
    }
}
