//! The memory allocations of a program: the arena, its constants, and each input and output. A kernel binds each of them once.

use compiler::program::{BufferId, BufferKind, BufferRef, BufferSlice, Program};

/// One allocation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocation {
    Arena,
    Constants,
    /// An input that is not written.
    Input(usize),
    /// An output; with the index of an input that is donated to it, which is the same memory.
    Output(usize, Option<usize>),
}

/// The allocations of a program.
pub(super) struct Allocations {
    pub(super) all: Vec<Allocation>,
    /// For each buffer its allocation, the offset in it, and the size in bytes.
    homes: Vec<(usize, usize, usize)>,
}

/// The index of the arena.
pub(super) const ARENA: usize = 0;
/// The index of the constants.
pub(super) const CONSTANTS: usize = 1;

/// The current iterations of loops, which select the buffers of slices.
pub(super) trait Iteration {
    /// Whether the loop at this level has run an odd number of iterations.
    fn odd(&self, level: usize) -> bool;
    /// The index of the loop at this level.
    fn index(&self, level: usize) -> i64;
}

impl Allocations {
    /// `constant_at` has the offset of each buffer in the constants.
    pub(super) fn new(program: &Program, constant_at: &[usize]) -> Allocations {
        let mut all = vec![Allocation::Arena, Allocation::Constants];
        let donor = |o: usize| program.donated.iter().find(|(_, to)| *to == o).map(|(from, _)| *from);
        let taker = |i: usize| program.donated.iter().find(|(from, _)| *from == i).map(|(_, to)| *to);
        let homes = program.buffers.iter().enumerate().map(|(k, b)| {
            let bytes = b.ty.bytes();
            let root = match &b.kind {
                BufferKind::Activation => return (ARENA, b.offset, bytes),
                BufferKind::Constant(_) => return (CONSTANTS, constant_at[k], bytes),
                BufferKind::Input(i) => taker(*i).map_or(Allocation::Input(*i), |o| Allocation::Output(o, Some(*i))),
                BufferKind::Output(o) => Allocation::Output(*o, donor(*o)),
            };
            let at = all.iter().position(|r| *r == root).unwrap_or_else(|| {
                all.push(root);
                all.len() - 1
            });
            (at, 0, bytes)
        });
        let homes = homes.collect();
        Allocations { all, homes }
    }

    fn buffer(p: &BufferSlice, at: &dyn Iteration) -> BufferId {
        match p.buffer {
            BufferRef::Fixed(b) => b,
            BufferRef::DoubleBuffered(level, even, odd) => {
                if at.odd(level) {
                    odd
                } else {
                    even
                }
            }
        }
    }

    /// The allocation of a slice, and the byte offset in it.
    pub(super) fn find(&self, p: &BufferSlice, at: &dyn Iteration) -> (usize, usize) {
        let (root, base, _) = self.homes[Allocations::buffer(p, at).0 as usize];
        let offset = p.strides.iter().fold(p.offset, |o, (level, stride)| o + at.index(*level) * stride);
        (root, base.wrapping_add_signed(offset as isize))
    }

    /// The allocation of a slice, and the byte range of its buffer in it.
    pub(super) fn extent(&self, p: &BufferSlice, at: &dyn Iteration) -> (usize, usize, usize) {
        let (root, base, bytes) = self.homes[Allocations::buffer(p, at).0 as usize];
        (root, base, base + bytes)
    }
}
