//! What a step of training takes on a mesh of devices, before anything is bought or started: time, memory and traffic of a
//! rank, from the very graphs that training would run, and tables of speeds.
//!
//! | what | how it is found |
//! | --- | --- |
//! | operations, bytes sent | counted in the rank's graphs (`count.rs`), loops included |
//! | memory | parameters, moments and gradients of a rank; of activations, what the loss keeps for its backward pass, or what the compiler plans |
//! | time | products by the device's speed, collectives by the links' (`devices.rs`), one after the other; pipelines are simulated action by action |
//!
//! `search.rs` tries meshes. `here.rs` runs one rank's programs on this machine instead of counting them.

mod count;
mod devices;
mod here;
mod search;

pub use count::{Counts, count, kept};
pub use devices::{DEVICES, Device, Link};
pub use here::{Here, Way};
pub use search::{Found, Search, search};

use crate::architecture::Architecture;
use crate::config::Config;
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::placing::About;
use crate::train::division::{Division, arranged, groups};
use crate::train::objective::Target;
use crate::train::objective::{How, objective};
use crate::train::pipeline::{self, ChunkGraphs, Divided};
use crate::train::{AdamW, Settings, StepSizes};
use crate::weight::Weight;
use compiler::Options;
use cpu::Cpu;
use dist::pipeline::{Costs, Schedule, Timeline};
use dist::{Comm, Tag, Transport};
use ir::{DType, Mesh, Type};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use train::step;

/// What is to be trained.
#[derive(Clone, Debug)]
pub struct Job {
    /// The model.
    pub architecture: Architecture,
    /// The dtype of computation; masters and moments are f32.
    pub dtype: DType,
    /// Sizes of a step, of all ranks together.
    pub sizes: StepSizes,
    /// Chunks of layers at each rank of a pipeline.
    pub chunks: usize,
}

/// What a step takes of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Elements of all parameters.
    pub parameters: usize,
    /// Operations of all ranks together that one process would do too.
    pub flops: f64,
    /// What a rank computes and sends.
    pub counts: Counts,
    /// Bytes of its parameters, moments and gradients.
    pub state: usize,
    /// Bytes of activations.
    pub activations: usize,
    /// Seconds of computing.
    pub compute: f64,
    /// Seconds of talking.
    pub talk: f64,
    /// Seconds of waiting for other stages of a pipeline.
    pub waits: f64,
}

impl Cost {
    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.state + self.activations
    }

    /// Seconds of a step, where nothing overlaps.
    pub fn seconds(&self) -> f64 {
        self.compute + self.talk + self.waits
    }

    /// The least seconds, if all talk happened while ranks compute.
    pub fn overlapped(&self) -> f64 {
        (self.compute + self.waits).max(self.talk)
    }
}

/// A rank that is alone: graphs are divided for it, and nothing is ever sent.
struct Absent(usize);

impl Transport for Absent {
    fn name(&self) -> &'static str {
        "plan"
    }
    fn rank(&self) -> usize {
        0
    }
    fn world(&self) -> usize {
        self.0
    }
    fn exchange(&self, _: Tag, _: &[(usize, &[u8])], _: &mut [(usize, &mut [u8])]) -> dist::Result<()> {
        Err(dist::Error::Call("a plan sends nothing".into()))
    }
    fn abort(&self, _: usize, _: &str) {}
    fn finish(&self) {}
}

/// A model of the library, of a .module file, or that a HuggingFace directory's `config.json` asks for; `set` gives sizes.
pub fn architecture(model: &str, set: &str) -> Result<Architecture> {
    let mut settings = Settings::default();
    settings.set("set", set)?;
    let path = Path::new(model);
    if path.is_dir() {
        let path = path.join("config.json");
        let mut found = Architecture::of(&Config::read(&path)?, &path)?;
        found.given.extend(settings.given());
        return Ok(found);
    }
    Architecture::of_program(load_program(model)?, None, settings.given())
}

fn blank(architecture: &Architecture, dtype: DType, scan: bool) -> Result<Model> {
    let options = lang::lower::Options { dtype, scan, ..Default::default() };
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

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1, clip: 1.0 };

/// A model of which nothing is known but its sizes, and what is trained of it.
struct Ground {
    model: Model,
    target: Target,
    about: Vec<About>,
}

/// Micro-batches of so many rows in so many groups; layers as a loop or one by one.
type Key = (usize, usize, bool, bool);

/// Models as one search looks at them: meshes with the same rows begin with the same graphs.
#[derive(Default)]
struct Grounds {
    grounds: Once<Ground>,
    /// Operations of a step of one process.
    flops: Once<f64>,
}

/// What is found out once, whoever asks first.
struct Once<T>(Mutex<BTreeMap<Key, Place<T>>>);

type Place<T> = Arc<OnceLock<std::result::Result<Arc<T>, String>>>;

impl<T> Default for Once<T> {
    fn default() -> Self {
        Once(Mutex::default())
    }
}

impl<T> Once<T> {
    fn get(&self, key: Key, find: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let found = place.get_or_init(|| find().map(Arc::new).map_err(|e| e.to_string()));
        found.clone().map_err(Error::Input)
    }
}

impl Grounds {
    fn of(&self, job: &Job, mesh: &Mesh, scan: bool) -> Result<Arc<Ground>> {
        let groups = groups(mesh);
        self.grounds.get((job.sizes.rows, groups, scan, job.sizes.accumulate > 1), || {
            let model = blank(&job.architecture, job.dtype, scan)?;
            let how = How { groups, scan, ..How::default() };
            let target = objective(&model, None, &how, job.sizes)?;
            let (own, rest): (Vec<_>, Vec<_>) = model.params.iter().partition(|param| param.trainable);
            let about: Vec<About> = own.into_iter().chain(rest).map(About::of).collect();
            Ok(Ground { model, target, about })
        })
    }

    /// As many whether layers are a loop or not; a loop is quicker to look at.
    fn flops(&self, job: &Job, mesh: &Mesh) -> Result<f64> {
        let found = self.flops.get((job.sizes.rows, groups(mesh), true, job.sizes.accumulate > 1), || {
            let ground = self.of(job, mesh, true)?;
            let trained: Vec<usize> = (0..ground.target.objective.trained.len()).collect();
            Ok(count(&transform::value_and_grad(&ground.target.objective.loss, &trained)?).flops)
        })?;
        Ok(*found)
    }
}

/// A rank of a mesh that is not there.
fn absent(mesh: &Mesh) -> Result<Arc<Comm>> {
    let comm = Comm::new(Arc::new(Absent(mesh.ranks())), mesh.clone());
    Ok(Arc::new(comm.map_err(|e| Error::Input(e.to_string()))?))
}

/// What a step takes on a mesh. With `exact`, activations are what the compiler plans.
pub fn cost(job: &Job, mesh: &Mesh, device: &Device, exact: bool) -> Result<Cost> {
    cost_on(&Grounds::default(), job, mesh, device, exact)
}

fn cost_on(grounds: &Grounds, job: &Job, mesh: &Mesh, device: &Device, exact: bool) -> Result<Cost> {
    // Layers one by one where it matters which rank has which, or what the compiler makes of them; else as a loop.
    let scan = !exact && pipeline::axis(mesh).is_none();
    let ground = grounds.of(job, mesh, scan)?;
    let Ground { model, about, .. } = &*ground;
    let (mut target, comm) = (ground.target.objective.clone(), absent(mesh)?);
    let accumulate = job.sizes.accumulate;
    let n = target.trained.len();
    let mut cost = Cost {
        parameters: model.parameter_count(),
        flops: grounds.flops(job, mesh)? * accumulate as f64,
        counts: Counts::default(),
        state: 0,
        activations: 0,
        compute: 0.0,
        talk: 0.0,
        waits: 0.0,
    };
    let bytes = |types: &[Type]| types.iter().map(Type::bytes).sum::<usize>();
    let state = |types: &[Type]| 4 * bytes(&types[..n]) + bytes(&types[n..]);
    let arena = |graph: &ir::Graph, donate: Vec<(usize, usize)>| -> Result<usize> {
        let options = Options { donate, ..Options::default() };
        Ok(compiler::compile(graph, &Cpu::new(1), &options)?.arena)
    };
    if pipeline::axis(mesh).is_some() {
        let paths: Vec<String> = model.params.iter().map(|param| param.path.clone()).collect();
        let divided = Divided::of(&target, about, &paths, comm, job.chunks.max(1))?;
        let ranks = pipeline::axis(mesh).map_or(1, |(_, a)| a.size);
        let update = |held: &[usize]| -> Result<ir::Graph> {
            let types = divided.param_types(&target, held);
            let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
            let sums = divided.division.sums.of(held);
            Ok(step::update_graph(&types, &trained, &ADAM, &sums, divided.ends())?)
        };
        let size = |held: &[usize]| bytes(&divided.param_types(&target, held));
        let stages: Vec<Vec<usize>> = (0..ranks).map(|at| divided.held(at)).collect();
        let Some(most) = stages.iter().max_by_key(|held| size(held)) else {
            return Err(Error::Input("no stages".into()));
        };
        let updating = count(&update(most)?);
        let chunks = divided.chunk_graphs()?;
        let schedule =
            Schedule::interleaved(ranks, job.chunks.max(1), accumulate).map_err(|e| Error::Input(e.to_string()))?;
        let seconds = |c: &Counts| {
            let talk: f64 = c.talk.iter().map(|(axes, (calls, bytes))| device.talk(mesh, axes, *calls, *bytes)).sum();
            (device.compute(c.flops, c.bytes, job.dtype), talk)
        };
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        // The busiest stage.
        let mut busiest = vec![(0.0, 0.0, Counts::default()); ranks];
        let between: usize = chunks.first().map_or(0, |c| bytes(&c.there.output_types()));
        let mut counted: Option<(Counts, Counts)> = None;
        for (i, ChunkGraphs { there, back, again, .. }) in chunks.iter().enumerate() {
            let last = i + 1 == chunks.len();
            let (f, b) = match counted.take().filter(|_| *again) {
                Some(found) => found,
                None => (if last { Counts::default() } else { count(there) }, count(back)),
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
            let axis = divided.ends().to_vec();
            own.2.add(
                &Counts { talk: [(axis, (messages, messages * between as f64))].into(), ..Counts::default() },
                1.0,
            );
        }
        let message = device.talk(mesh, divided.ends(), 1.0, between as f64);
        let line =
            Timeline::of(&schedule, &Costs { forward, backward, message }).map_err(|e| Error::Input(e.to_string()))?;
        let most = busiest.iter().max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
        let Some((compute, talk, counts)) = most.cloned() else { return Err(Error::Input("no stages".into())) };
        cost.waits = (line.total - compute - talk).max(0.0);
        cost.counts = counts;
        cost.counts.add(&updating, 1.0);
        let (_, talk_of_update) = seconds(&updating);
        let mut insides: Vec<usize> = Vec::new();
        for c in &chunks {
            let same = insides.last().copied().filter(|_| c.again);
            insides.push(match (same, exact) {
                (Some(inside), _) => inside,
                (None, true) => arena(&c.back, c.donate.clone())?.max(arena(&c.there, Vec::new())?),
                (None, false) => kept(&c.there)?,
            });
        }
        // The fullest stage.
        for (at, held) in stages.iter().enumerate() {
            let updates =
                if exact { arena(&update(held)?, (0..3 * held.len()).map(|i| (i, 2 + i)).collect())? } else { 0 };
            let inside = insides.iter().skip(at).step_by(ranks).fold(updates, |most, own| most.max(*own));
            let (state, activations) = (4 * size(held), inside + schedule.given(at) * between);
            if state + activations > cost.memory() {
                (cost.state, cost.activations) = (state, activations);
            }
        }
        cost.compute = compute + 7.0 * cost.state as f64 / 4.0 / device.bandwidth;
        cost.talk = talk + talk_of_update;
        return Ok(cost);
    }
    let sums = match mesh.ranks() {
        1 => Default::default(),
        _ => Division::of(&mut target, about, comm)?.sums,
    };
    let graph = step::graph(&target, &ADAM, accumulate, &sums, &step::moments(&target, false))?;
    let graph = arranged(&graph, ground.target.summing.waits)?;
    let types: Vec<Type> = target.loss.input_types()[..about.len()].to_vec();
    cost.state = state(&types);
    cost.counts = count(&graph);
    cost.compute = device.compute(cost.counts.flops, cost.counts.bytes, job.dtype)
        + 7.0 * cost.state as f64 / 4.0 / device.bandwidth;
    let talk = cost.counts.talk.iter();
    cost.talk = talk.map(|(axes, (calls, bytes))| device.talk(mesh, axes, *calls, *bytes)).sum();
    cost.activations = match exact {
        // Gradients are in the arena there.
        true => {
            let all = arena(&graph, (0..3 * n).map(|i| (i, 2 + i)).collect())?;
            all.saturating_sub(bytes(&types[..n]))
        }
        false => kept(&target.loss)?,
    };
    Ok(cost)
}
