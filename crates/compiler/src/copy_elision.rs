//! Operands that are made where a routine changes them.
//!
//! A routine that changes its first operand in place ([`Backend::overwrites`]) copies it first where operand and result are two
//! buffers. If nothing else reads the operand afterwards, and nothing has touched the result before, the operand is made in the
//! result's buffer: zeros that a gradient is scattered into are written once.

use crate::backend::Backend;
use crate::program::{BufferId, BufferKind, BufferRef, BufferSlice, KernelArg, ProgramParts, Step};

/// Joins operands with the results that take their places. Outputs that may replace an input (`replaced`) stay as they are: they
/// can be written late only.
pub(crate) fn elide_copies(program: &mut ProgramParts, replaced: &[(usize, usize)], backend: &dyn Backend) {
    for at in 0..program.steps.len() {
        if let Some((from, to)) = in_place_pair(program, at, replaced, backend) {
            program.steps[..=at].iter_mut().for_each(|step| rename(step, from, to));
        }
    }
}

/// Operand and result of a step that may be one buffer.
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
