//! Partition: a graph of whole tensors becomes what one rank of a mesh runs on its parts, given how the inputs are cut. Every
//! op says how cuts go through it; where cuts don't meet, the communication that mends it is put in (§7.6.0): a product
//! along a cut axis is summed over its ranks, a value that is needed whole is gathered. An op that knows nothing of cuts gets
//! whole operands, so the result is right for any graph and any cuts, and only its traffic differs.

mod layout;
mod marks;
mod partial;
mod rules;
mod segments;
mod travel;

pub use layout::{Cut, Layout};
pub use segments::segments;

use ir::ops::{Broadcast, CollectiveKind, Iota};
use ir::{Build, Builder, DType, Error, Graph, Mesh, MeshAxis, Op, Result, Scalar, Spec, Type, Value};
use layout::{Placed, local, to_spec, used, whole};
use std::collections::BTreeMap;

/// How an input is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// How it is used.
    pub layout: Layout,
    /// An axis along which it is stored in parts, over axes of the mesh, and gathered where it is used first: the parameters of
    /// fully sharded data parallelism. The gradient comes summed and in parts.
    pub stored: Option<(usize, Vec<MeshAxis>)>,
}

impl Placement {
    /// As a sharding says.
    pub fn of(mesh: &Mesh, spec: &Spec, rank: usize) -> Placement {
        Placement { layout: layout::of_spec(mesh, spec, rank), stored: None }
    }

    /// The type of what a rank holds.
    pub fn local(&self, mesh: &Mesh, ty: &Type) -> Type {
        let mut ty = local(mesh, ty, &self.layout);
        if let Some((dim, axes)) = &self.stored {
            ty.shape[*dim] /= axes.iter().map(|a| a.size).product::<usize>();
        }
        ty
    }

    /// The axes over which it varies, and those over which it is stored.
    pub fn axes(&self, mesh: &Mesh) -> Result<ir::AxisSet> {
        let stored = self.stored.iter().flat_map(|(_, axes)| axes.clone()).collect::<Vec<_>>();
        let stored = mesh.set(&stored).map_err(|p| Error::Invalid(p.to_string()))?;
        Ok(used(&self.layout).and(stored))
    }

    /// Whether a tensor can be cut so, into equal parts.
    pub fn fits(&self, mesh: &Mesh, ty: &Type) -> bool {
        let cut = ty.shape.iter().zip(&self.layout).all(|(n, c)| c.is_whole() || c.fits(mesh, *n));
        cut && self.stored.as_ref().is_none_or(|(dim, axes)| {
            let parts: usize = axes.iter().map(|a| a.size).product();
            local(mesh, ty, &self.layout).shape.get(*dim).is_some_and(|n| n.is_multiple_of(parts))
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
pub fn partition(graph: &Graph, mesh: &Mesh, ins: &[Placement], outs: &[Option<Spec>]) -> Result<Partitioned> {
    let types = graph.input_types();
    if ins.len() != types.len() || outs.len() != graph.outputs().len() {
        return Err(Error::Invalid("partition needs a placement for each input and output".into()));
    }
    let mut p = Partitioner::new(mesh);
    let mut inputs = Vec::new();
    for (i, (placement, ty)) in ins.iter().zip(&types).enumerate() {
        if placement.layout.len() != ty.rank() || !placement.fits(mesh, ty) {
            let spec = to_spec(mesh, &placement.layout);
            return Err(Error::Invalid(format!(
                "input {i}, {ty}, cannot be sharded evenly as {spec} over {mesh}"
            )));
        }
        let value = p.b.graph.input(placement.local(mesh, ty));
        if let Some((dim, axes)) = &placement.stored {
            p.stored.insert(value, (*dim, axes.clone()));
        }
        inputs.push(Placed { value, ty: ty.clone(), layout: placement.layout.clone() });
    }
    let found = p.graph(graph, inputs)?;
    let mut results = Vec::new();
    for (x, want) in found.iter().zip(outs) {
        results.push(match want {
            Some(spec) => p.place(x, &layout::of_spec(mesh, spec, x.ty.rank()))?,
            // Segments are nobody's business outside.
            None => {
                let plain = x.layout.iter().map(|c| if c.segments.is_empty() { c.clone() } else { Cut::default() });
                p.place(x, &plain.collect::<Layout>())?
            }
        });
    }
    let specs = results.iter().map(|x| to_spec(mesh, &x.layout)).collect();
    let values: Vec<Value> = results.iter().map(|x| x.value).collect();
    Ok(Partitioned { graph: p.b.finish(&values).without_dead_nodes(), outs: specs })
}

struct Partitioner<'m> {
    mesh: &'m Mesh,
    b: Builder,
    /// Whether ranks had to ask for anything that is not theirs.
    talked: bool,
    /// Inputs that are stored in parts, until they are gathered.
    stored: BTreeMap<Value, (usize, Vec<MeshAxis>)>,
    gathered: BTreeMap<Value, Value>,
    /// Values that can be made cut at no cost.
    made: BTreeMap<Value, Made>,
    /// Sums over ranks, with what each rank adds: who needs a part of one gets its part alone.
    sums: BTreeMap<Value, (Value, Vec<MeshAxis>)>,
    /// Values of which a rank's own rows are at hand.
    rows: BTreeMap<Value, partial::Rows>,
    /// Rows that were taken of a value that ranks share by rows.
    taken: BTreeMap<Value, travel::Taken>,
    /// Where what ranks add to a sum is not zero.
    supports: BTreeMap<Value, travel::Support>,
    /// Parts of sums over ranks that may be summed further first.
    late: BTreeMap<Value, travel::Late>,
}

/// How a value was made that can be made again in parts.
#[derive(Clone)]
enum Made {
    Broadcast(Broadcast, Placed),
    Iota(Iota),
}

impl<'m> Partitioner<'m> {
    fn new(mesh: &'m Mesh) -> Partitioner<'m> {
        Partitioner {
            mesh,
            b: Builder::new(),
            talked: false,
            stored: BTreeMap::new(),
            gathered: BTreeMap::new(),
            made: BTreeMap::new(),
            sums: BTreeMap::new(),
            rows: BTreeMap::new(),
            taken: BTreeMap::new(),
            supports: BTreeMap::new(),
            late: BTreeMap::new(),
        }
    }

    /// Writes a graph; gives its outputs.
    fn graph(&mut self, graph: &Graph, inputs: Vec<Placed>) -> Result<Vec<Placed>> {
        let mut slots: Vec<Option<Placed>> = vec![None; graph.num_values()];
        for (&v, x) in graph.inputs().iter().zip(inputs) {
            slots[v.0 as usize] = Some(x);
        }
        let live = graph.live();
        for node in graph.nodes() {
            if !node.outs.iter().any(|v| live[v.0 as usize]) {
                continue;
            }
            self.b.loc = node.loc.clone();
            let mut args = Vec::new();
            for a in &node.args {
                let x = slots[a.0 as usize].clone().expect("operands come first");
                args.push(self.ready(x)?);
            }
            let types: Vec<Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
            let outs = self.node(&node.op, args, &types).map_err(|e| e.at(&node.loc))?;
            for (&v, x) in node.outs.iter().zip(outs) {
                debug_assert_eq!(self.b.ty(x.value), local(self.mesh, &x.ty, &x.layout), "{}", node.op.name());
                slots[v.0 as usize] = Some(x);
            }
        }
        let mut outs = Vec::new();
        for v in graph.outputs() {
            outs.push(self.ready(slots[v.0 as usize].clone().expect("outputs are live"))?);
        }
        Ok(outs)
    }

    /// What is stored in parts is gathered where it is used first.
    fn ready(&mut self, mut x: Placed) -> Result<Placed> {
        if let Some((dim, axes)) = self.stored.get(&x.value).cloned() {
            x.value = match self.gathered.get(&x.value) {
                Some(v) => *v,
                None => {
                    let kind = CollectiveKind::Gather { dim, same: false, turn: 0 };
                    let v = self.b.collective(kind, x.value, &axes)?;
                    self.gathered.insert(x.value, v);
                    v
                }
            };
        }
        Ok(x)
    }

    /// The value cut in another way.
    fn place(&mut self, x: &Placed, want: &[Cut]) -> Result<Placed> {
        let want: Layout = want
            .iter()
            .enumerate()
            .map(|(d, c)| if c.is_whole() || !c.fits(self.mesh, x.ty.shape[d]) { Cut::default() } else { c.clone() })
            .collect();
        if x.layout == want {
            return Ok(x.clone());
        }
        if let Some(made) = self.made.get(&x.value).cloned() {
            return self.make(&made, &x.ty, &want);
        }
        let mut x = x.clone();
        for d in 0..want.len() {
            if x.layout[d] != want[d] && !x.layout[d].is_whole() {
                let moved = (0..want.len()).find(|&e| self.moves(&x, d, e, &want));
                x = match moved {
                    Some(e) => self.move_cut(&x, d, e)?,
                    None => self.gather(&x, d)?,
                };
            }
        }
        for d in 0..want.len() {
            if x.layout[d] != want[d] {
                x = self.cut(&x, d, &want[d])?;
            }
        }
        Ok(x)
    }

    /// Whether the cut of one axis is wanted along another, and nothing else of both: parts then change hands at once.
    fn moves(&self, x: &Placed, from: usize, to: usize, want: &[Cut]) -> bool {
        let cut = &x.layout[from];
        let plain = cut.segments.is_empty() && x.layout[to].is_whole() && want[from].is_whole();
        from != to && plain && want[to] == *cut
    }

    /// Cut along another axis instead.
    fn move_cut(&mut self, x: &Placed, from: usize, to: usize) -> Result<Placed> {
        let axes = x.layout[from].mesh_axes(self.mesh);
        self.talked = true;
        let value = self.b.collective(CollectiveKind::AllToAll { split: to, join: from }, x.value, &axes)?;
        let mut layout = x.layout.clone();
        layout.swap(from, to);
        Ok(Placed { value, ty: x.ty.clone(), layout })
    }

    /// Whole along an axis.
    fn gather(&mut self, x: &Placed, dim: usize) -> Result<Placed> {
        let cut = x.layout[dim].clone();
        let axes = cut.mesh_axes(self.mesh);
        self.talked = true;
        let kind = CollectiveKind::Gather { dim, same: true, turn: 0 };
        let mut value = self.b.collective(kind, x.value, &axes)?;
        if !cut.segments.is_empty() {
            // Ranks lie side by side, each with a part of all segments: bring each segment's together.
            let parts = cut.parts(self.mesh);
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
        let mut layout = x.layout.clone();
        layout[dim] = Cut::default();
        Ok(Placed { value, ty: x.ty.clone(), layout })
    }

    /// A rank's part along an axis that is whole.
    fn cut(&mut self, x: &Placed, dim: usize, cut: &Cut) -> Result<Placed> {
        let axes = cut.mesh_axes(self.mesh);
        self.talked = true;
        let own = self.sums.get(&x.value).filter(|(_, over)| *over == axes).cloned();
        let value = if let (Some((part, _)), true) = (own, cut.segments.is_empty()) {
            self.b.collective(CollectiveKind::SumScatter { dim }, part, &axes)?
        } else if cut.segments.is_empty() {
            self.b.collective(CollectiveKind::Part { dim }, x.value, &axes)?
        } else {
            let (mut start, mut pieces) = (0, Vec::new());
            for s in &cut.segments {
                let whole = self.b.slice_axis(x.value, dim, start, start + s)?;
                pieces.push(self.b.collective(CollectiveKind::Part { dim }, whole, &axes)?);
                start += s;
            }
            self.b.concat(&pieces, dim)?
        };
        let mut layout = x.layout.clone();
        layout[dim] = cut.clone();
        Ok(Placed { value, ty: x.ty.clone(), layout })
    }

    /// A value made again, in parts.
    fn make(&mut self, made: &Made, ty: &Type, want: &[Cut]) -> Result<Placed> {
        let shape = local(self.mesh, ty, want).shape;
        let value = match made {
            Made::Broadcast(op, x) => {
                let of = |(i, &d): (usize, &usize)| match x.ty.shape[i] == ty.shape[d] {
                    true => want[d].clone(),
                    false => Cut::default(),
                };
                let own: Layout = op.dims.iter().enumerate().map(of).collect();
                let x = self.place(x, &own)?;
                self.b.broadcast(x.value, &shape, &op.dims)?
            }
            Made::Iota(op) => {
                let v = self.b.iota(op.dtype, &shape, op.axis)?;
                let cut = &want[op.axis];
                if !cut.is_whole() && !cut.segments.is_empty() {
                    let v = self.b.iota(op.dtype, &ty.shape, op.axis)?;
                    let x = Placed { value: v, ty: ty.clone(), layout: whole(ty.rank()) };
                    let mut x = x;
                    for (d, c) in want.iter().enumerate().filter(|(_, c)| !c.is_whole()) {
                        x = self.cut(&x, d, c)?;
                    }
                    return Ok(x);
                }
                match cut.is_whole() {
                    true => v,
                    false => {
                        self.talked = true;
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
        let x = Placed { value, ty: ty.clone(), layout: want.to_vec() };
        Ok(x)
    }

    /// An op on whole operands.
    fn on_whole(&mut self, op: &Op, args: Vec<Placed>, types: &[Type]) -> Result<Vec<Placed>> {
        let mut values = Vec::new();
        for x in &args {
            values.push(self.place(x, &whole(x.ty.rank()))?.value);
        }
        let outs = self.b.emit(op.clone(), &values)?;
        let place = |(value, ty): (Value, &Type)| Placed { value, ty: ty.clone(), layout: whole(ty.rank()) };
        Ok(outs.into_iter().zip(types).map(place).collect())
    }
}
