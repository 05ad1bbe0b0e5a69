//! The graph builder: methods that rules, composites and front ends use to create ops.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Def, Graph, Loc, Value, Values};
use crate::literal::Literal;
use crate::mesh::MeshAxis;
use crate::ops::*;
use crate::scalar::{Binary, Compare, Scalar, Unary};
use crate::types::{Shape, Type};

/// A graph under construction.
///
/// The provided methods are shorthand for one op each, or a few where the name says so.
pub trait GraphBuilder {
    /// Adds an op and returns its results.
    fn emit(&mut self, op: Op, args: &[Value]) -> Result<Values>;

    /// The type of a value.
    fn ty(&self, v: Value) -> Type;

    /// Adds an op with one result.
    fn one(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        let outs = self.emit(op, args)?;
        match outs.as_slice() {
            [v] => Ok(*v),
            other => Err(Error::Invalid(format!("expected an op with one result, got {}", other.len()))),
        }
    }

    /// A constant.
    fn constant(&mut self, literal: Literal) -> Result<Value> {
        self.one(Const(literal).into(), &[])
    }

    /// A rank-0 constant of a dtype.
    fn scalar(&mut self, dtype: DType, x: f64) -> Result<Value> {
        self.constant(Literal::scalar(Scalar::from_f64(dtype, x)))
    }

    /// A constant filling a type.
    fn full(&mut self, ty: &Type, s: Scalar) -> Result<Value> {
        let c = self.constant(Literal::scalar(s.cast(ty.dtype)))?;
        self.splat(c, &ty.shape)
    }

    /// A number filling the type of `like`.
    fn full_like(&mut self, like: Value, x: f64) -> Result<Value> {
        let ty = self.ty(like);
        self.full(&ty, Scalar::from_f64(ty.dtype, x))
    }

    /// Zeros of a type.
    fn zeros(&mut self, ty: &Type) -> Result<Value> {
        self.full(ty, Scalar::zero(ty.dtype))
    }

    /// Broadcasts a rank-0 value to a shape.
    fn splat(&mut self, v: Value, shape: &[usize]) -> Result<Value> {
        if shape.is_empty() { Ok(v) } else { self.broadcast(v, shape, &[]) }
    }

    /// `f(x)`.
    fn unary(&mut self, op: Unary, x: Value) -> Result<Value> {
        self.one(op.into(), &[x])
    }

    /// `f(a, b)`.
    fn binary(&mut self, op: Binary, a: Value, b: Value) -> Result<Value> {
        self.one(op.into(), &[a, b])
    }

    /// `a ⋈ b`.
    fn compare(&mut self, op: Compare, a: Value, b: Value) -> Result<Value> {
        self.one(op.into(), &[a, b])
    }

    /// `a + b`.
    fn add(&mut self, a: Value, b: Value) -> Result<Value> {
        self.binary(Binary::Add, a, b)
    }

    /// `a - b`.
    fn sub(&mut self, a: Value, b: Value) -> Result<Value> {
        self.binary(Binary::Sub, a, b)
    }

    /// `a · b`, elementwise.
    fn mul(&mut self, a: Value, b: Value) -> Result<Value> {
        self.binary(Binary::Mul, a, b)
    }

    /// `a / b`.
    fn div(&mut self, a: Value, b: Value) -> Result<Value> {
        self.binary(Binary::Div, a, b)
    }

    /// `-x`.
    fn neg(&mut self, x: Value) -> Result<Value> {
        self.unary(Unary::Neg, x)
    }

    /// `x · c` for a constant `c`.
    fn scale(&mut self, x: Value, c: f64) -> Result<Value> {
        let c = self.full_like(x, c)?;
        self.mul(x, c)
    }

    /// `x + c` for a constant `c`.
    fn offset(&mut self, x: Value, c: f64) -> Result<Value> {
        let c = self.full_like(x, c)?;
        self.add(x, c)
    }

    /// `if c { a } else { b }`, elementwise.
    fn select(&mut self, c: Value, a: Value, b: Value) -> Result<Value> {
        self.one(Select.into(), &[c, a, b])
    }

    /// `x` where `c`, else 0.
    fn zero_unless(&mut self, c: Value, x: Value) -> Result<Value> {
        let zero = self.full_like(x, 0.0)?;
        self.select(c, x, zero)
    }

    /// Converts to a dtype; no op if it already has it.
    fn cast(&mut self, x: Value, dtype: DType) -> Result<Value> {
        if self.ty(x).dtype == dtype { Ok(x) } else { self.one(Cast(dtype).into(), &[x]) }
    }

    /// The same elements with another shape; no op if it already has it.
    fn reshape(&mut self, x: Value, shape: &[usize]) -> Result<Value> {
        if self.ty(x).shape.as_slice() == shape {
            return Ok(x);
        }
        self.one(Reshape { shape: Shape::from_slice(shape) }.into(), &[x])
    }

    /// Reorders axes: result axis `i` is operand axis `perm[i]`.
    fn permute(&mut self, x: Value, perm: &[usize]) -> Result<Value> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) && perm.len() == self.ty(x).rank() {
            return Ok(x);
        }
        self.one(Permute { perm: Shape::from_slice(perm) }.into(), &[x])
    }

    /// Moves one axis to another position.
    fn move_axis(&mut self, x: Value, from: usize, to: usize) -> Result<Value> {
        let mut perm: Vec<usize> = (0..self.ty(x).rank()).filter(|&a| a != from).collect();
        perm.insert(to, from);
        self.permute(x, &perm)
    }

    /// Operand axis `i` becomes result axis `dims[i]`; the other axes repeat.
    fn broadcast(&mut self, x: Value, shape: &[usize], dims: &[usize]) -> Result<Value> {
        let op = Broadcast { shape: Shape::from_slice(shape), dims: Shape::from_slice(dims) };
        self.one(op.into(), &[x])
    }

    /// Broadcasts `x` along a new first axis.
    fn broadcast_leading(&mut self, x: Value, size: usize) -> Result<Value> {
        let ty = self.ty(x).batched(size);
        let dims: Vec<usize> = (1..ty.rank()).collect();
        self.broadcast(x, &ty.shape, &dims)
    }

    /// Right-aligned broadcasting to a shape, as NumPy does it.
    fn broadcast_to(&mut self, x: Value, shape: &[usize]) -> Result<Value> {
        let rank = self.ty(x).rank();
        if self.ty(x).shape.as_slice() == shape {
            return Ok(x);
        }
        let dims: Vec<usize> = (0..rank).map(|i| i + shape.len().saturating_sub(rank)).collect();
        self.broadcast(x, shape, &dims)
    }

    /// Reinserts the axes that a reduction removed, and broadcasts along them to `shape`.
    fn expand_reduced(&mut self, x: Value, shape: &[usize], axes: &[usize]) -> Result<Value> {
        let dims: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
        self.broadcast(x, shape, &dims)
    }

    /// Strided slice.
    fn slice(&mut self, x: Value, start: &[usize], limit: &[usize], stride: &[usize]) -> Result<Value> {
        let op = Slice {
            start: Shape::from_slice(start),
            limit: Shape::from_slice(limit),
            stride: Shape::from_slice(stride),
        };
        self.one(op.into(), &[x])
    }

    /// `x[start..limit]` along one axis.
    fn slice_axis(&mut self, x: Value, axis: usize, start: usize, limit: usize) -> Result<Value> {
        let shape = self.ty(x).shape;
        let mut starts: Shape = shape.iter().map(|_| 0).collect();
        let mut limits = shape.clone();
        let ones: Shape = shape.iter().map(|_| 1).collect();
        let (Some(s), Some(l)) = (starts.get_mut(axis), limits.get_mut(axis)) else {
            return Err(Error::Invalid(format!("a slice along axis {axis} of a tensor of rank {}", shape.len())));
        };
        (*s, *l) = (start, limit);
        self.slice(x, &starts, &limits, &ones)
    }

    /// Pads with a rank-0 value; negative amounts remove elements.
    fn pad(&mut self, x: Value, fill: Value, low: &[i64], high: &[i64], interior: &[usize]) -> Result<Value> {
        let op = Pad { low: low.into(), high: high.into(), interior: Shape::from_slice(interior) };
        self.one(op.into(), &[x, fill])
    }

    /// Reverses axes.
    fn flip(&mut self, x: Value, axes: &[usize]) -> Result<Value> {
        self.one(Flip { axes: Shape::from_slice(axes) }.into(), &[x])
    }

    /// Concatenates along an axis.
    fn concat(&mut self, xs: &[Value], axis: usize) -> Result<Value> {
        self.one(Concat { axis }.into(), xs)
    }

    /// Reduces over axes, which are removed.
    fn reduce(&mut self, kind: ReduceKind, x: Value, axes: &[usize]) -> Result<Value> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.one(Reduce { kind, axes: Shape::from_slice(axes) }.into(), &[x])
    }

    /// Sums over axes, which are removed.
    fn sum(&mut self, x: Value, axes: &[usize]) -> Result<Value> {
        self.reduce(ReduceKind::Sum, x, axes)
    }

    /// Sums all elements.
    fn sum_all(&mut self, x: Value) -> Result<Value> {
        let axes: Vec<usize> = (0..self.ty(x).rank()).collect();
        self.sum(x, &axes)
    }

    /// The mean over axes, which are removed. Low-precision floats are summed and divided in their accumulator dtype and rounded
    /// once, so neither the sum nor the count can overflow.
    fn mean(&mut self, x: Value, axes: &[usize]) -> Result<Value> {
        let ty = self.ty(x);
        let n: usize = axes.iter().map(|&a| ty.shape[a]).product();
        let x = self.cast(x, ty.dtype.accumulator())?;
        let s = self.sum(x, axes)?;
        let n = self.full_like(s, n as f64)?;
        let y = self.div(s, n)?;
        self.cast(y, ty.dtype)
    }

    /// A cumulative reduction along an axis.
    fn cumulative(&mut self, kind: ReduceKind, x: Value, axis: usize, reverse: bool) -> Result<Value> {
        self.one(Cumulative { kind, axis, reverse }.into(), &[x])
    }

    /// The index (of dtype `index`) of the first largest element along an axis, which is removed.
    fn argmax(&mut self, x: Value, axis: usize, index: DType) -> Result<Value> {
        self.one(ArgReduce { max: true, axis, index }.into(), &[x])
    }

    /// The index (of dtype `index`) of the first smallest element along an axis, which is removed.
    fn argmin(&mut self, x: Value, axis: usize, index: DType) -> Result<Value> {
        self.one(ArgReduce { max: false, axis, index }.into(), &[x])
    }

    /// Reduces sliding windows.
    fn reduce_window(&mut self, kind: ReduceKind, x: Value, window: &[usize], windows: WindowConfig) -> Result<Value> {
        let op = ReduceWindow { kind, window: Shape::from_slice(window), windows };
        self.one(op.into(), &[x])
    }

    /// `a·b` of two matrices.
    fn matmul(&mut self, a: Value, b: Value) -> Result<Value> {
        self.one(Dot::matmul(self.ty(a).dtype).into(), &[a, b])
    }

    /// `[m, k] · [g, k, n]`: multiplies rows `offsets[i]..offsets[i + 1]` by matrix `i`; other rows are zero.
    fn ragged_dot(&mut self, lhs: Value, rhs: Value, offsets: Value) -> Result<Value> {
        self.one(RaggedDot::rows(self.ty(lhs).dtype).into(), &[lhs, rhs, offsets])
    }

    /// Threefry-2x32 of u32 keys and counters, elementwise.
    fn threefry2x32(&mut self, key: [Value; 2], x: [Value; 2]) -> Result<[Value; 2]> {
        let outs = self.emit(Threefry2x32.into(), &[key[0], key[1], x[0], x[1]])?;
        Ok([outs[0], outs[1]])
    }

    /// A convolution of `[N, C, spatial..]` by `[O, C/groups, spatial..]`.
    fn conv(&mut self, x: Value, kernel: Value, windows: WindowConfig, groups: usize) -> Result<Value> {
        let conv = Conv { groups, ..Conv::new(self.ty(x).dtype, windows) };
        self.one(conv.into(), &[x, kernel])
    }

    /// NumPy's `take`: the slices at `indices` along an axis.
    fn take(&mut self, x: Value, indices: Value, axis: usize, mode: GatherMode) -> Result<Value> {
        let (ty, indices_ty) = (self.ty(x), self.ty(indices));
        let vectors = self.index_vectors(indices)?;
        self.one(Gather::take(&ty, axis, indices_ty.rank(), mode).into(), &[x, vectors])
    }

    /// NumPy's `take_along_axis`: one index for each element; the other axes of both operands have equal sizes.
    fn take_along_axis(&mut self, x: Value, indices: Value, axis: usize, mode: GatherMode) -> Result<Value> {
        let rank = self.ty(x).rank();
        let vectors = self.index_vectors(indices)?;
        self.one(Gather::along_axis(rank, axis, mode).into(), &[x, vectors])
    }

    /// Combines `updates` into `x` at index vectors.
    fn scatter(
        &mut self,
        kind: ScatterKind,
        dims: SliceDims,
        mode: ScatterMode,
        x: Value,
        indices: Value,
        updates: Value,
    ) -> Result<Value> {
        self.one(Scatter { kind, dims, mode }.into(), &[x, indices, updates])
    }

    /// A slice of `sizes` at rank-0 start indices, clamped so that it fits.
    fn dynamic_slice(&mut self, x: Value, starts: &[Value], sizes: &[usize]) -> Result<Value> {
        let args: Vec<Value> = std::iter::once(x).chain(starts.iter().copied()).collect();
        let sizes = Shape::from_slice(sizes);
        self.one(DynamicSlice { sizes }.into(), &args)
    }

    /// `x` with the slice at rank-0 start indices replaced.
    fn dynamic_update_slice(&mut self, x: Value, update: Value, starts: &[Value]) -> Result<Value> {
        let args: Vec<Value> = [x, update].iter().chain(starts).copied().collect();
        self.one(DynamicUpdateSlice.into(), &args)
    }

    /// Turns indices into index vectors of one component by adding a last axis of size 1.
    fn index_vectors(&mut self, indices: Value) -> Result<Value> {
        let mut shape = self.ty(indices).shape;
        shape.push(1);
        self.reshape(indices, &shape)
    }

    /// The index of each element along an axis.
    fn iota(&mut self, dtype: DType, shape: &[usize], axis: usize) -> Result<Value> {
        self.one(Iota { dtype, shape: Shape::from_slice(shape), axis }.into(), &[])
    }

    /// A collective over axes of a mesh.
    fn collective(&mut self, kind: CollectiveKind, x: Value, axes: &[MeshAxis]) -> Result<Value> {
        self.one(Collective::new(kind, axes).into(), &[x])
    }

    /// The sum over ranks along axes of a mesh.
    fn psum(&mut self, x: Value, axes: &[MeshAxis]) -> Result<Value> {
        self.collective(CollectiveKind::Sum, x, axes)
    }

    /// The rank's number along axes of a mesh, an i32.
    fn axis_index(&mut self, axes: &[MeshAxis]) -> Result<Value> {
        self.one(Collective::new(CollectiveKind::AxisIndex, axes).into(), &[])
    }

    /// Sums two optional cotangents.
    fn add_optional(&mut self, a: Option<Value>, b: Option<Value>) -> Result<Option<Value>> {
        match (a, b) {
            (Some(a), Some(b)) => self.add(a, b).map(Some),
            (a, b) => Ok(a.or(b)),
        }
    }

    /// Copies a graph into this one and returns its outputs.
    fn inline(&mut self, graph: &Graph, args: &[Value]) -> Result<Vec<Value>> {
        graph.inline_with(args, |node, operands| self.emit(node.op.clone(), operands))
    }
}

/// A graph under construction, with the source location of new nodes.
#[derive(Default)]
pub struct Builder {
    /// The graph so far.
    pub graph: Graph,
    /// The source location of new nodes.
    pub loc: Loc,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds an input.
    pub fn input(&mut self, dtype: DType, shape: &[usize]) -> Value {
        self.graph.input(Type::new(dtype, shape))
    }

    /// Returns the graph with these outputs.
    pub fn finish(mut self, outputs: &[Value]) -> Graph {
        self.graph.set_outputs(outputs);
        self.graph
    }
}

impl GraphBuilder for Builder {
    fn emit(&mut self, op: Op, args: &[Value]) -> Result<Values> {
        self.graph.push(op, args, self.loc.clone())
    }

    fn ty(&self, v: Value) -> Type {
        self.graph.ty(v).clone()
    }

    /// Inlined ops keep their source locations.
    fn inline(&mut self, graph: &Graph, args: &[Value]) -> Result<Vec<Value>> {
        let here = self.loc.clone();
        graph.inline_with(args, |node, operands| {
            let loc = if node.loc == Loc::Unknown { here.clone() } else { node.loc.clone() };
            self.graph.push(node.op.clone(), operands, loc)
        })
    }
}

/// A graph builder for the rules of ops, which can also transform the sub-graphs of control-flow ops. It is declared here and
/// implemented in `transform`, so that `Scan` can differentiate its body without a dependency cycle between crates.
pub trait GraphTransforms: GraphBuilder {
    /// The `jvp` of a graph: inputs are the primals, then the tangents of the inputs marked in `active`; outputs are the
    /// primal outputs, then the tangents of the outputs marked in the result (which include those marked in `want`; a requested
    /// zero tangent is materialized).
    fn jvp_of(&self, graph: &Graph, active: &[bool], want: &[bool]) -> Result<(Graph, Vec<bool>)>;

    /// Partial evaluation of a graph.
    fn partial_eval_of(&self, graph: &Graph, known: &[bool]) -> Result<PartialEvalGraphs>;

    /// The transpose of a graph that is linear in the inputs marked in `linear`: inputs are the known inputs, then the
    /// cotangents of the outputs marked in `ct`; outputs are the cotangents of the linear inputs marked in the result.
    fn transpose_of(&self, graph: &Graph, linear: &[bool], ct: &[bool]) -> Result<(Graph, Vec<bool>)>;

    /// The `vmap` of a graph over `size`: inputs marked in `batched` have a leading batch axis, and so have the outputs
    /// marked in the result (which include those marked in `want`).
    fn vmap_of(&self, graph: &Graph, batched: &[bool], want: &[bool], size: usize) -> Result<(Graph, Vec<bool>)>;

    /// Applies the reverse rule of the composite `name`.
    fn rule(&mut self, _name: &str, graph: Graph, args: &[Value]) -> Result<Vec<Value>> {
        self.inline(&graph, args)
    }
}

/// The result of partial evaluation.
#[derive(Clone, Debug)]
pub struct PartialEvalGraphs {
    /// Maps the known inputs to the known outputs, then the residuals.
    pub known: Graph,
    /// Maps the residuals, then the unknown inputs, to the unknown outputs.
    pub unknown: Graph,
    /// Which outputs are known.
    pub known_outs: Vec<bool>,
    /// The number of residuals.
    pub residuals: usize,
    /// For each residual, the known input that it equals, if it does.
    pub forwarded: Vec<Option<usize>>,
}

impl PartialEvalGraphs {
    /// Moves these known outputs to the unknown part: it returns them from residuals, or
    /// recomputes them if they are constants and broadcasts.
    pub fn with_outputs_unknown(mut self, late: &[usize]) -> Result<PartialEvalGraphs> {
        let late: Vec<usize> = (0..self.known_outs.len()).filter(|o| self.known_outs[*o] && late.contains(o)).collect();
        if late.is_empty() {
            return Ok(self);
        }
        let known_at: Vec<Value> = {
            let mut known = self.known.outputs().iter();
            let value = |k: &bool| if *k { known.next().copied() } else { None };
            self.known_outs.iter().map(value).map(|v| v.unwrap_or(Value(u32::MAX))).collect()
        };
        let n_known = self.known_outs.iter().filter(|k| **k).count();
        let types = self.unknown.input_types();
        let (residual_types, unknown_types) = types.split_at(self.residuals);
        let mut rest = Builder::new();
        let residuals: Vec<Value> = residual_types.iter().map(|t| rest.graph.input(t.clone())).collect();
        let mut kept = self.known.outputs()[n_known..].to_vec();
        let mut handed = vec![None; self.known_outs.len()];
        for &o in late.iter().filter(|&&o| !is_cheap(&self.known, known_at[o])) {
            handed[o] = Some(rest.graph.input(self.known.ty(known_at[o]).clone()));
            kept.push(known_at[o]);
            self.forwarded.push(match self.known.def(known_at[o]) {
                Def::Input(i) => Some(i as usize),
                Def::Node(..) => None,
            });
        }
        let unknown: Vec<Value> = unknown_types.iter().map(|t| rest.graph.input(t.clone())).collect();
        let mut given = rest.inline(&self.unknown, &[residuals, unknown].concat())?.into_iter();
        let mut outs = Vec::new();
        for o in 0..self.known_outs.len() {
            if !self.known_outs[o] {
                outs.extend(given.next());
            } else if late.contains(&o) {
                outs.push(match handed[o] {
                    Some(v) => v,
                    None => copy_cheap(&self.known, known_at[o], &mut rest)?,
                });
            }
        }
        for &o in &late {
            self.known_outs[o] = false;
        }
        self.residuals = kept.len();
        let early = (0..self.known_outs.len()).filter(|&o| self.known_outs[o]);
        self.known.set_outputs(early.map(|o| known_at[o]).chain(kept).collect::<Vec<_>>());
        self.known = self.known.without_dead_nodes();
        self.unknown = rest.finish(&outs);
        Ok(self)
    }
}

/// Whether a value consists only of constants and broadcasts, so that recomputing it is cheaper than storing it.
fn is_cheap(graph: &Graph, v: Value) -> bool {
    graph.node_of(v).is_some_and(|n| {
        matches!(n.op, Op::Const(_) | Op::Iota(_) | Op::Broadcast(_)) && n.args.iter().all(|&a| is_cheap(graph, a))
    })
}

fn copy_cheap(graph: &Graph, v: Value, into: &mut Builder) -> Result<Value> {
    let Some(node) = graph.node_of(v) else {
        return Err(Error::Invalid("an input is not a leaf".into()));
    };
    let args: Vec<Value> = (node.args.iter()).map(|&a| copy_cheap(graph, a, into)).collect::<Result<_>>()?;
    into.one(node.op.clone(), &args)
}
