//! Memory-mapped files: a program reads the pages of the system's page cache, so nothing is copied or stored twice.
//!
//! If another process truncates a mapped file, reading the missing part raises SIGBUS. The handler in this file maps zeros there and
//! records it, so that [`MmapFile::is_intact`] reports it after a run. Other SIGBUS signals go to the previous handler.

use crate::memory::HostBuffer;
use std::fs::File;
use std::sync::Arc;

/// A private mapping of a file. Writes stay in this process.
pub struct MmapFile {
    #[cfg(all(target_os = "linux", not(miri)))]
    place: linux::Place,
}

impl MmapFile {
    /// Maps the first `bytes` bytes of a file; `None` where that is not possible.
    pub fn new(file: &File, bytes: usize) -> Option<Arc<MmapFile>> {
        #[cfg(all(target_os = "linux", not(miri)))]
        return Some(Arc::new(MmapFile { place: linux::Place::new(file, bytes)? }));
        #[cfg(not(all(target_os = "linux", not(miri))))]
        {
            let _ = (file, bytes);
            None
        }
    }

    /// Returns a slice of the bytes as a buffer, which keeps the mapping alive.
    pub fn part(self: &Arc<MmapFile>, offset: usize, bytes: usize) -> Option<HostBuffer> {
        #[cfg(all(target_os = "linux", not(miri)))]
        return self.place.part(offset, bytes, self.clone());
        #[cfg(not(all(target_os = "linux", not(miri))))]
        {
            let _ = (offset, bytes);
            None
        }
    }

    /// Returns whether everything read so far was present in the file.
    pub fn is_intact(&self) -> bool {
        #[cfg(all(target_os = "linux", not(miri)))]
        return self.place.is_whole();
        #[cfg(not(all(target_os = "linux", not(miri))))]
        true
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use crate::memory::HostBuffer;
    use std::any::Any;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
    use std::sync::{Arc, Once};

    /// The maximum number of files that are mapped at a time; further files are read into memory.
    const MOST: usize = 256;

    /// The data that the signal handler reads; it must not take locks.
    struct Slot {
        taken: AtomicBool,
        start: AtomicUsize,
        end: AtomicUsize,
        cut: AtomicBool,
    }

    static SLOTS: [Slot; MOST] = [const {
        Slot {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            cut: AtomicBool::new(false),
        }
    }; MOST];

    /// The previous action for SIGBUS.
    static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

    pub(super) struct Place {
        ptr: NonNull<u8>,
        bytes: usize,
        slot: &'static Slot,
    }

    // SAFETY: the memory is read; who writes a buffer made of it has sole use of it, by the contract of buffers.
    unsafe impl Send for Place {}
    // SAFETY: as above.
    unsafe impl Sync for Place {}

    impl Place {
        pub(super) fn new(file: &File, bytes: usize) -> Option<Place> {
            if bytes == 0 || !install() {
                return None;
            }
            let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::AcqRel);
            let slot = SLOTS.iter().find(free)?;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping of the system's choice; the file may be closed afterwards.
            let ptr =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
            let Some(ptr) = NonNull::new(ptr.cast::<u8>()).filter(|_| ptr != libc::MAP_FAILED) else {
                slot.taken.store(false, Ordering::Release);
                return None;
            };
            slot.cut.store(false, Ordering::Relaxed);
            slot.end.store(ptr.as_ptr() as usize + bytes, Ordering::Relaxed);
            slot.start.store(ptr.as_ptr() as usize, Ordering::Release);
            Some(Place { ptr, bytes, slot })
        }

        pub(super) fn part(
            &self,
            offset: usize,
            bytes: usize,
            owner: Arc<dyn Any + Send + Sync>,
        ) -> Option<HostBuffer> {
            offset.checked_add(bytes).filter(|end| *end <= self.bytes)?;
            // SAFETY: the range lies inside the mapping, which the owner keeps; pages are private, so they may be written.
            Some(unsafe { HostBuffer::from_raw(self.ptr.add(offset), bytes, owner) })
        }

        pub(super) fn is_whole(&self) -> bool {
            !self.slot.cut.load(Ordering::Acquire)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            self.slot.start.store(0, Ordering::Release);
            self.slot.end.store(0, Ordering::Release);
            // SAFETY: mapped in `new`, and all buffers that point there have been dropped, since they own this.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.bytes) };
            self.slot.taken.store(false, Ordering::Release);
        }
    }

    /// Installs the handler when the first file is mapped.
    fn install() -> bool {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: plain data of the system's, zero where nothing is said; the handler takes three arguments, as SA_SIGINFO says.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = gone as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&mut new.sa_mask);
                // The previous action must be known before the handler can run.
                if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) == 0 {
                    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
                    if libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()) != 0 {
                        BEFORE.store(std::ptr::null_mut(), Ordering::Release);
                    }
                }
            }
        });
        !BEFORE.load(Ordering::Acquire).is_null()
    }

    /// Maps a zero page where a file was truncated. Only system calls and atomics are allowed here.
    extern "C" fn gone(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system gives the handler what it describes; the page that is replaced belongs to a mapping of ours, and whoever
        // reads it stands still in this handler.
        unsafe {
            let address = (*info).si_addr() as usize;
            let errno = *libc::__errno_location();
            let page = 4096.max(libc::sysconf(libc::_SC_PAGESIZE) as usize);
            let start = address / page * page;
            for slot in &SLOTS {
                let from = slot.start.load(Ordering::Acquire);
                if from == 0 || address < from || address >= slot.end.load(Ordering::Acquire) {
                    continue;
                }
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let zeros =
                    libc::mmap(start as *mut libc::c_void, page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                if zeros != libc::MAP_FAILED {
                    slot.cut.store(true, Ordering::Release);
                    *libc::__errno_location() = errno;
                    return;
                }
            }
            // Not a mapped file: restore the previous action, which receives the signal when the instruction runs again.
            libc::sigaction(libc::SIGBUS, BEFORE.load(Ordering::Acquire), std::ptr::null_mut());
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use compiler::DeviceBuffer;

    #[test]
    fn a_file_is_memory_until_it_is_cut_off() {
        let path = std::env::temp_dir().join(format!("tensorloom-mapped-{}", std::process::id()));
        let bytes: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let file = File::open(&path).expect("there");
        let mapped = MmapFile::new(&file, bytes.len()).expect("mapped");
        drop(file);
        let part = mapped.part(4, 30_000).expect("inside");
        assert!(mapped.part(4, 40_000).is_none() && mapped.part(usize::MAX, 2).is_none());
        let mut got = vec![0; 30_000];
        part.read(0, &mut got).expect("read");
        assert!(got == bytes[4..30_004] && mapped.is_intact());
        // Writes stay in this process.
        part.write(1, &[9, 9]).expect("written");
        assert_eq!(std::fs::read(&path).expect("there"), bytes);
        // The rest of the last page is zero, and the pages after it are replaced.
        std::fs::OpenOptions::new().write(true).open(&path).expect("there").set_len(9000).expect("cut");
        part.read(0, &mut got).expect("read");
        assert!(!mapped.is_intact() && got[20_000..].iter().all(|b| *b == 0) && got[1..3] == [9, 9]);
        // Other mappings are unchanged.
        let other = std::env::temp_dir().join(format!("tensorloom-mapped-other-{}", std::process::id()));
        std::fs::write(&other, &bytes).expect("written");
        let second = MmapFile::new(&File::open(&other).expect("there"), bytes.len()).expect("mapped");
        second.part(0, 100).expect("inside").read(0, &mut got[..100]).expect("read");
        assert!(second.is_intact() && got[..100] == bytes[..100]);
        drop((part, mapped));
        let _ = (std::fs::remove_file(path), std::fs::remove_file(other));
    }
}
