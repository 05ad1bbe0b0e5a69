//! The CPU backend: machine code from loops, blocked matmul, routines and a thread pool of its own.
//!
//! ```
//! use compiler::{Backend, Bindings, Options};
//! use ir::{Build, Builder, DType};
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
mod execute;
pub mod gemm;
mod general;
mod interrupt;
mod library;
mod load;
mod mapped;
mod memory;
mod overlap;
pub mod pool;
mod priority;
mod thresholds;

pub use backend::Cpu;
#[cfg(feature = "fft")]
pub use library::{CONVOLUTION_COSTS, ConvolutionCosts, convolution_lengths, convolution_points};
pub use mapped::Mapped;
pub use memory::{HostBuffer, give_back_freed, keep_little_freed};
pub use overlap::needed;
pub use priority::lower_priority;
pub use thresholds::{Threshold, thresholds};
