//! The device in the browser. Its buffers, pipelines and queue are JavaScript objects that this program refers to by id; `host.rs`
//! declares the functions that it calls, and JavaScript calls [`done`], [`place`] and [`fault`].
//!
//! # Order
//!
//! JavaScript executes messages in order, so a program that needs no values back is one message. A
//! program that does (a trip count, a branch, an op on the host) is suspended where it needs them, because blocking is not
//! possible. It stays at the front of the [`task_queue`], and later operations (programs, writes, reads) are queued after it. So
//! all operations run in order, and only reads have to be awaited.

pub(super) mod backend;
pub(super) mod device;
pub(super) mod encode;
mod groups;
mod host;
mod later;
pub(super) mod pipelines;
mod task_queue;

pub use later::{done, place};

use compiler::Fence;

/// A fence for all work that was submitted to the device.
pub fn settled() -> Fence {
    match device::current() {
        Some(device) => device.settled(),
        None => Fence::completed(),
    }
}

/// The bytes of device memory in use.
pub fn live() -> usize {
    device::current().map_or(0, |d| d.usage().live)
}

/// Reports an error of the device: it is `lost`, or one of its calls failed. The next read returns the error.
pub fn fault(lost: bool, text: &str) {
    if let Some(device) = device::current() {
        device.fail(lost, text);
    }
}
