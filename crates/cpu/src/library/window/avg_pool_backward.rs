//! Sums of windows over an input dilated along the last axis, or the last two:
//! the gradient of a strided sum of windows (average pooling).
//!
//! The rows of the base under a row of windows are added once. With a dilation of `d`, window `d·q + r` uses consecutive elements
//! of that sum, starting at one that `q` and `r` determine: each phase `r` is a sum of a few neighbours, and no hole is added.

use super::super::element::{Element, FoldOp};
use super::code::{IoPointers, state};
use super::{Axis, Frame};
use std::ops::Range;

/// A frame with dilated last axes.
pub(super) struct AvgPoolBackward {
    pub(super) planes: usize,
    rows: Axis,
    cols: Axis,
    /// The phases along a row.
    phases: Vec<Phase>,
}

/// The elements that windows `d·q + r` use.
struct Phase {
    /// The first element for `q = 0`, and the number of elements.
    at: i64,
    count: usize,
    /// The number of windows, and the range of windows whose elements are all inside the base.
    windows: usize,
    inside: Range<usize>,
}

impl AvgPoolBackward {
    pub(super) fn new(frame: &Frame) -> Option<AvgPoolBackward> {
        let cols = frame.last;
        let (rows, before) = frame.axes.split_last()?;
        let (rows, before) = match rows.plain() {
            true => {
                (Axis { base: 1, window: 1, count: 1, stride: 1, low: 0, base_dilation: 1, ..cols }, &frame.axes[..])
            }
            false => (*rows, before),
        };
        let usual = |a: &Axis| a.window_dilation == 1 && a.window > 0 && a.count > 0 && a.base > 0;
        let spread = cols.stride == 1 && cols.base_dilation > 1;
        if !spread || !usual(&cols) || !usual(&rows) || !before.iter().all(Axis::plain) {
            return None;
        }
        let d = cols.base_dilation;
        let phase = |r: i64| {
            let first = (cols.low - r).rem_euclid(d);
            let (at, count) =
                ((r + first - cols.low).div_euclid(d), (cols.window as i64 - first + d - 1).div_euclid(d).max(0));
            let windows = (cols.count as i64 - r + d - 1).div_euclid(d).max(0);
            let begin = (-at).clamp(0, windows);
            let end = (cols.base as i64 - count + 1 - at).clamp(begin, windows);
            Phase { at, count: count as usize, windows: windows as usize, inside: begin as usize..end as usize }
        };
        let planes = before.iter().map(|a| a.count).product();
        Some(AvgPoolBackward { planes, rows, cols, phases: (0..d).map(phase).collect() })
    }

    /// The bytes of a worker's scratch: a row of states.
    pub(super) fn scratch(&self) -> usize {
        (self.cols.base * 8).next_multiple_of(64)
    }

    /// Computes a row of results from the sums of rows.
    #[inline(always)]
    fn along<T: Element, F: FoldOp<T>>(&self, sums: &[F::State], start: F::State, to: &mut [T]) {
        let d = self.phases.len();
        let none = F::result(start);
        for (r, p) in self.phases.iter().enumerate() {
            let first = r.min(to.len());
            let own = to[first..].chunks_mut(d);
            let slow = |q: usize| {
                let met = (0..p.count).filter_map(|t| sums.get(usize::try_from(q as i64 + p.at + t as i64).ok()?));
                F::result(met.fold(start, |s, &x| F::join(s, x)))
            };
            debug_assert_eq!(own.len(), p.windows);
            for (q, to) in own.enumerate() {
                to[0] = match p.inside.contains(&q) {
                    false if p.count == 0 => none,
                    false => slow(q),
                    true => {
                        let first = (q as i64 + p.at) as usize;
                        match p.count {
                            0 => none,
                            1 => F::result(sums[first]),
                            2 => F::result(F::join(sums[first], sums[first + 1])),
                            n => F::result(sums[first..first + n].iter().fold(start, |s, &x| F::join(s, x))),
                        }
                    }
                };
            }
        }
    }
}

/// Computes the results of one plane.
///
/// # Safety
/// Operand and result are valid for their sizes, scratch for [`Spreading::scratch`], and the machine has AVX2 if the
/// arguments say so.
pub(super) unsafe fn reduce<T: Element, F: FoldOp<T>>(
    spreading: &AvgPoolBackward,
    plane: usize,
    (x, y): IoPointers,
    start: u64,
    scratch: *mut u8,
    avx2: bool,
) {
    let (rows, cols) = (spreading.rows, spreading.cols);
    let x = x.cast::<T>().wrapping_add(plane * rows.base * cols.base);
    let y = y.cast::<T>().wrapping_add(plane * rows.count * cols.count);
    // SAFETY: a state takes at most 8 bytes, and the number was made of one.
    let (sums, start) =
        unsafe { (std::slice::from_raw_parts_mut(scratch.cast::<F::State>(), cols.base), state::<F::State>(start)) };
    for o in 0..rows.count {
        // SAFETY: a row of results.
        let to = unsafe { std::slice::from_raw_parts_mut(y.add(o * cols.count), cols.count) };
        let mut met = (0..rows.window).filter_map(|k| rows.source(o, k)).peekable();
        if met.peek().is_none() {
            to.fill(F::result(start));
            continue;
        }
        sums.fill(start);
        for r in met {
            // SAFETY: a row of the base.
            let row = unsafe { std::slice::from_raw_parts(x.add(r * cols.base), cols.base) };
            sums.iter_mut().zip(row).for_each(|(s, &x)| *s = F::step(*s, x));
        }
        #[cfg(target_arch = "x86_64")]
        {
            /// # Safety
            /// The machine has AVX2.
            #[target_feature(enable = "avx2")]
            unsafe fn wide<T: Element, F: FoldOp<T>>(
                s: &AvgPoolBackward,
                sums: &[F::State],
                start: F::State,
                to: &mut [T],
            ) {
                s.along::<T, F>(sums, start, to);
            }
            if avx2 {
                // SAFETY: the machine has it.
                unsafe { wide::<T, F>(spreading, sums, start, to) };
                continue;
            }
        }
        let _ = avx2;
        spreading.along::<T, F>(sums, start, to);
    }
}
