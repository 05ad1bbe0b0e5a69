//! Tensors and transforms for Python.
//!
//! Functions of tensors come from the table of public functions (`docs/functions.json`): `build.rs` gives each a number, and the
//! Python package makes a function of each. Transforms call back into Python with tensors of a trace; an exception there is kept
//! and raised when the transform returns. Nothing is computed before it is read, and reading releases Python's lock.

mod args;
mod calls;
mod custom;
mod dlpack;
mod dtype;
mod make;
mod memory;
mod models;
mod optim;
mod safetensors;
mod tensor;
mod train;
mod transform;
mod tree;
mod window;

use pyo3::prelude::*;

pyo3::create_exception!(
    _tensorloom,
    TensorError,
    pyo3::exceptions::PyValueError,
    "An operation doesn't fit its operands; the message names the op and the shapes."
);
pyo3::create_exception!(
    _tensorloom,
    TracerError,
    pyo3::exceptions::PyTypeError,
    "A tensor of a trace has no value: it was read inside of jit, vmap, scan or another transform."
);

/// An error of the engine as Python's.
pub(crate) fn raised(e: &tensorloom::Error) -> PyErr {
    let text = e.to_string();
    match e {
        tensorloom::Error::HostReadInCompile { .. } | tensorloom::Error::AsyncInCompile { .. } => {
            TracerError::new_err(text)
        }
        _ => TensorError::new_err(text),
    }
}

#[pymodule]
fn _tensorloom(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("TensorError", m.py().get_type::<TensorError>())?;
    m.add("TracerError", m.py().get_type::<TracerError>())?;
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<dtype::PyDType>()?;
    m.add_class::<transform::Jitted>()?;
    m.add_class::<transform::Pullback>()?;
    m.add_class::<transform::Pushforward>()?;
    calls::register(m)?;
    dtype::register(m)?;
    tensor::register(m)?;
    transform::register(m)?;
    custom::register(m)?;
    optim::register(m)?;
    window::register(m)?;
    dlpack::register(m)?;
    safetensors::register(m)?;
    models::register(m)?;
    vsla(m)
}

/// The C interface of the variable-shape tensors is a part of this library: `tensorloom.vsla` finds it here.
fn vsla(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // SAFETY: a text that lives forever, with its end.
    let version = unsafe { std::ffi::CStr::from_ptr(vsla_capi::version::vsla_version()) };
    m.add("_vsla_version", version.to_string_lossy())
}
