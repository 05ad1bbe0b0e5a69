//! Which meshes there are for so many devices, and which of them are best.

use super::{Cost, Device, Grounds, Job, blank, cost_on};
use crate::error::{Error, Result};
use ir::Mesh;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A mesh with what it takes.
#[derive(Clone, Debug)]
pub struct Found {
    /// The mesh.
    pub mesh: Mesh,
    /// The job on it: micro-batches and chunks.
    pub job: Job,
    /// What it takes of a rank.
    pub cost: Cost,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The best first.
    pub best: Vec<Found>,
    /// Why others are not among them, and how many.
    pub refused: BTreeMap<String, usize>,
}

/// A share of memory that is left for the libraries' own and for pieces that don't fit together.
const FULL: f64 = 0.92;

fn divisors(n: usize) -> Vec<usize> {
    (1..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

/// Tries meshes of so many devices for a batch of `batch` sequences, and gives the `show` best. Ranks of tensor
/// parallelism share a machine.
pub fn search(job: &Job, batch: usize, devices: usize, device: &Device, show: usize) -> Result<Search> {
    let size = |name: &str| job.architecture.size(name);
    let (layers, heads) = (size("n_layers").unwrap_or(1), size("kv_heads").or(size("heads")).unwrap_or(1));
    let experts = size("experts").unwrap_or(1);
    let mut out = Search::default();
    let mut all = Vec::new();
    for tp in divisors(devices).into_iter().filter(|n| *n <= device.node && heads.is_multiple_of(*n)) {
        for pp in divisors(devices / tp).into_iter().filter(|n| layers.is_multiple_of(*n) && *n <= 64) {
            let left = devices / tp / pp;
            for ep in divisors(left).into_iter().filter(|n| experts.is_multiple_of(*n) && (*n == 1 || experts > 1)) {
                for fsdp in divisors(left / ep) {
                    let dp = left / ep / fsdp;
                    let wide = dp * fsdp * ep;
                    if !batch.is_multiple_of(wide) {
                        *out.refused.entry("the batch size is not divisible".into()).or_default() += 1;
                        continue;
                    }
                    // Parameters in parts over a few ranks and copies of that are rarely better than all of one.
                    if dp > 1 && fsdp > 1 && fsdp < device.node {
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
                            let mut job = Job { chunks, ..job.clone() };
                            (job.sizes.rows, job.sizes.accumulate) = (wide * each, accumulate);
                            all.push((mesh.clone(), job));
                        }
                    }
                }
            }
        }
    }
    // What can't fit even if ranks shared everything evenly needs no graphs.
    let model = blank(&job.architecture, job.dtype, true)?;
    let least = 16.0 * model.params.iter().filter(|p| p.trainable).map(|p| p.ty.numel()).sum::<usize>() as f64;
    let share = |mesh: &Mesh| -> usize { mesh.axes().iter().filter(|a| a.name != "dp").map(|a| a.size).product() };
    let small = |mesh: &Mesh| least / share(mesh) as f64 > FULL * device.memory;
    let (none, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|(mesh, _)| small(mesh));
    if !none.is_empty() {
        *out.refused.entry("the memory of a rank is too small".into()).or_default() += none.len();
    }
    let grounds = Grounds::default();
    let costs = on_all_cores(&all, |(mesh, job)| cost_on(&grounds, job, mesh, device, false));
    let mut fit = Vec::new();
    for ((mesh, job), cost) in all.into_iter().zip(costs) {
        match cost {
            Ok(cost) if cost.memory() as f64 > FULL * device.memory => {
                *out.refused.entry("the memory of a rank is too small".into()).or_default() += 1;
            }
            Ok(cost) => fit.push(Found { mesh, job, cost }),
            Err(e) => *out.refused.entry(e.to_string()).or_default() += 1,
        }
    }
    fit.sort_by(|a, b| a.cost.seconds().total_cmp(&b.cost.seconds()));
    fit.truncate(show);
    out.best = fit;
    Ok(out)
}

/// What `f` gives for each, in order.
fn on_all_cores<T: Sync, R: Send>(all: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
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
