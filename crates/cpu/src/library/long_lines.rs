//! Fourier transforms of long lines along memory: a line is a matrix of `n1` rows, whose columns are transformed, turned by roots of
//! unity, and whose rows are then transformed; neighbouring columns, then rows, are the lanes of the vectors.
//!
//! All of a line of moderate length stays in the first caches, and only its rows are turned on the way into vectors. Where there are
//! fewer lines than threads, threads share each line. Real lines are halved as in `bundles.rs`.

use super::bundles::{Kind, Place, Planes, TILE, read, write};
use super::stockham::{Finish, Lane, Number, Plan, Seats, Way, root};
use super::{Raw, in_ranges};
use crate::gemm::Isa;
use crate::pool::Pool;
use crate::thresholds::Threshold;
use std::ops::{Add, Mul, Range, Sub};

/// Elements of a complex line, at least.
const LEAST: usize = 256;
/// And at most: the roots of longer ones take long to compute, and much memory.
const MOST: usize = 1 << 22;

pub(super) const THRESHOLDS: &[Threshold] =
    &[Threshold::new("fourier.matrix", LEAST, "elements of a complex line along memory: from here it may be a matrix")];

/// A float that has arithmetic of its own.
pub(super) trait Real: Number + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {}
impl<T: Number + Add<Output = T> + Sub<Output = T> + Mul<Output = T>> Real for T {}

/// How a line is transformed.
pub(super) struct LongLines<T> {
    kind: Kind,
    lines: usize,
    /// Elements of a line as it is read and as it is written.
    source: usize,
    target: usize,
    columns: Plan<T>,
    rows: Plan<T>,
    /// For each bundle of columns and each row a vector of real and one of imaginary parts, times the factor.
    turns: Vec<T>,
    /// Roots of the whole length, where a real line is halved: real parts, then imaginary parts.
    roots: Vec<T>,
    lanes: usize,
    threads: usize,
}

/// What is done to a line, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Gather,
    Columns,
    Rows,
    Spread,
}

/// A line, its scratch, and that of the worker.
#[derive(Clone, Copy)]
pub(super) struct Line<T> {
    from: Planes<T>,
    to: Planes<T>,
    /// The halves of a real line, and between columns and rows.
    halves: Planes<T>,
    between: Planes<T>,
    x: Raw<T>,
    y: Raw<T>,
}

/// The two factors of a length that are nearest to each other, of those that fill vectors.
fn factors(n: usize, lanes: usize, exactly: bool) -> Option<(usize, usize)> {
    let fits = |m: usize| m >= lanes && (!exactly || m.is_multiple_of(lanes)) && Plan::<f64>::new(m).is_some();
    let pairs = (lanes..=n.isqrt()).rev().filter(|m| n.is_multiple_of(*m)).map(|m| (m, n / m));
    pairs.into_iter().find(|&(a, b)| fits(a) && fits(b))
}

impl<T: Real> LongLines<T> {
    /// `n` is the length of a real line, or of a complex one. Lines whose factors don't fill vectors are taken only if there is no other way
    /// (`any`).
    pub(super) fn new(
        kind: Kind,
        lines: usize,
        n: usize,
        factor: f64,
        lanes: usize,
        threads: usize,
        any: bool,
    ) -> Option<LongLines<T>> {
        let complex = matches!(kind, Kind::Complex { .. });
        if !complex && !n.is_multiple_of(2) {
            return None;
        }
        let length = if complex { n } else { n / 2 };
        if !(LEAST..=MOST).contains(&length) {
            return None;
        }
        let (n1, n2) = match factors(length, lanes, true) {
            None if any => factors(length, lanes, false)?,
            found => found?,
        };
        let factor = if kind == Kind::Back { 2.0 * factor } else { factor };
        let mut turns = vec![];
        for bundle in 0..n2.div_ceil(lanes) {
            for k in 0..n1 {
                let all: Vec<(f64, f64)> =
                    (0..lanes).map(|j| root(k * (bundle * lanes + j) % length, length)).collect();
                turns.extend(all.iter().map(|w| T::from_f64(w.0 * factor)));
                turns.extend(all.iter().map(|w| T::from_f64(w.1 * factor)));
            }
        }
        let half = |part: fn((f64, f64)) -> f64| (0..=length).map(move |k| T::from_f64(0.5 * part(root(k, n))));
        let roots = if complex { vec![] } else { half(|w| w.0).chain(half(|w| w.1)).collect() };
        Some(LongLines {
            kind,
            lines,
            source: if kind == Kind::Back { length + 1 } else { n },
            target: if kind == Kind::Real { length + 1 } else { n },
            columns: Plan::new(n1)?,
            rows: Plan::new(n2)?,
            turns,
            roots,
            lanes,
            threads,
        })
    }

    fn length(&self) -> usize {
        self.columns.n * self.rows.n
    }

    /// Whether threads share each line.
    fn shared(&self) -> bool {
        self.lines < self.threads
    }

    /// Elements from one row to the next between columns and rows: rows of a power of two would all be in the same part of the first cache.
    fn row(&self) -> usize {
        self.rows.n + self.lanes
    }

    /// Elements of a plane of scratch, and of one of a worker's buffers.
    fn plane(&self) -> usize {
        (self.columns.n * self.row()).next_multiple_of(16) + 16
    }

    fn buffer(&self) -> usize {
        self.columns.n.max(self.rows.n).max(TILE) * 2 * self.lanes
    }

    /// Elements of scratch for a line, and for a worker.
    fn each(&self) -> (usize, usize) {
        let halves = if matches!(self.kind, Kind::Complex { .. }) { 0 } else { 2 * self.plane() };
        (halves + 2 * self.plane(), 2 * self.buffer())
    }

    pub(super) fn scratch(&self) -> usize {
        let (line, worker) = self.each();
        worker * self.threads + line * if self.shared() { 1 } else { self.threads }
    }

    /// Transforms all lines.
    ///
    /// # Safety
    /// Planes are those of all lines, which may be the same ones, and `scratch` is as asked for.
    pub(super) unsafe fn run(
        &self,
        pool: &Pool,
        isa: Isa,
        from: Planes<T>,
        to: Planes<T>,
        scratch: Raw<T>,
        phase: unsafe fn(&LongLines<T>, Isa, Phase, Range<usize>, Line<T>),
    ) {
        let (each, own) = self.each();
        let at = |p: Planes<T>, i: usize| Planes { re: Raw(p.re.at(i)), im: Raw(p.im.at(i)) };
        let line = |i: usize, place: usize, worker: usize| {
            let plane = |k: usize| Raw(scratch.at(own * self.threads + place * each + k * self.plane()));
            let x = scratch.at(own * worker);
            Line {
                from: at(from, i * self.source),
                to: at(to, i * self.target),
                between: Planes { re: plane(0), im: plane(1) },
                halves: Planes { re: plane(2), im: plane(3) },
                x: Raw(x),
                y: Raw(x.wrapping_add(self.buffer())),
            }
        };
        let phases = [Phase::Gather, Phase::Columns, Phase::Rows, Phase::Spread];
        let units = |p: Phase| match p {
            Phase::Columns => self.rows.n.div_ceil(self.lanes),
            Phase::Rows => self.columns.n.div_ceil(self.lanes),
            _ if matches!(self.kind, Kind::Complex { .. }) => 0,
            _ => self.length() + 1,
        };
        if !self.shared() {
            return in_ranges(pool, self.lines, self.lines * self.length() * 8, &|range: Range<usize>, worker| {
                for i in range {
                    // SAFETY: the line and the worker's scratch are nobody else's.
                    phases.iter().for_each(|&p| unsafe { phase(self, isa, p, 0..units(p), line(i, worker, worker)) });
                }
            });
        }
        for i in 0..self.lines {
            for p in phases.into_iter().filter(|&p| units(p) > 0) {
                in_ranges(pool, units(p), self.length() * 4, &|range: Range<usize>, worker| {
                    // SAFETY: units write different elements, and a worker has buffers of its own.
                    unsafe { phase(self, isa, p, range, line(i, 0, worker)) };
                });
            }
        }
    }

    /// # Safety
    /// The line and its scratch are there, and nobody else works on these units.
    #[inline(always)]
    pub(super) unsafe fn phase<V: Lane<Elem = T>>(&self, isa: Isa, phase: Phase, units: Range<usize>, line: Line<T>) {
        let (n1, n2) = (self.columns.n, self.rows.n);
        let (x, y) = (line.x.at(0), line.y.at(0));
        // Inverse transforms have real and imaginary parts exchanged.
        let exchanged = |p: Planes<T>, on: bool| if on { Planes { re: p.im, im: p.re } } else { p };
        let seats = |p: Planes<T>, at: Place| Seats { re: p.re.at(at.at), im: p.im.at(at.at), step: at.element };
        let own = Seats::buffer::<V>(x);
        let inverse = self.kind == Kind::Complex { inverse: true };
        let complex = matches!(self.kind, Kind::Complex { .. });
        // SAFETY: the caller's promise; every place is inside of its plane or buffer.
        unsafe {
            match phase {
                Phase::Columns => {
                    let from = exchanged(if complex { line.from } else { line.halves }, inverse);
                    for unit in units {
                        let at = unit * V::LANES;
                        let place = |element: usize| Place { at, line: 1, element, count: V::LANES.min(n2 - at) };
                        let (source, target) = (place(n2), place(self.row()));
                        let finish = Finish::Turns(self.turns.as_ptr().add(unit * n1 * 2 * V::LANES));
                        if source.count == V::LANES {
                            let way = Way { from: seats(from, source), to: seats(line.between, target), x, y, finish };
                            V::transform(&self.columns, way);
                            continue;
                        }
                        let home = Seats::buffer::<V>(self.columns.home(x, y));
                        read::<V>(isa, from.re.at(at), source, n1, own.re, own.step);
                        read::<V>(isa, from.im.at(at), source, n1, own.im, own.step);
                        V::transform(&self.columns, Way { from: own, to: home, x, y, finish });
                        write::<V>(isa, home.re, home.step, line.between.re.at(at), target, n1);
                        write::<V>(isa, home.im, home.step, line.between.im.at(at), target, n1);
                    }
                }
                Phase::Rows => {
                    let to = exchanged(if complex { line.to } else { line.halves }, inverse);
                    let finish = Finish::Factor(T::from_f64(1.0));
                    for unit in units {
                        let first = unit * V::LANES;
                        let count = V::LANES.min(n1 - first);
                        let place = Place { at: first * self.row(), line: self.row(), element: 1, count };
                        read::<V>(isa, line.between.re.at(place.at), place, n2, own.re, own.step);
                        read::<V>(isa, line.between.im.at(place.at), place, n2, own.im, own.step);
                        let place = Place { at: first, line: 1, element: n1, count };
                        if count == V::LANES {
                            V::transform(&self.rows, Way { from: own, to: seats(to, place), x, y, finish });
                            continue;
                        }
                        let home = Seats::buffer::<V>(self.rows.home(x, y));
                        V::transform(&self.rows, Way { from: own, to: home, x, y, finish });
                        write::<V>(isa, home.re, home.step, to.re.at(first), place, n2);
                        write::<V>(isa, home.im, home.step, to.im.at(first), place, n2);
                    }
                }
                Phase::Gather if self.kind == Kind::Real => self.untangle(line, units),
                Phase::Gather if self.kind == Kind::Back => self.join_spectrum::<V>(line, units),
                Phase::Spread if self.kind == Kind::Real => self.split_spectrum::<V>(line, units),
                Phase::Spread if self.kind == Kind::Back => self.interleave(line, units),
                _ => {}
            }
        }
    }

    /// Even elements of a real line are real parts, odd ones imaginary parts.
    #[inline(always)]
    unsafe fn untangle(&self, line: Line<T>, units: Range<usize>) {
        let units = units.start..units.end.min(self.length());
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = std::slice::from_raw_parts(line.from.re.at(2 * units.start).cast::<[T; 2]>(), units.len());
            let re = std::slice::from_raw_parts_mut(line.halves.re.at(units.start), units.len());
            let im = std::slice::from_raw_parts_mut(line.halves.im.at(units.start), units.len());
            for ((&[a, b], re), im) in pairs.iter().zip(re).zip(im) {
                (*re, *im) = (a, b);
            }
        }
    }

    #[inline(always)]
    unsafe fn interleave(&self, line: Line<T>, units: Range<usize>) {
        let units = units.start..units.end.min(self.length());
        // SAFETY: the caller's promise. Both parts are exchanged.
        unsafe {
            let pairs = std::slice::from_raw_parts_mut(line.to.re.at(2 * units.start).cast::<[T; 2]>(), units.len());
            let re = std::slice::from_raw_parts(line.halves.im.at(units.start), units.len());
            let im = std::slice::from_raw_parts(line.halves.re.at(units.start), units.len());
            for ((pair, &re), &im) in pairs.iter_mut().zip(re).zip(im) {
                *pair = [re, im];
            }
        }
    }

    /// The spectrum of a real line from the transform of its halves: vectors along it, and one by one what is left, to the same bits.
    #[inline(always)]
    unsafe fn split_spectrum<V: Lane<Elem = T>>(&self, line: Line<T>, units: Range<usize>) {
        let h = self.length();
        let (re, im) = (line.halves.re.at(0), line.halves.im.at(0));
        let (to_re, to_im) = (line.to.re.at(0), line.to.im.at(0));
        let (cos, sin) = (self.roots.as_ptr(), self.roots.as_ptr().wrapping_add(h + 1));
        // SAFETY: the caller's promise; what is beyond the end is the beginning.
        unsafe {
            let one = |k: usize, a: usize, b: usize| {
                let ((ar, ai), (br, bi)) = ((*re.add(a), *im.add(a)), (*re.add(b), *im.add(b)));
                let (even_re, even_im) = ((ar + br) * T::from_f64(0.5), (ai - bi) * T::from_f64(0.5));
                // (a - b*) / 2i, turned; the roots have the half.
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
                let (br, bi) = (V::load(re.add(mirror)).reversed(), V::load(im.add(mirror)).reversed());
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

    /// The transform of a real line's halves from its spectrum, both parts exchanged.
    #[inline(always)]
    unsafe fn join_spectrum<V: Lane<Elem = T>>(&self, line: Line<T>, units: Range<usize>) {
        let h = self.length();
        let (re, im) = (line.from.re.at(0), line.from.im.at(0));
        let (to_re, to_im) = (line.halves.re.at(0), line.halves.im.at(0));
        let (cos, sin) = (self.roots.as_ptr(), self.roots.as_ptr().wrapping_add(h + 1));
        let zero = T::default();
        // SAFETY: the caller's promise.
        unsafe {
            let one = |k: usize, (ar, ai): (T, T), (br, bi): (T, T)| {
                let (even_re, even_im) = ((ar + br) * T::from_f64(0.5), (ai - bi) * T::from_f64(0.5));
                let (odd_re, odd_im) = (ar - br, ai + bi);
                // Turned the other way.
                let (c, s) = (*cos.add(k), *sin.add(k));
                *to_re.add(k) = even_im + (odd_re * c + odd_im * s);
                *to_im.add(k) = even_re - (odd_im * c - odd_re * s);
            };
            if units.start == 0 {
                // What a real signal's spectrum can't hold is ignored.
                one(0, (*re, zero), (*re.add(h), zero));
            }
            let (mut k, end) = (units.start.max(1), units.end.min(h));
            let half = V::splat(T::from_f64(0.5));
            while k + V::LANES <= end {
                let mirror = h - k + 1 - V::LANES;
                let (ar, ai) = (V::load(re.add(k)), V::load(im.add(k)));
                let (br, bi) = (V::load(re.add(mirror)).reversed(), V::load(im.add(mirror)).reversed());
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
}
