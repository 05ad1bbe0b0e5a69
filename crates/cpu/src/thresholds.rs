//! The sizes at which this backend changes its way, as data.
//!
//! A result just below such a size and one just above it are computed differently: serially or by threads, in one block or
//! several, packed or in place. Each module lists its own beside the constants; [`thresholds`] lists them all, and
//! `tests/thresholds.rs` computes on both sides of each.

use crate::{backend, codegen, gemm, library, load};

/// A size at which the way of computing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// `module.what`.
    pub name: &'static str,
    /// What is compared with the value, and what changes there.
    pub meaning: &'static str,
    /// Where it changes: between this and one more, or one less.
    pub value: usize,
}

impl Threshold {
    pub(crate) const fn new(name: &'static str, value: usize, meaning: &'static str) -> Threshold {
        Threshold { name, meaning, value }
    }
}

/// Every threshold of the backend, by module.
pub fn thresholds() -> Vec<Threshold> {
    [backend::thresholds(), load::THRESHOLDS.to_vec(), codegen::THRESHOLDS.to_vec(), gemm::thresholds()]
        .into_iter()
        .flatten()
        .chain(library::thresholds())
        .collect()
}
