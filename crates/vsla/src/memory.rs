//! Memory for bindings (§11): from the system, from a backend's memory functions, or a block of the caller's.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::shape::MAX_ADDRESSABLE_BYTES;
use compiler::{ALIGN, DeviceBuffer};
use cpu::HostBuffer;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A block of memory for one set of bindings. It contains all memory that their runs use.
pub struct Memory(pub(crate) Arc<HostBuffer>);

impl Memory {
    /// Allocates zeroed memory on a backend.
    pub fn new(bytes: usize, backend: &Backend) -> Result<Memory> {
        Ok(Memory(Arc::new(backend.arena(bytes)?)))
    }

    /// Wraps memory of the caller and fills it with zeros. Its address must be a multiple of 64.
    ///
    /// # Safety
    /// `bytes` bytes from `ptr` on may be read and written by the processor until `owner` is dropped, and nothing but what
    /// is made from this block uses them until then.
    pub unsafe fn from_raw(ptr: *mut u8, bytes: usize, owner: Arc<dyn Any + Send + Sync>) -> Result<Memory> {
        let Some(at) = NonNull::new(ptr).filter(|p| p.align_offset(ALIGN) == 0) else {
            return Err(Error::invalid_arg(format!("the memory at {ptr:p} must be aligned to {ALIGN} bytes")));
        };
        // SAFETY: `ptr` is valid for `bytes` bytes until `owner` is dropped, and nothing but what is made from this
        // block uses them; the zeros initialise every byte.
        unsafe {
            ptr.write_bytes(0, bytes);
            Ok(Memory(Arc::new(HostBuffer::from_raw(at, bytes, owner))))
        }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// A flag that makes uses of a block exclusive. The values in the block overlap, because its programs run one after another
/// (§10.2).
#[derive(Clone, Default)]
pub(crate) struct ExclusiveUse(Arc<AtomicBool>);

impl ExclusiveUse {
    pub(crate) fn is_same(&self, other: &ExclusiveUse) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Blocks that are in use until this guard is dropped.
pub(crate) struct InUseGuard<'a>(&'a [ExclusiveUse]);

/// Begins an exclusive use of blocks, or returns an error if another use has not ended. Allocates nothing.
pub(crate) fn begin_use(blocks: &[ExclusiveUse]) -> Result<InUseGuard<'_>> {
    for (i, block) in blocks.iter().enumerate() {
        if block.0.swap(true, Ordering::Acquire) {
            drop(InUseGuard(&blocks[..i]));
            return Err(Error::invalid_arg(
                "a shared arena is in use by bindings of another of its programs; run, read and write them one after the other",
            ));
        }
    }
    Ok(InUseGuard(blocks))
}

impl Drop for InUseGuard<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|block| block.0.store(false, Ordering::Release));
    }
}

/// Rounds a size up to the alignment of arenas.
pub(crate) fn align_size(bytes: usize) -> Result<usize> {
    match bytes.checked_next_multiple_of(ALIGN) {
        Some(n) if n <= MAX_ADDRESSABLE_BYTES => Ok(n),
        _ => Err(Error::PlanningFailed("the arena would be too large; use smaller shapes".into())),
    }
}

/// Returns the size of a block that contains these arenas one after another.
pub(crate) fn total(arenas: &[usize]) -> Result<usize> {
    arenas.iter().try_fold(0usize, |sum, n| align_size(sum.saturating_add(align_size(*n)?)))
}

/// Returns arenas of these sizes, either allocated on the backend or taken from one block.
pub(crate) fn arenas<const N: usize>(
    sizes: [usize; N],
    backend: &Backend,
    block: Option<Memory>,
) -> Result<[HostBuffer; N]> {
    let mut made = Vec::with_capacity(N);
    match block {
        None => {
            for n in sizes {
                made.push(backend.arena(n)?);
            }
        }
        Some(block) => {
            let needed = total(&sizes)?;
            if block.bytes() < needed {
                return Err(Error::invalid_arg(format!(
                    "{} bytes of memory were given, but {needed} are needed",
                    block.bytes()
                )));
            }
            let mut at = 0;
            for n in sizes {
                // SAFETY: arenas lie one behind the other inside of the block, which nothing else uses while they exist.
                made.push(unsafe { HostBuffer::slice(&block.0, at, n)? });
                at += align_size(n)?;
            }
        }
    }
    made.try_into().map_err(|_| Error::Unknown("as many arenas as sizes".into()))
}
