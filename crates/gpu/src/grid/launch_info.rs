//! The known properties of a program's launches.

use super::alignment::{aligned, may_alias};
use super::{Buf, LaunchInfo};
use compiler::loops::{AccessMode, Kernel};
use compiler::program::{KernelArg, Program};

/// The properties of one kernel step that hold in every iteration of the enclosing loops. Inputs, outputs, constants and the
/// arena start at multiples of `base` bytes.
pub fn launch_info(program: &Program, kernel: &Kernel, args: &[KernelArg], base: usize) -> LaunchInfo {
    let mut info = LaunchInfo::default();
    for (i, (b, a)) in kernel.buffers.iter().zip(args).enumerate() {
        let (align, scratch) = match a {
            KernelArg::Place(p) => (aligned(program, p, base), 0),
            KernelArg::Scratch(n) => (base, n / b.dtype.size()),
        };
        info.aligned.push(align);
        info.scratch.push(scratch);
        for (j, (other, c)) in kernel.buffers.iter().zip(args).enumerate().take(i) {
            let (KernelArg::Place(p), KernelArg::Place(q)) = (a, c) else { continue };
            let written = b.mode != AccessMode::Read || other.mode != AccessMode::Read;
            if written && may_alias(program, p, q) {
                info.aliases.push((Buf(j as u32), Buf(i as u32)));
            }
        }
    }
    info
}
