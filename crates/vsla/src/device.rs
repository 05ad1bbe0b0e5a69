//! Devices of callers (§11): they start the segments of runs, record schedules and replay them.
//!
//! Segments are compiled for the processor, and it is the processor that runs them; a device decides when, on which of its
//! threads, and what is measured or logged around them.

use crate::error::{Error, Result};
use crate::plan::{CompiledLayout, Segment};
use cpu::HostBuffer;

/// What a caller's backend does when programs run. Every method has the processor's own way as its default.
pub trait Device: Send + Sync {
    /// Starts a segment: calls [`Run::segment`], with whatever belongs around it.
    fn launch(&self, index: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        run.segment(index)
    }

    /// Called when a stream has nothing left to do.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Records a schedule. What it gives is handed to [`Device::replay`]; `None` says that this device doesn't record.
    fn record(&self, segments: &[Segment]) -> Result<Option<usize>> {
        let _ = segments;
        Ok(None)
    }

    /// Runs a whole schedule that was recorded: every segment once, in order.
    fn replay(&self, graph: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        let _ = graph;
        (0..run.segments().len()).try_for_each(|i| run.segment(i))
    }

    /// A recorded schedule that won't be replayed again.
    fn destroy_graph(&self, graph: usize) {
        let _ = graph;
    }
}

/// A run in progress, whose segments a device starts.
pub struct DeviceRun<'a> {
    layout: &'a CompiledLayout,
    bindings: &'a mut compiler::Bindings,
    arena: &'a mut HostBuffer,
    next: usize,
}

impl<'a> DeviceRun<'a> {
    pub(crate) fn new(
        layout: &'a CompiledLayout,
        bindings: &'a mut compiler::Bindings,
        arena: &'a mut HostBuffer,
    ) -> DeviceRun<'a> {
        DeviceRun { layout, bindings, arena, next: 0 }
    }

    /// What runs, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.layout.segments
    }

    /// Runs a segment; they come in order, each once.
    pub fn segment(&mut self, index: usize) -> Result<()> {
        let count = self.layout.segments.len();
        if index != self.next || index >= count {
            return Err(Error::invalid_arg(format!("segment {index} of {count} was launched; {} is next", self.next)));
        }
        self.layout.executable.run_with_arena(self.bindings, self.arena, index..index + 1)?;
        self.next += 1;
        Ok(())
    }

    /// Checks that so many segments have run.
    pub(crate) fn check_segments_run(&self, count: usize) -> Result<()> {
        if self.next == count {
            return Ok(());
        }
        let all = self.layout.segments.len();
        Err(Error::Backend(format!("the device left out segment {} of {all}; it must launch each one", self.next)))
    }
}
