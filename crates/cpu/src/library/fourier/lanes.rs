//! Vectors with one line per lane, and complex numbers of such vectors, for Fourier transforms.
//!
//! Everything here must be inlined into functions with the target features, so it is all `#[inline(always)]` and has no closures
//! over vectors, which would be compiled without the features.

use super::load_store::{self, Place};
use super::real_lines::{RealBuffers, RealPlan};
use super::stockham::StockhamPlan;
use crate::gemm::vector::{Float, Vector};
use crate::library::rearrange::tiles;
use std::f64::consts::TAU;

/// A float type that can be transformed.
pub(super) trait FftFloat: Float {
    /// The integer type that transposes move.
    type Bits: tiles::Transpose;
}

impl FftFloat for f32 {
    type Bits = u32;
}

impl FftFloat for f64 {
    type Bits = u64;
}

/// A vector with one line per lane. All methods require that the machine has the instruction set.
pub(super) trait FftVector: Vector<Elem: FftFloat> {
    /// Whether there are 32 vector registers.
    const MANY: bool;
    unsafe fn sub(self, b: Self) -> Self;
    /// Returns `c - self·b`.
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// Returns the first `n` lanes in reverse order.
    unsafe fn reversed(self, n: usize) -> Self;
    /// Replaces the lanes in `mask` by the lanes of `source` with the indices `at`.
    unsafe fn picked(self, mask: u16, at: *const u32, source: Self) -> Self;
    /// Transposes a square tile with as many rows and columns as lanes.
    unsafe fn turn(rows: *const Self::Elem, line: usize, to: *mut Self::Elem, step: usize);
    /// Transposes a tile with fewer rows or columns, if there are instructions for it.
    unsafe fn turn_edge(
        rows: *const Self::Elem,
        line: usize,
        to: *mut Self::Elem,
        step: usize,
        size: (usize, usize),
    ) -> bool;
    /// [`super::load_store::read`] and [`super::load_store::write`],
    /// compiled once per vector type for all callers; so are the following.
    unsafe fn read(from: *const Self::Elem, place: Place, n: usize, to: *mut Self::Elem, step: usize);
    unsafe fn write(from: *const Self::Elem, step: usize, to: *mut Self::Elem, place: Place, n: usize);
    /// [`StockhamPlan::passes`].
    unsafe fn transform(plan: &StockhamPlan<Self::Elem>, way: TransformBuffers<Self::Elem>);
    /// [`RealPlan::forward`] and [`RealPlan::back`].
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
                    // SAFETY: the machine has the instructions.
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
                    // SAFETY: there is an index for each lane.
                    unsafe { $picked }
                }
                #[inline(always)]
                unsafe fn turn(rows: *const $t, line: usize, to: *mut $t, step: usize) {
                    // SAFETY: both sides are valid for a square of vectors.
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
                    // SAFETY: both sides are valid for a square of vectors.
                    unsafe { $edge(rows, line, to, step, size) }
                }
                #[inline]
                unsafe fn read(from: *const $t, place: Place, n: usize, to: *mut $t, step: usize) {
                    /// # Safety
                    /// As for `read`, and the machine has the target features.
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(from: *const $t, place: Place, n: usize, to: *mut $t, step: usize) {
                        // SAFETY: `read` has the contract of this function, and gets its arguments unchanged.
                        unsafe { load_store::read::<$v>(from, place, n, to, step) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(from, place, n, to, step) }
                }
                #[inline]
                unsafe fn write(from: *const $t, step: usize, to: *mut $t, place: Place, n: usize) {
                    /// # Safety
                    /// As for `write`, and the machine has the target features.
                    /// # Safety
                    /// As for `passes`, and the machine has the target features.
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(from: *const $t, step: usize, to: *mut $t, place: Place, n: usize) {
                        // SAFETY: `write` has the contract of this function, and gets its arguments unchanged.
                        unsafe { load_store::write::<$v>(from, step, to, place, n) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(from, step, to, place, n) }
                }
                #[inline]
                unsafe fn transform(plan: &StockhamPlan<$t>, way: TransformBuffers<$t>) {
                    /// # Safety
                    /// As for `run`, and the machine has the target features.
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(plan: &StockhamPlan<$t>, way: TransformBuffers<$t>) {
                        // SAFETY: `passes` has the contract of this function, and gets its arguments unchanged.
                        unsafe { plan.passes::<$v>(way) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(plan, way) }
                }
                #[inline]
                unsafe fn real(plan: &RealPlan<$t>, way: RealBuffers<$t>) {
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(plan: &RealPlan<$t>, way: RealBuffers<$t>) {
                        // SAFETY: `run` has the contract of this function, and gets its arguments unchanged.
                        unsafe { plan.run::<$v>(way) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(plan, way) }
                }
            }
        };
    }
    // Indices beyond the number of lanes are ignored.
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
            // Both 32-bit halves of each 64-bit lane.
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

/// The location of lines: for each element a vector of real parts and a vector of imaginary parts.
/// `step` is the distance between elements.
#[derive(Clone, Copy)]
pub(super) struct LinePointers<T> {
    pub(super) re: *mut T,
    pub(super) im: *mut T,
    pub(super) step: usize,
}

impl<T: FftFloat> LinePointers<T> {
    /// Returns the location of lines in a buffer: both parts of an element, then those of the next.
    #[inline(always)]
    pub(super) fn buffer<V: FftVector<Elem = T>>(x: *mut T) -> LinePointers<T> {
        LinePointers { re: x, im: x.wrapping_add(V::LANES), step: 2 * V::LANES }
    }

    /// Returns the location of every `r`-th element, from the `k`-th one on.
    #[inline(always)]
    pub(super) fn every_nth(self, k: usize, r: usize) -> LinePointers<T> {
        let at = k * self.step;
        LinePointers { re: self.re.wrapping_add(at), im: self.im.wrapping_add(at), step: r * self.step }
    }

    /// Swaps real and imaginary parts if `so`.
    #[inline(always)]
    pub(super) fn exchanged(self, so: bool) -> LinePointers<T> {
        if so { LinePointers { re: self.im, im: self.re, ..self } } else { self }
    }

    /// # Safety
    /// Element `k` is inside of both planes, and the machine has the vectors.
    #[inline(always)]
    pub(super) unsafe fn get<V: FftVector<Elem = T>>(self, k: usize) -> Z<V> {
        // SAFETY: element `k` is inside of both planes.
        unsafe { (V::load(self.re.add(k * self.step)), V::load(self.im.add(k * self.step))) }
    }

    /// # Safety
    /// Element `k` is inside of both planes, and the machine has the vectors.
    #[inline(always)]
    pub(super) unsafe fn put<V: FftVector<Elem = T>>(self, k: usize, z: Z<V>) {
        // SAFETY: element `k` is inside of both planes.
        unsafe {
            z.0.store(self.re.add(k * self.step));
            z.1.store(self.im.add(k * self.step));
        }
    }
}

/// Iterates over elements. The stride is read through a volatile load, so that the compiler cannot compute the addresses of all
/// elements before a loop and spill them to memory.
#[derive(Clone, Copy)]
pub(super) struct StridedWalk<T> {
    at: *mut T,
    imaginary: isize,
    step: usize,
}

impl<T: FftFloat> StridedWalk<T> {
    /// Starts at element `k` with a step of `every` elements.
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
    /// The address and that of the imaginary part are valid for a vector, and the machine has the vectors.
    #[inline(always)]
    pub(super) unsafe fn get<V: FftVector<Elem = T>>(&mut self) -> Z<V> {
        // SAFETY: `at` and the imaginary part beside it are valid for a vector.
        let z = unsafe { (V::load(self.at), V::load(self.at.wrapping_offset(self.imaginary))) };
        self.at = self.at.wrapping_add(self.step);
        z
    }

    /// # Safety
    /// The address and that of the imaginary part are valid for a vector, and the machine has the vectors.
    #[inline(always)]
    pub(super) unsafe fn put<V: FftVector<Elem = T>>(&mut self, z: Z<V>) {
        // SAFETY: `at` and the imaginary part beside it are valid for a vector.
        unsafe {
            z.0.store(self.at);
            z.1.store(self.at.wrapping_offset(self.imaginary));
        }
        self.at = self.at.wrapping_add(self.step);
    }
}

/// The factor of the last pass.
#[derive(Clone, Copy)]
pub(super) enum FinalScale<T> {
    Factor(T),
    /// A complex vector for each element, stored as in a buffer.
    Twiddles(*const T),
    /// A complex number for each element.
    Roots(*const T),
}

impl<T: FftFloat> FinalScale<T> {
    /// Multiplies element `k` of the result by its factor.
    ///
    /// # Safety
    /// The tables of multipliers have an entry for element `k`, and the machine has the vectors.
    #[inline(always)]
    pub(super) unsafe fn of<V: FftVector<Elem = T>>(self, k: usize, z: Z<V>) -> Z<V> {
        // SAFETY: the tables of multipliers have an entry for element `k`.
        unsafe {
            match self {
                FinalScale::Factor(f) => scaled(z, V::splat(f)),
                FinalScale::Twiddles(turns) => times(z, LinePointers::buffer::<V>(turns.cast_mut()).get(k)),
                FinalScale::Roots(roots) => times(z, number(roots.add(2 * k))),
            }
        }
    }
}

/// Returns a complex number broadcast to all lanes.
///
/// # Safety
/// `at` is valid for two elements, and the machine has the vectors.
#[inline(always)]
pub(super) unsafe fn number<V: FftVector>(at: *const V::Elem) -> Z<V> {
    // SAFETY: `at` is valid for two elements, the real and the imaginary part.
    unsafe { (V::splat(*at), V::splat(*at.add(1))) }
}

/// The buffers of a transform: input and output, which may be the same; two intermediate buffers, one of which may be the input;
/// and one buffer for [`StockhamPlan::scratch`] elements.
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

/// # Safety
/// The machine has the vectors.
///
/// # Safety
/// The machine has the vectors.
#[inline(always)]
pub(super) unsafe fn plus<V: FftVector>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: instructions only, here and below.
    unsafe { (a.0.add(b.0), a.1.add(b.1)) }
}

/// # Safety
/// The machine has the vectors.
///
/// # Safety
/// The machine has the vectors.
#[inline(always)]
pub(super) unsafe fn minus<V: FftVector>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.0.sub(b.0), a.1.sub(b.1)) }
}

/// Returns `a + -i·d` and `a - -i·d`.
///
/// # Safety
/// The machine has the vectors.
#[inline(always)]
pub(super) unsafe fn quarter<V: FftVector>(a: Z<V>, d: Z<V>) -> [Z<V>; 2] {
    // SAFETY: as above.
    unsafe { [(a.0.add(d.1), a.1.sub(d.0)), (a.0.sub(d.1), a.1.add(d.0))] }
}

/// Returns `a·w`.
#[inline(always)]
pub(super) unsafe fn times<V: FftVector>(a: Z<V>, w: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.1.neg_mul_add(w.1, a.0.mul(w.0)), a.0.mul_add(w.1, a.1.mul(w.0))) }
}

/// # Safety
/// The machine has the vectors.
#[inline(always)]
pub(super) unsafe fn scaled<V: FftVector>(z: Z<V>, f: V) -> Z<V> {
    // SAFETY: as above.
    unsafe { (z.0.mul(f), z.1.mul(f)) }
}

/// Returns `f·z + c`.
#[inline(always)]
pub(super) unsafe fn and<V: FftVector>(z: Z<V>, f: V, c: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (z.0.mul_add(f, c.0), z.1.mul_add(f, c.1)) }
}

/// # Safety
/// The machine has the vectors.
#[inline(always)]
pub(super) unsafe fn conj<V: FftVector>(z: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (z.0, V::splat(V::Elem::default()).sub(z.1)) }
}

/// Returns `e^(-2πi k/n)`; multiples of a quarter turn are exact.
pub(super) fn root(k: usize, n: usize) -> (f64, f64) {
    match (4 * k).is_multiple_of(n) {
        true => [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)][4 * k / n % 4],
        false => {
            let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
            (cos, sin)
        }
    }
}
