//! The tensor: its operators, indices and attributes, and how it is read back into Python.

use crate::args::{meeting, operand};
use crate::creation::{from_list, is_list, tensor_from};
use crate::dtype::{PyDType, name};
use crate::interrupt::without_gil;
use crate::memory::{Elements, Memory};
use crate::to_py_err;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyEllipsis, PyInt, PyList, PySlice, PyTuple};
use tensorloom::{DType, Index, Literal, Operand, Tensor, Type, np};

/// A tensor: an array whose computation is recorded, and done when it is read.
#[pyclass(name = "Tensor", module = "tensorloom", frozen, weakref)]
pub(crate) struct PyTensor(pub(crate) Tensor);

pub(crate) fn wrap(py: Python<'_>, t: Tensor) -> PyResult<Py<PyTensor>> {
    t.check().map_err(|e| to_py_err(&e))?;
    Py::new(py, PyTensor(t))
}

/// What a plain index takes; none if it is not a plain one.
fn picks(index: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Index>>> {
    let items: Vec<Bound<'_, PyAny>> = match index.cast::<PyTuple>() {
        Ok(t) => t.iter().collect(),
        Err(_) => vec![index.clone()],
    };
    let mut out = Vec::with_capacity(items.len());
    for i in items {
        out.push(if i.is_none() {
            Index::New
        } else if i.is_instance_of::<PyEllipsis>() {
            Index::Remaining
        } else if let Ok(s) = i.cast::<PySlice>() {
            let part = |name: &str| edge(&s.getattr(name)?);
            let step = part("step")?.unwrap_or(1);
            if step == 0 {
                return Err(PyValueError::new_err("the step of a slice must not be zero"));
            }
            Index::Range { start: part("start")?, end: part("stop")?, step }
        } else if i.is_instance_of::<PyBool>() {
            return Ok(None);
        } else if i.is_instance_of::<PyInt>() {
            Index::At(i.extract().map_err(|_| PyIndexError::new_err(format!("index {i} is out of range")))?)
        } else {
            return Ok(None);
        });
    }
    Ok(Some(out))
}

/// A bound of a slice: whatever has `__index__`. One beyond all axes is as good as their end.
fn edge(x: &Bound<'_, PyAny>) -> PyResult<Option<isize>> {
    if x.is_none() {
        return Ok(None);
    }
    let n = x.py().import("operator")?.call_method1("index", (x,))?;
    Ok(Some(match n.extract::<isize>() {
        Ok(n) => n,
        Err(_) if n.lt(0)? => -isize::MAX,
        Err(_) => isize::MAX,
    }))
}

fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("tensorloom._index")?.getattr(name)
}

impl PyTensor {
    fn literal(&self, py: Python<'_>) -> PyResult<Literal> {
        let t = self.0.clone();
        without_gil(py, move || t.to_literal()).map_err(|e| to_py_err(&e))
    }

    /// An array of the same memory, for looking at.
    fn shown(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.array(py, Elements::read_only(py, &self.0)?)
    }

    fn array(&self, py: Python<'_>, elements: Elements) -> PyResult<Py<PyAny>> {
        let numpy = py.import("numpy")?;
        let d = self.0.dtype();
        let memory = Py::new(py, Memory::new(elements, true)?)?;
        let x = numpy.call_method1("asarray", (memory,))?;
        if is_numpys(d) { Ok(x.unbind()) } else { x.call_method1("view", (numpy_dtype(py, d)?,)).map(Bound::unbind) }
    }

    fn scalar(&self, py: Python<'_>, what: &str) -> PyResult<Literal> {
        if self.0.numel() != 1 {
            return Err(PyTypeError::new_err(format!(
                "{what} of a tensor of shape {:?}; it must have one element",
                self.0.shape()
            )));
        }
        self.literal(py)
    }

    /// The one element as a number of Python's.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        use pyo3::IntoPyObjectExt;
        let l = self.scalar(py, "the item")?;
        match self.0.dtype() {
            DType::Bool => (l.to_vec::<f64>()[0] != 0.0).into_py_any(py),
            DType::U64 => l.to_vec::<u64>()[0].into_py_any(py),
            d if d.is_float() => l.to_vec::<f64>()[0].into_py_any(py),
            _ => l.to_vec::<i64>()[0].into_py_any(py),
        }
    }

    fn with(
        &self,
        py: Python<'_>,
        other: &Bound<'_, PyAny>,
        f: fn(Operand, Operand) -> Tensor,
        swap: bool,
    ) -> PyResult<Py<PyAny>> {
        let read = match is_list(other) {
            true => meeting(other, &[other.clone(), Py::new(py, PyTensor(self.0.clone()))?.into_bound(py).into_any()])
                .map(Operand::Tensor),
            false => operand(other),
        };
        let other = match read {
            Ok(x) => x,
            // A number that no type holds; other objects may know what to do with a tensor.
            Err(e) if e.is_instance_of::<PyOverflowError>(py) => return Err(e),
            // An array that can't be read: without an error, `==` would compare the objects.
            Err(e) if other.hasattr("__array_interface__")? => return Err(e),
            Err(_) => return Ok(py.NotImplemented()),
        };
        let own = Operand::Tensor(self.0.clone());
        let t = if swap { f(other, own) } else { f(own, other) };
        Ok(wrap(py, t)?.into_any())
    }
}

impl PyTensor {
    /// The same for operators that complex numbers have too: there a tensor of floats becomes a complex one.
    fn complex_or(
        &self,
        py: Python<'_>,
        other: &Bound<'_, PyAny>,
        name: &str,
        f: fn(Operand, Operand) -> Tensor,
        swap: bool,
    ) -> PyResult<Py<PyAny>> {
        if !other.is_instance_of::<PyComplex>() {
            return self.with(py, other, f, swap);
        }
        let own = Py::new(py, PyTensor(self.0.clone()))?;
        py.import("tensorloom._complex")?.call_method1("with_number", (own, name, other)).map(Bound::unbind)
    }
}

impl PyTensor {
    /// The same for sums and products, which two bools have too, as in NumPy.
    fn bools_or(
        &self,
        py: Python<'_>,
        other: &Bound<'_, PyAny>,
        bools: fn(&Tensor, &Tensor) -> Tensor,
        name: &str,
        f: fn(Operand, Operand) -> Tensor,
        swap: bool,
    ) -> PyResult<Py<PyAny>> {
        let is_bool = |x: &Bound<'_, PyAny>| match x.cast::<PyTensor>() {
            Ok(t) => t.get().0.dtype() == DType::Bool,
            Err(_) => x.is_instance_of::<PyBool>(),
        };
        if self.0.dtype() == DType::Bool && is_bool(other) {
            return Ok(wrap(py, bools(&self.0, &tensor_from(other)?))?.into_any());
        }
        self.complex_or(py, other, name, f, swap)
    }
}

fn matmul(a: Operand, b: Operand) -> Tensor {
    match (&a, &b) {
        (Operand::Tensor(a), Operand::Tensor(b)) => np::matmul(a, b),
        // A number is no matrix; the error says so.
        (Operand::Tensor(t), n) | (n, Operand::Tensor(t)) => np::matmul(t, &n.to_tensor_like(t)),
        _ => np::add(a, b),
    }
}

/// `//` as the array API's standard has it: where NumPy gives NaN or -1 for an infinity, this gives the quotient.
fn floor_divide(a: Operand, b: Operand) -> Tensor {
    let y = np::floor_divide(a.clone(), b.clone());
    if !y.dtype().is_float() || y.check().is_err() {
        return y;
    }
    let (a, b) = match (&a, &b) {
        (Operand::Tensor(t), n) => (t.clone(), n.to_tensor_like(t)),
        (n, Operand::Tensor(t)) => (n.to_tensor_like(t), t.clone()),
        _ => return y,
    };
    let infinite = np::logical_or(&np::isinf(&a), &np::isinf(&b));
    np::where_(&infinite, &np::divide(&a, &b), &y)
}

#[pymethods]
impl PyTensor {
    fn __add__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.bools_or(py, other, np::logical_or, "__add__", np::add, false)
    }

    fn __radd__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.bools_or(py, other, np::logical_or, "__radd__", np::add, true)
    }

    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.complex_or(py, other, "__sub__", np::subtract, false)
    }

    fn __rsub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.complex_or(py, other, "__rsub__", np::subtract, true)
    }

    fn __mul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.bools_or(py, other, np::logical_and, "__mul__", np::multiply, false)
    }

    fn __rmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.bools_or(py, other, np::logical_and, "__rmul__", np::multiply, true)
    }

    fn __truediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.complex_or(py, other, "__truediv__", np::divide, false)
    }

    fn __rtruediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.complex_or(py, other, "__rtruediv__", np::divide, true)
    }

    fn __floordiv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, floor_divide, false)
    }

    fn __rfloordiv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, floor_divide, true)
    }

    fn __mod__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::remainder, false)
    }

    fn __rmod__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::remainder, true)
    }

    fn __and__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::bitwise_and, false)
    }

    fn __rand__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::bitwise_and, true)
    }

    fn __or__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::bitwise_or, false)
    }

    fn __ror__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::bitwise_or, true)
    }

    fn __xor__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::bitwise_xor, false)
    }

    fn __rxor__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::bitwise_xor, true)
    }

    fn __lshift__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::left_shift, false)
    }

    fn __rlshift__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::left_shift, true)
    }

    fn __rshift__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::right_shift, false)
    }

    fn __rrshift__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::right_shift, true)
    }

    fn __matmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, matmul, false)
    }

    fn __rmatmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, matmul, true)
    }

    /// Arrays of NumPy leave operators to tensors, so that `array * tensor` is a tensor, of a trace too.
    #[classattr]
    fn __array_priority__() -> f64 {
        100.0
    }

    /// Sizes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// Number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.rank()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.0.numel()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.numel() * self.0.dtype().size()
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.dtype().size()
    }

    /// Whether it belongs to a trace, and has no value.
    #[getter]
    fn _traced(&self) -> bool {
        self.0.engine().is_none()
    }

    /// Where it is.
    #[getter]
    fn device(&self) -> &'static str {
        "cpu"
    }

    /// The axes in reverse order.
    #[getter(T)]
    fn t(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, np::transpose(&self.0, ()))
    }

    /// The last two axes exchanged.
    #[getter(mT)]
    fn mt(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, np::matrix_transpose(&self.0))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self._traced() {
            return Ok(format!("Tensor({:?}, dtype={}, traced)", self.0.shape(), name(self.0.dtype())));
        }
        // Without `ml_dtypes`, NumPy shows narrow floats as float32.
        let x = match self.shown(py) {
            Err(_) if !is_numpys(self.0.dtype()) => PyTensor(self.0.cast(DType::F32)).shown(py)?,
            x => x?,
        };
        let text: String =
            py.import("numpy")?.call_method("array2string", (x,), Some(&repr_options(py)?))?.extract()?;
        let text = text.replace('\n', "\n       ");
        Ok(format!("Tensor({text}, dtype={})", name(self.0.dtype())))
    }

    /// One element as a number; several only as text.
    fn __format__(&self, py: Python<'_>, spec: &str) -> PyResult<Py<PyAny>> {
        let text = match self.0.rank() {
            0 if !self._traced() => self.item(py)?,
            _ => pyo3::types::PyString::new(py, &self.__repr__(py)?).into_any().unbind(),
        };
        py.import("builtins")?.getattr("format")?.call1((text, spec)).map(Bound::unbind)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.0.shape().first().copied().ok_or_else(|| PyTypeError::new_err("a tensor of rank 0 has no length"))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let n = self.__len__()?;
        let rows: Vec<Py<PyTensor>> = (0..n).map(|i| wrap(py, self.0.i(i))).collect::<PyResult<_>>()?;
        Ok(PyList::new(py, rows)?.into_any().try_iter()?.into_any().unbind())
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr() as usize >> 4
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.scalar(py, "the truth")?.to_vec::<f64>()[0] != 0.0)
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.scalar(py, "the number")?.to_vec::<f64>()[0])
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let x = self.item(py)?;
        py.import("builtins")?.getattr("int")?.call1((x,)).map(Bound::unbind)
    }

    fn __complex__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let x = self.item(py)?;
        py.import("builtins")?.getattr("complex")?.call1((x,)).map(Bound::unbind)
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.0.dtype().is_float() || self.0.dtype() == DType::Bool {
            return Err(PyTypeError::new_err(format!(
                "a tensor of {} is not an index; use integers",
                name(self.0.dtype())
            )));
        }
        self.item(py)
    }

    /// The one element as a number of Python's; or the element at a place, counted through all of them or by its indices.
    #[pyo3(name = "item", signature = (*args))]
    fn item_at(slf: &Bound<'_, Self>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let element = match args.len() {
            0 => return slf.get().item(py),
            1 if args.get_item(0)?.is_instance_of::<PyTuple>() => slf.get_item(args.get_item(0)?)?,
            1 => wrap(py, slf.get().0.reshape([-1isize]))?.into_bound(py).get_item(args.get_item(0)?)?,
            _ => slf.get_item(args)?,
        };
        element.cast::<PyTensor>()?.get().item(py)
    }

    /// An array of NumPy's of the same memory, read-only; with `copy=True`, one of its own.
    #[pyo3(signature = (copy=false))]
    fn numpy(&self, py: Python<'_>, copy: bool) -> PyResult<Py<PyAny>> {
        let x = self.array(py, Elements::of(py, &self.0)?)?;
        if copy { x.call_method0(py, "copy") } else { Ok(x) }
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(&self, py: Python<'_>, dtype: Option<Bound<'_, PyAny>>, copy: Option<bool>) -> PyResult<Py<PyAny>> {
        let x = self.numpy(py, copy == Some(true))?;
        let Some(d) = dtype.filter(|d| !d.is_none()) else { return Ok(x) };
        let d = py.import("numpy")?.call_method1("dtype", (d,))?;
        if x.getattr(py, "dtype")?.bind(py).eq(&d)? {
            return Ok(x);
        }
        match copy {
            Some(false) => Err(PyValueError::new_err(format!(
                "converting a tensor of {} to {d} needs a copy",
                name(self.0.dtype())
            ))),
            _ => x.call_method1(py, "astype", (d,)),
        }
    }

    /// # Safety
    /// Called by Python with a buffer to fill in.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut pyo3::ffi::Py_buffer,
        flags: std::ffi::c_int,
    ) -> PyResult<()> {
        // SAFETY: Python calls this with a buffer that is valid to fill in, or null, which is refused.
        unsafe { crate::memory::fill(slf.py(), &slf.get().0, view, flags) }
    }

    /// Nested lists of numbers.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.0.rank() == 0 {
            return self.item(py);
        }
        self.shown(py)?.call_method0(py, "tolist")
    }

    /// Computes it now.
    fn block_until_ready(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let t = slf.get().0.clone();
        without_gil(slf.py(), move || tensorloom::block_until_ready(t)).map_err(|e| to_py_err(&e))?;
        Ok(slf)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<Py<PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let _ = stream;
        if dl_device.is_some_and(|d| d != (1, 0)) {
            return Err(pyo3::exceptions::PyBufferError::new_err("the tensor can only be exported to the CPU"));
        }
        // What is shared is read-only. A capsule from before version 1.0 can't say so, and holds a copy.
        let flagged = max_version.is_some_and(|v| v.0 >= 1);
        if copy == Some(false) && !flagged {
            return Err(pyo3::exceptions::PyBufferError::new_err(
                "a tensor's memory is read-only, which DLPack before version 1.0 cannot express; use max_version=(1, \
                 0), or allow a copy",
            ));
        }
        let shared = flagged && copy != Some(true);
        let elements = if shared { Elements::of(py, &self.0)? } else { Elements::copied(py, &self.0)? };
        crate::dlpack::export(py, elements, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    #[pyo3(signature = (*, api_version=None))]
    fn __array_namespace__<'py>(&self, py: Python<'py>, api_version: Option<String>) -> PyResult<Bound<'py, PyAny>> {
        let known = ["2021.12", "2022.12", "2023.12", "2024.12"];
        if let Some(v) = api_version.filter(|v| !known.contains(&v.as_str())) {
            return Err(PyValueError::new_err(format!("array API version {v}; there are {}", known.join(", "))));
        }
        Ok(py.import("tensorloom.array_api")?.into_any())
    }

    #[pyo3(signature = (device, /, *, stream=None))]
    fn to_device<'py>(slf: Bound<'py, Self>, device: &str, stream: Option<Py<PyAny>>) -> PyResult<Bound<'py, Self>> {
        let _ = stream;
        match device {
            "cpu" => Ok(slf),
            d => Err(PyValueError::new_err(format!("device {d:?}; arrays are on \"cpu\""))),
        }
    }

    fn __getitem__(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let Some(picks) = picks(index)? else {
            return helper(py, "get")?.call1((slf, index)).map(Bound::unbind);
        };
        let t = &slf.get().0;
        bounds(t, &picks)?;
        let y = if picks.is_empty() { t.clone() } else { t.i(&picks[..]) };
        Ok(wrap(py, y)?.into_any())
    }

    fn __setitem__(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let t = &slf.get().0;
        if t.is_expanded() {
            return Err(PyValueError::new_err(
                "assignment destination is read-only: it is a view of a result of broadcast_to; write to a copy of it",
            ));
        }
        let Some(picks) =
            picks(index)?.filter(|p| !p.iter().any(|p| matches!(p, Index::Range { step, .. } if *step < 0)))
        else {
            return helper(py, "set")?.call1((slf, index, value)).map(drop);
        };
        bounds(t, &picks)?;
        let place = if picks.is_empty() { t.clone() } else { t.i(&picks[..]) };
        place.check().map_err(|e| to_py_err(&e))?;
        let value = match is_list(value) {
            true => from_list(value, Some(place.dtype()))?,
            false => match operand(value)? {
                Operand::Tensor(v) => v,
                n => n.to_tensor_like(&place),
            },
        };
        let value = if value.dtype() == place.dtype() { value } else { value.cast(place.dtype()) };
        place.copy_(&np::broadcast_to(&value, place.shape()));
        t.check().map_err(|e| to_py_err(&e))
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, np::negative(&self.0))
    }

    fn __pos__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, self.0.copy())
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, np::abs(&self.0))
    }

    /// Rounded to so many decimals, to the even one of two; without them, one number as an integer of Python's.
    #[pyo3(signature = (ndigits=None))]
    fn __round__(slf: &Bound<'_, Self>, ndigits: Option<i32>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        match (ndigits, slf.get().0.rank()) {
            (None, 0) => {
                let x = slf.get().item(py)?;
                py.import("builtins")?.getattr("round")?.call1((x,)).map(Bound::unbind)
            }
            (n, _) => py.import("tensorloom.numpy")?.call_method1("round", (slf, n.unwrap_or(0))).map(Bound::unbind),
        }
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, np::bitwise_not(&self.0))
    }

    fn __pow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, modulo: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() {
            return Ok(py.NotImplemented());
        }
        self.complex_or(py, other, "__pow__", np::power, false)
    }

    fn __rpow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, modulo: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() {
            return Ok(py.NotImplemented());
        }
        self.complex_or(py, other, "__rpow__", np::power, true)
    }

    fn __divmod__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        Ok((self.with(py, other, floor_divide, false)?, self.with(py, other, np::remainder, false)?))
    }

    fn __rdivmod__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        Ok((self.with(py, other, floor_divide, true)?, self.with(py, other, np::remainder, true)?))
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: pyo3::basic::CompareOp) -> PyResult<Py<PyAny>> {
        use pyo3::basic::CompareOp;
        let f: fn(Operand, Operand) -> Tensor = match op {
            CompareOp::Lt => np::less,
            CompareOp::Le => np::less_equal,
            CompareOp::Eq => np::equal,
            CompareOp::Ne => np::not_equal,
            CompareOp::Gt => np::greater,
            CompareOp::Ge => np::greater_equal,
        };
        match op {
            CompareOp::Eq => self.complex_or(py, other, "__eq__", f, false),
            CompareOp::Ne => self.complex_or(py, other, "__ne__", f, false),
            _ => self.with(py, other, f, false),
        }
    }

    /// Methods are the functions of `tensorloom.numpy` with the tensor as their first argument.
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if name.starts_with("__") {
            return Err(pyo3::exceptions::PyAttributeError::new_err(name.to_string()));
        }
        py.import("tensorloom._methods")?.call_method1("method", (slf, name)).map(Bound::unbind)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (Py<PyAny>, String))> {
        let f = py.import("tensorloom")?.getattr("_unpickle")?.unbind();
        let bytes = pyo3::types::PyBytes::new(py, self.literal(py)?.bytes()).into_any().unbind();
        let shape: Vec<String> = self.0.shape().iter().map(usize::to_string).collect();
        Ok((f, (bytes, format!("{}:{}", name(self.0.dtype()), shape.join(",")))))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, self.0.copy())
    }

    fn __deepcopy__(&self, py: Python<'_>, memo: Py<PyAny>) -> PyResult<Py<PyTensor>> {
        let _ = memo;
        self.__copy__(py)
    }
}

/// Indices outside are Python's `IndexError`, by which old loops over sequences end.
fn bounds(t: &Tensor, picks: &[Index]) -> PyResult<()> {
    let named = picks.iter().filter(|p| matches!(p, Index::At(_) | Index::Range { .. })).count();
    if named > t.rank() {
        return Err(PyIndexError::new_err(format!("{named} indices for a tensor of {} axes", t.rank())));
    }
    let mut axis = 0;
    if picks.iter().filter(|p| matches!(p, Index::Remaining)).count() > 1 {
        return Err(PyIndexError::new_err("an index can have at most one ellipsis (...)"));
    }
    for p in picks {
        match p {
            Index::New => continue,
            Index::Remaining => axis = t.rank() - picks_after(picks),
            Index::At(i) => {
                let n = t.shape()[axis] as isize;
                if *i >= n || *i < -n {
                    return Err(PyIndexError::new_err(format!("index {i} is out of range for an axis of size {n}")));
                }
                axis += 1;
            }
            _ => axis += 1,
        }
    }
    Ok(())
}

fn picks_after(picks: &[Index]) -> usize {
    let at = picks.iter().position(|p| matches!(p, Index::Remaining)).unwrap_or(picks.len());
    picks[at..].iter().filter(|p| matches!(p, Index::At(_) | Index::Range { .. })).count()
}

fn repr_options<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("separator", ", ")?;
    d.set_item("threshold", 1000)?;
    Ok(d)
}

/// Whether NumPy has the type itself.
fn is_numpys(d: DType) -> bool {
    !matches!(d, DType::BF16 | DType::F8E4M3 | DType::F8E5M2)
}

/// NumPy's type; those that NumPy lacks come from `ml_dtypes`.
pub(crate) fn numpy_dtype<'py>(py: Python<'py>, d: DType) -> PyResult<Bound<'py, PyAny>> {
    let n = name(d);
    if !is_numpys(d) {
        let m = py.import("ml_dtypes").map_err(|_| {
            PyTypeError::new_err(format!("NumPy has no {n}; install ml_dtypes, or convert with x.astype(\"float32\")"))
        })?;
        return m.getattr(n);
    }
    py.import("numpy")?.call_method1("dtype", (n,))
}

/// A tensor from the bytes of a pickle.
#[pyfunction]
fn _from_bytes(py: Python<'_>, bytes: &[u8], dtype: &Bound<'_, PyAny>, shape: Vec<usize>) -> PyResult<Py<PyTensor>> {
    let ty = Type::new(crate::dtype::dtype(dtype)?, &shape);
    let l = Literal::from_bytes(ty, bytes).ok_or_else(|| PyValueError::new_err("the bytes do not match the shape"))?;
    wrap(py, tensorloom::engine().literal(&l))
}

/// The same values; gradients don't pass.
#[pyfunction]
fn _stop_gradient(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
    wrap(py, tensor_from(x)?.stop_gradient())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_stop_gradient, m)?)?;
    m.add_function(wrap_pyfunction!(crate::creation::asarray, m)?)?;
    m.add_function(wrap_pyfunction!(crate::creation::_is_array, m)?)?;
    m.add_function(wrap_pyfunction!(_from_bytes, m)?)
}
