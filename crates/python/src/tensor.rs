//! The tensor: made from Python's numbers, lists and arrays, read back into them, with Python's operators.

use crate::args::{number, operand};
use crate::dtype::{PyDType, dtype, name};
use crate::memory::{Elements, Foreign, Memory, dense};
use crate::raised;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyEllipsis, PyInt, PyList, PySlice, PyTuple};
use std::sync::Arc;
use tensorloom::{DType, Literal, Number, Operand, Pick, Tensor, Type, np};

/// A tensor: an array whose computation is recorded, and done when it is read.
#[pyclass(name = "Tensor", module = "tensorloom", frozen, weakref)]
pub(crate) struct PyTensor(pub(crate) Tensor);

fn wrap(py: Python<'_>, t: Tensor) -> PyResult<Py<PyTensor>> {
    t.check().map_err(|e| raised(&e))?;
    Py::new(py, PyTensor(t))
}

/// The dtype of a number of Python's that stands alone.
fn alone(n: Number) -> DType {
    match n {
        Number::Float(_) => DType::F32,
        Number::Int(i) if i32::try_from(i).is_ok() => DType::I32,
        Number::Int(_) => DType::I64,
        Number::Unsigned(_) => DType::U64,
    }
}

/// A tensor from any object that is one in some way.
pub(crate) fn tensor_from(x: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    tensor_of(x, None)
}

/// The same, with or without a copy. Unless one is forbidden, a copy is made of memory that may be written to: work is recorded
/// and done later, when the memory may hold something else.
fn tensor_of(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    if let Ok(t) = x.cast::<PyTensor>() {
        let t = &t.get().0;
        return Ok(if copy == Some(true) { t.copy() } else { t.clone() });
    }
    let plain = if let Ok(b) = x.cast::<PyBool>() {
        Some(tensorloom::engine().tensor(&[b.is_true()], &[]))
    } else if let Some(n) = number(x)? {
        Some(tensorloom::engine().full(alone(n), &[], n))
    } else {
        None
    };
    let listed = x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
    if copy == Some(false) && (plain.is_some() || listed) {
        return Err(PyValueError::new_err("numbers and lists have no memory to be used without a copy"));
    }
    if let Some(t) = plain {
        return Ok(t);
    }
    if x.hasattr("__array_interface__")? {
        return from_array(x, copy);
    }
    if listed {
        return from_list(x, None);
    }
    if x.hasattr("__dlpack__")? {
        return crate::dlpack::import(x, Some(copy.unwrap_or(true)));
    }
    // SAFETY: it is asked whether it has the protocol.
    if unsafe { pyo3::ffi::PyObject_CheckBuffer(x.as_ptr()) } == 1 {
        let view = x.py().import("builtins")?.call_method1("memoryview", (x,))?;
        return from_array(&x.py().import("numpy")?.call_method1("asarray", (view,))?, copy);
    }
    if x.hasattr("__array__")? {
        return from_array(&x.call_method0("__array__")?, copy);
    }
    Err(PyTypeError::new_err(format!("{} can't become a tensor; give a number, a list or an array", x.get_type())))
}

/// From an array of NumPy's or one that shows its memory in the same way. Unless a copy is forbidden, one is made of what may be
/// written to.
fn from_array(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    let (foreign, read_only) = shown(x, copy == Some(false))?;
    foreign.tensor(copy.or((!read_only).then_some(true)))
}

/// The memory that an array shows, and whether it is read-only. What can't be described by strides in elements is copied, unless
/// that is forbidden.
pub(crate) fn shown(x: &Bound<'_, PyAny>, forbidden: bool) -> PyResult<(Foreign, bool)> {
    let numpy = x.py().import("numpy")?;
    // Numbers of NumPy's show memory that is gone at once; an array of them stays.
    let x = if x.is_instance(&numpy.getattr("ndarray")?)? { x.clone() } else { numpy.call_method1("asarray", (x,))? };
    let d = dtype(&x.getattr("dtype")?)?;
    let face = x.getattr("__array_interface__")?;
    let typestr: String = face.get_item("typestr")?.extract()?;
    if typestr.starts_with('>') {
        return Err(PyTypeError::new_err(
            "the array has the other byte order; use x.astype(x.dtype.newbyteorder('='))",
        ));
    }
    let shape: Vec<usize> = face.get_item("shape")?.extract()?;
    let (at, read_only): (usize, bool) = face.get_item("data")?.extract()?;
    let size = d.size() as i64;
    let strides = match face.get_item("strides")?.extract::<Option<Vec<i64>>>()? {
        None => dense(&shape),
        Some(bytes) if bytes.iter().all(|b| b % size == 0) => bytes.iter().map(|b| b / size).collect(),
        Some(_) if forbidden => {
            return Err(PyValueError::new_err("the array can't be used without a copy: it is a part of records"));
        }
        Some(_) => return shown(&numpy.call_method1("array", (x,))?, false),
    };
    let owner: Arc<Py<PyAny>> = Arc::new(x.unbind());
    let at = std::ptr::with_exposed_provenance_mut(at);
    Ok((Foreign { at, dtype: d, shape, strides, owner }, read_only))
}

enum Element {
    Bool(bool),
    Number(Number),
}

/// From lists of numbers. Tensors and arrays inside are stacked.
fn from_list(x: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<Tensor> {
    let (mut shape, mut flat) = (Vec::new(), Vec::new());
    if !elements(x, 0, &mut shape, &mut flat)? {
        let parts: Vec<Tensor> = x.try_iter()?.map(|e| tensor_from(&e?)).collect::<PyResult<_>>()?;
        return Ok(np::stack(&parts.iter().collect::<Vec<_>>(), 0));
    }
    let d = wanted.unwrap_or_else(|| {
        let floats = flat.iter().any(|e| matches!(e, Element::Number(Number::Float(_))));
        let bools = !flat.is_empty() && flat.iter().all(|e| matches!(e, Element::Bool(_)));
        let large = flat.iter().filter_map(|e| match e {
            Element::Number(n) => Some(alone(*n)),
            Element::Bool(_) => None,
        });
        match (floats || flat.is_empty(), bools) {
            (true, _) => DType::F32,
            (_, true) => DType::Bool,
            _ => large.max_by_key(|d| (*d == DType::U64, *d == DType::I64)).unwrap_or(DType::I32),
        }
    });
    let e = tensorloom::engine();
    Ok(if d.is_float() {
        let list: Vec<f64> = flat
            .iter()
            .map(|e| match e {
                Element::Bool(b) => f64::from(u8::from(*b)),
                Element::Number(Number::Float(x)) => *x,
                Element::Number(Number::Int(i)) => *i as f64,
                Element::Number(Number::Unsigned(u)) => *u as f64,
            })
            .collect();
        e.tensor(&list, &shape).cast(d)
    } else {
        let list: Vec<i64> = flat
            .iter()
            .map(|e| match e {
                Element::Bool(b) => i64::from(*b),
                Element::Number(Number::Float(x)) => *x as i64,
                Element::Number(Number::Int(i)) => *i,
                Element::Number(Number::Unsigned(u)) => *u as i64,
            })
            .collect();
        e.tensor(&list, &shape).cast(d)
    })
}

/// Collects numbers of nested lists; false if there is something else in them.
fn elements(x: &Bound<'_, PyAny>, depth: usize, shape: &mut Vec<usize>, flat: &mut Vec<Element>) -> PyResult<bool> {
    if let Ok(b) = x.cast::<PyBool>() {
        flat.push(Element::Bool(b.is_true()));
    } else if let Some(n) = number(x)? {
        flat.push(Element::Number(n));
    } else if x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>() {
        let n = x.len()?;
        match shape.get(depth) {
            None if flat.is_empty() => shape.push(n),
            Some(m) if *m == n => {}
            _ => return Err(PyValueError::new_err("the lists inside have different lengths")),
        }
        for e in x.try_iter()? {
            if !elements(&e?, depth + 1, shape, flat)? {
                return Ok(false);
            }
        }
        return Ok(true);
    } else {
        return Ok(false);
    }
    if depth != shape.len() {
        return Err(PyValueError::new_err("numbers and lists stand side by side"));
    }
    Ok(true)
}

/// A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
/// change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied.
#[pyfunction]
#[pyo3(signature = (x, dtype=None, *, copy=None))]
fn asarray(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Py<PyTensor>> {
    let wanted = dtype.filter(|d| !d.is_none()).map(crate::dtype::dtype).transpose()?;
    let listed = x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
    let t = match (listed && copy != Some(false), wanted) {
        (true, wanted) => from_list(x, wanted)?,
        // A number keeps its digits: 0.1 as float64 isn't a float32 first.
        (_, Some(d)) if copy != Some(false) => match number(x)? {
            Some(n) => tensorloom::engine().full(d, &[], n),
            None => tensor_of(x, copy)?,
        },
        _ => tensor_of(x, copy)?,
    };
    match wanted.filter(|d| t.dtype() != *d) {
        None => wrap(py, t),
        Some(d) if copy == Some(false) => {
            Err(PyValueError::new_err(format!("{} can't become {} without a copy", name(t.dtype()), name(d))))
        }
        Some(d) => wrap(py, t.cast(d)),
    }
}

/// What a plain index takes; none if it is not a plain one.
fn picks(index: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Pick>>> {
    let items: Vec<Bound<'_, PyAny>> = match index.cast::<PyTuple>() {
        Ok(t) => t.iter().collect(),
        Err(_) => vec![index.clone()],
    };
    let mut out = Vec::with_capacity(items.len());
    for i in items {
        out.push(if i.is_none() {
            Pick::New
        } else if i.is_instance_of::<PyEllipsis>() {
            Pick::Rest
        } else if let Ok(s) = i.cast::<PySlice>() {
            let part = |name: &str| s.getattr(name)?.extract::<Option<isize>>();
            let step = part("step")?.unwrap_or(1);
            if step == 0 {
                return Err(PyValueError::new_err("a slice's step is not zero"));
            }
            Pick::Range { start: part("start")?, end: part("stop")?, step }
        } else if i.is_instance_of::<PyBool>() {
            return Ok(None);
        } else if i.is_instance_of::<PyInt>() {
            Pick::At(i.extract()?)
        } else {
            return Ok(None);
        });
    }
    Ok(Some(out))
}

fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("tensorloom._index")?.getattr(name)
}

impl PyTensor {
    fn literal(&self, py: Python<'_>) -> PyResult<Literal> {
        let t = self.0.clone();
        py.detach(move || t.to_literal()).map_err(|e| raised(&e))
    }

    fn scalar(&self, py: Python<'_>, what: &str) -> PyResult<Literal> {
        if self.0.numel() != 1 {
            return Err(PyTypeError::new_err(format!(
                "{what} of a tensor of shape {:?}; it has to have one element",
                self.0.shape()
            )));
        }
        self.literal(py)
    }

    fn with(
        &self,
        py: Python<'_>,
        other: &Bound<'_, PyAny>,
        f: fn(Operand, Operand) -> Tensor,
        swap: bool,
    ) -> PyResult<Py<PyAny>> {
        let Ok(other) = operand(other) else { return Ok(py.NotImplemented()) };
        let own = Operand::Tensor(self.0.clone());
        let t = if swap { f(other, own) } else { f(own, other) };
        Ok(wrap(py, t)?.into_any())
    }
}

fn matmul(a: Operand, b: Operand) -> Tensor {
    match (&a, &b) {
        (Operand::Tensor(a), Operand::Tensor(b)) => np::matmul(a, b),
        // A number is no matrix; the error says so.
        (Operand::Tensor(t), n) | (n, Operand::Tensor(t)) => np::matmul(t, &n.of(t)),
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
        (Operand::Tensor(t), n) => (t.clone(), n.of(t)),
        (n, Operand::Tensor(t)) => (n.of(t), t.clone()),
        _ => return y,
    };
    let infinite = np::logical_or(&np::isinf(&a), &np::isinf(&b));
    np::where_(&infinite, &np::divide(&a, &b), &y)
}

#[pymethods]
impl PyTensor {
    fn __add__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::add, false)
    }

    fn __radd__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::add, true)
    }

    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::subtract, false)
    }

    fn __rsub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::subtract, true)
    }

    fn __mul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::multiply, false)
    }

    fn __rmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::multiply, true)
    }

    fn __truediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::divide, false)
    }

    fn __rtruediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.with(py, other, np::divide, true)
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
        let x = self.numpy(py, false)?;
        let text: String =
            py.import("numpy")?.call_method("array2string", (x,), Some(&repr_options(py)?))?.extract()?;
        let text = text.replace('\n', "\n       ");
        Ok(format!("Tensor({text}, dtype={})", name(self.0.dtype())))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.0.shape().first().copied().ok_or_else(|| PyTypeError::new_err("a tensor of no axes has no length"))
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
                "a tensor of {} is no index; integers are",
                name(self.0.dtype())
            )));
        }
        self.item(py)
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

    /// An array of NumPy's of the same memory, read-only; with `copy=True`, one of its own.
    #[pyo3(signature = (copy=false))]
    fn numpy(&self, py: Python<'_>, copy: bool) -> PyResult<Py<PyAny>> {
        let numpy = py.import("numpy")?;
        let d = self.0.dtype();
        let memory = Py::new(py, Memory::new(Elements::of(py, &self.0)?, true)?)?;
        let x = numpy.call_method1("asarray", (memory,))?;
        let x = if is_numpys(d) { x } else { x.call_method1("view", (numpy_dtype(py, d)?,))? };
        Ok(if copy { x.call_method0("copy")?.unbind() } else { x.unbind() })
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
            Some(false) => Err(PyValueError::new_err(format!("a tensor of {} as {d} is a copy", name(self.0.dtype())))),
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
        // SAFETY: the caller's promise.
        unsafe { crate::memory::fill(slf.py(), &slf.get().0, view, flags) }
    }

    /// Nested lists of numbers.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.0.rank() == 0 {
            return self.item(py);
        }
        self.numpy(py, false)?.call_method0(py, "tolist")
    }

    /// Computes it now.
    fn block_until_ready(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let t = slf.get().0.clone();
        slf.py().detach(move || tensorloom::block_until_ready(t)).map_err(|e| raised(&e))?;
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
            return Err(pyo3::exceptions::PyBufferError::new_err("the tensor is given to the processor alone"));
        }
        let elements = if copy == Some(true) { Elements::copied(py, &self.0)? } else { Elements::of(py, &self.0)? };
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
        let Some(picks) =
            picks(index)?.filter(|p| !p.iter().any(|p| matches!(p, Pick::Range { step, .. } if *step < 0)))
        else {
            return helper(py, "set")?.call1((slf, index, value)).map(drop);
        };
        bounds(t, &picks)?;
        let place = if picks.is_empty() { t.clone() } else { t.i(&picks[..]) };
        place.check().map_err(|e| raised(&e))?;
        let value = match operand(value)? {
            Operand::Tensor(v) => v,
            n => n.of(&place),
        };
        let value = if value.dtype() == place.dtype() { value } else { value.cast(place.dtype()) };
        place.copy_(&np::broadcast_to(&value, place.shape()));
        t.check().map_err(|e| raised(&e))
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

    fn __invert__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        wrap(py, np::bitwise_not(&self.0))
    }

    fn __pow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, modulo: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() {
            return Ok(py.NotImplemented());
        }
        self.with(py, other, np::power, false)
    }

    fn __rpow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, modulo: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() {
            return Ok(py.NotImplemented());
        }
        self.with(py, other, np::power, true)
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
        self.with(py, other, f, false)
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
fn bounds(t: &Tensor, picks: &[Pick]) -> PyResult<()> {
    let named = picks.iter().filter(|p| matches!(p, Pick::At(_) | Pick::Range { .. })).count();
    if named > t.rank() {
        return Err(PyIndexError::new_err(format!("{named} indices for a tensor of {} axes", t.rank())));
    }
    let mut axis = 0;
    for p in picks {
        match p {
            Pick::New => continue,
            Pick::Rest => axis = t.rank() - picks_after(picks),
            Pick::At(i) => {
                let n = t.shape()[axis] as isize;
                if *i >= n || *i < -n {
                    return Err(PyIndexError::new_err(format!("index {i} of an axis of size {n}")));
                }
                axis += 1;
            }
            _ => axis += 1,
        }
    }
    Ok(())
}

fn picks_after(picks: &[Pick]) -> usize {
    let at = picks.iter().position(|p| matches!(p, Pick::Rest)).unwrap_or(picks.len());
    picks[at..].iter().filter(|p| matches!(p, Pick::At(_) | Pick::Range { .. })).count()
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
fn numpy_dtype<'py>(py: Python<'py>, d: DType) -> PyResult<Bound<'py, PyAny>> {
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
    let l = Literal::from_bytes(ty, bytes).ok_or_else(|| PyValueError::new_err("the bytes don't fit the shape"))?;
    wrap(py, tensorloom::engine().literal(&l))
}

/// The same values; gradients don't pass.
#[pyfunction]
fn _stop_gradient(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
    wrap(py, tensor_from(x)?.stop_gradient())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_stop_gradient, m)?)?;
    m.add_function(wrap_pyfunction!(asarray, m)?)?;
    m.add_function(wrap_pyfunction!(_from_bytes, m)?)
}
