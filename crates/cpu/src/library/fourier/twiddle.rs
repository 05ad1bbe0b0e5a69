//! The elementwise steps before and after the transform of a long line. Vector code and scalar code give the same bits.

use super::batched::LineTransform;
use super::four_step::{Chirp, FourStepFft, Line};
use super::lanes::{FftFloat, FftVector};
use super::load_store::Planes;
use std::ops::{Add, Mul, Range, Sub};

/// A float type with arithmetic operators.
pub(super) trait Real: FftFloat + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {}
impl<T: FftFloat + Add<Output = T> + Sub<Output = T> + Mul<Output = T>> Real for T {}

/// Multiplies a part of a line by complex numbers, stored as real parts, then imaginary parts.
///
/// # Safety
/// All planes have these elements; both lines may be the same one.
#[inline(always)]
pub(super) unsafe fn complex_multiply<V: FftVector<Elem: Real>>(
    from: Planes<V::Elem>,
    to: Planes<V::Elem>,
    by: &[V::Elem],
    units: Range<usize>,
) {
    let (cos, sin) = by.split_at(by.len() / 2);
    let mut k = units.start;
    // SAFETY: all planes are valid for elements `units`, and `by` has a real and an imaginary part for each.
    unsafe {
        while k + V::LANES <= units.end {
            let (re, im) = (V::load(from.re.at(k)), V::load(from.im.at(k)));
            let (c, s) = (V::load(cos.as_ptr().add(k)), V::load(sin.as_ptr().add(k)));
            re.mul(c).sub(im.mul(s)).store(to.re.at(k));
            re.mul(s).add(im.mul(c)).store(to.im.at(k));
            k += V::LANES;
        }
        for k in k..units.end {
            let (re, im, c, s) = (*from.re.at(k), *from.im.at(k), cos[k], sin[k]);
            *to.re.at(k) = re * c - im * s;
            *to.im.at(k) = re * s + im * c;
        }
    }
}

/// Multiplies a part of a real line by complex numbers.
///
/// # Safety
/// As for [`turned`].
#[inline(always)]
pub(super) unsafe fn complex_multiply_real<T: Real>(from: *const T, to: Planes<T>, by: &[T], units: Range<usize>) {
    let (cos, sin) = by.split_at(by.len() / 2);
    // SAFETY: `from` and both planes of `to` are valid for elements `units`.
    unsafe {
        for k in units {
            let x = *from.add(k);
            *to.re.at(k) = x * cos[k];
            *to.im.at(k) = x * sin[k];
        }
    }
}

impl<T: Real> FourStepFft<T> {
    /// Reads even elements of a real line as real parts and odd ones as imaginary parts.
    ///
    /// # Safety
    /// The real line is valid for two elements per unit, the working planes for one, and `units` ends at the length of
    /// the line.
    #[inline(always)]
    pub(super) unsafe fn untangle_real(&self, line: Line<T>, units: Range<usize>) {
        let units = units.start..units.end.min(self.length());
        // SAFETY: the real line is valid for two elements per unit, the working planes for one, and `units` ends at the
        // length of the line.
        unsafe {
            let pairs = std::slice::from_raw_parts(line.from.re.at(2 * units.start).cast::<[T; 2]>(), units.len());
            let re = std::slice::from_raw_parts_mut(line.work.re.at(units.start), units.len());
            let im = std::slice::from_raw_parts_mut(line.work.im.at(units.start), units.len());
            for ((&[a, b], re), im) in pairs.iter().zip(re).zip(im) {
                (*re, *im) = (a, b);
            }
        }
    }

    /// # Safety
    /// The result is valid for two elements per unit, the working planes for one, and `units` ends at the length of the
    /// line.
    ///
    /// # Safety
    /// `units` is inside of the half spectrum, for which working planes, results and roots are valid.
    #[inline(always)]
    pub(super) unsafe fn interleave(&self, line: Line<T>, units: Range<usize>) {
        let units = units.start..units.end.min(self.length());
        // SAFETY: the result is valid for two elements per unit, the working planes for one, and `units` ends at the
        // length of the line. Both parts are exchanged.
        unsafe {
            let pairs = std::slice::from_raw_parts_mut(line.to.re.at(2 * units.start).cast::<[T; 2]>(), units.len());
            let re = std::slice::from_raw_parts(line.work.im.at(units.start), units.len());
            let im = std::slice::from_raw_parts(line.work.re.at(units.start), units.len());
            for ((pair, &re), &im) in pairs.iter_mut().zip(re).zip(im) {
                *pair = [re, im];
            }
        }
    }

    /// Computes the spectrum of a real line from its half-length transform,
    /// with vectors and a scalar remainder that give the same bits.
    #[inline(always)]
    pub(super) unsafe fn split_spectrum<V: FftVector<Elem = T>>(&self, line: Line<T>, units: Range<usize>) {
        let h = self.length();
        let (re, im) = (line.work.re.at(0), line.work.im.at(0));
        let (to_re, to_im) = (line.to.re.at(0), line.to.im.at(0));
        let (cos, sin) = (self.roots.as_ptr(), self.roots.as_ptr().wrapping_add(h + 1));
        // SAFETY: `units` is inside of the half spectrum, for which working planes, results and roots are valid; an
        // index beyond the end is replaced by 0.
        unsafe {
            let one = |k: usize, a: usize, b: usize| {
                let ((ar, ai), (br, bi)) = ((*re.add(a), *im.add(a)), (*re.add(b), *im.add(b)));
                let (even_re, even_im) = ((ar + br) * T::from_f64(0.5), (ai - bi) * T::from_f64(0.5));
                // (a - b*) / 2i, times a root of unity; the roots include the factor 1/2.
                let (odd_re, odd_im) = (ai + bi, br - ar);
                *to_re.add(k) = even_re + (odd_re * *cos.add(k) - odd_im * *sin.add(k));
                *to_im.add(k) = even_im + (odd_re * *sin.add(k) + odd_im * *cos.add(k));
            };
            for k in units.clone().filter(|&k| k == 0 || k == h) {
                one(k, 0, 0);
            }
            let (mut k, end) = (units.start.max(1), units.end.min(h));
            let half = V::splat(T::from_f64(0.5));
            while k + V::LANES <= end {
                let mirror = h - k + 1 - V::LANES;
                let (ar, ai) = (V::load(re.add(k)), V::load(im.add(k)));
                let (br, bi) = (V::load(re.add(mirror)).reversed(V::LANES), V::load(im.add(mirror)).reversed(V::LANES));
                let (even_re, even_im) = (ar.add(br).mul(half), ai.sub(bi).mul(half));
                let (odd_re, odd_im) = (ai.add(bi), br.sub(ar));
                let (c, s) = (V::load(cos.add(k)), V::load(sin.add(k)));
                even_re.add(odd_re.mul(c).sub(odd_im.mul(s))).store(to_re.add(k));
                even_im.add(odd_re.mul(s).add(odd_im.mul(c))).store(to_im.add(k));
                k += V::LANES;
            }
            (k..end).for_each(|k| one(k, k, h - k));
        }
    }

    /// Computes the half-length transform of a real line from its spectrum, with real and imaginary parts swapped.
    ///
    /// # Safety
    /// `units` is inside of the half spectrum, for which operand, working planes and roots are valid.
    #[inline(always)]
    pub(super) unsafe fn join_spectrum<V: FftVector<Elem = T>>(&self, line: Line<T>, units: Range<usize>) {
        let h = self.length();
        let (re, im) = (line.from.re.at(0), line.from.im.at(0));
        let (to_re, to_im) = (line.work.re.at(0), line.work.im.at(0));
        let (cos, sin) = (self.roots.as_ptr(), self.roots.as_ptr().wrapping_add(h + 1));
        let zero = T::default();
        // SAFETY: `units` is inside of the half spectrum, for which operand, working planes and roots are valid.
        unsafe {
            let one = |k: usize, (ar, ai): (T, T), (br, bi): (T, T)| {
                let (even_re, even_im) = ((ar + br) * T::from_f64(0.5), (ai - bi) * T::from_f64(0.5));
                let (odd_re, odd_im) = (ar - br, ai + bi);
                // Multiply by the conjugate root.
                let (c, s) = (*cos.add(k), *sin.add(k));
                *to_re.add(k) = even_im + (odd_re * c + odd_im * s);
                *to_im.add(k) = even_re - (odd_im * c - odd_re * s);
            };
            if units.start == 0 {
                // Imaginary parts that the spectrum of a real signal cannot have are ignored.
                one(0, (*re, zero), (*re.add(h), zero));
            }
            let (mut k, end) = (units.start.max(1), units.end.min(h));
            let half = V::splat(T::from_f64(0.5));
            while k + V::LANES <= end {
                let mirror = h - k + 1 - V::LANES;
                let (ar, ai) = (V::load(re.add(k)), V::load(im.add(k)));
                let (br, bi) = (V::load(re.add(mirror)).reversed(V::LANES), V::load(im.add(mirror)).reversed(V::LANES));
                let (even_re, even_im) = (ar.add(br).mul(half), ai.sub(bi).mul(half));
                let (odd_re, odd_im) = (ar.sub(br), ai.add(bi));
                let (c, s) = (V::load(cos.add(k)), V::load(sin.add(k)));
                even_im.add(odd_re.mul(c).add(odd_im.mul(s))).store(to_re.add(k));
                even_re.sub(odd_im.mul(c).sub(odd_re.mul(s))).store(to_im.add(k));
                k += V::LANES;
            }
            for k in k..end {
                one(k, (*re.add(k), *im.add(k)), (*re.add(h - k), *im.add(h - k)));
            }
        }
    }

    /// Multiplies by the chirp and pads with zeros up to the length of the convolution.
    ///
    /// # Safety
    /// `from` is valid for the line, and the working planes for the points of the convolution.
    ///
    /// # Safety
    /// The working planes are valid for the convolution, and `to` for the units that the result has.
    #[inline(always)]
    pub(super) unsafe fn apply_chirp<V: FftVector<Elem = T>>(
        &self,
        from: Planes<T>,
        units: Range<usize>,
        line: Line<T>,
    ) {
        let Some(Chirp { chirp, .. }) = &self.chirp else { return };
        let (start, n) = (units.start.min(self.length()), self.length());
        let own = start..units.end.min(n);
        // SAFETY: `own` is inside of the line, and the working planes are valid for the points of the convolution.
        unsafe {
            match self.kind == LineTransform::Real && self.roots.is_empty() {
                true => complex_multiply_real(from.re.at(0), line.work, chirp, own),
                false => complex_multiply::<V>(from, line.work, chirp, own),
            }
            for k in units.start.max(n)..units.end {
                (*line.work.re.at(k), *line.work.im.at(k)) = (T::default(), T::default());
            }
        }
    }

    /// Multiplies by the chirp and writes the results: all of them, or as many as a real line or half its spectrum has.
    ///
    /// # Safety
    /// The operand is valid for half of the spectrum and one more, and the working planes for the whole spectrum.
    #[inline(always)]
    pub(super) unsafe fn remove_chirp<V: FftVector<Elem = T>>(
        &self,
        to: Planes<T>,
        units: Range<usize>,
        line: Line<T>,
    ) {
        let Some(Chirp { chirp, .. }) = &self.chirp else { return };
        let n = self.length();
        // SAFETY: `units` is cut to what the result has: the whole line, or half of the spectrum and one more.
        unsafe {
            if !self.roots.is_empty() || matches!(self.kind, LineTransform::Complex { .. }) {
                complex_multiply::<V>(line.work, to, chirp, units.start..units.end.min(n));
            } else if self.kind == LineTransform::Real {
                complex_multiply::<V>(line.work, to, chirp, units.start..units.end.min(n / 2 + 1));
                if units.start == 0 {
                    // The sum of real numbers is real.
                    *to.im.at(0) = T::default();
                }
            } else {
                // The real parts; real and imaginary parts are swapped.
                let (cos, sin) = chirp.split_at(n);
                for k in units.start..units.end.min(n) {
                    *line.to.re.at(k) = *line.work.re.at(k) * sin[k] + *line.work.im.at(k) * cos[k];
                }
            }
        }
    }

    /// Extends half a spectrum to the full spectrum.
    #[inline(always)]
    pub(super) unsafe fn hermitian_extend(&self, line: Line<T>, units: Range<usize>) {
        let n = self.length();
        // SAFETY: `units` is cut to half of the spectrum and one more, for which the operand is valid; the working
        // planes are valid for all `n`.
        unsafe {
            for k in units.start..units.end.min(n / 2 + 1) {
                // Imaginary parts that the spectrum of a real signal cannot have are ignored.
                let (re, im) = (*line.from.re.at(k), if k == 0 { T::default() } else { *line.from.im.at(k) });
                (*line.work.re.at(k), *line.work.im.at(k)) = (re, im);
                if k > 0 {
                    (*line.work.re.at(n - k), *line.work.im.at(n - k)) = (re, T::default() - im);
                }
            }
        }
    }
}
