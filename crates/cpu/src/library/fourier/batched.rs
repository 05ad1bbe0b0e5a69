//! Fourier transforms of many lines, one line per SIMD lane, by Stockham's algorithm (`stockham.rs`).
//!
//! A bundle of lines is read into a buffer in which each element index has a vector of real parts and a vector of imaginary
//! parts; contiguous lines are transposed. Inverse transforms are forward transforms with real and imaginary parts swapped. A
//! real line of even length is transformed as a complex line of half the length (even elements as real parts, odd elements as
//! imaginary parts), and its spectrum is then separated with the roots of unity. Lanes are independent: a NaN in one line does
//! not affect the other lines.

use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, TransformBuffers, plus, root, times};
use super::load_store::{Place, Planes, Shuffle, TILE, read, write};
use super::real_lines::{RealBuffers, RealPlan, real_cost};
use super::stockham::{StockhamPlan, cost};
use crate::library::along::AxisLines;

/// The transform that a step applies to the lines of one axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTransform {
    Complex {
        inverse: bool,
    },
    /// A real line to half of its spectrum (`Real`), or the inverse (`InverseReal`).
    Real,
    InverseReal,
}

/// The assumed size of the L2 cache in bytes.
pub(super) const L2_BYTES: usize = 1 << 20;
/// The stride in bytes at which lines map to the same, or nearly the same, sets of the L1 cache.
const SAME_PLACE: usize = 2048;

/// Returns the factor by which passes over lines of length `n` are slower if both buffers do not fit in L2. `vector` is the
/// vector size in bytes.
pub(super) fn slower(n: usize, vector: usize) -> f64 {
    match 4 * n * vector {
        0..=L2_BYTES => 1.0,
        bytes if bytes < 2 * L2_BYTES => 1.4,
        _ => 2.5,
    }
}

/// The transform of one axis.
pub(super) struct AxisStep<T> {
    pub(super) kind: LineTransform,
    pub(super) outer: usize,
    pub(super) inner: usize,
    /// The number of elements of a line as it is read, as it is written, and of the real line.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) real: usize,
    pub(super) plan: StockhamPlan<T>,
    /// The roots of unity of the full length, for real lines of even length.
    roots: Vec<T>,
    /// The plan for real lines of odd length.
    pub(super) odd: Option<RealPlan<T>>,
    pub(super) factor: T,
    /// The number of lines of a bundle.
    pub(super) lanes: usize,
    /// The shuffles that read and write very short lines.
    shuffles: [Option<Shuffle>; 2],
    /// How several bundles are read and written together, if they are.
    pub(super) block: Option<Block>,
}

/// How several bundles are read and written together (`blocks.rs`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// There are fewer adjacent lines than lanes: lines of several outer indices are transposed into one vector.
    Turned,
    /// Several bundles of columns are read together, because each row is in another page. The number of bundles.
    Columns(usize),
}

impl<T: FftFloat> AxisStep<T> {
    pub(super) fn new(
        kind: LineTransform,
        lines: AxisLines,
        side: usize,
        real: usize,
        factor: f64,
        (lanes, threads): (usize, usize),
    ) -> AxisStep<T> {
        let halved = kind != LineTransform::Complex { inverse: false }
            && kind != LineTransform::Complex { inverse: true }
            && real.is_multiple_of(2);
        let n = match kind {
            LineTransform::Complex { .. } => side,
            _ if halved => real / 2,
            _ => real,
        };
        let complex = matches!(kind, LineTransform::Complex { .. });
        let odd = (!complex && !halved).then(|| RealPlan::new(n));
        let plan = StockhamPlan::new(if odd.is_some() { 1 } else { n });
        let roots = match halved {
            true => (0..=n).flat_map(|k| <[f64; 2]>::from(root(k, real))).map(T::from_f64).collect(),
            false => vec![],
        };
        let factor = if halved && kind == LineTransform::InverseReal { 2.0 * factor } else { factor };
        let factor = T::from_f64(factor);
        let (outer, inner) = (lines.outer, lines.inner);
        let source = if kind == LineTransform::Real { real } else { side };
        let target = if kind == LineTransform::InverseReal { real } else { side };
        let shuffle = |n: usize, back: bool| if inner == 1 { Shuffle::new(n, lanes, back) } else { None };
        let shuffles = [shuffle(source, false), shuffle(target, true)];
        AxisStep {
            kind,
            outer,
            inner,
            from: side,
            to: side,
            real,
            plan,
            roots,
            odd,
            factor,
            lanes,
            shuffles,
            block: None,
        }
        .blocked(threads)
    }

    /// Estimates the cycles for all lines.
    pub(super) fn cycles(kind: LineTransform, lines: AxisLines, real: usize, lanes: usize) -> f64 {
        let (n, each) = match kind {
            LineTransform::Complex { .. } => (real, cost(real) + 24.0),
            _ if real.is_multiple_of(2) => (real / 2, cost(real / 2) + 36.0),
            _ => (real, real_cost(real) + 18.0),
        };
        let mut slower = slower(n, lanes * size_of::<T>());
        // All lines of a bundle start in the same sets of the L1 cache.
        if lines.inner == 1 && (real * size_of::<T>()).is_multiple_of(SAME_PLACE) {
            slower *= 1.5;
        }
        let count = if lines.inner == 1 { lines.outer } else { lines.inner };
        let bundles = (count / lanes) as f64 + [0.0, 0.55, 1.0][(count % lanes * 2).div_ceil(lanes)];
        let times = if lines.inner == 1 { 1 } else { lines.outer };
        slower * each * bundles * (times * n) as f64
    }

    /// The number of elements of a buffer: the maximum of the lengths of a line, its spectrum, and a tile.
    pub(super) fn elements(&self) -> usize {
        let odd = self.odd.as_ref().map_or(0, |p| p.n);
        (self.plan.n.max(self.from).max(self.to).max(odd) + 1).max(TILE)
    }

    /// The number of scratch elements: both buffers, and the scratch of the plan.
    pub(super) fn scratch(&self) -> usize {
        self.block_elements()
            + 2 * self.elements()
            + self.plan.scratch.max(self.odd.as_ref().map_or(0, |p| p.scratch()))
    }

    /// The amount of work, in the unit that the thread pool uses.
    pub(super) fn work(&self) -> usize {
        let each = if matches!(self.kind, LineTransform::Complex { .. }) { 8 } else { 4 };
        self.outer * self.inner * self.real * each
    }

    pub(super) fn bundles(&self) -> usize {
        match (self.block, self.inner) {
            (Some(Block::Turned), _) | (_, 1) => self.outer.div_ceil(self.lanes),
            (Some(Block::Columns(many)), inner) => self.outer * inner.div_ceil(self.lanes * many),
            (None, inner) => self.outer * inner.div_ceil(self.lanes),
        }
    }

    /// Returns the location of a bundle's lines if a line has `n` elements.
    pub(super) fn place(&self, bundle: usize, n: usize) -> Place {
        let lanes = match self.block {
            Some(Block::Columns(many)) => many * self.lanes,
            _ => self.lanes,
        };
        if self.inner == 1 || self.block == Some(Block::Turned) {
            let (first, line) = (bundle * lanes, n * self.inner);
            return Place { at: first * line, line, element: 1, count: lanes.min(self.outer - first) };
        }
        let each = self.inner.div_ceil(lanes);
        let (outer, first) = (bundle / each, bundle % each * lanes);
        Place { at: outer * n * self.inner + first, line: 1, element: self.inner, count: lanes.min(self.inner - first) }
    }

    /// # Safety
    /// The planes are those of the step, `x` and `y` have room for [`Step::elements`], and nothing else accesses the
    /// bundle.
    #[inline(always)]
    pub(super) unsafe fn bundle<V: FftVector<Elem = T>>(
        &self,
        bundle: usize,
        from: Planes<T>,
        to: Planes<T>,
        x: *mut T,
    ) {
        if self.block.is_some() {
            // SAFETY: `run_block` has the contract of this function.
            return unsafe { self.run_block::<V>(bundle, from, to, x) };
        }
        let y = x.wrapping_add(self.elements() * 2 * V::LANES);
        let z = y.wrapping_add(self.elements() * 2 * V::LANES);
        let (source, target) = (self.place(bundle, self.source()), self.place(bundle, self.target()));
        let (own, home) = (LinePointers::buffer::<V>(x), LinePointers::buffer::<V>(self.plan.result_buffer(x, y)));
        let (finish, factor) = (FinalScale::Factor(self.factor), self.factor);
        let complex = matches!(self.kind, LineTransform::Complex { .. });
        // Data already stored as vectors is read and written in place.
        let direct = complex && source.line == 1 && source.count == V::LANES;
        // SAFETY: the planes are those of the step, the buffers have room for `Step::elements`, nothing else accesses
        // the bundle, and every place is inside of its plane or buffer.
        unsafe {
            // The moves are written out: a loop over both planes takes a sixth longer. A real line is a sequence of vectors: for
            // half-length transforms the even elements are real parts, the odd ones imaginary parts.
            match self.kind {
                LineTransform::Complex { .. } if !direct => {
                    self.read::<V>(from.re.at(source.at), source, x, 2 * V::LANES);
                    self.read::<V>(from.im.at(source.at), source, x.add(V::LANES), 2 * V::LANES);
                }
                LineTransform::Complex { .. } => {}
                LineTransform::Real => self.read::<V>(from.re.at(source.at), source, x, V::LANES),
                LineTransform::InverseReal => {
                    self.read::<V>(from.re.at(source.at), source, y, 2 * V::LANES);
                    self.read::<V>(from.im.at(source.at), source, y.add(V::LANES), 2 * V::LANES);
                }
            }
            let (last, parts) = match (self.kind, &self.odd) {
                (LineTransform::Complex { inverse }, _) => {
                    let (from, to) = if direct { (from.seats(source), to.seats(target)) } else { (own, home) };
                    let (from, to) = (from.exchanged(inverse), to.exchanged(inverse));
                    V::transform(&self.plan, TransformBuffers { from, to, x, y, z, finish });
                    (home.re, if direct { 0 } else { 2 })
                }
                (LineTransform::Real, Some(plan)) => {
                    let spectrum = LinePointers::buffer::<V>(y);
                    V::real(plan, RealBuffers { back: false, real: x, step: V::LANES, spectrum, factor, z });
                    (y, 2)
                }
                (LineTransform::Real, None) => {
                    V::transform(&self.plan, TransformBuffers { from: own, to: home, x, y, z, finish });
                    // The other buffer.
                    let other = LinePointers::buffer::<V>(self.plan.result_buffer(y, x));
                    self.untangle::<V>(home, other);
                    (other.re, 2)
                }
                (LineTransform::InverseReal, odd) => {
                    // Imaginary parts that the spectrum of a real signal cannot have are ignored.
                    let (spectrum, zero) = (LinePointers::buffer::<V>(y), V::splat(T::default()));
                    zero.store(spectrum.im);
                    if let Some(plan) = odd {
                        V::real(plan, RealBuffers { back: true, real: x, step: V::LANES, spectrum, factor, z });
                        (x, 1)
                    } else {
                        zero.store(spectrum.im.add((self.from - 1) * spectrum.step));
                        self.merge_spectrum::<V>(spectrum, own);
                        V::transform(
                            &self.plan,
                            TransformBuffers { from: own, to: home.exchanged(true), x, y, z, finish },
                        );
                        (home.re, 1)
                    }
                }
            };
            match parts {
                0 => {}
                1 => self.write::<V>(last, V::LANES, to.re.at(target.at), target),
                _ => {
                    self.write::<V>(last, 2 * V::LANES, to.re.at(target.at), target);
                    self.write::<V>(last.add(V::LANES), 2 * V::LANES, to.im.at(target.at), target);
                }
            }
        }
    }

    /// Reads a bundle's lines into vectors.
    ///
    /// # Safety
    /// `from` is valid for the lines at `place`, and `to` has room for a vector of each element, `step` apart.
    ///
    /// # Safety
    /// The operand is valid for `h` elements, and `to` for `h + 1`.
    #[inline(always)]
    unsafe fn read<V: FftVector<Elem = T>>(&self, from: *const T, place: Place, to: *mut T, step: usize) {
        // SAFETY: `from` is valid for the lines at `place`, and `to` has room for a vector of each element, `step`
        // apart.
        unsafe {
            match &self.shuffles[0] {
                Some(s) if s.suits::<V>(place) => s.run::<V>(from, V::LANES, to, step),
                _ => read::<V>(from, place, self.source(), to, step),
            }
        }
    }

    /// Writes a bundle's lines.
    ///
    /// # Safety
    /// `from` has a vector of each element, `step` apart, and `to` is valid for the lines at `place`.
    ///
    /// # Safety
    /// The operand is valid for `h + 1` elements, and `to` for `h`.
    #[inline(always)]
    unsafe fn write<V: FftVector<Elem = T>>(&self, from: *const T, step: usize, to: *mut T, place: Place) {
        // SAFETY: `from` has a vector of each element, `step` apart, and `to` is valid for the lines at `place`.
        unsafe {
            match &self.shuffles[1] {
                Some(s) if s.suits::<V>(place) => s.run::<V>(from, step, to, V::LANES),
                _ => write::<V>(from, step, to, place, self.target()),
            }
        }
    }

    /// The length of a line as it is read, and as it is written.
    pub(super) fn source(&self) -> usize {
        if self.kind == LineTransform::Real { self.real } else { self.from }
    }

    pub(super) fn target(&self) -> usize {
        if self.kind == LineTransform::InverseReal { self.real } else { self.to }
    }

    /// Computes the spectrum of real lines from their half-length transforms.
    #[inline(always)]
    pub(super) unsafe fn untangle<V: FftVector<Elem = T>>(&self, z: LinePointers<T>, to: LinePointers<T>) {
        let h = self.plan.n;
        // SAFETY: the operand is valid for `h` elements, and `to` for `h + 1`.
        unsafe {
            let half = V::splat(T::from_f64(0.5));
            for k in 0..=h {
                let (a, b) = (z.get::<V>(k % h), z.get::<V>((h - k) % h));
                let even = (a.0.add(b.0).mul(half), a.1.sub(b.1).mul(half));
                let odd = (a.0.sub(b.0).mul(half), a.1.add(b.1).mul(half));
                let w = (V::splat(self.roots[2 * k]), V::splat(self.roots[2 * k + 1]));
                // (a - b*) / 2i, times a root of unity.
                let zero = V::splat(T::default());
                to.put(k, plus(even, times((odd.1, zero.sub(odd.0)), w)));
            }
        }
    }

    /// Computes the input of the half-length inverse transform from the spectrum of real lines,
    /// with real and imaginary parts swapped.
    #[inline(always)]
    pub(super) unsafe fn merge_spectrum<V: FftVector<Elem = T>>(&self, spectrum: LinePointers<T>, to: LinePointers<T>) {
        let h = self.plan.n;
        // SAFETY: the operand is valid for `h + 1` elements, and `to` for `h`.
        unsafe {
            let half = V::splat(T::from_f64(0.5));
            let zero = V::splat(T::default());
            for k in 0..h {
                let (a, b) = (spectrum.get::<V>(k), spectrum.get::<V>(h - k));
                let even = (a.0.add(b.0).mul(half), a.1.sub(b.1).mul(half));
                let odd = (a.0.sub(b.0).mul(half), a.1.add(b.1).mul(half));
                let w = (V::splat(self.roots[2 * k]), zero.sub(V::splat(self.roots[2 * k + 1])));
                let odd = times(odd, w);
                to.put(k, (even.1.add(odd.0), even.0.sub(odd.1)));
            }
        }
    }
}
