//! `Wgpu`: the WebGPU backend.

use super::adapter::{WgpuOptions, now};
use super::attention::Attention;
use super::autotune::{self, AutotuneCache, Trial};
use super::copy_fill;
use super::device::Device;
use super::encode::Encoder;
use super::execute::{LoopPosition, ProgramRun};
use super::load::{LoadedProgram, LoadedStep, LoadedTripCount};
use super::memory::{WgpuBuffer, own};
use super::pool::{Block, Usage};
use super::scatter_rows::RowScatter;
use super::timer::Timer;
use crate::grid::GridLimits;
use crate::library::{self, DeviceCaps};
use crate::wgpu::target;
use compiler::program::{Matmul, Program, Step, TripCount};
use compiler::{Backend, Bindings, DeviceBuffer, Error, Executable, Fence, OpPlacement, Result, Target, Timing};
use ir::ops::Composite;
use ir::{Op, Type};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An adapter that WebGPU can use: a GPU through Vulkan, Metal or Direct3D.
pub struct Wgpu {
    inner: Arc<Inner>,
    target: Target,
}

/// The state that a device's programs share.
pub(super) struct Inner {
    pub(super) device: Arc<Device>,
    /// The limits of its kernels.
    pub(super) limits: GridLimits,
    /// The host backend, which runs ops that the device does not support.
    pub(super) host: Arc<dyn Backend>,
    /// The autotuned variants of products.
    pub(super) tuned: AutotuneCache,
}

impl Inner {
    /// The device capabilities for library ops.
    pub(super) fn means(&self) -> DeviceCaps {
        let binding = self.device.binding();
        DeviceCaps {
            limits: self.limits,
            matmul_dtypes: target(8, binding).matmul.dtypes,
            max_temporary_bytes: binding,
        }
    }
}

impl Wgpu {
    /// Opens an adapter; `host` runs the ops that it does not support.
    pub fn open(choice: WgpuOptions, host: Arc<dyn Backend>) -> Result<Wgpu> {
        Ok(Wgpu::with(Device::open(choice)?, host))
    }

    fn with(device: Arc<Device>, host: Arc<dyn Backend>) -> Wgpu {
        let l = &device.limits;
        let most = l.max_compute_invocations_per_workgroup.min(l.max_compute_workgroup_size_x).min(1024);
        let threads = 1 << most.max(1).ilog2();
        let limits = GridLimits {
            threads: threads.min(256),
            default_threads: threads.min(128),
            max_shared_bytes: (l.max_compute_workgroup_storage_size as usize).min(32 << 10),
            blocks: l.max_compute_workgroups_per_dimension,
            ..GridLimits::WEBGPU
        };
        let binding = l.max_storage_buffer_binding_size as usize;
        let target = target(l.max_storage_buffers_per_shader_stage as usize, binding);
        let tuned = AutotuneCache::read(&device.info);
        Wgpu { inner: Arc::new(Inner { device, limits, host, tuned }), target }
    }

    /// Autotunes a product: measures all variants, stores the best one in memory and on disk, and returns all times. A variant
    /// whose results differ from the default's is never selected.
    pub fn tune(&self, shape: &Matmul) -> Result<Vec<Trial>> {
        autotune::tune(self, shape)
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The memory statistics.
    pub fn usage(&self) -> Usage {
        self.inner.device.usage()
    }

    /// Returns unused cached memory to the driver, and returns the number of bytes.
    pub fn release(&self) -> usize {
        self.inner.device.release()
    }

    /// The number of submissions and of dispatches since the device was opened.
    pub fn work(&self) -> (usize, usize) {
        (self.inner.device.submits.load(Relaxed), self.inner.device.dispatches.load(Relaxed))
    }

    /// Whether the adapter is a software implementation on the CPU.
    pub fn is_software(&self) -> bool {
        self.inner.device.info.device_type == wgpu::DeviceType::Cpu
    }

    /// Destroys the device, as a driver failure does, for tests of error handling.
    pub fn lose(&self) {
        self.inner.device.raw.destroy();
        self.inner.device.poll();
    }
}

impl Backend for Wgpu {
    fn name(&self) -> String {
        let i = &self.inner.device.info;
        format!("wgpu ({}, {:?}, {} {})", i.name, i.backend, i.driver, i.driver_info)
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool {
        Attention::composite(composite, args, &self.inner.limits).is_some()
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(WgpuBuffer::new(&self.inner.device, bytes)?))
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(LoadedProgram::new(&self.inner, program)?))
    }

    fn placement(&self, op: &Op, args: &[Type]) -> OpPlacement {
        let own = RowScatter::of(op, args).is_some() || Attention::of(op, args, &self.inner.limits).is_some();
        if own || library::supports(op, args, &self.inner.means()) {
            OpPlacement::Device
        } else {
            OpPlacement::HostFallback
        }
    }

    fn copy(&self, from: &dyn DeviceBuffer, to: &dyn DeviceBuffer, bytes: usize) -> Result<()> {
        let device = &self.inner.device;
        let (from, to) = (own(device, from)?, own(device, to)?);
        if bytes > from.bytes() || bytes > to.bytes() {
            return Err(Error::Bindings(format!(
                "a copy of {bytes} bytes from a buffer of {} to one of {}",
                from.bytes(),
                to.bytes()
            )));
        }
        let mut encoder = Encoder::new(device);
        copy_fill::copy(&mut encoder, to.block(), 0, from.block(), 0, bytes)?;
        encoder.submit().map(drop)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.device.synchronize()
    }

    fn kernels(&self) -> usize {
        self.inner.device.pipelines.len()
    }
}

impl LoadedProgram {
    fn give(
        &self,
        bindings: &Bindings,
        arena: Option<&Block>,
        steps: &[LoadedStep],
        timer: Option<Timer>,
    ) -> Result<Submission> {
        let device = &self.inner.device;
        let mut encoder = Encoder::new(device);
        let (blocks, copies) = self.blocks(bindings, arena, &mut encoder)?;
        encoder.timer = timer;
        let mut run = ProgramRun { loaded: self, blocks, encoder };
        let ran = now(run.steps(steps, &mut LoopPosition::default()));
        ran.unwrap_or_else(|| Err(Error::Internal("this run must be awaited".into())))?;
        let index = run.encoder.submit()?;
        drop(copies);
        Ok(Submission { index, timer: run.encoder.timer.take() })
    }

    /// The times of all executed steps, merged by label, longest first.
    fn timings(&self, timer: &Timer) -> Vec<Timing> {
        let mut found = Vec::new();
        for (number, (step, ready)) in self.program.steps.iter().zip(&self.steps).enumerate() {
            collect(timer, number, step, ready, &mut found);
        }
        found.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
        found
    }
}

/// A submission.
struct Submission {
    index: wgpu::SubmissionIndex,
    timer: Option<Timer>,
}

fn collect(timer: &Timer, number: usize, step: &Step, ready: &LoadedStep, found: &mut Vec<Timing>) {
    let mut all = |steps: &[Step], ready: &[LoadedStep]| {
        steps.iter().zip(ready).for_each(|(s, r)| collect(timer, number, s, r, found));
    };
    match (step, ready) {
        (Step::Loop(l), LoadedStep::Loop { trip, body, .. }) => {
            if let (TripCount::While { test, .. }, LoadedTripCount::While { test: own, .. }) = (&l.trip_count, trip) {
                all(test, own);
            }
            all(&l.body, body);
        }
        (Step::Branch { branches, .. }, LoadedStep::Branch { branches: own, .. }) => {
            branches.iter().zip(own).for_each(|(s, r)| all(s, r));
        }
        _ => {
            let Some(&(calls, time)) = timer.spent.get(&(&raw const *ready).addr()) else { return };
            let host = if matches!(ready, LoadedStep::Host(_)) { " (host)" } else { "" };
            let label = format!("{}{host}", step.label());
            match found.iter_mut().find(|timing| timing.label == label) {
                Some(timing) => {
                    timing.calls += calls;
                    timing.time += time;
                    timing.steps.push((number, time));
                }
                None => found.push(Timing { label, calls, time, steps: vec![(number, time)] }),
            }
        }
    }
}

impl Executable for LoadedProgram {
    fn program(&self) -> &Program {
        &self.program
    }

    fn submit(&self, bindings: &mut Bindings) -> Result<Fence> {
        // Freed on return: the next user of the memory is later in the queue.
        let arena = self.arena()?;
        let given = self.give(bindings, arena.as_ref().map(WgpuBuffer::block), &self.steps, None)?;
        Ok(self.inner.device.fence(given.index))
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    fn run_with_arena(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
        let device = &self.inner.device;
        if arena.bytes() < self.arena_bytes {
            return Err(Error::Bindings(format!(
                "the arena has {} bytes, but a run needs {}",
                arena.bytes(),
                self.arena_bytes
            )));
        }
        let arena = own(device, arena)?.block().clone();
        let Some(steps) = self.steps.get(steps.clone()) else {
            return Err(Error::Bindings(format!(
                "steps {steps:?} are out of range for a program with {} steps",
                self.steps.len()
            )));
        };
        let given = self.give(bindings, Some(&arena), steps, None)?;
        device.fence(given.index).wait()
    }

    fn run_timed(&self, bindings: &mut Bindings) -> Result<Vec<Timing>> {
        let device = &self.inner.device;
        let Some(timer) = Timer::new(device) else { return self.run(bindings).map(|()| Vec::new()) };
        let arena = self.arena()?;
        let given = self.give(bindings, arena.as_ref().map(WgpuBuffer::block), &self.steps, Some(timer))?;
        device.synchronize()?;
        Ok(given.timer.map_or_else(Vec::new, |t| self.timings(&t)))
    }
}
