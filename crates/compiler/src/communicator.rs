//! How a program's collectives reach other ranks.

use crate::Result;
use ir::ops::Collective;
use ir::{Mesh, Type};

/// A rank's way to the others of its mesh. A backend is given one when it is made; the programs that it loads then run their
/// collectives through it, as steps in their order. So all ranks run the same programs in the same order, from one thread
/// each.
pub trait Communicator: Send + Sync {
    /// The ranks.
    fn mesh(&self) -> &Mesh;

    /// This one.
    fn rank(&self) -> usize;

    /// Runs a collective on an operand of a type; `from` and `to` are dense.
    fn run(&self, op: &Collective, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<()>;
}
