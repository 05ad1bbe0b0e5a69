//! Opening devices by name.

use crate::{Error, Result};
use compiler::Backend;
use ir::Loc;
use std::sync::Arc;

/// A device by name: `cpu`, `cpu:4` for as many threads, `cuda` or `cuda:1` for an NVIDIA GPU, `wgpu` or `wgpu:1` for any GPU
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
    ::device::open(name).map_err(|e| Error::Call { op: "devices::open", reason: e.to_string(), at })
}

/// The best GPU of this machine, if one works.
pub fn gpu() -> Option<Arc<dyn Backend>> {
    ::device::best_gpu()
}
