//! What JavaScript does for the device. Objects are numbers, 0 is none; memory is an address and a length.

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    /// Puts the limits of the open device there, 9 of them in the order of [`super::device::GridLimits`]; 0 if none is open.
    pub(super) safe fn gpu_limits(to: *mut f64) -> u32;
    /// Puts the adapter's name there, at most so many bytes of it; gives how many.
    pub(super) safe fn gpu_name(to: *mut u8, most: usize) -> usize;
    /// A buffer for kernels and copies.
    pub(super) safe fn gpu_buffer(bytes: usize) -> u32;
    /// A buffer is needed no more, once what was submitted is done.
    pub(super) safe fn gpu_free(buffer: u32);
    /// A pipeline of a text in WGSL, with so many bindings; bits say which are written.
    pub(super) safe fn gpu_pipeline(text: *const u8, bytes: usize, bindings: u32, written: u32) -> u32;
    /// A pipeline or a group is needed no more after the next submission.
    pub(super) safe fn gpu_forget(object: u32);
    /// A group of bindings: for each a buffer, its first byte, and how many bytes, 0 for all.
    pub(super) safe fn gpu_group(bindings: u32, written: u32, entries: *const u32) -> u32;
    /// Submits commands (see `encode.rs`) whose kernels have these parameters.
    pub(super) safe fn gpu_submit(commands: *const u32, words: usize, params: *const u8, bytes: usize);
    /// Writes whole words.
    pub(super) safe fn gpu_write(buffer: u32, byte: usize, from: *const u8, bytes: usize);
    /// Reads whole words; [`super::place`] says where they go, then [`super::done`] is told.
    pub(super) safe fn gpu_read(buffer: u32, byte: usize, bytes: usize, signal: u32);
    /// Tells [`super::done`] when what was submitted is done.
    pub(super) safe fn gpu_fence(signal: u32);
    /// Waits until something was told, where that is possible at all; 0 where it isn't.
    pub(super) safe fn gpu_wait() -> u32;
}
