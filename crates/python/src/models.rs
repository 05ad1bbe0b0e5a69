//! Models: of HuggingFace directories, GGUF files and `.module` files; their logits, losses, gradients and texts.

use crate::calls;
use crate::creation::tensor_from;
use crate::dtype::{PyDType, dtype, name};
use crate::memory::Elements;
use crate::tensor::PyTensor;
use compiler::Backend;
use models::{Adapter, Architecture, GenerateOptions, Model, NamedTensor, SamplingOptions, TextStream, Tokenizer};
use pyo3::exceptions::{PyFileNotFoundError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tensorloom::{DType, Graph, Literal, Tensor, Type};

pyo3::create_exception!(
    _tensorloom,
    ModelError,
    PyValueError,
    "A model, its files or its settings are invalid; the message says what to change."
);

pub(crate) fn model_error(e: &models::Error) -> PyErr {
    let text = e.to_string().trim_end().to_string();
    match e {
        models::Error::File(file) if !file.path.exists() => PyFileNotFoundError::new_err(text),
        _ => ModelError::new_err(text),
    }
}

/// Where models run.
pub(crate) fn backend() -> Arc<dyn Backend> {
    static CPU: OnceLock<Arc<dyn Backend>> = OnceLock::new();
    CPU.get_or_init(|| Arc::new(cpu::Cpu::for_machine())).clone()
}

fn literal(t: NamedTensor) -> PyResult<(String, Tensor)> {
    let literal = Literal::from_bytes(Type::new(t.dtype, &t.shape), &t.bytes)
        .ok_or_else(|| ModelError::new_err(format!("{}: the number of elements does not match its type", t.name)))?;
    Ok((t.name, tensorloom::engine().literal(&literal)))
}

fn dict(py: Python<'_>, all: impl IntoIterator<Item = NamedTensor>) -> PyResult<Bound<'_, PyDict>> {
    let d = PyDict::new(py);
    for t in all {
        let (name, t) = literal(t)?;
        d.set_item(name, calls::tensor(py, t)?)?;
    }
    Ok(d)
}

/// Rows of ids from a list, an array or a tensor of one or two axes; and whether there was one axis.
fn rows(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<(Vec<Vec<i32>>, bool)> {
    let t = tensor_from(x)?;
    if t.dtype().is_float() || t.dtype() == DType::Bool || !(1..=2).contains(&t.rank()) {
        return Err(PyTypeError::new_err(format!("token IDs must be integers with one or two axes, not {}", t.ty())));
    }
    let elements = Elements::of(py, &t.cast(DType::I64))?;
    let all: Vec<i64> =
        elements.bytes().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().expect("8"))).collect();
    let all: Vec<i32> = all
        .into_iter()
        .map(|id| i32::try_from(id).map_err(|_| PyValueError::new_err(format!("{id} is not a token ID"))))
        .collect::<PyResult<_>>()?;
    let width = t.shape().last().copied().unwrap_or(0);
    if width == 0 {
        return Err(PyValueError::new_err("there are no token IDs"));
    }
    Ok((all.chunks(width).map(<[i32]>::to_vec).collect(), t.rank() == 1))
}

/// A model with its parameters, and its tokenizer where there is one.
#[pyclass(name = "Model", module = "tensorloom.models", frozen, weakref)]
pub(crate) struct PyModel {
    model: RwLock<Arc<Model>>,
    dir: Option<PathBuf>,
    tokenizer: Option<Arc<Tokenizer>>,
    /// Lowered, by batch and length.
    graphs: Mutex<HashMap<(usize, usize), Arc<Graph>>>,
}

impl PyModel {
    fn new(model: Model, dir: Option<PathBuf>) -> PyModel {
        let tokenizer = dir.as_deref().and_then(|dir| Tokenizer::from_dir(dir).ok()).map(Arc::new);
        PyModel { model: RwLock::new(Arc::new(model)), dir, tokenizer, graphs: Mutex::default() }
    }

    fn get(&self) -> Arc<Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tokenizer(&self) -> PyResult<Arc<Tokenizer>> {
        self.tokenizer
            .clone()
            .ok_or_else(|| ModelError::new_err("the model has no tokenizer: give token IDs instead of text"))
    }

    fn lowered(&self, batch: usize, steps: usize) -> PyResult<Arc<Graph>> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = graphs.get(&(batch, steps)) {
            return Ok(found.clone());
        }
        let model = self.get();
        let mut graph = model.architecture.lower(batch, steps, model.dtype, None).map_err(|e| model_error(&e))?.graph;
        let logits = graph.outputs()[..1].to_vec();
        graph.set_outputs(logits);
        let graph = Arc::new(graph);
        graphs.insert((batch, steps), graph.clone());
        Ok(graph)
    }
}

/// What follows a prompt, piece by piece: ids after ids, text after text.
#[pyclass(module = "tensorloom.models", frozen)]
pub(crate) struct Generation {
    heard: Mutex<Option<Receiver<GenerationEvent>>>,
    text: Mutex<Option<TextStream<Arc<Tokenizer>>>>,
    ids: Mutex<Vec<i32>>,
}

enum GenerationEvent {
    Id(i32),
    Failed(PyErr),
}

fn locked<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Generation {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        use pyo3::IntoPyObjectExt;
        loop {
            let wait = Duration::from_millis(50);
            let next = py.detach(|| locked(&self.heard).as_ref().map(|heard| heard.recv_timeout(wait)));
            match next {
                // Ctrl-C is heard between two tokens, however long one takes.
                Some(Err(RecvTimeoutError::Timeout)) => py.check_signals()?,
                Some(Ok(GenerationEvent::Failed(e))) => {
                    *locked(&self.heard) = None;
                    return Err(e);
                }
                Some(Ok(GenerationEvent::Id(id))) => {
                    py.check_signals()?;
                    locked(&self.ids).push(id);
                    match &mut *locked(&self.text) {
                        None => return id.into_py_any(py).map(Some),
                        Some(text) => {
                            let piece = text.push(id).map_err(|e| model_error(&e))?;
                            if !piece.is_empty() {
                                return piece.into_py_any(py).map(Some);
                            }
                        }
                    }
                }
                Some(Err(RecvTimeoutError::Disconnected)) | None => {
                    *locked(&self.heard) = None;
                    let rest = match locked(&self.text).take() {
                        Some(mut text) => text.flush().map_err(|e| model_error(&e))?,
                        None => String::new(),
                    };
                    return if rest.is_empty() { Ok(None) } else { rest.into_py_any(py).map(Some) };
                }
            }
        }
    }

    /// The ids that came so far.
    #[getter]
    fn ids(&self) -> Vec<i32> {
        locked(&self.ids).clone()
    }

    /// Stops it; what was asked for is not computed any more.
    fn close(&self) {
        *locked(&self.heard) = None;
    }
}

#[pymethods]
impl PyModel {
    /// The kind of model, such as `Llama`.
    #[getter]
    fn name(&self) -> String {
        self.get().architecture.name.clone()
    }

    /// The element type of parameters and computation.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.get().dtype)
    }

    /// Elements of all parameters.
    #[getter]
    fn parameter_count(&self) -> usize {
        self.get().parameter_count()
    }

    /// How many ids it knows, if it looks ids up.
    #[getter]
    fn vocabulary(&self) -> Option<usize> {
        self.get().vocabulary()
    }

    /// The longest sequence that it takes, if there is a limit.
    #[getter]
    fn max_sequence(&self) -> Option<usize> {
        self.get().max_sequence()
    }

    /// Whether it has a tokenizer.
    #[getter]
    fn has_tokenizer(&self) -> bool {
        self.tokenizer.is_some()
    }

    fn __repr__(&self) -> String {
        let m = self.get();
        format!("Model({}, {} parameters, {})", m.architecture.name, m.parameter_count(), name(m.dtype))
    }

    /// The parameters by their paths, as tensors: a tree for `apply` and for transforms.
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model = self.get();
        let values = py.detach(|| model.graph(1, 1)).map_err(|e| model_error(&e))?.1;
        dict(py, values)
    }

    /// Gives parameters other values, by their paths; those that are not named stay.
    fn update(&self, py: Python<'_>, params: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut model = (*self.get()).clone();
        for (path, value) in params {
            let (path, t): (String, Tensor) = (path.extract()?, tensor_from(&value)?);
            let known = model.params.iter().find(|p| p.path == path);
            if let Some(p) = known.filter(|p| p.ty.shape[..] != *t.shape()) {
                return Err(PyValueError::new_err(format!("{path} is {}, expected {}", p.ty, t.ty())));
            }
            let elements = Elements::of(py, &t.cast(DType::F32))?;
            let values: Vec<f32> =
                elements.bytes().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4"))).collect();
            model.set_parameter(&path, &values).map_err(|e| model_error(&e))?;
        }
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(model);
        Ok(())
    }

    /// Logits of ids by given parameters, as a function that transforms take: `ids` has one axis or two.
    fn apply(&self, py: Python<'_>, params: &Bound<'_, PyDict>, ids: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let ids = tensor_from(ids)?;
        if ids.dtype().is_float() || !(1..=2).contains(&ids.rank()) {
            return Err(PyTypeError::new_err(format!(
                "token IDs must be integers with one or two axes, not {}",
                ids.ty()
            )));
        }
        let lone = ids.rank() == 1;
        let steps = ids.shape()[ids.rank() - 1];
        let batch = if lone { 1 } else { ids.shape()[0] };
        let graph = self.lowered(batch, steps)?;
        let model = self.get();
        let mut args = Vec::with_capacity(model.params.len() + 1);
        for p in &model.params {
            let given = params.get_item(&p.path)?;
            let given = given.ok_or_else(|| PyValueError::new_err(format!("parameter {} is missing", p.path)))?;
            let t = tensor_from(&given)?;
            if t.shape() != &p.ty.shape[..] {
                return Err(PyValueError::new_err(format!("{} is {}, not {}", p.path, p.ty, t.ty())));
            }
            args.push(if t.dtype() == p.ty.dtype { t } else { t.cast(p.ty.dtype) });
        }
        let ids = if ids.dtype() == DType::I32 { ids } else { ids.cast(DType::I32) };
        args.push(tensorloom::np::reshape(&ids, [batch as isize, steps as isize]));
        let inputs = graph.inputs().len();
        if inputs != args.len() {
            return Err(ModelError::new_err(format!(
                "the model has {} inputs besides its parameters, but apply passes only token IDs",
                inputs - model.params.len()
            )));
        }
        let refs: Vec<&Tensor> = args.iter().collect();
        let out = tensorloom::trace::inline(&graph, &refs).swap_remove(0);
        calls::tensor(py, if lone { out.i(0) } else { out })
    }

    /// Logits of ids: `[T, vocabulary]`, or `[batch, T, vocabulary]`.
    fn logits(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (ids, lone) = rows(py, ids)?;
        let model = self.get();
        let found = py.detach(|| model.evaluate_on(&ids, None, &*backend())).map_err(|e| model_error(&e))?;
        let (_, t) = literal(found.logits)?;
        calls::tensor(py, if lone { t.i(0) } else { t })
    }

    /// The mean loss of predicting each label from the ids before it; the ids themselves are the labels unless given. Labels of
    /// -100 don't count.
    #[pyo3(signature = (ids, labels=None))]
    fn loss(&self, py: Python<'_>, ids: &Bound<'_, PyAny>, labels: Option<&Bound<'_, PyAny>>) -> PyResult<f64> {
        let (ids, _) = rows(py, ids)?;
        let model = self.get();
        let Some(labels) = labels else {
            let n = ids.len();
            return py.detach(|| model.mean_loss(&ids, n, &*backend())).map_err(|e| model_error(&e));
        };
        let (labels, _) = rows(py, labels)?;
        let found = py.detach(|| model.evaluate_on(&ids, Some(&labels), &*backend())).map_err(|e| model_error(&e))?;
        Ok(found.loss.map_or(f64::NAN, |l| f64::from(l.to_f32_vec()[0])))
    }

    /// The loss, and its gradients by the names that the tensors have in files.
    #[pyo3(signature = (ids, labels=None))]
    fn value_and_grad<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        labels: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Py<PyAny>, Bound<'py, PyDict>)> {
        let (ids, _) = rows(py, ids)?;
        let labels = labels.map_or_else(|| Ok(ids.clone()), |l| rows(py, l).map(|(l, _)| l))?;
        let model = self.get();
        let found = py.detach(|| model.evaluate_on(&ids, Some(&labels), &*backend())).map_err(|e| model_error(&e))?;
        let loss = found.loss.ok_or_else(|| ModelError::new_err("the model returned no loss"))?;
        let named = found
            .gradients
            .into_iter()
            .map(|g| NamedTensor { name: g.name.strip_prefix("grad.").unwrap_or(&g.name).to_string(), ..g });
        Ok((calls::tensor(py, literal(loss)?.1)?, dict(py, named)?))
    }

    /// Continues a prompt: an iterator of pieces of text after a text, of ids after ids. Tokens are computed in the background,
    /// as they are asked for. Without a temperature the most probable token is taken.
    #[pyo3(signature = (prompt, max_new=None, *, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0,
        repetition=1.0, presence=0.0, frequency=0.0, seed=1, ends=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        max_new: Option<usize>,
        temperature: f64,
        top_k: usize,
        top_p: f64,
        min_p: f64,
        typical_p: f64,
        repetition: f64,
        presence: f64,
        frequency: f64,
        seed: u64,
        ends: Option<Vec<i32>>,
    ) -> PyResult<Generation> {
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(PyValueError::new_err("the temperature must be 0 or greater"));
        }
        let model = self.get();
        let text = prompt.is_instance_of::<PyString>();
        let (ids, tokenizer) = if text {
            let tokenizer = self.tokenizer()?;
            let mut ids = tokenizer.encode_prompt(&prompt.extract::<String>()?).map_err(|e| model_error(&e))?;
            if ids.is_empty() {
                ids.extend(tokenizer.eos_id());
            }
            (ids, Some(tokenizer))
        } else {
            let (mut ids, _) = rows(py, prompt)?;
            if ids.len() != 1 {
                return Err(PyValueError::new_err("give one prompt: token IDs with one axis"));
            }
            (ids.swap_remove(0), None)
        };
        let ends = match (ends, &tokenizer, &self.dir) {
            (Some(ends), ..) => ends,
            (None, Some(t), Some(dir)) => models::eos_ids(dir, Some(t)).map_err(|e| model_error(&e))?,
            _ => Vec::new(),
        };
        let room = model.max_sequence().unwrap_or(usize::MAX).saturating_sub(ids.len()).max(1);
        let most = max_new.unwrap_or(if text { 256.min(room) } else { 32.min(room) });
        let sampling = SamplingOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            typical_p,
            repetition_penalty: repetition,
            presence_penalty: presence,
            frequency_penalty: frequency,
            seed,
        };
        // A little ahead of who listens, and no further.
        let (say, heard): (SyncSender<GenerationEvent>, _) = sync_channel(4);
        std::thread::spawn(move || {
            let writing = GenerateOptions {
                max_new_tokens: most,
                sampling: Some(sampling),
                eos_ids: &ends,
                ..GenerateOptions::default()
            };
            let mut listen = |id: i32| !ends.contains(&id) && say.send(GenerationEvent::Id(id)).is_ok();
            if let Err(e) = model.generate_with_options(&ids, &writing, &*backend(), &mut listen) {
                let _ = say.send(GenerationEvent::Failed(model_error(&e)));
            }
        });
        let text = tokenizer.map(TextStream::new);
        Ok(Generation { heard: Mutex::new(Some(heard)), text: Mutex::new(text), ids: Mutex::default() })
    }

    /// Ids of a text.
    fn encode(&self, text: &str) -> PyResult<Vec<i32>> {
        self.tokenizer()?.encode(text).map_err(|e| model_error(&e))
    }

    /// The text of ids.
    fn decode(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<String> {
        if let Ok(list) = ids.cast::<PyList>()
            && list.is_empty()
        {
            return Ok(String::new());
        }
        let (ids, _) = rows(py, ids)?;
        self.tokenizer()?.decode(&ids.concat()).map_err(|e| model_error(&e))
    }

    /// Writes a HuggingFace directory.
    fn save(&self, py: Python<'_>, dir: PathBuf) -> PyResult<()> {
        let model = self.get();
        let from = self.dir.clone();
        let tokenizer = self.tokenizer.clone();
        let done = py.detach(move || -> models::Result<()> {
            let _lock = models::train::DirLock::acquire_if_run(&dir)?;
            model.export(&dir)?;
            match from.filter(|from| from.is_dir()) {
                Some(from) => models::copy_companions(&from, &dir),
                None => tokenizer.map_or(Ok(()), |t| t.write(&dir).map(drop)),
            }
        });
        done.map_err(|e| model_error(&e))
    }

    /// The program from parameters and ids to logits, as text.
    fn graph(&self, batch: usize, steps: usize) -> PyResult<String> {
        Ok(self.lowered(batch, steps)?.to_string())
    }
}

fn compute_dtype(d: Option<&Bound<'_, PyAny>>) -> PyResult<DType> {
    d.filter(|d| !d.is_none()).map_or(Ok(DType::F32), dtype)
}

/// The model of a HuggingFace directory, of an adapter's directory (merged into its base), or of a GGUF file. `module` is a `.module`
/// file with the model, where the library doesn't have it.
#[pyfunction]
#[pyo3(signature = (path, dtype=None, module=None))]
fn load(py: Python<'_>, path: PathBuf, dtype: Option<&Bound<'_, PyAny>>, module: Option<String>) -> PyResult<PyModel> {
    let dtype = compute_dtype(dtype)?;
    if !path.exists() {
        return Err(PyFileNotFoundError::new_err(format!(
            "{}: not found; give a HuggingFace model directory or a .gguf file",
            path.display()
        )));
    }
    let found = py.detach(|| -> models::Result<Model> {
        let program = |m: &Option<String>| m.as_deref().map(models::load_program).transpose();
        if path.join("adapter_config.json").is_file() {
            let base = Adapter::base_of(&path)?;
            let mut model = Model::load_with_module(Path::new(&base), dtype, program(&module)?)?;
            let adapter = Adapter::read(&path, &model)?;
            model.merge(&adapter)?;
            return Ok(model);
        }
        Model::load_with_module(&path, dtype, program(&module)?)
    });
    Ok(PyModel::new(found.map_err(|e| model_error(&e))?, Some(path)))
}

/// A model of a `.module` file, or of the library by its name (`llama`), with random parameters. `sizes` are the model's own.
#[pyfunction]
#[pyo3(signature = (module, sizes=None, dtype=None, seed=1, model=None, tokenizer=None))]
fn fresh(
    py: Python<'_>,
    module: &str,
    sizes: Option<&Bound<'_, PyDict>>,
    dtype: Option<&Bound<'_, PyAny>>,
    seed: u64,
    model: Option<&str>,
    tokenizer: Option<PathBuf>,
) -> PyResult<PyModel> {
    let dtype = compute_dtype(dtype)?;
    let mut settings = models::train::TrainSettings::default();
    for (k, v) in sizes.into_iter().flatten() {
        settings.set.insert(k.extract()?, text_of(&v)?);
    }
    let made = py.detach(|| -> models::Result<Model> {
        let program = models::load_program(module)?;
        Model::new_random(Architecture::from_program(program, model, settings.model_constants())?, dtype, seed)
    });
    let mut made = PyModel::new(made.map_err(|e| model_error(&e))?, None);
    if let Some(path) = tokenizer {
        made.tokenizer = Some(Arc::new(Tokenizer::read(&path).map_err(|e| model_error(&e))?));
    }
    Ok(made)
}

/// A setting as the command line has it.
pub(crate) fn text_of(v: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(b) = v.cast::<pyo3::types::PyBool>() {
        return Ok(b.is_true().to_string());
    }
    if let Ok(d) = v.cast::<PyDict>() {
        let pairs: Vec<String> =
            d.iter().map(|(k, v)| Ok(format!("{}={}", k.str()?, text_of(&v)?))).collect::<PyResult<_>>()?;
        return Ok(pairs.join(","));
    }
    if v.is_instance_of::<PyTensor>() {
        return Err(PyTypeError::new_err("a setting must be a number, a string or a dict, not a tensor"));
    }
    Ok(v.str()?.to_string())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let own = PyModule::new(m.py(), "models")?;
    own.add_class::<PyModel>()?;
    own.add_class::<Generation>()?;
    own.add("ModelError", m.py().get_type::<ModelError>())?;
    own.add_function(wrap_pyfunction!(load, &own)?)?;
    own.add_function(wrap_pyfunction!(fresh, &own)?)?;
    crate::train::register(&own)?;
    m.add_submodule(&own)
}
