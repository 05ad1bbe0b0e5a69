//! How a program's collectives reach other ranks.

use crate::Result;
use ir::ops::Collective;
use ir::{Mesh, MeshAxis, Type};
use std::ffi::c_void;

/// A rank's way to the others of its mesh. A backend is given one when it is made; the programs that it loads then run their
/// collectives through it, started in their order. So all ranks run the same programs in the same order, from one thread
/// each; a result is waited for where it is read first.
pub trait Communicator: Send + Sync {
    /// The ranks.
    fn mesh(&self) -> &Mesh;

    /// This one.
    fn rank(&self) -> usize;

    /// Runs a collective on an operand of a type; `from` and `to` are dense.
    fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<()>;

    /// Starts a collective that ends while the rank computes; none where ranks must wait for it.
    fn start(&self, op: &Collective, ty: &Type, from: &[u8]) -> Result<Option<Box<dyn PendingCollective>>> {
        let _ = (op, ty, from);
        Ok(None)
    }
}

/// A collective that was started.
pub trait PendingCollective {
    /// Waits for its result.
    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<()>;
}

/// A rank's way to the devices of others: NCCL, or what is like it.
pub trait DeviceCommunicator: Send + Sync {
    /// The ranks.
    fn mesh(&self) -> &Mesh;

    /// This one.
    fn rank(&self) -> usize;

    /// Gets ready for collectives over some axes when a program that has them is loaded. All ranks load the same programs in
    /// the same order; the device is current in this thread.
    fn prepare(&self, axes: &[MeshAxis]) -> Result<()>;

    /// Gives a collective to a stream of the device. What is gathered, cut or sent to all is so along the first axis; where a
    /// permutation brings a rank nothing, its result is zero already.
    ///
    /// # Safety
    /// `from` and `to` are addresses on the device that are good for the operand and the result until the stream has come there.
    unsafe fn enqueue(&self, op: &Collective, ty: &Type, from: u64, to: u64, stream: *mut c_void) -> Result<()>;
}
