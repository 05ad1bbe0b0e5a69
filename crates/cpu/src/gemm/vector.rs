//! The vector register type of the kernels, and the element types of vectors.
//!
//! Every method is `#[inline(always)]`: it must end up inside a function that has the
//! `#[target_feature]`s of the implementing type (see `kernel.rs`), which is also the safety
//! condition of all of them.

use half::{bf16, f16};
use ir::DType;

use super::pack::transpose_4;

/// An instruction set that has kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, which the compiler vectorizes for the target's baseline.
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

/// An element type for accumulators: f32, f64 or i32, which wraps.
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
        // Sums of blocks are exact, and wrap like the sums of elements.
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
///
/// # Safety
/// All methods require the target features of the vector. An address must be valid for `LANES` elements, for `n` where a method takes their
/// number, or for what its own documentation says; prefetching accesses no memory.
pub(crate) trait Vector: Copy {
    type Elem: Float;
    const LANES: usize;

    unsafe fn splat(x: Self::Elem) -> Self;
    unsafe fn load(p: *const Self::Elem) -> Self;
    unsafe fn store(self, p: *mut Self::Elem);
    /// Loads the first `n ≤ LANES` elements. The other lanes are zero and their memory is not read.
    unsafe fn load_first(p: *const Self::Elem, n: usize) -> Self;
    unsafe fn store_first(self, p: *mut Self::Elem, n: usize);
    /// Loads half a vector from each of two addresses.
    #[inline(always)]
    unsafe fn load_halves(low: *const Self::Elem, high: *const Self::Elem) -> Self {
        let mut lanes = [Self::Elem::default(); 16];
        // SAFETY: each address is valid for half a vector, and no vector has more than 16 lanes.
        unsafe {
            std::ptr::copy_nonoverlapping(low, lanes.as_mut_ptr(), Self::LANES / 2);
            std::ptr::copy_nonoverlapping(high, lanes.as_mut_ptr().add(Self::LANES / 2), Self::LANES / 2);
            Self::load(lanes.as_ptr())
        }
    }
    /// Returns `self·b + c`.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Returns `self·b + c` where the lanes of `self` and `b` are packed groups: the products of a group are summed.
    #[inline(always)]
    unsafe fn dot_add(self, b: Self, c: Self) -> Self {
        // SAFETY: `mul_add` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.mul_add(b, c) }
    }
    /// Whether loading only the first lanes is as fast as loading all of them.
    const MASKS: bool = false;
    /// The number that was added to every packed element of the left operand, if any; its product with B is subtracted.
    const BIAS: Option<Self::Elem> = None;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn add(self, b: Self) -> Self;

    /// Prefetches the cache line at `p`, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(_p: *const Self::Elem) {}

    /// Prefetches the cache line at `p` into L2 only.
    #[inline(always)]
    unsafe fn prefetch_l2(_p: *const Self::Elem) {}

    /// Writes four lines of `depth` adjacent elements, `along` apart, as columns of rows that are
    /// `width` apart.
    #[inline(always)]
    unsafe fn transpose_4(dst: *mut Self::Elem, width: usize, src: *const Self::Elem, along: isize, depth: usize) {
        // SAFETY: `transpose_4` has the contract of this function, and gets its arguments unchanged.
        unsafe { transpose_4(dst, width, src, along, depth) }
    }

    /// Transposes up to 16 lines like [`Vector::transpose_4`], if there is a fast method. Returns the number of elements done per line.
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

    /// Returns the sum of the lanes by repeated halving: a fixed reduction tree.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Elem {
        let mut lanes = [Self::Elem::default(); 16];
        // SAFETY: no vector has more than 16 lanes, and the machine has the target features.
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

/// A vector that can be loaded from memory of element type `S` with an upcast.
///
/// # Safety
/// As for [`Vector`].
pub(crate) trait Load<S: Copy + Default>: Vector {
    unsafe fn load_from(p: *const S) -> Self;

    #[inline(always)]
    unsafe fn load_first_from(p: *const S, n: usize) -> Self {
        let mut lanes = [S::default(); 16];
        // SAFETY: `p` is valid for `n ≤ LANES ≤ 16` elements.
        unsafe {
            std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
            Self::load_from(lanes.as_ptr())
        }
    }
}

/// Lanes in an array, for targets where this crate has no vector type of the element.
#[derive(Clone, Copy)]
#[cfg_attr(all(target_arch = "aarch64", not(test)), expect(dead_code, reason = "every machine has vectors"))]
pub(crate) struct Lanes<T, const N: usize>(pub(crate) [T; N]);

impl<T: Copy, const N: usize> Lanes<T, N> {
    /// Applies `f` to each lane. A plain loop: `array::from_fn` gives ten times as much code to compile.
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
        // SAFETY: `p` is valid for `N` elements.
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
        // SAFETY: `p` is valid for `n` elements.
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
                // SAFETY: `p` is valid for `N` elements.
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

/// The vector of plain Rust: a small array, or the vector type that every WebAssembly engine and every aarch64 machine has.
#[cfg(not(any(target_arch = "wasm32", target_arch = "aarch64")))]
pub(crate) type Plain32 = Lanes<f32, 8>;
/// The f64 vector of plain Rust.
#[cfg(not(any(target_arch = "wasm32", target_arch = "aarch64")))]
pub(crate) type Plain64 = Lanes<f64, 4>;
/// The i32 vector of plain Rust.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) type PlainI32 = Lanes<i32, 8>;
#[cfg(target_arch = "aarch64")]
pub(crate) use super::vector_neon::{F32x8 as Plain32, F64x4 as Plain64, I32x8 as PlainI32};
#[cfg(target_arch = "wasm32")]
pub(crate) use super::vector_wasm::{F32x4 as Plain32, F64x2 as Plain64};

/// The number of rows of a tile of plain vectors. In the browser, four rows of two vectors run at 42 GFLOP/s and five at 24: engines
/// then spill accumulators to memory. On aarch64, six rows fill the registers.
pub(crate) const PLAIN_ROWS: usize = if cfg!(target_arch = "aarch64") { 6 } else { 4 };
