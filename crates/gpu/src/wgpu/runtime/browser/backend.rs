//! `Wgpu` in the browser.

use super::super::attention::Attention;
use super::super::copy_fill;
use super::super::execute::{LoopPosition, ProgramRun};
use super::super::load::LoadedProgram;
use super::super::memory::{WgpuBuffer, own};
use super::super::pool::Usage;
use super::super::product::MatmulTiling;
use super::super::scatter_rows::RowScatter;
use super::device::Device;
use super::encode::Encoder;
use super::host;
use super::later::Signal;
use crate::grid::GridLimits;
use crate::library::{self, DeviceCaps};
use crate::wgpu::target;
use compiler::program::{Matmul, Program};
use compiler::{Backend, Bindings, DeviceBuffer, Error, Executable, Fence, OpPlacement, Result, Target};
use ir::ops::Composite;
use ir::{Op, Type};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The adapter of the browser. Programs, writes and copies return immediately; a read must be awaited.
pub struct Wgpu {
    inner: Arc<Inner>,
    target: Target,
}

/// The state that a device's programs share.
pub(in super::super) struct Inner {
    pub(in super::super) device: Arc<Device>,
    /// The limits of its kernels.
    pub(in super::super) limits: GridLimits,
    /// OpPlacement what the device lacks.
    pub(in super::super) host: Arc<dyn Backend>,
    pub(in super::super) tuned: Untuned,
}

impl Inner {
    /// The device capabilities for library ops.
    pub(in super::super) fn means(&self) -> DeviceCaps {
        let binding = self.device.binding();
        DeviceCaps {
            limits: self.limits,
            matmul_dtypes: target(8, binding).matmul.dtypes,
            max_temporary_bytes: binding,
        }
    }
}

/// There is no autotuning in the browser, whose clocks are too coarse.
pub(in super::super) struct Untuned;

impl Untuned {
    pub(in super::super) fn way(&self, _: &Matmul) -> Option<MatmulTiling> {
        None
    }
}

impl Wgpu {
    /// The device that JavaScript has opened; `host` runs the ops that it does not support.
    pub fn open(host: Arc<dyn Backend>) -> Result<Wgpu> {
        let device = Device::open()?;
        let l = &device.limits;
        let most = l.max_compute_invocations_per_workgroup.min(l.max_compute_workgroup_size_x).min(1024);
        let threads = 1 << most.max(1).ilog2();
        let limits = GridLimits {
            threads: threads.min(256),
            default_threads: threads.min(128),
            max_shared_bytes: l.max_compute_workgroup_storage_size.min(32 << 10),
            blocks: l.max_compute_workgroups_per_dimension,
            ..GridLimits::WEBGPU
        };
        let target = target(l.max_storage_buffers_per_shader_stage as usize, l.max_storage_buffer_binding_size);
        Ok(Wgpu { inner: Arc::new(Inner { device, limits, host, tuned: Untuned }), target })
    }

    /// The memory statistics.
    pub fn usage(&self) -> Usage {
        self.inner.device.usage()
    }

    /// Returns unused cached memory to the browser, and returns the number of bytes.
    pub fn release(&self) -> usize {
        self.inner.device.release()
    }

    /// The number of submissions and of dispatches since the device was opened.
    pub fn work(&self) -> (usize, usize) {
        (self.inner.device.submits.load(Relaxed), self.inner.device.dispatches.load(Relaxed))
    }

    /// The WGSL source of a program's kernels, each once.
    pub fn texts(&self, program: Program) -> Result<Vec<String>> {
        let loaded = LoadedProgram::new(&self.inner, program)?;
        Ok(loaded.pipelines.iter().map(|p| p.source.clone()).collect())
    }
}

impl Backend for Wgpu {
    fn name(&self) -> String {
        format!("webgpu ({})", self.inner.device.name)
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool {
        // The attention kernel has a barrier for every strip of keys. On software adapters that is so slow
        // that browsers end the process; there attention is inlined to products and row kernels.
        !self.inner.device.limits.software && Attention::composite(composite, args, &self.inner.limits).is_some()
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(WgpuBuffer::new(&self.inner.device, bytes)?))
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Ready(Arc::new(LoadedProgram::new(&self.inner, program)?))))
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
        let device = self.inner.device.clone();
        let (from, to) = (own(&device, from)?, own(&device, to)?);
        if bytes > from.bytes() || bytes > to.bytes() {
            return Err(Error::Bindings(format!(
                "a copy of {bytes} bytes from a buffer of {} to one of {}",
                from.bytes(),
                to.bytes()
            )));
        }
        let (from, to) = (from.block().clone(), to.block().clone());
        self.inner.device.tasks.give(&self.inner.device, async move {
            let mut encoder = Encoder::new(&device);
            copy_fill::copy(&mut encoder, &to, 0, &from, 0, bytes)?;
            encoder.submit()
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.device.settled().wait()
    }

    fn kernels(&self) -> usize {
        self.inner.device.pipelines.len()
    }
}

/// A program of this device.
struct Ready(Arc<LoadedProgram>);

impl Ready {
    /// Submits a run to the device, and then a fence if requested.
    fn give(&self, bindings: &Bindings, fence: Option<Arc<Signal>>) -> Result<()> {
        let loaded = self.0.clone();
        bindings.check(&loaded.program)?;
        let device = loaded.inner.device.clone();
        device.check()?;
        let own = Bindings { inputs: bindings.inputs.clone(), outputs: bindings.outputs.clone() };
        let run = async move {
            let device = &loaded.inner.device;
            let arena = loaded.arena()?;
            let mut encoder = Encoder::new(device);
            let (blocks, copies) = loaded.blocks(&own, arena.as_ref().map(WgpuBuffer::block), &mut encoder)?;
            let mut run = ProgramRun { loaded: &loaded, blocks, encoder };
            run.steps(&loaded.steps, &mut LoopPosition::default()).await?;
            run.encoder.submit()?;
            drop(copies);
            Ok(())
        };
        device.tasks.give(&device, async move {
            let how: Result<()> = run.await;
            if let Some(signal) = fence {
                match &how {
                    Ok(()) => host::gpu_fence(signal.number),
                    Err(e) => signal.set(Err(e.to_string())),
                }
            }
            how
        })
    }
}

impl Executable for Ready {
    fn program(&self) -> &Program {
        &self.0.program
    }

    fn submit(&self, bindings: &mut Bindings) -> Result<Fence> {
        let signal = Signal::new();
        self.give(bindings, Some(signal.clone()))?;
        Ok(signal.fence())
    }

    /// Blocking is not possible here: later operations on the device see the results, and reads are awaited.
    fn run(&self, bindings: &mut Bindings) -> Result<()> {
        self.give(bindings, None)
    }

    fn arena_bytes(&self) -> usize {
        self.0.arena_bytes
    }
}
