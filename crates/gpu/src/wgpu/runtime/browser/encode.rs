//! Encodes work for the queue: a list of commands that JavaScript executes.
//!
//! Commands consist of words. 0, pipeline, group, first byte of its parameters, workgroups in x, y, z: runs a kernel. 1, from,
//! byte, to, byte, bytes: copies.

use super::super::binding::Bound;
use super::super::pool::Block;
use super::device::{Device, PARAMS, RECORD};
use super::host;
use super::pipelines::Pipeline;
use compiler::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The maximum number of dispatches in a submission: a driver may reset the device if work takes seconds.
const MOST: usize = 1024;

/// The commands since the last submission.
pub(in super::super) struct Encoder<'a> {
    pub(in super::super) device: &'a Arc<Device>,
    commands: Vec<u32>,
    params: Vec<u8>,
    dispatches: usize,
}

impl<'a> Encoder<'a> {
    pub(in super::super) fn new(device: &'a Arc<Device>) -> Encoder<'a> {
        Encoder { device, commands: Vec::new(), params: Vec::new(), dispatches: 0 }
    }

    /// OpPlacement a kernel over these buffers.
    pub(in super::super) fn dispatch(
        &mut self,
        pipeline: &Pipeline,
        bound: &[Bound<'_>],
        params: &[u32],
        grid: [u32; 3],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        if params.len() * 4 > RECORD {
            return Err(Error::Internal(format!("a kernel with {} parameters", params.len())));
        }
        if self.params.len() + 2 * RECORD > PARAMS || self.dispatches >= MOST {
            self.submit()?;
        }
        let device = self.device;
        let offset = self.params.len();
        self.params.extend(params.iter().flat_map(|w| w.to_le_bytes()));
        let align = device.limits.min_uniform_buffer_offset_alignment.max(4);
        self.params.resize(self.params.len().next_multiple_of(align), 0);
        let group = device.groups.group(pipeline.layout, bound);
        self.commands.extend([0, pipeline.number, group, offset as u32, grid[0], grid[1], grid[2]]);
        self.dispatches += 1;
        Ok(())
    }

    /// Copies whole words between two buffers.
    pub(in super::super) fn copy(&mut self, to: &Block, to_byte: usize, from: &Block, from_byte: usize, bytes: usize) {
        let (from, to) = (from.buffer.number(), to.buffer.number());
        self.commands.extend([1, from, from_byte as u32, to, to_byte as u32, bytes as u32]);
    }

    /// Submits the recorded commands to the queue.
    pub(in super::super) fn submit(&mut self) -> Result<()> {
        if self.commands.is_empty() {
            return Ok(());
        }
        let device = self.device;
        host::gpu_submit(self.commands.as_ptr(), self.commands.len(), self.params.as_ptr(), self.params.len());
        device.submits.fetch_add(1, Relaxed);
        device.dispatches.fetch_add(self.dispatches, Relaxed);
        self.commands.clear();
        self.params.clear();
        self.dispatches = 0;
        Ok(())
    }
}
