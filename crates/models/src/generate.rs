//! Generation: the prompt in one run, then one token a run, or several that a smaller model has guessed.

use crate::adapter::Adapter;
use crate::constrain::Constraint;
use crate::default_device::default_device;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::random::Random;
use crate::sample::{History, Sampling};
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
    pub first: Duration,
    /// Running the prompt, without compiling.
    pub prompt: Duration,
    /// Running all tokens after the first, without compiling.
    pub rest: Duration,
    /// Of the tokens that a smaller model guessed, those that were right, and all.
    pub guessed: (usize, usize),
}

/// What may be chosen about a generation.
///
/// ```
/// use tensorloom_models::{GenerateOptions, Sampling};
///
/// let sampling = Sampling { temperature: 0.8, top_k: 20, ..Sampling::GREEDY };
/// let options = GenerateOptions { max_new_tokens: 64, sampling: Some(sampling), ..GenerateOptions::default() };
/// assert_eq!(options.max_new_tokens, 64);
/// ```
#[derive(Clone)]
pub struct GenerateOptions<'a> {
    /// New tokens, at most.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Option<Sampling>,
    /// The form that the text must have.
    pub constraint: Option<Constraint>,
    /// Ids that end a text, where a form says when it may end.
    pub ends: &'a [i32],
    /// A smaller model with the same vocabulary, and how many tokens it guesses at once.
    pub draft: Option<(&'a Model, usize)>,
    /// The ranks that share the model, of which this is one; the backend must talk through it.
    pub ranks: Option<Arc<Comm>>,
}

impl Default for GenerateOptions<'_> {
    /// 128 new tokens at most, the most probable one each time.
    fn default() -> Self {
        Self { max_new_tokens: 128, sampling: None, constraint: None, ends: &[], draft: None, ranks: None }
    }
}

/// Chooses token after token, whoever computed the logits.
pub(crate) struct Choosing {
    sampling: Sampling,
    random: Random,
    history: History,
    constraint: Option<Constraint>,
    ends: Vec<i32>,
}

impl Choosing {
    pub(crate) fn new(writing: &GenerateOptions<'_>, prompt: &[i32]) -> Choosing {
        let sampling = writing.sampling.unwrap_or(Sampling::GREEDY);
        let constraint = writing.constraint.clone();
        let (random, history) = (sampling.random(), History::of(prompt));
        Choosing { sampling, random, history, constraint, ends: writing.ends.to_vec() }
    }

    pub(crate) fn next(&mut self, mut logits: Vec<f32>) -> i32 {
        self.sampling.penalise(&mut logits, &self.history);
        if let Some(constraint) = &self.constraint {
            constraint.mask(&mut logits, &self.ends);
        }
        let id = self.sampling.choose(&logits, &mut self.random) as i32;
        self.history.push(id);
        if let Some(constraint) = &mut self.constraint {
            constraint.push(id);
        }
        id
    }

    pub(crate) fn is_over(&self) -> bool {
        self.constraint.as_ref().is_some_and(Constraint::is_over)
    }
}

impl Model {
    /// A continuation of a prompt, computed on the CPU with all its cores. [`Model::generate_with_options`] does it on another device, and
    /// shows tokens as they come.
    pub fn generate(&self, prompt: &[i32], options: &GenerateOptions<'_>) -> Result<Generation> {
        self.generate_with_options(prompt, options, default_device(), &mut |_| true)
    }

    /// The most probable continuation of a prompt.
    pub fn generate_greedy(&self, prompt: &[i32], max_new: usize, backend: &dyn Backend) -> Result<Generation> {
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
        let writing =
            GenerateOptions { max_new_tokens: max_new, sampling: Some(*sampling), ..GenerateOptions::default() };
        self.generate_with_options(prompt, &writing, backend, heard)
    }

    /// The same with everything chosen.
    ///
    /// With a draft, tokens are those of the plain run: each is chosen from the model's own logits, in the same order and by
    /// the same draws, and a guess only saves a run where it was right.
    pub fn generate_with_options(
        &self,
        prompt: &[i32],
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        self.write_on(None, prompt, writing, backend, heard)
    }

    /// The same, perhaps with parameters that are on the device already, those of an adapter in front of them.
    pub(crate) fn write_on(
        &self,
        given: Option<(Vec<Buffer>, Option<&Adapter>)>,
        prompt: &[i32],
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let (started, max_new) = (Instant::now(), writing.max_new_tokens);
        let length = self.check_ids(&[prompt.to_vec()])?;
        self.scores_ids()?;
        if let Some(most) = self.longest().filter(|most| length + max_new > *most) {
            return Err(Error::Input(format!(
                "{length} ids and {max_new} new ones: the model takes at most {most} in all"
            )));
        }
        let zero = Duration::ZERO;
        let mut found = Generation { ids: Vec::new(), first: zero, prompt: zero, rest: zero, guessed: (0, 0) };
        let mut choosing = Choosing::new(writing, prompt);
        let mut guesser = match writing.draft {
            Some((draft, count)) if max_new > 1 => Some(Guesser::new(draft, count, prompt, self, max_new, backend)?),
            _ => None,
        };
        let room = guesser.as_ref().map_or(0, |guesser| guesser.count);
        let among = |most: usize| self.decoding_among(most, backend, writing.ranks.clone());
        let mut decoding = match given {
            Some((params, adapter)) => self.decoding_on(params, adapter, length + max_new, backend),
            None => among(length + max_new + room).or_else(|_| among(length + max_new))?,
        };
        let mut input = prompt.to_vec();
        while found.ids.len() < max_new {
            // The prompt alone, then the last token with guesses behind it.
            let guesses = match &mut guesser {
                Some(guesser) if !found.ids.is_empty() => {
                    let most = (max_new - found.ids.len() - 1).min(guesser.count);
                    if most == guesser.count { guesser.guess(&found.ids)? } else { Vec::new() }
                }
                _ => Vec::new(),
            };
            input.extend(&guesses);
            let before = decoding.ids().len();
            let rows = match guesses.is_empty() {
                true => vec![decoding.push(&input)?],
                false => decoding.push_all(&input)?,
            };
            if found.ids.is_empty() {
                found.prompt = decoding.ran();
            } else {
                found.rest += decoding.ran();
            }
            found.guessed.1 += guesses.len();
            let mut on = true;
            for (i, logits) in rows.into_iter().enumerate() {
                let id = choosing.next(logits);
                found.ids.push(id);
                if found.ids.len() == 1 {
                    found.first = started.elapsed();
                }
                on = heard(id) && !choosing.is_over();
                if !on || found.ids.len() == max_new || guesses.get(i) != Some(&id) {
                    break;
                }
                found.guessed.0 += 1;
            }
            if !on {
                break;
            }
            // What was run behind a wrong guess never happened.
            let known = length + found.ids.len() - 1;
            if decoding.ids().len() > known.max(before) {
                decoding.cut(known)?;
            }
            input = vec![found.ids[found.ids.len() - 1]];
        }
        Ok(found)
    }
}

/// A smaller model that runs ahead.
struct Guesser<'a> {
    decoding: crate::decoding::Decoding<'a>,
    count: usize,
    prompt: Vec<i32>,
}

impl<'a> Guesser<'a> {
    fn new(
        draft: &'a Model,
        count: usize,
        prompt: &[i32],
        of: &Model,
        most: usize,
        backend: &'a dyn Backend,
    ) -> Result<Guesser<'a>> {
        if draft.vocabulary() != of.vocabulary() {
            return Err(Error::Input(format!(
                "the draft knows {} ids, the model {}: they must have one vocabulary",
                draft.vocabulary().unwrap_or(0),
                of.vocabulary().unwrap_or(0)
            )));
        }
        for (model, name) in [(draft, "draft"), (of, "model")] {
            if let Some(why) = model.runs_whole() {
                return Err(Error::Input(format!(
                    "the {name} runs its whole sequence for each token ({why}): no use guessing"
                )));
            }
        }
        let count = count.max(1);
        let decoding = draft.decoding(prompt.len() + most + count + 1, backend)?;
        Ok(Guesser { decoding, count, prompt: prompt.to_vec() })
    }

    /// The tokens that may follow.
    fn guess(&mut self, new: &[i32]) -> Result<Vec<i32>> {
        let text: Vec<i32> = self.prompt.iter().chain(new).copied().collect();
        let same = self.decoding.ids().iter().zip(&text).take_while(|(a, b)| a == b).count().min(text.len() - 1);
        self.decoding.cut(same)?;
        let mut guesses = Vec::new();
        // One by one, so that few programs are needed; the prompt at once.
        let behind = &text[same..];
        let mut logits = match same {
            0 => self.decoding.push(behind)?,
            _ => {
                let mut last = Vec::new();
                for id in behind {
                    last = self.decoding.push(&[*id])?;
                }
                last
            }
        };
        loop {
            let best = Sampling::GREEDY.choose(&logits, &mut Sampling::GREEDY.random()) as i32;
            guesses.push(best);
            if guesses.len() == self.count {
                return Ok(guesses);
            }
            logits = self.decoding.push(&[best])?;
        }
    }
}
