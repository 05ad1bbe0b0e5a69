//! A compiled training step with its state: trained tensors and moments that are updated in place.

use super::aim::{Aim, PAD};
use super::batches::Batch;
use super::objective::{How, objective};
use super::step::{self, AdamW, Scalars};
use crate::adapter::Adapter;
use crate::budget;
use crate::checkpoint::{from_bytes, to_bytes};
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::generate::{Generation, Writing};
use crate::model::Model;
use crate::random::Random;
use crate::sample::Sampling;
use crate::session::{Buffer, needs, upload};
use crate::weight::Weight;
use compiler::{Backend, Bindings, Executable, Options, Timing};
use ir::ops::threefry::threefry2x32;
use ir::{Build, Builder, DType, Graph, Type, Unary, Value};
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
    /// The loss without an update, compiled when it is first asked for.
    plain: Graph,
    validate: Option<(Arc<dyn Executable>, Bindings)>,
    /// Lengths of the trained tensors, likewise.
    lengths: Option<(Arc<dyn Executable>, Bindings)>,
    adam: AdamW,
    fixed: usize,
    /// Tensors and messages of what is asserted.
    asserts: Vec<(String, String)>,
    aim: Aim,
    /// How many of the trained are heads beside the model.
    heads: usize,
    /// Whether the step takes keys, and the seed that they are made of.
    keyed: bool,
    seed: u64,
    /// Time that compiling took.
    pub compiled_in: Duration,
}

/// Random streams of heads, which no parameter has.
const HEAD_STREAM: u64 = 1 << 40;

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
        let second = how.second(&model, adapter.is_some())?;
        let graph = step::graph(&target, &adam, sizes.accumulate)?;
        let donate = (0..3 * n).map(|i| (i, 2 + i)).collect();
        let program = compiler::compile(&graph, backend, &Options { donate, ..Options::default() })?;
        budget::fits("a step of training", needs(&program), "give a smaller `--batch` or `--seq`")?;
        let step = backend.load(program)?;
        let all = model.params.iter().enumerate();
        let (masters, fixed): (Vec<_>, Vec<_>) = all.partition(|(_, param)| adapter.is_none() && param.trainable);
        let (mut names, mut inputs): (Vec<_>, Vec<_>) = match &adapter {
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
        for (k, (name, ty)) in target.heads.iter().enumerate() {
            // As a fresh model's matrices.
            let mut random = Random::new(0, HEAD_STREAM + k as u64);
            let values: Vec<f32> = (0..ty.numel()).map(|_| 0.02 * random.normal() as f32).collect();
            inputs.extend(upload(backend, &[to_bytes(&values, DType::F32)])?);
            names.push((name.clone(), ty.clone()));
        }
        for (_, ty) in names.iter().chain(&names) {
            let moment = backend.alloc(ty.bytes())?;
            moment.write(0, &vec![0; ty.bytes()])?;
            inputs.push(moment);
        }
        let fixed: Vec<_> = fixed.iter().map(|(i, _)| *i).collect();
        inputs.extend(model.upload_some(&fixed, backend)?);
        if let Some(second) = second {
            inputs.extend(second.upload(backend)?);
        }
        let fixed_count = inputs.len() - 3 * names.len();
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
            plain: target.plain,
            validate: None,
            lengths: None,
            adam,
            fixed: fixed_count,
            asserts: target.asserts,
            aim: how.aim,
            heads: target.heads.len(),
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

    /// Matrices that were trained beside the model, by name.
    pub fn heads(&self) -> Result<Vec<NamedTensor>> {
        let first = self.names.len() - self.heads;
        let mut found = Vec::new();
        for (i, (name, ty)) in self.names.iter().enumerate().skip(first) {
            let mut bytes = vec![0; ty.bytes()];
            self.bindings.inputs[i].read(0, &mut bytes)?;
            found.push(NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: DType::F32, bytes });
        }
        Ok(found)
    }

    fn load_batch(&self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        self.check(batch)?;
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

    /// One step whose kernels are timed one by one.
    pub fn timed_step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<(StepResult, Vec<Timing>)> {
        self.load_batch(batch, rate, step)?;
        let timings = self.step.run_timed(&mut self.bindings)?;
        Ok((self.finish_step()?, timings))
    }

    /// The mean loss over batches of one micro-batch each; NaN if there are none.
    pub fn validate(&mut self, batches: &[Batch], backend: &dyn Backend) -> Result<f32> {
        let own = self.bindings.inputs[..self.names.len()].to_vec();
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
        let n = self.names.len();
        let (executable, bindings) = match &mut self.validate {
            Some(ready) => ready,
            none => {
                let loaded = backend.load(compiler::compile(&self.plain, backend, &Options::default())?)?;
                let fixed = n + self.fixed;
                // Parameters are shared with the step: only what is its own takes memory.
                let program = loaded.program();
                let mut inputs: Vec<Buffer> = self.bindings.inputs[..n].to_vec();
                inputs.extend_from_slice(&self.bindings.inputs[3 * n..3 * n + self.fixed]);
                for ty in &program.inputs[fixed..] {
                    inputs.push(backend.alloc(ty.bytes())?);
                }
                let outputs = program.outputs.iter().map(|ty| backend.alloc(ty.bytes()));
                let outputs = outputs.collect::<compiler::Result<Vec<_>>>()?;
                none.insert((loaded, Bindings { inputs, outputs }))
            }
        };
        bindings.inputs[..n].clone_from_slice(trained);
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
            let weight = self.aim.weight(&batch.labels, self.sizes.seq);
            sum += f64::from(f32::from_le_bytes(bytes)) * weight;
            count += weight;
        }
        Ok((sum / count) as f32)
    }

    /// Lengths of gradients, of the last step, and of the trained tensors, layer by layer.
    pub fn norms(&mut self, backend: &dyn Backend) -> Result<Vec<(String, f32, f32)>> {
        let n = self.names.len();
        let lengths = match &mut self.lengths {
            Some(ready) => ready,
            none => {
                let mut b = Builder::new();
                let trained: Vec<Value> = self.names.iter().map(|(_, ty)| b.graph.input(ty.clone())).collect();
                let mut each = Vec::new();
                for value in trained {
                    let square = b.mul(value, value)?;
                    let sum = b.sum_all(square)?;
                    let root = b.unary(Unary::Sqrt, sum)?;
                    each.push(b.reshape(root, &[1])?);
                }
                let all = b.concat(&each, 0)?;
                let graph = b.finish(&[all]);
                let loaded = backend.load(compiler::compile(&graph, backend, &Options::default())?)?;
                let outputs = vec![backend.alloc(4 * n)?];
                none.insert((loaded, Bindings { inputs: self.bindings.inputs[..n].to_vec(), outputs }))
            }
        };
        // Buffers may have changed places.
        lengths.1.inputs.clone_from_slice(&self.bindings.inputs[..n]);
        lengths.0.run(&mut lengths.1)?;
        let read = |buffer: &Buffer| -> Result<Vec<f32>> {
            let mut bytes = vec![0; 4 * n];
            buffer.read(0, &mut bytes)?;
            Ok(from_bytes(&bytes, DType::F32))
        };
        let weights = read(&lengths.1.outputs[0])?;
        let gradients = read(&self.bindings.outputs[self.bindings.outputs.len() - 1])?;
        let names: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
        Ok(super::norms::by_layer(&names, &gradients, &weights))
    }

    /// Copies of the trained tensors as they are now.
    pub(crate) fn trained_now(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let mut copies = Vec::new();
        for (buffer, (_, ty)) in self.bindings.inputs.iter().zip(&self.names) {
            let mut bytes = vec![0; ty.bytes()];
            buffer.read(0, &mut bytes)?;
            copies.extend(upload(backend, &[bytes])?);
        }
        Ok(copies)
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
        adapter.values.truncate(self.names.len() - self.heads);
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

    /// Continues a prompt with the model as it stands, whose weights stay where they are.
    pub fn write(
        &self,
        prompt: &[i32],
        most: usize,
        sampling: &Sampling,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let n = self.names.len();
        let own = &self.bindings.inputs;
        // A second model's parameters come behind the model's own.
        let own_fixed = self.model.param_inputs() - if self.adapter.is_some() { 0 } else { n - self.heads };
        let fixed = own[3 * n..3 * n + own_fixed].iter().cloned();
        let params: Vec<Buffer> = match &self.adapter {
            Some(_) => own[..n - self.heads].iter().cloned().chain(fixed).collect(),
            None => {
                let (mut trained, mut fixed) = (own[..n].iter(), fixed);
                let mut params = Vec::new();
                for param in &self.model.params {
                    let Some(master) = trained.as_slice().first().filter(|_| param.trainable) else {
                        params.extend(fixed.next());
                        continue;
                    };
                    trained.next();
                    // Masters are f32: where the model computes in less, they are rounded on their way.
                    params.push(match param.ty.dtype {
                        DType::F32 => master.clone(),
                        dtype => {
                            let mut bytes = vec![0; param.ty.numel() * 4];
                            master.read(0, &mut bytes)?;
                            let rounded = to_bytes(&from_bytes(&bytes, DType::F32), dtype);
                            let buffer = backend.alloc(rounded.len())?;
                            buffer.write(0, &rounded)?;
                            buffer
                        }
                    });
                }
                params
            }
        };
        let writing = Writing { sampling: Some(*sampling), ..Writing::default() };
        self.model.write_on(Some((params, self.adapter.as_ref())), prompt, most, &writing, backend, heard)
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

fn write_ints(buffer: &Buffer, values: &[i32]) -> Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Ok(buffer.write(0, &bytes)?)
}
