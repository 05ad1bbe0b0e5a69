//! Fourier transforms of many lines: one line in each lane of the vectors, by Stockham's passes of radices 4, 2, 3 and 5.
//!
//! A bundle of lines is read into a buffer where an element of all lines is a vector of real and one of imaginary parts, turned
//! where lines lie along memory. Inverse transforms are forward ones with real and imaginary parts exchanged. A real line of
//! even length is transformed as a complex one of half the length, its even and odd elements together, and taken apart with
//! the roots of unity. Lines never meet: what one of them holds, a NaN say, stays there. Few or long lines, and lengths with
//! other factors, are `rustfft`'s (`fourier.rs`).

use super::along::Lines;
use super::rearrange::{Axis, tiles};
use super::{Machine, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::pool::Pool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::ops::{Fft, FftKind};
use ir::{DType, Type};
use std::f64::consts::TAU;
use std::ops::Range;

/// Elements of a line, at most: the buffers stay in the second cache.
const LONG: usize = 2048;
/// Lines, at least.
const FEW_LINES: usize = 8;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("fourier.long", LONG, "elements of a line: up to here lines are transformed side by side"),
    Threshold::new("fourier.lines", FEW_LINES, "lines: from here they are transformed side by side"),
];

/// A float whose vectors are transformed.
pub(super) trait Number: Copy + Default + Send + Sync + PartialEq + 'static {
    /// Bits that are moved.
    type Bits: tiles::Transpose;
    fn from_f64(x: f64) -> Self;
}

impl Number for f32 {
    type Bits = u32;
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl Number for f64 {
    type Bits = u64;
    fn from_f64(x: f64) -> f64 {
        x
    }
}

/// A vector with a line in each lane. That the machine has the instruction set is the safety condition of all methods.
trait Lane: Copy {
    type Elem: Number;
    const L: usize;
    unsafe fn load(p: *const Self::Elem) -> Self;
    unsafe fn store(self, p: *mut Self::Elem);
    unsafe fn splat(x: Self::Elem) -> Self;
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    /// `self·b + c`
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// `c - self·b`
    unsafe fn fnma(self, b: Self, c: Self) -> Self;
}

mod x86 {
    use super::Lane;
    use std::arch::x86_64::*;

    macro_rules! lane {
        ($v:ty, $t:ty, $l:literal, $load:ident, $store:ident, $splat:ident, $add:ident, $sub:ident, $mul:ident, $fma:ident, $fnma:ident) => {
            impl Lane for $v {
                type Elem = $t;
                const L: usize = $l;
                #[inline(always)]
                unsafe fn load(p: *const $t) -> Self {
                    // SAFETY: the caller vouches for a vector at `p` and for the instructions, here and below.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $t) {
                    // SAFETY: as above.
                    unsafe { $store(p, self) }
                }
                #[inline(always)]
                unsafe fn splat(x: $t) -> Self {
                    // SAFETY: as above.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn add(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $add(self, b) }
                }
                #[inline(always)]
                unsafe fn sub(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $sub(self, b) }
                }
                #[inline(always)]
                unsafe fn mul(self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $mul(self, b) }
                }
                #[inline(always)]
                unsafe fn fma(self, b: Self, c: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fma(self, b, c) }
                }
                #[inline(always)]
                unsafe fn fnma(self, b: Self, c: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fnma(self, b, c) }
                }
            }
        };
    }
    lane!(
        __m512,
        f32,
        16,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_set1_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        _mm512_fmadd_ps,
        _mm512_fnmadd_ps
    );
    lane!(
        __m512d,
        f64,
        8,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_set1_pd,
        _mm512_add_pd,
        _mm512_sub_pd,
        _mm512_mul_pd,
        _mm512_fmadd_pd,
        _mm512_fnmadd_pd
    );
    lane!(
        __m256,
        f32,
        8,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_set1_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        _mm256_fmadd_ps,
        _mm256_fnmadd_ps
    );
    lane!(
        __m256d,
        f64,
        4,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_set1_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd,
        _mm256_fmadd_pd,
        _mm256_fnmadd_pd
    );
}

/// Real and imaginary parts.
type Z<V> = (V, V);

#[inline(always)]
unsafe fn get<V: Lane>(x: *const V::Elem, k: usize) -> Z<V> {
    // SAFETY: the caller vouches for element `k`.
    unsafe {
        let at = x.add(2 * k * V::L);
        (V::load(at), V::load(at.add(V::L)))
    }
}

#[inline(always)]
unsafe fn put<V: Lane>(y: *mut V::Elem, k: usize, z: Z<V>) {
    // SAFETY: the caller vouches for element `k`.
    unsafe {
        let at = y.add(2 * k * V::L);
        z.0.store(at);
        z.1.store(at.add(V::L));
    }
}

#[inline(always)]
unsafe fn plus<V: Lane>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: instructions only, here and below.
    unsafe { (a.0.add(b.0), a.1.add(b.1)) }
}

#[inline(always)]
unsafe fn less<V: Lane>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.0.sub(b.0), a.1.sub(b.1)) }
}

/// `a + -i·d` and `a - -i·d`.
#[inline(always)]
unsafe fn quarter<V: Lane>(a: Z<V>, d: Z<V>) -> [Z<V>; 2] {
    // SAFETY: as above.
    unsafe { [(a.0.add(d.1), a.1.sub(d.0)), (a.0.sub(d.1), a.1.add(d.0))] }
}

/// `a·w`.
#[inline(always)]
unsafe fn times<V: Lane>(a: Z<V>, w: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.1.fnma(w.1, a.0.mul(w.0)), a.0.fma(w.1, a.1.mul(w.0))) }
}

/// The transform of so few elements.
#[inline(always)]
unsafe fn small<V: Lane, const R: usize>(a: [Z<V>; R]) -> [Z<V>; R] {
    let mut b = a;
    // SAFETY: as above.
    unsafe {
        let k = |x: f64| V::splat(V::Elem::from_f64(x));
        let scaled = |z: Z<V>, f: V| (z.0.mul(f), z.1.mul(f));
        // `f·z + c`
        let and = |z: Z<V>, f: V, c: Z<V>| (z.0.fma(f, c.0), z.1.fma(f, c.1));
        match R {
            2 => (b[0], b[1]) = (plus(a[0], a[1]), less(a[0], a[1])),
            3 => {
                let t = plus(a[1], a[2]);
                let c = and(t, k(-0.5), a[0]);
                let d = scaled(less(a[1], a[2]), k(0.866_025_403_784_438_6));
                b[0] = plus(a[0], t);
                [b[1], b[2]] = quarter(c, d);
            }
            4 => {
                let (t0, t1) = (plus(a[0], a[2]), less(a[0], a[2]));
                let (t2, t3) = (plus(a[1], a[3]), less(a[1], a[3]));
                (b[0], b[2]) = (plus(t0, t2), less(t0, t2));
                [b[1], b[3]] = quarter(t1, t3);
            }
            _ => {
                let (c1, c2) = (k(0.309_016_994_374_947_45), k(-0.809_016_994_374_947_5));
                let (s1, s2) = (k(0.951_056_516_295_153_5), k(0.587_785_252_292_473_1));
                let (t1, t2) = (plus(a[1], a[4]), plus(a[2], a[3]));
                let (t3, t4) = (less(a[1], a[4]), less(a[2], a[3]));
                let first = and(t2, c2, and(t1, c1, a[0]));
                let second = and(t2, c1, and(t1, c2, a[0]));
                let d1 = and(t4, s2, scaled(t3, s1));
                let d2 = less(scaled(t3, s2), scaled(t4, s1));
                b[0] = plus(a[0], plus(t1, t2));
                [b[1], b[4]] = quarter(first, d1);
                [b[2], b[3]] = quarter(second, d2);
            }
        }
    }
    b
}

/// One pass: lines of `m` elements, `s` of them interleaved, become those of `m / R`.
#[inline(always)]
unsafe fn pass<V: Lane, const R: usize>(x: *const V::Elem, y: *mut V::Elem, m: usize, s: usize, roots: &[V::Elem]) {
    let each = m / R;
    // SAFETY: the caller vouches for `m·s` elements on both sides.
    unsafe {
        for p in 0..each {
            let mut w = [(V::splat(V::Elem::default()), V::splat(V::Elem::default())); R];
            for (j, w) in w.iter_mut().enumerate().skip(1) {
                let at = 2 * (p * (R - 1) + j - 1);
                *w = (V::splat(roots[at]), V::splat(roots[at + 1]));
            }
            for q in 0..s {
                let mut a = [(V::splat(V::Elem::default()), V::splat(V::Elem::default())); R];
                for (j, a) in a.iter_mut().enumerate() {
                    *a = get(x, q + s * (p + j * each));
                }
                let b = small::<V, R>(a);
                put(y, q + s * R * p, b[0]);
                for j in 1..R {
                    let z = if p == 0 { b[j] } else { times(b[j], w[j]) };
                    put(y, q + s * (R * p + j), z);
                }
            }
        }
    }
}

/// How lines of a length are transformed.
struct Plan<T> {
    n: usize,
    /// Radix, length, interleaved lines, and where its roots begin.
    passes: Vec<(usize, usize, usize, usize)>,
    roots: Vec<T>,
}

/// `e^(-2πi k/n)`, quarters of a turn exactly.
fn root(k: usize, n: usize) -> (f64, f64) {
    match (4 * k).is_multiple_of(n) {
        true => [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)][4 * k / n % 4],
        false => {
            let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
            (cos, sin)
        }
    }
}

impl<T: Number> Plan<T> {
    fn new(n: usize) -> Option<Plan<T>> {
        let (mut m, mut s) = (n, 1);
        let (mut passes, mut roots) = (vec![], vec![]);
        while m > 1 {
            let r = [4, 2, 3, 5].into_iter().find(|&r| m.is_multiple_of(r))?;
            passes.push((r, m, s, roots.len()));
            for p in 0..m / r {
                for j in 1..r {
                    let (re, im) = root(p * j % m, m);
                    roots.extend([T::from_f64(re), T::from_f64(im)]);
                }
            }
            (m, s) = (m / r, s * r);
        }
        Some(Plan { n, passes, roots })
    }

    /// Transforms what is in `x`; where the result is, `x` or `y`, and the other.
    #[inline(always)]
    unsafe fn run<V: Lane<Elem = T>>(&self, mut x: *mut T, mut y: *mut T) -> (*mut T, *mut T) {
        for &(r, m, s, at) in &self.passes {
            let roots = &self.roots[at..];
            // SAFETY: the caller vouches for two buffers of `n` elements.
            unsafe {
                match r {
                    2 => pass::<V, 2>(x, y, m, s, roots),
                    3 => pass::<V, 3>(x, y, m, s, roots),
                    4 => pass::<V, 4>(x, y, m, s, roots),
                    _ => pass::<V, 5>(x, y, m, s, roots),
                }
            }
            std::mem::swap(&mut x, &mut y);
        }
        (x, y)
    }
}

/// What a step over one axis does to its lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
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
struct Planes<T> {
    re: Raw<T>,
    im: Raw<T>,
}

/// Lines of a bundle in memory.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// From one line to the next, and from one element to the next.
    line: usize,
    element: usize,
    count: usize,
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

    /// Elements of a buffer: the longer of a line and half a spectrum.
    fn elements(&self) -> usize {
        self.plan.n.max(self.from).max(self.to) + 1
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
        let one = T::from_f64(1.0);
        let (source, target) = (self.place(bundle, V::L, self.source()), self.place(bundle, V::L, self.target()));
        // SAFETY: the caller's promise; every place is inside of its plane or buffer.
        unsafe {
            match self.kind {
                Kind::Complex { inverse } => {
                    let (re, im) = if inverse { (V::L, 0) } else { (0, V::L) };
                    read::<V>(isa, from.re.at(source.at), source, self.from, x.add(re), 2 * V::L);
                    read::<V>(isa, from.im.at(source.at), source, self.from, x.add(im), 2 * V::L);
                    let (z, _) = self.plan.run::<V>(x, y);
                    if self.factor != one {
                        let f = V::splat(self.factor);
                        (0..2 * self.to).for_each(|k| V::load(z.add(k * V::L)).mul(f).store(z.add(k * V::L)));
                    }
                    write::<V>(isa, z.add(re), 2 * V::L, to.re.at(target.at), target, self.to);
                    write::<V>(isa, z.add(im), 2 * V::L, to.im.at(target.at), target, self.to);
                }
                Kind::Real => {
                    let zero = V::splat(T::default());
                    let z = if halved {
                        // Even elements are real parts, odd ones imaginary parts.
                        read::<V>(isa, from.re.at(source.at), source, self.real, x, V::L);
                        let (z, other) = self.plan.run::<V>(x, y);
                        self.apart::<V>(z, other);
                        other
                    } else {
                        read::<V>(isa, from.re.at(source.at), source, self.real, x, 2 * V::L);
                        (0..self.real).for_each(|k| zero.store(x.add((2 * k + 1) * V::L)));
                        self.plan.run::<V>(x, y).0
                    };
                    write::<V>(isa, z, 2 * V::L, to.re.at(target.at), target, self.to);
                    write::<V>(isa, z.add(V::L), 2 * V::L, to.im.at(target.at), target, self.to);
                }
                Kind::Back => {
                    read::<V>(isa, from.re.at(source.at), source, self.from, y, 2 * V::L);
                    read::<V>(isa, from.im.at(source.at), source, self.from, y.add(V::L), 2 * V::L);
                    // What a real signal's spectrum can't hold is ignored.
                    let zero = V::splat(T::default());
                    zero.store(y.add(V::L));
                    if self.real.is_multiple_of(2) {
                        zero.store(y.add((2 * (self.from - 1) + 1) * V::L));
                    }
                    let f = V::splat(self.factor);
                    if halved {
                        self.together::<V>(y, x);
                        let (z, _) = self.plan.run::<V>(x, y);
                        for k in 0..self.plan.n {
                            let (re, im) = get::<V>(z, k);
                            put(z, k, (im.mul(f), re.mul(f)));
                        }
                        write::<V>(isa, z, V::L, to.re.at(target.at), target, self.real);
                        return;
                    }
                    // The other half of the spectrum, and both parts exchanged.
                    for k in 0..self.real {
                        let (re, im) = get::<V>(y, k.min(self.real - k));
                        let im = if k < self.from { im } else { zero.sub(im) };
                        put(x, k, (im, re));
                    }
                    let (z, _) = self.plan.run::<V>(x, y);
                    for k in 0..self.real {
                        let (_, re) = get::<V>(z, k);
                        re.mul(f).store(z.add((2 * k + 1) * V::L));
                    }
                    write::<V>(isa, z.add(V::L), 2 * V::L, to.re.at(target.at), target, self.real);
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
    unsafe fn apart<V: Lane<Elem = T>>(&self, z: *const T, to: *mut T) {
        let h = self.plan.n;
        // SAFETY: the caller vouches for `h` elements, and for one more at `to`.
        unsafe {
            let half = V::splat(T::from_f64(0.5));
            for k in 0..=h {
                let (a, b) = (get::<V>(z, k % h), get::<V>(z, (h - k) % h));
                let even = (a.0.add(b.0).mul(half), a.1.sub(b.1).mul(half));
                let odd = (a.0.sub(b.0).mul(half), a.1.add(b.1).mul(half));
                let w = (V::splat(self.roots[2 * k]), V::splat(self.roots[2 * k + 1]));
                // (a - b*) / 2i, turned.
                let zero = V::splat(T::default());
                put(to, k, plus(even, times((odd.1, zero.sub(odd.0)), w)));
            }
        }
    }

    /// The transform of real lines' halves from their spectrum, both parts exchanged.
    #[inline(always)]
    unsafe fn together<V: Lane<Elem = T>>(&self, spectrum: *const T, to: *mut T) {
        let h = self.plan.n;
        // SAFETY: the caller vouches for `h + 1` elements, and for `h` at `to`.
        unsafe {
            let half = V::splat(T::from_f64(0.5));
            let zero = V::splat(T::default());
            for k in 0..h {
                let (a, b) = (get::<V>(spectrum, k), get::<V>(spectrum, h - k));
                let even = (a.0.add(b.0).mul(half), a.1.sub(b.1).mul(half));
                let odd = (a.0.sub(b.0).mul(half), a.1.add(b.1).mul(half));
                let w = (V::splat(self.roots[2 * k]), zero.sub(V::splat(self.roots[2 * k + 1])));
                let odd = times(odd, w);
                put(to, k, (even.1.add(odd.0), even.0.sub(odd.1)));
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

/// Floats with vectors.
trait Wide: Number {
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
        }
    };
}
wide!(f32, __m512, __m256, 16, 8);
wide!(f64, __m512d, __m256d, 8, 4);

/// Reads `n` elements of a bundle's lines; element `k` of all of them goes to `to + k·step`.
///
/// # Safety
/// The lines are there, and room for `n` vectors.
#[inline(always)]
unsafe fn read<V: Lane>(isa: Isa, from: *const V::Elem, place: Place, n: usize, to: *mut V::Elem, step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.count == V::L && place.line == 1 {
            (0..n).for_each(|k| V::load(from.add(k * place.element)).store(to.add(k * step)));
            return;
        }
        if place.count == V::L && place.element == 1 {
            let d = Axis { size: V::L, from: place.line as isize, to: 1 };
            let s = Axis { size: n, from: 1, to: step as isize };
            type Bits<V> = <<V as Lane>::Elem as Number>::Bits;
            return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..n, isa);
        }
        for k in 0..n {
            for j in 0..V::L {
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
/// The lines are there, and `n` vectors.
#[inline(always)]
unsafe fn write<V: Lane>(isa: Isa, from: *const V::Elem, step: usize, to: *mut V::Elem, place: Place, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.count == V::L && place.line == 1 {
            (0..n).for_each(|k| V::load(from.add(k * step)).store(to.add(k * place.element)));
            return;
        }
        type Bits<V> = <<V as Lane>::Elem as Number>::Bits;
        if place.count == V::L && place.element == 1 && n >= <Bits<V> as tiles::Transpose>::TILE {
            let d = Axis { size: n, from: step as isize, to: 1 };
            let s = Axis { size: V::L, from: 1, to: place.line as isize };
            return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..V::L, isa);
        }
        for j in 0..place.count {
            (0..n).for_each(|k| *to.add(k * place.element + j * place.line) = *from.add(k * step + j));
        }
    }
}

/// A transform of several axes, step by step.
struct Bundled<T> {
    steps: Vec<Step<T>>,
    /// Elements of a plane that is kept between steps, where results can't be.
    between: usize,
    /// Elements of a worker's two buffers.
    each: usize,
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
        let mut steps = vec![];
        let step = |axis: usize, factor: f64| {
            let n = complex.shape[axis];
            Step::new(Kind::Complex { inverse }, Lines::new(complex, axis), n, n, n, factor)
        };
        let (n, half) = (full.shape[*last], complex.shape[*last]);
        let kind = match op.kind {
            FftKind::Real => Kind::Real,
            FftKind::InverseReal { .. } => Kind::Back,
            _ => Kind::Complex { inverse },
        };
        let own = Step::new(kind, Lines::new(complex, *last), half, half, n, scale)?;
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
        let lanes = T::lanes(machine.isa);
        let room = steps.iter().map(Step::elements).max()? * 2 * lanes;
        Some(Bundled {
            between: if back && steps.len() > 1 { complex.numel().next_multiple_of(16) } else { 0 },
            steps,
            each: 2 * room,
            threads: machine.threads,
            isa: machine.isa,
        })
    }
}

impl<T: Wide> Routine for Bundled<T> {
    fn scratch_bytes(&self) -> usize {
        (2 * self.between + self.each * self.threads) * size_of::<T>()
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
