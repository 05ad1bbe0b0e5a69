//! Estimates a training step on this machine before ranks are started: runs the programs of one rank without the collectives'
//! communication, and measures the time of collectives between ranks of this machine on demand.
//!
//! Steps that overlap with a collective are determined as on the CPU backend, and pipelines are simulated action by action. A
//! rank computes more slowly while others do, so its programs run on as many threads at once as there will be ranks.
//! Communication between ranks of one machine is copying, which needs a core as well: it overlaps only as far as there are free cores.

use super::{ADAM, DEVICES, PlanModel, PlanModelCache, StepCost, TrainJob, cost, single_rank_comm};
use crate::error::{Error, Result};
use crate::random::SplitMix64;
use crate::train::StepSizes;
use crate::train::pipeline::{self, ChunkGraphs, PipelinedLoss};
use crate::train::sharding::{ShardingPlan, arrange_collectives};
use compiler::program::{Program, Step, TripCount};
use compiler::{Backend, Bindings, Communicator, Options};
use cpu::Cpu;
use dist::launch::{ProcessInfo, Secret};
use dist::pipeline::{PipelineCosts, PipelineSchedule, PipelineTimeline};
use dist::{Comm, tcp::TcpTransport, thread_transport};
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Graph, Mesh, MeshAxis, Op, Type};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use train::step;

/// The transport between the ranks of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankTransport {
    /// Ranks are threads of one process.
    Threads,
    /// Ranks are processes that communicate over TCP.
    Tcp,
}

/// Measurements of this machine; each rank has one thread.
pub struct LocalMachine {
    transport: RankTransport,
    /// The seconds of a collective or a message, by the bytes of its operand.
    measurements: BTreeMap<CollectiveKey, Vec<(f64, f64)>>,
}

/// The kind of a communication step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CollectiveKey {
    /// The name of a collective, or a message.
    kind: &'static str,
    /// The number of all ranks, which communicate in groups at the same time.
    world: usize,
    /// The number of ranks in a group.
    group: usize,
    /// Whether it is asynchronous: a separate thread runs it.
    started: bool,
}

/// Operand sizes at which communication is measured, in bytes.
const SIZES: [usize; 5] = [256, 16 << 10, 256 << 10, 2 << 20, 8 << 20];

/// The minimum duration of a measurement.
const MIN_MEASURE_TIME: Duration = Duration::from_millis(60);

fn failed(e: impl ToString) -> Error {
    Error::Input(e.to_string())
}

/// A communicator without other ranks: results are filled with bytes of the operand.
struct SingleRankComm(Mesh);

impl Communicator for SingleRankComm {
    fn mesh(&self) -> &Mesh {
        &self.0
    }

    fn rank(&self) -> usize {
        0
    }

    fn run(&self, op: &Collective, _: &Type, from: &[u8], to: &mut [u8]) -> compiler::Result<()> {
        if op.kind == Kind::AxisIndex || from.is_empty() {
            to.fill(0);
            return Ok(());
        }
        to.chunks_mut(from.len()).for_each(|piece| piece.copy_from_slice(&from[..piece.len()]));
        Ok(())
    }
}

/// Runs `f` on ranks of this machine.
fn spawn<T: Send>(way: RankTransport, mesh: &Mesh, f: impl Fn(Arc<Comm>) -> dist::Result<T> + Sync) -> Result<Vec<T>> {
    if way == RankTransport::Threads {
        return thread_transport::spawn(mesh, f).map_err(failed);
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(failed)?;
    let secret = Secret::Text(Secret::generate().map_err(failed)?);
    let joined: Vec<dist::Result<T>> = std::thread::scope(|scope| {
        let one = |rank: usize| {
            let (f, mesh, secret) = (&f, mesh.clone(), secret.clone());
            let place = ProcessInfo { rank, world_size: mesh.ranks(), master_addr: free.to_string(), secret };
            scope.spawn(move || f(Arc::new(Comm::new(Arc::new(TcpTransport::join(&place, &mesh.to_string())?), mesh)?)))
        };
        let all: Vec<_> = (0..mesh.ranks()).map(one).collect();
        let ended = |t: std::thread::ScopedJoinHandle<'_, dist::Result<T>>| {
            t.join().unwrap_or_else(|_| Err(dist::Error::InvalidCall("a rank panicked".into())))
        };
        all.into_iter().map(ended).collect()
    });
    joined.into_iter().collect::<dist::Result<Vec<T>>>().map_err(failed)
}

/// Runs programs of one rank without the others.
struct DryRun<'a> {
    mesh: &'a Mesh,
    vocabulary: usize,
}

/// A program loaded for one rank, with inputs like those of training.
struct LoadedProgram {
    run: Arc<dyn compiler::Executable>,
    bindings: Bindings,
}

impl DryRun<'_> {
    fn backend(&self) -> Cpu {
        Cpu::new(1).with_communicator(Arc::new(SingleRankComm(self.mesh.clone())))
    }

    fn load(&self, program: Program) -> Result<LoadedProgram> {
        let backend = self.backend();
        let run = backend.load(program)?;
        let mut bindings = Bindings::for_program(run.program(), &backend)?;
        let mut random = SplitMix64::new(1, 1);
        for (ty, buffer) in run.program().inputs.iter().zip(&bindings.inputs) {
            let bytes: Vec<u8> = match ty.dtype {
                // Learning rate and factors; a positive value is also valid for second moments.
                DType::F32 if ty.rank() == 0 => 1e-3f32.to_le_bytes().to_vec(),
                DType::F32 => {
                    (0..ty.numel()).flat_map(|_| (0.02 * random.normal().abs() as f32).to_le_bytes()).collect()
                }
                DType::I32 => {
                    (0..ty.numel()).flat_map(|_| (random.below(self.vocabulary) as i32).to_le_bytes()).collect()
                }
                _ => vec![0; ty.bytes()],
            };
            buffer.write(0, &bytes)?;
        }
        for &(input, output) in &run.program().donated {
            bindings.outputs[output] = bindings.inputs[input].clone();
        }
        Ok(LoadedProgram { run, bindings })
    }

    /// Compiles a program, and returns the seconds of each of its steps, run by several threads at once: those of the slowest thread.
    fn run(&self, graph: &Graph, donate: Vec<(usize, usize)>, threads: usize) -> Result<(Program, Vec<f64>)> {
        let options = Options { donate, ..Options::default() };
        let program = compiler::compile(graph, &self.backend(), &options)?;
        let seconds = self.step_seconds_in_parallel(&program, threads)?;
        Ok((program, seconds))
    }

    /// The seconds of each step of a program that several threads run at once.
    fn step_seconds_in_parallel(&self, program: &Program, threads: usize) -> Result<Vec<f64>> {
        let mut all = (0..threads).map(|_| self.load(program.clone())).collect::<Result<Vec<_>>>()?;
        let barrier = std::sync::Barrier::new(threads);
        let times: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
            let one = |loaded| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    LoadedProgram::seconds(loaded)
                })
            };
            let all: Vec<_> = all.iter_mut().map(one).collect();
            let ended = |t: std::thread::ScopedJoinHandle<'_, Result<Vec<f64>>>| {
                t.join().unwrap_or_else(|_| Err(failed("a measurement panicked")))
            };
            all.into_iter().map(ended).collect()
        });
        let times = times.into_iter().collect::<Result<Vec<_>>>()?;
        let total = |times: &Vec<f64>| times.iter().sum::<f64>();
        Ok(times.into_iter().max_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or_default())
    }
}

impl LoadedProgram {
    /// The seconds of each step of the program, without collectives: those of the run with the median time.
    fn seconds(&mut self) -> Result<Vec<f64>> {
        let count = self.run.program().steps.len();
        // The first run touches unmapped memory.
        self.run.run(&mut self.bindings)?;
        let (mut runs, begun): (Vec<(f64, Vec<f64>)>, _) = (Vec::new(), Instant::now());
        while runs.len() < 5 || (runs.len() < 25 && begun.elapsed() < 8 * MIN_MEASURE_TIME) {
            let mut own = vec![0.0; count];
            for timing in self.run.run_timed(&mut self.bindings)? {
                if COLLECTIVE_LABELS.contains(&timing.label.as_str()) {
                    continue;
                }
                timing.steps.iter().for_each(|(step, time)| own[*step] += time.as_secs_f64());
            }
            runs.push((own.iter().sum(), own));
        }
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(runs.swap_remove(runs.len() / 2).1)
    }
}

/// Names of the collectives that communicate.
const COLLECTIVE_LABELS: [&str; 7] = ["psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute"];

/// The seconds of a training step by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StepTime {
    total: f64,
    compute: f64,
    communication: f64,
}

impl LocalMachine {
    /// A machine without measurements.
    pub fn new(way: RankTransport) -> LocalMachine {
        LocalMachine { transport: way, measurements: BTreeMap::new() }
    }

    /// The cost of a step on a mesh of this machine: memory and traffic are counted, time is predicted from measurements.
    pub fn cost(&mut self, job: &TrainJob, mesh: &Mesh) -> Result<StepCost> {
        let mut cost = cost(job, mesh, &DEVICES[0], true)?;
        let ground = PlanModelCache::default().of(job, mesh, false)?;
        let PlanModel { model, about, .. } = &*ground;
        let (mut target, comm) = (ground.target.objective.clone(), single_rank_comm(mesh)?);
        let (vocabulary, world) = (model.vocabulary().unwrap_or(1), mesh.ranks());
        let StepSizes { gradient_accumulation_steps: accumulate, .. } = job.sizes;
        let n = target.trained.len();
        let dry = DryRun { mesh, vocabulary };
        if pipeline::pipeline_axis(mesh).is_none() {
            let sums = match world {
                1 => Default::default(),
                _ => ShardingPlan::of(&mut target, about, comm)?.sums,
            };
            let graph = arrange_collectives(
                &step::step_graph(&target, &ADAM, accumulate, &sums, &step::moments(&target, false))?,
                ground.target.grad_reduction.synchronous,
            )?;
            let donate = (0..3 * n).map(|i| (i, 2 + i)).collect();
            let (program, seconds) = dry.run(&graph, donate, world)?;
            let spent = self.simulate(&program, &seconds, mesh)?;
            (cost.compute, cost.communication, cost.pipeline_bubble) =
                (spent.compute, spent.total - spent.compute, 0.0);
            return Ok(cost);
        }
        let paths: Vec<String> = model.params.iter().map(|param| param.path.clone()).collect();
        let divided = PipelinedLoss::of(&target, about, &paths, comm, job.chunks.max(1))?;
        let ranks = divided.loss_axes()[0].size;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let together = world.min(cores);
        let schedule = PipelineSchedule::interleaved(ranks, job.chunks.max(1), accumulate).map_err(failed)?;
        // For each chunk: forward and backward, with all ranks computing and with one computing alone.
        let (mut busy, mut alone, mut between) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()), 0);
        let chunks = divided.chunk_graphs()?;
        for (i, ChunkGraphs { forward: there, backward: back, donate, .. }) in chunks.iter().enumerate() {
            let last = i + 1 == chunks.len();
            if !last {
                between = there.output_types().iter().map(Type::bytes).sum();
            }
            // The last chunk's forward pass is part of its backward pass.
            for (graph, busy, alone) in [(there, &mut busy.0, &mut alone.0), (back, &mut busy.1, &mut alone.1)] {
                if last && std::ptr::eq(graph, there) {
                    busy.push(0.0);
                    alone.push(0.0);
                    continue;
                }
                let donate = if std::ptr::eq(graph, back) { donate.clone() } else { Vec::new() };
                let (program, seconds) = dry.run(graph, donate, together)?;
                busy.push(self.simulate(&program, &seconds, mesh)?.total);
                let quiet = dry.step_seconds_in_parallel(&program, 1)?;
                alone.push(self.simulate(&program, &quiet, mesh)?.total);
            }
        }
        let message = CollectiveKey { kind: "message", world, group: 2, started: false };
        let message = self.seconds(message, between as f64)?;
        // While other ranks wait, a rank computes at the speed of a single one.
        let share = |line: &PipelineTimeline| {
            line.busy_time.iter().sum::<f64>() / (ranks as f64 * line.total.max(f64::MIN_POSITIVE))
        };
        let mut others = 1.0;
        let mut line = None;
        for _ in 0..3 {
            let mix = |busy: &[f64], alone: &[f64]| -> Vec<f64> {
                busy.iter().zip(alone).map(|(b, a)| others * b + (1.0 - others) * a.min(*b)).collect()
            };
            let costs = PipelineCosts { forward: mix(&busy.0, &alone.0), backward: mix(&busy.1, &alone.1), message };
            let found = PipelineTimeline::simulate(&schedule, &costs).map_err(failed)?;
            others = if world > cores { 1.0 } else { share(&found) };
            line = Some(found);
        }
        let Some(line) = line else { return Err(failed("no schedule")) };
        let mut update = StepTime::default();
        for at in 0..ranks {
            let held = divided.local_parameters(at);
            let types = divided.param_types(&target, &held);
            let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
            let sums = divided.division.sums.select(&held);
            let graph = step::update_graph(&types, &trained, &ADAM, &sums, divided.loss_axes())?;
            let donate = (0..3 * held.len()).map(|i| (i, 2 + i)).collect();
            let (program, seconds) = dry.run(&graph, donate, world)?;
            let own = self.simulate(&program, &seconds, mesh)?;
            update = if own.total > update.total { own } else { update };
        }
        let busiest = line.busy_time.iter().fold(0.0, |a: f64, b| a.max(*b));
        // If there are fewer cores than ranks, waiting ranks leave their cores to others.
        let mean = line.busy_time.iter().sum::<f64>() / ranks as f64;
        let total = line.total.max(mean * world as f64 / together as f64);
        cost.compute = busiest.min(total) + update.compute;
        cost.communication = update.total - update.compute;
        cost.pipeline_bubble = (total - busiest).max(0.0);
        Ok(cost)
    }

    /// Simulates a program's steps in order; collectives overlap where possible.
    fn simulate(&mut self, program: &Program, seconds: &[f64], mesh: &Mesh) -> Result<StepTime> {
        let needed = cpu::collective_deadlines(program);
        let mut spent = StepTime::default();
        // The fraction of asynchronous work that cores without a rank can do.
        let (cores, world) = (std::thread::available_parallelism().map_or(1, |n| n.get()), mesh.ranks());
        let overlapped = (cores as f64 / world as f64 - 1.0).clamp(0.0, 1.0);
        let (mut now, mut free) = (0.0f64, 0.0f64);
        let mut open: Vec<(usize, f64)> = Vec::new();
        for (k, step) in program.steps.iter().enumerate() {
            open.iter().filter(|(at, _)| *at <= k).for_each(|(_, end)| now = now.max(*end));
            open.retain(|(at, _)| *at > k);
            let own = seconds[k];
            now += own;
            spent.compute += own;
            let talk = self.communication_time(step, mesh, needed[k].is_some())?;
            spent.communication += talk;
            match needed[k] {
                Some(at) => {
                    now += (1.0 - overlapped) * talk;
                    free = free.max(now) + overlapped * talk;
                    open.push((at, free));
                }
                None => now += talk,
            }
        }
        open.iter().for_each(|(_, end)| now = now.max(*end));
        spent.total = now;
        Ok(spent)
    }

    /// The communication time of a step in seconds.
    fn communication_time(&mut self, step: &Step, mesh: &Mesh, started: bool) -> Result<f64> {
        Ok(match step {
            Step::Library { op, args, .. } => match &**op {
                Op::Collective(c) if c.communicates() && c.ranks() > 1 => {
                    let bytes = args.first().map_or(0, |(_, ty)| ty.bytes());
                    let kind = ir::Rules::name(c);
                    self.seconds(CollectiveKey { kind, world: mesh.ranks(), group: c.ranks(), started }, bytes as f64)?
                }
                _ => 0.0,
            },
            Step::Loop(l) => {
                let mut one = 0.0;
                for step in &l.body {
                    one += self.communication_time(step, mesh, false)?;
                }
                match l.trip_count {
                    TripCount::Exact(n) => one * n as f64,
                    TripCount::Bounded { bound, .. } => one * bound as f64,
                    TripCount::While { .. } => one,
                }
            }
            _ => 0.0,
        })
    }

    /// The communication time for an operand of this many bytes in seconds.
    fn seconds(&mut self, key: CollectiveKey, bytes: f64) -> Result<f64> {
        if !self.measurements.contains_key(&key) {
            let mut found = Vec::new();
            for size in SIZES {
                found.push((size as f64, measure_collective(self.transport, key, size)?));
            }
            self.measurements.insert(key, found);
        }
        let table = &self.measurements[&key];
        // Linear interpolation between two measurements, or extrapolation from the last two.
        let at = table.iter().position(|(size, _)| *size >= bytes).unwrap_or(table.len() - 1).max(1);
        let ((x0, y0), (x1, y1)) = (table[at - 1], table[at]);
        Ok((y0 + (y1 - y0) * (bytes - x0) / (x1 - x0)).max(0.0))
    }
}

/// Measures the seconds of a collective, with all groups at once.
fn measure_collective(way: RankTransport, talk: CollectiveKey, bytes: usize) -> Result<f64> {
    let CollectiveKey { kind, world, group, started } = talk;
    let axes = [MeshAxis::new("groups", world / group), MeshAxis::new("group", group)];
    let sizes: Vec<(&str, usize)> = axes.iter().map(|a| (a.name.as_str(), a.size)).collect();
    let mesh = Mesh::new(&sizes).map_err(failed)?;
    let ty = Type::new(DType::F32, &[group, bytes.div_ceil(4 * group)]);
    let op = match kind {
        "pmax" => Kind::Max,
        "pmin" => Kind::Min,
        "all_gather" => Kind::AllGather { dim: 0, same: true, turn: 0 },
        "psum_scatter" => Kind::ReduceScatter { dim: 0 },
        "all_to_all" => Kind::AllToAll { split: 0, join: 0 },
        "ppermute" => Kind::Permute { pairs: (0..group).map(|i| (i, (i + 1) % group)).collect() },
        _ => Kind::Sum,
    };
    let op = Collective::new(op, &axes[1..]);
    let out = ir::Rules::infer(&op, std::slice::from_ref(&ty)).map_err(failed)?[0].bytes();
    let times = spawn(way, &mesh, |comm| {
        let (from, mut to) = (vec![0; ty.bytes()], vec![0; out]);
        let next = comm.rank() ^ 1;
        let mut once = || match kind {
            "message" if next < world => {
                comm.send_recv("pp", &[(next, &from[..])], &mut [(next, &mut to[..from.len()])])
            }
            "message" => Ok(()),
            _ => match if started { comm.start(&op, &ty, &from)? } else { None } {
                Some(under_way) => under_way.finish(&mut to),
                None => comm.run(&op, &ty, &from, &mut to),
            },
        };
        once()?;
        // All ranks must run the same number of repetitions.
        let timed = |count: usize, once: &mut dyn FnMut() -> dist::Result<()>| -> dist::Result<f64> {
            comm.all_reduce_any(false)?;
            let begun = Instant::now();
            for _ in 0..count {
                once()?;
            }
            Ok(begun.elapsed().as_secs_f64())
        };
        let mut count = 1;
        while !comm.all_reduce_any(timed(count, &mut once)? > MIN_MEASURE_TIME.as_secs_f64() / 6.0)? {
            count *= 2;
        }
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(timed(count, &mut once)? / count as f64);
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    })?;
    Ok(times.iter().fold(0.0, |a: f64, b| a.max(*b)))
}
