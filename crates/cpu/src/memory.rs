//! Host memory that is aligned for vector instructions.

use compiler::{ALIGN, DeviceBuffer, Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A zeroed block of host memory, aligned to 64 bytes; or a slice of memory that something else owns.
///
/// Reads, writes and runs mark the buffer while they use it. A run that would write it while something else uses it, or read it
/// while something writes it, fails with [`Error::InUse`], and so do reads and writes during a conflicting run. Reads and writes
/// wait for each other.
pub struct HostBuffer {
    ptr: NonNull<u8>,
    bytes: usize,
    /// The current users: [`READ`] and [`RUN_READS`] are counted per read and per run that reads it;
    /// [`WRITE`] and [`RUN_WRITES`] are flags.
    users: AtomicU64,
    /// The start of an owned block; `ptr` is the first aligned address in it.
    block: *mut u8,
    /// Keeps borrowed memory alive; `None` if this buffer owns its block.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

const READ: u64 = 1;
const RUN_READS: u64 = 1 << 31;
const WRITE: u64 = 1 << 62;
const RUN_WRITES: u64 = 1 << 63;
/// The bits of runs that use a buffer. A run may take long, so nothing waits for it.
const RUNS: u64 = RUN_WRITES | (WRITE - RUN_READS);

// SAFETY: the block is owned by this buffer, or valid as `from_raw` and `part` require.
unsafe impl Send for HostBuffer {}
// SAFETY: as above; what uses the memory through a shared buffer holds `users`.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates zeroed memory.
    pub fn new(bytes: usize) -> Result<HostBuffer> {
        let fail = || Error::OutOfMemory { bytes, hint: "; use smaller shapes or a smaller batch" };
        let layout = layout(bytes).ok_or_else(fail)?;
        // SAFETY: the layout's size is not zero.
        let block = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(block.wrapping_add(block.align_offset(ALIGN))).filter(|_| !block.is_null());
        let ptr = ptr.ok_or_else(fail)?;
        large_pages(ptr.as_ptr(), bytes);
        Ok(HostBuffer { ptr, bytes, users: AtomicU64::new(0), block, owner: None })
    }

    /// Returns a slice of a block, which it keeps alive. Several values can share one arena this way.
    ///
    /// # Safety
    /// A buffer doesn't know who uses the block, or parts that overlap it: whoever has them writes none of its bytes while it is used, and
    /// uses none while it is written.
    pub unsafe fn slice(of: &Arc<HostBuffer>, offset: usize, bytes: usize) -> Result<HostBuffer> {
        check(offset, bytes, of.bytes)?;
        // SAFETY: the range was checked to lie inside the block.
        let ptr = unsafe { of.ptr.add(offset) };
        let owner: Arc<dyn Any + Send + Sync> = of.clone();
        Ok(HostBuffer { ptr, bytes, users: AtomicU64::new(0), block: std::ptr::null_mut(), owner: Some(owner) })
    }

    /// Wraps foreign memory, which lives as long as `owner`.
    ///
    /// # Safety
    /// `ptr` is valid for reading and writing `bytes` bytes, initialised, until `owner` is dropped, and nothing but buffers
    /// made from it uses that memory. It is aligned to the elements that it holds, and to 64 bytes if it is an arena.
    pub unsafe fn from_raw(ptr: NonNull<u8>, bytes: usize, owner: Arc<dyn Any + Send + Sync>) -> HostBuffer {
        HostBuffer { ptr, bytes, users: AtomicU64::new(0), block: std::ptr::null_mut(), owner: Some(owner) }
    }

    /// Points to other foreign memory, and frees the memory that the buffer owned.
    ///
    /// # Safety
    /// As for [`HostBuffer::from_raw`], for as long as this buffer points there and is used.
    pub unsafe fn repoint(&mut self, ptr: NonNull<u8>, bytes: usize) {
        if self.owner.is_some() {
            (self.ptr, self.bytes) = (ptr, bytes);
        } else {
            // SAFETY: `ptr` is valid for `bytes` initialised bytes for as long as this buffer points there, and nothing
            // but buffers made from it uses them.
            *self = unsafe { HostBuffer::from_raw(ptr, bytes, Arc::new(())) };
        }
    }

    /// The address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Marks the start of a run that reads the buffer; until [`HostBuffer::run_read_ends`] nothing writes it.
    /// Returns whether that is possible.
    #[inline]
    pub(crate) fn run_read_begins(&self) -> bool {
        let before = self.users.fetch_add(RUN_READS, Ordering::Acquire);
        if before & (WRITE | RUN_WRITES) == 0 {
            return true;
        }
        self.users.fetch_sub(RUN_READS, Ordering::Relaxed);
        false
    }

    #[inline]
    pub(crate) fn run_read_ends(&self) {
        self.users.fetch_sub(RUN_READS, Ordering::Release);
    }

    /// Marks the start of a run that writes the buffer; until [`HostBuffer::run_write_ends`] nothing else uses it. Returns
    /// whether that is possible.
    #[inline]
    pub(crate) fn run_write_begins(&self) -> bool {
        self.users.compare_exchange(0, RUN_WRITES, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn run_write_ends(&self) {
        // Subtract rather than store zero: rejected readers may not have removed their count yet.
        self.users.fetch_sub(RUN_WRITES, Ordering::Release);
    }

    /// Starts a write after other reads and writes; fails while a run uses the buffer.
    fn write_begins(&self) -> Result<()> {
        while let Err(users) = self.users.compare_exchange_weak(0, WRITE, Ordering::Acquire, Ordering::Relaxed) {
            if users & RUNS != 0 {
                return Err(Error::InUse("a buffer is written while a run uses it".into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Starts a read after writes; fails while a run writes the buffer.
    fn read_begins(&self) -> Result<()> {
        loop {
            let before = self.users.fetch_add(READ, Ordering::Acquire);
            if before & (WRITE | RUN_WRITES) == 0 {
                return Ok(());
            }
            self.users.fetch_sub(READ, Ordering::Relaxed);
            if before & RUN_WRITES != 0 {
                return Err(Error::InUse("a buffer is read while a run writes it".into()));
            }
            std::thread::yield_now();
        }
    }
}

/// Returns the layout of `bytes` bytes plus space to align the address. If the allocator were asked for the alignment, it would
/// write the zeros itself and touch every page, whereas fresh pages of the system are already zero.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(ALIGN)?, 16).ok()
}

/// Requests huge pages for a large block, which saves TLB misses. This is a hint; a failure is ignored.
fn large_pages(ptr: *mut u8, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const PAGE: usize = 2 << 20;
        let start = ptr.align_offset(PAGE);
        if !ptr.is_null() && bytes >= start.saturating_add(PAGE) {
            let len = (bytes - start) / PAGE * PAGE;
            // SAFETY: the range lies inside the block, and the advice does not change its contents.
            unsafe { libc::madvise(ptr.wrapping_add(start).cast(), len, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (ptr, bytes);
}

/// Returns freed memory that the allocator still holds to the system, where the allocator supports it. Compiling a large program
/// frees megabytes, which would otherwise stay allocated for the life of the process.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: only pages that nothing uses are given back.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Limits how much freed memory the allocator keeps: large blocks, and the free ends of its heaps, are returned to the system at
/// once. [`trim_heap`] does not return the free ends of the heaps of other threads than the first; without this call up to 64 MB
/// of each would stay.
pub fn limit_allocator_cache() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: sets numbers that the allocator reads when it is next called.
    unsafe {
        const LARGE: libc::c_int = 512 << 10;
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        let layout = layout(self.bytes).expect("it was allocated with this layout");
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.block, layout) }
    }
}

impl DeviceBuffer for HostBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        check(offset, from.len(), self.bytes)?;
        self.write_begins()?;
        // SAFETY: the range was checked, and nothing else uses the buffer; there is no slice of its memory, so `from` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.ptr.as_ptr().add(offset), from.len()) };
        self.users.fetch_sub(WRITE, Ordering::Release);
        Ok(())
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        check(offset, to.len(), self.bytes)?;
        self.read_begins()?;
        // SAFETY: the range was checked, and nothing writes the buffer meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr().add(offset), to.as_mut_ptr(), to.len()) };
        self.users.fetch_sub(READ, Ordering::Release);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn check(offset: usize, len: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(Error::Bindings(format!("bytes {offset}..+{len} are out of range for a buffer of {bytes} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_written_inside_their_bounds() {
        let large = if cfg!(miri) { 1 << 14 } else { 5 << 20 };
        for bytes in [0, 1, 63, 64, 65, 4096, large] {
            let b = HostBuffer::new(bytes).unwrap();
            assert!((b.as_ptr() as usize).is_multiple_of(ALIGN));
            let mut all = vec![1; bytes];
            b.read(0, &mut all).unwrap();
            assert!(all.iter().all(|x| *x == 0));
            assert!(b.write(bytes, &[1]).is_err() && b.read(usize::MAX, &mut [0]).is_err());
            if bytes > 0 {
                b.write(bytes - 1, &[7]).unwrap();
                let mut last = [0];
                b.read(bytes - 1, &mut last).unwrap();
                assert_eq!(last, [7]);
            }
        }
    }

    #[test]
    fn parts_keep_their_block_and_other_memory_its_owner() {
        let whole = Arc::new(HostBuffer::new(256).unwrap());
        // SAFETY: nothing else uses the block.
        let part = unsafe { HostBuffer::slice(&whole, 64, 128).unwrap() };
        // SAFETY: as above.
        assert!(unsafe { HostBuffer::slice(&whole, 192, 65) }.is_err());
        drop(whole);
        part.write(127, &[3]).unwrap();

        #[repr(align(64))]
        struct Block([u8; 64]);
        let mut owned = Box::new(Block([5; 64]));
        let ptr = NonNull::new(owned.0.as_mut_ptr()).unwrap();
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(std::sync::Mutex::new(Vec::<u8>::new()));
        // SAFETY: the box lives until the end of the test, and nothing else touches it meanwhile.
        let foreign = unsafe { HostBuffer::from_raw(ptr, 64, owner.clone()) };
        assert_eq!(Arc::strong_count(&owner), 2);
        let mut got = [0; 64];
        foreign.read(0, &mut got).unwrap();
        assert_eq!(got, [5; 64]);
        drop(foreign);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
