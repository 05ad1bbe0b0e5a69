//! Horizontal fusion: kernels of one group with equal loops become one kernel. On devices where each kernel is a launch, shared
//! operands are then read once.
//!
//! A concatenation of halves is split into two kernels; each is elementwise over the same rows and columns and accesses other
//! elements.

use super::lower::{Lowered, Param};
use crate::loops::{Atom, Buf, Extent, Index, Loop, LoopKind, Op, Reg, Stmt, Var};

/// The maximum number of kernels that are fused into one.
const MAX_FUSED_KERNELS: usize = 4;

/// Fuses adjacent kernels with equal loops.
pub(super) fn fuse_adjacent(pieces: Vec<Lowered>, buffers: usize) -> Vec<Lowered> {
    let mut all: Vec<(Lowered, usize)> = Vec::new();
    for p in pieces {
        match all.last().and_then(|(last, n)| (*n < MAX_FUSED_KERNELS).then(|| fuse_pair(last, &p, buffers)).flatten())
        {
            Some(both) => {
                let n = all.pop().map_or(1, |(_, n)| n + 1);
                all.push((both, n));
            }
            None => all.push((p, 1)),
        }
    }
    all.into_iter().map(|(l, _)| l).collect()
}

/// Fuses two kernels, if their loops are equal and neither reads what the other writes.
fn fuse_pair(a: &Lowered, b: &Lowered, most: usize) -> Option<Lowered> {
    if a.parallel != b.parallel || a.kernel.sizes > 0 || b.kernel.sizes > 0 {
        return None;
    }
    let (mut kernel, mut params) = (a.kernel.clone(), a.params.clone());
    let mut bufs = Vec::new();
    for (p, buffer) in b.params.iter().zip(&b.kernel.buffers) {
        let Param::Value(_) = p else { return None };
        let known = params.iter().position(|q| q == p);
        bufs.push(Buf(known.unwrap_or(params.len()) as u32));
        match known {
            Some(i) if kernel.buffers[i] != *buffer => return None,
            Some(_) => {}
            None => {
                params.push(*p);
                kernel.buffers.push(buffer.clone());
            }
        }
    }
    if params.len() > most || params.iter().any(|p| matches!(p, Param::Scratch(_))) {
        return None;
    }
    let mut renamed = RenameMap { regs: kernel.regs.len() as u32, bufs, vars: vec![None; b.kernel.vars as usize] };
    kernel.body = bodies(&a.kernel.body, &b.kernel.body, &mut renamed)?;
    kernel.regs.extend(&b.kernel.regs);
    Some(Lowered { kernel, params, parallel: a.parallel, work: a.work.saturating_add(b.work), run: a.run.min(b.run) })
}

/// Maps registers and variables of the second kernel to those of the first.
struct RenameMap {
    regs: u32,
    bufs: Vec<Buf>,
    vars: Vec<Option<Var>>,
}

/// Fuses two bodies: values, then one loop, down to a vector loop over values and stores.
fn bodies(a: &[Stmt], b: &[Stmt], names: &mut RenameMap) -> Option<Vec<Stmt>> {
    let value = |s: &Stmt| matches!(s, Stmt::Let { .. });
    match (a.split_last()?, b.split_last()?) {
        ((Stmt::Loop(x), before), (Stmt::Loop(y), others)) => {
            let alike = x.kind == y.kind && x.extent == y.extent && x.kind != LoopKind::Serial;
            let plain = x.carried.is_empty() && y.carried.is_empty() && matches!(x.extent, Extent::Exact(_));
            if !(alike && plain && before.iter().all(value) && others.iter().all(value)) {
                return None;
            }
            let mut all = before.to_vec();
            all.extend(others.iter().map(|s| names.statement(s)).collect::<Option<Vec<_>>>()?);
            *names.vars.get_mut(y.var.0 as usize)? = Some(x.var);
            let body = match x.kind {
                LoopKind::Vector => inner(&x.body, &y.body, names)?,
                _ => bodies(&x.body, &y.body, names)?,
            };
            all.push(Stmt::Loop(Loop { body, ..x.clone() }));
            Some(all)
        }
        _ => None,
    }
}

/// Concatenates two innermost bodies, all values before all stores.
fn inner(a: &[Stmt], b: &[Stmt], names: &RenameMap) -> Option<Vec<Stmt>> {
    if a.iter().chain(b).any(|s| matches!(s, Stmt::Loop(_))) {
        return None;
    }
    let others = b.iter().map(|s| names.statement(s)).collect::<Option<Vec<_>>>()?;
    let (values, stores): (Vec<Stmt>, Vec<Stmt>) =
        a.iter().cloned().chain(others).partition(|s| matches!(s, Stmt::Let { .. }));
    Some(values.into_iter().chain(stores).collect())
}

impl RenameMap {
    fn reg(&self, r: Reg) -> Reg {
        Reg(r.0 + self.regs)
    }

    fn buf(&self, b: Buf) -> Option<Buf> {
        self.bufs.get(b.0 as usize).copied()
    }

    fn index(&self, i: &Index) -> Option<Index> {
        let mut out = i.clone();
        for (atom, _) in &mut out.terms {
            *atom = match *atom {
                Atom::Var(v) => Atom::Var(self.vars.get(v.0 as usize).copied().flatten()?),
                Atom::Reg(r) => Atom::Reg(self.reg(r)),
            };
        }
        Some(out)
    }

    fn statement(&self, s: &Stmt) -> Option<Stmt> {
        Some(match s {
            Stmt::Let { dst, op } => Stmt::Let { dst: self.reg(*dst), op: self.op(op)? },
            Stmt::Store { buf, index, value, mask } => Stmt::Store {
                buf: self.buf(*buf)?,
                index: self.index(index)?,
                value: self.reg(*value),
                mask: mask.map(|m| self.reg(m)),
            },
            Stmt::Loop(_) => return None,
        })
    }

    fn op(&self, op: &Op) -> Option<Op> {
        let r = |r: &Reg| self.reg(*r);
        Some(match op {
            Op::Const(s) => Op::Const(*s),
            Op::Index(i) => Op::Index(self.index(i)?),
            Op::Load { buf, index, mask } => {
                Op::Load { buf: self.buf(*buf)?, index: self.index(index)?, mask: mask.map(|(m, x)| (self.reg(m), x)) }
            }
            Op::Unary(op, x) => Op::Unary(*op, r(x)),
            Op::Binary(op, a, b) => Op::Binary(*op, r(a), r(b)),
            Op::Compare(op, a, b) => Op::Compare(*op, r(a), r(b)),
            Op::Select(c, a, b) => Op::Select(r(c), r(a), r(b)),
            Op::Fma(a, b, c) => Op::Fma(r(a), r(b), r(c)),
            Op::Cast(to, x) => Op::Cast(*to, r(x)),
            Op::Quantize(to, x) => Op::Quantize(*to, r(x)),
            Op::Bitcast(to, x) => Op::Bitcast(*to, r(x)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::{AccessMode, KernelBuilder, Size};
    use ir::{DType, Value};

    /// `out[row, from..] = f(x[row, at..])`, two columns of four.
    fn half(at: i64, from: i64, columns: i64) -> Lowered {
        let mut b = KernelBuilder::new("half");
        let x = b.buffer(DType::F32, AccessMode::Read);
        let y = b.buffer(DType::F32, AccessMode::Write);
        b.for_loop(LoopKind::Parallel, Size::Const(3), |b, p| {
            b.for_loop(LoopKind::Vector, Size::Const(columns), |b, i| {
                let v = b.load(x, Index { offset: at, ..Index::default() }.add_var(i, 1).add_var(p, 4));
                let w = b.binary(ir::Binary::Add, v, v);
                b.store(y, Index { offset: from, ..Index::default() }.add_var(i, 1).add_var(p, 4), w);
            });
        });
        let params = vec![Param::Value(Value(7)), Param::Value(Value(9))];
        Lowered { kernel: b.finish(), params, parallel: Some(3), work: 10, run: columns }
    }

    fn run(kernels: &[Lowered]) -> Vec<f32> {
        let x: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut memory = [x, vec![0; 48]];
        for l in kernels {
            assert_eq!(crate::loops::verify(&l.kernel), Ok(()), "{}", l.kernel);
            let [x, y] = &mut memory;
            crate::loops::eval(&l.kernel, &mut [&mut x[..], &mut y[..]], &[]).unwrap();
        }
        memory[1].chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn halves_become_one_kernel_and_others_do_not() {
        let halves = || vec![half(2, 0, 2), half(0, 2, 2)];
        let both = fuse_adjacent(halves(), 8);
        assert_eq!(both.len(), 1, "{}", both[0].kernel);
        assert_eq!(both[0].params.len(), 2);
        assert_eq!(run(&both), run(&halves()));
        assert_eq!(fuse_adjacent(vec![half(2, 0, 2), half(0, 2, 1)], 8).len(), 2, "rows of other lengths");
        let mut swapped = half(0, 2, 2);
        swapped.params.reverse();
        assert_eq!(fuse_adjacent(vec![half(2, 0, 2), swapped], 8).len(), 2, "what one writes, the other one reads");
        assert_eq!(fuse_adjacent(halves(), 1).len(), 2, "too many buffers");
    }
}
