//! Tensors from Python's numbers, lists and arrays.

use crate::args::{is_double, number};
use crate::dtype::{dtype, name};
use crate::memory::{ForeignMemory, dense};
use crate::tensor::{PyTensor, wrap};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList, PyRange, PyString, PyTuple, PyType};
use std::sync::Arc;
use tensorloom::{DType, Number, Tensor, np};

/// The dtype of a number of Python's that stands alone.
fn default_dtype(n: Number) -> DType {
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

/// Whether an object shows an array by one of Python's protocols. Text, bytes and classes don't count.
pub(crate) fn is_array(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if x.is_instance_of::<PyString>() || x.is_instance_of::<PyBytes>() || x.is_instance_of::<PyType>() {
        return Ok(false);
    }
    Ok(x.is_instance_of::<PyTensor>()
        || x.hasattr("__array_interface__")?
        || x.hasattr("__dlpack__")?
        // SAFETY: it is asked whether it has the protocol.
        || unsafe { pyo3::ffi::PyObject_CheckBuffer(x.as_ptr()) } == 1
        || x.hasattr("__array__")?)
}

/// Whether it is a list of elements that may be lists themselves.
pub(crate) fn is_list(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>() || x.is_instance_of::<PyRange>()
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
        Some(tensorloom::engine().full(default_dtype(n), &[], n))
    } else {
        None
    };
    let listed = is_list(x);
    if copy == Some(false) && (plain.is_some() || listed) {
        return Err(PyValueError::new_err("numbers and lists cannot be used without a copy"));
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
    Err(PyTypeError::new_err(format!("cannot convert {} to a tensor; give a number, a list or an array", x.get_type())))
}

/// From an array of NumPy's or one that shows its memory in the same way. Unless a copy is forbidden, one is made of what may be
/// written to.
fn from_array(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    let (foreign, read_only) = exported_memory(x, copy == Some(false))?;
    foreign.tensor(copy.or((!read_only).then_some(true)))
}

/// The memory that an array shows, and whether it is read-only. What can't be described by strides in elements is copied, unless
/// that is forbidden.
pub(crate) fn exported_memory(x: &Bound<'_, PyAny>, forbidden: bool) -> PyResult<(ForeignMemory, bool)> {
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
            return Err(PyValueError::new_err(
                "the array cannot be used without a copy: it is a field of a structured array",
            ));
        }
        Some(_) => return exported_memory(&numpy.call_method1("array", (x,))?, false),
    };
    let owner: Arc<Py<PyAny>> = Arc::new(x.unbind());
    let at = std::ptr::with_exposed_provenance_mut(at);
    Ok((ForeignMemory { at, dtype: d, shape, strides, owner }, read_only))
}

enum ListElement {
    Bool(bool),
    Number(Number),
    /// A float64 of NumPy.
    Double(f64),
}

/// From lists of numbers. Tensors and arrays inside are stacked.
pub(crate) fn from_list(x: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<Tensor> {
    let (mut shape, mut flat) = (Vec::new(), Vec::new());
    if !elements(x, 0, &mut shape, &mut flat)? {
        nested(x, 0)?;
        let list = x.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let parts: Vec<Tensor> = list.iter().map(|e| crate::args::meeting(e, &list)).collect::<PyResult<_>>()?;
        return Ok(np::stack(&parts.iter().collect::<Vec<_>>(), 0));
    }
    let d = wanted.unwrap_or_else(|| {
        if flat.iter().any(|e| matches!(e, ListElement::Double(_))) {
            return DType::F64;
        }
        let floats = flat.iter().any(|e| matches!(e, ListElement::Number(Number::Float(_))));
        let bools = !flat.is_empty() && flat.iter().all(|e| matches!(e, ListElement::Bool(_)));
        let large = flat.iter().filter_map(|e| match e {
            ListElement::Number(n) => Some(default_dtype(*n)),
            _ => None,
        });
        match (floats || flat.is_empty(), bools) {
            (true, _) => DType::F32,
            (_, true) => DType::Bool,
            _ => large.max_by_key(|d| (*d == DType::U64, *d == DType::I64)).unwrap_or(DType::I32),
        }
    });
    for e in &flat {
        if let ListElement::Number(n) = e {
            check_range(*n, d)?;
        }
    }
    let e = tensorloom::engine();
    Ok(if d.is_float() {
        let list: Vec<f64> = flat
            .iter()
            .map(|e| match e {
                ListElement::Bool(b) => f64::from(u8::from(*b)),
                ListElement::Number(Number::Float(x)) | ListElement::Double(x) => *x,
                ListElement::Number(Number::Int(i)) => *i as f64,
                ListElement::Number(Number::Unsigned(u)) => *u as f64,
            })
            .collect();
        e.tensor(&list, &shape).cast(d)
    } else {
        let list: Vec<i64> = flat
            .iter()
            .map(|e| match e {
                ListElement::Bool(b) => i64::from(*b),
                ListElement::Number(Number::Float(x)) | ListElement::Double(x) => *x as i64,
                ListElement::Number(Number::Int(i)) => *i,
                ListElement::Number(Number::Unsigned(u)) => *u as i64,
            })
            .collect();
        e.tensor(&list, &shape).cast(d)
    })
}

/// Lists inside of each other at most, as many as NumPy has axes.
const MAX_DEPTH: usize = 64;

fn check_depth(depth: usize) -> PyResult<()> {
    match depth < MAX_DEPTH {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!(
            "lists are nested more than {MAX_DEPTH} levels deep, or contain themselves"
        ))),
    }
}

/// Lists of tensors are stacked level by level, so their depth is looked at before.
fn nested(x: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    if !is_list(x) {
        return Ok(());
    }
    check_depth(depth)?;
    x.try_iter()?.try_for_each(|e| nested(&e?, depth + 1))
}

/// Collects numbers of nested lists; false if there is something else in them.
fn elements(x: &Bound<'_, PyAny>, depth: usize, shape: &mut Vec<usize>, flat: &mut Vec<ListElement>) -> PyResult<bool> {
    if let Ok(b) = x.cast::<PyBool>() {
        flat.push(ListElement::Bool(b.is_true()));
    } else if let Some(n) = number(x)? {
        flat.push(ListElement::Number(n));
    } else if is_double(x)? {
        flat.push(ListElement::Double(x.extract()?));
    } else if is_list(x) {
        let n = x.len()?;
        check_depth(depth)?;
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
        return Err(PyValueError::new_err("a list has both numbers and lists"));
    }
    Ok(true)
}

/// An integer that a type of integers doesn't hold is Python's `OverflowError`, as in NumPy.
fn check_range(n: Number, d: DType) -> PyResult<()> {
    let n = match n {
        Number::Int(i) => i128::from(i),
        Number::Unsigned(u) => i128::from(u),
        Number::Float(_) => return Ok(()),
    };
    match np::iinfo(d) {
        Some((low, high)) if n < low || n > high => Err(PyOverflowError::new_err(format!(
            "{n} is out of range for {}: it must be from {low} to {high}",
            name(d)
        ))),
        _ => Ok(()),
    }
}

/// Whether an object shows an array by one of Python's protocols.
#[pyfunction]
pub(crate) fn _is_array(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_array(x)
}

/// A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
/// change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied.
#[pyfunction]
#[pyo3(signature = (x, dtype=None, *, copy=None))]
pub(crate) fn asarray(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Py<PyTensor>> {
    let wanted = dtype.filter(|d| !d.is_none()).map(crate::dtype::dtype).transpose()?;
    let listed = is_list(x);
    let t = match (listed && copy != Some(false), wanted) {
        (true, wanted) => from_list(x, wanted)?,
        // A number keeps its digits: 0.1 as float64 isn't a float32 first.
        (_, Some(d)) if copy != Some(false) => match number(x)? {
            Some(n) => {
                check_range(n, d)?;
                tensorloom::engine().full(d, &[], n)
            }
            None => tensor_of(x, copy)?,
        },
        _ => tensor_of(x, copy)?,
    };
    t.check().map_err(|e| crate::to_py_err(&e))?;
    match wanted.filter(|d| t.dtype() != *d) {
        None => wrap(py, t),
        Some(d) if copy == Some(false) => {
            Err(PyValueError::new_err(format!("cannot convert {} to {} without a copy", name(t.dtype()), name(d))))
        }
        Some(d) => wrap(py, t.cast(d)),
    }
}
