//! A compiled training step with its state: trainable parameters, moments and buffers that are updated in place. It identifies
//! inputs by position and does not know their meaning: any [`LossGraph`] can be compiled to one.

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::grad_reduction::GradReduction;
use crate::moments::MomentTypes;
use crate::named_tensor::NamedTensor;
use crate::step::{self, AdamW, LossGraph, StepScalars};
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Options, Program, Timing};
use ir::ops::threefry::threefry2x32;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Unary, Value};
use std::sync::Arc;

/// A buffer in device memory.
pub type Buffer = Arc<dyn DeviceBuffer>;

/// The results of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// The mean loss before the update.
    pub loss: f32,
    /// Gradient norm before clipping. If it is not finite, nothing was updated.
    pub grad_norm: f32,
}

/// Number of scalars that follow a batch.
pub const NUM_STEP_SCALARS: usize = 3;

/// The layout of a step's inputs, in order: trainable parameters, their first and second moments, scales of 8-bit moments, amax
/// histories of delayed scaling, buffers, frozen parameters, the batch, scalars, and random keys.
#[derive(Clone, Debug)]
pub struct StepInputLayout {
    /// Number of trainable parameters.
    pub num_trained: usize,
    /// The storage types of their moments.
    pub moments: Vec<MomentTypes>,
    /// Number of amax histories.
    pub num_amax_histories: usize,
    /// Number of tensors that a step updates without a gradient.
    pub num_buffers: usize,
    /// Number of inputs of a batch.
    pub num_batch_inputs: usize,
    /// Number of micro-batches per step.
    pub accumulation_steps: usize,
    /// Whether random keys come last.
    pub needs_rng: bool,
    /// Number of assertions whose violations are counted.
    pub num_assertions: usize,
}

impl StepInputLayout {
    /// Returns the layout of a loss graph's step.
    pub fn of(objective: &LossGraph, moments: &[MomentTypes], accumulate: usize) -> StepInputLayout {
        StepInputLayout {
            num_trained: objective.trained.len(),
            moments: moments.to_vec(),
            num_amax_histories: objective.amax_histories.len(),
            num_buffers: objective.num_buffers,
            num_batch_inputs: objective.num_batch_inputs,
            accumulation_steps: accumulate,
            needs_rng: objective.needs_rng,
            num_assertions: objective.asserts.len(),
        }
    }

    /// The number of scales of moments.
    pub fn scales(&self) -> usize {
        2 * self.moments.iter().filter(|moment| moment.scales.is_some()).count()
    }

    /// The index of the first buffer.
    pub fn first_buffer(&self) -> usize {
        3 * self.num_trained + self.scales() + self.num_amax_histories
    }

    /// The index of the first input that a step does not change.
    pub fn first_frozen(&self) -> usize {
        self.first_buffer() + self.num_buffers
    }

    /// Pairs (input, output) of inputs that are replaced by outputs.
    fn donated_pairs(&self) -> Vec<(usize, usize)> {
        (0..self.first_frozen()).map(|i| (i, 2 + i)).collect()
    }
}

/// A compiled step during training.
pub struct TrainStep {
    layout: StepInputLayout,
    step: Arc<dyn Executable>,
    bindings: Bindings,
    /// Pairs (input, output) of state that could not be updated in place; their buffers are swapped.
    swaps: Vec<(usize, usize)>,
    num_frozen: usize,
    adam: AdamW,
    /// The loss without an update, compiled at the first use.
    eval_loss: Graph,
    validate: Option<(Arc<dyn Executable>, Bindings)>,
    /// The norms of the trainable parameters, compiled at the first use.
    norms: Option<(Arc<dyn Executable>, Bindings)>,
    seed: u64,
}

impl TrainStep {
    /// Compiles a step's graph; its state is updated in place where possible.
    pub fn compile(graph: &Graph, layout: &StepInputLayout, backend: &dyn Backend) -> Result<Program> {
        Ok(compiler::compile(graph, backend, &Options { donate: layout.donated_pairs(), ..Options::default() })?)
    }

    /// Loads a compiled step with trainable parameters, buffers and frozen parameters; the moments are zero.
    pub fn load(
        program: Program,
        layout: StepInputLayout,
        plain: Graph,
        adam: AdamW,
        [trained, buffers, fixed]: [Vec<Buffer>; 3],
        backend: &dyn Backend,
    ) -> Result<TrainStep> {
        let fixed_count = fixed.len();
        let step = backend.load(program)?;
        let types = &step.program().inputs;
        let mut inputs = trained;
        for ty in &types[layout.num_trained..layout.first_buffer()] {
            let moment = backend.alloc(ty.bytes())?;
            moment.write(0, &vec![0; ty.bytes()])?;
            inputs.push(moment);
        }
        inputs.extend(buffers);
        inputs.extend(fixed);
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
        let swaps = layout.donated_pairs().into_iter().filter(|pair| !donated.contains(pair)).collect();
        let bindings = Bindings { inputs, outputs };
        let (validate, lengths) = (None, None);
        Ok(TrainStep {
            layout,
            step,
            bindings,
            swaps,
            num_frozen: fixed_count,
            adam,
            eval_loss: plain,
            validate,
            norms: lengths,
            seed: 0,
        })
    }

    /// Compiles the step of a loss graph for a single rank, with unsharded moments.
    pub fn new(
        objective: &LossGraph,
        adam: AdamW,
        accumulate: usize,
        values: [Vec<Buffer>; 3],
        backend: &dyn Backend,
    ) -> Result<TrainStep> {
        let moments = step::moments(objective, false);
        let layout = StepInputLayout::of(objective, &moments, accumulate);
        let graph = step::step_graph(objective, &adam, accumulate, &GradReduction::default(), &moments)?;
        let program = TrainStep::compile(&graph, &layout, backend)?;
        TrainStep::load(program, layout, objective.eval_loss.clone(), adam, values, backend)
    }

    /// Sets the seed of the step's randomness.
    pub fn with_seed(self, seed: u64) -> TrainStep {
        TrainStep { seed, ..self }
    }

    /// The layout of the inputs.
    pub fn layout(&self) -> &StepInputLayout {
        &self.layout
    }

    /// The compiled program.
    pub fn program(&self) -> &Program {
        self.step.program()
    }

    /// The inputs of the step.
    pub fn inputs(&self) -> &[Buffer] {
        &self.bindings.inputs
    }

    /// Replaces the buffer of an input.
    pub fn set_input(&mut self, at: usize, buffer: Buffer) {
        self.bindings.inputs[at] = buffer;
    }

    /// The number of state tensors that are updated in place, and the number of all state tensors.
    pub fn in_place(&self) -> (usize, usize) {
        let all = self.layout.first_frozen();
        (all - self.swaps.len(), all)
    }

    /// The number of inputs that a step does not change.
    pub fn num_frozen(&self) -> usize {
        self.num_frozen
    }

    /// The index of the first batch input.
    pub fn first_batch_input(&self) -> usize {
        self.layout.first_frozen() + self.num_frozen
    }

    /// Reads the bytes of an input.
    pub fn read(&self, input: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.program().inputs[input].bytes()];
        self.bindings.inputs[input].read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the bytes of an input.
    pub fn write(&self, input: usize, bytes: &[u8]) -> Result<()> {
        let ty = &self.program().inputs[input];
        if bytes.len() != ty.bytes() {
            return Err(Error::Input(format!("{} bytes for input {input} of the step, which is {ty}", bytes.len())));
        }
        Ok(self.bindings.inputs[input].write(0, bytes)?)
    }

    /// Returns the scalars of a step, counted from 0.
    pub fn scalars(&self, rate: f64, step: usize) -> [f32; NUM_STEP_SCALARS] {
        let StepScalars { learning_rate: rate, bias_correction1: correct1, bias_correction2: correct2 } =
            self.adam.scalars(rate, step);
        [rate, correct1, correct2]
    }

    /// One random key per micro-batch, determined by seed and position: a resumed run draws the same numbers.
    pub fn rng_keys(&self, step: usize) -> Vec<u8> {
        let first = step as u64 * self.layout.accumulation_steps as u64;
        let keys = (first..first + self.layout.accumulation_steps as u64).flat_map(|position| {
            let key =
                threefry2x32([self.seed as u32, (self.seed >> 32) as u32], [position as u32, (position >> 32) as u32]);
            key.into_iter().flat_map(u32::to_le_bytes)
        });
        keys.collect()
    }

    /// Writes the inputs of a step besides its state: the batch, then the values that depend on the step number.
    pub fn set_batch(&self, batch: &[Vec<u8>], rate: f64, step: usize) -> Result<()> {
        if batch.len() != self.layout.num_batch_inputs {
            let (found, wanted) = (batch.len(), self.layout.num_batch_inputs);
            return Err(Error::Input(format!("the batch has {found} tensors, but the step reads {wanted}")));
        }
        let at = self.first_batch_input();
        for (i, bytes) in batch.iter().enumerate() {
            self.write(at + i, bytes)?;
        }
        let at = at + batch.len();
        for (i, scalar) in self.scalars(rate, step).iter().enumerate() {
            self.write(at + i, &scalar.to_le_bytes())?;
        }
        if self.layout.needs_rng {
            self.write(at + NUM_STEP_SCALARS, &self.rng_keys(step))?;
        }
        Ok(())
    }

    /// Runs the step; also returns the first assertion that is violated.
    pub fn run(&mut self) -> Result<(StepResult, Option<usize>)> {
        self.step.run(&mut self.bindings)?;
        self.finish()
    }

    /// [`run`](Self::run) with each kernel timed.
    pub fn run_timed(&mut self) -> Result<(StepResult, Option<usize>, Vec<Timing>)> {
        let timings = self.step.run_timed(&mut self.bindings)?;
        let (result, broken) = self.finish()?;
        Ok((result, broken, timings))
    }

    fn finish(&mut self) -> Result<(StepResult, Option<usize>)> {
        for &(i, o) in &self.swaps {
            std::mem::swap(&mut self.bindings.inputs[i], &mut self.bindings.outputs[o]);
        }
        let scalar = |buffer: &Buffer| -> Result<f32> {
            let mut bytes = [0; 4];
            buffer.read(0, &mut bytes)?;
            Ok(f32::from_le_bytes(bytes))
        };
        let mut broken = None;
        if self.layout.num_assertions > 0 {
            let mut counts = vec![0; 4 * self.layout.num_assertions];
            self.bindings.outputs[2 + self.layout.first_frozen()].read(0, &mut counts)?;
            broken = counts.chunks_exact(4).position(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]) != 0.0);
        }
        let result =
            StepResult { loss: scalar(&self.bindings.outputs[0])?, grad_norm: scalar(&self.bindings.outputs[1])? };
        Ok((result, broken))
    }

    /// Copies the current trainable parameters.
    pub fn snapshot_params(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let mut copies = Vec::new();
        for i in 0..self.layout.num_trained {
            let bytes = self.read(i)?;
            let buffer = backend.alloc(bytes.len())?;
            buffer.write(0, &bytes)?;
            copies.push(buffer);
        }
        Ok(copies)
    }

    /// Computes the loss of a micro-batch without an update, with these parameters; `write` writes the batch.
    pub fn eval_loss(
        &mut self,
        trained: &[Buffer],
        backend: &dyn Backend,
        write: &dyn Fn(&[Buffer]) -> Result<()>,
    ) -> Result<f32> {
        let (n, unchanging) = (self.layout.num_trained, self.layout.first_buffer()..self.first_batch_input());
        let kept = n + unchanging.len();
        let (executable, mut bindings) = match self.validate.take() {
            Some(ready) => ready,
            None => {
                let loaded = backend.load(compiler::compile(&self.eval_loss, backend, &Options::default())?)?;
                // Parameters are shared with the step: only other buffers take memory.
                let program = loaded.program();
                let mut inputs: Vec<Buffer> = trained.to_vec();
                inputs.extend_from_slice(&self.bindings.inputs[unchanging.clone()]);
                for ty in &program.inputs[kept..] {
                    inputs.push(backend.alloc(ty.bytes())?);
                }
                let outputs = program.outputs.iter().map(|ty| backend.alloc(ty.bytes()));
                let outputs = outputs.collect::<compiler::Result<Vec<_>>>()?;
                (loaded, Bindings { inputs, outputs })
            }
        };
        // Buffers may have been swapped.
        bindings.inputs[..n].clone_from_slice(trained);
        bindings.inputs[n..kept].clone_from_slice(&self.bindings.inputs[unchanging]);
        write(&bindings.inputs[kept..])?;
        executable.run(&mut bindings)?;
        let mut bytes = vec![0; executable.program().outputs[0].bytes()];
        bindings.outputs[0].read(0, &mut bytes)?;
        let loss = match bytes[..] {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => f32::NAN,
        };
        self.validate = Some((executable, bindings));
        Ok(loss)
    }

    /// The gradient norms of the last step, and the norms of the current trainable parameters.
    pub fn norms(&mut self, backend: &dyn Backend) -> Result<[Vec<f32>; 2]> {
        let n = self.layout.num_trained;
        let lengths = match &mut self.norms {
            Some(ready) => ready,
            none => {
                let mut b = Builder::new();
                let types = &self.step.program().inputs[..n];
                let trained: Vec<Value> = types.iter().map(|ty| b.graph.input(ty.clone())).collect();
                let mut each = Vec::new();
                for value in trained {
                    let square = b.mul(value, value)?;
                    let sum = b.sum_all(square)?;
                    let sum = b.cast(sum, DType::F32)?;
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
        lengths.1.inputs.clone_from_slice(&self.bindings.inputs[..n]);
        lengths.0.run(&mut lengths.1)?;
        let read = |buffer: &Buffer| -> Result<Vec<f32>> {
            let mut bytes = vec![0; 4 * n];
            buffer.read(0, &mut bytes)?;
            Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
        };
        Ok([read(&self.bindings.outputs[self.bindings.outputs.len() - 1])?, read(&lengths.1.outputs[0])?])
    }

    /// All state by name: scales and amax histories, trainable parameters, their moments, buffers.
    fn state_tensors(&self, names: &[String], buffers: &[String]) -> Vec<(String, Type, usize)> {
        let types = &self.program().inputs;
        let mut all = self.extra_state(names);
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, name) in names.iter().enumerate() {
                let input = k * self.layout.num_trained + i;
                all.push((format!("{kind}.{name}"), types[input].clone(), input));
            }
        }
        for (i, name) in buffers.iter().enumerate() {
            let input = self.layout.first_buffer() + i;
            all.push((format!("buffer.{name}"), types[input].clone(), input));
        }
        all
    }

    /// Reads the whole state by the names of trainable parameters and buffers, where one process holds all of it.
    pub fn state(&self, names: &[String], buffers: &[String]) -> Result<Vec<NamedTensor>> {
        let named = |(name, ty, input): (String, Type, usize)| {
            Ok(NamedTensor { name, shape: ty.shape.to_vec(), dtype: ty.dtype, bytes: self.read(input)? })
        };
        self.state_tensors(names, buffers).into_iter().map(named).collect()
    }

    /// Restores the state of a checkpoint.
    pub fn resume(&self, names: &[String], buffers: &[String], from: &Checkpoint) -> Result<()> {
        for (name, ty, input) in self.state_tensors(names, buffers) {
            let whole: Vec<Vec<usize>> = ty.shape.iter().map(|n| (0..*n).collect()).collect();
            self.write(input, &from.read_shard(&name, &ty, &whole)?)?;
        }
        Ok(())
    }

    /// The state besides trainable parameters and moments: names, types and inputs of scales and amax histories.
    pub fn extra_state(&self, names: &[String]) -> Vec<(String, Type, usize)> {
        let mut all = Vec::new();
        let mut at = 3 * self.layout.num_trained;
        for kind in ["first_scale", "second_scale"] {
            for (name, moment) in names.iter().zip(&self.layout.moments) {
                let Some(ty) = &moment.scales else { continue };
                all.push((format!("{kind}.{name}"), ty.clone(), at));
                at += 1;
            }
        }
        let types = &self.program().inputs;
        for (i, input) in (at..at + self.layout.num_amax_histories).enumerate() {
            all.push((format!("history.{i}"), types[input].clone(), input));
        }
        all
    }
}
