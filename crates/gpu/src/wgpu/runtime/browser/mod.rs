//! The device of a page. Its buffers, pipelines and queue are objects of JavaScript that this program knows by number; `host.rs` lists
//! what it asks of them, [`done`], [`place`] and [`fault`] are what it is told.
//!
//! # Order
//!
//! JavaScript keeps the order of what it is given, so a program whose steps need nothing back is one message, given at once. A
//! program that does (a trip count, a branch, an op on the host) stops where it needs it: nobody may wait in a page. It stays at the
//! front of the [`line`], and what is given to the device meanwhile, programs, writes, reads, stands behind it. So everything runs, in
//! order, and only who looks has to await.

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

/// The end of everything that the device was given.
pub fn settled() -> Fence {
    match device::current() {
        Some(device) => device.settled(),
        None => Fence::completed(),
    }
}

/// Bytes of the device's memory in use.
pub fn live() -> usize {
    device::current().map_or(0, |d| d.usage().live)
}

/// The device has failed somewhere: `lost` for good, or a call of it. It is told to whoever reads next.
pub fn fault(lost: bool, text: &str) {
    if let Some(device) = device::current() {
        device.fail(lost, text);
    }
}
