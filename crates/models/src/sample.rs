//! Choosing the next token from logits.

use crate::random::Random;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the most probable token.
    pub temperature: f64,
    /// Only so many of the most probable tokens; 0 takes all.
    pub top_k: usize,
    /// Only the fewest most probable tokens whose probabilities reach this sum; 1 takes all.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// The most probable token, always.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 };

    /// The generator for one text.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed, 3)
    }

    /// The index that is chosen; among equal logits, the first.
    pub fn choose(&self, logits: &[f32], random: &mut Random) -> usize {
        if self.temperature <= 0.0 {
            return best(logits);
        }
        let mut order: Vec<usize> = (0..logits.len()).filter(|i| !logits[*i].is_nan()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        if self.top_k > 0 {
            order.truncate(self.top_k);
        }
        let Some(&first) = order.first() else { return 0 };
        let top = f64::from(logits[first]);
        let mut weights: Vec<f64> =
            order.iter().map(|i| ((f64::from(logits[*i]) - top) / self.temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let kept = weights.iter().position(|w| {
            sum += w;
            sum >= self.top_p * total
        });
        weights.truncate(kept.map_or(weights.len(), |last| last + 1));
        let mut left = random.unit() * weights.iter().sum::<f64>();
        for (i, w) in order.iter().zip(&weights) {
            left -= w;
            if left < 0.0 {
                return *i;
            }
        }
        first
    }
}

fn best(logits: &[f32]) -> usize {
    let larger = |best: (usize, f32), (i, &x): (usize, &f32)| if x > best.1 { (i, x) } else { best };
    logits.iter().enumerate().fold((0, f32::NEG_INFINITY), larger).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
        let mut random = sampling.random();
        let mut counts = vec![0.0; logits.len()];
        for _ in 0..20_000 {
            counts[sampling.choose(logits, &mut random)] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn shares_follow_the_probabilities() {
        let logits = [0.0, 2f32.ln(), 5f32.ln(), f32::NEG_INFINITY];
        let plain = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 7 };
        let close = |found: Vec<f64>, wanted: [f64; 4]| {
            for (a, b) in found.iter().zip(wanted) {
                assert!((a - b).abs() < 0.015, "{found:?} {wanted:?}");
            }
        };
        close(shares(plain, &logits), [0.125, 0.25, 0.625, 0.0]);
        close(shares(Sampling { temperature: 0.5, ..plain }, &logits), [1.0 / 30.0, 4.0 / 30.0, 25.0 / 30.0, 0.0]);
        close(shares(Sampling { top_k: 2, ..plain }, &logits), [0.0, 2.0 / 7.0, 5.0 / 7.0, 0.0]);
        close(shares(Sampling { top_p: 0.6, ..plain }, &logits), [0.0, 0.0, 1.0, 0.0]);
        close(shares(Sampling { top_p: 0.7, ..plain }, &logits), [0.0, 2.0 / 7.0, 5.0 / 7.0, 0.0]);
        close(shares(Sampling::GREEDY, &logits), [0.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn strange_logits_still_give_an_index() {
        let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 7 };
        let mut random = sampling.random();
        for logits in [[f32::NAN; 2], [f32::NEG_INFINITY; 2], [f32::INFINITY; 2]] {
            assert!(sampling.choose(&logits, &mut random) < 2);
        }
    }
}
