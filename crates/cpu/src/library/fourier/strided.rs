//! Long lines with strided elements: they are transposed, transformed as contiguous lines, and transposed back.

use super::batched::LineTransform;
use super::four_step::{FourStepFft, Line, Phase};
use super::load_store::Planes;
use super::twiddle::Real;
use crate::gemm::Isa;
use crate::library::rearrange::{Axis, tiles};
use crate::library::{SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use std::ops::Range;

/// The number of elements of lines that are transposed at a time.
const AT_ONCE: usize = 512;
/// The estimated cycles per element for both transposes of both parts.
pub(super) const CYCLES: f64 = 8.0;

/// A transform of `outer` groups of `inner` adjacent lines.
pub(super) struct StridedFft<T> {
    pub(super) long: FourStepFft<T>,
    pub(super) outer: usize,
    pub(super) inner: usize,
}

impl<T: Real> StridedFft<T> {
    /// The number of elements of a plane of transposed lines, as they are read and as they are written.
    fn plane_elements(&self) -> [usize; 2] {
        [self.long.source, self.long.target].map(|n| (self.outer * self.inner * n).next_multiple_of(16))
    }

    pub(super) fn scratch(&self) -> usize {
        let [source, target] = self.plane_elements();
        self.long.scratch() + 2 * (source + target)
    }

    /// Transposes a plane between adjacent lines of `n` elements and contiguous lines.
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
                // SAFETY: `from` and `to` are valid for all lines, pieces are inside them, and the pieces of different
                // units don't overlap.
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
        // SAFETY: `from` and `to` are valid for all lines, and `scratch` for four planes and the scratch of `long`,
        // which are disjoint.
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
