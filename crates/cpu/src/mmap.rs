//! Files as memory: a program reads the pages that the system holds of them anyway, so nothing is copied and nothing is there twice.
//!
//! Where another process cuts such a file off, reading what is gone raises a signal. The handler here puts zeros in its place and
//! notes it, so that it becomes an error of whoever asks [`Mapped::is_whole`] after a run. Other signals go where they went before.

use crate::memory::HostBuffer;
use std::fs::File;
use std::sync::Arc;

/// A file's bytes as memory. What is written there stays in this process.
pub struct MmapFile {
    #[cfg(all(target_os = "linux", not(miri)))]
    place: linux::Place,
}

impl MmapFile {
    /// The first bytes of a file, which has so many; none where that can't be.
    pub fn new(file: &File, bytes: usize) -> Option<Arc<MmapFile>> {
        #[cfg(all(target_os = "linux", not(miri)))]
        return Some(Arc::new(MmapFile { place: linux::Place::new(file, bytes)? }));
        #[cfg(not(all(target_os = "linux", not(miri))))]
        {
            let _ = (file, bytes);
            None
        }
    }

    /// Some of the bytes as a buffer, which keeps the rest alive.
    pub fn part(self: &Arc<MmapFile>, offset: usize, bytes: usize) -> Option<HostBuffer> {
        #[cfg(all(target_os = "linux", not(miri)))]
        return self.place.part(offset, bytes, self.clone());
        #[cfg(not(all(target_os = "linux", not(miri))))]
        {
            let _ = (offset, bytes);
            None
        }
    }

    /// Whether nothing was missing of what was read so far.
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

    /// Files that may be memory at once; further ones are read.
    const MOST: usize = 256;

    /// What the handler looks at: it may take no lock.
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

    /// What SIGBUS did before.
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

    /// The handler is there from the first file on.
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
                // What was there before must be known before the handler can run.
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

    /// Puts a page of zeros where a file has no more; nothing but system calls and atomics in here.
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
            // Not ours: what was there before gets it, when the instruction runs again.
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
        // What is written stays here.
        part.write(1, &[9, 9]).expect("written");
        assert_eq!(std::fs::read(&path).expect("there"), bytes);
        // The rest of the last page is zero, pages behind it are replaced.
        std::fs::OpenOptions::new().write(true).open(&path).expect("there").set_len(9000).expect("cut");
        part.read(0, &mut got).expect("read");
        assert!(!mapped.is_intact() && got[20_000..].iter().all(|b| *b == 0) && got[1..3] == [9, 9]);
        // Others are as they were.
        let other = std::env::temp_dir().join(format!("tensorloom-mapped-other-{}", std::process::id()));
        std::fs::write(&other, &bytes).expect("written");
        let second = MmapFile::new(&File::open(&other).expect("there"), bytes.len()).expect("mapped");
        second.part(0, 100).expect("inside").read(0, &mut got[..100]).expect("read");
        assert!(second.is_intact() && got[..100] == bytes[..100]);
        drop((part, mapped));
        let _ = (std::fs::remove_file(path), std::fs::remove_file(other));
    }
}
