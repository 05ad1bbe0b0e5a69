//! The version of the library.

use std::ffi::c_char;

/// The version of the library that runs, as "major.minor.patch". `VSLA_VERSION` is that of the header; libraries of one
/// major version (below 1.0, of one minor version) go with each other's headers, and the library's SONAME has that number.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
