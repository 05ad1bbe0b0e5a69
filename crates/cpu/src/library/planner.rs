//! The planner of Fourier transforms of lines, from `rustfft`.
//!
//! On x86-64 it only has AVX code where [`super::PORTABLE`] is false.

use rustfft::FftNum;

#[cfg(all(unix, target_arch = "x86_64", not(feature = "cranelift")))]
pub(super) type Planner<T> = rustfft::FftPlannerAvx<T>;

#[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
pub(super) type Planner<T> = rustfft::FftPlanner<T>;

/// Returns `None` on a machine for which it has no code.
pub(super) fn planner<T: FftNum>() -> Option<Planner<T>> {
    #[cfg(all(unix, target_arch = "x86_64", not(feature = "cranelift")))]
    return Planner::new().ok();
    #[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
    Some(Planner::new())
}
