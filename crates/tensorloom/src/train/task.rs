//! A module's step as what a run trains.

use crate::{Error, Literal, Result, Tree, Type, record};
use compiler::{Backend, Timing};
use std::path::{Path, PathBuf};
use train::checkpoint::{self, CheckpointMeta};
use train::{StepResult, TrainLoop};

/// An error of this crate, which may have come from below.
pub(super) struct Fault(pub(super) Error);

impl From<train::Error> for Fault {
    fn from(e: train::Error) -> Fault {
        Fault(record::error("Trainer", e.to_string()))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The bytes of a batch's tensors, which must have these types.
pub(super) fn bytes_of<B: Tree>(batch: &B, types: &[Type], which: u64) -> Result<Vec<Vec<u8>>> {
    let leaves = batch.leaves();
    for t in &leaves {
        t.check()?;
    }
    let fits = leaves.len() == types.len() && leaves.iter().zip(types).all(|(t, ty)| t.ty() == ty);
    if !fits {
        let found: Vec<String> = leaves.iter().map(|t| t.ty().to_string()).collect();
        let wanted: Vec<String> = types.iter().map(Type::to_string).collect();
        return Err(record::error(
            "Trainer",
            format!(
                "batch {which} is ({}), but the first one is ({}): all batches need the same types; drop an \
                 incomplete last batch (`drop_last`)",
                found.join(", "),
                wanted.join(", ")
            ),
        ));
    }
    leaves.iter().map(|t| Ok(t.to_literal()?.bytes().to_vec())).collect()
}

/// Steps of a module on batches by their numbers.
pub(super) struct Steps<'a, B> {
    pub(super) core: train::TrainStep,
    pub(super) params: Vec<String>,
    pub(super) buffers: Vec<String>,
    pub(super) types: Vec<Type>,
    pub(super) accumulate: usize,
    pub(super) backend: &'a dyn Backend,
    pub(super) batches: &'a dyn Fn(u64) -> Result<B>,
    pub(super) held_out: Vec<Vec<Vec<u8>>>,
}

impl<B: Tree> TrainLoop for Steps<'_, B> {
    type Error = Fault;

    fn step(
        &mut self,
        at: &CheckpointMeta,
        rate: f64,
        timed: bool,
    ) -> std::result::Result<(StepResult, Vec<Timing>), Fault> {
        let mut inputs: Vec<Vec<u8>> = vec![Vec::new(); self.types.len()];
        for i in 0..self.accumulate as u64 {
            let batch = (self.batches)(at.sequences_seen + i).map_err(Fault)?;
            let parts = bytes_of(&batch, &self.types, at.sequences_seen + i).map_err(Fault)?;
            inputs.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        }
        self.core.set_batch(&inputs, rate, at.step)?;
        if timed {
            let (result, _, timings) = self.core.run_timed()?;
            return Ok((result, timings));
        }
        Ok((self.core.run()?.0, Vec::new()))
    }

    fn validate(&mut self) -> std::result::Result<Option<f32>, Fault> {
        if self.held_out.is_empty() {
            return Ok(None);
        }
        let trained = self.core.inputs()[..self.params.len()].to_vec();
        let mut sum = 0.0;
        for batch in &self.held_out {
            let loss = self.core.eval_loss(&trained, self.backend, &|buffers| {
                buffers.iter().zip(batch).try_for_each(|(buffer, bytes)| Ok(buffer.write(0, bytes)?))
            })?;
            sum += f64::from(loss);
        }
        Ok(Some((sum / self.held_out.len() as f64) as f32))
    }

    fn norms(&mut self) -> std::result::Result<Vec<(String, f32, f32)>, Fault> {
        let [gradients, weights] = self.core.norms(self.backend)?;
        Ok(train::norms::norms_by_layer(&self.params, &gradients, &weights))
    }

    fn save(&self, folder: &Path, at: &CheckpointMeta, keep: usize) -> std::result::Result<PathBuf, Fault> {
        Ok(checkpoint::write(folder, at, &self.core.state(&self.params, &self.buffers)?, keep)?)
    }
}

impl<B> Steps<'_, B> {
    /// Parameters and buffers as they are now.
    pub(super) fn values(&self) -> Result<Vec<Literal>> {
        let first = self.core.layout().first_buffer();
        let inputs = (0..self.params.len()).chain(first..first + self.buffers.len());
        let value = |input: usize| {
            let bytes = self.core.read(input).map_err(|e| Fault::from(e).0)?;
            let ty = self.core.program().inputs[input].clone();
            Literal::from_bytes(ty, &bytes).ok_or_else(|| record::error("Trainer", "a tensor has too few bytes"))
        };
        inputs.map(value).collect()
    }
}
