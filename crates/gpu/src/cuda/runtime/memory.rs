//! Buffers of a device.

use super::device::Device;
use super::event::EventCompletion;
use super::pool::Block;
use compiler::{DeviceBuffer, Error, Fence, ReadFuture, Result};
use std::any::Any;
use std::sync::Arc;

/// The maximum bytes of an asynchronous read; larger ones are synchronous, in pieces.
const LATER: usize = 256 << 20;

/// Memory on a GPU, from its pool.
pub struct CudaBuffer {
    pub(crate) device: Arc<Device>,
    block: Block,
    bytes: usize,
}

impl CudaBuffer {
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<CudaBuffer> {
        Ok(CudaBuffer { block: device.alloc(bytes)?, device: device.clone(), bytes })
    }

    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.block.address
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<u64> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.block.address + offset as u64),
            _ => Err(Error::Bindings(format!(
                "{bytes} bytes at {offset} are out of range for a buffer of {} bytes",
                self.bytes
            ))),
        }
    }
}

impl DeviceBuffer for CudaBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.device.write(self.check(offset, from.len())?, from)
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.device.read(self.check(offset, to.len())?, to)
    }

    fn read_async(&self, offset: usize, bytes: usize) -> Result<ReadFuture> {
        let from = self.check(offset, bytes)?;
        if bytes > LATER {
            let mut all = vec![0; bytes];
            self.device.read(from, &mut all)?;
            return Ok(ReadFuture::ready(all));
        }
        let arrival = self.device.start_readback(from, bytes)?;
        let event = arrival.event().clone();
        Ok(ReadFuture::after_fence(Fence::from_completion(Arc::new(EventCompletion(event))), move || {
            arrival.into_vec()
        }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        self.device.free(self.block);
    }
}
