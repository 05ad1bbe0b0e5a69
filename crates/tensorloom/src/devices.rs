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
        ("cpu", "") => host(None).or_else(|e| bad(e.to_string())),
        ("auto", "") => gpu().map_or_else(|| host(None), Ok).or_else(|e| bad(e.to_string())),
        ("cuda", number) => match if number.is_empty() { Ok(0) } else { number.parse() } {
            Ok(n) => cuda(n).or_else(|e| bad(e.to_string())),
            Err(_) => bad(format!("`{name}` names the GPU `{number}`; give its number, as in cuda:0")),
        },
        ("wgpu", number) => match if number.is_empty() { Ok(0) } else { number.parse() } {
            Ok(n) => wgpu(n).or_else(|e| bad(e.to_string())),
            Err(_) => bad(format!("`{name}` names the adapter `{number}`; give its number, as in wgpu:0")),
        },
        ("cpu", threads) => match threads.parse() {
            Ok(n @ 1..=THREADS) => host(Some(n)).or_else(|e| bad(e.to_string())),
            _ => bad(format!("`{name}` asks for `{threads}` threads; give a number from 1 to {THREADS}")),
        },
        _ => bad(format!("no device `{name}`: there are cpu, cpu:THREADS, cuda, cuda:NUMBER, wgpu, wgpu:NUMBER, auto")),
    }
}

/// The CPU, with all its cores where no number of threads is given.
#[cfg(feature = "cpu")]
fn host(threads: Option<usize>) -> compiler::Result<Arc<dyn Backend>> {
    Ok(Arc::new(threads.map_or_else(cpu::Cpu::for_machine, cpu::Cpu::new)))
}

#[cfg(not(feature = "cpu"))]
fn host(_: Option<usize>) -> compiler::Result<Arc<dyn Backend>> {
    Err(compiler::Error::Backend(
        "this program was built without the CPU; enable the feature `cpu` of `tensorloom`".into(),
    ))
}

/// A GPU; ops that it lacks run on all cores of the machine.
#[cfg(all(feature = "cuda", not(target_arch = "wasm32")))]
fn cuda(number: usize) -> compiler::Result<Arc<dyn Backend>> {
    Ok(Arc::new(gpu::cuda::Cuda::open(number, host(None)?)?))
}

#[cfg(not(any(feature = "cuda", target_arch = "wasm32")))]
fn cuda(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Err(compiler::Error::Backend(
        "this program was built without CUDA; enable the feature `cuda` of `tensorloom`".into(),
    ))
}

/// There is no CUDA in a page.
#[cfg(target_arch = "wasm32")]
fn cuda(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Err(compiler::Error::Backend("a page can't reach CUDA; open `cpu`".into()))
}

/// The best GPU of this machine, if one works.
pub fn gpu() -> Option<Arc<dyn Backend>> {
    cuda(0).ok().or_else(any_gpu)
}

/// Any GPU; ops that it lacks run on all cores of the machine.
#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
fn wgpu(number: usize) -> compiler::Result<Arc<dyn Backend>> {
    let choice = gpu::wgpu::Choice { number, strict: false };
    Ok(Arc::new(gpu::wgpu::Wgpu::open(choice, host(None)?)?))
}

/// The GPU that the page has opened; ops that it lacks run on its CPU.
#[cfg(target_arch = "wasm32")]
fn wgpu(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Ok(Arc::new(gpu::wgpu::Wgpu::open(host(None)?)?))
}

#[cfg(not(any(feature = "wgpu", target_arch = "wasm32")))]
fn wgpu(_: usize) -> compiler::Result<Arc<dyn Backend>> {
    Err(compiler::Error::Backend("this program was built without WebGPU; build it with `--features wgpu`".into()))
}

/// The first adapter, unless it is a program on the CPU: our own is faster.
#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
fn any_gpu() -> Option<Arc<dyn Backend>> {
    let choice = gpu::wgpu::Choice::default();
    let opened = gpu::wgpu::Wgpu::open(choice, host(None).ok()?).ok()?;
    (!opened.is_software()).then(|| Arc::new(opened) as Arc<dyn Backend>)
}

#[cfg(any(not(feature = "wgpu"), target_arch = "wasm32"))]
fn any_gpu() -> Option<Arc<dyn Backend>> {
    None
}
