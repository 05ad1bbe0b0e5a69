//! Logits, loss and gradients of a batch.

use crate::asserts;
use crate::default_device::default_device;
use crate::error::{Error, Result};
use crate::mapping::ElementTransform;
use crate::model::Model;
use crate::session::ProgramSession;
use compiler::Backend;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Value};
use lang::lower::{LowerOptions, Lowered, ObservationKind, mean_cross_entropy};
use train::NamedTensor;
use train::named_tensor::{from_bytes, to_bytes};

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// `[batch, T, vocabulary]`.
    pub logits: NamedTensor,
    /// The mean loss, if labels were given.
    pub loss: Option<NamedTensor>,
    /// The gradient `grad.<HuggingFace name>` of every tensor of the checkpoint, if labels were given.
    pub gradients: Vec<NamedTensor>,
}

/// A value captured by a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// The module and the tensor, such as `blocks[3].attention.qkv`.
    pub path: String,
    /// The layer, inside a stack of blocks.
    pub layer: Option<usize>,
    /// The kind of capture, such as `stats`: mean, deviation, minimum, maximum, norm.
    pub capture: String,
    /// The captured value, under the probe's name.
    pub value: NamedTensor,
}

/// Output names that denote hidden states, as in transformers.
const STATE_OUTPUTS: [&str; 2] = ["last_hidden_state", "pooler_output"];

impl Model {
    /// The graph from parameters and token IDs (`i32[batch, steps]`) to logits, and the parameters' values under their paths.
    pub fn graph(&self, batch: usize, steps: usize) -> Result<(Graph, Vec<NamedTensor>)> {
        self.named_graph(batch, steps).map(|(graph, values, _)| (graph, values))
    }

    /// [`graph`](Self::graph), with the names of the inputs after the parameters.
    pub fn named_graph(&self, batch: usize, steps: usize) -> Result<(Graph, Vec<NamedTensor>, Vec<String>)> {
        let options = LowerOptions { dtype: self.dtype, ..LowerOptions::default() };
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

    /// Runs a batch of sequences of one length. With labels (as many as tokens, shifted here as HuggingFace does: position `t`
    /// predicts label `t + 1`; -100 is ignored) also returns the loss and its gradients.
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
        let options = LowerOptions { dtype: self.dtype, asserts: true, ..LowerOptions::default() };
        let lowered = self.lower_with(ids.len(), steps, &options)?;
        let (n, results) = (self.param_inputs(), lowered.graph.output_types().len());
        // Quantized parameters have no gradient.
        let all = (0..self.params.len()).filter(|&i| self.params[i].ty.dtype.is_float() && self.packed(i).is_none());
        let wide: Vec<usize> = all.collect();
        let floats: Vec<usize> = wide.iter().map(|&i| (0..i).map(|j| self.inputs_of(j)).sum()).collect();
        let graph = match labels {
            None => lowered.graph.clone(),
            Some(_) => {
                let loss = loss_graph(&lowered.graph, ids.len(), steps)?;
                transform::value_and_grad(&loss, &floats)?
            }
        };
        let params = self.upload(backend)?;
        let mut session = ProgramSession::new(&graph, backend, &params)?;
        session.write_ints(n, ids.iter().flatten().copied())?;
        if let Some(labels) = labels {
            session.write_ints(n + 1, labels.iter().flatten().copied())?;
        }
        session.run()?;
        asserts::check_assertions(
            &session,
            &lowered.observations,
            usize::from(labels.is_some()) + lowered.outputs.len(),
        )?;
        let named = |session: &ProgramSession, output: usize, name: &str| -> Result<NamedTensor> {
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

    /// Reads the gradients of these parameters, which are outputs from `first` on, as tensors of the checkpoint.
    pub(crate) fn named_gradients(
        &self,
        session: &ProgramSession,
        first: usize,
        wide: &[usize],
    ) -> Result<Vec<NamedTensor>> {
        let mut gradients = Vec::new();
        for (output, &i) in wide.iter().enumerate() {
            let (param, pieces) = (&self.params[i], &self.pieces[i]);
            let (ty, bytes) = session.read(first + output)?;
            let values = from_bytes(&bytes, ty.dtype);
            let weights = match pieces.iter().all(|piece| piece.function == ElementTransform::Identity) {
                true => Vec::new(),
                false => self.rounded(i)?,
            };
            for piece in pieces {
                gradients.push(NamedTensor {
                    name: format!("grad.{}", piece.tensor),
                    shape: piece.shape.clone(),
                    dtype: ty.dtype,
                    bytes: to_bytes(&piece.read_gradient_from(&param.ty.shape, &values, &weights), ty.dtype),
                });
            }
        }
        gradients.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(gradients)
    }

    /// The mean loss of predicting each token of sequences of one length from the preceding ones, `batch` sequences at a time.
    pub fn mean_loss(&self, rows: &[Vec<i32>], batch: usize, backend: &dyn Backend) -> Result<f64> {
        let steps = self.check_ids(rows)?;
        if steps < 2 {
            return Err(Error::Input("the loss needs sequences of at least two tokens".into()));
        }
        let batch = batch.clamp(1, rows.len());
        let options = LowerOptions { dtype: self.dtype, ..LowerOptions::default() };
        let lowered = self.lower_with(batch, steps, &options)?;
        let loss = loss_graph(&lowered.graph, batch, steps)?;
        let mut alone = Builder::new();
        let inputs: Vec<Value> = loss.input_types().into_iter().map(|t| alone.graph.input(t)).collect();
        let outs = alone.inline(&loss, &inputs)?;
        let params = self.upload(backend)?;
        let n = params.len();
        let mut session = ProgramSession::new(&alone.finish(&outs[..1]), backend, &params)?;
        let (mut sum, mut count) = (0.0, 0.0);
        // An incomplete last batch is skipped.
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

    /// Returns the values that the model's `@probe`s capture on a batch, forward probes first; gradient probes (`grad_stats`,
    /// `grad_full`) need labels, and are skipped without them.
    pub fn capture(
        &self,
        ids: &[Vec<i32>],
        labels: Option<&[Vec<i32>]>,
        backend: &dyn Backend,
    ) -> Result<Vec<Captured>> {
        let steps = self.check_ids(ids)?;
        if let Some(labels) = labels {
            self.check_labels(labels, ids.len(), steps)?;
        }
        let options = LowerOptions { dtype: self.dtype, probes: true, asserts: true, ..LowerOptions::default() };
        let lowered = self.lower_with(ids.len(), steps, &options)?;
        let n = self.param_inputs();
        let (graph, taps) = probe_graph(&lowered, n, labels.is_some().then_some((ids.len(), steps)))?;
        let params = self.upload(backend)?;
        let mut session = ProgramSession::new(&graph, backend, &params)?;
        session.write_ints(n, ids.iter().flatten().copied())?;
        if let Some(labels) = labels {
            session.write_ints(n + 1, labels.iter().flatten().copied())?;
        }
        session.run()?;
        asserts::check_assertions(&session, &lowered.observations, 0)?;
        let shown = lowered.observations.iter().chain(&lowered.gradient_probes[..taps]).enumerate();
        let mut found = Vec::new();
        let mut holds = true;
        for (output, observation) in shown {
            if observation.kind == ObservationKind::Condition {
                holds = session.read(output)?.1.first().is_some_and(|byte| *byte != 0);
            }
            if let ObservationKind::Probe { name, capture, conditional, .. } = &observation.kind {
                if *conditional && !holds {
                    continue;
                }
                let (ty, bytes) = session.read(output)?;
                let value = NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: ty.dtype, bytes };
                let (path, capture) = (observation.path.clone(), capture.clone());
                found.push(Captured { path, layer: observation.layer, capture, value });
            }
        }
        Ok(found)
    }

    /// Checks that token IDs are the model's only required input.
    pub(crate) fn check_takes_token_ids(&self) -> Result<()> {
        let needed: Vec<String> =
            self.architecture.inputs().into_iter().filter(|i| !i.optional).map(|i| format!("`{}`", i.name)).collect();
        let ids = self.architecture.input_types(1, 1, self.dtype)?.first().is_some_and(|ty| ty.dtype == DType::I32);
        if needed.len() == 1 && ids {
            return Ok(());
        }
        Err(Error::Input(format!(
            "{} has the inputs {}, not only token IDs: give them in a file, `loom logits DIR --inputs FILE`",
            self.architecture.name,
            needed.join(", ")
        )))
    }

    /// Checks that the first output scores the vocabulary: an encoder without a head returns hidden states.
    pub(crate) fn check_has_lm_head(&self) -> Result<()> {
        match self.architecture.outputs().first().filter(|name| STATE_OUTPUTS.contains(&&name[..])) {
            Some(name) => Err(Error::Input(format!(
                "{} returns `{name}`, not logits: the model has no language-model head",
                self.architecture.name
            ))),
            None => Ok(()),
        }
    }

    /// The common length of the sequences.
    pub(crate) fn check_ids(&self, ids: &[Vec<i32>]) -> Result<usize> {
        // A model that supports incremental decoding takes only token IDs.
        if self.limits.not_incremental.is_some() {
            self.check_takes_token_ids()?;
        }
        let steps = ids.first().map_or(0, Vec::len);
        if steps == 0 {
            return Err(Error::Input("no token IDs given: a sequence needs at least one".into()));
        }
        if let Some(other) = ids.iter().find(|row| row.len() != steps) {
            return Err(Error::Input(format!(
                "sequences of {steps} and {} tokens in one batch: give sequences of equal length",
                other.len()
            )));
        }
        self.check_token_ids(ids.iter().flatten())?;
        if let Some(most) = self.max_positions().filter(|most| steps > *most) {
            return Err(Error::Input(format!("{steps} tokens exceed the model's maximum sequence length of {most}")));
        }
        Ok(steps)
    }

    /// The maximum sequence length with positional embeddings.
    pub(crate) fn max_positions(&self) -> Option<usize> {
        self.architecture.max_positions().into_iter().chain(self.limits.max_positions).min()
    }

    fn check_labels(&self, labels: &[Vec<i32>], batch: usize, steps: usize) -> Result<()> {
        if labels.len() != batch || labels.iter().any(|row| row.len() != steps) {
            return Err(Error::Input(format!("the labels must be {batch} rows of {steps}, one per token ID")));
        }
        if steps < 2 {
            return Err(Error::Input("the loss needs sequences of at least two tokens".into()));
        }
        self.check_labels_in_range(labels.iter().flatten())
    }

    /// Checks the token IDs and labels of a batch.
    pub(crate) fn check_batch(&self, ids: &[i32], labels: &[i32]) -> Result<()> {
        self.check_token_ids(ids.iter())?;
        self.check_labels_in_range(labels.iter())
    }

    /// Token IDs must be valid rows of every embedding table.
    pub(crate) fn check_token_ids<'a>(&self, mut ids: impl Iterator<Item = &'a i32>) -> Result<()> {
        let Some(size) = self.vocabulary().filter(|size| *size > 0) else { return Ok(()) };
        match ids.find(|id| !in_range(**id, size)) {
            Some(id) => Err(Error::Input(format!(
                "token ID {id} is outside the vocabulary of {size}: token IDs are from 0 to {}",
                size - 1
            ))),
            None => Ok(()),
        }
    }

    /// Labels must be valid classes of the output, or -100.
    fn check_labels_in_range<'a>(&self, mut labels: impl Iterator<Item = &'a i32>) -> Result<()> {
        let Some(size) = self.limits.classes.or_else(|| self.vocabulary()).filter(|size| *size > 0) else {
            return Ok(());
        };
        match labels.find(|id| **id != -100 && !in_range(**id, size)) {
            Some(id) => Err(Error::Input(format!(
                "label {id} is neither -100 nor in the vocabulary: labels are from 0 to {}",
                size - 1
            ))),
            None => Ok(()),
        }
    }
}

fn in_range(id: i32, size: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < size)
}

/// The graph of the probed values, from parameters, token IDs and, for the sizes of labels, labels: forward probes, then gradient
/// probes. Also returns the number of the latter.
fn probe_graph(lowered: &Lowered, params: usize, labels: Option<(usize, usize)>) -> ir::Result<(Graph, usize)> {
    let (results, shown) = (lowered.outputs.len(), lowered.observations.len());
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
    let loss = loss_graph(&lowered.graph, batch, steps)?;
    // Inputs of the loss: parameters, token IDs, zeros at the probed values, labels.
    let wrt: Vec<usize> = (params + 1..params + 1 + lowered.gradient_probes.len()).collect();
    let graph = transform::value_and_grad(&loss, &wrt)?;
    let given = b.graph.input(Type::new(DType::I32, &[batch, steps]));
    for ty in &types[params + 1..] {
        inputs.push(b.zeros(ty)?);
    }
    inputs.push(given);
    let outs = b.inline(&graph, &inputs)?;
    let gradients = &outs[outs.len() - wrt.len()..];
    let mut all = outs[1 + results..1 + results + shown].to_vec();
    for (tap, gradient) in lowered.gradient_probes.iter().zip(gradients) {
        all.push(tap.capture_gradient(&mut b, *gradient)?);
    }
    Ok((b.finish(&all), wrt.len()))
}

/// Computes the loss and all outputs from all inputs followed by labels: each position predicts the next label.
fn loss_graph(forward: &Graph, batch: usize, steps: usize) -> ir::Result<Graph> {
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
