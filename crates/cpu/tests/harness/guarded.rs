//! Memory between inaccessible pages.

use std::ptr::NonNull;
use std::sync::Arc;
use tensorloom_cpu::HostBuffer;

struct Guarded {
    map: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the memory is owned, and used through buffers alone.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped in `guarded` with this size.
        unsafe { libc::munmap(self.map, self.bytes) };
    }
}

/// The end of a buffer that is adjacent to an inaccessible page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first byte is the first of a page.
    Start,
    /// The last byte is the last of a page, up to the alignment.
    End,
}

/// Returns a buffer with such pages before and after it; each byte is `fill`.
pub fn guarded(bytes: usize, align: usize, fill: u8, side: Side) -> HostBuffer {
    // SAFETY: a private mapping of our own, the first and last page of which are taken away; the buffer keeps it alive.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let room = bytes.next_multiple_of(page);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let all = room + 2 * page;
        let map =
            libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(map, libc::MAP_FAILED, "no memory");
        let owner = Arc::new(Guarded { map, bytes: all });
        let first = map.cast::<u8>().add(page);
        if room > 0 {
            assert_eq!(libc::mprotect(first.cast(), room, prot), 0);
        }
        let at = match side {
            Side::Start => first,
            Side::End => first.add((room - bytes) / align * align),
        };
        std::ptr::write_bytes(at, fill, bytes);
        HostBuffer::from_raw(NonNull::new(at).unwrap(), bytes, owner)
    }
}
