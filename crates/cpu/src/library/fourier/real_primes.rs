//! Transforms of real lines of prime length, and their inverses, as convolutions of real numbers.
//!
//! In the order of a generator's powers, the transform is a cyclic convolution with roots of unity (`rader_bluestein.rs`). After
//! half of the roots the conjugates follow: real parts repeat and imaginary parts change sign. So one real convolution, with the
//! sum of both parts, gives all results. Its length is even, so it is halved like other real lines.

use super::lanes::{
    FftFloat, FftVector, FinalScale, LinePointers, TransformBuffers, Z, conj, minus, number, plus, root, times,
};
use super::rader_bluestein::{generator, powers, spectrum};
use super::real_lines::RealBuffers;
use super::stockham::StockhamPlan;

/// A transform of prime length by a real convolution with one element less.
pub(super) struct RealRader<T> {
    /// The plan of the half-length complex transform.
    plan: StockhamPlan<T>,
    sources: Vec<u32>,
    targets: Vec<u32>,
    /// The roots of unity of the full length, up to half of it.
    roots: Vec<T>,
    /// Half the spectrum of the convolution kernels, for the forward and the inverse transform.
    kernels: [Vec<T>; 2],
}

impl<T: FftFloat> RealRader<T> {
    pub(super) fn new(p: usize) -> RealRader<T> {
        let (g, n, h) = (generator(p), p - 1, (p - 1) / 2);
        let sources = powers(g, p);
        // The inverse of a power is at the same distance from the end.
        let targets: Vec<u32> = (0..n).map(|i| sources[(n - i) % n]).collect();
        let kernel = |order: &[u32], sign: f64, over: f64| -> Vec<T> {
            let real = |&k: &u32| {
                let (cos, minus_sin) = root(k as usize, p);
                (cos + sign * minus_sin, 0.0)
            };
            let all = spectrum(&order.iter().map(real).collect::<Vec<_>>());
            all[..=h].iter().flat_map(|w| [T::from_f64(w.0 / over), T::from_f64(w.1 / over)]).collect()
        };
        RealRader {
            plan: StockhamPlan::new(h),
            roots: (0..=h).flat_map(|k| <[f64; 2]>::from(root(k, n))).map(T::from_f64).collect(),
            kernels: [kernel(&targets, 1.0, n as f64), kernel(&sources, 1.0, h as f64)],
            sources,
            targets,
        }
    }

    pub(super) fn scratch(&self) -> usize {
        2 * self.plan.n + self.plan.scratch
    }

    /// Convolves the real elements in `a` with a kernel and adds `also` to all results. Returns the sum of the elements, and the
    /// address of the results.
    ///
    /// # Safety
    /// `z` is valid for the two buffers of the convolution and the plan's scratch, and `kernel` has a root for each of
    /// its elements.
    #[inline(always)]
    unsafe fn convolve_real<V: FftVector<Elem = T>>(&self, z: *mut T, kernel: &[T], also: V) -> (V, *mut T) {
        let (h, l) = (self.plan.n, V::LANES);
        let (a, b) = (z, z.wrapping_add(2 * l * h));
        let z = b.wrapping_add(2 * l * h);
        let (there, rest) = (self.plan.result_buffer(a, b), self.plan.result_buffer(b, a));
        let end = self.plan.result_buffer(there, rest);
        let middle = LinePointers::buffer::<V>(there);
        // SAFETY: `z` is valid for the two buffers of the convolution and the plan's scratch, and `kernel` has a root
        // for each of its elements.
        unsafe {
            let one = FinalScale::Factor(T::from_f64(1.0));
            V::transform(
                &self.plan,
                TransformBuffers { from: LinePointers::buffer::<V>(a), to: middle, x: a, y: b, z, finish: one },
            );
            let half = V::splat(T::from_f64(0.5));
            let z0 = middle.get::<V>(0);
            let (sum, difference) = (z0.0.add(z0.1), z0.0.sub(z0.1));
            let c = sum.mul_add(V::splat(kernel[0]), also);
            let d = difference.mul(V::splat(kernel[2 * h]));
            middle.put(0, (c.add(d).mul(half), c.sub(d).mul(half)));
            for k in 1..=h / 2 {
                let (x, y) = (middle.get::<V>(k), conj(middle.get::<V>(h - k)));
                let w = number(self.roots.as_ptr().add(2 * k));
                // Twice the even part, and twice the odd part times a root of unity.
                let (even, odd) = (plus(x, y), minus(x, y));
                let odd = times((odd.1, V::splat(T::default()).sub(odd.0)), w);
                let (x, y) = (plus(even, odd), conj(minus(even, odd)));
                let x = times(x, number(kernel.as_ptr().add(2 * k)));
                let y = conj(times(y, number(kernel.as_ptr().add(2 * (h - k)))));
                let (even, odd) = (plus(x, y), times(minus(x, y), conj(w)));
                // A quarter of `even + i·odd`, and of the same for the mirror images.
                let quarter = V::splat(T::from_f64(0.25));
                let (u, v): (Z<V>, Z<V>) =
                    ((even.0.sub(odd.1), even.1.add(odd.0)), (even.0.add(odd.1), odd.0.sub(even.1)));
                middle.put(k, (u.0.mul(quarter), u.1.mul(quarter)));
                middle.put(h - k, (v.0.mul(quarter), v.1.mul(quarter)));
            }
            let to = LinePointers::buffer::<V>(end).exchanged(true);
            let way = TransformBuffers { from: middle.exchanged(true), to, x: there, y: rest, z, finish: one };
            V::transform(&self.plan, way);
            (sum, end)
        }
    }

    /// # Safety
    /// `way` is valid for `2h + 1` elements at both ends, and its scratch for the convolution.
    #[inline(always)]
    pub(super) unsafe fn forward<V: FftVector<Elem = T>>(&self, way: RealBuffers<T>) {
        let (h, l) = (self.plan.n, V::LANES);
        // SAFETY: `way` is valid for `2h + 1` elements at both ends, and its scratch for the convolution.
        unsafe {
            let first = V::load(way.real);
            for (i, &j) in self.sources.iter().enumerate() {
                V::load(way.real.add(j as usize * way.step)).store(way.z.add(i * l));
            }
            let (sum, y) = self.convolve_real::<V>(way.z, &self.kernels[0], first);
            way.spectrum.put(0, (first.add(sum), V::splat(T::default())));
            for (i, &k) in self.targets[..h].iter().enumerate() {
                let (a, b) = (V::load(y.add(i * l)), V::load(y.add((i + h) * l)));
                let (re, im) = (a.add(b), a.sub(b));
                let k = k as usize;
                let (k, z) = if k <= h { (k, (re, im)) } else { (2 * h + 1 - k, conj((re, im))) };
                way.spectrum.put(k, z);
            }
        }
    }

    /// # Safety
    /// `way` is valid for `2h + 1` elements at both ends, and its scratch for the convolution.
    #[inline(always)]
    pub(super) unsafe fn back<V: FftVector<Elem = T>>(&self, way: RealBuffers<T>) {
        let (h, l) = (self.plan.n, V::LANES);
        // SAFETY: `way` is valid for `2h + 1` elements at both ends, and its scratch for the convolution.
        unsafe {
            let first = V::load(way.spectrum.re);
            for (i, &k) in self.targets[..h].iter().enumerate() {
                let k = k as usize;
                let a = if k <= h { way.spectrum.get::<V>(k) } else { conj(way.spectrum.get::<V>(2 * h + 1 - k)) };
                a.0.add(a.1).store(way.z.add(i * l));
                a.0.sub(a.1).store(way.z.add((i + h) * l));
            }
            let (sum, y) = self.convolve_real::<V>(way.z, &self.kernels[1], first.add(first));
            let factor = V::splat(way.factor);
            first.add(sum).mul(factor).store(way.real);
            for (i, &j) in self.sources.iter().enumerate() {
                V::load(y.add(i * l)).mul(factor).store(way.real.add(j as usize * way.step));
            }
        }
    }
}
