//! Logits, loss and gradients of a batch.

use crate::asserts;
use crate::default_device::default_device;
use crate::error::{Error, Result};
use crate::mapping::Function;
use crate::model::Model;
use crate::session::Session;
use compiler::Backend;
use ir::{Build, Builder, DType, Graph, Type, Value};
use lang::lower::{Lowered, Options, Shown, mean_cross_entropy};
use train::NamedTensor;
use train::named_tensor::{from_bytes, to_bytes};

/// What an evaluation gives.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// `[batch, T, vocabulary]`.
    pub logits: NamedTensor,
    /// The mean loss, if labels were given.
    pub loss: Option<NamedTensor>,
    /// `grad.<HuggingFace name>` for every tensor of the checkpoint, if labels were given.
    pub gradients: Vec<NamedTensor>,
}

/// What a probe captured.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// The module and the tensor, such as `blocks[3].attention.qkv`.
    pub path: String,
    /// The layer, inside a stack of blocks.
    pub layer: Option<usize>,
    /// What was captured, such as `stats`: mean, deviation, smallest, largest, norm.
    pub capture: String,
    /// It, under the probe's name.
    pub value: NamedTensor,
}

/// Results that are states, as transformers calls them.
const STATES: [&str; 2] = ["last_hidden_state", "pooler_output"];

impl Model {
    /// The graph from parameters and ids (`i32[batch, steps]`) to logits, and the parameters' values under their paths.
    pub fn graph(&self, batch: usize, steps: usize) -> Result<(Graph, Vec<NamedTensor>)> {
        self.named_graph(batch, steps).map(|(graph, values, _)| (graph, values))
    }

    /// The same, with the names of the inputs behind the parameters.
    pub fn named_graph(&self, batch: usize, steps: usize) -> Result<(Graph, Vec<NamedTensor>, Vec<String>)> {
        let options = Options { dtype: self.dtype, ..Options::default() };
        let lowered = self.architecture.lower_with(batch, steps, &options)?;
        let mut graph = lowered.graph;
        let logits = graph.outputs()[..1].to_vec();
        graph.set_outputs(logits);
        let one = |(i, p): (usize, &lang::lower::Parameter)| -> Result<NamedTensor> {
            let bytes = to_bytes(&self.rounded(i)?, p.ty.dtype);
            Ok(NamedTensor { name: p.path.clone(), shape: p.ty.shape.to_vec(), dtype: p.ty.dtype, bytes })
        };
        let values = lowered.params.iter().enumerate().map(one).collect::<Result<_>>()?;
        Ok((graph, values, lowered.inputs))
    }

    /// Runs a batch of sequences of one length on the CPU with all its cores. [`Model::evaluate_on`] also gives the loss and its gradients,
    /// and computes on another device.
    pub fn evaluate(&self, ids: &[Vec<i32>]) -> Result<Evaluation> {
        self.evaluate_on(ids, None, default_device())
    }

    /// Runs a batch of sequences of one length. With labels (as many as ids, shifted here as HuggingFace does: position
    /// `t` predicts label `t + 1`; -100 does not count) also the loss and its gradients.
    pub fn evaluate_on(
        &self,
        ids: &[Vec<i32>],
        labels: Option<&[Vec<i32>]>,
        backend: &dyn Backend,
    ) -> Result<Evaluation> {
        let steps = self.check_ids(ids)?;
        if let Some(labels) = labels {
            self.check_labels(labels, ids.len(), steps)?;
        }
        let options = Options { dtype: self.dtype, asserts: true, ..Options::default() };
        let lowered = self.lower_with(ids.len(), steps, &options)?;
        let (n, results) = (self.param_inputs(), lowered.graph.output_types().len());
        // What is packed has no gradient.
        let all = (0..self.params.len()).filter(|&i| self.params[i].ty.dtype.is_float() && self.packed(i).is_none());
        let wide: Vec<usize> = all.collect();
        let floats: Vec<usize> = wide.iter().map(|&i| (0..i).map(|j| self.parts_of(j)).sum()).collect();
        let graph = match labels {
            None => lowered.graph.clone(),
            Some(_) => {
                let loss = loss_of(&lowered.graph, ids.len(), steps)?;
                transform::value_and_grad(&loss, &floats)?
            }
        };
        let params = self.upload(backend)?;
        let mut session = Session::new(&graph, backend, &params)?;
        session.write_ints(n, ids.iter().flatten().copied())?;
        if let Some(labels) = labels {
            session.write_ints(n + 1, labels.iter().flatten().copied())?;
        }
        session.run()?;
        asserts::check(&session, &lowered.observed, usize::from(labels.is_some()) + lowered.outputs.len())?;
        let named = |session: &Session, output: usize, name: &str| -> Result<NamedTensor> {
            let (ty, bytes) = session.read(output)?;
            Ok(NamedTensor { name: name.to_string(), shape: ty.shape.to_vec(), dtype: ty.dtype, bytes })
        };
        if labels.is_none() {
            return Ok(Evaluation { logits: named(&session, 0, "logits")?, loss: None, gradients: Vec::new() });
        }
        // The loss, all results, then gradients.
        let gradients = self.named_gradients(&session, 1 + results, &wide)?;
        Ok(Evaluation { logits: named(&session, 1, "logits")?, loss: Some(named(&session, 0, "loss")?), gradients })
    }

    /// Gradients of these parameters, which are outputs from `first` on, as tensors of the checkpoint.
    pub(crate) fn named_gradients(&self, session: &Session, first: usize, wide: &[usize]) -> Result<Vec<NamedTensor>> {
        let mut gradients = Vec::new();
        for (output, &i) in wide.iter().enumerate() {
            let (param, pieces) = (&self.params[i], &self.pieces[i]);
            let (ty, bytes) = session.read(first + output)?;
            let values = from_bytes(&bytes, ty.dtype);
            let weights = match pieces.iter().all(|piece| piece.function == Function::Identity) {
                true => Vec::new(),
                false => self.rounded(i)?,
            };
            for piece in pieces {
                gradients.push(NamedTensor {
                    name: format!("grad.{}", piece.tensor),
                    shape: piece.shape.clone(),
                    dtype: ty.dtype,
                    bytes: to_bytes(&piece.take_gradient(&param.ty.shape, &values, &weights), ty.dtype),
                });
            }
        }
        gradients.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(gradients)
    }

    /// The mean loss of predicting each id of some sequences of one length from those before it, `batch` sequences at a time.
    pub fn mean_loss(&self, rows: &[Vec<i32>], batch: usize, backend: &dyn Backend) -> Result<f64> {
        let steps = self.check_ids(rows)?;
        if steps < 2 {
            return Err(Error::Input("a loss needs sequences of at least two ids".into()));
        }
        let batch = batch.clamp(1, rows.len());
        let options = Options { dtype: self.dtype, ..Options::default() };
        let lowered = self.lower_with(batch, steps, &options)?;
        let loss = loss_of(&lowered.graph, batch, steps)?;
        let mut alone = Builder::new();
        let inputs: Vec<Value> = loss.input_types().into_iter().map(|t| alone.graph.input(t)).collect();
        let outs = alone.inline(&loss, &inputs)?;
        let params = self.upload(backend)?;
        let n = params.len();
        let mut session = Session::new(&alone.finish(&outs[..1]), backend, &params)?;
        let (mut sum, mut count) = (0.0, 0.0);
        // What doesn't fill a batch is left out.
        for rows in rows.chunks_exact(batch) {
            let ids = || rows.iter().flatten().copied();
            session.write_ints(n, ids())?;
            session.write_ints(n + 1, ids())?;
            session.run()?;
            let (ty, bytes) = session.read(0)?;
            sum += f64::from(from_bytes(&bytes, ty.dtype)[0]);
            count += 1.0;
        }
        Ok(sum / count)
    }

    /// What the model's `@probe`s capture on a batch, forward ones first; those of gradients (`grad_stats`, `grad_full`)
    /// need labels, and are left out without them.
    pub fn probe(&self, ids: &[Vec<i32>], labels: Option<&[Vec<i32>]>, backend: &dyn Backend) -> Result<Vec<Probed>> {
        let steps = self.check_ids(ids)?;
        if let Some(labels) = labels {
            self.check_labels(labels, ids.len(), steps)?;
        }
        let options = Options { dtype: self.dtype, probes: true, asserts: true, ..Options::default() };
        let lowered = self.lower_with(ids.len(), steps, &options)?;
        let n = self.param_inputs();
        let (graph, taps) = probes(&lowered, n, labels.is_some().then_some((ids.len(), steps)))?;
        let params = self.upload(backend)?;
        let mut session = Session::new(&graph, backend, &params)?;
        session.write_ints(n, ids.iter().flatten().copied())?;
        if let Some(labels) = labels {
            session.write_ints(n + 1, labels.iter().flatten().copied())?;
        }
        session.run()?;
        asserts::check(&session, &lowered.observed, 0)?;
        let shown = lowered.observed.iter().chain(&lowered.tapped[..taps]).enumerate();
        let mut found = Vec::new();
        let mut holds = true;
        for (output, observation) in shown {
            if observation.shown == Shown::Condition {
                holds = session.read(output)?.1.first().is_some_and(|byte| *byte != 0);
            }
            if let Shown::Probe { name, capture, conditional, .. } = &observation.shown {
                if *conditional && !holds {
                    continue;
                }
                let (ty, bytes) = session.read(output)?;
                let value = NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: ty.dtype, bytes };
                let (path, capture) = (observation.path.clone(), capture.clone());
                found.push(Probed { path, layer: observation.layer, capture, value });
            }
        }
        Ok(found)
    }

    /// Whether ids are all that the model needs.
    pub(crate) fn takes_ids(&self) -> Result<()> {
        let needed: Vec<String> =
            self.architecture.inputs().into_iter().filter(|i| !i.optional).map(|i| format!("`{}`", i.name)).collect();
        let ids = self.architecture.input_types(1, 1, self.dtype)?.first().is_some_and(|ty| ty.dtype == DType::I32);
        if needed.len() == 1 && ids {
            return Ok(());
        }
        Err(Error::Input(format!(
            "{} takes {}, not ids alone: give a file of them, `loom eval DIR --inputs FILE`",
            self.architecture.name,
            needed.join(", ")
        )))
    }

    /// Whether the first result scores ids: an encoder without a head gives states.
    pub(crate) fn scores_ids(&self) -> Result<()> {
        match self.architecture.outputs().first().filter(|name| STATES.contains(&&name[..])) {
            Some(name) => Err(Error::Input(format!(
                "{} gives `{name}`, no scores of ids: use a model with a head for them",
                self.architecture.name
            ))),
            None => Ok(()),
        }
    }

    /// The common length of the sequences.
    pub(crate) fn check_ids(&self, ids: &[Vec<i32>]) -> Result<usize> {
        // A model that decodes step by step takes ids and nothing else.
        if self.limits.whole.is_some() {
            self.takes_ids()?;
        }
        let steps = ids.first().map_or(0, Vec::len);
        if steps == 0 {
            return Err(Error::Input("no ids given: a sequence needs at least one".into()));
        }
        if let Some(other) = ids.iter().find(|row| row.len() != steps) {
            return Err(Error::Input(format!(
                "sequences of {steps} and {} ids in one batch: give sequences of equal length",
                other.len()
            )));
        }
        self.check_known(ids.iter().flatten())?;
        if let Some(most) = self.longest().filter(|most| steps > *most) {
            return Err(Error::Input(format!("a sequence of {steps} ids: the model takes at most {most}")));
        }
        Ok(steps)
    }

    /// The longest sequence that there are positions for.
    pub(crate) fn longest(&self) -> Option<usize> {
        self.architecture.longest().into_iter().chain(self.limits.longest).min()
    }

    fn check_labels(&self, labels: &[Vec<i32>], batch: usize, steps: usize) -> Result<()> {
        if labels.len() != batch || labels.iter().any(|row| row.len() != steps) {
            return Err(Error::Input(format!("labels must be {batch} rows of {steps}, one for each id")));
        }
        if steps < 2 {
            return Err(Error::Input("a loss needs sequences of at least two ids".into()));
        }
        self.check_scored(labels.iter().flatten())
    }

    /// Ids and labels of a batch.
    pub(crate) fn check_batch(&self, ids: &[i32], labels: &[i32]) -> Result<()> {
        self.check_known(ids.iter())?;
        self.check_scored(labels.iter())
    }

    /// Ids must be rows of every table that they are looked up in.
    pub(crate) fn check_known<'a>(&self, mut ids: impl Iterator<Item = &'a i32>) -> Result<()> {
        let Some(size) = self.vocabulary().filter(|size| *size > 0) else { return Ok(()) };
        match ids.find(|id| !within(**id, size)) {
            Some(id) => {
                Err(Error::Input(format!("id {id} is not in the vocabulary of {size}: ids are from 0 to {}", size - 1)))
            }
            None => Ok(()),
        }
    }

    /// Labels must be among what the model scores, or -100.
    fn check_scored<'a>(&self, mut labels: impl Iterator<Item = &'a i32>) -> Result<()> {
        let Some(size) = self.limits.classes.or_else(|| self.vocabulary()).filter(|size| *size > 0) else {
            return Ok(());
        };
        match labels.find(|id| **id != -100 && !within(**id, size)) {
            Some(id) => Err(Error::Input(format!(
                "label {id} is neither -100 nor in the vocabulary: labels are from 0 to {}",
                size - 1
            ))),
            None => Ok(()),
        }
    }
}

fn within(id: i32, size: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < size)
}

/// What probes show, from parameters, ids and, for the sizes of labels, labels: forward ones, then gradients. Also how many
/// of the latter there are.
fn probes(lowered: &Lowered, params: usize, labels: Option<(usize, usize)>) -> ir::Result<(Graph, usize)> {
    let (results, shown) = (lowered.outputs.len(), lowered.observed.len());
    let mut b = Builder::new();
    let types = lowered.graph.input_types();
    let mut inputs: Vec<Value> = types[..=params].iter().map(|t| b.graph.input(t.clone())).collect();
    let Some((batch, steps)) = labels else {
        for ty in &types[params + 1..] {
            inputs.push(b.zeros(ty)?);
        }
        let outs = b.inline(&lowered.graph, &inputs)?;
        return Ok((b.finish(&outs[results..results + shown]), 0));
    };
    let loss = loss_of(&lowered.graph, batch, steps)?;
    // Inputs of the loss: parameters, ids, what is zero, labels.
    let wrt: Vec<usize> = (params + 1..params + 1 + lowered.tapped.len()).collect();
    let graph = transform::value_and_grad(&loss, &wrt)?;
    let given = b.graph.input(Type::new(DType::I32, &[batch, steps]));
    for ty in &types[params + 1..] {
        inputs.push(b.zeros(ty)?);
    }
    inputs.push(given);
    let outs = b.inline(&graph, &inputs)?;
    let gradients = &outs[outs.len() - wrt.len()..];
    let mut all = outs[1 + results..1 + results + shown].to_vec();
    for (tap, gradient) in lowered.tapped.iter().zip(gradients) {
        all.push(tap.of_gradient(&mut b, *gradient)?);
    }
    Ok((b.finish(&all), wrt.len()))
}

/// Loss and all results from all inputs and labels behind them: each position predicts the next one's label.
fn loss_of(forward: &Graph, batch: usize, steps: usize) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let inputs: Vec<Value> = forward.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let labels = b.graph.input(Type::new(DType::I32, &[batch, steps]));
    let outs = b.inline(forward, &inputs)?;
    let scored = b.slice_axis(outs[0], 1, 0, steps - 1)?;
    let dtype = b.ty(scored).dtype.accumulator();
    let scored = b.cast(scored, dtype)?;
    let next = b.slice_axis(labels, 1, 1, steps)?;
    let loss = mean_cross_entropy(&mut b, scored, next)?;
    Ok(b.finish(&[&[loss], &outs[..]].concat()))
}
