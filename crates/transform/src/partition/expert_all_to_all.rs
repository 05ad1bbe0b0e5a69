//! Sends rows to the ranks that own their groups, and back: tokens and experts. No rank receives rows that it does not need.
//!
//! A grouped product whose groups are sharded reads rows that were gathered from a value whose rows are sharded, too. Each rank
//! sends every other rank the rows that its groups read, and zeros in the other places, which transports do not send. The results
//! return in the same way: a rank's summand is zero except for rows that its groups read, and each rank adds the summands of its
//! own rows. All ranks know which rows are read ([`NonzeroRows`]), and both sides of an exchange are masked, so that the
//! backward pass sends as little.

use super::Partitioner;
use super::layout::{DimSharding, ShardedValue, used_axes};
use ir::ops::gather::GatherMode;
use ir::ops::scatter::{ScatterKind, ScatterMode};
use ir::ops::{CollectiveKind, Gather, Reduce, ReduceKind};
use ir::{Compare, DType, GraphBuilder, MeshAxis, Result, Type, Value};

/// Rows that were gathered from a value whose rows are sharded.
#[derive(Clone, Debug)]
pub(super) struct GatheredRows {
    /// The value.
    from: ShardedValue,
    /// The row indices, as they are on each rank.
    indices: Value,
    /// The gather op.
    op: Gather,
}

/// The rows of a summand that are nonzero on each rank: i32, with the axes of the summand except the last, which has one entry per
/// rank. All ranks have all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NonzeroRows(pub(super) Value);

/// A value that is a rank's summand of a sum over ranks.
#[derive(Clone, Debug)]
pub(super) struct ScatteredSum {
    /// The summand of each rank.
    part: Value,
    support: NonzeroRows,
    axes: Vec<MeshAxis>,
    /// The axis of the tensor along which ranks own parts of the sum.
    at: usize,
}

/// The axis along which an op gathers whole rows, that is, all axes except one have their full size.
fn row_axis(g: &Gather, rank: usize) -> Option<usize> {
    let at = rank.checked_sub(2)?;
    let d = &g.dims;
    let rows = d.collapsed[..] == [at]
        && d.index_map[..] == [at]
        && d.operand_batch.iter().copied().eq(0..at)
        && d.index_batch.iter().copied().eq(0..at)
        && d.offset[..] == [at + 1];
    (rows && g.mode == GatherMode::Clip).then_some(at)
}

impl Partitioner<'_> {
    /// Records rows that were gathered from a value whose rows are sharded.
    pub(super) fn record_gathered_rows(
        &mut self,
        g: &Gather,
        from: &ShardedValue,
        placed: &[DimSharding],
        indices: &ShardedValue,
        value: Value,
    ) {
        let rank = from.ty.rank();
        let Some(at) = row_axis(g, rank) else { return };
        let cut = &from.spec[at];
        let rest = (0..rank).filter(|d| *d != at).all(|d| from.spec[d] == placed[d]);
        if cut.is_replicated() || !cut.segments.is_empty() || !rest || !indices.spec[at].is_replicated() {
            return;
        }
        self.gathered_rows.insert(value, GatheredRows { from: from.clone(), indices: indices.value, op: g.clone() });
    }

    /// The rows, out of `rows`, that the groups of each rank read; offsets ascend.
    pub(super) fn rows_read_by_rank(&mut self, offsets: Value, rows: usize, ranks: usize) -> Result<NonzeroRows> {
        let ty = self.b.ty(offsets);
        let at = ty.rank() - 1;
        let each = (ty.shape[at] - 1) / ranks;
        let mut shape = ty.shape.clone();
        shape[at] = rows;
        shape.push(ranks);
        let bounds = |p: &mut Self, first: usize| -> Result<Value> {
            let (mut start, mut limit, mut stride) = (vec![0; at + 1], ty.shape.to_vec(), vec![1; at + 1]);
            (start[at], limit[at], stride[at]) = (first, first + (ranks - 1) * each + 1, each);
            let bounds = p.b.slice(offsets, &start, &limit, &stride)?;
            let dims: Vec<usize> = (0..at).chain([at + 1]).collect();
            p.b.broadcast(bounds, &shape, &dims)
        };
        let (starts, ends) = (bounds(self, 0)?, bounds(self, each)?);
        let row = self.b.iota(ty.dtype, &shape, at)?;
        let behind = self.b.compare(Compare::Ge, row, starts)?;
        let before = self.b.compare(Compare::Lt, row, ends)?;
        let (behind, before) = (self.b.cast(behind, DType::I32)?, self.b.cast(before, DType::I32)?);
        Ok(NonzeroRows(self.b.mul(behind, before)?))
    }

    /// The rows of a product's left operand that a rank's own groups read, if they were gathered from a value whose rows are
    /// sharded over the same ranks: only these rows are sent.
    pub(super) fn all_to_all_rows(
        &mut self,
        x: Value,
        read: NonzeroRows,
        groups: &DimSharding,
    ) -> Result<Option<Value>> {
        let Some(GatheredRows { from, indices, op }) = self.gathered_rows.get(&x).cloned() else { return Ok(None) };
        let at = from.ty.rank() - 2;
        if from.spec[at] != *groups {
            return Ok(None);
        }
        let axes = groups.mesh_axes(self.mesh);
        let ranks = groups.num_shards(self.mesh);
        let own = self.b.ty(from.value);
        // The rows of the operand that a rank's groups read, at all positions that they were gathered to.
        let mut shape = own.shape.clone();
        (shape[at], shape[at + 1]) = (from.ty.shape[at], ranks);
        let none = self.b.zeros(&Type::new(DType::I32, &shape))?;
        let need = self.b.scatter(ScatterKind::Add, op.dims.clone(), ScatterMode::Clip, none, indices, read.0)?;
        let need = self.b.collective(CollectiveKind::ShardSlice { dim: at }, need, &axes)?;
        let mask = self.for_each_rank(need, at, own.shape[at + 1])?;
        let mut shape = own.shape.clone();
        shape.insert(at, ranks);
        let dims: Vec<usize> = (0..at).chain(at + 1..shape.len()).collect();
        let sent = self.b.broadcast(from.value, &shape, &dims)?;
        let sent = self.b.zero_unless(mask, sent)?;
        self.communicated = true;
        let came = self.b.collective(CollectiveKind::AllToAll { split: at, join: at }, sent, &axes)?;
        let mut shape = own.shape.clone();
        shape[at] = from.ty.shape[at];
        let rows = self.b.reshape(came, &shape)?;
        let sizes = op.dims.slice_sizes(shape.len(), &self.b.ty(x).shape);
        Ok(Some(self.b.one(Gather { slice_sizes: sizes, ..op }.into(), &[rows, indices])?))
    }

    /// Broadcasts `[.., rows, ranks]` to a mask `[.., ranks, rows, width]`.
    fn for_each_rank(&mut self, counts: Value, at: usize, width: usize) -> Result<Value> {
        let counts = self.b.move_axis(counts, at + 1, at)?;
        let none = self.b.full_like(counts, 0.0)?;
        let some = self.b.compare(Compare::Gt, counts, none)?;
        let mut shape = self.b.ty(some).shape;
        let dims: Vec<usize> = (0..shape.len()).collect();
        shape.push(width);
        self.b.broadcast(some, &shape, &dims)
    }

    /// Propagates the nonzero rows of a summand through an op; `of` are those of its operand.
    pub(super) fn propagate_nonzero_rows(
        &mut self,
        op: &ir::Op,
        of: NonzeroRows,
        to: &Type,
    ) -> Result<Option<NonzeroRows>> {
        use ir::{Binary, Op, Unary};
        let ty = self.b.ty(of.0);
        let ranks = ty.shape[ty.rank() - 1];
        Ok(match op {
            Op::Binary(Binary::Mul) | Op::Unary(Unary::Neg) => Some(of),
            Op::Reshape(_) if to.rank() > 1 => {
                let mut shape = to.shape.clone();
                shape[to.rank() - 1] = ranks;
                let same = shape.iter().product::<usize>() == ty.numel();
                if same { Some(NonzeroRows(self.b.reshape(of.0, &shape)?)) } else { None }
            }
            Op::Reduce(Reduce { kind: ReduceKind::Sum, axes }) if !axes.contains(&(ty.rank() - 1)) => {
                Some(NonzeroRows(self.b.reduce(ReduceKind::Max, of.0, axes)?))
            }
            _ => None,
        })
    }

    /// Propagates nonzero rows through a gather of rows.
    pub(super) fn gather_nonzero_rows(
        &mut self,
        g: &Gather,
        of: NonzeroRows,
        indices: Value,
    ) -> Result<Option<NonzeroRows>> {
        let ty = self.b.ty(of.0);
        let Some(at) = row_axis(g, ty.rank()) else { return Ok(None) };
        let mut slice_sizes = g.slice_sizes.clone();
        slice_sizes[at + 1] = ty.shape[at + 1];
        let op = Gather { slice_sizes, ..g.clone() };
        Ok(Some(NonzeroRows(self.b.one(op.into(), &[of.0, indices])?)))
    }

    /// A product of a summand with a value that is sharded by rows over the same ranks: the factor is small and known to all
    /// ranks, so each rank multiplies its summand, and a later sum may be computed before rows are sent.
    pub(super) fn defer_reduce(
        &mut self,
        op: &ir::Op,
        args: &[ShardedValue],
        outs: &[ShardedValue],
        types: &[Type],
    ) -> Result<()> {
        let (ir::Op::Binary(ir::Binary::Mul), [a, b], [out]) = (op, args, outs) else { return Ok(()) };
        let Some(k) = [a, b].iter().position(|x| self.nonzero_rows.contains_key(&x.value)) else { return Ok(()) };
        let (sum, factor) = (&args[k], &args[1 - k]);
        let (support, (part, axes)) = match self.partial_sums.get(&sum.value) {
            Some(found) => (self.nonzero_rows[&sum.value], found.clone()),
            None => return Ok(()),
        };
        let Ok(over) = self.mesh.set(&axes) else { return Ok(()) };
        let at = (0..factor.spec.len()).find(|&d| factor.spec[d].mesh_axes(self.mesh) == axes);
        let (Some(at), true) = (at, self.rematerializable.contains_key(&factor.value)) else { return Ok(()) };
        let uncut = |x: &ShardedValue| used_axes(&x.spec).intersection(over).is_empty();
        let mut all = factor.spec.clone();
        all[at] = DimSharding::default();
        if !uncut(sum) || all != sum.spec || out.spec != factor.spec {
            return Ok(());
        }
        let factor = self.reshard(factor, &all)?;
        let mut with = vec![ShardedValue { value: part, ..sum.clone() }, factor];
        if k == 1 {
            with.swap(0, 1);
        }
        let found = self.partition_op(op, with, types)?;
        if found[0].spec == all {
            self.scattered_sums.insert(out.value, ScatteredSum { part: found[0].value, support, axes, at });
        }
        Ok(())
    }

    /// A reduction of a value that is a summand of a sum over ranks: it runs before the communication, so that less data is sent.
    pub(super) fn sum_before_reduce(
        &mut self,
        r: &Reduce,
        x: &ShardedValue,
        ty: &Type,
    ) -> Result<Option<ShardedValue>> {
        let Some(late) = self.scattered_sums.get(&x.value).cloned() else { return Ok(None) };
        let rank = x.ty.rank();
        // The row axis is the last remaining axis but one.
        if r.kind != ReduceKind::Sum
            || r.axes.iter().any(|&d| d <= late.at || d + 1 == rank)
            || ty.rank() != late.at + 2
        {
            return Ok(None);
        }
        let part = self.b.reduce(ReduceKind::Sum, late.part, &r.axes)?;
        let Some(support) = self.propagate_nonzero_rows(&r.clone().into(), late.support, ty)? else { return Ok(None) };
        let value = self.return_rows(part, support, &late.axes, late.at)?;
        let layout = (0..rank).filter(|d| !r.axes.contains(d)).map(|d| x.spec[d].clone()).collect();
        Ok(Some(ShardedValue { value, ty: ty.clone(), spec: layout }))
    }

    /// A rank's rows of a sum over ranks: each rank receives only nonzero summands.
    fn return_rows(&mut self, part: Value, support: NonzeroRows, axes: &[MeshAxis], at: usize) -> Result<Value> {
        let ty = self.b.ty(part);
        let ranks: usize = axes.iter().map(|a| a.size).product();
        let (rows, width) = (ty.shape[at] / ranks, ty.shape[at + 1]);
        let mut by_rank = ty.shape.clone();
        by_rank[at] = rows;
        by_rank.insert(at, ranks);
        // The rows for which this rank has a summand.
        let own = self.b.collective(CollectiveKind::ShardSlice { dim: at + 1 }, support.0, axes)?;
        let own = self.b.reshape(own, &by_rank[..at + 2])?;
        let none = self.b.full_like(own, 0.0)?;
        let own = self.b.compare(Compare::Gt, own, none)?;
        let own = self.b.broadcast(own, &by_rank, &(0..at + 2).collect::<Vec<_>>())?;
        let sent = self.b.reshape(part, &by_rank)?;
        let sent = self.b.zero_unless(own, sent)?;
        self.communicated = true;
        let came = self.b.collective(CollectiveKind::AllToAll { split: at, join: at }, sent, axes)?;
        // The rows of this rank for which other ranks have a summand: the backward pass sends only those.
        let theirs = self.b.collective(CollectiveKind::ShardSlice { dim: at }, support.0, axes)?;
        let theirs = self.for_each_rank(theirs, at, width)?;
        let came = self.b.zero_unless(theirs, came)?;
        self.b.sum(came, &[at])
    }
}
