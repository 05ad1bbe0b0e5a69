//! Fourier transforms, with the vectors of AVX2 or AVX-512 (`axes.rs`), or planned by `rustfft` (`planned.rs`).
//!
//! | file | |
//! | --- | --- |
//! | `axes.rs` | several axes, one after the other |
//! | `bundles.rs`, `blocks.rs` | many lines, one in each lane; several bundles at once |
//! | `long_lines.rs`, `real_matrix.rs`, `line_ends.rs` | few long lines, each as a matrix; `line_shapes.rs` says of which sides |
//! | `far_lines.rs` | such lines whose elements are far from each other |
//! | `stockham.rs` | lines in lanes, of any length, pass by pass |
//! | `butterflies.rs`, `odd.rs`, `primes.rs` | passes of a few elements, of small primes and of large ones |
//! | `real_lines.rs`, `real_primes.rs` | real lines in lanes, of odd length |
//! | `lanes.rs`, `moves.rs`, `squares.rs` | vectors with a line in each lane, and lines that become such |

#[cfg(target_arch = "x86_64")]
mod axes;
#[cfg(target_arch = "x86_64")]
mod batched;
#[cfg(target_arch = "x86_64")]
mod blocks;
#[cfg(target_arch = "x86_64")]
mod butterflies;
#[cfg(target_arch = "x86_64")]
mod direct_dft;
#[cfg(target_arch = "x86_64")]
mod factor_plan;
#[cfg(target_arch = "x86_64")]
mod four_step;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod load_store;
#[cfg(target_arch = "x86_64")]
mod rader_bluestein;
#[cfg(target_arch = "x86_64")]
mod real_lines;
#[cfg(target_arch = "x86_64")]
mod real_matrix;
#[cfg(target_arch = "x86_64")]
mod real_primes;
#[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
mod rustfft;
#[cfg(target_arch = "x86_64")]
mod stockham;
#[cfg(target_arch = "x86_64")]
mod strided;
#[cfg(target_arch = "x86_64")]
mod transpose;
#[cfg(target_arch = "x86_64")]
mod twiddle;

use super::{CpuContext, OpRoutine};
use crate::thresholds::Threshold;
use ir::Type;
use ir::ops::Fft;

pub(super) fn thresholds() -> Vec<Threshold> {
    #[cfg(target_arch = "x86_64")]
    return [factor_plan::THRESHOLDS, butterflies::THRESHOLDS, blocks::THRESHOLDS].concat();
    #[cfg(not(target_arch = "x86_64"))]
    vec![]
}

/// The routine of a transform.
pub(super) fn prepare(op: &Fft, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    #[cfg(target_arch = "x86_64")]
    if let Some(own) = axes::prepare(op, args, outs, machine) {
        return Some(own);
    }
    // Where `super::PORTABLE` is false, machines without vectors leave it to the interpreter.
    #[cfg(all(unix, target_arch = "x86_64", not(feature = "cranelift")))]
    return None;
    #[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
    rustfft::prepare(op, args, outs, machine)
}
