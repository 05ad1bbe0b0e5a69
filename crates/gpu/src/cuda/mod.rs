//! CUDA: the text of grids for its compiler, and the runtime: [`Cuda`].
//!
//! # Runtime
//!
//! A device has one queue (a stream). Programs, writes, reads and copies are given to it in order, so memory that is given back
//! to the pool may be taken again at once. Kernels are CUDA C++ text that NVRTC compiles; cubins are kept on disk.
//! Products go to cuBLASLt. What a device lacks runs on the host backend it was opened with. Programs that run again over
//! the same addresses are recorded as CUDA graphs.

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
