//! What depends on elements and folds: walks along a few lines in turn, element by element (while one waits for its last result, the
//! others go on), along lines one after the other, and along lines side by side.

#[cfg(target_arch = "x86_64")]
use super::lanes::{self, Way};
use super::{Element, FoldOp, LEFT, LINES, STRIP};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Steps whose results are made together.
pub(super) const KEPT: usize = 32;

/// Walks in turn: operand and result, where lines begin, elements of each and whether backwards, states.
type Turn = unsafe fn((*const u8, *mut u8), *const usize, (usize, bool), *mut u64);

/// Adjacent short lines: operand and result, how many, how to walk, the state to begin with.
#[cfg(target_arch = "x86_64")]
type Short = unsafe fn(*const u8, *mut u8, usize, Way, *const u64);

/// Walks along eight lines in turn: one that writes results, and one that only folds.
#[derive(Clone, Copy)]
pub(super) struct InterleavedFold {
    pub(super) scan: Turn,
    pub(super) fold: Turn,
}

/// The code of an element and a fold. Pointers to states are to some of the fold's own, one beside the other.
pub(super) struct Code {
    /// Bytes of an element, and of a state.
    pub(super) size: usize,
    pub(super) state: usize,
    /// The state that a fold begins with.
    pub(super) start: u64,
    /// Lines one after the other: `[lines, elements, from one line to the next]`, and from one element to the next.
    pub(super) walk: unsafe fn(*const u8, *mut u8, [usize; 3], isize, *mut u64),
    /// Lines side by side: `[lines, elements]`, and from one element to the next.
    pub(super) strip: unsafe fn(*const u8, *mut u8, [usize; 2], isize, *const u64),
    /// Replaces what parts give by what stands before each, from a state on that becomes the last.
    pub(super) chain: unsafe fn(*mut u8, usize, *mut u64),
    /// Where lines have no lanes: eight in turn.
    pub(super) turns: Option<InterleavedFold>,
    /// Where an element waits long for the one before: [`LEFT`] lines in turn.
    pub(super) few: Option<Turn>,
    /// A step of eight lines: of integers, and of floats that are converted for it. Extrema of f32 wait longer for what a NaN needs than
    /// vectors save, and few elements of eight bytes fit in one.
    #[cfg(target_arch = "x86_64")]
    pub(super) lanes: Option<lanes::Steps>,
    /// Adjacent lines of no more elements than a block has.
    #[cfg(target_arch = "x86_64")]
    pub(super) short: Option<Short>,
}

/// Which code there is.
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

/// As [`Code::walk`].
///
/// # Safety
/// All elements are there to read and to write, the latter by nobody else.
unsafe fn walk<T: Element, F: FoldOp<T>>(
    x: *const u8,
    y: *mut u8,
    [lines, n, apart]: [usize; 3],
    step: isize,
    states: *mut u64,
) {
    let (x, y, states) = (x.cast::<T>(), y.cast::<T>(), states.cast::<F::State>());
    // SAFETY: the caller's promise.
    let start = unsafe { *states };
    let mut state = start;
    for line in 0..lines {
        let mut at = (line * apart) as isize;
        state = start;
        for _ in 0..n {
            // SAFETY: the caller's promise.
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

/// As [`Code::strip`].
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
    // SAFETY: the caller's promise.
    let mut states = [unsafe { *start.cast::<F::State>() }; STRIP];
    let states = &mut states[..lanes];
    let (mut x, mut y) = (x.cast::<T>(), y.cast::<T>());
    for _ in 0..n {
        // Two loops: the result may be in the operand's place, and vectors want to know that nothing they read is written.
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

/// As [`Code::chain`].
///
/// # Safety
/// So many states are there.
unsafe fn chain<T: Element, F: FoldOp<T>>(totals: *mut u8, parts: usize, state: *mut u64) {
    let (totals, state) = (totals.cast::<F::State>(), state.cast::<F::State>());
    for part in 0..parts {
        // SAFETY: the caller's promise.
        unsafe {
            let (before, total) = (*state, *totals.add(part));
            *totals.add(part) = before;
            *state = F::join(before, total);
        }
    }
}

/// Several walks of equal length, taken in turn: through the operand, to the last states.
///
/// # Safety
/// All elements are there to read; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn fold<T: Element, F: FoldOp<T>, const N: usize>(
    (x, _): (*const u8, *mut u8),
    starts: *const usize,
    (len, reverse): (usize, bool),
    to: *mut u64,
) {
    let (x, to) = (x.cast::<T>(), to.cast::<[F::State; N]>());
    // SAFETY: the caller's promise, here and below.
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

/// As `fold`, writing every result on the way.
///
/// # Safety
/// All elements are there to read and to write, the latter by nobody else; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn scan<T: Element, F: FoldOp<T>, const N: usize>(
    (x, y): (*const u8, *mut u8),
    starts: *const usize,
    (len, reverse): (usize, bool),
    to: *mut u64,
) {
    let (x, y, to) = (x.cast::<T>(), y.cast::<T>(), to.cast::<[F::State; N]>());
    // SAFETY: the caller's promise, here and below.
    let (starts, mut states) = unsafe { (*starts.cast::<[usize; N]>(), *to) };
    // The last states of some steps are kept, and made results together: that is where vectors help.
    let mut kept = [[MaybeUninit::<F::State>::uninit(); KEPT]; N];
    let mut first = 0;
    while first < len {
        let n = KEPT.min(len - first);
        // Where these results begin; they end with the first one if the walk is reversed.
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
