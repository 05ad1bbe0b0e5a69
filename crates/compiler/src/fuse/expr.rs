//! The scalar expressions of one kernel, shared where equal.

use super::index::{Atoms, Lin};
use ir::{Binary, Compare, DType, Expr, Scalar, Unary, Value};
use rustc_hash::FxHashMap;

/// Index of an expression in [`Exprs`].
pub(crate) type ExId = u32;

/// A scalar expression whose operands are earlier expressions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ex {
    Const(Scalar),
    /// An index as `I64`.
    Index(Lin),
    /// An element of a materialised value; masked-off elements are not touched and give the scalar.
    Load {
        from: Value,
        at: Lin,
        mask: Option<(ExId, Scalar)>,
    },
    Unary(Unary, ExId),
    Binary(Binary, ExId, ExId),
    Compare(Compare, ExId, ExId),
    Select(ExId, ExId, ExId),
    Fma(ExId, ExId, ExId),
    Cast(DType, ExId),
    Quantize(DType, ExId),
    Bitcast(DType, ExId),
    /// The result of the group's n-th reduction at this row.
    Reduced(usize),
    /// The n-th carried value of a loop.
    Carry(usize),
}

impl Ex {
    pub(crate) fn children(&self) -> smallvec::SmallVec<[ExId; 3]> {
        let mut out = smallvec::SmallVec::new();
        match self {
            Ex::Const(_) | Ex::Index(_) | Ex::Reduced(_) | Ex::Carry(_) => {}
            Ex::Load { mask, .. } => out.extend(mask.iter().map(|m| m.0)),
            Ex::Unary(_, a) | Ex::Cast(_, a) | Ex::Quantize(_, a) | Ex::Bitcast(_, a) => out.push(*a),
            Ex::Binary(_, a, b) | Ex::Compare(_, a, b) => out.extend([*a, *b]),
            Ex::Select(a, b, c) | Ex::Fma(a, b, c) => out.extend([*a, *b, *c]),
        }
        out
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) dtype: DType,
    /// Loop variables it depends on.
    pub(crate) vars: u64,
    /// How many reductions must have run before it: the longest chain.
    pub(crate) level: u32,
    /// A rough count of machine operations in its subtree.
    pub(crate) cost: u32,
    /// Whether it reads a loop-carried value.
    pub(crate) carried: bool,
}

/// All expressions of one kernel.
#[derive(Default)]
pub(crate) struct Exprs {
    list: Vec<(Ex, Info)>,
    known: FxHashMap<Ex, ExId>,
}

impl Exprs {
    pub(crate) fn get(&self, id: ExId) -> &Ex {
        &self.list[id as usize].0
    }

    pub(crate) fn info(&self, id: ExId) -> &Info {
        &self.list[id as usize].1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ex> {
        self.list.iter().map(|(e, _)| e)
    }

    /// Adds an expression of a dtype; `level` and `vars` come from its operands and, for leaves, from the arguments.
    pub(crate) fn add(&mut self, ex: Ex, dtype: DType, vars: u64, level: u32) -> ExId {
        if let Some(id) = self.known.get(&ex) {
            return *id;
        }
        let mut info = Info { dtype, vars, level, cost: own_cost(&ex), carried: matches!(ex, Ex::Carry(_)) };
        for c in ex.children() {
            let child = self.info(c);
            info.vars |= child.vars;
            info.level = info.level.max(child.level);
            info.cost = info.cost.saturating_add(child.cost);
            info.carried |= child.carried;
        }
        let id = self.list.len() as ExId;
        self.known.insert(ex.clone(), id);
        self.list.push((ex, info));
        id
    }

    pub(crate) fn constant(&mut self, s: Scalar) -> ExId {
        self.add(Ex::Const(s), s.dtype(), 0, 0)
    }

    pub(crate) fn index(&mut self, atoms: &Atoms, lin: Lin) -> ExId {
        let vars = atoms.vars(&lin);
        self.add(Ex::Index(lin), DType::I64, vars, 0)
    }

    pub(crate) fn unary(&mut self, op: Unary, a: ExId) -> ExId {
        let d = op.result(self.info(a).dtype);
        self.add(Ex::Unary(op, a), d, 0, 0)
    }

    pub(crate) fn binary(&mut self, op: Binary, a: ExId, b: ExId) -> ExId {
        let d = self.info(a).dtype;
        self.add(Ex::Binary(op, a, b), d, 0, 0)
    }

    pub(crate) fn compare(&mut self, op: Compare, a: ExId, b: ExId) -> ExId {
        self.add(Ex::Compare(op, a, b), DType::Bool, 0, 0)
    }

    pub(crate) fn select(&mut self, c: ExId, a: ExId, b: ExId) -> ExId {
        let d = self.info(a).dtype;
        self.add(Ex::Select(c, a, b), d, 0, 0)
    }

    pub(crate) fn cast(&mut self, to: DType, a: ExId) -> ExId {
        if self.info(a).dtype == to {
            return a;
        }
        self.add(Ex::Cast(to, a), to, 0, 0)
    }

    /// An op's scalar meaning over argument expressions.
    pub(crate) fn apply(&mut self, expr: &Expr, args: &[ExId]) -> ExId {
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
                self.add(Ex::Fma(a, b, c), d, 0, 0)
            }
            Expr::Cast(d, x) => {
                let x = self.apply(x, args);
                self.cast(*d, x)
            }
            Expr::Quantize(d, x) => {
                let x = self.apply(x, args);
                self.add(Ex::Quantize(*d, x), *d, 0, 0)
            }
            Expr::Bitcast(d, x) => {
                let x = self.apply(x, args);
                self.add(Ex::Bitcast(*d, x), *d, 0, 0)
            }
        }
    }
}

fn own_cost(ex: &Ex) -> u32 {
    match ex {
        Ex::Unary(op, _) => op.cost(),
        Ex::Binary(op, ..) => op.cost(),
        Ex::Const(_) | Ex::Index(_) | Ex::Reduced(_) | Ex::Carry(_) => 0,
        Ex::Load { .. }
        | Ex::Compare(..)
        | Ex::Select(..)
        | Ex::Fma(..)
        | Ex::Cast(..)
        | Ex::Quantize(..)
        | Ex::Bitcast(..) => 1,
    }
}
