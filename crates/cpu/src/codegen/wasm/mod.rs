//! Compiles kernels of the `loops` IR to WebAssembly modules with SIMD.
//!
//! A module imports the memory and the function table of the host program, and exports one function, `kernel`, with the
//! signature of all compiled kernels: `(bufs, sizes, begin, end)`. So a kernel works on the data in place, and
//! is called through the table like any function pointer.
//!
//! `kernel` emits statements and loops, `memory` addresses, loads and stores, `scalar` and `vector` arithmetic, `convert`
//! casts, and `math` elementary functions of four f32 lanes. All other ops call a function of the program, four lanes per
//! call ([`Helper`]).

mod body;
mod convert;
mod kernel;
mod math;
mod memory;
mod scalar;
mod vector;

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests;

use compiler::loops::{Kernel, Op};
use ir::DType;
use thiserror::Error;
use wasm_encoder::{
    CodeSection, EntityType, ExportKind, ExportSection, FunctionSection, ImportSection, MemoryType, Module, RefType,
    TableType, TypeSection, ValType,
};

/// A function of the program that evaluates an op on lanes in memory.
#[derive(Clone, Copy)]
pub(super) struct Helper {
    /// The function's index in the table: `fn(area: *mut [u8; 256], code: u64)`.
    pub(super) index: u32,
    /// The address of the 256 bytes that calls use: operands at bytes 0, 64 and 128, the result at 192. Lanes are 8 bytes for
    /// 64-bit types and 4 for all others: small floats as f32, small integers extended, bool as zero or not.
    pub(super) scratch_address: u32,
    /// Returns the code of an op on a number of lanes of an operand's type.
    pub(super) code: fn(&Op, DType, usize) -> Option<u32>,
}

/// The reason why a kernel has no module.
#[derive(Debug, Error)]
pub(super) enum CompileError {
    #[error("a loop of {0} iterations; 32-bit addresses reach 2147483647")]
    TooLong(i64),
    #[error("a kernel of some {0} values, more than a function takes")]
    TooLarge(usize),
}

/// Compiles a kernel to a module.
pub(super) fn module(kernel: &Kernel, helper: &Helper) -> Result<Vec<u8>, CompileError> {
    let hoisted = compiler::loops::hoist(kernel);
    let body = kernel::write(hoisted.as_ref().unwrap_or(kernel), helper)?;
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32, ValType::I32, ValType::I64, ValType::I64], []);
    types.ty().function([ValType::I32, ValType::I64], []);
    let mut imports = ImportSection::new();
    let memory = MemoryType { minimum: 0, maximum: None, memory64: false, shared: false, page_size_log2: None };
    imports.import("env", "memory", EntityType::Memory(memory));
    let table = TableType { element_type: RefType::FUNCREF, table64: false, minimum: 0, maximum: None, shared: false };
    imports.import("env", "table", EntityType::Table(table));
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut exports = ExportSection::new();
    exports.export("kernel", ExportKind::Func, 0);
    let mut code = CodeSection::new();
    code.function(&body.finish());
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
    Ok(module.finish())
}
