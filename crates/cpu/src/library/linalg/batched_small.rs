//! Cholesky and LU factors of many small matrices, one matrix per SIMD lane: a single small matrix cannot fill vectors by itself.
//!
//! Element `(i, j)` of all matrices of a bundle is one vector. Lanes are independent; lanes without a matrix repeat the last matrix.

use super::super::rearrange::{Axis, tiles};
use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr, in_ranges};
use super::FactorizationKind;
use super::real::Real;
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::pool::ThreadPool;
use compiler::Result;
use ir::{DType, Type};
use std::marker::PhantomData;
use std::ops::Range;

/// The maximum number of rows and columns of a matrix.
pub(super) const MAX_BATCHED_SIZE: usize = 64;
/// The number of lanes of the widest vector.
const LANES: usize = 16;

struct BatchedFactorization<T> {
    lu: bool,
    m: usize,
    n: usize,
    batch: usize,
    lanes: usize,
    threads: usize,
    isa: Isa,
    elements: PhantomData<fn() -> T>,
}

/// Returns the routine for a batch that fills most of the lanes.
pub(super) fn prepare(
    kind: FactorizationKind,
    a: &Type,
    batch: usize,
    machine: CpuContext,
) -> Option<Box<dyn OpRoutine>> {
    let [.., m, n] = *a.shape else { return None };
    let lu = match kind {
        FactorizationKind::Lu => true,
        FactorizationKind::Cholesky => false,
        _ => return None,
    };
    let lanes = match (machine.isa, a.dtype) {
        (Isa::Portable, _) => return None,
        (Isa::Avx512, DType::F32) => 16,
        (Isa::Avx512, DType::F64) | (Isa::Avx2, DType::F32) => 8,
        (Isa::Avx2, DType::F64) => 4,
        _ => return None,
    };
    let filled = 4 * batch >= 3 * batch.next_multiple_of(lanes);
    if !(1..=MAX_BATCHED_SIZE).contains(&m) || !(1..=MAX_BATCHED_SIZE).contains(&n) || !filled {
        return None;
    }
    let (threads, isa) = (machine.threads, machine.isa);
    Some(match a.dtype {
        DType::F32 => {
            Box::new(BatchedFactorization::<f32> { lu, m, n, batch, lanes, threads, isa, elements: PhantomData })
        }
        _ => Box::new(BatchedFactorization::<f64> { lu, m, n, batch, lanes, threads, isa, elements: PhantomData }),
    })
}

impl<T: Real> BatchedFactorization<T> {
    /// The number of scratch elements of each worker.
    fn each(&self) -> usize {
        self.m * self.n * self.lanes
    }

    /// # Safety
    /// Operands and results are those of the op, nothing else accesses these bundles, `work` has the size that the plan
    /// asked for, and the machine has the vectors.
    #[inline(always)]
    unsafe fn bundles<V: Vector<Elem = T>>(
        &self,
        bundles: Range<usize>,
        args: &[*const u8],
        outs: &[*mut u8],
        work: *mut T,
    ) {
        let (size, l) = (self.m * self.n, V::LANES);
        for bundle in bundles {
            let first = bundle * l;
            let count = l.min(self.batch - first);
            // SAFETY: operands and results are those of the op, `work` is as large as asked for, nothing else accesses
            // these bundles, and the machine has the vectors.
            unsafe {
                let (x, y) = (args[0].cast::<T>().add(first * size), outs[0].cast::<T>().add(first * size));
                let (lines, lanes) = (size as isize, l as isize);
                let turn = |from: *const T, to: *mut T, d: Axis, s: Axis| {
                    let part = 0..s.size;
                    tiles::transpose(from.cast::<T::Bits>(), to.cast::<T::Bits>(), d, s, part, self.isa);
                };
                let (d, s) = (Axis { size: count, from: lines, to: 1 }, Axis { size, from: 1, to: lanes });
                turn(x, work, d, s);
                for (i, lane) in (0..size).flat_map(|i| (count..l).map(move |lane| (i, lane))) {
                    *work.add(i * l + lane) = *work.add(i * l + count - 1);
                }
                if self.lu {
                    let order = self.lu::<V>(work);
                    self.write_order(&order, first, count, outs);
                } else {
                    self.cholesky::<V>(work);
                }
                let (d, s) = (Axis { size, from: lanes, to: 1 }, Axis { size: count, from: 1, to: lines });
                turn(work, y, d, s);
            }
        }
    }

    /// Computes the lower factors in place of the lower triangles, with zeros above.
    /// The lower triangle is NaN where a matrix is not positive definite.
    ///
    /// # Safety
    /// `a` is valid for a bundle of matrices, and the machine has the vectors.
    #[inline(always)]
    unsafe fn cholesky<V: Vector<Elem = T>>(&self, a: *mut T) {
        const ROWS: usize = 4;
        let (n, l) = (self.n, V::LANES);
        let at = |i: usize, j: usize| a.wrapping_add((i * n + j) * l);
        let mut definite = [true; LANES];
        // SAFETY: `a` is valid for a bundle of matrices, and the machine has the vectors.
        unsafe {
            let minus = V::splat(-T::ONE);
            let load = |i: usize, j: usize| V::load(at(i, j).cast_const());
            for j in 0..n {
                // Compute the rest of the column, some rows at a time, by subtracting the products of the columns before.
                for i in (j..n).step_by(ROWS) {
                    let rows = ROWS.min(n - i);
                    if rows == ROWS {
                        let mut sums = [V::splat(T::ZERO); ROWS];
                        for k in 0..j {
                            let own = load(j, k);
                            for (r, sum) in sums.iter_mut().enumerate() {
                                *sum = load(i + r, k).mul_add(own, *sum);
                            }
                        }
                        for (r, sum) in sums.into_iter().enumerate() {
                            sum.mul_add(minus, load(i + r, j)).store(at(i + r, j));
                        }
                        continue;
                    }
                    for i in i..n {
                        let sum = (0..j).fold(V::splat(T::ZERO), |sum, k| load(i, k).mul_add(load(j, k), sum));
                        sum.mul_add(minus, load(i, j)).store(at(i, j));
                    }
                }
                let mut by = [T::ZERO; LANES];
                let own = std::slice::from_raw_parts_mut(at(j, j), l);
                for ((own, by), definite) in own.iter_mut().zip(&mut by).zip(&mut definite) {
                    *definite &= *own > T::ZERO;
                    *own = own.sqrt();
                    *by = T::ONE / *own;
                }
                let by = V::load(by.as_ptr());
                (j + 1..n).for_each(|i| load(i, j).mul(by).store(at(i, j)));
                (0..j).for_each(|i| V::splat(T::ZERO).store(at(i, j)));
            }
            for lane in (0..l).filter(|&lane| !definite[lane]) {
                for i in 0..n {
                    (0..=i).for_each(|j| *at(i, j).add(lane) = T::NAN);
                }
            }
        }
    }

    /// Computes `L` and `U` in place, with row exchanges. Returns the pivot of each step for each lane.
    ///
    /// # Safety
    /// `a` is valid for a bundle of matrices, and the machine has the vectors.
    #[inline(always)]
    unsafe fn lu<V: Vector<Elem = T>>(&self, a: *mut T) -> [[u8; LANES]; MAX_BATCHED_SIZE] {
        let (m, n, l) = (self.m, self.n, V::LANES);
        let at = |i: usize, j: usize| a.wrapping_add((i * n + j) * l);
        let mut pivots = [[0; LANES]; MAX_BATCHED_SIZE];
        for k in 0..m.min(n) {
            // SAFETY: `a` is valid for a bundle of matrices, and the machine has the vectors.
            unsafe {
                let lanes = |i: usize, j: usize| std::slice::from_raw_parts(at(i, j).cast_const(), l);
                let (mut most, mut best) = ([T::ZERO; LANES], [k as u8; LANES]);
                most.iter_mut().zip(lanes(k, k)).for_each(|(most, x)| *most = x.abs());
                for i in k + 1..m {
                    for (lane, x) in lanes(i, k).iter().enumerate() {
                        let more = x.abs() > most[lane];
                        best[lane] = if more { i as u8 } else { best[lane] };
                        most[lane] = if more { x.abs() } else { most[lane] };
                    }
                }
                for lane in 0..l {
                    let other = best[lane] as usize;
                    if other != k {
                        (0..n).for_each(|j| std::ptr::swap(at(k, j).add(lane), at(other, j).add(lane)));
                    }
                }
                pivots[k] = best;
                // Multiply by reciprocals of pivots of usual size; other pivots are handled one lane at a time.
                let usual = |x: &T| (1e-30..1e30).contains(&x.abs().wide());
                if !lanes(k, k).iter().all(usual) {
                    (0..l).for_each(|lane| self.eliminate_column(a.add(lane), l, k));
                    continue;
                }
                let mut by = [T::ZERO; LANES];
                by.iter_mut().zip(lanes(k, k)).for_each(|(by, x)| *by = T::ONE / *x);
                let (by, minus) = (V::load(by.as_ptr()), V::splat(-T::ONE));
                for i in k + 1..m {
                    let f = V::load(at(i, k)).mul(by);
                    f.store(at(i, k));
                    let f = f.mul(minus);
                    for j in k + 1..n {
                        V::load(at(k, j)).mul_add(f, V::load(at(i, j))).store(at(i, j));
                    }
                }
            }
        }
        pivots
    }

    /// Does one elimination step of one matrix, whose elements are `l` apart.
    unsafe fn eliminate_column(&self, a: *mut T, l: usize, k: usize) {
        let at = |i: usize, j: usize| a.wrapping_add((i * self.n + j) * l);
        // SAFETY: the matrix is valid for its size.
        unsafe {
            let top = *at(k, k);
            if top == T::ZERO {
                return;
            }
            for i in k + 1..self.m {
                let f = *at(i, k) / top;
                *at(i, k) = f;
                (k + 1..self.n).for_each(|j| *at(i, j) -= f * *at(k, j));
            }
        }
    }

    /// Writes the pivots and the corresponding permutations.
    unsafe fn write_order(
        &self,
        pivots: &[[u8; LANES]; MAX_BATCHED_SIZE],
        first: usize,
        count: usize,
        outs: &[*mut u8],
    ) {
        let steps = self.m.min(self.n);
        for lane in 0..count {
            let mut order: [i32; MAX_BATCHED_SIZE] = std::array::from_fn(|i| i as i32);
            // SAFETY: the results are valid for their sizes.
            unsafe {
                let to = outs[1].cast::<i32>().add((first + lane) * steps);
                for (k, pivots) in pivots.iter().enumerate().take(steps) {
                    *to.add(k) = pivots[lane] as i32;
                    order.swap(k, pivots[lane] as usize);
                }
                let to = outs[2].cast::<i32>().add((first + lane) * self.m);
                std::ptr::copy_nonoverlapping(order.as_ptr(), to, self.m);
            }
        }
    }

    /// # Safety
    /// As for `bundles`, and the machine has the target features.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
    unsafe fn bundles_avx512(&self, bundles: Range<usize>, args: &[*const u8], outs: &[*mut u8], work: *mut T) {
        // SAFETY: `bundles` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.bundles::<T::Avx512>(bundles, args, outs, work) }
    }

    /// # Safety
    /// As for `bundles`, and the machine has the target features.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn bundles_avx2(&self, bundles: Range<usize>, args: &[*const u8], outs: &[*mut u8], work: *mut T) {
        // SAFETY: `bundles` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.bundles::<T::Avx2>(bundles, args, outs, work) }
    }
}

impl<T: Real> OpRoutine for BatchedFactorization<T> {
    fn scratch_bytes(&self) -> usize {
        self.each() * self.threads * size_of::<T>()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (args, outs, scratch) = (Pointers(args), Pointers(outs), SharedPtr(scratch.cast::<T>()));
        let work = self.batch * self.m * self.n * self.m.min(self.n);
        in_ranges(pool, self.batch.div_ceil(self.lanes), work, &|range: Range<usize>, worker| {
            let (args, outs, work) = (args.get(), outs.get(), scratch.at(worker * self.each()));
            // SAFETY: each worker has its own scratch and its own matrices, and the machine has the instructions of its set.
            unsafe {
                match self.isa {
                    Isa::Avx512 => self.bundles_avx512(range, args, outs, work),
                    _ => self.bundles_avx2(range, args, outs, work),
                }
            }
        });
        Ok(())
    }
}
