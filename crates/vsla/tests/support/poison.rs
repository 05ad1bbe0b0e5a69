//! A backend whose fresh memory is full of NaN instead of zeros: results must not depend on what was there.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use tensorloom_vsla::{Backend, MemoryTable};

/// In front of each block: its size.
const FRONT: usize = 64;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes + FRONT, FRONT).unwrap()
}

unsafe extern "C" fn take(bytes: usize, _alignment: usize, _ctx: *mut c_void) -> *mut c_void {
    // SAFETY: the size isn't zero, and the front has room for it.
    unsafe {
        let at = alloc(layout(bytes));
        at.cast::<usize>().write(bytes);
        at.add(FRONT).cast()
    }
}

unsafe extern "C" fn give(at: *mut c_void, _ctx: *mut c_void) {
    // SAFETY: from `take`.
    unsafe {
        let at = at.cast::<u8>().sub(FRONT);
        dealloc(at, layout(at.cast::<usize>().read()));
    }
}

unsafe extern "C" fn copy(to: *mut c_void, from: *const c_void, bytes: usize, _ctx: *mut c_void) {
    // SAFETY: the library's ranges.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast(), bytes) }
}

unsafe extern "C" fn spoil(to: *mut c_void, bytes: usize, _ctx: *mut c_void) {
    // SAFETY: as above.
    unsafe { to.cast::<u8>().write_bytes(0xff, bytes) }
}

/// The backend with such memory.
pub(crate) fn poisoned(backend: &Backend) -> Backend {
    let table = MemoryTable {
        alloc: Some(take),
        free: Some(give),
        memcpy_h2d: Some(copy),
        memcpy_d2h: Some(copy),
        memset_zero: Some(spoil),
    };
    // SAFETY: functions of a table that may be called from any thread. They lie about zeros, which is what is tested.
    unsafe { backend.with_memory(table, std::ptr::null_mut()) }.unwrap()
}
