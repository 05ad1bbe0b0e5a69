//! The code generator of builds without Cranelift.

use super::{CodegenError, CompiledKernel};
use compiler::loops::Kernel;

/// Whether there is a portable code generator in this build.
pub(super) const AVAILABLE: bool = false;

/// There is no code: this type has no values.
pub(super) enum Code {}

pub(super) fn compile(_: &Kernel) -> Result<CompiledKernel, CodegenError> {
    Err(CodegenError::Unsupported)
}
