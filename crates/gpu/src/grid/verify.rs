//! The verifier of grids: checks the invariants in the module documentation of `grid`.

use super::lower::waits;
use super::{Access, AddressSpace, Buf, GridKernel, Index, Loop, Op, Reg, Size, Stmt};
use compiler::loops;
use ir::DType;

/// A violated invariant of a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages are the documentation")]
pub enum GridError {
    #[error("r{} is used where it is not defined", .0.0)]
    UndefinedReg(Reg),
    #[error("r{} is assigned twice", .0.0)]
    RegTwice(Reg),
    #[error("b{} does not exist", .0.0)]
    UndefinedBuf(Buf),
    #[error("size argument {0} does not exist")]
    UndefinedSize(u32),
    #[error("r{} has dtype {found}, expected {expected}", .reg.0)]
    DType { reg: Reg, found: DType, expected: DType },
    #[error("r{} has dtype {dtype}, which indices are not computed from", .reg.0)]
    Index { reg: Reg, dtype: DType },
    #[error("r{}: `{op}` does not take {dtype}", .reg.0)]
    Domain { reg: Reg, op: &'static str, dtype: DType },
    #[error("r{}: constants, indices and loads are statements of their own", .0.0)]
    NotArithmetic(Reg),
    #[error("threads wait for each other inside of a condition")]
    WaitInIf,
    #[error("b{} is stored to but is read-only", .0.0)]
    StoreToRead(Buf),
    #[error("b{} is loaded from but is write-only", .0.0)]
    LoadFromWrite(Buf),
    #[error("an exchange over {xor} threads in subgroups of {subgroup}")]
    Exchange { xor: u32, subgroup: u32 },
    #[error("{threads} threads are not subgroups of {subgroup}, or not {teams} teams")]
    Threads { threads: u32, subgroup: u32, teams: u32 },
    #[error("an access to no element")]
    Empty,
}

type Check = Result<(), GridError>;

/// Checks every invariant.
pub fn verify(k: &GridKernel) -> Check {
    let whole = k.subgroup_size.is_power_of_two() && k.teams > 0 && k.threads.is_multiple_of(k.subgroup_size);
    if !whole || !k.threads.is_multiple_of(k.teams) || k.threads == 0 {
        return Err(GridError::Threads { threads: k.threads, subgroup: k.subgroup_size, teams: k.teams });
    }
    k.work.iter().try_for_each(|c| size(k, c.size))?;
    let mut v = Verifier { k, seen: vec![false; k.regs.len()], live: vec![false; k.regs.len()], scope: Vec::new() };
    v.block(&k.body)
}

fn size(k: &GridKernel, s: Size) -> Check {
    match s {
        Size::Arg(n) if n >= k.sizes => Err(GridError::UndefinedSize(n)),
        _ => Ok(()),
    }
}

struct Verifier<'a> {
    k: &'a GridKernel,
    seen: Vec<bool>,
    live: Vec<bool>,
    scope: Vec<Reg>,
}

impl Verifier<'_> {
    fn block(&mut self, body: &[Stmt]) -> Check {
        let mark = self.scope.len();
        for s in body {
            self.stmt(s)?;
        }
        self.end(mark);
        Ok(())
    }

    fn end(&mut self, mark: usize) {
        for r in self.scope.drain(mark..) {
            self.live[r.0 as usize] = false;
        }
    }

    fn stmt(&mut self, s: &Stmt) -> Check {
        match s {
            Stmt::Let { dst, op } => self.let_(*dst, op),
            Stmt::Load { dst, buf, index, mask } => {
                let m = self.memory(*buf)?;
                if m.space == AddressSpace::Global(Access::Write) {
                    return Err(GridError::LoadFromWrite(*buf));
                }
                self.index(index)?;
                if let Some((mask, _)) = mask {
                    self.expect(*mask, DType::Bool)?;
                }
                if dst.is_empty() {
                    return Err(GridError::Empty);
                }
                dst.iter().try_for_each(|&r| self.define(r, m.dtype))
            }
            Stmt::Store { buf, index, value, mask } => {
                let m = self.memory(*buf)?;
                if m.space == AddressSpace::Global(Access::Read) {
                    return Err(GridError::StoreToRead(*buf));
                }
                self.index(index)?;
                if let Some(mask) = mask {
                    self.expect(*mask, DType::Bool)?;
                }
                if value.is_empty() {
                    return Err(GridError::Empty);
                }
                value.iter().try_for_each(|&r| self.expect(r, m.dtype))
            }
            Stmt::Loop(l) => self.loop_(l),
            Stmt::If { cond, body } => {
                self.expect(*cond, DType::Bool)?;
                if waits(body) {
                    return Err(GridError::WaitInIf);
                }
                self.block(body)
            }
            Stmt::Barrier(_) => Ok(()),
            Stmt::Exchange { dst, src, xor } => {
                if !xor.is_power_of_two() || *xor >= self.k.subgroup_size {
                    return Err(GridError::Exchange { xor: *xor, subgroup: self.k.subgroup_size });
                }
                let d = self.use_(*src)?;
                self.define(*dst, d)
            }
        }
    }

    fn loop_(&mut self, l: &Loop) -> Check {
        let int = self.use_(l.from)?;
        if !matches!(int, DType::I32 | DType::I64) {
            return Err(GridError::Index { reg: l.var, dtype: int });
        }
        self.expect(l.to, int)?;
        self.expect(l.step, int)?;
        for c in &l.carried {
            self.use_(c.init)?;
        }
        let mark = self.scope.len();
        self.define(l.var, int)?;
        for c in &l.carried {
            self.define(c.phi, self.dtype(c.init)?)?;
        }
        for s in &l.body {
            self.stmt(s)?;
        }
        for c in &l.carried {
            self.expect(c.next, self.dtype(c.init)?)?;
        }
        self.end(mark);
        l.carried.iter().try_for_each(|c| self.define(c.out, self.dtype(c.init)?))
    }

    fn let_(&mut self, dst: Reg, op: &Op) -> Check {
        let own = self.dtype(dst)?;
        let int = |d: DType| matches!(d, DType::I32 | DType::I64);
        let d = match op {
            Op::Const(s) => s.dtype(),
            Op::ThreadBuiltin(_) => DType::I32,
            Op::Size(n) => {
                size(self.k, Size::Arg(*n))?;
                if int(own) { own } else { DType::I64 }
            }
            Op::Index(i) => {
                self.index(i)?;
                if i.wide { DType::I64 } else { DType::I32 }
            }
            Op::Arith(op) => self.arith(dst, op)?,
        };
        self.define(dst, d)
    }

    fn arith(&self, dst: Reg, op: &loops::Op) -> Result<DType, GridError> {
        use loops::Op::*;
        let domain = |ok: bool, op: &'static str, dtype: DType| {
            if ok { Ok(()) } else { Err(GridError::Domain { reg: dst, op, dtype }) }
        };
        Ok(match op {
            Const(_) | Index(_) | Load { .. } => return Err(GridError::NotArithmetic(dst)),
            Unary(op, x) => {
                let d = self.use_(*x)?;
                domain(op.domain().contains(d), op.name(), d)?;
                op.result(d)
            }
            Binary(op, a, b) => {
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                domain(op.domain().contains(d), op.name(), d)?;
                d
            }
            Compare(_, a, b) => {
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                DType::Bool
            }
            Select(c, a, b) => {
                self.expect(*c, DType::Bool)?;
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                d
            }
            Fma(a, b, c) => {
                let d = self.use_(*a)?;
                self.expect(*b, d)?;
                self.expect(*c, d)?;
                domain(d != DType::Bool, "fma", d)?;
                d
            }
            Cast(to, x) | Quantize(to, x) => {
                self.use_(*x)?;
                *to
            }
            Bitcast(to, x) => {
                let d = self.use_(*x)?;
                domain(d.size() == to.size() && (*to != DType::Bool || d == DType::Bool), "bitcast", d)?;
                *to
            }
        })
    }

    fn index(&self, i: &Index) -> Check {
        for &a in &i.offset_args {
            size(self.k, Size::Arg(a))?;
        }
        for &(r, s) in &i.terms {
            size(self.k, s)?;
            let d = self.use_(r)?;
            if d != DType::I32 && !(d == DType::I64 && i.wide) {
                return Err(GridError::Index { reg: r, dtype: d });
            }
        }
        Ok(())
    }

    fn memory(&self, buf: Buf) -> Result<super::Memory, GridError> {
        self.k.memory.get(buf.0 as usize).copied().ok_or(GridError::UndefinedBuf(buf))
    }

    fn dtype(&self, r: Reg) -> Result<DType, GridError> {
        self.k.regs.get(r.0 as usize).copied().ok_or(GridError::UndefinedReg(r))
    }

    fn use_(&self, r: Reg) -> Result<DType, GridError> {
        match self.live.get(r.0 as usize) {
            Some(true) => self.dtype(r),
            _ => Err(GridError::UndefinedReg(r)),
        }
    }

    fn expect(&self, reg: Reg, expected: DType) -> Check {
        let found = self.use_(reg)?;
        if found == expected { Ok(()) } else { Err(GridError::DType { reg, found, expected }) }
    }

    fn define(&mut self, reg: Reg, expected: DType) -> Check {
        let found = self.dtype(reg)?;
        if found != expected {
            return Err(GridError::DType { reg, found, expected });
        }
        if std::mem::replace(&mut self.seen[reg.0 as usize], true) {
            return Err(GridError::RegTwice(reg));
        }
        self.live[reg.0 as usize] = true;
        self.scope.push(reg);
        Ok(())
    }
}
