//! Compiled models from C; `include/tensorloom.h` is what others see.
//!
//! - A function that can fail returns a [`Status`]; results go through out-pointers, which are written on success alone.
//! - A panic stops at the boundary and is `LOOM_ERR_RUN`.
//! - The message of the last failure on the calling thread is `loom_last_error()`.
//! - A program is a pointer that the caller frees once; null is refused everywhere else.

#![expect(clippy::missing_safety_doc, reason = "the header states what pointers must be; it is the same for all")]

mod run;
mod status;
mod types;

pub use run::{
    LoadedProgram, loom_program_arena, loom_program_free, loom_program_load, loom_program_open, loom_program_run,
};
pub use status::{Status, loom_last_error};
pub use types::{LoomType, loom_program_input, loom_program_inputs, loom_program_output, loom_program_outputs};

use std::ffi::c_char;

/// The header, for what is shipped with a library.
pub const HEADER: &str = include_str!("../include/tensorloom.h");

/// The functions of the header.
pub const FUNCTIONS: [&str; 11] = [
    "loom_program_load",
    "loom_program_open",
    "loom_program_free",
    "loom_program_inputs",
    "loom_program_outputs",
    "loom_program_input",
    "loom_program_output",
    "loom_program_arena",
    "loom_program_run",
    "loom_last_error",
    "loom_version",
];

/// The library's version, as "major.minor.patch".
#[unsafe(no_mangle)]
pub extern "C" fn loom_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
