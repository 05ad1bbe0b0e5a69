//! Memory copies: single ones, and many of the same length.

/// The bytes that one step of a longer copy moves.
const CHUNK: usize = 32;

/// Copies `n` bytes by copying both ends, which may overlap.
///
/// # Safety
/// Both sides are valid for `bytes` bytes, which are `N` at least and no more than twice that.
#[inline(always)]
unsafe fn copy_both_ends<const N: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: both sides are valid for at least `N` bytes.
    unsafe {
        let (first, last) = (from.cast::<[u8; N]>(), from.add(bytes - N).cast::<[u8; N]>());
        let (first, last) = (first.read_unaligned(), last.read_unaligned());
        to.cast::<[u8; N]>().write_unaligned(first);
        to.add(bytes - N).cast::<[u8; N]>().write_unaligned(last);
    }
}

/// Copies at least a chunk; the last chunk overlaps the one before.
///
/// This also serves long copies: `memcpy` is no faster at any length.
///
/// # Safety
/// Both sides are valid for `bytes` bytes, and don't overlap unless they are the same.
#[inline(always)]
unsafe fn copy_chunks(from: *const u8, to: *mut u8, bytes: usize) {
    /// # Safety
    /// `from` and `to` are valid for `N` chunks from `i` on.
    #[inline(always)]
    unsafe fn step<const N: usize>(from: *const u8, to: *mut u8, i: usize) {
        // SAFETY: both sides are valid for `N` chunks from `i` on.
        unsafe {
            let x: [[u8; CHUNK]; N] = from.add(i).cast::<[[u8; CHUNK]; N]>().read_unaligned();
            to.add(i).cast::<[[u8; CHUNK]; N]>().write_unaligned(x);
        }
    }
    // SAFETY: both sides are valid for `bytes` bytes, and no step reaches beyond them.
    unsafe {
        let mut i = 0;
        while i + 4 * CHUNK < bytes {
            step::<4>(from, to, i);
            i += 4 * CHUNK;
        }
        while i + CHUNK < bytes {
            step::<1>(from, to, i);
            i += CHUNK;
        }
        step::<1>(from, to, bytes - CHUNK);
    }
}

/// Copies bytes without a call.
///
/// # Safety
/// Both sides are valid for `n` elements, and don't overlap unless they are the same.
#[inline(always)]
pub(super) unsafe fn copy<T: Copy>(from: *const T, to: *mut T, n: usize) {
    let bytes = n * size_of::<T>();
    let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
    // SAFETY: both sides are valid for `n` elements, which are `bytes` bytes, and don't overlap unless they are the
    // same.
    unsafe {
        match bytes {
            0 => {}
            1 => *to = *from,
            2..4 => copy_both_ends::<2>(from, to, bytes),
            4..8 => copy_both_ends::<4>(from, to, bytes),
            8..16 => copy_both_ends::<8>(from, to, bytes),
            16..CHUNK => copy_both_ends::<16>(from, to, bytes),
            _ => copy_chunks(from, to, bytes),
        }
    }
}

/// Copies of lines with the same length: the bytes and number of lines, and the strides in operand and result.
#[derive(Clone, Copy, Debug)]
pub(super) struct StridedCopy {
    pub(super) bytes: usize,
    pub(super) count: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

/// Copies the lines. The code for the length is selected once for all lines.
///
/// # Safety
/// Both sides are valid for the lines, and don't overlap unless they are the same.
/// # Safety
/// `from` and `to` are valid for all lines, for which `copy` may be called.
#[inline(always)]
pub(super) unsafe fn copy_lines(from: *const u8, to: *mut u8, l: StridedCopy) {
    #[inline(always)]
    unsafe fn each(from: *const u8, to: *mut u8, l: StridedCopy, copy: impl Fn(*const u8, *mut u8)) {
        let (mut from, mut to) = (from, to);
        for _ in 0..l.count {
            copy(from, to);
            (from, to) = (from.wrapping_offset(l.from), to.wrapping_offset(l.to));
        }
    }
    /// # Safety
    /// `from` and `to` are valid for all lines of `N` bytes.
    #[inline(always)]
    unsafe fn whole<const N: usize>(from: *const u8, to: *mut u8, l: StridedCopy) {
        // SAFETY: both sides are valid for lines of `N` bytes.
        unsafe {
            each(from, to, l, |x, y| y.cast::<[u8; N]>().write_unaligned(x.cast::<[u8; N]>().read_unaligned()));
        }
    }
    let n = l.bytes;
    // SAFETY: both sides are valid for all lines of `l`, and don't overlap unless they are the same.
    unsafe {
        match n {
            0 => {}
            _ if l.count > 1 && l.from == n as isize && l.to == n as isize => {
                copy(from, to, n * l.count);
            }
            1 => whole::<1>(from, to, l),
            2 => whole::<2>(from, to, l),
            3 => each(from, to, l, |x, y| copy_both_ends::<2>(x, y, n)),
            4 => whole::<4>(from, to, l),
            5..8 => each(from, to, l, |x, y| copy_both_ends::<4>(x, y, n)),
            8 => whole::<8>(from, to, l),
            9..16 => each(from, to, l, |x, y| copy_both_ends::<8>(x, y, n)),
            16 => whole::<16>(from, to, l),
            17..CHUNK => each(from, to, l, |x, y| copy_both_ends::<16>(x, y, n)),
            CHUNK => whole::<CHUNK>(from, to, l),
            33..65 => each(from, to, l, |x, y| copy_both_ends::<CHUNK>(x, y, n)),
            _ => each(from, to, l, |x, y| copy_chunks(x, y, n)),
        }
    }
}
