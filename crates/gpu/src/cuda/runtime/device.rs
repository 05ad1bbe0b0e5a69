//! The shared state of one device: the queue, the memory pools, the staging memory.

use super::context::{Context, DriverHandle};
use super::event::{Event, EventWaiter};
use super::pool::{Block, MemorySource, Pool};
use super::staging_ring::StagingRing;
use compiler::{Error, Result};
use cudarc::driver::sys as cu;
use cudarc::driver::sys::CUresult as Code;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

/// The bytes of staging memory for writes.
const RING: usize = 32 << 20;
/// The maximum bytes of it that one write uses at a time.
const PIECE: usize = 8 << 20;

/// A device with one queue, which executes operations in order.
pub(crate) struct Device {
    pub(crate) context: Arc<Context>,
    /// The queue.
    pub(crate) stream: DriverHandle<cu::CUstream>,
    /// The stream on which graphs are captured; nothing runs on it.
    pub(crate) recorder: Mutex<DriverHandle<cu::CUstream>>,
    memory: Pool,
    /// Pinned host memory for device-to-host copies.
    pinned: Pool,
    staging: Mutex<Staging>,
    pub(super) events: Mutex<Vec<DriverHandle<cu::CUevent>>>,
    pub(super) waiting: EventWaiter,
}

#[derive(Default)]
struct Staging {
    /// Pinned memory, allocated at the first use.
    ring: Option<(*mut u8, StagingRing<Event>)>,
}

// SAFETY: the ring's memory is touched under its lock alone.
unsafe impl Send for Staging {}

impl Device {
    pub(crate) fn open(ordinal: usize) -> Result<Arc<Device>> {
        let context = Context::open(ordinal)?;
        context.enter()?;
        let stream = || {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the pointer is good for one handle.
            let code = unsafe { cu::cuStreamCreate(&mut raw, cu::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
            context.check(code, || "cuStreamCreate".into()).map(|()| DriverHandle(raw))
        };
        let (own, recorder) = (stream()?, stream()?);
        Ok(Arc::new(Device {
            context,
            stream: own,
            recorder: Mutex::new(recorder),
            memory: Pool::new(
                "; the GPU has no more memory, with everything that was kept for later given up: smaller shapes or a smaller \
                 batch need less, and other programs may hold some (`nvidia-smi`)",
            ),
            pinned: Pool::new("; the driver gives no more pinned memory of the host"),
            staging: Mutex::default(),
            events: Mutex::default(),
            waiting: EventWaiter::default(),
        }))
    }

    /// Allocates device memory.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Block> {
        self.context.enter()?;
        self.memory.take(bytes, &DeviceMemorySource(self))
    }

    /// Frees memory; work that uses it may still be in progress.
    pub(crate) fn free(&self, block: Block) {
        self.memory.give(block);
    }

    pub(crate) fn usage(&self) -> super::MemoryStats {
        self.memory.usage()
    }

    /// Returns unused cached memory to the driver.
    pub(crate) fn empty_cache(&self) -> Result<usize> {
        self.context.enter()?;
        self.memory.release(&DeviceMemorySource(self))
    }

    /// Waits for all work on the device.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the stream lives as long as the device.
        let code = unsafe { cu::cuStreamSynchronize(self.stream.0) };
        self.context.check(code, || "cuStreamSynchronize".into())
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Enqueues a copy from the host. The bytes may be changed when this returns.
    pub(crate) fn write(self: &Arc<Device>, to: u64, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.context.enter()?;
        let mut guard = self.staging();
        if guard.ring.is_none() {
            let memory = self
                .pinned_memory(RING)?
                .ok_or(Error::OutOfMemory { bytes: RING, hint: "; the driver gives no pinned memory of the host" })?;
            guard.ring = Some((memory as *mut u8, StagingRing::new(RING)));
        }
        let Some((memory, ring)) = &mut guard.ring else {
            return Err(Error::Internal("staging memory that was just made".into()));
        };
        let mut at = to;
        for piece in from.chunks(PIECE) {
            while ring.oldest().is_some_and(Event::is_done) {
                ring.pop();
            }
            let start = loop {
                if let Some(start) = ring.find_space(piece.len()) {
                    break start;
                }
                if let Some(oldest) = ring.oldest() {
                    oldest.wait()?;
                }
                ring.pop();
            };
            // SAFETY: the part lies in the ring, and no copy under way reads it.
            let staged = unsafe {
                let staged = memory.add(start);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), staged, piece.len());
                staged
            };
            // SAFETY: the device address is valid for that many bytes, and the part of the ring is not used again until
            // the event.
            let code = unsafe { cu::cuMemcpyHtoDAsync_v2(at, staged.cast::<c_void>(), piece.len(), self.stream.0) };
            self.context.check(code, || format!("cuMemcpyHtoDAsync of {} bytes", piece.len()))?;
            ring.reserve(start, piece.len(), Event::record(self)?);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies to the host, and waits for the copy.
    pub(crate) fn read(self: &Arc<Device>, from: u64, to: &mut [u8]) -> Result<()> {
        let mut under_way: VecDeque<(Readback, &mut [u8])> = VecDeque::new();
        let mut at = from;
        for piece in to.chunks_mut(PIECE) {
            if under_way.len() == 2
                && let Some((arrival, to)) = under_way.pop_front()
            {
                arrival.into_slice(to)?;
            }
            let bytes = piece.len();
            under_way.push_back((self.start_readback(at, bytes)?, piece));
            at += bytes as u64;
        }
        under_way.into_iter().try_for_each(|(arrival, to)| arrival.into_slice(to))
    }

    /// Starts a copy to pinned host memory.
    pub(crate) fn start_readback(self: &Arc<Device>, from: u64, bytes: usize) -> Result<Readback> {
        self.context.enter()?;
        let block = self.pinned.take(bytes, &PinnedMemorySource(self))?;
        let arrival = |event| Readback { device: self.clone(), block, bytes, event: Arc::new(event) };
        if bytes == 0 {
            return Ok(arrival(Event::record(self)?));
        }
        // SAFETY: both sides are good for so many bytes; the block is not reused by the host before the event.
        let code = unsafe { cu::cuMemcpyDtoHAsync_v2(block.address as *mut c_void, from, bytes, self.stream.0) };
        let copied = self.context.check(code, || format!("cuMemcpyDtoHAsync of {bytes} bytes"));
        match copied.and_then(|()| Event::record(self)) {
            Ok(event) => Ok(arrival(event)),
            Err(e) => {
                self.pinned.give(block);
                Err(e)
            }
        }
    }

    /// Enqueues a copy on the device. The ranges may overlap only if they are equal.
    pub(crate) fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.context.enter()?;
        copy(&self.context, self.stream.0, from, to, bytes)
    }

    fn pinned_memory(&self, bytes: usize) -> Result<Option<u64>> {
        let mut p = std::ptr::null_mut();
        // SAFETY: the pointer is good for one address.
        let code = unsafe { cu::cuMemHostAlloc(&mut p, bytes, cu::CU_MEMHOSTALLOC_PORTABLE) };
        if code == Code::CUDA_ERROR_OUT_OF_MEMORY {
            return Ok(None);
        }
        self.context.check(code, || format!("cuMemHostAlloc of {bytes} bytes")).map(|()| Some(p as u64))
    }
}

/// Enqueues a device copy on a stream.
pub(crate) fn copy(context: &Context, stream: cu::CUstream, from: u64, to: u64, bytes: usize) -> Result<()> {
    if bytes == 0 || from == to {
        return Ok(());
    }
    // SAFETY: both device addresses are valid for that many bytes.
    let code = unsafe { cu::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) };
    context.check(code, || format!("cuMemcpyDtoDAsync of {bytes} bytes"))
}

/// Enqueues a fill with zeros on a stream.
pub(crate) fn zero(context: &Context, stream: cu::CUstream, to: u64, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the device address is valid for that many bytes.
    let code = unsafe { cu::cuMemsetD8Async(to, 0, bytes, stream) };
    context.check(code, || format!("cuMemsetD8Async of {bytes} bytes"))
}

/// Bytes that are being copied to the host.
pub(crate) struct Readback {
    device: Arc<Device>,
    block: Block,
    bytes: usize,
    event: Arc<Event>,
}

impl Readback {
    pub(crate) fn event(&self) -> &Arc<Event> {
        &self.event
    }

    /// Waits for the bytes and copies them.
    pub(crate) fn into_slice(self, to: &mut [u8]) -> Result<()> {
        self.event.wait()?;
        let n = to.len().min(self.bytes);
        // SAFETY: the copy is done, and the block has so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.block.address as *const u8, to.as_mut_ptr(), n) };
        Ok(())
    }

    pub(crate) fn into_vec(self) -> Result<Vec<u8>> {
        self.event.wait()?;
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(self.block.address as *const u8, self.bytes) }.to_vec())
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        // By queue order, the device writes to the block for its next user after this copy.
        self.device.pinned.give(self.block);
    }
}

/// The device memory source of a pool.
struct DeviceMemorySource<'a>(&'a Device);

impl MemorySource for DeviceMemorySource<'_> {
    fn take(&self, bytes: usize) -> Result<Option<u64>> {
        let mut address = 0;
        // SAFETY: the pointer is good for one address.
        let code = unsafe { cu::cuMemAlloc_v2(&mut address, bytes) };
        if code == Code::CUDA_ERROR_OUT_OF_MEMORY {
            return Ok(None);
        }
        self.0.context.check(code, || format!("cuMemAlloc of {bytes} bytes")).map(|()| Some(address))
    }

    fn give(&self, address: u64) {
        // SAFETY: it came from `take`, and nothing uses it any more.
        let code = unsafe { cu::cuMemFree_v2(address) };
        // The context stores a fault; no error can be returned here.
        let _ = self.0.context.check(code, || "cuMemFree".into());
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

/// The pinned host memory source of a pool.
struct PinnedMemorySource<'a>(&'a Device);

impl MemorySource for PinnedMemorySource<'_> {
    fn take(&self, bytes: usize) -> Result<Option<u64>> {
        self.0.pinned_memory(bytes)
    }

    fn give(&self, address: u64) {
        // SAFETY: it came from `take`, and nothing uses it any more.
        let code = unsafe { cu::cuMemFreeHost(address as *mut c_void) };
        let _ = self.0.context.check(code, || "cuMemFreeHost".into());
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A destroyed context has freed everything else.
        if self.synchronize().is_err() || !self.context.enter_for_drop() {
            return;
        }
        if let Some((memory, _)) = self.staging().ring.take() {
            PinnedMemorySource(self).give(memory as u64);
        }
        self.pinned.clear(&PinnedMemorySource(self));
        self.memory.clear(&DeviceMemorySource(self));
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(|e| e.into_inner()));
        let recorder = *self.recorder.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: nothing uses them any more: whoever did held the device.
        unsafe {
            for e in events {
                cu::cuEventDestroy_v2(e.0);
            }
            cu::cuStreamDestroy_v2(recorder.0);
            cu::cuStreamDestroy_v2(self.stream.0);
        }
    }
}
