//! The runtime for programs on NVIDIA GPUs.

mod aot;
mod backend;
mod blas;
mod collective;
mod context;
mod cubins;
mod cuda_graph;
mod device;
mod dnn;
mod dynlib;
mod event;
mod execute;
mod fp8_gemm;
mod gemm;
mod kernels;
mod load;
mod memory;
mod nvrtc;
mod pool;
mod scatter;
mod size_classes;
mod staging_ring;
mod strided_copy;

pub use aot::AotTarget;
pub use backend::Cuda;
pub(crate) use backend::CudaState;
pub use dynlib::find_library;
pub use memory::CudaBuffer;
pub use pool::MemoryStats;

use crate::grid;

/// The source text before the kernels of every source.
fn prelude() -> &'static str {
    super::PRELUDE
}

/// The source of a kernel. Its name is derived from the source, so equal kernels of different programs are shared.
fn text(grid: &grid::GridKernel) -> strided_copy::KernelSource {
    const NAME: &str = "name_of_the_kernel";
    let nameless = grid::GridKernel { name: String::new(), ..grid.clone() };
    let text = super::function(NAME, &nameless);
    let hash = |start| cubins::fnv(text.as_bytes(), start);
    let entry = format!("k{:016x}{:016x}", hash(3), hash(4));
    strided_copy::KernelSource { text: text.replacen(NAME, &entry, 1), entry }
}
