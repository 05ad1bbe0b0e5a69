//! Programs on NVIDIA GPUs.

mod backend;
mod blas;
mod classes;
mod collective;
mod context;
mod cubins;
mod device;
mod dnn;
mod event;
mod execute;
mod gemm;
mod kernels;
mod load;
mod memory;
mod narrow;
mod nvrtc;
mod offline;
mod open;
mod pool;
mod record;
mod ring;
mod scatter;
mod strided;

pub use backend::Cuda;
pub(crate) use backend::Inner;
pub use memory::CudaBuffer;
pub use offline::Offline;
pub use open::find_library;
pub use pool::Usage;

use crate::grid;

/// What stands before the kernels of every source.
fn prelude() -> &'static str {
    super::PRELUDE
}

/// The text of a kernel. Its name follows from the text, so equal kernels are one, whatever the programs call them.
fn text(grid: &grid::Kernel) -> strided::Text {
    const NAME: &str = "name_of_the_kernel";
    let nameless = grid::Kernel { name: String::new(), ..grid.clone() };
    let text = super::function(NAME, &nameless);
    let hash = |start| cubins::fnv(text.as_bytes(), start);
    let entry = format!("k{:016x}{:016x}", hash(3), hash(4));
    strided::Text { text: text.replacen(NAME, &entry, 1), entry }
}
