//! The scan code that depends on the element type and the fold: interleaved scans of a few lines (while one waits for its
//! previous result, the others continue), scans of lines one after the other, and scans of adjacent lines in parallel.

#[cfg(target_arch = "x86_64")]
use super::lanes::{self, Way};
use super::{Element, FoldOp, LEFT, LINES, STRIP};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// The number of steps whose results are computed together.
pub(super) const KEPT: usize = 32;

/// An interleaved scan. Arguments: operand and result, starts of the lines, their length and whether to reverse, states.
type Turn = unsafe fn((*const u8, *mut u8), *const usize, (usize, bool), *mut u64);

/// A scan of short adjacent lines. Arguments: operand and result, number of lines, layout, initial state.
#[cfg(target_arch = "x86_64")]
type Short = unsafe fn(*const u8, *mut u8, usize, Way, *const u64);

/// Interleaved scans of eight lines: one that writes results, and one that only folds.
#[derive(Clone, Copy)]
pub(super) struct InterleavedFold {
    pub(super) scan: Turn,
    pub(super) fold: Turn,
}

/// The functions for one element type and fold. Pointers to states refer to contiguous states of the fold's own type.
pub(super) struct Code {
    /// The bytes of an element, and of a state.
    pub(super) size: usize,
    pub(super) state: usize,
    /// The initial state of a fold.
    pub(super) start: u64,
    /// Scans lines one after the other: `[lines, elements, line stride]`, and the element stride.
    pub(super) walk: unsafe fn(*const u8, *mut u8, [usize; 3], isize, *mut u64),
    /// Scans adjacent lines in parallel: `[lines, elements]`, and the element stride.
    pub(super) strip: unsafe fn(*const u8, *mut u8, [usize; 2], isize, *const u64),
    /// Replaces the folds of parts by the states before each part, from an initial state that becomes the last one.
    pub(super) chain: unsafe fn(*mut u8, usize, *mut u64),
    /// Interleaved scans of eight lines, where there is no vector version.
    pub(super) turns: Option<InterleavedFold>,
    /// An interleaved scan of [`LEFT`] lines, for folds with long latency.
    pub(super) few: Option<Turn>,
    /// A vector step of eight lines, for integers and for floats that are converted. For f32 extrema the NaN handling costs more
    /// than vectors save, and a vector holds few eight-byte elements.
    #[cfg(target_arch = "x86_64")]
    pub(super) lanes: Option<lanes::Steps>,
    /// A scan of adjacent lines that fit in one block each.
    #[cfg(target_arch = "x86_64")]
    pub(super) short: Option<Short>,
}

/// Selects at compile time the functions that exist for an element type and fold.
struct FoldVariants<T, F>(PhantomData<(T, F)>);

impl<T: Element, F: FoldOp<T>> FoldVariants<T, F> {
    const WIDENED: bool = size_of::<F::State>() > size_of::<T>();
    const LANES: bool = cfg!(target_arch = "x86_64") && size_of::<T>() < 8 && (T::IS_INT || Self::WIDENED);
    const FEW: bool = !Self::LANES || size_of::<T>() == 4 && !T::IS_INT;
    #[cfg(target_arch = "x86_64")]
    const SHORT: bool = size_of::<T>() == 4 && Self::WIDENED;
}

impl Code {
    pub(super) fn new<T: Element, F: FoldOp<T>>(identity: T) -> Code {
        let mut start = 0u64;
        // SAFETY: no state has more than eight bytes.
        unsafe { (&raw mut start).cast::<F::State>().write(F::start(identity)) };
        Code {
            size: size_of::<T>(),
            state: size_of::<F::State>(),
            start,
            walk: walk::<T, F>,
            strip: strip::<T, F>,
            chain: chain::<T, F>,
            turns: if FoldVariants::<T, F>::LANES {
                None
            } else {
                Some(InterleavedFold { scan: scan::<T, F, LINES>, fold: fold::<T, F, LINES> })
            },
            few: if FoldVariants::<T, F>::FEW { Some(scan::<T, F, LEFT>) } else { None },
            #[cfg(target_arch = "x86_64")]
            lanes: if FoldVariants::<T, F>::LANES { Some(lanes::Steps::new::<T, F>()) } else { None },
            #[cfg(target_arch = "x86_64")]
            short: if FoldVariants::<T, F>::SHORT { Some(lanes::short::<T, F>) } else { None },
        }
    }
}

/// See [`Code::walk`].
///
/// # Safety
/// `x` and `y` are valid for all elements of the lines, and nothing else writes those of `y`.
unsafe fn walk<T: Element, F: FoldOp<T>>(
    x: *const u8,
    y: *mut u8,
    [lines, n, apart]: [usize; 3],
    step: isize,
    states: *mut u64,
) {
    let (x, y, states) = (x.cast::<T>(), y.cast::<T>(), states.cast::<F::State>());
    // SAFETY: `states` is valid for a state.
    let start = unsafe { *states };
    let mut state = start;
    for line in 0..lines {
        let mut at = (line * apart) as isize;
        state = start;
        for _ in 0..n {
            // SAFETY: element `at` is inside of `x` and `y`, and only this call writes it.
            unsafe {
                state = F::step(state, *x.offset(at));
                *y.offset(at) = F::result(state);
            }
            at = at.wrapping_add(step);
        }
    }
    // SAFETY: as above.
    unsafe { *states = state };
}

/// See [`Code::strip`].
///
/// # Safety
/// As for [`walk`]; there are no more lines than a strip has, and the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn strip<T: Element, F: FoldOp<T>>(
    x: *const u8,
    y: *mut u8,
    [lanes, n]: [usize; 2],
    step: isize,
    start: *const u64,
) {
    // SAFETY: `start` is valid for a state.
    let mut states = [unsafe { *start.cast::<F::State>() }; STRIP];
    let states = &mut states[..lanes];
    let (mut x, mut y) = (x.cast::<T>(), y.cast::<T>());
    for _ in 0..n {
        // Two loops: the result may overwrite the operand,
        // and vectorization needs to know that no element is written before it is read.
        for (j, s) in states.iter_mut().enumerate() {
            // SAFETY: as above.
            *s = F::step(*s, unsafe { *x.add(j) });
        }
        for (j, s) in states.iter().enumerate() {
            // SAFETY: as above.
            unsafe { *y.add(j) = F::result(*s) };
        }
        (x, y) = (x.wrapping_offset(step), y.wrapping_offset(step));
    }
}

/// See [`Code::chain`].
///
/// # Safety
/// `totals` is valid for `parts` states, and `state` for one.
unsafe fn chain<T: Element, F: FoldOp<T>>(totals: *mut u8, parts: usize, state: *mut u64) {
    let (totals, state) = (totals.cast::<F::State>(), state.cast::<F::State>());
    for part in 0..parts {
        // SAFETY: `totals` is valid for `parts` states, and `state` for one.
        unsafe {
            let (before, total) = (*state, *totals.add(part));
            *totals.add(part) = before;
            *state = F::join(before, total);
        }
    }
}

/// Folds several lines of equal length, interleaved, to their last states.
///
/// # Safety
/// `x` is valid for all elements of the walks, and the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn fold<T: Element, F: FoldOp<T>, const N: usize>(
    (x, _): (*const u8, *mut u8),
    starts: *const usize,
    (len, reverse): (usize, bool),
    to: *mut u64,
) {
    let (x, to) = (x.cast::<T>(), to.cast::<[F::State; N]>());
    // SAFETY: `starts` is valid for `N` indices and `to` for `N` states; every walk is inside of `x`.
    let (starts, mut states) = unsafe { (*starts.cast::<[usize; N]>(), *to) };
    for step in 0..len {
        let k = if reverse { len - 1 - step } else { step };
        for i in 0..N {
            // SAFETY: as above.
            states[i] = F::step(states[i], unsafe { *x.add(starts[i] + k) });
        }
    }
    // SAFETY: as above.
    unsafe { *to = states };
}

/// Scans like `fold` and writes every result.
///
/// # Safety
/// `x` and `y` are valid for all elements of the lines, nothing else writes those of `y`, and the machine has the
/// vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn scan<T: Element, F: FoldOp<T>, const N: usize>(
    (x, y): (*const u8, *mut u8),
    starts: *const usize,
    (len, reverse): (usize, bool),
    to: *mut u64,
) {
    let (x, y, to) = (x.cast::<T>(), y.cast::<T>(), to.cast::<[F::State; N]>());
    // SAFETY: `starts` is valid for `N` indices and `to` for `N` states; every walk is inside of `x` and `y`, and only
    // this call writes it.
    let (starts, mut states) = unsafe { (*starts.cast::<[usize; N]>(), *to) };
    // Keep the last states of some steps and convert them to results together, which is vectorized.
    let mut kept = [[MaybeUninit::<F::State>::uninit(); KEPT]; N];
    let mut first = 0;
    while first < len {
        let n = KEPT.min(len - first);
        // The start of these results; in a reversed scan they end with the first one.
        let low = if reverse { len - first - n } else { first };
        for step in 0..n {
            let k = if reverse { n - 1 - step } else { step };
            for i in 0..N {
                // SAFETY: as above.
                states[i] = F::step(states[i], unsafe { *x.add(starts[i] + low + k) });
                kept[i][k].write(states[i]);
            }
        }
        for (&start, kept) in starts.iter().zip(&kept) {
            for (k, s) in kept[..n].iter().enumerate() {
                // SAFETY: as above; as many states were kept.
                unsafe { *y.add(start + low + k) = F::result(s.assume_init()) };
            }
        }
        first += n;
    }
    // SAFETY: as above.
    unsafe { *to = states };
}
