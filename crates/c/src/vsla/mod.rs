//! The C interface of variable-shape tensors (§12, §13).
//!
//! # Rules that every function keeps
//!
//! - It returns a [`Code`](error::Code); results go through out-pointers, which are written on success alone.
//! - Handles are keys into a table and are never dereferenced: a null, freed or mistyped handle is
//!   `VSLA_ERR_INVALID_ARG`, not a crash.
//! - A panic stops at the boundary and is `VSLA_ERR_UNKNOWN`.
//! - The message of the last failure on the calling thread is `vsla_get_last_error_string()`. `errno` is never touched.
//! - Handles may be used from several threads at once; runs of one `vsla_bindings_t` take turns.

#![expect(clippy::missing_safety_doc, reason = "the header states what pointers must be; it is the same for all")]

pub mod archive;
pub mod autograd;
pub mod backend;
pub mod device;
pub mod error;
pub mod graph;
pub mod handles;
pub mod plan;
pub mod pointers;
pub mod shared;
pub mod stream;
pub mod tensor;
pub mod version;
pub mod window;
