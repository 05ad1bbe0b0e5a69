//! DLPack, both ways: a capsule over a tensor's elements, and a tensor from another library's.

use crate::tensor::tensor_from;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use tensorloom::{DType, Literal, Tensor, Type};

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: Kind,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What is passed on before version 1.0.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// What is passed on from version 1.0 on.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

const OLD: &CStr = c"dltensor";
const NEW: &CStr = c"dltensor_versioned";
const USED_OLD: &CStr = c"used_dltensor";
const USED_NEW: &CStr = c"used_dltensor_versioned";
/// The consumer must not write.
const READ_ONLY: u64 = 1;

/// The types that DLPack and we have.
const KINDS: [(DType, u8, u8); 15] = [
    (DType::I8, 0, 8),
    (DType::I16, 0, 16),
    (DType::I32, 0, 32),
    (DType::I64, 0, 64),
    (DType::U8, 1, 8),
    (DType::U16, 1, 16),
    (DType::U32, 1, 32),
    (DType::U64, 1, 64),
    (DType::F16, 2, 16),
    (DType::F32, 2, 32),
    (DType::F64, 2, 64),
    (DType::BF16, 4, 16),
    (DType::Bool, 6, 8),
    (DType::F8E4M3, 10, 8),
    (DType::F8E5M2, 12, 8),
];

/// What an exported tensor keeps.
struct Held {
    literal: Literal,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Held {
    fn new(literal: Literal) -> Box<Held> {
        let shape: Vec<i64> = literal.ty().shape.iter().map(|d| *d as i64).collect();
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i].max(1);
        }
        Box::new(Held { literal, shape, strides })
    }

    fn describe(&mut self) -> PyResult<DlTensor> {
        let d = self.literal.ty().dtype;
        let (_, code, bits) =
            KINDS.iter().find(|k| k.0 == d).ok_or_else(|| PyBufferError::new_err(format!("DLPack has no {d}")))?;
        Ok(DlTensor {
            data: self.literal.bytes().as_ptr().cast_mut().cast(),
            device: Device { kind: 1, id: 0 },
            ndim: self.shape.len() as i32,
            dtype: Kind { code: *code, bits: *bits, lanes: 1 },
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        })
    }
}

unsafe extern "C" fn free_old(m: *mut Managed) {
    // SAFETY: made by `export` from boxes, and deleted once.
    unsafe {
        let m = Box::from_raw(m);
        drop(Box::from_raw(m.context.cast::<Held>()));
    }
}

unsafe extern "C" fn free_new(m: *mut Versioned) {
    // SAFETY: as above.
    unsafe {
        let m = Box::from_raw(m);
        drop(Box::from_raw(m.context.cast::<Held>()));
    }
}

/// A capsule that nobody took gives its tensor back.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule; its name says what it holds.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) == 1 {
            free_old(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) == 1 {
            free_new(ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast());
        }
    }
}

/// A capsule over elements, which it keeps.
pub(crate) fn export(py: Python<'_>, literal: Literal, max_version: Option<(u32, u32)>) -> PyResult<Py<PyAny>> {
    let mut held = Held::new(literal);
    let tensor = held.describe()?;
    let context = Box::into_raw(held).cast::<c_void>();
    let (at, name): (*mut c_void, &CStr) = if max_version.is_some_and(|v| v.0 >= 1) {
        let flags = READ_ONLY;
        let m = Versioned { major: 1, minor: 0, context, deleter: Some(free_new), flags, tensor };
        (Box::into_raw(Box::new(m)).cast(), NEW)
    } else {
        (Box::into_raw(Box::new(Managed { tensor, context, deleter: Some(free_old) })).cast(), OLD)
    };
    // SAFETY: the name lives forever, the pointer until `forget` or the consumer deletes it.
    let capsule = unsafe { ffi::PyCapsule_New(at, name.as_ptr(), Some(forget)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind) }
}

/// A tensor from an object with `__dlpack__`.
pub(crate) fn import(x: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let (kind, _): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
    if kind != 1 {
        return Err(PyBufferError::new_err("the array is on another device; move it to the processor first"));
    }
    let capsule = x.call_method0("__dlpack__")?;
    let at = capsule.as_ptr();
    // SAFETY: the capsule's name says what it holds, by DLPack's protocol; it is read, renamed as taken, and deleted once.
    unsafe {
        if ffi::PyCapsule_IsValid(at, OLD.as_ptr()) == 1 {
            let m = ffi::PyCapsule_GetPointer(at, OLD.as_ptr()).cast::<Managed>();
            let t = copy(&(*m).tensor);
            ffi::PyCapsule_SetName(at, USED_OLD.as_ptr());
            if let Some(delete) = (*m).deleter {
                delete(m);
            }
            return t;
        }
        if ffi::PyCapsule_IsValid(at, NEW.as_ptr()) == 1 {
            let m = ffi::PyCapsule_GetPointer(at, NEW.as_ptr()).cast::<Versioned>();
            let t = copy(&(*m).tensor);
            ffi::PyCapsule_SetName(at, USED_NEW.as_ptr());
            if let Some(delete) = (*m).deleter {
                delete(m);
            }
            return t;
        }
    }
    Err(PyTypeError::new_err("__dlpack__ gave no capsule of a tensor"))
}

/// Copies elements in any strides.
unsafe fn copy(t: &DlTensor) -> PyResult<Tensor> {
    let known = KINDS.iter().find(|k| (k.1, k.2, 1) == (t.dtype.code, t.dtype.bits, t.dtype.lanes));
    let Some((d, ..)) = known else {
        return Err(PyTypeError::new_err(format!("DLPack's type {}:{} is none of ours", t.dtype.code, t.dtype.bits)));
    };
    let n = t.ndim as usize;
    // SAFETY: the protocol's promise, here and below.
    let list = |p: *mut i64| if n == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(p, n) } };
    let shape: Vec<usize> = list(t.shape).iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
    let ty = Type::new(*d, &shape);
    let mut dense = vec![1i64; n];
    for i in (1..n).rev() {
        dense[i - 1] = dense[i] * shape[i].max(1) as i64;
    }
    let strides: Vec<i64> = if t.strides.is_null() { dense.clone() } else { list(t.strides).to_vec() };
    let size = d.size();
    let mut bytes = Vec::with_capacity(ty.bytes());
    let start = t.data.cast::<u8>().wrapping_add(t.byte_offset as usize);
    let count = shape.iter().product::<usize>();
    if strides == dense {
        if count > 0 {
            // SAFETY: as above.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, count * size) });
        }
    } else {
        for k in 0..count {
            let at: i64 = (0..n).map(|i| (k as i64 / dense[i]) % shape[i] as i64 * strides[i]).sum();
            // SAFETY: as above.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(start.wrapping_offset(at as isize * size as isize), size)
            });
        }
    }
    let l = Literal::from_bytes(ty, &bytes).ok_or_else(|| PyTypeError::new_err("the elements don't fit the shape"))?;
    Ok(tensorloom::engine().literal(&l))
}

/// A tensor from any object that speaks DLPack.
#[pyfunction]
fn from_dlpack(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let t = if x.hasattr("__dlpack__")? { import(x)? } else { tensor_from(x)? };
    crate::calls::tensor(py, t)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)
}
