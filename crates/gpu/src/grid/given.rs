//! What is known of a launch.

use super::Buf;
use compiler::loops::{Kernel, Mode};
use compiler::program::{BufferId, Class, KernelArg, Place, Program};

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
            let (aligned, scratch) = match a {
                KernelArg::Place(p) => (alignment(program, p, base), 0),
                KernelArg::Scratch(n) => (base, n / b.dtype.size()),
            };
            given.aligned.push(aligned);
            given.scratch.push(scratch);
            for (j, (other, c)) in kernel.buffers.iter().zip(args).enumerate().take(i) {
                let (KernelArg::Place(p), KernelArg::Place(q)) = (a, c) else { continue };
                let written = b.mode != Mode::Read || other.mode != Mode::Read;
                if written && p.buffers().any(|x| q.buffers().any(|y| one_memory(program, x, y))) {
                    given.aliases.push((Buf(j as u32), Buf(i as u32)));
                }
            }
        }
        given
    }
}

/// The largest power of two up to `base` that divides all addresses of a place.
fn alignment(program: &Program, p: &Place, base: usize) -> usize {
    let in_arena = |b: BufferId| match program.buffers[b.0 as usize].class {
        Class::Activation => program.buffers[b.0 as usize].offset,
        _ => 0,
    };
    let parts = p.buffers().map(in_arena).chain([p.offset as usize]).chain(p.strides.iter().map(|s| s.1 as usize));
    parts.fold(base, |most, x| if x == 0 { most } else { most.min(1 << x.trailing_zeros()) })
}

/// Whether two buffers share memory.
fn one_memory(program: &Program, a: BufferId, b: BufferId) -> bool {
    let (x, y) = (&program.buffers[a.0 as usize], &program.buffers[b.0 as usize]);
    match (&x.class, &y.class) {
        _ if a == b => true,
        (Class::Activation, Class::Activation) => {
            x.offset < y.offset + y.ty.bytes() && y.offset < x.offset + x.ty.bytes()
        }
        (Class::Input(i), Class::Output(o)) | (Class::Output(o), Class::Input(i)) => {
            program.donated.contains(&(*i, *o))
        }
        _ => false,
    }
}
