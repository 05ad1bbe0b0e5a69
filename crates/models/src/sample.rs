//! Sampling of the next token from logits.
//!
//! The steps and their order are those of transformers: penalties, then temperature, top-k, top-p, min-p, typical. Each of the
//! last four filters the tokens that the previous ones kept.

use crate::random::SplitMix64;
use std::collections::BTreeMap;

/// Sampling options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Logits are divided by it; 0 selects the most probable token.
    pub temperature: f64,
    /// Keeps only this many of the most probable tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps only the fewest most probable tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f64,
    /// Keeps only tokens with at least this fraction of the best token's probability; 0 keeps all.
    pub min_p: f64,
    /// Keeps only the fewest tokens whose surprisal is nearest to the entropy and whose probabilities reach this sum; 1 keeps all.
    pub typical_p: f64,
    /// Positive logits of tokens in the text are divided by it, negative ones multiplied; 1 disables it.
    pub repetition_penalty: f64,
    /// Subtracted from the logits of tokens that were generated already.
    pub presence_penalty: f64,
    /// Subtracted from the logits of generated tokens for each occurrence.
    pub frequency_penalty: f64,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The tokens of a text, as far as penalties need them.
#[derive(Clone, Debug, Default)]
pub struct TokenHistory {
    /// Tokens of the prompt and generated ones.
    seen: std::collections::BTreeSet<i32>,
    /// The number of occurrences of each generated token.
    counts: BTreeMap<i32, u32>,
}

impl TokenHistory {
    /// Creates the history of a prompt.
    pub fn from_prompt(prompt: &[i32]) -> TokenHistory {
        TokenHistory { seen: prompt.iter().copied().collect(), counts: BTreeMap::new() }
    }

    /// Adds a generated token.
    pub fn push(&mut self, id: i32) {
        self.seen.insert(id);
        *self.counts.entry(id).or_default() += 1;
    }
}

impl SamplingOptions {
    /// Greedy decoding: always the most probable token.
    pub const GREEDY: SamplingOptions = SamplingOptions {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        typical_p: 1.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        seed: 0,
    };

    /// The random number generator for one text.
    pub fn generator(&self) -> SplitMix64 {
        SplitMix64::new(self.seed, 3)
    }

    /// Whether any penalty is set.
    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Applies the penalties to the logits.
    pub fn apply_penalties(&self, logits: &mut [f32], history: &TokenHistory) {
        if !self.has_penalties() {
            return;
        }
        let size = logits.len();
        let at = |id: i32| usize::try_from(id).ok().filter(|i| *i < size);
        if self.repetition_penalty != 1.0 {
            let factor = self.repetition_penalty as f32;
            let known: Vec<usize> = history.seen.iter().filter_map(|id| at(*id)).collect();
            for i in known {
                logits[i] = if logits[i] < 0.0 { logits[i] * factor } else { logits[i] / factor };
            }
        }
        let counts: Vec<(usize, u32)> = history.counts.iter().filter_map(|(id, n)| Some((at(*id)?, *n))).collect();
        for (i, n) in counts {
            logits[i] -= (self.presence_penalty + self.frequency_penalty * f64::from(n)) as f32;
        }
    }

    /// Samples an index; with temperature 0, the first of the largest logits.
    pub fn sample(&self, logits: &[f32], random: &mut SplitMix64) -> usize {
        if self.temperature <= 0.0 {
            return argmax(logits);
        }
        let mut ranked = RankedLogits::new(logits, if self.top_k > 0 { self.top_k } else { usize::MAX });
        let Some(first) = ranked.get(0) else { return 0 };
        let top = f64::from(logits[first]);
        let weight = |i: usize| ((f64::from(logits[i]) - top) / self.temperature).exp();
        let mut kept = ranked.len();
        let mut total: f64 = match self.top_k > 0 {
            true => (0..kept).filter_map(|i| ranked.get(i)).map(weight).sum(),
            false => {
                logits.iter().filter(|x| !x.is_nan()).map(|x| ((f64::from(*x) - top) / self.temperature).exp()).sum()
            }
        };
        if self.top_p < 1.0 {
            let (mut sum, mut n) = (0.0, 0);
            while let Some(i) = ranked.get(n).filter(|_| n < kept) {
                sum += weight(i);
                n += 1;
                if sum >= self.top_p * total {
                    break;
                }
            }
            (kept, total) = (n, sum);
        }
        if self.min_p > 0.0 {
            let (mut sum, mut n) = (0.0, 0);
            while let Some(i) = ranked.get(n).filter(|i| n < kept && (n == 0 || weight(*i) >= self.min_p)) {
                sum += weight(i);
                n += 1;
            }
            (kept, total) = (n, sum);
        }
        if self.typical_p < 1.0 {
            let all: Vec<(usize, f64)> = (0..kept)
                .filter_map(|n| ranked.get(n))
                .map(|i| (i, weight(i) / total))
                .filter(|(_, p)| *p > 0.0)
                .collect();
            return draw_weighted(&typical_filter(all, self.typical_p), random).unwrap_or(first);
        }
        let mut left = random.uniform() * total;
        let mut n = 0;
        while let Some(i) = ranked.get(n).filter(|_| n < kept) {
            left -= weight(i);
            if left < 0.0 {
                return i;
            }
            n += 1;
        }
        first
    }
}

/// The fewest tokens whose surprisal is nearest to the entropy and whose probabilities reach `share`.
fn typical_filter(mut all: Vec<(usize, f64)>, share: f64) -> Vec<(usize, f64)> {
    let entropy: f64 = all.iter().map(|(_, p)| -p * p.ln()).sum();
    let distance = |p: f64| (-p.ln() - entropy).abs();
    all.sort_by(|a, b| distance(a.1).total_cmp(&distance(b.1)).then(a.0.cmp(&b.0)));
    let mut sum = 0.0;
    let reached = all.iter().position(|(_, p)| {
        sum += p;
        sum >= share
    });
    all.truncate(reached.map_or(all.len(), |last| last + 1));
    all
}

fn draw_weighted(from: &[(usize, f64)], random: &mut SplitMix64) -> Option<usize> {
    let mut left = random.uniform() * from.iter().map(|(_, w)| w).sum::<f64>();
    let found = from.iter().find(|(_, w)| {
        left -= w;
        left < 0.0
    });
    found.or(from.first()).map(|(i, _)| *i)
}

/// Indices by descending logit, sorted lazily: vocabularies are large, and few candidates are needed.
struct RankedLogits<'a> {
    logits: &'a [f32],
    order: Vec<u32>,
    sorted: usize,
}

impl RankedLogits<'_> {
    fn new(logits: &[f32], most: usize) -> RankedLogits<'_> {
        let order: Vec<u32> = (0..logits.len() as u32).filter(|i| !logits[*i as usize].is_nan()).collect();
        let mut ranked = RankedLogits { logits, order, sorted: 0 };
        if most < ranked.order.len() {
            ranked.sort_to(most);
            ranked.order.truncate(most);
        }
        ranked
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn sort_to(&mut self, n: usize) {
        let n = n.min(self.order.len());
        if n <= self.sorted {
            return;
        }
        let logits = self.logits;
        let by = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        let rest = &mut self.order[self.sorted..];
        let cut = n - self.sorted;
        if cut < rest.len() {
            rest.select_nth_unstable_by(cut - 1, by);
        }
        rest[..cut].sort_unstable_by(by);
        self.sorted = n;
    }

    fn get(&mut self, n: usize) -> Option<usize> {
        if n >= self.sorted {
            self.sort_to((n + 1).max(4 * self.sorted).max(64));
        }
        self.order.get(n).map(|i| *i as usize)
    }
}

fn argmax(logits: &[f32]) -> usize {
    let larger = |best: (usize, f32), (i, &x): (usize, &f32)| if x > best.1 { (i, x) } else { best };
    logits.iter().enumerate().fold((0, f32::NEG_INFINITY), larger).0
}

/// The `count` most probable tokens with their log probabilities, and that of `id`, before any sampling options.
pub fn top_logprobs(logits: &[f32], id: i32, count: usize) -> (f64, Vec<(i32, f64)>) {
    let top = logits.iter().copied().filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().filter(|x| !x.is_nan()).map(|x| f64::from(x - top).exp()).sum();
    let normal = f64::from(top) + sum.ln();
    let of = |i: usize| f64::from(logits[i]) - normal;
    let mut ranked = RankedLogits::new(logits, count);
    let best = (0..count).filter_map(|n| ranked.get(n)).map(|i| (i as i32, of(i))).collect();
    let own = usize::try_from(id).ok().filter(|i| *i < logits.len()).map_or(f64::NEG_INFINITY, of);
    (own, best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: SamplingOptions = SamplingOptions { temperature: 1.0, seed: 7, ..SamplingOptions::GREEDY };

    fn shares(sampling: SamplingOptions, logits: &[f32]) -> Vec<f64> {
        let mut random = sampling.generator();
        let mut counts = vec![0.0; logits.len()];
        for _ in 0..20_000 {
            counts[sampling.sample(logits, &mut random)] += 1.0 / 20_000.0;
        }
        counts
    }

    fn close(found: Vec<f64>, expected: [f64; 4]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.015), "{found:?} {expected:?}");
    }

    /// Probabilities 0.1, 0.2, 0.5, 0.2.
    fn logits() -> Vec<f32> {
        [0.1f32, 0.2, 0.5, 0.2].iter().map(|p| p.ln() + 3.0).collect()
    }

    #[test]
    fn draws_follow_the_probabilities_that_are_left() {
        let logits = logits();
        close(shares(PLAIN, &logits), [0.1, 0.2, 0.5, 0.2]);
        close(shares(SamplingOptions { top_k: 2, ..PLAIN }, &logits), [0.0, 2.0 / 7.0, 5.0 / 7.0, 0.0]);
        close(shares(SamplingOptions { top_p: 0.7, ..PLAIN }, &logits), [0.0, 2.0 / 7.0, 5.0 / 7.0, 0.0]);
        close(shares(SamplingOptions { min_p: 0.3, ..PLAIN }, &logits), [0.0, 2.0 / 9.0, 5.0 / 9.0, 2.0 / 9.0]);
        close(shares(SamplingOptions { top_k: 3, top_p: 0.7, ..PLAIN }, &logits), [0.0, 2.0 / 7.0, 5.0 / 7.0, 0.0]);
        close(shares(SamplingOptions::GREEDY, &logits), [0.0, 0.0, 1.0, 0.0]);
        // Entropy 1.2206; surprisals 2.30, 1.61, 0.69, 1.61: the two tokens of probability 0.2 are nearest, then 0.5.
        close(shares(SamplingOptions { typical_p: 0.3, ..PLAIN }, &logits), [0.0, 0.5, 0.0, 0.5]);
        close(shares(SamplingOptions { typical_p: 0.8, ..PLAIN }, &logits), [0.0, 2.0 / 9.0, 5.0 / 9.0, 2.0 / 9.0]);
    }

    #[test]
    fn penalties_are_those_of_transformers_and_openai() {
        let mut history = TokenHistory::from_prompt(&[0]);
        history.push(2);
        history.push(2);
        let mut found = vec![2.0, 1.0, -1.0, 0.5];
        SamplingOptions { repetition_penalty: 2.0, ..PLAIN }.apply_penalties(&mut found, &history);
        assert_eq!(found, [1.0, 1.0, -2.0, 0.5]);
        let mut found = vec![2.0, 1.0, -1.0, 0.5];
        SamplingOptions { presence_penalty: 0.5, frequency_penalty: 0.25, ..PLAIN }
            .apply_penalties(&mut found, &history);
        assert_eq!(found, [2.0, 1.0, -2.0, 0.5]);
        // Token IDs outside the logits are ignored.
        SamplingOptions { repetition_penalty: 2.0, ..PLAIN }
            .apply_penalties(&mut [0.0], &TokenHistory::from_prompt(&[-1, 7]));
    }

    #[test]
    fn a_large_vocabulary_is_ranked_as_by_sorting() {
        let mut random = SplitMix64::new(3, 0);
        let logits: Vec<f32> = (0..5000).map(|_| (random.below(800) as f32) / 80.0).collect();
        let mut sorted: Vec<usize> = (0..logits.len()).collect();
        sorted.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        let mut ranked = RankedLogits::new(&logits, usize::MAX);
        assert!(sorted.iter().enumerate().all(|(n, i)| ranked.get(n) == Some(*i)));
        assert_eq!(ranked.get(5000), None);
        let (own, top) = top_logprobs(&logits, 9, 3);
        let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((own - (f64::from(logits[9]) - sum.ln())).abs() < 1e-9);
        assert_eq!(top.iter().map(|(i, _)| *i as usize).collect::<Vec<_>>(), sorted[..3]);
    }

    #[test]
    fn strange_logits_still_give_an_index() {
        let all = SamplingOptions { top_p: 0.9, min_p: 0.1, typical_p: 0.9, ..PLAIN };
        for sampling in [PLAIN, all] {
            let mut random = sampling.generator();
            for logits in [[f32::NAN; 2], [f32::NEG_INFINITY; 2], [f32::INFINITY; 2]] {
                assert!(sampling.sample(&logits, &mut random) < 2);
            }
        }
    }
}
