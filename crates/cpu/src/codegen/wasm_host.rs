//! Kernels in WebAssembly programs: modules that the host instantiates over this program's memory.
//!
//! The host puts a module's function into this program's table, and its table index is its address: kernels are called like any
//! function pointer, without JavaScript in between. There is one thread, so there is one transfer area.

use super::{CodegenError, Entry, helper, wasm};
use compiler::loops::Kernel;
use std::cell::UnsafeCell;

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    /// Compiles and instantiates a module, and returns the table index of its `kernel`; 0 if that fails.
    safe fn instantiate(module: *const u8, bytes: usize) -> u32;
    /// Releases a table index.
    safe fn forget(place: u32);
}

/// A kernel in the table.
pub(crate) struct Code {
    place: u32,
    module: Vec<u8>,
}

#[repr(align(16))]
struct Area(UnsafeCell<[u8; 256]>);
// SAFETY: a page has one thread, and kernels don't call each other.
unsafe impl Sync for Area {}
static AREA: Area = Area(UnsafeCell::new([0; 256]));

impl Code {
    pub(crate) fn new(kernel: &Kernel) -> Result<Code, CodegenError> {
        let lanes: unsafe extern "C" fn(*mut [u8; 256], u64) = helper::lanes;
        let helper = wasm::Helper {
            index: lanes as usize as u32,
            scratch_address: AREA.0.get() as usize as u32,
            code: helper::op_code,
        };
        let module = wasm::module(kernel, &helper).map_err(|e| CodegenError::Refused(e.to_string()))?;
        match instantiate(module.as_ptr(), module.len()) {
            0 => Err(CodegenError::Refused("the browser rejected the WebAssembly module of a kernel".into())),
            place => Ok(Code { place, module }),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.module
    }

    pub(crate) fn entry(&self) -> Entry {
        // SAFETY: on this target a function pointer is a place in the table, and the function there has this signature.
        unsafe { std::mem::transmute::<usize, Entry>(self.place as usize) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        forget(self.place);
    }
}
