//! Collectives, which call the communicator of the backend.

use super::{OpRoutine, StartedRoutine};
use crate::backend::Cpu;
use crate::pool::ThreadPool;
use compiler::{Communicator, Error, Result};
use ir::Type;
use ir::ops::Collective;
use std::sync::Arc;

struct CollectiveRoutine {
    op: Collective,
    communicator: Arc<dyn Communicator>,
    arg: Option<Type>,
    out: Type,
}

/// Returns the routine of a collective. It needs a communicator whose mesh has the collective's axes.
pub(super) fn prepare(op: &Collective, args: &[Type], outs: &[Type], cpu: &Cpu) -> Result<Option<Box<dyn OpRoutine>>> {
    if op.ranks() == 1 {
        return Ok(None);
    }
    let name = ir::Rules::name(op);
    let Some(communicator) = cpu.communicator.clone() else {
        return Err(Error::Backend(format!(
            "{name} over {} ranks, but this device has no communicator; give it one (`Cpu::with_communicator`), or \
             call the function inside a `shard_map`",
            op.ranks()
        )));
    };
    communicator.mesh().set(&op.axes).map_err(|p| Error::Backend(format!("{name}: {p}")))?;
    Ok(Some(Box::new(CollectiveRoutine {
        op: op.clone(),
        communicator,
        arg: args.first().cloned(),
        out: outs[0].clone(),
    })))
}

impl CollectiveRoutine {
    /// # Safety
    /// The operand is valid for the bytes of its type.
    unsafe fn operand(&self, args: &[*const u8]) -> &[u8] {
        match &self.arg {
            // SAFETY: `args[0]` is valid for the bytes of its type; an empty operand, which may have no address, is not
            // read.
            Some(ty) if ty.bytes() > 0 => unsafe { std::slice::from_raw_parts(args[0], ty.bytes()) },
            _ => &[],
        }
    }
}

impl OpRoutine for CollectiveRoutine {
    unsafe fn start(&self, args: &[*const u8]) -> Result<Option<StartedRoutine>> {
        // SAFETY: `Routine::start` requires every pointer to be valid for the bytes of its type.
        let from = unsafe { self.operand(args) };
        let started = self.communicator.start(&self.op, self.arg.as_ref().unwrap_or(&self.out), from)?;
        Ok(started.map(|talking| StartedRoutine { talking, bytes: self.out.bytes() }))
    }

    unsafe fn run(&self, _: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        // SAFETY: `Routine::run` requires operand and result to be valid for the bytes of their types; empty ones may
        // have no address, and are not made slices of.
        let (from, to) = unsafe {
            let from = self.operand(args);
            let to: &mut [u8] = match self.out.bytes() {
                0 => &mut [],
                n => std::slice::from_raw_parts_mut(outs[0], n),
            };
            (from, to)
        };
        self.communicator.run(&self.op, self.arg.as_ref().unwrap_or(&self.out), from, to)
    }
}
