//! Fourier transforms, with AVX2 or AVX-512 vectors (`axes.rs`) or by the `rustfft` crate (`rustfft.rs`).
//!
//! | file | |
//! | --- | --- |
//! | `axes.rs` | several axes, one after the other |
//! | `batched.rs`, `blocks.rs` | many lines, one per SIMD lane; several bundles at once |
//! | `four_step.rs`, `real_matrix.rs`, `twiddle.rs` | few long lines, each as a matrix; `factor_plan.rs` chooses its shape |
//! | `strided.rs` | long lines with strided elements |
//! | `stockham.rs` | the passes over lines in lanes, for any length |
//! | `butterflies.rs`, `direct_dft.rs`, `rader_bluestein.rs` | passes with small radices, small primes and large primes |
//! | `real_lines.rs`, `real_primes.rs` | real lines of odd length in lanes |
//! | `lanes.rs`, `load_store.rs`, `transpose.rs` | vectors with one line per lane, and their loads, stores and transposes |

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

/// Returns the routine of a transform.
pub(super) fn prepare(op: &Fft, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    #[cfg(target_arch = "x86_64")]
    if let Some(own) = axes::prepare(op, args, outs, machine) {
        return Some(own);
    }
    // Where `super::PORTABLE` is false, machines without vector instructions use the interpreter.
    #[cfg(all(unix, target_arch = "x86_64", not(feature = "cranelift")))]
    return None;
    #[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
    rustfft::prepare(op, args, outs, machine)
}
