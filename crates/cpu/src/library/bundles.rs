//! Fourier transforms of many lines: one line in each lane of the vectors, by Stockham's passes (`stockham.rs`).
//!
//! A bundle of lines is read into a buffer where an element of all lines is a vector of real and one of imaginary parts, turned
//! where lines lie along memory. Inverse transforms are forward ones with real and imaginary parts exchanged. A real line of
//! even length is transformed as a complex one of half the length, its even and odd elements together, and taken apart with
//! the roots of unity. Lines never meet: what one of them holds, a NaN say, stays there. Long lines that lie along memory are
//! taken as matrices (`long_lines.rs`). Lengths with larger factors are `rustfft`'s (`fourier.rs`).

use super::along::Lines;
use super::long_lines::{Line, LongLines, Phase, Real};
use super::rearrange::{Axis, tiles};
use super::stockham::{Finish, Lane, Number, Plan, Seats, Way, plus, root, times};
use super::{Machine, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::pool::Pool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::ops::{Fft, FftKind};
use ir::{DType, Type};
use std::ops::Range;

/// Elements of a line, at most: the buffers stay in the second cache.
const LONG: usize = 2048;
/// The largest prime by which lengths are divided: transforms by way of another length are quicker from about twice that.
pub(super) const ODD: usize = 127;
/// Lines, at least.
const FEW_LINES: usize = 8;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("fourier.long", LONG, "elements of a line: up to here lines are transformed side by side"),
    Threshold::new("fourier.odd", ODD, "a prime factor of a length: up to here lines are transformed side by side"),
    Threshold::new("fourier.lines", FEW_LINES, "lines: from here they are transformed side by side"),
];

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

/// A step over one axis.
struct Step<T> {
    kind: Kind,
    outer: usize,
    inner: usize,
    /// Elements of a line, as it is read and as it is written, and of the real one.
    from: usize,
    to: usize,
    real: usize,
    plan: Plan<T>,
    /// Roots of the whole length, where a real line is halved.
    roots: Vec<T>,
    factor: T,
}

/// Where planar numbers are; the second pointer is null where they are real.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    pub(super) re: Raw<T>,
    pub(super) im: Raw<T>,
}

/// Lines of a bundle in memory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: usize,
    /// From one line to the next, and from one element to the next.
    pub(super) line: usize,
    pub(super) element: usize,
    pub(super) count: usize,
}

impl<T: Number> Step<T> {
    fn new(kind: Kind, lines: Lines, from: usize, to: usize, real: usize, factor: f64) -> Option<Step<T>> {
        let halved = kind != Kind::Complex { inverse: false }
            && kind != Kind::Complex { inverse: true }
            && real.is_multiple_of(2);
        let n = match kind {
            Kind::Complex { .. } => from,
            _ if halved => real / 2,
            _ => real,
        };
        let plan = Plan::new(n)?;
        let count = if lines.inner > 1 { lines.inner } else { lines.outer };
        if n > LONG || real < 2 || count < FEW_LINES {
            return None;
        }
        let roots = match halved {
            true => (0..=n).flat_map(|k| <[f64; 2]>::from(root(k, real))).map(T::from_f64).collect(),
            false => vec![],
        };
        let factor = if halved && kind == Kind::Back { 2.0 * factor } else { factor };
        let factor = T::from_f64(factor);
        Some(Step { kind, outer: lines.outer, inner: lines.inner, from, to, real, plan, roots, factor })
    }

    /// Elements of a buffer: the longer of a line and half a spectrum, and those of a tile.
    fn elements(&self) -> usize {
        (self.plan.n.max(self.from).max(self.to) + 1).max(TILE)
    }

    fn bundles(&self, lanes: usize) -> usize {
        match self.inner {
            1 => self.outer.div_ceil(lanes),
            inner => self.outer * inner.div_ceil(lanes),
        }
    }

    /// A bundle's lines where elements of a line are `n`.
    fn place(&self, bundle: usize, lanes: usize, n: usize) -> Place {
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
    unsafe fn bundle<V: Lane<Elem = T>>(
        &self,
        isa: Isa,
        bundle: usize,
        from: Planes<T>,
        to: Planes<T>,
        x: *mut T,
        y: *mut T,
    ) {
        let halved = !self.roots.is_empty();
        let (source, target) =
            (self.place(bundle, V::LANES, self.source()), self.place(bundle, V::LANES, self.target()));
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
                        let seats =
                            Seats { re: planes.re.at(place.at), im: planes.im.at(place.at), step: place.element };
                        (place.line == 1 && place.count == V::LANES).then_some(seats)
                    };
                    let begin = direct(source, from).unwrap_or_else(|| {
                        read::<V>(isa, from.re.at(source.at), source, self.from, own.re, own.step);
                        read::<V>(isa, from.im.at(source.at), source, self.from, own.im, own.step);
                        own
                    });
                    let end = direct(target, to);
                    let (begin, last) = (begin.exchanged(inverse), end.unwrap_or(home).exchanged(inverse));
                    V::transform(&self.plan, Way { from: begin, to: last, x, y, finish });
                    if end.is_none() {
                        write::<V>(isa, home.re, home.step, to.re.at(target.at), target, self.to);
                        write::<V>(isa, home.im, home.step, to.im.at(target.at), target, self.to);
                    }
                }
                Kind::Real => {
                    let z = if halved {
                        // Even elements are real parts, odd ones imaginary parts.
                        read::<V>(isa, from.re.at(source.at), source, self.real, x, V::LANES);
                        V::transform(&self.plan, Way { from: own, to: home, x, y, finish });
                        self.untangle::<V>(home, other);
                        other
                    } else {
                        read::<V>(isa, from.re.at(source.at), source, self.real, x, 2 * V::LANES);
                        (0..self.real).for_each(|k| zero.store(own.im.add(k * own.step)));
                        V::transform(&self.plan, Way { from: own, to: home, x, y, finish });
                        home
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
                    if halved {
                        self.together::<V>(spectrum, own);
                        V::transform(&self.plan, Way { from: own, to: home.exchanged(true), x, y, finish });
                        return write::<V>(isa, home.re, V::LANES, to.re.at(target.at), target, self.real);
                    }
                    // The other half of the spectrum, and both parts exchanged.
                    for k in 0..self.real {
                        let (re, im) = spectrum.get::<V>(k.min(self.real - k));
                        let im = if k < self.from { im } else { zero.sub(im) };
                        own.put(k, (im, re));
                    }
                    V::transform(&self.plan, Way { from: own, to: home, x, y, finish });
                    write::<V>(isa, home.im, home.step, to.re.at(target.at), target, self.real);
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

    unsafe fn range(&self, isa: Isa, range: Range<usize>, from: Planes<T>, to: Planes<T>, x: *mut T, y: *mut T)
    where
        T: Wide,
    {
        // SAFETY: the caller's promise, and the machine has the instruction set.
        unsafe { T::bundles(self, isa, range, from, to, x, y) }
    }
}

/// How an axis is transformed.
enum Pass<T> {
    Bundles(Step<T>),
    Long(LongLines<T>),
}

/// Floats with vectors.
trait Wide: Real {
    fn lanes(isa: Isa) -> usize;
    /// # Safety
    /// As for [`Step::bundle`], and the machine has the instruction set.
    unsafe fn bundles(
        step: &Step<Self>,
        isa: Isa,
        range: Range<usize>,
        from: Planes<Self>,
        to: Planes<Self>,
        x: *mut Self,
        y: *mut Self,
    );
    /// # Safety
    /// As for [`LongLines::phase`], and the machine has the instruction set.
    unsafe fn phase(lines: &LongLines<Self>, isa: Isa, phase: Phase, units: Range<usize>, line: Line<Self>);
}

macro_rules! wide {
    ($t:ty, $z:ident, $y:ident, $lz:literal, $ly:literal) => {
        impl Wide for $t {
            fn lanes(isa: Isa) -> usize {
                if isa == Isa::Avx512 { $lz } else { $ly }
            }

            unsafe fn bundles(
                step: &Step<$t>,
                isa: Isa,
                range: Range<usize>,
                from: Planes<$t>,
                to: Planes<$t>,
                x: *mut $t,
                y: *mut $t,
            ) {
                {
                    use std::arch::x86_64::*;
                    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
                    unsafe fn avx512(
                        step: &Step<$t>,
                        range: Range<usize>,
                        from: Planes<$t>,
                        to: Planes<$t>,
                        x: *mut $t,
                        y: *mut $t,
                    ) {
                        // SAFETY: the caller's promise.
                        range.for_each(|i| unsafe { step.bundle::<$z>(Isa::Avx512, i, from, to, x, y) });
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2(
                        step: &Step<$t>,
                        range: Range<usize>,
                        from: Planes<$t>,
                        to: Planes<$t>,
                        x: *mut $t,
                        y: *mut $t,
                    ) {
                        // SAFETY: the caller's promise.
                        range.for_each(|i| unsafe { step.bundle::<$y>(Isa::Avx2, i, from, to, x, y) });
                    }
                    // SAFETY: the caller's promise.
                    unsafe {
                        match isa {
                            Isa::Avx512 => avx512(step, range, from, to, x, y),
                            _ => avx2(step, range, from, to, x, y),
                        }
                    }
                }
            }

            unsafe fn phase(lines: &LongLines<$t>, isa: Isa, phase: Phase, units: Range<usize>, line: Line<$t>) {
                use std::arch::x86_64::*;
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                unsafe fn avx512(lines: &LongLines<$t>, phase: Phase, units: Range<usize>, line: Line<$t>) {
                    // SAFETY: the caller's promise.
                    unsafe { lines.phase::<$z>(Isa::Avx512, phase, units, line) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(lines: &LongLines<$t>, phase: Phase, units: Range<usize>, line: Line<$t>) {
                    // SAFETY: the caller's promise.
                    unsafe { lines.phase::<$y>(Isa::Avx2, phase, units, line) }
                }
                // SAFETY: the caller's promise.
                unsafe {
                    match isa {
                        Isa::Avx512 => avx512(lines, phase, units, line),
                        _ => avx2(lines, phase, units, line),
                    }
                }
            }
        }
    };
}
wide!(f32, __m512, __m256, 16, 8);
wide!(f64, __m512d, __m256d, 8, 4);

/// What elements are moved as.
type Bits<V> = <<V as Vector>::Elem as Number>::Bits;

/// Elements of the largest tile, and lines of the largest bundle.
pub(super) const TILE: usize = 8;
const MOST_LINES: usize = 16;

/// Reads `n` elements of a bundle's lines; element `k` of all of them goes to `to + k·step`.
///
/// # Safety
/// The lines are there, and room for `n` vectors and no fewer than of a tile.
#[inline(always)]
pub(super) unsafe fn read<V: Lane>(
    isa: Isa,
    from: *const V::Elem,
    place: Place,
    n: usize,
    to: *mut V::Elem,
    step: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.line == 1 {
            return (0..n)
                .for_each(|k| V::load_first(from.add(k * place.element), place.count).store(to.add(k * step)));
        }
        let tile = <Bits<V> as tiles::Transpose>::TILE;
        if place.count >= tile && place.element == 1 {
            // Lanes without a line keep what they have: lanes never meet.
            let d = Axis { size: place.count, from: place.line as isize, to: 1 };
            let s = Axis { size: n.max(tile), from: 1, to: step as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..n, isa);
            }
            // Lines shorter than a tile are made as long first.
            let mut lines = [V::Elem::default(); TILE * MOST_LINES];
            for j in 0..place.count {
                V::load_first(from.add(j * place.line), n).store_first(lines.as_mut_ptr().add(j * tile), n);
            }
            let d = Axis { from: tile as isize, ..d };
            return tiles::transpose(lines.as_ptr().cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..tile, isa);
        }
        for k in 0..n {
            for j in 0..V::LANES {
                let there = j < place.count;
                *to.add(k * step + j) =
                    if there { *from.add(k * place.element + j * place.line) } else { V::Elem::default() };
            }
        }
    }
}

/// Writes `n` elements of a bundle's lines.
///
/// # Safety
/// The lines are there, and `n` vectors, and no fewer than of a tile.
#[inline(always)]
pub(super) unsafe fn write<V: Lane>(
    isa: Isa,
    from: *const V::Elem,
    step: usize,
    to: *mut V::Elem,
    place: Place,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.line == 1 {
            return (0..n)
                .for_each(|k| V::load(from.add(k * step)).store_first(to.add(k * place.element), place.count));
        }
        let tile = <Bits<V> as tiles::Transpose>::TILE;
        if place.count >= tile && place.element == 1 {
            let d = Axis { size: n.max(tile), from: step as isize, to: 1 };
            let s = Axis { size: place.count, from: 1, to: place.line as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..place.count, isa);
            }
            let mut lines = [V::Elem::default(); TILE * MOST_LINES];
            let s = Axis { to: tile as isize, ..s };
            let (from, at) = (from.cast::<Bits<V>>(), lines.as_mut_ptr());
            tiles::transpose(from, at.cast::<Bits<V>>(), d, s, 0..place.count, isa);
            for j in 0..place.count {
                V::load_first(at.add(j * tile), n).store_first(to.add(j * place.line), n);
            }
            return;
        }
        for j in 0..place.count {
            (0..n).for_each(|k| *to.add(k * place.element + j * place.line) = *from.add(k * step + j));
        }
    }
}

/// A transform of several axes, step by step.
struct Bundled<T> {
    steps: Vec<Pass<T>>,
    /// Elements of a plane that is kept between steps, where results can't be.
    between: usize,
    /// Elements of a worker's two buffers.
    each: usize,
    /// Elements of scratch that long lines need.
    long: usize,
    threads: usize,
    isa: Isa,
}

/// The routine of a transform that suits bundles.
pub(super) fn prepare(op: &Fft, args: &[Type], outs: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    if machine.isa == Isa::Portable || op.axes.is_empty() || args[0].numel() == 0 || outs[0].numel() == 0 {
        return None;
    }
    match args[0].dtype {
        DType::F32 => Some(Box::new(Bundled::<f32>::new(op, args, outs, machine)?)),
        DType::F64 => Some(Box::new(Bundled::<f64>::new(op, args, outs, machine)?)),
        _ => None,
    }
}

impl<T: Wide> Bundled<T> {
    fn new(op: &Fft, args: &[Type], outs: &[Type], machine: Machine) -> Option<Bundled<T>> {
        let (last, others) = op.axes.split_last()?;
        let back = matches!(op.kind, FftKind::InverseReal { .. });
        // The full side and the complex side, which are one unless the transform is real.
        let (full, complex) = if back { (&outs[0], &args[0]) } else { (&args[0], &outs[0]) };
        let inverse = back || op.kind == FftKind::Inverse;
        let points: f64 = op.axes.iter().map(|&a| full.shape[a] as f64).product();
        let scale = if inverse { 1.0 / points } else { 1.0 };
        let lanes = T::lanes(machine.isa);
        let pass = |kind: Kind, axis: usize, n: usize, factor: f64| {
            let (lines, side) = (Lines::new(complex, axis), complex.shape[axis]);
            let long = |any: bool| {
                let threads = machine.threads;
                let own = || LongLines::new(kind, lines.outer, n, factor, lanes, threads, any).map(Pass::Long);
                if lines.inner == 1 { own() } else { None }
            };
            let bundles = || Step::new(kind, lines, side, side, n, factor).map(Pass::Bundles);
            long(false).or_else(bundles).or_else(|| long(true))
        };
        let mut steps = vec![];
        let step = |axis: usize, factor: f64| pass(Kind::Complex { inverse }, axis, complex.shape[axis], factor);
        let kind = match op.kind {
            FftKind::Real => Kind::Real,
            FftKind::InverseReal { .. } => Kind::Back,
            _ => Kind::Complex { inverse },
        };
        let own = pass(kind, *last, full.shape[*last], scale)?;
        if back {
            for &a in others {
                steps.push(step(a, 1.0)?);
            }
            steps.push(own);
        } else {
            steps.push(own);
            for &a in others {
                steps.push(step(a, 1.0)?);
            }
        }
        let bundles = |p: &Pass<T>| if let Pass::Bundles(s) = p { s.elements() * 4 * lanes } else { 0 };
        let long = |p: &Pass<T>| if let Pass::Long(l) = p { l.scratch() } else { 0 };
        let most = |f: &dyn Fn(&Pass<T>) -> usize| steps.iter().map(f).max();
        Some(Bundled {
            between: if back && steps.len() > 1 { complex.numel().next_multiple_of(16) } else { 0 },
            each: most(&bundles)?,
            long: most(&long)?,
            steps,
            threads: machine.threads,
            isa: machine.isa,
        })
    }
}

impl<T: Wide> Routine for Bundled<T> {
    fn scratch_bytes(&self) -> usize {
        (2 * self.between + self.long.max(self.each * self.threads)) * size_of::<T>()
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let scratch = scratch.cast::<T>();
        let plane = |p: Option<*mut u8>| Raw(p.unwrap_or(std::ptr::null_mut()).cast::<T>());
        let input =
            Planes { re: plane(args.first().map(|p| p.cast_mut())), im: plane(args.get(1).map(|p| p.cast_mut())) };
        let output = Planes { re: plane(outs.first().copied()), im: plane(outs.get(1).copied()) };
        let between = Planes { re: Raw(scratch), im: Raw(scratch.wrapping_add(self.between)) };
        let own = Raw(scratch.wrapping_add(2 * self.between));
        let last = self.steps.len() - 1;
        for (i, step) in self.steps.iter().enumerate() {
            let from = match i {
                0 => input,
                _ if self.between > 0 => between,
                _ => output,
            };
            let to = if self.between > 0 && i < last { between } else { output };
            let step = match step {
                Pass::Bundles(step) => step,
                Pass::Long(lines) => {
                    // SAFETY: planes are those of the step; a line is read before it is written.
                    unsafe { lines.run(pool, self.isa, from, to, own, T::phase) };
                    continue;
                }
            };
            let bundles = step.bundles(T::lanes(self.isa));
            let work = step.outer * step.inner * step.plan.n * 8;
            in_ranges(pool, bundles, work, &|range: Range<usize>, worker| {
                let x = own.at(worker * self.each);
                let y = own.at(worker * self.each + self.each / 2);
                // SAFETY: planes are those of the step, a worker has buffers of its own, and bundles are one range's. A bundle is
                // read before it is written, so that a step may work in place.
                unsafe { step.range(self.isa, range, from, to, x, y) };
            });
        }
        Ok(())
    }
}
