//! Donation: an output that may be written over the input it replaces.
//!
//! It may if nothing reads the input after the step that writes the output, and that step reads the input only at the
//! very element that it is about to write. Then a caller can bind one buffer to both, and state is updated in place.

use crate::loops::{Buf, Index, Op, Stmt};
use crate::program::{BufferId, Class, KernelArg, Program, Step};

/// Of the (input, output) pairs asked for, those that are safe.
pub(crate) fn donations(program: &Program, asked: &[(usize, usize)]) -> Vec<(usize, usize)> {
    asked.iter().copied().filter(|&(i, o)| safe(program, i, o)).collect()
}

fn safe(program: &Program, input: usize, output: usize) -> bool {
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
            if reads && !(copies(step, from, to) || same_elements(step, from, to)) {
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

/// Whether a kernel loads one buffer only at the indices at which it stores the other.
fn same_elements(step: &Step, from: BufferId, to: BufferId) -> bool {
    let Step::Kernel { kernel, args, .. } = step else { return false };
    let places = |b: BufferId| -> Vec<Buf> {
        let is = |a: &KernelArg| matches!(a, KernelArg::Place(p) if p.buffers().eq([b]));
        args.iter().enumerate().filter(|(_, a)| is(a)).map(|(i, _)| Buf(i as u32)).collect()
    };
    let ([load], [store]) = (&places(from)[..], &places(to)[..]) else { return false };
    let (mut loads, mut stores) = (Vec::new(), Vec::new());
    visit(&kernel.body, &mut |s| match s {
        Stmt::Let { op: Op::Load { buf, index, .. }, .. } if buf == load => loads.push(index.clone()),
        Stmt::Store { buf, index, .. } if buf == store => stores.push(index.clone()),
        _ => {}
    });
    let first: Option<&Index> = stores.first();
    first.is_some_and(|f| stores.len() == 1 && loads.iter().all(|l| l == f))
}

fn visit(body: &[Stmt], f: &mut dyn FnMut(&Stmt)) {
    for s in body {
        f(s);
        if let Stmt::Loop(l) = s {
            visit(&l.body, f);
        }
    }
}
