//! Stockham's passes of radices 8, 4, 2, 3 and 5 over vectors with a line in each lane.

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
}

mod x86 {
    use super::Lane;
    use std::arch::x86_64::*;

    macro_rules! lane {
        ($v:ty, $sub:ident, $fnma:ident) => {
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
            }
        };
    }
    lane!(__m512, _mm512_sub_ps, _mm512_fnmadd_ps);
    lane!(__m512d, _mm512_sub_pd, _mm512_fnmadd_pd);
    lane!(__m256, _mm256_sub_ps, _mm256_fnmadd_ps);
    lane!(__m256d, _mm256_sub_pd, _mm256_fnmadd_pd);
}

/// Real and imaginary parts.
pub(super) type Z<V> = (V, V);

#[inline(always)]
pub(super) unsafe fn get<V: Lane>(x: *const V::Elem, k: usize) -> Z<V> {
    // SAFETY: the caller vouches for element `k`.
    unsafe {
        let at = x.add(2 * k * V::LANES);
        (V::load(at), V::load(at.add(V::LANES)))
    }
}

#[inline(always)]
pub(super) unsafe fn put<V: Lane>(y: *mut V::Elem, k: usize, z: Z<V>) {
    // SAFETY: the caller vouches for element `k`.
    unsafe {
        let at = y.add(2 * k * V::LANES);
        z.0.store(at);
        z.1.store(at.add(V::LANES));
    }
}

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
            let r = [8, 4, 2, 3, 5].into_iter().find(|&r| m.is_multiple_of(r) && (m, r) != (16, 8))?;
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
    pub(super) unsafe fn run<V: Lane<Elem = T>>(&self, mut x: *mut T, mut y: *mut T) -> (*mut T, *mut T) {
        for &(r, m, s, at) in &self.passes {
            let roots = &self.roots[at..];
            // SAFETY: the caller vouches for two buffers of `n` elements.
            unsafe {
                match r {
                    2 => pass::<V, 2>(x, y, m, s, roots),
                    3 => pass::<V, 3>(x, y, m, s, roots),
                    4 => pass::<V, 4>(x, y, m, s, roots),
                    8 => pass::<V, 8>(x, y, m, s, roots),
                    _ => pass::<V, 5>(x, y, m, s, roots),
                }
            }
            std::mem::swap(&mut x, &mut y);
        }
        (x, y)
    }
}
