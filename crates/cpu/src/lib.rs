//! The CPU backend: run-time code generation from loops, blocked matmul, library routines and a thread pool.
//!
//! ```
//! use compiler::{Backend, Bindings, Options};
//! use ir::{Builder, DType, GraphBuilder};
//!
//! let mut b = Builder::new();
//! let x = b.input(DType::F32, &[4]);
//! let y = b.mul(x, x)?;
//! let graph = b.finish(&[y]);
//! let cpu = tensorloom_cpu::Cpu::new(2);
//! let program = compiler::compile(&graph, &cpu, &Options::default())?;
//! let square = cpu.load(program)?;
//! let mut bindings = Bindings::for_program(square.program(), &cpu)?;
//! bindings.inputs[0].write(0, bytemuck(&[1f32, 2.0, 3.0, 4.0]))?;
//! square.run(&mut bindings)?;
//! # fn bytemuck(x: &[f32; 4]) -> &'static [u8] {
//! #     x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().leak()
//! # }
//! # Ok::<(), compiler::Error>(())
//! ```

mod arena;
mod backend;
pub mod codegen;
mod collective_overlap;
mod execute;
pub mod gemm;
mod interrupt;
mod library;
mod load;
mod memory;
mod mmap;
pub mod pool;
mod priority;
mod shape_generic;
mod thresholds;

pub use backend::Cpu;
pub use collective_overlap::collective_deadlines;
#[cfg(feature = "fft")]
pub use library::{CONVOLUTION_COSTS, ConvolutionCosts, convolution_lengths, convolution_points};
pub use memory::{HostBuffer, limit_allocator_cache, trim_heap};
pub use mmap::MmapFile;
pub use priority::lower_priority;
pub use thresholds::{Threshold, thresholds};
