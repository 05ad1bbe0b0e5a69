//! Predicts the time, memory and traffic of a training step on a mesh of devices, without these devices: from the graphs that
//! training would run, and tables of speeds.
//!
//! | quantity | method |
//! | --- | --- |
//! | operations, bytes sent | counted in the rank's graphs (`count.rs`), loops included |
//! | memory | parameters, moments and gradients of a rank; of activations, those saved for the backward pass, or the arena that the compiler plans |
//! | time | products by the device's speed, collectives by the interconnect's (`devices.rs`), without overlap; pipelines are simulated action by action |
//!
//! `search.rs` searches for the best meshes. `local.rs` runs one rank's programs on this machine instead of counting them.

mod count;
mod devices;
mod local;
mod search;

pub use count::{OpCounts, count_ops, saved_activation_bytes};
pub use devices::{DEVICES, DeviceSpec, Interconnect};
pub use local::{LocalMachine, RankTransport};
pub use search::{MeshCandidate, MeshSearchResult, search};

use crate::architecture::Architecture;
use crate::config::Config;
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::param_sharding::ParamInfo;
use crate::train::objective::TrainTarget;
use crate::train::objective::{ObjectiveOptions, objective};
use crate::train::pipeline::{self, ChunkGraphs, PipelinedLoss};
use crate::train::sharding::{ShardingPlan, arrange_collectives, num_row_groups};
use crate::train::{AdamW, StepSizes, TrainSettings};
use crate::weight::Weight;
use compiler::Options;
use cpu::Cpu;
use dist::pipeline::{PipelineCosts, PipelineSchedule, PipelineTimeline};
use dist::{Comm, Tag, Transport};
use ir::{DType, Mesh, Type};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use train::step;

/// A training job.
#[derive(Clone, Debug)]
pub struct TrainJob {
    /// The model.
    pub architecture: Architecture,
    /// The compute dtype; master weights and moments are f32.
    pub dtype: DType,
    /// The sizes of a step, of all ranks together.
    pub sizes: StepSizes,
    /// Number of virtual pipeline stages per rank.
    pub chunks: usize,
}

/// The cost of a step for a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCost {
    /// Number of elements of all parameters.
    pub parameters: usize,
    /// FLOPs of all ranks together, without redundant computation.
    pub flops: f64,
    /// FLOPs and communication of a rank.
    pub counts: OpCounts,
    /// Bytes of a rank's parameters, moments and gradients.
    pub state: usize,
    /// Bytes of activations.
    pub activations: usize,
    /// Seconds of computation.
    pub compute: f64,
    /// Seconds of communication.
    pub communication: f64,
    /// Seconds of waiting for other pipeline stages.
    pub pipeline_bubble: f64,
}

impl StepCost {
    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.state + self.activations
    }

    /// Seconds of a step without overlap.
    pub fn seconds(&self) -> f64 {
        self.compute + self.communication + self.pipeline_bubble
    }

    /// Seconds of a step if all communication overlaps with computation.
    pub fn overlapped(&self) -> f64 {
        (self.compute + self.pipeline_bubble).max(self.communication)
    }
}

/// A communicator of a single rank: graphs are partitioned for it, and nothing is ever sent.
struct SingleRankTransport(usize);

impl Transport for SingleRankTransport {
    fn name(&self) -> &'static str {
        "plan"
    }
    fn rank(&self) -> usize {
        0
    }
    fn world_size(&self) -> usize {
        self.0
    }
    fn send_recv(&self, _: Tag, _: &[(usize, &[u8])], _: &mut [(usize, &mut [u8])]) -> dist::Result<()> {
        Err(dist::Error::InvalidCall("a plan sends nothing".into()))
    }
    fn abort(&self, _: usize, _: &str) {}
    fn shutdown(&self) {}
}

/// Returns a model of the library, of a .module file, or of a HuggingFace directory's `config.json`; `set` gives sizes.
pub fn architecture(model: &str, set: &str) -> Result<Architecture> {
    let mut settings = TrainSettings::default();
    settings.set("set", set)?;
    let path = Path::new(model);
    if path.is_dir() {
        let path = path.join("config.json");
        let mut found = Architecture::from_config(&Config::read(&path)?, &path)?;
        found.constants.extend(settings.model_constants());
        return Ok(found);
    }
    Architecture::from_program(load_program(model)?, None, settings.model_constants())
}

fn model_without_weights(architecture: &Architecture, dtype: DType, scan: bool) -> Result<Model> {
    let options = lang::lower::LowerOptions { dtype, scan, ..Default::default() };
    let params = architecture.lower_with(1, 1, &options)?.params;
    let weights = params.iter().map(|_| Weight::Stored).collect();
    let (architecture, limits) = (architecture.clone(), architecture.limits(dtype));
    Ok(Model {
        architecture,
        params,
        dtype,
        weights,
        checkpoint: None,
        limits,
        pieces: Vec::new(),
        config: Default::default(),
        pooling: Default::default(),
    })
}

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };

/// A model without weights, and its trainable parameters.
struct PlanModel {
    model: Model,
    target: TrainTarget,
    about: Vec<ParamInfo>,
}

/// Number of micro-batches, rows per micro-batch; whether layers are a loop.
type Key = (usize, usize, bool, bool);

/// Cached graphs of a search: meshes with the same rows start from the same graphs.
#[derive(Default)]
struct PlanModelCache {
    models: OnceMap<PlanModel>,
    /// FLOPs of a step in one process.
    flops: OnceMap<f64>,
}

/// Values that are computed once, by the first user.
struct OnceMap<T>(Mutex<BTreeMap<Key, OnceEntry<T>>>);

type OnceEntry<T> = Arc<OnceLock<std::result::Result<Arc<T>, String>>>;

impl<T> Default for OnceMap<T> {
    fn default() -> Self {
        OnceMap(Mutex::default())
    }
}

impl<T> OnceMap<T> {
    fn get(&self, key: Key, find: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let found = place.get_or_init(|| find().map(Arc::new).map_err(|e| e.to_string()));
        found.clone().map_err(Error::Input)
    }
}

impl PlanModelCache {
    fn of(&self, job: &TrainJob, mesh: &Mesh, scan: bool) -> Result<Arc<PlanModel>> {
        let groups = num_row_groups(mesh);
        self.models.get((job.sizes.micro_batch_size, groups, scan, job.sizes.gradient_accumulation_steps > 1), || {
            let model = model_without_weights(&job.architecture, job.dtype, scan)?;
            let how = ObjectiveOptions { row_groups: groups, scan_layers: scan, ..ObjectiveOptions::default() };
            let target = objective(&model, None, &how, job.sizes)?;
            let (own, rest): (Vec<_>, Vec<_>) = model.params.iter().partition(|param| param.trainable);
            let about: Vec<ParamInfo> = own.into_iter().chain(rest).map(ParamInfo::of).collect();
            Ok(PlanModel { model, target, about })
        })
    }

    /// The count is the same whether layers are a loop or not; a loop is analysed faster.
    fn flops(&self, job: &TrainJob, mesh: &Mesh) -> Result<f64> {
        let found = self.flops.get(
            (job.sizes.micro_batch_size, num_row_groups(mesh), true, job.sizes.gradient_accumulation_steps > 1),
            || {
                let ground = self.of(job, mesh, true)?;
                let trained: Vec<usize> = (0..ground.target.objective.trained.len()).collect();
                Ok(count_ops(&transform::value_and_grad(&ground.target.objective.loss, &trained)?).flops)
            },
        )?;
        Ok(*found)
    }
}

/// A rank of a simulated mesh.
fn single_rank_comm(mesh: &Mesh) -> Result<Arc<Comm>> {
    let comm = Comm::new(Arc::new(SingleRankTransport(mesh.ranks())), mesh.clone());
    Ok(Arc::new(comm.map_err(|e| Error::Input(e.to_string()))?))
}

/// The cost of a step on a mesh. With `exact`, activations are the arena that the compiler plans.
pub fn cost(job: &TrainJob, mesh: &Mesh, device: &DeviceSpec, exact: bool) -> Result<StepCost> {
    cost_with_cache(&PlanModelCache::default(), job, mesh, device, exact)
}

fn cost_with_cache(
    grounds: &PlanModelCache,
    job: &TrainJob,
    mesh: &Mesh,
    device: &DeviceSpec,
    exact: bool,
) -> Result<StepCost> {
    // Layers are unrolled if the assignment of layers to ranks, or the compiler's plan, matters; otherwise they are a loop.
    let scan = !exact && pipeline::pipeline_axis(mesh).is_none();
    let ground = grounds.of(job, mesh, scan)?;
    let PlanModel { model, about, .. } = &*ground;
    let (mut target, comm) = (ground.target.objective.clone(), single_rank_comm(mesh)?);
    let accumulate = job.sizes.gradient_accumulation_steps;
    let n = target.trained.len();
    let mut cost = StepCost {
        parameters: model.parameter_count(),
        flops: grounds.flops(job, mesh)? * accumulate as f64,
        counts: OpCounts::default(),
        state: 0,
        activations: 0,
        compute: 0.0,
        communication: 0.0,
        pipeline_bubble: 0.0,
    };
    let bytes = |types: &[Type]| types.iter().map(Type::bytes).sum::<usize>();
    let state = |types: &[Type]| 4 * bytes(&types[..n]) + bytes(&types[n..]);
    let arena = |graph: &ir::Graph, donate: Vec<(usize, usize)>| -> Result<usize> {
        let options = Options { donate, ..Options::default() };
        Ok(compiler::compile(graph, &Cpu::new(1), &options)?.arena_bytes)
    };
    if pipeline::pipeline_axis(mesh).is_some() {
        let paths: Vec<String> = model.params.iter().map(|param| param.path.clone()).collect();
        let divided = PipelinedLoss::of(&target, about, &paths, comm, job.chunks.max(1))?;
        let ranks = pipeline::pipeline_axis(mesh).map_or(1, |(_, a)| a.size);
        let update = |held: &[usize]| -> Result<ir::Graph> {
            let types = divided.param_types(&target, held);
            let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
            let sums = divided.division.sums.select(held);
            Ok(step::update_graph(&types, &trained, &ADAM, &sums, divided.loss_axes())?)
        };
        let size = |held: &[usize]| bytes(&divided.param_types(&target, held));
        let stages: Vec<Vec<usize>> = (0..ranks).map(|at| divided.local_parameters(at)).collect();
        let Some(most) = stages.iter().max_by_key(|held| size(held)) else {
            return Err(Error::Input("no stages".into()));
        };
        let updating = count_ops(&update(most)?);
        let chunks = divided.chunk_graphs()?;
        let schedule = PipelineSchedule::interleaved(ranks, job.chunks.max(1), accumulate)
            .map_err(|e| Error::Input(e.to_string()))?;
        let seconds = |c: &OpCounts| {
            let talk: f64 = c
                .communication
                .iter()
                .map(|(axes, (calls, bytes))| device.communication_time(mesh, axes, *calls, *bytes))
                .sum();
            (device.compute_time(c.flops, c.bytes, job.dtype), talk)
        };
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        // The stage with the most computation.
        let mut busiest = vec![(0.0, 0.0, OpCounts::default()); ranks];
        let between: usize = chunks.first().map_or(0, |c| bytes(&c.forward.output_types()));
        let mut counted: Option<(OpCounts, OpCounts)> = None;
        for (i, ChunkGraphs { forward: there, backward: back, same_as_previous: again, .. }) in
            chunks.iter().enumerate()
        {
            let last = i + 1 == chunks.len();
            let (f, b) = match counted.take().filter(|_| *again) {
                Some(found) => found,
                None => (if last { OpCounts::default() } else { count_ops(there) }, count_ops(back)),
            };
            counted = Some((f.clone(), b.clone()));
            let ((fc, ft), (bc, bt)) = (seconds(&f), seconds(&b));
            forward.push(fc + ft);
            backward.push(bc + bt);
            let own = &mut busiest[i % ranks];
            own.0 += (fc + bc) * accumulate as f64;
            own.1 += (ft + bt) * accumulate as f64;
            own.2.add(&f, accumulate as f64);
            own.2.add(&b, accumulate as f64);
            let messages = (2 - usize::from(i == 0) - usize::from(last)) as f64 * accumulate as f64;
            let axis = divided.loss_axes().to_vec();
            own.2.add(
                &OpCounts {
                    communication: [(axis, (messages, messages * between as f64))].into(),
                    ..OpCounts::default()
                },
                1.0,
            );
        }
        let message = device.communication_time(mesh, divided.loss_axes(), 1.0, between as f64);
        let line = PipelineTimeline::simulate(&schedule, &PipelineCosts { forward, backward, message })
            .map_err(|e| Error::Input(e.to_string()))?;
        let most = busiest.iter().max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
        let Some((compute, talk, counts)) = most.cloned() else { return Err(Error::Input("no stages".into())) };
        cost.pipeline_bubble = (line.total - compute - talk).max(0.0);
        cost.counts = counts;
        cost.counts.add(&updating, 1.0);
        let (_, talk_of_update) = seconds(&updating);
        let mut insides: Vec<usize> = Vec::new();
        for c in &chunks {
            let same = insides.last().copied().filter(|_| c.same_as_previous);
            insides.push(match (same, exact) {
                (Some(inside), _) => inside,
                (None, true) => arena(&c.backward, c.donate.clone())?.max(arena(&c.forward, Vec::new())?),
                (None, false) => saved_activation_bytes(&c.forward)?,
            });
        }
        // The stage with the most memory.
        for (at, held) in stages.iter().enumerate() {
            let updates =
                if exact { arena(&update(held)?, (0..3 * held.len()).map(|i| (i, 2 + i)).collect())? } else { 0 };
            let inside = insides.iter().skip(at).step_by(ranks).fold(updates, |most, own| most.max(*own));
            let (state, activations) = (4 * size(held), inside + schedule.max_live_inputs(at) * between);
            if state + activations > cost.memory() {
                (cost.state, cost.activations) = (state, activations);
            }
        }
        cost.compute = compute + 7.0 * cost.state as f64 / 4.0 / device.bandwidth;
        cost.communication = talk + talk_of_update;
        return Ok(cost);
    }
    let sums = match mesh.ranks() {
        1 => Default::default(),
        _ => ShardingPlan::of(&mut target, about, comm)?.sums,
    };
    let graph = step::step_graph(&target, &ADAM, accumulate, &sums, &step::moments(&target, false))?;
    let graph = arrange_collectives(&graph, ground.target.grad_reduction.synchronous)?;
    let types: Vec<Type> = target.loss.input_types()[..about.len()].to_vec();
    cost.state = state(&types);
    cost.counts = count_ops(&graph);
    cost.compute = device.compute_time(cost.counts.flops, cost.counts.bytes, job.dtype)
        + 7.0 * cost.state as f64 / 4.0 / device.bandwidth;
    let talk = cost.counts.communication.iter();
    cost.communication = talk.map(|(axes, (calls, bytes))| device.communication_time(mesh, axes, *calls, *bytes)).sum();
    cost.activations = match exact {
        // Gradients are part of the arena there.
        true => {
            let all = arena(&graph, (0..3 * n).map(|i| (i, 2 + i)).collect())?;
            all.saturating_sub(bytes(&types[..n]))
        }
        false => saved_activation_bytes(&target.loss)?,
    };
    Ok(cost)
}
