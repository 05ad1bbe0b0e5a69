//! The interface through which a program's collectives communicate with other ranks.

use crate::Result;
use ir::ops::Collective;
use ir::{Mesh, MeshAxis, Type};
use std::ffi::c_void;

/// The connection of a rank to the other ranks of its mesh. A backend receives one when it is created; the programs that it loads
/// run their collectives through it, in program order. All ranks must therefore run the same programs in the same order, from one
/// thread each; a program waits for the result of a collective where it is first read.
pub trait Communicator: Send + Sync {
    /// The mesh of all ranks.
    fn mesh(&self) -> &Mesh;

    /// The number of this rank.
    fn rank(&self) -> usize;

    /// Runs a collective on an operand of a type; `from` and `to` are dense.
    fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<()>;

    /// Starts an asynchronous collective; none if the collective has to be synchronous.
    fn start(&self, op: &Collective, ty: &Type, from: &[u8]) -> Result<Option<Box<dyn PendingCollective>>> {
        let _ = (op, ty, from);
        Ok(None)
    }
}

/// A collective in progress.
pub trait PendingCollective {
    /// Waits for the result and writes it to `to`.
    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<()>;
}

/// The connection of a rank to the devices of other ranks, such as NCCL.
pub trait DeviceCommunicator: Send + Sync {
    /// The mesh of all ranks.
    fn mesh(&self) -> &Mesh;

    /// The number of this rank.
    fn rank(&self) -> usize;

    /// Prepares for collectives over some axes when a program that contains them is loaded. All ranks load the same programs in
    /// the same order; the device is current in this thread.
    fn prepare(&self, axes: &[MeshAxis]) -> Result<()>;

    /// Enqueues a collective on a stream of the device. Gathers, reduce-scatters and all-to-alls work along the first axis. If a
    /// permutation sends nothing to a rank, its result has been set to zero before.
    ///
    /// # Safety
    /// `from` and `to` are addresses on the device that are valid for the operand and the result until the stream has
    /// run the collective.
    unsafe fn enqueue(&self, op: &Collective, ty: &Type, from: u64, to: u64, stream: *mut c_void) -> Result<()>;
}
