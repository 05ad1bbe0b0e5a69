//! Element types by the names of NumPy and JAX.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tensorloom::DType;

/// Every type with its name.
pub(crate) const NAMES: [(DType, &str); 15] = [
    (DType::Bool, "bool"),
    (DType::I8, "int8"),
    (DType::I16, "int16"),
    (DType::I32, "int32"),
    (DType::I64, "int64"),
    (DType::U8, "uint8"),
    (DType::U16, "uint16"),
    (DType::U32, "uint32"),
    (DType::U64, "uint64"),
    (DType::F8E4M3, "float8_e4m3fn"),
    (DType::F8E5M2, "float8_e5m2"),
    (DType::F16, "float16"),
    (DType::BF16, "bfloat16"),
    (DType::F32, "float32"),
    (DType::F64, "float64"),
];

pub(crate) fn name(d: DType) -> &'static str {
    NAMES.iter().find(|(x, _)| *x == d).map_or("?", |(_, n)| n)
}

/// An element type. Equal to its name, and to NumPy's type of that name.
#[pyclass(name = "DType", module = "tensorloom", frozen, from_py_object)]
#[derive(Clone, Copy)]
pub(crate) struct PyDType(pub(crate) DType);

#[pymethods]
impl PyDType {
    /// Its name.
    #[getter]
    fn name(&self) -> &'static str {
        name(self.0)
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// "b" for bool, "i" and "u" for integers, "f" for floats.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0 {
            DType::Bool => "b",
            d if d.is_float() => "f",
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => "u",
            _ => "i",
        }
    }

    /// NumPy's type of this name, by which NumPy takes this one for its own: `np.zeros(3, dtype=x.dtype)`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::tensor::numpy_dtype(py, self.0)
    }

    fn __repr__(&self) -> String {
        name(self.0).to_string()
    }

    /// A tensor of this type, as NumPy's types make one: `float32(1)`.
    #[pyo3(signature = (x=None))]
    fn __call__<'py>(slf: Bound<'py, Self>, x: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let x = x.map_or_else(|| Ok(0i32.into_pyobject(py)?.into_any()), Ok::<_, PyErr>)?;
        py.import("tensorloom")?.call_method1("asarray", (x, slf))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        dtype(other).is_ok_and(|d| d == self.0)
    }

    fn __ne__(&self, other: &Bound<'_, PyAny>) -> bool {
        !self.__eq__(other)
    }

    fn __hash__(&self) -> u64 {
        self.0 as u64 + 7001
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((py.import("tensorloom")?.getattr("dtype")?.unbind(), (name(self.0).to_string(),)))
    }
}

/// The type that an object names: one of ours, a string, a type of NumPy or of Python.
pub(crate) fn dtype(x: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Ok(d) = x.cast::<PyDType>() {
        return Ok(d.get().0);
    }
    let text = if let Ok(s) = x.extract::<String>() {
        s
    } else if let Ok(t) = x.cast::<pyo3::types::PyType>() {
        t.name()?.to_string()
    } else {
        x.getattr("name").and_then(|n| n.extract::<String>()).map_err(|_| unknown(x))?
    };
    let text = match text.as_str() {
        "float" | "float32_" => "float32",
        "int" => "int32",
        "bool_" | "b1" | "?" => "bool",
        // NumPy's codes count bytes.
        "i1" => "int8",
        "i2" => "int16",
        "i4" => "int32",
        "i8" => "int64",
        "u1" => "uint8",
        "u2" => "uint16",
        "u4" => "uint32",
        "u8" => "uint64",
        "f2" => "float16",
        "f4" => "float32",
        "f8" => "float64",
        other => other,
    };
    if let Some((d, _)) = NAMES.iter().find(|(_, n)| *n == text) {
        return Ok(*d);
    }
    NAMES.iter().map(|(d, _)| *d).find(|d| d.to_string() == text).ok_or_else(|| unknown(x))
}

fn unknown(x: &Bound<'_, PyAny>) -> PyErr {
    let names: Vec<&str> = NAMES.iter().map(|(_, n)| *n).collect();
    PyTypeError::new_err(format!("{x} is not a supported dtype; use one of {}", names.join(", ")))
}

/// The type that an object names.
#[pyfunction]
#[pyo3(name = "dtype")]
fn of(x: &Bound<'_, PyAny>) -> PyResult<PyDType> {
    dtype(x).map(PyDType)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    for (d, n) in NAMES {
        let n = if n == "bool" { "bool_" } else { n };
        m.add(n, PyDType(d))?;
    }
    m.add_function(wrap_pyfunction!(of, m)?)
}
