//! The kernel verifier: checks the numbered invariants in the module documentation of `loops`.

use super::{AccessMode, Atom, Buf, Extent, Index, Kernel, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::{Binary, DType};
use thiserror::Error;

/// A violated invariant of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages are the documentation")]
pub enum KernelError {
    #[error("r{} is used where it is not defined", .0.0)]
    UndefinedReg(Reg),
    #[error("r{} is assigned twice", .0.0)]
    RegRedefined(Reg),
    #[error("v{} is used outside its loop", .0.0)]
    UndefinedVar(Var),
    #[error("v{} belongs to two loops", .0.0)]
    VarRedefined(Var),
    #[error("b{} does not exist", .0.0)]
    UndefinedBuf(Buf),
    #[error("size argument {0} does not exist")]
    UndefinedSize(u32),
    #[error("r{} has dtype {found}, expected {expected}", .reg.0)]
    DType { reg: Reg, found: DType, expected: DType },
    #[error("r{}: `{op}` does not take {dtype}", .reg.0)]
    Domain { reg: Reg, op: &'static str, dtype: DType },
    #[error("v{}: a parallel loop stands alone at the top level and carries nothing", .0.0)]
    Parallel(Var),
    #[error("v{}: vector loops do not nest", .0.0)]
    NestedVector(Var),
    #[error("r{}: a vector loop's carried value needs a combine", .0.0)]
    Combine(Reg),
    #[error("b{} is stored to but is read-only", .0.0)]
    StoreToRead(Buf),
    #[error("b{} is loaded from but is write-only", .0.0)]
    LoadFromWrite(Buf),
    #[error("v{}: the bound's index varies with a vector loop", .0.0)]
    VaryingExtent(Var),
}

/// Checks every invariant of the module documentation.
pub fn verify(k: &Kernel) -> Result<(), KernelError> {
    let mut v = Verifier {
        k,
        regs: vec![State::Fresh; k.regs.len()],
        vars: vec![State::Fresh; k.vars as usize],
        varying: vec![false; k.regs.len()],
        vector: None,
        scope: vec![],
    };
    v.block(&k.body, 0)
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Fresh,
    Live,
    Dead,
}

struct Verifier<'a> {
    k: &'a Kernel,
    regs: Vec<State>,
    vars: Vec<State>,
    /// Whether a register may differ between the lanes of the vector loop around it.
    varying: Vec<bool>,
    vector: Option<Var>,
    /// Registers defined in the open blocks, innermost last.
    scope: Vec<Reg>,
}

type Check = Result<(), KernelError>;

impl Verifier<'_> {
    fn block(&mut self, body: &[Stmt], depth: usize) -> Check {
        for s in body {
            match s {
                Stmt::Let { dst, op } => self.let_(*dst, op)?,
                Stmt::Store { buf, index, value, mask } => {
                    self.index(index)?;
                    let b = self.k.buffers.get(buf.0 as usize).ok_or(KernelError::UndefinedBuf(*buf))?;
                    if b.mode == AccessMode::Read {
                        return Err(KernelError::StoreToRead(*buf));
                    }
                    self.expect(*value, b.dtype)?;
                    if let Some(m) = mask {
                        self.expect(*m, DType::Bool)?;
                    }
                }
                Stmt::Loop(l) => {
                    let alone = depth == 0 && body.len() == 1 && l.carried.is_empty();
                    if l.kind == LoopKind::Parallel && !alone {
                        return Err(KernelError::Parallel(l.var));
                    }
                    self.loop_(l, depth)?;
                }
            }
        }
        Ok(())
    }

    fn loop_(&mut self, l: &Loop, depth: usize) -> Check {
        match &l.extent {
            Extent::Exact(n) => self.size(*n)?,
            Extent::Bounded { bound, buf, index } => {
                self.size(*bound)?;
                self.index(index)?;
                if self.loads(*buf)? != DType::I32 || self.index_varies(index) {
                    return Err(KernelError::VaryingExtent(l.var));
                }
            }
        }
        for c in &l.carried {
            let d = self.use_(c.init)?;
            for r in [c.phi, c.next, c.out] {
                let found = *self.k.regs.get(r.0 as usize).ok_or(KernelError::UndefinedReg(r))?;
                if found != d {
                    return Err(KernelError::DType { reg: r, found, expected: d });
                }
            }
            use Binary::*;
            let op = c.combine;
            if l.kind == LoopKind::Vector && !matches!(op, Some(Add | Mul | Max | Min | And | Or | Xor)) {
                return Err(KernelError::Combine(c.phi));
            }
            if let Some(op) = op
                && !op.domain().contains(d)
            {
                return Err(KernelError::Domain { reg: c.phi, op: op.name(), dtype: d });
            }
        }
        match self.vars.get(l.var.0 as usize) {
            None => return Err(KernelError::UndefinedVar(l.var)),
            Some(State::Fresh) => self.vars[l.var.0 as usize] = State::Live,
            Some(_) => return Err(KernelError::VarRedefined(l.var)),
        }
        let outer = self.vector;
        if l.kind == LoopKind::Vector {
            if outer.is_some() {
                return Err(KernelError::NestedVector(l.var));
            }
            self.vector = Some(l.var);
        }
        let mark = self.scope.len();
        for c in &l.carried {
            // The phi of a serial loop in a vector loop is assumed to vary, which is conservative for invariant-extent checks.
            self.define(c.phi, self.vector.is_some())?;
        }
        self.block(&l.body, depth + 1)?;
        for c in &l.carried {
            self.use_(c.next)?;
        }
        for r in self.scope.drain(mark..) {
            self.regs[r.0 as usize] = State::Dead;
        }
        self.vars[l.var.0 as usize] = State::Dead;
        self.vector = outer;
        for c in &l.carried {
            self.define(c.out, self.vector.is_some())?;
        }
        Ok(())
    }

    fn let_(&mut self, dst: Reg, op: &Op) -> Check {
        let found = *self.k.regs.get(dst.0 as usize).ok_or(KernelError::UndefinedReg(dst))?;
        let mut varies = false;
        let domain = |ok: bool, op: &'static str, dtype: DType| {
            if ok { Ok(()) } else { Err(KernelError::Domain { reg: dst, op, dtype }) }
        };
        let expected = match op {
            Op::Const(s) => s.dtype(),
            Op::Index(i) => {
                self.index(i)?;
                varies = self.index_varies(i);
                DType::I64
            }
            Op::Load { buf, index, mask } => {
                self.index(index)?;
                varies = self.index_varies(index);
                let d = self.loads(*buf)?;
                if let Some((m, other)) = mask {
                    self.expect(*m, DType::Bool)?;
                    varies |= self.varying[m.0 as usize];
                    if other.dtype() != d {
                        return Err(KernelError::DType { reg: dst, found: other.dtype(), expected: d });
                    }
                }
                d
            }
            Op::Unary(op, x) => {
                let d = self.use_(*x)?;
                domain(op.domain().contains(d), op.name(), d)?;
                op.result(d)
            }
            Op::Binary(op, a, b) => {
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                domain(op.domain().contains(d), op.name(), d)?;
                d
            }
            Op::Compare(_, a, b) => {
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                DType::Bool
            }
            Op::Select(c, a, b) => {
                self.expect(*c, DType::Bool)?;
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                d
            }
            Op::Fma(a, b, c) => {
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                self.expect(*c, d)?;
                domain(d != DType::Bool, "fma", d)?;
                d
            }
            Op::Cast(to, x) | Op::Quantize(to, x) => {
                self.use_(*x)?;
                *to
            }
            Op::Bitcast(to, x) => {
                let d = self.use_(*x)?;
                domain(d.size() == to.size() && (*to != DType::Bool || d == DType::Bool), "bitcast", d)?;
                *to
            }
        };
        if found != expected {
            return Err(KernelError::DType { reg: dst, found, expected });
        }
        for r in op.operands() {
            varies |= self.varying[r.0 as usize];
        }
        self.define(dst, varies)
    }

    fn define(&mut self, r: Reg, varies: bool) -> Check {
        let state = self.regs.get_mut(r.0 as usize).ok_or(KernelError::UndefinedReg(r))?;
        if *state != State::Fresh {
            return Err(KernelError::RegRedefined(r));
        }
        *state = State::Live;
        self.varying[r.0 as usize] = varies;
        self.scope.push(r);
        Ok(())
    }

    fn use_(&self, r: Reg) -> Result<DType, KernelError> {
        match self.regs.get(r.0 as usize) {
            Some(State::Live) => Ok(self.k.regs[r.0 as usize]),
            _ => Err(KernelError::UndefinedReg(r)),
        }
    }

    fn expect(&self, r: Reg, expected: DType) -> Check {
        let found = self.use_(r)?;
        if found == expected { Ok(()) } else { Err(KernelError::DType { reg: r, found, expected }) }
    }

    fn loads(&self, buf: Buf) -> Result<DType, KernelError> {
        let b = self.k.buffers.get(buf.0 as usize).ok_or(KernelError::UndefinedBuf(buf))?;
        if b.mode == AccessMode::Write { Err(KernelError::LoadFromWrite(buf)) } else { Ok(b.dtype) }
    }

    fn size(&self, s: Size) -> Check {
        match s {
            Size::Arg(n) if n >= self.k.sizes => Err(KernelError::UndefinedSize(n)),
            _ => Ok(()),
        }
    }

    fn index(&self, i: &Index) -> Check {
        for &a in &i.offset_args {
            self.size(Size::Arg(a))?;
        }
        for &(atom, stride) in &i.terms {
            self.size(stride)?;
            match atom {
                Atom::Var(v) => match self.vars.get(v.0 as usize) {
                    Some(State::Live) => {}
                    _ => return Err(KernelError::UndefinedVar(v)),
                },
                Atom::Reg(r) => self.expect(r, DType::I64)?,
            }
        }
        Ok(())
    }

    fn index_varies(&self, i: &Index) -> bool {
        i.terms.iter().any(|(atom, _)| match atom {
            Atom::Var(v) => self.vector == Some(*v),
            Atom::Reg(r) => self.varying[r.0 as usize],
        })
    }
}

impl Op {
    /// The value operands, without those in an index or a mask.
    pub fn operands(&self) -> impl Iterator<Item = Reg> {
        let list = match *self {
            Op::Const(_) | Op::Index(_) | Op::Load { .. } => [None; 3],
            Op::Unary(_, x) | Op::Cast(_, x) | Op::Quantize(_, x) | Op::Bitcast(_, x) => [Some(x), None, None],
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => [Some(a), Some(b), None],
            Op::Select(a, b, c) | Op::Fma(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        list.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::KernelBuilder;

    fn check(expected: Result<(), KernelError>, make: impl FnOnce(&mut KernelBuilder, Buf, Buf)) {
        let mut b = KernelBuilder::new("t");
        let x = b.buffer(DType::F32, AccessMode::Read);
        let y = b.buffer(DType::F32, AccessMode::Write);
        make(&mut b, x, y);
        assert_eq!(verify(&b.finish()), expected);
    }

    #[test]
    fn each_invariant_is_checked() {
        let n = Size::Const(8);
        check(Ok(()), |b, x, y| {
            b.for_loop(LoopKind::Parallel, n, |b, i| {
                let v = b.load(x, i);
                b.store(y, i, v);
            });
        });
        check(Err(KernelError::UndefinedReg(Reg(0))), |b, x, y| {
            b.for_loop(LoopKind::Serial, n, |b, i| {
                b.load(x, i);
            });
            b.store(y, 0, Reg(0));
        });
        check(Err(KernelError::RegRedefined(Reg(0))), |b, x, _| {
            let r = b.load(x, 0);
            b.push(Stmt::Let { dst: r, op: Op::Const(ir::Scalar::one(DType::F32)) });
        });
        check(Err(KernelError::UndefinedVar(Var(0))), |b, x, _| {
            let v = b.var();
            b.load(x, v);
        });
        check(Err(KernelError::DType { reg: Reg(1), found: DType::I32, expected: DType::F32 }), |b, _, _| {
            let a = b.constant_from_f64(DType::F32, 1.0);
            let c = b.constant_from_f64(DType::I32, 1.0);
            b.binary(Binary::Add, a, c);
        });
        check(Err(KernelError::Domain { reg: Reg(1), op: "and", dtype: DType::F32 }), |b, _, _| {
            let a = b.constant_from_f64(DType::F32, 1.0);
            b.binary(Binary::And, a, a);
        });
        check(Err(KernelError::Parallel(Var(0))), |b, _, _| {
            b.for_loop(LoopKind::Parallel, n, |_, _| {});
            b.constant_from_f64(DType::F32, 1.0);
        });
        check(Err(KernelError::NestedVector(Var(1))), |b, _, _| {
            b.for_loop(LoopKind::Vector, n, |b, _| b.for_loop(LoopKind::Vector, n, |_, _| {}));
        });
        check(Err(KernelError::Combine(Reg(1))), |b, _, _| {
            let a = b.constant_from_f64(DType::F32, 1.0);
            b.loop_(LoopKind::Vector, Extent::Exact(n), &[(a, None)], |_, _, p| p.to_vec());
        });
        check(Err(KernelError::StoreToRead(Buf(0))), |b, x, _| {
            let a = b.constant_from_f64(DType::F32, 1.0);
            b.store(x, 0, a);
        });
        check(Err(KernelError::LoadFromWrite(Buf(1))), |b, _, y| {
            b.load(y, 0);
        });
        check(Err(KernelError::UndefinedSize(0)), |b, x, _| {
            b.load(x, Index { offset_args: vec![0], ..Index::default() });
        });
        check(Err(KernelError::VaryingExtent(Var(1))), |b, _, _| {
            let lens = b.buffer(DType::I32, AccessMode::Read);
            b.for_loop(LoopKind::Vector, n, |b, i| {
                let e = Extent::Bounded { bound: n, buf: lens, index: i.into() };
                b.loop_(LoopKind::Serial, e, &[], |_, _, _| vec![]);
            });
        });
    }
}
