//! Programs on NVIDIA GPUs.

mod backend;
mod blas;
mod classes;
mod context;
mod cubins;
mod device;
mod event;
mod execute;
mod gemm;
mod host;
mod kernels;
mod load;
mod memory;
mod nvrtc;
mod open;
mod places;
mod pool;
mod record;
mod ring;
mod strided;

pub(crate) use backend::Inner;
pub use backend::Cuda;
pub use memory::CudaBuffer;
pub use pool::Usage;

use crate::grid;

/// What stands before the kernels of every source.
fn prelude() -> &'static str {
    ""
}

/// The text of a kernel, under a name that its text decides.
fn text(grid: &grid::Kernel) -> strided::Text {
    let text = format!("{grid}");
    strided::Text { entry: "k".into(), text }
}
