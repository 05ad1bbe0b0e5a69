//! Sinks computations that only a masked store needs below its mask.
//!
//! A mask that is loaded from memory (the position of an updated slice) is usually false almost everywhere: then the
//! computations below it are skipped. Masks of indices (the ends of rows) are true almost everywhere, and the computations
//! before them stay, so that many loads are in flight together.

use super::{Buf, GridKernel, Index, Op, Reg, Stmt};

/// Sinks computations that only masked stores need below their masks. `written` states whether memory is stored to.
pub(super) fn sink(kernel: &mut GridKernel, written: &dyn Fn(Buf) -> bool) {
    let count = kernel.regs.len();
    let mut uses = vec![0usize; count];
    used(&kernel.body, &mut |r| uses[r.0 as usize] += 1);
    let mut loaded = vec![false; count];
    from_memory(&kernel.body, &mut loaded);
    block(&mut kernel.body, &uses, &loaded, written);
}

/// The registers that depend on loaded values. Carried values of loops are assumed not to.
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

/// Sinks computations that only the store at `at` needs below its mask; returns the new position of the store.
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

/// The registers that a statement reads, without those of nested statements.
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
