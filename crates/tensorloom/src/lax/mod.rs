//! Control flow with traced bodies, and ops with all their options.

mod associative_scan;
mod branch;
mod index;
mod iterate;
mod loops;
mod scan;
mod sort;
mod window;

pub use associative_scan::associative_scan;
pub use branch::{cond, switch};
pub use index::{
    dynamic_index_in_dim, dynamic_slice, dynamic_slice_in_dim, dynamic_update_index_in_dim, dynamic_update_slice,
    dynamic_update_slice_in_dim, gather, index_add, index_max, index_min, index_mul, index_set, index_take, scatter,
};
pub use loops::{fori_loop, map, while_loop};
pub use scan::{Checkpoint, Scan, ScanPath, scan};
pub use sort::{sort, sort_by, top_k};
pub use window::{ConvOptions, Padding, conv_general_dilated, dot_general, reduce_window};
