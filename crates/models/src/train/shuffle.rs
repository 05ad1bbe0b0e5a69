//! A random permutation that needs no memory: each element is computed on demand.
//!
//! A Feistel network permutes the numbers of an even number of bits; numbers outside the range are permuted again until one is inside.

use crate::random::SplitMix64;

/// The number of rounds: enough that the statistical tests find no correlation of neighbours.
const FEISTEL_ROUNDS: usize = 6;

/// A permutation of `0..count`.
pub(crate) struct FeistelPermutation {
    count: u64,
    half: u32,
    keys: [u64; FEISTEL_ROUNDS],
}

impl FeistelPermutation {
    /// Creates the permutation of a seed and a stream.
    pub(crate) fn new(count: u64, seed: u64, stream: u64) -> FeistelPermutation {
        let mut random = SplitMix64::new(seed, stream);
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        FeistelPermutation {
            count,
            half: bits.div_ceil(2).max(1),
            keys: [0; FEISTEL_ROUNDS].map(|_: u64| random.next()),
        }
    }

    /// The element at an index, which must be below the count.
    pub(crate) fn at(&self, place: u64) -> u64 {
        let mut x = place;
        // The network has at most four times as many numbers, so this takes few iterations.
        loop {
            x = self.encrypt(x);
            if x < self.count {
                return x;
            }
        }
    }

    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (x >> self.half, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ splitmix64_finalizer(right ^ key) & mask);
        }
        left << self.half | right
    }
}

/// The finalizer of SplitMix64.
fn splitmix64_finalizer(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thing_comes_once() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            let shuffle = FeistelPermutation::new(count, 3, 1000);
            let mut found: Vec<u64> = (0..count).map(|at| shuffle.at(at)).collect();
            found.sort_unstable();
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "{count}");
        }
    }

    /// Indices and elements are uncorrelated, and so are different epochs, within statistical bounds.
    #[test]
    fn orders_look_random() {
        let n = 20_000u64;
        let orders: Vec<Vec<u64>> =
            (0..3).map(|pass| (0..n).map(|at| FeistelPermutation::new(n, 5, pass).at(at)).collect()).collect();
        let mean = (n - 1) as f64 / 2.0;
        let spread = (n as f64).powi(2) / 12.0;
        let correlation = |a: &[u64], b: &[u64]| {
            let sum: f64 = a.iter().zip(b).map(|(x, y)| (*x as f64 - mean) * (*y as f64 - mean)).sum();
            sum / a.len() as f64 / spread
        };
        let places: Vec<u64> = (0..n).collect();
        for order in &orders {
            assert!(correlation(&places, order).abs() < 0.03);
            assert!(correlation(&order[1..], &order[..order.len() - 1]).abs() < 0.03);
            // Neighbours stay adjacent about as often as by chance: twice in n.
            let near = order.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
            assert!(near < 12, "{near}");
        }
        assert!(correlation(&orders[0], &orders[1]).abs() < 0.03 && correlation(&orders[1], &orders[2]).abs() < 0.03);
        assert_ne!(orders[0], (0..n).map(|at| FeistelPermutation::new(n, 6, 0).at(at)).collect::<Vec<_>>());
    }
}
