//! Generation: the prompt in one run, then one token a run, or several that a smaller model has guessed.

use crate::adapter::Adapter;
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::random::SplitMix64;
use crate::sample::{SamplingOptions, TokenHistory};
use crate::session::Buffer;
use compiler::Backend;
use dist::Comm;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// New tokens, and how long they took.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The new ids.
    pub ids: Vec<i32>,
    /// From the call to the first token, compiling included.
    pub time_to_first_token: Duration,
    /// Running the prompt, without compiling.
    pub prompt_time: Duration,
    /// Running all tokens after the first, without compiling.
    pub decode_time: Duration,
    /// Of the tokens that a smaller model guessed, those that were right, and all.
    pub draft_accepted: (usize, usize),
}

/// What may be chosen about a generation.
#[derive(Clone, Default)]
pub struct GenerateOptions<'a> {
    /// How tokens are chosen.
    pub sampling: Option<SamplingOptions>,
    /// The form that the text must have.
    pub constraint: Option<Constraint>,
    /// Ids that end a text, where a form says when it may end.
    pub eos_ids: &'a [i32],
    /// A smaller model with the same vocabulary, and how many tokens it guesses at once.
    pub draft: Option<(&'a Model, usize)>,
    /// The ranks that share the model, of which this is one; the backend must talk through it.
    pub ranks: Option<Arc<Comm>>,
}

/// Chooses token after token, whoever computed the logits.
pub(crate) struct TokenSampler {
    sampling: SamplingOptions,
    random: SplitMix64,
    history: TokenHistory,
    constraint: Option<Constraint>,
    ends: Vec<i32>,
}

impl TokenSampler {
    pub(crate) fn new(writing: &GenerateOptions<'_>, prompt: &[i32]) -> TokenSampler {
        let sampling = writing.sampling.unwrap_or(SamplingOptions::GREEDY);
        let constraint = writing.constraint.clone();
        let (random, history) = (sampling.generator(), TokenHistory::from_prompt(prompt));
        TokenSampler { sampling, random, history, constraint, ends: writing.eos_ids.to_vec() }
    }

    pub(crate) fn sample_next(&mut self, mut logits: Vec<f32>) -> i32 {
        self.sampling.apply_penalties(&mut logits, &self.history);
        if let Some(constraint) = &self.constraint {
            constraint.mask(&mut logits, &self.ends);
        }
        let id = self.sampling.sample(&logits, &mut self.random) as i32;
        self.history.push(id);
        if let Some(constraint) = &mut self.constraint {
            constraint.push(id);
        }
        id
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.constraint.as_ref().is_some_and(Constraint::is_finished)
    }
}

impl Model {
    /// The most probable continuation of a prompt.
    pub fn generate(&self, prompt: &[i32], max_new: usize, backend: &dyn Backend) -> Result<Generation> {
        self.generate_with(prompt, max_new, &SamplingOptions::GREEDY, backend, &mut |_| true)
    }

    /// A continuation of a prompt. Each new id is shown to `heard` at once, which says whether to go on.
    pub fn generate_with(
        &self,
        prompt: &[i32],
        max_new: usize,
        sampling: &SamplingOptions,
        backend: &dyn Backend,
        on_token: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let writing = GenerateOptions { sampling: Some(*sampling), ..GenerateOptions::default() };
        self.generate_with_options(prompt, max_new, &writing, backend, on_token)
    }

    /// The same with everything chosen.
    ///
    /// With a draft, tokens are those of the plain run: each is chosen from the model's own logits, in the same order and by
    /// the same draws, and a guess only saves a run where it was right.
    pub fn generate_with_options(
        &self,
        prompt: &[i32],
        max_new: usize,
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        self.generate_on(None, prompt, max_new, writing, backend, heard)
    }

    /// The same, perhaps with parameters that are on the device already, those of an adapter in front of them.
    pub(crate) fn generate_on(
        &self,
        given: Option<(Vec<Buffer>, Option<&Adapter>)>,
        prompt: &[i32],
        max_new: usize,
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let started = Instant::now();
        let length = self.check_ids(&[prompt.to_vec()])?;
        self.check_has_lm_head()?;
        if let Some(most) = self.max_positions().filter(|most| length + max_new > *most) {
            return Err(Error::Input(format!(
                "{length} ids and {max_new} new ones: the model takes at most {most} in all"
            )));
        }
        let zero = Duration::ZERO;
        let mut found = Generation {
            ids: Vec::new(),
            time_to_first_token: zero,
            prompt_time: zero,
            decode_time: zero,
            draft_accepted: (0, 0),
        };
        let mut choosing = TokenSampler::new(writing, prompt);
        let mut guesser = match writing.draft {
            Some((draft, count)) if max_new > 1 => Some(DraftModel::new(draft, count, prompt, self, max_new, backend)?),
            _ => None,
        };
        let room = guesser.as_ref().map_or(0, |guesser| guesser.num_draft_tokens);
        let among = |most: usize| self.decode_session_sharded(most, backend, writing.ranks.clone());
        let mut decoding = match given {
            Some((params, adapter)) => self.decode_session_on(params, adapter, length + max_new, backend),
            None => among(length + max_new + room).or_else(|_| among(length + max_new))?,
        };
        let mut input = prompt.to_vec();
        while found.ids.len() < max_new {
            // The prompt alone, then the last token with guesses behind it.
            let guesses = match &mut guesser {
                Some(guesser) if !found.ids.is_empty() => {
                    let most = (max_new - found.ids.len() - 1).min(guesser.num_draft_tokens);
                    if most == guesser.num_draft_tokens { guesser.propose(&found.ids)? } else { Vec::new() }
                }
                _ => Vec::new(),
            };
            input.extend(&guesses);
            let before = decoding.ids().len();
            let rows = match guesses.is_empty() {
                true => vec![decoding.append(&input)?],
                false => decoding.append_scored(&input)?,
            };
            if found.ids.is_empty() {
                found.prompt_time = decoding.last_run_time();
            } else {
                found.decode_time += decoding.last_run_time();
            }
            found.draft_accepted.1 += guesses.len();
            let mut on = true;
            for (i, logits) in rows.into_iter().enumerate() {
                let id = choosing.sample_next(logits);
                found.ids.push(id);
                if found.ids.len() == 1 {
                    found.time_to_first_token = started.elapsed();
                }
                on = heard(id) && !choosing.is_finished();
                if !on || found.ids.len() == max_new || guesses.get(i) != Some(&id) {
                    break;
                }
                found.draft_accepted.0 += 1;
            }
            if !on {
                break;
            }
            // What was run behind a wrong guess never happened.
            let known = length + found.ids.len() - 1;
            if decoding.ids().len() > known.max(before) {
                decoding.truncate(known)?;
            }
            input = vec![found.ids[found.ids.len() - 1]];
        }
        Ok(found)
    }
}

/// A smaller model that runs ahead.
struct DraftModel<'a> {
    decoding: crate::decoding::DecodeSession<'a>,
    num_draft_tokens: usize,
    prompt: Vec<i32>,
}

impl<'a> DraftModel<'a> {
    fn new(
        draft: &'a Model,
        count: usize,
        prompt: &[i32],
        of: &Model,
        most: usize,
        backend: &'a dyn Backend,
    ) -> Result<DraftModel<'a>> {
        if draft.vocabulary() != of.vocabulary() {
            return Err(Error::Input(format!(
                "the draft knows {} ids, the model {}: they must have one vocabulary",
                draft.vocabulary().unwrap_or(0),
                of.vocabulary().unwrap_or(0)
            )));
        }
        for (model, name) in [(draft, "draft"), (of, "model")] {
            if let Some(why) = model.full_recompute_reason() {
                return Err(Error::Input(format!(
                    "the {name} runs its whole sequence for each token ({why}): no use guessing"
                )));
            }
        }
        let count = count.max(1);
        let decoding = draft.decode_session(prompt.len() + most + count + 1, backend)?;
        Ok(DraftModel { decoding, num_draft_tokens: count, prompt: prompt.to_vec() })
    }

    /// The tokens that may follow.
    fn propose(&mut self, new: &[i32]) -> Result<Vec<i32>> {
        let text: Vec<i32> = self.prompt.iter().chain(new).copied().collect();
        let same = self.decoding.ids().iter().zip(&text).take_while(|(a, b)| a == b).count().min(text.len() - 1);
        self.decoding.truncate(same)?;
        let mut guesses = Vec::new();
        // One by one, so that few programs are needed; the prompt at once.
        let behind = &text[same..];
        let mut logits = match same {
            0 => self.decoding.append(behind)?,
            _ => {
                let mut last = Vec::new();
                for id in behind {
                    last = self.decoding.append(&[*id])?;
                }
                last
            }
        };
        loop {
            let best = SamplingOptions::GREEDY.sample(&logits, &mut SamplingOptions::GREEDY.generator()) as i32;
            guesses.push(best);
            if guesses.len() == self.num_draft_tokens {
                return Ok(guesses);
            }
            logits = self.decoding.append(&[best])?;
        }
    }
}
