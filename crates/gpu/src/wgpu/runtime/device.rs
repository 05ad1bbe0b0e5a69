//! The shared state of one device: the queue, the memory pools, the errors.

use super::adapter::{self, WgpuOptions, now};
use super::completion::{Signal, Waiting};
use super::coop_matrix::CoopMatrixSize;
use super::copy_fill;
use super::groups::Groups;
use super::pipelines::{Pipeline, Pipelines};
use super::pool::{Block, Pool, Usage, class};
use compiler::{Error, Fence, ReadFuture, Result};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
pub(super) use wgpu::Buffer;
use wgpu::{BufferDescriptor, BufferUsages, DeviceDescriptor, ErrorFilter, PollType, SubmissionIndex};

/// The bytes of the parameters of one submission.
pub(super) const PARAMS: usize = 1 << 20;
/// The maximum bytes of the parameters of one dispatch.
pub(super) const RECORD: usize = 256;
/// Larger reads are split into pieces.
const PIECE: usize = 64 << 20;

const FULL: &str = "; the GPU has no more memory, with everything that was kept for later given up: smaller shapes or a smaller \
                    batch need less";
const LARGE: &str =
    "; that is more than this adapter allows a buffer to have: smaller shapes or a smaller batch need less";

/// A device with one queue, which executes operations in order.
pub(super) struct Device {
    pub(super) raw: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) info: wgpu::AdapterInfo,
    pub(super) limits: wgpu::Limits,
    pub(super) features: wgpu::Features,
    squares: Option<CoopMatrixSize>,
    pub(super) groups: Groups,
    pub(super) pipelines: Pipelines,
    memory: Pool,
    /// Host-visible buffers that results are copied to.
    staging: Pool,
    params: Mutex<Vec<Params>>,
    faults: Arc<Faults>,
    pub(super) submits: AtomicUsize,
    pub(super) dispatches: AtomicUsize,
    pub(super) waiting: Waiting,
}

/// The parameters of a submission's dispatches, and the bind group of one of them.
#[derive(Clone)]
pub(super) struct Params {
    pub(super) buffer: wgpu::Buffer,
    pub(super) group: wgpu::BindGroup,
}

/// Asynchronous errors.
#[derive(Default)]
struct Faults {
    lost: Mutex<Option<String>>,
    error: Mutex<Option<String>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl Device {
    pub(super) fn open(choice: WgpuOptions) -> Result<Arc<Device>> {
        let adapter = adapter::choose(choice)?;
        let (features, limits) = adapter::wants(&adapter, choice.default_limits_only);
        let asked = DeviceDescriptor {
            label: Some("tensorloom"),
            required_features: features,
            required_limits: limits.clone(),
            // SAFETY: cooperative matrices are the one experiment that is asked for. What they compute is checked like all else, and they
            // touch no memory but shared arrays of the kernel's own.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            ..DeviceDescriptor::default()
        };
        let opened = now(adapter.request_device(&asked));
        let (raw, queue) = match opened {
            Some(Ok(pair)) => pair,
            Some(Err(e)) => return Err(Error::Backend(format!("cannot open {}: {e}", adapter::name(&adapter)))),
            None => return Err(Error::Backend("this device can only be opened asynchronously: await it".into())),
        };
        let squares = adapter::squares(&adapter, features);
        Ok(Device::new(raw, queue, adapter.get_info(), limits, features, squares))
    }

    pub(super) fn new(
        raw: wgpu::Device,
        queue: wgpu::Queue,
        info: wgpu::AdapterInfo,
        limits: wgpu::Limits,
        features: wgpu::Features,
        squares: Option<CoopMatrixSize>,
    ) -> Arc<Device> {
        let faults = Arc::new(Faults::default());
        let (errors, losses) = (faults.clone(), faults.clone());
        raw.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
            lock(&errors.error).get_or_insert_with(|| e.to_string());
        }));
        raw.set_device_lost_callback(move |reason, message| {
            lock(&losses.lost).get_or_insert_with(|| format!("{reason:?}: {message}"));
        });
        let groups = Groups::new(&raw);
        let pipelines = Pipelines::new(&raw, &info, features);
        Arc::new(Device {
            raw,
            queue,
            info,
            limits,
            features,
            squares,
            groups,
            pipelines,
            memory: Pool::default(),
            staging: Pool::default(),
            params: Mutex::default(),
            faults,
            submits: AtomicUsize::new(0),
            dispatches: AtomicUsize::new(0),
            waiting: Waiting::default(),
        })
    }

    /// The size of its cooperative matrices, if it supports them.
    pub(super) fn squares(&self) -> Option<CoopMatrixSize> {
        self.squares
    }

    /// The error of a lost device.
    pub(super) fn lost(&self) -> Option<Error> {
        let lost = lock(&self.faults.lost);
        lost.as_ref().map(|why| {
            Error::Backend(format!(
                "the GPU {} was lost ({why}); what was on it is gone: open the device again",
                self.info.name
            ))
        })
    }

    /// Returns the errors since the last check.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        match lock(&self.faults.error).take() {
            Some(e) if e.contains("Out of Memory") => Err(Error::OutOfMemory { bytes: 0, hint: FULL }),
            Some(e) => Err(Error::Backend(format!("WebGPU: {e}"))),
            None => Ok(()),
        }
    }

    /// Runs the callbacks of completed work.
    pub(super) fn poll(&self) {
        // A failure means that the device is lost, which has a separate callback.
        let _ = self.raw.poll(PollType::Poll);
    }

    /// Waits for a submission, or for all submitted work.
    pub(super) fn wait(&self, submission_index: Option<SubmissionIndex>) -> Result<()> {
        match self.raw.poll(PollType::Wait { submission_index, timeout: None }) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.lost().unwrap_or_else(|| Error::Backend(format!("waiting for the GPU: {e}")))),
        }
    }

    /// Waits for all submitted work.
    pub(super) fn synchronize(&self) -> Result<()> {
        // Pending writes are executed by the next submission.
        self.queue.submit([]);
        self.wait(None)?;
        self.check()
    }

    pub(super) fn usage(&self) -> Usage {
        self.memory.usage()
    }

    /// Returns unused cached memory to the driver.
    pub(super) fn release(&self) -> usize {
        self.groups.clear();
        self.staging.release();
        self.memory.release()
    }

    /// The copy kernel.
    pub(super) fn moves(&self, homes: &[usize]) -> Result<Arc<Pipeline>> {
        let mut made = self.pipelines.get(self, &[copy_fill::copy_text(homes)])?;
        Ok(made.remove(0))
    }

    fn make(&self, size: usize, usage: BufferUsages) -> Option<wgpu::Buffer> {
        let scope = self.raw.push_error_scope(ErrorFilter::OutOfMemory);
        let desc = BufferDescriptor { label: None, size: size as u64, usage, mapped_at_creation: false };
        let buffer = self.raw.create_buffer(&desc);
        match now(scope.pop()) {
            Some(Some(_)) => None,
            _ => Some(buffer),
        }
    }

    /// The maximum bytes of a binding.
    pub(super) fn binding(&self) -> usize {
        self.limits.max_storage_buffer_binding_size.min(isize::MAX as u64) as usize / 256 * 256
    }

    fn block(&self, pool: &Pool, bytes: usize, usage: BufferUsages) -> Result<Block> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        let most = self.limits.max_buffer_size.min(isize::MAX as u64) as usize;
        if bytes > most {
            return Err(Error::OutOfMemory { bytes, hint: LARGE });
        }
        let size = match class(bytes) {
            c if c <= most => c,
            _ => bytes.next_multiple_of(4).min(most),
        };
        if let Some(block) = pool.take(size) {
            return Ok(block);
        }
        let mut made = self.make(size, usage);
        if made.is_none() {
            self.release();
            self.wait(None)?;
            made = self.make(size, usage);
        }
        let buffer = made.ok_or(Error::OutOfMemory { bytes, hint: FULL })?;
        self.check()?;
        pool.made(size);
        Ok(Block::new(buffer, size))
    }

    /// Allocates device memory.
    pub(super) fn take(&self, bytes: usize) -> Result<Block> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        self.block(&self.memory, bytes, usage)
    }

    /// Frees memory; work that uses it may still be in progress.
    pub(super) fn give(&self, block: Block) {
        self.memory.give(block);
    }

    /// Writes whole words, in submission order.
    pub(super) fn write(&self, to: &Block, byte: usize, from: &[u8]) {
        self.queue.write_buffer(&to.buffer, byte as u64, from);
    }

    /// Allocates memory for the parameters of a submission.
    pub(super) fn params(&self) -> Params {
        if let Some(p) = lock(&self.params).pop() {
            return p;
        }
        let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let desc = BufferDescriptor { label: None, size: PARAMS as u64, usage, mapped_at_creation: false };
        let buffer = self.raw.create_buffer(&desc);
        let group = self.groups.params(&self.raw, &buffer);
        Params { buffer, group }
    }

    /// Frees it after the submission: the next parameters are written later in the queue.
    pub(super) fn give_params(&self, p: Params) {
        lock(&self.params).push(p);
    }

    pub(super) fn submit(&self, commands: wgpu::CommandBuffer) -> Result<SubmissionIndex> {
        let index = self.queue.submit([commands]);
        self.submits.fetch_add(1, Relaxed);
        self.check()?;
        Ok(index)
    }

    /// A fence after the last submission.
    pub(super) fn fence(self: &Arc<Device>, index: SubmissionIndex) -> Fence {
        let signal = Signal::new(self, Some(index));
        let done = signal.clone();
        self.queue.on_submitted_work_done(move || done.set(Ok(())));
        signal.fence()
    }

    /// Copies whole words to a host-visible buffer; the range is extended to words.
    fn arrive(self: &Arc<Device>, from: &Block, offset: usize, bytes: usize) -> Result<ReadFuture> {
        let start = offset / 4 * 4;
        let padded = (offset + bytes - start).next_multiple_of(4);
        let staged = self.block(&self.staging, padded, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        let mut encoder = self.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&from.buffer, start as u64, &staged.buffer, 0, Some(padded as u64));
        let index = match self.submit(encoder.finish()) {
            Ok(i) => i,
            Err(e) => {
                self.staging.give(staged);
                return Err(e);
            }
        };
        let signal = Signal::new(self, Some(index));
        let done = signal.clone();
        let range = 0..padded as u64;
        staged.buffer.map_async(wgpu::MapMode::Read, range.clone(), move |r| done.set(r.map_err(|e| e.to_string())));
        let device = self.clone();
        let skip = offset - start;
        Ok(ReadFuture::after_fence(signal.fence(), move || {
            let taken = match staged.buffer.get_mapped_range(range) {
                Ok(view) => Ok(view[skip..skip + bytes].to_vec()),
                Err(e) => Err(Error::Backend(format!("reading {bytes} bytes: {e}"))),
            };
            staged.buffer.unmap();
            device.staging.give(staged);
            taken
        }))
    }

    /// Starts a copy to the host.
    pub(super) fn read_later(self: &Arc<Device>, from: &Block, offset: usize, bytes: usize) -> Result<ReadFuture> {
        if bytes == 0 {
            return Ok(ReadFuture::ready(Vec::new()));
        }
        if bytes <= PIECE {
            return self.arrive(from, offset, bytes);
        }
        // In pieces: the fence of the last one follows all others.
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes {
            let n = PIECE.min(bytes - at);
            pieces.push(self.arrive(from, offset + at, n)?);
            at += n;
        }
        let last = self.fence(self.queue.submit([]));
        Ok(ReadFuture::after_fence(last, move || {
            let mut all = Vec::with_capacity(bytes);
            for p in pieces {
                all.extend(p.wait()?);
            }
            Ok(all)
        }))
    }
}
