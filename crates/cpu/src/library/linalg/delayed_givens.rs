//! Givens rotations of adjacent rows, delayed and applied together.
//!
//! Iterations on a tridiagonal or bidiagonal matrix do not read the vectors, so the rotations of several sweeps are stored. Then
//! all of them are applied to one strip of columns at a time that fits in cache; the row that two rotations share stays in
//! registers. A strip is copied to contiguous memory, because rows with power-of-two strides map to few cache sets. Strips are
//! independent and are split over threads.
//! Loops over vectors are plain loops, because captures of iterator closures stay in memory.

use super::Real;
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::library::{SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The maximum number of delayed sweeps.
const PUT_OFF: usize = 32;
/// The number of columns of a strip.
pub(super) const STRIP: usize = 32;

/// One sweep: its first row, whether it descends, and its rotations.
#[derive(Clone)]
struct RotationSweep {
    first: usize,
    down: bool,
    rotations: Range<usize>,
}

/// The number of scratch elements for the rotations of a matrix with `rows` rows.
pub(super) const fn scratch_elements(rows: usize) -> usize {
    2 * 8 * rows
}

/// Delayed rotations of the rows of a matrix.
pub(super) struct DelayedRotations<'a, T> {
    rows: SharedPtr<T>,
    count: usize,
    len: usize,
    isa: Isa,
    pool: Option<&'a ThreadPool>,
    waiting: SmallVec<[RotationSweep; PUT_OFF]>,
    rotations: &'a mut [T],
    used: usize,
}

impl<'a, T: Real> DelayedRotations<'a, T> {
    /// Delays rotations of `rows`, each with `len` elements. `rotations` has [`scratch_elements`].
    pub(super) fn new(
        rows: &'a mut [T],
        len: usize,
        isa: Isa,
        pool: Option<&'a ThreadPool>,
        rotations: &'a mut [T],
    ) -> DelayedRotations<'a, T> {
        let count = rows.len() / len.max(1);
        debug_assert!(rotations.len() >= scratch_elements(count));
        DelayedRotations {
            rows: SharedPtr(rows.as_mut_ptr()),
            count,
            len,
            isa,
            pool,
            waiting: SmallVec::new(),
            rotations,
            used: 0,
        }
    }

    /// Begins a sweep at row `first`.
    #[inline(always)]
    pub(super) fn begin(&mut self, first: usize, down: bool) {
        if self.waiting.len() == PUT_OFF || self.used + 2 * self.count > self.rotations.len() {
            self.apply();
        }
        self.waiting.push(RotationSweep { first, down, rotations: self.used..self.used });
    }

    /// Rotates the current row `x` of the sweep and the next row `y`: they become `c·x + s·y` and `c·y - s·x`, and the sweep
    /// advances to the second row.
    #[inline(always)]
    pub(super) fn rotate(&mut self, c: T, s: T) {
        self.rotations[self.used] = c;
        self.rotations[self.used + 1] = s;
        self.used += 2;
        if let Some(sweep) = self.waiting.last_mut() {
            sweep.rotations.end = self.used;
        }
    }

    /// Applies all delayed rotations and returns the rows.
    pub(super) fn rows(&mut self) -> &mut [T] {
        self.apply();
        // SAFETY: the rows are borrowed as long as this lives.
        unsafe { std::slice::from_raw_parts_mut(self.rows.at(0), self.count * self.len) }
    }

    fn apply(&mut self) {
        let (rows, len, isa) = (self.rows, self.len, self.isa);
        let (sweeps, rotations) = (&self.waiting[..], &self.rotations[..self.used]);
        let through = |strips: Range<usize>| {
            for strip in strips {
                let columns = strip * STRIP..((strip + 1) * STRIP).min(len);
                // SAFETY: columns are inside of the rows, and nothing else accesses them; the machine has the instruction set.
                unsafe { strip_through(isa, rows.at(0), len, columns, sweeps, rotations) };
            }
        };
        let strips = len.div_ceil(STRIP);
        match self.pool {
            Some(pool) => in_ranges(pool, strips, self.used * len, &|range: Range<usize>, _| through(range)),
            None => through(0..strips),
        }
        self.waiting.clear();
        self.used = 0;
    }
}

/// # Safety
/// The columns are inside of rows of `len` elements, which sweeps stay inside of; the machine has the instruction set.
unsafe fn strip_through<T: Real>(
    isa: Isa,
    rows: *mut T,
    len: usize,
    columns: Range<usize>,
    sweeps: &[RotationSweep],
    rotations: &[T],
) {
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        /// `columns` is inside of rows of `len` elements, the rows that sweeps meet are valid, and the machine has
        /// AVX-512.
        #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
        unsafe fn avx512<T: Real>(
            rows: *mut T,
            len: usize,
            columns: Range<usize>,
            sweeps: &[RotationSweep],
            rotations: &[T],
        ) {
            // SAFETY: `columns` is inside of rows of `len` elements, the rows that sweeps meet are valid, and the
            // machine has AVX-512.
            unsafe {
                match T::Avx512::LANES {
                    8 => all_columns::<T::Avx512, 4>(rows, len, columns, sweeps, rotations),
                    _ => all_columns::<T::Avx512, 2>(rows, len, columns, sweeps, rotations),
                }
            }
        }
        /// # Safety
        /// `columns` is inside of rows of `len` elements, the rows that sweeps meet are valid, and the machine has
        /// AVX2.
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2<T: Real>(
            rows: *mut T,
            len: usize,
            columns: Range<usize>,
            sweeps: &[RotationSweep],
            rotations: &[T],
        ) {
            // SAFETY: `columns` is inside of rows of `len` elements, the rows that sweeps meet are valid, and the
            // machine has AVX2.
            unsafe { all_columns::<T::Avx2, 4>(rows, len, columns, sweeps, rotations) }
        }
        // SAFETY: `columns` is inside of rows of `len` elements, the rows that sweeps meet are valid, and the machine
        // has `isa`.
        match isa {
            Isa::Avx512 => return unsafe { avx512(rows, len, columns, sweeps, rotations) },
            Isa::Avx2 => return unsafe { avx2(rows, len, columns, sweeps, rotations) },
            Isa::Portable => {}
        }
    }
    let _ = isa;
    // SAFETY: `columns` is inside of rows of `len` elements, and the rows that sweeps meet are valid.
    unsafe { all_columns::<T::Plain, 2>(rows, len, columns, sweeps, rotations) }
}

/// The maximum number of elements of a strip that is copied; larger strips are rotated in place.
const COPIED: usize = STRIP * 1024;

/// Applies the rotations to columns in groups of `N` vectors, then single vectors, then a partial vector.
///
/// # Safety
/// `columns` is inside of rows of `len` elements, and only this call accesses them; the machine has the vectors.
///
/// # Safety
/// The columns of all rows that sweeps go through are valid, and only this call accesses them; the machine has the
/// vectors.
#[inline(always)]
unsafe fn all_columns<V: Vector<Elem: Real>, const N: usize>(
    rows: *mut V::Elem,
    len: usize,
    columns: Range<usize>,
    sweeps: &[RotationSweep],
    rotations: &[V::Elem],
) {
    let mut at = columns.start;
    let met = affected_rows(sweeps);
    let width = N * V::LANES;
    let mut room = [const { MaybeUninit::<V::Elem>::uninit() }; COPIED];
    // SAFETY: `columns` is inside of rows of `len` elements; the room holds the rows that sweeps meet, from its first
    // element on.
    unsafe {
        while at + width <= columns.end {
            if met.len() * width > COPIED {
                some_columns::<V, N>(rows.add(at), len, V::LANES, sweeps, rotations);
                at += width;
                continue;
            }
            let own = room.as_mut_ptr().cast::<V::Elem>();
            for (k, r) in met.clone().enumerate() {
                let from = rows.add(r * len + at);
                for i in 0..N {
                    V::load(from.add(i * V::LANES)).store(own.add(k * width + i * V::LANES));
                }
            }
            some_columns::<V, N>(own.wrapping_sub(met.start * width), width, V::LANES, sweeps, rotations);
            for (k, r) in met.clone().enumerate() {
                let to = rows.add(r * len + at);
                for i in 0..N {
                    V::load(own.add(k * width + i * V::LANES)).store(to.add(i * V::LANES));
                }
            }
            at += width;
        }
        while at < columns.end {
            let width = V::LANES.min(columns.end - at);
            some_columns::<V, 1>(rows.add(at), len, width, sweeps, rotations);
            at += width;
        }
    }
}

/// The range of rows that the sweeps change.
fn affected_rows(sweeps: &[RotationSweep]) -> Range<usize> {
    let (mut low, mut high) = (usize::MAX, 0);
    for s in sweeps {
        let turns = s.rotations.len() / 2;
        let (first, last) = if s.down { (s.first - turns, s.first) } else { (s.first, s.first + turns) };
        (low, high) = (low.min(first), high.max(last + 1));
    }
    low.min(high)..high
}

/// Applies the rotations to columns of `N` vectors, of which the last has `width` lanes.
#[inline(always)]
unsafe fn some_columns<V: Vector<Elem: Real>, const N: usize>(
    rows: *mut V::Elem,
    len: usize,
    width: usize,
    sweeps: &[RotationSweep],
    rotations: &[V::Elem],
) {
    // SAFETY: the columns of all rows that sweeps go through are valid, and used by this call alone.
    unsafe {
        let load = |p: *const V::Elem| match width == V::LANES {
            true => V::load(p),
            false => V::load_first(p, width),
        };
        let store = |v: V, p: *mut V::Elem| match width == V::LANES {
            true => v.store(p),
            false => v.store_first(p, width),
        };
        for sweep in sweeps {
            let step = if sweep.down { (len as isize).wrapping_neg() } else { len as isize };
            let mut at = rows.wrapping_add(sweep.first * len);
            let mut x = [V::splat(V::Elem::ZERO); N];
            for (i, x) in x.iter_mut().enumerate() {
                *x = load(at.add(i * V::LANES));
            }
            for turn in rotations[sweep.rotations.clone()].chunks_exact(2) {
                let (c, s, minus) = (V::splat(turn[0]), V::splat(turn[1]), V::splat(-turn[1]));
                let next = at.offset(step);
                for (i, x) in x.iter_mut().enumerate() {
                    let y = load(next.add(i * V::LANES));
                    store(s.mul_add(y, c.mul(*x)), at.add(i * V::LANES));
                    *x = c.mul_add(y, minus.mul(*x));
                }
                at = next;
            }
            for (i, x) in x.into_iter().enumerate() {
                store(x, at.add(i * V::LANES));
            }
        }
    }
}
