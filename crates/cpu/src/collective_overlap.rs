//! Decides which collectives may run concurrently with the following steps, and until when.
//!
//! A collective is started on a copy of its operand, so only its result matters: the planner reserves the result's memory from
//! the step that starts it, and no step uses it before the first one that reads or writes it.

use compiler::program::{BufferId, BufferKind, Program, Step};
use ir::Op;

/// Returns for each step of the program that is an asynchronous collective the step before which its result must be complete;
/// `None` for other steps.
pub fn collective_deadlines(program: &Program) -> Vec<Option<usize>> {
    let steps = &program.steps;
    let talks = |step: &Step| match step {
        Step::Library { op, outs, .. } => match &**op {
            Op::Collective(c) if c.communicates() && c.ranks() > 1 => outs[0].0.buffers().next(),
            _ => None,
        },
        _ => None,
    };
    let touches = |step: &Step, buffer: BufferId| {
        let mut found = false;
        step.for_each_slice(&mut |p, _| found |= p.buffers().any(|b| b == buffer));
        found
    };
    let of = |(k, step): (usize, &Step)| {
        let result = talks(step)?;
        let first = steps[k + 1..].iter().position(|s| touches(s, result)).map(|n| k + 1 + n);
        match first {
            Some(first) => Some(first).filter(|first| *first > k + 1),
            // The memory of an unused result may be reused at once.
            None => matches!(program.buffers[result.0 as usize].kind, BufferKind::Output(_)).then_some(steps.len()),
        }
    };
    steps.iter().enumerate().map(of).collect()
}
