//! Where the extrema of a line of windows are, window elements one after the other over all windows of the line: so vectors compare.

use super::super::element::Element;
use super::Frame;

/// No element of the base is in the window.
pub(super) const NONE: u32 = u32::MAX;

/// Keys that are picked at a time.
const PICKED: usize = 32;

/// A line of windows over keys.
#[derive(Clone, Copy)]
pub(super) struct Line<'a, T> {
    pub(super) frame: &'a Frame,
    pub(super) keys: *const T,
    /// Its number among the lines, and the place from which places count.
    pub(super) line: usize,
    pub(super) from: usize,
    pub(super) max: bool,
}

impl<T: Element> Line<'_, T> {
    /// Writes for each window the place of its first extremum, less `from`, or [`NONE`]; `values` is scratch.
    ///
    /// # Safety
    /// The frame is that of the keys, and both slices have an element for each window.
    pub(super) unsafe fn winners(self, values: &mut [T], places: &mut [u32]) {
        places.fill(NONE);
        values.fill(T::rounded(T::zero()));
        let frame = self.frame;
        frame.rows(self.line, |start| {
            // SAFETY: the caller's promise; the row is inside the keys, and the machine has what the frame says.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                {
                    if Self::LONG && frame.avx512 {
                        return self.row_avx512(start, values, places);
                    }
                    if frame.avx2 {
                        return self.row_avx2(start, values, places);
                    }
                    // Old machines have one short piece of code.
                    self.singly(start, values, places);
                }
                #[cfg(not(target_arch = "x86_64"))]
                self.row(start, values, places);
            }
        });
    }

    /// The type that long vectors are worth their code for.
    #[cfg(target_arch = "x86_64")]
    const LONG: bool = size_of::<T>() == 4 && !T::IS_INT;

    /// A row for an instruction set: a function of its own, or what is called for each row would not have it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn row_avx512(self, start: usize, values: &mut [T], places: &mut [u32]) {
        // SAFETY: the caller's promise.
        unsafe { self.row(start, values, places) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn row_avx2(self, start: usize, values: &mut [T], places: &mut [u32]) {
        // SAFETY: the caller's promise.
        unsafe { self.row(start, values, places) }
    }

    /// Windows meet the row of keys that begins at `start`.
    #[inline(always)]
    unsafe fn row(self, start: usize, values: &mut [T], places: &mut [u32]) {
        let a = &self.frame.last;
        // SAFETY: the caller's promise.
        unsafe {
            match a.stride {
                1 if a.base_dilation == 1 => self.lines::<1>(start, values, places),
                2 if a.base_dilation == 1 => self.lines::<2>(start, values, places),
                _ if a.base_dilation == 1 => self.picked(start, values, places),
                _ => self.singly(start, values, places),
            }
        }
    }

    /// The same, key by key.
    #[inline(always)]
    unsafe fn singly(self, start: usize, values: &mut [T], places: &mut [u32]) {
        let (row, at) = (self.keys.wrapping_add(start), (start - self.from) as u32);
        self.frame.along(|o, i| {
            // SAFETY: `along` gives indices inside the row, which is inside the keys.
            let key = unsafe { *row.add(i) };
            meet(&mut values[o], &mut places[o], key, at + i as u32, self.max)
        });
    }

    /// The same where windows are farther apart: keys that vectors meet are picked first.
    #[inline(always)]
    unsafe fn picked(self, start: usize, values: &mut [T], places: &mut [u32]) {
        let (row, at, max) = (self.keys.wrapping_add(start), (start - self.from) as u32, self.max);
        let a = &self.frame.last;
        let up = |x: i64| (x + a.stride - 1).div_euclid(a.stride);
        let mut keys = [T::rounded(T::zero()); PICKED];
        for k in 0..a.window {
            let first = k as i64 * a.window_dilation - a.low;
            let begin = up(-first).clamp(0, a.count as i64) as usize;
            let end = up(a.base as i64 - first).clamp(begin as i64, a.count as i64) as usize;
            for o in (begin..end).step_by(PICKED) {
                let (n, stride) = (PICKED.min(end - o), a.stride as usize);
                let first = (first + (o * stride) as i64) as usize;
                for (j, key) in keys[..n].iter_mut().enumerate() {
                    // SAFETY: these windows meet these elements of the row.
                    *key = unsafe { *row.add(first + stride * j) };
                }
                let all = values[o..o + n].iter_mut().zip(&mut places[o..o + n]).zip(&keys).enumerate();
                for (j, ((value, place), &key)) in all {
                    meet(value, place, key, at + (first + stride * j) as u32, max);
                }
            }
        }
    }

    /// The same where windows are `S` elements apart.
    #[inline(always)]
    unsafe fn lines<const S: usize>(self, start: usize, values: &mut [T], places: &mut [u32]) {
        let (row, at, max) = (self.keys.wrapping_add(start), (start - self.from) as u32, self.max);
        let a = &self.frame.last;
        let up = |x: i64| (x + S as i64 - 1).div_euclid(S as i64);
        for k in 0..a.window {
            let first = k as i64 * a.window_dilation - a.low;
            let begin = up(-first).clamp(0, a.count as i64);
            let end = up(a.base as i64 - first).clamp(begin, a.count as i64);
            let (n, first) = ((end - begin) as usize, first + S as i64 * begin);
            if n == 0 {
                continue;
            }
            let (own, first) = (begin as usize..end as usize, first as usize);
            let all = values[own.clone()].iter_mut().zip(&mut places[own]).enumerate();
            for (j, (value, place)) in all {
                // SAFETY: these windows meet these elements of the row.
                let key = unsafe { *row.add(first + S * j) };
                meet(value, place, key, at + (first + S * j) as u32, max);
            }
        }
    }
}

/// A key comes by: without branches, so that this is vectors.
#[inline(always)]
fn meet<T: Element>(value: &mut T, place: &mut u32, key: T, at: u32, max: bool) {
    let wins = (*place == NONE) | key.beats(*value, max);
    *value = if wins { key } else { *value };
    *place = if wins { at } else { *place };
}
