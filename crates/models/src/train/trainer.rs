//! A compiled training step with its state: trained tensors and moments that are updated in place. `state` saves and restores it.

mod state;

use super::aim::{Aim, PAD};
use super::batches::Batch;
use super::division::{Division, Sums, arranged, groups};
use super::moments::Moment;
use super::objective::{How, objective};
use super::pipeline::{self, Pipeline};
use super::step::{self, AdamW, Scalars};
use crate::adapter::Adapter;
use crate::budget;
use crate::checkpoint::{from_bytes, to_bytes};
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::generate::{Generation, Writing};
use crate::model::Model;
use crate::placing::About;
use crate::random::Random;
use crate::sample::Sampling;
use crate::session::{Buffer, needs, upload};
use crate::weight::Weight;
use compiler::{Backend, Bindings, Executable, Options, Timing};
use dist::Comm;
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
    /// Where each of them is among those that this rank has.
    held: Vec<Option<usize>>,
    step: Arc<dyn Executable>,
    bindings: Bindings,
    /// (input, output) of state that could not be updated in place and changes buffers instead.
    swaps: Vec<(usize, usize)>,
    /// The loss without an update, compiled when it is first asked for.
    plain: Graph,
    validate: Option<(Arc<dyn Executable>, Bindings)>,
    /// Lengths of the trained tensors, likewise.
    lengths: Option<(Arc<dyn Executable>, Bindings)>,
    /// A pipeline has a validation of its own.
    pipeline: Option<Pipeline>,
    adam: AdamW,
    fixed: usize,
    /// How the moments of each trained tensor are kept.
    moments: Vec<Moment>,
    /// How many histories of delayed scaling there are.
    histories: usize,
    /// Tensors and messages of what is asserted.
    asserts: Vec<(String, String)>,
    aim: Aim,
    /// How many of the trained are heads beside the model.
    heads: usize,
    /// Whether the step takes keys, and the seed that they are made of.
    keyed: bool,
    seed: u64,
    /// How everything is divided among ranks, if there are several.
    division: Option<Division>,
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
        Trainer::on(model, adapter, sizes, adam, &How::default(), backend, None)
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
        Trainer::on(model, adapter, sizes, adam, how, backend, None)
    }

    /// The same as one of several ranks, which share the work as the mesh of `comm` says; the backend must talk through
    /// it. `sizes` are those of all ranks together. All ranks call the same methods in the same order.
    pub fn on(
        model: Model,
        adapter: Option<Adapter>,
        sizes: StepSizes,
        adam: AdamW,
        how: &How<'_>,
        backend: &dyn Backend,
        comm: Option<Arc<Comm>>,
    ) -> Result<Trainer> {
        let started = Instant::now();
        if let Some(most) = model.max_sequence().filter(|most| sizes.seq > *most) {
            return Err(Error::Input(format!(
                "sequences of {} ids: the model takes at most {most}; give a smaller `--seq`",
                sizes.seq
            )));
        }
        if how.aim != Aim::Next && comm.as_ref().is_some_and(|comm| pipeline::axis(comm.mesh()).is_some()) {
            return Err(Error::Input(format!("`{}` can't be trained as a pipeline: leave out `pp`", how.aim.kind())));
        }
        // Ranks that don't share tokens sort each their own.
        let how = &How { groups: comm.as_ref().map_or(1, |comm| groups(comm.mesh())), ..*how };
        let mut target = objective(&model, adapter.as_ref(), how, sizes.rows, sizes.seq)?;
        let second = how.second(&model, adapter.is_some())?;
        let alone = comm.as_ref().is_none_or(|comm| comm.mesh().ranks() == 1);
        if !alone && !target.states.is_empty() {
            return Err(Error::Input(
                "delayed scaling keeps its history in one process: leave out `--mesh`, or write `scaling_strategy: dynamic`"
                    .into(),
            ));
        }
        if !alone && how.eight_bits {
            return Err(Error::Input(
                "moments in 8 bits are kept in one process: leave out `--mesh`, or `--optimizer-bits 8`".into(),
            ));
        }
        let heads = target.heads.len();
        let about = || -> Vec<About> {
            let beside = |_| About { shard: None, stacked: false };
            let apart = adapter.iter().flat_map(|a| a.tensors()).map(|_| beside(()));
            let (own, rest): (Vec<_>, Vec<_>) =
                model.params.iter().partition(|param| adapter.is_none() && param.trainable);
            let own = apart.chain(own.into_iter().map(About::of)).chain((0..heads).map(|_| beside(())));
            let theirs = second.iter().flat_map(|second| &second.params);
            own.chain(rest.into_iter().chain(theirs).map(About::of)).collect()
        };
        let comm = comm.filter(|comm| comm.mesh().ranks() > 1);
        let mut stages = None;
        // The trained tensors that this rank has, of all.
        let mut held: Vec<usize> = (0..target.trained.len()).collect();
        let mut division = match comm {
            None => None,
            Some(comm) if pipeline::axis(comm.mesh()).is_some() => {
                if adapter.is_some() {
                    return Err(Error::Input("an adapter can't be trained as a pipeline: leave out `pp`".into()));
                }
                let paths: Vec<String> = model.params.iter().map(|param| param.path.clone()).collect();
                let divided = pipeline::Divided::of(&target, &about(), &paths, comm, how.chunks.max(1))?;
                held = divided.held(divided.at());
                let types = divided.param_types(&target, &held);
                let division = divided.division.clone();
                stages = Some((divided, types));
                Some(division)
            }
            Some(comm) => Some(Division::of(&mut target, &about(), comm)?),
        };
        if let Some(division) = &mut division {
            division.sums.bucket = how.bucket.or(target.summing.bucket);
        }
        let n = held.len();
        let none = Sums::default();
        let sums = division.as_ref().map_or(&none, |d| &d.sums);
        let moments = step::moments(&target, how.eight_bits);
        let histories = target.states.len();
        // Scales of moments and histories are state too, behind the moments.
        let more = histories + 2 * moments.iter().filter(|m| m.scales.is_some()).count();
        let graph = match (&stages, &division) {
            (Some((divided, types)), _) => {
                let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
                step::update_graph(types, &trained, &adam, sizes.accumulate, &sums.of(&held), divided.ends())?
            }
            (None, Some(_)) => {
                let graph = step::graph(&target, &adam, sizes.accumulate, sums, &moments)?;
                arranged(&graph, target.summing.waits)?
            }
            (None, None) => step::graph(&target, &adam, sizes.accumulate, sums, &moments)?,
        };
        let donate = (0..3 * n + more).map(|i| (i, 2 + i)).collect();
        let program = compiler::compile(&graph, backend, &Options { donate, ..Options::default() })?;
        budget::fits("a step of training", needs(&program), "give a smaller `--batch` or `--seq`")?;
        let step = backend.load(program)?;
        let all = model.params.iter().enumerate();
        let (masters, fixed): (Vec<_>, Vec<_>) = all.partition(|(_, param)| adapter.is_none() && param.trainable);
        let part = |at: usize, ty: &Type, whole: Buffer| -> Result<Buffer> {
            let Some(division) = &division else { return Ok(whole) };
            let mut bytes = vec![0; ty.bytes()];
            whole.read(0, &mut bytes)?;
            Ok(upload(backend, &[division.part(&division.params[at], ty, &bytes)])?.remove(0))
        };
        let (mut names, mut inputs): (Vec<(String, Type)>, Vec<Buffer>) = match &adapter {
            Some(adapter) => {
                let values = adapter.values.iter().map(|values| to_bytes(values, DType::F32)).collect::<Vec<_>>();
                let mut all = Vec::new();
                for (at, (buffer, (_, ty))) in upload(backend, &values)?.into_iter().zip(adapter.tensors()).enumerate()
                {
                    all.push(part(at, &ty, buffer)?);
                }
                (adapter.tensors(), all)
            }
            None => {
                // Masters are what was read or drawn, not what it is rounded to where it is computed with.
                let names = masters.iter().map(|(_, param)| (param.path.clone(), param.ty.with_dtype(DType::F32)));
                let wide: Vec<_> = masters.iter().map(|(i, _)| (*i, DType::F32)).collect();
                let all = match &division {
                    None => model.upload_as(&wide, backend)?,
                    // One after another: a rank never holds the whole model.
                    Some(_) => {
                        let one = |(at, (i, param)): (usize, &(usize, &lang::lower::Parameter))| {
                            let whole = model.upload_as(&[(*i, DType::F32)], backend)?.remove(0);
                            part(at, &param.ty.with_dtype(DType::F32), whole)
                        };
                        let here = masters.iter().enumerate().filter(|(at, _)| held.contains(at));
                        here.map(one).collect::<Result<_>>()?
                    }
                };
                (names.collect(), all)
            }
        };
        for (k, (name, ty)) in target.heads.iter().enumerate() {
            // As a fresh model's matrices.
            let mut random = Random::new(0, HEAD_STREAM + k as u64);
            let values: Vec<f32> = (0..ty.numel()).map(|_| 0.02 * random.normal() as f32).collect();
            let whole = upload(backend, &[to_bytes(&values, DType::F32)])?.remove(0);
            inputs.push(part(names.len(), ty, whole)?);
            names.push((name.clone(), ty.clone()));
        }
        let types = &step.program().inputs;
        for ty in &types[n..3 * n + more] {
            let moment = backend.alloc(ty.bytes())?;
            moment.write(0, &vec![0; ty.bytes()])?;
            inputs.push(moment);
        }
        let fixed: Vec<_> = fixed.iter().map(|(i, _)| *i).collect();
        let theirs = |second: &Model| (0..second.params.len()).any(|i| second.parts_of(i) != 1);
        let packed = fixed.iter().any(|i| model.parts_of(*i) != 1) || second.is_some_and(theirs);
        match &division {
            None => inputs.extend(model.upload_some(&fixed, backend)?),
            Some(_) if packed => {
                return Err(Error::Input(
                    "weights of few bits can't be divided among ranks: train in one process".into(),
                ));
            }
            Some(_) => {
                for (at, i) in fixed.iter().enumerate() {
                    let whole = model.upload_some(&[*i], backend)?.remove(0);
                    inputs.push(part(n + at, &model.params[*i].ty, whole)?);
                }
            }
        }
        if let Some(second) = second {
            let all = second.upload(backend)?;
            match &division {
                None => inputs.extend(all),
                Some(_) => {
                    for (k, (whole, param)) in all.into_iter().zip(&second.params).enumerate() {
                        inputs.push(part(n + fixed.len() + k, &param.ty, whole)?);
                    }
                }
            }
        }
        let fixed_count = inputs.len() - 3 * n - more;
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
        let swaps = (0..3 * n + more).map(|i| (i, 2 + i)).filter(|pair| !donated.contains(pair)).collect();
        let bindings = Bindings { inputs, outputs };
        let pipeline = match &stages {
            Some((divided, _)) => {
                let first = bindings.inputs.len() - n;
                let gradients = &bindings.inputs[first..];
                let types = &step.program().inputs[first..];
                Some(Pipeline::new(divided, sizes.accumulate, gradients, types, backend)?)
            }
            None => None,
        };
        // What is packed stays at hand for a merge; the rest is in the buffers.
        let keep = |i: usize| model.packed(i).map_or(Weight::Stored, |packed| Weight::Packed(packed.clone()));
        let weights = (0..model.params.len()).map(keep).collect();
        let model = Model { weights, checkpoint: None, ..model };
        Ok(Trainer {
            model,
            adapter,
            sizes,
            held: (0..names.len()).map(|i| held.iter().position(|h| *h == i)).collect(),
            names,
            step,
            bindings,
            swaps,
            plain: target.plain,
            validate: None,
            lengths: None,
            pipeline,
            adam,
            fixed: fixed_count,
            moments,
            histories,
            asserts: target.asserts,
            aim: how.aim,
            heads: target.heads.len(),
            keyed: target.keyed,
            seed: 0,
            division,
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
        let arena = program.arena.max(self.pipeline.as_ref().map_or(0, Pipeline::arenas));
        let kept = self.pipeline.as_ref().map_or(0, Pipeline::kept);
        arena + kept + program.inputs.iter().map(Type::bytes).sum::<usize>()
    }

    /// How many tensors of the state are updated in place, of how many.
    pub fn in_place(&self) -> (usize, usize) {
        (self.first_fixed() - self.swaps.len(), self.first_fixed())
    }

    /// How many trained tensors this rank has.
    fn count(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// The first input that a step does not change.
    fn first_fixed(&self) -> usize {
        3 * self.count() + self.scales() + self.histories
    }

    /// How many scales of moments there are.
    fn scales(&self) -> usize {
        2 * self.moments.iter().filter(|moment| moment.scales.is_some()).count()
    }

    fn first_batch_input(&self) -> usize {
        self.first_fixed() + self.fixed
    }

    /// In a pipeline: all micro-batches, up to sums of losses and gradients.
    fn stages(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        let Some(mut pipeline) = self.pipeline.take() else { return Ok(()) };
        self.model.check_batch(&batch.ids, &batch.labels)?;
        let params: Vec<Buffer> = self.bindings.inputs[..self.count()].to_vec();
        let keys: Vec<Vec<u8>> = match self.keyed {
            true => self.keys(step).chunks_exact(8).map(<[u8]>::to_vec).collect(),
            false => Vec::new(),
        };
        let StepSizes { rows, seq, .. } = self.sizes;
        let loss = pipeline.run(&params, batch, [rows, seq], &keys);
        let at = self.first_batch_input();
        for (input, buffer) in self.bindings.inputs[at + SCALARS + 1..].iter_mut().zip(&pipeline.gradients) {
            *input = buffer.clone();
        }
        self.pipeline = Some(pipeline);
        let Scalars { rate, correct1, correct2 } = self.adam.scalars(rate, step);
        for (i, scalar) in [rate, correct1, correct2, loss?].iter().enumerate() {
            self.bindings.inputs[at + i].write(0, &scalar.to_le_bytes())?;
        }
        Ok(())
    }

    /// One key for each micro-batch, of seed and position alone: resuming draws the same.
    fn keys(&self, step: usize) -> Vec<u8> {
        let first = step as u64 * self.sizes.accumulate as u64;
        let keys = (first..first + self.sizes.accumulate as u64).flat_map(|position| {
            let key =
                threefry2x32([self.seed as u32, (self.seed >> 32) as u32], [position as u32, (position >> 32) as u32]);
            key.into_iter().flat_map(u32::to_le_bytes)
        });
        keys.collect()
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

    /// Matrices that were trained beside the model, by name; of several ranks all ask, and the one that leads has them.
    pub fn heads(&self) -> Result<Vec<NamedTensor>> {
        let first = self.names.len() - self.heads;
        let mut found = Vec::new();
        for (i, (name, ty)) in self.names.iter().enumerate().skip(first) {
            let bytes = self.whole(self.input_of(0, i), i, ty)?;
            found.push(NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: DType::F32, bytes });
        }
        Ok(found)
    }

    fn load_batch(&self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        if self.pipeline.is_some() {
            return Ok(());
        }
        self.check(batch)?;
        let at = self.first_batch_input();
        let StepSizes { rows, seq, accumulate } = self.sizes;
        let shape: &[usize] = if accumulate == 1 { &[rows, seq] } else { &[accumulate, rows, seq] };
        self.write_rows(&self.bindings.inputs[at], &batch.ids, shape)?;
        self.write_rows(&self.bindings.inputs[at + 1], &batch.labels, shape)?;
        let Scalars { rate, correct1, correct2 } = self.adam.scalars(rate, step);
        let scalars = [rate, correct1, correct2];
        for (i, scalar) in scalars.iter().enumerate().take(SCALARS) {
            self.bindings.inputs[at + 2 + i].write(0, &scalar.to_le_bytes())?;
        }
        if self.keyed {
            self.bindings.inputs[at + 2 + SCALARS].write(0, &self.keys(step))?;
        }
        Ok(())
    }

    /// Writes this rank's rows of a batch.
    fn write_rows(&self, buffer: &Buffer, values: &[i32], shape: &[usize]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let Some(division) = &self.division else { return Ok(buffer.write(0, &bytes)?) };
        let mut placement = division.batch.clone();
        if shape.len() == 3 {
            placement.layout.insert(0, transform::Cut::default());
        }
        Ok(buffer.write(0, &division.part(&placement, &Type::new(DType::I32, shape), &bytes))?)
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
        let read = |at: usize, bytes: usize| -> Result<Vec<u8>> {
            let mut own = vec![0; bytes];
            self.bindings.inputs[at].read(0, &mut own)?;
            Ok(own)
        };
        match (&self.division, at) {
            (None, Some(at)) => read(at, ty.bytes()),
            (None, None) => Ok(Vec::new()),
            (Some(division), at) => {
                let bytes = division.params[param].local(division.comm.mesh(), ty).bytes();
                division.whole(param, ty, at.map(|at| read(at, bytes)).transpose()?)
            }
        }
    }

    /// The input of the step that is trained tensor `i`, or its first or second moment.
    fn input_of(&self, kind: usize, i: usize) -> Option<usize> {
        self.held[i].map(|at| kind * self.count() + at)
    }

    /// Takes part in [`Trainer::model`] of the rank that leads.
    pub fn give_model(&self) -> Result<()> {
        self.trained_values().map(|_| ())?;
        for i in 0..self.fixed {
            let param = match &self.adapter {
                Some(_) => self.model.params.get(i),
                None => self.model.params.iter().filter(|param| !param.trainable).nth(i),
            };
            if let Some(param) = param {
                self.fixed_values(i, &param.ty)?;
            }
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
            self.bindings.outputs[2 + self.first_fixed()].read(0, &mut counts)?;
            let broken = from_bytes(&counts, DType::F32).iter().position(|count| *count != 0.0);
            if let Some(broken) = broken.and_then(|i| self.asserts.get(i)) {
                return Err(crate::asserts::broken(broken));
            }
        }
        Ok(StepResult { loss: scalar(&self.bindings.outputs[0])?, norm: scalar(&self.bindings.outputs[1])? })
    }

    /// One step on all its micro-batches; `step` counts from 0.
    pub fn step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<StepResult> {
        self.stages(batch, rate, step)?;
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
        self.stages(batch, rate, step)?;
        self.load_batch(batch, rate, step)?;
        let timings = self.step.run_timed(&mut self.bindings)?;
        Ok((self.finish_step()?, timings))
    }

    /// The mean loss over batches of one micro-batch each; NaN if there are none.
    pub fn validate(&mut self, batches: &[Batch], backend: &dyn Backend) -> Result<f32> {
        let own = self.bindings.inputs[..self.count()].to_vec();
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
        let n = self.count();
        let shape = [self.sizes.rows, self.sizes.seq];
        let (mut sum, mut count) = (0.0, 0.0);
        if let Some(pipeline) = &mut self.pipeline {
            for batch in batches {
                let weight = self.aim.weight(&batch.labels, self.sizes.seq);
                sum += f64::from(pipeline.validate(trained, batch, shape)?) * weight;
                count += weight;
            }
            return Ok((sum / count) as f32);
        }
        let (executable, mut bindings) = match self.validate.take() {
            Some(ready) => ready,
            None => {
                let loaded = backend.load(compiler::compile(&self.plain, backend, &Options::default())?)?;
                let fixed = n + self.fixed;
                // Parameters are shared with the step: only what is its own takes memory.
                let program = loaded.program();
                let mut inputs: Vec<Buffer> = self.bindings.inputs[..n].to_vec();
                inputs.extend_from_slice(&self.bindings.inputs[self.first_fixed()..self.first_batch_input()]);
                for ty in &program.inputs[fixed..] {
                    inputs.push(backend.alloc(ty.bytes())?);
                }
                let outputs = program.outputs.iter().map(|ty| backend.alloc(ty.bytes()));
                let outputs = outputs.collect::<compiler::Result<Vec<_>>>()?;
                (loaded, Bindings { inputs, outputs })
            }
        };
        bindings.inputs[..n].clone_from_slice(trained);
        for i in 0..self.fixed {
            bindings.inputs[n + i] = self.bindings.inputs[self.first_fixed() + i].clone();
        }
        for batch in batches {
            self.write_rows(&bindings.inputs[n + self.fixed], &batch.ids, &shape)?;
            self.write_rows(&bindings.inputs[n + self.fixed + 1], &batch.labels, &shape)?;
            executable.run(&mut bindings)?;
            let mut bytes = [0; 4];
            bindings.outputs[0].read(0, &mut bytes)?;
            let weight = self.aim.weight(&batch.labels, self.sizes.seq);
            sum += f64::from(f32::from_le_bytes(bytes)) * weight;
            count += weight;
        }
        self.validate = Some((executable, bindings));
        Ok((sum / count) as f32)
    }

    /// Lengths of gradients, of the last step, and of the trained tensors, layer by layer; none where ranks have parts of them.
    pub fn norms(&mut self, backend: &dyn Backend) -> Result<Vec<(String, f32, f32)>> {
        if self.division.is_some() {
            return Ok(Vec::new());
        }
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
        for (buffer, ty) in self.bindings.inputs.iter().zip(&self.step.program().inputs).take(self.count()) {
            let mut bytes = vec![0; ty.bytes()];
            buffer.read(0, &mut bytes)?;
            copies.extend(upload(backend, &[bytes])?);
        }
        Ok(copies)
    }

    fn trained_values(&self) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::new();
        for (i, (_, ty)) in self.names.iter().enumerate() {
            all.push(from_bytes(&self.whole(self.input_of(0, i), i, ty)?, DType::F32));
        }
        Ok(all)
    }

    fn fixed_values(&self, at: usize, ty: &Type) -> Result<Vec<f32>> {
        let input = self.first_fixed() + at;
        Ok(from_bytes(&self.whole(Some(input), self.names.len() + at, ty)?, ty.dtype))
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
        let first = self.first_fixed();
        let fixed = own[first..first + own_fixed].iter().cloned();
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
