//! A compiled training step with its state: trained tensors and moments that are updated in place.

use super::batches::Batch;
use super::objective::{How, objective};
use super::step::{self, AdamW, Scalars};
use crate::adapter::Adapter;
use crate::budget;
use crate::checkpoint::{from_bytes, to_bytes};
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::model::Model;
use crate::session::{Buffer, needs, upload};
use crate::weight::Weight;
use compiler::{Backend, Bindings, Executable, Options, Timing};
use ir::ops::threefry::threefry2x32;
use ir::{DType, Type};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a step reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// The mean loss before the update.
    pub loss: f32,
    /// Length of the whole gradient, before clipping. If it is not finite, nothing was updated.
    pub norm: f32,
}

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
    step: Arc<dyn Executable>,
    bindings: Bindings,
    /// (input, output) of state that could not be updated in place and changes buffers instead.
    swaps: Vec<(usize, usize)>,
    validate: (Arc<dyn Executable>, Bindings),
    adam: AdamW,
    fixed: usize,
    /// Tensors and messages of what is asserted.
    asserts: Vec<(String, String)>,
    /// Whether the step takes keys, and the seed that they are made of.
    keyed: bool,
    seed: u64,
    /// Time that compiling took.
    pub compiled_in: Duration,
}

/// Scalars that follow ids and labels.
const SCALARS: usize = 3;

impl Trainer {
    /// Compiles the step and puts the state in place; moments are zero.
    pub fn new(
        model: Model,
        adapter: Option<Adapter>,
        sizes: StepSizes,
        adam: AdamW,
        backend: &dyn Backend,
    ) -> Result<Trainer> {
        Trainer::with(model, adapter, sizes, adam, &How::default(), backend)
    }

    /// The same where documents of one sequence don't see each other, or with products in few bits.
    pub fn with(
        model: Model,
        adapter: Option<Adapter>,
        sizes: StepSizes,
        adam: AdamW,
        how: &How<'_>,
        backend: &dyn Backend,
    ) -> Result<Trainer> {
        let started = Instant::now();
        if let Some(most) = model.max_sequence().filter(|most| sizes.seq > *most) {
            return Err(Error::Input(format!(
                "sequences of {} ids: the model takes at most {most}; give a smaller `--seq`",
                sizes.seq
            )));
        }
        let target = objective(&model, adapter.as_ref(), how, sizes.rows, sizes.seq)?;
        let n = target.trained.len();
        let graph = step::graph(&target, &adam, sizes.accumulate)?;
        let donate = (0..3 * n).map(|i| (i, 2 + i)).collect();
        let program = compiler::compile(&graph, backend, &Options { donate, ..Options::default() })?;
        budget::fits("a step of training", needs(&program), "give a smaller `--batch` or `--seq`")?;
        let step = backend.load(program)?;
        let all = model.params.iter().enumerate();
        let (masters, fixed): (Vec<_>, Vec<_>) = all.partition(|(_, param)| adapter.is_none() && param.trainable);
        let (names, mut inputs) = match &adapter {
            Some(adapter) => {
                let values = adapter.values.iter().map(|values| to_bytes(values, DType::F32)).collect::<Vec<_>>();
                (adapter.tensors(), upload(backend, &values)?)
            }
            None => {
                // Masters are what was read or drawn, not what it is rounded to where it is computed with.
                let names = masters.iter().map(|(_, param)| (param.path.clone(), param.ty.with_dtype(DType::F32)));
                let wide: Vec<_> = masters.iter().map(|(i, _)| (*i, DType::F32)).collect();
                (names.collect(), model.upload_as(&wide, backend)?)
            }
        };
        for (_, ty) in names.iter().chain(&names) {
            let moment = backend.alloc(ty.bytes())?;
            moment.write(0, &vec![0; ty.bytes()])?;
            inputs.push(moment);
        }
        let fixed: Vec<_> = fixed.iter().map(|(i, _)| *i).collect();
        let fixed_count = fixed.iter().map(|i| model.parts_of(*i)).sum();
        inputs.extend(model.upload_some(&fixed, backend)?);
        let types = &step.program().inputs;
        for ty in &types[inputs.len()..] {
            inputs.push(backend.alloc(ty.bytes())?);
        }
        let donated = &step.program().donated;
        let mut outputs = Vec::new();
        for (o, ty) in step.program().outputs.iter().enumerate() {
            outputs.push(match donated.iter().find(|(_, output)| *output == o) {
                Some((input, _)) => inputs[*input].clone(),
                None => backend.alloc(ty.bytes())?,
            });
        }
        let swaps = (0..3 * n).map(|i| (i, 2 + i)).filter(|pair| !donated.contains(pair)).collect();
        let bindings = Bindings { inputs, outputs };
        let validate = backend.load(compiler::compile(&target.plain, backend, &Options::default())?)?;
        let own = Bindings::for_program(validate.program(), backend)?;
        // What is packed stays at hand for a merge; the rest is in the buffers.
        let keep = |i: usize| model.packed(i).map_or(Weight::Stored, |packed| Weight::Packed(packed.clone()));
        let weights = (0..model.params.len()).map(keep).collect();
        let model = Model { weights, checkpoint: None, ..model };
        Ok(Trainer {
            model,
            adapter,
            sizes,
            names,
            step,
            bindings,
            swaps,
            validate: (validate, own),
            adam,
            fixed: fixed_count,
            asserts: target.asserts,
            keyed: target.keyed,
            seed: 0,
            compiled_in: started.elapsed(),
        })
    }

    /// With another seed for what is random in a step.
    pub fn with_seed(self, seed: u64) -> Trainer {
        Trainer { seed, ..self }
    }

    /// How many elements are trained.
    pub fn trained_count(&self) -> usize {
        self.names.iter().map(|(_, ty)| ty.numel()).sum()
    }

    /// Bytes that a step works on: state, inputs and the arena of its activations.
    pub fn planned_bytes(&self) -> usize {
        let program = self.step.program();
        program.arena + program.inputs.iter().map(Type::bytes).sum::<usize>()
    }

    /// How many tensors of the state are updated in place, of how many.
    pub fn in_place(&self) -> (usize, usize) {
        (3 * self.names.len() - self.swaps.len(), 3 * self.names.len())
    }

    fn first_batch_input(&self) -> usize {
        3 * self.names.len() + self.fixed
    }

    fn load_batch(&self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        self.model.check_batch(&batch.ids, &batch.labels)?;
        let at = self.first_batch_input();
        write_ints(&self.bindings.inputs[at], &batch.ids)?;
        write_ints(&self.bindings.inputs[at + 1], &batch.labels)?;
        let Scalars { rate, correct1, correct2 } = self.adam.scalars(rate, step);
        let scalars = [rate, correct1, correct2];
        for (i, scalar) in scalars.iter().enumerate().take(SCALARS) {
            self.bindings.inputs[at + 2 + i].write(0, &scalar.to_le_bytes())?;
        }
        if self.keyed {
            // One key for each micro-batch, of seed and position alone: resuming draws the same.
            let first = step as u64 * self.sizes.accumulate as u64;
            let keys = (first..first + self.sizes.accumulate as u64).flat_map(|position| {
                let key = threefry2x32(
                    [self.seed as u32, (self.seed >> 32) as u32],
                    [position as u32, (position >> 32) as u32],
                );
                key.into_iter().flat_map(u32::to_le_bytes)
            });
            self.bindings.inputs[at + 2 + SCALARS].write(0, &keys.collect::<Vec<u8>>())?;
        }
        Ok(())
    }

    fn finish_step(&mut self) -> Result<StepResult> {
        for &(i, o) in &self.swaps {
            std::mem::swap(&mut self.bindings.inputs[i], &mut self.bindings.outputs[o]);
        }
        let scalar = |buffer: &Buffer| -> Result<f32> {
            let mut bytes = [0; 4];
            buffer.read(0, &mut bytes)?;
            Ok(f32::from_le_bytes(bytes))
        };
        if !self.asserts.is_empty() {
            let mut counts = vec![0; 4 * self.asserts.len()];
            self.bindings.outputs[2 + 3 * self.names.len()].read(0, &mut counts)?;
            let broken = from_bytes(&counts, DType::F32).iter().position(|count| *count != 0.0);
            if let Some(broken) = broken.and_then(|i| self.asserts.get(i)) {
                return Err(crate::asserts::broken(broken));
            }
        }
        Ok(StepResult { loss: scalar(&self.bindings.outputs[0])?, norm: scalar(&self.bindings.outputs[1])? })
    }

    /// One step on all its micro-batches; `step` counts from 0.
    pub fn step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<StepResult> {
        self.load_batch(batch, rate, step)?;
        self.step.run(&mut self.bindings)?;
        self.finish_step()
    }

    /// What a step runs.
    pub fn program(&self) -> &compiler::Program {
        self.step.program()
    }

    /// One step whose kernels are timed one by one.
    pub fn timed_step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<(StepResult, Vec<Timing>)> {
        self.load_batch(batch, rate, step)?;
        let timings = self.step.run_timed(&mut self.bindings)?;
        Ok((self.finish_step()?, timings))
    }

    /// The mean loss over batches of one micro-batch each; NaN if there are none.
    pub fn validate(&mut self, batches: &[Batch]) -> Result<f32> {
        for batch in batches {
            self.model.check_batch(&batch.ids, &batch.labels)?;
        }
        let n = self.names.len();
        let (executable, bindings) = &mut self.validate;
        for i in 0..n {
            bindings.inputs[i] = self.bindings.inputs[i].clone();
        }
        for i in 0..self.fixed {
            bindings.inputs[n + i] = self.bindings.inputs[3 * n + i].clone();
        }
        let (mut sum, mut count) = (0.0, 0.0);
        for batch in batches {
            write_ints(&bindings.inputs[n + self.fixed], &batch.ids)?;
            write_ints(&bindings.inputs[n + self.fixed + 1], &batch.labels)?;
            executable.run(bindings)?;
            let mut bytes = [0; 4];
            bindings.outputs[0].read(0, &mut bytes)?;
            let weight = batch.labels.iter().filter(|label| **label >= 0).count() as f64;
            sum += f64::from(f32::from_le_bytes(bytes)) * weight;
            count += weight;
        }
        Ok((sum / count) as f32)
    }

    /// Trained tensors and moments, by name.
    pub fn state(&self) -> Result<Vec<NamedTensor>> {
        let n = self.names.len();
        let mut tensors = Vec::with_capacity(3 * n);
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, ty)) in self.names.iter().enumerate() {
                let mut bytes = vec![0; ty.bytes()];
                self.bindings.inputs[k * n + i].read(0, &mut bytes)?;
                let (name, shape) = (format!("{kind}.{name}"), ty.shape.to_vec());
                tensors.push(NamedTensor { name, shape, dtype: DType::F32, bytes });
            }
        }
        Ok(tensors)
    }

    /// Puts a state back; it must name every tensor with its shape.
    pub fn restore(&mut self, state: &[NamedTensor]) -> Result<()> {
        let n = self.names.len();
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, ty)) in self.names.iter().enumerate() {
                let name = format!("{kind}.{name}");
                let found = state.iter().find(|tensor| tensor.name == name);
                let found = found.filter(|tensor| tensor.shape[..] == ty.shape[..]).ok_or_else(|| {
                    Error::Input(format!(
                        "the checkpoint has no `{name}` of shape {:?}: it is another model's",
                        ty.shape
                    ))
                })?;
                self.bindings.inputs[k * n + i].write(0, &found.bytes)?;
            }
        }
        Ok(())
    }

    fn trained_values(&self) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::new();
        for (i, (_, ty)) in self.names.iter().enumerate() {
            let mut bytes = vec![0; ty.bytes()];
            self.bindings.inputs[i].read(0, &mut bytes)?;
            all.push(from_bytes(&bytes, DType::F32));
        }
        Ok(all)
    }

    fn fixed_values(&self, at: usize, ty: &Type) -> Result<Vec<f32>> {
        let mut bytes = vec![0; ty.bytes()];
        self.bindings.inputs[3 * self.names.len() + at].read(0, &mut bytes)?;
        Ok(from_bytes(&bytes, ty.dtype))
    }

    /// The adapter as it stands, if one is trained.
    pub fn adapter(&self) -> Result<Option<Adapter>> {
        let Some(mut adapter) = self.adapter.clone() else { return Ok(None) };
        adapter.values = self.trained_values()?;
        Ok(Some(adapter))
    }

    /// The model as it stands, an adapter merged into it.
    pub fn model(&self) -> Result<Model> {
        let mut values = Vec::new();
        if let Some(adapter) = self.adapter()? {
            let mut at = 0;
            for (i, param) in self.model.params.iter().enumerate() {
                values.push(match self.model.packed(i) {
                    Some(packed) => packed.values(),
                    None => self.fixed_values(at, &param.ty)?,
                });
                at += self.model.parts_of(i);
            }
            let mut model = self.model.with_values(&values);
            model.merge(&adapter)?;
            return Ok(model);
        }
        let mut trained = self.trained_values()?.into_iter();
        let mut fixed = 0;
        for param in &self.model.params {
            values.push(match param.trainable {
                true => trained.next().unwrap_or_default(),
                false => {
                    fixed += 1;
                    self.fixed_values(fixed - 1, &param.ty)?
                }
            });
        }
        // Masters are f32, and so is what is saved.
        let params = self.model.architecture.lower(1, 1, DType::F32, None)?.params;
        let mut model = Model { dtype: DType::F32, params, ..self.model.with_values(&[]) };
        model.weights = values.iter().map(|values| Weight::Held(DType::F32, to_bytes(values, DType::F32))).collect();
        Ok(model)
    }

    /// Sizes of a step.
    pub fn sizes(&self) -> StepSizes {
        self.sizes
    }
}

fn write_ints(buffer: &Buffer, values: &[i32]) -> Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Ok(buffer.write(0, &bytes)?)
}
