//! Running folds along eight adjacent lines at once, a lane for each.
//!
//! Blocks of eight elements of each line are transposed in registers on the way in and on the way out, so that a step is one of vectors.
//! Each line keeps the order of its elements, and its bits with it. Elements have four bytes at most.

use super::EIGHT;
use super::{Element, Fold};
use crate::library::rearrange::tiles::Transpose;
use std::mem::MaybeUninit;

/// A block of eight lines: step after step, all lines of each. Steps of a walk backwards are turned over; beyond a short line's last one they are written
/// before the first.
#[repr(align(64))]
struct Block<T>(MaybeUninit<[[T; EIGHT]; 2 * EIGHT]>);

impl<T> Block<T> {
    fn new() -> Block<T> {
        Block(MaybeUninit::uninit())
    }

    /// The first step.
    fn first(&mut self) -> *mut [T; EIGHT] {
        self.0.as_mut_ptr().cast::<[T; EIGHT]>().wrapping_add(EIGHT)
    }
}

/// A walk along lines: elements from one line to the next, and of each line.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) apart: isize,
    pub(super) n: usize,
    pub(super) reverse: bool,
}

impl Way {
    /// Where the first of so many elements of a line is in a block, and how far it is to the next one.
    #[inline(always)]
    fn in_block<T>(self, block: &mut Block<T>, elements: usize) -> (*mut T, isize) {
        match self.reverse {
            false => (block.first().cast(), EIGHT as isize),
            true => (block.first().wrapping_add(elements - 1).cast(), -(EIGHT as isize)),
        }
    }

    /// Reads some elements of all lines, eight at most, and what is behind them.
    ///
    /// # Safety
    /// Eight elements of each line are there, and the machine has AVX2.
    #[inline(always)]
    unsafe fn read<T: Element>(self, x: *const T, block: &mut Block<T>, elements: usize) {
        let (y, to) = self.in_block(block, elements);
        // SAFETY: elements are moved as what they are by their size; the caller vouches for the rest.
        unsafe {
            match size_of::<T>() {
                1 => u8::small(x.cast(), self.apart, y.cast(), to),
                2 => u16::tile(x.cast(), self.apart, y.cast(), to),
                _ => u32::tile(x.cast(), self.apart, y.cast(), to),
            }
        }
    }

    /// Writes them, and others behind them: lines one after the other, and the last elements of some before the first ones of any, so that what is written
    /// beyond a short line is replaced by the next.
    ///
    /// # Safety
    /// As for [`Way::read`].
    #[inline(always)]
    unsafe fn write<T: Element>(self, block: &mut Block<T>, y: *mut T, elements: usize) {
        let (x, from) = self.in_block(block, elements);
        // SAFETY: as above.
        unsafe {
            match size_of::<T>() {
                1 => u8::small(x.cast(), from, y.cast(), self.apart),
                2 => u16::tile(x.cast(), from, y.cast(), self.apart),
                _ => u32::tile(x.cast(), from, y.cast(), self.apart),
            }
        }
    }
}

/// Folds some steps of a block; results are written if they are asked for.
///
/// # Safety
/// The steps are there.
#[inline(always)]
unsafe fn steps<T: Element, F: Fold<T>, const WRITE: bool>(
    block: *const [T; EIGHT],
    results: *mut [T; EIGHT],
    n: usize,
    mut states: [F::State; EIGHT],
) -> [F::State; EIGHT] {
    for k in 0..n {
        // SAFETY: the caller's promise.
        unsafe {
            let row = block.add(k).read();
            states = std::array::from_fn(|j| F::step(states[j], row[j]));
            if WRITE {
                results.add(k).write(states.map(F::result));
            }
        }
    }
    states
}

/// Eight lines of no fewer elements than a block has; to the last states.
///
/// # Safety
/// All elements are there to read and, if results are written, to write, by nobody else; the machine has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn long<T: Element, F: Fold<T>, const WRITE: bool>(
    x: *const T,
    y: *mut T,
    way: Way,
    mut states: [F::State; EIGHT],
) -> [F::State; EIGHT] {
    debug_assert!(way.n >= EIGHT);
    let n = way.n;
    let (mut block, mut results) = (Block::<T>::new(), Block::<T>::new());
    let mut done = 0;
    // SAFETY: blocks are inside of the lines by the caller's promise, and steps are read after they were written.
    unsafe {
        while n - done >= EIGHT {
            let at = if way.reverse { n - done - EIGHT } else { done };
            way.read::<T>(x.add(at), &mut block, EIGHT);
            states = steps::<T, F, WRITE>(block.first(), results.first(), EIGHT, states);
            if WRITE {
                way.write::<T>(&mut results, y.add(at), EIGHT);
            }
            done += EIGHT;
        }
        let fresh = n - done;
        if fresh > 0 {
            // The last block is one of eight elements too; those of the block before keep their results.
            let kept = EIGHT - fresh;
            let at = if way.reverse { 0 } else { n - EIGHT };
            way.read::<T>(x.add(at), &mut block, EIGHT);
            let (new, first) = (block.first().add(kept), results.first());
            if WRITE {
                first.add(fresh).copy_to(first, kept);
            }
            states = steps::<T, F, WRITE>(new, first.add(kept), fresh, states);
            if WRITE {
                way.write::<T>(&mut results, y.add(at), EIGHT);
            }
        }
    }
    states
}

/// Adjacent lines of no more elements than a block has. Steps are always eight: those beyond a line's end read what follows, and nobody reads what they
/// give.
///
/// # Safety
/// As for [`long`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn short<T: Element, F: Fold<T>>(x: *const T, y: *mut T, lines: usize, way: Way, start: F::State) {
    debug_assert!(lines > 0 && way.n > 0 && way.n <= EIGHT);
    let n = way.n;
    let (mut block, mut results) = (Block::<T>::new(), Block::<T>::new());
    let mut line = 0;
    // SAFETY: blocks reach beyond the end of their last line, but not beyond that of all lines. The last lines go through memory in which a block has room.
    unsafe {
        let mut room = [*x; EIGHT * EIGHT];
        let last = room.as_mut_ptr();
        // A walk backwards writes its other steps before these, and reads results from there.
        block.first().cast::<T>().copy_from_nonoverlapping(last, EIGHT * EIGHT);
        results.first().sub(EIGHT).cast::<T>().copy_from_nonoverlapping(last, EIGHT * EIGHT);
        while line < lines {
            let (left, inside) = (EIGHT.min(lines - line) * n, (lines - line) * n >= EIGHT * n + EIGHT);
            let (mut from, mut to) = (x.add(line * n), y.add(line * n));
            if !inside {
                from.copy_to_nonoverlapping(last, left);
                (from, to) = (last, last);
            }
            way.read::<T>(from, &mut block, n);
            steps::<T, F, true>(block.first(), results.first(), EIGHT, [start; EIGHT]);
            way.write::<T>(&mut results, to, n);
            if !inside {
                last.copy_to_nonoverlapping(y.add(line * n), left);
            }
            line += EIGHT;
        }
    }
}
