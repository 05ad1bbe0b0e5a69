//! Partition: a graph of whole tensors becomes what one rank of a mesh runs on its parts, given how the inputs are cut. Every
//! op says how cuts go through it; where cuts don't meet, the communication that mends it is put in (§7.6.0): a product
//! along a cut axis is summed over its ranks, a value that is needed whole is gathered. An op that knows nothing of cuts gets
//! whole operands, so the result is right for any graph and any cuts, and only its traffic differs.

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

/// How an input is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharding {
    /// How it is used.
    pub spec: PartitionSpec,
    /// An axis along which it is stored in parts, over axes of the mesh, and gathered where it is used first: the parameters of
    /// fully sharded data parallelism. The gradient comes summed and in parts.
    pub storage_sharding: Option<(usize, Vec<MeshAxis>)>,
}

impl Sharding {
    /// As a sharding says.
    pub fn from_spec(mesh: &Mesh, spec: &Spec, rank: usize) -> Sharding {
        Sharding { spec: layout::of_spec(mesh, spec, rank), storage_sharding: None }
    }

    /// The type of what a rank holds.
    pub fn local_type(&self, mesh: &Mesh, ty: &Type) -> Type {
        let mut ty = local_type(mesh, ty, &self.spec);
        if let Some((dim, axes)) = &self.storage_sharding {
            ty.shape[*dim] /= axes.iter().map(|a| a.size).product::<usize>();
        }
        ty
    }

    /// The axes over which it varies, and those over which it is stored.
    pub fn axes(&self, mesh: &Mesh) -> Result<ir::AxisSet> {
        let stored = self.storage_sharding.iter().flat_map(|(_, axes)| axes.clone()).collect::<Vec<_>>();
        let stored = mesh.set(&stored).map_err(|p| Error::Invalid(p.to_string()))?;
        Ok(used_axes(&self.spec).union(stored))
    }

    /// Whether a tensor can be cut so, into equal parts.
    pub fn divides_evenly(&self, mesh: &Mesh, ty: &Type) -> bool {
        let cut = ty.shape.iter().zip(&self.spec).all(|(n, c)| c.is_replicated() || c.divides(mesh, *n));
        cut && self.storage_sharding.as_ref().is_none_or(|(dim, axes)| {
            let parts: usize = axes.iter().map(|a| a.size).product();
            local_type(mesh, ty, &self.spec).shape.get(*dim).is_some_and(|n| n.is_multiple_of(parts))
        })
    }
}

/// A graph for one rank.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// From parts of the inputs to parts of the outputs; `pvary` is not yet in it (see `ir::vary`).
    pub graph: Graph,
    /// How each output is cut.
    pub outs: Vec<Spec>,
}

/// Divides a graph. Outputs are cut as `outs` says where it says so, else as they come.
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
            return Err(Error::Invalid(format!(
                "input {i}, {ty}, can't be cut into equal parts as {spec} over {mesh}"
            )));
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
            // Segments are nobody's business outside.
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
    /// Whether ranks had to ask for anything that is not theirs.
    communicated: bool,
    /// Inputs that are stored in parts, until they are gathered.
    stored: BTreeMap<Value, (usize, Vec<MeshAxis>)>,
    gathered: BTreeMap<Value, Value>,
    /// Values that can be made cut at no cost.
    rematerializable: BTreeMap<Value, ShardableSource>,
    /// Sums over ranks, with what each rank adds: who needs a part of one gets its part alone.
    partial_sums: BTreeMap<Value, (Value, Vec<MeshAxis>)>,
    /// Values of which a rank's own rows are at hand.
    rows: BTreeMap<Value, partial::OwnedRows>,
    /// Rows that were taken of a value that ranks share by rows.
    gathered_rows: BTreeMap<Value, expert_all_to_all::GatheredRows>,
    /// Where what ranks add to a sum is not zero.
    nonzero_rows: BTreeMap<Value, expert_all_to_all::NonzeroRows>,
    /// Parts of sums over ranks that may be summed further first.
    scattered_sums: BTreeMap<Value, expert_all_to_all::ScatteredSum>,
}

/// How a value was made that can be made again in parts.
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

    /// Writes a graph; gives its outputs.
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

    /// What is stored in parts is gathered where it is used first.
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

    /// The value cut in another way.
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

    /// Whether the cut of one axis is wanted along another, and nothing else of both: parts then change hands at once.
    fn is_axis_move(&self, x: &ShardedValue, from: usize, to: usize, want: &[DimSharding]) -> bool {
        let cut = &x.spec[from];
        let plain = cut.segments.is_empty() && x.spec[to].is_replicated() && want[from].is_replicated();
        from != to && plain && want[to] == *cut
    }

    /// Cut along another axis instead.
    fn move_sharded_axis(&mut self, x: &ShardedValue, from: usize, to: usize) -> Result<ShardedValue> {
        let axes = x.spec[from].mesh_axes(self.mesh);
        self.communicated = true;
        let value = self.b.collective(CollectiveKind::AllToAll { split: to, join: from }, x.value, &axes)?;
        let mut layout = x.spec.clone();
        layout.swap(from, to);
        Ok(ShardedValue { value, ty: x.ty.clone(), spec: layout })
    }

    /// Whole along an axis.
    fn gather(&mut self, x: &ShardedValue, dim: usize) -> Result<ShardedValue> {
        let cut = x.spec[dim].clone();
        let axes = cut.mesh_axes(self.mesh);
        self.communicated = true;
        let kind = CollectiveKind::AllGather { dim, same: true, turn: 0 };
        let mut value = self.b.collective(kind, x.value, &axes)?;
        if !cut.segments.is_empty() {
            // Ranks lie side by side, each with a part of all segments: bring each segment's together.
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

    /// A rank's part along an axis that is whole.
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

    /// A value made again, in parts.
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

    /// An op on whole operands.
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
