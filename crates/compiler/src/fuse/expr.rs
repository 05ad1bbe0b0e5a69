//! The scalar expressions of one kernel; equal expressions are shared.

use super::index::{AffineIndex, Atoms};
use ir::{Binary, Compare, DType, Expr, Scalar, Unary, Value};
use rustc_hash::FxHashMap;

/// Index of an expression in [`Exprs`].
pub(crate) type ExprId = u32;

/// A scalar expression whose operands are earlier expressions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KernelExpr {
    Const(Scalar),
    /// An index as `I64`.
    Index(AffineIndex),
    /// An element of a materialized value; a masked-off load accesses no memory and returns the scalar.
    Load {
        from: Value,
        at: AffineIndex,
        mask: Option<(ExprId, Scalar)>,
    },
    Unary(Unary, ExprId),
    Binary(Binary, ExprId, ExprId),
    Compare(Compare, ExprId, ExprId),
    Select(ExprId, ExprId, ExprId),
    Fma(ExprId, ExprId, ExprId),
    Cast(DType, ExprId),
    Quantize(DType, ExprId),
    Bitcast(DType, ExprId),
    /// The result of the group's n-th reduction at this row.
    Reduced(usize),
    /// The n-th carried value of a loop.
    Carry(usize),
}

impl KernelExpr {
    pub(crate) fn children(&self) -> smallvec::SmallVec<[ExprId; 3]> {
        let mut out = smallvec::SmallVec::new();
        match self {
            KernelExpr::Const(_) | KernelExpr::Index(_) | KernelExpr::Reduced(_) | KernelExpr::Carry(_) => {}
            KernelExpr::Load { mask, .. } => out.extend(mask.iter().map(|m| m.0)),
            KernelExpr::Unary(_, a)
            | KernelExpr::Cast(_, a)
            | KernelExpr::Quantize(_, a)
            | KernelExpr::Bitcast(_, a) => out.push(*a),
            KernelExpr::Binary(_, a, b) | KernelExpr::Compare(_, a, b) => out.extend([*a, *b]),
            KernelExpr::Select(a, b, c) | KernelExpr::Fma(a, b, c) => out.extend([*a, *b, *c]),
        }
        out
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ExprInfo {
    pub(crate) dtype: DType,
    /// The loop variables that it depends on, as a bit set.
    pub(crate) vars: u64,
    /// The number of dependent reductions that must have run before it.
    pub(crate) level: u32,
    /// The approximate number of machine operations in its subtree.
    pub(crate) cost: u32,
    /// Whether it reads a loop-carried value.
    pub(crate) carried: bool,
}

/// All expressions of one kernel.
#[derive(Default)]
pub(crate) struct ExprTable {
    list: Vec<(KernelExpr, ExprInfo)>,
    interned: FxHashMap<KernelExpr, ExprId>,
}

impl ExprTable {
    pub(crate) fn get(&self, id: ExprId) -> &KernelExpr {
        &self.list[id as usize].0
    }

    pub(crate) fn info(&self, id: ExprId) -> &ExprInfo {
        &self.list[id as usize].1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KernelExpr> {
        self.list.iter().map(|(e, _)| e)
    }

    /// Adds an expression of a dtype; `level` and `vars` are combined with those of its operands.
    pub(crate) fn add(&mut self, ex: KernelExpr, dtype: DType, vars: u64, level: u32) -> ExprId {
        if let Some(id) = self.interned.get(&ex) {
            return *id;
        }
        let mut info =
            ExprInfo { dtype, vars, level, cost: own_cost(&ex), carried: matches!(ex, KernelExpr::Carry(_)) };
        for c in ex.children() {
            let child = self.info(c);
            info.vars |= child.vars;
            info.level = info.level.max(child.level);
            info.cost = info.cost.saturating_add(child.cost);
            info.carried |= child.carried;
        }
        let id = self.list.len() as ExprId;
        self.interned.insert(ex.clone(), id);
        self.list.push((ex, info));
        id
    }

    pub(crate) fn constant(&mut self, s: Scalar) -> ExprId {
        self.add(KernelExpr::Const(s), s.dtype(), 0, 0)
    }

    pub(crate) fn index(&mut self, atoms: &Atoms, lin: AffineIndex) -> ExprId {
        let vars = atoms.vars(&lin);
        self.add(KernelExpr::Index(lin), DType::I64, vars, 0)
    }

    pub(crate) fn unary(&mut self, op: Unary, a: ExprId) -> ExprId {
        let d = op.result(self.info(a).dtype);
        self.add(KernelExpr::Unary(op, a), d, 0, 0)
    }

    pub(crate) fn binary(&mut self, op: Binary, a: ExprId, b: ExprId) -> ExprId {
        let d = self.info(a).dtype;
        self.add(KernelExpr::Binary(op, a, b), d, 0, 0)
    }

    pub(crate) fn compare(&mut self, op: Compare, a: ExprId, b: ExprId) -> ExprId {
        self.add(KernelExpr::Compare(op, a, b), DType::Bool, 0, 0)
    }

    pub(crate) fn select(&mut self, c: ExprId, a: ExprId, b: ExprId) -> ExprId {
        let d = self.info(a).dtype;
        self.add(KernelExpr::Select(c, a, b), d, 0, 0)
    }

    pub(crate) fn cast(&mut self, to: DType, a: ExprId) -> ExprId {
        if self.info(a).dtype == to {
            return a;
        }
        self.add(KernelExpr::Cast(to, a), to, 0, 0)
    }

    /// Builds the scalar semantics of an op with the given argument expressions.
    pub(crate) fn apply(&mut self, expr: &Expr, args: &[ExprId]) -> ExprId {
        match expr {
            Expr::Arg(n) => args[*n],
            Expr::Const(s) => self.constant(*s),
            Expr::Unary(op, x) => {
                let x = self.apply(x, args);
                self.unary(*op, x)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.apply(a, args), self.apply(b, args));
                self.binary(*op, a, b)
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.apply(a, args), self.apply(b, args));
                self.compare(*op, a, b)
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.apply(c, args), self.apply(a, args), self.apply(b, args));
                self.select(c, a, b)
            }
            Expr::Fma(a, b, c) => {
                let (a, b, c) = (self.apply(a, args), self.apply(b, args), self.apply(c, args));
                let d = self.info(a).dtype;
                self.add(KernelExpr::Fma(a, b, c), d, 0, 0)
            }
            Expr::Cast(d, x) => {
                let x = self.apply(x, args);
                self.cast(*d, x)
            }
            Expr::Quantize(d, x) => {
                let x = self.apply(x, args);
                self.add(KernelExpr::Quantize(*d, x), *d, 0, 0)
            }
            Expr::Bitcast(d, x) => {
                let x = self.apply(x, args);
                self.add(KernelExpr::Bitcast(*d, x), *d, 0, 0)
            }
        }
    }
}

fn own_cost(ex: &KernelExpr) -> u32 {
    match ex {
        KernelExpr::Unary(op, _) => op.cost(),
        KernelExpr::Binary(op, ..) => op.cost(),
        KernelExpr::Const(_) | KernelExpr::Index(_) | KernelExpr::Reduced(_) | KernelExpr::Carry(_) => 0,
        KernelExpr::Load { .. }
        | KernelExpr::Compare(..)
        | KernelExpr::Select(..)
        | KernelExpr::Fma(..)
        | KernelExpr::Cast(..)
        | KernelExpr::Quantize(..)
        | KernelExpr::Bitcast(..) => 1,
    }
}
