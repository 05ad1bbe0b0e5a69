//! Windows that slide over the last axis, or the last two axes, of independent planes.
//!
//! A windowed reduction is separable: each row of the base is reduced along the last axis once, and results combine the reduced
//! rows of a window. Along the axis, runs of 1, 2, 4, .. elements are built from each other, and a window combines the runs in
//! its length's binary representation: the elements are combined in order, in another grouping. Sums over low windows, whose
//! order is free, are taken down the rows first: that needs one line of sums instead of a plane. Small planes without padding
//! have rows too short for separate loops: several planes form one line, along which windows are reduced first by columns, then
//! by rows; results that span two rows are unused.

use super::super::element::Max;
use super::Frame;
use super::argmax::Keys;
use super::code::{Code, IoPointers, SlidingOps, fill, pick};
use std::ops::Range;

/// The maximum bytes of reduced rows of one plane.
pub(super) const PLANE_BYTES: usize = 1 << 20;
/// The number of results along a row that are computed at a time, so that intermediate states stay in the L1 cache.
pub(super) const BLOCK: usize = 512;
/// The maximum number of rows of a window for which sums are taken down the rows first.
pub(super) const LOW: usize = 16;
/// The maximum number of elements of a row for which rows of small planes are reduced as one line.
pub(super) const FLAT: usize = 32;
/// The number of elements of planes in such a line.
const AREA: usize = 1 << 10;

/// The number of rows that are read together if the order is free.
const TOGETHER: usize = 4;

/// A frame whose windows slide over the last axis, or the last two.
pub(super) struct Sliding {
    pub(super) planes: usize,
    rows: super::Axis,
    cols: super::Axis,
    /// The number of elements of a padded row.
    padded: usize,
}

impl Sliding {
    pub(super) fn new(frame: &Frame) -> Option<Sliding> {
        let plain = |a: &super::Axis| a.base_dilation == 1 && a.window_dilation == 1 && a.window > 0 && a.count > 0;
        let cols = frame.last;
        let (rows, before) = match frame.axes.split_last() {
            Some((rows, before)) if !rows.plain() => (*rows, before),
            // Every row is a separate plane.
            _ => {
                let one = super::Axis { base: 1, window: 1, count: 1, stride: 1, low: 0, step: cols.base, ..cols };
                (one, &frame.axes[..])
            }
        };
        // On x86-64 this code is only compiled for AVX2.
        let vectors = frame.avx2 || !cfg!(target_arch = "x86_64");
        if !vectors || !before.iter().all(super::Axis::plain) || !plain(&cols) || !plain(&rows) {
            return None;
        }
        let padded = (cols.count - 1) * usize::try_from(cols.stride).ok()? + cols.window;
        let sliding = Sliding { planes: before.iter().map(|a| a.count).product(), rows, cols, padded };
        (sliding.scratch() <= PLANE_BYTES && padded > 0).then_some(sliding)
    }

    /// The bytes of a worker's scratch: the reduced rows of a plane, two padded rows, and a row of states.
    pub(super) fn scratch(&self) -> usize {
        if self.is_flat() {
            return 2 * AREA * 8;
        }
        ((self.rows.base + 1) * self.cols.count + 2 * self.padded) * 8 + 64
    }

    /// Returns whether planes are small and nothing is padded.
    pub(super) fn is_flat(&self) -> bool {
        let inside = |a: &super::Axis| a.low == 0 && (a.count - 1) * a.stride as usize + a.window <= a.base;
        let small = self.cols.base <= FLAT && self.rows.base * self.cols.base <= AREA;
        small && inside(&self.rows) && inside(&self.cols)
    }

    /// The number of elements of a plane of the base, and of its windows.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.rows.base * self.cols.base, self.rows.count * self.cols.count)
    }

    /// Calls `f` with the windows of as many small planes as fit in one line: the index of the first window, the first position
    /// of the base under them, and for each window the position of its first extremum, relative to that position.
    ///
    /// # Safety
    /// `x` is valid for the base, whose elements are `keys` of at most four bytes, and `scratch` for
    /// [`Sliding::scratch`].
    pub(super) unsafe fn winners(
        &self,
        planes: Range<usize>,
        x: *const u8,
        keys: &Keys,
        max: bool,
        scratch: *mut u8,
        f: &mut dyn FnMut(usize, usize, &[u32]),
    ) {
        let code = const { &Code::new::<u64, Max>() };
        let (plane, windows) = self.sizes();
        let (mut found, mut places) = ([0u64; AREA], [0u32; AREA]);
        for first in planes.clone().step_by(AREA / plane) {
            let count = (AREA / plane).min(planes.end - first);
            // SAFETY: `x` is valid for these planes and `scratch` for `Sliding::scratch`. There is such a frame only
            // where the machine has AVX2, and a plane has no fewer elements than windows.
            unsafe {
                (keys.ranked)(x.add(first * plane * keys.size), count * plane, max, scratch.cast());
                self.windows(code, count, [scratch, scratch.add(AREA * 8)], found.as_mut_ptr().cast());
            }
            let own = 0..count * windows;
            places[own.clone()].iter_mut().zip(&found[own.clone()]).for_each(|(to, &key)| *to = !(key as u32));
            f(first * windows, first * plane, &places[own]);
        }
    }

    /// Computes the results of some planes, as many as fit in a line at a time.
    ///
    /// # Safety
    /// As for [`Sliding::plane`]; the code is of a fold that joins.
    pub(super) unsafe fn flat(
        &self,
        code: &Code,
        planes: Range<usize>,
        (x, y): IoPointers,
        start: u64,
        scratch: *mut u8,
    ) {
        let Some(slides) = &code.slides else { return };
        let (plane, windows) = self.sizes();
        for first in planes.clone().step_by(AREA / plane) {
            let count = (AREA / plane).min(planes.end - first);
            let x = x.wrapping_add(first * plane * code.size);
            // SAFETY: `x` is valid for these planes, `y` for their results and `scratch` for `Sliding::scratch`. There
            // is such a frame only where the machine has AVX2.
            unsafe {
                (slides.down[0])(&x, 0, Some(start), scratch, count * plane);
                let room = [scratch, scratch.add(AREA * code.state)];
                self.windows(code, count, room, y.add(first * windows * code.size));
            }
        }
    }

    /// Computes the results of some small planes from the states of single elements.
    ///
    /// # Safety
    /// `run` and `done` are valid for the states of all planes, `y` for the results, and the machine has the vectors.
    unsafe fn windows(&self, code: &Code, planes: usize, [run, done]: [*mut u8; 2], y: *mut u8) {
        let Some(slides) = &code.slides else { return };
        let (rows, cols) = (self.rows, self.cols);
        let (plane, windows) = self.sizes();
        let n = planes * plane;
        // SAFETY: `run` and `done` are valid for the states of all planes, `y` for the results, and all windows are
        // inside their planes.
        unsafe {
            let along = n - (cols.window - 1);
            double_up(code, (run, n), (done, along), cols.window, 1);
            let down = along - (rows.window - 1) * cols.base;
            double_up(code, (done, along), (run, down), rows.window, cols.base);
            let way = [rows.count, rows.stride as usize * cols.base, cols.count, cols.stride as usize];
            for p in 0..planes {
                (slides.results)(run.add(p * plane * code.state), way, y.add(p * windows * code.size));
            }
        }
    }

    /// Computes the results of one plane.
    ///
    /// # Safety
    /// `x` is valid for the base, `y` for the results, `scratch` for [`Sliding::scratch`].
    pub(super) unsafe fn plane(&self, code: &Code, plane: usize, (x, y): IoPointers, start: u64, scratch: *mut u8) {
        let Some(slides) = &code.slides else { return };
        let (rows, cols) = (self.rows, self.cols);
        let (base, windows) = self.sizes();
        let (x, y) = (x.wrapping_add(plane * base * code.size), y.wrapping_add(plane * windows * code.size));
        let row = |r: usize| x.wrapping_add(r * cols.base * code.size);
        let result = |o: usize| y.wrapping_add(o * cols.count * code.size);
        let part = |states: usize| scratch.wrapping_add(states * code.state);
        let reduced = |r: usize| part(r * cols.count);
        // The scratch has a row of states, and two padded rows after it.
        let all = (rows.base + 1) * cols.count;
        let (states, room) = (reduced(rows.base), [part(all), part(all + self.padded)]);
        // SAFETY: a state takes at most 8 bytes; the parts of scratch don't overlap; there is no such frame without AVX2.
        unsafe {
            if rows.window == 1 || code.any_order && rows.window <= LOW {
                for o in 0..rows.count {
                    let met = self.met(o);
                    let (mut lines, n) = ([x; LOW], met.len());
                    lines.iter_mut().zip(met).for_each(|(line, r)| *line = row(r));
                    self.along(code, slides, &lines[..n], start, room, (result(o), true));
                }
                return;
            }
            for r in 0..rows.base {
                self.along(code, slides, &[row(r)], start, room, (reduced(r), false));
            }
            for o in 0..rows.count {
                let mut from: Option<*mut u8> = None;
                for r in self.met(o) {
                    from = Some(match from {
                        None => reduced(r),
                        Some(from) => {
                            (slides.joined)(from, reduced(r), states, cols.count);
                            states
                        }
                    });
                }
                let from = from.unwrap_or_else(|| {
                    fill(states, code.state, cols.count, start);
                    states
                });
                (slides.results)(from, [1, 0, cols.count, 1], result(o));
            }
        }
    }

    /// Returns the rows of the base under a row of windows.
    fn met(&self, o: usize) -> Range<usize> {
        let rows = &self.rows;
        let first = o as i64 * rows.stride - rows.low;
        let begin = first.clamp(0, rows.base as i64);
        let end = (first + rows.window as i64).clamp(begin, rows.base as i64);
        begin as usize..end as usize
    }

    /// Computes the reductions of all windows along a row, or along the sums of some rows, as results or as states.
    ///
    /// # Safety
    /// Rows are valid for the elements along the last axis.
    unsafe fn along(
        &self,
        code: &Code,
        slides: &SlidingOps,
        rows: &[*const u8],
        start: u64,
        room: [*mut u8; 2],
        (to, results): (*mut u8, bool),
    ) {
        let (count, stride) = (self.cols.count, self.cols.stride as usize);
        let size = if results { code.size } else { code.state };
        for first in (0..count).step_by(BLOCK) {
            let n = BLOCK.min(count - first);
            let length = (n - 1) * stride + self.cols.window;
            // SAFETY: the rows are valid for the elements along the last axis, both rooms for the states of a block,
            // and `to` for `count` results.
            unsafe {
                self.begin(code, slides, rows, first * stride, start, (room[0], length));
                self.combine(code, slides, room, n, (to.add(first * size), results));
            }
        }
    }

    /// Computes the states of single elements from position `first` of the padded row on.
    ///
    /// # Safety
    /// As for [`Sliding::along`].
    unsafe fn begin(
        &self,
        code: &Code,
        slides: &SlidingOps,
        rows: &[*const u8],
        first: usize,
        start: u64,
        (run, length): (*mut u8, usize),
    ) {
        // The padding around the row has the initial state.
        let (low, length) = (self.cols.low - first as i64, length as i64);
        let begin = low.clamp(0, length);
        let end = (self.cols.base as i64 + low).clamp(begin, length);
        let skip = (begin - low) as usize;
        let (begin, end, length) = (begin as usize, end as usize, length as usize);
        // SAFETY: the part from `begin` to `end` is inside of the rows, and `run` is valid for `length` states; where
        // nothing is inside, no row is read.
        unsafe {
            let at = |i: usize| run.add(i * code.state);
            fill(run, code.state, begin, start);
            fill(at(end), code.state, length - end, start);
            if rows.is_empty() {
                fill(at(begin), code.state, end - begin, start);
            }
            for (i, rows) in rows.chunks(TOGETHER).enumerate() {
                let fresh = (i == 0).then_some(start);
                (slides.down[rows.len() - 1])(rows.as_ptr(), skip, fresh, at(begin), end - begin);
            }
        }
    }

    /// Computes `n` windows from the states of single elements.
    ///
    /// # Safety
    /// As for [`Sliding::along`].
    unsafe fn combine(
        &self,
        code: &Code,
        slides: &SlidingOps,
        [run, done]: [*mut u8; 2],
        n: usize,
        (to, results): (*mut u8, bool),
    ) {
        let (window, stride) = (self.cols.window, self.cols.stride as usize);
        // One window starting at each state.
        let all = (n - 1) * stride + 1;
        // SAFETY: `run` and `done` are valid for the states of `n` windows, and `to` for `n` results.
        unsafe {
            let (from, every) = match (window, stride, slides.few_results) {
                (1, ..) => (run, stride),
                (2..=4, 1, Some(few)) if results => return few[window - 2](run, to, n),
                (2..=4, 1, _) if !results => return (slides.few[window - 2])(run, to, n),
                _ if stride >= window.max(3) => {
                    let way = [stride, window];
                    match (slides.apart_results, results) {
                        (_, false) => return (slides.apart)(run, way, to, n),
                        (Some(apart), true) => return apart(run, way, to, n),
                        (None, true) => (slides.apart)(run, way, done, n),
                    }
                    (done, 1)
                }
                (2..=4, ..) => {
                    (slides.few[window - 2])(run, done, all);
                    (done, stride)
                }
                _ => {
                    double_up(code, (run, all + window - 1), (done, all), window, 1);
                    (done, stride)
                }
            };
            match results {
                true => (slides.results)(from, [1, 0, n, every], to),
                false => pick(from, code.state, [1, 0, n, every], to),
            }
        }
    }
}

/// Computes one window starting at each element from runs of 1, 2, 4, .. elements that are `apart`.
///
/// # Safety
/// `run` is valid for `length` states, `done` for `n`, they don't overlap, the code is of a fold that joins, and the
/// machine has the vectors.
unsafe fn double_up(
    code: &Code,
    (run, length): (*mut u8, usize),
    (done, n): (*mut u8, usize),
    window: usize,
    apart: usize,
) {
    let Some(slides) = &code.slides else { return };
    // Element i of `run` combines `size` elements from i on; element i of `done` combines the `taken` elements from i on.
    let (mut size, mut taken, mut left) = (1, 0, window);
    loop {
        // SAFETY: `run` is valid for `length` states and `done` for `n`; every window is inside of `run`.
        unsafe {
            if left & 1 == 1 {
                let from = run.add(taken * apart * code.state);
                match taken {
                    0 => std::ptr::copy_nonoverlapping(from, done, n * code.state),
                    _ => (slides.joined)(done, from, done, n),
                }
                taken += size;
            }
            left >>= 1;
            if left == 0 {
                return;
            }
            // Double the run length: combine the run at each element with the run `size` elements later.
            (slides.joined)(run, run.add(size * apart * code.state), run, length - (2 * size - 1) * apart);
        }
        size *= 2;
    }
}
