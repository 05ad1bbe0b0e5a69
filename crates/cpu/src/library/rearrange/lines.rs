//! Moves along lines where one axis is short, or where the operand is read with a stride.

use super::super::memcpy;
use super::Axis;
use super::tiles::Transpose;
use std::ops::Range;

/// The maximum number of elements of a short axis.
pub(super) const SHORT: usize = 8;
/// The maximum number of elements of a strided row for which all rows are processed in one loop.
pub(super) const ROW: usize = 64;
/// The number of small matrices per unit of work.
pub(super) const BATCH: usize = 64;
/// The number of elements of the other axis per unit of work.
pub(super) const CHUNK: usize = 4096;

/// Defines a function that is compiled for 256-bit vectors:
/// wider vectors are no faster, and machines without them do not use these routines.
macro_rules! vectors {
    ($(#[$doc:meta])* $name:ident, $inner:ident, ($($arg:ident: $ty:ty),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Operand and result are valid for the axes, and the machine has AVX2 if it is an x86-64.
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
        pub(super) unsafe fn $name<T: Transpose>(x: *const T, y: *mut T, $($arg: $ty),*) {
            // SAFETY: `$inner` has the contract of this function, and gets its arguments unchanged.
            unsafe { $inner(x, y, $($arg),*) }
        }
    };
}

vectors!(
    /// Interleaves lines of the operand along `long` into the result.
    deal, deal_inline, (short: Axis, long: Axis, part: Range<usize>)
);
vectors!(
    /// Deinterleaves the operand into lines of the result along `long`.
    collect, collect_inline, (short: Axis, long: Axis, part: Range<usize>)
);
vectors!(
    /// Processes small matrices, one after the other, like `deal`.
    small, small_inline, (batch: Axis, short: Axis, long: Axis, part: Range<usize>)
);
vectors!(
    /// Copies strided elements of the operand to adjacent elements of the result.
    along, along_inline, (axis: Axis, part: Range<usize>)
);
vectors!(
    /// Copies strided elements of several short rows to adjacent elements of the result.
    rows, rows_inline, (rows: Axis, axis: Axis, part: Range<usize>)
);
vectors!(
    /// Copies lines that are contiguous on both sides.
    copies, copies_inline, (rows: Axis, size: usize, part: Range<usize>)
);

/// # Safety
/// Operand and result are valid for both axes.
#[inline(always)]
unsafe fn deal_inline<T: Transpose>(x: *const T, y: *mut T, short: Axis, long: Axis, part: Range<usize>) {
    /// # Safety
    /// The operand is valid for the lines, and the result for their elements.
    #[inline(always)]
    unsafe fn of<T: Copy, const N: usize>(x: *const T, y: *mut T, step: isize, part: Range<usize>) {
        let lines: [*const T; N] = std::array::from_fn(|j| x.wrapping_offset(j as isize * step));
        for i in part {
            // SAFETY: the operand is valid for the lines, and the result for their elements.
            unsafe { (0..N).for_each(|j| *y.add(i * N + j) = *lines[j].add(i)) };
        }
    }
    /// # Safety
    /// The operand is valid for the lines, and the result for their elements.
    unsafe fn left<T: Copy>(x: *const T, y: *mut T, n: usize, step: isize, part: Range<usize>) {
        for i in part {
            for j in 0..n {
                // SAFETY: the operand is valid for the lines, and the result for their elements.
                unsafe { *y.add(i * n + j) = *x.offset(j as isize * step + i as isize) };
            }
        }
    }
    let step = short.from;
    debug_assert!(long.from == 1 && long.to == short.size as isize);
    // SAFETY: operand and result are valid for both axes, and the machine has AVX2 if it is an x86-64.
    let part = unsafe { shuffle_small(x.cast(), y.cast(), size_of::<T>(), short, part, true) };
    // SAFETY: operand and result are valid for both axes; `part` is what the shuffles left of the long one.
    unsafe {
        match short.size {
            2 => of::<T, 2>(x, y, step, part),
            4 => of::<T, 4>(x, y, step, part),
            8 => of::<T, 8>(x, y, step, part),
            // For one or two bytes, these are the elements left over by the byte shuffles.
            n if size_of::<T>() <= 2 => left(x, y, n, step, part),
            3 => of::<T, 3>(x, y, step, part),
            5 => of::<T, 5>(x, y, step, part),
            6 => of::<T, 6>(x, y, step, part),
            _ => of::<T, 7>(x, y, step, part),
        }
    }
}

/// # Safety
/// Operand and result are valid for the batch and both axes.
#[inline(always)]
unsafe fn small_inline<T: Transpose>(x: *const T, y: *mut T, batch: Axis, short: Axis, long: Axis, part: Range<usize>) {
    /// # Safety
    /// Operand and result are valid for the matrices.
    #[inline(always)]
    unsafe fn of<T: Copy, const N: usize>(
        x: *const T,
        y: *mut T,
        batch: Axis,
        step: isize,
        n: usize,
        part: Range<usize>,
    ) {
        for b in part.start as isize..part.end as isize {
            // SAFETY: operand and result are valid for the matrices.
            unsafe {
                let (x, y) = (x.offset(b * batch.from), y.offset(b * batch.to));
                for i in 0..n {
                    (0..N).for_each(|j| *y.add(i * N + j) = *x.offset(i as isize + j as isize * step));
                }
            }
        }
    }
    debug_assert!(long.from == 1 && long.to == short.size as isize);
    let (step, n) = (short.from, long.size);
    // SAFETY: operand and result are valid for the batch and both axes.
    unsafe {
        match short.size {
            2 => of::<T, 2>(x, y, batch, step, n, part),
            3 => of::<T, 3>(x, y, batch, step, n, part),
            4 => of::<T, 4>(x, y, batch, step, n, part),
            5 => of::<T, 5>(x, y, batch, step, n, part),
            6 => of::<T, 6>(x, y, batch, step, n, part),
            7 => of::<T, 7>(x, y, batch, step, n, part),
            _ => of::<T, 8>(x, y, batch, step, n, part),
        }
    }
}

/// # Safety
/// Operand and result are valid for both axes.
#[inline(always)]
unsafe fn collect_inline<T: Transpose>(x: *const T, y: *mut T, short: Axis, long: Axis, part: Range<usize>) {
    /// # Safety
    /// The operand is valid for its elements, and the result for the lines.
    #[inline(always)]
    unsafe fn of<T: Copy, const N: usize>(x: *const T, y: *mut T, step: isize, part: Range<usize>) {
        let lines: [*mut T; N] = std::array::from_fn(|j| y.wrapping_offset(j as isize * step));
        for i in part {
            // SAFETY: the operand is valid for its elements, and the result for the lines.
            unsafe { (0..N).for_each(|j| *lines[j].add(i) = *x.add(i * N + j)) };
        }
    }
    /// # Safety
    /// The operand is valid for its elements, and the result for the lines.
    unsafe fn left<T: Copy>(x: *const T, y: *mut T, n: usize, step: isize, part: Range<usize>) {
        for i in part {
            for j in 0..n {
                // SAFETY: the operand is valid for its elements, and the result for the lines.
                unsafe { *y.offset(j as isize * step + i as isize) = *x.add(i * n + j) };
            }
        }
    }
    let step = short.to;
    debug_assert!(long.to == 1 && long.from == short.size as isize);
    // SAFETY: operand and result are valid for both axes, and the machine has AVX2 if it is an x86-64.
    let part = unsafe { shuffle_small(x.cast(), y.cast(), size_of::<T>(), short, part, false) };
    // SAFETY: operand and result are valid for both axes; `part` is what the shuffles left of the long one.
    unsafe {
        match short.size {
            2 => of::<T, 2>(x, y, step, part),
            4 => of::<T, 4>(x, y, step, part),
            8 => of::<T, 8>(x, y, step, part),
            // For one or two bytes, these are the elements left over by the byte shuffles.
            n if size_of::<T>() <= 2 => left(x, y, n, step, part),
            3 => of::<T, 3>(x, y, step, part),
            5 => of::<T, 5>(x, y, step, part),
            6 => of::<T, 6>(x, y, step, part),
            _ => of::<T, 7>(x, y, step, part),
        }
    }
}

/// # Safety
/// Operand and result are valid for the rows of the part.
#[inline(always)]
unsafe fn copies_inline<T: Transpose>(x: *const T, y: *mut T, rows: Axis, size: usize, part: Range<usize>) {
    let (bytes, first) = (size_of::<T>(), part.start as isize);
    let (from, to) = (rows.from * bytes as isize, rows.to * bytes as isize);
    let lines = memcpy::StridedCopy { bytes: size * bytes, count: part.len(), from, to };
    // SAFETY: operand and result are valid for these lines.
    unsafe { memcpy::copy_lines(x.offset(first * rows.from).cast(), y.offset(first * rows.to).cast(), lines) }
}

/// # Safety
/// Operand and result are valid for the rows of the part.
#[inline(always)]
unsafe fn rows_inline<T: Transpose>(x: *const T, y: *mut T, rows: Axis, axis: Axis, part: Range<usize>) {
    for i in part.start as isize..part.end as isize {
        // SAFETY: both sides are valid for these rows.
        unsafe { along_inline(x.offset(i * rows.from), y.offset(i * rows.to), axis, 0..axis.size) }
    }
}

/// # Safety
/// Operand and result are valid for the part of the axis.
#[inline(always)]
unsafe fn along_inline<T: Transpose>(x: *const T, y: *mut T, axis: Axis, part: Range<usize>) {
    /// # Safety
    /// `x` is valid for the elements of the part, `step` apart, and `y` for the part.
    #[inline(always)]
    unsafe fn by<T: Copy>(x: *const T, y: *mut T, step: isize, part: Range<usize>) {
        // SAFETY: operand and result are valid for the elements of the axes.
        part.for_each(|i| unsafe { *y.add(i) = *x.offset(i as isize * step) });
    }
    // SAFETY: operand and result are valid for the part of the axis. A step that is known when this is compiled makes
    // vectors of it.
    unsafe {
        match axis.from {
            #[cfg(target_arch = "x86_64")]
            -1 if size_of::<T>() == 1 && part.len() >= TURNED => reverse_bytes(x.cast(), y.cast(), part),
            -1 => by(x, y, -1, part),
            2 => by(x, y, 2, part),
            3 => by(x, y, 3, part),
            4 => by(x, y, 4, part),
            step => by(x, y, step, part),
        }
    }
}

/// The number of bytes that are reversed together.
#[cfg(target_arch = "x86_64")]
const TURNED: usize = 32;

/// Copies bytes in reverse order, at least one vector of them; the last vector overlaps the one before.
///
/// # Safety
/// As for [`along`]; the machine has AVX2.
/// # Safety
/// Operand and result are valid for both axes, and the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn reverse_bytes(x: *const u8, y: *mut u8, part: Range<usize>) {
    use std::arch::x86_64::*;
    // SAFETY: both sides are valid for these elements, and the machine has AVX2.
    unsafe {
        let last_first =
            _mm256_broadcastsi128_si256(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        let one = |i: usize| {
            let v = _mm256_loadu_si256(x.offset(-((i + TURNED - 1) as isize)).cast());
            let halves = _mm256_shuffle_epi8(v, last_first);
            _mm256_storeu_si256(y.add(i).cast(), _mm256_permute2x128_si256::<1>(halves, halves));
        };
        let mut i = part.start;
        while i + TURNED < part.end {
            one(i);
            i += TURNED;
        }
        one(part.end - TURNED);
    }
}

/// The minimum number of elements of lines for byte shuffles, which first compute their indices.
pub(super) const SHUFFLED: usize = 256;

/// Interleaves or deinterleaves elements of one or two bytes by byte shuffles, in whole vectors. Returns the remaining range.
///
/// # Safety
/// As for [`deal`] and [`collect`]; the machine has AVX2, unless it is not an x86-64.
#[inline(always)]
unsafe fn shuffle_small(
    x: *const u8,
    y: *mut u8,
    size: usize,
    short: Axis,
    part: Range<usize>,
    deal: bool,
) -> Range<usize> {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn of<const SIZE: usize, const DEAL: bool>(
        x: *const u8,
        y: *mut u8,
        short: Axis,
        part: Range<usize>,
    ) -> Range<usize> {
        // SAFETY: operand and result are valid for both axes, and the machine has AVX2.
        unsafe {
            match short.size {
                3 => by_bytes::<3, SIZE, DEAL>(x, y, short, part),
                5 => by_bytes::<5, SIZE, DEAL>(x, y, short, part),
                6 => by_bytes::<6, SIZE, DEAL>(x, y, short, part),
                7 => by_bytes::<7, SIZE, DEAL>(x, y, short, part),
                _ => part,
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    if size <= 2 && part.len() >= SHUFFLED {
        // SAFETY: operand and result are valid for both axes, and the machine has AVX2.
        return unsafe {
            match (size, deal) {
                (1, false) => of::<1, false>(x, y, short, part),
                (1, true) => of::<1, true>(x, y, short, part),
                (_, false) => of::<2, false>(x, y, short, part),
                (_, true) => of::<2, true>(x, y, short, part),
            }
        };
    }
    let _ = (x, y, size, short, deal, SHUFFLED);
    part
}

/// Computes for each result vector the shuffle indices into each operand vector; 128 selects zero.
#[cfg(target_arch = "x86_64")]
const fn shuffle_indices<const N: usize, const SIZE: usize, const DEAL: bool>() -> [[[u8; 16]; N]; N] {
    let mut picks = [[[128u8; 16]; N]; N];
    let mut q = 0;
    while q < 16 * N {
        let (line, at) = source_byte(q, SIZE, N);
        match DEAL {
            true => picks[q / 16][line][q % 16] = at as u8,
            false => picks[line][q / 16][at] = (q % 16) as u8,
        }
        q += 1;
    }
    picks
}

/// Returns the line and the byte within the line's vector of byte `q` of interleaved elements.
#[cfg(target_arch = "x86_64")]
const fn source_byte(q: usize, size: usize, lines: usize) -> (usize, usize) {
    let element = q / size;
    (element % lines, element / lines * size + q % size)
}

/// # Safety
/// Lines and interleaved elements are valid for the part, and the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn by_bytes<const N: usize, const SIZE: usize, const DEAL: bool>(
    x: *const u8,
    y: *mut u8,
    short: Axis,
    part: Range<usize>,
) -> Range<usize> {
    use std::arch::x86_64::*;
    let picks = const { shuffle_indices::<N, SIZE, DEAL>() };
    let each = 16 / SIZE;
    let mut i = part.start;
    // SAFETY: lines and interleaved elements are valid for the part, and the machine has AVX2.
    unsafe {
        while i + each <= part.end {
            let line = |j: usize, step: isize| (j as isize * step + i as isize) * SIZE as isize;
            let mut from = [_mm_setzero_si128(); N];
            for (j, from) in from.iter_mut().enumerate() {
                let at = if DEAL { line(j, short.from) } else { (i * N * SIZE + 16 * j) as isize };
                *from = _mm_loadu_si128(x.offset(at).cast());
            }
            for (r, picks) in picks.iter().enumerate() {
                let mut all = _mm_setzero_si128();
                for (from, pick) in from.iter().zip(picks) {
                    let own = _mm_shuffle_epi8(*from, _mm_loadu_si128(pick.as_ptr().cast()));
                    all = _mm_or_si128(all, own);
                }
                let at = if DEAL { (i * N * SIZE + 16 * r) as isize } else { line(r, short.to) };
                _mm_storeu_si128(y.offset(at).cast(), all);
            }
            i += each;
        }
    }
    i..part.end
}
