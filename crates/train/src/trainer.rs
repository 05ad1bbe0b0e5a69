//! A compiled step with its state: trained tensors, moments and buffers that are updated in place. It knows inputs by their places,
//! not what they mean: any loss Graph has one.

use crate::error::{Error, Result};
use crate::moments::Moment;
use crate::named_tensor::NamedTensor;
use crate::saved::Checkpoint;
use crate::step::{self, AdamW, Objective, Scalars};
use crate::sums::Sums;
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Options, Program, Timing};
use ir::ops::threefry::threefry2x32;
use ir::{Build, Builder, DType, Graph, Type, Unary, Value};
use std::sync::Arc;

/// Memory of a device.
pub type Buffer = Arc<dyn DeviceBuffer>;

/// What a step reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// The mean loss before the update.
    pub loss: f32,
    /// Length of the whole gradient, before clipping. If it is not finite, nothing was updated.
    pub norm: f32,
}

/// Scalars that follow a batch.
pub const SCALARS: usize = 3;

/// What the inputs of a step are, in order: trained tensors, their first and second moments, scales of moments in 8 bits, histories of
/// delayed scaling, buffers, what stays as it is, the batch, scalars, and keys.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Trained tensors.
    pub trained: usize,
    /// How their moments are kept.
    pub moments: Vec<Moment>,
    /// Histories of delayed scaling.
    pub histories: usize,
    /// Tensors that a step changes without a gradient.
    pub buffers: usize,
    /// Inputs of a batch.
    pub batch: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Whether keys come last.
    pub keyed: bool,
    /// Assertions whose violations are counted.
    pub asserts: usize,
}

impl Layout {
    /// That of an objective's step.
    pub fn of(objective: &Objective, moments: &[Moment], accumulate: usize) -> Layout {
        Layout {
            trained: objective.trained.len(),
            moments: moments.to_vec(),
            histories: objective.states.len(),
            buffers: objective.buffers,
            batch: objective.batch,
            accumulate,
            keyed: objective.keyed,
            asserts: objective.asserts.len(),
        }
    }

    /// How many scales of moments there are.
    pub fn scales(&self) -> usize {
        2 * self.moments.iter().filter(|moment| moment.scales.is_some()).count()
    }

    /// The first buffer.
    pub fn first_buffer(&self) -> usize {
        3 * self.trained + self.scales() + self.histories
    }

    /// The first input that a step does not change.
    pub fn first_fixed(&self) -> usize {
        self.first_buffer() + self.buffers
    }

    /// Inputs that are replaced by outputs.
    fn donate(&self) -> Vec<(usize, usize)> {
        (0..self.first_fixed()).map(|i| (i, 2 + i)).collect()
    }
}

/// A step in training.
pub struct Trainer {
    layout: Layout,
    step: Arc<dyn Executable>,
    bindings: Bindings,
    /// (input, output) of state that could not be updated in place and changes buffers instead.
    swaps: Vec<(usize, usize)>,
    fixed: usize,
    adam: AdamW,
    /// The loss without an update, compiled when it is first asked for.
    plain: Graph,
    validate: Option<(Arc<dyn Executable>, Bindings)>,
    /// Lengths of the trained tensors, likewise.
    lengths: Option<(Arc<dyn Executable>, Bindings)>,
    seed: u64,
}

impl Trainer {
    /// Compiles a step's graph, whose state is updated in place where it can be.
    pub fn compile(graph: &Graph, layout: &Layout, backend: &dyn Backend) -> Result<Program> {
        Ok(compiler::compile(graph, backend, &Options { donate: layout.donate(), ..Options::default() })?)
    }

    /// A compiled step with what is trained, buffers, and what stays as it is; moments are zero.
    pub fn load(
        program: Program,
        layout: Layout,
        plain: Graph,
        adam: AdamW,
        [trained, buffers, fixed]: [Vec<Buffer>; 3],
        backend: &dyn Backend,
    ) -> Result<Trainer> {
        let fixed_count = fixed.len();
        let step = backend.load(program)?;
        let types = &step.program().inputs;
        let mut inputs = trained;
        for ty in &types[layout.trained..layout.first_buffer()] {
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
        let swaps = layout.donate().into_iter().filter(|pair| !donated.contains(pair)).collect();
        let bindings = Bindings { inputs, outputs };
        let (validate, lengths) = (None, None);
        Ok(Trainer { layout, step, bindings, swaps, fixed: fixed_count, adam, plain, validate, lengths, seed: 0 })
    }

    /// The step of an objective, alone and with whole moments.
    pub fn new(
        objective: &Objective,
        adam: AdamW,
        accumulate: usize,
        values: [Vec<Buffer>; 3],
        backend: &dyn Backend,
    ) -> Result<Trainer> {
        let moments = step::moments(objective, false);
        let layout = Layout::of(objective, &moments, accumulate);
        let graph = step::graph(objective, &adam, accumulate, &Sums::default(), &moments)?;
        let program = Trainer::compile(&graph, &layout, backend)?;
        Trainer::load(program, layout, objective.plain.clone(), adam, values, backend)
    }

    /// With another seed for what is random in a step.
    pub fn with_seed(self, seed: u64) -> Trainer {
        Trainer { seed, ..self }
    }

    /// What the inputs are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What a step runs.
    pub fn program(&self) -> &Program {
        self.step.program()
    }

    /// The inputs of the step.
    pub fn inputs(&self) -> &[Buffer] {
        &self.bindings.inputs
    }

    /// Puts another buffer in an input's place.
    pub fn set_input(&mut self, at: usize, buffer: Buffer) {
        self.bindings.inputs[at] = buffer;
    }

    /// How many tensors of the state are updated in place, of how many.
    pub fn in_place(&self) -> (usize, usize) {
        let all = self.layout.first_fixed();
        (all - self.swaps.len(), all)
    }

    /// How many inputs stay as they are.
    pub fn fixed(&self) -> usize {
        self.fixed
    }

    /// The first input of a batch.
    pub fn first_batch_input(&self) -> usize {
        self.layout.first_fixed() + self.fixed
    }

    /// The bytes of an input.
    pub fn read(&self, input: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.program().inputs[input].bytes()];
        self.bindings.inputs[input].read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets the bytes of an input.
    pub fn write(&self, input: usize, bytes: &[u8]) -> Result<()> {
        let ty = &self.program().inputs[input];
        if bytes.len() != ty.bytes() {
            return Err(Error::Input(format!("{} bytes for input {input} of a step, which is {ty}", bytes.len())));
        }
        Ok(self.bindings.inputs[input].write(0, bytes)?)
    }

    /// The scalars of a step, counted from 0.
    pub fn scalars(&self, rate: f64, step: usize) -> [f32; SCALARS] {
        let Scalars { rate, correct1, correct2 } = self.adam.scalars(rate, step);
        [rate, correct1, correct2]
    }

    /// One key for each micro-batch, of seed and position alone: resuming draws the same.
    pub fn keys(&self, step: usize) -> Vec<u8> {
        let first = step as u64 * self.layout.accumulate as u64;
        let keys = (first..first + self.layout.accumulate as u64).flat_map(|position| {
            let key =
                threefry2x32([self.seed as u32, (self.seed >> 32) as u32], [position as u32, (position >> 32) as u32]);
            key.into_iter().flat_map(u32::to_le_bytes)
        });
        keys.collect()
    }

    /// Gives a step what it reads besides its state: the inputs of its batch, then what follows from its number.
    pub fn give(&self, batch: &[Vec<u8>], rate: f64, step: usize) -> Result<()> {
        if batch.len() != self.layout.batch {
            let (found, wanted) = (batch.len(), self.layout.batch);
            return Err(Error::Input(format!("a batch of {found} tensors, where the step reads {wanted}")));
        }
        let at = self.first_batch_input();
        for (i, bytes) in batch.iter().enumerate() {
            self.write(at + i, bytes)?;
        }
        let at = at + batch.len();
        for (i, scalar) in self.scalars(rate, step).iter().enumerate() {
            self.write(at + i, &scalar.to_le_bytes())?;
        }
        if self.layout.keyed {
            self.write(at + SCALARS, &self.keys(step))?;
        }
        Ok(())
    }

    /// Runs the step on what was given; the other result is the first assertion that is broken.
    pub fn run(&mut self) -> Result<(StepResult, Option<usize>)> {
        self.step.run(&mut self.bindings)?;
        self.finish()
    }

    /// The same with kernels timed one by one.
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
        if self.layout.asserts > 0 {
            let mut counts = vec![0; 4 * self.layout.asserts];
            self.bindings.outputs[2 + self.layout.first_fixed()].read(0, &mut counts)?;
            broken = counts.chunks_exact(4).position(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]) != 0.0);
        }
        let result = StepResult { loss: scalar(&self.bindings.outputs[0])?, norm: scalar(&self.bindings.outputs[1])? };
        Ok((result, broken))
    }

    /// Copies of the trained tensors as they are now.
    pub fn trained_now(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let mut copies = Vec::new();
        for i in 0..self.layout.trained {
            let bytes = self.read(i)?;
            let buffer = backend.alloc(bytes.len())?;
            buffer.write(0, &bytes)?;
            copies.push(buffer);
        }
        Ok(copies)
    }

    /// The loss of a micro-batch without an update, with these trained tensors; the batch is written by `write`.
    pub fn plain_loss(
        &mut self,
        trained: &[Buffer],
        backend: &dyn Backend,
        write: &dyn Fn(&[Buffer]) -> Result<()>,
    ) -> Result<f32> {
        let (n, unchanging) = (self.layout.trained, self.layout.first_buffer()..self.first_batch_input());
        let kept = n + unchanging.len();
        let (executable, mut bindings) = match self.validate.take() {
            Some(ready) => ready,
            None => {
                let loaded = backend.load(compiler::compile(&self.plain, backend, &Options::default())?)?;
                // Parameters are shared with the step: only what is its own takes memory.
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
        // Buffers may have changed places.
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

    /// Lengths of the gradients of the last step, and of the trained tensors as they are.
    pub fn lengths(&mut self, backend: &dyn Backend) -> Result<[Vec<f32>; 2]> {
        let n = self.layout.trained;
        let lengths = match &mut self.lengths {
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

    /// All state by name: scales and histories, trained tensors, their moments, buffers.
    fn kept(&self, names: &[String], buffers: &[String]) -> Vec<(String, Type, usize)> {
        let types = &self.program().inputs;
        let mut all = self.further(names);
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, name) in names.iter().enumerate() {
                let input = k * self.layout.trained + i;
                all.push((format!("{kind}.{name}"), types[input].clone(), input));
            }
        }
        for (i, name) in buffers.iter().enumerate() {
            let input = self.layout.first_buffer() + i;
            all.push((format!("buffer.{name}"), types[input].clone(), input));
        }
        all
    }

    /// The whole state by names of trained tensors and buffers, where one process has all of it.
    pub fn state(&self, names: &[String], buffers: &[String]) -> Result<Vec<NamedTensor>> {
        let named = |(name, ty, input): (String, Type, usize)| {
            Ok(NamedTensor { name, shape: ty.shape.to_vec(), dtype: ty.dtype, bytes: self.read(input)? })
        };
        self.kept(names, buffers).into_iter().map(named).collect()
    }

    /// Puts the state of a checkpoint back.
    pub fn resume(&self, names: &[String], buffers: &[String], from: &Checkpoint) -> Result<()> {
        for (name, ty, input) in self.kept(names, buffers) {
            let whole: Vec<Vec<usize>> = ty.shape.iter().map(|n| (0..*n).collect()).collect();
            self.write(input, &from.part(&name, &ty, &whole)?)?;
        }
        Ok(())
    }

    /// State besides trained tensors and moments: names, types and inputs of scales and histories.
    pub fn further(&self, names: &[String]) -> Vec<(String, Type, usize)> {
        let mut all = Vec::new();
        let mut at = 3 * self.layout.trained;
        for kind in ["first_scale", "second_scale"] {
            for (name, moment) in names.iter().zip(&self.layout.moments) {
                let Some(ty) = &moment.scales else { continue };
                all.push((format!("{kind}.{name}"), ty.clone(), at));
                at += 1;
            }
        }
        let types = &self.program().inputs;
        for (i, input) in (at..at + self.layout.histories).enumerate() {
            all.push((format!("history.{i}"), types[input].clone(), input));
        }
        all
    }
}
