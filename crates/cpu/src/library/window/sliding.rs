//! Windows that slide over the last axis, or the last two, of planes that have nothing else to do with each other.
//!
//! A reduction of windows is one of rows of windows, so each row of the base is reduced along the last axis once, and results
//! take those of as many rows as a window has. Along the axis, runs of 1, 2, 4, .. elements are made of each other, and a window of the
//! few that its length is made of: the elements are taken in order, in another grouping. Sums, whose order is free, of low windows are
//! taken down the rows first: that keeps one line of them, and no plane. Of small planes without padding, rows are too short for loops of their
//! own: some planes are one line, along which windows are reduced first by columns, then by rows, those that reach into the next row for nothing.

use super::super::element::{Element, Fold, Max};
use super::Frame;

/// Bytes of reduced rows of one plane.
pub(super) const PLANE_BYTES: usize = 1 << 20;
/// Results along a row that are computed at a time: what they are made of stays in the first cache.
pub(super) const BLOCK: usize = 512;
/// Rows of a window up to which sums are taken down the rows first.
pub(super) const LOW: usize = 16;
/// Elements of a row up to which rows of small planes are reduced as one line.
pub(super) const FLAT: usize = 32;
/// Elements of planes that are such a line.
const AREA: usize = 1 << 10;
/// Rows that are read together, and elements along them.
const TOGETHER: usize = 4;

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
        // The code here is made for AVX2 alone, where vectors differ.
        let vectors = frame.avx2 || !cfg!(target_arch = "x86_64");
        if !vectors || !before.iter().all(super::Axis::plain) || !plain(&cols) || !plain(&rows) {
            return None;
        }
        let padded = (cols.count - 1) * usize::try_from(cols.stride).ok()? + cols.window;
        let sliding = Sliding { planes: before.iter().map(|a| a.count).product(), rows, cols, padded };
        (sliding.scratch() <= PLANE_BYTES && padded > 0).then_some(sliding)
    }

    /// Bytes that a worker needs: the reduced rows of a plane, two padded rows, and a row of states.
    pub(super) fn scratch(&self) -> usize {
        if self.is_flat() {
            return 2 * AREA * 8;
        }
        ((self.rows.base + 1) * self.cols.count + 2 * self.padded) * 8 + 64
    }

    /// Whether planes are small and nothing is padded.
    pub(super) fn is_flat(&self) -> bool {
        let inside = |a: &super::Axis| a.low == 0 && (a.count - 1) * a.stride as usize + a.window <= a.base;
        let small = self.cols.base <= FLAT && self.rows.base * self.cols.base <= AREA;
        small && inside(&self.rows) && inside(&self.cols)
    }

    /// Elements of a plane of the base, and windows of it.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.rows.base * self.cols.base, self.rows.count * self.cols.count)
    }

    /// Calls `f` with each window of some small planes, and where in the base its first extremum is.
    ///
    /// # Safety
    /// `x` is good for the base, of elements of four bytes at most, and `scratch` for [`Sliding::scratch`].
    pub(super) unsafe fn winners<T: Element>(
        &self,
        planes: std::ops::Range<usize>,
        x: *const T,
        max: bool,
        scratch: *mut u8,
        mut f: impl FnMut(usize, usize),
    ) {
        let (plane, windows) = self.sizes();
        let mut window = 0;
        for first in planes.clone().step_by(AREA / plane) {
            let count = (AREA / plane).min(planes.end - first);
            let mut found = [0u64; AREA];
            // SAFETY: the caller's promise; there is no such frame without AVX2, and a plane has no fewer elements than windows.
            unsafe {
                let room = std::slice::from_raw_parts_mut(scratch.cast::<u64>(), 2 * AREA);
                let (keys, done) = room.split_at_mut(AREA);
                ranked(std::slice::from_raw_parts(x.add(first * plane), count * plane), max, keys);
                self.windows::<u64, Max>(count, keys, done, found.as_mut_ptr());
            }
            for key in &found[..count * windows] {
                f(window, first * plane + !(*key as u32) as usize);
                window += 1;
            }
        }
    }

    /// The results of some planes, as many as a line holds at a time.
    ///
    /// # Safety
    /// As for [`Sliding::reduce`].
    pub(super) unsafe fn flat<T: Element, F: Fold<T>>(
        &self,
        planes: std::ops::Range<usize>,
        (x, y): (*const T, *mut T),
        identity: T,
        scratch: *mut u8,
    ) {
        let plane = self.rows.base * self.cols.base;
        for first in planes.clone().step_by(AREA / plane) {
            let count = (AREA / plane).min(planes.end - first);
            let x = x.wrapping_add(first * plane);
            let y = y.wrapping_add(first * self.rows.count * self.cols.count);
            // SAFETY: the caller's promise; there is no such frame without AVX2.
            unsafe { self.flat_planes::<T, F>(count, x, y, F::start(identity), scratch.cast()) };
        }
    }

    /// The results of so many planes.
    ///
    /// # Safety
    /// `x` and `y` are good for so many planes, `scratch` for two lines of their states.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn flat_planes<T: Element, F: Fold<T>>(
        &self,
        planes: usize,
        x: *const T,
        y: *mut T,
        start: F::State,
        scratch: *mut F::State,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let run = std::slice::from_raw_parts_mut(scratch, AREA);
            let done = std::slice::from_raw_parts_mut(scratch.add(AREA), AREA);
            down::<T, F, 1>([x], 0, start, true, &mut run[..planes * self.rows.base * self.cols.base]);
            self.windows::<T, F>(planes, run, done, y);
        }
    }

    /// Results of so many small planes from those of single elements.
    ///
    /// # Safety
    /// `y` is good for them; the machine has the vectors.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn windows<T: Element, F: Fold<T>>(
        &self,
        planes: usize,
        run: &mut [F::State],
        done: &mut [F::State],
        y: *mut T,
    ) {
        let (rows, cols) = (self.rows, self.cols);
        let (plane, n) = (rows.base * cols.base, planes * rows.base * cols.base);
        let run = &mut run[..n];
        // SAFETY: the caller's promise; windows are inside their planes.
        unsafe {
            let along = n - (cols.window - 1);
            double_up::<T, F>(run, &mut done[..along], cols.window, 1);
            let down = along - (rows.window - 1) * cols.base;
            double_up::<T, F>(&mut done[..along], &mut run[..down], rows.window, cols.base);
            let mut to = y;
            for p in 0..planes {
                for o in 0..rows.count {
                    let line = run.as_ptr().add(p * plane + o * rows.stride as usize * cols.base);
                    for c in 0..cols.count {
                        *to = F::result(*line.add(c * cols.stride as usize));
                        to = to.add(1);
                    }
                }
            }
        }
    }

    /// The results of one plane.
    ///
    /// # Safety
    /// `x` is good for a plane of the base, `y` for one of results, `scratch` for [`Sliding::scratch`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
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
            if F::ANY_ORDER && rows.window <= LOW {
                for o in 0..rows.count {
                    let (mut lines, mut n) = ([x; LOW], 0);
                    for r in (0..rows.window).filter_map(|k| rows.source(o, k)) {
                        lines[n] = x.add(r * cols.base);
                        n += 1;
                    }
                    let to = std::slice::from_raw_parts_mut(y.add(o * cols.count), cols.count);
                    self.along::<T, F, T>(&lines[..n], start, run, done, to, F::result);
                }
                return;
            }
            for (r, line) in reduced.chunks_exact_mut(cols.count).enumerate() {
                self.along::<T, F, F::State>(&[x.add(r * cols.base)], start, run, done, line, |s| s);
            }
            for o in 0..rows.count {
                let mut fresh = true;
                for k in 0..rows.window {
                    let Some(r) = rows.source(o, k) else { continue };
                    let line = &reduced[r * cols.count..][..cols.count];
                    if fresh {
                        states.copy_from_slice(line);
                    } else {
                        joined::<T, F>(states.as_ptr(), line.as_ptr(), states.as_mut_ptr(), line.len());
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

    /// The reductions of all windows along a row, or along the sums of some rows.
    ///
    /// # Safety
    /// Rows are good for the elements along the last axis.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn along<T: Element, F: Fold<T>, R>(
        &self,
        rows: &[*const T],
        start: F::State,
        run: &mut [F::State],
        done: &mut [F::State],
        to: &mut [R],
        result: impl Fn(F::State) -> R,
    ) {
        let stride = self.cols.stride as usize;
        for (i, to) in to.chunks_mut(BLOCK).enumerate() {
            let (first, length) = (i * BLOCK * stride, (to.len() - 1) * stride + self.cols.window);
            let run = &mut run[..length];
            // SAFETY: the caller's promise.
            unsafe {
                self.begin::<T, F>(rows, first, start, run);
                self.combine::<T, F, R>(run, &mut done[..length], to, &result);
            }
        }
    }

    /// What windows of one element have, from some place of the padded row on.
    ///
    /// # Safety
    /// As for [`Sliding::along`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn begin<T: Element, F: Fold<T>>(
        &self,
        rows: &[*const T],
        first: usize,
        start: F::State,
        run: &mut [F::State],
    ) {
        // What the fold begins with lies around the row.
        let (low, length) = (self.cols.low - first as i64, run.len() as i64);
        let begin = low.clamp(0, length);
        let end = (self.cols.base as i64 + low).clamp(begin, length);
        let skip = (begin - low) as usize;
        let (begin, end) = (begin as usize, end as usize);
        run[..begin].fill(start);
        run[end..].fill(start);
        let inside = &mut run[begin..end];
        if rows.is_empty() {
            return inside.fill(start);
        }
        for (i, rows) in rows.chunks(TOGETHER).enumerate() {
            // SAFETY: the caller's promise; where nothing is inside, nothing is read.
            unsafe {
                match *rows {
                    [a] => down::<T, F, 1>([a], skip, start, i == 0, inside),
                    // Where the order counts, there is one row.
                    _ if !F::ANY_ORDER => {}
                    [a, b] => down::<T, F, 2>([a, b], skip, start, i == 0, inside),
                    [a, b, c] => down::<T, F, 3>([a, b, c], skip, start, i == 0, inside),
                    [a, b, c, d] => down::<T, F, 4>([a, b, c, d], skip, start, i == 0, inside),
                    _ => unreachable!("chunks have up to four rows"),
                }
            }
        }
    }

    /// Results of windows from those of single elements.
    ///
    /// # Safety
    /// The machine has the vectors.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn combine<T: Element, F: Fold<T>, R>(
        &self,
        run: &mut [F::State],
        done: &mut [F::State],
        to: &mut [R],
        result: &impl Fn(F::State) -> R,
    ) {
        let (window, stride) = (self.cols.window, self.cols.stride as usize);
        if stride == 1 {
            // SAFETY: the caller's promise.
            unsafe {
                match window {
                    1 => return to.iter_mut().zip(&*run).for_each(|(to, &s)| *to = result(s)),
                    2 => return few::<T, F, R, 2>(run, to, result),
                    3 => return few::<T, F, R, 3>(run, to, result),
                    4 => return few::<T, F, R, 4>(run, to, result),
                    _ => {}
                }
            }
        }
        if stride >= window.max(3) {
            // No two windows share an element: each by itself.
            for (to, own) in to.iter_mut().zip(run.chunks(stride)) {
                *to = result(own[1..window].iter().fold(own[0], |s, &x| F::join(s, x)));
            }
            return;
        }
        let n = run.len() - window + 1;
        // SAFETY: the caller's promise.
        unsafe {
            match window {
                2 => few::<T, F, F::State, 2>(run, &mut done[..n], &|s| s),
                3 => few::<T, F, F::State, 3>(run, &mut done[..n], &|s| s),
                4 => few::<T, F, F::State, 4>(run, &mut done[..n], &|s| s),
                _ => double_up::<T, F>(run, &mut done[..n], window, 1),
            }
        }
        // Every second one by groups.
        let groups = if stride == 2 { to.len().min(n / 2) / AT_ONCE * AT_ONCE } else { 0 };
        for (to, s) in to[..groups].chunks_exact_mut(AT_ONCE).zip(done[..n].chunks_exact(2 * AT_ONCE)) {
            for (k, to) in to.iter_mut().enumerate() {
                *to = result(s[2 * k]);
            }
        }
        match stride {
            1 => to.iter_mut().zip(&*done).for_each(|(to, &s)| *to = result(s)),
            stride => to.iter_mut().enumerate().skip(groups).for_each(|(o, to)| *to = result(done[o * stride])),
        }
    }

    /// The results of one plane, by number.
    ///
    /// # Safety
    /// `x` is good for the base, `y` for the results, `scratch` for [`Sliding::scratch`].
    pub(super) unsafe fn reduce<T: Element, F: Fold<T>>(
        &self,
        plane: usize,
        (x, y): (*const T, *mut T),
        identity: T,
        scratch: *mut u8,
    ) {
        let x = x.wrapping_add(plane * self.rows.base * self.cols.base);
        let y = y.wrapping_add(plane * self.rows.count * self.cols.count);
        // SAFETY: the caller's promise; there is no such frame without AVX2.
        unsafe { self.plane::<T, F>(x, y, identity, scratch) }
    }
}

/// Elements that are read before others are written: vectors of them need not ask whether both overlap.
const AT_ONCE: usize = 8;

/// Calls `f` with where each of the groups of [`AT_ONCE`] begins that cover `0..n`: the last one may overlap the one before. Says whether `n` is
/// enough for one.
#[inline(always)]
fn cover(n: usize, mut f: impl FnMut(usize)) -> bool {
    if n < AT_ONCE {
        return false;
    }
    let mut at = 0;
    // One call, so that it is written out here.
    loop {
        f(at);
        if at + AT_ONCE >= n {
            return true;
        }
        at = (at + AT_ONCE).min(n - AT_ONCE);
    }
}

/// Elements below each other: of fresh states, or with what these have.
///
/// # Safety
/// Rows are good for as many elements as there are states, after those that are skipped, and the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[inline(never)]
unsafe fn down<T: Element, F: Fold<T>, const R: usize>(
    rows: [*const T; R],
    skip: usize,
    start: F::State,
    fresh: bool,
    states: &mut [F::State],
) {
    let (rows, to) = (rows.map(|row| row.wrapping_add(skip)), states.as_mut_ptr());
    let group = |at: usize| {
        let mut s = [start; AT_ONCE];
        for row in rows {
            // SAFETY: the caller vouches for the rows, and the group is inside the states.
            let x = unsafe { row.add(at).cast::<[T; AT_ONCE]>().read_unaligned() };
            for (s, x) in s.iter_mut().zip(x) {
                *s = F::step(*s, x);
            }
        }
        // SAFETY: as above.
        unsafe { to.add(at).cast::<[F::State; AT_ONCE]>().write(s) };
    };
    if fresh && cover(states.len(), group) {
        return;
    }
    for (i, s) in states.iter_mut().enumerate() {
        let first = if fresh { start } else { *s };
        // SAFETY: the caller's promise.
        *s = rows.iter().fold(first, |s, row| F::step(s, unsafe { *row.add(i) }));
    }
}

/// Windows of a few adjacent elements.
///
/// # Safety
/// The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[inline(never)]
unsafe fn few<T: Element, F: Fold<T>, R, const N: usize>(
    run: &[F::State],
    to: &mut [R],
    result: &impl Fn(F::State) -> R,
) {
    let (from, out) = (run.as_ptr(), to.as_mut_ptr());
    assert!(run.len() >= to.len() + N - 1);
    // SAFETY: groups are inside the results, and with the elements after them inside the run.
    let group = |at: usize| unsafe {
        let mut s = from.add(at).cast::<[F::State; AT_ONCE]>().read();
        for k in 1..N {
            let x = from.add(at + k).cast::<[F::State; AT_ONCE]>().read();
            for (s, x) in s.iter_mut().zip(x) {
                *s = F::join(*s, x);
            }
        }
        out.add(at).cast::<[R; AT_ONCE]>().write_unaligned(s.map(result));
    };
    if cover(to.len(), group) {
        return;
    }
    for (o, to) in to.iter_mut().enumerate() {
        *to = result(run[o + 1..o + N].iter().fold(run[o], |s, &x| F::join(s, x)));
    }
}

/// Reductions of windows, one from each element on, of runs of 1, 2, 4, .. elements that are `apart`.
///
/// # Safety
/// The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn double_up<T: Element, F: Fold<T>>(run: &mut [F::State], done: &mut [F::State], window: usize, apart: usize) {
    // `run[i]` is of `size` elements from i on, `done[i]` of those that are taken.
    let (mut size, mut taken, mut left) = (1, 0, window);
    let n = done.len();
    loop {
        if left & 1 == 1 {
            let from = &run[taken * apart..][..n];
            match taken {
                0 => done.copy_from_slice(from),
                // SAFETY: both are there.
                _ => unsafe { joined::<T, F>(done.as_ptr(), from.as_ptr(), done.as_mut_ptr(), n) },
            }
            taken += size;
        }
        left >>= 1;
        if left == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { double::<T, F>(run, size, apart) };
        size *= 2;
    }
}

/// Makes runs of `size` elements that are `apart` twice as long: of what begins at an element, and what begins so many later.
///
/// # Safety
/// The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[inline(never)]
unsafe fn double<T: Element, F: Fold<T>>(run: &mut [F::State], size: usize, apart: usize) {
    let n = run.len() - (2 * size - 1) * apart;
    let size = size * apart;
    let at = run.as_mut_ptr();
    // SAFETY: `n + size` elements are there.
    unsafe { joined::<T, F>(at, at.wrapping_add(size), at, n) }
}

/// Joins states with others, to where the first are: a function of its own, which doesn't know that, or only those that change would be
/// written, by masks, which takes some processors ten times as long.
///
/// # Safety
/// So many states are at each place; others lie behind those that they are joined with, or elsewhere. The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[inline(never)]
unsafe fn joined<T: Element, F: Fold<T>>(a: *const F::State, b: *const F::State, to: *mut F::State, n: usize) {
    let whole = n / AT_ONCE * AT_ONCE;
    // SAFETY: the caller's promise. Each is read before it is written.
    unsafe {
        for i in (0..whole).step_by(AT_ONCE) {
            let mut s = a.add(i).cast::<[F::State; AT_ONCE]>().read();
            let other = b.add(i).cast::<[F::State; AT_ONCE]>().read();
            for (s, other) in s.iter_mut().zip(other) {
                *s = F::join(*s, other);
            }
            to.add(i).cast::<[F::State; AT_ONCE]>().write(s);
        }
        (whole..n).for_each(|i| *to.add(i) = F::join(*a.add(i), *b.add(i)));
    }
}

/// Numbers that order as extrema do, the first of equal elements above the others: what sorts elements above what is left to their place.
///
/// # Safety
/// The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn ranked<T: Element>(x: &[T], max: bool, to: &mut [u64]) {
    let flip = if max { 0 } else { u32::MAX };
    for (i, (x, to)) in x.iter().zip(to).enumerate() {
        let rank = x.key() as u32 ^ flip;
        let rank = if x.is_nan() { u32::MAX } else { rank };
        *to = (rank as u64) << 32 | !(i as u32) as u64;
    }
}
