//! Positions of the extrema of a line of windows.
//! The outer loop runs over window elements and the inner one over windows, so it is vectorized.

use super::super::element::Element;
use super::code::by_size;
use super::{Frame, pool2x2};

/// The position of a window that contains no element of the base.
pub(super) const NONE: u32 = u32::MAX;

/// The number of keys that are gathered at a time.
const PICKED: usize = 32;

/// The functions for one type of keys and elements.
pub(super) struct Keys {
    /// The bytes of an element.
    pub(super) size: usize,
    /// Updates the extrema of a line of windows, and their positions, with a row of keys.
    row: unsafe fn(Row, *mut u8, *mut u32),
    /// Converts keys to integers that sort like extrema, with the first of equal keys above the others; the low bits are left
    /// free for the position.
    pub(super) ranked: unsafe fn(*const u8, usize, bool, *mut u64),
    /// Writes one element per 2 × 2 window at its extremum; see [`pool2x2::spread`].
    pub(super) spread: unsafe fn(bool, [*const u8; 2], (usize, bool), *const u8, [*mut u8; 2]),
    /// Adds elements to the elements at the given positions.
    pub(super) add: unsafe fn(*const u8, &[u32], *mut u8),
}

/// A row of keys that the windows of a line use.
#[derive(Clone, Copy)]
struct Row<'a> {
    frame: &'a Frame,
    keys: *const u8,
    /// The position of the first key.
    at: u32,
    max: bool,
}

impl Keys {
    pub(super) const fn new<T: Element>() -> Keys {
        Keys { size: size_of::<T>(), row: row::<T>, ranked: ranked::<T>, spread: pool2x2::spread::<T>, add: add::<T> }
    }

    /// Writes for each window of line `line` the position of its first extremum, minus `from`, or [`NONE`];
    /// `values` is scratch for keys.
    ///
    /// # Safety
    /// The frame is that of the keys, and `places` and `values` have an entry for each window of the line.
    pub(super) unsafe fn argmax_windows(
        &self,
        frame: &Frame,
        (line, from): (usize, usize),
        (keys, max): (*const u8, bool),
        values: *mut u8,
        places: &mut [u32],
    ) {
        places.fill(NONE);
        // SAFETY: `values` and `places` have an entry for each window of the line, and every row that `rows` gives is
        // inside the keys.
        unsafe {
            values.write_bytes(0, places.len() * self.size);
            frame.rows(line, &mut |start| {
                let row = Row { frame, keys: keys.add(start * self.size), at: (start - from) as u32, max };
                (self.row)(row, values, places.as_mut_ptr());
            });
        }
    }

    /// Takes the elements at the given positions, and zero where there is none.
    ///
    /// # Safety
    /// Every place that is not [`NONE`] is inside of `from`, and `to` is valid for `places.len()` elements.
    pub(super) unsafe fn take(&self, from: *const u8, places: &[u32], to: *mut u8) {
        by_size!(self.size, E => {
            let (from, to) = (from.cast::<E>(), to.cast::<E>());
            for (o, &place) in places.iter().enumerate() {
                // SAFETY: a place that is not `NONE` is inside of `from`, and `to` is valid for `places.len()`
                // elements.
                unsafe { *to.add(o) = if place == NONE { 0 } else { *from.add(place as usize) } };
            }
        })
    }
}

/// Adds elements to the elements at the given positions; see [`Keys::add`].
///
/// # Safety
/// `from` is valid for `places.len()` elements, and `to` for every place that is not [`NONE`].
unsafe fn add<T: Element>(from: *const u8, places: &[u32], to: *mut u8) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for (o, &place) in places.iter().enumerate().filter(|(_, place)| **place != NONE) {
        // SAFETY: `from` is valid for `places.len()` elements, and a place that is not `NONE` is inside of `to`.
        unsafe {
            let to = to.add(place as usize);
            *to = (*to).add(*from.add(o));
        }
    }
}

/// Converts keys to integers that sort like extrema; see [`Keys::ranked`].
///
/// # Safety
/// `x` is valid for `n` keys, `to` for `n` ranks, and the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn ranked<T: Element>(x: *const u8, n: usize, max: bool, to: *mut u64) {
    let flip = if max { 0 } else { u32::MAX };
    // SAFETY: `x` is valid for `n` keys and `to` for `n` ranks; they don't overlap.
    let (x, to) = unsafe { (std::slice::from_raw_parts(x.cast::<T>(), n), std::slice::from_raw_parts_mut(to, n)) };
    for (i, (x, to)) in x.iter().zip(to).enumerate() {
        let rank = x.key() as u32 ^ flip;
        let rank = if x.is_nan() { u32::MAX } else { rank };
        *to = (rank as u64) << 32 | !(i as u32) as u64;
    }
}

/// Updates the extrema of a line of windows with a row of keys; see [`Keys::row`].
///
/// # Safety
/// The row is one of the frame's keys, and `values` and `places` are valid for each window.
unsafe fn row<T: Element>(row: Row, values: *mut u8, places: *mut u32) {
    let (frame, n) = (row.frame, row.frame.last.count);
    // SAFETY: the row is one of the frame's keys, `values` and `places` have an entry for each window, and the frame
    // names only instructions that the machine has.
    unsafe {
        let values = std::slice::from_raw_parts_mut(values.cast::<T>(), n);
        let places = std::slice::from_raw_parts_mut(places, n);
        let line = Line { frame, row: row.keys.cast::<T>(), at: row.at, max: row.max };
        #[cfg(target_arch = "x86_64")]
        {
            if Line::<T>::LONG && frame.avx512 {
                return line.row_avx512(values, places);
            }
            if frame.avx2 {
                return line.row_avx2(values, places);
            }
            // Machines without AVX2 use one short scalar loop.
            line.singly(values, places);
        }
        #[cfg(not(target_arch = "x86_64"))]
        line.row(values, places);
    }
}

/// A line of windows and a row of keys.
#[derive(Clone, Copy)]
struct Line<'a, T> {
    frame: &'a Frame,
    row: *const T,
    at: u32,
    max: bool,
}

impl<T: Element> Line<'_, T> {
    /// Whether the type is worth a specialized AVX-512 function.
    ///
    /// # Safety
    /// The row is inside the keys, `values` and `places` have an entry for each window, and the machine has AVX-512.
    #[cfg(target_arch = "x86_64")]
    const LONG: bool = size_of::<T>() == 4 && !T::IS_INT;

    /// Processes a row with AVX-512. It is a separate function so that the callee is inlined with these target features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn row_avx512(self, values: &mut [T], places: &mut [u32]) {
        // SAFETY: `row` has the contract of this function, and `values` and `places` have an entry for each window.
        unsafe { self.row(values, places) }
    }

    /// # Safety
    /// The row is inside the keys, `values` and `places` have an entry for each window, and the machine has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn row_avx2(self, values: &mut [T], places: &mut [u32]) {
        // SAFETY: `row` has the contract of this function, and `values` and `places` have an entry for each window.
        unsafe { self.row(values, places) }
    }

    /// Updates the windows with the row.
    ///
    /// # Safety
    /// The row is inside the keys, and `values` and `places` have an entry for each window.
    ///
    /// # Safety
    /// The row is inside the keys, and `values` and `places` have an entry for each window.
    #[inline(always)]
    unsafe fn row(self, values: &mut [T], places: &mut [u32]) {
        let a = &self.frame.last;
        // SAFETY: the row is inside the keys, and `values` and `places` have an entry for each window.
        unsafe {
            match a.stride {
                1 if a.base_dilation == 1 => self.lines::<1>(values, places),
                2 if a.base_dilation == 1 => self.lines::<2>(values, places),
                _ if a.base_dilation == 1 => self.picked(values, places),
                _ => self.singly(values, places),
            }
        }
    }

    /// Updates the windows key by key.
    ///
    /// # Safety
    /// The row is inside the keys, and `values` and `places` have an entry for each window.
    #[inline(always)]
    unsafe fn singly(self, values: &mut [T], places: &mut [u32]) {
        let (row, at) = (self.row, self.at);
        self.frame.along(|o, i| {
            // SAFETY: `along` gives indices inside the row, which is inside the keys.
            let key = unsafe { *row.add(i) };
            meet(&mut values[o], &mut places[o], key, at + i as u32, self.max)
        });
    }

    /// Updates windows that are farther apart: the keys are gathered into a buffer first.
    ///
    /// # Safety
    /// The row is inside the keys, and `values` and `places` have an entry for each window.
    #[inline(always)]
    unsafe fn picked(self, values: &mut [T], places: &mut [u32]) {
        let (row, at, max) = (self.row, self.at, self.max);
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

    /// Updates windows that are `S` elements apart.
    #[inline(always)]
    unsafe fn lines<const S: usize>(self, values: &mut [T], places: &mut [u32]) {
        let (row, at, max) = (self.row, self.at, self.max);
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

/// Updates a window's extremum with a key, without branches so that the loop is vectorized.
#[inline(always)]
fn meet<T: Element>(value: &mut T, place: &mut u32, key: T, at: u32, max: bool) {
    let wins = (*place == NONE) | key.beats(*value, max);
    *value = if wins { key } else { *value };
    *place = if wins { at } else { *place };
}
