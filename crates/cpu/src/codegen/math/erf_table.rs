//! A table of erf and its derivative at points 1/128 apart, for f64.
//!
//! erf x = erf' x · (x + 2x³/3 + 4x⁵/15 + ..), in which all terms are positive. Numbers are sums of two f64, so the final
//! rounding is the only significant error.

use std::sync::OnceLock;

/// The distance between two points.
pub(super) const STEP: f64 = 1.0 / 128.0;
/// From here on erf is 1 in f64.
pub(super) const TOP: f64 = 6.0;
/// The number of points, a power of two that exceeds the number up to `TOP`.
pub(super) const PLACES: usize = 1024;

/// Returns erf at all points, then its derivative at all points.
pub(super) fn table() -> &'static [f64] {
    static TABLE: OnceLock<Vec<f64>> = OnceLock::new();
    TABLE.get_or_init(computed)
}

/// A number as the sum of an f64 and its rounding error.
#[derive(Clone, Copy)]
struct Pair(f64, f64);

impl Pair {
    fn plus(self, b: Pair) -> Pair {
        let sum = self.0 + b.0;
        let part = sum - self.0;
        let rest = (self.0 - (sum - part)) + (b.0 - part);
        Pair::of(sum, rest + self.1 + b.1)
    }

    fn times(self, b: Pair) -> Pair {
        let product = self.0 * b.0;
        let rest = self.0.mul_add(b.0, -product);
        Pair::of(product, rest + self.0 * b.1 + self.1 * b.0)
    }

    fn over(self, n: f64) -> Pair {
        let quotient = self.0 / n;
        let left = (-quotient).mul_add(n, self.0) + self.1;
        Pair::of(quotient, left / n)
    }

    /// Returns `a + b` for a `b` that is much smaller than `a`.
    fn of(a: f64, b: f64) -> Pair {
        let sum = a + b;
        Pair(sum, b - (sum - a))
    }
}

fn computed() -> Vec<f64> {
    let one = Pair(1.0, 0.0);
    // 2/√π.
    let scale = Pair(std::f64::consts::FRAC_2_SQRT_PI, 1.533545961316588e-17);
    // e^(-STEP²): e^(-x²) changes from one point to the next by powers of this factor.
    let h = -STEP * STEP;
    let fall = (1..9).rev().fold(one, |sum, k| one.plus(sum.times(Pair(h, 0.0)).over(k as f64)));
    let twice = fall.times(fall);
    let (mut exp, mut next) = (one, fall);
    let mut all = vec![0.0; 2 * PLACES];
    for place in 0..PLACES {
        let x = place as f64 * STEP;
        let slope = scale.times(exp);
        all[PLACES + place] = slope.0;
        all[place] = if x >= TOP { 1.0 } else { slope.times(series(x)).0 };
        (exp, next) = (exp.times(next), next.times(twice));
    }
    all
}

/// Computes x + 2x³/3 + 4x⁵/15 + ..
fn series(x: f64) -> Pair {
    let square = Pair(2.0 * x * x, 0.0);
    let (mut term, mut sum) = (Pair(x, 0.0), Pair(x, 0.0));
    for n in 1.. {
        term = term.times(square).over(2.0 * n as f64 + 1.0);
        sum = sum.plus(term);
        if term.0 <= sum.0 * 1e-33 {
            break;
        }
    }
    sum
}
