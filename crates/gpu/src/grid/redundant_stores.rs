//! Removes stores that do not change an element.
//!
//! If a result is written over an operand, `r[i] = m ? x : a[i]` becomes a store of x where m is true: a KV cache that gets one
//! new row is then not read and written as a whole.

use super::LaunchInfo;
use compiler::loops::index_analysis::IndexAnalysis;
use compiler::loops::{AccessMode, Atom, Buf, Extent, Index, Kernel, Op, Reg, Stmt};

/// A kernel without redundant stores.
pub struct RedundantStores {
    /// The kernel; it is correct if results share memory with their operands.
    pub kernel: Kernel,
    /// These operands and results.
    pub over: Vec<(Buf, Buf)>,
}

/// Returns the kernel without redundant stores, if it has any.
pub fn remove_redundant_stores(kernel: &Kernel, given: &LaunchInfo) -> Option<RedundantStores> {
    if given.aliases.is_empty() {
        return None;
    }
    let facts = IndexAnalysis::new(kernel, given);
    let mut defined: Vec<Option<Op>> = vec![None; kernel.regs.len()];
    lets(&kernel.body, &mut |dst, op| defined[dst.0 as usize] = Some(op.clone()));
    let of = |r: Reg| defined.get(r.0 as usize).and_then(Option::as_ref);
    let plain = |from: Buf, to: Buf| {
        let (a, b) = (&kernel.buffers[from.0 as usize], &kernel.buffers[to.0 as usize]);
        let known = given.aliases.contains(&(from, to)) || given.aliases.contains(&(to, from));
        known && a.dtype == b.dtype && a.mode == AccessMode::Read && b.mode == AccessMode::Write
    };
    let mut changed = kernel.clone();
    let mut over = Vec::new();
    stores(&mut changed.body, &mut |to, index, value, mask| {
        let (None, Some(Op::Select(test, new, old))) = (*mask, of(*value)) else { return };
        let Some(Op::Load { buf: from, index: at, mask: None }) = of(*old) else { return };
        // Equal linear forms are the same element, however the index is written.
        let same = at == index || facts.index_form(at).is_some_and(|form| facts.index_form(index) == Some(form));
        if same && plain(*from, to) {
            (*value, *mask) = (*new, Some(*test));
            over.push((*from, to));
        }
    });
    if over.is_empty() {
        return None;
    }
    // Remove unused statements, the last one first.
    loop {
        let mut uses = vec![0usize; changed.regs.len()];
        count(&changed.body, &mut |r| uses[r.0 as usize] += 1);
        if !drop_unused(&mut changed.body, &uses) {
            break;
        }
    }
    Some(RedundantStores { kernel: changed, over })
}

fn lets(body: &[Stmt], f: &mut dyn FnMut(Reg, &Op)) {
    for s in body {
        match s {
            Stmt::Let { dst, op } => f(*dst, op),
            Stmt::Loop(l) => lets(&l.body, f),
            Stmt::Store { .. } => {}
        }
    }
}

fn stores(body: &mut [Stmt], f: &mut dyn FnMut(Buf, &Index, &mut Reg, &mut Option<Reg>)) {
    for s in body {
        match s {
            Stmt::Let { .. } => {}
            Stmt::Loop(l) => stores(&mut l.body, f),
            Stmt::Store { buf, index, value, mask } => f(*buf, index, value, mask),
        }
    }
}

/// Calls `f` for every use of a register.
fn count(body: &[Stmt], f: &mut dyn FnMut(Reg)) {
    fn index(i: &Index, f: &mut dyn FnMut(Reg)) {
        for (atom, _) in &i.terms {
            if let Atom::Reg(r) = atom {
                f(*r);
            }
        }
    }
    for s in body {
        match s {
            Stmt::Let { op, .. } => {
                op.operands().for_each(&mut *f);
                match op {
                    Op::Index(i) => index(i, f),
                    Op::Load { index: i, mask, .. } => {
                        index(i, f);
                        mask.iter().for_each(|(m, _)| f(*m));
                    }
                    _ => {}
                }
            }
            Stmt::Store { index: i, value, mask, .. } => {
                index(i, f);
                f(*value);
                mask.iter().for_each(|m| f(*m));
            }
            Stmt::Loop(l) => {
                if let Extent::Bounded { index: i, .. } = &l.extent {
                    index(i, f);
                }
                for c in &l.carried {
                    f(c.init);
                    f(c.next);
                }
                count(&l.body, f);
            }
        }
    }
}

fn drop_unused(body: &mut Vec<Stmt>, uses: &[usize]) -> bool {
    let before = body.len();
    body.retain(|s| !matches!(s, Stmt::Let { dst, .. } if uses[dst.0 as usize] == 0));
    let mut any = body.len() < before;
    for s in body {
        if let Stmt::Loop(l) = s {
            any |= drop_unused(&mut l.body, uses);
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::loops::{KernelBuilder, LoopKind, Size, verify};
    use ir::{Compare, DType, Scalar};

    /// `out[i] = i == k ? x[0] : a[i + shift]`, optionally with a second use of the old element.
    fn update(shift: i64, read_again: bool) -> (Kernel, Buf, Buf) {
        let mut b = KernelBuilder::new("update");
        let (a, x, out) = (
            b.buffer(DType::F32, AccessMode::Read),
            b.buffer(DType::F32, AccessMode::Read),
            b.buffer(DType::F32, AccessMode::Write),
        );
        let copy = b.buffer(DType::F32, AccessMode::Write);
        b.for_loop(LoopKind::Vector, Size::Const(64), |b, i| {
            let at = b.let_(DType::I64, Op::Index(i.into()));
            let k = b.let_(DType::I64, Op::Const(Scalar::from_i64(DType::I64, 7)));
            let test = b.let_(DType::Bool, Op::Compare(Compare::Eq, at, k));
            let new = b.load(x, 0i64);
            let from = Index { offset: shift, ..Index::from(i) };
            let old = b.load(a, from);
            let value = b.let_(DType::F32, Op::Select(test, new, old));
            b.store(out, i, value);
            if read_again {
                b.store(copy, i, old);
            }
        });
        (b.finish(), a, out)
    }

    fn over(aliases: &[(Buf, Buf)]) -> LaunchInfo {
        LaunchInfo { aliases: aliases.to_vec(), ..LaunchInfo::default() }
    }

    fn loads(k: &Kernel, of: Buf) -> usize {
        let mut n = 0;
        lets(&k.body, &mut |_, op| n += matches!(op, Op::Load { buf, .. } if *buf == of) as usize);
        n
    }

    #[test]
    fn what_is_there_already_is_not_stored() {
        let (kernel, a, out) = update(0, false);
        let found = remove_redundant_stores(&kernel, &over(&[(a, out)])).expect("one store is of what is there");
        assert_eq!(found.over, [(a, out)]);
        assert_eq!((loads(&kernel, a), loads(&found.kernel, a)), (1, 0));
        assert_eq!(verify(&found.kernel), Ok(()));
        let mut masked = 0;
        let mut changed = found.kernel;
        stores(&mut changed.body, &mut |_, _, _, mask| masked += mask.is_some() as usize);
        assert_eq!(masked, 1);
        // Another statement still reads the old element.
        let (kernel, a, out) = update(0, true);
        let found = remove_redundant_stores(&kernel, &over(&[(out, a)])).expect("as above");
        assert_eq!(loads(&found.kernel, a), 1);
        assert_eq!(verify(&found.kernel), Ok(()));
    }

    #[test]
    fn other_elements_and_other_memory_are_stored() {
        let (kernel, a, out) = update(1, false);
        assert!(remove_redundant_stores(&kernel, &over(&[(a, out)])).is_none(), "another element");
        let (kernel, ..) = update(0, false);
        assert!(remove_redundant_stores(&kernel, &over(&[])).is_none(), "other memory");
        assert!(remove_redundant_stores(&kernel, &over(&[(Buf(1), out)])).is_none(), "memory of another operand");
    }
}
