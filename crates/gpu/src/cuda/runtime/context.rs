//! The context of a device: which threads may call the driver, and error handling after a fault.
//!
//! # Faults
//!
//! A kernel that traps or accesses invalid memory breaks its context: the driver returns the same error for every later
//! call. So such an error is stored, every later call returns it, and nothing in the context is accessed any more (its
//! memory is lost). [`Context::open`] then destroys the context and creates a new one; the process continues.

use super::dynlib;
use compiler::{Error, Result};
use cudarc::driver::sys as cu;
use cudarc::driver::sys::CUresult as Code;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A device and a context on it.
pub(crate) struct Context {
    pub(crate) ordinal: usize,
    pub(crate) name: String,
    /// Compute capability.
    pub(crate) capability: (i32, i32),
    pub(crate) memory: usize,
    device: cu::CUdevice,
    kind: ContextKind,
    raw: DriverHandle<cu::CUcontext>,
    lost: OnceLock<Error>,
    /// Set when a lost context was destroyed, so that a new one can be created.
    destroyed: AtomicBool,
}

/// The owner of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContextKind {
    /// The primary context of the device, which other libraries in the process also use.
    Primary,
    /// A private context: `TENSORLOOM_CUDA_CONTEXT=own`.
    Private,
}

/// A driver handle. The driver may be called from any thread.
#[derive(Clone, Copy)]
pub(crate) struct DriverHandle<T>(pub(crate) T);
// SAFETY: handles are names that the driver looks up; it locks what it must.
unsafe impl<T> Send for DriverHandle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for DriverHandle<T> {}

/// The open contexts by device: all users of a device share one, until it is lost.
static OPEN: Mutex<BTreeMap<usize, Weak<Context>>> = Mutex::new(BTreeMap::new());

impl Context {
    /// The context of a device: the open one, or a new one.
    pub(crate) fn open(ordinal: usize) -> Result<Arc<Context>> {
        dynlib::driver()?;
        let mut all = OPEN.lock().unwrap_or_else(|e| e.into_inner());
        let known = all.get(&ordinal).and_then(Weak::upgrade);
        if let Some(c) = known.as_ref().filter(|c| c.lost.get().is_none()) {
            return Ok(c.clone());
        }
        let context = Arc::new(Context::new(ordinal, known.as_deref())?);
        all.insert(ordinal, Arc::downgrade(&context));
        Ok(context)
    }

    fn new(ordinal: usize, lost: Option<&Context>) -> Result<Context> {
        let mut count: c_int = 0;
        // SAFETY: the pointer is good for one int.
        plain("cuDeviceGetCount", unsafe { cu::cuDeviceGetCount(&mut count) })?;
        if count == 0 {
            return Err(dynlib::no_device());
        }
        if ordinal >= count as usize {
            return Err(Error::Backend(format!(
                "cuda:{ordinal} does not exist: {count} GPU{} found, numbered from cuda:0",
                if count == 1 { " was" } else { "s were" }
            )));
        }
        let mut device = 0;
        // SAFETY: as above.
        plain("cuDeviceGet", unsafe { cu::cuDeviceGet(&mut device, ordinal as c_int) })?;
        let mut text = [0 as std::ffi::c_char; 256];
        // SAFETY: the name is cut to the buffer's length.
        plain("cuDeviceGetName", unsafe { cu::cuDeviceGetName(text.as_mut_ptr(), 255, device) })?;
        // SAFETY: the last byte is still zero.
        let name = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().to_string();
        let attribute = |a: cu::CUdevice_attribute| {
            let mut x: c_int = 0;
            // SAFETY: the pointer is good for one int.
            plain("cuDeviceGetAttribute", unsafe { cu::cuDeviceGetAttribute(&mut x, a, device) }).map(|()| x)
        };
        use cu::CUdevice_attribute::*;
        let major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let mut memory = 0;
        // SAFETY: the pointer is good for one size.
        plain("cuDeviceTotalMem", unsafe { cu::cuDeviceTotalMem_v2(&mut memory, device) })?;
        if let Some(lost) = lost {
            lost.destroy_lost_context();
        }
        let own = std::env::var("TENSORLOOM_CUDA_CONTEXT").is_ok_and(|v| v == "own");
        let kind = if own { ContextKind::Private } else { ContextKind::Primary };
        let raw = match kind {
            ContextKind::Primary => retain(device, ordinal)?,
            ContextKind::Private => create(device, ordinal)?,
        };
        Ok(Context {
            ordinal,
            name,
            capability: (major, minor),
            memory,
            device,
            kind,
            raw,
            lost: OnceLock::new(),
            destroyed: AtomicBool::new(false),
        })
    }

    /// Destroys a lost context with its memory. Remaining users only get its error.
    fn destroy_lost_context(&self) {
        if self.destroyed.swap(true, Ordering::SeqCst) {
            return;
        }
        // These calls may return the error of the lost context; only the next context matters.
        // SAFETY: nothing uses a lost context.
        unsafe {
            match self.kind {
                ContextKind::Primary => cu::cuDevicePrimaryCtxReset_v2(self.device),
                ContextKind::Private => cu::cuCtxDestroy_v2(self.raw.0),
            };
        }
    }

    /// Makes this context current in the thread, or returns the error that broke it.
    pub(crate) fn enter(&self) -> Result<()> {
        if let Some(e) = self.lost.get() {
            return Err(e.clone());
        }
        // SAFETY: the context was retained.
        let code = unsafe { cu::cuCtxSetCurrent(self.raw.0) };
        self.check(code, || "cuCtxSetCurrent".into())
    }

    /// Like [`Context::enter`], for releasing resources: returns whether the context still exists.
    pub(crate) fn enter_for_drop(&self) -> bool {
        self.enter().is_ok()
    }

    /// Converts the result of a driver call; an error that breaks the context is stored.
    pub(crate) fn check(&self, code: Code, what: impl FnOnce() -> String) -> Result<()> {
        if code == Code::CUDA_SUCCESS {
            return Ok(());
        }
        if let Some(e) = self.lost.get() {
            return Err(e.clone());
        }
        if !is_fatal(code) {
            return Err(Error::Backend(format!("cuda:{}: {}: {}", self.ordinal, what(), describe(code))));
        }
        let error = Error::Backend(format!(
            "cuda:{} was lost: {} (it showed up in {}; the fault is in work that was given to the device before). Its \
             tensors are gone. CUDA gives the device back to a new process only: save what the host holds and start again",
            self.ordinal,
            describe(code),
            what()
        ));
        Err(self.lost.get_or_init(|| error).clone())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        match self.kind {
            ContextKind::Primary => {
                // SAFETY: retained once, when it was made.
                unsafe { cu::cuDevicePrimaryCtxRelease_v2(self.device) };
            }
            ContextKind::Private => {
                if !self.destroyed.load(Ordering::SeqCst) {
                    // SAFETY: created once, destroyed once, and nothing uses it any more.
                    unsafe { cu::cuCtxDestroy_v2(self.raw.0) };
                }
            }
        }
    }
}

/// Retains the primary context; a context that other code broke is reset first.
fn retain(device: cu::CUdevice, ordinal: usize) -> Result<DriverHandle<cu::CUcontext>> {
    let once = || {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is good for one handle; released when the context is dropped.
        let code = unsafe { cu::cuDevicePrimaryCtxRetain(&mut raw, device) };
        if code != Code::CUDA_SUCCESS {
            return (raw, code);
        }
        // SAFETY: it was just retained.
        let mut code = unsafe { cu::cuCtxSetCurrent(raw) };
        if code == Code::CUDA_SUCCESS {
            // SAFETY: waits for the context that was just made current.
            code = unsafe { cu::cuCtxSynchronize() };
        }
        (raw, code)
    };
    let (raw, mut code) = once();
    let mut found = raw;
    if is_fatal(code) {
        // SAFETY: nothing can be done with a context in this state.
        unsafe {
            cu::cuDevicePrimaryCtxReset_v2(device);
            cu::cuDevicePrimaryCtxRelease_v2(device);
        }
        (found, code) = once();
    }
    match code {
        Code::CUDA_SUCCESS => Ok(DriverHandle(found)),
        Code::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory {
            bytes: 0,
            hint: "; other programs leave no room on the GPU for as much as a context: `nvidia-smi` lists them",
        }),
        _ => Err(Error::Backend(format!("cuda:{ordinal}: cuDevicePrimaryCtxRetain: {}", describe(code)))),
    }
}

/// Creates a context.
fn create(device: cu::CUdevice, ordinal: usize) -> Result<DriverHandle<cu::CUcontext>> {
    type Create = unsafe extern "C" fn(*mut cu::CUcontext, std::ffi::c_uint, cu::CUdevice) -> Code;
    // SAFETY: the signature is the driver's; this name is in every version, the bindings' newer one is not.
    let create = unsafe { cu::culib().get::<Create>(b"cuCtxCreate_v2\0") };
    let create = create.map_err(|e| Error::Backend(format!("cuCtxCreate: {e}")))?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer is good for one handle.
    match unsafe { create(&mut raw, 0, device) } {
        Code::CUDA_SUCCESS => Ok(DriverHandle(raw)),
        code => Err(Error::Backend(format!("cuda:{ordinal}: cuCtxCreate: {}", describe(code)))),
    }
}

fn plain(call: &str, code: Code) -> Result<()> {
    match code {
        Code::CUDA_SUCCESS => Ok(()),
        _ => Err(Error::Backend(format!("{call}: {}", describe(code)))),
    }
}

/// Whether the context is unusable after this error.
fn is_fatal(code: Code) -> bool {
    use cu::cudaError_enum::*;
    matches!(
        code,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}

/// The name and description of an error: `CUDA_ERROR_OUT_OF_MEMORY (out of memory)`.
pub(crate) fn describe(code: Code) -> String {
    let text = |f: unsafe fn(Code, *mut *const std::ffi::c_char) -> Code| {
        let mut p = std::ptr::null();
        // SAFETY: the pointer is good for one address; the driver's texts are static.
        match unsafe { f(code, &mut p) } {
            // SAFETY: as above.
            Code::CUDA_SUCCESS if !p.is_null() => unsafe { CStr::from_ptr(p) }.to_string_lossy().to_string(),
            _ => format!("{code:?}"),
        }
    };
    format!("{} ({})", text(cu::cuGetErrorName), text(cu::cuGetErrorString))
}
