//! Where the extrema of a line of windows are, window elements one after the other over all windows of the line: so vectors compare.

use super::super::element::Element;
use super::code::by_size;
use super::{Frame, pool2x2};

/// No element of the base is in the window.
pub(super) const NONE: u32 = u32::MAX;

/// Keys that are picked at a time.
const PICKED: usize = 32;

/// The code of a type of keys and elements.
pub(super) struct Keys {
    /// Bytes of an element.
    pub(super) size: usize,
    /// The windows of a line meet a row of keys: the best of them, and where it is.
    row: unsafe fn(Row, *mut u8, *mut u32),
    /// Numbers of so many keys that order as extrema do, the first of equal ones above the others: what sorts them above what is left to their place.
    pub(super) ranked: unsafe fn(*const u8, usize, bool, *mut u64),
    /// As [`halving::spread`].
    pub(super) spread: unsafe fn(bool, [*const u8; 2], (usize, bool), *const u8, [*mut u8; 2]),
    /// Adds elements to those at some places.
    pub(super) add: unsafe fn(*const u8, &[u32], *mut u8),
}

/// A row of keys that the windows of a line meet.
#[derive(Clone, Copy)]
struct Row<'a> {
    frame: &'a Frame,
    keys: *const u8,
    /// Its first place.
    at: u32,
    max: bool,
}

impl Keys {
    pub(super) const fn new<T: Element>() -> Keys {
        Keys { size: size_of::<T>(), row: row::<T>, ranked: ranked::<T>, spread: pool2x2::spread::<T>, add: add::<T> }
    }

    /// Writes for each window of a line, by number, the place of its first extremum, less `from`, or [`NONE`]; `values` is room for keys.
    ///
    /// # Safety
    /// The frame is that of the keys, and there are as many places, and as much room, as windows.
    pub(super) unsafe fn argmax_windows(
        &self,
        frame: &Frame,
        (line, from): (usize, usize),
        (keys, max): (*const u8, bool),
        values: *mut u8,
        places: &mut [u32],
    ) {
        places.fill(NONE);
        // SAFETY: the caller's promise; each row is inside the keys.
        unsafe {
            values.write_bytes(0, places.len() * self.size);
            frame.rows(line, &mut |start| {
                let row = Row { frame, keys: keys.add(start * self.size), at: (start - from) as u32, max };
                (self.row)(row, values, places.as_mut_ptr());
            });
        }
    }

    /// Takes elements at some places, nothing for none.
    ///
    /// # Safety
    /// They are there, and room for as many.
    pub(super) unsafe fn take(&self, from: *const u8, places: &[u32], to: *mut u8) {
        by_size!(self.size, E => {
            let (from, to) = (from.cast::<E>(), to.cast::<E>());
            for (o, &place) in places.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *to.add(o) = if place == NONE { 0 } else { *from.add(place as usize) } };
            }
        })
    }
}

/// As [`Keys::add`].
///
/// # Safety
/// As many elements are there, and what is at the places.
unsafe fn add<T: Element>(from: *const u8, places: &[u32], to: *mut u8) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for (o, &place) in places.iter().enumerate().filter(|(_, place)| **place != NONE) {
        // SAFETY: the caller's promise.
        unsafe {
            let to = to.add(place as usize);
            *to = (*to).add(*from.add(o));
        }
    }
}

/// As [`Keys::ranked`].
///
/// # Safety
/// So many keys, and so much room, are there; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn ranked<T: Element>(x: *const u8, n: usize, max: bool, to: *mut u64) {
    let flip = if max { 0 } else { u32::MAX };
    // SAFETY: the caller's promise.
    let (x, to) = unsafe { (std::slice::from_raw_parts(x.cast::<T>(), n), std::slice::from_raw_parts_mut(to, n)) };
    for (i, (x, to)) in x.iter().zip(to).enumerate() {
        let rank = x.key() as u32 ^ flip;
        let rank = if x.is_nan() { u32::MAX } else { rank };
        *to = (rank as u64) << 32 | !(i as u32) as u64;
    }
}

/// As [`Keys::row`].
///
/// # Safety
/// The row is of the frame's keys, and there are a value and a place for each window.
unsafe fn row<T: Element>(row: Row, values: *mut u8, places: *mut u32) {
    let (frame, n) = (row.frame, row.frame.last.count);
    // SAFETY: the caller's promise; the machine has what the frame says.
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
            // Old machines have one short piece of code.
            line.singly(values, places);
        }
        #[cfg(not(target_arch = "x86_64"))]
        line.row(values, places);
    }
}

/// A line of windows over a row of keys.
#[derive(Clone, Copy)]
struct Line<'a, T> {
    frame: &'a Frame,
    row: *const T,
    at: u32,
    max: bool,
}

impl<T: Element> Line<'_, T> {
    /// The type that long vectors are worth their code for.
    #[cfg(target_arch = "x86_64")]
    const LONG: bool = size_of::<T>() == 4 && !T::IS_INT;

    /// A row for an instruction set: a function of its own, or what is called for each row would not have it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn row_avx512(self, values: &mut [T], places: &mut [u32]) {
        // SAFETY: the caller's promise.
        unsafe { self.row(values, places) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn row_avx2(self, values: &mut [T], places: &mut [u32]) {
        // SAFETY: the caller's promise.
        unsafe { self.row(values, places) }
    }

    /// Windows meet the row.
    #[inline(always)]
    unsafe fn row(self, values: &mut [T], places: &mut [u32]) {
        let a = &self.frame.last;
        // SAFETY: the caller's promise.
        unsafe {
            match a.stride {
                1 if a.base_dilation == 1 => self.lines::<1>(values, places),
                2 if a.base_dilation == 1 => self.lines::<2>(values, places),
                _ if a.base_dilation == 1 => self.picked(values, places),
                _ => self.singly(values, places),
            }
        }
    }

    /// The same, key by key.
    #[inline(always)]
    unsafe fn singly(self, values: &mut [T], places: &mut [u32]) {
        let (row, at) = (self.row, self.at);
        self.frame.along(|o, i| {
            // SAFETY: `along` gives indices inside the row, which is inside the keys.
            let key = unsafe { *row.add(i) };
            meet(&mut values[o], &mut places[o], key, at + i as u32, self.max)
        });
    }

    /// The same where windows are farther apart: keys that vectors meet are picked first.
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

    /// The same where windows are `S` elements apart.
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

/// A key comes by: without branches, so that this is vectors.
#[inline(always)]
fn meet<T: Element>(value: &mut T, place: &mut u32, key: T, at: u32, max: bool) {
    let wins = (*place == NONE) | key.beats(*value, max);
    *value = if wins { key } else { *value };
    *place = if wins { at } else { *place };
}
