//! Functions over a mesh of ranks: [`shard_map`], [`pmap`], and the collectives by which ranks talk inside of them.
//!
//! A [`Mesh`] has named axes. A sharding says by which of them each axis of a tensor is cut, written as a text: `"dp"` cuts
//! the first axis by `dp`, `"_, tp"` the second by `tp`, `"dp+fsdp"` the first by both, `""` nothing. [`shard_map`] gives each
//! rank its parts and puts the results together. All ranks of one call run in this process, as one program; it is a function
//! like any other, so `grad`, `vmap` and `jit` go around it and inside of it. Types say over which axes a value varies: a
//! result that should be one for all ranks and isn't is an error when the function is traced.
//!
//! ```
//! use tensorloom::{Mesh, Tensor, shard::psum, shard_map, tensor};
//!
//! let mesh = Mesh::parse("dp=2")?;
//! let norm = shard_map(&mesh, |x: Tensor| psum(&(&x * &x).sum(), "dp")).in_specs("dp").out_specs("");
//! assert_eq!(norm.call(tensor(&[1.0, 2.0, 3.0, 4.0], 4)).item::<f32>()?, 30.0);
//!
//! let wrong = shard_map(&mesh, |x: Tensor| (&x * &x).sum()).in_specs("dp").out_specs("");
//! let error = wrong.call(tensor(&[1.0, 2.0, 3.0, 4.0], 4)).item::<f32>().unwrap_err();
//! assert!(error.to_string().contains("varies over `dp`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod collective;
mod context;
mod device_put;
mod map;
mod pmap;
mod spec;

pub use collective::{
    all_gather, all_to_all, axis_index, axis_size, pmax, pmean, pmin, ppermute, psum, psum_scatter, pvary,
};
pub use device_put::{DevicePutTarget, Sharded, Sharding};
pub use ir::{Mesh, Spec};
pub use map::{ShardMap, shard_map};
pub use pmap::{Pmap, pmap};
pub use spec::{AxisNames, Specs};
