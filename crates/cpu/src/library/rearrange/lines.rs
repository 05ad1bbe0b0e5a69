//! Lines where one axis is short, or where the operand is read in steps.

use super::super::memcpy;
use super::Axis;
use super::tiles::Transpose;
use std::ops::Range;

/// Elements of a short axis, at most.
pub(super) const SHORT: usize = 8;
/// Elements of a row that is read in steps, at most, for all rows to be gone through at once.
pub(super) const ROW: usize = 64;
/// Small matrices that are a unit of work.
pub(super) const BATCH: usize = 64;
/// Elements of the other axis that are a unit of work.
pub(super) const CHUNK: usize = 4096;

/// A function compiled for vectors of 256 bits: wider ones move nothing quicker, and machines without them have no such routine.
macro_rules! vectors {
    ($(#[$doc:meta])* $name:ident, $inner:ident, ($($arg:ident: $ty:ty),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Operand and result are good for the axes, and the machine has AVX2 if it is of x86-64.
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
        pub(super) unsafe fn $name<T: Transpose>(x: *const T, y: *mut T, $($arg: $ty),*) {
            // SAFETY: the caller's promise.
            unsafe { $inner(x, y, $($arg),*) }
        }
    };
}

vectors!(
    /// Lines of the operand along `long` become every so many elements of the result.
    deal, deal_inline, (short: Axis, long: Axis, part: Range<usize>)
);
vectors!(
    /// Every so many elements of the operand become lines of the result along `long`.
    collect, collect_inline, (short: Axis, long: Axis, part: Range<usize>)
);
vectors!(
    /// Small matrices, one after the other: as `deal` for each.
    small, small_inline, (batch: Axis, short: Axis, long: Axis, part: Range<usize>)
);
vectors!(
    /// Elements of the operand that are some steps apart, along the result.
    along, along_inline, (axis: Axis, part: Range<usize>)
);
vectors!(
    /// The same for some rows, which are short.
    rows, rows_inline, (rows: Axis, axis: Axis, part: Range<usize>)
);
vectors!(
    /// Lines that are dense on both sides.
    copies, copies_inline, (rows: Axis, size: usize, part: Range<usize>)
);

#[inline(always)]
unsafe fn deal_inline<T: Transpose>(x: *const T, y: *mut T, short: Axis, long: Axis, part: Range<usize>) {
    #[inline(always)]
    unsafe fn of<T: Copy, const N: usize>(x: *const T, y: *mut T, step: isize, part: Range<usize>) {
        let lines: [*const T; N] = std::array::from_fn(|j| x.wrapping_offset(j as isize * step));
        for i in part {
            // SAFETY: the caller vouches for the lines and for the result.
            unsafe { (0..N).for_each(|j| *y.add(i * N + j) = *lines[j].add(i)) };
        }
    }
    unsafe fn left<T: Copy>(x: *const T, y: *mut T, n: usize, step: isize, part: Range<usize>) {
        for i in part {
            for j in 0..n {
                // SAFETY: the caller vouches for the lines and for the result.
                unsafe { *y.add(i * n + j) = *x.offset(j as isize * step + i as isize) };
            }
        }
    }
    let step = short.from;
    debug_assert!(long.from == 1 && long.to == short.size as isize);
    // SAFETY: the caller's promise.
    let part = unsafe { shuffle_small(x.cast(), y.cast(), size_of::<T>(), short, part, true) };
    // SAFETY: the caller's promise.
    unsafe {
        match short.size {
            2 => of::<T, 2>(x, y, step, part),
            4 => of::<T, 4>(x, y, step, part),
            8 => of::<T, 8>(x, y, step, part),
            // Of one or two bytes, these are what is left of those that were shuffled.
            n if size_of::<T>() <= 2 => left(x, y, n, step, part),
            3 => of::<T, 3>(x, y, step, part),
            5 => of::<T, 5>(x, y, step, part),
            6 => of::<T, 6>(x, y, step, part),
            _ => of::<T, 7>(x, y, step, part),
        }
    }
}

#[inline(always)]
unsafe fn small_inline<T: Transpose>(x: *const T, y: *mut T, batch: Axis, short: Axis, long: Axis, part: Range<usize>) {
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
            // SAFETY: the caller vouches for the matrices.
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
    // SAFETY: the caller's promise.
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

#[inline(always)]
unsafe fn collect_inline<T: Transpose>(x: *const T, y: *mut T, short: Axis, long: Axis, part: Range<usize>) {
    #[inline(always)]
    unsafe fn of<T: Copy, const N: usize>(x: *const T, y: *mut T, step: isize, part: Range<usize>) {
        let lines: [*mut T; N] = std::array::from_fn(|j| y.wrapping_offset(j as isize * step));
        for i in part {
            // SAFETY: the caller vouches for the operand and for the lines.
            unsafe { (0..N).for_each(|j| *lines[j].add(i) = *x.add(i * N + j)) };
        }
    }
    unsafe fn left<T: Copy>(x: *const T, y: *mut T, n: usize, step: isize, part: Range<usize>) {
        for i in part {
            for j in 0..n {
                // SAFETY: the caller vouches for the operand and for the lines.
                unsafe { *y.offset(j as isize * step + i as isize) = *x.add(i * n + j) };
            }
        }
    }
    let step = short.to;
    debug_assert!(long.to == 1 && long.from == short.size as isize);
    // SAFETY: the caller's promise.
    let part = unsafe { shuffle_small(x.cast(), y.cast(), size_of::<T>(), short, part, false) };
    // SAFETY: the caller's promise.
    unsafe {
        match short.size {
            2 => of::<T, 2>(x, y, step, part),
            4 => of::<T, 4>(x, y, step, part),
            8 => of::<T, 8>(x, y, step, part),
            // Of one or two bytes, these are what is left of those that were shuffled.
            n if size_of::<T>() <= 2 => left(x, y, n, step, part),
            3 => of::<T, 3>(x, y, step, part),
            5 => of::<T, 5>(x, y, step, part),
            6 => of::<T, 6>(x, y, step, part),
            _ => of::<T, 7>(x, y, step, part),
        }
    }
}

#[inline(always)]
unsafe fn copies_inline<T: Transpose>(x: *const T, y: *mut T, rows: Axis, size: usize, part: Range<usize>) {
    let (bytes, first) = (size_of::<T>(), part.start as isize);
    let (from, to) = (rows.from * bytes as isize, rows.to * bytes as isize);
    let lines = memcpy::StridedCopy { bytes: size * bytes, count: part.len(), from, to };
    // SAFETY: the caller vouches for the lines.
    unsafe { memcpy::copy_lines(x.offset(first * rows.from).cast(), y.offset(first * rows.to).cast(), lines) }
}

#[inline(always)]
unsafe fn rows_inline<T: Transpose>(x: *const T, y: *mut T, rows: Axis, axis: Axis, part: Range<usize>) {
    for i in part.start as isize..part.end as isize {
        // SAFETY: the caller vouches for the rows.
        unsafe { along_inline(x.offset(i * rows.from), y.offset(i * rows.to), axis, 0..axis.size) }
    }
}

#[inline(always)]
unsafe fn along_inline<T: Transpose>(x: *const T, y: *mut T, axis: Axis, part: Range<usize>) {
    #[inline(always)]
    unsafe fn by<T: Copy>(x: *const T, y: *mut T, step: isize, part: Range<usize>) {
        // SAFETY: the caller vouches for both.
        part.for_each(|i| unsafe { *y.add(i) = *x.offset(i as isize * step) });
    }
    // SAFETY: the caller's promise. A step that is known when this is compiled makes vectors of it.
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

/// Bytes that are turned round together.
#[cfg(target_arch = "x86_64")]
const TURNED: usize = 32;

/// Bytes in the opposite order, at least a vector of them: the last one overlaps the one before.
///
/// # Safety
/// As for [`along`]; the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn reverse_bytes(x: *const u8, y: *mut u8, part: Range<usize>) {
    use std::arch::x86_64::*;
    // SAFETY: the caller vouches for the elements; the shuffles are AVX2's.
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

/// Elements of lines from which their bytes are shuffled: what goes where is found out first.
pub(super) const SHUFFLED: usize = 256;

/// Deals or collects elements of one or two bytes by shuffles of their bytes, as far as whole vectors go; what is left.
///
/// # Safety
/// As for [`deal`] and [`collect`]; the machine has AVX2, unless this is not x86-64.
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
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
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

/// What each vector of the result takes from each vector of the operand; 128 takes nothing.
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

/// Byte `q` of interleaved elements is byte `at` of line `line`: where the line's vector has it.
#[cfg(target_arch = "x86_64")]
const fn source_byte(q: usize, size: usize, lines: usize) -> (usize, usize) {
    let element = q / size;
    (element % lines, element / lines * size + q % size)
}

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
    // SAFETY: the caller vouches for lines and interleaved elements of the part; the shuffles are AVX2's.
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
