//! Convolutions and pooling, whose options the table of functions can't say.

use crate::calls::tensor;
use crate::creation::tensor_from;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorloom::ReduceKind;
use tensorloom::lax::{ConvOptions, Padding};

/// "SAME", "VALID", or what is added before and after each axis.
fn padding(x: &Bound<'_, PyAny>) -> PyResult<Padding> {
    if let Ok(name) = x.extract::<String>() {
        return match name.to_uppercase().as_str() {
            "SAME" => Ok(Padding::Same),
            "VALID" => Ok(Padding::Valid),
            _ => Err(PyValueError::new_err(format!("padding {name:?}; use \"SAME\", \"VALID\" or a list of pairs"))),
        };
    }
    Ok(Padding::Explicit(x.extract()?))
}

/// A convolution of `[N, C, ..]` by `[O, C, ..]`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are those of JAX")]
fn _conv(
    py: Python<'_>,
    lhs: &Bound<'_, PyAny>,
    rhs: &Bound<'_, PyAny>,
    strides: Vec<usize>,
    pad: &Bound<'_, PyAny>,
    lhs_dilation: Vec<usize>,
    rhs_dilation: Vec<usize>,
    feature_group_count: usize,
    batch_group_count: usize,
) -> PyResult<Py<PyAny>> {
    let options = ConvOptions {
        strides,
        padding: padding(pad)?,
        lhs_dilation,
        rhs_dilation,
        feature_group_count,
        batch_group_count,
        dimension_numbers: None,
    };
    tensor(py, tensorloom::lax::conv_general_dilated(&tensor_from(lhs)?, &tensor_from(rhs)?, &options))
}

/// Reduces windows: `kind` is "sum", "max", "min" or "prod".
#[pyfunction]
fn _reduce_window(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    kind: &str,
    window: Vec<usize>,
    strides: Vec<usize>,
    pad: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    let kind = match kind {
        "sum" => ReduceKind::Sum,
        "max" => ReduceKind::Max,
        "min" => ReduceKind::Min,
        "prod" => ReduceKind::Prod,
        k => return Err(PyValueError::new_err(format!("windows can be reduced by sum, max, min or prod, not {k}"))),
    };
    tensor(py, tensorloom::lax::reduce_window(&tensor_from(x)?, kind, &window, &strides, padding(pad)?))
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_conv, m)?)?;
    m.add_function(wrap_pyfunction!(_reduce_window, m)?)
}
