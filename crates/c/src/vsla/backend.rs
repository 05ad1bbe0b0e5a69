//! Backends (§11).

use crate::vsla::device::{custom, vsla_backend_vtable_t};
use crate::vsla::error::{Code, guard};
use crate::vsla::handles::{Object, insert};
use crate::vsla::pointers::{check_writable, write_out};
use std::ffi::c_void;
use vsla::{Backend, Error};

/// Where programs run.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_backend_t;

/// The processor with so many threads; 0 takes one for each core. Results don't depend on the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_cpu(threads: u32, out: *mut *mut vsla_backend_t) -> Code {
    guard(|| {
        check_writable(out)?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Backend(cpu(threads)?))) }
    })
}

fn cpu(threads: u32) -> vsla::Result<Backend> {
    match threads {
        0 => Ok(Backend::global().clone()),
        1..=1024 => Ok(Backend::cpu(threads as usize)),
        n => Err(Error::InvalidArg(format!("{n} threads are too many; the maximum is 1024"))),
    }
}

/// The processor with the caller's functions for memory and runs, which get `ctx` as their last argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_custom(
    table: *const vsla_backend_vtable_t,
    ctx: *mut c_void,
    threads: u32,
    out: *mut *mut vsla_backend_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        // SAFETY: the header requires `table` to be valid for reads of that many elements; null is refused.
        let Some(t) = (unsafe { crate::vsla::pointers::slice(table, 1, "the table")?.first() }) else {
            return Err(Error::InvalidArg("the table is null".into()));
        };
        // SAFETY: the header requires the table's functions to do what `vsla_backend_vtable_t` says.
        let backend = unsafe { custom(&cpu(threads)?, t, ctx)? };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Backend(backend))) }
    })
}
