//! Pooling with 2 × 2 windows that tile the last two axes: the most common case, in straight loops that the compiler vectorizes.

use super::super::element::{Element, FoldOp};
use super::Frame;
use super::code::state;

/// Two lines of the base and the line of windows over them.
#[derive(Clone, Copy)]
struct Lines<T> {
    top: *const T,
    bottom: *const T,
    windows: usize,
}

/// Returns the number of lines of windows in each matrix, if windows are 2 × 2 and tile the last two axes.
pub(super) fn pool2x2_rows(frame: &Frame) -> Option<usize> {
    let (column, rest) = frame.axes.split_last()?;
    let half = |a: &super::Axis| {
        (a.window, a.stride, a.low, a.base_dilation, a.window_dilation) == (2, 2, 0, 1, 1) && a.base == 2 * a.count
    };
    (half(&frame.last) && half(column) && rest.iter().all(super::Axis::plain)).then_some(column.count)
}

/// Compiles a loop also for AVX2, and calls the version for the machine.
macro_rules! with_avx2 {
    ($avx2:expr, $name:ident::<$($g:ty),*>($($arg:expr),*), <$($p:ident: $bound:path),*>, ($($x:ident: $t:ty),*)) => {{
        #[cfg(target_arch = "x86_64")]
        {
            /// # Safety
            /// As for the function that it wraps, and the machine has AVX2.
            #[target_feature(enable = "avx2,fma")]
            unsafe fn wide<$($p: $bound),*>($($x: $t),*) {
                // SAFETY: the arguments are passed on unchanged, and this function has the contract of the one that it
                // wraps.
                unsafe { $name::<$($p),*>($($x),*) }
            }
            // SAFETY: the arguments meet the contract of the function named, and `$avx2` is true only where the machine
            // has AVX2.
            unsafe { if $avx2 { wide::<$($g),*>($($arg),*) } else { $name::<$($g),*>($($arg),*) } }
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: the arguments meet the contract of the function named.
        unsafe { let _ = $avx2; $name::<$($g),*>($($arg),*) }
    }};
}

/// # Safety
/// Both lines are valid for two elements per window, `to` for the results, and `start` was made from a state of the
/// fold.
#[inline(always)]
unsafe fn fold<T: Element, F: FoldOp<T>>(lines: Lines<T>, start: u64, to: *mut T) {
    // SAFETY: `start` was made from a state of this fold.
    let start = unsafe { state::<F::State>(start) };
    for o in 0..lines.windows {
        // SAFETY: both lines are valid for two elements per window, and `to` for the results.
        unsafe {
            let (top, bottom) = (lines.top.add(2 * o), lines.bottom.add(2 * o));
            let s = F::step(F::step(start, *top), *top.add(1));
            *to.add(o) = F::result(F::step(F::step(s, *bottom), *bottom.add(1)));
        }
    }
}

/// Returns the index of the first extremum among a window's four elements.
#[inline(always)]
fn winner<T: Element>(k: [T; 4], max: bool) -> u32 {
    let (mut best, mut at) = (k[0], 0);
    for (i, &x) in k.iter().enumerate().skip(1) {
        let wins = x.beats(best, max);
        best = if wins { x } else { best };
        at = if wins { i as u32 } else { at };
    }
    at
}

/// The number of windows that are processed together, through local arrays, so that the compiler knows that nothing overlaps.
pub(super) const TOGETHER: usize = 8;

/// # Safety
/// Both lines of keys and both of results are valid for two elements per window, `from` for one.
#[inline(always)]
unsafe fn scatter<T: Element>(keys: Lines<T>, max: bool, from: *const T, top: *mut T, bottom: *mut T) {
    let zero = T::rounded(T::zero());
    let mut o = 0;
    while o < keys.windows {
        let n = TOGETHER.min(keys.windows - o);
        let (mut k, mut x) = ([[zero; 2 * TOGETHER]; 2], [zero; TOGETHER]);
        // SAFETY: as in `fold`, for keys, elements and results.
        unsafe {
            std::ptr::copy_nonoverlapping(keys.top.add(2 * o), k[0].as_mut_ptr(), 2 * n);
            std::ptr::copy_nonoverlapping(keys.bottom.add(2 * o), k[1].as_mut_ptr(), 2 * n);
            std::ptr::copy_nonoverlapping(from.add(o), x.as_mut_ptr(), n);
        }
        let mut out = [[zero; 2 * TOGETHER]; 2];
        for i in 0..TOGETHER {
            let at = winner([k[0][2 * i], k[0][2 * i + 1], k[1][2 * i], k[1][2 * i + 1]], max);
            let x = zero.add(x[i]);
            for (j, row) in out.iter_mut().enumerate() {
                row[2 * i] = if at == 2 * j as u32 { x } else { zero };
                row[2 * i + 1] = if at == 2 * j as u32 + 1 { x } else { zero };
            }
        }
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(out[0].as_ptr(), top.add(2 * o), 2 * n);
            std::ptr::copy_nonoverlapping(out[1].as_ptr(), bottom.add(2 * o), 2 * n);
        }
        o += n;
    }
}

/// Reduces `n` windows over two lines.
///
/// # Safety
/// The lines are valid for two elements per window, `to` for one, and `avx2` is true only if the machine has AVX2.
pub(super) unsafe fn reduce<T: Element, F: FoldOp<T>>(
    avx2: bool,
    [top, bottom]: [*const u8; 2],
    windows: usize,
    start: u64,
    to: *mut u8,
) {
    let (lines, to) = (Lines { top: top.cast(), bottom: bottom.cast(), windows }, to.cast());
    with_avx2!(avx2, fold::<T, F>(lines, start, to), <A: Element, B: FoldOp<A>>, (x: Lines<A>, i: u64, y: *mut A))
}

/// Writes one element per window at its extremum, and zeros elsewhere.
///
/// # Safety
/// As for [`reduce`], for keys, elements and the two lines of results.
pub(super) unsafe fn spread<T: Element>(
    avx2: bool,
    [top, bottom]: [*const u8; 2],
    (windows, max): (usize, bool),
    from: *const u8,
    to: [*mut u8; 2],
) {
    let keys = Lines { top: top.cast(), bottom: bottom.cast(), windows };
    let (from, [top, bottom]) = (from.cast(), to.map(|to| to.cast()));
    with_avx2!(avx2, scatter::<T>(keys, max, from, top, bottom), <A: Element>,
        (k: Lines<A>, m: bool, x: *const A, t: *mut A, b: *mut A))
}
