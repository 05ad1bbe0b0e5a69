//! Selects the device that programs run on.

use crate::command::UsageError;
use compiler::Backend;
use cpu::Cpu;
use std::sync::Arc;

/// The device and its threads.
#[derive(clap::Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct DeviceArgs {
    /// Device: cpu, cuda, cuda:1, wgpu, wgpu:1, or auto for the fastest available
    #[arg(long, value_name = "NAME", default_value = "auto", hide_default_value = true)]
    pub(crate) device: String,
    /// CPU threads; default: all cores
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

impl DeviceArgs {
    pub(crate) fn open(&self) -> Result<Arc<dyn Backend>, UsageError> {
        open(&self.device, self.threads)
    }
}

/// Returns the number of cores.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Opens a device by name. The CPU uses the given number of threads, or one per core.
pub(crate) fn open(device: &str, threads: Option<usize>) -> Result<Arc<dyn Backend>, UsageError> {
    open_as(device, threads, Cpu::new).map(crate::trace_profiler::profile_if_enabled)
}

/// Opens a device for training. The CPU flushes subnormal numbers to 0.
pub(crate) fn open_for_training(device: &str, threads: Option<usize>) -> Result<Arc<dyn Backend>, UsageError> {
    open_as(device, threads, Cpu::with_flush_denormals).map(crate::trace_profiler::profile_if_enabled)
}

fn open_as(device: &str, threads: Option<usize>, cpu: fn(usize) -> Cpu) -> Result<Arc<dyn Backend>, UsageError> {
    match device {
        "cpu" => Ok(Arc::new(cpu(threads.unwrap_or_else(cores)))),
        // An explicit number of threads selects the CPU.
        "auto" if threads.is_some() => open_as("cpu", threads, cpu),
        "auto" => match ::device::best_gpu() {
            Some(gpu) => Ok(gpu),
            None => open_as("cpu", threads, cpu),
        },
        other => ::device::open(other).map_err(|e| UsageError(e.to_string())),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    let most = models::MAX_THREADS;
    let n = text.parse().ok().filter(|n| (1..=most).contains(n));
    n.ok_or_else(|| format!("must be a positive integer up to {most}"))
}
