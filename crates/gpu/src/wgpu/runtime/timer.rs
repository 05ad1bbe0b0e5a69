//! Measures the time of steps, by timestamps around each pass.

use super::device::Device;
use compiler::{Error, Result};
use rustc_hash::FxHashMap;
use std::time::Duration;
use wgpu::{
    BufferDescriptor, BufferUsages, CommandEncoder, MapMode, PollType, QuerySet, QuerySetDescriptor, QueryType,
};

/// The maximum number of passes of one submission.
const PASSES: u32 = 2048;

/// The measurement of one run.
pub(super) struct Timer {
    set: QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    /// The nanoseconds of a tick.
    period: f64,
    /// The step of each pass since the last submission.
    owners: Vec<usize>,
    /// The current step.
    pub(super) step: usize,
    /// The number of executions and the total time of each step.
    pub(super) spent: FxHashMap<usize, (usize, Duration)>,
}

impl Timer {
    /// None if the adapter does not support timestamps.
    pub(super) fn new(device: &Device) -> Option<Timer> {
        if !device.features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let set = device.raw.create_query_set(&QuerySetDescriptor {
            label: None,
            ty: QueryType::Timestamp,
            count: 2 * PASSES,
        });
        let size = 16 * PASSES as u64;
        let make =
            |usage| device.raw.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        Some(Timer {
            set,
            resolved: make(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
            read: make(BufferUsages::MAP_READ | BufferUsages::COPY_DST),
            period: device.queue.get_timestamp_period() as f64,
            owners: Vec::new(),
            step: 0,
            spent: FxHashMap::default(),
        })
    }

    /// The queries of the next pass.
    pub(super) fn next(&mut self) -> Option<(QuerySet, u32)> {
        let k = self.owners.len() as u32;
        // Further passes are not measured.
        if k >= PASSES {
            return None;
        }
        self.owners.push(self.step);
        Some((self.set.clone(), k))
    }

    pub(super) fn resolve(&self, commands: &mut CommandEncoder) {
        let n = 2 * self.owners.len() as u32;
        if n > 0 {
            commands.resolve_query_set(&self.set, 0..n, &self.resolved, 0);
            commands.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, Some(8 * n as u64));
        }
    }

    /// Waits for the submitted work and adds its times.
    pub(super) fn collect(&mut self, device: &Device) -> Result<()> {
        let owners = std::mem::take(&mut self.owners);
        if owners.is_empty() {
            return Ok(());
        }
        let range = 0..16 * owners.len() as u64;
        self.read.map_async(MapMode::Read, range.clone(), |_| ());
        let polled = device.raw.poll(PollType::wait_indefinitely());
        polled.map_err(|e| Error::Backend(format!("waiting for timestamps: {e}")))?;
        let view = self.read.get_mapped_range(range).map_err(|e| Error::Backend(format!("timestamps: {e}")))?;
        let tick = |k: usize| u64::from_le_bytes(view[8 * k..8 * k + 8].try_into().unwrap_or_default());
        for (k, step) in owners.into_iter().enumerate() {
            let took = tick(2 * k + 1).saturating_sub(tick(2 * k)) as f64 * self.period;
            let (calls, time) = self.spent.entry(step).or_default();
            *calls += 1;
            *time += Duration::from_nanos(took as u64);
        }
        drop(view);
        self.read.unmap();
        Ok(())
    }
}
