//! Encodes work for the queue: one command buffer with one compute pass, as far as possible.

use super::binding::Bound;
use super::device::{Device, PARAMS, Params, RECORD};
use super::pipelines::Pipeline;
use super::pool::Block;
use super::timer::Timer;
use compiler::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wgpu::{CommandEncoder, CommandEncoderDescriptor, ComputePass, ComputePassDescriptor, SubmissionIndex};

/// The maximum number of dispatches in a submission: a driver may reset the device if work takes seconds.
const MOST: usize = 4096;

/// The commands since the last submission.
pub(super) struct Encoder<'a> {
    pub(super) device: &'a Arc<Device>,
    commands: Option<CommandEncoder>,
    pass: Option<ComputePass<'static>>,
    params: Option<Params>,
    words: Vec<u8>,
    dispatches: usize,
    last: Option<SubmissionIndex>,
    /// Measures each pass; each dispatch is then a separate pass.
    pub(super) timer: Option<Timer>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(device: &'a Arc<Device>) -> Encoder<'a> {
        Encoder {
            device,
            commands: None,
            pass: None,
            params: None,
            words: Vec::new(),
            dispatches: 0,
            last: None,
            timer: None,
        }
    }

    fn commands(&mut self) -> &mut CommandEncoder {
        let raw = &self.device.raw;
        self.commands.get_or_insert_with(|| raw.create_command_encoder(&CommandEncoderDescriptor::default()))
    }

    /// Dispatches a kernel with these buffers.
    pub(super) fn dispatch(
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
        if self.words.len() + 2 * RECORD > PARAMS || self.dispatches >= MOST {
            self.submit()?;
        }
        let device = self.device;
        let offset = self.words.len();
        self.words.extend(params.iter().flat_map(|w| w.to_le_bytes()));
        let align = device.limits.min_uniform_buffer_offset_alignment as usize;
        self.words.resize(self.words.len().next_multiple_of(align.max(4)), 0);
        let own = self.params.get_or_insert_with(|| device.params()).group.clone();
        let group = device.groups.group(&device.raw, pipeline.layout, bound);
        if self.pass.is_none() || self.timer.is_some() {
            self.pass = None;
            let writes = self.timer.as_mut().and_then(|t| t.next());
            let desc = ComputePassDescriptor {
                label: None,
                timestamp_writes: writes.as_ref().map(|(set, k)| wgpu::ComputePassTimestampWrites {
                    query_set: set,
                    beginning_of_pass_write_index: Some(2 * k),
                    end_of_pass_write_index: Some(2 * k + 1),
                }),
            };
            let pass = self.commands().begin_compute_pass(&desc).forget_lifetime();
            self.pass = Some(pass);
        }
        if let Some(pass) = &mut self.pass {
            pass.set_pipeline(&pipeline.raw);
            pass.set_bind_group(0, &group, &[]);
            pass.set_bind_group(1, &own, &[offset as u32]);
            pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
        }
        self.dispatches += 1;
        Ok(())
    }

    /// Copies whole words between two buffers.
    pub(super) fn copy(&mut self, to: &Block, to_byte: usize, from: &Block, from_byte: usize, bytes: usize) {
        self.pass = None;
        let commands = self.commands();
        commands.copy_buffer_to_buffer(&from.buffer, from_byte as u64, &to.buffer, to_byte as u64, Some(bytes as u64));
    }

    /// Submits the recorded commands and returns the index of the submission.
    pub(super) fn submit(&mut self) -> Result<SubmissionIndex> {
        self.pass = None;
        let device = self.device;
        if self.commands.is_none()
            && let Some(last) = &self.last
        {
            return Ok(last.clone());
        }
        if let Some(timer) = &mut self.timer {
            let raw = &device.raw;
            let commands =
                self.commands.get_or_insert_with(|| raw.create_command_encoder(&CommandEncoderDescriptor::default()));
            timer.resolve(commands);
        }
        self.commands();
        let Some(commands) = self.commands.take() else { return Err(Error::Internal("nothing to submit".into())) };
        let params = self.params.take();
        if let Some(params) = &params {
            device.queue.write_buffer(&params.buffer, 0, &self.words);
        }
        let index = device.submit(commands.finish());
        if let Some(params) = params {
            device.give_params(params);
        }
        device.dispatches.fetch_add(self.dispatches, Relaxed);
        self.words.clear();
        self.dispatches = 0;
        let index = index?;
        self.last = Some(index.clone());
        if let Some(timer) = &mut self.timer {
            timer.collect(device)?;
        }
        Ok(index)
    }
}
