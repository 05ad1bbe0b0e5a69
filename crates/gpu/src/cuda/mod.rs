//! CUDA: the CUDA C++ source of grids, and the runtime: [`Cuda`].
//!
//! # Runtime
//!
//! A device has one queue (a stream). Programs, writes, reads and copies are enqueued in order, so memory that is freed
//! to the pool can be reused immediately. Kernels are CUDA C++ source that NVRTC compiles; cubins are cached on disk.
//! Matrix products use cuBLASLt. Ops that the device does not support run on the host backend it was opened with. Programs that
//! run again with the same addresses are captured as CUDA graphs.

mod attention;
pub mod gemv;
mod print;
mod radix_sort;
#[cfg(feature = "cuda")]
mod runtime;
mod scan;
mod template;
pub mod transpose;

pub use attention::CudaAttention;
pub use gemv::SkinnyMatmul;
pub use print::{FLAGS, PRELUDE, function, print};
pub use radix_sort::RadixSort;
#[cfg(feature = "cuda")]
pub use runtime::{AotTarget, Cuda, CudaBuffer, MemoryStats, find_library};
pub use scan::CumulativeSum;
pub use template::{LaunchSequence, TemplateArg, TemplateLaunch};
