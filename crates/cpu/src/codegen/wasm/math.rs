//! Elementary functions of four f32 lanes.
//!
//! There is no fused multiply-add, so arguments are reduced with constants that have few significant bits, whose products are
//! exact (Cody and Waite). Special cases (NaN, infinities, signed zeros, overflow) are exact.
//! `tests/ulp.rs` lists the error bounds.

use super::body::L;
use super::kernel::KernelWriter;
use compiler::loops::{Op, Reg};
use ir::{DType, Unary};
use wasm_encoder::{BlockType, Instruction as I, ValType};

/// 1.5 · 2²³: adding it leaves the rounded number in the low bits.
const MAGIC: f32 = 12_582_912.0;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has 9 significant bits.
const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// The polynomial (eʳ - 1 - r) / r².
const EXP: [f32; 5] = [0.001_392_637_6, 0.008_363_333_5, 0.041_666_552, 0.166_665_76, 0.5];
/// The polynomial (2ʳ - 1) / r.
const EXP2: [f32; 6] =
    [0.000_154_533_61, 0.001_339_109_4, 0.009_618_082, 0.055_503_566, 0.240_226_5, std::f32::consts::LN_2];
/// The polynomial (log(1 + f) - f + f²/2) / f³.
const LOG: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

impl KernelWriter<'_> {
    /// Emits a function of four lanes, if it has an inline form.
    pub(crate) fn function(&mut self, f: Unary, x: L) -> Option<L> {
        Some(match f {
            Unary::Exp => self.exp(x),
            Unary::Exp2 => self.exp2(x),
            Unary::Expm1 => self.expm1(x),
            Unary::Logistic => self.logistic(x),
            Unary::Tanh => self.tanh(x),
            Unary::Log => self.log(x),
            Unary::Log2 => self.log2(x),
            Unary::Log1p => self.log1p(x),
            Unary::Erf => self.erf(x),
            Unary::Sin | Unary::Cos => self.sin_cos(f, x),
            Unary::Reciprocal => {
                let one = self.k(1.0);
                self.div(one, x)
            }
            Unary::Rsqrt => {
                let (one, root) = (self.k(1.0), self.b.v128(I::F32x4Sqrt, &[x]));
                self.div(one, root)
            }
            Unary::Sign => {
                let (one, zero) = (self.k(1.0), self.k(0.0));
                let unit = self.with_sign(one, x);
                let (less, more) = (self.b.v128(I::F32x4Lt, &[x, zero]), self.b.v128(I::F32x4Gt, &[x, zero]));
                let some = self.b.v128(I::V128Or, &[less, more]);
                self.choose(some, unit, x)
            }
            Unary::IsFinite => {
                let (a, inf) = (self.b.v128(I::F32x4Abs, &[x]), self.k(f32::INFINITY));
                self.b.v128(I::F32x4Lt, &[a, inf])
            }
            _ => return None,
        })
    }

    fn k(&mut self, x: f32) -> L {
        self.b.splat32(x.to_bits())
    }

    fn add(&mut self, a: L, b: L) -> L {
        self.b.v128(I::F32x4Add, &[a, b])
    }

    fn sub(&mut self, a: L, b: L) -> L {
        self.b.v128(I::F32x4Sub, &[a, b])
    }

    fn mul(&mut self, a: L, b: L) -> L {
        self.b.v128(I::F32x4Mul, &[a, b])
    }

    fn div(&mut self, a: L, b: L) -> L {
        self.b.v128(I::F32x4Div, &[a, b])
    }

    /// Computes `a·b + c`, with two roundings.
    fn mad(&mut self, a: L, b: L, c: L) -> L {
        let p = self.mul(a, b);
        self.add(p, c)
    }

    fn choose(&mut self, mask: L, a: L, b: L) -> L {
        self.b.v128(I::V128Bitselect, &[a, b, mask])
    }

    fn shl(&mut self, x: L, n: i32) -> L {
        let n = self.b.const_i32(n);
        self.b.v128(I::I32x4Shl, &[x, n])
    }

    fn sar(&mut self, x: L, n: i32) -> L {
        let n = self.b.const_i32(n);
        self.b.v128(I::I32x4ShrS, &[x, n])
    }

    fn iadd(&mut self, a: L, b: L) -> L {
        self.b.v128(I::I32x4Add, &[a, b])
    }

    fn isub(&mut self, a: L, b: L) -> L {
        self.b.v128(I::I32x4Sub, &[a, b])
    }

    /// Puts the sign of `of` onto `x`, whose sign must be clear or already equal.
    fn with_sign(&mut self, x: L, of: L) -> L {
        let bit = self.b.splat32(0x8000_0000);
        let s = self.b.v128(I::V128And, &[of, bit]);
        self.b.v128(I::V128Or, &[x, s])
    }

    /// Clamps to two bounds; NaN stays NaN.
    fn clamp(&mut self, x: L, low: f32, high: f32) -> L {
        let (low, high) = (self.k(low), self.k(high));
        // pmax(x, low) is low if x < low, else x.
        let x = self.b.v128(I::F32x4PMax, &[x, low]);
        self.b.v128(I::F32x4PMin, &[x, high])
    }

    /// Evaluates a polynomial by Horner's rule; the coefficient of the highest power comes first.
    fn poly(&mut self, x: L, coefficients: &[f32]) -> L {
        let mut p = self.k(coefficients[0]);
        for &c in &coefficients[1..] {
            let c = self.k(c);
            p = self.mad(p, x, c);
        }
        p
    }

    /// Reduces x = n ln 2 + r; returns (n in the low bits of a float, n, r).
    fn reduce(&mut self, x: L) -> (L, L) {
        let (log2e, magic) = (self.k(LOG2_E), self.k(MAGIC));
        let shifted = self.mad(x, log2e, magic);
        let n = self.sub(shifted, magic);
        let mut r = x;
        for part in LN2 {
            let c = self.k(part);
            let t = self.mul(n, c);
            r = self.sub(r, t);
        }
        (shifted, r)
    }

    /// Computes eʳ - 1.
    fn expm1_poly(&mut self, r: L) -> L {
        let q = self.poly(r, &EXP);
        let s = self.mul(r, r);
        self.mad(s, q, r)
    }

    /// Computes `p · 2ⁿ` for n from -190 to 190, in two steps of which only the second can round.
    fn scale(&mut self, p: L, shifted: L) -> L {
        let magic = self.k(MAGIC);
        let i = self.isub(shifted, magic);
        let half = self.sar(i, 1);
        let rest = self.isub(i, half);
        let one = self.k(1.0);
        let mut p = p;
        for part in [half, rest] {
            let e = self.shl(part, 23);
            let power = self.iadd(e, one);
            p = self.mul(p, power);
        }
        p
    }

    fn exp(&mut self, x: L) -> L {
        let x = self.clamp(x, -105.0, 90.0);
        let (shifted, r) = self.reduce(x);
        let em1 = self.expm1_poly(r);
        let one = self.k(1.0);
        let p = self.add(em1, one);
        self.scale(p, shifted)
    }

    fn exp2(&mut self, x: L) -> L {
        let x = self.clamp(x, -151.0, 129.0);
        let (magic, one) = (self.k(MAGIC), self.k(1.0));
        let shifted = self.add(x, magic);
        let n = self.sub(shifted, magic);
        let r = self.sub(x, n);
        let p = self.poly(r, &EXP2);
        let p = self.mad(p, r, one);
        self.scale(p, shifted)
    }

    fn expm1(&mut self, given: L) -> L {
        let x = self.clamp(given, -20.0, 88.8);
        let (shifted, r) = self.reduce(x);
        let p = self.expm1_poly(r);
        // 2ⁿ⁻¹ (eʳ - 1) + (2ⁿ⁻¹ - 1/2), doubled: 2ⁿ itself may overflow.
        let half = self.k(0.5);
        let e = self.shl(shifted, 23);
        let s = self.iadd(e, half);
        let t = self.sub(s, half);
        let y = self.mad(p, s, t);
        let y = self.add(y, y);
        // Halving a subnormal number loses its last bit.
        let size = self.b.v128(I::F32x4Abs, &[given]);
        let limit = self.k(1.0 / (1u64 << 50) as f32);
        let tiny = self.b.v128(I::F32x4Lt, &[size, limit]);
        let y = self.choose(tiny, size, y);
        self.with_sign(y, given)
    }

    /// Computes 2⁻³² / (2⁻³² + 2⁻³² e⁻ˣ): nothing overflows while the result underflows.
    fn logistic(&mut self, x: L) -> L {
        const SCALE: f32 = 1.0 / 4_294_967_296.0;
        let x = self.clamp(x, -105.0, 60.0);
        let minus = self.b.v128(I::F32x4Neg, &[x]);
        let (shifted, r) = self.reduce(minus);
        let em1 = self.expm1_poly(r);
        let small = self.k(SCALE);
        let e = self.shl(shifted, 23);
        let power = self.iadd(e, small);
        // The sum of two powers of two is exact where it matters.
        let both = self.add(power, small);
        let d = self.mad(em1, power, both);
        self.div(small, d)
    }

    /// Computes t / (t + 2) with t = e²ˣ - 1, of |x|.
    fn tanh(&mut self, given: L) -> L {
        let a = self.b.v128(I::F32x4Abs, &[given]);
        let limit = self.k(9.02);
        let a = self.b.v128(I::F32x4PMin, &[a, limit]);
        let x = self.add(a, a);
        let (shifted, r) = self.reduce(x);
        let p = self.expm1_poly(r);
        let (one, two) = (self.k(1.0), self.k(2.0));
        let e = self.shl(shifted, 23);
        let power = self.iadd(e, one);
        let t = self.sub(power, one);
        let t = self.mad(p, power, t);
        let d = self.add(t, two);
        let y = self.div(t, d);
        self.with_sign(y, given)
    }

    /// Returns (e, f, rest) with x = 2ᵉ (1 + f) and log(1 + f) = f + rest.
    fn log_parts(&mut self, x: L) -> (L, L, L) {
        // Subnormal numbers are scaled up first.
        let (tiny, two_25) = (self.k(f32::MIN_POSITIVE), self.k(33_554_432.0));
        let small = self.b.v128(I::F32x4Lt, &[x, tiny]);
        let scaled = self.mul(x, two_25);
        let x = self.choose(small, scaled, x);
        let sqrt_half = self.b.splat32(0x3f35_04f3);
        let i = self.isub(x, sqrt_half);
        let e = self.sar(i, 23);
        let exponent = self.shl(e, 23);
        let m = self.isub(x, exponent);
        let e = self.b.v128(I::F32x4ConvertI32x4S, &[e]);
        let less = self.k(25.0);
        let lower = self.sub(e, less);
        let e = self.choose(small, lower, e);
        let (one, half) = (self.k(1.0), self.k(0.5));
        let f = self.sub(m, one);
        let z = self.mul(f, f);
        let p = self.poly(f, &LOG);
        let p = self.mul(p, f);
        let p = self.sub(p, half);
        (e, f, self.mul(z, p))
    }

    /// Replaces `y` by the result for 0, infinity, negative numbers and NaN.
    fn log_specials(&mut self, x: L, y: L) -> L {
        let (inf, zero) = (self.k(f32::INFINITY), self.k(0.0));
        let top = self.b.v128(I::F32x4Eq, &[x, inf]);
        let y = self.choose(top, inf, y);
        let bottom = self.b.v128(I::F32x4Eq, &[x, zero]);
        let lowest = self.k(f32::NEG_INFINITY);
        let y = self.choose(bottom, lowest, y);
        let fine = self.b.v128(I::F32x4Ge, &[x, zero]);
        let nan = self.k(f32::NAN);
        self.choose(fine, y, nan)
    }

    fn log_finite(&mut self, x: L) -> L {
        let (e, f, rest) = self.log_parts(x);
        let (high, low) = (self.k(LN2[0]), self.k(LN2[1]));
        let y = self.mad(e, low, rest);
        let y = self.add(y, f);
        self.mad(e, high, y)
    }

    fn log(&mut self, x: L) -> L {
        let y = self.log_finite(x);
        self.log_specials(x, y)
    }

    fn log2(&mut self, x: L) -> L {
        let (e, f, rest) = self.log_parts(x);
        // log₂ e - 1, so that the terms with factor 1 are added exactly.
        let more = self.k(0.442_695_04);
        let a = self.mul(rest, more);
        let a = self.mad(f, more, a);
        let a = self.add(a, rest);
        let a = self.add(a, f);
        let y = self.add(a, e);
        self.log_specials(x, y)
    }

    /// Computes log(u) + (x - (u - 1)) / u with u = 1 + x.
    fn log1p(&mut self, x: L) -> L {
        let one = self.k(1.0);
        let u = self.add(x, one);
        let back = self.sub(u, one);
        let c = self.sub(x, back);
        let c = self.div(c, u);
        let y = self.log_finite(u);
        let y = self.add(y, c);
        let y = self.log_specials(u, y);
        // log1p has the sign of its argument, also at zero.
        self.with_sign(y, x)
    }

    /// Computes x + x P(x²) near zero, 1 - exp(Q(|x|)) elsewhere.
    fn erf(&mut self, x: L) -> L {
        let a = self.b.v128(I::F32x4Abs, &[x]);
        let four = self.k(4.0);
        let t = self.b.v128(I::F32x4PMin, &[a, four]);
        let s = self.mul(t, t);
        let near = [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1];
        let p = self.poly(s, &near);
        let near = self.mad(p, t, t);
        let far = [
            -1.728_534_7e-5,
            3.831_971_3e-4,
            -3.883_964_4e-3,
            2.425_462_2e-2,
            -1.067_778_8e-1,
            -6.348_467e-1,
            -1.287_175_1e-1,
        ];
        let r = self.poly(t, &far);
        let r = self.mul(r, t);
        let r = self.sub(r, t);
        let (shifted, r) = self.reduce(r);
        let em1 = self.expm1_poly(r);
        let one = self.k(1.0);
        let e = self.shl(shifted, 23);
        let power = self.iadd(e, one);
        let p = self.mad(em1, power, power);
        let far = self.sub(one, p);
        let limit = self.k(0.927_734_4);
        let beyond = self.b.v128(I::F32x4Gt, &[t, limit]);
        let y = self.choose(beyond, far, near);
        self.with_sign(y, x)
    }

    /// Reduces x = n π/2 + r in f64 and evaluates the polynomials in f32. Arguments above a million go to the helper.
    fn sin_cos(&mut self, f: Unary, x: L) -> L {
        let out = self.b.local(ValType::V128);
        let (a, limit) = (self.b.v128(I::F32x4Abs, &[x]), self.k(1e6));
        let large = self.b.v128(I::F32x4Gt, &[a, limit]);
        self.b.get(large);
        self.b.push(I::V128AnyTrue);
        self.b.push(I::If(BlockType::Empty));
        let slow = self.call_helper_vector(&Op::Unary(f, Reg(0)), DType::F32, DType::F32, &[&[x]]);
        self.b.get(slow[0]);
        self.b.set(out);
        self.b.push(I::Else);
        let doubles = self.vector_cast(DType::F32, DType::F64, &[a]).expect("a cast that is inline");
        let [by, first, second] = [std::f64::consts::FRAC_2_PI, 1.570_796_326_734_125_6, 6.077_100_506_506_192e-11]
            .map(|c| self.b.splat64(c.to_bits()));
        let (mut quadrants, mut rests) = (Vec::new(), Vec::new());
        for v in doubles {
            let n = self.b.v128(I::F64x2Mul, &[v, by]);
            let n = self.b.v128(I::F64x2Nearest, &[n]);
            let t = self.b.v128(I::F64x2Mul, &[n, first]);
            let r = self.b.v128(I::F64x2Sub, &[v, t]);
            let t = self.b.v128(I::F64x2Mul, &[n, second]);
            let r = self.b.v128(I::F64x2Sub, &[r, t]);
            quadrants.push(self.b.v128(I::I32x4TruncSatF64x2SZero, &[n]));
            rests.push(self.b.v128(I::F32x4DemoteF64x2Zero, &[r]));
        }
        let (quadrant, r) = (self.joined_halves(&quadrants)[0], self.joined_halves(&rests)[0]);
        let one = self.k(1.0);
        let s = self.mul(r, r);
        let p = self.poly(s, &[-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]);
        let p = self.mul(p, s);
        let sine = self.mad(p, r, r);
        let p = self.poly(s, &[2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2, -0.5]);
        let cosine = self.mad(p, s, one);
        // Odd quadrants swap the functions; the second bit of the quadrant is the sign.
        let [one, two, zero] = [1, 2, 0].map(|c| self.b.splat32(c));
        let quadrant = if f == Unary::Cos { self.iadd(quadrant, one) } else { quadrant };
        let odd = self.b.v128(I::V128And, &[quadrant, one]);
        let swap = self.b.v128(I::I32x4Ne, &[odd, zero]);
        let mut y = self.choose(swap, cosine, sine);
        let bit = self.b.v128(I::V128And, &[quadrant, two]);
        let sign = self.shl(bit, 30);
        y = self.b.v128(I::V128Xor, &[y, sign]);
        if f == Unary::Sin {
            let bit = self.b.splat32(0x8000_0000);
            let own = self.b.v128(I::V128And, &[x, bit]);
            y = self.b.v128(I::V128Xor, &[y, own]);
        }
        self.b.get(y);
        self.b.set(out);
        self.b.push(I::End);
        out
    }
}
