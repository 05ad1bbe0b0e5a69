//! Vectors with a line in each lane, and complex numbers of them, as Fourier transforms take them.
//!
//! What is here ends up inside functions that have the target features: so it is all `#[inline(always)]`, and has no closures over
//! vectors, which would be functions without them.

use super::load_store::{self, Place};
use super::real_lines::{RealBuffers, RealPlan};
use super::stockham::StockhamPlan;
use crate::gemm::vector::{Float, Vector};
use crate::library::rearrange::tiles;
use std::f64::consts::TAU;

/// A float whose vectors are transformed.
pub(super) trait FftFloat: Float {
    /// Bits that are moved.
    type Bits: tiles::Transpose;
}

impl FftFloat for f32 {
    type Bits = u32;
}

impl FftFloat for f64 {
    type Bits = u64;
}

/// A vector with a line in each lane. That the machine has the instruction set is the safety condition of all methods.
pub(super) trait FftVector: Vector<Elem: FftFloat> {
    /// Whether there are 32 registers.
    const MANY: bool;
    unsafe fn sub(self, b: Self) -> Self;
    /// `c - self·b`
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// The first `n` lanes, the last of them first.
    unsafe fn reversed(self, n: usize) -> Self;
    /// The lanes of `source` that `at` names, where the mask has a bit; others are kept.
    unsafe fn picked(self, mask: u16, at: *const u32, source: Self) -> Self;
    /// Transposes as many rows and columns as there are lanes.
    unsafe fn turn(rows: *const Self::Elem, line: usize, to: *mut Self::Elem, step: usize);
    /// The same of fewer rows or columns, if there are instructions for it.
    unsafe fn turn_edge(
        rows: *const Self::Elem,
        line: usize,
        to: *mut Self::Elem,
        step: usize,
        size: (usize, usize),
    ) -> bool;
    /// [`super::load_store::read`] and [`super::moves::write`], once for all who call it, as what follows.
    unsafe fn read(from: *const Self::Elem, place: Place, n: usize, to: *mut Self::Elem, step: usize);
    unsafe fn write(from: *const Self::Elem, step: usize, to: *mut Self::Elem, place: Place, n: usize);
    /// [`Plan::passes`].
    unsafe fn transform(plan: &StockhamPlan<Self::Elem>, way: TransformBuffers<Self::Elem>);
    /// [`RealPlan::forward`], and [`RealPlan::back`].
    unsafe fn real(plan: &RealPlan<Self::Elem>, way: RealBuffers<Self::Elem>);
}

mod x86 {
    use super::super::transpose::{edge_of_eight, edge_of_sixteen, eight, no_edge, sixteen, tile};
    use super::{FftVector, Place, RealBuffers, RealPlan, StockhamPlan, TransformBuffers, load_store};
    use std::arch::x86_64::*;

    macro_rules! lane {
        ($v:ty, $t:ty, $many:literal, $features:literal, $sub:ident, $fnma:ident, |$x:ident, $n:ident| $reversed:expr,
            |$old:ident, $mask:ident, $at:ident, $source:ident| $picked:expr, $turn:path, $edge:path) => {
            impl FftVector for $v {
                const MANY: bool = $many;
                #[inline(always)]
                unsafe fn sub(self, b: Self) -> Self {
                    // SAFETY: the caller vouches for the instructions, here and below.
                    unsafe { $sub(self, b) }
                }
                #[inline(always)]
                unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fnma(self, b, c) }
                }
                #[inline(always)]
                unsafe fn reversed(self, $n: usize) -> Self {
                    let $x = self;
                    // SAFETY: as above.
                    unsafe { $reversed }
                }
                #[inline(always)]
                unsafe fn picked(self, $mask: u16, $at: *const u32, $source: Self) -> Self {
                    let $old = self;
                    // SAFETY: the caller vouches for an index for each lane.
                    unsafe { $picked }
                }
                #[inline(always)]
                unsafe fn turn(rows: *const $t, line: usize, to: *mut $t, step: usize) {
                    // SAFETY: the caller vouches for both sides.
                    unsafe { $turn(rows, line, to, step) }
                }
                #[inline(always)]
                unsafe fn turn_edge(
                    rows: *const $t,
                    line: usize,
                    to: *mut $t,
                    step: usize,
                    size: (usize, usize),
                ) -> bool {
                    // SAFETY: the caller vouches for both sides.
                    unsafe { $edge(rows, line, to, step, size) }
                }
                #[inline]
                unsafe fn read(from: *const $t, place: Place, n: usize, to: *mut $t, step: usize) {
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(from: *const $t, place: Place, n: usize, to: *mut $t, step: usize) {
                        // SAFETY: the caller's promise.
                        unsafe { load_store::read::<$v>(from, place, n, to, step) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(from, place, n, to, step) }
                }
                #[inline]
                unsafe fn write(from: *const $t, step: usize, to: *mut $t, place: Place, n: usize) {
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(from: *const $t, step: usize, to: *mut $t, place: Place, n: usize) {
                        // SAFETY: the caller's promise.
                        unsafe { load_store::write::<$v>(from, step, to, place, n) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(from, step, to, place, n) }
                }
                #[inline]
                unsafe fn transform(plan: &StockhamPlan<$t>, way: TransformBuffers<$t>) {
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(plan: &StockhamPlan<$t>, way: TransformBuffers<$t>) {
                        // SAFETY: the caller's promise.
                        unsafe { plan.passes::<$v>(way) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(plan, way) }
                }
                #[inline]
                unsafe fn real(plan: &RealPlan<$t>, way: RealBuffers<$t>) {
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(plan: &RealPlan<$t>, way: RealBuffers<$t>) {
                        // SAFETY: the caller's promise.
                        unsafe { plan.run::<$v>(way) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(plan, way) }
                }
            }
        };
    }
    // Indices count only as far as there are lanes.
    lane!(
        __m512,
        f32,
        true,
        "avx512f,avx512vl,avx512dq,avx512bw,fma",
        _mm512_sub_ps,
        _mm512_fnmadd_ps,
        |x, n| {
            let own = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_permutexvar_ps(_mm512_sub_epi32(_mm512_set1_epi32(n as i32 - 1), own), x)
        },
        |old, mask, at, x| _mm512_mask_permutexvar_ps(old, mask, _mm512_loadu_si512(at.cast()), x),
        sixteen,
        edge_of_sixteen
    );
    lane!(
        __m512d,
        f64,
        true,
        "avx512f,avx512vl,avx512dq,avx512bw,fma",
        _mm512_sub_pd,
        _mm512_fnmadd_pd,
        |x, n| {
            let own = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
            _mm512_permutexvar_pd(_mm512_sub_epi64(_mm512_set1_epi64(n as i64 - 1), own), x)
        },
        |old, mask, at, x| {
            _mm512_mask_permutexvar_pd(old, mask as u8, _mm512_cvtepu32_epi64(_mm256_loadu_si256(at.cast())), x)
        },
        eight,
        edge_of_eight
    );
    lane!(
        __m256,
        f32,
        false,
        "avx2,fma",
        _mm256_sub_ps,
        _mm256_fnmadd_ps,
        |x, n| {
            let own = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_permutevar8x32_ps(x, _mm256_sub_epi32(_mm256_set1_epi32(n as i32 - 1), own))
        },
        |old, mask, at, x| {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let mask = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask as i32), bits), bits);
            let x = _mm256_permutevar8x32_ps(x, _mm256_loadu_si256(at.cast()));
            _mm256_blendv_ps(old, x, _mm256_castsi256_ps(mask))
        },
        tile,
        no_edge
    );
    lane!(
        __m256d,
        f64,
        false,
        "avx2,fma",
        _mm256_sub_pd,
        _mm256_fnmadd_pd,
        |x, n| {
            // Both halves of a lane.
            let own = _mm256_setr_epi32(0, -1, 2, 1, 4, 3, 6, 5);
            let at = _mm256_sub_epi32(_mm256_set1_epi32(2 * n as i32 - 2), own);
            _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(x), at))
        },
        |old, mask, at, x| {
            let bits = _mm256_setr_epi64x(1, 2, 4, 8);
            let mask = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(mask as i64), bits), bits);
            let low = _mm256_slli_epi64::<1>(_mm256_cvtepu32_epi64(_mm_loadu_si128(at.cast())));
            let both = _mm256_or_si256(low, _mm256_slli_epi64::<32>(_mm256_or_si256(low, _mm256_set1_epi64x(1))));
            let x = _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(x), both));
            _mm256_blendv_pd(old, x, _mm256_castsi256_pd(mask))
        },
        tile,
        no_edge
    );
}

/// Where lines are: for each element a vector of real parts and one of imaginary parts, `step` from one element to the next.
#[derive(Clone, Copy)]
pub(super) struct LinePointers<T> {
    pub(super) re: *mut T,
    pub(super) im: *mut T,
    pub(super) step: usize,
}

impl<T: FftFloat> LinePointers<T> {
    /// A buffer: both parts of an element, then those of the next.
    #[inline(always)]
    pub(super) fn buffer<V: FftVector<Elem = T>>(x: *mut T) -> LinePointers<T> {
        LinePointers { re: x, im: x.wrapping_add(V::LANES), step: 2 * V::LANES }
    }

    /// Every `r`-th element, from the `k`-th one on.
    #[inline(always)]
    pub(super) fn every_nth(self, k: usize, r: usize) -> LinePointers<T> {
        let at = k * self.step;
        LinePointers { re: self.re.wrapping_add(at), im: self.im.wrapping_add(at), step: r * self.step }
    }

    /// Real parts as imaginary ones, and these as real ones, if so.
    #[inline(always)]
    pub(super) fn exchanged(self, so: bool) -> LinePointers<T> {
        if so { LinePointers { re: self.im, im: self.re, ..self } } else { self }
    }

    /// # Safety
    /// Element `k` is there.
    #[inline(always)]
    pub(super) unsafe fn get<V: FftVector<Elem = T>>(self, k: usize) -> Z<V> {
        // SAFETY: the caller's promise.
        unsafe { (V::load(self.re.add(k * self.step)), V::load(self.im.add(k * self.step))) }
    }

    /// # Safety
    /// Element `k` is there.
    #[inline(always)]
    pub(super) unsafe fn put<V: FftVector<Elem = T>>(self, k: usize, z: Z<V>) {
        // SAFETY: the caller's promise.
        unsafe {
            z.0.store(self.re.add(k * self.step));
            z.1.store(self.im.add(k * self.step));
        }
    }
}

/// Goes from element to element. The distance is one that the compiler can't know: it would compute the places of all elements before a loop, and keep
/// them in memory, from where each would be read again.
#[derive(Clone, Copy)]
pub(super) struct StridedWalk<T> {
    at: *mut T,
    imaginary: isize,
    step: usize,
}

impl<T: FftFloat> StridedWalk<T> {
    /// From element `k` on in steps of so many elements.
    ///
    /// # Safety
    /// `seats` is that of the elements.
    #[inline(always)]
    pub(super) unsafe fn new(seats: &LinePointers<T>, k: usize, every: usize) -> StridedWalk<T> {
        // SAFETY: a reference is good to read.
        let step = unsafe { std::ptr::read_volatile(&raw const seats.step) };
        let imaginary = (seats.im as isize - seats.re as isize) / size_of::<T>() as isize;
        StridedWalk { at: seats.re.wrapping_add(k * step), imaginary, step: every * step }
    }

    /// # Safety
    /// The element is there.
    #[inline(always)]
    pub(super) unsafe fn get<V: FftVector<Elem = T>>(&mut self) -> Z<V> {
        // SAFETY: the caller's promise.
        let z = unsafe { (V::load(self.at), V::load(self.at.wrapping_offset(self.imaginary))) };
        self.at = self.at.wrapping_add(self.step);
        z
    }

    /// # Safety
    /// The element is there.
    #[inline(always)]
    pub(super) unsafe fn put<V: FftVector<Elem = T>>(&mut self, z: Z<V>) {
        // SAFETY: the caller's promise.
        unsafe {
            z.0.store(self.at);
            z.1.store(self.at.wrapping_offset(self.imaginary));
        }
        self.at = self.at.wrapping_add(self.step);
    }
}

/// What the last pass multiplies its results by.
#[derive(Clone, Copy)]
pub(super) enum FinalScale<T> {
    Factor(T),
    /// A complex vector for each element, as in a buffer.
    Twiddles(*const T),
    /// A complex number for each element.
    Roots(*const T),
}

impl<T: FftFloat> FinalScale<T> {
    /// Element `k` of the result.
    ///
    /// # Safety
    /// There is a multiplier of it.
    #[inline(always)]
    pub(super) unsafe fn of<V: FftVector<Elem = T>>(self, k: usize, z: Z<V>) -> Z<V> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                FinalScale::Factor(f) => scaled(z, V::splat(f)),
                FinalScale::Twiddles(turns) => times(z, LinePointers::buffer::<V>(turns.cast_mut()).get(k)),
                FinalScale::Roots(roots) => times(z, number(roots.add(2 * k))),
            }
        }
    }
}

/// A complex number in all lanes.
///
/// # Safety
/// Both parts are at `at`.
#[inline(always)]
pub(super) unsafe fn number<V: FftVector>(at: *const V::Elem) -> Z<V> {
    // SAFETY: the caller's promise.
    unsafe { (V::splat(*at), V::splat(*at.add(1))) }
}

/// Where a transform reads and writes, which may be the same place; two buffers for what is between, one of which may be what is read;
/// and one for [`Plan::scratch`] elements.
#[derive(Clone, Copy)]
pub(super) struct TransformBuffers<T> {
    pub(super) from: LinePointers<T>,
    pub(super) to: LinePointers<T>,
    pub(super) x: *mut T,
    pub(super) y: *mut T,
    pub(super) z: *mut T,
    pub(super) finish: FinalScale<T>,
}

/// Real and imaginary parts.
pub(super) type Z<V> = (V, V);

#[inline(always)]
pub(super) unsafe fn plus<V: FftVector>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: instructions only, here and below.
    unsafe { (a.0.add(b.0), a.1.add(b.1)) }
}

#[inline(always)]
pub(super) unsafe fn minus<V: FftVector>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.0.sub(b.0), a.1.sub(b.1)) }
}

/// `a + -i·d` and `a - -i·d`.
#[inline(always)]
pub(super) unsafe fn quarter<V: FftVector>(a: Z<V>, d: Z<V>) -> [Z<V>; 2] {
    // SAFETY: as above.
    unsafe { [(a.0.add(d.1), a.1.sub(d.0)), (a.0.sub(d.1), a.1.add(d.0))] }
}

/// `a·w`.
#[inline(always)]
pub(super) unsafe fn times<V: FftVector>(a: Z<V>, w: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.1.neg_mul_add(w.1, a.0.mul(w.0)), a.0.mul_add(w.1, a.1.mul(w.0))) }
}

#[inline(always)]
pub(super) unsafe fn scaled<V: FftVector>(z: Z<V>, f: V) -> Z<V> {
    // SAFETY: as above.
    unsafe { (z.0.mul(f), z.1.mul(f)) }
}

/// `f·z + c`.
#[inline(always)]
pub(super) unsafe fn and<V: FftVector>(z: Z<V>, f: V, c: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (z.0.mul_add(f, c.0), z.1.mul_add(f, c.1)) }
}

#[inline(always)]
pub(super) unsafe fn conj<V: FftVector>(z: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (z.0, V::splat(V::Elem::default()).sub(z.1)) }
}

/// `e^(-2πi k/n)`, quarters of a turn exactly.
pub(super) fn root(k: usize, n: usize) -> (f64, f64) {
    match (4 * k).is_multiple_of(n) {
        true => [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)][4 * k / n % 4],
        false => {
            let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
            (cos, sin)
        }
    }
}
