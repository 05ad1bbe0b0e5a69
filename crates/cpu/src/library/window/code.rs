//! The code of windowed reductions that depends on the element type and the fold. It is called through pointers, so that the code
//! around it is compiled once.

use super::super::element::{Element, FoldOp};
use super::avg_pool_backward::{self, AvgPoolBackward};
use super::{Frame, pool2x2};

/// The operand and the result.
pub(super) type IoPointers = (*const u8, *mut u8);

/// The number of elements that are read before any is written, so that vector code needs no check for overlap.
const AT_ONCE: usize = 8;

/// The functions for one element type and fold.
/// The initial state is passed as the first bytes of a `u64`; other states are stored contiguously.
pub(super) struct Code {
    /// The bytes of an element, and of a state.
    pub(super) size: usize,
    pub(super) state: usize,
    /// Whether elements may be combined in any order.
    pub(super) any_order: bool,
    /// Updates all windows of a line with a row of the base.
    pub(super) row: unsafe fn(&Frame, *const u8, *mut u8),
    /// Converts an array of states to results.
    pub(super) results: unsafe fn(*const u8, *mut u8, usize),
    /// Reduces a number of 2 × 2 windows over two rows.
    pub(super) halves: unsafe fn(bool, [*const u8; 2], usize, u64, *mut u8),
    /// Reduces one plane of a dilated base.
    pub(super) spread: Option<unsafe fn(&AvgPoolBackward, usize, IoPointers, u64, *mut u8, bool)>,
    pub(super) slides: Option<SlidingOps>,
}

/// The functions for sliding windows.
pub(super) struct SlidingOps {
    /// Folds elements in a column, of one row or, if the order is free, of up to four rows. Arguments: rows, number of elements
    /// to skip, initial state if the states have no previous contents, states, number of states.
    pub(super) down: &'static [unsafe fn(*const *const u8, usize, Option<u64>, *mut u8, usize)],
    /// Combines 2, 3 or 4 adjacent states per window, with one window starting at each state.
    pub(super) few: [unsafe fn(*const u8, *mut u8, usize); 3],
    /// Does the same and converts to results.
    pub(super) few_results: Option<[unsafe fn(*const u8, *mut u8, usize); 3]>,
    /// Combines windows that share no states. Arguments: states, `[stride, length]` of windows, destination, number of windows.
    pub(super) apart: unsafe fn(*const u8, [usize; 2], *mut u8, usize),
    /// Does the same and converts to results.
    pub(super) apart_results: Option<unsafe fn(*const u8, [usize; 2], *mut u8, usize)>,
    /// Converts states to results: `[rows, states from one row to the next, results of a row, states from one result to the next]`.
    pub(super) results: unsafe fn(*const u8, [usize; 4], *mut u8),
    /// Combines states with other states into a third array. The others are behind those that they are combined with, or elsewhere.
    pub(super) joined: unsafe fn(*const u8, *const u8, *mut u8, usize),
}

impl Code {
    pub(super) const fn new<T: Element, F: FoldOp<T>>() -> Code {
        Code {
            size: size_of::<T>(),
            state: size_of::<F::State>(),
            any_order: F::ANY_ORDER,
            row: row::<T, F>,
            results: results::<T, F>,
            halves: pool2x2::reduce::<T, F>,
            spread: if F::ANY_ORDER { Some(avg_pool_backward::reduce::<T, F>) } else { None },
            slides: if F::JOINS { Some(SlidingOps::new::<T, F>()) } else { None },
        }
    }
}

impl SlidingOps {
    const fn new<T: Element, F: FoldOp<T>>() -> SlidingOps {
        let few_results = [few_results::<T, F, 2>, few_results::<T, F, 3>, few_results::<T, F, 4>];
        SlidingOps {
            down: if F::ANY_ORDER {
                &[down::<T, F, 1>, down::<T, F, 2>, down::<T, F, 3>, down::<T, F, 4>]
            } else {
                &[down::<T, F, 1>]
            },
            few: [few::<T, F, 2>, few::<T, F, 3>, few::<T, F, 4>],
            few_results: if F::ANY_ORDER { Some(few_results) } else { None },
            apart: apart::<T, F>,
            apart_results: if F::ANY_ORDER { Some(apart_results::<T, F>) } else { None },
            results: vector_results::<T, F>,
            joined: joined::<T, F>,
        }
    }
}

/// Returns the number that has `state` as its first bytes.
pub(super) fn number<S: Copy>(state: S) -> u64 {
    const { assert!(size_of::<S>() <= 8) };
    let mut number = 0u64;
    // SAFETY: it has eight bytes.
    unsafe { (&raw mut number).cast::<S>().write(state) };
    number
}

/// Returns the state in the first bytes of a number.
///
/// # Safety
/// The number was made from a state of type `S`.
#[inline(always)]
pub(super) unsafe fn state<S: Copy>(number: u64) -> S {
    // SAFETY: `number` was made from a state of type `S`, which its first bytes are.
    unsafe { (&raw const number).cast::<S>().read() }
}

/// Calls a function with the unsigned type of the given size.
macro_rules! by_size {
    ($size:expr, $t:ident => $call:expr) => {
        match $size {
            1 => {
                type $t = u8;
                $call
            }
            2 => {
                type $t = u16;
                $call
            }
            4 => {
                type $t = u32;
                $call
            }
            _ => {
                type $t = u64;
                $call
            }
        }
    };
}
pub(super) use by_size;

/// Fills an array of states of a given size with one state.
///
/// # Safety
/// `to` is valid for `n` states of `size` bytes, and `start` was made from one.
pub(super) unsafe fn fill(to: *mut u8, size: usize, n: usize, start: u64) {
    if n == 0 {
        return;
    }
    // SAFETY: `to` is valid for `n` states of `size` bytes; an integer of that size is valid for any bytes.
    by_size!(size, S => unsafe { std::slice::from_raw_parts_mut(to.cast::<S>(), n).fill(state::<S>(start)) })
}

/// Takes every n-th state of a given size, with the arguments of [`SlidingOps::results`].
///
/// # Safety
/// `from` is valid for the states that `way` names, and `to` for as many.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
pub(super) unsafe fn pick(from: *const u8, size: usize, way: [usize; 4], to: *mut u8) {
    // SAFETY: `from` is valid for the states that `way` names and `to` for as many; an integer of `size` bytes is valid
    // for any bytes.
    by_size!(size, S => unsafe { taken::<S, S>(from.cast(), way, to.cast(), |s| s) })
}

/// Updates all windows of a line with a row of the base; see [`Code::row`].
///
/// # Safety
/// The row is inside the base, and `states` is valid for a state for each window.
unsafe fn row<T: Element, F: FoldOp<T>>(frame: &Frame, row: *const u8, states: *mut u8) {
    let row = row.cast::<T>();
    // SAFETY: `states` is valid for a state for each of the row's windows.
    let states = unsafe { std::slice::from_raw_parts_mut(states.cast::<F::State>(), frame.last.count) };
    // SAFETY: `along` gives indices inside the row.
    frame.along(|o, i| states[o] = F::step(states[o], unsafe { *row.add(i) }));
}

/// Converts an array of states to results; see [`Code::results`].
///
/// # Safety
/// The states and the results that are asked for are valid, and don't overlap.
unsafe fn results<T: Element, F: FoldOp<T>>(states: *const u8, to: *mut u8, n: usize) {
    let (states, to) = (states.cast::<F::State>(), to.cast::<T>());
    // SAFETY: `states` and `to` are valid for `n` elements and don't overlap.
    (0..n).for_each(|i| unsafe { *to.add(i) = F::result(*states.add(i)) });
}

/// Converts strided states to results; see [`SlidingOps::results`].
///
/// # Safety
/// As for [`results`]; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn vector_results<T: Element, F: FoldOp<T>>(states: *const u8, way: [usize; 4], to: *mut u8) {
    // SAFETY: `taken` has the contract of this function, and gets its arguments unchanged.
    unsafe { taken::<F::State, T>(states.cast(), way, to.cast(), F::result) }
}

/// Converts every n-th state with a function.
///
/// # Safety
/// As for [`results`].
#[inline(always)]
unsafe fn taken<S: Copy, R>(
    from: *const S,
    [rows, apart, n, stride]: [usize; 4],
    to: *mut R,
    result: impl Fn(S) -> R + Copy,
) {
    // SAFETY: `from` is valid for each row up to the last state that is asked for, `to` for `rows · n` results, and
    // they don't overlap.
    unsafe {
        for r in 0..rows {
            let (from, to) = (from.add(r * apart), to.add(r * n));
            let mut done = 0;
            match stride {
                1 => {
                    while done + AT_ONCE <= n {
                        let s = from.add(done).cast::<[S; AT_ONCE]>().read();
                        to.add(done).cast::<[R; AT_ONCE]>().write_unaligned(s.map(result));
                        done += AT_ONCE;
                    }
                }
                // Reads pairs of states; the second state of the last pair is not read.
                2 => {
                    while done + AT_ONCE < n {
                        let s = from.add(2 * done).cast::<[[S; 2]; AT_ONCE]>().read();
                        to.add(done).cast::<[R; AT_ONCE]>().write_unaligned(s.map(|[s, _]| result(s)));
                        done += AT_ONCE;
                    }
                }
                _ => {}
            }
            (done..n).for_each(|o| *to.add(o) = result(*from.add(o * stride)));
        }
    }
}

/// Calls `f` with the start of each group of [`AT_ONCE`] that covers `0..n`; the last group may overlap the one before. Returns
/// whether `n` is large enough for one group.
#[inline(always)]
fn cover(n: usize, mut f: impl FnMut(usize)) -> bool {
    if n < AT_ONCE {
        return false;
    }
    let mut at = 0;
    // A single call site, so that `f` is inlined.
    loop {
        f(at);
        if at + AT_ONCE >= n {
            return true;
        }
        at = (at + AT_ONCE).min(n - AT_ONCE);
    }
}

/// Folds elements in a column; see [`SlidingOps::down`].
///
/// # Safety
/// Rows are valid for as many elements as there are states, after those that are skipped, and the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn down<T: Element, F: FoldOp<T>, const R: usize>(
    rows: *const *const u8,
    skip: usize,
    fresh: Option<u64>,
    states: *mut u8,
    n: usize,
) {
    // SAFETY: `rows` is valid for `R` addresses, each of a row that is valid for `n` elements after `skip`, and
    // `states` for `n` states.
    let rows = unsafe { *rows.cast::<[*const T; R]>() }.map(|row| row.wrapping_add(skip));
    let to = states.cast::<F::State>();
    // SAFETY: as above.
    let start = fresh.map(|start| unsafe { state::<F::State>(start) });
    if let Some(start) = start {
        let group = |at: usize| {
            let mut s = [start; AT_ONCE];
            for row in rows {
                // SAFETY: as above; the group is inside the states.
                let x = unsafe { row.add(at).cast::<[T; AT_ONCE]>().read_unaligned() };
                for (s, x) in s.iter_mut().zip(x) {
                    *s = F::step(*s, x);
                }
            }
            // SAFETY: as above.
            unsafe { to.add(at).cast::<[F::State; AT_ONCE]>().write(s) };
        };
        if cover(n, group) {
            return;
        }
    }
    for i in 0..n {
        // SAFETY: as above.
        unsafe {
            let first = start.unwrap_or_else(|| *to.add(i));
            *to.add(i) = rows.iter().fold(first, |s, row| F::step(s, *row.add(i)));
        }
    }
}

/// Combines a few adjacent states per window; see [`SlidingOps::few`].
///
/// # Safety
/// `run` is valid for the states of `n` windows, `to` for `n` results, they don't overlap, and the machine has the
/// vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn few<T: Element, F: FoldOp<T>, const N: usize>(run: *const u8, to: *mut u8, n: usize) {
    // SAFETY: `windows` has the contract of this function, and gets its arguments unchanged.
    unsafe { windows::<T, F, F::State, N>(run.cast(), to.cast(), n, |s| s) }
}

/// Combines a few adjacent states per window and converts to results; see [`SlidingOps::few_results`].
///
/// # Safety
/// As for [`few`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn few_results<T: Element, F: FoldOp<T>, const N: usize>(run: *const u8, to: *mut u8, n: usize) {
    // SAFETY: `windows` has the contract of this function, and gets its arguments unchanged.
    unsafe { windows::<T, F, T, N>(run.cast(), to.cast(), n, F::result) }
}

/// Combines windows of a few adjacent states.
///
/// # Safety
/// As for [`few`].
#[inline(always)]
unsafe fn windows<T: Element, F: FoldOp<T>, R, const N: usize>(
    run: *const F::State,
    to: *mut R,
    n: usize,
    result: impl Fn(F::State) -> R + Copy,
) {
    // SAFETY: groups are inside the results, and with the states after them inside the run.
    let group = |at: usize| unsafe {
        let mut s = run.add(at).cast::<[F::State; AT_ONCE]>().read();
        for k in 1..N {
            let x = run.add(at + k).cast::<[F::State; AT_ONCE]>().read();
            for (s, x) in s.iter_mut().zip(x) {
                *s = F::join(*s, x);
            }
        }
        to.add(at).cast::<[R; AT_ONCE]>().write_unaligned(s.map(result));
    };
    if cover(n, group) {
        return;
    }
    for o in 0..n {
        // SAFETY: as above.
        unsafe { *to.add(o) = result((1..N).fold(*run.add(o), |s, k| F::join(s, *run.add(o + k)))) };
    }
}

/// Combines windows that share no states; see [`SlidingOps::apart`].
///
/// # Safety
/// `run` is valid for the states of `n` windows, `to` for `n` results, they don't overlap, and the machine has the
/// vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn apart<T: Element, F: FoldOp<T>>(run: *const u8, way: [usize; 2], to: *mut u8, n: usize) {
    // SAFETY: `gaps` has the contract of this function, and gets its arguments unchanged.
    unsafe { gaps::<T, F, F::State>(run.cast(), way, to.cast(), n, |s| s) }
}

/// Combines windows that share no states and converts to results; see [`SlidingOps::apart_results`].
///
/// # Safety
/// As for [`apart`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn apart_results<T: Element, F: FoldOp<T>>(run: *const u8, way: [usize; 2], to: *mut u8, n: usize) {
    // SAFETY: `gaps` has the contract of this function, and gets its arguments unchanged.
    unsafe { gaps::<T, F, T>(run.cast(), way, to.cast(), n, F::result) }
}

/// Combines windows with gaps between them; windows of two and three states have specialized loops.
///
/// # Safety
/// As for [`apart`].
#[inline(always)]
unsafe fn gaps<T: Element, F: FoldOp<T>, R>(
    run: *const F::State,
    [stride, window]: [usize; 2],
    to: *mut R,
    n: usize,
    result: impl Fn(F::State) -> R + Copy,
) {
    // SAFETY: `run` is valid for the states of `n` windows, `to` for `n` results, and they don't overlap.
    unsafe {
        let place = |o: usize, s: F::State| *to.add(o) = result(s);
        match window {
            2 => (0..n).for_each(|o| {
                let own = run.add(o * stride);
                place(o, F::join(*own, *own.add(1)));
            }),
            3 => (0..n).for_each(|o| {
                let own = run.add(o * stride);
                place(o, F::join(F::join(*own, *own.add(1)), *own.add(2)));
            }),
            _ => (0..n).for_each(|o| {
                let own = run.add(o * stride);
                place(o, (1..window).fold(*own, |s, k| F::join(s, *own.add(k))));
            }),
        }
    }
}

/// Combines states with other states; see [`SlidingOps::joined`]. The compiler must not know that states are written back
/// to where they were read; otherwise it would write only the changed ones by masked stores, which takes some processors ten
/// times as long.
///
/// # Safety
/// So many states are at each place; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn joined<T: Element, F: FoldOp<T>>(a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    let (a, b, to) = (a.cast::<F::State>(), b.cast::<F::State>(), to.cast::<F::State>());
    let whole = n / AT_ONCE * AT_ONCE;
    // SAFETY: `a`, `b` and `to` are valid for `n` states. Each is read before it is written.
    unsafe {
        for i in (0..whole).step_by(AT_ONCE) {
            let mut s = a.add(i).cast::<[F::State; AT_ONCE]>().read();
            let other = b.add(i).cast::<[F::State; AT_ONCE]>().read();
            for (s, other) in s.iter_mut().zip(other) {
                *s = F::join(*s, other);
            }
            to.add(i).cast::<[F::State; AT_ONCE]>().write(s);
        }
        (whole..n).for_each(|i| *to.add(i) = F::join(*a.add(i), *b.add(i)));
    }
}
