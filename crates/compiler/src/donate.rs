//! Buffer donation: finds outputs that may be written over the inputs that they replace.
//!
//! This is safe if nothing reads the input after the step that writes the output, and that step reads the input only at the
//! element that it is about to write. Then a caller can bind one buffer to both, and state is updated in place.

use crate::backend::Backend;
use crate::in_place::{may_overwrite, tile_may_overwrite};
use crate::loops::Buf;
use crate::program::{BufferId, BufferKind, BufferSlice, KernelArg, ProgramParts, Step};
use rustc_hash::FxHashMap;

/// Returns the requested (input, output) pairs that are safe.
pub(crate) fn safe_donations(
    program: &ProgramParts,
    asked: &[(usize, usize)],
    backend: &dyn Backend,
) -> Vec<(usize, usize)> {
    if asked.is_empty() {
        return Vec::new();
    }
    let uses = BufferAccesses::of(program);
    asked.iter().copied().filter(|&(i, o)| is_safe(program, &uses, i, o, backend)).collect()
}

/// The steps that read and write each buffer, found in one pass because a training step has thousands of pairs and steps.
struct BufferAccesses {
    inputs: FxHashMap<usize, BufferId>,
    outputs: FxHashMap<usize, BufferId>,
    /// The reading steps of each buffer, in order.
    reads: Vec<Vec<usize>>,
    writes: Vec<Vec<usize>>,
}

impl BufferAccesses {
    fn of(program: &ProgramParts) -> BufferAccesses {
        let (mut inputs, mut outputs) = (FxHashMap::default(), FxHashMap::default());
        for (i, b) in program.buffers.iter().enumerate() {
            match b.kind {
                BufferKind::Input(n) => *inputs.entry(n).or_insert(BufferId(i as u32)),
                BufferKind::Output(n) => *outputs.entry(n).or_insert(BufferId(i as u32)),
                BufferKind::Constant(_) | BufferKind::Activation => continue,
            };
        }
        let mut reads = vec![Vec::new(); program.buffers.len()];
        let mut writes = reads.clone();
        for (k, step) in program.steps.iter().enumerate() {
            step.for_each_slice(&mut |p, write| {
                for b in p.buffers() {
                    let steps = if write { &mut writes[b.0 as usize] } else { &mut reads[b.0 as usize] };
                    if steps.last() != Some(&k) {
                        steps.push(k);
                    }
                }
            });
        }
        BufferAccesses { inputs, outputs, reads, writes }
    }
}

fn is_safe(program: &ProgramParts, uses: &BufferAccesses, input: usize, output: usize, backend: &dyn Backend) -> bool {
    let (Some(&from), Some(&to)) = (uses.inputs.get(&input), uses.outputs.get(&output)) else { return false };
    if program.inputs[input] != program.outputs[output] {
        return false;
    }
    let written = match uses.writes[to.0 as usize][..] {
        [] => return true,
        [once] => once,
        [..] => return false,
    };
    let reads = &uses.reads[from.0 as usize];
    if reads.last().is_some_and(|&last| last > written) {
        return false;
    }
    let step = &program.steps[written];
    let over = || is_identity_copy(step, from, to) || can_run_in_place(step, from, to, program.outputs[output].numel());
    reads.last() != Some(&written) || over() || mutates_operand(step, from, to, backend)
}

/// Whether a step only copies the input to the output, which is unnecessary if both are one buffer.
fn is_identity_copy(step: &Step, from: BufferId, to: BufferId) -> bool {
    let is = |p: &crate::program::BufferSlice, b: BufferId| p.offset == 0 && p.buffers().eq([b]);
    matches!(step, Step::Copy { from: f, to: t, .. } if is(f, from) && is(t, to))
}

/// Whether a step is a routine that modifies its first operand in place.
fn mutates_operand(step: &Step, from: BufferId, to: BufferId, backend: &dyn Backend) -> bool {
    let Step::Library { op, args, outs } = step else { return false };
    let ([(first, _), others @ ..], [(result, _)]) = (&args[..], &outs[..]) else { return false };
    let once = others.iter().all(|(p, _)| p.buffers().all(|b| b != from));
    *first == BufferSlice::of(from) && *result == BufferSlice::of(to) && once && backend.supports_in_place(op)
}

/// Whether a step may write one buffer over the other.
pub(crate) fn can_run_in_place(step: &Step, from: BufferId, to: BufferId, elements: usize) -> bool {
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
                factor.for_each_slice(&mut |p| operand |= p.buffers().any(|b| b == from));
            }
            match (argument(places.clone(), from), argument(places, to)) {
                (Some(load), Some(store)) => !operand && tile_may_overwrite(&e.kernel, load, store),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The kernel argument that refers to the start of this buffer, if there is exactly one.
fn argument<'a>(places: impl Iterator<Item = Option<&'a BufferSlice>>, buffer: BufferId) -> Option<Buf> {
    let mut found = None;
    for (i, place) in places.enumerate() {
        if let Some(p) = place
            && p.buffers().any(|b| b == buffer)
        {
            if found.is_some() || *p != BufferSlice::of(buffer) {
                return None;
            }
            found = Some(Buf(i as u32));
        }
    }
    found
}
