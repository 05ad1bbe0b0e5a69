//! Pipeline parallel training: the axis `pp` of a mesh divides layers. Each rank runs its stages of the model for one micro-batch
//! after another, by a schedule of `dist::pipeline`, and sends results to its neighbours.
//!
//! A rank saves only the inputs of its stages for the backward pass, which recomputes the rest. A parameter is on the rank that
//! uses it; one that several ranks use (an embedding table with a tied head) is on all of them, and its gradients are summed.

use super::batches::Batch;
use super::sharding::{ShardingPlan, failed, local_graph, regather_parameters};
use super::stages::{PipelineStages, StageChunk, inline_calls, layer_of};
use crate::error::{Error, Result};
use crate::param_sharding::{self, ParamInfo};
use crate::session::Buffer;
use compiler::{Backend, Bindings, Executable, Options};
use dist::Comm;
use dist::pipeline::{PipelineAction, PipelineSchedule};
use ir::{Builder, DType, Graph, GraphBuilder, Mesh, MeshAxis, Spec, Type, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use train::LossGraph;
use transform::{DimSharding, Sharding};

/// The pipeline axis of a mesh.
pub(crate) fn pipeline_axis(mesh: &Mesh) -> Option<(usize, MeshAxis)> {
    let at = mesh.axes().iter().position(|a| a.name == "pp" && a.size > 1)?;
    Some((at, mesh.axes()[at].clone()))
}

/// The stages of a loss for a rank of the mesh.
#[derive(Clone)]
struct ChunkChain {
    chunks: Vec<(StageChunk, Graph)>,
}

impl ChunkChain {
    /// Bytes of each value that is passed into each stage.
    fn boundary_bytes(&self) -> Vec<Vec<usize>> {
        let of = |(chunk, graph): &(StageChunk, Graph)| {
            let types = graph.input_types();
            types[types.len() - chunk.num_received..].iter().map(Type::bytes).collect()
        };
        self.chunks.iter().map(of).collect()
    }
}

/// A loss that is split into pipeline stages.
pub(crate) struct PipelinedLoss {
    pub(crate) division: ShardingPlan,
    chain: ChunkChain,
    /// The loss without randomness.
    plain: ChunkChain,
    axis: MeshAxis,
    ranks: usize,
    each: usize,
}

impl PipelinedLoss {
    /// Splits a loss graph over a mesh with a pipeline; each rank has `each` virtual stages. `paths` are those of the parameters,
    /// the first inputs of the loss.
    pub(crate) fn of(
        objective: &LossGraph,
        about: &[ParamInfo],
        paths: &[String],
        comm: Arc<Comm>,
        each: usize,
    ) -> Result<PipelinedLoss> {
        let mesh = comm.mesh().clone();
        let Some((_, axis)) = pipeline_axis(&mesh) else {
            return Err(Error::Input("the mesh has no axis `pp`".into()));
        };
        if !objective.asserts.is_empty() {
            return Err(Error::Input(
                "pipeline parallelism does not support models with assertions: remove `pp`".into(),
            ));
        }
        if objective.trained.len() != about.len() {
            return Err(Error::Input("pipeline parallelism does not support frozen parameters: remove `pp`".into()));
        }
        let layers: Vec<Option<usize>> = paths.iter().map(|path| layer_of(path)).collect();
        let mut division = ShardingPlan::plan_sharding(objective, about, comm)?;
        division.shard_parameters(objective);
        let (loss, plain) = (inline_calls(&objective.loss)?, inline_calls(&objective.eval_loss)?);
        let count = axis.size * each;
        let both = |late: &[MeshAxis]| -> Result<(ChunkChain, ChunkChain)> {
            let one = |graph: &Graph| build_chain(&PipelineStages::of(graph, &layers, count)?, &division, late);
            let found = one(&loss)?;
            // Most models have no randomness.
            let without = if plain == loss { found.clone() } else { one(&plain)? };
            Ok((found, without))
        };
        let ((chain, plain), late) = match both(&division.deferred_axes) {
            Ok(found) => (found, division.deferred_axes.clone()),
            Err(_) => (both(&[])?, Vec::new()),
        };
        // A parameter that one rank uses is only there; one that several use is on all ranks.
        for p in 0..about.len() {
            let users = chain.chunks.iter().chain(&plain.chunks).zip((0..count).chain(0..count));
            let users = users.filter(|((chunk, _), _)| chunk.params.contains(&p)).map(|(_, c)| c % axis.size);
            let users: BTreeSet<usize> = users.collect();
            let home = users.first().filter(|_| users.len() == 1).copied();
            division.pipeline_stage.push(home);
            let own = mesh.axes_in(division.params[p].axes(&mesh).map_err(failed)?);
            let shared = home.is_none().then(|| axis.clone());
            division.sums.gradient_axes.push(late.iter().filter(|a| !own.contains(a)).cloned().chain(shared).collect());
            let alone = home.map(|_| axis.clone());
            let group: Vec<MeshAxis> = own.iter().cloned().chain(alone).collect();
            if !group.is_empty() && !division.sums.all_groups.contains(&group) {
                division.sums.all_groups.push(group.clone());
            }
            division.sums.norm_groups.push(group);
            division.sums.square_axes.push(own);
        }
        let ranks = axis.size;
        Ok(PipelinedLoss { division, chain, plain, axis, ranks, each })
    }

    /// The parameters that a rank of the pipeline has.
    pub(crate) fn local_parameters(&self, at: usize) -> Vec<usize> {
        let homes = self.division.pipeline_stage.iter().enumerate();
        homes.filter(|(_, home)| home.is_none_or(|home| home == at)).map(|(p, _)| p).collect()
    }

    /// The index of this rank in the pipeline.
    pub(crate) fn at(&self) -> usize {
        self.division.comm.mesh().coordinate(self.division.comm.rank(), &self.axis.name)
    }

    /// The types of a rank's parameters.
    pub(crate) fn param_types(&self, objective: &LossGraph, held: &[usize]) -> Vec<Type> {
        let mesh = self.division.comm.mesh();
        let types = objective.loss.input_types();
        held.iter().map(|&p| self.division.params[p].local_type(mesh, &types[p])).collect()
    }

    /// The graphs of all stages.
    pub(crate) fn chunk_graphs(&self) -> Result<Vec<ChunkGraphs>> {
        let mut all: Vec<ChunkGraphs> = Vec::new();
        for (i, (chunk, graph)) in self.chain.chunks.iter().enumerate() {
            let (params, last) = (chunk.params.len(), i + 1 == self.chain.chunks.len());
            let same = all.last().filter(|before| !last && before.forward == *graph && before.donate.len() == params);
            let back = match same {
                Some(before) => before.backward.clone(),
                None => backward(graph, params, chunk.num_received, last)?,
            };
            all.push(ChunkGraphs {
                same_as_previous: same.is_some(),
                forward: graph.clone(),
                backward: back,
                donate: donated_pairs(params),
            });
        }
        Ok(all)
    }

    /// The axes along which losses are summed.
    pub(crate) fn loss_axes(&self) -> &[MeshAxis] {
        std::slice::from_ref(&self.axis)
    }
}

/// The graphs that a rank runs for a stage.
pub(crate) struct ChunkGraphs {
    /// The forward pass.
    pub(crate) forward: Graph,
    /// The backward pass, which recomputes the forward pass.
    pub(crate) backward: Graph,
    /// Gradient accumulators that the backward pass updates in place.
    pub(crate) donate: Vec<(usize, usize)>,
    /// Whether the previous stage has the same graphs and differs only in its parameters.
    pub(crate) same_as_previous: bool,
}

/// Gradient accumulators follow the parameters, and are the first results.
fn donated_pairs(params: usize) -> Vec<(usize, usize)> {
    (0..params).map(|i| (params + i, i)).collect()
}

/// Builds the graphs of all stages. The inputs of each have the sharding of the previous stage's outputs.
fn build_chain(stages: &PipelineStages<'_>, division: &ShardingPlan, late: &[MeshAxis]) -> Result<ChunkChain> {
    let mesh = division.comm.mesh();
    let (mut between, mut sets): (Vec<Spec>, Vec<ir::AxisSet>) = (Vec::new(), Vec::new());
    let mut chunks: Vec<(StageChunk, Graph)> = Vec::new();
    // Inputs and graphs of the previous stage: many stages are equal.
    let mut before: Option<(Vec<Sharding>, Vec<ir::AxisSet>, Graph, Vec<Spec>, Vec<ir::AxisSet>)> = None;
    for c in 0..stages.chunks() {
        let chunk = stages.chunk(c)?;
        let last = c + 1 == stages.chunks();
        let mut ins: Vec<Sharding> = chunk.params.iter().map(|&p| division.params[p].clone()).collect();
        ins.extend([division.batch.clone(), division.batch.clone()]);
        let types = chunk.graph.input_types();
        let given = types.len() - chunk.num_received;
        for ty in &types[ins.len()..given] {
            ins.push(Sharding { spec: vec![DimSharding::default(); ty.rank()], storage_sharding: None });
        }
        for (spec, ty) in between.iter().zip(&types[given..]) {
            ins.push(Sharding::from_spec(mesh, spec, ty.rank()));
        }
        let outs: Vec<Option<Spec>> = match last {
            true => vec![Some(Spec::replicated())],
            false => vec![None; chunk.graph.outputs().len()],
        };
        let last_one = chunks.last().map(|(chunk, _)| &chunk.graph);
        let same = |ins_before: &[Sharding], sets_before: &[ir::AxisSet]| {
            !last && ins_before == ins && sets_before == sets && last_one.is_some_and(|g| *g == chunk.graph)
        };
        let (graph, specs, found) = match &before {
            Some((i, s, graph, specs, found)) if same(i, s) => (graph.clone(), specs.clone(), found.clone()),
            _ => local_graph(&chunk.graph, mesh, &ins, &outs, late, chunk.params.len(), &sets)?,
        };
        before = Some((ins, sets, graph.clone(), specs.clone(), found.clone()));
        if last && found.iter().any(|s| !s.is_empty()) {
            return Err(Error::Input(format!("the loss differs among the ranks of {mesh}")));
        }
        (between, sets) = (specs, found);
        chunks.push((chunk, graph));
    }
    Ok(ChunkChain { chunks })
}

/// Builds the backward pass of a stage: from (parameters.., gradient accumulators.., ids, labels, divisors.., key.., inputs..,
/// cotangents..) to (accumulators.., cotangents of the inputs.., and for the last stage the loss).
fn backward(graph: &Graph, params: usize, takes: usize, last: bool) -> ir::Result<Graph> {
    let (types, trained) = (graph.input_types(), params);
    let wrt: Vec<usize> = (0..trained).chain(types.len() - takes..types.len()).collect();
    let back = transform::vjp(graph, &wrt)?;
    let mut b = Builder::new();
    let mut args: Vec<Value> = types[..params].iter().map(|t| b.graph.input(t.clone())).collect();
    let sums: Vec<Value> = types[..trained].iter().map(|t| b.graph.input(t.clone())).collect();
    args.extend(types[params..].iter().map(|t| b.graph.input(t.clone())).collect::<Vec<_>>());
    for ty in graph.output_types() {
        args.push(match last {
            true => b.full(&ty, ir::Scalar::one(ty.dtype))?,
            false => b.graph.input(ty),
        });
    }
    let found = b.inline(&back, &args)?;
    let outs = graph.outputs().len();
    let mut results = Vec::new();
    for (sum, g) in sums.iter().zip(&found[outs..]) {
        results.push(b.add(*sum, *g)?);
    }
    results.extend(&found[outs + trained..]);
    if last {
        results.push(found[0]);
    }
    let end = found[..outs].iter().copied().max().unwrap_or(found[0]);
    regather_parameters(&b.finish(&results), end)
}

struct PipelineProgram {
    run: Arc<dyn Executable>,
    bindings: Bindings,
}

impl PipelineProgram {
    fn new(graph: &Graph, donate: Vec<(usize, usize)>, backend: &dyn Backend) -> Result<PipelineProgram> {
        let program = compiler::compile(graph, backend, &Options { donate, ..Options::default() })?;
        let run = backend.load(program)?;
        let bindings = Bindings::for_program(run.program(), backend)?;
        Ok(PipelineProgram { run, bindings })
    }

    fn read(&self, output: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.run.program().outputs[output].bytes()];
        self.bindings.outputs[output].read(0, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, input: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.bindings.inputs[input].write(0, bytes)?)
    }
}

/// A rank's programs of a stage.
struct LocalChunk {
    number: usize,
    /// Indices of its parameters among those of the rank.
    params: Vec<usize>,
    /// Number of inputs between the parameters and the stage's inputs: token IDs, labels, divisors, key.
    data: usize,
    forward: Option<PipelineProgram>,
    backward: PipelineProgram,
    plain: (Vec<usize>, PipelineProgram),
}

/// A rank of a pipeline.
pub(crate) struct Pipeline {
    comm: Arc<Comm>,
    batch: Sharding,
    schedule: PipelineSchedule,
    /// The ranks of the pipeline, and the index of this one.
    peers: Vec<usize>,
    at: usize,
    local_chunks: Vec<LocalChunk>,
    /// Gradient accumulators of every parameter of the rank.
    pub(crate) gradients: Vec<Buffer>,
    gradient_bytes: Vec<usize>,
    /// Bytes of each value that is passed into each stage, in training and in validation.
    boundary_bytes: Vec<Vec<usize>>,
    plain: Vec<Vec<usize>>,
}

/// A rank's part of the data of one micro-batch.
struct MicroBatchData(Vec<Vec<u8>>);

impl Pipeline {
    /// Compiles a rank's stages. `gradients` are buffers for the gradients of its parameters, of these types.
    pub(crate) fn new(
        divided: &PipelinedLoss,
        micro: usize,
        gradients: &[Buffer],
        types: &[Type],
        backend: &dyn Backend,
    ) -> Result<Pipeline> {
        let PipelinedLoss { division, chain, plain, axis, ranks, each } = divided;
        let (comm, mesh) = (division.comm.clone(), division.comm.mesh());
        let schedule = PipelineSchedule::interleaved(*ranks, *each, micro).map_err(failed)?;
        let peers = mesh.group(comm.rank(), std::slice::from_ref(axis));
        let at = divided.at();
        let held = divided.local_parameters(at);
        let places = |params: &[usize]| -> Vec<usize> {
            params.iter().filter_map(|p| held.iter().position(|h| h == p)).collect()
        };
        let mut own = Vec::new();
        for number in (at..chain.chunks.len()).step_by(*ranks) {
            let ((chunk, graph), (plain_chunk, plain_graph)) = (&chain.chunks[number], &plain.chunks[number]);
            let (count, last) = (chunk.params.len(), number + 1 == chain.chunks.len());
            let back = backward(graph, count, chunk.num_received, last)?;
            own.push(LocalChunk {
                number,
                params: places(&chunk.params),
                data: graph.inputs().len() - chunk.num_received - count,
                // The last stage's forward pass is part of its backward pass.
                forward: if last { None } else { Some(PipelineProgram::new(graph, Vec::new(), backend)?) },
                backward: PipelineProgram::new(&back, donated_pairs(count), backend)?,
                plain: (places(&plain_chunk.params), PipelineProgram::new(plain_graph, Vec::new(), backend)?),
            });
        }
        let (batch, gradients) = (division.batch.clone(), gradients.to_vec());
        let gradient_bytes = types.iter().map(Type::bytes).collect();
        let (between, plain) = (chain.boundary_bytes(), plain.boundary_bytes());
        Ok(Pipeline {
            comm,
            batch,
            schedule,
            peers,
            at,
            local_chunks: own,
            gradients,
            gradient_bytes,
            boundary_bytes: between,
            plain,
        })
    }

    /// Bytes of the programs' arenas, besides the state.
    pub(crate) fn arenas(&self) -> usize {
        let largest = |p: &PipelineProgram| p.run.program().arena_bytes;
        self.local_chunks
            .iter()
            .map(|o| largest(&o.backward).max(o.forward.as_ref().map_or(0, largest)))
            .max()
            .unwrap_or(0)
    }

    /// Bytes of stage inputs that are saved for the backward pass.
    pub(crate) fn saved_activation_bytes(&self) -> usize {
        let largest = self.local_chunks.iter().map(|o| self.boundary_bytes[o.number].iter().sum::<usize>()).max();
        self.schedule.max_live_inputs(self.at) * largest.unwrap_or(0)
    }

    /// A rank's part of a micro-batch: token IDs, labels, and data that is the same on all ranks:
    /// divisors and a random key, if there are any.
    fn data(&self, ids: &[i32], labels: &[i32], shape: [usize; 2], shared: [Option<&[u8]>; 2]) -> MicroBatchData {
        let part = |values: &[i32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let ty = Type::new(DType::I32, &shape);
            param_sharding::local_part(&self.batch, &ty, self.comm.mesh(), self.comm.rank(), &bytes)
        };
        let shared = shared.into_iter().flatten().map(<[u8]>::to_vec);
        MicroBatchData([part(ids), part(labels)].into_iter().chain(shared).collect())
    }

    /// Runs all micro-batches; returns the sum of their losses, 0 on ranks without the last stage. The accumulated gradients are
    /// in `gradients`. `params` are the rank's parameters, `totals` the divisors of the loss if there are several micro-batches,
    /// `keys` one random key per micro-batch or none.
    pub(crate) fn run(
        &mut self,
        params: &[Buffer],
        batch: &Batch,
        shape: [usize; 2],
        totals: Option<&[u8]>,
        keys: &[Vec<u8>],
    ) -> Result<f32> {
        for (buffer, bytes) in self.gradients.iter().zip(&self.gradient_bytes) {
            buffer.write(0, &vec![0; *bytes])?;
        }
        let each = shape[0] * shape[1];
        let actions = self.schedule.actions_by_rank[self.at].clone();
        let mut mail = ActionInbox::new(&self.schedule, self.at, &self.boundary_bytes);
        let mut given: BTreeMap<(usize, usize), Vec<u8>> = BTreeMap::new();
        let mut loss = 0.0;
        let (chunks, at) = (self.schedule.chunks(), self.at);
        for action in actions {
            let PipelineAction { is_backward: back, chunk, micro_batch: micro } = action;
            let rows = micro * each..(micro + 1) * each;
            let key = keys.get(micro).map(Vec::as_slice);
            let data = self.data(&batch.ids[rows.clone()], &batch.labels[rows], shape, [totals, key]);
            if !back && chunk > 0 {
                let came = mail.wait(
                    PipelineAction { is_backward: false, chunk: chunk - 1, micro_batch: micro },
                    &self.comm,
                    &self.peers,
                )?;
                given.insert((chunk, micro), came);
            }
            let own = self.local_chunks.iter_mut().find(|o| o.number == chunk);
            let Some(own) = own else { return Err(failed("a stage of another rank")) };
            let taken = given.get(&(chunk, micro)).map_or(&[][..], Vec::as_slice);
            if !back {
                let Some(program) = &mut own.forward else { continue };
                bind(program, params, &own.params);
                fill(program, own.params.len(), &data, own.data, &[(taken, &self.boundary_bytes[chunk])])?;
                program.run.run(&mut program.bindings)?;
                let outs = concat_outputs(program, 0..self.boundary_bytes[chunk + 1].len())?;
                send(&self.comm, self.peers[self.schedule.rank_of(chunk + 1)], &outs)?;
                continue;
            }
            let cotangents = match chunk + 1 < chunks {
                true => mail.wait(
                    PipelineAction { is_backward: true, chunk: chunk + 1, micro_batch: micro },
                    &self.comm,
                    &self.peers,
                )?,
                false => Vec::new(),
            };
            let program = &mut own.backward;
            bind(program, params, &own.params);
            let count = own.params.len();
            for (i, &p) in own.params.iter().enumerate() {
                let input = count + i;
                program.bindings.inputs[input] = self.gradients[p].clone();
                if program.run.program().donated.contains(&(input, i)) {
                    program.bindings.outputs[i] = self.gradients[p].clone();
                }
            }
            let end = self.boundary_bytes.get(chunk + 1).map_or(&[][..], Vec::as_slice);
            let parts = [(taken, &self.boundary_bytes[chunk][..]), (&cotangents[..], end)];
            fill(program, 2 * count, &data, own.data, &parts)?;
            program.run.run(&mut program.bindings)?;
            for (i, &p) in own.params.iter().enumerate() {
                if !program.run.program().donated.contains(&(count + i, i)) {
                    std::mem::swap(&mut self.gradients[p], &mut program.bindings.outputs[i]);
                }
            }
            let behind = count + self.boundary_bytes[chunk].len();
            if chunk + 1 == chunks {
                let bytes = program.read(behind)?;
                loss += f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            if chunk > 0 {
                let outs = concat_outputs(program, count..behind)?;
                send(&self.comm, self.peers[self.schedule.rank_of(chunk - 1)], &outs)?;
                given.remove(&(chunk, micro));
            }
        }
        debug_assert!(mail.received.is_empty(), "rank {at} received a tensor that it does not need");
        Ok(loss)
    }

    /// The mean loss of one batch, on every rank.
    pub(crate) fn validate(&mut self, params: &[Buffer], batch: &Batch, shape: [usize; 2]) -> Result<f32> {
        let data = self.data(&batch.ids, &batch.labels, shape, [None; 2]);
        let chunks = self.schedule.chunks();
        let mut found = [0; 4];
        for chunk in 0..chunks {
            let Some(own) = self.local_chunks.iter_mut().find(|o| o.number == chunk) else { continue };
            let mut taken = vec![0; self.plain[chunk].iter().sum()];
            if chunk > 0 {
                let from = self.peers[self.schedule.rank_of(chunk - 1)];
                self.comm.send_recv("pp", &[], &mut [(from, &mut taken[..])]).map_err(failed)?;
            }
            let (used, program) = &mut own.plain;
            bind(program, params, used);
            fill(program, used.len(), &data, 2, &[(&taken, &self.plain[chunk])])?;
            program.run.run(&mut program.bindings)?;
            if chunk + 1 == chunks {
                found.copy_from_slice(&program.read(0)?[..4]);
            } else {
                let outs = concat_outputs(program, 0..self.plain[chunk + 1].len())?;
                send(&self.comm, self.peers[self.schedule.rank_of(chunk + 1)], &outs)?;
            }
        }
        // The last stage sends the loss to all others.
        let last = self.schedule.rank_of(chunks - 1);
        if self.at == last {
            let others = self.peers.iter().filter(|r| **r != self.comm.rank());
            let sends: Vec<(usize, &[u8])> = others.map(|r| (*r, &found[..])).collect();
            self.comm.send_recv("pp", &sends, &mut []).map_err(failed)?;
        } else {
            self.comm.send_recv("pp", &[], &mut [(self.peers[last], &mut found[..])]).map_err(failed)?;
        }
        Ok(f32::from_le_bytes(found))
    }
}

/// Binds parameters to a program's first inputs.
fn bind(program: &mut PipelineProgram, params: &[Buffer], chosen: &[usize]) {
    for (input, &p) in program.bindings.inputs.iter_mut().zip(chosen) {
        *input = params[p].clone();
    }
}

/// Writes data, then values from other stages, from input `first` on; each of these comes with its sizes.
fn fill(
    program: &PipelineProgram,
    first: usize,
    data: &MicroBatchData,
    count: usize,
    given: &[(&[u8], &[usize])],
) -> Result<()> {
    for (i, bytes) in data.0.iter().take(count).enumerate() {
        program.write(first + i, bytes)?;
    }
    let mut input = first + count;
    for (bytes, sizes) in given {
        let mut at = 0;
        for size in *sizes {
            program.write(input, &bytes[at..at + size])?;
            (at, input) = (at + size, input + 1);
        }
    }
    Ok(())
}

fn concat_outputs(program: &PipelineProgram, outputs: std::ops::Range<usize>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for o in outputs {
        all.extend(program.read(o)?);
    }
    Ok(all)
}

fn send(comm: &Comm, to: usize, bytes: &[u8]) -> Result<()> {
    comm.send_recv("pp", &[(to, bytes)], &mut []).map_err(failed)
}

/// Messages from other ranks, in the order in which they are sent.
struct ActionInbox {
    /// Expected messages by rank of the pipeline.
    expected: Vec<std::vec::IntoIter<PipelineAction>>,
    received: BTreeMap<PipelineAction, Vec<u8>>,
    ranks: usize,
    /// Bytes that are passed into each stage.
    sizes: Vec<usize>,
}

impl ActionInbox {
    fn new(schedule: &PipelineSchedule, to: usize, between: &[Vec<usize>]) -> ActionInbox {
        let ranks = schedule.actions_by_rank.len();
        let coming = (0..ranks).map(|from| schedule.messages(from, to).into_iter()).collect();
        let sizes = between.iter().map(|sizes| sizes.iter().sum()).collect();
        ActionInbox { expected: coming, received: BTreeMap::new(), ranks, sizes }
    }

    /// Receives the result of an action of another rank; earlier messages of that rank are stored.
    fn wait(&mut self, action: PipelineAction, comm: &Comm, peers: &[usize]) -> Result<Vec<u8>> {
        let from = action.chunk % self.ranks;
        loop {
            if let Some(bytes) = self.received.remove(&action) {
                return Ok(bytes);
            }
            let Some(next) = self.expected[from].next() else {
                return Err(failed(format!(
                    "rank {} of the pipeline has no action that sends {action:?}",
                    peers[from]
                )));
            };
            // Activations are inputs of the next stage; cotangents are those of the stage's own inputs.
            let mut bytes = vec![0; self.sizes[next.chunk + usize::from(!next.is_backward)]];
            comm.send_recv("pp", &[], &mut [(peers[from], &mut bytes[..])]).map_err(failed)?;
            self.received.insert(next, bytes);
        }
    }
}
