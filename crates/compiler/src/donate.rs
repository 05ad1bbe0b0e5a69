//! Donation: an output that may be written over the input it replaces.
//!
//! It may if nothing reads the input after the step that writes the output, and that step reads the input only at the
//! very element that it is about to write. Then a caller can bind one buffer to both, and state is updated in place.

use crate::backend::Backend;
use crate::loops::Buf;
use crate::overwrite::{may_overwrite, tile_may_overwrite};
use crate::program::{BufferId, Class, KernelArg, Place, Program, Step};

/// Of the (input, output) pairs asked for, those that are safe.
pub(crate) fn donations(program: &Program, asked: &[(usize, usize)], backend: &dyn Backend) -> Vec<(usize, usize)> {
    asked.iter().copied().filter(|&(i, o)| safe(program, i, o, backend)).collect()
}

fn safe(program: &Program, input: usize, output: usize, backend: &dyn Backend) -> bool {
    let find = |class: Class| program.buffers.iter().position(|b| b.class == class).map(|i| BufferId(i as u32));
    let (Some(from), Some(to)) = (find(Class::Input(input)), find(Class::Output(output))) else { return false };
    if program.inputs[input] != program.outputs[output] {
        return false;
    }
    let mut written = false;
    for step in &program.steps {
        let (mut reads, mut writes) = (false, false);
        step.places(&mut |p, write| {
            reads |= !write && p.buffers().any(|b| b == from);
            writes |= write && p.buffers().any(|b| b == to);
        });
        if written && (reads || writes) {
            return false;
        }
        if writes {
            written = true;
            let over = || copies(step, from, to) || overwrites(step, from, to, program.outputs[output].numel());
            if reads && !over() && !changes(step, from, to, backend) {
                return false;
            }
        }
    }
    true
}

/// A plain copy of the input to the output has nothing left to do.
fn copies(step: &Step, from: BufferId, to: BufferId) -> bool {
    let is = |p: &crate::program::Place, b: BufferId| p.offset == 0 && p.buffers().eq([b]);
    matches!(step, Step::Copy { from: f, to: t, .. } if is(f, from) && is(t, to))
}

/// A routine that changes its first operand in place.
fn changes(step: &Step, from: BufferId, to: BufferId, backend: &dyn Backend) -> bool {
    let Step::Library { op, args, outs } = step else { return false };
    let ([(first, _), others @ ..], [(result, _)]) = (&args[..], &outs[..]) else { return false };
    let once = others.iter().all(|(p, _)| p.buffers().all(|b| b != from));
    *first == Place::of(from) && *result == Place::of(to) && once && backend.overwrites(op)
}

/// Whether a step may write one buffer over the other.
pub(crate) fn overwrites(step: &Step, from: BufferId, to: BufferId, elements: usize) -> bool {
    match step {
        Step::Kernel { kernel, args, .. } => {
            let places = args.iter().map(|a| match a {
                KernelArg::Place(p) => Some(p),
                KernelArg::Scratch(_) => None,
            });
            match (argument(places.clone(), from), argument(places, to)) {
                (Some(load), Some(store)) => may_overwrite(kernel, load, store, elements),
                _ => false,
            }
        }
        Step::Matmul { a, b, epilogue: Some(e), .. } => {
            // Buffer 0 is the tile.
            let places = std::iter::once(None).chain(e.args.iter().map(Some));
            let mut operand = false;
            for factor in [a, b] {
                factor.places(&mut |p| operand |= p.buffers().any(|b| b == from));
            }
            match (argument(places.clone(), from), argument(places, to)) {
                (Some(load), Some(store)) => !operand && tile_may_overwrite(&e.kernel, load, store),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The kernel argument that is this buffer, from its start, if there is exactly one.
fn argument<'a>(places: impl Iterator<Item = Option<&'a Place>>, buffer: BufferId) -> Option<Buf> {
    let mut found = None;
    for (i, place) in places.enumerate() {
        if let Some(p) = place
            && p.buffers().any(|b| b == buffer)
        {
            if found.is_some() || *p != Place::of(buffer) {
                return None;
            }
            found = Some(Buf(i as u32));
        }
    }
    found
}
