//! Devices of the caller (§11): they start the segments of runs, record schedules and replay them.
//!
//! Segments are compiled for the CPU, and the CPU runs them. A device decides when a segment runs and on which of the device's
//! threads, and it can measure or log each segment.

use crate::error::{Error, Result};
use crate::plan::{CompiledLayout, Segment};
use cpu::HostBuffer;

/// The operations of a caller's backend when programs run. The default methods run everything on the CPU directly.
pub trait Device: Send + Sync {
    /// Starts a segment. An implementation calls [`DeviceRun::segment`], with its own work before and after.
    fn launch(&self, index: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        run.segment(index)
    }

    /// Called when a stream has no work left.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Records a schedule. The returned handle is passed to [`Device::replay`]; `None` means that this device doesn't record.
    fn record(&self, segments: &[Segment]) -> Result<Option<usize>> {
        let _ = segments;
        Ok(None)
    }

    /// Replays a recorded schedule: runs every segment once, in order.
    fn replay(&self, graph: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        let _ = graph;
        (0..run.segments().len()).try_for_each(|i| run.segment(i))
    }

    /// Releases a recorded schedule, which won't be replayed again.
    fn destroy_graph(&self, graph: usize) {
        let _ = graph;
    }
}

/// A run in progress whose segments are started by a device.
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

    /// Returns the segments in execution order.
    pub fn segments(&self) -> &[Segment] {
        &self.layout.segments
    }

    /// Runs a segment. Each segment must run once, in order.
    pub fn segment(&mut self, index: usize) -> Result<()> {
        let count = self.layout.segments.len();
        if index != self.next || index >= count {
            return Err(Error::invalid_arg(format!("segment {index} of {count} was launched; {} is next", self.next)));
        }
        self.layout.executable.run_with_arena(self.bindings, self.arena, index..index + 1)?;
        self.next += 1;
        Ok(())
    }

    /// Checks that exactly `count` segments have run.
    pub(crate) fn check_segments_run(&self, count: usize) -> Result<()> {
        if self.next == count {
            return Ok(());
        }
        let all = self.layout.segments.len();
        Err(Error::Backend(format!("the device left out segment {} of {all}; it must launch each one", self.next)))
    }
}
