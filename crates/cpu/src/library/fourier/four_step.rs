//! Fourier transforms of long contiguous lines by the four-step algorithm: a line is a matrix of `n1` rows. Its columns are
//! transformed, multiplied by twiddle factors, and then its rows are transformed;
//! adjacent columns, and then adjacent rows, are the SIMD lanes.
//!
//! A line of moderate length stays in the L1 and L2 caches; only its rows are transposed when they are read into vectors. If
//! there are fewer lines than threads, the threads share each line. Real lines of even length are halved as in `batched.rs`. For
//! odd length, the columns are real (`real_lines.rs`), and half of the rows are mirror images. A line whose length has no good
//! factors is multiplied by a chirp, convolved through a longer length with good factors, and multiplied again (Bluestein).

use super::batched::LineTransform;
use super::factor_plan::{Choice, FactorPlan};
use super::lanes::{FftVector, FinalScale, LinePointers, TransformBuffers, root};
use super::load_store::{Place, Planes, TILE};
use super::rader_bluestein::chirp;
use super::real_lines::RealPlan;
use super::stockham::StockhamPlan;
use super::twiddle::Real;
use crate::gemm::Isa;
use crate::library::{SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::ops::Range;

/// The maximum bytes of a line for which the next line is prefetched.
const AHEAD: usize = 1 << 16;
/// The minimum number of elements of a line that threads share.
const SHARED: usize = 16384;

/// A transform of long lines.
pub(super) struct FourStepFft<T> {
    pub(super) kind: LineTransform,
    lines: usize,
    /// The number of elements of a line as it is read and as it is written.
    pub(super) source: usize,
    pub(super) target: usize,
    /// The number of elements that are transformed: the length of a complex line, or half the length of a real one if it is even.
    length: usize,
    pub(super) matrix: Matrix<T>,
    /// The roots of unity of the full length, where a real line is halved: real parts, then imaginary parts.
    pub(super) roots: Vec<T>,
    pub(super) chirp: Option<Chirp<T>>,
    /// The factor of real results of odd length.
    pub(super) factor: T,
    phases: Vec<Phase>,
    lanes: usize,
    threads: usize,
}

/// A line as a matrix.
pub(super) struct Matrix<T> {
    pub(super) columns: Columns<T>,
    pub(super) rows: StockhamPlan<T>,
    /// The twiddle factors: for each bundle of columns and each row a vector
    /// of real parts and one of imaginary parts, times the scale factor.
    pub(super) turns: Vec<T>,
}

pub(super) enum Columns<T> {
    Complex(StockhamPlan<T>),
    Real(RealPlan<T>),
}

/// The tables that turn a transform into a convolution.
pub(super) struct Chirp<T> {
    /// The chirp: real parts, then imaginary parts.
    pub(super) chirp: Vec<T>,
    /// The transform of the chirp for each bundle of rows, times the scale factor, stored like the twiddle factors.
    kernel: Vec<T>,
}

/// The buffer that contains complex lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Source,
    Work,
    Target,
}

/// The phases of a line's transform, in order. In phases with a flag, the flag swaps real and imaginary parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Conversions between a real line, its half-length transform, and its spectrum.
    Untangle,
    Join,
    Split,
    Interleave,
    /// The products with the chirp, before and after the convolution.
    Chirp(At, bool),
    Unchirp(At, bool),
    Columns(At, bool),
    /// The row transforms. With the second flag, they include the products with the chirp's transform.
    Rows(At, bool, bool),
    /// The transforms of real lines of odd length.
    RealColumns,
    RealRows,
    BackRows,
    BackColumns,
    /// Extends half a spectrum to the full spectrum.
    Mirror,
}

/// The pointers of a line, of its scratch, and of the worker's scratch.
#[derive(Clone, Copy)]
pub(super) struct Line<T> {
    pub(super) from: Planes<T>,
    pub(super) to: Planes<T>,
    /// The half-length form of a real line, or its products with a chirp.
    pub(super) work: Planes<T>,
    /// The matrix between the column and row transforms.
    pub(super) between: Planes<T>,
    pub(super) x: SharedPtr<T>,
    pub(super) y: SharedPtr<T>,
    pub(super) z: SharedPtr<T>,
}

/// Returns the phases for a kind of line.
fn phases(kind: LineTransform, real: bool, odd: bool, chirp: bool) -> Vec<Phase> {
    use At::{Source, Target, Work};
    let (first, last, inverse) = match kind {
        LineTransform::Complex { inverse } => (Source, Target, inverse),
        _ => (Work, Work, false),
    };
    let middle = match (chirp, kind) {
        (false, _) => vec![Phase::Columns(first, inverse), Phase::Rows(last, inverse, false)],
        (true, _) => {
            let real = kind == LineTransform::Real && odd;
            vec![
                Phase::Chirp(if real { Source } else { first }, inverse || kind == LineTransform::InverseReal && odd),
                Phase::Columns(Work, false),
                Phase::Rows(Work, false, true),
                Phase::Columns(Work, true),
                Phase::Rows(Work, true, false),
                Phase::Unchirp(if odd { Target } else { last }, inverse || kind == LineTransform::InverseReal && odd),
            ]
        }
    };
    match kind {
        _ if real && kind == LineTransform::Real => vec![Phase::RealColumns, Phase::RealRows],
        _ if real => vec![Phase::BackRows, Phase::BackColumns],
        LineTransform::Complex { .. } => middle,
        LineTransform::Real if odd => middle,
        LineTransform::InverseReal if odd => [vec![Phase::Mirror], middle].concat(),
        LineTransform::Real => [vec![Phase::Untangle], middle, vec![Phase::Split]].concat(),
        LineTransform::InverseReal => [vec![Phase::Join], middle, vec![Phase::Interleave]].concat(),
    }
}

/// Returns a complex vector for each element of rows `0..rows` of bundles of columns.
fn vectors<T: Real>(bundles: usize, rows: usize, lanes: usize, of: impl Fn(usize, usize) -> (f64, f64)) -> Vec<T> {
    let mut all = Vec::with_capacity(bundles * rows * 2 * lanes);
    for bundle in 0..bundles {
        for k in 0..rows {
            let own: Vec<(f64, f64)> = (0..lanes).map(|j| of(k, bundle * lanes + j)).collect();
            all.extend(own.iter().map(|w| T::from_f64(w.0)));
            all.extend(own.iter().map(|w| T::from_f64(w.1)));
        }
    }
    all
}

impl<T: Real> FourStepFft<T> {
    /// Plans a transform. `n` is the length of a real line, or of a complex one.
    pub(super) fn new(
        kind: LineTransform,
        lines: usize,
        n: usize,
        factor: f64,
        choice: Choice,
        lanes: usize,
        threads: usize,
    ) -> FourStepFft<T> {
        let Choice { length, shape: FactorPlan { n1, n2, .. }, real, chirp: is_chirp, .. } = choice;
        let complex = matches!(kind, LineTransform::Complex { .. });
        let odd = !complex && length == n;
        let halved = !complex && !odd;
        let factor = if kind == LineTransform::InverseReal && halved { 2.0 * factor } else { factor };
        let points = n1 * n2;
        let chirp = is_chirp.then(|| {
            let (chirp, kernel) = chirp::<f64>(length, points);
            let part =
                |i: usize| (0..length).map(move |k| 2 * k + i).map(|k| T::from_f64(chirp[k])).collect::<Vec<T>>();
            let of = |k2: usize, k1: usize| {
                let k = k1 + n1 * k2;
                if k1 < n1 { (kernel[2 * k] * factor, kernel[2 * k + 1] * factor) } else { (0.0, 0.0) }
            };
            Chirp { chirp: [part(0), part(1)].concat(), kernel: vectors(n1.div_ceil(lanes), n2, lanes, of) }
        });
        let over = if is_chirp || real { 1.0 } else { factor };
        let turn = |k: usize, j: usize| {
            let (re, im) = root(k * j % points, points);
            (re * over, im * over)
        };
        let half = |part: fn((f64, f64)) -> f64| (0..=length).map(move |k| T::from_f64(0.5 * part(root(k, n))));
        FourStepFft {
            kind,
            lines,
            source: if kind == LineTransform::InverseReal { n / 2 + 1 } else { n },
            target: if kind == LineTransform::Real { n / 2 + 1 } else { n },
            length,
            matrix: Matrix {
                columns: if real { Columns::Real(RealPlan::new(n1)) } else { Columns::Complex(StockhamPlan::new(n1)) },
                rows: StockhamPlan::new(n2),
                turns: vectors(n2.div_ceil(lanes), if real { n1 / 2 + 1 } else { n1 }, lanes, turn),
            },
            roots: if halved { half(|w| w.0).chain(half(|w| w.1)).collect() } else { vec![] },
            chirp,
            factor: T::from_f64(factor),
            phases: phases(kind, real, odd, is_chirp),
            lanes,
            threads,
        }
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The number of rows and columns of the matrix.
    pub(super) fn sides(&self) -> (usize, usize) {
        let n1 = match &self.matrix.columns {
            Columns::Complex(plan) => plan.n,
            Columns::Real(plan) => plan.n,
        };
        (n1, self.matrix.rows.n)
    }

    /// Returns whether threads share each line:
    /// where some threads would have no line, or where all would wait for those with one more line.
    fn shared(&self) -> bool {
        let uneven = self.lines.div_ceil(self.threads) * self.threads * 4 > self.lines * 5;
        self.lines < self.threads || uneven && self.length >= SHARED
    }

    /// The row stride of the intermediate matrix. Rows with a power-of-two stride would all map to the same sets of the L1 cache.
    pub(super) fn row(&self) -> usize {
        self.matrix.rows.n + self.lanes
    }

    /// The number of elements of a plane of scratch, and of a worker's buffer.
    fn plane(&self) -> usize {
        (self.sides().0 * self.row()).next_multiple_of(16) + 16
    }

    fn buffer(&self) -> usize {
        let (n1, n2) = self.sides();
        n1.max(n2).max(TILE) * 2 * self.lanes
    }

    /// The number of scratch elements for a line, and for a worker.
    fn each(&self) -> (usize, usize) {
        let work =
            self.phases.iter().any(|p| !matches!(p, Phase::Columns(At::Source, _) | Phase::Rows(At::Target, ..)));
        let columns = match &self.matrix.columns {
            Columns::Complex(plan) => plan.scratch,
            Columns::Real(plan) => plan.scratch(),
        };
        let own = columns.max(self.matrix.rows.scratch) * 2 * self.lanes;
        (if work { 4 } else { 2 } * self.plane(), 2 * self.buffer() + own)
    }

    pub(super) fn scratch(&self) -> usize {
        let (line, worker) = self.each();
        worker * self.threads + line * if self.shared() { 1 } else { self.threads }
    }

    /// The number of units of work into which a phase can be split.
    fn units(&self, phase: Phase) -> usize {
        let (n1, n2) = self.sides();
        match phase {
            Phase::Columns(..) | Phase::RealColumns | Phase::BackColumns => n2.div_ceil(self.lanes),
            Phase::Rows(..) => n1.div_ceil(self.lanes),
            Phase::RealRows | Phase::BackRows => (n1 / 2 + 1).div_ceil(self.lanes),
            Phase::Chirp(..) => n1 * n2,
            _ => self.length + 1,
        }
    }

    /// Transforms all lines.
    ///
    /// # Safety
    /// The planes are valid for all lines and may be the same ones, and `scratch` has the size that the plan asked for.
    pub(super) unsafe fn run(
        &self,
        pool: &ThreadPool,
        isa: Isa,
        from: Planes<T>,
        to: Planes<T>,
        scratch: SharedPtr<T>,
        phase: unsafe fn(&FourStepFft<T>, Isa, Phase, Range<usize>, Line<T>),
    ) {
        let (each, own) = self.each();
        let at = |p: Planes<T>, i: usize| Planes { re: SharedPtr(p.re.at(i)), im: SharedPtr(p.im.at(i)) };
        let line = |i: usize, place: usize, worker: usize| {
            let plane = |k: usize| SharedPtr(scratch.at(own * self.threads + place * each + k * self.plane()));
            let x = scratch.at(own * worker);
            Line {
                from: at(from, i * self.source),
                to: at(to, i * self.target),
                between: Planes { re: plane(0), im: plane(1) },
                work: Planes { re: plane(2), im: plane(3) },
                x: SharedPtr(x),
                y: SharedPtr(x.wrapping_add(self.buffer())),
                z: SharedPtr(x.wrapping_add(2 * self.buffer())),
            }
        };
        let work = self.length * 8 * if self.chirp.is_some() { 4 } else { 1 };
        if !self.shared() {
            return in_ranges(pool, self.lines, self.lines * work, &|range: Range<usize>, worker| {
                for i in range.clone() {
                    if i + 1 < range.end {
                        self.ask_for(line(i + 1, worker, worker));
                    }
                    for &p in &self.phases {
                        // SAFETY: the line and the worker's scratch are used by nothing else.
                        unsafe { phase(self, isa, p, 0..self.units(p), line(i, worker, worker)) };
                    }
                }
            });
        }
        for i in 0..self.lines {
            for &p in &self.phases {
                in_ranges(pool, self.units(p), work / 2, &|range: Range<usize>, worker| {
                    // SAFETY: units write different elements, and a worker has buffers of its own.
                    unsafe { phase(self, isa, p, range, line(i, 0, worker)) };
                });
            }
        }
    }

    /// Prefetches a line's memory: hardware prefetchers detect the next line too late.
    fn ask_for(&self, line: Line<T>) {
        let ask = |plane: SharedPtr<T>, n: usize| {
            for k in (0..n).step_by(64 / size_of::<T>()) {
                // SAFETY: what is asked for need not be there.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(plane.at(k).cast()) };
            }
        };
        if self.source * size_of::<T>() <= AHEAD {
            ask(line.from.re, self.source);
            if self.kind != LineTransform::Real {
                ask(line.from.im, self.source);
            }
        }
    }

    /// # Safety
    /// The line and its scratch are valid for the plan, and nothing else accesses these units.
    #[inline(always)]
    pub(super) unsafe fn phase<V: FftVector<Elem = T>>(&self, phase: Phase, units: Range<usize>, line: Line<T>) {
        // Inverse transforms use swapped real and imaginary parts.
        let planes = |at: At, exchanged: bool| {
            let p = match at {
                At::Source => line.from,
                At::Work => line.work,
                At::Target => line.to,
            };
            if exchanged { Planes { re: p.im, im: p.re } } else { p }
        };
        // SAFETY: the line and its scratch are valid for the plan, and nothing else accesses these units.
        unsafe {
            match phase {
                Phase::Columns(at, inverse) => self.columns::<V>(planes(at, inverse), units, line),
                Phase::Rows(at, inverse, product) => self.rows::<V>(planes(at, inverse), product, units, line),
                Phase::RealColumns | Phase::BackColumns => self.real_columns::<V>(units, line),
                Phase::RealRows => self.real_rows::<V>(units, line),
                Phase::BackRows => self.back_rows::<V>(units, line),
                Phase::Chirp(at, inverse) => self.apply_chirp::<V>(planes(at, inverse), units, line),
                Phase::Unchirp(at, inverse) => self.remove_chirp::<V>(planes(at, inverse), units, line),
                Phase::Untangle => self.untangle_real(line, units),
                Phase::Join => self.join_spectrum::<V>(line, units),
                Phase::Split => self.split_spectrum::<V>(line, units),
                Phase::Interleave => self.interleave(line, units),
                Phase::Mirror => self.hermitian_extend(line, units),
            }
        }
    }

    /// # Safety
    /// `from` and the line's scratch are valid for the matrix, nothing else accesses these columns, and every place is
    /// inside of its plane or buffer.
    #[inline(always)]
    unsafe fn columns<V: FftVector<Elem = T>>(&self, from: Planes<T>, units: Range<usize>, line: Line<T>) {
        let Columns::Complex(plan) = &self.matrix.columns else { return };
        let ((n1, n2), (x, y, z)) = (self.sides(), (line.x.at(0), line.y.at(0), line.z.at(0)));
        let own = LinePointers::buffer::<V>(x);
        for unit in units {
            let at = unit * V::LANES;
            let place = |element: usize| Place { at, line: 1, element, count: V::LANES.min(n2 - at) };
            let (source, target) = (place(n2), place(self.row()));
            // SAFETY: `from` and the line's scratch are valid for the matrix, nothing else accesses these columns, and
            // every place is inside of its plane or buffer.
            unsafe {
                let finish = FinalScale::Twiddles(self.matrix.turns.as_ptr().add(unit * n1 * 2 * V::LANES));
                if source.count == V::LANES {
                    let (from, to) = (from.seats(source), line.between.seats(target));
                    V::transform(plan, TransformBuffers { from, to, x, y, z, finish });
                    continue;
                }
                let home = LinePointers::buffer::<V>(plan.result_buffer(x, y));
                V::read(from.re.at(at), source, n1, own.re, own.step);
                V::read(from.im.at(at), source, n1, own.im, own.step);
                V::transform(plan, TransformBuffers { from: own, to: home, x, y, z, finish });
                V::write(home.re, home.step, line.between.re.at(at), target, n1);
                V::write(home.im, home.step, line.between.im.at(at), target, n1);
            }
        }
    }

    /// Transposes rows from `first` on into vectors.
    ///
    /// # Safety
    /// As for [`LongLines::phase`].
    #[inline(always)]
    pub(super) unsafe fn turn_rows<V: FftVector<Elem = T>>(&self, first: usize, count: usize, line: Line<T>) {
        let own = LinePointers::buffer::<V>(line.x.at(0));
        let place = Place { at: first * self.row(), line: self.row(), element: 1, count };
        // SAFETY: rows `first..first + count` are inside of the matrix between the passes, and the buffer has room for
        // their vectors.
        unsafe {
            V::read(line.between.re.at(place.at), place, self.matrix.rows.n, own.re, own.step);
            V::read(line.between.im.at(place.at), place, self.matrix.rows.n, own.im, own.step);
        }
    }

    /// # Safety
    /// `to` and the line's scratch are valid for the matrix, nothing else accesses these rows, and every place is
    /// inside of its plane or buffer.
    #[inline(always)]
    unsafe fn rows<V: FftVector<Elem = T>>(&self, to: Planes<T>, product: bool, units: Range<usize>, line: Line<T>) {
        let ((n1, n2), (x, y, z)) = (self.sides(), (line.x.at(0), line.y.at(0), line.z.at(0)));
        let (own, plan) = (LinePointers::buffer::<V>(x), &self.matrix.rows);
        for unit in units {
            let first = unit * V::LANES;
            let count = V::LANES.min(n1 - first);
            // SAFETY: `to` and the line's scratch are valid for the matrix, nothing else accesses these rows, and every
            // place is inside of its plane or buffer.
            unsafe {
                let finish = match &self.chirp {
                    Some(c) if product => FinalScale::Twiddles(c.kernel.as_ptr().add(unit * n2 * 2 * V::LANES)),
                    _ => FinalScale::Factor(T::from_f64(1.0)),
                };
                self.turn_rows::<V>(first, count, line);
                let place = Place { at: first, line: 1, element: n1, count };
                if count == V::LANES {
                    V::transform(plan, TransformBuffers { from: own, to: to.seats(place), x, y, z, finish });
                    continue;
                }
                let home = LinePointers::buffer::<V>(plan.result_buffer(x, y));
                V::transform(plan, TransformBuffers { from: own, to: home, x, y, z, finish });
                V::write(home.re, home.step, to.re.at(first), place, n2);
                V::write(home.im, home.step, to.im.at(first), place, n2);
            }
        }
    }
}
