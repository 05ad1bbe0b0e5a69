//! A compiled training step with a model's parameters, token IDs and labels. `build` constructs it, `state` saves and restores
//! it, `export` returns the trained model.

mod build;
mod export;
mod state;

use super::batches::Batch;
use super::objective_kind::{Objective, PAD_LABEL};
use super::pipeline::Pipeline;
use super::sharding::ShardingPlan;
use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::Buffer;
use compiler::{Backend, Timing};
use ir::{DType, Type};
use std::time::Duration;
use train::{NUM_STEP_SCALARS, StepResult};

/// The sizes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSizes {
    /// Number of sequences per micro-batch.
    pub micro_batch_size: usize,
    /// Number of tokens per sequence.
    pub seq_len: usize,
    /// Number of micro-batches per step.
    pub gradient_accumulation_steps: usize,
}

/// The training step of a language model.
pub struct LanguageModelTrainer {
    model: Model,
    adapter: Option<Adapter>,
    sizes: StepSizes,
    names: Vec<(String, Type)>,
    /// The index of each trainable tensor among those of this rank.
    local_index: Vec<Option<usize>>,
    /// The compiled step with its state.
    train_step: train::TrainStep,
    /// A pipeline has its own validation.
    pipeline: Option<Pipeline>,
    /// Names of the asserted values, and messages.
    asserts: Vec<(String, String)>,
    aim: Objective,
    /// The end token between documents with masked attention.
    end_id: Option<i32>,
    /// The number of trainable heads beside the model.
    num_heads_trained: usize,
    /// Whether pipeline stages take random keys.
    needs_rng: bool,
    /// The sharding, if there are several ranks.
    sharding: Option<ShardingPlan>,
    /// Compilation time.
    pub compile_time: Duration,
}

impl LanguageModelTrainer {
    /// Sets the seed of the step's randomness.
    pub fn with_seed(self, seed: u64) -> LanguageModelTrainer {
        LanguageModelTrainer { train_step: self.train_step.with_seed(seed), ..self }
    }

    /// The number of trainable tensors of this rank.
    fn count(&self) -> usize {
        self.local_index.iter().flatten().count()
    }

    /// In a pipeline: runs all micro-batches and accumulates losses and gradients.
    fn run_pipeline(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        let Some(mut pipeline) = self.pipeline.take() else { return Ok(()) };
        self.model.check_batch(&batch.ids, &batch.labels)?;
        let params: Vec<Buffer> = self.train_step.inputs()[..self.count()].to_vec();
        let keys: Vec<Vec<u8>> = match self.needs_rng {
            true => self.train_step.rng_keys(step).chunks_exact(8).map(<[u8]>::to_vec).collect(),
            false => Vec::new(),
        };
        let StepSizes { micro_batch_size: rows, seq_len: seq, .. } = self.sizes;
        let totals = self.loss_divisors(batch);
        let loss = pipeline.run(&params, batch, [rows, seq], totals.as_deref(), &keys);
        let at = self.train_step.first_batch_input();
        for (i, buffer) in pipeline.gradients.iter().enumerate() {
            self.train_step.set_input(at + NUM_STEP_SCALARS + 1 + i, buffer.clone());
        }
        self.pipeline = Some(pipeline);
        let scalars = self.train_step.scalars(rate, step).into_iter().chain([loss?]);
        for (i, scalar) in scalars.enumerate() {
            self.train_step.write(at + i, &scalar.to_le_bytes())?;
        }
        Ok(())
    }

    /// Checks the token IDs and labels.
    fn check(&self, batch: &Batch) -> Result<()> {
        self.model.check_batch(&batch.ids, &[])?;
        if self.aim == Objective::CausalLm {
            return self.model.check_batch(&[], &batch.labels);
        }
        let most = self.aim.classes(self.model.vocabulary());
        let known = |label: &i32| usize::try_from(*label).is_ok_and(|label| most.is_none_or(|most| label < most));
        match batch.labels.iter().find(|label| **label != -100 && **label != PAD_LABEL && !known(label)) {
            None => Ok(()),
            Some(label) => Err(Error::Input(format!(
                "label {label} is out of range: labels of `{}` are from 0 to {}",
                self.aim,
                most.unwrap_or(1) - 1
            ))),
        }
    }

    /// This rank's rows of a batch, as bytes.
    fn rows(&self, values: &[i32], shape: &[usize]) -> Vec<u8> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let Some(division) = &self.sharding else { return bytes };
        let mut placement = division.batch.clone();
        if shape.len() == 3 {
            placement.spec.insert(0, transform::DimSharding::default());
        }
        division.local_part(&placement, &Type::new(DType::I32, shape), &bytes)
    }

    /// Writes the batch of a step; in a pipeline, runs all micro-batches and accumulates losses and gradients.
    fn set_batch(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        if self.pipeline.is_some() {
            return self.run_pipeline(batch, rate, step);
        }
        self.check(batch)?;
        let StepSizes { micro_batch_size: rows, seq_len: seq, gradient_accumulation_steps: accumulate } = self.sizes;
        let shape: &[usize] = if accumulate == 1 { &[rows, seq] } else { &[accumulate, rows, seq] };
        let mut inputs = vec![self.rows(&batch.ids, shape), self.rows(&batch.labels, shape)];
        // The divisors are the same for each micro-batch.
        inputs.extend(self.loss_divisors(batch).map(|totals| totals.repeat(accumulate)));
        Ok(self.train_step.set_batch(&inputs, rate, step)?)
    }

    /// The divisors of the loss terms, as bytes; none for a single micro-batch, which computes its own.
    fn loss_divisors(&self, batch: &Batch) -> Option<Vec<u8>> {
        let totals = (self.sizes.gradient_accumulation_steps > 1)
            .then(|| self.aim.counts(batch, self.sizes.seq_len, self.end_id))?;
        Some(totals.iter().flat_map(|total| (*total as f32).to_le_bytes()).collect())
    }

    /// Returns a step's result, or the error of a violated assertion.
    fn check_assertions(&self, result: StepResult, broken: Option<usize>) -> Result<StepResult> {
        match broken.and_then(|i| self.asserts.get(i)) {
            Some(broken) => Err(crate::asserts::assertion_error(broken)),
            None => Ok(result),
        }
    }

    /// Runs one step on all its micro-batches; `step` counts from 0.
    pub fn step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<StepResult> {
        self.set_batch(batch, rate, step)?;
        let (result, broken) = self.train_step.run()?;
        self.check_assertions(result, broken)
    }

    /// Runs one step with each kernel timed.
    pub fn timed_step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<(StepResult, Vec<Timing>)> {
        self.set_batch(batch, rate, step)?;
        let (result, broken, timings) = self.train_step.run_timed()?;
        Ok((self.check_assertions(result, broken)?, timings))
    }

    /// The compiled program of a step.
    pub fn program(&self) -> &compiler::Program {
        self.train_step.program()
    }

    /// Whether this rank gathers the full state: the only rank, or the first.
    pub fn is_main_process(&self) -> bool {
        self.sharding.as_ref().is_none_or(ShardingPlan::is_main_process)
    }

    /// Whether the model is sharded among ranks.
    pub(crate) fn is_sharded(&self) -> bool {
        self.sharding.is_some()
    }

    /// Whether the condition is true on any rank.
    pub(crate) fn any_rank(&self, own: bool) -> Result<bool> {
        self.sharding.as_ref().map_or(Ok(own), |d| d.any_rank(own))
    }

    /// Gathers a tensor of the state; empty on other ranks than the main one. `at` is the index among the inputs of the step,
    /// none if another rank has it; `param` that among the inputs of the loss.
    fn gather_whole(&self, at: Option<usize>, param: usize, ty: &Type) -> Result<Vec<u8>> {
        let own = at.map(|at| self.train_step.read(at)).transpose()?;
        match &self.sharding {
            None => Ok(own.unwrap_or_default()),
            Some(division) => division.gather_whole(param, ty, own),
        }
    }

    /// The input index of trainable tensor `i`, or of its first or second moment.
    fn input_of(&self, kind: usize, i: usize) -> Option<usize> {
        self.local_index[i].map(|at| kind * self.count() + at)
    }

    /// The mean loss over batches of one micro-batch each; NaN if there are none.
    pub fn validate(&mut self, batches: &[Batch], backend: &dyn Backend) -> Result<f32> {
        let own = self.train_step.inputs()[..self.count()].to_vec();
        self.validate_with(&own, batches, backend)
    }

    /// [`validate`](Self::validate) with other values of the trainable tensors.
    pub(crate) fn validate_with(
        &mut self,
        trained: &[Buffer],
        batches: &[Batch],
        backend: &dyn Backend,
    ) -> Result<f32> {
        for batch in batches {
            self.check(batch)?;
        }
        let shape = [self.sizes.micro_batch_size, self.sizes.seq_len];
        let (mut sum, mut count) = (0.0, 0.0);
        for batch in batches {
            let loss = match &mut self.pipeline {
                Some(pipeline) => pipeline.validate(trained, batch, shape)?,
                None => {
                    let inputs = [self.rows(&batch.ids, &shape), self.rows(&batch.labels, &shape)];
                    self.train_step.eval_loss(trained, backend, &|buffers| {
                        buffers.iter().zip(&inputs).try_for_each(|(buffer, bytes)| Ok(buffer.write(0, bytes)?))
                    })?
                }
            };
            let weight = self.aim.weight(batch, self.sizes.seq_len, self.end_id);
            sum += f64::from(loss) * weight;
            count += weight;
        }
        Ok((sum / count) as f32)
    }

    /// The gradient norms of the last step and the norms of the trainable tensors, by layer; none if they are sharded.
    pub fn norms(&mut self, backend: &dyn Backend) -> Result<Vec<(String, f32, f32)>> {
        if self.sharding.is_some() {
            return Ok(Vec::new());
        }
        let [gradients, weights] = self.train_step.norms(backend)?;
        let names: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
        Ok(train::norms::norms_by_layer(&names, &gradients, &weights))
    }

    /// Copies the current trainable tensors.
    pub(crate) fn snapshot_params(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        Ok(self.train_step.snapshot_params(backend)?)
    }

    /// The number of trainable elements.
    pub fn trained_count(&self) -> usize {
        self.names.iter().map(|(_, ty)| ty.numel()).sum()
    }

    /// Memory of a step in bytes: state, inputs and the arena of activations.
    pub fn planned_bytes(&self) -> usize {
        let program = self.train_step.program();
        let arena = program.arena_bytes.max(self.pipeline.as_ref().map_or(0, Pipeline::arenas));
        let kept = self.pipeline.as_ref().map_or(0, Pipeline::saved_activation_bytes);
        arena + kept + program.inputs.iter().map(Type::bytes).sum::<usize>()
    }

    /// The number of state tensors that are updated in place, and of all state tensors.
    pub fn in_place(&self) -> (usize, usize) {
        self.train_step.in_place()
    }

    /// The maximum sequence length of the model, if there is one.
    pub(crate) fn max_sequence(&self) -> Option<usize> {
        self.model.max_sequence()
    }

    /// Whether an adapter is trained.
    pub(crate) fn trains_adapter(&self) -> bool {
        self.adapter.is_some()
    }

    /// The sizes of a step.
    pub fn sizes(&self) -> StepSizes {
        self.sizes
    }
}
