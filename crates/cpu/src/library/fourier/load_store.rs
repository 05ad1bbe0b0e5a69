//! Lines of a bundle in memory, and how they become vectors and lines again: turned where lines lie along memory.

use super::lanes::{FftFloat, FftVector, LinePointers};
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::library::SharedPtr;
use crate::library::rearrange::{Axis, tiles};

/// Where planar numbers are; the second pointer is null where they are real.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    pub(super) re: SharedPtr<T>,
    pub(super) im: SharedPtr<T>,
}

impl<T: FftFloat> Planes<T> {
    /// Lines whose neighbours are neighbours in memory.
    #[inline(always)]
    pub(super) fn seats(&self, place: Place) -> LinePointers<T> {
        LinePointers { re: self.re.at(place.at), im: self.im.at(place.at), step: place.element }
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
type Bits<V> = <<V as Vector>::Elem as FftFloat>::Bits;

/// Elements of the largest tile, and lines of the largest bundle.
pub(super) const TILE: usize = 8;
const MOST_LINES: usize = 16;

/// Transposes as many lines as there are lanes, square by square: the last one ends where lines end. Both sides say how far rows are from
/// each other, and elements of a line.
///
/// # Safety
/// Both sides are there, and lines are no shorter than a square.
#[inline(always)]
unsafe fn transpose_tiles<V: FftVector>(
    (from, from_step, from_element): (*const V::Elem, usize, usize),
    (to, to_step, to_element): (*mut V::Elem, usize, usize),
    n: usize,
) {
    let mut k = 0;
    while k < n {
        // SAFETY: the caller's promise.
        unsafe { V::turn(from.add(k * from_element), from_step, to.add(k * to_element), to_step) };
        k = if k + V::LANES == n { n } else { (k + V::LANES).min(n - V::LANES) };
    }
}

/// Reads `n` elements of a bundle's lines; element `k` of all of them goes to `to + k·step`, next to each other or with room for as many between.
///
/// # Safety
/// The lines are there, and room for `n` vectors and no fewer than of a tile.
#[inline(always)]
pub(super) unsafe fn read<V: FftVector>(from: *const V::Elem, place: Place, n: usize, to: *mut V::Elem, step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.line == 1 {
            for k in 0..n {
                V::load_first(from.add(k * place.element), place.count).store(to.add(k * step));
            }
            return;
        }
        if place.count == V::LANES && place.element == 1 && n >= V::LANES {
            // Code for a known distance between vectors is quicker.
            return match step == V::LANES {
                true => transpose_tiles::<V>((from, place.line, 1), (to, V::LANES, V::LANES), n),
                false => transpose_tiles::<V>((from, place.line, 1), (to, 2 * V::LANES, 2 * V::LANES), n),
            };
        }
        let few = place.element == 1 && n < V::LANES && V::LANES <= 8;
        if few && V::turn_edge(from, place.line, to, step, (place.count, n)) {
            return;
        }
        let tile = <Bits<V> as tiles::Transpose>::TILE;
        if place.count >= tile && place.element == 1 {
            // Lanes without a line keep what they have: lanes never meet.
            let d = Axis { size: place.count, from: place.line as isize, to: 1 };
            let s = Axis { size: n.max(tile), from: 1, to: step as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..n, Isa::Avx2);
            }
            // Lines shorter than a tile are made as long first.
            let mut lines = [V::Elem::default(); TILE * MOST_LINES];
            for j in 0..place.count {
                V::load_first(from.add(j * place.line), n).store_first(lines.as_mut_ptr().add(j * tile), n);
            }
            let d = Axis { from: tile as isize, ..d };
            return tiles::transpose(lines.as_ptr().cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..tile, Isa::Avx2);
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
pub(super) unsafe fn write<V: FftVector>(from: *const V::Elem, step: usize, to: *mut V::Elem, place: Place, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.line == 1 {
            for k in 0..n {
                V::load(from.add(k * step)).store_first(to.add(k * place.element), place.count);
            }
            return;
        }
        if place.count == V::LANES && place.element == 1 && n >= V::LANES {
            return match step == V::LANES {
                true => transpose_tiles::<V>((from, V::LANES, V::LANES), (to, place.line, 1), n),
                false => transpose_tiles::<V>((from, 2 * V::LANES, 2 * V::LANES), (to, place.line, 1), n),
            };
        }
        let few = place.element == 1 && n < V::LANES && V::LANES <= 8;
        if few && V::turn_edge(from, step, to, place.line, (n, place.count)) {
            return;
        }
        let tile = <Bits<V> as tiles::Transpose>::TILE;
        if place.count >= tile && place.element == 1 {
            let d = Axis { size: n.max(tile), from: step as isize, to: 1 };
            let s = Axis { size: place.count, from: 1, to: place.line as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..place.count, Isa::Avx2);
            }
            let mut lines = [V::Elem::default(); TILE * MOST_LINES];
            let s = Axis { to: tile as isize, ..s };
            let (from, at) = (from.cast::<Bits<V>>(), lines.as_mut_ptr());
            tiles::transpose(from, at.cast::<Bits<V>>(), d, s, 0..place.count, Isa::Avx2);
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

/// How lines of so few elements that fill whole vectors become a vector for each element, or lines again: every vector is picked from all.
pub(super) struct Shuffle {
    n: usize,
    lanes: usize,
    /// For each vector the lane that each of its lanes comes from, and for each of all vectors a mask of those that come from it.
    at: Vec<u32>,
    masks: Vec<u16>,
}

impl Shuffle {
    /// None if lines are too long: up to 7 elements in 16 lanes, 5 in 8 and 3 in 4 are quicker so.
    pub(super) fn new(n: usize, lanes: usize, back: bool) -> Option<Shuffle> {
        let source = |i: usize| match back {
            true => (i % n, i / n),
            // Element `v` of line `i`.
            false => ((i % lanes * n + i / lanes) / lanes, (i % lanes * n + i / lanes) % lanes),
        };
        let mask = |v: usize, s: usize| {
            (0..lanes).filter(|i| source(v * lanes + i).0 == s).fold(0u16, |mask, i| mask | 1 << i)
        };
        (n < 2 * lanes.ilog2() as usize).then(|| Shuffle {
            n,
            lanes,
            at: (0..n * lanes).map(|i| source(i).1 as u32).collect(),
            masks: (0..n * n).map(|i| mask(i / n, i % n)).collect(),
        })
    }

    /// Whether it is one for lines in such a place.
    #[inline(always)]
    pub(super) fn suits<V: FftVector>(&self, place: Place) -> bool {
        self.lanes == V::LANES && place.count == V::LANES && place.line == self.n && place.element == 1
    }

    /// # Safety
    /// `n` vectors are on both sides, which don't overlap, as far from each other as said.
    #[inline(always)]
    pub(super) unsafe fn run<V: FftVector>(&self, from: *const V::Elem, step: usize, to: *mut V::Elem, to_step: usize) {
        for v in 0..self.n {
            // SAFETY: the caller's promise.
            unsafe {
                let mut own = V::splat(V::Elem::default());
                for s in 0..self.n {
                    let mask = *self.masks.get_unchecked(v * self.n + s);
                    own = own.picked(mask, self.at.as_ptr().add(v * V::LANES), V::load(from.add(s * step)));
                }
                own.store(to.add(v * to_step));
            }
        }
    }
}
