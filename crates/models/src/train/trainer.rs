//! A model in training: the compiled step with a model's parameters, ids and labels. `make` puts it together, `state` saves and restores
//! it, `made` gives what has come of it.

mod made;
mod make;
mod state;

use super::aim::{Aim, PAD};
use super::batches::Batch;
use super::division::Division;
use super::pipeline::Pipeline;
use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::Buffer;
use compiler::{Backend, Timing};
use ir::{DType, Type};
use std::time::Duration;
use train::{SCALARS, StepResult};

/// Sizes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSizes {
    /// Sequences of a micro-batch.
    pub rows: usize,
    /// Ids of a sequence.
    pub seq: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
}

/// A model in training.
pub struct Trainer {
    model: Model,
    adapter: Option<Adapter>,
    sizes: StepSizes,
    names: Vec<(String, Type)>,
    /// Where each of them is among those that this rank has.
    held: Vec<Option<usize>>,
    /// The step with its state.
    core: train::Trainer,
    /// A pipeline has a validation of its own.
    pipeline: Option<Pipeline>,
    /// Tensors and messages of what is asserted.
    asserts: Vec<(String, String)>,
    aim: Aim,
    /// The token that divides documents which don't see each other.
    end: Option<i32>,
    /// How many of the trained are heads beside the model.
    heads: usize,
    /// Whether stages of a pipeline take keys.
    keyed: bool,
    /// How everything is divided among ranks, if there are several.
    division: Option<Division>,
    /// Time that compiling took.
    pub compiled_in: Duration,
}

impl Trainer {
    /// With another seed for what is random in a step.
    pub fn with_seed(self, seed: u64) -> Trainer {
        Trainer { core: self.core.with_seed(seed), ..self }
    }

    /// How many trained tensors this rank has.
    fn count(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// In a pipeline: all micro-batches, up to sums of losses and gradients.
    fn stages(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        let Some(mut pipeline) = self.pipeline.take() else { return Ok(()) };
        self.model.check_batch(&batch.ids, &batch.labels)?;
        let params: Vec<Buffer> = self.core.inputs()[..self.count()].to_vec();
        let keys: Vec<Vec<u8>> = match self.keyed {
            true => self.core.keys(step).chunks_exact(8).map(<[u8]>::to_vec).collect(),
            false => Vec::new(),
        };
        let StepSizes { rows, seq, .. } = self.sizes;
        let totals = self.totals(batch);
        let loss = pipeline.run(&params, batch, [rows, seq], totals.as_deref(), &keys);
        let at = self.core.first_batch_input();
        for (i, buffer) in pipeline.gradients.iter().enumerate() {
            self.core.set_input(at + SCALARS + 1 + i, buffer.clone());
        }
        self.pipeline = Some(pipeline);
        let scalars = self.core.scalars(rate, step).into_iter().chain([loss?]);
        for (i, scalar) in scalars.enumerate() {
            self.core.write(at + i, &scalar.to_le_bytes())?;
        }
        Ok(())
    }

    /// Ids and labels must be known.
    fn check(&self, batch: &Batch) -> Result<()> {
        self.model.check_batch(&batch.ids, &[])?;
        if self.aim == Aim::Next {
            return self.model.check_batch(&[], &batch.labels);
        }
        let most = self.aim.classes(self.model.vocabulary());
        let known = |label: &i32| usize::try_from(*label).is_ok_and(|label| most.is_none_or(|most| label < most));
        match batch.labels.iter().find(|label| **label != -100 && **label != PAD && !known(label)) {
            None => Ok(()),
            Some(label) => Err(Error::Input(format!(
                "label {label}: those of `{}` are from 0 to {}",
                self.aim,
                most.unwrap_or(1) - 1
            ))),
        }
    }

    /// This rank's rows of a batch, as bytes.
    fn rows(&self, values: &[i32], shape: &[usize]) -> Vec<u8> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let Some(division) = &self.division else { return bytes };
        let mut placement = division.batch.clone();
        if shape.len() == 3 {
            placement.layout.insert(0, transform::Cut::default());
        }
        division.part(&placement, &Type::new(DType::I32, shape), &bytes)
    }

    /// Gives a step its batch; in a pipeline, runs all micro-batches up to sums of losses and gradients.
    fn give(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        if self.pipeline.is_some() {
            return self.stages(batch, rate, step);
        }
        self.check(batch)?;
        let StepSizes { rows, seq, accumulate } = self.sizes;
        let shape: &[usize] = if accumulate == 1 { &[rows, seq] } else { &[accumulate, rows, seq] };
        let mut inputs = vec![self.rows(&batch.ids, shape), self.rows(&batch.labels, shape)];
        // The same for each micro-batch.
        inputs.extend(self.totals(batch).map(|totals| totals.repeat(accumulate)));
        Ok(self.core.give(&inputs, rate, step)?)
    }

    /// What the terms of the loss are divided by, as bytes; none for a step of one micro-batch, which counts for itself.
    fn totals(&self, batch: &Batch) -> Option<Vec<u8>> {
        let totals = (self.sizes.accumulate > 1).then(|| self.aim.counts(batch, self.sizes.seq, self.end))?;
        Some(totals.iter().flat_map(|total| (*total as f32).to_le_bytes()).collect())
    }

    /// A step's result, unless an assertion is broken.
    fn sound(&self, result: StepResult, broken: Option<usize>) -> Result<StepResult> {
        match broken.and_then(|i| self.asserts.get(i)) {
            Some(broken) => Err(crate::asserts::broken(broken)),
            None => Ok(result),
        }
    }

    /// One step on all its micro-batches; `step` counts from 0.
    pub fn step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<StepResult> {
        self.give(batch, rate, step)?;
        let (result, broken) = self.core.run()?;
        self.sound(result, broken)
    }

    /// One step whose kernels are timed one by one.
    pub fn timed_step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<(StepResult, Vec<Timing>)> {
        self.give(batch, rate, step)?;
        let (result, broken, timings) = self.core.run_timed()?;
        Ok((self.sound(result, broken)?, timings))
    }

    /// What a step runs.
    pub fn program(&self) -> &compiler::Program {
        self.core.program()
    }

    /// Whether this rank has the whole of what others have parts of: the only one, or the first.
    pub fn leads(&self) -> bool {
        self.division.as_ref().is_none_or(Division::leads)
    }

    /// Whether ranks have parts of the model.
    pub(crate) fn is_divided(&self) -> bool {
        self.division.is_some()
    }

    /// Whether some rank says so.
    pub(crate) fn any(&self, own: bool) -> Result<bool> {
        self.division.as_ref().map_or(Ok(own), |d| d.any(own))
    }

    /// A tensor of the state, whole; empty on ranks that don't lead. `at` counts the inputs of the step, none if it is elsewhere;
    /// `param` those of the loss.
    fn whole(&self, at: Option<usize>, param: usize, ty: &Type) -> Result<Vec<u8>> {
        let own = at.map(|at| self.core.read(at)).transpose()?;
        match &self.division {
            None => Ok(own.unwrap_or_default()),
            Some(division) => division.whole(param, ty, own),
        }
    }

    /// The input of the step that is trained tensor `i`, or its first or second moment.
    fn input_of(&self, kind: usize, i: usize) -> Option<usize> {
        self.held[i].map(|at| kind * self.count() + at)
    }

    /// The mean loss over batches of one micro-batch each; NaN if there are none.
    pub fn validate(&mut self, batches: &[Batch], backend: &dyn Backend) -> Result<f32> {
        let own = self.core.inputs()[..self.count()].to_vec();
        self.validate_with(&own, batches, backend)
    }

    /// The same with other trained tensors than those of now.
    pub(crate) fn validate_with(
        &mut self,
        trained: &[Buffer],
        batches: &[Batch],
        backend: &dyn Backend,
    ) -> Result<f32> {
        for batch in batches {
            self.check(batch)?;
        }
        let shape = [self.sizes.rows, self.sizes.seq];
        let (mut sum, mut count) = (0.0, 0.0);
        for batch in batches {
            let loss = match &mut self.pipeline {
                Some(pipeline) => pipeline.validate(trained, batch, shape)?,
                None => {
                    let inputs = [self.rows(&batch.ids, &shape), self.rows(&batch.labels, &shape)];
                    self.core.plain_loss(trained, backend, &|buffers| {
                        buffers.iter().zip(&inputs).try_for_each(|(buffer, bytes)| Ok(buffer.write(0, bytes)?))
                    })?
                }
            };
            let weight = self.aim.weight(batch, self.sizes.seq, self.end);
            sum += f64::from(loss) * weight;
            count += weight;
        }
        Ok((sum / count) as f32)
    }

    /// Lengths of gradients, of the last step, and of the trained tensors, layer by layer; none where ranks have parts of them.
    pub fn norms(&mut self, backend: &dyn Backend) -> Result<Vec<(String, f32, f32)>> {
        if self.division.is_some() {
            return Ok(Vec::new());
        }
        let [gradients, weights] = self.core.lengths(backend)?;
        let names: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
        Ok(train::norms::by_layer(&names, &gradients, &weights))
    }

    /// Copies of the trained tensors as they are now.
    pub(crate) fn trained_now(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        Ok(self.core.trained_now(backend)?)
    }

    /// How many elements are trained.
    pub fn trained_count(&self) -> usize {
        self.names.iter().map(|(_, ty)| ty.numel()).sum()
    }

    /// Bytes that a step works on: state, inputs and the arena of its activations.
    pub fn planned_bytes(&self) -> usize {
        let program = self.core.program();
        let arena = program.arena.max(self.pipeline.as_ref().map_or(0, Pipeline::arenas));
        let kept = self.pipeline.as_ref().map_or(0, Pipeline::kept);
        arena + kept + program.inputs.iter().map(Type::bytes).sum::<usize>()
    }

    /// How many tensors of the state are updated in place, of how many.
    pub fn in_place(&self) -> (usize, usize) {
        self.core.in_place()
    }

    /// The longest sequence that the model takes, if there is a limit.
    pub(crate) fn max_sequence(&self) -> Option<usize> {
        self.model.max_sequence()
    }

    /// Whether an adapter is trained.
    pub(crate) fn adapts(&self) -> bool {
        self.adapter.is_some()
    }

    /// Sizes of a step.
    pub fn sizes(&self) -> StepSizes {
        self.sizes
    }
}
