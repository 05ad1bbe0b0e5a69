//! Partial values: what a rank has of a value before it is summed or gathered, which a later op may use instead. Both forms are
//! computed; the unused one is dead code.
//!
//! - A *sum* over ranks has the summand of each rank. Linear ops also compute the summand, so that a consumer that needs a shard
//!   of the
//!   result uses one reduce-scatter (`slice_shard`), even after several ops.
//! - *Rows* of sharded groups: each rank has those of its own groups. Row-wise ops also compute them, and a product of the
//!   same groups uses them: nothing is sent between the products of an expert.

use super::Partitioner;
use super::layout::{DimSharding, ShardedValue, used_axes};
use ir::ops::ReduceKind;
use ir::{Binary, Graph, GraphBuilder, MeshAxis, Op, Result, Semantics, Type, Unary, Value};

/// A rank's own rows of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnedRows {
    /// A value that is valid for the rank's own rows; other rows are undefined.
    pub(super) own: Value,
    /// The offsets of groups, which determine the rows.
    pub(super) offsets: Value,
    /// The mesh axes over which the groups are sharded.
    pub(super) axes: Vec<usize>,
    /// The row axis of the tensor.
    pub(super) row_axis: usize,
}

impl Partitioner<'_> {
    /// All-reduces a summand.
    pub(super) fn all_reduce(&mut self, part: Value, axes: &[MeshAxis]) -> Result<Value> {
        self.communicated = true;
        let value = self.b.psum(part, axes)?;
        self.partial_sums.insert(value, (part, axes.to_vec()));
        Ok(value)
    }

    /// Propagates partial forms of an op's operands to its results.
    pub(super) fn propagate(
        &mut self,
        op: &Op,
        args: &[ShardedValue],
        outs: &[ShardedValue],
        types: &[Type],
    ) -> Result<()> {
        self.propagate_sum(op, args, outs, types)?;
        self.defer_reduce(op, args, outs, types)?;
        self.propagate_rows(op, args, outs, types)
    }

    fn propagate_sum(&mut self, op: &Op, args: &[ShardedValue], outs: &[ShardedValue], types: &[Type]) -> Result<()> {
        let Some(k) = args.iter().position(|x| self.partial_sums.contains_key(&x.value)) else { return Ok(()) };
        if !is_linear_in(op, k) || args.iter().filter(|x| self.partial_sums.contains_key(&x.value)).count() > 1 {
            return Ok(());
        }
        let (part, axes) = self.partial_sums[&args[k].value].clone();
        let Ok(over) = self.mesh.set(&axes) else { return Ok(()) };
        let uncut = |x: &ShardedValue| used_axes(&x.spec).intersection(over).is_empty();
        if outs.len() != 1 || !args.iter().chain(outs).all(uncut) {
            return Ok(());
        }
        let mut with: Vec<ShardedValue> = args.to_vec();
        with[k].value = part;
        let found = self.partition_op(op, with, types)?;
        if found[0].spec != outs[0].spec || found[0].value == outs[0].value {
            return Ok(());
        }
        self.partial_sums.insert(outs[0].value, (found[0].value, axes));
        let Some(support) = self.nonzero_rows.get(&args[k].value).copied() else { return Ok(()) };
        let behind = match op {
            Op::Gather(g) => {
                let mut axes = g.dims.operand_batch.iter().zip(&g.dims.index_batch);
                let alike = axes.all(|(&x, &i)| args[0].spec[x] == args[1].spec[i]);
                match alike && args[1].spec.last().is_some_and(DimSharding::is_replicated) {
                    true => self.gather_nonzero_rows(g, support, args[1].value)?,
                    false => None,
                }
            }
            op => {
                let to = self.b.ty(found[0].value);
                self.propagate_nonzero_rows(op, support, &to)?
            }
        };
        self.nonzero_rows.extend(behind.map(|behind| (outs[0].value, behind)));
        Ok(())
    }

    fn propagate_rows(&mut self, op: &Op, args: &[ShardedValue], outs: &[ShardedValue], types: &[Type]) -> Result<()> {
        let Some(rows) = args.iter().find_map(|x| self.rows.get(&x.value)).cloned() else { return Ok(()) };
        let over = used_axes(&[DimSharding::over_axes(rows.axes.clone())]);
        let as_it_was =
            |x: &ShardedValue| x.ty.rank() != outs[0].ty.rank() || used_axes(&x.spec) == used_axes(&outs[0].spec);
        if !is_rowwise(op, rows.row_axis, args.iter().map(|x| &x.ty))
            || !args.iter().all(as_it_was)
            || outs.iter().any(|x| !used_axes(&x.spec).intersection(over).is_empty())
        {
            return Ok(());
        }
        let mut with: Vec<ShardedValue> = args.to_vec();
        for x in &mut with {
            match self.rows.get(&x.value) {
                Some(own) if (own.offsets, &own.axes, own.row_axis) == (rows.offsets, &rows.axes, rows.row_axis) => {
                    x.value = own.own
                }
                Some(_) => return Ok(()),
                None => {}
            }
        }
        let found = self.partition_op(op, with, types)?;
        for (x, own) in outs.iter().zip(found).filter(|(x, own)| x.spec == own.spec && x.value != own.value) {
            self.rows.insert(x.value, OwnedRows { own: own.value, ..rows.clone() });
        }
        Ok(())
    }
}

/// Whether an op is linear in one operand with the others fixed.
fn is_linear_in(op: &Op, k: usize) -> bool {
    match op {
        Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) | Op::Broadcast(_) => true,
        Op::Gather(_) => k == 0,
        Op::Reduce(r) => r.kind == ReduceKind::Sum,
        Op::Binary(Binary::Mul) => true,
        Op::Unary(Unary::Neg) => true,
        _ => false,
    }
}

/// Whether each row of the results depends only on the same row of the operands.
fn is_rowwise<'t>(op: &Op, at: usize, mut types: impl Iterator<Item = &'t Type>) -> bool {
    let within = |body: &Graph| {
        body.nodes().iter().all(|n| {
            let types: Vec<&Type> = n.args.iter().map(|a| body.ty(*a)).collect();
            matches!(n.op, Op::Const(_)) || is_rowwise(&n.op, at, types.into_iter())
        })
    };
    match op {
        Op::Name(_) => true,
        Op::Slice(s) => {
            let whole = |ty: &Type| s.start[at] == 0 && s.stride[at] == 1 && s.limit[at] == ty.shape[at];
            types.all(|ty| ty.rank() > at && whole(ty))
        }
        // Broadcasts of a scalar, or along other axes.
        Op::Broadcast(b) => b.dims.iter().enumerate().all(|(i, &d)| d != at || i == at),
        Op::Composite(c) => within(&c.body),
        op => matches!(op.semantics(), Semantics::Elementwise(_)),
    }
}
