//! A compiled training step with its state: trained tensors and moments that are updated in place.

use super::batches::Batch;
use super::division::{Division, Sums, failed, gathered_again, groups};
use super::objective::{How, objective};
use super::pipeline::{self, Pipeline};
use super::saved::{self, Part, Saved};
use super::step::{self, AdamW, Scalars};
use crate::adapter::Adapter;
use crate::budget;
use crate::checkpoint::{from_bytes, to_bytes};
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::model::Model;
use crate::placing::{About, places};
use crate::session::{Buffer, needs, upload};
use crate::weight::Weight;
use compiler::{Backend, Bindings, Executable, Options, Timing};
use dist::Comm;
use ir::ops::threefry::threefry2x32;
use ir::{DType, Type};
use std::path::{Path, PathBuf};
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
    /// None in a pipeline, which has its own.
    validate: Option<(Arc<dyn Executable>, Bindings)>,
    pipeline: Option<Pipeline>,
    adam: AdamW,
    fixed: usize,
    /// Tensors and messages of what is asserted.
    asserts: Vec<(String, String)>,
    /// Whether the step takes keys, and the seed that they are made of.
    keyed: bool,
    seed: u64,
    /// How everything is divided among ranks, if there are several.
    division: Option<Division>,
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
        // Ranks that don't share tokens sort each their own.
        let how = &How { groups: comm.as_ref().map_or(1, |comm| groups(comm.mesh())), ..*how };
        let mut target = objective(&model, adapter.as_ref(), how, sizes.rows, sizes.seq)?;
        let about = || -> Vec<About> {
            let apart = adapter.iter().flat_map(|a| a.tensors()).map(|_| About { shard: None, stacked: false });
            let (own, rest): (Vec<_>, Vec<_>) =
                model.params.iter().partition(|param| adapter.is_none() && param.trainable);
            apart.chain(own.into_iter().chain(rest).map(About::of)).collect()
        };
        let comm = comm.filter(|comm| comm.mesh().ranks() > 1);
        let mut stages = None;
        // The trained tensors that this rank has, of all.
        let mut held: Vec<usize> = (0..target.trained.len()).collect();
        let division = match comm {
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
        let n = held.len();
        let none = Sums::default();
        let sums = division.as_ref().map_or(&none, |d| &d.sums);
        let graph = match (&stages, &division) {
            (Some((divided, types)), _) => {
                let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
                step::update_graph(types, &trained, &adam, sizes.accumulate, &sums.of(&held), divided.ends())?
            }
            (None, Some(_)) => {
                let graph = step::graph(&target, &adam, sizes.accumulate, sums)?;
                gathered_again(&graph, graph.outputs()[0])?
            }
            (None, None) => step::graph(&target, &adam, sizes.accumulate, sums)?,
        };
        let donate = (0..3 * n).map(|i| (i, 2 + i)).collect();
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
        let (names, mut inputs): (Vec<(String, Type)>, Vec<Buffer>) = match &adapter {
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
        let types = &step.program().inputs;
        for ty in &types[n..3 * n] {
            let moment = backend.alloc(ty.bytes())?;
            moment.write(0, &vec![0; ty.bytes()])?;
            inputs.push(moment);
        }
        let fixed: Vec<_> = fixed.iter().map(|(i, _)| *i).collect();
        let fixed_count = fixed.iter().map(|i| model.parts_of(*i)).sum();
        match &division {
            None => inputs.extend(model.upload_some(&fixed, backend)?),
            Some(_) if fixed_count != fixed.len() => {
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
        let (validate, pipeline) = match &stages {
            Some((divided, _)) => {
                let first = bindings.inputs.len() - n;
                let gradients = &bindings.inputs[first..];
                let types = &step.program().inputs[first..];
                (None, Some(Pipeline::new(divided, sizes.accumulate, gradients, types, backend)?))
            }
            None => {
                let validate = backend.load(compiler::compile(&target.plain, backend, &Options::default())?)?;
                let own = Bindings::for_program(validate.program(), backend)?;
                (Some((validate, own)), None)
            }
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
            validate,
            pipeline,
            adam,
            fixed: fixed_count,
            asserts: target.asserts,
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
        arena + program.inputs.iter().map(Type::bytes).sum::<usize>()
    }

    /// How many tensors of the state are updated in place, of how many.
    pub fn in_place(&self) -> (usize, usize) {
        (3 * self.count() - self.swaps.len(), 3 * self.count())
    }

    /// How many trained tensors this rank has.
    fn count(&self) -> usize {
        self.held.iter().flatten().count()
    }

    fn first_batch_input(&self) -> usize {
        3 * self.count() + self.fixed
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

    fn load_batch(&self, batch: &Batch, rate: f64, step: usize) -> Result<()> {
        if self.pipeline.is_some() {
            return Ok(());
        }
        self.model.check_batch(&batch.ids, &batch.labels)?;
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
            self.bindings.outputs[2 + 3 * self.count()].read(0, &mut counts)?;
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

    /// One step whose kernels are timed one by one.
    pub fn timed_step(&mut self, batch: &Batch, rate: f64, step: usize) -> Result<(StepResult, Vec<Timing>)> {
        self.stages(batch, rate, step)?;
        self.load_batch(batch, rate, step)?;
        let timings = self.step.run_timed(&mut self.bindings)?;
        Ok((self.finish_step()?, timings))
    }

    /// The mean loss over batches of one micro-batch each; NaN if there are none.
    pub fn validate(&mut self, batches: &[Batch]) -> Result<f32> {
        for batch in batches {
            self.model.check_batch(&batch.ids, &batch.labels)?;
        }
        let n = self.count();
        let shape = [self.sizes.rows, self.sizes.seq];
        let (mut sum, mut count) = (0.0, 0.0);
        let mut add = |batch: &Batch, loss: f32| {
            let weight = batch.labels.iter().filter(|label| **label >= 0).count() as f64;
            sum += f64::from(loss) * weight;
            count += weight;
        };
        if let Some(pipeline) = &mut self.pipeline {
            let params: Vec<Buffer> = self.bindings.inputs[..n].to_vec();
            for batch in batches {
                add(batch, pipeline.validate(&params, batch, shape)?);
            }
            return Ok((sum / count) as f32);
        }
        let Some((executable, mut bindings)) = self.validate.take() else { return Ok(f32::NAN) };
        for i in 0..n {
            bindings.inputs[i] = self.bindings.inputs[i].clone();
        }
        for i in 0..self.fixed {
            bindings.inputs[n + i] = self.bindings.inputs[3 * n + i].clone();
        }
        for batch in batches {
            self.write_rows(&bindings.inputs[n + self.fixed], &batch.ids, &shape)?;
            self.write_rows(&bindings.inputs[n + self.fixed + 1], &batch.labels, &shape)?;
            executable.run(&mut bindings)?;
            let mut bytes = [0; 4];
            bindings.outputs[0].read(0, &mut bytes)?;
            add(batch, f32::from_le_bytes(bytes));
        }
        self.validate = Some((executable, bindings));
        Ok((sum / count) as f32)
    }

    /// Trained tensors and moments, by name and whole, whatever the mesh; none on ranks that don't lead, which take part.
    pub fn state(&self) -> Result<Vec<NamedTensor>> {
        let mut tensors = Vec::with_capacity(3 * self.names.len());
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, ty)) in self.names.iter().enumerate() {
                let bytes = self.whole(self.input_of(k, i), i, ty)?;
                let (name, shape) = (format!("{kind}.{name}"), ty.shape.to_vec());
                if self.leads() {
                    tensors.push(NamedTensor { name, shape, dtype: DType::F32, bytes });
                }
            }
        }
        Ok(tensors)
    }

    /// Writes a checkpoint: in one process one file; of several ranks each writes its parts, and the one that leads, which knows
    /// that all have, the last. All ranks call it.
    pub(crate) fn save(&self, folder: &Path, at: &Saved, keep: usize) -> Result<PathBuf> {
        let Some(division) = &self.division else { return saved::write(folder, at, &self.state()?, keep) };
        let (mesh, rank) = (division.comm.mesh(), division.comm.rank());
        let mut parts = Vec::new();
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, ty)) in self.names.iter().enumerate() {
                let placement = &division.params[i];
                let Some(input) = self.input_of(k, i).filter(|_| division.holds(i).unwrap_or(false)) else { continue };
                let own = placement.local(mesh, ty);
                let mut bytes = vec![0; own.bytes()];
                self.bindings.inputs[input].read(0, &mut bytes)?;
                let (name, shape) = (format!("{kind}.{name}"), own.shape.to_vec());
                let tensor = NamedTensor { name, shape, dtype: DType::F32, bytes };
                parts.push(Part { tensor, whole: ty.shape.to_vec(), places: places(placement, ty, mesh, rank) });
            }
        }
        // What the one that leads is told: nothing to write, a checksum, or that it could not be written.
        const NOTHING: [u8; 8] = [b'-'; 8];
        const FAILED: [u8; 8] = [b'!'; 8];
        if rank > 0 {
            let written = match parts.is_empty() {
                true => Ok(None),
                false => saved::write_rank(folder, at.step, rank, &parts).map(Some),
            };
            let mut said = match &written {
                Ok(None) => NOTHING,
                Ok(Some(_)) => [0; 8],
                Err(_) => FAILED,
            };
            if let Ok(Some(sum)) = &written {
                said.copy_from_slice(sum.as_bytes());
            }
            division.comm.exchange("saved", &[(0, &said)], &mut []).map_err(failed)?;
            return written.map(|_| PathBuf::new());
        }
        let mut told = vec![NOTHING; mesh.ranks()];
        let mut receives: Vec<(usize, &mut [u8])> =
            told.iter_mut().enumerate().skip(1).map(|(r, b)| (r, &mut b[..])).collect();
        division.comm.exchange("saved", &[], &mut receives).map_err(failed)?;
        if let Some(rank) = told.iter().position(|said| *said == FAILED) {
            return Err(Error::Input(format!("rank {rank} could not write its part")));
        }
        let sums = told.iter().enumerate().filter(|(_, said)| **said != NOTHING);
        let sums = sums.map(|(r, said)| (r, String::from_utf8_lossy(said).to_string())).collect();
        saved::write_main(folder, at, &parts, &sums, keep)
    }

    /// Puts a state back; it must name every tensor with its shape.
    pub fn restore(&mut self, state: &[NamedTensor]) -> Result<()> {
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
                let Some(input) = self.input_of(k, i) else { continue };
                match &self.division {
                    None => self.bindings.inputs[input].write(0, &found.bytes)?,
                    Some(d) => self.bindings.inputs[input].write(0, &d.part(&d.params[i], ty, &found.bytes))?,
                }
            }
        }
        Ok(())
    }

    fn trained_values(&self) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::new();
        for (i, (_, ty)) in self.names.iter().enumerate() {
            all.push(from_bytes(&self.whole(self.input_of(0, i), i, ty)?, DType::F32));
        }
        Ok(all)
    }

    fn fixed_values(&self, at: usize, ty: &Type) -> Result<Vec<f32>> {
        let input = 3 * self.count() + at;
        Ok(from_bytes(&self.whole(Some(input), self.names.len() + at, ty)?, ty.dtype))
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
