//! Lines of a bundle in memory, and how they become vectors and lines again: turned where lines lie along memory.

use super::lanes::{Lane, Number, Seats};
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::library::Raw;
use crate::library::rearrange::{Axis, tiles};

/// Where planar numbers are; the second pointer is null where they are real.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    pub(super) re: Raw<T>,
    pub(super) im: Raw<T>,
}

impl<T: Number> Planes<T> {
    /// Lines whose neighbours are neighbours in memory.
    #[inline(always)]
    pub(super) fn seats(&self, place: Place) -> Seats<T> {
        Seats { re: self.re.at(place.at), im: self.im.at(place.at), step: place.element }
    }
}

/// Lines of a bundle in memory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: usize,
    /// From one line to the next, and from one element to the next.
    pub(super) line: usize,
    pub(super) element: usize,
    pub(super) count: usize,
}

/// What elements are moved as.
type Bits<V> = <<V as Vector>::Elem as Number>::Bits;

/// Elements of the largest tile, and lines of the largest bundle.
pub(super) const TILE: usize = 8;
const MOST_LINES: usize = 16;

/// Reads `n` elements of a bundle's lines; element `k` of all of them goes to `to + k·step`.
///
/// # Safety
/// The lines are there, and room for `n` vectors and no fewer than of a tile.
#[inline(always)]
pub(super) unsafe fn read<V: Lane>(
    isa: Isa,
    from: *const V::Elem,
    place: Place,
    n: usize,
    to: *mut V::Elem,
    step: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.line == 1 {
            return (0..n)
                .for_each(|k| V::load_first(from.add(k * place.element), place.count).store(to.add(k * step)));
        }
        let tile = <Bits<V> as tiles::Transpose>::TILE;
        if place.count >= tile && place.element == 1 {
            // Lanes without a line keep what they have: lanes never meet.
            let d = Axis { size: place.count, from: place.line as isize, to: 1 };
            let s = Axis { size: n.max(tile), from: 1, to: step as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..n, isa);
            }
            // Lines shorter than a tile are made as long first.
            let mut lines = [V::Elem::default(); TILE * MOST_LINES];
            for j in 0..place.count {
                V::load_first(from.add(j * place.line), n).store_first(lines.as_mut_ptr().add(j * tile), n);
            }
            let d = Axis { from: tile as isize, ..d };
            return tiles::transpose(lines.as_ptr().cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..tile, isa);
        }
        for k in 0..n {
            for j in 0..V::LANES {
                let there = j < place.count;
                *to.add(k * step + j) =
                    if there { *from.add(k * place.element + j * place.line) } else { V::Elem::default() };
            }
        }
    }
}

/// Writes `n` elements of a bundle's lines.
///
/// # Safety
/// The lines are there, and `n` vectors, and no fewer than of a tile.
#[inline(always)]
pub(super) unsafe fn write<V: Lane>(
    isa: Isa,
    from: *const V::Elem,
    step: usize,
    to: *mut V::Elem,
    place: Place,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.line == 1 {
            return (0..n)
                .for_each(|k| V::load(from.add(k * step)).store_first(to.add(k * place.element), place.count));
        }
        let tile = <Bits<V> as tiles::Transpose>::TILE;
        if place.count >= tile && place.element == 1 {
            let d = Axis { size: n.max(tile), from: step as isize, to: 1 };
            let s = Axis { size: place.count, from: 1, to: place.line as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..place.count, isa);
            }
            let mut lines = [V::Elem::default(); TILE * MOST_LINES];
            let s = Axis { to: tile as isize, ..s };
            let (from, at) = (from.cast::<Bits<V>>(), lines.as_mut_ptr());
            tiles::transpose(from, at.cast::<Bits<V>>(), d, s, 0..place.count, isa);
            for j in 0..place.count {
                V::load_first(at.add(j * tile), n).store_first(to.add(j * place.line), n);
            }
            return;
        }
        for j in 0..place.count {
            (0..n).for_each(|k| *to.add(k * place.element + j * place.line) = *from.add(k * step + j));
        }
    }
}
