//! Fourier transforms of many lines: one line in each lane of the vectors, by Stockham's passes (`stockham.rs`).
//!
//! A bundle of lines is read into a buffer where an element of all lines is a vector of real and one of imaginary parts, turned
//! where lines lie along memory. Inverse transforms are forward ones with real and imaginary parts exchanged. A real line of
//! even length is transformed as a complex one of half the length, its even and odd elements together, and taken apart with
//! the roots of unity. Lines never meet: what one of them holds, a NaN say, stays there.

use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, TransformBuffers, plus, root, times};
use super::load_store::{Place, Planes, Shuffle, TILE, read, write};
use super::real_lines::{RealBuffers, RealPlan, real_cost};
use super::stockham::{StockhamPlan, cost};
use crate::library::along::AxisLines;

/// What a step over one axis does to its lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTransform {
    Complex {
        inverse: bool,
    },
    /// From real lines to half their spectrum, or back.
    Real,
    InverseReal,
}

/// Bytes of the second cache.
pub(super) const L2_BYTES: usize = 1 << 20;
/// Bytes after which the first cache keeps lines in the same place, or nearly.
const SAME_PLACE: usize = 2048;

/// How much slower passes are over lines of a length in vectors of so many bytes if both buffers are not in the second cache.
pub(super) fn slower(n: usize, vector: usize) -> f64 {
    match 4 * n * vector {
        0..=L2_BYTES => 1.0,
        bytes if bytes < 2 * L2_BYTES => 1.4,
        _ => 2.5,
    }
}

/// A step over one axis.
pub(super) struct AxisStep<T> {
    pub(super) kind: LineTransform,
    pub(super) outer: usize,
    pub(super) inner: usize,
    /// Elements of a line, as it is read and as it is written, and of the real one.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) real: usize,
    pub(super) plan: StockhamPlan<T>,
    /// Roots of the whole length, where a real line is halved.
    roots: Vec<T>,
    /// The plan of real lines of an odd length.
    pub(super) odd: Option<RealPlan<T>>,
    pub(super) factor: T,
    /// Lines of a bundle.
    pub(super) lanes: usize,
    /// Where lines are so short.
    shuffles: [Option<Shuffle>; 2],
    /// Where several bundles are read, and written, together.
    pub(super) block: Option<Block>,
}

/// Several bundles that are read, and written, together (`blocks.rs`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// Lines next to each other are fewer than lanes: those of several places further out are turned.
    Turned,
    /// So many bundles of columns: each row is a page of its own, which they share.
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

    /// Cycles that all lines are expected to take.
    pub(super) fn cycles(kind: LineTransform, lines: AxisLines, real: usize, lanes: usize) -> f64 {
        let (n, each) = match kind {
            LineTransform::Complex { .. } => (real, cost(real) + 24.0),
            _ if real.is_multiple_of(2) => (real / 2, cost(real / 2) + 36.0),
            _ => (real, real_cost(real) + 18.0),
        };
        let mut slower = slower(n, lanes * size_of::<T>());
        // Lines of a bundle that all begin in the same part of the first cache.
        if lines.inner == 1 && (real * size_of::<T>()).is_multiple_of(SAME_PLACE) {
            slower *= 1.5;
        }
        let count = if lines.inner == 1 { lines.outer } else { lines.inner };
        let bundles = (count / lanes) as f64 + [0.0, 0.55, 1.0][(count % lanes * 2).div_ceil(lanes)];
        let times = if lines.inner == 1 { 1 } else { lines.outer };
        slower * each * bundles * (times * n) as f64
    }

    /// Elements of a buffer: the longest of a line and its spectrum, and those of a tile.
    pub(super) fn elements(&self) -> usize {
        let odd = self.odd.as_ref().map_or(0, |p| p.n);
        (self.plan.n.max(self.from).max(self.to).max(odd) + 1).max(TILE)
    }

    /// Elements of both buffers, and those that the plan asks for.
    pub(super) fn scratch(&self) -> usize {
        self.block_elements()
            + 2 * self.elements()
            + self.plan.scratch.max(self.odd.as_ref().map_or(0, |p| p.scratch()))
    }

    /// Work, as threads share it.
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

    /// A bundle's lines where elements of a line are `n`.
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
    /// Planes are those of the step, `x` and `y` have room for [`Step::elements`], and nobody else has the bundle.
    #[inline(always)]
    pub(super) unsafe fn bundle<V: FftVector<Elem = T>>(
        &self,
        bundle: usize,
        from: Planes<T>,
        to: Planes<T>,
        x: *mut T,
    ) {
        if self.block.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { self.run_block::<V>(bundle, from, to, x) };
        }
        let y = x.wrapping_add(self.elements() * 2 * V::LANES);
        let z = y.wrapping_add(self.elements() * 2 * V::LANES);
        let (source, target) = (self.place(bundle, self.source()), self.place(bundle, self.target()));
        let (own, home) = (LinePointers::buffer::<V>(x), LinePointers::buffer::<V>(self.plan.result_buffer(x, y)));
        let (finish, factor) = (FinalScale::Factor(self.factor), self.factor);
        let complex = matches!(self.kind, LineTransform::Complex { .. });
        // What lies as vectors already is read, and written, where it is.
        let direct = complex && source.line == 1 && source.count == V::LANES;
        // SAFETY: the caller's promise; every place is inside of its plane or buffer.
        unsafe {
            // Moves are written out: with a loop over both planes they take a sixth longer. Real lines are vector after vector: the even
            // elements of halved ones are real parts, the odd ones imaginary parts.
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
                    // The other one of the buffers.
                    let other = LinePointers::buffer::<V>(self.plan.result_buffer(y, x));
                    self.untangle::<V>(home, other);
                    (other.re, 2)
                }
                (LineTransform::InverseReal, odd) => {
                    // What a real signal's spectrum can't hold is ignored.
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
    #[inline(always)]
    unsafe fn read<V: FftVector<Elem = T>>(&self, from: *const T, place: Place, to: *mut T, step: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.shuffles[0] {
                Some(s) if s.suits::<V>(place) => s.run::<V>(from, V::LANES, to, step),
                _ => read::<V>(from, place, self.source(), to, step),
            }
        }
    }

    /// Writes a bundle's lines.
    #[inline(always)]
    unsafe fn write<V: FftVector<Elem = T>>(&self, from: *const T, step: usize, to: *mut T, place: Place) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.shuffles[1] {
                Some(s) if s.suits::<V>(place) => s.run::<V>(from, step, to, V::LANES),
                _ => write::<V>(from, step, to, place, self.target()),
            }
        }
    }

    /// Elements from one line to the next, as it is read and as it is written.
    pub(super) fn source(&self) -> usize {
        if self.kind == LineTransform::Real { self.real } else { self.from }
    }

    pub(super) fn target(&self) -> usize {
        if self.kind == LineTransform::InverseReal { self.real } else { self.to }
    }

    /// The spectrum of real lines from the transform of their halves.
    #[inline(always)]
    pub(super) unsafe fn untangle<V: FftVector<Elem = T>>(&self, z: LinePointers<T>, to: LinePointers<T>) {
        let h = self.plan.n;
        // SAFETY: the caller vouches for `h` elements, and for one more at `to`.
        unsafe {
            let half = V::splat(T::from_f64(0.5));
            for k in 0..=h {
                let (a, b) = (z.get::<V>(k % h), z.get::<V>((h - k) % h));
                let even = (a.0.add(b.0).mul(half), a.1.sub(b.1).mul(half));
                let odd = (a.0.sub(b.0).mul(half), a.1.add(b.1).mul(half));
                let w = (V::splat(self.roots[2 * k]), V::splat(self.roots[2 * k + 1]));
                // (a - b*) / 2i, turned.
                let zero = V::splat(T::default());
                to.put(k, plus(even, times((odd.1, zero.sub(odd.0)), w)));
            }
        }
    }

    /// The transform of real lines' halves from their spectrum, both parts exchanged.
    #[inline(always)]
    pub(super) unsafe fn merge_spectrum<V: FftVector<Elem = T>>(&self, spectrum: LinePointers<T>, to: LinePointers<T>) {
        let h = self.plan.n;
        // SAFETY: the caller vouches for `h + 1` elements, and for `h` at `to`.
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
