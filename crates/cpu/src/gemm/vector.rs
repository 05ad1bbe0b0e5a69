//! One vector register, as the kernels see it, and the element types they are made of.
//!
//! Every method is `#[inline(always)]`: it must end up inside a function that has the
//! `#[target_feature]`s of the implementing type (see `kernel.rs`), which is also the safety
//! condition of all of them.

use half::{bf16, f16};
use ir::DType;

use super::pack::transpose_4;

/// An instruction set that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, which the compiler vectorises as far as the target's baseline goes.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// The widest instruction set of this machine.
    pub fn detect() -> Isa {
        Isa::available().last().copied().unwrap_or(Isa::Portable)
    }

    /// All instruction sets of this machine, the widest last.
    pub fn available() -> &'static [Isa] {
        #[cfg(target_arch = "x86_64")]
        {
            use std::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("fma") && has!("f16c");
            let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            match (avx2, avx512) {
                (true, true) => return &[Isa::Portable, Isa::Avx2, Isa::Avx512],
                (true, false) => return &[Isa::Portable, Isa::Avx2],
                _ => {}
            }
        }
        &[Isa::Portable]
    }
}

/// An element that products are summed in: f32, f64 or i32, which wraps.
pub(crate) trait Float: Copy + Default + Send + Sync + PartialEq + 'static {
    const DTYPE: DType;
    const ONE: Self;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    #[cfg_attr(all(target_arch = "aarch64", not(test)), expect(dead_code, reason = "only lanes in arrays need it"))]
    fn mul_add(self, b: Self, c: Self) -> Self;
    fn add(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
}

/// `a·b + c`, fused where the target does that in one instruction.
macro_rules! float {
    ($t:ty, $dtype:expr) => {
        impl Float for $t {
            const DTYPE: DType = $dtype;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                    <$t>::mul_add(self, b, c)
                } else {
                    self * b + c
                }
            }
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                self + b
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                self * b
            }
        }
    };
}
float!(f32, DType::F32);
float!(f64, DType::F64);

impl Float for i32 {
    const DTYPE: DType = DType::I32;
    const ONE: Self = 1;
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        // Sums of blocks are exact, and wrap like those of elements.
        x as i64 as i32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        self.wrapping_mul(b).wrapping_add(c)
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.wrapping_add(b)
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.wrapping_mul(b)
    }
}

/// A vector of `LANES` elements.
pub(crate) trait Vector: Copy {
    type Elem: Float;
    const LANES: usize;

    unsafe fn splat(x: Self::Elem) -> Self;
    unsafe fn load(p: *const Self::Elem) -> Self;
    unsafe fn store(self, p: *mut Self::Elem);
    /// The first `n ≤ LANES` elements; the others are zero and their memory is not touched.
    unsafe fn load_first(p: *const Self::Elem, n: usize) -> Self;
    unsafe fn store_first(self, p: *mut Self::Elem, n: usize);
    /// Half a vector from each of two places.
    #[inline(always)]
    unsafe fn load_halves(low: *const Self::Elem, high: *const Self::Elem) -> Self {
        let mut lanes = [Self::Elem::default(); 16];
        // SAFETY: the caller vouches for half a vector at each; none has more than 16 lanes.
        unsafe {
            std::ptr::copy_nonoverlapping(low, lanes.as_mut_ptr(), Self::LANES / 2);
            std::ptr::copy_nonoverlapping(high, lanes.as_mut_ptr().add(Self::LANES / 2), Self::LANES / 2);
            Self::load(lanes.as_ptr())
        }
    }
    /// `self·b + c`
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The same where lanes of `self` and `b` are packed elements: groups of products are summed.
    #[inline(always)]
    unsafe fn dot_add(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller's promise is the same.
        unsafe { self.mul_add(b, c) }
    }
    /// Whether the first lanes are loaded as quickly as all of them.
    const MASKS: bool = false;
    /// What was added to every packed element of the left operand, if anything: its product with B is subtracted.
    const BIAS: Option<Self::Elem> = None;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn add(self, b: Self) -> Self;

    /// Asks for the cache line at `p`, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(_p: *const Self::Elem) {}

    /// The same, but only into L2.
    #[inline(always)]
    unsafe fn prefetch_l2(_p: *const Self::Elem) {}

    /// Writes four lines of `depth` adjacent elements, `along` apart, as columns of rows that are
    /// `width` apart.
    #[inline(always)]
    unsafe fn transpose_4(dst: *mut Self::Elem, width: usize, src: *const Self::Elem, along: isize, depth: usize) {
        // SAFETY: the caller's promises are the ones asked for.
        unsafe { transpose_4(dst, width, src, along, depth) }
    }

    /// The same for up to 16 lines, as far as there is a quick way; gives the elements of each line that are done.
    #[inline(always)]
    unsafe fn transpose_16(
        _dst: *mut Self::Elem,
        _width: usize,
        _src: *const Self::Elem,
        _along: isize,
        _lines: usize,
        _depth: usize,
    ) -> usize {
        0
    }

    /// The sum of the lanes by halving: a fixed tree.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Elem {
        let mut lanes = [Self::Elem::default(); 16];
        // SAFETY: no vector has more than 16 lanes; the caller vouches for the target features.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let mut width = Self::LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] = lanes[i].add(lanes[i + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// A vector that can be loaded, widened, from memory of element type `S`.
pub(crate) trait Load<S: Copy + Default>: Vector {
    unsafe fn load_from(p: *const S) -> Self;

    #[inline(always)]
    unsafe fn load_first_from(p: *const S, n: usize) -> Self {
        let mut lanes = [S::default(); 16];
        // SAFETY: the caller vouches for `n ≤ LANES ≤ 16` elements at `p`.
        unsafe {
            std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
            Self::load_from(lanes.as_ptr())
        }
    }
}

/// Lanes in an array, where plain Rust has no vectors; pages have those of floats.
#[derive(Clone, Copy)]
#[cfg_attr(all(target_arch = "aarch64", not(test)), expect(dead_code, reason = "every machine has vectors"))]
pub(crate) struct Lanes<T, const N: usize>(pub(crate) [T; N]);

impl<T: Copy, const N: usize> Lanes<T, N> {
    /// Each lane by itself. A plain loop: `array::from_fn` is ten times the code to compile.
    #[inline(always)]
    pub(crate) fn each(mut self, f: impl Fn(usize, T) -> T) -> Self {
        for i in 0..N {
            self.0[i] = f(i, self.0[i]);
        }
        self
    }
}

impl<T: Float, const N: usize> Vector for Lanes<T, N> {
    type Elem = T;
    const LANES: usize = N;

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Lanes([x; N])
    }
    #[inline(always)]
    unsafe fn load(p: *const T) -> Self {
        // SAFETY: the caller vouches for `N` elements at `p`.
        Lanes(unsafe { p.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut T) {
        // SAFETY: as in `load`.
        unsafe { p.cast::<[T; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const T, n: usize) -> Self {
        let mut lanes = [T::default(); N];
        // SAFETY: the caller vouches for `n` elements at `p`.
        (0..n).for_each(|i| lanes[i] = unsafe { *p.add(i) });
        Lanes(lanes)
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut T, n: usize) {
        // SAFETY: as in `load_first`.
        (0..n).for_each(|i| unsafe { *p.add(i) = self.0[i] });
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        self.each(|i, x| x.mul_add(b.0[i], c.0[i]))
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        self.each(|i, x| x.mul(b.0[i]))
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        self.each(|i, x| x.add(b.0[i]))
    }
}

macro_rules! load_lanes {
    ($s:ty, $t:ty, $x:ident => $widened:expr) => {
        impl<const N: usize> Load<$s> for Lanes<$t, N> {
            #[inline(always)]
            unsafe fn load_from(p: *const $s) -> Self {
                // SAFETY: the caller vouches for `N` elements at `p`.
                let x = unsafe { p.cast::<[$s; N]>().read_unaligned() };
                Lanes(x.map(|$x| $widened))
            }
        }
    };
}
load_lanes!(f32, f32, x => x);
load_lanes!(f64, f64, x => x);
load_lanes!(bf16, f32, x => f32::from_bits((x.to_bits() as u32) << 16));
load_lanes!(f16, f32, x => x.to_f32());
load_lanes!(i32, i32, x => x);
load_lanes!(i8, i32, x => x as i32);

/// What plain Rust computes with: small arrays, or the vectors that every page and every aarch64 machine has.
#[cfg(not(any(target_arch = "wasm32", target_arch = "aarch64")))]
pub(crate) type Plain32 = Lanes<f32, 8>;
/// The same for f64.
#[cfg(not(any(target_arch = "wasm32", target_arch = "aarch64")))]
pub(crate) type Plain64 = Lanes<f64, 4>;
/// The same for integers.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) type PlainI32 = Lanes<i32, 8>;
#[cfg(target_arch = "aarch64")]
pub(crate) use super::vector_neon::{F32x8 as Plain32, F64x4 as Plain64, I32x8 as PlainI32};
#[cfg(target_arch = "wasm32")]
pub(crate) use super::vector_wasm::{F32x4 as Plain32, F64x2 as Plain64};

/// Rows of a tile of plain vectors. In a page four rows of two vectors run at 42 GFLOP/s where five run at 24: engines then
/// begin to keep sums in memory. On aarch64 six fill the registers.
pub(crate) const PLAIN_ROWS: usize = if cfg!(target_arch = "aarch64") { 6 } else { 4 };
