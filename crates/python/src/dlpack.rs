//! DLPack, both ways and without copies: a capsule over a tensor's elements, and a tensor of another library's.

use crate::memory::{Elements, ForeignMemory, dense};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use tensorloom::{DType, Tensor};

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What is passed on before version 1.0.
#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// What is passed on from version 1.0 on.
#[repr(C)]
struct DlManagedTensorVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

const OLD: &CStr = c"dltensor";
const NEW: &CStr = c"dltensor_versioned";
const USED_OLD: &CStr = c"used_dltensor";
const USED_NEW: &CStr = c"used_dltensor_versioned";
/// The consumer must not write.
const READ_ONLY: u64 = 1;
/// The consumer has a copy of its own.
const COPIED: u64 = 2;

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
struct ExportContext {
    elements: Elements,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl ExportContext {
    fn new(elements: Elements) -> Box<ExportContext> {
        let shape = elements.ty().shape.iter().map(|d| *d as i64).collect();
        let strides = dense(&elements.ty().shape);
        Box::new(ExportContext { elements, shape, strides })
    }

    fn describe(&mut self) -> PyResult<DlTensor> {
        let d = self.elements.ty().dtype;
        let (_, code, bits) =
            KINDS.iter().find(|k| k.0 == d).ok_or_else(|| PyBufferError::new_err(format!("DLPack has no {d}")))?;
        Ok(DlTensor {
            data: self.elements.at().cast(),
            device: DlDevice { kind: 1, id: 0 },
            ndim: self.shape.len() as i32,
            dtype: DlDataType { code: *code, bits: *bits, lanes: 1 },
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        })
    }
}

/// # Safety
/// `export` made `m`, and nothing uses it any longer.
unsafe extern "C" fn free_old(m: *mut DlManagedTensor) {
    // SAFETY: made by `export` from boxes, and deleted once.
    unsafe {
        let m = Box::from_raw(m);
        drop(Box::from_raw(m.context.cast::<ExportContext>()));
    }
}

/// # Safety
/// `export` made `m`, and nothing uses it any longer.
unsafe extern "C" fn free_new(m: *mut DlManagedTensorVersioned) {
    // SAFETY: as above.
    unsafe {
        let m = Box::from_raw(m);
        drop(Box::from_raw(m.context.cast::<ExportContext>()));
    }
}

/// A capsule that nobody took gives its tensor back.
///
/// # Safety
/// `capsule` is a capsule that `export` made, and Python deletes it.
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

/// A capsule over elements, which it keeps. Elements that are lent are read-only, so that they need a versioned capsule.
pub(crate) fn export(py: Python<'_>, elements: Elements, max_version: Option<(u32, u32)>) -> PyResult<Py<PyAny>> {
    let flags = if matches!(elements, Elements::Copied(_)) { COPIED } else { READ_ONLY };
    let mut held = ExportContext::new(elements);
    let tensor = held.describe()?;
    let context = Box::into_raw(held).cast::<c_void>();
    let (at, name): (*mut c_void, &CStr) = if max_version.is_some_and(|v| v.0 >= 1) {
        let m = DlManagedTensorVersioned { major: 1, minor: 0, context, deleter: Some(free_new), flags, tensor };
        (Box::into_raw(Box::new(m)).cast(), NEW)
    } else {
        (Box::into_raw(Box::new(DlManagedTensor { tensor, context, deleter: Some(free_old) })).cast(), OLD)
    };
    // SAFETY: the name lives forever, the pointer until `forget` or the consumer deletes it.
    let capsule = unsafe { ffi::PyCapsule_New(at, name.as_ptr(), Some(forget)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind) }
}

/// What was taken out of a capsule; the producer is told when nobody needs it any more. An object of Python's, because Python's
/// lock is then held: where it isn't, the object waits until somebody holds it.
#[pyclass(frozen)]
struct Taken {
    at: *mut c_void,
    versioned: bool,
}

// SAFETY: the pointer is only followed to delete what it points to, once.
unsafe impl Send for Taken {}
// SAFETY: as above.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: taken from a capsule of this kind, which was renamed; deleted once.
        unsafe {
            if self.versioned {
                let m = self.at.cast::<DlManagedTensorVersioned>();
                if let Some(delete) = (*m).deleter {
                    delete(m);
                }
            } else {
                let m = self.at.cast::<DlManagedTensor>();
                if let Some(delete) = (*m).deleter {
                    delete(m);
                }
            }
        }
    }
}

/// Asks for a capsule: a versioned one if the producer knows them.
fn capsule<'py>(x: &Bound<'py, PyAny>, copy: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let words = PyDict::new(py);
    words.set_item("max_version", (1, 0))?;
    // A copy that is wanted is made here.
    if copy == Some(false) {
        words.set_item("copy", false)?;
    }
    match x.call_method("__dlpack__", (), Some(&words)) {
        // Producers of before know no keywords.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => x.call_method0("__dlpack__"),
        other => other,
    }
}

/// A tensor from an object with `__dlpack__`: of the same memory, unless a copy is asked for or needed.
pub(crate) fn import(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    let py = x.py();
    let (kind, _): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
    // Pinned memory of CUDA and ROCm is the processor's too.
    if ![1, 3, 11].contains(&kind) {
        return Err(PyBufferError::new_err("the array is on another device; move it to the CPU first"));
    }
    let capsule = match capsule(x, copy) {
        // Older NumPy gives no capsules of bools, nor of what is read-only; it shows their memory all the same.
        Err(e) if e.is_instance_of::<PyBufferError>(py) && x.hasattr("__array_interface__")? => {
            return crate::creation::exported_memory(x, copy == Some(false))?.0.tensor(copy);
        }
        other => other?,
    };
    let at = capsule.as_ptr();
    // SAFETY: the capsule's name says what it holds, by DLPack's protocol; it is renamed as taken, and deleted once.
    let taken = unsafe {
        if ffi::PyCapsule_IsValid(at, OLD.as_ptr()) == 1 {
            let m = ffi::PyCapsule_GetPointer(at, OLD.as_ptr());
            ffi::PyCapsule_SetName(at, USED_OLD.as_ptr());
            Taken { at: m, versioned: false }
        } else if ffi::PyCapsule_IsValid(at, NEW.as_ptr()) == 1 {
            let m = ffi::PyCapsule_GetPointer(at, NEW.as_ptr());
            ffi::PyCapsule_SetName(at, USED_NEW.as_ptr());
            Taken { at: m, versioned: true }
        } else {
            return Err(PyTypeError::new_err(
                "__dlpack__ did not return a tensor capsule, or returned one that was already consumed",
            ));
        }
    };
    // SAFETY: what the capsule of this name holds; the layout of later major versions is not known.
    let tensor = unsafe {
        if taken.versioned {
            let m = taken.at.cast::<DlManagedTensorVersioned>();
            if (*m).major != 1 {
                return Err(PyBufferError::new_err(format!(
                    "DLPack {}.{} is not supported; only 1.x is",
                    (*m).major,
                    (*m).minor
                )));
            }
            &raw const (*m).tensor
        } else {
            &raw const (*taken.at.cast::<DlManagedTensor>()).tensor
        }
    };
    let owner: Arc<Py<Taken>> = Arc::new(Py::new(py, taken)?);
    // SAFETY: it lives as long as its owner.
    let foreign = unsafe { parse_tensor(&*tensor, owner)? };
    foreign.tensor(copy)
}

/// What a description means.
///
/// # Safety
/// `t` is valid as the protocol says: `shape` and `strides` have `ndim` numbers, or `strides` is null.
unsafe fn parse_tensor(t: &DlTensor, owner: Arc<Py<Taken>>) -> PyResult<ForeignMemory> {
    let known = KINDS.iter().find(|k| (k.1, k.2, 1) == (t.dtype.code, t.dtype.bits, t.dtype.lanes));
    let Some((dtype, ..)) = known else {
        return Err(PyTypeError::new_err(format!(
            "the DLPack type {}:{} is not supported",
            t.dtype.code, t.dtype.bits
        )));
    };
    let n = usize::try_from(t.ndim).map_err(|_| PyBufferError::new_err("a tensor with a negative number of axes"))?;
    // SAFETY: the protocol requires `ndim` numbers at this address.
    let list = |p: *mut i64| if n == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(p, n) } };
    let shape: Option<Vec<usize>> = list(t.shape).iter().map(|d| usize::try_from(*d).ok()).collect();
    let shape = shape.ok_or_else(|| PyBufferError::new_err("a tensor with a negative size"))?;
    let strides = if t.strides.is_null() { dense(&shape) } else { list(t.strides).to_vec() };
    let at = t.data.cast::<u8>().wrapping_add(t.byte_offset as usize);
    Ok(ForeignMemory { at, dtype: *dtype, shape, strides, owner })
}

/// A tensor from any object that speaks DLPack, of the same memory if that is possible; `copy` asks for a copy or forbids it.
/// Nobody may change memory that is shared as long as the tensor, or what was computed from it, is in use.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None))]
fn from_dlpack(py: Python<'_>, x: &Bound<'_, PyAny>, device: Option<&str>, copy: Option<bool>) -> PyResult<Py<PyAny>> {
    if let Some(d) = device.filter(|d| *d != "cpu") {
        return Err(PyValueError::new_err(format!("device {d:?}; tensors are on \"cpu\"")));
    }
    if !x.hasattr("__dlpack__")? {
        return Err(PyTypeError::new_err(format!("{} has no __dlpack__; use asarray for other objects", x.get_type())));
    }
    crate::calls::tensor(py, import(x, copy)?)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)
}
