//! Buffers of a device.

use super::copy_fill;
use super::device::Device;
use super::encode::Encoder;
use super::pool::Block;
use compiler::{DeviceBuffer, Error, ReadFuture, Result};
use std::any::Any;
use std::sync::Arc;

/// Memory on an adapter, from its pool.
pub struct WgpuBuffer {
    pub(super) device: Arc<Device>,
    block: Option<Block>,
    bytes: usize,
}

impl WgpuBuffer {
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<WgpuBuffer> {
        Ok(WgpuBuffer { block: Some(device.take(bytes)?), device: device.clone(), bytes })
    }

    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("it goes when the buffer goes")
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<()> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::Bindings(format!(
                "{bytes} bytes at {offset} are out of range for a buffer of {} bytes",
                self.bytes
            ))),
        }
    }
}

impl DeviceBuffer for WgpuBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        // The padding after the last byte of the buffer is unused.
        let last = offset + from.len() == self.bytes;
        #[cfg(target_arch = "wasm32")]
        if self.device.tasks.is_busy() {
            let (device, block, from) = (self.device.clone(), self.block().clone(), from.to_vec());
            return self
                .device
                .tasks
                .give(&self.device, async move { write_bytes(&device, &block, offset, &from, last) });
        }
        write_bytes(&self.device, self.block(), offset, from, last)
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.read_async(offset, to.len())?.wait()?);
        Ok(())
    }

    fn read_async(&self, offset: usize, bytes: usize) -> Result<ReadFuture> {
        self.check(offset, bytes)?;
        #[cfg(target_arch = "wasm32")]
        return self.device.read_in_turn(self.block(), offset, bytes);
        #[cfg(not(target_arch = "wasm32"))]
        self.device.read_later(self.block(), offset, bytes)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.device.give(block);
        }
    }
}

/// A buffer of this device.
pub(super) fn own<'b>(device: &Arc<Device>, b: &'b dyn DeviceBuffer) -> Result<&'b WgpuBuffer> {
    let ours = b.as_any().downcast_ref::<WgpuBuffer>().filter(|b| Arc::ptr_eq(&b.device, device));
    ours.ok_or_else(|| Error::Bindings("a buffer of another device; copy it here first".into()))
}

/// Writes any bytes; `last` states that the rest of their last word is unused.
pub(super) fn write_bytes(device: &Arc<Device>, block: &Block, offset: usize, from: &[u8], last: bool) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    if offset.is_multiple_of(4) && (from.len().is_multiple_of(4) || last) {
        let (words, rest) = from.split_at(from.len() / 4 * 4);
        if !words.is_empty() {
            device.write(block, offset, words);
        }
        if !rest.is_empty() {
            let mut word = [0; 4];
            word[..rest.len()].copy_from_slice(rest);
            device.write(block, offset + words.len(), &word);
        }
        return device.check();
    }
    // Partial words contain other data: copy through a temporary buffer.
    let staged = WgpuBuffer::new(device, from.len())?;
    write_bytes(device, staged.block(), 0, from, true)?;
    let mut encoder = Encoder::new(device);
    copy_fill::copy(&mut encoder, block, offset, staged.block(), 0, from.len())?;
    encoder.submit().map(drop)
}
