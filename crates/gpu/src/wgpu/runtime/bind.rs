//! The buffers of a run: those that the caller bound, constants, the arena.

use super::allocations::Allocation;
use super::copy_fill;
use super::encode::Encoder;
use super::load::LoadedProgram;
use super::memory::{WgpuBuffer, own};
use super::pool::Block;
use compiler::{Bindings, DeviceBuffer, Result};

impl LoadedProgram {
    /// The buffers of all allocations, and those that are freed when the run has been submitted.
    pub(super) fn blocks(
        &self,
        bindings: &Bindings,
        arena: Option<&Block>,
        encoder: &mut Encoder<'_>,
    ) -> Result<(Vec<Option<Block>>, Vec<WgpuBuffer>)> {
        bindings.check(&self.program)?;
        let device = &self.inner.device;
        let input = |i: usize| own(device, &*bindings.inputs[i]);
        let output = |o: usize| own(device, &*bindings.outputs[o]);
        let mut copies = Vec::new();
        let mut blocks = Vec::with_capacity(self.roots.all.len());
        for root in &self.roots.all {
            blocks.push(match *root {
                Allocation::Arena => arena.cloned(),
                Allocation::Constants => self.constants.as_ref().map(|c| c.block().clone()),
                Allocation::Input(i) => {
                    let from = input(i)?;
                    // WebGPU does not allow one buffer to be bound as read-only and as writable at once.
                    let written =
                        (0..bindings.outputs.len()).any(|o| output(o).is_ok_and(|b| b.block().id == from.block().id));
                    match written {
                        false => Some(from.block().clone()),
                        true => {
                            let copy = WgpuBuffer::new(device, from.bytes())?;
                            copy_fill::copy(encoder, copy.block(), 0, from.block(), 0, from.bytes())?;
                            let block = copy.block().clone();
                            copies.push(copy);
                            Some(block)
                        }
                    }
                }
                Allocation::Output(o, donor) => {
                    let to = output(o)?;
                    if let Some(i) = donor {
                        let bytes = self.program.inputs[i].bytes();
                        copy_fill::copy(encoder, to.block(), 0, input(i)?.block(), 0, bytes)?;
                    }
                    Some(to.block().clone())
                }
            });
        }
        Ok((blocks, copies))
    }

    pub(super) fn arena(&self) -> Result<Option<WgpuBuffer>> {
        (self.arena_bytes > 0).then(|| WgpuBuffer::new(&self.inner.device, self.arena_bytes)).transpose()
    }
}
