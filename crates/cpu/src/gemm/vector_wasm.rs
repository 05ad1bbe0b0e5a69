//! The vectors of WebAssembly: 128 bits, no fused multiply-add.

use std::arch::wasm32::*;

use half::{bf16, f16};

use super::vector::{Load, Vector};

/// Four f32.
#[derive(Clone, Copy)]
pub(crate) struct F32x4(pub(crate) v128);
/// Two f64.
#[derive(Clone, Copy)]
pub(crate) struct F64x2(pub(crate) v128);

macro_rules! vector {
    ($v:ident, $t:ty, $lanes:expr, $splat:ident, $mul:ident, $add:ident) => {
        impl Vector for $v {
            type Elem = $t;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                $v($splat(x))
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: `p` is valid for `LANES` elements.
                $v(unsafe { v128_load(p.cast()) })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as in `load`.
                unsafe { v128_store(p.cast(), self.0) }
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
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                $v($add($mul(self.0, b.0), c.0))
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                $v($mul(self.0, b.0))
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                $v($add(self.0, b.0))
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

vector!(F32x4, f32, 4, f32x4_splat, f32x4_mul, f32x4_add);
vector!(F64x2, f64, 2, f64x2_splat, f64x2_mul, f64x2_add);

impl Load<bf16> for F32x4 {
    #[inline(always)]
    unsafe fn load_from(p: *const bf16) -> Self {
        // SAFETY: `p` is valid for four elements.
        F32x4(u32x4_shl(unsafe { u32x4_load_extend_u16x4(p.cast()) }, 16))
    }
}

impl Load<f16> for F32x4 {
    #[inline(always)]
    unsafe fn load_from(p: *const f16) -> Self {
        // SAFETY: `p` is valid for four elements.
        let x = unsafe { p.cast::<[f16; 4]>().read_unaligned() }.map(f16::to_f32);
        // SAFETY: four elements are there.
        unsafe { Self::load(x.as_ptr()) }
    }
}
