//! Text generation: a prefill of the prompt, then one token per step, or several with speculative decoding.

use crate::adapter::Adapter;
use crate::constrain::Constraint;
use crate::default_device::default_device;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::random::SplitMix64;
use crate::sample::{SamplingOptions, TokenHistory};
use crate::session::Buffer;
use compiler::Backend;
use dist::Comm;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The generated tokens and times.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The new token IDs.
    pub ids: Vec<i32>,
    /// Time from the call to the first token, compilation included.
    pub time_to_first_token: Duration,
    /// Time of the prefill, without compilation.
    pub prompt_time: Duration,
    /// Time of all tokens after the first, without compilation.
    pub decode_time: Duration,
    /// The number of draft tokens that were accepted, and of all draft tokens.
    pub draft_accepted: (usize, usize),
}

/// Options of a generation.
///
/// ```
/// use tensorloom_models::{GenerateOptions, SamplingOptions};
///
/// let sampling = SamplingOptions { temperature: 0.8, top_k: 20, ..SamplingOptions::GREEDY };
/// let options = GenerateOptions { max_new_tokens: 64, sampling: Some(sampling), ..GenerateOptions::default() };
/// assert_eq!(options.max_new_tokens, 64);
/// ```
#[derive(Clone)]
pub struct GenerateOptions<'a> {
    /// The maximum number of new tokens.
    pub max_new_tokens: usize,
    /// The sampling options; none selects greedy decoding.
    pub sampling: Option<SamplingOptions>,
    /// The constraint on the generated text.
    pub constraint: Option<Constraint>,
    /// Tokens that may end a text, if there is a constraint.
    pub eos_ids: &'a [i32],
    /// A draft model with the same vocabulary, and the number of draft tokens per step.
    pub draft: Option<(&'a Model, usize)>,
    /// The communicator of the ranks that share the model; the backend must use it for collectives.
    pub ranks: Option<Arc<Comm>>,
}

impl Default for GenerateOptions<'_> {
    /// 128 new tokens at most, the most probable one each time.
    fn default() -> Self {
        Self { max_new_tokens: 128, sampling: None, constraint: None, eos_ids: &[], draft: None, ranks: None }
    }
}

/// Samples tokens from given logits.
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
    /// Generates a continuation of a prompt on the CPU with all its cores. [`Model::generate_with_options`] runs on another device and
    /// reports each token.
    pub fn generate(&self, prompt: &[i32], options: &GenerateOptions<'_>) -> Result<Generation> {
        self.generate_with_options(prompt, options, default_device(), &mut |_| true)
    }

    /// Greedy decoding of a continuation of a prompt.
    pub fn generate_greedy(&self, prompt: &[i32], max_new: usize, backend: &dyn Backend) -> Result<Generation> {
        self.generate_with(prompt, max_new, &SamplingOptions::GREEDY, backend, &mut |_| true)
    }

    /// Generates a continuation of a prompt. `on_token` receives each new token at once and returns whether to continue.
    pub fn generate_with(
        &self,
        prompt: &[i32],
        max_new: usize,
        sampling: &SamplingOptions,
        backend: &dyn Backend,
        on_token: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let options =
            GenerateOptions { max_new_tokens: max_new, sampling: Some(*sampling), ..GenerateOptions::default() };
        self.generate_with_options(prompt, &options, backend, on_token)
    }

    /// [`generate_with`](Self::generate_with) with all options.
    ///
    /// With a draft model the tokens are unchanged: each is sampled from the model's own logits, in the same order and with the
    /// same random numbers, and an accepted draft token only saves a step.
    pub fn generate_with_options(
        &self,
        prompt: &[i32],
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        self.generate_on(None, prompt, writing, backend, heard)
    }

    /// `generate_with_options`, optionally with parameters that are on the device already, preceded by those of an adapter.
    pub(crate) fn generate_on(
        &self,
        given: Option<(Vec<Buffer>, Option<&Adapter>)>,
        prompt: &[i32],
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let (started, max_new) = (Instant::now(), writing.max_new_tokens);
        let length = self.check_ids(&[prompt.to_vec()])?;
        self.check_has_lm_head()?;
        if let Some(most) = self.max_positions().filter(|most| length + max_new > *most) {
            return Err(Error::Input(format!(
                "{length} tokens and {max_new} new tokens exceed the model's maximum sequence length: at most {most} \
                 in total"
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
            // First the prompt alone, then the last token followed by draft tokens.
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
            // Tokens after a rejected draft token are discarded.
            let known = length + found.ids.len() - 1;
            if decoding.ids().len() > known.max(before) {
                decoding.truncate(known)?;
            }
            input = vec![found.ids[found.ids.len() - 1]];
        }
        Ok(found)
    }
}

/// A draft model for speculative decoding.
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
                "the draft model's vocabulary has {} tokens, the model's has {}: the vocabularies must match",
                draft.vocabulary().unwrap_or(0),
                of.vocabulary().unwrap_or(0)
            )));
        }
        for (model, name) in [(draft, "draft"), (of, "model")] {
            if let Some(why) = model.full_recompute_reason() {
                return Err(Error::Input(format!(
                    "the {name} recomputes the full sequence for each token (no KV cache: {why}): speculative \
                     decoding would not help"
                )));
            }
        }
        let count = count.max(1);
        let decoding = draft.decode_session(prompt.len() + most + count + 1, backend)?;
        Ok(DraftModel { decoding, num_draft_tokens: count, prompt: prompt.to_vec() })
    }

    /// Generates draft tokens.
    fn propose(&mut self, new: &[i32]) -> Result<Vec<i32>> {
        let text: Vec<i32> = self.prompt.iter().chain(new).copied().collect();
        let same = self.decoding.ids().iter().zip(&text).take_while(|(a, b)| a == b).count().min(text.len() - 1);
        self.decoding.truncate(same)?;
        let mut guesses = Vec::new();
        // One token at a time, so that few programs are needed; the prompt at once.
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
