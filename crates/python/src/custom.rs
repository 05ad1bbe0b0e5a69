//! Functions with derivatives of their own, and what a function gives without being run.

use crate::to_py_err;
use crate::transform::{DerivativeOrderGuard, PyFn, derivatives, keep_exception, raise_pending};
use crate::tree::{Node, TreeRole};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::cell::RefCell;
use tensorloom::{Tensor, Tree, np};

fn pair(out: Node, what: &str) -> (Node, Node) {
    match <[Node; 2]>::try_from(out.items()) {
        Ok([a, b]) => (a, b),
        Err(_) => {
            keep_exception(PyTypeError::new_err(format!("{what} gives a pair")));
            (Node::none(), Node::none())
        }
    }
}

/// Cotangents for arguments: one for each, `None` for zeros.
fn cotangents(args: &Node, given: Node) -> Node {
    let wanted = args.clone().items();
    let given = given.items();
    if wanted.len() != given.len() {
        let text =
            format!("the rule returned {} cotangents, but the function has {} arguments", given.len(), wanted.len());
        keep_exception(PyValueError::new_err(text));
        return args.map(np::zeros_like);
    }
    let each = wanted.iter().zip(given).map(|(a, g)| match g {
        Node::Static(_) => a.map(np::zeros_like),
        g if g.leaves().len() == a.leaves().len() => {
            // A number that the rule computed takes the argument's type.
            let types: Vec<_> = a.leaves().iter().map(Tensor::dtype).collect();
            let mut k = 0;
            g.map(|t| {
                k += 1;
                if t.check().is_ok() && t.dtype() != types[k - 1] { t.cast(types[k - 1]) } else { t.clone() }
            })
        }
        g => g,
    });
    Node::tuple(each.collect())
}

/// `f(*args)` with its own reverse rule: `forward(*args) -> (result, residuals)` and `backward(residuals, cotangent) ->
/// cotangents`. The rule is traced when the function is called, if derivatives are taken there, and for one derivative less: it
/// may call the function itself.
#[pyfunction]
pub(crate) fn _custom_vjp<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    forward: &Bound<'py, PyAny>,
    backward: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let (f, forward, backward) = (PyFn::new(f)?, PyFn::new(forward)?, PyFn::new(backward)?);
    let args = Node::read(args, TreeRole::Argument)?;
    let Some(less) = derivatives().checked_sub(1) else {
        return raise_pending(f.call(&args.items(), &[]))?.write(py);
    };
    let _less = DerivativeOrderGuard::set(less);
    let run = |x: Node| pair(forward.call(&x.items(), &[]), "the forward function of custom_vjp");
    let back = |(residuals, ct): (Node, Node)| cotangents(&args, backward.call(&[residuals, ct], &[]));
    raise_pending(tensorloom::custom_vjp(run, back).call(args.clone()))?.write(py)
}

/// `f(*args)` with its own forward rule: `rule(primals, tangents) -> (result, tangent)`, traced as a reverse rule is.
#[pyfunction]
pub(crate) fn _custom_jvp<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    rule: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let (f, rule) = (PyFn::new(f)?, PyFn::new(rule)?);
    let args = Node::read(args, TreeRole::Argument)?;
    let Some(less) = derivatives().checked_sub(1) else {
        return raise_pending(f.call(&args.items(), &[]))?.write(py);
    };
    let _less = DerivativeOrderGuard::set(less);
    let run = |x: Node| f.call(&x.items(), &[]);
    let push = |(x, dx): (Node, Node)| pair(rule.call(&[x, dx], &[]), "the rule of custom_jvp").1;
    raise_pending(tensorloom::custom_jvp(run, push).call(args))?.write(py)
}

/// The structure of a function's result, with places in the list of (shape, dtype) pairs beside it.
#[pyfunction]
pub(crate) fn _eval_shape<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let f = PyFn::new(f)?;
    let seen = RefCell::new(Node::none());
    let run = |x: Node| {
        let out = f.call(&x.items(), &[]);
        seen.replace(out.clone());
        out
    };
    let types = raise_pending(tensorloom::eval_shape(run, Node::read(args, TreeRole::Argument)?))?
        .map_err(|e| to_py_err(&e))?;
    let list = PyList::empty(py);
    for t in types {
        list.append((t.shape.to_vec(), crate::dtype::PyDType(t.dtype)))?;
    }
    // Tensors of the trace are of no use outside: their numbers in the list stand for them.
    let mut k = 0;
    let numbered = seen.into_inner().map(|_| {
        k += 1;
        tensorloom::engine().full(tensorloom::DType::I32, &[], k - 1)
    });
    Ok((numbered.write(py)?, list).into_pyobject(py)?.into_any())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_custom_vjp, m)?)?;
    m.add_function(wrap_pyfunction!(_custom_jvp, m)?)?;
    m.add_function(wrap_pyfunction!(_eval_shape, m)?)
}
