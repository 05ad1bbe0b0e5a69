//! The functions of the table, called by number.

use crate::args::{Args, refs, slices};
use crate::dtype::PyDType;
use crate::tensor::PyTensor;
use crate::to_py_err;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tensorloom::fft::Complex;
use tensorloom::{DType, Tensor};

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// A result on its way to Python. A tensor that carries an error raises it here, at the call that made it.
pub(crate) trait Give {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

pub(crate) fn give(py: Python<'_>, x: impl Give) -> PyResult<Py<PyAny>> {
    x.give(py)
}

pub(crate) fn tensor(py: Python<'_>, t: Tensor) -> PyResult<Py<PyAny>> {
    t.check().map_err(|e| to_py_err(&e))?;
    Ok(Py::new(py, PyTensor(t))?.into_any())
}

impl Give for Tensor {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        tensor(py, self)
    }
}

fn all(py: Python<'_>, list: Vec<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    Ok(PyTuple::new(py, list)?.into_any().unbind())
}

impl Give for (Tensor, Tensor) {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        all(py, vec![self.0.give(py)?, self.1.give(py)?])
    }
}

impl Give for (Tensor, Tensor, Tensor) {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        all(py, vec![self.0.give(py)?, self.1.give(py)?, self.2.give(py)?])
    }
}

impl Give for (Tensor, Tensor, Tensor, Tensor) {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        all(py, vec![self.0.give(py)?, self.1.give(py)?, self.2.give(py)?, self.3.give(py)?])
    }
}

impl Give for Vec<Tensor> {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let list: Vec<Py<PyAny>> = self.into_iter().map(|t| t.give(py)).collect::<PyResult<_>>()?;
        Ok(PyList::new(py, list)?.into_any().unbind())
    }
}

impl Give for (Tensor, Vec<Tensor>) {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        all(py, vec![self.0.give(py)?, self.1.give(py)?])
    }
}

impl Give for Complex {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        (self.re, self.im).give(py)
    }
}

impl<T: Give> Give for tensorloom::Result<T> {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.map_err(|e| to_py_err(&e))?.give(py)
    }
}

impl<T: Give> Give for Option<T> {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.map_or_else(|| Ok(py.None()), |x| x.give(py))
    }
}

impl Give for DType {
    fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, PyDType(self))?.into_any())
    }
}

macro_rules! plain {
    ($($t:ty),*) => { $(
        impl Give for $t {
            fn give(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                Ok(pyo3::IntoPyObjectExt::into_py_any(self, py)?)
            }
        }
    )* };
}
plain!(bool, usize, Vec<usize>, (i128, i128));

/// Calls the function of a number.
#[pyfunction]
#[pyo3(signature = (id, *args))]
fn _call(py: Python<'_>, id: usize, args: Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    call(py, id, &Args(args))
}

/// A row of the table: module, name, arguments with their types, result, documentation.
type Row = (&'static str, &'static str, Vec<(&'static str, &'static str)>, &'static str, &'static str);

/// Every function, by number.
#[pyfunction]
fn _table() -> Vec<Row> {
    TABLE.iter().map(|(m, n, a, r, d)| (*m, *n, a.to_vec(), *r, *d)).collect()
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_call, m)?)?;
    m.add_function(wrap_pyfunction!(crate::args::_arrays, m)?)?;
    m.add_function(wrap_pyfunction!(_table, m)?)
}
