//! Copy elision: computes an operand directly in the buffer where a routine modifies it in place.
//!
//! A routine that modifies its first operand in place ([`Backend::supports_in_place`]) copies it first if operand and result are
//! two buffers. If nothing else reads the operand afterwards, and nothing has accessed the result before, the operand is
//! computed in the result's buffer: zeros that a gradient is scattered into are then written once.

use crate::backend::Backend;
use crate::program::{BufferId, BufferKind, BufferRef, BufferSlice, KernelArg, ProgramParts, Step};

/// Merges operands with the results that overwrite them. Outputs that may replace an input (`replaced`) are not merged, because
/// they must be written late.
pub(crate) fn elide_copies(program: &mut ProgramParts, replaced: &[(usize, usize)], backend: &dyn Backend) {
    for at in 0..program.steps.len() {
        if let Some((from, to)) = in_place_pair(program, at, replaced, backend) {
            program.steps[..=at].iter_mut().for_each(|step| rename(step, from, to));
        }
    }
}

/// The operand and the result of a step that may share one buffer.
fn in_place_pair(
    program: &ProgramParts,
    at: usize,
    replaced: &[(usize, usize)],
    backend: &dyn Backend,
) -> Option<(BufferId, BufferId)> {
    let Step::Library { op, args, outs } = &program.steps[at] else { return None };
    let ([(first, _), others @ ..], [(result, _)]) = (&args[..], &outs[..]) else { return None };
    let (BufferRef::Fixed(from), BufferRef::Fixed(to)) = (first.buffer, result.buffer) else { return None };
    let (operand, room) = (&program.buffers[from.0 as usize], &program.buffers[to.0 as usize]);
    let late = |class: &BufferKind| match class {
        BufferKind::Activation => false,
        BufferKind::Output(o) => replaced.iter().any(|(_, output)| output == o),
        _ => true,
    };
    let whole = *first == BufferSlice::of(from) && *result == BufferSlice::of(to) && from != to;
    if !whole || operand.ty != room.ty || operand.kind != BufferKind::Activation || late(&room.kind) {
        return None;
    }
    if others.iter().any(|(p, _)| p.buffers().any(|b| b == from || b == to)) || !backend.supports_in_place(op) {
        return None;
    }
    let mut free = true;
    for (i, step) in program.steps.iter().enumerate().filter(|(i, _)| *i != at) {
        let simple = matches!(step, Step::Kernel { .. } | Step::Library { .. } | Step::Zero { .. });
        step.for_each_slice(&mut |p, _| {
            let is = |buffer: BufferId| p.buffers().any(|b| b == buffer);
            let operand = is(from) && (i > at || !simple || p.buffer != BufferRef::Fixed(from));
            free &= !operand && !(is(to) && i < at);
        });
    }
    free.then_some((from, to))
}

fn rename(step: &mut Step, from: BufferId, to: BufferId) {
    let change = |p: &mut BufferSlice| {
        if p.buffer == BufferRef::Fixed(from) {
            p.buffer = BufferRef::Fixed(to);
        }
    };
    match step {
        Step::Kernel { args, .. } => {
            for a in args {
                if let KernelArg::Place(p) = a {
                    change(p);
                }
            }
        }
        Step::Library { args, outs, .. } => args.iter_mut().chain(outs).for_each(|(p, _)| change(p)),
        Step::Zero { to, .. } => change(to),
        _ => {}
    }
}
