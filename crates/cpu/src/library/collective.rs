//! Collectives: handed to the communicator that the backend was given.

use super::{Routine, Started};
use crate::backend::Cpu;
use crate::pool::Pool;
use compiler::{Communicator, Error, Result};
use ir::Type;
use ir::ops::Collective;
use std::sync::Arc;

struct Talk {
    op: Collective,
    communicator: Arc<dyn Communicator>,
    arg: Option<Type>,
    out: Type,
}

/// The routine of a collective, which needs a communicator whose mesh has its axes.
pub(super) fn prepare(op: &Collective, args: &[Type], outs: &[Type], cpu: &Cpu) -> Result<Option<Box<dyn Routine>>> {
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
    Ok(Some(Box::new(Talk { op: op.clone(), communicator, arg: args.first().cloned(), out: outs[0].clone() })))
}

impl Talk {
    /// # Safety
    /// The operand is good for the bytes of its type.
    unsafe fn operand(&self, args: &[*const u8]) -> &[u8] {
        match &self.arg {
            // SAFETY: by the caller's promise; an empty one may have no address.
            Some(ty) if ty.bytes() > 0 => unsafe { std::slice::from_raw_parts(args[0], ty.bytes()) },
            _ => &[],
        }
    }
}

impl Routine for Talk {
    unsafe fn start(&self, args: &[*const u8]) -> Result<Option<Started>> {
        // SAFETY: by the caller's promise.
        let from = unsafe { self.operand(args) };
        let started = self.communicator.start(&self.op, self.arg.as_ref().unwrap_or(&self.out), from)?;
        Ok(started.map(|talking| Started { talking, bytes: self.out.bytes() }))
    }

    unsafe fn run(&self, _: &Pool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        // SAFETY: both are good for the bytes of their types by the caller's promise; empty ones may have no address.
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
