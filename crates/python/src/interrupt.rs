//! Ctrl-C, or any signal whose handler raises, while a program runs.

use crate::transform::{keep_exception, take_exception};
use compiler::interrupt;
use pyo3::prelude::*;

/// Runs `f` without Python's lock. Programs that it runs listen for signals between two of their steps.
pub(crate) fn without_gil<T: Send>(py: Python<'_>, f: impl Send + FnOnce() -> T) -> T {
    py.detach(|| {
        let _asking = interrupt::set_interrupt_check(run_signal_handlers);
        f()
    })
}

/// Runs handlers of signals that came, as Python does between two of its own steps: in the main thread. What one raises is kept.
fn run_signal_handlers() -> bool {
    // Nobody is there to be asked when the interpreter ends.
    let Some(Err(e)) = Python::try_attach(|py| py.check_signals()) else { return false };
    keep_exception(e);
    true
}

/// What a handler raised, if that is why something failed.
pub(crate) fn interrupt_error(e: &tensorloom::Error) -> Option<PyErr> {
    if e.is_interrupted() { take_exception() } else { None }
}

/// Lets threads that wait for another's run give Python's lock away: the run may need it to ask.
pub(crate) fn register() {
    interrupt::set_wait_hook(|until| {
        if Python::try_attach(|py| py.detach(until)).is_none() {
            until();
        }
    });
}
