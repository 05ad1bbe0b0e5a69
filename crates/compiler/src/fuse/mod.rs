//! Fusion: which values share a kernel, and the kernels themselves.

mod emit;
mod expr;
mod generate;
mod grouping;
mod index;
mod lower;
mod scan;
mod space;
mod threefry;

pub(crate) use generate::{Source, uniform};
pub(crate) use grouping::{Apart, Unit, Units, in_place, is_anchor, kept, source, units};
pub(crate) use lower::{Group, lower, lower_epilogue, lower_prologue};
pub use lower::{Lowered, Param};
pub(crate) use scan::{ScanParam, lower_scan};
