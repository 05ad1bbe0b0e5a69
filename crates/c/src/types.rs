//! What inputs and outputs are.

use crate::run::LoadedProgram;
use crate::status::{Failure, Status, guard};
use ir::{DType, Type};

/// An input or output, as the header has it.
#[repr(C)]
pub struct LoomType {
    dtype: u32,
    rank: usize,
    shape: *const u64,
    bytes: usize,
}

/// Numbers of `loom_dtype`.
const DTYPES: [DType; 13] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// A type with its shape where C can read it.
pub(crate) struct CTensorType {
    pub(crate) ty: Type,
    shape: Vec<u64>,
}

impl CTensorType {
    pub(crate) fn new(ty: &Type) -> CTensorType {
        CTensorType { ty: ty.clone(), shape: ty.shape.iter().map(|n| *n as u64).collect() }
    }

    fn c(&self) -> LoomType {
        let dtype = DTYPES.iter().position(|d| *d == self.ty.dtype).unwrap_or(DTYPES.len()) as u32;
        LoomType { dtype, rank: self.shape.len(), shape: self.shape.as_ptr(), bytes: self.ty.bytes() }
    }
}

/// # Safety
/// `p` is null or a loaded program that was not freed; `out` is null or valid for a write.
unsafe fn get(
    p: *const LoadedProgram,
    index: usize,
    out: *mut LoomType,
    of: fn(&LoadedProgram) -> &[CTensorType],
) -> Status {
    guard(|| {
        if p.is_null() || out.is_null() {
            return Err(Failure::argument("the program or the pointer for its type is null"));
        }
        // SAFETY: neither pointer is null; the header requires `p` to be a loaded program that was not freed, and `out`
        // to be valid for a write.
        let list = of(unsafe { &*p });
        let found = list
            .get(index)
            .ok_or_else(|| Failure::argument(format!("index {index} is out of range, there are {}", list.len())))?;
        // SAFETY: as above.
        unsafe { out.write(found.c()) };
        Ok(())
    })
}

/// How many inputs there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_inputs(program: *const LoadedProgram) -> usize {
    // SAFETY: the header requires `program` to be null or a program that was loaded and not freed.
    unsafe { program.as_ref() }.map_or(0, |p| p.inputs.len())
}

/// How many outputs there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_outputs(program: *const LoadedProgram) -> usize {
    // SAFETY: the header requires `program` to be null or a program that was loaded and not freed.
    unsafe { program.as_ref() }.map_or(0, |p| p.outputs.len())
}

/// What an input is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_input(program: *const LoadedProgram, index: usize, out: *mut LoomType) -> Status {
    // SAFETY: `get` refuses null; the header requires `program` to be loaded and not freed, and `out` to be valid for a
    // write.
    unsafe { get(program, index, out, |p| &p.inputs) }
}

/// What an output is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_program_output(
    program: *const LoadedProgram,
    index: usize,
    out: *mut LoomType,
) -> Status {
    // SAFETY: `get` refuses null; the header requires `program` to be loaded and not freed, and `out` to be valid for a
    // write.
    unsafe { get(program, index, out, |p| &p.outputs) }
}
