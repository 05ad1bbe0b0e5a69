//! Scans of eight adjacent lines at once, one line per lane.
//!
//! Blocks of eight elements of each line are transposed in registers when they are read and written, so each step is a vector
//! operation. Each line keeps the order of its elements, and so its bits. Elements have at most four bytes.

use super::{Element, FoldOp, LINES, States};
use crate::library::rearrange::tiles::Transpose;
use std::mem::MaybeUninit;

/// The number of steps of a block.
const STEPS: usize = 5 * LINES;

/// A block of eight lines: step by step, all lines of each step. Reversed scans store the steps in reverse; steps after the end
/// of a short line are stored before the first step.
#[repr(align(64))]
struct Block<T>(MaybeUninit<[[T; LINES]; LINES + STEPS]>);

impl<T> Block<T> {
    fn new() -> Block<T> {
        Block(MaybeUninit::uninit())
    }

    /// The address of the first step.
    fn first(&mut self) -> *mut [T; LINES] {
        self.0.as_mut_ptr().cast::<[T; LINES]>().wrapping_add(LINES)
    }
}

/// The layout of lines: line stride, length, direction.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) apart: isize,
    pub(super) n: usize,
    pub(super) reverse: bool,
}

impl Way {
    /// Returns the address in a block of the first of some elements of a line, and the stride to the next.
    #[inline(always)]
    fn in_block<T>(self, block: *mut [T; LINES], elements: usize) -> (*mut T, isize) {
        match self.reverse {
            false => (block.cast(), LINES as isize),
            true => (block.wrapping_add(elements - 1).cast(), -(LINES as isize)),
        }
    }

    /// Reads up to eight elements of all lines, and whatever follows them in memory.
    ///
    /// # Safety
    /// Both sides are valid for eight elements of each line, and the machine has AVX2.
    #[inline(always)]
    unsafe fn read<T>(self, x: *const T, block: *mut [T; LINES], elements: usize) {
        let (y, to) = self.in_block(block, elements);
        // SAFETY: elements are copied by their size, between places that are inside of lines and block.
        unsafe {
            match size_of::<T>() {
                1 => u8::small(x.cast(), self.apart, y.cast(), to),
                2 => u16::tile(x.cast(), self.apart, y.cast(), to),
                _ => u32::tile(x.cast(), self.apart, y.cast(), to),
            }
        }
    }

    /// Writes these elements and others after them, line by line and in order, so that the elements written past the end of
    /// a short line are overwritten by the next line.
    ///
    /// # Safety
    /// As for [`Way::read`].
    #[inline(always)]
    unsafe fn write<T>(self, block: *mut [T; LINES], y: *mut T, elements: usize) {
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

/// Folds a number of steps of a block, from eight states to the last ones.
type Step = unsafe fn(*mut u8, usize, *mut u64);

/// The step functions of a fold: one replaces elements by results, the other only folds.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    scan: Step,
    fold: Step,
}

impl Steps {
    pub(super) fn new<T: Element, F: FoldOp<T>>() -> Steps {
        Steps { scan: steps::<T, F, true>, fold: steps::<T, F, false> }
    }
}

/// # Safety
/// `block` is valid for `n` steps, `to` for eight states, and the machine has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn steps<T: Element, F: FoldOp<T>, const WRITE: bool>(block: *mut u8, n: usize, to: *mut u64) {
    let (block, to) = (block.cast::<[T; LINES]>(), to.cast::<[F::State; LINES]>());
    // SAFETY: `block` is valid for `n` steps and `to` for eight states.
    let mut states = unsafe { *to };
    for k in 0..n {
        // SAFETY: as above.
        unsafe {
            let mut row = block.add(k).read();
            for j in 0..LINES {
                states[j] = F::step(states[j], row[j]);
                if WRITE {
                    row[j] = F::result(states[j]);
                }
            }
            if WRITE {
                block.add(k).write(row);
            }
        }
    }
    // SAFETY: as above.
    unsafe { *to = states };
}

/// Scans eight lines of at least eight elements, up to the last states.
///
/// # Safety
/// `x` is valid for all elements of the lines, `y` too if results are written, which nothing else does, and the machine
/// has AVX2.
pub(super) unsafe fn long(
    size: usize,
    x: *const u8,
    y: *mut u8,
    way: Way,
    steps: Steps,
    write: bool,
    states: &mut States,
) {
    let step = if write { steps.scan } else { steps.fold };
    // SAFETY: eight lines are readable at `x`, writable at `y` if `write`, which only this call does, and the machine
    // has AVX2.
    unsafe {
        match size {
            1 => blocks::<u8>(x, y.cast(), way, step, write, states),
            2 => blocks::<u16>(x.cast(), y.cast(), way, step, write, states),
            _ => blocks::<u32>(x.cast(), y.cast(), way, step, write, states),
        }
    }
}

/// # Safety
/// As for [`long`].
#[target_feature(enable = "avx2")]
unsafe fn blocks<T>(x: *const T, y: *mut T, way: Way, step: Step, write: bool, states: &mut States) {
    debug_assert!(way.n >= LINES);
    let n = way.n;
    let mut block = Block::<T>::new();
    let first = block.first();
    let mut done = 0;
    while done < n {
        // The remainder, or as much of it as leaves at least eight elements.
        let own = if n - done < STEPS { n - done } else { STEPS - LINES };
        let mut k = 0;
        // SAFETY: blocks are inside of the lines, and steps are read after they were written. The last eight elements
        // may begin with some that were read already, and are the same.
        unsafe {
            while k < own {
                let from = k.min(own - LINES);
                let at = if way.reverse { n - done - from - LINES } else { done + from };
                way.read(x.add(at), first.add(from), LINES);
                k += LINES;
            }
            step(first.cast(), own, states.as_mut_ptr());
            k = 0;
            while write && k < own {
                let from = k.min(own - LINES);
                let at = if way.reverse { n - done - from - LINES } else { done + from };
                way.write(first.add(from), y.add(at), LINES);
                k += LINES;
            }
        }
        done += own;
    }
}

/// Scans adjacent lines that fit in a block each. The number of steps is always a multiple of eight: steps after the end of a
/// line read what follows, and their results are unused.
///
/// # Safety
/// As for [`long`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn short<T: Element, F: FoldOp<T>>(
    x: *const u8,
    y: *mut u8,
    lines: usize,
    way: Way,
    start: *const u64,
) {
    let (x, y) = (x.cast::<T>(), y.cast::<T>());
    // SAFETY: `start` is valid for a state.
    let start = [unsafe { *start.cast::<F::State>() }; LINES];
    debug_assert!(lines > 0 && way.n > 0 && way.n <= LINES);
    let n = way.n;
    let mut block = Block::<T>::new();
    let mut line = 0;
    // SAFETY: blocks reach beyond the end of their last line, but not beyond that of all lines. The last lines go through memory in which a block has room.
    unsafe {
        let mut room = [*x; LINES * LINES];
        let last = room.as_mut_ptr();
        // A reversed scan stores its unused steps before these, and reads results from there.
        block.first().cast::<T>().copy_from_nonoverlapping(last, LINES * LINES);
        block.first().sub(LINES).cast::<T>().copy_from_nonoverlapping(last, LINES * LINES);
        while line < lines {
            let (left, inside) = (LINES.min(lines - line) * n, (lines - line) * n >= LINES * n + LINES);
            let (mut from, mut to) = (x.add(line * n), y.add(line * n));
            if !inside {
                from.copy_to_nonoverlapping(last, left);
                (from, to) = (last, last);
            }
            way.read::<T>(from, block.first(), n);
            let mut states = start;
            steps::<T, F, true>(block.first().cast(), LINES, (&raw mut states).cast());
            way.write::<T>(block.first(), to, n);
            if !inside {
                last.copy_to_nonoverlapping(y.add(line * n), left);
            }
            line += LINES;
        }
    }
}
