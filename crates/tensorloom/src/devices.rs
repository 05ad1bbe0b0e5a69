//! Opening devices by name.

use crate::{Error, Result};
use compiler::Backend;
use ir::Loc;
use std::sync::Arc;

/// Threads that a CPU may be asked for.
const THREADS: usize = 1024;

/// A device by name: `cpu`, `cpu:4` for as many threads, `auto` for the best there is.
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
        ("cpu" | "auto", "") => Ok(Arc::new(cpu::Cpu::for_machine())),
        ("cpu", threads) => match threads.parse() {
            Ok(n @ 1..=THREADS) => Ok(Arc::new(cpu::Cpu::new(n))),
            _ => bad(format!("`{name}` asks for `{threads}` threads; give a number from 1 to {THREADS}")),
        },
        _ => bad(format!("there is no device `{name}`; there are cpu, cpu:THREADS, auto")),
    }
}
