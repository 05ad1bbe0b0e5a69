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
    /// A model of the library, a .module file, or a HuggingFace directory (only config.json is read)
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Parameters of the model: d_model=128,n_layers=4
    #[arg(long, value_name = "NAME=VALUE,..")]
    set: Vec<String>,
    /// Sequences per training step over all ranks
    #[arg(long, alias = "batch", value_name = "N", default_value = "1024", value_parser = command::positive)]
    global_batch_size: usize,
    /// Tokens per sequence
    #[arg(long, alias = "seq", value_name = "N", default_value = "4096", value_parser = command::size)]
    seq_len: usize,
    /// Dtype of computation: f32 or bf16; master weights and optimizer states are f32
    #[arg(long, value_name = "DTYPE", default_value = "bf16", value_parser = dtype)]
    dtype: DType,
    /// Number and kind of devices: 256xH200 (H200, H100, A100, B200), or 4xhere for ranks on this machine with one thread
    /// each, whose speed is measured
    #[arg(long, value_name = "NxKIND", default_value = "8xH200")]
    devices: String,
    /// A device mesh such as dp=32,tp=8, or auto to search for the fastest
    #[arg(long, value_name = "AXES", default_value = "auto")]
    mesh: String,
    /// Micro-batches per training step, for a given mesh
    #[arg(long, alias = "grad-accum", value_name = "N", default_value = "1", value_parser = command::positive)]
    gradient_accumulation_steps: usize,
    /// Pipeline stages per rank, for a given mesh
    #[arg(long, alias = "chunks", value_name = "N", default_value = "1", value_parser = command::positive)]
    virtual_stages: usize,
    /// Number of meshes to show, fastest first
    #[arg(long, alias = "show", value_name = "N", default_value = "5", value_parser = command::positive)]
    top: usize,
}

pub(crate) fn plan(args: &Plan) -> Result<Outcome, Usage> {
    let architecture = architecture(&args.model, &args.set.join(",")).map_err(usage)?;
    let sizes = StepSizes { rows: args.global_batch_size, seq: args.seq_len, accumulate: 1 };
    let job = Job { architecture, dtype: args.dtype, sizes, chunks: args.virtual_stages };
    if let Some(count) = args.devices.strip_suffix("xhere") {
        let count = count.parse().ok().filter(|n| (1..=64).contains(n));
        let Some(count) = count else {
            return Err(Usage(format!(
                "`--devices {}`: the number of ranks must be from 1 to 64, as in 4xhere",
                args.devices
            )));
        };
        return here(args, job, count);
    }
    let (devices, device) = Device::parse(&args.devices).map_err(usage)?;
    let found = match args.mesh.as_str() {
        "auto" => search(&job, args.global_batch_size, devices, device, args.top).map_err(usage)?,
        _ => {
            let (mesh, job) = given(args, job, devices)?;
            let cost = cost(&job, &mesh, device, true).map_err(usage)?;
            Search { best: vec![Found { mesh, job, cost }], ..Search::default() }
        }
    };
    let Some(first) = found.best.first() else {
        let why: Vec<String> = found.refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        return Err(Usage(format!(
            "no mesh of {devices} {} is possible: {}; give more devices, or a smaller model or batch",
            device.name,
            why.join("; ")
        )));
    };
    outln!(
        "{} parameters, {} sequences of {} tokens per step, on {devices} {}",
        thousands(first.cost.parameters),
        args.global_batch_size,
        args.seq_len,
        device.name
    );
    outln!();
    outln!("| mesh | micro-batches | virtual stages | step s | idle | tokens/s | MFU | memory GB | sent GB |");
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
        outln!("excluded: {}", refused.join("; "));
    }
    Ok(Outcome::Clean)
}

/// A mesh that was asked for, and the job on it.
fn given(args: &Plan, mut job: Job, devices: usize) -> Result<(Mesh, Job), Usage> {
    let mesh = Mesh::parse(&args.mesh).map_err(|e| Usage(e.to_string()))?;
    if mesh.ranks() != devices {
        return Err(Usage(format!(
            "`--mesh {mesh}` has {} ranks, but `--devices` has {devices} devices: make the two equal",
            mesh.ranks()
        )));
    }
    if !args.global_batch_size.is_multiple_of(args.gradient_accumulation_steps) {
        return Err(Usage(format!(
            "`--global-batch-size {}` is not divisible by `--gradient-accumulation-steps {}`",
            args.global_batch_size, args.gradient_accumulation_steps
        )));
    }
    (job.sizes.rows, job.sizes.accumulate) =
        (args.global_batch_size / args.gradient_accumulation_steps, args.gradient_accumulation_steps);
    Ok((mesh, job))
}

/// Ranks of this machine: one runs its part alone, and how ranks talk is measured.
fn here(args: &Plan, job: Job, ranks: usize) -> Result<Outcome, Usage> {
    if args.mesh == "auto" {
        return Err(Usage("`--devices Nxhere` needs a mesh: give one, such as `--mesh dp=2`".into()));
    }
    let (mesh, job) = given(args, job, ranks)?;
    let cost = Here::new(Way::Tcp).cost(&job, &mesh).map_err(usage)?;
    outln!("| mesh | step ms | compute | communication | idle | memory MB | sent MB |");
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
        "the programs of one rank were timed without the others, with one thread per rank; communication was measured \
         over TCP"
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
        thousands(((args.global_batch_size * args.seq_len) as f64 / seconds) as usize),
        100.0 * flops / (seconds * peak * devices as f64),
        f.cost.memory() as f64 / 1e9,
        f.cost.counts.sent() / 1e9,
    )
}

/// Where the time of a step goes, and what holds the memory.
fn why(f: &Found, device: &Device, args: &Plan) -> Vec<String> {
    let c = &f.cost;
    let mut lines = vec![format!(
        "{}: a rank computes for {:.3} s, communicates for {:.3} s and is idle for {:.3} s; with full overlap, a step \
         takes {:.3} s",
        f.mesh,
        c.compute,
        c.talk,
        c.waits,
        c.overlapped()
    )];
    for (axes, (calls, bytes)) in &c.counts.talk {
        let names: Vec<&str> = axes.iter().map(|a| a.name.as_str()).collect();
        let link = device.link(&f.mesh, axes);
        let place = if link == device.near { "within a node" } else { "between nodes" };
        lines.push(format!(
            "  over {}: {calls:.0} calls, {:.3} GB sent {place}, {:.3} s",
            names.join(" and "),
            bytes / 1e9,
            device.talk(&f.mesh, axes, *calls, *bytes)
        ));
    }
    lines.push(format!(
        "memory: {:.1} GB of parameters, optimizer states and gradients, {:.1} GB of activations, of {:.0} GB",
        c.state as f64 / 1e9,
        c.activations as f64 / 1e9,
        device.memory / 1e9
    ));
    lines.push(format!(
        "assumptions: matmuls at {:.0}% of {:.0} TFLOP/s, links of {:.0} and {:.0} GB/s, {} devices per node, no \
         overlap",
        100.0 * device.efficiency,
        if args.dtype.size() <= 2 { device.flops.0 } else { device.flops.1 } / 1e12,
        device.near.speed / 1e9,
        device.far.speed / 1e9,
        device.node
    ));
    lines
}
