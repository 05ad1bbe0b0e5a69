//! Who plans Fourier transforms of lines: `rustfft`.
//!
//! On x86-64 with vectors of AVX alone, where [`super::PORTABLE`] is false.

use rustfft::FftNum;

#[cfg(all(unix, target_arch = "x86_64", not(feature = "cranelift")))]
pub(super) type Planner<T> = rustfft::FftPlannerAvx<T>;

#[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
pub(super) type Planner<T> = rustfft::FftPlanner<T>;

/// None on a machine that it has no code for.
pub(super) fn planner<T: FftNum>() -> Option<Planner<T>> {
    #[cfg(all(unix, target_arch = "x86_64", not(feature = "cranelift")))]
    return Planner::new().ok();
    #[cfg(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))))]
    Some(Planner::new())
}
