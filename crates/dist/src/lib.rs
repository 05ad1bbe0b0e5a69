//! Ranks that compute together.
//!
//! A [`Transport`] brings bytes from rank to rank: between threads ([`local`]), over TCP ([`tcp`]), or through MPI. A [`Comm`]
//! is a rank's place in a mesh over one; backends run collectives through it. Algorithms stand here once, above
//! transports, and take ranks in a fixed order: every transport gives the same bits.
//!
//! ```
//! use ir::{Build, Builder, DType, Mesh};
//!
//! let mesh = Mesh::new(&[("dp", 2)])?;
//! let sums = tensorloom_dist::local::spawn(&mesh, |comm| {
//!     let op = ir::ops::Collective::new(ir::ops::CollectiveKind::Sum, comm.mesh().axes());
//!     let own = (comm.rank() as f32 + 1.0).to_le_bytes();
//!     let mut sum = [0; 4];
//!     comm.run(&op, &ir::Type::scalar(DType::F32), &own, &mut sum)?;
//!     Ok(f32::from_le_bytes(sum))
//! })?;
//! assert_eq!(sums, [3.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod collective;
mod comm;
mod error;
#[cfg(any(unix, windows))]
pub mod groups;
pub mod launch;
pub mod local;
mod mail;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(any(unix, windows))]
pub mod nccl;
pub mod pipeline;
mod reduce;
mod rendezvous;
mod secret;
pub mod tcp;
mod transport;
mod zeros;

pub use comm::{Comm, Started, Traffic};
pub use error::{Error, Result};
pub use transport::{Tag, Transport};
