//! Backend handles (§11): the CPU, with memory from the system or from the caller's memory functions, and optionally with a
//! caller's device that starts the segments of a run.

use crate::device::Device;
use crate::error::{Error, Result};
use compiler::{ALIGN, Backend as _, DeviceBuffer, Executable};
use cpu::{Cpu, HostBuffer};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Memory functions of the caller (§11). The last argument of each is the caller's `ctx`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryTable {
    /// Allocates `bytes` bytes at the given alignment, or returns null.
    pub alloc: Option<unsafe extern "C" fn(bytes: usize, alignment: usize, ctx: *mut c_void) -> *mut c_void>,
    /// Frees memory.
    pub free: Option<unsafe extern "C" fn(ptr: *mut c_void, ctx: *mut c_void)>,
    /// Copies from the host.
    pub memcpy_h2d: Option<unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, bytes: usize, ctx: *mut c_void)>,
    /// Copies to the host.
    pub memcpy_d2h: Option<unsafe extern "C" fn(dst: *mut c_void, src: *const c_void, bytes: usize, ctx: *mut c_void)>,
    /// Fills with zeros.
    pub memset_zero: Option<unsafe extern "C" fn(dst: *mut c_void, bytes: usize, ctx: *mut c_void)>,
}

/// A table of memory functions with its context.
struct CallerMemory {
    table: MemoryTable,
    ctx: *mut c_void,
}

// SAFETY: `Backend::with_memory` requires functions that may be called from any thread.
unsafe impl Send for CallerMemory {}
// SAFETY: as above.
unsafe impl Sync for CallerMemory {}

/// A block that was allocated by a table and is freed when it is dropped.
struct CallerBlock {
    memory: Arc<CallerMemory>,
    ptr: NonNull<u8>,
}

// SAFETY: the block is plain memory, used under the rules of `HostBuffer`; see `Memory` for the functions.
unsafe impl Send for CallerBlock {}
// SAFETY: as above.
unsafe impl Sync for CallerBlock {}

impl Drop for CallerBlock {
    fn drop(&mut self) {
        if let Some(free) = self.memory.table.free {
            // SAFETY: the pointer came from this table's `alloc` and is given back once.
            unsafe { free(self.ptr.as_ptr().cast(), self.memory.ctx) }
        }
    }
}

/// Where programs run. Cloning shares threads, kernels and memory functions.
#[derive(Clone)]
pub struct Backend {
    cpu: Arc<Cpu>,
    threads: usize,
    memory: Option<Arc<CallerMemory>>,
    device: Option<Arc<dyn Device>>,
}

impl Backend {
    /// Returns the CPU with the given number of threads. Results don't depend on the number.
    pub fn cpu(threads: usize) -> Backend {
        let threads = threads.max(1);
        Backend { cpu: Arc::new(Cpu::new(threads)), threads, memory: None, device: None }
    }

    /// Returns the backend of the per-op functions, which uses every core of the machine.
    pub fn global() -> &'static Backend {
        static SHARED: OnceLock<Backend> = OnceLock::new();
        SHARED.get_or_init(|| Backend::cpu(std::thread::available_parallelism().map_or(1, |n| n.get())))
    }

    /// Returns the same CPU backend with memory for values from the caller's functions.
    ///
    /// # Safety
    /// `alloc` gives null or memory aligned as asked that nothing else uses until `free` gets it, all functions do what
    /// their names say, and they may be called from any thread while this backend or anything made by it lives. Memory
    /// is read and written directly by the processor.
    pub unsafe fn with_memory(&self, table: MemoryTable, ctx: *mut c_void) -> Result<Backend> {
        let complete = table.alloc.is_some()
            && table.free.is_some()
            && table.memcpy_h2d.is_some()
            && table.memcpy_d2h.is_some()
            && table.memset_zero.is_some();
        if !complete {
            return Err(Error::invalid_arg("a memory table needs alloc, free, memcpy_h2d, memcpy_d2h and memset_zero"));
        }
        Ok(Backend { memory: Some(Arc::new(CallerMemory { table, ctx })), ..self.clone() })
    }

    /// Returns the same backend with a device that starts the segments of every run.
    pub fn with_device(&self, device: Arc<dyn Device>) -> Backend {
        Backend { device: Some(device), ..self.clone() }
    }

    pub(crate) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// Loads a program that runs in the arenas of its bindings. If `general` is true, the code also works for other sizes.
    pub(crate) fn load_in_arenas(&self, program: compiler::Program, general: bool) -> Result<Arc<dyn Executable>> {
        Ok(self.cpu.load_without_arena(program, general)?)
    }

    /// Whether memory comes from the caller's functions. If so, every copy uses them.
    pub(crate) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns the number of threads that a run uses.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the number of kernels in the cache.
    pub fn kernels(&self) -> usize {
        self.cpu.kernels()
    }

    /// Returns a description of the backend for people to read.
    pub fn name(&self) -> String {
        self.cpu.name()
    }

    /// Allocates a zeroed arena.
    pub(crate) fn arena(&self, bytes: usize) -> Result<HostBuffer> {
        let Some(memory) = &self.memory else {
            return Ok(HostBuffer::new(bytes)?);
        };
        let size = bytes.next_multiple_of(ALIGN).max(ALIGN);
        let (Some(alloc), Some(zero)) = (memory.table.alloc, memory.table.memset_zero) else {
            return Err(Error::Unknown("an incomplete memory table".into()));
        };
        // SAFETY: `Backend::with_memory` requires functions that do what their names say.
        let ptr = unsafe { alloc(size, ALIGN, memory.ctx) };
        let ptr = NonNull::new(ptr.cast::<u8>()).ok_or(Error::OutOfMemory { bytes: size })?;
        let block = Arc::new(CallerBlock { memory: memory.clone(), ptr });
        if ptr.as_ptr().align_offset(ALIGN) != 0 {
            return Err(Error::Backend(format!("alloc gave memory that isn't aligned to {ALIGN} bytes")));
        }
        // SAFETY: `alloc` gave new memory of `size` bytes, as `Backend::with_memory` requires.
        unsafe {
            zero(ptr.as_ptr().cast(), size, memory.ctx);
            Ok(HostBuffer::from_raw(ptr, bytes, block))
        }
    }

    /// Copies from the host to a value's memory.
    pub(crate) fn write(&self, to: &dyn DeviceBuffer, offset: usize, from: &[u8]) -> Result<()> {
        match (&self.memory, to.as_any().downcast_ref::<HostBuffer>()) {
            (Some(m), Some(host)) if offset + from.len() <= to.bytes() => {
                if let Some(copy) = m.table.memcpy_h2d {
                    let dst = host.as_ptr().wrapping_add(offset);
                    // SAFETY: the range is inside of the buffer, and `Backend::with_memory` requires functions that
                    // copy between such addresses.
                    unsafe { copy(dst.cast(), from.as_ptr().cast(), from.len(), m.ctx) };
                }
                Ok(())
            }
            _ => Ok(to.write(offset, from)?),
        }
    }

    /// Copies from a value's memory to the host.
    pub(crate) fn read(&self, from: &dyn DeviceBuffer, offset: usize, to: &mut [u8]) -> Result<()> {
        match (&self.memory, from.as_any().downcast_ref::<HostBuffer>()) {
            (Some(m), Some(host)) if offset + to.len() <= from.bytes() => {
                if let Some(copy) = m.table.memcpy_d2h {
                    let src = host.as_ptr().wrapping_add(offset);
                    // SAFETY: the range is inside of the buffer, and `Backend::with_memory` requires functions that
                    // copy between such addresses.
                    unsafe { copy(to.as_mut_ptr().cast(), src.cast(), to.len(), m.ctx) };
                }
                Ok(())
            }
            _ => Ok(from.read(offset, to)?),
        }
    }
}

impl compiler::Backend for Backend {
    fn name(&self) -> String {
        self.cpu.name()
    }

    fn target(&self) -> &compiler::Target {
        self.cpu.target()
    }

    fn supports_composite(&self, composite: &ir::ops::Composite, args: &[ir::Type]) -> bool {
        self.cpu.supports_composite(composite, args)
    }

    fn alloc(&self, bytes: usize) -> compiler::Result<Arc<dyn DeviceBuffer>> {
        match self.arena(bytes) {
            Ok(b) => Ok(Arc::new(b)),
            Err(Error::OutOfMemory { bytes }) => Err(compiler::Error::OutOfMemory { bytes, hint: "" }),
            Err(e) => Err(compiler::Error::Backend(e.to_string())),
        }
    }

    fn load(&self, program: compiler::Program) -> compiler::Result<Arc<dyn Executable>> {
        self.cpu.load(program)
    }
}
