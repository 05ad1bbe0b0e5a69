//! `loom doctor` shows the capabilities of this machine.

use crate::ExitStatus;
use crate::bench;
use crate::command::UsageError;
use crate::device::{self, cores};

use crate::output::outln;
use std::path::Path;

/// Options of `loom doctor`.
#[derive(clap::Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    machine: device::DeviceArgs,
}

pub(crate) fn doctor(args: &Doctor) -> Result<ExitStatus, UsageError> {
    let cpu = args.machine.open()?;
    let line = |name: &str, value: String| outln!("{name:<16}{value}");
    line("loom", crate::VERSION.to_string());
    line("system", format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH));
    line("device", cpu.name());
    line("cores", cores().to_string());
    line("kernels", kernels());
    line("memory", memory());
    line(
        "products",
        match bench::matmul(&*cpu, 512) {
            Ok(rate) => format!("{:.0} GFLOP/s (f32, 512 × 512)", rate / 1e9),
            Err(error) => format!("failed: {error}"),
        },
    );
    line("writable folder", writable());
    for (name, device) in [("gpu", "cuda"), ("webgpu", "wgpu")] {
        let opened = ::device::open(device);
        line(name, opened.map_or_else(|e| format!("none: {e}"), |gpu| gpu.name()));
    }
    Ok(ExitStatus::Success)
}

fn kernels() -> String {
    use cpu::codegen::Target;
    match Target::detect() {
        Some(Target::Avx512) => "native code generator, AVX-512".to_string(),
        Some(Target::Avx2) => "native code generator, AVX2".to_string(),
        Some(_) if cfg!(target_arch = "aarch64") => "Cranelift, NEON".to_string(),
        Some(_) => "Cranelift".to_string(),
        None if cfg!(target_arch = "x86_64") => {
            "reference evaluator (slow): this processor lacks AVX2 and FMA; build loom with `--features cranelift`"
                .to_string()
        }
        None => "reference evaluator (slow): native code is generated only for x86-64 and aarch64".to_string(),
    }
}

fn memory() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    match (kib("MemTotal"), kib("MemAvailable")) {
        (Some(all), Some(free)) => format!("{:.1} GB, {:.1} GB available", all / 1e6, free / 1e6),
        _ => "unknown on this system".to_string(),
    }
}

fn writable() -> String {
    let path = Path::new(".loom-doctor");
    match std::fs::write(path, b"x").and_then(|()| std::fs::remove_file(path)) {
        Ok(()) => "yes".to_string(),
        Err(error) => format!("no: {error}; use another folder with `--out`"),
    }
}
