//! Where there is no portable generator.

use super::{CodegenError, CompiledKernel};
use compiler::loops::Kernel;

/// Whether there is a portable generator here.
pub(super) const AVAILABLE: bool = false;

/// There is no code.
pub(super) enum Code {}

pub(super) fn compile(_: &Kernel) -> Result<CompiledKernel, CodegenError> {
    Err(CodegenError::Unsupported)
}
