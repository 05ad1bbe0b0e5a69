//! Partitioning: converts a graph of whole tensors to the graph that one rank of a mesh runs on its shards, given the shardings
//! of the inputs. Every op has a rule for sharding propagation. Where shardings do not match, collectives are inserted (§7.6.0):
//! a product along a sharded axis is all-reduced, and a value that is needed whole is all-gathered. An op without a rule gets
//! whole operands. The result is therefore correct for any graph and any shardings; only the communication differs.

mod constraints;
mod expert_all_to_all;
mod layout;
mod partial;
mod rules;
mod segments;

pub use layout::{DimSharding, PartitionSpec};
pub use segments::segments;

use ir::ops::{Broadcast, CollectiveKind, Iota};
use ir::{Builder, DType, Error, Graph, GraphBuilder, Mesh, MeshAxis, Op, Result, Scalar, Spec, Type, Value};
use layout::{ShardedValue, local_type, replicated, to_spec, used_axes};
use std::collections::BTreeMap;

/// The sharding of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharding {
    /// The sharding with which it is used.
    pub spec: PartitionSpec,
    /// An axis along which it is stored in shards, over axes of the mesh; it is all-gathered before its first use. These are the
    /// parameters of fully sharded data parallelism (FSDP). The gradient is reduce-scattered.
    pub storage_sharding: Option<(usize, Vec<MeshAxis>)>,
}

impl Sharding {
    /// Converts from a `Spec`.
    pub fn from_spec(mesh: &Mesh, spec: &Spec, rank: usize) -> Sharding {
        Sharding { spec: layout::of_spec(mesh, spec, rank), storage_sharding: None }
    }

    /// The type of a rank's shard.
    pub fn local_type(&self, mesh: &Mesh, ty: &Type) -> Type {
        let mut ty = local_type(mesh, ty, &self.spec);
        if let Some((dim, axes)) = &self.storage_sharding {
            ty.shape[*dim] /= axes.iter().map(|a| a.size).product::<usize>();
        }
        ty
    }

    /// The mesh axes over which it varies, including those over which it is stored.
    pub fn axes(&self, mesh: &Mesh) -> Result<ir::AxisSet> {
        let stored = self.storage_sharding.iter().flat_map(|(_, axes)| axes.clone()).collect::<Vec<_>>();
        let stored = mesh.set(&stored).map_err(|p| Error::Invalid(p.to_string()))?;
        Ok(used_axes(&self.spec).union(stored))
    }

    /// Whether a tensor can be divided into equal shards this way.
    pub fn divides_evenly(&self, mesh: &Mesh, ty: &Type) -> bool {
        let cut = ty.shape.iter().zip(&self.spec).all(|(n, c)| c.is_replicated() || c.divides(mesh, *n));
        cut && self.storage_sharding.as_ref().is_none_or(|(dim, axes)| {
            let parts: usize = axes.iter().map(|a| a.size).product();
            local_type(mesh, ty, &self.spec).shape.get(*dim).is_some_and(|n| n.is_multiple_of(parts))
        })
    }
}

/// The graph of one rank.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// Maps shards of the inputs to shards of the outputs; `pvary` ops are added later (see `ir::varying_axes`).
    pub graph: Graph,
    /// The sharding of each output.
    pub outs: Vec<Spec>,
}

/// Partitions a graph. Outputs are sharded as `outs` requests; without a request they keep their sharding.
pub fn partition(graph: &Graph, mesh: &Mesh, ins: &[Sharding], outs: &[Option<Spec>]) -> Result<Partitioned> {
    let types = graph.input_types();
    if ins.len() != types.len() || outs.len() != graph.outputs().len() {
        return Err(Error::Invalid("partition needs a placement for each input and output".into()));
    }
    let mut p = Partitioner::new(mesh);
    let mut inputs = Vec::new();
    for (i, (placement, ty)) in ins.iter().zip(&types).enumerate() {
        if placement.spec.len() != ty.rank() || !placement.divides_evenly(mesh, ty) {
            let spec = to_spec(mesh, &placement.spec);
            return Err(Error::Invalid(format!("input {i}, {ty}, cannot be sharded evenly as {spec} over {mesh}")));
        }
        let value = p.b.graph.input(placement.local_type(mesh, ty));
        if let Some((dim, axes)) = &placement.storage_sharding {
            p.stored.insert(value, (*dim, axes.clone()));
        }
        inputs.push(ShardedValue { value, ty: ty.clone(), spec: placement.spec.clone() });
    }
    let found = p.graph(graph, inputs)?;
    let mut results = Vec::new();
    for (x, want) in found.iter().zip(outs) {
        results.push(match want {
            Some(spec) => p.reshard(x, &layout::of_spec(mesh, spec, x.ty.rank()))?,
            // Segments are only used inside the partitioner.
            None => {
                let plain =
                    x.spec.iter().map(|c| if c.segments.is_empty() { c.clone() } else { DimSharding::default() });
                p.reshard(x, &plain.collect::<PartitionSpec>())?
            }
        });
    }
    let specs = results.iter().map(|x| to_spec(mesh, &x.spec)).collect();
    let values: Vec<Value> = results.iter().map(|x| x.value).collect();
    Ok(Partitioned { graph: p.b.finish(&values).without_dead_nodes(), outs: specs })
}

struct Partitioner<'m> {
    mesh: &'m Mesh,
    b: Builder,
    /// Whether any communication was inserted.
    communicated: bool,
    /// Inputs that are stored in shards, until they are gathered.
    stored: BTreeMap<Value, (usize, Vec<MeshAxis>)>,
    gathered: BTreeMap<Value, Value>,
    /// Values that can be recomputed in shards without communication.
    rematerializable: BTreeMap<Value, ShardableSource>,
    /// Sums over ranks with the summand of each rank: a consumer that needs a shard uses a reduce-scatter.
    partial_sums: BTreeMap<Value, (Value, Vec<MeshAxis>)>,
    /// Values of which each rank has its own rows.
    rows: BTreeMap<Value, partial::OwnedRows>,
    /// Rows that were gathered from a value whose rows are sharded.
    gathered_rows: BTreeMap<Value, expert_all_to_all::GatheredRows>,
    /// The nonzero rows of summands of sums over ranks.
    nonzero_rows: BTreeMap<Value, expert_all_to_all::NonzeroRows>,
    /// Summands of sums over ranks that may be reduced further before communication.
    scattered_sums: BTreeMap<Value, expert_all_to_all::ScatteredSum>,
}

/// The origin of a value that can be recomputed in shards.
#[derive(Clone)]
enum ShardableSource {
    Broadcast(Broadcast, ShardedValue),
    Iota(Iota),
}

impl<'m> Partitioner<'m> {
    fn new(mesh: &'m Mesh) -> Partitioner<'m> {
        Partitioner {
            mesh,
            b: Builder::new(),
            communicated: false,
            stored: BTreeMap::new(),
            gathered: BTreeMap::new(),
            rematerializable: BTreeMap::new(),
            partial_sums: BTreeMap::new(),
            rows: BTreeMap::new(),
            gathered_rows: BTreeMap::new(),
            nonzero_rows: BTreeMap::new(),
            scattered_sums: BTreeMap::new(),
        }
    }

    /// Partitions a graph and returns its outputs.
    fn graph(&mut self, graph: &Graph, inputs: Vec<ShardedValue>) -> Result<Vec<ShardedValue>> {
        let mut slots: Vec<Option<ShardedValue>> = vec![None; graph.num_values()];
        for (&v, x) in graph.inputs().iter().zip(inputs) {
            slots[v.0 as usize] = Some(x);
        }
        let live = graph.live_values();
        for node in graph.nodes() {
            if !node.outs.iter().any(|v| live[v.0 as usize]) {
                continue;
            }
            self.b.loc = node.loc.clone();
            let mut args = Vec::new();
            for a in &node.args {
                let x = slots[a.0 as usize].clone().expect("operands come first");
                args.push(self.gather_stored(x)?);
            }
            let types: Vec<Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
            let outs = self.node(&node.op, args, &types).map_err(|e| e.at(&node.loc))?;
            for (&v, x) in node.outs.iter().zip(outs) {
                debug_assert_eq!(self.b.ty(x.value), local_type(self.mesh, &x.ty, &x.spec), "{}", node.op.name());
                slots[v.0 as usize] = Some(x);
            }
        }
        let mut outs = Vec::new();
        for v in graph.outputs() {
            outs.push(self.gather_stored(slots[v.0 as usize].clone().expect("outputs are live"))?);
        }
        Ok(outs)
    }

    /// Gathers a value that is stored in shards, before its first use.
    fn gather_stored(&mut self, mut x: ShardedValue) -> Result<ShardedValue> {
        if let Some((dim, axes)) = self.stored.get(&x.value).cloned() {
            x.value = match self.gathered.get(&x.value) {
                Some(v) => *v,
                None => {
                    let kind = CollectiveKind::AllGather { dim, same: false, turn: 0 };
                    let v = self.b.collective(kind, x.value, &axes)?;
                    self.gathered.insert(x.value, v);
                    v
                }
            };
        }
        Ok(x)
    }

    /// Reshards a value.
    fn reshard(&mut self, x: &ShardedValue, want: &[DimSharding]) -> Result<ShardedValue> {
        let want: PartitionSpec = want
            .iter()
            .enumerate()
            .map(|(d, c)| {
                if c.is_replicated() || !c.divides(self.mesh, x.ty.shape[d]) {
                    DimSharding::default()
                } else {
                    c.clone()
                }
            })
            .collect();
        if x.spec == want {
            return Ok(x.clone());
        }
        if let Some(made) = self.rematerializable.get(&x.value).cloned() {
            return self.materialize_shard(&made, &x.ty, &want);
        }
        let mut x = x.clone();
        for d in 0..want.len() {
            if x.spec[d] != want[d] && !x.spec[d].is_replicated() {
                let moved = (0..want.len()).find(|&e| self.is_axis_move(&x, d, e, &want));
                x = match moved {
                    Some(e) => self.move_sharded_axis(&x, d, e)?,
                    None => self.gather(&x, d)?,
                };
            }
        }
        for d in 0..want.len() {
            if x.spec[d] != want[d] {
                x = self.slice_shard(&x, d, &want[d])?;
            }
        }
        Ok(x)
    }

    /// Whether only the sharding of one axis moves to another axis, so that one all-to-all suffices.
    fn is_axis_move(&self, x: &ShardedValue, from: usize, to: usize, want: &[DimSharding]) -> bool {
        let cut = &x.spec[from];
        let plain = cut.segments.is_empty() && x.spec[to].is_replicated() && want[from].is_replicated();
        from != to && plain && want[to] == *cut
    }

    /// Moves a sharding from one axis to another.
    fn move_sharded_axis(&mut self, x: &ShardedValue, from: usize, to: usize) -> Result<ShardedValue> {
        let axes = x.spec[from].mesh_axes(self.mesh);
        self.communicated = true;
        let value = self.b.collective(CollectiveKind::AllToAll { split: to, join: from }, x.value, &axes)?;
        let mut layout = x.spec.clone();
        layout.swap(from, to);
        Ok(ShardedValue { value, ty: x.ty.clone(), spec: layout })
    }

    /// All-gathers along an axis.
    fn gather(&mut self, x: &ShardedValue, dim: usize) -> Result<ShardedValue> {
        let cut = x.spec[dim].clone();
        let axes = cut.mesh_axes(self.mesh);
        self.communicated = true;
        let kind = CollectiveKind::AllGather { dim, same: true, turn: 0 };
        let mut value = self.b.collective(kind, x.value, &axes)?;
        if !cut.segments.is_empty() {
            // The gathered shards each contain a part of all segments: put the parts of each segment together.
            let parts = cut.num_shards(self.mesh);
            let (each, mut pieces) = (x.ty.shape[dim] / parts, Vec::new());
            let mut start = 0;
            for s in &cut.segments {
                for r in 0..parts {
                    pieces.push(self.b.slice_axis(value, dim, r * each + start, r * each + start + s / parts)?);
                }
                start += s / parts;
            }
            value = self.b.concat(&pieces, dim)?;
        }
        let mut layout = x.spec.clone();
        layout[dim] = DimSharding::default();
        Ok(ShardedValue { value, ty: x.ty.clone(), spec: layout })
    }

    /// Slices a rank's shard along a replicated axis.
    fn slice_shard(&mut self, x: &ShardedValue, dim: usize, cut: &DimSharding) -> Result<ShardedValue> {
        let axes = cut.mesh_axes(self.mesh);
        self.communicated = true;
        let own = self.partial_sums.get(&x.value).filter(|(_, over)| *over == axes).cloned();
        let value = if let (Some((part, _)), true) = (own, cut.segments.is_empty()) {
            self.b.collective(CollectiveKind::ReduceScatter { dim }, part, &axes)?
        } else if cut.segments.is_empty() {
            self.b.collective(CollectiveKind::ShardSlice { dim }, x.value, &axes)?
        } else {
            let (mut start, mut pieces) = (0, Vec::new());
            for s in &cut.segments {
                let whole = self.b.slice_axis(x.value, dim, start, start + s)?;
                pieces.push(self.b.collective(CollectiveKind::ShardSlice { dim }, whole, &axes)?);
                start += s;
            }
            self.b.concat(&pieces, dim)?
        };
        let mut layout = x.spec.clone();
        layout[dim] = cut.clone();
        Ok(ShardedValue { value, ty: x.ty.clone(), spec: layout })
    }

    /// Recomputes a value in shards.
    fn materialize_shard(&mut self, made: &ShardableSource, ty: &Type, want: &[DimSharding]) -> Result<ShardedValue> {
        let shape = local_type(self.mesh, ty, want).shape;
        let value = match made {
            ShardableSource::Broadcast(op, x) => {
                let of = |(i, &d): (usize, &usize)| match x.ty.shape[i] == ty.shape[d] {
                    true => want[d].clone(),
                    false => DimSharding::default(),
                };
                let own: PartitionSpec = op.dims.iter().enumerate().map(of).collect();
                let x = self.reshard(x, &own)?;
                self.b.broadcast(x.value, &shape, &op.dims)?
            }
            ShardableSource::Iota(op) => {
                let v = self.b.iota(op.dtype, &shape, op.axis)?;
                let cut = &want[op.axis];
                if !cut.is_replicated() && !cut.segments.is_empty() {
                    let v = self.b.iota(op.dtype, &ty.shape, op.axis)?;
                    let x = ShardedValue { value: v, ty: ty.clone(), spec: replicated(ty.rank()) };
                    let mut x = x;
                    for (d, c) in want.iter().enumerate().filter(|(_, c)| !c.is_replicated()) {
                        x = self.slice_shard(&x, d, c)?;
                    }
                    return Ok(x);
                }
                match cut.is_replicated() {
                    true => v,
                    false => {
                        self.communicated = true;
                        let at = self.b.axis_index(&cut.mesh_axes(self.mesh))?;
                        let n = self
                            .b
                            .constant(ir::Literal::scalar(Scalar::from_i64(DType::I32, shape[op.axis] as i64)))?;
                        let first = self.b.mul(at, n)?;
                        let first = self.b.cast(first, op.dtype)?;
                        let first = self.b.splat(first, &shape)?;
                        self.b.add(v, first)?
                    }
                }
            }
        };
        let x = ShardedValue { value, ty: ty.clone(), spec: want.to_vec() };
        Ok(x)
    }

    /// Applies an op to whole operands.
    fn run_replicated(&mut self, op: &Op, args: Vec<ShardedValue>, types: &[Type]) -> Result<Vec<ShardedValue>> {
        let mut values = Vec::new();
        for x in &args {
            values.push(self.reshard(x, &replicated(x.ty.rank()))?.value);
        }
        let outs = self.b.emit(op.clone(), &values)?;
        let place = |(value, ty): (Value, &Type)| ShardedValue { value, ty: ty.clone(), spec: replicated(ty.rank()) };
        Ok(outs.into_iter().zip(types).map(place).collect())
    }
}
