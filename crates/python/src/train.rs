//! Training as `loom train` does it, watched by a function of Python's.

use crate::models::{backend, model_error, text_of};
use ::models::train::{SETTING_DESCRIPTIONS, StepProgress, TrainObserver, TrainResult, TrainSettings, run};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Tells a function of Python's what happens, and listens for Ctrl-C.
struct CallbackObserver {
    callback: Option<Py<PyAny>>,
    /// What ends the run: an exception of the callback, or Ctrl-C.
    raised: std::sync::Mutex<Option<PyErr>>,
    /// The callback gave `False`.
    stop_requested: bool,
}

impl CallbackObserver {
    fn raise(&self, e: PyErr) {
        self.raised.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e);
    }

    fn call_callback(&mut self, event: &str, fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) {
        let Some(callback) = &self.callback else { return };
        let told = Python::attach(|py| -> PyResult<bool> {
            let d = PyDict::new(py);
            d.set_item("event", event)?;
            fill(&d)?;
            let answer = callback.bind(py).call1((d,))?;
            Ok(answer.is_instance_of::<pyo3::types::PyBool>() && !answer.is_truthy()?)
        });
        match told {
            Ok(enough) => self.stop_requested |= enough,
            Err(e) => self.raise(e),
        }
    }
}

impl TrainObserver for CallbackObserver {
    fn on_message(&mut self, text: &str) {
        self.call_callback("note", |d| d.set_item("text", text));
    }

    fn on_data_progress(&mut self, done: u64, all: u64) {
        self.call_callback("reading", |d| d.set_item("done", done).and_then(|()| d.set_item("all", all)));
    }

    fn on_train_begin(&mut self, done: usize, steps: usize) {
        self.call_callback("begin", |d| d.set_item("step", done).and_then(|()| d.set_item("steps", steps)));
    }

    fn on_step_end(&mut self, p: &StepProgress) {
        self.call_callback("step", |d| {
            d.set_item("step", p.step)?;
            d.set_item("steps", p.steps)?;
            d.set_item("loss", p.loss)?;
            d.set_item("valid", p.valid_loss)?;
            d.set_item("tokens_per_second", p.speed)?;
            d.set_item("memory", p.memory)?;
            d.set_item("seconds_left", p.remaining.as_secs_f64())
        });
    }

    fn on_sample(&mut self, step: usize, text: &str) {
        self.call_callback("sample", |d| d.set_item("step", step).and_then(|()| d.set_item("text", text)));
    }

    fn should_stop(&self) -> bool {
        if let Err(e) = Python::attach(|py| py.check_signals()) {
            self.raise(e);
        }
        self.stop_requested || self.raised.lock().unwrap_or_else(|e| e.into_inner()).is_some()
    }
}

/// Trains a model as `loom train` does, with its settings as keywords (`model`, `data`, `out`, `steps`, `micro_batch_size`, `seq_len`, `lr`, ..;
/// `settings()` lists them). `resume` goes on from the newest checkpoint in `out`.
///
/// `callback` is called with a dict for each `event`: `note`, `reading`, `begin`, `step`, `sample`. If it gives `False`, the run
/// saves and stops. Ctrl-C and exceptions of the callback save, stop, and are raised. Python's lock is free meanwhile.
#[pyfunction]
#[pyo3(signature = (*, out, resume=false, callback=None, **settings))]
fn train<'py>(
    py: Python<'py>,
    out: std::path::PathBuf,
    resume: bool,
    callback: Option<Py<PyAny>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut chosen = TrainSettings { out, ..TrainSettings::default() };
    let mut given = vec!["out".to_string()];
    for (k, v) in settings.into_iter().flatten() {
        let k = k.extract::<String>()?.replace('_', "-");
        chosen.set(&k, &text_of(&v)?).map_err(|e| model_error(&e))?;
        given.push(k);
    }
    let device = if chosen.device.is_empty() { "cpu" } else { chosen.device.as_str() };
    let machine: std::sync::Arc<dyn compiler::Backend> = match device {
        "cpu" if chosen.threads > 0 => std::sync::Arc::new(cpu::Cpu::with_flush_denormals(chosen.threads)),
        "cpu" => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            std::sync::Arc::new(cpu::Cpu::with_flush_denormals(cores))
        }
        "auto" => tensorloom::devices::gpu().unwrap_or_else(backend),
        other => tensorloom::devices::open(other).map_err(|e| crate::to_py_err(&e))?,
    };
    let mut watch = CallbackObserver { callback, raised: std::sync::Mutex::default(), stop_requested: false };
    let finished = py.detach(|| run(&chosen, resume, &given, &*machine, &mut watch));
    if let Some(e) = watch.raised.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(e);
    }
    let TrainResult { step, complete, valid_loss, sample_text, files, seconds } =
        finished.map_err(|e| model_error(&e))?;
    let d = PyDict::new(py);
    d.set_item("step", step)?;
    d.set_item("complete", complete)?;
    d.set_item("valid", valid_loss)?;
    d.set_item("story", sample_text)?;
    let files: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
    d.set_item("files", files)?;
    d.set_item("seconds", seconds)?;
    Ok(d)
}

/// The settings of a run by name, with a line about each.
#[pyfunction]
fn settings(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let d = PyDict::new(py);
    for (name, _, about) in SETTING_DESCRIPTIONS {
        d.set_item(name.replace('-', "_"), *about)?;
    }
    Ok(d)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(train, m)?)?;
    m.add_function(wrap_pyfunction!(settings, m)?)
}
