//! The bindings of a kernel.

use super::pool::Block;
use crate::wgpu::Binding;

/// The layout of a kernel's bindings: their number, and a bit for each that is written.
pub(super) type Layout = (u8, u64);

pub(super) fn layout(bindings: &[Binding]) -> Layout {
    let mask = bindings.iter().enumerate().fold(0, |m, (i, b)| m | (b.writable as u64) << i);
    (bindings.len() as u8, mask)
}

/// A memory range that a kernel binds.
#[derive(Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) block: &'a Block,
    pub(super) start: usize,
    /// Up to the end of the block if none.
    pub(super) bytes: Option<usize>,
}

impl<'a> Bound<'a> {
    /// The range of a whole block.
    pub(super) fn whole(block: &'a Block) -> Bound<'a> {
        Bound { block, start: 0, bytes: None }
    }
}
