//! sinh, cosh, asinh, acosh and atanh on lanes of either width.

use super::super::inst::V;
use super::double::F64Ops;
use super::float::Float;
use super::{exp, log};
use ir::Compare;
use std::f64::consts::LN_2;

impl Float<'_, '_> {
    /// Returns (eʳ - 1, 2ⁿ⁻²) for |x| = n ln 2 + r, clamped where results overflow.
    fn exp_parts(&mut self, a: V) -> (V, V) {
        let top = self.kr(self.pick(89.7, 710.8));
        let a = self.min(top, a);
        match self.wide {
            true => F64Ops(self.lo).exp_quarter(a),
            false => exp::exp_quarter(self.lo, a),
        }
    }

    /// Computes 2 (h + h / (4h + 1)) with h = (eᵃ - 1) / 4,
    /// which is exact near zero and overflows where the result does. At most 3 ulp.
    pub(super) fn sinh(&mut self, x: V) -> V {
        let a = self.abs(x);
        let (p, s) = self.exp_parts(a);
        let quarter = self.k(0.25);
        let t = self.sub(s, quarter);
        let h = self.mad(p, s, t);
        let (one, four) = (self.k(1.0), self.k(4.0));
        let d = self.mad(h, four, one);
        let q = self.div(h, d);
        let y = self.add(h, q);
        let y = self.add(y, y);
        // A quarter of a tiny number loses its last bits.
        let limit = self.k(self.pick(1.0 / 4096.0, 1.0 / (1u64 << 27) as f64));
        let tiny = self.compare(Compare::Lt, a, limit);
        let y = self.select(tiny, a, y);
        self.with_sign(y, x)
    }

    /// Computes 2 (h + 1/16h) with h = eᵃ / 4. At most 2 ulp.
    pub(super) fn cosh(&mut self, x: V) -> V {
        let a = self.abs(x);
        let (p, s) = self.exp_parts(a);
        let h = self.mad(p, s, s);
        let sixteenth = self.kr(0.0625);
        let q = self.div(sixteenth, h);
        let y = self.add(h, q);
        self.add(y, y)
    }

    fn log1p(&mut self, x: V) -> V {
        match self.wide {
            true => F64Ops(self.lo).log1p(x),
            false => log::log1p(self.lo, x),
        }
    }

    /// Computes log(1 + v), but log 2x where x is so large that the other terms are negligible.
    fn log_of(&mut self, x: V, v: V) -> V {
        let limit = self.k(self.pick((1u64 << 28) as f64, (1u64 << 60) as f64));
        let large = self.compare(Compare::Gt, x, limit);
        let v = self.select(large, x, v);
        let y = self.log1p(v);
        let ln2 = self.k(LN_2);
        let more = self.add(y, ln2);
        self.select(large, more, y)
    }

    /// Computes log(1 + a + a² / (1 + √(1 + a²))). At most 4 ulp.
    pub(super) fn asinh(&mut self, x: V) -> V {
        let a = self.abs(x);
        let one = self.k(1.0);
        let square = self.mul(a, a);
        let under = self.add(square, one);
        let root = self.sqrt(under);
        let d = self.add(root, one);
        let q = self.div(square, d);
        let v = self.add(a, q);
        let y = self.log_of(a, v);
        self.with_sign(y, x)
    }

    /// Computes log(1 + t + √(t (t + 2))) with t = x - 1. At most 4 ulp.
    pub(super) fn acosh(&mut self, x: V) -> V {
        let (one, two) = (self.k(1.0), self.k(2.0));
        let t = self.sub(x, one);
        let up = self.add(t, two);
        let product = self.mul(t, up);
        let root = self.sqrt(product);
        let v = self.add(t, root);
        let y = self.log_of(x, v);
        let left = self.compare(Compare::Lt, x, one);
        let nan = self.k(f64::NAN);
        self.select(left, nan, y)
    }

    /// Computes log(1 + 2a / (1 - a)) / 2. At most 4 ulp.
    pub(super) fn atanh(&mut self, x: V) -> V {
        let a = self.abs(x);
        let one = self.kr(1.0);
        let d = self.sub(one, a);
        let n = self.add(a, a);
        let q = self.div(n, d);
        let y = self.log1p(q);
        let half = self.k(0.5);
        let y = self.mul(y, half);
        self.with_sign(y, x)
    }
}
