//! Training as a pipeline: the axis `pp` of a mesh divides layers. Each rank runs its chunks of the model for one micro-batch
//! after another, as a schedule of `dist::pipeline` says, and tells its neighbours what they need.
//!
//! Of a forward pass a rank keeps what its chunk was given; the backward pass computes the inside again. A parameter is at the rank
//! that uses it; one that several use (a table of embeddings that is the head too) is on all, and its gradients are summed.

use super::batches::Batch;
use super::division::{Division, failed, gathered_again, local};
use super::stages::{Chunk, Stages, layer_of, opened};
use crate::error::{Error, Result};
use crate::placing::{self, About};
use crate::session::Buffer;
use compiler::{Backend, Bindings, Executable, Options};
use dist::Comm;
use dist::pipeline::{Action, Schedule};
use ir::{Build, Builder, DType, Graph, Mesh, MeshAxis, Spec, Type, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use train::Objective;
use transform::{Cut, Placement};

/// The axis of a mesh that is a pipeline.
pub(crate) fn axis(mesh: &Mesh) -> Option<(usize, MeshAxis)> {
    let at = mesh.axes().iter().position(|a| a.name == "pp" && a.size > 1)?;
    Some((at, mesh.axes()[at].clone()))
}

/// What all chunks of a loss are for a rank of the mesh.
#[derive(Clone)]
struct Chain {
    chunks: Vec<(Chunk, Graph)>,
}

impl Chain {
    /// Bytes of each value that crosses the beginning of a chunk.
    fn crossing(&self) -> Vec<Vec<usize>> {
        let of = |(chunk, graph): &(Chunk, Graph)| {
            let types = graph.input_types();
            types[types.len() - chunk.takes..].iter().map(Type::bytes).collect()
        };
        self.chunks.iter().map(of).collect()
    }
}

/// A loss that a pipeline computes.
pub(crate) struct Divided {
    pub(crate) division: Division,
    chain: Chain,
    /// The same without anything random.
    plain: Chain,
    axis: MeshAxis,
    ranks: usize,
    each: usize,
}

impl Divided {
    /// Divides an objective over a mesh with a pipeline; `each` chunks lie at each of its ranks. `paths` are those of the
    /// parameters, the first inputs of the loss.
    pub(crate) fn of(
        objective: &Objective,
        about: &[About],
        paths: &[String],
        comm: Arc<Comm>,
        each: usize,
    ) -> Result<Divided> {
        let mesh = comm.mesh().clone();
        let Some((_, axis)) = axis(&mesh) else { return Err(Error::Input("the mesh has no axis `pp`".into())) };
        if !objective.asserts.is_empty() {
            return Err(Error::Input("a model with assertions can't be trained as a pipeline: leave out `pp`".into()));
        }
        if objective.trained.len() != about.len() {
            return Err(Error::Input("frozen parameters can't be part of a pipeline: leave out `pp`".into()));
        }
        let layers: Vec<Option<usize>> = paths.iter().map(|path| layer_of(path)).collect();
        let mut division = Division::plan(objective, about, comm)?;
        division.store(objective);
        let (loss, plain) = (opened(&objective.loss)?, opened(&objective.plain)?);
        let count = axis.size * each;
        let both = |late: &[MeshAxis]| -> Result<(Chain, Chain)> {
            let one = |graph: &Graph| chain(&Stages::of(graph, &layers, count)?, &division, late);
            let found = one(&loss)?;
            // Most models have nothing random in them.
            let without = if plain == loss { found.clone() } else { one(&plain)? };
            Ok((found, without))
        };
        let ((chain, plain), late) = match both(&division.late) {
            Ok(found) => (found, division.late.clone()),
            Err(_) => (both(&[])?, Vec::new()),
        };
        // What one rank alone uses is there alone; what several do is on all.
        for p in 0..about.len() {
            let users = chain.chunks.iter().chain(&plain.chunks).zip((0..count).chain(0..count));
            let users = users.filter(|((chunk, _), _)| chunk.params.contains(&p)).map(|(_, c)| c % axis.size);
            let users: BTreeSet<usize> = users.collect();
            let home = users.first().filter(|_| users.len() == 1).copied();
            division.homes.push(home);
            let own = mesh.of(division.params[p].axes(&mesh).map_err(failed)?);
            let shared = home.is_none().then(|| axis.clone());
            division.sums.gradients.push(late.iter().filter(|a| !own.contains(a)).cloned().chain(shared).collect());
            let alone = home.map(|_| axis.clone());
            let group: Vec<MeshAxis> = own.iter().cloned().chain(alone).collect();
            if !group.is_empty() && !division.sums.all.contains(&group) {
                division.sums.all.push(group.clone());
            }
            division.sums.groups.push(group);
            division.sums.squares.push(own);
        }
        let ranks = axis.size;
        Ok(Divided { division, chain, plain, axis, ranks, each })
    }

    /// The parameters that a rank of the pipeline has.
    pub(crate) fn held(&self, at: usize) -> Vec<usize> {
        let homes = self.division.homes.iter().enumerate();
        homes.filter(|(_, home)| home.is_none_or(|home| home == at)).map(|(p, _)| p).collect()
    }

    /// Which rank of the pipeline this is.
    pub(crate) fn at(&self) -> usize {
        self.division.comm.mesh().coordinate(self.division.comm.rank(), &self.axis.name)
    }

    /// The types of a rank's parameters.
    pub(crate) fn param_types(&self, objective: &Objective, held: &[usize]) -> Vec<Type> {
        let mesh = self.division.comm.mesh();
        let types = objective.loss.input_types();
        held.iter().map(|&p| self.division.params[p].local(mesh, &types[p])).collect()
    }

    /// The graphs of all chunks.
    pub(crate) fn chunk_graphs(&self) -> Result<Vec<ChunkGraphs>> {
        let mut all: Vec<ChunkGraphs> = Vec::new();
        for (i, (chunk, graph)) in self.chain.chunks.iter().enumerate() {
            let (params, last) = (chunk.params.len(), i + 1 == self.chain.chunks.len());
            let same = all.last().filter(|before| !last && before.there == *graph && before.donate.len() == params);
            let back = match same {
                Some(before) => before.back.clone(),
                None => backward(graph, params, chunk.takes, last)?,
            };
            all.push(ChunkGraphs { again: same.is_some(), there: graph.clone(), back, donate: donated(params) });
        }
        Ok(all)
    }

    /// The axis along which losses are summed.
    pub(crate) fn ends(&self) -> &[MeshAxis] {
        std::slice::from_ref(&self.axis)
    }
}

/// What a rank runs of a chunk.
pub(crate) struct ChunkGraphs {
    /// Forward.
    pub(crate) there: Graph,
    /// Backward, with the forward part in it.
    pub(crate) back: Graph,
    /// Sums of gradients that the backward pass adds to in place.
    pub(crate) donate: Vec<(usize, usize)>,
    /// Whether the chunk before is the same but for its parameters.
    pub(crate) again: bool,
}

/// Sums of gradients follow the parameters, and come first among the results.
fn donated(params: usize) -> Vec<(usize, usize)> {
    (0..params).map(|i| (params + i, i)).collect()
}

/// The graphs of all chunks. Each takes what the one before gives as that gives it.
fn chain(stages: &Stages<'_>, division: &Division, late: &[MeshAxis]) -> Result<Chain> {
    let mesh = division.comm.mesh();
    let (mut between, mut sets): (Vec<Spec>, Vec<ir::AxisSet>) = (Vec::new(), Vec::new());
    let mut chunks: Vec<(Chunk, Graph)> = Vec::new();
    // What the chunk before was given, and gives: many chunks are alike.
    let mut before: Option<(Vec<Placement>, Vec<ir::AxisSet>, Graph, Vec<Spec>, Vec<ir::AxisSet>)> = None;
    for c in 0..stages.chunks() {
        let chunk = stages.chunk(c)?;
        let last = c + 1 == stages.chunks();
        let mut ins: Vec<Placement> = chunk.params.iter().map(|&p| division.params[p].clone()).collect();
        ins.extend([division.batch.clone(), division.batch.clone()]);
        let types = chunk.graph.input_types();
        let given = types.len() - chunk.takes;
        for ty in &types[ins.len()..given] {
            ins.push(Placement { layout: vec![Cut::default(); ty.rank()], stored: None });
        }
        for (spec, ty) in between.iter().zip(&types[given..]) {
            ins.push(Placement::of(mesh, spec, ty.rank()));
        }
        let outs: Vec<Option<Spec>> = match last {
            true => vec![Some(Spec::replicated())],
            false => vec![None; chunk.graph.outputs().len()],
        };
        let last_one = chunks.last().map(|(chunk, _)| &chunk.graph);
        let same = |ins_before: &[Placement], sets_before: &[ir::AxisSet]| {
            !last && ins_before == ins && sets_before == sets && last_one.is_some_and(|g| *g == chunk.graph)
        };
        let (graph, specs, found) = match &before {
            Some((i, s, graph, specs, found)) if same(i, s) => (graph.clone(), specs.clone(), found.clone()),
            _ => local(&chunk.graph, mesh, &ins, &outs, late, chunk.params.len(), &sets)?,
        };
        before = Some((ins, sets, graph.clone(), specs.clone(), found.clone()));
        if last && found.iter().any(|s| !s.is_empty()) {
            return Err(Error::Input(format!("the loss is not one for all ranks of {mesh}")));
        }
        (between, sets) = (specs, found);
        chunks.push((chunk, graph));
    }
    Ok(Chain { chunks })
}

/// Gradients of a chunk, added to those so far: from (parameters.., sums of gradients.., ids, labels, totals.., key.., given.., cotangents..)
/// to (sums.., cotangents of what was given.., and behind the last chunk the loss).
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
    gathered_again(&b.finish(&results), end)
}

struct Program {
    run: Arc<dyn Executable>,
    bindings: Bindings,
}

impl Program {
    fn new(graph: &Graph, donate: Vec<(usize, usize)>, backend: &dyn Backend) -> Result<Program> {
        let program = compiler::compile(graph, backend, &Options { donate, ..Options::default() })?;
        let run = backend.load(program)?;
        let bindings = Bindings::for_program(run.program(), backend)?;
        Ok(Program { run, bindings })
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

/// A rank's programs of a chunk.
struct Own {
    number: usize,
    /// Its parameters, by number among those that the rank has.
    params: Vec<usize>,
    /// Inputs between parameters and what is given: ids, labels, totals, key.
    data: usize,
    forward: Option<Program>,
    backward: Program,
    plain: (Vec<usize>, Program),
}

/// A rank of a pipeline.
pub(crate) struct Pipeline {
    comm: Arc<Comm>,
    batch: Placement,
    schedule: Schedule,
    /// Ranks of the pipeline, and which of them this is.
    peers: Vec<usize>,
    at: usize,
    own: Vec<Own>,
    /// Sums of gradients, of every parameter that the rank has.
    pub(crate) gradients: Vec<Buffer>,
    gradient_bytes: Vec<usize>,
    /// Bytes of each value that crosses the beginning of each chunk, in training and without what is random.
    between: Vec<Vec<usize>>,
    plain: Vec<Vec<usize>>,
}

/// The data of one micro-batch, a rank's part.
struct Data(Vec<Vec<u8>>);

impl Pipeline {
    /// Compiles a rank's chunks. `gradients` are buffers for the sums of the parameters that it has, of these types.
    pub(crate) fn new(
        divided: &Divided,
        micro: usize,
        gradients: &[Buffer],
        types: &[Type],
        backend: &dyn Backend,
    ) -> Result<Pipeline> {
        let Divided { division, chain, plain, axis, ranks, each } = divided;
        let (comm, mesh) = (division.comm.clone(), division.comm.mesh());
        let schedule = Schedule::interleaved(*ranks, *each, micro).map_err(failed)?;
        let peers = mesh.group(comm.rank(), std::slice::from_ref(axis));
        let at = divided.at();
        let held = divided.held(at);
        let places = |params: &[usize]| -> Vec<usize> {
            params.iter().filter_map(|p| held.iter().position(|h| h == p)).collect()
        };
        let mut own = Vec::new();
        for number in (at..chain.chunks.len()).step_by(*ranks) {
            let ((chunk, graph), (plain_chunk, plain_graph)) = (&chain.chunks[number], &plain.chunks[number]);
            let (count, last) = (chunk.params.len(), number + 1 == chain.chunks.len());
            let back = backward(graph, count, chunk.takes, last)?;
            own.push(Own {
                number,
                params: places(&chunk.params),
                data: graph.inputs().len() - chunk.takes - count,
                // The last chunk's forward is part of its backward.
                forward: if last { None } else { Some(Program::new(graph, Vec::new(), backend)?) },
                backward: Program::new(&back, donated(count), backend)?,
                plain: (places(&plain_chunk.params), Program::new(plain_graph, Vec::new(), backend)?),
            });
        }
        let (batch, gradients) = (division.batch.clone(), gradients.to_vec());
        let gradient_bytes = types.iter().map(Type::bytes).collect();
        let (between, plain) = (chain.crossing(), plain.crossing());
        Ok(Pipeline { comm, batch, schedule, peers, at, own, gradients, gradient_bytes, between, plain })
    }

    /// Bytes that the programs work on beside the state.
    pub(crate) fn arenas(&self) -> usize {
        let largest = |p: &Program| p.run.program().arena;
        self.own.iter().map(|o| largest(&o.backward).max(o.forward.as_ref().map_or(0, largest))).max().unwrap_or(0)
    }

    /// Bytes of what chunks were given that wait for the backward pass.
    pub(crate) fn kept(&self) -> usize {
        let largest = self.own.iter().map(|o| self.between[o.number].iter().sum::<usize>()).max();
        self.schedule.given(self.at) * largest.unwrap_or(0)
    }

    /// A rank's part of a micro-batch: ids, labels, and what is the same on all ranks: totals and a key, if there are any.
    fn data(&self, ids: &[i32], labels: &[i32], shape: [usize; 2], shared: [Option<&[u8]>; 2]) -> Data {
        let part = |values: &[i32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let ty = Type::new(DType::I32, &shape);
            placing::part(&self.batch, &ty, self.comm.mesh(), self.comm.rank(), &bytes)
        };
        let shared = shared.into_iter().flatten().map(<[u8]>::to_vec);
        Data([part(ids), part(labels)].into_iter().chain(shared).collect())
    }

    /// Runs all micro-batches; gives the sum of their losses, 0 on ranks that don't see it. Sums of gradients are in
    /// `gradients`. `params` are the rank's parameters, `totals` what the loss divides by if there are several micro-batches, `keys`
    /// one key for each micro-batch or none.
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
        let actions = self.schedule.ranks[self.at].clone();
        let mut mail = Mail::new(&self.schedule, self.at, &self.between);
        let mut given: BTreeMap<(usize, usize), Vec<u8>> = BTreeMap::new();
        let mut loss = 0.0;
        let (chunks, at) = (self.schedule.chunks(), self.at);
        for action in actions {
            let Action { back, chunk, micro } = action;
            let rows = micro * each..(micro + 1) * each;
            let key = keys.get(micro).map(Vec::as_slice);
            let data = self.data(&batch.ids[rows.clone()], &batch.labels[rows], shape, [totals, key]);
            if !back && chunk > 0 {
                let came = mail.wait(Action { back: false, chunk: chunk - 1, micro }, &self.comm, &self.peers)?;
                given.insert((chunk, micro), came);
            }
            let own = self.own.iter_mut().find(|o| o.number == chunk);
            let Some(own) = own else { return Err(failed("a chunk of another rank")) };
            let taken = given.get(&(chunk, micro)).map_or(&[][..], Vec::as_slice);
            if !back {
                let Some(program) = &mut own.forward else { continue };
                bind(program, params, &own.params);
                fill(program, own.params.len(), &data, own.data, &[(taken, &self.between[chunk])])?;
                program.run.run(&mut program.bindings)?;
                let outs = joined(program, 0..self.between[chunk + 1].len())?;
                send(&self.comm, self.peers[self.schedule.rank_of(chunk + 1)], &outs)?;
                continue;
            }
            let cotangents = match chunk + 1 < chunks {
                true => mail.wait(Action { back: true, chunk: chunk + 1, micro }, &self.comm, &self.peers)?,
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
            let end = self.between.get(chunk + 1).map_or(&[][..], Vec::as_slice);
            let parts = [(taken, &self.between[chunk][..]), (&cotangents[..], end)];
            fill(program, 2 * count, &data, own.data, &parts)?;
            program.run.run(&mut program.bindings)?;
            for (i, &p) in own.params.iter().enumerate() {
                if !program.run.program().donated.contains(&(count + i, i)) {
                    std::mem::swap(&mut self.gradients[p], &mut program.bindings.outputs[i]);
                }
            }
            let behind = count + self.between[chunk].len();
            if chunk + 1 == chunks {
                let bytes = program.read(behind)?;
                loss += f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            if chunk > 0 {
                let outs = joined(program, count..behind)?;
                send(&self.comm, self.peers[self.schedule.rank_of(chunk - 1)], &outs)?;
                given.remove(&(chunk, micro));
            }
        }
        debug_assert!(mail.stash.is_empty(), "rank {at} was told what it did not need");
        Ok(loss)
    }

    /// The mean loss of one batch, on every rank.
    pub(crate) fn validate(&mut self, params: &[Buffer], batch: &Batch, shape: [usize; 2]) -> Result<f32> {
        let data = self.data(&batch.ids, &batch.labels, shape, [None; 2]);
        let chunks = self.schedule.chunks();
        let mut found = [0; 4];
        for chunk in 0..chunks {
            let Some(own) = self.own.iter_mut().find(|o| o.number == chunk) else { continue };
            let mut taken = vec![0; self.plain[chunk].iter().sum()];
            if chunk > 0 {
                let from = self.peers[self.schedule.rank_of(chunk - 1)];
                self.comm.exchange("pp", &[], &mut [(from, &mut taken[..])]).map_err(failed)?;
            }
            let (used, program) = &mut own.plain;
            bind(program, params, used);
            fill(program, used.len(), &data, 2, &[(&taken, &self.plain[chunk])])?;
            program.run.run(&mut program.bindings)?;
            if chunk + 1 == chunks {
                found.copy_from_slice(&program.read(0)?[..4]);
            } else {
                let outs = joined(program, 0..self.plain[chunk + 1].len())?;
                send(&self.comm, self.peers[self.schedule.rank_of(chunk + 1)], &outs)?;
            }
        }
        // The last stage tells all others.
        let last = self.schedule.rank_of(chunks - 1);
        if self.at == last {
            let others = self.peers.iter().filter(|r| **r != self.comm.rank());
            let sends: Vec<(usize, &[u8])> = others.map(|r| (*r, &found[..])).collect();
            self.comm.exchange("pp", &sends, &mut []).map_err(failed)?;
        } else {
            self.comm.exchange("pp", &[], &mut [(self.peers[last], &mut found[..])]).map_err(failed)?;
        }
        Ok(f32::from_le_bytes(found))
    }
}

/// Puts parameters into a program's first places.
fn bind(program: &mut Program, params: &[Buffer], chosen: &[usize]) {
    for (input, &p) in program.bindings.inputs.iter_mut().zip(chosen) {
        *input = params[p].clone();
    }
}

/// Writes data, then what other chunks gave, from input `first` on; each comes with the sizes of its values.
fn fill(program: &Program, first: usize, data: &Data, count: usize, given: &[(&[u8], &[usize])]) -> Result<()> {
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

fn joined(program: &Program, outputs: std::ops::Range<usize>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for o in outputs {
        all.extend(program.read(o)?);
    }
    Ok(all)
}

fn send(comm: &Comm, to: usize, bytes: &[u8]) -> Result<()> {
    comm.exchange("pp", &[(to, bytes)], &mut []).map_err(failed)
}

/// What others tell a rank, in the order in which they do.
struct Mail {
    /// By rank of the pipeline: what is still to come.
    coming: Vec<std::vec::IntoIter<Action>>,
    stash: BTreeMap<Action, Vec<u8>>,
    ranks: usize,
    /// Bytes that cross the beginning of each chunk.
    sizes: Vec<usize>,
}

impl Mail {
    fn new(schedule: &Schedule, to: usize, between: &[Vec<usize>]) -> Mail {
        let ranks = schedule.ranks.len();
        let coming = (0..ranks).map(|from| schedule.messages(from, to).into_iter()).collect();
        let sizes = between.iter().map(|sizes| sizes.iter().sum()).collect();
        Mail { coming, stash: BTreeMap::new(), ranks, sizes }
    }

    /// The result of an action of another rank; what that told before is kept for later.
    fn wait(&mut self, action: Action, comm: &Comm, peers: &[usize]) -> Result<Vec<u8>> {
        let from = action.chunk % self.ranks;
        loop {
            if let Some(bytes) = self.stash.remove(&action) {
                return Ok(bytes);
            }
            let Some(next) = self.coming[from].next() else {
                return Err(failed(format!("rank {} of the pipeline will not tell {action:?}", peers[from])));
            };
            // What goes on crosses the next chunk's beginning, what goes back its own.
            let mut bytes = vec![0; self.sizes[next.chunk + usize::from(!next.back)]];
            comm.exchange("pp", &[], &mut [(peers[from], &mut bytes[..])]).map_err(failed)?;
            self.stash.insert(next, bytes);
        }
    }
}
