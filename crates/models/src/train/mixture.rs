//! A weighted mixture of data sets: maps a position to a data set and a position in it.
//!
//! In every block of `MIXTURE_BLOCK` positions each data set has its share, in a shuffled order: a position determines the state
//! completely, so a resumed run continues with the same data.

use super::shuffle::FeistelPermutation;

/// Number of positions of a block.
const MIXTURE_BLOCK: u64 = 1024;
const STREAM: u64 = 1 << 41;

/// A weighted mixture of data sets.
pub(crate) struct DatasetMixture {
    seed: u64,
    /// The start of each data set's part of a block, and the end of the last.
    bounds: Vec<u64>,
}

impl DatasetMixture {
    /// Creates a mixture with these weights, which must be positive.
    pub(crate) fn new(weights: &[f64], seed: u64) -> DatasetMixture {
        let total: f64 = weights.iter().sum();
        let exact: Vec<f64> = weights.iter().map(|w| w / total * MIXTURE_BLOCK as f64).collect();
        // Every data set has at least one position; the rest goes to the largest remainders.
        let mut counts: Vec<u64> = exact.iter().map(|x| (*x as u64).max(1)).collect();
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|a, b| (exact[*b] - counts[*b] as f64).total_cmp(&(exact[*a] - counts[*a] as f64)));
        let mut all: u64 = counts.iter().sum();
        for i in order.iter().cycle().take(2 * MIXTURE_BLOCK as usize) {
            if all < MIXTURE_BLOCK {
                counts[*i] += 1;
                all += 1;
            } else if all > MIXTURE_BLOCK && counts[*i] > 1 {
                counts[*i] -= 1;
                all -= 1;
            }
        }
        let mut bounds = vec![0];
        for count in counts {
            bounds.push(bounds[bounds.len() - 1] + count);
        }
        DatasetMixture { seed, bounds }
    }

    /// The data set of a position, and the position in it.
    pub(crate) fn dataset_at(&self, place: u64) -> (usize, u64) {
        if self.bounds.len() == 2 {
            return (0, place);
        }
        let all = self.bounds[self.bounds.len() - 1];
        let (block, within) = (place / all, place % all);
        let drawn = FeistelPermutation::new(all, self.seed, STREAM + block).at(within);
        let set = self.bounds.partition_point(|bound| *bound <= drawn) - 1;
        (set, block * (self.bounds[set + 1] - self.bounds[set]) + drawn - self.bounds[set])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_by_their_weights_and_nothing_twice() {
        for weights in [&[1.0][..], &[1.0, 1.0], &[0.7, 0.2, 0.1], &[1e-6, 3.0], &[5.0; 40]] {
            let mix = DatasetMixture::new(weights, 9);
            let places = 5 * MIXTURE_BLOCK;
            let mut seen: Vec<Vec<u64>> = vec![Vec::new(); weights.len()];
            (0..places).map(|at| mix.dataset_at(at)).for_each(|(set, place)| seen[set].push(place));
            let total: f64 = weights.iter().sum();
            for (set, mut own) in seen.into_iter().enumerate() {
                let want = weights[set] / total * places as f64;
                assert!((own.len() as f64 - want).abs() <= 5.0 + want * 0.05, "{weights:?}: {} {want}", own.len());
                own.sort_unstable();
                assert_eq!(own, (0..own.len() as u64).collect::<Vec<_>>(), "{weights:?}");
            }
        }
    }
}
