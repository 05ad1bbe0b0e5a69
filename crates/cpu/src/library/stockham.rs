//! Stockham's passes of radices 8, 4, 2, 3, 5 and other small primes over vectors with a line in each lane.
//!
//! The first pass reads lines where they are, and the last one writes them where they go: stores are what passes wait for.

use super::bundles::ODD;
use super::rearrange::tiles;
use crate::gemm::vector::{Float, Vector};
use std::f64::consts::TAU;

/// A float whose vectors are transformed.
pub(super) trait Number: Float {
    /// Bits that are moved.
    type Bits: tiles::Transpose;
}

impl Number for f32 {
    type Bits = u32;
}

impl Number for f64 {
    type Bits = u64;
}

/// A vector with a line in each lane. That the machine has the instruction set is the safety condition of all methods.
pub(super) trait Lane: Vector<Elem: Number> {
    unsafe fn sub(self, b: Self) -> Self;
    /// `c - self·b`
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// The last lane first.
    unsafe fn reversed(self) -> Self;
    /// [`Plan::passes`], once for all who call it.
    unsafe fn transform(plan: &Plan<Self::Elem>, way: Way<Self::Elem>);
}

mod x86 {
    use super::{Lane, Plan, Way};
    use std::arch::x86_64::*;

    macro_rules! lane {
        ($v:ty, $t:ty, $features:literal, $sub:ident, $fnma:ident, |$x:ident| $reversed:expr) => {
            impl Lane for $v {
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
                unsafe fn reversed(self) -> Self {
                    let $x = self;
                    // SAFETY: as above.
                    unsafe { $reversed }
                }
                #[inline]
                unsafe fn transform(plan: &Plan<$t>, way: Way<$t>) {
                    #[target_feature(enable = $features)]
                    unsafe fn with_features(plan: &Plan<$t>, way: Way<$t>) {
                        // SAFETY: the caller's promise.
                        unsafe { plan.passes::<$v>(way) }
                    }
                    // SAFETY: as above.
                    unsafe { with_features(plan, way) }
                }
            }
        };
    }
    lane!(__m512, f32, "avx512f,avx512vl,avx512dq,avx512bw,fma", _mm512_sub_ps, _mm512_fnmadd_ps, |x| {
        _mm512_permutexvar_ps(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), x)
    });
    lane!(__m512d, f64, "avx512f,avx512vl,avx512dq,avx512bw,fma", _mm512_sub_pd, _mm512_fnmadd_pd, |x| {
        _mm512_permutexvar_pd(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), x)
    });
    lane!(__m256, f32, "avx2,fma", _mm256_sub_ps, _mm256_fnmadd_ps, |x| {
        _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0))
    });
    lane!(__m256d, f64, "avx2,fma", _mm256_sub_pd, _mm256_fnmadd_pd, |x| _mm256_permute4x64_pd::<0b00_01_10_11>(x));
}

/// Where lines are: for each element a vector of real parts and one of imaginary parts, `step` from one element to the next.
#[derive(Clone, Copy)]
pub(super) struct Seats<T> {
    pub(super) re: *mut T,
    pub(super) im: *mut T,
    pub(super) step: usize,
}

impl<T: Number> Seats<T> {
    /// A buffer: both parts of an element, then those of the next.
    #[inline(always)]
    pub(super) fn buffer<V: Lane<Elem = T>>(x: *mut T) -> Seats<T> {
        Seats { re: x, im: x.wrapping_add(V::LANES), step: 2 * V::LANES }
    }

    /// Real parts as imaginary ones, and these as real ones, if so.
    #[inline(always)]
    pub(super) fn exchanged(self, so: bool) -> Seats<T> {
        if so { Seats { re: self.im, im: self.re, ..self } } else { self }
    }

    /// # Safety
    /// Element `k` is there.
    #[inline(always)]
    pub(super) unsafe fn get<V: Lane<Elem = T>>(self, k: usize) -> Z<V> {
        // SAFETY: the caller's promise.
        unsafe { (V::load(self.re.add(k * self.step)), V::load(self.im.add(k * self.step))) }
    }

    /// # Safety
    /// Element `k` is there.
    #[inline(always)]
    pub(super) unsafe fn put<V: Lane<Elem = T>>(self, k: usize, z: Z<V>) {
        // SAFETY: the caller's promise.
        unsafe {
            z.0.store(self.re.add(k * self.step));
            z.1.store(self.im.add(k * self.step));
        }
    }
}

/// What the last pass multiplies its results by.
#[derive(Clone, Copy)]
pub(super) enum Finish<T> {
    Factor(T),
    /// A complex vector for each element, as in a buffer.
    Turns(*const T),
}

/// Where a transform reads and writes, which may be the same place, and two buffers for what is between, one of which may be what is read.
#[derive(Clone, Copy)]
pub(super) struct Way<T> {
    pub(super) from: Seats<T>,
    pub(super) to: Seats<T>,
    pub(super) x: *mut T,
    pub(super) y: *mut T,
    pub(super) finish: Finish<T>,
}

/// Real and imaginary parts.
pub(super) type Z<V> = (V, V);

#[inline(always)]
pub(super) unsafe fn plus<V: Lane>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: instructions only, here and below.
    unsafe { (a.0.add(b.0), a.1.add(b.1)) }
}

#[inline(always)]
pub(super) unsafe fn less<V: Lane>(a: Z<V>, b: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.0.sub(b.0), a.1.sub(b.1)) }
}

/// `a + -i·d` and `a - -i·d`.
#[inline(always)]
pub(super) unsafe fn quarter<V: Lane>(a: Z<V>, d: Z<V>) -> [Z<V>; 2] {
    // SAFETY: as above.
    unsafe { [(a.0.add(d.1), a.1.sub(d.0)), (a.0.sub(d.1), a.1.add(d.0))] }
}

/// `a·w`.
#[inline(always)]
pub(super) unsafe fn times<V: Lane>(a: Z<V>, w: Z<V>) -> Z<V> {
    // SAFETY: as above.
    unsafe { (a.1.neg_mul_add(w.1, a.0.mul(w.0)), a.0.mul_add(w.1, a.1.mul(w.0))) }
}

/// The transform of four elements.
#[inline(always)]
unsafe fn four<V: Lane>(a: [Z<V>; 4]) -> [Z<V>; 4] {
    // SAFETY: as above.
    unsafe {
        let (t0, t1) = (plus(a[0], a[2]), less(a[0], a[2]));
        let (t2, t3) = (plus(a[1], a[3]), less(a[1], a[3]));
        let [b1, b3] = quarter(t1, t3);
        [plus(t0, t2), b1, less(t0, t2), b3]
    }
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
        let and = |z: Z<V>, f: V, c: Z<V>| (z.0.mul_add(f, c.0), z.1.mul_add(f, c.1));
        match R {
            1 => {}
            2 => (b[0], b[1]) = (plus(a[0], a[1]), less(a[0], a[1])),
            3 => {
                let t = plus(a[1], a[2]);
                let c = and(t, k(-0.5), a[0]);
                let d = scaled(less(a[1], a[2]), k(0.866_025_403_784_438_6));
                b[0] = plus(a[0], t);
                [b[1], b[2]] = quarter(c, d);
            }
            4 => [b[0], b[1], b[2], b[3]] = four([a[0], a[1], a[2], a[3]]),
            8 => {
                let even = four([a[0], a[2], a[4], a[6]]);
                let odd = four([a[1], a[3], a[5], a[7]]);
                // Turned by an eighth, a quarter and three eighths.
                let eighth = k(std::f64::consts::FRAC_1_SQRT_2);
                let (o1, o3) = (odd[1], odd[3]);
                let first = (o1.0.add(o1.1).mul(eighth), o1.1.sub(o1.0).mul(eighth));
                let third = (o3.1.sub(o3.0).mul(eighth), o3.0.add(o3.1).mul(eighth));
                (b[0], b[4]) = (plus(even[0], odd[0]), less(even[0], odd[0]));
                (b[1], b[5]) = (plus(even[1], first), less(even[1], first));
                [b[2], b[6]] = quarter(even[2], odd[2]);
                // The third's imaginary part has the other sign.
                b[3] = (even[3].0.add(third.0), even[3].1.sub(third.1));
                b[7] = (even[3].0.sub(third.0), even[3].1.add(third.1));
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

/// One pass but the last: lines of `m` elements, `s` of them interleaved, become those of `m / R`.
#[inline(always)]
unsafe fn pass<V: Lane, const R: usize>(x: Seats<V::Elem>, y: Seats<V::Elem>, m: usize, s: usize, roots: &[V::Elem]) {
    let each = m / R;
    // SAFETY: the caller vouches for `m·s` elements on both sides.
    unsafe {
        let zero = V::splat(V::Elem::default());
        for p in 0..each {
            let mut w = [(zero, zero); R];
            for (j, w) in w.iter_mut().enumerate().skip(1) {
                let at = 2 * (p * (R - 1) + j - 1);
                *w = (V::splat(roots[at]), V::splat(roots[at + 1]));
            }
            for q in 0..s {
                let mut a = [(zero, zero); R];
                for (j, a) in a.iter_mut().enumerate() {
                    *a = x.get(q + s * (p + j * each));
                }
                let b = small::<V, R>(a);
                y.put(q + s * R * p, b[0]);
                for j in 1..R {
                    let z = if p == 0 { b[j] } else { times(b[j], w[j]) };
                    y.put(q + s * (R * p + j), z);
                }
            }
        }
    }
}

/// The last pass, of `s` interleaved lines of `R` elements.
#[inline(always)]
unsafe fn last<V: Lane, const R: usize>(x: Seats<V::Elem>, y: Seats<V::Elem>, s: usize, finish: Finish<V::Elem>) {
    // SAFETY: the caller vouches for `R·s` elements on both sides, and as many turns.
    unsafe {
        let zero = V::splat(V::Elem::default());
        for q in 0..s {
            let mut a = [(zero, zero); R];
            for (j, a) in a.iter_mut().enumerate() {
                *a = x.get(q + s * j);
            }
            let b = small::<V, R>(a);
            match finish {
                Finish::Factor(f) => {
                    let f = V::splat(f);
                    (0..R).for_each(|j| y.put(q + s * j, (b[j].0.mul(f), b[j].1.mul(f))));
                }
                Finish::Turns(turns) => {
                    let turns = Seats::buffer::<V>(turns.cast_mut());
                    (0..R).for_each(|j| y.put(q + s * j, times(b[j], turns.get(q + s * j))));
                }
            }
        }
    }
}

/// A pass of an odd radix that has no code of its own, the last one if there is something to finish: sums and differences of elements as far from
/// both ends, times cosines and sines.
#[inline(always)]
unsafe fn odd<V: Lane>(
    x: Seats<V::Elem>,
    y: Seats<V::Elem>,
    (r, m, s): (usize, usize, usize),
    roots: &[V::Elem],
    finish: Option<Finish<V::Elem>>,
) {
    let (each, half) = (m / r, r / 2);
    let (own, turns) = roots.split_at(2 * r);
    // SAFETY: the caller vouches for `m·s` elements on both sides.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let (mut sums, mut differences) = ([(zero, zero); ODD / 2], [(zero, zero); ODD / 2]);
        for (p, q) in (0..each).flat_map(|p| (0..s).map(move |q| (p, q))) {
            let first = x.get::<V>(q + s * p);
            let mut all = first;
            for j in 1..=half {
                let (a, b) = (x.get::<V>(q + s * (p + j * each)), x.get::<V>(q + s * (p + (r - j) * each)));
                (sums[j - 1], differences[j - 1]) = (plus(a, b), less(a, b));
                all = plus(all, sums[j - 1]);
            }
            let put = |j: usize, z: Z<V>| {
                let z = match finish {
                    None if j * p == 0 => z,
                    None => {
                        let at = 2 * (p * (r - 1) + j - 1);
                        times(z, (V::splat(turns[at]), V::splat(turns[at + 1])))
                    }
                    Some(Finish::Factor(f)) => (z.0.mul(V::splat(f)), z.1.mul(V::splat(f))),
                    Some(Finish::Turns(turns)) => times(z, Seats::buffer::<V>(turns.cast_mut()).get(q + s * j)),
                };
                y.put(q + s * (r * p + j), z);
            };
            put(0, all);
            // Two results and their mirror images at a time; the last may be computed twice.
            for k in (1..=half).step_by(2) {
                let ks = [k, (k + 1).min(half)];
                let (mut at, mut even, mut odd) = ([0; 2], [first; 2], [(zero, zero); 2]);
                for (sum, difference) in sums[..half].iter().zip(&differences) {
                    for i in 0..2 {
                        at[i] += ks[i];
                        at[i] -= if at[i] >= r { r } else { 0 };
                        let (cos, sin) = (V::splat(own[2 * at[i]]), V::splat(own[2 * at[i] + 1]));
                        even[i] = (sum.0.mul_add(cos, even[i].0), sum.1.mul_add(cos, even[i].1));
                        odd[i] = (difference.0.neg_mul_add(sin, odd[i].0), difference.1.neg_mul_add(sin, odd[i].1));
                    }
                }
                for i in 0..2 {
                    let [a, b] = quarter(even[i], odd[i]);
                    put(ks[i], a);
                    put(r - ks[i], b);
                }
            }
        }
    }
}

/// How lines of a length are transformed.
pub(super) struct Plan<T> {
    pub(super) n: usize,
    /// Radix, length, interleaved lines, and where its roots begin.
    passes: Vec<(usize, usize, usize, usize)>,
    roots: Vec<T>,
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

impl<T: Number> Plan<T> {
    pub(super) fn new(n: usize) -> Option<Plan<T>> {
        let (mut m, mut s) = (n, 1);
        let (mut passes, mut roots) = (vec![], vec![]);
        while m > 1 {
            // Sixteen are better as four fours than as two eights.
            let mut radices = [8, 4, 2, 3, 5].into_iter().chain((7..=ODD).step_by(2));
            let r = radices.find(|&r| m.is_multiple_of(r) && (m, r) != (16, 8))?;
            passes.push((r, m, s, roots.len()));
            if r > 8 || r == 7 {
                for k in 0..r {
                    let (re, im) = root(k, r);
                    roots.extend([T::from_f64(re), T::from_f64(im)]);
                }
            }
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

    /// The buffer in which a result can be that is not written where it goes, if what is read is not in `y`.
    pub(super) fn home(&self, x: *mut T, y: *mut T) -> *mut T {
        if self.passes.len().is_multiple_of(2) { x } else { y }
    }

    /// Transforms lines.
    ///
    /// # Safety
    /// The machine has the instructions; `n` elements are at both ends and in both buffers, and [`Plan::home`] says which of them may be an end.
    #[inline(always)]
    unsafe fn passes<V: Lane<Elem = T>>(&self, way: Way<T>) {
        let Way { mut from, to, x, y, finish } = way;
        let Some((&(last_radix, m, s, at), before)) = self.passes.split_last() else {
            // SAFETY: the caller's promise.
            return unsafe { last::<V, 1>(from, to, 1, finish) };
        };
        for (i, &(r, m, s, at)) in before.iter().enumerate() {
            let (roots, to) = (&self.roots[at..], Seats::buffer::<V>(if i.is_multiple_of(2) { y } else { x }));
            // SAFETY: the caller's promise, here and below.
            unsafe {
                match r {
                    2 => pass::<V, 2>(from, to, m, s, roots),
                    3 => pass::<V, 3>(from, to, m, s, roots),
                    4 => pass::<V, 4>(from, to, m, s, roots),
                    5 => pass::<V, 5>(from, to, m, s, roots),
                    8 => pass::<V, 8>(from, to, m, s, roots),
                    _ => odd::<V>(from, to, (r, m, s), roots, None),
                }
            }
            from = to;
        }
        // SAFETY: as above.
        unsafe {
            match last_radix {
                2 => last::<V, 2>(from, to, s, finish),
                3 => last::<V, 3>(from, to, s, finish),
                4 => last::<V, 4>(from, to, s, finish),
                5 => last::<V, 5>(from, to, s, finish),
                8 => last::<V, 8>(from, to, s, finish),
                _ => odd::<V>(from, to, (last_radix, m, s), &self.roots[at..], Some(finish)),
            }
        }
    }
}
