//! What is known of a launch.

use super::Buf;
use super::places::{aligned, shared};
use compiler::loops::{Kernel, Mode};
use compiler::program::{KernelArg, Program};

/// What is known of a launch when its kernel is lowered.
///
/// A grid is right for the launch it was lowered for. Sizes stay arguments: another launch may use the same grid if lowering
/// for it gives an equal one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Given {
    /// Values of the size arguments.
    pub sizes: Vec<i64>,
    /// Pairs of buffers of which one is written and which are the same memory, element for element.
    pub aliases: Vec<(Buf, Buf)>,
    /// For each buffer a number of bytes that its address is a multiple of; that of its dtype if there is none.
    pub aligned: Vec<usize>,
    /// For each buffer the elements of its scratch, where the kernel leaves them to the caller (`Mode::Scratch(0)`).
    pub scratch: Vec<usize>,
}

impl Given {
    /// What a program says of one of its kernel steps, in every iteration of the loops around it. Inputs, outputs, constants and the
    /// arena start at multiples of `base` bytes.
    pub fn of(program: &Program, kernel: &Kernel, args: &[KernelArg], base: usize) -> Given {
        let mut given = Given::default();
        for (i, (b, a)) in kernel.buffers.iter().zip(args).enumerate() {
            let (align, scratch) = match a {
                KernelArg::Place(p) => (aligned(program, p, base), 0),
                KernelArg::Scratch(n) => (base, n / b.dtype.size()),
            };
            given.aligned.push(align);
            given.scratch.push(scratch);
            for (j, (other, c)) in kernel.buffers.iter().zip(args).enumerate().take(i) {
                let (KernelArg::Place(p), KernelArg::Place(q)) = (a, c) else { continue };
                let written = b.mode != Mode::Read || other.mode != Mode::Read;
                if written && shared(program, p, q) {
                    given.aliases.push((Buf(j as u32), Buf(i as u32)));
                }
            }
        }
        given
    }
}
