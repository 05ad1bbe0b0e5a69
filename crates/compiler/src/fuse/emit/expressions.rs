//! Emits expressions in the open loops: each is computed once, in the outermost loop where its operands are available.

use super::{Bind, Emitter};
use crate::fuse::expr::{ExprId, KernelExpr};
use crate::fuse::index::{AffineIndex, AtomKind};
use crate::fuse::lower::ValueRole;
use crate::loops::{self, AccessMode, Atom, Reg, Size};
use ir::{Binary, DType, Scalar};

impl Emitter<'_> {
    /// Whether a register was computed in the innermost scope.
    pub(in crate::fuse) fn defined_here(&self, r: Reg) -> bool {
        self.scopes.last().is_some_and(|s| s.regs.values().any(|&x| x == r))
    }

    pub(in crate::fuse) fn find(&self, e: ExprId) -> Option<Reg> {
        self.scopes.iter().rev().find_map(|s| s.regs.get(&e).copied())
    }

    /// Emits the loop invariants that the next loops need, before they open.
    pub(in crate::fuse) fn hoist_all(&mut self) {
        // Where rows have no elements, expressions over their elements must not be hoisted: the memory may not exist.
        let empty = self.shape.cols.iter().any(|&v| self.shape.extents[v] == 0);
        let stores = self.stores.iter().filter(|s| !(empty && s.1 == ValueRole::Full));
        let mut targets: Vec<ExprId> = stores.map(|s| s.2).collect();
        targets.extend(self.reductions.iter().filter(|_| !empty).map(|r| r.operand));
        let mut seen = rustc_hash::FxHashSet::default();
        for t in targets {
            self.hoist(t, &mut seen);
        }
        let forms: Vec<AffineIndex> = self.stores.iter().map(|s| s.3.clone()).collect();
        for f in forms {
            self.hoist_atoms(&f);
        }
    }

    pub(in crate::fuse) fn ready(&self, e: ExprId) -> bool {
        let info = self.g.exprs.info(e);
        info.vars & !self.bound == 0 && info.level <= self.level && !info.carried
    }

    pub(in crate::fuse) fn hoist(&mut self, e: ExprId, seen: &mut rustc_hash::FxHashSet<ExprId>) {
        if !seen.insert(e) {
            return;
        }
        if self.ready(e) {
            if !matches!(self.g.exprs.get(e), KernelExpr::Const(_)) && self.find(e).is_none() {
                self.reg(e);
            }
            return;
        }
        if let KernelExpr::Load { at, .. } | KernelExpr::Index(at) = self.g.exprs.get(e) {
            let at = at.clone();
            self.hoist_atoms(&at);
        }
        for c in self.g.exprs.get(e).children() {
            self.hoist(c, seen);
        }
    }

    pub(in crate::fuse) fn hoist_atoms(&mut self, lin: &AffineIndex) {
        for (a, _) in lin.terms.clone() {
            let atom = self.g.atoms.get(a);
            let plain = matches!(atom.kind, AtomKind::Var(_));
            let computed_ready = match atom.kind {
                AtomKind::Computed(e) => self.ready(e),
                _ => true,
            };
            if !plain && atom.vars & !self.bound == 0 && computed_ready {
                self.atom_reg(a);
            }
        }
    }

    pub(in crate::fuse) fn reg(&mut self, e: ExprId) -> Reg {
        if let Some(r) = self.find(e) {
            return r;
        }
        if self.written.contains(&e)
            && let Some(&buf) = self.cached.get(&e)
            && let Some(at) = self.column()
        {
            let r = self.b.load(buf, at);
            self.scopes.last_mut().expect("a scope is open").regs.insert(e, r);
            return r;
        }
        let dtype = self.g.exprs.info(e).dtype;
        let ex = self.g.exprs.get(e).clone();
        let op = match ex {
            KernelExpr::Const(s) => loops::Op::Const(s),
            KernelExpr::Index(l) => loops::Op::Index(self.index(&l)),
            KernelExpr::Carry(_) if self.tile.is_some() => {
                let (buf, r, col, stride) = self.tile.expect("just seen");
                let mut index = loops::Index::default().add_atom(Atom::Var(r), stride);
                if let Some(Bind::Block(_, c) | Bind::Var(c)) = col.map(|v| self.bind[v]) {
                    index = index.add_var(c, 1);
                }
                let acc = self.b.load(buf, index);
                let out = if self.b.dtype(acc) == dtype { acc } else { self.b.cast(dtype, acc) };
                self.scopes.last_mut().expect("a scope is open").regs.insert(e, out);
                return out;
            }
            KernelExpr::Load { from, at, mask } => {
                let mask = mask.map(|(m, s)| (self.reg(m), s));
                let buf = self.buffer(from, dtype, AccessMode::Read);
                loops::Op::Load { buf, index: self.index(&at), mask }
            }
            KernelExpr::Unary(op, a) => loops::Op::Unary(op, self.reg(a)),
            KernelExpr::Binary(op, a, b) => loops::Op::Binary(op, self.reg(a), self.reg(b)),
            KernelExpr::Compare(op, a, b) => loops::Op::Compare(op, self.reg(a), self.reg(b)),
            KernelExpr::Select(c, a, b) => loops::Op::Select(self.reg(c), self.reg(a), self.reg(b)),
            KernelExpr::Fma(a, b, c) => loops::Op::Fma(self.reg(a), self.reg(b), self.reg(c)),
            KernelExpr::Cast(d, a) => loops::Op::Cast(d, self.reg(a)),
            KernelExpr::Quantize(d, a) => loops::Op::Quantize(d, self.reg(a)),
            KernelExpr::Bitcast(d, a) => loops::Op::Bitcast(d, self.reg(a)),
            KernelExpr::Carry(k) if !self.carries.is_empty() => return self.carries[k],
            KernelExpr::Reduced(_) | KernelExpr::Carry(_) => unreachable!("defined by its loop before it is used"),
        };
        let r = self.b.let_(dtype, op);
        self.scopes.last_mut().expect("a scope is open").regs.insert(e, r);
        r
    }

    pub(in crate::fuse) fn atom_reg(&mut self, a: u32) -> Reg {
        if let Some(r) = self.scopes.iter().rev().find_map(|s| s.atoms.get(&a).copied()) {
            return r;
        }
        let kind = self.g.atoms.get(a).kind.clone();
        let r = match kind {
            AtomKind::Var(v) => match self.bind[v] {
                Bind::Reg(r) => return r,
                Bind::Var(var) => self.b.index(var),
                Bind::Block(start, var) => {
                    let i = loops::Index::from(start).add_var(var, 1);
                    self.b.index(i)
                }
                Bind::Unbound => unreachable!("a loop variable is used inside its loop"),
            },
            AtomKind::Div(l, by) | AtomKind::Mod(l, by) => {
                let index = self.index(&l);
                let x = self.b.let_(DType::I64, loops::Op::Index(index));
                let n = self.b.constant(Scalar::from_i64(DType::I64, by));
                let op = if matches!(self.g.atoms.get(a).kind, AtomKind::Div(..)) { Binary::Div } else { Binary::Rem };
                self.b.binary(op, x, n)
            }
            AtomKind::Computed(e) => {
                let r = self.reg(e);
                if self.b.dtype(r) == DType::I64 { r } else { self.b.cast(DType::I64, r) }
            }
        };
        self.scopes.last_mut().expect("a scope is open").atoms.insert(a, r);
        r
    }

    pub(in crate::fuse) fn index(&mut self, lin: &AffineIndex) -> loops::Index {
        let mut out = loops::Index { offset: lin.c, ..loops::Index::default() };
        for &(a, k) in &lin.terms {
            let atom = match self.g.atoms.get(a).kind {
                AtomKind::Var(v) if self.shape.merged[v].is_some() => continue,
                AtomKind::Var(v) => match self.bind[v] {
                    Bind::Var(var) => Atom::Var(var),
                    Bind::Reg(r) => Atom::Reg(r),
                    Bind::Block(start, var) => {
                        out.terms.push((Atom::Reg(start), Size::Const(k)));
                        Atom::Var(var)
                    }
                    Bind::Unbound => unreachable!("a loop variable is used inside its loop"),
                },
                _ => Atom::Reg(self.atom_reg(a)),
            };
            out.terms.push((atom, Size::Const(k)));
        }
        out
    }
}
