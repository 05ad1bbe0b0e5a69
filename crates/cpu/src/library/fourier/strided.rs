//! Long lines whose elements are far from each other: they are turned, transformed as lines along memory, and turned back.

use super::batched::LineTransform;
use super::four_step::{FourStepFft, Line, Phase};
use super::load_store::Planes;
use super::twiddle::Real;
use crate::gemm::Isa;
use crate::library::rearrange::{Axis, tiles};
use crate::library::{SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use std::ops::Range;

/// Elements of lines that are turned at a time.
const AT_ONCE: usize = 512;
/// Cycles for an element that is turned there and back, both parts.
pub(super) const CYCLES: f64 = 8.0;

/// Lines of which `inner` lie beside each other, in `outer` places.
pub(super) struct StridedFft<T> {
    pub(super) long: FourStepFft<T>,
    pub(super) outer: usize,
    pub(super) inner: usize,
}

impl<T: Real> StridedFft<T> {
    /// Elements of a plane of turned lines, as they are read and as they are written.
    fn plane_elements(&self) -> [usize; 2] {
        [self.long.source, self.long.target].map(|n| (self.outer * self.inner * n).next_multiple_of(16))
    }

    pub(super) fn scratch(&self) -> usize {
        let [source, target] = self.plane_elements();
        self.long.scratch() + 2 * (source + target)
    }

    /// Turns a plane: lines of `n` elements are beside each other, or along memory.
    ///
    /// # Safety
    /// Both are planes of all lines.
    unsafe fn transpose_plane(
        &self,
        pool: &ThreadPool,
        isa: Isa,
        from: SharedPtr<T>,
        to: SharedPtr<T>,
        n: usize,
        along: bool,
    ) {
        let pieces = n.div_ceil(AT_ONCE);
        let inner = self.inner;
        in_ranges(pool, self.outer * pieces, self.outer * n * inner, &|range: Range<usize>, _| {
            for unit in range {
                let (first, k) = (unit / pieces * n * inner, unit % pieces * AT_ONCE);
                let size = AT_ONCE.min(n - k);
                let (beside, line) = (first + k * inner, first + k);
                // SAFETY: the caller's promise; pieces don't overlap.
                unsafe {
                    let (x, y, d, s) = match along {
                        true => (
                            from.at(line),
                            to.at(beside),
                            Axis { size: inner, from: n as isize, to: 1 },
                            Axis { size, from: 1, to: inner as isize },
                        ),
                        false => (
                            from.at(beside),
                            to.at(line),
                            Axis { size, from: inner as isize, to: 1 },
                            Axis { size: inner, from: 1, to: n as isize },
                        ),
                    };
                    tiles::transpose(x.cast::<T::Bits>(), y.cast::<T::Bits>(), d, s, 0..s.size, isa);
                }
            }
        });
    }

    /// Transforms all lines.
    ///
    /// # Safety
    /// As for [`LongLines::run`].
    pub(super) unsafe fn run(
        &self,
        pool: &ThreadPool,
        isa: Isa,
        (from, to): (Planes<T>, Planes<T>),
        scratch: SharedPtr<T>,
        phase: unsafe fn(&FourStepFft<T>, Isa, Phase, Range<usize>, Line<T>),
    ) {
        let [source, target] = self.plane_elements();
        let [a, b, c, d, rest] = [0, source, 2 * source, 2 * source + target, 2 * (source + target)];
        let (read, written) = (
            Planes { re: SharedPtr(scratch.at(a)), im: SharedPtr(scratch.at(b)) },
            Planes { re: SharedPtr(scratch.at(c)), im: SharedPtr(scratch.at(d)) },
        );
        // SAFETY: the caller's promise.
        unsafe {
            self.transpose_plane(pool, isa, from.re, read.re, self.long.source, false);
            if self.long.kind != LineTransform::Real {
                self.transpose_plane(pool, isa, from.im, read.im, self.long.source, false);
            }
            self.long.run(pool, isa, read, written, SharedPtr(scratch.at(rest)), phase);
            self.transpose_plane(pool, isa, written.re, to.re, self.long.target, true);
            if self.long.kind != LineTransform::InverseReal {
                self.transpose_plane(pool, isa, written.im, to.im, self.long.target, true);
            }
        }
    }
}
