//! The vectors of aarch64: pairs of 128-bit registers, which every such machine has. A tile of six rows and
//! two such vectors uses 24 of the 32 registers, and four more hold a row of B.

use std::arch::aarch64::*;
use std::arch::asm;

use half::{bf16, f16};

use super::pack::transpose_4;
use super::vector::{Load, Vector};

/// Eight f32.
#[derive(Clone, Copy)]
pub(crate) struct F32x8(pub(crate) [float32x4_t; 2]);
/// Four f64.
#[derive(Clone, Copy)]
pub(crate) struct F64x4([float64x2_t; 2]);
/// Eight i32.
#[derive(Clone, Copy)]
pub(crate) struct I32x8([int32x4_t; 2]);

macro_rules! vector {
    ($v:ident, $t:ty, $lanes:expr, $splat:ident, $load:ident, $store:ident, $fma:ident, $mul:ident, $add:ident, $four:ident) => {
        impl Vector for $v {
            type Elem = $t;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: every machine of this architecture has these instructions, here and below.
                $v([unsafe { $splat(x) }; 2])
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: `p` is valid for `LANES` elements.
                $v(unsafe { [$load(p), $load(p.add($lanes / 2))] })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as in `load`.
                unsafe {
                    $store(p, self.0[0]);
                    $store(p.add($lanes / 2), self.0[1]);
                }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $t, n: usize) -> Self {
                let mut lanes = [<$t>::default(); $lanes];
                // SAFETY: `p` is valid for `n` elements.
                unsafe {
                    (0..n).for_each(|i| lanes[i] = *p.add(i));
                    Self::load(lanes.as_ptr())
                }
            }
            #[inline(always)]
            unsafe fn store_first(self, p: *mut $t, n: usize) {
                let mut lanes = [<$t>::default(); $lanes];
                // SAFETY: as in `load_first`.
                unsafe {
                    self.store(lanes.as_mut_ptr());
                    (0..n).for_each(|i| *p.add(i) = lanes[i]);
                }
            }
            #[inline(always)]
            unsafe fn load_halves(low: *const $t, high: *const $t) -> Self {
                // SAFETY: each address is valid for half a vector.
                $v(unsafe { [$load(low), $load(high)] })
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: as in `splat`.
                $v(unsafe { [$fma(c.0[0], self.0[0], b.0[0]), $fma(c.0[1], self.0[1], b.0[1])] })
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                // SAFETY: as in `splat`.
                $v(unsafe { [$mul(self.0[0], b.0[0]), $mul(self.0[1], b.0[1])] })
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                // SAFETY: as in `splat`.
                $v(unsafe { [$add(self.0[0], b.0[0]), $add(self.0[1], b.0[1])] })
            }
            #[inline(always)]
            unsafe fn prefetch(p: *const $t) {
                // SAFETY: a prefetch does not fault.
                unsafe { asm!("prfm pldl1keep, [{}]", in(reg) p, options(readonly, nostack, preserves_flags)) }
            }
            #[inline(always)]
            unsafe fn prefetch_l2(p: *const $t) {
                // SAFETY: a prefetch does not fault.
                unsafe { asm!("prfm pldl2keep, [{}]", in(reg) p, options(readonly, nostack, preserves_flags)) }
            }
            #[inline(always)]
            unsafe fn transpose_4(dst: *mut $t, width: usize, src: *const $t, along: isize, depth: usize) {
                // SAFETY: `src` is valid for four lines of `depth` elements, and `dst` for their columns.
                unsafe { $four(dst, width, src, along, depth) }
            }
        }

        impl Load<$t> for $v {
            #[inline(always)]
            unsafe fn load_from(p: *const $t) -> Self {
                // SAFETY: `p` is valid for `LANES` elements.
                unsafe { Self::load(p) }
            }
        }
    };
}

vector!(F32x8, f32, 8, vdupq_n_f32, vld1q_f32, vst1q_f32, vfmaq_f32, vmulq_f32, vaddq_f32, transpose_4_f32);
vector!(F64x4, f64, 4, vdupq_n_f64, vld1q_f64, vst1q_f64, vfmaq_f64, vmulq_f64, vaddq_f64, transpose_4);
vector!(I32x8, i32, 8, vdupq_n_s32, vld1q_s32, vst1q_s32, vmlaq_s32, vmulq_s32, vaddq_s32, transpose_4);

impl Load<bf16> for F32x8 {
    #[inline(always)]
    unsafe fn load_from(p: *const bf16) -> Self {
        // SAFETY: `p` is valid for eight elements.
        unsafe {
            let x = vld1q_u16(p.cast());
            let (low, high) = (vshll_n_u16::<16>(vget_low_u16(x)), vshll_high_n_u16::<16>(x));
            F32x8([vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)])
        }
    }
}

impl Load<f16> for F32x8 {
    #[inline(always)]
    unsafe fn load_from(p: *const f16) -> Self {
        let (low, high): (float32x4_t, float32x4_t);
        // SAFETY: `p` is valid for eight elements; the instructions only convert.
        unsafe {
            let x = vld1q_u16(p.cast());
            asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) low, in(vreg) x, options(pure, nomem, nostack, preserves_flags));
            asm!("fcvtl2 {0:v}.4s, {1:v}.8h", out(vreg) high, in(vreg) x, options(pure, nomem, nostack, preserves_flags));
        }
        F32x8([low, high])
    }
}

impl Load<i8> for I32x8 {
    #[inline(always)]
    unsafe fn load_from(p: *const i8) -> Self {
        // SAFETY: `p` is valid for eight elements.
        unsafe {
            let x = vmovl_s8(vld1_s8(p));
            I32x8([vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)])
        }
    }
}

/// [`Vector::transpose_4`] by 4×4 blocks.
///
/// # Safety
/// `src` is valid for four lines of `depth` elements, and `dst` for their columns.
#[inline(always)]
unsafe fn transpose_4_f32(dst: *mut f32, width: usize, src: *const f32, along: isize, depth: usize) {
    // SAFETY: `src` is valid for four lines of `depth` elements, and `dst` for their columns.
    unsafe {
        let blocks = depth / 4 * 4;
        for d in (0..blocks).step_by(4) {
            let line = |i: isize| vld1q_f32(src.offset(i * along).add(d));
            let (x0, x1, x2, x3) = (line(0), line(1), line(2), line(3));
            let pairs = |a, b| (vreinterpretq_f64_f32(vtrn1q_f32(a, b)), vreinterpretq_f64_f32(vtrn2q_f32(a, b)));
            let ((even, odd), (even2, odd2)) = (pairs(x0, x1), pairs(x2, x3));
            let columns =
                [vtrn1q_f64(even, even2), vtrn1q_f64(odd, odd2), vtrn2q_f64(even, even2), vtrn2q_f64(odd, odd2)];
            for (j, column) in columns.into_iter().enumerate() {
                vst1q_f32(dst.add((d + j) * width), vreinterpretq_f32_f64(column));
            }
        }
        transpose_4(dst.add(blocks * width), width, src.add(blocks), along, depth - blocks);
    }
}
