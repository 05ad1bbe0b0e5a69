//! Fourier transforms of many lines: one line in each lane of the vectors, by Stockham's passes (`stockham.rs`).
//!
//! A bundle of lines is read into a buffer where an element of all lines is a vector of real and one of imaginary parts, turned
//! where lines lie along memory. Inverse transforms are forward ones with real and imaginary parts exchanged. A real line of
//! even length is transformed as a complex one of half the length, its even and odd elements together, and taken apart with
//! the roots of unity. Lines never meet: what one of them holds, a NaN say, stays there.

use super::lanes::{Finish, Lane, Number, Seats, Way, plus, root, times};
use super::moves::{Place, Planes, TILE, read, write};
use super::real_lines::{RealPlan, RealWay, real_cost};
use super::stockham::{Plan, cost};
use crate::gemm::Isa;
use crate::library::along::Lines;

/// What a step over one axis does to its lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Complex {
        inverse: bool,
    },
    /// From real lines to half their spectrum, or back.
    Real,
    Back,
}

/// Bytes of the second cache.
const SECOND_CACHE: usize = 1 << 20;
/// Bytes after which the first cache keeps lines in the same place, or nearly.
const SAME_PLACE: usize = 2048;

/// A step over one axis.
pub(super) struct Step<T> {
    kind: Kind,
    pub(super) outer: usize,
    pub(super) inner: usize,
    /// Elements of a line, as it is read and as it is written, and of the real one.
    from: usize,
    to: usize,
    real: usize,
    pub(super) plan: Plan<T>,
    /// Roots of the whole length, where a real line is halved.
    roots: Vec<T>,
    /// The plan of real lines of an odd length.
    odd: Option<RealPlan<T>>,
    factor: T,
    /// Lines of a bundle.
    pub(super) lanes: usize,
}

impl<T: Number> Step<T> {
    pub(super) fn new(kind: Kind, lines: Lines, side: usize, real: usize, factor: f64, lanes: usize) -> Step<T> {
        let halved = kind != Kind::Complex { inverse: false }
            && kind != Kind::Complex { inverse: true }
            && real.is_multiple_of(2);
        let n = match kind {
            Kind::Complex { .. } => side,
            _ if halved => real / 2,
            _ => real,
        };
        let complex = matches!(kind, Kind::Complex { .. });
        let odd = (!complex && !halved).then(|| RealPlan::new(n));
        let plan = Plan::new(if odd.is_some() { 1 } else { n });
        let roots = match halved {
            true => (0..=n).flat_map(|k| <[f64; 2]>::from(root(k, real))).map(T::from_f64).collect(),
            false => vec![],
        };
        let factor = if halved && kind == Kind::Back { 2.0 * factor } else { factor };
        let factor = T::from_f64(factor);
        let (outer, inner) = (lines.outer, lines.inner);
        Step { kind, outer, inner, from: side, to: side, real, plan, roots, odd, factor, lanes }
    }

    /// Cycles that all lines are expected to take.
    pub(super) fn cycles(kind: Kind, lines: Lines, real: usize, lanes: usize) -> f64 {
        let (n, each) = match kind {
            Kind::Complex { .. } => (real, cost(real) + 24.0),
            _ if real.is_multiple_of(2) => (real / 2, cost(real / 2) + 36.0),
            _ => (real, real_cost(real) + 18.0),
        };
        // Both buffers are in the second cache, or they aren't.
        let mut slower = match 4 * n * lanes * size_of::<T>() {
            0..SECOND_CACHE => 1.0,
            bytes if bytes < 2 * SECOND_CACHE => 1.4,
            _ => 2.5,
        };
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
    fn elements(&self) -> usize {
        let odd = self.odd.as_ref().map_or(0, |p| p.n);
        (self.plan.n.max(self.from).max(self.to).max(odd) + 1).max(TILE)
    }

    /// Elements of both buffers, and those that the plan asks for.
    pub(super) fn scratch(&self) -> usize {
        2 * self.elements() + self.plan.scratch.max(self.odd.as_ref().map_or(0, |p| p.scratch()))
    }

    pub(super) fn bundles(&self) -> usize {
        match self.inner {
            1 => self.outer.div_ceil(self.lanes),
            inner => self.outer * inner.div_ceil(self.lanes),
        }
    }

    /// A bundle's lines where elements of a line are `n`.
    pub(super) fn place(&self, bundle: usize, n: usize) -> Place {
        let lanes = self.lanes;
        if self.inner == 1 {
            let first = bundle * lanes;
            return Place { at: first * n, line: n, element: 1, count: lanes.min(self.outer - first) };
        }
        let each = self.inner.div_ceil(lanes);
        let (outer, first) = (bundle / each, bundle % each * lanes);
        Place { at: outer * n * self.inner + first, line: 1, element: self.inner, count: lanes.min(self.inner - first) }
    }

    /// # Safety
    /// Planes are those of the step, `x` and `y` have room for [`Step::elements`], and nobody else has the bundle.
    #[inline(always)]
    pub(super) unsafe fn bundle<V: Lane<Elem = T>>(
        &self,
        isa: Isa,
        bundle: usize,
        from: Planes<T>,
        to: Planes<T>,
        x: *mut T,
    ) {
        let y = x.wrapping_add(self.elements() * 2 * V::LANES);
        let z = y.wrapping_add(self.elements() * 2 * V::LANES);
        let (source, target) = (self.place(bundle, self.source()), self.place(bundle, self.target()));
        let finish = Finish::Factor(self.factor);
        let (own, home) = (Seats::buffer::<V>(x), Seats::buffer::<V>(self.plan.home(x, y)));
        // The other one of the buffers.
        let other = Seats::buffer::<V>(self.plan.home(y, x));
        // SAFETY: the caller's promise; every place is inside of its plane or buffer.
        unsafe {
            let zero = V::splat(T::default());
            match self.kind {
                Kind::Complex { inverse } => {
                    // What lies as vectors already is read, and written, where it is.
                    let direct = |place: Place, planes: Planes<T>| {
                        (place.line == 1 && place.count == V::LANES).then_some(planes.seats(place))
                    };
                    let begin = direct(source, from).unwrap_or_else(|| {
                        read::<V>(isa, from.re.at(source.at), source, self.from, own.re, own.step);
                        read::<V>(isa, from.im.at(source.at), source, self.from, own.im, own.step);
                        own
                    });
                    let end = direct(target, to);
                    let (begin, last) = (begin.exchanged(inverse), end.unwrap_or(home).exchanged(inverse));
                    V::transform(&self.plan, Way { from: begin, to: last, x, y, z, finish });
                    if end.is_none() {
                        write::<V>(isa, home.re, home.step, to.re.at(target.at), target, self.to);
                        write::<V>(isa, home.im, home.step, to.im.at(target.at), target, self.to);
                    }
                }
                Kind::Real => {
                    read::<V>(isa, from.re.at(source.at), source, self.real, x, V::LANES);
                    let z = if let Some(plan) = &self.odd {
                        let spectrum = Seats::buffer::<V>(y);
                        let factor = self.factor;
                        V::real(plan, RealWay { back: false, real: x, step: V::LANES, spectrum, factor, z });
                        spectrum
                    } else {
                        // Even elements are real parts, odd ones imaginary parts.
                        V::transform(&self.plan, Way { from: own, to: home, x, y, z, finish });
                        self.untangle::<V>(home, other);
                        other
                    };
                    write::<V>(isa, z.re, z.step, to.re.at(target.at), target, self.to);
                    write::<V>(isa, z.im, z.step, to.im.at(target.at), target, self.to);
                }
                Kind::Back => {
                    let spectrum = Seats::buffer::<V>(y);
                    read::<V>(isa, from.re.at(source.at), source, self.from, spectrum.re, spectrum.step);
                    read::<V>(isa, from.im.at(source.at), source, self.from, spectrum.im, spectrum.step);
                    // What a real signal's spectrum can't hold is ignored.
                    zero.store(spectrum.im);
                    if self.real.is_multiple_of(2) {
                        zero.store(spectrum.im.add((self.from - 1) * spectrum.step));
                    }
                    if let Some(plan) = &self.odd {
                        let factor = self.factor;
                        V::real(plan, RealWay { back: true, real: x, step: V::LANES, spectrum, factor, z });
                        return write::<V>(isa, x, V::LANES, to.re.at(target.at), target, self.real);
                    }
                    self.together::<V>(spectrum, own);
                    V::transform(&self.plan, Way { from: own, to: home.exchanged(true), x, y, z, finish });
                    write::<V>(isa, home.re, V::LANES, to.re.at(target.at), target, self.real);
                }
            }
        }
    }

    /// Elements from one line to the next, as it is read and as it is written.
    fn source(&self) -> usize {
        if self.kind == Kind::Real { self.real } else { self.from }
    }

    fn target(&self) -> usize {
        if self.kind == Kind::Back { self.real } else { self.to }
    }

    /// The spectrum of real lines from the transform of their halves.
    #[inline(always)]
    unsafe fn untangle<V: Lane<Elem = T>>(&self, z: Seats<T>, to: Seats<T>) {
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
    unsafe fn together<V: Lane<Elem = T>>(&self, spectrum: Seats<T>, to: Seats<T>) {
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
