//! Copies, one by one and many of one length.

/// Bytes that one step of a longer copy moves.
const CHUNK: usize = 32;

/// Both ends of so many bytes, which overlap unless there are twice as many.
///
/// # Safety
/// Both sides are good for `bytes` bytes, which are `N` at least and no more than twice that.
#[inline(always)]
unsafe fn copy_both_ends<const N: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for at least `N` bytes.
    unsafe {
        let (first, last) = (from.cast::<[u8; N]>(), from.add(bytes - N).cast::<[u8; N]>());
        let (first, last) = (first.read_unaligned(), last.read_unaligned());
        to.cast::<[u8; N]>().write_unaligned(first);
        to.add(bytes - N).cast::<[u8; N]>().write_unaligned(last);
    }
}

/// At least a chunk; the last one overlaps the one before.
///
/// Long copies too: a call of the system's is no quicker at any length.
///
/// # Safety
/// Both sides are good for `bytes` bytes, and don't overlap unless they are the same.
#[inline(always)]
unsafe fn copy_chunks(from: *const u8, to: *mut u8, bytes: usize) {
    #[inline(always)]
    unsafe fn step<const N: usize>(from: *const u8, to: *mut u8, i: usize) {
        // SAFETY: the caller vouches for so many chunks at this place.
        unsafe {
            let x: [[u8; CHUNK]; N] = from.add(i).cast::<[[u8; CHUNK]; N]>().read_unaligned();
            to.add(i).cast::<[[u8; CHUNK]; N]>().write_unaligned(x);
        }
    }
    // SAFETY: the caller's promise.
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

/// A copy, without a call.
///
/// # Safety
/// Both sides are good for `n` elements, and don't overlap unless they are the same.
#[inline(always)]
pub(super) unsafe fn copy<T: Copy>(from: *const T, to: *mut T, n: usize) {
    let bytes = n * size_of::<T>();
    let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
    // SAFETY: the caller's promise.
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

/// Lines of one length: how many bytes, how many lines, and how many bytes they are apart in operand and result.
#[derive(Clone, Copy, Debug)]
pub(super) struct StridedCopy {
    pub(super) bytes: usize,
    pub(super) count: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

/// Copies lines of one length. What that length asks for is decided once for all of them.
///
/// # Safety
/// Both sides are good for the lines, and don't overlap unless they are the same.
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
    #[inline(always)]
    unsafe fn whole<const N: usize>(from: *const u8, to: *mut u8, l: StridedCopy) {
        // SAFETY: the caller vouches for lines of `N` bytes.
        unsafe {
            each(from, to, l, |x, y| y.cast::<[u8; N]>().write_unaligned(x.cast::<[u8; N]>().read_unaligned()));
        }
    }
    let n = l.bytes;
    // SAFETY: the caller's promise.
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
