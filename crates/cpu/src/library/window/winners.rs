//! Where the extrema of a line of windows are, window elements one after the other over all windows of the line: so vectors compare.

use super::super::element::Element;
use super::Frame;

/// No element of the base is in the window.
pub(super) const NONE: u32 = u32::MAX;

/// Writes for each window of a line the place of its first extremum among `keys`, less `from`, or [`NONE`]; `values` is scratch.
///
/// # Safety
/// The frame is that of `keys`, both slices have an element for each window, and `avx2` only where the machine has it.
pub(super) unsafe fn winners<T: Element>(
    frame: &Frame,
    keys: *const T,
    (line, from): (usize, usize),
    max: bool,
    values: &mut [T],
    places: &mut [u32],
) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if frame.avx512 {
            return with_avx512(frame, keys, (line, from), max, values, places);
        }
        #[cfg(target_arch = "x86_64")]
        if frame.avx2 {
            return with_avx2(frame, keys, (line, from), max, values, places);
        }
        inline(frame, keys, (line, from), max, values, places);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn with_avx512<T: Element>(
    frame: &Frame,
    keys: *const T,
    line: (usize, usize),
    max: bool,
    values: &mut [T],
    places: &mut [u32],
) {
    // SAFETY: the caller's promise.
    unsafe { inline(frame, keys, line, max, values, places) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<T: Element>(
    frame: &Frame,
    keys: *const T,
    line: (usize, usize),
    max: bool,
    values: &mut [T],
    places: &mut [u32],
) {
    // SAFETY: the caller's promise.
    unsafe { inline(frame, keys, line, max, values, places) }
}

#[inline(always)]
unsafe fn inline<T: Element>(
    frame: &Frame,
    keys: *const T,
    (line, from): (usize, usize),
    max: bool,
    values: &mut [T],
    places: &mut [u32],
) {
    let a = &frame.last;
    places.fill(NONE);
    values.fill(T::rounded(T::zero()));
    let meet = |value: &mut T, place: &mut u32, key: T, at: u32| {
        // Without branches, so that this is vectors.
        let wins = (*place == NONE) | key.beats(*value, max);
        *value = if wins { key } else { *value };
        *place = if wins { at } else { *place };
    };
    frame.rows(line, |start| {
        let (row, at) = (keys.wrapping_add(start), (start - from) as u32);
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
    });
}
