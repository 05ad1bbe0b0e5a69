//! erf and its derivative at places 1/128 apart, for f64.
//!
//! erf x = erf' x · (x + 2x³/3 + 4x⁵/15 + ..), of which all terms are positive; numbers are sums of two, so that what is rounded at
//! the end is all the error there is.

use std::sync::OnceLock;

/// From one place to the next.
pub(super) const STEP: f64 = 1.0 / 128.0;
/// From here on erf is 1.
pub(super) const TOP: f64 = 6.0;
/// Places, a power of two: more than there are up to the top.
pub(super) const PLACES: usize = 1024;

/// erf at all places, then its derivative.
pub(super) fn table() -> &'static [f64] {
    static TABLE: OnceLock<Vec<f64>> = OnceLock::new();
    TABLE.get_or_init(computed)
}

/// A number and what it leaves out.
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

    /// `a + b` for a `b` that is much smaller.
    fn of(a: f64, b: f64) -> Pair {
        let sum = a + b;
        Pair(sum, b - (sum - a))
    }
}

fn computed() -> Vec<f64> {
    let one = Pair(1.0, 0.0);
    // 2/√π.
    let scale = Pair(std::f64::consts::FRAC_2_SQRT_PI, 1.533545961316588e-17);
    // e^(-STEP²), by which and by whose powers e^(-x²) falls from one place to the next.
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

/// x + 2x³/3 + 4x⁵/15 + ..
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
