//! Opening devices by name: the one place that knows which kinds there are.

use crate::{Error, Result};
use compiler::Backend;
use ir::Loc;
use std::sync::Arc;

/// Threads that a CPU may be asked for.
const THREADS: usize = 1024;

/// A device by name: `cpu`, `cpu:4` for as many threads, `cuda` or `cuda:1` for a GPU of NVIDIA's, `wgpu` or `wgpu:1` for any GPU
/// through Vulkan, Metal or Direct3D (with the feature `wgpu`), `auto` for a GPU if there is one that works, else the CPU.
///
/// ```
/// use tensorloom::devices;
///
/// assert!(devices::open("cpu:2")?.name().contains("cpu"));
/// assert!(devices::open("abacus").is_err());
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn open(name: &str) -> Result<Arc<dyn Backend>> {
    let at = Loc::caller();
    let bad = |reason: String| Err(Error::Call { op: "devices::open", reason, at });
    match name.split_once(':').unwrap_or((name, "")) {
        ("cpu", "") => Ok(Arc::new(cpu::Cpu::for_machine())),
        ("auto", "") => Ok(gpu().unwrap_or_else(|| Arc::new(cpu::Cpu::for_machine()))),
        ("cuda", number) => match if number.is_empty() { Ok(0) } else { number.parse() } {
            Ok(n) => cuda(n).or_else(|e| bad(e.to_string())),
            Err(_) => bad(format!("`{name}`: `{number}` is not a GPU index; use a number, as in cuda:0")),
        },
        ("wgpu", number) => match if number.is_empty() { Ok(0) } else { number.parse() } {
            Ok(n) => wgpu(n).or_else(|e| bad(e.to_string())),
            Err(_) => bad(format!("`{name}`: `{number}` is not an adapter index; use a number, as in wgpu:0")),
        },
        ("cpu", threads) => match threads.parse() {
            Ok(n @ 1..=THREADS) => Ok(Arc::new(cpu::Cpu::new(n))),
            _ => bad(format!("`{name}`: `{threads}` is not a number of threads; use a number from 1 to {THREADS}")),
        },
        _ => bad(format!("no device `{name}`: use cpu, cpu:THREADS, cuda, cuda:N, wgpu, wgpu:N or auto")),
    }
}

/// A GPU; ops that it lacks run on all cores of the machine.
#[cfg(not(target_arch = "wasm32"))]
fn cuda(number: usize) -> compiler::Result<Arc<dyn Backend>> {
    Ok(Arc::new(gpu::cuda::Cuda::open(number, Arc::new(cpu::Cpu::for_machine()))?))
}

/// There is no CUDA in a page.
#[cfg(target_arch = "wasm32")]
fn cuda(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Err(compiler::Error::Backend("CUDA is not available in the browser; open `cpu`".into()))
}

/// The best GPU of this machine, if one works.
pub fn gpu() -> Option<Arc<dyn Backend>> {
    cuda(0).ok().or_else(any_gpu)
}

/// Any GPU; ops that it lacks run on all cores of the machine.
#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
fn wgpu(number: usize) -> compiler::Result<Arc<dyn Backend>> {
    let choice = gpu::wgpu::WgpuOptions { index: number, default_limits_only: false };
    Ok(Arc::new(gpu::wgpu::Wgpu::open(choice, Arc::new(cpu::Cpu::for_machine()))?))
}

/// The GPU that the page has opened; ops that it lacks run on its CPU.
#[cfg(target_arch = "wasm32")]
fn wgpu(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Ok(Arc::new(gpu::wgpu::Wgpu::open(Arc::new(cpu::Cpu::for_machine()))?))
}

#[cfg(not(any(feature = "wgpu", target_arch = "wasm32")))]
fn wgpu(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Err(compiler::Error::Backend("this program was built without WebGPU; build it with `--features wgpu`".into()))
}

/// The first adapter, unless it is a program on the CPU: our own is faster.
#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
fn any_gpu() -> Option<Arc<dyn Backend>> {
    let choice = gpu::wgpu::WgpuOptions::default();
    let opened = gpu::wgpu::Wgpu::open(choice, Arc::new(cpu::Cpu::for_machine())).ok()?;
    (!opened.is_software()).then(|| Arc::new(opened) as Arc<dyn Backend>)
}

#[cfg(any(not(feature = "wgpu"), target_arch = "wasm32"))]
fn any_gpu() -> Option<Arc<dyn Backend>> {
    None
}
