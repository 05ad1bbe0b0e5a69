//! Where the extrema of a line of windows are, window elements one after the other over all windows of the line: so vectors compare.

use super::super::element::Element;
use super::Frame;

/// No element of the base is in the window.
pub(super) const NONE: u32 = u32::MAX;

/// Writes for each window of a line the place of its first extremum among `keys`, less `from`, or [`NONE`]; `values` is scratch.
///
/// # Safety
/// The frame is that of `keys`, and both slices have an element for each window.
pub(super) unsafe fn winners<T: Element>(
    frame: &Frame,
    keys: *const T,
    (line, from): (usize, usize),
    max: bool,
    values: &mut [T],
    places: &mut [u32],
) {
    places.fill(NONE);
    values.fill(T::rounded(T::zero()));
    frame.rows(line, |start| {
        let (row, at) = (keys.wrapping_add(start), (start - from) as u32);
        // SAFETY: the caller's promise; the row is inside the keys, and the machine has what the frame says.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if frame.avx512 {
                return row_avx512(frame, row, at, max, values, places);
            }
            #[cfg(target_arch = "x86_64")]
            if frame.avx2 {
                return row_avx2(frame, row, at, max, values, places);
            }
            row_inline(frame, row, at, max, values, places);
        }
    });
}

/// A row of windows for an instruction set: a function of its own, or what is called for each row would not have it.
macro_rules! for_isa {
    ($name:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name<T: Element>(
            frame: &Frame,
            row: *const T,
            at: u32,
            max: bool,
            values: &mut [T],
            places: &mut [u32],
        ) {
            // SAFETY: the caller's promise.
            unsafe { row_inline(frame, row, at, max, values, places) }
        }
    };
}
for_isa!(row_avx512, "avx512f,avx512bw,avx512vl,avx512dq");
for_isa!(row_avx2, "avx2");

#[inline(always)]
unsafe fn row_inline<T: Element>(
    frame: &Frame,
    row: *const T,
    at: u32,
    max: bool,
    values: &mut [T],
    places: &mut [u32],
) {
    let a = &frame.last;
    let meet = |value: &mut T, place: &mut u32, key: T, at: u32| {
        // Without branches, so that this is vectors.
        let wins = (*place == NONE) | key.beats(*value, max);
        *value = if wins { key } else { *value };
        *place = if wins { at } else { *place };
    };
    if a.base_dilation != 1 || a.stride != 1 {
        // SAFETY: `along` gives indices inside the row, which is inside the keys.
        return frame.along(|o, i| meet(&mut values[o], &mut places[o], unsafe { *row.add(i) }, at + i as u32));
    }
    for k in 0..a.window {
        let first = k as i64 * a.window_dilation - a.low;
        let begin = (-first).clamp(0, a.count as i64);
        let end = (a.base as i64 - first).clamp(begin, a.count as i64);
        let (n, first) = ((end - begin) as usize, (first + begin) as usize);
        if n == 0 {
            continue;
        }
        // SAFETY: these windows meet these elements of the row.
        let keys = unsafe { std::slice::from_raw_parts(row.add(first), n) };
        let own = begin as usize..end as usize;
        let all = values[own.clone()].iter_mut().zip(&mut places[own]).zip(keys).zip(at + first as u32..);
        all.for_each(|(((value, place), key), at)| meet(value, place, *key, at));
    }
}
