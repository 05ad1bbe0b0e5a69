//! Opening devices by name: the one place that knows which kinds there are.

use crate::{Error, Result};
use compiler::Backend;
use ir::Loc;
use std::sync::Arc;

/// Threads that a CPU may be asked for.
const THREADS: usize = 1024;

/// A device by name: `cpu`, `cpu:4` for as many threads, `cuda` or `cuda:1` for a GPU of NVIDIA's, `auto` for a GPU if there is
/// one that works, else the CPU.
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
        ("auto", "") => Ok(cuda(0).unwrap_or_else(|_| Arc::new(cpu::Cpu::for_machine()))),
        ("cuda", number) => match if number.is_empty() { Ok(0) } else { number.parse() } {
            Ok(n) => cuda(n).or_else(|e| bad(e.to_string())),
            Err(_) => bad(format!("`{name}` names the GPU `{number}`; give its number, as in cuda:0")),
        },
        ("cpu", threads) => match threads.parse() {
            Ok(n @ 1..=THREADS) => Ok(Arc::new(cpu::Cpu::new(n))),
            _ => bad(format!("`{name}` asks for `{threads}` threads; give a number from 1 to {THREADS}")),
        },
        _ => bad(format!("no device `{name}`: there are cpu, cpu:THREADS, cuda, cuda:NUMBER, auto")),
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
    Err(compiler::Error::Backend("a page can't reach CUDA; open `cpu`".into()))
}
