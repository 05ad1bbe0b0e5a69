//! How a program's collectives reach other ranks.

use crate::Result;
use ir::ops::Collective;
use ir::{Mesh, Type};

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
    fn start(&self, op: &Collective, ty: &Type, from: &[u8]) -> Result<Option<Box<dyn Talking>>> {
        let _ = (op, ty, from);
        Ok(None)
    }
}

/// A collective that was started.
pub trait Talking {
    /// Waits for its result.
    fn finish(self: Box<Self>, to: &mut [u8]) -> Result<()>;
}
