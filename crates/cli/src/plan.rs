//! `loom plan` estimates the time and memory of a training step on many devices and ranks device meshes.

use crate::ExitStatus;
use crate::command::{self, UsageError};
use crate::compile::dtype;
use crate::output::outln;
use crate::run::usage_error;
use ir::{DType, Mesh};
use models::plan::{
    DeviceSpec, LocalMachine, MeshCandidate, MeshSearchResult, RankTransport, StepCost, TrainJob, architecture, cost,
    search,
};
use models::train::{StepSizes, format_with_commas};

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

pub(crate) fn plan(args: &Plan) -> Result<ExitStatus, UsageError> {
    let architecture = architecture(&args.model, &args.set.join(",")).map_err(usage_error)?;
    let sizes =
        StepSizes { micro_batch_size: args.global_batch_size, seq_len: args.seq_len, gradient_accumulation_steps: 1 };
    let job = TrainJob { architecture, dtype: args.dtype, sizes, chunks: args.virtual_stages };
    if let Some(count) = args.devices.strip_suffix("xhere") {
        let count = count.parse().ok().filter(|n| (1..=64).contains(n));
        let Some(count) = count else {
            return Err(UsageError(format!(
                "`--devices {}`: the number of ranks must be from 1 to 64, as in 4xhere",
                args.devices
            )));
        };
        return plan_local(args, job, count);
    }
    let (devices, device) = DeviceSpec::parse(&args.devices).map_err(usage_error)?;
    let found = match args.mesh.as_str() {
        "auto" => search(&job, args.global_batch_size, devices, device, args.top).map_err(usage_error)?,
        _ => {
            let (mesh, job) = explicit_mesh(args, job, devices)?;
            let cost = cost(&job, &mesh, device, true).map_err(usage_error)?;
            MeshSearchResult { candidates: vec![MeshCandidate { mesh, job, cost }], ..MeshSearchResult::default() }
        }
    };
    let Some(first) = found.candidates.first() else {
        let why: Vec<String> = found.rejected.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        return Err(UsageError(format!(
            "no mesh of {devices} {} is possible: {}; give more devices, or a smaller model or batch",
            device.name,
            why.join("; ")
        )));
    };
    outln!(
        "{} parameters, {} sequences of {} tokens per step, on {devices} {}",
        format_with_commas(first.cost.parameters),
        args.global_batch_size,
        args.seq_len,
        device.name
    );
    outln!();
    outln!("| mesh | micro-batches | virtual stages | step s | idle | tokens/s | MFU | memory GB | sent GB |");
    outln!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for f in &found.candidates {
        outln!("{}", candidate_row(f, args, devices, device));
    }
    outln!();
    for line in explain_candidate(first, device, args) {
        outln!("{line}");
    }
    if !found.rejected.is_empty() {
        let refused: Vec<String> = found.rejected.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        outln!("excluded: {}", refused.join("; "));
    }
    Ok(ExitStatus::Success)
}

/// Returns the mesh given by `--mesh`, and the job with the batch sizes for it.
fn explicit_mesh(args: &Plan, mut job: TrainJob, devices: usize) -> Result<(Mesh, TrainJob), UsageError> {
    let mesh = Mesh::parse(&args.mesh).map_err(|e| UsageError(e.to_string()))?;
    if mesh.ranks() != devices {
        return Err(UsageError(format!(
            "`--mesh {mesh}` has {} ranks, but `--devices` has {devices} devices: make the two equal",
            mesh.ranks()
        )));
    }
    if !args.global_batch_size.is_multiple_of(args.gradient_accumulation_steps) {
        return Err(UsageError(format!(
            "`--global-batch-size {}` is not divisible by `--gradient-accumulation-steps {}`",
            args.global_batch_size, args.gradient_accumulation_steps
        )));
    }
    (job.sizes.micro_batch_size, job.sizes.gradient_accumulation_steps) =
        (args.global_batch_size / args.gradient_accumulation_steps, args.gradient_accumulation_steps);
    Ok((mesh, job))
}

/// Estimates ranks on this machine: runs the part of one rank alone and measures the communication between ranks.
fn plan_local(args: &Plan, job: TrainJob, ranks: usize) -> Result<ExitStatus, UsageError> {
    if args.mesh == "auto" {
        return Err(UsageError("`--devices Nxhere` needs a mesh: give one, such as `--mesh dp=2`".into()));
    }
    let (mesh, job) = explicit_mesh(args, job, ranks)?;
    let cost = LocalMachine::new(RankTransport::Tcp).cost(&job, &mesh).map_err(usage_error)?;
    outln!("| mesh | step ms | compute | communication | idle | memory MB | sent MB |");
    outln!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    outln!(
        "| {mesh} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} |",
        1e3 * cost.seconds(),
        1e3 * cost.compute,
        1e3 * cost.communication,
        1e3 * cost.pipeline_bubble,
        cost.memory() as f64 / 1e6,
        cost.counts.bytes_sent() / 1e6,
    );
    outln!();
    outln!(
        "the programs of one rank were timed without the others, with one thread per rank; communication was measured \
         over TCP"
    );
    Ok(ExitStatus::Success)
}

fn candidate_row(f: &MeshCandidate, args: &Plan, devices: usize, device: &DeviceSpec) -> String {
    let StepCost { flops, .. } = f.cost;
    let seconds = f.cost.seconds();
    let peak = if args.dtype.size() <= 2 { device.flops.0 } else { device.flops.1 };
    let mesh = if f.mesh.axes().is_empty() { "one".to_string() } else { f.mesh.to_string() };
    format!(
        "| {mesh} | {} | {} | {seconds:.3} | {:.0}% | {} | {:.0}% | {:.1} | {:.2} |",
        f.job.sizes.gradient_accumulation_steps,
        f.job.chunks,
        100.0 * f.cost.pipeline_bubble / seconds,
        format_with_commas(((args.global_batch_size * args.seq_len) as f64 / seconds) as usize),
        100.0 * flops / (seconds * peak * devices as f64),
        f.cost.memory() as f64 / 1e9,
        f.cost.counts.bytes_sent() / 1e9,
    )
}

/// Describes how the time of a step and the memory are divided.
fn explain_candidate(f: &MeshCandidate, device: &DeviceSpec, args: &Plan) -> Vec<String> {
    let c = &f.cost;
    let mut lines = vec![format!(
        "{}: a rank computes for {:.3} s, communicates for {:.3} s and is idle for {:.3} s; with full overlap, a step \
         takes {:.3} s",
        f.mesh,
        c.compute,
        c.communication,
        c.pipeline_bubble,
        c.overlapped()
    )];
    for (axes, (calls, bytes)) in &c.counts.communication {
        let names: Vec<&str> = axes.iter().map(|a| a.name.as_str()).collect();
        let link = device.link(&f.mesh, axes);
        let place = if link == device.intra_node { "within a node" } else { "between nodes" };
        lines.push(format!(
            "  over {}: {calls:.0} calls, {:.3} GB sent {place}, {:.3} s",
            names.join(" and "),
            bytes / 1e9,
            device.communication_time(&f.mesh, axes, *calls, *bytes)
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
        device.intra_node.bandwidth / 1e9,
        device.inter_node.bandwidth / 1e9,
        device.devices_per_node
    ));
    lines
}
