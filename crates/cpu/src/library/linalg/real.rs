//! The element types of factorizations: f64, or f32 where the matrix is large enough that the speed of products matters.

use super::super::rearrange::tiles::Transpose;
use crate::gemm::vector::{Float, Plain32, Plain64, Vector};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

pub(super) trait Real:
    Float
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
{
    const ZERO: Self;
    const NAN: Self;
    const EPSILON: Self;
    /// The vector types of each instruction set.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Vector<Elem = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2: Vector<Elem = Self>;
    type Plain: Vector<Elem = Self>;
    /// The integer type that transposes move.
    type Bits: Transpose;

    fn of(x: f64) -> Self;
    fn wide(self) -> f64;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn hypot(self, other: Self) -> Self;
    /// Returns the Euclidean length of `(self, other)`: like [`Real::hypot`], but faster.
    fn length(self, other: Self) -> Self;
    fn is_finite(self) -> bool;
    fn greater(self, other: Self) -> Self;
}

macro_rules! real {
    ($t:ident, $avx512:ident, $avx2:ident, $plain:ty, $bits:ty) => {
        impl Real for $t {
            const ZERO: $t = 0.0;
            const NAN: $t = $t::NAN;
            const EPSILON: $t = $t::EPSILON;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = std::arch::x86_64::$avx512;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = std::arch::x86_64::$avx2;
            type Plain = $plain;
            type Bits = $bits;

            #[inline(always)]
            fn of(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> $t {
                $t::abs(self)
            }
            #[inline(always)]
            fn copysign(self, sign: $t) -> $t {
                $t::copysign(self, sign)
            }
            #[inline(always)]
            fn hypot(self, other: $t) -> $t {
                $t::hypot(self, other)
            }
            #[inline(always)]
            fn length(self, other: $t) -> $t {
                // Squares of f32 are always in range; most squares of f64 are.
                let square = self as f64 * self as f64 + other as f64 * other as f64;
                if (1e-290..1e290).contains(&square) { square.sqrt() as $t } else { $t::hypot(self, other) }
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn greater(self, other: $t) -> $t {
                self.max(other)
            }
        }
    };
}
real!(f32, __m512, __m256, Plain32, u32);
real!(f64, __m512d, __m256d, Plain64, u64);
