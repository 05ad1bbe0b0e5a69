//! Elements where they lie: a tensor's memory for others to read, and memory of others as a tensor.
//!
//! What others see of a tensor is read-only, and doesn't change as long as they hold it. What a tensor is made of without a copy
//! must not be changed by others: work is recorded, and done later.

use crate::interrupt::without_gil;
use crate::{TracerError, to_py_err};
use cpu::HostBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::any::Any;
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use tensorloom::{DType, Literal, SharedMemory, Tensor, Type, np};

/// A tensor's elements, dense in row-major order.
pub(crate) enum Elements {
    /// Where the engine has them.
    Borrowed(SharedMemory),
    /// Copied, from another device or because a copy was asked for.
    Copied(Literal),
}

impl Elements {
    /// Computes a tensor for others to compute with. One that is being differentiated is not given: what they make of it would
    /// have no gradient, and nobody would know.
    pub(crate) fn of(py: Python<'_>, t: &Tensor) -> PyResult<Elements> {
        check_not_traced(t)?;
        Elements::read_only(py, t)
    }

    /// Computes a tensor, without Python's lock, and shows where its elements are.
    pub(crate) fn read_only(py: Python<'_>, t: &Tensor) -> PyResult<Elements> {
        let t = t.clone();
        let found = without_gil(py, move || -> tensorloom::Result<Elements> {
            let lent = t.export_memory()?;
            match host(&lent) {
                Some(_) => Ok(Elements::Borrowed(lent)),
                None => t.to_literal().map(Elements::Copied),
            }
        });
        found.map_err(|e| to_py_err(&e))
    }

    /// A copy that nobody else has.
    pub(crate) fn copied(py: Python<'_>, t: &Tensor) -> PyResult<Elements> {
        check_not_traced(t)?;
        let t = t.clone();
        without_gil(py, move || t.to_literal()).map(Elements::Copied).map_err(|e| to_py_err(&e))
    }

    pub(crate) fn ty(&self) -> &Type {
        match self {
            Elements::Borrowed(lent) => lent.ty(),
            Elements::Copied(literal) => literal.ty(),
        }
    }

    /// The first element. Only what was copied may be written, by its one holder.
    pub(crate) fn at(&self) -> *mut u8 {
        match self {
            Elements::Borrowed(lent) => host(lent).map_or(std::ptr::dangling_mut(), HostBuffer::as_ptr),
            Elements::Copied(literal) => literal.bytes().as_ptr().cast_mut(),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the buffer has these bytes, and nothing writes them while they are lent.
            Elements::Borrowed(_) => unsafe { std::slice::from_raw_parts(self.at(), self.ty().bytes()) },
            Elements::Copied(literal) => literal.bytes(),
        }
    }
}

fn check_not_traced(t: &Tensor) -> PyResult<()> {
    if !t.requires_grad() {
        return Ok(());
    }
    Err(TracerError::new_err(
        "a tensor that is being differentiated was passed to NumPy or another library, where its gradient would be \
         lost; compute with tensorloom.numpy, or use lax.stop_gradient(x)",
    ))
}

fn host(lent: &SharedMemory) -> Option<&HostBuffer> {
    lent.buffer().as_any().downcast_ref()
}

/// Strides in elements of a dense tensor.
pub(crate) fn dense(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1) as i64;
    }
    strides
}

/// Memory of another library.
pub(crate) struct ForeignMemory {
    pub(crate) at: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<i64>,
    /// What keeps it.
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
}

/// Whether tensors are made in the host's memory.
fn is_host_device() -> bool {
    static HOME: OnceLock<bool> = OnceLock::new();
    *HOME.get_or_init(|| {
        let t = tensorloom::engine().tensor(&[0u8], &[1]);
        t.export_memory().is_ok_and(|lent| host(&lent).is_some())
    })
}

impl ForeignMemory {
    /// Whether the memory is dense with the axes in an order; those of one entry have any stride.
    fn is_dense(&self, order: &[usize]) -> bool {
        let mut step = 1;
        order.iter().rev().filter(|&&i| self.shape[i] != 1).all(|&i| {
            let fits = self.strides[i] == step;
            step *= self.shape[i] as i64;
            fits
        })
    }

    /// The order of axes in which the memory is dense, if there is one: their own if possible.
    fn order(&self) -> Option<Vec<usize>> {
        let own: Vec<usize> = (0..self.shape.len()).collect();
        if self.is_dense(&own) {
            return Some(own);
        }
        let mut order = own;
        order.sort_by_key(|&i| std::cmp::Reverse(self.strides[i]));
        self.is_dense(&order).then_some(order)
    }

    /// A tensor of it: without a copy where that is possible, unless `copy` asks for one or forbids it.
    pub(crate) fn tensor(self, copy: Option<bool>) -> PyResult<Tensor> {
        let count: usize = self.shape.iter().product();
        let aligned = (self.at as usize).is_multiple_of(self.dtype.size());
        let order = if count == 0 { None } else { self.order() };
        let why = match (&order, copy) {
            (_, Some(true)) => None,
            (Some(order), _) if aligned && is_host_device() => return Ok(self.import_zero_copy(order, count)),
            _ if count == 0 => None,
            (None, _) => Some("its elements are not contiguous"),
            _ if !aligned => Some("its memory is not aligned to its elements"),
            _ => Some("tensors are created on another device"),
        };
        match why {
            Some(why) if copy == Some(false) => {
                Err(PyValueError::new_err(format!("the array cannot be used without a copy: {why}")))
            }
            _ => self.copied(count),
        }
    }

    fn import_zero_copy(self, order: &[usize], count: usize) -> Tensor {
        let shape: Vec<usize> = order.iter().map(|&i| self.shape[i]).collect();
        let ty = Type::new(self.dtype, &shape);
        let at = NonNull::new(self.at).expect("there are elements");
        // SAFETY: the owner keeps the memory; the engine never writes what it adopts.
        let buffer = unsafe { HostBuffer::from_raw(at, count * self.dtype.size(), self.owner) };
        let t = tensorloom::engine().import_memory(&ty, Arc::new(buffer));
        if order.iter().enumerate().all(|(i, &o)| i == o) {
            return t;
        }
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| back[from] = to as isize);
        np::permute_dims(&t, &back[..])
    }

    fn copied(self, count: usize) -> PyResult<Tensor> {
        let (size, ty) = (self.dtype.size(), Type::new(self.dtype, &self.shape));
        let mut bytes = Vec::with_capacity(count * size);
        let steps = dense(&self.shape);
        if count > 0 && self.strides == steps {
            // SAFETY: the protocol requires the elements to be at this address for as long as the owner exists, which
            // is kept.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(self.at, count * size) });
        } else {
            for k in 0..count as i64 {
                let place = steps.iter().zip(&self.shape).zip(&self.strides);
                let at: i64 = place.map(|((step, n), stride)| k / step % *n as i64 * stride).sum();
                let at = self.at.wrapping_offset(at as isize * size as isize);
                // SAFETY: as above.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, size) });
            }
        }
        let literal = Literal::from_bytes(ty, &bytes)
            .ok_or_else(|| PyValueError::new_err("the array's memory does not match its shape"))?;
        Ok(tensorloom::engine().literal(&literal))
    }
}

/// Elements of a tensor behind Python's buffer protocol.
#[pyclass(module = "tensorloom", frozen)]
pub(crate) struct Memory {
    elements: Elements,
    shape: Vec<isize>,
    strides: Vec<isize>,
    format: &'static CStr,
}

impl Memory {
    /// Types that Python's memory doesn't know are shown as unsigned integers if they are wanted `raw`.
    pub(crate) fn new(elements: Elements, raw: bool) -> PyResult<Memory> {
        let ty = elements.ty();
        let format = match ty.dtype {
            DType::Bool => c"?",
            DType::I8 => c"b",
            DType::I16 => c"h",
            DType::I32 => c"i",
            DType::I64 => c"q",
            DType::U8 => c"B",
            DType::U16 => c"H",
            DType::U32 => c"I",
            DType::U64 => c"Q",
            DType::F16 => c"e",
            DType::F32 => c"f",
            DType::F64 => c"d",
            d if raw && d.size() == 1 => c"B",
            d if raw && d.size() == 2 => c"H",
            d => {
                return Err(PyBufferError::new_err(format!(
                    "the buffer protocol does not support {d}; convert it first"
                )));
            }
        };
        let size = ty.dtype.size() as i64;
        let shape = ty.shape.iter().map(|&n| n as isize).collect();
        let strides = dense(&ty.shape).iter().map(|s| (s * size) as isize).collect();
        Ok(Memory { elements, shape, strides, format })
    }
}

#[pymethods]
impl Memory {
    /// # Safety
    /// Called by Python with a buffer to fill in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to fill in"));
        }
        let m = slf.get();
        let asked = |flag: c_int| flags & flag == flag;
        // SAFETY: `view` is valid for a write; everything in it lives as long as the object that it refers to.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            if asked(ffi::PyBUF_WRITABLE) {
                return Err(PyBufferError::new_err("a tensor's memory is read-only; make a copy to write to"));
            }
            let none = std::ptr::null_mut();
            (*view).buf = m.elements.at().cast();
            (*view).len = m.elements.ty().bytes() as isize;
            (*view).readonly = 1;
            (*view).itemsize = m.elements.ty().dtype.size() as isize;
            (*view).format = if asked(ffi::PyBUF_FORMAT) { m.format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).ndim = m.shape.len() as c_int;
            (*view).shape = if asked(ffi::PyBUF_ND) { m.shape.as_ptr().cast_mut() } else { none };
            (*view).strides = if asked(ffi::PyBUF_STRIDES) { m.strides.as_ptr().cast_mut() } else { none };
            (*view).suboffsets = none;
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}

/// Fills in a buffer with a tensor's elements.
///
/// # Safety
/// `view` is a buffer to fill in.
pub(crate) unsafe fn fill(py: Python<'_>, t: &Tensor, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let memory = Memory::new(Elements::of(py, t)?, false)?;
    let memory = Py::new(py, memory)?;
    // SAFETY: the object has the buffer protocol, and `view` is valid to fill in, or null, which is refused.
    match unsafe { ffi::PyObject_GetBuffer(memory.as_ptr(), view, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}
