//! The C interfaces: compiled models (feature `runtime`; `include/tensorloom.h` is what others see), and variable-shape tensors
//! (feature `vsla`; the module of that name).
//!
//! - A function that can fail returns a [`Status`]; results go through out-pointers, which are written on success alone.
//! - A panic stops at the boundary and is `LOOM_ERR_RUN`.
//! - The message of the last failure on the calling thread is `loom_last_error()`.
//! - A program is a pointer that the caller frees once; null is refused everywhere else.

#![cfg_attr(
    feature = "runtime",
    expect(clippy::missing_safety_doc, reason = "the header states what pointers must be; it is the same for all")
)]

#[cfg(feature = "runtime")]
mod run;
#[cfg(test)]
mod soname;
#[cfg(feature = "runtime")]
mod status;
#[cfg(feature = "runtime")]
mod types;
#[cfg(feature = "vsla")]
pub mod vsla;

#[cfg(feature = "runtime")]
pub use run::{
    LoadedProgram, loom_program_arena, loom_program_free, loom_program_load, loom_program_open, loom_program_run,
};
#[cfg(feature = "runtime")]
pub use status::{Status, loom_last_error};
#[cfg(feature = "runtime")]
pub use types::{LoomType, loom_program_input, loom_program_inputs, loom_program_output, loom_program_outputs};

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
#[cfg(feature = "runtime")]
#[unsafe(no_mangle)]
pub extern "C" fn loom_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
