//! Reads lines from memory into vectors and writes them back. Contiguous lines are transposed.

use super::lanes::{FftFloat, FftVector, LinePointers};
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::library::SharedPtr;
use crate::library::rearrange::{Axis, tiles};

/// A planar complex array; the second pointer is null if the numbers are real.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    pub(super) re: SharedPtr<T>,
    pub(super) im: SharedPtr<T>,
}

impl<T: FftFloat> Planes<T> {
    /// Returns the location of a bundle whose lines are adjacent in memory.
    #[inline(always)]
    pub(super) fn seats(&self, place: Place) -> LinePointers<T> {
        LinePointers { re: self.re.at(place.at), im: self.im.at(place.at), step: place.element }
    }
}

/// The lines of a bundle in memory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: usize,
    /// The distance from one line to the next, and from one element to the next.
    pub(super) line: usize,
    pub(super) element: usize,
    pub(super) count: usize,
}

/// The integer type that is used to move elements.
type Bits<V> = <<V as Vector>::Elem as FftFloat>::Bits;

/// The side of the largest tile, and the maximum number of lines of a bundle.
pub(super) const TILE: usize = 8;
const MOST_LINES: usize = 16;

/// Transposes as many lines as there are lanes, tile by tile; the last tile ends where the lines end. Both sides have a row
/// stride and an element stride.
///
/// # Safety
/// Both sides are valid for `n` elements of each line, which are no fewer than a square has.
#[inline(always)]
unsafe fn transpose_tiles<V: FftVector>(
    (from, from_step, from_element): (*const V::Elem, usize, usize),
    (to, to_step, to_element): (*mut V::Elem, usize, usize),
    n: usize,
) {
    let mut k = 0;
    while k < n {
        // SAFETY: both sides are valid for `n` elements of as many lines as there are lanes, and no square begins after
        // element `n - LANES`.
        unsafe { V::turn(from.add(k * from_element), from_step, to.add(k * to_element), to_step) };
        k = if k + V::LANES == n { n } else { (k + V::LANES).min(n - V::LANES) };
    }
}

/// Reads `n` elements of a bundle's lines. Element `k` of all lines goes to `to + k·step`; `step` is one vector or two.
///
/// # Safety
/// `from` is valid for the lines at `place`, and `to` for `n` vectors, or for those of a tile where they are more.
#[inline(always)]
pub(super) unsafe fn read<V: FftVector>(from: *const V::Elem, place: Place, n: usize, to: *mut V::Elem, step: usize) {
    // SAFETY: `from` is valid for the lines at `place`, and `to` for `n` vectors that are `step` apart, or for a tile
    // where that is more.
    unsafe {
        if place.line == 1 {
            for k in 0..n {
                V::load_first(from.add(k * place.element), place.count).store(to.add(k * step));
            }
            return;
        }
        if place.count == V::LANES && place.element == 1 && n >= V::LANES {
            // Code with a constant distance between vectors is faster.
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
            // Lanes without a line keep their contents, since lanes are independent.
            let d = Axis { size: place.count, from: place.line as isize, to: 1 };
            let s = Axis { size: n.max(tile), from: 1, to: step as isize };
            if n >= tile {
                return tiles::transpose(from.cast::<Bits<V>>(), to.cast::<Bits<V>>(), d, s, 0..n, Isa::Avx2);
            }
            // Lines shorter than a tile are first copied into a tile.
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
/// `to` is valid for the lines at `place`, and `from` for `n` vectors, or for those of a tile where they are more.
#[inline(always)]
pub(super) unsafe fn write<V: FftVector>(from: *const V::Elem, step: usize, to: *mut V::Elem, place: Place, n: usize) {
    // SAFETY: `from` has `n` vectors that are `step` apart, or a tile where that is more, and `to` is valid for the
    // lines at `place`.
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

/// Vector shuffles between very short contiguous lines and one vector per element:
/// each output vector selects lanes from all input vectors.
pub(super) struct Shuffle {
    n: usize,
    lanes: usize,
    /// For each output vector, the source lane of each lane;
    /// and for each pair of vectors, the mask of lanes that come from the input vector.
    at: Vec<u32>,
    masks: Vec<u16>,
}

impl Shuffle {
    /// Returns `None` if lines are too long. Shuffles are faster for up to 7 elements with 16 lanes, 5 with 8 and 3 with 4.
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

    /// Returns whether the shuffle applies to lines at this location.
    #[inline(always)]
    pub(super) fn suits<V: FftVector>(&self, place: Place) -> bool {
        self.lanes == V::LANES && place.count == V::LANES && place.line == self.n && place.element == 1
    }

    /// # Safety
    /// `n` vectors are on both sides, which don't overlap, as far from each other as said.
    #[inline(always)]
    pub(super) unsafe fn run<V: FftVector>(&self, from: *const V::Elem, step: usize, to: *mut V::Elem, to_step: usize) {
        for v in 0..self.n {
            // SAFETY: both sides are valid for `n` vectors at their steps and don't overlap; `masks` has `n · n`
            // entries, and `at` has a vector for each `v`.
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
