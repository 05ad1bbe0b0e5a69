//! Functions that JavaScript implements for the device. Objects are ids, 0 is none; memory is an address and a length.

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    /// Puts the limits of the open device there, 9 of them in the order of [`super::device::GridLimits`]; 0 if none is open.
    pub(super) safe fn gpu_limits(to: *mut f64) -> u32;
    /// Writes at most this many bytes of the adapter's name to memory; returns the number of bytes.
    pub(super) safe fn gpu_name(to: *mut u8, most: usize) -> usize;
    /// Creates a buffer for kernels and copies.
    pub(super) safe fn gpu_buffer(bytes: usize) -> u32;
    /// Frees a buffer after the submitted work is complete.
    pub(super) safe fn gpu_free(buffer: u32);
    /// Creates a pipeline from WGSL source, with this many bindings; a bit for each tells whether it is written.
    pub(super) safe fn gpu_pipeline(text: *const u8, bytes: usize, bindings: u32, written: u32) -> u32;
    /// Drops a pipeline or a group after the next submission.
    pub(super) safe fn gpu_forget(object: u32);
    /// Creates a bind group: for each binding a buffer, its byte offset, and the number of bytes, 0 for all.
    pub(super) safe fn gpu_group(bindings: u32, written: u32, entries: *const u32) -> u32;
    /// Submits commands (see `encode.rs`) whose kernels have these parameters.
    pub(super) safe fn gpu_submit(commands: *const u32, words: usize, params: *const u8, bytes: usize);
    /// Writes whole words.
    pub(super) safe fn gpu_write(buffer: u32, byte: usize, from: *const u8, bytes: usize);
    /// Reads whole words; calls [`super::place`] for the destination, then [`super::done`].
    pub(super) safe fn gpu_read(buffer: u32, byte: usize, bytes: usize, signal: u32);
    /// Calls [`super::done`] when the submitted work is complete.
    pub(super) safe fn gpu_fence(signal: u32);
    /// Blocks until an event has arrived, if that is possible; returns 0 otherwise.
    pub(super) safe fn gpu_wait() -> u32;
}
