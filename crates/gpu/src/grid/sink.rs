//! What only a rare store needs is computed where that store happens.
//!
//! A mask that memory decides (where a slice is to be written) is false almost everywhere: then nothing behind it is loaded or
//! computed. Masks of indices (the ends of rows) are true almost everywhere, and what stands before them stays there, so that
//! many loads are under way at once.

use super::{Buf, GridKernel, Index, Op, Reg, Stmt};

/// Moves what only masked stores need behind their masks. `written` says whether memory is stored to.
pub(super) fn sink(kernel: &mut GridKernel, written: &dyn Fn(Buf) -> bool) {
    let count = kernel.regs.len();
    let mut uses = vec![0usize; count];
    used(&kernel.body, &mut |r| uses[r.0 as usize] += 1);
    let mut loaded = vec![false; count];
    from_memory(&kernel.body, &mut loaded);
    block(&mut kernel.body, &uses, &loaded, written);
}

/// Which registers depend on what was loaded. Loops' values are taken as if they did not.
fn from_memory(body: &[Stmt], loaded: &mut [bool]) {
    for s in body {
        match s {
            Stmt::Load { dst, .. } => dst.iter().for_each(|r| loaded[r.0 as usize] = true),
            Stmt::Let { dst, .. } => {
                let mut any = false;
                operands(s, &mut |r| any |= loaded[r.0 as usize]);
                loaded[dst.0 as usize] = any;
            }
            Stmt::Loop(l) => from_memory(&l.body, loaded),
            Stmt::If { body, .. } => from_memory(body, loaded),
            _ => {}
        }
    }
}

fn block(body: &mut Vec<Stmt>, uses: &[usize], loaded: &[bool], written: &dyn Fn(Buf) -> bool) {
    for s in body.iter_mut() {
        match s {
            Stmt::Loop(l) => block(&mut l.body, uses, loaded, written),
            Stmt::If { body, .. } => block(body, uses, loaded, written),
            _ => {}
        }
    }
    let mut at = 0;
    while at < body.len() {
        if let Stmt::Store { mask: Some(m), .. } = &body[at]
            && loaded[m.0 as usize]
        {
            at = sink_below_mask(body, at, *m, uses, written);
        }
        at += 1;
    }
}

/// Moves what the store at `at` alone needs behind its mask; gives where the store is then.
fn sink_below_mask(body: &mut Vec<Stmt>, at: usize, mask: Reg, uses: &[usize], written: &dyn Fn(Buf) -> bool) -> usize {
    let mut inside = vec![0usize; uses.len()];
    operands(&body[at], &mut |r| inside[r.0 as usize] += 1);
    let mut taken = vec![at];
    for i in (0..at).rev() {
        let own: &[Reg] = match &body[i] {
            Stmt::Let { dst, .. } => std::slice::from_ref(dst),
            Stmt::Load { dst, buf, .. } if !written(*buf) => dst,
            _ => continue,
        };
        let alone = own.iter().all(|r| *r != mask && inside[r.0 as usize] == uses[r.0 as usize])
            && own.iter().any(|r| uses[r.0 as usize] > 0);
        if alone {
            operands(&body[i], &mut |r| inside[r.0 as usize] += 1);
            taken.push(i);
        }
    }
    if taken.len() == 1 {
        return at;
    }
    let mut moved: Vec<Stmt> = taken.iter().map(|&i| body.remove(i)).collect();
    moved.reverse();
    if let Some(Stmt::Store { mask, .. }) = moved.last_mut() {
        *mask = None;
    }
    let place = at + 1 - taken.len();
    body.insert(place, Stmt::If { cond: mask, body: moved });
    place
}

fn used(body: &[Stmt], f: &mut dyn FnMut(Reg)) {
    for s in body {
        operands(s, f);
        match s {
            Stmt::Loop(l) => used(&l.body, f),
            Stmt::If { body, .. } => used(body, f),
            _ => {}
        }
    }
}

/// The registers that a statement reads, without those of the statements in it.
fn operands(s: &Stmt, f: &mut dyn FnMut(Reg)) {
    let index = |i: &Index, f: &mut dyn FnMut(Reg)| i.terms.iter().for_each(|(r, _)| f(*r));
    match s {
        Stmt::Let { op, .. } => match op {
            Op::Index(i) => index(i, f),
            Op::Arith(a) => a.operands().for_each(f),
            _ => {}
        },
        Stmt::Load { index: i, mask, .. } => {
            index(i, f);
            mask.iter().for_each(|(m, _)| f(*m));
        }
        Stmt::Store { index: i, value, mask, .. } => {
            index(i, f);
            value.iter().for_each(|r| f(*r));
            mask.iter().for_each(|m| f(*m));
        }
        Stmt::Loop(l) => {
            [l.from, l.to, l.step].into_iter().for_each(&mut *f);
            for c in &l.carried {
                f(c.init);
                f(c.next);
            }
        }
        Stmt::If { cond, .. } => f(*cond),
        Stmt::Exchange { src, .. } => f(*src),
        Stmt::Barrier(_) => {}
    }
}
