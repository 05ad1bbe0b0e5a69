//! Chooses the matrix shape of a long line, by the estimated cycles of its column and row transforms.

use super::batched::{LineTransform, slower};
use super::real_lines::real_cost;
use super::stockham::cost;
use crate::thresholds::Threshold;

/// The minimum number of elements of a complex line.
const LEAST: usize = 64;

pub(super) const THRESHOLDS: &[Threshold] =
    &[Threshold::new("fourier.matrix", LEAST, "elements of a complex line along memory: from here it may be a matrix")];

/// The factors of a length as a matrix, and the estimated cycles per line.
#[derive(Clone, Copy)]
pub(super) struct FactorPlan {
    pub(super) n1: usize,
    pub(super) n2: usize,
    cycles: f64,
}

/// The bytes of the widest vector.
const VECTOR: usize = 64;

/// Returns the best matrix shape for a length; among equally good shapes, the one closest to a square.
/// `real` says whether columns are real.
fn matrix(n: usize, lanes: usize, real: bool) -> FactorPlan {
    let one = FactorPlan { n1: 1, n2: n, cycles: f64::INFINITY };
    let pairs = (2..=n.isqrt()).rev().filter(|m| n.is_multiple_of(*m)).flat_map(|m| [(m, n / m), (n / m, m)]);
    let shape = |(n1, n2): (usize, usize)| {
        let (columns, rows) = if real { (real_cost(n1) + 10.0, n1 / 2 + 1) } else { (cost(n1) + 10.0, n1) };
        let columns = (n2.div_ceil(lanes) * n1) as f64 * columns * slower(n1, VECTOR);
        let rows = (rows.div_ceil(lanes) * n2) as f64 * (cost(n2) + 18.0) * slower(n2, VECTOR);
        FactorPlan { n1, n2, cycles: columns + rows }
    };
    pairs.map(shape).fold(one, |best, s| if s.cycles < best.cycles { s } else { best })
}

/// Returns the best matrix shape for a convolution with a chirp.
fn chirp_matrix(n: usize, lanes: usize) -> FactorPlan {
    let least = (2 * n - 1).div_ceil(lanes);
    let mut best = FactorPlan { n1: 1, n2: 1, cycles: f64::INFINITY };
    for odd in [1, 3, 5, 7, 9, 15, 21, 25, 27, 35, 45, 75] {
        let points = odd * least.div_ceil(odd).next_power_of_two() * lanes;
        let own = matrix(points, lanes, false);
        let cycles = 2.0 * own.cycles + 8.0 * (n / lanes) as f64;
        best = if cycles < best.cycles { FactorPlan { cycles, ..own } } else { best };
    }
    best
}

/// The algorithm for a line, and its estimated cycles.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// The number of elements that are transformed: the length of a complex line, or half the length of a real one if it is even.
    pub(super) length: usize,
    pub(super) shape: FactorPlan,
    /// Whether the columns are real.
    pub(super) real: bool,
    /// Whether the matrix is the one of a convolution with a chirp.
    pub(super) chirp: bool,
    pub(super) cycles: f64,
}

/// Returns the best algorithm for a line of `n` elements, if there is one.
pub(super) fn choose(kind: LineTransform, n: usize, lanes: usize) -> Option<Choice> {
    let complex = matches!(kind, LineTransform::Complex { .. });
    let odd = !complex && !n.is_multiple_of(2);
    let length = if complex || odd { n } else { n / 2 };
    if length < LEAST {
        return None;
    }
    let halves = if complex { 0.0 } else { 20.0 * (length / lanes) as f64 };
    let whole = matrix(length, lanes, odd);
    let chirp = chirp_matrix(length, lanes);
    let (shape, is_chirp) = if whole.cycles <= chirp.cycles { (whole, false) } else { (chirp, true) };
    Some(Choice { length, shape, real: odd && !is_chirp, chirp: is_chirp, cycles: shape.cycles + halves + 200.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_matrices_of_near_sides() {
        for n in [1 << 16, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 10_000_000, 9_999_999, 5_000_011] {
            for kind in [LineTransform::Complex { inverse: false }, LineTransform::Real, LineTransform::InverseReal] {
                let FactorPlan { n1, n2, .. } = choose(kind, n, 16).unwrap().shape;
                // Buffers of a whole line for each lane would take much more memory than the line.
                assert!(n1.max(n2) <= 8192, "{n}: {n1} by {n2}");
            }
        }
        let even = choose(LineTransform::Complex { inverse: true }, 1 << 20, 16).unwrap().shape;
        assert!(even.n1.max(even.n2) <= 4 * even.n1.min(even.n2), "{} by {}", even.n1, even.n2);
    }
}
