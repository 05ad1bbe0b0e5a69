//! What depends on elements and folds in reductions of windows: loops that are called by pointer, so that all around them is compiled once.

use super::super::element::{Element, FoldOp};
use super::avg_pool_backward::{self, AvgPoolBackward};
use super::{Frame, pool2x2};

/// Operand and result.
pub(super) type IoPointers = (*const u8, *mut u8);

/// Elements that are read before others are written: vectors of them need not ask whether both overlap.
const AT_ONCE: usize = 8;

/// The code of an element and a fold. A state that windows begin with is given as the first bytes of a number, others lie one beside the other.
pub(super) struct Code {
    /// Bytes of an element, and of a state.
    pub(super) size: usize,
    pub(super) state: usize,
    /// Whether elements may come in any order.
    pub(super) any_order: bool,
    /// All windows of a line meet a row of the base.
    pub(super) row: unsafe fn(&Frame, *const u8, *mut u8),
    /// Results of so many states.
    pub(super) results: unsafe fn(*const u8, *mut u8, usize),
    /// So many windows of 2×2 over two rows.
    pub(super) halves: unsafe fn(bool, [*const u8; 2], usize, u64, *mut u8),
    /// A plane, by number, of a base that is spread.
    pub(super) spread: Option<unsafe fn(&AvgPoolBackward, usize, IoPointers, u64, *mut u8, bool)>,
    pub(super) slides: Option<SlidingOps>,
}

/// What windows that slide are made of.
pub(super) struct SlidingOps {
    /// Elements below each other, of one row or, where the order is free, of up to four: rows, elements that are skipped, the state to begin with, if
    /// states have nothing to go on from, and so many states.
    pub(super) down: &'static [unsafe fn(*const *const u8, usize, Option<u64>, *mut u8, usize)],
    /// So many windows of 2, 3 or 4 adjacent states, one from each on.
    pub(super) few: [unsafe fn(*const u8, *mut u8, usize); 3],
    /// The same to results.
    pub(super) few_results: Option<[unsafe fn(*const u8, *mut u8, usize); 3]>,
    /// So many windows of which no two share a state: how far they are apart, and how long.
    pub(super) apart: unsafe fn(*const u8, [usize; 2], *mut u8, usize),
    /// The same to results.
    pub(super) apart_results: Option<unsafe fn(*const u8, [usize; 2], *mut u8, usize)>,
    /// Results of states: `[rows, states from one row to the next, results of a row, states from one result to the next]`.
    pub(super) results: unsafe fn(*const u8, [usize; 4], *mut u8),
    /// States with others, to a third place. Others lie behind those that they are joined with, or elsewhere.
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

/// The number that has a state for its first bytes.
pub(super) fn number<S: Copy>(state: S) -> u64 {
    const { assert!(size_of::<S>() <= 8) };
    let mut number = 0u64;
    // SAFETY: it has eight bytes.
    unsafe { (&raw mut number).cast::<S>().write(state) };
    number
}

/// The state that a number has for its first bytes.
///
/// # Safety
/// It was made of one.
#[inline(always)]
pub(super) unsafe fn state<S: Copy>(number: u64) -> S {
    // SAFETY: the caller's promise.
    unsafe { (&raw const number).cast::<S>().read() }
}

/// Calls with the type of so many bytes.
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

/// Makes so many states of a size the same.
///
/// # Safety
/// They are there.
pub(super) unsafe fn fill(to: *mut u8, size: usize, n: usize, start: u64) {
    if n == 0 {
        return;
    }
    // SAFETY: the caller's promise; bytes are bytes.
    by_size!(size, S => unsafe { std::slice::from_raw_parts_mut(to.cast::<S>(), n).fill(state::<S>(start)) })
}

/// Takes every so many-th of states of a size, as [`Slides::results`] does.
///
/// # Safety
/// They are there.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
pub(super) unsafe fn pick(from: *const u8, size: usize, way: [usize; 4], to: *mut u8) {
    // SAFETY: the caller's promise; bytes are bytes.
    by_size!(size, S => unsafe { taken::<S, S>(from.cast(), way, to.cast(), |s| s) })
}

/// As [`Code::row`].
///
/// # Safety
/// The row is inside the base, and there is a state for each window.
unsafe fn row<T: Element, F: FoldOp<T>>(frame: &Frame, row: *const u8, states: *mut u8) {
    let row = row.cast::<T>();
    // SAFETY: the caller's promise.
    let states = unsafe { std::slice::from_raw_parts_mut(states.cast::<F::State>(), frame.last.count) };
    // SAFETY: `along` gives indices inside the row.
    frame.along(|o, i| states[o] = F::step(states[o], unsafe { *row.add(i) }));
}

/// As [`Code::results`].
///
/// # Safety
/// States and room for results are there, elsewhere.
unsafe fn results<T: Element, F: FoldOp<T>>(states: *const u8, to: *mut u8, n: usize) {
    let (states, to) = (states.cast::<F::State>(), to.cast::<T>());
    // SAFETY: the caller's promise.
    (0..n).for_each(|i| unsafe { *to.add(i) = F::result(*states.add(i)) });
}

/// As [`Slides::results`].
///
/// # Safety
/// As for [`results`]; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn vector_results<T: Element, F: FoldOp<T>>(states: *const u8, way: [usize; 4], to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { taken::<F::State, T>(states.cast(), way, to.cast(), F::result) }
}

/// Makes something of every so many-th state.
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
    // SAFETY: the caller's promise: of a row, the last state that is asked for is there.
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
                // Of two times as many, the last isn't asked for.
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

/// Calls `f` with where each of the groups of [`AT_ONCE`] begins that cover `0..n`: the last one may overlap the one before. Says whether `n` is
/// enough for one.
#[inline(always)]
fn cover(n: usize, mut f: impl FnMut(usize)) -> bool {
    if n < AT_ONCE {
        return false;
    }
    let mut at = 0;
    // One call, so that it is written out here.
    loop {
        f(at);
        if at + AT_ONCE >= n {
            return true;
        }
        at = (at + AT_ONCE).min(n - AT_ONCE);
    }
}

/// As [`Slides::down`].
///
/// # Safety
/// Rows are good for as many elements as there are states, after those that are skipped, and the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn down<T: Element, F: FoldOp<T>, const R: usize>(
    rows: *const *const u8,
    skip: usize,
    fresh: Option<u64>,
    states: *mut u8,
    n: usize,
) {
    // SAFETY: the caller's promise, here and below.
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

/// As [`Slides::few`].
///
/// # Safety
/// States are there, and elsewhere room; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn few<T: Element, F: FoldOp<T>, const N: usize>(run: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { windows::<T, F, F::State, N>(run.cast(), to.cast(), n, |s| s) }
}

/// As [`Slides::few_results`].
///
/// # Safety
/// As for [`few`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn few_results<T: Element, F: FoldOp<T>, const N: usize>(run: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { windows::<T, F, T, N>(run.cast(), to.cast(), n, F::result) }
}

/// Windows of a few adjacent states.
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

/// As [`Slides::apart`].
///
/// # Safety
/// States are there, and elsewhere room; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn apart<T: Element, F: FoldOp<T>>(run: *const u8, way: [usize; 2], to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { gaps::<T, F, F::State>(run.cast(), way, to.cast(), n, |s| s) }
}

/// As [`Slides::apart_results`].
///
/// # Safety
/// As for [`apart`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn apart_results<T: Element, F: FoldOp<T>>(run: *const u8, way: [usize; 2], to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { gaps::<T, F, T>(run.cast(), way, to.cast(), n, F::result) }
}

/// Windows with gaps between them, those of two and three states without loops of their own.
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
    // SAFETY: the caller's promise.
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

/// As [`Slides::joined`]. It doesn't know that states come to where they were, or only those that change would be written, by masks, which takes some
/// processors ten times as long.
///
/// # Safety
/// So many states are at each place; the machine has the vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn joined<T: Element, F: FoldOp<T>>(a: *const u8, b: *const u8, to: *mut u8, n: usize) {
    let (a, b, to) = (a.cast::<F::State>(), b.cast::<F::State>(), to.cast::<F::State>());
    let whole = n / AT_ONCE * AT_ONCE;
    // SAFETY: the caller's promise. Each is read before it is written.
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
