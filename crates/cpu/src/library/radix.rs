//! Sorting a line of elements with nothing that goes along: byte by byte of their keys, from the last one on, elements themselves being
//! moved. Bytes that all keys share move nothing, and the last pass writes the result.

use super::along::Lines;
use super::element::{Element, by_dtype};
use crate::thresholds::Threshold;
use ir::DType;

/// Elements of a line from which this is quicker than comparing.
pub(super) const ALONE: usize = 256;

pub(super) const THRESHOLDS: &[Threshold] = &[Threshold::new(
    "sort.alone",
    ALONE,
    "elements of a line without company: from here they are sorted byte by byte",
)];

/// Sorts line `line` of an operand into the result; the last pointer is room for two lines. The flag is for descending order.
///
/// # Safety
/// All pointers are good for that, and nobody else has the line of the result.
pub(super) type Alone = unsafe fn(*const u8, *mut u8, &Lines, usize, bool, *mut u8);

/// The sort of a dtype.
pub(super) fn alone(dtype: DType) -> Option<Alone> {
    by_dtype!(dtype, T => sort::<T> as Alone)
}

/// # Safety
/// As for [`Alone`].
unsafe fn sort<T: Element>(x: *const u8, y: *mut u8, l: &Lines, line: usize, descending: bool, room: *mut u8) {
    let base = line / l.inner * l.inner * l.n + line % l.inner;
    let (x, y) = (x.cast::<T>().wrapping_add(base), y.cast::<T>().wrapping_add(base));
    let flip = if descending { u64::MAX } else { 0 };
    let digit = |e: T, byte: usize| ((e.key() ^ flip) >> (8 * byte)) as usize & 255;
    let bytes = size_of::<T>();
    let mut counts = [[0u32; 256]; 8];
    for k in 0..l.n {
        // SAFETY: inside the line, here and below.
        let e = unsafe { *x.add(k * l.inner) };
        counts.iter_mut().enumerate().take(bytes).for_each(|(b, counts)| counts[digit(e, b)] += 1);
    }
    // A byte that all keys share has one count that is not zero.
    let moves = |b: &usize| counts[*b].iter().all(|&c| (c as usize) < l.n);
    let passes = (0..bytes).filter(moves).count();
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
