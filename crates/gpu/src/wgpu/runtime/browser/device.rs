//! The browser's device: its limits, its memory, its errors.

use super::super::coop_matrix::CoopMatrixSize;
use super::super::copy_fill;
use super::super::pool::{Block, Pool, Usage, class};
use super::groups::Groups;
use super::host;
use super::later::Signal;
use super::pipelines::{Pipeline, Pipelines};
use super::task_queue::TaskQueue;
use compiler::{Error, Fence, ReadFuture, Result};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The bytes of the parameters of one submission.
pub(super) const PARAMS: usize = 1 << 20;
/// The maximum bytes of the parameters of one dispatch.
pub(super) const RECORD: usize = 256;
/// The maximum bytes of cached memory, unless more is in use.
const SPARE: usize = 256 << 20;

const LARGE: &str =
    "; that is more than this adapter allows a buffer to have: smaller shapes or a smaller batch need less";

/// The limits of the adapter.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct GridLimits {
    pub(in super::super) max_storage_buffers_per_shader_stage: u32,
    pub(super) max_storage_buffer_binding_size: usize,
    pub(super) max_buffer_size: usize,
    pub(super) max_compute_workgroup_storage_size: usize,
    pub(super) max_compute_invocations_per_workgroup: u32,
    pub(super) max_compute_workgroup_size_x: u32,
    pub(super) max_compute_workgroups_per_dimension: u32,
    pub(super) min_uniform_buffer_offset_alignment: usize,
    /// Whether the adapter is a software implementation on the CPU.
    pub(super) software: bool,
}

impl GridLimits {
    fn ask() -> Option<GridLimits> {
        let mut all = [0.0f64; 9];
        if host::gpu_limits(all.as_mut_ptr()) == 0 {
            return None;
        }
        let size = |x: f64| x.min(isize::MAX as f64) as usize;
        Some(GridLimits {
            max_storage_buffers_per_shader_stage: all[0] as u32,
            max_storage_buffer_binding_size: size(all[1]),
            max_buffer_size: size(all[2]),
            max_compute_workgroup_storage_size: size(all[3]),
            max_compute_invocations_per_workgroup: all[4] as u32,
            max_compute_workgroup_size_x: all[5] as u32,
            max_compute_workgroups_per_dimension: all[6] as u32,
            min_uniform_buffer_offset_alignment: size(all[7]),
            software: all[8] != 0.0,
        })
    }
}

/// A JavaScript buffer, freed with its last reference.
#[derive(Clone)]
pub(in super::super) struct Buffer(Arc<Number>);

struct Number(u32);

impl Drop for Number {
    fn drop(&mut self) {
        host::gpu_free(self.0);
    }
}

impl Buffer {
    pub(super) fn number(&self) -> u32 {
        self.0.0
    }
}

/// The browser's device.
pub(in super::super) struct Device {
    pub(in super::super) limits: GridLimits,
    pub(super) name: String,
    pub(super) groups: Groups,
    pub(in super::super) pipelines: Pipelines,
    pub(in super::super) tasks: TaskQueue,
    memory: Pool,
    faults: Mutex<Faults>,
    pub(super) submits: AtomicUsize,
    pub(super) dispatches: AtomicUsize,
}

/// Asynchronous errors.
#[derive(Default)]
struct Faults {
    lost: Option<String>,
    error: Option<String>,
}

/// The only device, which receives the messages of JavaScript.
static CURRENT: Mutex<Weak<Device>> = Mutex::new(Weak::new());

pub(super) fn current() -> Option<Arc<Device>> {
    CURRENT.lock().unwrap_or_else(|e| e.into_inner()).upgrade()
}

impl Device {
    /// The device that JavaScript has opened.
    pub(super) fn open() -> Result<Arc<Device>> {
        if let Some(device) = current() {
            return Ok(device);
        }
        let limits = GridLimits::ask().ok_or_else(|| {
            Error::Backend("no WebGPU device is open; `await init({ device: \"webgpu\" })` opens one".into())
        })?;
        let mut name = vec![0; 200];
        let n = host::gpu_name(name.as_mut_ptr(), name.len());
        name.truncate(n);
        let device = Arc::new(Device {
            limits,
            name: String::from_utf8_lossy(&name).into_owned(),
            groups: Groups::default(),
            pipelines: Pipelines::default(),
            tasks: TaskQueue::default(),
            memory: Pool::default(),
            faults: Mutex::default(),
            submits: AtomicUsize::new(0),
            dispatches: AtomicUsize::new(0),
        });
        *CURRENT.lock().unwrap_or_else(|e| e.into_inner()) = Arc::downgrade(&device);
        Ok(device)
    }

    /// Browsers do not support cooperative matrices.
    pub(in super::super) fn squares(&self) -> Option<CoopMatrixSize> {
        None
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn fail(&self, lost: bool, text: &str) {
        let mut f = self.faults();
        let slot = if lost { &mut f.lost } else { &mut f.error };
        slot.get_or_insert_with(|| text.to_string());
    }

    /// Returns the errors since the last check.
    pub(in super::super) fn check(&self) -> Result<()> {
        let mut f = self.faults();
        if let Some(why) = &f.lost {
            return Err(Error::Backend(format!(
                "the GPU {} was lost ({why}); what was on it is gone: reload the page",
                self.name
            )));
        }
        match f.error.take() {
            Some(e) => Err(Error::Backend(format!("WebGPU: {e}"))),
            None => Ok(()),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// Returns unused cached memory to the browser.
    pub(super) fn release(&self) -> usize {
        self.groups.clear();
        self.memory.release()
    }

    /// The copy kernel.
    pub(in super::super) fn moves(&self, homes: &[usize]) -> Result<Arc<Pipeline>> {
        let mut made = self.pipelines.get(self, &[copy_fill::copy_text(homes)])?;
        Ok(made.remove(0))
    }

    /// The maximum bytes of a binding.
    pub(in super::super) fn binding(&self) -> usize {
        self.limits.max_storage_buffer_binding_size / 256 * 256
    }

    /// Allocates device memory.
    pub(in super::super) fn take(&self, bytes: usize) -> Result<Block> {
        let most = self.limits.max_buffer_size;
        if bytes > most {
            return Err(Error::OutOfMemory { bytes, hint: LARGE });
        }
        let size = match class(bytes) {
            c if c <= most => c,
            _ => bytes.next_multiple_of(4).min(most),
        };
        if let Some(block) = self.memory.take(size) {
            return Ok(block);
        }
        let buffer = Buffer(Arc::new(Number(host::gpu_buffer(size))));
        self.memory.made(size);
        Ok(Block::new(buffer, size))
    }

    /// Frees memory; work that uses it may still be in progress.
    pub(in super::super) fn give(&self, block: Block) {
        self.memory.give(block);
        // Out-of-memory errors are reported too late, so the amount of cached memory is limited.
        let usage = self.memory.usage();
        if usage.pooled > SPARE.max(usage.live) {
            self.release();
        }
    }

    /// Writes whole words, in submission order.
    pub(in super::super) fn write(&self, to: &Block, byte: usize, from: &[u8]) {
        host::gpu_write(to.buffer.number(), byte, from.as_ptr(), from.len());
    }

    /// Starts a copy to the host; the range is extended to whole words.
    pub(in super::super) fn read_later(
        self: &Arc<Device>,
        from: &Block,
        offset: usize,
        bytes: usize,
    ) -> Result<ReadFuture> {
        if bytes == 0 {
            return Ok(ReadFuture::ready(Vec::new()));
        }
        let start = offset / 4 * 4;
        let padded = (offset + bytes - start).next_multiple_of(4);
        let signal = Signal::new();
        host::gpu_read(from.buffer.number(), start, padded, signal.number);
        self.submits.fetch_add(1, Relaxed);
        let (device, skip) = (self.clone(), offset - start);
        Ok(ReadFuture::after_fence(signal.fence(), move || {
            device.check()?;
            let mut all = signal.bytes();
            if all.len() != padded {
                return Err(Error::Backend(format!("reading {bytes} bytes: {} came", all.len())));
            }
            all.truncate(skip + bytes);
            all.drain(..skip);
            Ok(all)
        }))
    }

    /// A fence for all work that was submitted so far.
    pub(super) fn settled(self: &Arc<Device>) -> Fence {
        let signal = Signal::new();
        let (told, device) = (signal.clone(), self.clone());
        let given = self.tasks.give(self, async move {
            host::gpu_fence(told.number);
            Ok(())
        });
        if let Err(e) = given {
            signal.set(Err(e.to_string()));
        }
        signal.fence_then(move || device.check())
    }

    /// Copies to the host, in queue order.
    pub(in super::super) fn read_in_turn(
        self: &Arc<Device>,
        from: &Block,
        offset: usize,
        bytes: usize,
    ) -> Result<ReadFuture> {
        if !self.tasks.is_busy() {
            return self.read_later(from, offset, bytes);
        }
        let signal = Signal::new();
        let (told, device, from) = (signal.clone(), self.clone(), from.clone());
        self.tasks.give(self, async move {
            let read = match device.read_later(&from, offset, bytes) {
                Ok(reading) => reading.await,
                Err(e) => Err(e),
            };
            let how = read.map(|bytes| told.bring(bytes)).map_err(|e| e.to_string());
            told.set(how);
            Ok(())
        })?;
        Ok(ReadFuture::after_fence(signal.fence(), move || Ok(signal.bytes())))
    }
}
