//! Opens backends by device name.
//!
//! ```
//! let cpu = device::open("cpu:2")?;
//! assert!(cpu.name().contains("cpu"));
//! assert!(device::open("tpu").is_err());
//! # Ok::<(), device::Error>(())
//! ```

use compiler::Backend;
use std::sync::Arc;

/// The largest number of threads that `cpu:N` accepts.
const MAX_THREADS: usize = 1024;

/// The reasons why a device can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name doesn't name a device.
    #[error("{0}")]
    Name(String),
    /// The name is valid, but this program was built without support for the device.
    #[error("this program was built without `{device}`; build it with `--features {feature}`")]
    Feature {
        /// The device.
        device: &'static str,
        /// The cargo feature that adds it.
        feature: &'static str,
    },
    /// The device is missing or doesn't work.
    #[error(transparent)]
    Backend(#[from] compiler::Error),
}

/// A `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Opens a device by its name.
///
/// | name | device |
/// | --- | --- |
/// | `cpu`, `cpu:4` | the CPU with one thread per core, or with the given number of threads |
/// | `cuda`, `cuda:1` | an NVIDIA GPU |
/// | `wgpu`, `wgpu:1` | any GPU through Vulkan, Metal or Direct3D (with the feature `wgpu`) |
/// | `auto` | a GPU if a working one is found, else the CPU |
///
/// Ops that a GPU backend does not support run on the CPU with one thread per core.
pub fn open(name: &str) -> Result<Arc<dyn Backend>> {
    match name.split_once(':').unwrap_or((name, "")) {
        ("cpu", "") => cpu(None),
        ("cpu", threads) => match threads.parse() {
            Ok(n @ 1..=MAX_THREADS) => cpu(Some(n)),
            _ => Err(Error::Name(format!(
                "`{name}`: `{threads}` is not a number of threads; use a number from 1 to {MAX_THREADS}"
            ))),
        },
        ("cuda", "") => cuda(0),
        ("cuda", number) => match number.parse() {
            Ok(n) => cuda(n),
            Err(_) => Err(Error::Name(format!("`{name}`: `{number}` is not a GPU index; use a number, as in cuda:0"))),
        },
        ("wgpu", "") => wgpu(0),
        ("wgpu", number) => match number.parse() {
            Ok(n) => wgpu(n),
            Err(_) => {
                Err(Error::Name(format!("`{name}`: `{number}` is not an adapter index; use a number, as in wgpu:0")))
            }
        },
        ("auto", "") => best_gpu().map_or_else(|| cpu(None), Ok),
        _ => Err(Error::Name(format!("no device `{name}`: use cpu, cpu:THREADS, cuda, cuda:N, wgpu, wgpu:N or auto"))),
    }
}

/// The best GPU of this machine, if one works. A software WebGPU adapter doesn't count: the CPU backend is faster.
pub fn best_gpu() -> Option<Arc<dyn Backend>> {
    cuda(0).ok().or_else(hardware_wgpu)
}

#[cfg(feature = "cpu")]
fn cpu(threads: Option<usize>) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(threads.map_or_else(cpu::Cpu::for_machine, cpu::Cpu::new)))
}

#[cfg(not(feature = "cpu"))]
fn cpu(_: Option<usize>) -> Result<Arc<dyn Backend>> {
    Err(Error::Feature { device: "cpu", feature: "cpu" })
}

#[cfg(all(feature = "cuda", not(target_arch = "wasm32")))]
fn cuda(number: usize) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(gpu::cuda::Cuda::open(number, Arc::new(cpu::Cpu::for_machine()))?))
}

#[cfg(all(not(feature = "cuda"), not(target_arch = "wasm32")))]
fn cuda(_: usize) -> Result<Arc<dyn Backend>> {
    Err(Error::Feature { device: "cuda", feature: "cuda" })
}

#[cfg(target_arch = "wasm32")]
fn cuda(_: usize) -> Result<Arc<dyn Backend>> {
    Err(Error::Backend(compiler::Error::Backend("the browser has no CUDA: open `cpu`".into())))
}

#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
fn wgpu(number: usize) -> Result<Arc<dyn Backend>> {
    let choice = gpu::wgpu::WgpuOptions { index: number, default_limits_only: false };
    Ok(Arc::new(gpu::wgpu::Wgpu::open(choice, Arc::new(cpu::Cpu::for_machine()))?))
}

/// Returns the GPU that the browser has opened.
#[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
fn wgpu(_: usize) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(gpu::wgpu::Wgpu::open(Arc::new(cpu::Cpu::for_machine()))?))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: usize) -> Result<Arc<dyn Backend>> {
    Err(Error::Feature { device: "wgpu", feature: "wgpu" })
}

#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
fn hardware_wgpu() -> Option<Arc<dyn Backend>> {
    let choice = gpu::wgpu::WgpuOptions::default();
    let opened = gpu::wgpu::Wgpu::open(choice, Arc::new(cpu::Cpu::for_machine())).ok()?;
    (!opened.is_software()).then(|| Arc::new(opened) as Arc<dyn Backend>)
}

#[cfg(any(not(feature = "wgpu"), target_arch = "wasm32"))]
fn hardware_wgpu() -> Option<Arc<dyn Backend>> {
    None
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;

    #[test]
    fn names_open_devices_or_say_what_to_give() {
        assert!(open("cpu:1").is_ok_and(|d| d.name().contains("cpu")));
        for (name, remedy) in [
            ("tpu", "use cpu"),
            ("", "use cpu"),
            ("auto:1", "use cpu"),
            ("cpu:0", "from 1 to 1024"),
            ("cpu:1025", "from 1 to 1024"),
            ("cpu:many", "from 1 to 1024"),
            ("cuda:first", "as in cuda:0"),
            ("wgpu:-1", "as in wgpu:0"),
        ] {
            let error = open(name).err().expect(name).to_string();
            assert!(error.contains(remedy), "{name}: {error}");
        }
    }

    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn a_device_that_was_not_built_names_its_feature() {
        let error = open("wgpu").err().expect("it was not built").to_string();
        assert_eq!(error, "this program was built without `wgpu`; build it with `--features wgpu`");
    }
}
