//! Fusion: decides which values share a kernel, and generates the kernels.

#[cfg(test)]
mod chains;
mod emit;
mod expr;
mod generate;
mod grouping;
mod horizontal;
mod index;
mod iteration_space;
mod lower;
mod scan;
mod threefry;

pub(crate) use generate::{ValueSource, uniform};
pub(crate) use grouping::{
    FusionPlan, FusionUnit, Unfused, in_place, is_standalone, materialized_values, plan_fusion, source,
};
pub(crate) use lower::{Group, lower, lower_epilogue, lower_prologue};
pub use lower::{Lowered, Param};

/// The block sizes of reductions: name, number of elements, and the reductions that it applies to.
pub const BLOCKS: [(&str, usize, &str); 2] = [
    (
        "sums.vector_block",
        2 * emit::VECTOR_BLOCK as usize,
        "elements of a sum along the vector: beyond, it is cut into blocks",
    ),
    (
        "sums.serial_block",
        2 * emit::SERIAL_BLOCK as usize,
        "elements of a sum across the vector: beyond, it is cut into blocks",
    ),
];
pub(crate) use scan::{ScanParam, lower_scan};
