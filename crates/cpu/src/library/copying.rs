//! Short copies.

/// A short copy, without a call.
///
/// # Safety
/// Both sides are good for `n` elements, and don't overlap.
#[inline(always)]
pub(super) unsafe fn copy<T: Copy>(from: *const T, to: *mut T, n: usize) {
    /// Both ends of so many bytes, which overlap unless there are twice as many.
    #[inline(always)]
    unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller vouches for at least `N` bytes.
        unsafe {
            let (first, last) = (from.cast::<[u8; N]>(), from.add(bytes - N).cast::<[u8; N]>());
            let (first, last) = (first.read_unaligned(), last.read_unaligned());
            to.cast::<[u8; N]>().write_unaligned(first);
            to.add(bytes - N).cast::<[u8; N]>().write_unaligned(last);
        }
    }
    const CHUNK: usize = 32;
    type Chunk = [u8; CHUNK];
    let bytes = n * size_of::<T>();
    let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
    // SAFETY: the caller's promise; the last chunk overlaps the one before.
    unsafe {
        match bytes {
            0 => {}
            1 => *to = *from,
            2..4 => ends::<2>(from, to, bytes),
            4..8 => ends::<4>(from, to, bytes),
            8..16 => ends::<8>(from, to, bytes),
            16..CHUNK => ends::<16>(from, to, bytes),
            _ => {
                let mut i = 0;
                while i + CHUNK < bytes {
                    to.add(i).cast::<Chunk>().write_unaligned(from.add(i).cast::<Chunk>().read_unaligned());
                    i += CHUNK;
                }
                let i = bytes - CHUNK;
                to.add(i).cast::<Chunk>().write_unaligned(from.add(i).cast::<Chunk>().read_unaligned());
            }
        }
    }
}
