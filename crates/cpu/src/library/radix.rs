//! Radix sort of a line without other operands: sorts by the bytes of the keys, from the last byte on, and moves the elements
//! themselves. Bytes that all keys share are skipped, and the last pass writes the result. For shorter lines the keys themselves
//! are sorted, if the elements can be recovered from them.

use super::along::AxisLines;
use super::element::{Element, by_dtype};
use crate::thresholds::Threshold;
use ir::DType;

/// The minimum number of elements of a line for which radix sort is faster than comparison sort; f64 has its own minimum, because
/// it needs twice as many passes. The first bytes of integers are often equal.
pub(super) const MIN_RADIX: usize = 256;
pub(super) const MIN_RADIX_F64: usize = 1024;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new(
        "sort.alone",
        MIN_RADIX,
        "elements of a line without company: from here they are sorted byte by byte",
    ),
    Threshold::new("sort.alone_wide", MIN_RADIX_F64, "the same of f64"),
];

/// Sorts line `line` of an operand into the result. The last pointer is scratch for two lines; the flag selects descending order.
///
/// # Safety
/// All pointers are valid for the line, and nothing else accesses the line of the result.
pub(super) type SortLineFn = unsafe fn(*const u8, *mut u8, &AxisLines, usize, bool, *mut u8);

/// Returns the sort function of a dtype.
pub(super) fn sort_line_fn(dtype: DType) -> Option<SortLineFn> {
    by_dtype!(dtype, T => sort::<T> as SortLineFn)
}

/// Like [`SortLineFn`], for shorter lines; returns whether it was possible.
pub(super) type SortShortLineFn = unsafe fn(*const u8, *mut u8, &AxisLines, usize, bool, *mut u8) -> bool;

/// Returns the sort function of a dtype for shorter lines.
pub(super) fn sort_short_line_fn(dtype: DType) -> Option<SortShortLineFn> {
    by_dtype!(dtype, T => keys::<T> as SortShortLineFn)
}

/// # Safety
/// As for [`Alone`].
unsafe fn keys<T: Element>(
    x: *const u8,
    y: *mut u8,
    l: &AxisLines,
    line: usize,
    descending: bool,
    room: *mut u8,
) -> bool {
    let base = line / l.inner * l.inner * l.n + line % l.inner;
    let (x, y) = (x.cast::<T>().wrapping_add(base), y.cast::<T>().wrapping_add(base));
    let flip = if descending { u64::MAX } else { 0 };
    let mut whole = true;
    // SAFETY: inside the line; the room is larger than its keys.
    unsafe {
        let room = room.cast::<u64>();
        for k in 0..l.n {
            let e = *x.add(k * l.inner);
            whole &= e.is_of_key();
            room.add(k).write(e.key() ^ flip);
        }
        if whole {
            let keys = std::slice::from_raw_parts_mut(room, l.n);
            keys.sort_unstable();
            keys.iter().enumerate().for_each(|(k, &key)| *y.add(k * l.inner) = T::of_key(key ^ flip));
        }
    }
    whole
}

/// # Safety
/// As for [`Alone`].
unsafe fn sort<T: Element>(x: *const u8, y: *mut u8, l: &AxisLines, line: usize, descending: bool, room: *mut u8) {
    let base = line / l.inner * l.inner * l.n + line % l.inner;
    let (x, y) = (x.cast::<T>().wrapping_add(base), y.cast::<T>().wrapping_add(base));
    let flip = if descending { u64::MAX } else { 0 };
    let digit = |e: T, byte: usize| ((e.key() ^ flip) >> (8 * byte)) as usize & 255;
    let bytes = size_of::<T>();
    // SAFETY: inside the line, here and below.
    let key = |k: usize| unsafe { *x.add(k * l.inner) }.key();
    let first = key(0);
    let differ = (0..l.n).fold(0, |differ, k| differ | (key(k) ^ first));
    let moves = |b: &usize| (differ >> (8 * b)) & 255 != 0;
    let passes = (0..bytes).filter(moves).count();
    let mut counts = [[0u32; 256]; 8];
    for k in 0..l.n {
        // SAFETY: as above.
        let e = unsafe { *x.add(k * l.inner) };
        (0..bytes).filter(moves).for_each(|b| counts[b][digit(e, b)] += 1);
    }
    let room = room.cast::<T>();
    let (mut from, mut step) = (x, l.inner);
    let mut done = 0;
    for b in (0..bytes).filter(moves) {
        let mut places = [0u32; 256];
        let mut at = 0;
        for (place, count) in places.iter_mut().zip(&counts[b]) {
            *place = at;
            at += count;
        }
        let (to, stride) = if done + 1 == passes { (y, l.inner) } else { (room.wrapping_add(done % 2 * l.n), 1) };
        for k in 0..l.n {
            // SAFETY: places are those of a line; the room has two.
            unsafe {
                let e = *from.add(k * step);
                let place = &mut places[digit(e, b)];
                *to.add(*place as usize * stride) = e;
                *place += 1;
            }
        }
        (from, step) = (to.cast_const(), 1);
        done += 1;
    }
    if passes == 0 {
        // SAFETY: both lines.
        (0..l.n).for_each(|k| unsafe { *y.add(k * l.inner) = *x.add(k * l.inner) });
    }
}
