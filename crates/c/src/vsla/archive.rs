//! Files of tensors: safetensors, as `vsla::io` writes them.

use crate::vsla::error::{Code, guard};
use crate::vsla::handles::{Object, insert, want};
use crate::vsla::plan::write_text;
use crate::vsla::pointers::{check_writable, slice, text, write_out};
use crate::vsla::tensor::{vsla_tensor_t, with_tensors};
use std::ffi::c_char;
use vsla::{Error, Result};

/// The tensors of a file, in the order of their names.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_archive_t;

/// A path; never the empty one.
///
/// # Safety
/// `at` is null or a string that ends with a zero byte.
unsafe fn path<'a>(at: *const c_char) -> Result<&'a str> {
    // SAFETY: `at` is null or a string that ends with a zero byte.
    match unsafe { text(at)? } {
        "" => Err(Error::InvalidArg("the path is null or empty".into())),
        path => Ok(path),
    }
}

/// Writes tensors under their names into a safetensors file: minimal representatives, with their logical shapes and models
/// in the metadata.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_save(
    file: *const c_char,
    names: *const *const c_char,
    tensors: *const *const vsla_tensor_t,
    count: usize,
) -> Code {
    guard(|| {
        // SAFETY: the header requires `file` to be null or a string that ends with a zero byte, and `names` to be valid
        // for reads of that many elements; null is refused.
        let (file, names) = unsafe { (path(file)?, slice(names, count, "names")?) };
        let mut known = Vec::with_capacity(count);
        for &n in names {
            // SAFETY: as above.
            known.push(unsafe { text(n)? });
        }
        let save = |t: &[&vsla::Tensor]| {
            let pairs: Vec<(&str, &vsla::Tensor)> = known.iter().copied().zip(t.iter().copied()).collect();
            vsla::io::save(file, &pairs)
        };
        // SAFETY: as above.
        unsafe { with_tensors(tensors, count, save) }
    })
}

/// Reads a safetensors file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_load(file: *const c_char, out: *mut *mut vsla_archive_t) -> Code {
    guard(|| {
        check_writable(out)?;
        // SAFETY: the header requires `file` to be null or a string that ends with a zero byte.
        let found = vsla::io::load(unsafe { path(file)? })?;
        // SAFETY: as above.
        unsafe { write_out(out, insert(Object::Archive(found))) }
    })
}

/// Writes how many tensors a file has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_archive_count(archive: *const vsla_archive_t, count: *mut usize) -> Code {
    guard(|| {
        want!(archive, Archive, archive);
        // SAFETY: the header requires `count` to be valid for a write; null is refused.
        unsafe { write_out(count, archive.len()) }
    })
}

/// Writes the name of a tensor, as `vsla_plan_report` writes its text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_archive_name(
    archive: *const vsla_archive_t,
    index: usize,
    name: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Code {
    guard(|| {
        want!(archive, Archive, archive);
        let Some((found, _)) = archive.get(index) else {
            return Err(Error::InvalidArg(format!("tensor {index} is out of range; the file has {}", archive.len())));
        };
        // SAFETY: the header requires the text to be valid for writes of `room` bytes and `needed` for a write; null is
        // refused.
        unsafe { write_text(found, name, room, needed) }
    })
}

/// The tensor of a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_archive_tensor(
    archive: *const vsla_archive_t,
    name: *const c_char,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        want!(archive, Archive, archive);
        // SAFETY: the header requires `name` to be null or a string that ends with a zero byte.
        let name = unsafe { text(name)? };
        let Some((_, t)) = archive.iter().find(|(n, _)| n == name) else {
            let names: Vec<&str> = archive.iter().map(|(n, _)| n.as_str()).take(8).collect();
            return Err(Error::InvalidArg(format!("the file has no {name:?}; it has {}", names.join(", "))));
        };
        // SAFETY: as above.
        unsafe { write_out(out, insert(Object::Tensor(t.clone()))) }
    })
}
