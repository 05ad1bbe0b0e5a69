//! Walks along a few lines in turn, element by element: while one waits for its last result, the others go on.

use super::{Element, Fold, Raw};

/// Steps whose results are made together.
pub(super) const KEPT: usize = 32;

/// Several walks of equal length, taken in turn: through `x`, to the last states.
///
/// # Safety
/// All elements are there to read.
#[inline(always)]
pub(super) unsafe fn fold<T: Element, F: Fold<T>, const N: usize>(
    x: Raw<T>,
    starts: [usize; N],
    len: usize,
    reverse: bool,
    mut states: [F::State; N],
) -> [F::State; N] {
    for step in 0..len {
        let k = if reverse { len - 1 - step } else { step };
        for (s, &start) in states.iter_mut().zip(&starts) {
            // SAFETY: the caller's promise.
            *s = F::step(*s, unsafe { *x.at(start + k) });
        }
    }
    states
}

/// As `fold`, writing every result on the way.
///
/// # Safety
/// All elements are there to read and to write, the latter by nobody else.
#[inline(always)]
pub(super) unsafe fn scan<T: Element, F: Fold<T>, const N: usize>(
    (x, y): (Raw<T>, Raw<T>),
    starts: [usize; N],
    len: usize,
    reverse: bool,
    mut states: [F::State; N],
) -> [F::State; N] {
    // The last states of some steps are kept, and made results together: that is where vectors help.
    let mut kept = [[std::mem::MaybeUninit::<F::State>::uninit(); KEPT]; N];
    for first in (0..len).step_by(KEPT) {
        let n = KEPT.min(len - first);
        // Where these results begin; they end with the first one if the walk is reversed.
        let low = if reverse { len - first - n } else { first };
        for step in 0..n {
            let k = if reverse { n - 1 - step } else { step };
            for ((s, &start), kept) in states.iter_mut().zip(&starts).zip(&mut kept) {
                // SAFETY: the caller's promise.
                *s = F::step(*s, unsafe { *x.at(start + low + k) });
                kept[k].write(*s);
            }
        }
        for (&start, kept) in starts.iter().zip(&kept) {
            let y = y.at(start + low);
            for (k, &s) in kept[..n].iter().enumerate() {
                // SAFETY: as above; as many states were kept.
                unsafe { *y.add(k) = F::result(s.assume_init()) };
            }
        }
    }
    states
}

/// Adjacent lines, `[lines, elements]`, one after the other: a function of its own, so that pointers stay in registers.
///
/// # Safety
/// As for `scan`.
#[inline(never)]
pub(super) unsafe fn singly<T: Element, F: Fold<T>>(
    x: *const T,
    y: *mut T,
    [lines, n]: [usize; 2],
    reverse: bool,
    start: F::State,
) {
    let (first, step) = if reverse { (n.wrapping_sub(1), usize::MAX) } else { (0, 1) };
    for line in 0..lines {
        let (mut at, mut state) = ((line * n).wrapping_add(first), start);
        for _ in 0..n {
            // SAFETY: the caller's promise.
            unsafe {
                state = F::step(state, *x.add(at));
                *y.add(at) = F::result(state);
            }
            at = at.wrapping_add(step);
        }
    }
}

/// `scan` by the vectors of AVX2, if the machine has them.
///
/// # Safety
/// As for `scan`.
#[inline(always)]
pub(super) unsafe fn scan_by<T: Element, F: Fold<T>, const N: usize>(
    avx2: bool,
    ends: (Raw<T>, Raw<T>),
    starts: [usize; N],
    len: usize,
    reverse: bool,
    states: [F::State; N],
) -> [F::State; N] {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        unsafe fn wide<T: Element, F: Fold<T>, const N: usize>(
            ends: (Raw<T>, Raw<T>),
            starts: [usize; N],
            len: usize,
            reverse: bool,
            states: [F::State; N],
        ) -> [F::State; N] {
            // SAFETY: the caller's promise.
            unsafe { scan::<T, F, N>(ends, starts, len, reverse, states) }
        }
        if avx2 {
            // SAFETY: the caller's promise.
            return unsafe { wide::<T, F, N>(ends, starts, len, reverse, states) };
        }
    }
    let _ = avx2;
    // SAFETY: the caller's promise.
    unsafe { scan::<T, F, N>(ends, starts, len, reverse, states) }
}
