//! Executable memory. Kernels share chunks of pages; a chunk is unmapped when its last kernel is dropped.
//!
//! Code is written through one mapping and run through another mapping of the same memory file, so no page is ever writable
//! and executable at once and a kernel in use is never modified.

use std::io;
use std::sync::{Arc, Mutex};

const CHUNK: usize = 1 << 20;

/// A block of memory mapped twice: writable, and executable.
struct Chunk {
    write: *mut u8,
    run: *mut u8,
    len: usize,
}

// SAFETY: the pointers are plain addresses; disjoint pieces are handed out under a lock.
unsafe impl Send for Chunk {}
// SAFETY: as above; finished code is never written again.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(len: usize) -> io::Result<Chunk> {
        // SAFETY: plain system calls; every result is checked.
        unsafe {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            let fd = libc::memfd_create(c"tensorloom-code".as_ptr(), libc::MFD_CLOEXEC);
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            let fd = -1;
            if fd < 0 || libc::ftruncate(fd, len as libc::off_t) != 0 {
                return Err(io::Error::last_os_error());
            }
            let map = |prot| libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0);
            let write = map(libc::PROT_READ | libc::PROT_WRITE);
            let run = map(libc::PROT_READ | libc::PROT_EXEC);
            let error = io::Error::last_os_error();
            libc::close(fd);
            if write == libc::MAP_FAILED || run == libc::MAP_FAILED {
                return Err(error);
            }
            Ok(Chunk { write: write.cast(), run: run.cast(), len })
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mappings were made by `new` with this length, and no code in them is in use any more.
        unsafe {
            libc::munmap(self.write.cast(), self.len);
            libc::munmap(self.run.cast(), self.len);
        }
    }
}

/// Executable code.
pub(crate) struct Code {
    start: *const u8,
    _chunk: Arc<Chunk>,
}

// SAFETY: the code is immutable.
unsafe impl Send for Code {}
// SAFETY: the code is immutable.
unsafe impl Sync for Code {}

/// The chunk that is being filled and the number of its used bytes.
static OPEN: Mutex<Option<(Arc<Chunk>, usize)>> = Mutex::new(None);

impl Code {
    /// Copies code into executable memory.
    pub(crate) fn new(bytes: &[u8]) -> io::Result<Code> {
        let size = bytes.len().next_multiple_of(64);
        let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
        let (chunk, used) = match open.take() {
            Some((c, used)) if used + size <= c.len => (c, used),
            _ => (Arc::new(Chunk::new(size.next_multiple_of(CHUNK))?), 0),
        };
        // SAFETY: `used..used + size` lies in the mapping and was given to no other code.
        let start = unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), chunk.write.add(used), bytes.len());
            chunk.run.add(used)
        };
        *open = Some((chunk.clone(), used + size));
        Ok(Code { start, _chunk: chunk })
    }

    pub(crate) fn start(&self) -> *const u8 {
        self.start
    }
}
