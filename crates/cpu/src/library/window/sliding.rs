//! Windows that slide over the last axis, or the last two, of planes that have nothing else to do with each other.
//!
//! A reduction of windows is one of rows of windows, so each row of the base is reduced along the last axis once, and results
//! take those of as many rows as a window has. Along the axis, runs of 1, 2, 4, .. elements are made of each other, and a window of the
//! few that its length is made of: the elements are taken in order, in another grouping.

use super::super::element::{Element, Fold};
use super::Frame;

/// Bytes of reduced rows of one plane.
pub(super) const PLANE_BYTES: usize = 1 << 20;

/// A frame whose windows slide over one or two axes, at the end.
pub(super) struct Sliding {
    pub(super) planes: usize,
    rows: super::Axis,
    cols: super::Axis,
    /// Elements of a padded row.
    padded: usize,
}

impl Sliding {
    pub(super) fn new(frame: &Frame) -> Option<Sliding> {
        let plain = |a: &super::Axis| a.base_dilation == 1 && a.window_dilation == 1 && a.window > 0 && a.count > 0;
        let cols = frame.last;
        let (rows, before) = match frame.axes.split_last() {
            Some((rows, before)) if !rows.plain() => (*rows, before),
            // Every row is a plane of its own.
            _ => {
                let one = super::Axis { base: 1, window: 1, count: 1, stride: 1, low: 0, step: cols.base, ..cols };
                (one, &frame.axes[..])
            }
        };
        if !before.iter().all(super::Axis::plain) || !plain(&cols) || !plain(&rows) {
            return None;
        }
        let padded = (cols.count - 1) * usize::try_from(cols.stride).ok()? + cols.window;
        let sliding = Sliding { planes: before.iter().map(|a| a.count).product(), rows, cols, padded };
        (sliding.scratch() <= PLANE_BYTES && padded > 0).then_some(sliding)
    }

    /// Bytes that a worker needs: the reduced rows of a plane, two padded rows, and a row of states.
    pub(super) fn scratch(&self) -> usize {
        ((self.rows.base + 1) * self.cols.count + 2 * self.padded) * 8 + 64
    }

    /// The results of one plane.
    ///
    /// # Safety
    /// `x` is good for a plane of the base, `y` for one of results, `scratch` for [`Sliding::scratch`].
    #[inline(always)]
    unsafe fn plane<T: Element, F: Fold<T>>(&self, x: *const T, y: *mut T, identity: T, scratch: *mut u8) {
        let (rows, cols) = (self.rows, self.cols);
        let start = F::start(identity);
        let at = scratch.cast::<F::State>();
        // SAFETY: a state takes at most 8 bytes; the parts of scratch don't overlap.
        unsafe {
            let reduced = std::slice::from_raw_parts_mut(at, rows.base * cols.count);
            let at = at.add(reduced.len());
            let states = std::slice::from_raw_parts_mut(at, cols.count);
            let at = at.add(cols.count);
            let run = std::slice::from_raw_parts_mut(at, self.padded);
            let done = std::slice::from_raw_parts_mut(at.add(self.padded), self.padded);
            for (r, line) in reduced.chunks_exact_mut(cols.count).enumerate() {
                let row = std::slice::from_raw_parts(x.add(r * cols.base), cols.base);
                self.along::<T, F>(row, start, run, done, line);
            }
            for o in 0..rows.count {
                let mut fresh = true;
                for k in 0..rows.window {
                    let Some(r) = rows.source(o, k) else { continue };
                    let line = &reduced[r * cols.count..][..cols.count];
                    if fresh {
                        states.copy_from_slice(line);
                    } else {
                        states.iter_mut().zip(line).for_each(|(s, &v)| *s = F::join(*s, v));
                    }
                    fresh = false;
                }
                if fresh {
                    states.fill(start);
                }
                let to = std::slice::from_raw_parts_mut(y.add(o * cols.count), cols.count);
                to.iter_mut().zip(states.iter()).for_each(|(y, &s)| *y = F::result(s));
            }
        }
    }

    /// The reductions of all windows along a row.
    #[inline(always)]
    fn along<T: Element, F: Fold<T>>(
        &self,
        row: &[T],
        start: F::State,
        run: &mut [F::State],
        done: &mut [F::State],
        to: &mut [F::State],
    ) {
        let cols = &self.cols;
        // The row with what the fold begins with around it.
        let first = cols.low.clamp(0, self.padded as i64) as usize;
        let end = (cols.base as i64 + cols.low).clamp(first as i64, self.padded as i64) as usize;
        let skip = (first as i64 - cols.low) as usize;
        run[..first].fill(start);
        run[end..].fill(start);
        for (s, &x) in run[first..end].iter_mut().zip(&row[skip.min(row.len())..]) {
            *s = F::step(start, x);
        }
        // `run[i]` is of `size` elements from i on, `done[i]` of those that are taken.
        let (mut size, mut taken) = (1, 0);
        let n = self.padded - cols.window + 1;
        let mut left = cols.window;
        loop {
            if left & 1 == 1 {
                let from = &run[taken..][..n];
                match taken {
                    0 => done[..n].copy_from_slice(from),
                    _ => done[..n].iter_mut().zip(from).for_each(|(d, &r)| *d = F::join(*d, r)),
                }
                taken += size;
            }
            left >>= 1;
            if left == 0 {
                break;
            }
            let whole = run.len() + 1 - 2 * size;
            for i in 0..whole {
                run[i] = F::join(run[i], run[i + size]);
            }
            size *= 2;
        }
        match cols.stride {
            1 => to.copy_from_slice(&done[..to.len()]),
            stride => to.iter_mut().enumerate().for_each(|(o, t)| *t = done[o * stride as usize]),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn plane_avx2<T: Element, F: Fold<T>>(&self, x: *const T, y: *mut T, identity: T, scratch: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.plane::<T, F>(x, y, identity, scratch) }
    }

    /// The results of one plane, by number.
    ///
    /// # Safety
    /// `x` is good for the base, `y` for the results, `scratch` for [`Sliding::scratch`].
    pub(super) unsafe fn reduce<T: Element, F: Fold<T>>(
        &self,
        avx2: bool,
        plane: usize,
        (x, y): (*const T, *mut T),
        identity: T,
        scratch: *mut u8,
    ) {
        let x = x.wrapping_add(plane * self.rows.base * self.cols.base);
        let y = y.wrapping_add(plane * self.rows.count * self.cols.count);
        // SAFETY: the caller's promise; AVX2 is there if it says so.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if avx2 {
                return self.plane_avx2::<T, F>(x, y, identity, scratch);
            }
            let _ = avx2;
            self.plane::<T, F>(x, y, identity, scratch)
        }
    }
}
