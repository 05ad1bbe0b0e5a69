//! `Wgpu`: the backend.

use super::adapter::{Choice, now};
use super::attention::Attention;
use super::device::Device;
use super::encode::Encoder;
use super::execute::{Position, Run};
use super::load::{Loaded, Ready, ReadyTrip};
use super::memory::{WgpuBuffer, own};
use super::moves;
use super::pool::{Block, Usage};
use super::rows::Rows;
use super::timer::Timer;
use super::tuned::{self, Trial, Tuned};
use crate::grid::Limits;
use crate::library::{self, Means};
use crate::wgpu::target;
use compiler::program::{Matmul, Program, Step, Trip};
use compiler::{Backend, Bindings, DeviceBuffer, Error, Executable, Fence, Result, Runs, Target, Timing};
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

/// What a device's programs share.
pub(super) struct Inner {
    pub(super) device: Arc<Device>,
    /// What its kernels may be.
    pub(super) limits: Limits,
    /// Runs what the device lacks.
    pub(super) host: Arc<dyn Backend>,
    /// How products are computed best, as far as that was measured.
    pub(super) tuned: Tuned,
}

impl Inner {
    /// What library ops may ask for.
    pub(super) fn means(&self) -> Means {
        let binding = self.device.binding();
        Means { limits: self.limits, products: target(8, binding).products.dtypes, temporary: binding }
    }
}

impl Wgpu {
    /// Opens an adapter; `host` runs the ops that it lacks.
    pub fn open(choice: Choice, host: Arc<dyn Backend>) -> Result<Wgpu> {
        Ok(Wgpu::with(Device::open(choice)?, host))
    }

    fn with(device: Arc<Device>, host: Arc<dyn Backend>) -> Wgpu {
        let l = &device.limits;
        let most = l.max_compute_invocations_per_workgroup.min(l.max_compute_workgroup_size_x).min(1024);
        let threads = 1 << most.max(1).ilog2();
        let limits = Limits {
            threads: threads.min(256),
            usual: threads.min(128),
            shared: (l.max_compute_workgroup_storage_size as usize).min(32 << 10),
            blocks: l.max_compute_workgroups_per_dimension,
            ..Limits::WEBGPU
        };
        let binding = l.max_storage_buffer_binding_size as usize;
        let target = target(l.max_storage_buffers_per_shader_stage as usize, binding);
        let tuned = Tuned::read(&device.info);
        Wgpu { inner: Arc::new(Inner { device, limits, host, tuned }), target }
    }

    /// Measures the ways to compute a product, keeps the best one, here and on disk, and tells all times. A way whose results are not
    /// those of the plain one is never chosen.
    pub fn tune(&self, shape: &Matmul) -> Result<Vec<Trial>> {
        tuned::tune(self, shape)
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Memory in use.
    pub fn usage(&self) -> Usage {
        self.inner.device.usage()
    }

    /// Gives memory that nobody uses back to the driver, and says how many bytes.
    pub fn release(&self) -> usize {
        self.inner.device.release()
    }

    /// Submissions and dispatches since the device was opened.
    pub fn work(&self) -> (usize, usize) {
        (self.inner.device.submits.load(Relaxed), self.inner.device.dispatches.load(Relaxed))
    }

    /// Whether the adapter is a program on the CPU.
    pub fn is_software(&self) -> bool {
        self.inner.device.info.device_type == wgpu::DeviceType::Cpu
    }

    /// Destroys the device, as a driver does when it fails: for tests of what comes after.
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

    fn claims(&self, composite: &Composite, args: &[Type]) -> bool {
        Attention::composite(composite, args, &self.inner.limits).is_some()
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(WgpuBuffer::new(&self.inner.device, bytes)?))
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Loaded::new(&self.inner, program)?))
    }

    fn runs(&self, op: &Op, args: &[Type]) -> Runs {
        let own = Rows::of(op, args).is_some() || Attention::of(op, args, &self.inner.limits).is_some();
        if own || library::takes(op, args, &self.inner.means()) { Runs::Here } else { Runs::Host }
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
        moves::copy(&mut encoder, to.block(), 0, from.block(), 0, bytes)?;
        encoder.submit().map(drop)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.device.synchronize()
    }

    fn kernels(&self) -> usize {
        self.inner.device.pipelines.len()
    }
}

impl Loaded {
    fn give(&self, bindings: &Bindings, arena: Option<&Block>, steps: &[Ready], timer: Option<Timer>) -> Result<Given> {
        let device = &self.inner.device;
        let mut encoder = Encoder::new(device);
        let (blocks, copies) = self.blocks(bindings, arena, &mut encoder)?;
        encoder.timer = timer;
        let mut run = Run { loaded: self, blocks, encoder };
        let ran = now(run.steps(steps, &mut Position::default()));
        ran.unwrap_or_else(|| Err(Error::Internal("this run must be awaited".into())))?;
        let index = run.encoder.submit()?;
        drop(copies);
        Ok(Given { index, timer: run.encoder.timer.take() })
    }

    /// Times of all steps that ran, equal labels together, the longest first.
    fn timings(&self, timer: &Timer) -> Vec<Timing> {
        let mut found = Vec::new();
        for (number, (step, ready)) in self.program.steps.iter().zip(&self.steps).enumerate() {
            collect(timer, number, step, ready, &mut found);
        }
        found.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
        found
    }
}

/// What was submitted.
struct Given {
    index: wgpu::SubmissionIndex,
    timer: Option<Timer>,
}

fn collect(timer: &Timer, number: usize, step: &Step, ready: &Ready, found: &mut Vec<Timing>) {
    let mut all = |steps: &[Step], ready: &[Ready]| {
        steps.iter().zip(ready).for_each(|(s, r)| collect(timer, number, s, r, found));
    };
    match (step, ready) {
        (Step::Loop(l), Ready::Loop { trip, body, .. }) => {
            if let (Trip::While { test, .. }, ReadyTrip::While { test: own, .. }) = (&l.trip, trip) {
                all(test, own);
            }
            all(&l.body, body);
        }
        (Step::Branch { branches, .. }, Ready::Branch { branches: own, .. }) => {
            branches.iter().zip(own).for_each(|(s, r)| all(s, r));
        }
        _ => {
            let Some(&(calls, time)) = timer.spent.get(&(&raw const *ready).addr()) else { return };
            let host = if matches!(ready, Ready::Host(_)) { " (host)" } else { "" };
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

impl Executable for Loaded {
    fn program(&self) -> &Program {
        &self.program
    }

    fn submit(&self, bindings: &mut Bindings) -> Result<Fence> {
        // Given back when this returns: whoever takes it next comes later in the queue.
        let arena = self.arena()?;
        let given = self.give(bindings, arena.as_ref().map(WgpuBuffer::block), &self.steps, None)?;
        Ok(self.inner.device.fence(given.index))
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    fn run_in(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
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
