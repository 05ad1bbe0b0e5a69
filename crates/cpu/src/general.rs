//! Kernels with their sizes as arguments.
//!
//! A lowered kernel knows its sizes. What runs once for many shapes is worth more without them: trip counts, strides and
//! offsets become size arguments, and kernels that differ in nothing else are one piece of machine code. Strides of 0, 1 and
//! −1 stay, because the code generator makes different code for them.

use compiler::loops::{Extent, Index, Kernel, Mode, Op, Size, Stmt};

/// The same kernel with its sizes as arguments, and the sizes.
pub(crate) fn general(k: &Kernel) -> (Kernel, Vec<i64>) {
    let mut sizes = Vec::new();
    if k.sizes > 0 {
        return (k.clone(), sizes);
    }
    let mut k = k.clone();
    for b in &mut k.buffers {
        // How much scratch there is is the caller's affair.
        if let Mode::Scratch(n) = &mut b.mode {
            *n = 0;
        }
    }
    block(&mut k.body, &mut sizes);
    k.sizes = sizes.len() as u32;
    (k, sizes)
}

fn size(s: &mut Size, sizes: &mut Vec<i64>) {
    if let Size::Const(n) = *s
        && !matches!(n, -1..=1)
    {
        *s = Size::Arg(sizes.len() as u32);
        sizes.push(n);
    }
}

fn index(i: &mut Index, sizes: &mut Vec<i64>) {
    if i.offset != 0 {
        i.offset_args.push(sizes.len() as u32);
        sizes.push(i.offset);
        i.offset = 0;
    }
    i.terms.iter_mut().for_each(|(_, s)| size(s, sizes));
}

fn block(body: &mut [Stmt], sizes: &mut Vec<i64>) {
    for s in body {
        match s {
            Stmt::Let { op: Op::Index(i) | Op::Load { index: i, .. }, .. } | Stmt::Store { index: i, .. } => {
                index(i, sizes)
            }
            Stmt::Let { .. } => {}
            Stmt::Loop(l) => {
                match &mut l.extent {
                    Extent::Exact(s) => size(s, sizes),
                    Extent::Bounded { bound, index: i, .. } => {
                        size(bound, sizes);
                        index(i, sizes);
                    }
                }
                block(&mut l.body, sizes);
            }
        }
    }
}
