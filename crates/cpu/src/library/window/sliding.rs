//! Windows that slide over the last axis, or the last two, of planes that have nothing else to do with each other.
//!
//! A reduction of windows is one of rows of windows, so each row of the base is reduced along the last axis once, and results
//! take those of as many rows as a window has. Along the axis, runs of 1, 2, 4, .. elements are made of each other, and a window of the
//! few that its length is made of: the elements are taken in order, in another grouping. Sums, whose order is free, of low windows are
//! taken down the rows first: that keeps one line of them, and no plane.

use super::super::element::{Element, Fold};
use super::Frame;

/// Bytes of reduced rows of one plane.
pub(super) const PLANE_BYTES: usize = 1 << 20;
/// Results along a row that are computed at a time: what they are made of stays in the first cache.
pub(super) const BLOCK: usize = 512;
/// Rows of a window up to which sums are taken down the rows first.
pub(super) const LOW: usize = 16;
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
        ((self.rows.base + 1) * self.cols.count + 2 * self.padded) * 8 + 64
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
                _ => double_up::<T, F>(run, &mut done[..n], window),
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

/// Reductions of windows, one from each element on, of runs of 1, 2, 4, .. elements.
///
/// # Safety
/// The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn double_up<T: Element, F: Fold<T>>(run: &mut [F::State], done: &mut [F::State], window: usize) {
    // `run[i]` is of `size` elements from i on, `done[i]` of those that are taken.
    let (mut size, mut taken, mut left) = (1, 0, window);
    let n = done.len();
    loop {
        if left & 1 == 1 {
            let from = &run[taken..][..n];
            match taken {
                0 => done.copy_from_slice(from),
                _ => done.iter_mut().zip(from).for_each(|(d, &r)| *d = F::join(*d, r)),
            }
            taken += size;
        }
        left >>= 1;
        if left == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { double::<T, F>(run, size) };
        size *= 2;
    }
}

/// Makes runs twice as long: of what begins at an element, and what begins `size` elements later.
///
/// # Safety
/// The machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[inline(never)]
unsafe fn double<T: Element, F: Fold<T>>(run: &mut [F::State], size: usize) {
    let n = run.len() + 1 - 2 * size;
    let at = run.as_mut_ptr();
    let whole = n / AT_ONCE * AT_ONCE;
    // SAFETY: `n + size` elements are there. Each is read before it is written.
    unsafe {
        let mut i = 0;
        while i < whole {
            let mut a = at.add(i).cast::<[F::State; AT_ONCE]>().read();
            let b = at.add(i + size).cast::<[F::State; AT_ONCE]>().read();
            for (a, b) in a.iter_mut().zip(b) {
                *a = F::join(*a, b);
            }
            at.add(i).cast::<[F::State; AT_ONCE]>().write(a);
            i += AT_ONCE;
        }
        (whole..n).for_each(|i| *at.add(i) = F::join(*at.add(i), *at.add(i + size)));
    }
}
