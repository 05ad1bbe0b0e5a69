//! Partial values: what a rank has of a value before it is summed or gathered, which a later op may rather take. Both are written; what
//! nobody takes is dead.
//!
//! - A *sum* over ranks has the summand of each. Ops that are linear go on with the summand, so that who needs a part of the
//!   result sums and cuts it in one (`cut`), as far down as that is.
//! - *Rows* of groups that ranks share: each rank has those of its own groups. Ops that look at rows one by one go on with
//!   them, and a product of the same groups takes them: nothing is sent between the products of an expert.

use super::Partitioner;
use super::layout::{DimSharding, Placed, used};
use ir::ops::ReduceKind;
use ir::{Binary, Graph, GraphBuilder, MeshAxis, Op, Result, Semantics, Type, Unary, Value};

/// A rank's own rows of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    /// Where its own rows are right; others are anything.
    pub(super) own: Value,
    /// Which rows those are: where groups begin.
    pub(super) offsets: Value,
    /// The axes of the mesh that share the groups.
    pub(super) axes: Vec<usize>,
    /// The axis of the tensor along which rows lie.
    pub(super) at: usize,
}

impl Partitioner<'_> {
    /// A sum over ranks of what each has.
    pub(super) fn summed(&mut self, part: Value, axes: &[MeshAxis]) -> Result<Value> {
        self.talked = true;
        let value = self.b.psum(part, axes)?;
        self.sums.insert(value, (part, axes.to_vec()));
        Ok(value)
    }

    /// Writes what follows from the other forms of an op's operands.
    pub(super) fn follow(&mut self, op: &Op, args: &[Placed], outs: &[Placed], types: &[Type]) -> Result<()> {
        self.follow_sum(op, args, outs, types)?;
        self.later(op, args, outs, types)?;
        self.follow_rows(op, args, outs, types)
    }

    fn follow_sum(&mut self, op: &Op, args: &[Placed], outs: &[Placed], types: &[Type]) -> Result<()> {
        let Some(k) = args.iter().position(|x| self.sums.contains_key(&x.value)) else { return Ok(()) };
        if !linear_in(op, k) || args.iter().filter(|x| self.sums.contains_key(&x.value)).count() > 1 {
            return Ok(());
        }
        let (part, axes) = self.sums[&args[k].value].clone();
        let Ok(over) = self.mesh.set(&axes) else { return Ok(()) };
        let uncut = |x: &Placed| used(&x.layout).common(over).is_empty();
        if outs.len() != 1 || !args.iter().chain(outs).all(uncut) {
            return Ok(());
        }
        let mut with: Vec<Placed> = args.to_vec();
        with[k].value = part;
        let found = self.rule(op, with, types)?;
        if found[0].layout != outs[0].layout || found[0].value == outs[0].value {
            return Ok(());
        }
        self.sums.insert(outs[0].value, (found[0].value, axes));
        let Some(support) = self.supports.get(&args[k].value).copied() else { return Ok(()) };
        let behind = match op {
            Op::Gather(g) => {
                let mut axes = g.dims.operand_batch.iter().zip(&g.dims.index_batch);
                let alike = axes.all(|(&x, &i)| args[0].layout[x] == args[1].layout[i]);
                match alike && args[1].layout.last().is_some_and(DimSharding::is_whole) {
                    true => self.supported_rows(g, support, args[1].value)?,
                    false => None,
                }
            }
            op => {
                let to = self.b.ty(found[0].value);
                self.supported(op, support, &to)?
            }
        };
        self.supports.extend(behind.map(|behind| (outs[0].value, behind)));
        Ok(())
    }

    fn follow_rows(&mut self, op: &Op, args: &[Placed], outs: &[Placed], types: &[Type]) -> Result<()> {
        let Some(rows) = args.iter().find_map(|x| self.rows.get(&x.value)).cloned() else { return Ok(()) };
        let over = used(&[DimSharding::by(rows.axes.clone())]);
        let as_it_was = |x: &Placed| x.ty.rank() != outs[0].ty.rank() || used(&x.layout) == used(&outs[0].layout);
        if !row_by_row(op, rows.at, args.iter().map(|x| &x.ty))
            || !args.iter().all(as_it_was)
            || outs.iter().any(|x| !used(&x.layout).common(over).is_empty())
        {
            return Ok(());
        }
        let mut with: Vec<Placed> = args.to_vec();
        for x in &mut with {
            match self.rows.get(&x.value) {
                Some(own) if (own.offsets, &own.axes, own.at) == (rows.offsets, &rows.axes, rows.at) => {
                    x.value = own.own
                }
                Some(_) => return Ok(()),
                None => {}
            }
        }
        let found = self.rule(op, with, types)?;
        for (x, own) in outs.iter().zip(found).filter(|(x, own)| x.layout == own.layout && x.value != own.value) {
            self.rows.insert(x.value, Rows { own: own.value, ..rows.clone() });
        }
        Ok(())
    }
}

/// Whether an op is linear in an operand while the others stay.
fn linear_in(op: &Op, k: usize) -> bool {
    match op {
        Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) | Op::Broadcast(_) => true,
        Op::Gather(_) => k == 0,
        Op::Reduce(r) => r.kind == ReduceKind::Sum,
        Op::Binary(Binary::Mul) => true,
        Op::Unary(Unary::Neg) => true,
        _ => false,
    }
}

/// Whether each row of the results needs the same row of the operands alone.
fn row_by_row<'t>(op: &Op, at: usize, mut types: impl Iterator<Item = &'t Type>) -> bool {
    let within = |body: &Graph| {
        body.nodes().iter().all(|n| {
            let types: Vec<&Type> = n.args.iter().map(|a| body.ty(*a)).collect();
            matches!(n.op, Op::Const(_)) || row_by_row(&n.op, at, types.into_iter())
        })
    };
    match op {
        Op::Name(_) => true,
        Op::Slice(s) => {
            let whole = |ty: &Type| s.start[at] == 0 && s.stride[at] == 1 && s.limit[at] == ty.shape[at];
            types.all(|ty| ty.rank() > at && whole(ty))
        }
        // A number for all, or what lies along other axes.
        Op::Broadcast(b) => b.dims.iter().enumerate().all(|(i, &d)| d != at || i == at),
        Op::Composite(c) => within(&c.body),
        op => matches!(op.semantics(), Semantics::Elementwise(_)),
    }
}
