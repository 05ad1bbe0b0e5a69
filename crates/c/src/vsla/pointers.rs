//! Reading what C callers point at.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use vsla::{DType, Error, Memory, Model, Result};

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum DTypeC {
    /// 32-bit float.
    VslaF32 = 0,
    /// 64-bit float.
    VslaF64,
    /// 16-bit float with 10 bits of fraction.
    VslaF16,
    /// 16-bit float with 7 bits of fraction.
    VslaBf16,
}

/// The dtype a number means. Enums come as plain numbers, since C may pass any.
pub(crate) fn dtype(n: u32) -> Result<DType> {
    vsla::shape::DTYPES
        .get(n as usize)
        .copied()
        .ok_or_else(|| Error::InvalidArg(format!("{n} is not a dtype; use VSLA_F32, VSLA_F64, VSLA_F16 or VSLA_BF16")))
}

/// The model a number means.
pub(crate) fn model(n: u32) -> Result<Model> {
    match n {
        0 => Ok(Model::A),
        1 => Ok(Model::B),
        _ => Err(Error::InvalidArg(format!("{n} is not a model; use VSLA_MODEL_A or VSLA_MODEL_B"))),
    }
}

/// `count` elements at a pointer; null is fine for none.
///
/// # Safety
/// `at` is null, or valid for reads of `count` elements for as long as the slice is used.
pub(crate) unsafe fn slice<'a, T>(at: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(at, count, what)?;
    // SAFETY: not null, aligned, and by the function's contract good for `count` elements.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// `count` elements to write at a pointer; null is fine for none.
///
/// # Safety
/// `at` is null, or valid for reads and writes of `count` elements, which nothing else uses as long as the slice is
/// used.
pub(crate) unsafe fn slice_mut<'a, T>(at: *mut T, count: usize, what: &str) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(at, count, what)?;
    // SAFETY: as above, and by the contract nothing else uses them during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, count) })
}

fn check<T>(at: *const T, count: usize, what: &str) -> Result<()> {
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|n| n <= isize::MAX as usize);
    if at.is_null() || !at.is_aligned() || !fits {
        return Err(Error::InvalidArg(format!("{what} is null, misaligned or too long")));
    }
    Ok(())
}

/// Writes a result.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn write_out<T>(out: *mut T, value: T) -> Result<()> {
    check(out, 1, "the place for the result")?;
    // SAFETY: not null, aligned, and by the function's contract good for one element.
    unsafe { out.write(value) };
    Ok(())
}

/// Checks a place for a result before work is done for it.
pub(crate) fn check_writable<T>(out: *mut T) -> Result<()> {
    check(out, 1, "the place for the result")
}

/// A caller's block for bindings, checked before it is written.
///
/// # Safety
/// `at` is null, or valid for `bytes` bytes that nothing else uses as long as what is bound in them exists.
pub(crate) unsafe fn memory(at: *mut c_void, bytes: usize, needed: usize) -> Result<Memory> {
    if at.is_null() || bytes < needed {
        return Err(Error::InvalidArg(format!(
            "{bytes} bytes of memory at {at:p} are too few; {needed} bytes are needed"
        )));
    }
    // SAFETY: `at` is not null and valid for `bytes` bytes, at least those needed. The block must outlive what is bound
    // in it, so nothing has to keep it.
    unsafe { Memory::from_raw(at.cast(), bytes, Arc::new(())) }
}

/// A string; null is the empty one.
///
/// # Safety
/// `at` is null or a string that ends with a zero byte.
pub(crate) unsafe fn text<'a>(at: *const c_char) -> Result<&'a str> {
    if at.is_null() {
        return Ok("");
    }
    // SAFETY: by the function's contract a string that ends in zero.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Error::InvalidArg("a name is not UTF-8".into()))
}

/// A shape.
///
/// # Safety
/// `at` is null or valid for reads of `count` sizes.
pub(crate) unsafe fn sizes(at: *const u64, count: usize, what: &str) -> Result<Vec<usize>> {
    // SAFETY: `at` is valid for reads of `count` sizes; `slice` refuses null.
    let list = unsafe { slice(at, count, what)? };
    let size = |&d: &u64| {
        usize::try_from(d).map_err(|_| Error::InvalidArg(format!("{what} has the value {d}, which is too large")))
    };
    list.iter().map(size).collect()
}
