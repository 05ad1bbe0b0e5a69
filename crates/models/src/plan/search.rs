//! Searches the meshes of a number of devices for the best ones.

use super::{DeviceSpec, PlanModelCache, StepCost, TrainJob, cost_with_cache, model_without_weights};
use crate::error::{Error, Result};
use ir::Mesh;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A mesh with its predicted cost.
#[derive(Clone, Debug)]
pub struct MeshCandidate {
    /// The mesh.
    pub mesh: Mesh,
    /// The job on it: micro-batches and virtual stages.
    pub job: TrainJob,
    /// The cost for a rank.
    pub cost: StepCost,
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct MeshSearchResult {
    /// The best candidates, best first.
    pub candidates: Vec<MeshCandidate>,
    /// Why other meshes were rejected, with their number.
    pub rejected: BTreeMap<String, usize>,
}

/// The usable fraction of memory; the rest is for libraries and fragmentation.
const USABLE_MEMORY_FRACTION: f64 = 0.92;

fn divisors(n: usize) -> Vec<usize> {
    (1..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

/// Searches the meshes of `devices` devices for a batch of `batch` sequences, and returns the
/// `show` best. Tensor parallel ranks share a machine.
pub fn search(
    job: &TrainJob,
    batch: usize,
    devices: usize,
    device: &DeviceSpec,
    show: usize,
) -> Result<MeshSearchResult> {
    let size = |name: &str| job.architecture.size(name);
    let (layers, heads) = (size("n_layers").unwrap_or(1), size("kv_heads").or(size("heads")).unwrap_or(1));
    let experts = size("experts").unwrap_or(1);
    let mut out = MeshSearchResult::default();
    let mut all = Vec::new();
    for tp in divisors(devices).into_iter().filter(|n| *n <= device.devices_per_node && heads.is_multiple_of(*n)) {
        for pp in divisors(devices / tp).into_iter().filter(|n| layers.is_multiple_of(*n) && *n <= 64) {
            let left = devices / tp / pp;
            for ep in divisors(left).into_iter().filter(|n| experts.is_multiple_of(*n) && (*n == 1 || experts > 1)) {
                for fsdp in divisors(left / ep) {
                    let dp = left / ep / fsdp;
                    let wide = dp * fsdp * ep;
                    if !batch.is_multiple_of(wide) {
                        *out.rejected.entry("the batch size is not divisible".into()).or_default() += 1;
                        continue;
                    }
                    // Sharding parameters over a few ranks and replicating that is rarely better than sharding over all ranks.
                    if dp > 1 && fsdp > 1 && fsdp < device.devices_per_node {
                        continue;
                    }
                    let names = [("pp", pp), ("dp", dp), ("fsdp", fsdp), ("ep", ep), ("tp", tp)];
                    let axes: Vec<(&str, usize)> = names.into_iter().filter(|(_, n)| *n > 1).collect();
                    let mesh = Mesh::new(&axes).map_err(|p| Error::Input(p.to_string()))?;
                    for each in [1, 2, 4].into_iter().filter(|n| (batch / wide).is_multiple_of(*n)) {
                        let accumulate = batch / wide / each;
                        for chunks in [1, 2] {
                            if chunks > 1
                                && (pp == 1 || !layers.is_multiple_of(pp * chunks) || !accumulate.is_multiple_of(pp))
                            {
                                continue;
                            }
                            let mut job = TrainJob { chunks, ..job.clone() };
                            (job.sizes.micro_batch_size, job.sizes.gradient_accumulation_steps) =
                                (wide * each, accumulate);
                            all.push((mesh.clone(), job));
                        }
                    }
                }
            }
        }
    }
    // A model that doesn't fit even if it is evenly sharded over all ranks needs no graphs.
    let model = model_without_weights(&job.architecture, job.dtype, true)?;
    let least = 16.0 * model.params.iter().filter(|p| p.trainable).map(|p| p.ty.numel()).sum::<usize>() as f64;
    let share = |mesh: &Mesh| -> usize { mesh.axes().iter().filter(|a| a.name != "dp").map(|a| a.size).product() };
    let small = |mesh: &Mesh| least / share(mesh) as f64 > USABLE_MEMORY_FRACTION * device.memory;
    let (none, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|(mesh, _)| small(mesh));
    if !none.is_empty() {
        *out.rejected.entry("the memory of a rank is too small".into()).or_default() += none.len();
    }
    let grounds = PlanModelCache::default();
    let costs = parallel_map(&all, |(mesh, job)| cost_with_cache(&grounds, job, mesh, device, false));
    let mut fit = Vec::new();
    for ((mesh, job), cost) in all.into_iter().zip(costs) {
        match cost {
            Ok(cost) if cost.memory() as f64 > USABLE_MEMORY_FRACTION * device.memory => {
                *out.rejected.entry("the memory of a rank is too small".into()).or_default() += 1;
            }
            Ok(cost) => fit.push(MeshCandidate { mesh, job, cost }),
            Err(e) => *out.rejected.entry(e.to_string()).or_default() += 1,
        }
    }
    fit.sort_by(|a, b| a.cost.seconds().total_cmp(&b.cost.seconds()));
    fit.truncate(show);
    out.candidates = fit;
    Ok(out)
}

/// Applies `f` to each item on all cores; returns the results in order.
fn parallel_map<T: Sync, R: Send>(all: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()).min(all.len().max(1));
    let work = || {
        let mut own = Vec::new();
        while let Some((i, x)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, all.get(i)?))) {
            own.push((i, f(x)));
        }
        own
    };
    let mut found: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let own = work();
        let others = threads.into_iter().flat_map(|t| match t.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        own.into_iter().chain(others).collect()
    });
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, r)| r).collect()
}
