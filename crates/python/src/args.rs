//! Arguments of functions, read from Python objects.

use crate::creation::{from_list, is_array, is_list, tensor_from};
use crate::dtype::dtype;
use crate::tensor::PyTensor;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};
use tensorloom::fft::Complex;
use tensorloom::{DType, Number, Operand, ReduceAxes, Tensor};

/// The arguments of one call.
pub(crate) struct Args<'py>(pub(crate) Bound<'py, PyTuple>);

impl<'py> Args<'py> {
    /// There must be so many.
    pub(crate) fn count(&self, n: usize) -> PyResult<()> {
        if self.0.len() == n {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!("got {} arguments, expected {n}", self.0.len())))
    }

    fn at(&self, i: usize) -> PyResult<Bound<'py, PyAny>> {
        self.0.get_item(i)
    }

    pub(crate) fn get<T: for<'a> FromPyObject<'a, 'py>>(&self, i: usize) -> PyResult<T>
    where
        for<'a> <T as FromPyObject<'a, 'py>>::Error: Into<PyErr>,
    {
        let x = self.at(i)?;
        x.extract::<T>().map_err(|e| size_error(e.into(), &x))
    }

    pub(crate) fn tensor(&self, i: usize) -> PyResult<Tensor> {
        tensor_from(&self.at(i)?)
    }

    /// A tensor that meets the other arguments.
    pub(crate) fn meeting(&self, i: usize) -> PyResult<Tensor> {
        meeting(&self.at(i)?, &self.0.iter().collect::<Vec<_>>())
    }

    pub(crate) fn maybe_tensor(&self, i: usize) -> PyResult<Option<Tensor>> {
        let x = self.at(i)?;
        if x.is_none() { Ok(None) } else { self.meeting(i).map(Some) }
    }

    pub(crate) fn operand(&self, i: usize) -> PyResult<Operand> {
        let x = self.at(i)?;
        if is_list(&x) { self.meeting(i).map(Operand::Tensor) } else { operand(&x) }
    }

    pub(crate) fn maybe_operand(&self, i: usize) -> PyResult<Option<Operand>> {
        let x = self.at(i)?;
        if x.is_none() { Ok(None) } else { operand(&x).map(Some) }
    }

    pub(crate) fn number(&self, i: usize) -> PyResult<Number> {
        let mut x = self.at(i)?;
        // Numbers of NumPy, and other arrays of one element.
        if number(&x)?.is_none() && x.hasattr("item")? {
            x = x.call_method0("item")?;
        }
        number(&x)?.ok_or_else(|| PyTypeError::new_err(format!("{x} is not a number")))
    }

    pub(crate) fn tensors(&self, i: usize) -> PyResult<Vec<Tensor>> {
        let x = self.at(i)?;
        // Rows of a tensor are tensors too.
        let list = x.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        list.iter().map(|t| meeting(t, &list)).collect()
    }

    /// A list; one element stands for a list of one.
    pub(crate) fn list<T: for<'a> FromPyObject<'a, 'py>>(&self, i: usize) -> PyResult<Vec<T>>
    where
        for<'a> <T as FromPyObject<'a, 'py>>::Error: Into<PyErr>,
    {
        let x = self.at(i)?;
        if let Ok(one) = x.extract::<T>() {
            return Ok(vec![one]);
        }
        x.try_iter()?.map(|e| e?.extract::<T>().map_err(|e| size_error(e.into(), &x))).collect()
    }

    pub(crate) fn maybe_list<T: for<'a> FromPyObject<'a, 'py>>(&self, i: usize) -> PyResult<Option<Vec<T>>>
    where
        for<'a> <T as FromPyObject<'a, 'py>>::Error: Into<PyErr>,
    {
        if self.at(i)?.is_none() { Ok(None) } else { self.list(i).map(Some) }
    }

    /// Axes: none, one, several, or such and whether they stay, as a pair with a bool.
    pub(crate) fn along(&self, i: usize) -> PyResult<ReduceAxes> {
        let x = self.at(i)?;
        if let Ok(pair) = x.cast::<PyTuple>()
            && pair.len() == 2
            && pair.get_item(1)?.is_instance_of::<PyBool>()
        {
            let keep = pair.get_item(1)?.extract()?;
            return Ok(ReduceAxes { keep, ..axes(&pair.get_item(0)?)? });
        }
        axes(&x)
    }

    pub(crate) fn dtype(&self, i: usize) -> PyResult<DType> {
        dtype(&self.at(i)?)
    }

    pub(crate) fn complex(&self, i: usize) -> PyResult<Complex> {
        let x = self.at(i)?;
        match x.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => {
                Ok(Complex { re: tensor_from(&pair.get_item(0)?)?, im: tensor_from(&pair.get_item(1)?)? })
            }
            _ => Ok(Complex::from(&tensor_from(&x)?)),
        }
    }

    pub(crate) fn fft_norm(&self, i: usize) -> PyResult<tensorloom::fft::Norm> {
        use tensorloom::fft::Norm;
        match self.get::<Option<String>>(i)?.as_deref() {
            None | Some("backward") => Ok(Norm::Backward),
            Some("ortho") => Ok(Norm::Ortho),
            Some("forward") => Ok(Norm::Forward),
            Some(n) => Err(PyValueError::new_err(format!("norm {n:?}; use \"backward\", \"ortho\" or \"forward\""))),
        }
    }

    pub(crate) fn norm(&self, i: usize) -> PyResult<tensorloom::linalg::Norm> {
        use tensorloom::linalg::Norm;
        let x = self.at(i)?;
        if x.is_none() {
            return Ok(Norm::Default);
        }
        if let Ok(p) = x.extract::<f64>() {
            return Ok(Norm::P(p));
        }
        match x.extract::<String>()?.as_str() {
            "fro" => Ok(Norm::Frobenius),
            "nuc" => Ok(Norm::Nuclear),
            n => Err(PyValueError::new_err(format!("norm {n:?}; use \"fro\", \"nuc\" or a number"))),
        }
    }

    pub(crate) fn pad_mode(&self, i: usize) -> PyResult<tensorloom::np::PadMode> {
        use tensorloom::np::PadMode;
        let x = self.at(i)?;
        if let Ok(c) = x.extract::<f64>() {
            return Ok(PadMode::Constant(c.into()));
        }
        match x.extract::<String>()?.as_str() {
            "constant" => Ok(PadMode::Constant(0.0.into())),
            "edge" => Ok(PadMode::Edge),
            "reflect" => Ok(PadMode::Reflect),
            "symmetric" => Ok(PadMode::Symmetric),
            "wrap" => Ok(PadMode::Wrap),
            m => Err(PyValueError::new_err(format!("mode {m:?}; use constant, edge, reflect, symmetric or wrap"))),
        }
    }
}

/// A size or a count that is negative, or too large for any, is a wrong value.
fn size_error(e: PyErr, x: &Bound<'_, PyAny>) -> PyErr {
    match e.is_instance_of::<PyOverflowError>(x.py()) {
        true => PyValueError::new_err(format!("{x} is not a valid size, count or axis: it is negative or too large")),
        false => e,
    }
}

fn axes(x: &Bound<'_, PyAny>) -> PyResult<ReduceAxes> {
    if x.is_none() {
        return Ok(().into());
    }
    if let Ok(a) = x.extract::<isize>() {
        return Ok(a.into());
    }
    Ok(x.extract::<Vec<isize>>()?.into())
}

/// A number of Python's; bools are none, and neither are NumPy's, which have types of their own (its float64 is a float of Python
/// too).
pub(crate) fn number(x: &Bound<'_, PyAny>) -> PyResult<Option<Number>> {
    if x.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if x.is_instance_of::<PyFloat>() {
        return if is_double(x)? { Ok(None) } else { Ok(Some(Number::Float(x.extract()?))) };
    }
    if x.is_instance_of::<PyInt>() {
        return Ok(Some(match x.extract::<i64>() {
            Ok(n) => Number::Int(n),
            Err(_) => Number::Unsigned(x.extract()?),
        }));
    }
    Ok(None)
}

/// A tensor from one of several objects that meet: a number takes the dtype of the arrays among them, if that has a place for it,
/// and a list of numbers beside float64 keeps their digits.
pub(crate) fn meeting<'py>(x: &Bound<'py, PyAny>, all: &[Bound<'py, PyAny>]) -> PyResult<Tensor> {
    if let Some(n) = number(x)? {
        let d = common_dtype(all)?.map(|like| n.promote_with(like)).filter(|d| n.to_scalar(*d).is_some());
        return d.map_or_else(|| tensor_from(x), |d| Ok(tensorloom::engine().full(d, &[], n)));
    }
    let t = tensor_from(x)?;
    match is_list(x) && t.dtype() == DType::F32 && common_dtype(all)? == Some(DType::F64) {
        true => from_list(x, Some(DType::F64)),
        false => Ok(t),
    }
}

/// The dtype that the arrays among objects have together.
fn common_dtype(objects: &[Bound<'_, PyAny>]) -> PyResult<Option<DType>> {
    let mut all: Option<DType> = None;
    for x in objects {
        if is_array(x)? {
            let d = tensor_from(x)?.dtype();
            all = all.map_or(Some(d), |a| a.promote(d));
        }
    }
    Ok(all)
}

/// The tensors of operands that meet: a number takes the dtype of the arrays among them.
#[pyfunction]
#[pyo3(signature = (*xs))]
pub(crate) fn _arrays(xs: Bound<'_, PyTuple>) -> PyResult<Vec<PyTensor>> {
    let all: Vec<_> = xs.iter().collect();
    all.iter().map(|x| meeting(x, &all).map(PyTensor)).collect()
}

/// Whether it is a float64 of NumPy.
pub(crate) fn is_double(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!x.is_exact_instance_of::<PyFloat>() && x.is_instance_of::<PyFloat>() && x.hasattr("__array_interface__")?)
}

/// A number or a tensor.
pub(crate) fn operand(x: &Bound<'_, PyAny>) -> PyResult<Operand> {
    if let Ok(t) = x.cast::<PyTensor>() {
        return Ok(Operand::Tensor(t.get().0.clone()));
    }
    match number(x)? {
        Some(n) => Ok(Operand::Number(n)),
        None => Ok(Operand::Tensor(tensor_from(x)?)),
    }
}

pub(crate) fn refs(list: &[Tensor]) -> Vec<&Tensor> {
    list.iter().collect()
}

pub(crate) fn slices(list: &[Vec<usize>]) -> Vec<&[usize]> {
    list.iter().map(Vec::as_slice).collect()
}
