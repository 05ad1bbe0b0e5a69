//! Matrix products: blocked, packed, deterministic, without allocation.
//!
//! A [`GemmProblem`] says what is multiplied. A [`GemmPlan`] says how; it is made once, when the shapes are known.
//! [`GemmPlan::run`] takes the pointers. Operands can be generated while they are packed (a prologue),
//! B can be packed in advance, and finished tiles can be passed to a function instead of being stored (an epilogue).
//!
//! Laws:
//! - The bits do not depend on the number of threads: parts own rows × columns, k-blocks follow from the shape,
//!   and each element is computed by one sequence of operations (`kernel.rs`, `gemv.rs`).
//! - No product is skipped: `0·∞` is NaN here too.
//!
//! ```
//! use tensorloom_cpu::{gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem}, pool::ThreadPool};
//! let (a, b, mut c) = ([1f32, 2.0, 3.0, 4.0], [5f32, 6.0, 7.0, 8.0], [0f32; 4]);
//! let plan = GemmPlan::new(&GemmProblem::new(2, 2, 2, ir::DType::F32), 1).unwrap();
//! let mut scratch = vec![0u8; plan.scratch_bytes() + 64];
//! let aligned = scratch.as_mut_ptr().wrapping_add(scratch.as_ptr().align_offset(64));
//! // SAFETY: the matrices are 2 × 2 and the scratch is aligned and large enough.
//! unsafe {
//!     let (a, b) = (GemmOperand::Memory(a.as_ptr().cast()), GemmOperand::Memory(b.as_ptr().cast()));
//!     plan.run(&ThreadPool::new(1), a, b, GemmOutput::Memory(c.as_mut_ptr().cast()), aligned);
//! }
//! assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
//! ```

mod amx;
#[cfg(target_arch = "x86_64")]
mod bf16_gemv;
mod block;
mod epilogue;
#[cfg(target_arch = "x86_64")]
mod full_tile_kernel;
mod gemv;
pub(crate) mod kernel;
mod pack;
#[cfg(target_arch = "x86_64")]
mod pack16x16;
mod plan;
mod problem;
mod row_panels;
mod run;
mod small_matmul;
pub(crate) mod vector;
#[cfg(target_arch = "aarch64")]
pub(crate) mod vector_neon;
#[cfg(target_arch = "wasm32")]
mod vector_wasm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vector_x86;
mod vnni_packing;

#[cfg(test)]
mod tests;

/// The sizes at which products switch to another algorithm.
pub(crate) fn thresholds() -> Vec<crate::thresholds::Threshold> {
    [plan::THRESHOLDS, row_panels::THRESHOLDS, gemv::THRESHOLDS, small_matmul::THRESHOLDS].concat()
}

#[doc(hidden)]
pub use amx::emulate_amx as emulate_tiles;
pub use plan::GemmPlan;
pub use problem::{
    BATCH_AXES, EpilogueFn, GemmOperand, GemmOutput, GemmProblem, GenerateFn, MatrixLayout, OperandSource, OutputKind,
    PlanError,
};
pub use vector::Isa;
