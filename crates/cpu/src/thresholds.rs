//! The sizes at which this backend switches to another algorithm, as data.
//!
//! A result just below such a size and one just above it are computed differently: serially or by threads, in one block or
//! several, packed or in place. Each module lists its own beside the constants; [`thresholds`] lists them all, and
//! `tests/thresholds.rs` computes on both sides of each.

use crate::{backend, codegen, gemm, library, load};

/// A size at which the algorithm changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The name, `module.what`.
    pub name: &'static str,
    /// The quantity that is compared with the value, and what changes.
    pub meaning: &'static str,
    /// The value: the algorithm changes between it and one more, or one less.
    pub value: usize,
}

impl Threshold {
    pub(crate) const fn new(name: &'static str, value: usize, meaning: &'static str) -> Threshold {
        Threshold { name, meaning, value }
    }
}

/// Returns every threshold of the backend, by module.
pub fn thresholds() -> Vec<Threshold> {
    [backend::thresholds(), load::THRESHOLDS.to_vec(), codegen::THRESHOLDS.to_vec(), gemm::thresholds()]
        .into_iter()
        .flatten()
        .chain(library::thresholds())
        .collect()
}
