//! The sharding propagation rules of the ops.

use super::constraints;
use super::layout::{DimSharding, PartitionSpec, ShardedValue, has_free_axes, local_type, replicated, used_axes};
use super::partial::OwnedRows;
use super::{Partitioner, ShardableSource};
use ir::ops::{
    Broadcast, Call, CollectiveKind, Composite, Dot, Gather, Indexing, Pad, Permute, RaggedDot, RaggedMode, Reduce,
    ReduceKind, Remat, Reshape, Scan, Slice,
};
use ir::{AxisSet, Graph, GraphBuilder, Op, Result, Semantics, Shape, Type, Value};
use std::sync::Arc;

impl Partitioner<'_> {
    pub(super) fn node(&mut self, op: &Op, args: Vec<ShardedValue>, types: &[Type]) -> Result<Vec<ShardedValue>> {
        let outs = self.partition_op(op, args.clone(), types)?;
        self.propagate(op, &args, &outs, types)?;
        Ok(outs)
    }

    /// Partitions an op.
    pub(super) fn partition_op(
        &mut self,
        op: &Op,
        args: Vec<ShardedValue>,
        types: &[Type],
    ) -> Result<Vec<ShardedValue>> {
        match op {
            Op::Iota(iota) => {
                let outs = self.run_replicated(op, args, types)?;
                self.rematerializable.insert(outs[0].value, ShardableSource::Iota(iota.clone()));
                Ok(outs)
            }
            Op::Broadcast(b) => self.broadcast(b, &args[0], &types[0]),
            Op::Reshape(r) => self.reshape(r, &args[0], &types[0]),
            Op::Permute(p) => self.permute(p, &args[0], &types[0]),
            Op::Slice(s) => self.slice(s, &args[0], &types[0]),
            Op::Pad(p) => self.pad(p, &args, &types[0]),
            Op::Flip(f) => self.elementwise_rule(op, args, types, |d| !f.axes.contains(&d)),
            Op::Concat(c) => self.elementwise_rule(op, args, types, |d| d != c.axis),
            Op::Reduce(r) => self.reduce(r, &args[0], &types[0]),
            Op::Cumulative(c) => self.elementwise_rule(op, args, types, |d| d != c.axis),
            Op::Sort(s) => self.elementwise_rule(op, args, types, |d| d != s.axis),
            Op::TopK(t) => self.elementwise_rule(op, args, types, |d| d != t.axis),
            Op::TakeAlong(t) => self.elementwise_rule(op, args, types, |d| d != t.axis),
            Op::PutAlong(t) => self.elementwise_rule(op, args, types, |d| d != t.axis),
            Op::ArgReduce(a) => {
                let mut want = args[0].spec.clone();
                want[a.axis] = DimSharding::default();
                let x = self.reshard(&args[0], &want)?;
                let value = self.b.one(op.clone(), &[x.value])?;
                want.remove(a.axis);
                Ok(vec![ShardedValue { value, ty: types[0].clone(), spec: want }])
            }
            Op::Dot(d) => self.dot(d, &args, &types[0]),
            Op::RaggedDot(d) if d.mode == RaggedMode::Rows => self.ragged_dot(d, &args, &types[0]),
            Op::Gather(g) => self.gather_op(g, &args, &types[0]),
            Op::Scan(s) => self.scan(s, args, types),
            Op::Call(c) => self.body(&c.body, args, |g| Call::new(g).into()),
            Op::Remat(r) => self.body(&r.body, args, |g| Remat::with_policy(g, r.policy.clone()).into()),
            Op::Composite(c) => self.composite(c, args),
            Op::Name(n) if constraints::is_constraint(&n.name) => {
                self.apply_constraint(&n.name, &args[0]).map(|x| vec![x])
            }
            _ => match op.semantics() {
                Semantics::Elementwise(_) | Semantics::Index(Indexing::Threefry) => {
                    self.elementwise_rule(op, args, types, |_| true)
                }
                _ => self.run_replicated(op, args, types),
            },
        }
    }

    /// The common sharding for operands of one shape, over the axes that `may` allows.
    fn common_spec(&self, args: &[ShardedValue], may: &dyn Fn(usize) -> bool) -> PartitionSpec {
        let rank = args.first().map_or(0, |x| x.ty.rank());
        let mut want = replicated(rank);
        for x in args.iter().filter(|x| x.ty.rank() == rank) {
            for (d, cut) in x.spec.iter().enumerate() {
                if may(d) && want[d].is_replicated() && !cut.is_replicated() && has_free_axes(cut, used_axes(&want)) {
                    want[d] = cut.clone();
                }
            }
        }
        want
    }

    /// Partitions an op whose operands and results have the same axes, and which works along the axes that `may` rejects.
    fn elementwise_rule(
        &mut self,
        op: &Op,
        args: Vec<ShardedValue>,
        types: &[Type],
        may: impl Fn(usize) -> bool,
    ) -> Result<Vec<ShardedValue>> {
        let rank = types[0].rank();
        if args.iter().any(|x| x.ty.rank() != rank) {
            return self.run_replicated(op, args, types);
        }
        let want = self.common_spec(&args, &may);
        let mut values = Vec::new();
        for x in &args {
            values.push(self.reshard(x, &want)?.value);
        }
        let outs = self.b.emit(op.clone(), &values)?;
        let place = |(value, ty): (Value, &Type)| ShardedValue { value, ty: ty.clone(), spec: want.clone() };
        Ok(outs.into_iter().zip(types).map(place).collect())
    }

    fn broadcast(&mut self, b: &Broadcast, x: &ShardedValue, ty: &Type) -> Result<Vec<ShardedValue>> {
        let mut layout = replicated(ty.rank());
        for (i, &d) in b.dims.iter().enumerate() {
            if x.ty.shape[i] == ty.shape[d] {
                layout[d] = x.spec[i].clone();
            }
        }
        let value = self.b.broadcast(x.value, &local_type(self.mesh, ty, &layout).shape, &b.dims)?;
        self.rematerializable.insert(value, ShardableSource::Broadcast(b.clone(), x.clone()));
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    fn permute(&mut self, p: &Permute, x: &ShardedValue, ty: &Type) -> Result<Vec<ShardedValue>> {
        let layout = p.perm.iter().map(|&d| x.spec[d].clone()).collect();
        let value = self.b.permute(x.value, &p.perm)?;
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    /// A sharding propagates through a reshape if its axis is unchanged, or is the outermost of merged or split axes.
    fn reshape(&mut self, r: &Reshape, x: &ShardedValue, ty: &Type) -> Result<Vec<ShardedValue>> {
        let (from, to) = (&x.ty.shape, &r.shape);
        let (mut kept, mut layout) = (replicated(from.len()), replicated(to.len()));
        if x.ty.numel() > 0 {
            let (mut i, mut j) = (0, 0);
            while i < from.len() || j < to.len() {
                let (first_i, first_j) = (i, j);
                let (mut a, mut b) = (1, 1);
                // The shortest groups of axes with equal products.
                loop {
                    if a < b || (a == b && a == 1 && i < from.len()) {
                        a *= from[i];
                        i += 1;
                    } else if b < a || j < to.len() && b == 1 {
                        b *= to[j];
                        j += 1;
                    }
                    if a == b && (a > 1 || (i == from.len() && j == to.len())) {
                        break;
                    }
                }
                let long = |shape: &[usize], range: std::ops::Range<usize>| -> Vec<usize> {
                    range.filter(|&d| shape[d] > 1).collect()
                };
                let (of, into) = (long(from, first_i..i), long(to, first_j..j));
                let (Some(&d), Some(&e)) = (of.first(), into.first()) else { continue };
                let cut = &x.spec[d];
                // Split axis: if the outer axis gets one shard per index, the remaining sharding goes to the next axis.
                if let ([_], [_, next, ..], true) = (&of[..], &into[..], cut.segments.is_empty())
                    && let Some((outer, inner)) = self.repartition_reshaped_axis(cut, to[e])
                    && inner.divides(self.mesh, to[*next])
                {
                    kept[d] = cut.clone();
                    (layout[e], layout[*next]) = (outer, inner);
                    continue;
                }
                // Merged axes, the reverse case.
                if let ([_, next, ..], [_]) = (&of[..], &into[..])
                    && !x.spec[*next].is_replicated()
                    && cut.num_shards(self.mesh) == from[d]
                    && cut.segments.is_empty()
                    && x.spec[*next].segments.is_empty()
                {
                    (kept[d], kept[*next]) = (cut.clone(), x.spec[*next].clone());
                    layout[e] = DimSharding::over_axes([&cut.axes[..], &x.spec[*next].axes].concat());
                    continue;
                }
                let alone = of.len() == 1 && into.len() == 1;
                if !cut.is_replicated() && (alone || (cut.segments.is_empty() && cut.divides(self.mesh, to[e]))) {
                    kept[d] = cut.clone();
                    layout[e] = cut.clone();
                }
            }
        }
        let x = self.reshard(x, &kept)?;
        let value = self.b.reshape(x.value, &local_type(self.mesh, ty, &layout).shape)?;
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    fn slice(&mut self, s: &Slice, x: &ShardedValue, ty: &Type) -> Result<Vec<ShardedValue>> {
        let (mut kept, mut layout) = (x.spec.clone(), replicated(ty.rank()));
        let (mut start, mut limit) = (s.start.clone(), s.limit.clone());
        for d in 0..ty.rank() {
            let cut = &x.spec[d];
            if cut.is_replicated() {
                continue;
            }
            let parts = cut.num_shards(self.mesh);
            let n = x.ty.shape[d];
            if (s.start[d], s.limit[d], s.stride[d]) == (0, n, 1) {
                layout[d] = cut.clone();
                limit[d] = n / parts;
                continue;
            }
            // Whole segments: each rank has its shard of each segment.
            let mut at = 0;
            let bounds: Vec<usize> = std::iter::once(0)
                .chain(cut.segments.iter().map(|size| {
                    at += size;
                    at
                }))
                .collect();
            let place = |x: usize| bounds.iter().position(|b| *b == x);
            match (place(s.start[d]), place(s.limit[d])) {
                (Some(a), Some(b)) if s.stride[d] == 1 && a < b => {
                    start[d] /= parts;
                    limit[d] /= parts;
                    let inside = &cut.segments[a..b];
                    layout[d] = DimSharding {
                        axes: cut.axes.clone(),
                        segments: if inside.len() > 1 { inside.to_vec() } else { vec![] },
                    };
                }
                _ => kept[d] = DimSharding::default(),
            }
        }
        let x = self.reshard(x, &kept)?;
        let value = self.b.slice(x.value, &start, &limit, &s.stride)?;
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    fn pad(&mut self, p: &Pad, args: &[ShardedValue], ty: &Type) -> Result<Vec<ShardedValue>> {
        let untouched = |d: usize| p.low[d] == 0 && p.high[d] == 0 && p.interior[d] == 0;
        let layout: PartitionSpec = (args[0].spec.iter().enumerate())
            .map(|(d, c)| if untouched(d) { c.clone() } else { DimSharding::default() })
            .collect();
        let x = self.reshard(&args[0], &layout)?;
        let value = self.b.one(p.clone().into(), &[x.value, args[1].value])?;
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    /// Each rank reduces its shard; then ranks all-reduce over the sharded axes.
    fn reduce(&mut self, r: &Reduce, x: &ShardedValue, ty: &Type) -> Result<Vec<ShardedValue>> {
        if let Some(found) = self.sum_before_reduce(r, x, ty)? {
            return Ok(vec![found]);
        }
        let kind = match r.kind {
            ReduceKind::Sum => Some(CollectiveKind::Sum),
            ReduceKind::Max => Some(CollectiveKind::Max),
            ReduceKind::Min => Some(CollectiveKind::Min),
            ReduceKind::Prod | ReduceKind::Any | ReduceKind::All => None,
        };
        let mut want = x.spec.clone();
        if kind.is_none() {
            r.axes.iter().for_each(|&d| want[d] = DimSharding::default());
        }
        let x = self.reshard(x, &want)?;
        let mut value = self.b.reduce(r.kind, x.value, &r.axes)?;
        let over: Vec<usize> = r.axes.iter().flat_map(|&d| want[d].axes.clone()).collect();
        if let (Some(kind), false) = (kind, over.is_empty()) {
            self.communicated = true;
            let axes = DimSharding::over_axes(over).mesh_axes(self.mesh);
            value = match kind {
                CollectiveKind::Sum => self.all_reduce(value, &axes)?,
                kind => self.b.collective(kind, value, &axes)?,
            };
        }
        let layout = (0..want.len()).filter(|d| !r.axes.contains(d)).map(|d| want[d].clone()).collect();
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    fn dot(&mut self, dot: &Dot, args: &[ShardedValue], ty: &Type) -> Result<Vec<ShardedValue>> {
        let (a, b) = (&args[0], &args[1]);
        let (mut la, mut lb) = (a.spec.clone(), b.spec.clone());
        // Corresponding axes get the same sharding; a mesh axis that the other operand uses elsewhere is dropped.
        let batch = dot.lhs_batch.iter().zip(&dot.rhs_batch);
        for (&i, &j) in batch.chain(dot.lhs_contract.iter().zip(&dot.rhs_contract)) {
            if la[i] == lb[j] {
                continue;
            }
            let (of_a, of_b) = (used_axes(&la), used_axes(&lb));
            if !la[i].is_replicated() && lb[j].is_replicated() && has_free_axes(&la[i], of_b) {
                lb[j] = la[i].clone();
            } else if !lb[j].is_replicated() && la[i].is_replicated() && has_free_axes(&lb[j], of_a) {
                la[i] = lb[j].clone();
            } else {
                (la[i], lb[j]) = (DimSharding::default(), DimSharding::default());
            }
        }
        let (fa, fb) = (dot.lhs_free(a.ty.rank()), dot.rhs_free(b.ty.rank()));
        // A mesh axis shards one axis of the result; the larger operand keeps it.
        for (j, i) in fb.iter().flat_map(|j| fa.iter().map(move |i| (*j, *i))) {
            if !has_free_axes(&lb[j], used_axes(&la[i..=i])) {
                match a.ty.numel() >= b.ty.numel() {
                    true => lb[j] = DimSharding::default(),
                    false => la[i] = DimSharding::default(),
                }
            }
        }
        let shared: AxisSet =
            used_axes(&dot.lhs_batch.iter().chain(&dot.lhs_contract).map(|&i| la[i].clone()).collect::<Vec<_>>());
        fa.iter().for_each(|&i| {
            if !has_free_axes(&la[i], shared) {
                la[i] = DimSharding::default()
            }
        });
        fb.iter().for_each(|&j| {
            if !has_free_axes(&lb[j], shared) {
                lb[j] = DimSharding::default()
            }
        });
        let (a, b) = (self.reshard(a, &la)?, self.reshard(b, &lb)?);
        let mut value = self.b.one(dot.clone().into(), &[a.value, b.value])?;
        let over: Vec<usize> = dot.lhs_contract.iter().flat_map(|&i| a.spec[i].axes.clone()).collect();
        if !over.is_empty() {
            value = self.all_reduce(value, &DimSharding::over_axes(over).mesh_axes(self.mesh))?;
        }
        let batch = dot.lhs_batch.iter().map(|&i| a.spec[i].clone());
        let layout =
            batch.chain(fa.iter().map(|&i| a.spec[i].clone())).chain(fb.iter().map(|&j| b.spec[j].clone())).collect();
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    /// Sharded groups: each rank computes the rows of its own groups, with zeros for the others, so that the sum has all rows.
    fn ragged_dot(&mut self, dot: &RaggedDot, args: &[ShardedValue], ty: &Type) -> Result<Vec<ShardedValue>> {
        let n = dot.batch;
        let mut wants: Vec<PartitionSpec> = args.iter().map(|x| replicated(x.ty.rank())).collect();
        let mut taken = AxisSet::default();
        for d in 0..n {
            let cut = args.iter().map(|x| x.spec[d].clone()).find(|c| !c.is_replicated() && has_free_axes(c, taken));
            if let Some(cut) = cut {
                taken = taken.union(used_axes(std::slice::from_ref(&cut)));
                wants.iter_mut().for_each(|w| w[d] = cut.clone());
            }
        }
        let mut take = |cut: &DimSharding, plain: bool| {
            let fits = !cut.is_replicated() && has_free_axes(cut, taken) && (!plain || cut.segments.is_empty());
            if fits {
                taken = taken.union(used_axes(std::slice::from_ref(cut)));
            }
            fits
        };
        let of_b = &args[1].spec;
        let (groups, along, across) = (of_b[n].clone(), of_b[n + 1].clone(), of_b[n + 2].clone());
        let mut over = Vec::new();
        let by_groups = take(&groups, true);
        if by_groups {
            over.extend(groups.axes.clone());
            wants[1][n] = groups.clone();
        }
        if take(&along, true) {
            over.extend(along.axes.clone());
            wants[0][n + 1] = along.clone();
            wants[1][n + 1] = along;
        }
        let mut layout = wants[0][..n].to_vec();
        layout.extend(replicated(2));
        if take(&across, false) {
            wants[1][n + 2] = across.clone();
            layout[n + 1] = across;
        }
        let (mut a, b) = (self.reshard(&args[0], &wants[0])?, self.reshard(&args[1], &wants[1])?);
        // Between products of the same groups a rank needs only its own rows.
        let rows = self.rows.get(&args[0].value).filter(|rows| {
            by_groups
                && (rows.offsets, &rows.axes, rows.row_axis) == (args[2].value, &groups.axes, n)
                && args[0].spec == wants[0]
        });
        if let Some(rows) = rows {
            a.value = rows.own;
        }
        let mut offsets = self.reshard(&args[2], &wants[2])?.value;
        let mut read = None;
        if by_groups {
            // The range of a rank's groups among all groups.
            let (count, axes) = (args[1].ty.shape[n], groups.mesh_axes(self.mesh));
            // Descending offsets are made ascending, and a rank reads a part of them.
            offsets = self.b.cumulative(ReduceKind::Max, offsets, n, false)?;
            if over == groups.axes {
                let support = self.rows_read_by_rank(offsets, args[0].ty.shape[n], groups.num_shards(self.mesh))?;
                let known = args[0].spec == wants[0] && !self.rows.contains_key(&args[0].value);
                if let (true, Some(own)) = (known, self.all_to_all_rows(args[0].value, support, &groups)?) {
                    a.value = own;
                    let rows = OwnedRows { own, offsets: args[2].value, axes: over.clone(), row_axis: n };
                    self.rows.insert(args[0].value, rows);
                }
                read = Some(support);
            }
            let starts = self.b.slice_axis(offsets, n, 0, count)?;
            let ends = self.b.slice_axis(offsets, n, 1, count + 1)?;
            let starts = self.b.collective(CollectiveKind::ShardSlice { dim: n }, starts, &axes)?;
            let ends = self.b.collective(CollectiveKind::ShardSlice { dim: n }, ends, &axes)?;
            let own = count / groups.num_shards(self.mesh);
            let last = self.b.slice_axis(ends, n, own - 1, own)?;
            offsets = self.b.concat(&[starts, last], n)?;
        }
        let own = self.b.one(dot.clone().into(), &[a.value, b.value, offsets])?;
        let mut value = own;
        if !over.is_empty() {
            value = self.all_reduce(own, &DimSharding::over_axes(over.clone()).mesh_axes(self.mesh))?;
            if by_groups && over == groups.axes {
                self.rows.insert(value, OwnedRows { own, offsets: args[2].value, axes: over, row_axis: n });
            }
            self.nonzero_rows.extend(read.map(|read| (value, read)));
        }
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    /// Splits the sharding of an axis of `size` into one shard per index and the remaining sharding of the inner axis.
    fn repartition_reshaped_axis(&self, cut: &DimSharding, size: usize) -> Option<(DimSharding, DimSharding)> {
        let (mut parts, mut at) = (1, 0);
        while parts < size && at < cut.axes.len() {
            parts *= self.mesh.axes()[cut.axes[at]].size;
            at += 1;
        }
        let (outer, inner) = cut.axes.split_at(at);
        (parts == size && !inner.is_empty())
            .then(|| (DimSharding::over_axes(outer.to_vec()), DimSharding::over_axes(inner.to_vec())))
    }

    fn gather_op(&mut self, g: &Gather, args: &[ShardedValue], ty: &Type) -> Result<Vec<ShardedValue>> {
        let (x, indices) = (&args[0], &args[1]);
        let mut of_indices = indices.spec.clone();
        *of_indices.last_mut().expect("indices have a last axis") = DimSharding::default();
        let mut of_x = replicated(x.ty.rank());
        let mut layout = replicated(ty.rank());
        // Corresponding batch axes.
        for (&a, &i) in g.dims.operand_batch.iter().zip(&g.dims.index_batch) {
            if of_indices[i].is_replicated() && has_free_axes(&x.spec[a], used_axes(&of_indices)) {
                of_indices[i] = x.spec[a].clone();
            }
            of_x[a] = of_indices[i].clone();
        }
        let batch: Vec<usize> = (0..ty.rank()).filter(|d| !g.dims.offset.contains(d)).collect();
        for (&d, cut) in batch.iter().zip(&of_indices) {
            layout[d] = cut.clone();
        }
        // Axes that are complete in every slice.
        let absent = |a: &usize| g.dims.collapsed.contains(a) || g.dims.operand_batch.contains(a);
        let mut sizes: Shape = g.slice_sizes.clone();
        for (&d, a) in g.dims.offset.iter().zip((0..x.ty.rank()).filter(|a| !absent(a))) {
            let all = g.slice_sizes[a] == x.ty.shape[a] && !g.dims.index_map.contains(&a);
            if all && has_free_axes(&x.spec[a], used_axes(&layout)) && has_free_axes(&x.spec[a], used_axes(&of_x)) {
                of_x[a] = x.spec[a].clone();
                layout[d] = x.spec[a].clone();
                sizes[a] /= x.spec[a].num_shards(self.mesh);
            }
        }
        let (given, indices) = (x, self.reshard(indices, &of_indices)?);
        let x = self.reshard(given, &of_x)?;
        let op = Gather { slice_sizes: sizes, ..g.clone() };
        let value = self.b.one(op.into(), &[x.value, indices.value])?;
        self.record_gathered_rows(g, given, &of_x, &indices, value);
        Ok(vec![ShardedValue { value, ty: ty.clone(), spec: layout }])
    }

    /// Partitions a body; an operand that is stored in shards and would be gathered inside is gathered before.
    fn inner(&self, body: &Graph, args: &[ShardedValue]) -> Result<(Graph, Vec<ShardedValue>, bool)> {
        let mut p = Partitioner::new(self.mesh);
        let mut inputs = Vec::new();
        for x in args {
            let value = p.b.graph.input(self.b.ty(x.value));
            inputs.push(ShardedValue { value, ..x.clone() });
        }
        let outs = p.graph(body, inputs)?;
        let values: Vec<Value> = outs.iter().map(|x| x.value).collect();
        Ok((p.b.finish(&values).without_dead_nodes(), outs, p.communicated))
    }

    fn body(
        &mut self,
        body: &Graph,
        args: Vec<ShardedValue>,
        wrap: impl FnOnce(Graph) -> Op,
    ) -> Result<Vec<ShardedValue>> {
        let (graph, outs, talked) = self.inner(body, &args)?;
        self.communicated |= talked;
        let values: Vec<Value> = args.iter().map(|x| x.value).collect();
        let results = self.b.emit(wrap(graph), &values)?;
        Ok(results.into_iter().zip(outs).map(|(value, x)| ShardedValue { value, ..x }).collect())
    }

    /// A composite stays one if its body needs no communication and it can be built for the shards; otherwise it is inlined.
    fn composite(&mut self, c: &Composite, args: Vec<ShardedValue>) -> Result<Vec<ShardedValue>> {
        let values: Vec<Value> = args.iter().map(|x| x.value).collect();
        if args.iter().all(|x| x.spec.iter().all(DimSharding::is_replicated)) {
            let types = c.body.output_types();
            return self.run_replicated(&c.clone().into(), args, &types);
        }
        let (graph, outs, talked) = self.inner(&c.body, &args)?;
        let types: Vec<Type> = values.iter().map(|&v| self.b.ty(v)).collect();
        // A result that varies over fewer axes than the operands is only detected in the body.
        let over = args.iter().fold(AxisSet::default(), |s, x| s.union(used_axes(&x.spec)));
        if !talked
            && outs.iter().all(|x| used_axes(&x.spec) == over)
            && let Ok(own) = ir::composites::build(&c.name, &c.params, &types)
            && own.body.output_types() == graph.output_types()
        {
            let results = self.b.emit(own.into(), &values)?;
            return Ok(results.into_iter().zip(outs).map(|(value, x)| ShardedValue { value, ..x }).collect());
        }
        self.communicated |= talked;
        let results = self.b.inline(&graph, &values)?;
        Ok(results.into_iter().zip(outs).map(|(value, x)| ShardedValue { value, ..x }).collect())
    }

    /// Partitions a scan: its carries keep the sharding of their initial values.
    fn scan(&mut self, s: &Scan, args: Vec<ShardedValue>, types: &[Type]) -> Result<Vec<ShardedValue>> {
        let first = s.bounded as usize;
        let (mut operands, mut inputs) = (Vec::new(), Vec::new());
        for (i, x) in args.iter().enumerate() {
            if i < first + s.consts + s.carries {
                operands.push(x.value);
                if i >= first {
                    inputs.push(x.clone());
                }
                continue;
            }
            let mut want = x.spec.clone();
            want[0] = DimSharding::default();
            let x = self.reshard(x, &want)?;
            operands.push(x.value);
            inputs.push(ShardedValue { ty: x.ty.unbatched(), spec: want[1..].to_vec(), ..x });
        }
        let mut p = Partitioner::new(self.mesh);
        let mut inside = Vec::new();
        for x in &inputs {
            let value = p.b.graph.input(local_type(self.mesh, &x.ty, &x.spec));
            inside.push(ShardedValue { value, ..x.clone() });
        }
        let mut outs = p.graph(&s.body, inside.clone())?;
        for (i, x) in outs.iter_mut().enumerate().take(s.carries) {
            *x = p.reshard(x, &inside[s.consts + i].spec)?;
        }
        let values: Vec<Value> = outs.iter().map(|x| x.value).collect();
        self.communicated |= p.communicated;
        let scan = Scan { body: Arc::new(p.b.finish(&values).without_dead_nodes()), ..s.clone() };
        let results = self.b.emit(scan.into(), &operands)?;
        let place = |(i, value): (usize, Value)| {
            let inner = &outs[i].spec;
            let layout: PartitionSpec = match i < s.carries {
                true => inner.clone(),
                false => std::iter::once(DimSharding::default()).chain(inner.iter().cloned()).collect(),
            };
            ShardedValue { value, ty: types[i].clone(), spec: layout }
        };
        Ok(results.into_iter().enumerate().map(place).collect())
    }
}
