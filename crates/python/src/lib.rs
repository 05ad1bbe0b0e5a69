//! Tensors and transforms for Python.
//!
//! Functions of tensors come from the table of public functions (`docs/functions.json`): `build.rs` gives each a number, and the
//! Python package makes a function of each. Transforms call back into Python with tensors of a trace; an exception there is kept
//! and raised when the transform returns. Nothing is computed before it is read, and reading releases Python's lock.

mod args;
mod calls;
mod creation;
mod custom;
mod dlpack;
mod dtype;
mod interrupt;
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

// Named after the package that people import them from, so that workers can send them home in a pickle.
pyo3::create_exception!(
    tensorloom,
    TensorError,
    pyo3::exceptions::PyValueError,
    "The operands of an operation do not match; the message names the op and the shapes."
);
pyo3::create_exception!(
    tensorloom,
    TracerError,
    pyo3::exceptions::PyTypeError,
    "A tensor of a trace has no value: it was read inside of jit, vmap, scan or another transform."
);

/// An error of the engine as Python's.
pub(crate) fn to_py_err(e: &tensorloom::Error) -> PyErr {
    if let Some(e) = interrupt::interrupt_error(e) {
        return e;
    }
    match e {
        tensorloom::Error::HostReadInCompile { .. } | tensorloom::Error::AsyncInCompile { .. } => TracerError::new_err(
            "the value of a tensor is needed while a function is being traced (by jit, vmap, scan, ..); decide with \
             where, lax.cond or lax.while_loop, compute with tensorloom.numpy instead of numpy, or return the tensor \
             and read it outside",
        ),
        _ => TensorError::new_err(strip_source_locations(&e.to_string())),
    }
}

/// A message without the lines of this library that it names: Python's traceback has those of its user.
fn strip_source_locations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(".rs:") {
        let (before, after) = rest.split_at(at);
        let after = after[".rs:".len()..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ':');
        // In brackets a folder's name may have spaces.
        match (before.rfind(" (at ").filter(|&i| !before[i..].contains(')')), after.strip_prefix(')')) {
            (Some(i), Some(after)) => {
                out.push_str(&before[..i]);
                rest = after;
            }
            _ => {
                let start = before.rfind(char::is_whitespace).map_or(0, |i| i + 1);
                let kept = before[..start].trim_end();
                out.push_str(kept.strip_suffix(" at").unwrap_or(kept));
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Sets how much is printed of each program that is compiled, from 0 to 5.
#[pyfunction]
fn set_debug(level: i64) -> PyResult<()> {
    let wrong = || pyo3::exceptions::PyValueError::new_err(format!("set_debug takes a level from 0 to 5, not {level}"));
    let level = u8::try_from(level).ok().filter(|level| *level <= tensorloom::debug::MAX_LEVEL).ok_or_else(wrong)?;
    tensorloom::debug::set_level(level);
    Ok(())
}

#[pymodule]
fn _tensorloom(m: &Bound<'_, PyModule>) -> PyResult<()> {
    interrupt::register();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("TensorError", m.py().get_type::<TensorError>())?;
    m.add("TracerError", m.py().get_type::<TracerError>())?;
    m.add_function(wrap_pyfunction!(set_debug, m)?)?;
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
    let version = unsafe { std::ffi::CStr::from_ptr(c::vsla::version::vsla_version()) };
    m.add("_vsla_version", version.to_string_lossy())
}
