//! f32 vectors with the operations that softmax needs: comparison, division, powers of two, `exp` and `tanh`.
//!
//! As in `gemm::vector`, every function is inlined into one that has the target features of its vector type. All of them require
//! that the machine has these features.

use crate::gemm::vector::{Lanes, Vector};

/// A vector of f32.
///
/// # Safety
/// All methods require the target features of the vector.
pub(super) trait Wide: Vector<Elem = f32> {
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    /// Returns the larger number; `b` where either is NaN.
    unsafe fn max(self, b: Self) -> Self;
    /// Returns the smaller number; `b` where either is NaN.
    unsafe fn min(self, b: Self) -> Self;
    /// Returns `yes` where `a < b`, otherwise `no`.
    unsafe fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self;
    /// Rounds to the nearest integer.
    unsafe fn round(self) -> Self;
    /// Returns `self · 2ⁿ` for integers `n` in -252..=254.
    unsafe fn times_pow2(self, n: Self) -> Self;
}

impl<const N: usize> Wide for Lanes<f32, N> {
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        self.each(|i, x| x - b.0[i])
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.each(|i, x| x / b.0[i])
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        self.each(|i, x| if x > b.0[i] { x } else { b.0[i] })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        self.each(|i, x| if x < b.0[i] { x } else { b.0[i] })
    }
    #[inline(always)]
    unsafe fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
        a.each(|i, x| if x < b.0[i] { yes.0[i] } else { no.0[i] })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        self.each(|_, x| x.round_ties_even())
    }
    #[inline(always)]
    unsafe fn times_pow2(self, n: Self) -> Self {
        let pow2 = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
        self.each(|i, x| {
            let n = n.0[i] as i32;
            x * pow2(n >> 1) * pow2(n - (n >> 1))
        })
    }
}

#[cfg(target_arch = "wasm32")]
mod page {
    use super::Wide;
    use crate::gemm::vector::Plain32 as F32x4;
    use std::arch::wasm32::*;

    impl Wide for F32x4 {
        #[inline(always)]
        unsafe fn sub(self, b: Self) -> Self {
            F32x4(f32x4_sub(self.0, b.0))
        }
        #[inline(always)]
        unsafe fn div(self, b: Self) -> Self {
            F32x4(f32x4_div(self.0, b.0))
        }
        #[inline(always)]
        unsafe fn max(self, b: Self) -> Self {
            F32x4(v128_bitselect(self.0, b.0, f32x4_gt(self.0, b.0)))
        }
        #[inline(always)]
        unsafe fn min(self, b: Self) -> Self {
            F32x4(v128_bitselect(self.0, b.0, f32x4_lt(self.0, b.0)))
        }
        #[inline(always)]
        unsafe fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
            F32x4(v128_bitselect(yes.0, no.0, f32x4_lt(a.0, b.0)))
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            F32x4(f32x4_nearest(self.0))
        }
        #[inline(always)]
        unsafe fn times_pow2(self, n: Self) -> Self {
            let n = i32x4_trunc_sat_f32x4(n.0);
            let half = i32x4_shr(n, 1);
            let pow2 = |n: v128| i32x4_shl(i32x4_add(n, i32x4_splat(127)), 23);
            F32x4(f32x4_mul(f32x4_mul(self.0, pow2(half)), pow2(i32x4_sub(n, half))))
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::Wide;
    use crate::gemm::vector_neon::F32x8;
    use std::arch::aarch64::*;

    /// Applies `f` to both registers.
    #[inline(always)]
    fn both(a: F32x8, b: F32x8, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> F32x8 {
        F32x8([f(a.0[0], b.0[0]), f(a.0[1], b.0[1])])
    }

    impl Wide for F32x8 {
        #[inline(always)]
        unsafe fn sub(self, b: Self) -> Self {
            // SAFETY: every machine of this architecture has these instructions, here and below.
            both(self, b, |a, b| unsafe { vsubq_f32(a, b) })
        }
        #[inline(always)]
        unsafe fn div(self, b: Self) -> Self {
            // SAFETY: as above.
            both(self, b, |a, b| unsafe { vdivq_f32(a, b) })
        }
        #[inline(always)]
        unsafe fn max(self, b: Self) -> Self {
            // SAFETY: as above.
            both(self, b, |a, b| unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) })
        }
        #[inline(always)]
        unsafe fn min(self, b: Self) -> Self {
            // SAFETY: as above.
            both(self, b, |a, b| unsafe { vbslq_f32(vcltq_f32(a, b), a, b) })
        }
        #[inline(always)]
        unsafe fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
            // SAFETY: as above.
            let pick = |i: usize| unsafe { vbslq_f32(vcltq_f32(a.0[i], b.0[i]), yes.0[i], no.0[i]) };
            F32x8([pick(0), pick(1)])
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            // SAFETY: as above.
            F32x8(self.0.map(|x| unsafe { vrndnq_f32(x) }))
        }
        #[inline(always)]
        unsafe fn times_pow2(self, n: Self) -> Self {
            both(self, n, |x, n| {
                // SAFETY: as above.
                unsafe {
                    let n = vcvtq_s32_f32(n);
                    let half = vshrq_n_s32::<1>(n);
                    let pow2 = |n| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127))));
                    vmulq_f32(vmulq_f32(x, pow2(half)), pow2(vsubq_s32(n, half)))
                }
            })
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Wide;
    use std::arch::x86_64::*;

    impl Wide for __m256 {
        #[inline(always)]
        unsafe fn sub(self, b: Self) -> Self {
            // SAFETY: target features only, here and below.
            unsafe { _mm256_sub_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn div(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_div_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn max(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_max_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn min(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_min_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self) }
        }
        #[inline(always)]
        unsafe fn times_pow2(self, n: Self) -> Self {
            // SAFETY: as above.
            unsafe {
                let n = _mm256_cvtps_epi32(n);
                let half = _mm256_srai_epi32::<1>(n);
                let pow2 =
                    |n| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))));
                _mm256_mul_ps(_mm256_mul_ps(self, pow2(half)), pow2(_mm256_sub_epi32(n, half)))
            }
        }
    }

    impl Wide for __m512 {
        #[inline(always)]
        unsafe fn sub(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_sub_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn div(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_div_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn max(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_max_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn min(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_min_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn select_lt(a: Self, b: Self, yes: Self, no: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self) }
        }
        #[inline(always)]
        unsafe fn times_pow2(self, n: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm512_scalef_ps(self, n) }
        }
    }
}

/// Computes `eˣ` within 2 ulp; NaN stays NaN.
///
/// # Safety
/// The machine has the target features of `V`.
#[inline(always)]
pub(super) unsafe fn exp<V: Wide>(x: V) -> V {
    // SAFETY: the machine has the target features.
    unsafe {
        // Smaller arguments give 0, larger ones ∞; the bounds are the first operands so that NaN is kept.
        let x = V::splat(-104.0).max(V::splat(89.0).min(x));
        let n = x.mul(V::splat(std::f32::consts::LOG2_E)).round();
        let r = n.mul_add(V::splat(-0.693_359_4), x);
        let r = n.mul_add(V::splat(2.121_944_4e-4), r);
        let mut p = V::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
            p = p.mul_add(r, V::splat(c));
        }
        let p = p.mul_add(r.mul(r), r).add(V::splat(1.0));
        p.times_pow2(n)
    }
}

/// Computes `tanh x` within a few ulp.
///
/// # Safety
/// The machine has the target features of `V`.
#[inline(always)]
pub(super) unsafe fn tanh<V: Wide>(x: V) -> V {
    // SAFETY: as in `exp`.
    unsafe {
        let one = V::splat(1.0);
        let sign = V::select_lt(x, V::splat(0.0), V::splat(-1.0), one);
        let a = x.mul(sign);
        let e = exp(a.add(a));
        let far = one.sub(V::splat(2.0).div(e.add(one))).mul(sign);
        let z = x.mul(x);
        let mut p = V::splat(-5.704_988_7e-3);
        for c in [2.063_909e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8] {
            p = p.mul_add(z, V::splat(c));
        }
        let near = p.mul(z).mul_add(x, x);
        V::select_lt(a, V::splat(0.625), near, far)
    }
}

/// Returns the largest lane.
///
/// # Safety
/// The machine has the target features of `V`.
#[inline(always)]
pub(super) unsafe fn largest<V: Wide>(x: V) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    // SAFETY: no vector has more than 16 lanes.
    unsafe { x.store(lanes.as_mut_ptr()) };
    lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::vector::Plain32;

    fn ulps(got: f32, want: f64) -> f64 {
        let w = want as f32;
        let ulp = (f32::from_bits(w.abs().to_bits() + 1) as f64 - w.abs() as f64).max(f32::MIN_POSITIVE as f64 / 8.0);
        (got as f64 - want).abs() / ulp
    }

    /// # Safety
    /// The machine has the target features of `V`.
    unsafe fn sweep<V: Wide>() -> (f64, f64) {
        let (mut worst, mut bound) = (0f64, 0f64);
        for i in -800_000..=800_000 {
            let x = i as f32 * 1.1e-4;
            let mut got = [0f32; 16];
            // SAFETY: the machine has the target features.
            unsafe { exp(V::splat(x)).store(got.as_mut_ptr()) };
            if x > -87.0 {
                worst = worst.max(ulps(got[0], (x as f64).exp()));
            }
            // SAFETY: as above.
            unsafe { tanh(V::splat(x * 0.1)).store(got.as_mut_ptr()) };
            bound = bound.max(ulps(got[0], ((x * 0.1) as f64).tanh()));
        }
        for (x, want) in [(f32::NEG_INFINITY, 0.0), (-200.0, 0.0), (0.0, 1.0), (1e9, f32::INFINITY)] {
            let mut got = [0f32; 16];
            // SAFETY: as above.
            unsafe { exp(V::splat(x)).store(got.as_mut_ptr()) };
            assert_eq!(got[0], want, "exp({x})");
        }
        let mut got = [0f32; 16];
        // SAFETY: as above.
        unsafe { exp(V::splat(f32::NAN)).store(got.as_mut_ptr()) };
        assert!(got[0].is_nan());
        (worst, bound)
    }

    #[test]
    fn exp_and_tanh_are_accurate() {
        // SAFETY: lanes in arrays need no features.
        let mut all = vec![unsafe { sweep::<Lanes<f32, 8>>() }];
        // SAFETY: nor do plain vectors.
        all.push(unsafe { sweep::<Plain32>() });
        #[cfg(target_arch = "x86_64")]
        {
            use crate::gemm::Isa;
            /// # Safety
            /// The machine has AVX2 and FMA.
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2() -> (f64, f64) {
                // SAFETY: this is called only where the machine has the features.
                unsafe { sweep::<std::arch::x86_64::__m256>() }
            }
            /// # Safety
            /// The machine has AVX-512.
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
            unsafe fn avx512() -> (f64, f64) {
                // SAFETY: this is called only where the machine has the features.
                unsafe { sweep::<std::arch::x86_64::__m512>() }
            }
            if Isa::available().contains(&Isa::Avx2) {
                // SAFETY: checked.
                all.push(unsafe { avx2() });
            }
            if Isa::available().contains(&Isa::Avx512) {
                // SAFETY: checked.
                all.push(unsafe { avx512() });
            }
        }
        for (e, t) in all {
            assert!(e <= 2.0 && t <= 4.0, "exp {e} ulp, tanh {t} ulp");
        }
    }
}
