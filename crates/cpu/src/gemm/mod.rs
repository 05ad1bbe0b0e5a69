//! Matrix products: blocked, packed, deterministic, without allocation.
//!
//! A [`Problem`] says what is multiplied, a [`Plan`] how (made once, when shapes are known), and
//! [`Plan::run`] takes the pointers. Operands can be generated while they are packed (a prologue),
//! B can be packed ahead, and finished tiles can go to a function instead of memory (an epilogue).
//!
//! Laws:
//! - Bits don't depend on the thread count: parts own rows × columns, k-blocks follow from the shape,
//!   and each element is computed by one sequence of operations (`kernel.rs`, `gemv.rs`).
//! - Nothing is skipped: `0·∞` is NaN here too.
//!
//! ```
//! use tensorloom_cpu::{gemm::{Operand, Output, Plan, Problem}, pool::Pool};
//! let (a, b, mut c) = ([1f32, 2.0, 3.0, 4.0], [5f32, 6.0, 7.0, 8.0], [0f32; 4]);
//! let plan = Plan::new(&Problem::new(2, 2, 2, ir::DType::F32), 1).unwrap();
//! let mut scratch = vec![0u8; plan.scratch_bytes() + 64];
//! let aligned = scratch.as_mut_ptr().wrapping_add(scratch.as_ptr().align_offset(64));
//! // SAFETY: the matrices are 2 × 2 and the scratch is aligned and large enough.
//! unsafe {
//!     let (a, b) = (Operand::Memory(a.as_ptr().cast()), Operand::Memory(b.as_ptr().cast()));
//!     plan.run(&Pool::new(1), a, b, Output::Memory(c.as_mut_ptr().cast()), aligned);
//! }
//! assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
//! ```

mod block;
#[cfg(target_arch = "x86_64")]
mod evens;
mod finish;
mod gemv;
mod groups;
pub(crate) mod kernel;
mod pack;
mod panels;
mod plan;
mod problem;
mod run;
#[cfg(target_arch = "x86_64")]
mod sixteen;
mod tiles;
mod tiny;
pub(crate) mod vector;
#[cfg(target_arch = "aarch64")]
pub(crate) mod vector_neon;
#[cfg(target_arch = "wasm32")]
mod vector_wasm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vector_x86;
#[cfg(target_arch = "x86_64")]
mod whole;

#[cfg(test)]
mod tests;

/// Where products change their way.
pub(crate) fn thresholds() -> Vec<crate::thresholds::Threshold> {
    [plan::THRESHOLDS, panels::THRESHOLDS, gemv::THRESHOLDS, tiny::THRESHOLDS].concat()
}

pub use plan::Plan;
pub use problem::{BATCH_AXES, EpilogueFn, GenerateFn, Layout, Operand, Output, PlanError, Problem, Source, Target};
#[doc(hidden)]
pub use tiles::emulate as emulate_tiles;
pub use vector::Isa;
