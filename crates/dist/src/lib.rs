//! Distributed execution: communication between ranks.
//!
//! A [`Transport`] sends bytes between ranks: between threads ([`thread_transport`]), over TCP ([`tcp`]), or through MPI. A
//! [`Comm`] is a rank's communicator for a mesh over a transport; backends run collectives through it. The algorithms are
//! independent of the transport and process ranks in a fixed order: every transport gives the same bits.
//!
//! ```
//! use ir::{Builder, DType, GraphBuilder, Mesh};
//!
//! let mesh = Mesh::new(&[("dp", 2)])?;
//! let sums = tensorloom_dist::thread_transport::spawn(&mesh, |comm| {
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
mod message_queue;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(any(unix, windows))]
pub mod nccl;
pub mod pipeline;
mod reduce;
mod rendezvous;
mod secret;
pub mod tcp;
pub mod thread_transport;
mod transport;
mod zero_compression;

pub use comm::{Comm, StartedCollective, Traffic};
pub use error::{Error, Result};
pub use transport::{Tag, Transport};
