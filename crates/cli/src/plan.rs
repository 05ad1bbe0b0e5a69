//! `loom plan`: what a step of training would take on many devices, and which mesh is best.

use crate::Outcome;
use crate::command::{self, Usage};
use crate::compile::dtype;
use crate::output::outln;
use crate::run::usage;
use ir::{DType, Mesh};
use models::plan::{Cost, Device, Found, Here, Job, Search, Way, architecture, cost, search};
use models::train::{StepSizes, thousands};

/// Options of `loom plan`.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// A model of the library, a .module file, or a HuggingFace directory, of which only config.json is read
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Sizes of the model
    #[arg(long, value_name = "NAME=VALUE,..")]
    set: Vec<String>,
    /// Sequences of a step, of all ranks together
    #[arg(long, value_name = "N", default_value = "1024", value_parser = command::positive)]
    batch: usize,
    /// Ids of a sequence
    #[arg(long, value_name = "N", default_value = "4096", value_parser = command::size)]
    seq: usize,
    /// The dtype of computation; masters and moments are f32
    #[arg(long, value_name = "DTYPE", default_value = "bf16", value_parser = dtype)]
    dtype: DType,
    /// How many devices of which kind: 256xH200 (H200, H100, A100, B200), or 4xhere for ranks of this machine with a
    /// thread each, whose speed is measured
    #[arg(long, value_name = "NxKIND", default_value = "8xH200")]
    devices: String,
    /// A mesh such as dp=32,tp=8, or auto for the best
    #[arg(long, value_name = "AXES", default_value = "auto")]
    mesh: String,
    /// Micro-batches of a step, for a given mesh
    #[arg(long, value_name = "N", default_value = "1", value_parser = command::positive)]
    grad_accum: usize,
    /// Chunks of layers at each rank of a pipeline, for a given mesh
    #[arg(long, value_name = "N", default_value = "1", value_parser = command::positive)]
    chunks: usize,
    /// How many of the best meshes to show
    #[arg(long, value_name = "N", default_value = "5", value_parser = command::positive)]
    show: usize,
}

pub(crate) fn plan(args: &Plan) -> Result<Outcome, Usage> {
    let architecture = architecture(&args.model, &args.set.join(",")).map_err(usage)?;
    let sizes = StepSizes { rows: args.batch, seq: args.seq, accumulate: 1 };
    let job = Job { architecture, dtype: args.dtype, sizes, chunks: args.chunks };
    if let Some(count) = args.devices.strip_suffix("xhere") {
        let count = count.parse().ok().filter(|n| (1..=64).contains(n));
        let Some(count) = count else {
            return Err(Usage(format!("`--devices {}`: write a number of ranks up to 64, as 4xhere", args.devices)));
        };
        return here(args, job, count);
    }
    let (devices, device) = Device::parse(&args.devices).map_err(usage)?;
    let found = match args.mesh.as_str() {
        "auto" => search(&job, args.batch, devices, device, args.show).map_err(usage)?,
        _ => {
            let (mesh, job) = given(args, job, devices)?;
            let cost = cost(&job, &mesh, device, true).map_err(usage)?;
            Search { best: vec![Found { mesh, job, cost }], ..Search::default() }
        }
    };
    let Some(first) = found.best.first() else {
        let why: Vec<String> = found.refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        return Err(Usage(format!(
            "no mesh of {devices} {} will do: {}; give more devices, or a smaller model or batch",
            device.name,
            why.join("; ")
        )));
    };
    outln!(
        "{} parameters, {} sequences of {} ids a step, on {devices} {}",
        thousands(first.cost.parameters),
        args.batch,
        args.seq,
        device.name
    );
    outln!();
    outln!("| mesh | micro-batches | chunks | step s | of it waiting | tokens/s | of peak | memory GB | sent GB |");
    outln!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for f in &found.best {
        outln!("{}", row(f, args, devices, device));
    }
    outln!();
    for line in why(first, device, args) {
        outln!("{line}");
    }
    if !found.refused.is_empty() {
        let refused: Vec<String> = found.refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        outln!("left out: {}", refused.join("; "));
    }
    Ok(Outcome::Clean)
}

/// A mesh that was asked for, and the job on it.
fn given(args: &Plan, mut job: Job, devices: usize) -> Result<(Mesh, Job), Usage> {
    let mesh = Mesh::parse(&args.mesh).map_err(|e| Usage(e.to_string()))?;
    if mesh.ranks() != devices {
        return Err(Usage(format!(
            "`--mesh {mesh}` has {} ranks for {devices} devices: give both the same number",
            mesh.ranks()
        )));
    }
    if !args.batch.is_multiple_of(args.grad_accum) {
        return Err(Usage(format!("`--batch {}` can't be divided into {} micro-batches", args.batch, args.grad_accum)));
    }
    (job.sizes.rows, job.sizes.accumulate) = (args.batch / args.grad_accum, args.grad_accum);
    Ok((mesh, job))
}

/// Ranks of this machine: one runs its part alone, and how ranks talk is measured.
fn here(args: &Plan, job: Job, ranks: usize) -> Result<Outcome, Usage> {
    if args.mesh == "auto" {
        return Err(Usage("ranks of this machine are measured on a mesh: give one, as `--mesh dp=2`".into()));
    }
    let (mesh, job) = given(args, job, ranks)?;
    let cost = Here::new(Way::Tcp).cost(&job, &mesh).map_err(usage)?;
    outln!("| mesh | step ms | computing | talking | waiting | memory MB | sent MB |");
    outln!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    outln!(
        "| {mesh} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} |",
        1e3 * cost.seconds(),
        1e3 * cost.compute,
        1e3 * cost.talk,
        1e3 * cost.waits,
        cost.memory() as f64 / 1e6,
        cost.counts.sent() / 1e6,
    );
    outln!();
    outln!(
        "one rank's programs ran without the others, on as many threads as there are ranks; talk over TCP was measured"
    );
    Ok(Outcome::Clean)
}

fn row(f: &Found, args: &Plan, devices: usize, device: &Device) -> String {
    let Cost { flops, .. } = f.cost;
    let seconds = f.cost.seconds();
    let peak = if args.dtype.size() <= 2 { device.flops.0 } else { device.flops.1 };
    let mesh = if f.mesh.axes().is_empty() { "one".to_string() } else { f.mesh.to_string() };
    format!(
        "| {mesh} | {} | {} | {seconds:.3} | {:.0}% | {} | {:.0}% | {:.1} | {:.2} |",
        f.job.sizes.accumulate,
        f.job.chunks,
        100.0 * f.cost.waits / seconds,
        thousands(((args.batch * args.seq) as f64 / seconds) as usize),
        100.0 * flops / (seconds * peak * devices as f64),
        f.cost.memory() as f64 / 1e9,
        f.cost.counts.sent() / 1e9,
    )
}

/// Where the time of a step goes, and what holds the memory.
fn why(f: &Found, device: &Device, args: &Plan) -> Vec<String> {
    let c = &f.cost;
    let mut lines = vec![format!(
        "{}: a rank computes {:.3} s, talks {:.3} s, waits {:.3} s; if all talk happened meanwhile, {:.3} s",
        f.mesh,
        c.compute,
        c.talk,
        c.waits,
        c.overlapped()
    )];
    for (axes, (calls, bytes)) in &c.counts.talk {
        let names: Vec<&str> = axes.iter().map(|a| a.name.as_str()).collect();
        let link = device.link(&f.mesh, axes);
        let place = if link == device.near { "inside of a machine" } else { "between machines" };
        lines.push(format!(
            "  over {}: {calls:.0} calls, {:.3} GB sent {place}, {:.3} s",
            names.join(" and "),
            bytes / 1e9,
            device.talk(&f.mesh, axes, *calls, *bytes)
        ));
    }
    lines.push(format!(
        "memory: {:.1} GB of parameters, moments and gradients, {:.1} GB of activations, of {:.0} GB",
        c.state as f64 / 1e9,
        c.activations as f64 / 1e9,
        device.memory / 1e9
    ));
    lines.push(format!(
        "assumed: products at {:.0}% of {:.0} TFLOP/s, links of {:.0} and {:.0} GB/s, {} devices to a machine, nothing overlaps",
        100.0 * device.efficiency,
        if args.dtype.size() <= 2 { device.flops.0 } else { device.flops.1 } / 1e12,
        device.near.speed / 1e9,
        device.far.speed / 1e9,
        device.node
    ));
    lines
}
