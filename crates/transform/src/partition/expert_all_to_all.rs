//! Rows that travel to the ranks that have their groups, and back: tokens and experts. Nobody gets rows that it does not need.
//!
//! A product in groups that ranks share reads rows that were taken from a value whose rows ranks share, too. Each rank then sends
//! every other the rows that one's groups read, zeros in the place of the others, which transports don't send. What the groups
//! give goes back in the same way: a rank's summand is zero but for rows that its groups read, and each rank adds what came for its own.
//! The rows that are read are known on all ranks ([`Support`]), and masks stand on both sides of an exchange, so that backward sends as little.

use super::Partitioner;
use super::layout::{DimSharding, ShardedValue, used_axes};
use ir::ops::gather::GatherMode;
use ir::ops::scatter::{ScatterKind, ScatterMode};
use ir::ops::{CollectiveKind, Gather, Reduce, ReduceKind};
use ir::{Compare, DType, GraphBuilder, MeshAxis, Result, Type, Value};

/// Rows that were taken from a value which ranks share by rows.
#[derive(Clone, Debug)]
pub(super) struct GatheredRows {
    /// Whose rows.
    from: ShardedValue,
    /// Which, as they are on each rank.
    indices: Value,
    /// How.
    op: Gather,
}

/// Which rows of a summand are not zero on which ranks: i32, with the axes of the summand but for the last, which is one for each
/// rank. All ranks know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NonzeroRows(pub(super) Value);

/// A value that is a rank's part of a sum over ranks.
#[derive(Clone, Debug)]
pub(super) struct ScatteredSum {
    /// What each rank adds.
    part: Value,
    support: NonzeroRows,
    axes: Vec<MeshAxis>,
    /// The axis of the tensor along which ranks have parts of the sum.
    at: usize,
}

/// The axis along which an op takes whole rows, each of all but its last axis.
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
    /// Remembers rows that were taken of a value which is cut by rows.
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

    /// Which rows the groups of each rank read, of so many; offsets rise.
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

    /// The rows of a product's left operand that a rank's own groups read, where they were taken of a value that the ranks of these
    /// groups share by rows: they travel here alone.
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
        // Rows of the operand that a rank's groups read, wherever they were taken to.
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

    /// A mask `[.., ranks, rows, width]` of what `[.., rows, ranks]` counts.
    fn for_each_rank(&mut self, counts: Value, at: usize, width: usize) -> Result<Value> {
        let counts = self.b.move_axis(counts, at + 1, at)?;
        let none = self.b.full_like(counts, 0.0)?;
        let some = self.b.compare(Compare::Gt, counts, none)?;
        let mut shape = self.b.ty(some).shape;
        let dims: Vec<usize> = (0..shape.len()).collect();
        shape.push(width);
        self.b.broadcast(some, &shape, &dims)
    }

    /// What stays known of where a summand is not zero behind an op, and `of` its operand.
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

    /// The same where rows are taken.
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

    /// A product with what the same ranks share by rows: the factor is small and known to all, so each rank multiplies its summand and
    /// who adds further may do so before anything travels.
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

    /// A sum over axes of a value that is a part of a sum over ranks: ranks add first, and less travels.
    pub(super) fn sum_before_reduce(
        &mut self,
        r: &Reduce,
        x: &ShardedValue,
        ty: &Type,
    ) -> Result<Option<ShardedValue>> {
        let Some(late) = self.scattered_sums.get(&x.value).cloned() else { return Ok(None) };
        let rank = x.ty.rank();
        // Rows are those of the axis in front of the last that stays.
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

    /// A rank's rows of a sum: each gets those summands that are not zero.
    fn return_rows(&mut self, part: Value, support: NonzeroRows, axes: &[MeshAxis], at: usize) -> Result<Value> {
        let ty = self.b.ty(part);
        let ranks: usize = axes.iter().map(|a| a.size).product();
        let (rows, width) = (ty.shape[at] / ranks, ty.shape[at + 1]);
        let mut by_rank = ty.shape.clone();
        by_rank[at] = rows;
        by_rank.insert(at, ranks);
        // Rows that this rank has something for.
        let own = self.b.collective(CollectiveKind::ShardSlice { dim: at + 1 }, support.0, axes)?;
        let own = self.b.reshape(own, &by_rank[..at + 2])?;
        let none = self.b.full_like(own, 0.0)?;
        let own = self.b.compare(Compare::Gt, own, none)?;
        let own = self.b.broadcast(own, &by_rank, &(0..at + 2).collect::<Vec<_>>())?;
        let sent = self.b.reshape(part, &by_rank)?;
        let sent = self.b.zero_unless(own, sent)?;
        self.communicated = true;
        let came = self.b.collective(CollectiveKind::AllToAll { split: at, join: at }, sent, axes)?;
        // Rows of this rank that each has something for: backward sends those alone.
        let theirs = self.b.collective(CollectiveKind::ShardSlice { dim: at }, support.0, axes)?;
        let theirs = self.for_each_rank(theirs, at, width)?;
        let came = self.b.zero_unless(theirs, came)?;
        self.b.sum(came, &[at])
    }
}
