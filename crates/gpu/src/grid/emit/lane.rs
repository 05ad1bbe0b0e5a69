//! Emits the statements of a lane: loads, stores and arithmetic, several elements at a time, in 32 bits if ranges prove that
//! they fit.

use super::{Copies, Emit};
use crate::grid::{AddressSpace, Index, Op, Stmt};
use compiler::loops::range::IntRange;
use compiler::loops::{self, Atom, Buf, Reg, Size};
use ir::{Binary, DType, DTypeKind, Scalar, Unary};
use smallvec::SmallVec;

impl Emit<'_, '_> {
    pub(in crate::grid) fn lane_block(&mut self, body: &[loops::Stmt]) {
        for s in body {
            match s {
                loops::Stmt::Let { dst, op } => self.let_op(*dst, op),
                loops::Stmt::Store { buf, index, value, mask } => self.store(*buf, index, *value, *mask, None),
                loops::Stmt::Loop(l) => self.lane_serial(l),
            }
        }
    }

    pub(super) fn let_op(&mut self, dst: Reg, op: &loops::Op) {
        let mut copies = self.needed(op);
        // A test that is equal for adjacent elements is computed once.
        let test = copies > 1 && self.facts.kernel.regs[dst.0 as usize] == DType::Bool;
        if test && self.along.is_some_and(|v| self.facts.uniform(dst, v, self.copies as i64)) {
            copies = 1;
        }
        if let loops::Op::Load { buf, index, mask } = op {
            return self.load(dst, *buf, index, *mask, copies);
        }
        self.values[dst.0 as usize] = (0..copies).map(|j| self.op(dst, op, j)).collect();
    }

    /// The number of registers for the value of an op: one if all elements of a lane have the same value.
    fn needed(&self, op: &loops::Op) -> usize {
        let mut most = op.operands().map(|r| self.values[r.0 as usize].len()).max().unwrap_or(1);
        if let loops::Op::Index(i) | loops::Op::Load { index: i, .. } = op {
            most = most.max(self.index_copies(i));
        }
        if let loops::Op::Load { mask: Some((m, _)), .. } = op {
            most = most.max(self.values[m.0 as usize].len());
        }
        most
    }

    fn index_copies(&self, i: &loops::Index) -> usize {
        let of = |a: &Atom| match a {
            Atom::Var(v) => self.vars[v.0 as usize].len(),
            Atom::Reg(r) => self.values[r.0 as usize].len(),
        };
        i.terms.iter().map(|(a, _)| of(a)).max().unwrap_or(1)
    }

    fn load(&mut self, dst: Reg, buf: Buf, index: &loops::Index, mask: Option<(Reg, Scalar)>, copies: usize) {
        if mask.is_none()
            && let Some(regs) = self.held.find(self.facts, buf, index, copies)
        {
            self.values[dst.0 as usize] = regs;
            return;
        }
        let d = self.memory[buf.0 as usize].dtype;
        let regs: Copies = (0..copies).map(|_| self.reg(d)).collect();
        let other = mask.map_or(Scalar::zero(d), |m| m.1);
        // The copies of a load are adjacent elements: the shape has several elements per lane only in that case.
        let one = mask.is_none_or(|(m, _)| self.values[m.0 as usize].len() == 1);
        let wide = copies > 1 && one && self.neighbours(index);
        let each = if wide { copies } else { 1 };
        for j in (0..copies).step_by(each) {
            let own = mask.map(|(m, _)| self.pick(m, j));
            let mask = self.live_mask(buf, own).map(|m| (m, other));
            let at = self.index(buf, index, j);
            self.push(Stmt::Load { dst: regs[j..j + each].to_vec(), buf, index: at, mask });
        }
        if mask.is_none() {
            self.held.keep(self.facts, buf, index, &regs);
        }
        self.values[dst.0 as usize] = regs;
    }

    pub(super) fn store(&mut self, buf: Buf, index: &loops::Index, value: Reg, mask: Option<Reg>, leader: Option<Reg>) {
        let d = self.memory[buf.0 as usize].dtype;
        let copies =
            self.index_copies(index).max(if self.copies > 1 { self.values[value.0 as usize].len() } else { 1 });
        let mut kept = Copies::new();
        let one = mask.is_none_or(|m| self.values[m.0 as usize].len() == 1);
        let wide = copies > 1 && one && self.neighbours(index);
        let each = if wide { copies } else { 1 };
        for j in (0..copies).step_by(each) {
            let own = mask.map(|m| self.pick(m, j));
            let mask = self.live_mask(buf, own);
            let mask = self.both(mask, leader);
            let at = self.index(buf, index, j);
            let value: Vec<Reg> = (j..j + each).map(|j| self.value_as(value, j, d)).collect();
            kept.extend(value.iter().copied());
            self.push(Stmt::Store { buf, index: at, value, mask });
        }
        self.held.stored(self.facts, buf, index);
        if mask.is_none() && leader.is_none() && self.facts.is_scratch(buf) {
            self.held.keep(self.facts, buf, index, &kept);
        }
    }

    /// Whether the elements of a lane are adjacent at this index.
    fn neighbours(&self, index: &loops::Index) -> bool {
        let form = self.facts.index_form(index);
        let along = |v: &(compiler::loops::index_analysis::IndexVar, i64)| match v.0 {
            compiler::loops::index_analysis::IndexVar::Var(v) => self.vars[v.0 as usize].len() > 1,
            compiler::loops::index_analysis::IndexVar::Reg(r) => self.values[r.0 as usize].len() > 1,
        };
        form.is_some_and(|f| f.terms.into_iter().filter(along).map(|(_, s)| s).eq([1]))
    }

    /// The mask of an access: memory that all teams share is accessed only by teams that have a row.
    pub(super) fn live_mask(&mut self, buf: Buf, own: Option<Reg>) -> Option<Reg> {
        let global = matches!(self.memory[buf.0 as usize].space, AddressSpace::Global(_));
        let live = self.live.filter(|_| global);
        let here = self.held.taking_part();
        let live = self.both(live, here);
        self.both(live, own)
    }

    fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.arith(DType::Bool, loops::Op::Binary(Binary::And, a, b))),
            (a, b) => a.or(b),
        }
    }

    /// An index into a buffer, for the j-th element of a lane.
    pub(super) fn index(&mut self, buf: Buf, i: &loops::Index, j: usize) -> Index {
        let mut index = self.plain_index(i, j);
        let own = match self.memory[buf.0 as usize].space {
            AddressSpace::Global(_) => None,
            AddressSpace::Shared(n) => self.team.map(|t| (t, n / self.shape.teams as usize)),
            AddressSpace::Spill(n) => self.slot.map(|s| (s, n)),
        };
        if let Some((reg, n)) = own {
            let most = match self.memory[buf.0 as usize].space {
                AddressSpace::Spill(n) => n as i128 * self.limits.max_spill_blocks as i128 * self.shape.teams as i128,
                _ => 0,
            };
            index.wide |= self.dtype(reg) == DType::I64 || !IntRange::new(0, most + n as i128).fits_i32();
            index.terms.push((reg, Size::Const(n as i64)));
        }
        index
    }

    fn plain_index(&mut self, i: &loops::Index, j: usize) -> Index {
        let (_, narrow) = self.facts.index_range(i);
        let mut out = Index { wide: !narrow, offset: i.offset, offset_args: i.offset_args.clone(), terms: Vec::new() };
        for &(atom, stride) in &i.terms {
            let reg = match atom {
                Atom::Var(v) => {
                    let own = &self.vars[v.0 as usize];
                    own[if own.len() > 1 { j } else { 0 }]
                }
                Atom::Reg(r) => self.pick(r, j),
            };
            out.wide |= self.dtype(reg) == DType::I64;
            out.terms.push((reg, stride));
        }
        out
    }

    /// Whether an i64 register of the kernel is emitted as an i32.
    fn narrow(&self, r: Reg) -> bool {
        self.facts.kernel.regs[r.0 as usize] == DType::I64 && self.facts.regs[r.0 as usize].range.fits_i32()
    }

    /// Emits one copy of a value that is not a load.
    fn op(&mut self, dst: Reg, op: &loops::Op, j: usize) -> Reg {
        let d = self.facts.kernel.regs[dst.0 as usize];
        let narrow = self.narrow(dst);
        match op {
            loops::Op::Const(s) if narrow => return self.int(DType::I32, s.to_i64()),
            loops::Op::Const(s) => return self.let_(d, Op::Const(*s)),
            loops::Op::Index(i) => {
                let index = self.plain_index(i, j);
                let own = if index.wide { DType::I64 } else { DType::I32 };
                let r = self.let_(own, Op::Index(index));
                return self.cast(if narrow { DType::I32 } else { DType::I64 }, r);
            }
            _ => {}
        }
        let args: SmallVec<[Reg; 3]> = op.operands().map(|r| self.pick(r, j)).collect();
        let of_wide = op.operands().any(|r| self.facts.kernel.regs[r.0 as usize] == DType::I64);
        if !of_wide && d != DType::I64 {
            return self.arith(d, with_operands(op, &args));
        }
        // 64-bit integers that fit in 32 bits are computed in 32 bits.
        let small = args.iter().all(|r| self.dtype(*r) != DType::I64);
        let exact = match op {
            loops::Op::Compare(..) => true,
            loops::Op::Cast(to, x) => {
                *to != DType::I64 || (narrow && self.facts.kernel.regs[x.0 as usize].kind() != DTypeKind::Float)
            }
            loops::Op::Select(..) => narrow,
            loops::Op::Unary(op, _) => narrow && matches!(op, Unary::Neg | Unary::Abs | Unary::Sign | Unary::Not),
            loops::Op::Binary(op, ..) => {
                use Binary::*;
                narrow && matches!(op, Add | Sub | Mul | Div | Rem | Max | Min | And | Or | Xor)
            }
            _ => false,
        };
        if small && exact {
            let own = if d == DType::I64 { DType::I32 } else { d };
            let op = match op {
                loops::Op::Cast(..) if self.dtype(args[0]) == own => return args[0],
                loops::Op::Cast(..) => loops::Op::Cast(own, args[0]),
                _ => with_operands(op, &args),
            };
            return self.arith(own, op);
        }
        let mut wide = args;
        for (r, own) in wide.iter_mut().zip(op.operands()) {
            if self.facts.kernel.regs[own.0 as usize] == DType::I64 {
                *r = self.cast(DType::I64, *r);
            }
        }
        let r = self.arith(d, with_operands(op, &wide));
        if narrow { self.cast(DType::I32, r) } else { r }
    }
}

/// The same op with other registers.
fn with_operands(op: &loops::Op, args: &[Reg]) -> loops::Op {
    match (op, args) {
        (loops::Op::Unary(op, _), &[x]) => loops::Op::Unary(*op, x),
        (loops::Op::Binary(op, ..), &[a, b]) => loops::Op::Binary(*op, a, b),
        (loops::Op::Compare(op, ..), &[a, b]) => loops::Op::Compare(*op, a, b),
        (loops::Op::Select(..), &[c, a, b]) => loops::Op::Select(c, a, b),
        (loops::Op::Fma(..), &[a, b, c]) => loops::Op::Fma(a, b, c),
        (loops::Op::Cast(to, _), &[x]) => loops::Op::Cast(*to, x),
        (loops::Op::Quantize(to, _), &[x]) => loops::Op::Quantize(*to, x),
        (loops::Op::Bitcast(to, _), &[x]) => loops::Op::Bitcast(*to, x),
        _ => op.clone(),
    }
}
