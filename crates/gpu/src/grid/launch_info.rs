//! What a program says of a launch.

use super::alignment::{aligned, shared};
use super::{Buf, LaunchInfo};
use compiler::loops::{Kernel, Mode};
use compiler::program::{KernelArg, Program};

/// What a program says of one of its kernel steps, in every iteration of the loops around it. Inputs, outputs, constants and the
/// arena start at multiples of `base` bytes.
pub fn given(program: &Program, kernel: &Kernel, args: &[KernelArg], base: usize) -> LaunchInfo {
    let mut given = LaunchInfo::default();
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
