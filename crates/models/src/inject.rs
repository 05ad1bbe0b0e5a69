//! A model's graph with an adapter: low-rank updates beside the products that read the adapted matrix, so that no gradient
//! of the whole matrix is needed; factors, and updates of what is read otherwise, on the parameter itself.

use crate::adapter::{Adapter, AdapterOptions, Place};
use crate::error::{Error, Result};
use crate::lora::LoraOptions;
use ir::ops::{Call, Dot, Remat};
use ir::{Build, Builder, DType, Graph, Node, Op, Value, Values};
use lang::lower::dropout;
use std::collections::BTreeMap;
use std::sync::Arc;
use train::step::key_type;

/// A forward graph whose first inputs are the adapter's tensors; then come its own. In training, an adapter with dropout
/// needs a key, the last input, unless the forward graph already ends with one (`keyed`).
pub(crate) fn adapted(forward: &Graph, keyed: bool, adapter: &Adapter, training: bool) -> Result<Graph> {
    let mut b = Builder::new();
    let tensors: Vec<Value> = adapter.tensors().into_iter().map(|(_, ty)| b.graph.input(ty)).collect();
    let mut inputs: Vec<Value> = forward.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let share = if training { adapter.options.dropout() } else { 0.0 };
    let key = match (share > 0.0, keyed) {
        (false, _) => None,
        (true, true) => inputs.last().copied(),
        (true, false) => Some(b.graph.input(key_type())),
    };
    let parts = adapter.places.iter().zip(tensors.chunks_exact(adapter.tensors_per_place()));
    let mut updates = Updates { options: None, share, key, of: BTreeMap::new() };
    for (index, (place, values)) in parts.enumerate() {
        match &adapter.options {
            AdapterOptions::Lora(options) if is_product(forward, forward.inputs()[place.param]) => {
                let update = Update { start: place.piece.start, stream: index, ab: values.to_vec() };
                updates.options = Some(options.clone());
                updates.of.entry(inputs[place.param]).or_default().push(update);
            }
            AdapterOptions::Lora(_) if share > 0.0 => {
                return Err(Error::Input(format!(
                    "dropout needs `{}` to be read by matrix products alone: leave out `dropout=` or this target",
                    place.module
                )));
            }
            AdapterOptions::Lora(options) => updated(&mut b, &mut inputs[place.param], place, options, values)?,
            AdapterOptions::Ia3(options) => {
                let rows = !options.is_feedforward(&place.module);
                multiplied(&mut b, &mut inputs, place, rows, values[0])?;
            }
        }
    }
    let outs = updates.inline(&mut b, forward, &inputs)?;
    Ok(b.finish(&outs))
}

/// Whether a graph reads a value only as the right operand of `[.., in] · [out, in]ᵀ`, inside what it calls too.
pub(crate) fn is_product(graph: &Graph, value: Value) -> bool {
    let reads = graph.nodes().iter().filter(|node| node.args.contains(&value));
    let fits = |node: &Node| match &node.op {
        Op::Dot(dot) => node.args[1] == value && node.args[0] != value && projects(dot, graph.ty(node.args[0]).rank()),
        op => body(op).is_some_and(|body| {
            let inside = node.args.iter().zip(body.inputs()).filter(|(arg, _)| **arg == value);
            inside.into_iter().all(|(_, input)| is_product(body, *input))
        }),
    };
    reads.into_iter().all(fits) && !graph.outputs().contains(&value)
}

/// Whether a graph reads a value only as matrices `[experts, out, in]` of a product by groups, inside what it calls too.
pub(crate) fn is_expert_product(graph: &Graph, value: Value) -> bool {
    let reads = |value: Value| graph.nodes().iter().filter(move |node| node.args.contains(&value));
    let fits = |node: &Node| match &node.op {
        Op::Permute(permute) => {
            let turned = node.outs[0];
            permute.perm[..] == [0, 2, 1]
                && !graph.outputs().contains(&turned)
                && reads(turned).all(|n| matches!(n.op, Op::RaggedDot(_)) && n.args[1] == turned && n.args[0] != turned)
        }
        op => body(op).is_some_and(|body| {
            let mut inside = node.args.iter().zip(body.inputs()).filter(|(arg, _)| **arg == value);
            inside.all(|(_, input)| is_expert_product(body, *input))
        }),
    };
    reads(value).all(fits) && reads(value).next().is_some() && !graph.outputs().contains(&value)
}

/// Whether the results of products with a matrix are ranked before any other product reads them: a router of experts.
pub(crate) fn chooses(graph: &Graph, matrix: Value) -> bool {
    let given: Vec<Part> =
        graph.inputs().iter().map(|v| if *v == matrix { Part::Matrix } else { Part::Other }).collect();
    follow(graph, &given).is_none()
}

/// What a value is to the matrix that is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Other,
    Matrix,
    /// Made of a product with it, without a further product.
    Scores,
}

/// What a graph's results are; none where scores are ranked inside.
fn follow(graph: &Graph, given: &[Part]) -> Option<Vec<Part>> {
    let mut parts: BTreeMap<Value, Part> = graph.inputs().iter().copied().zip(given.iter().copied()).collect();
    let part = |parts: &BTreeMap<Value, Part>, v: &Value| parts.get(v).copied().unwrap_or(Part::Other);
    for node in graph.nodes() {
        let args: Vec<Part> = node.args.iter().map(|v| part(&parts, v)).collect();
        let scores = args.contains(&Part::Scores);
        let outs = match &node.op {
            Op::TopK(_) | Op::Sort(_) if scores => return None,
            Op::Dot(_) if args.contains(&Part::Matrix) => vec![Part::Scores],
            Op::Dot(_) | Op::RaggedDot(_) => vec![Part::Other],
            op => match body(op) {
                Some(body) if args.iter().any(|part| *part != Part::Other) => follow(body, &args)?,
                _ => vec![if scores { Part::Scores } else { Part::Other }; node.outs.len()],
            },
        };
        parts.extend(node.outs.iter().copied().zip(outs).filter(|(_, part)| *part != Part::Other));
    }
    Some(graph.outputs().iter().map(|v| part(&parts, v)).collect())
}

fn projects(dot: &Dot, rank: usize) -> bool {
    dot.lhs_batch.is_empty() && dot.rhs_contract[..] == [1] && dot.lhs_contract[..] == [rank - 1]
}

/// The graph that an op calls with its operands.
fn body(op: &Op) -> Option<&Arc<Graph>> {
    match op {
        Op::Composite(composite) => Some(&composite.body),
        Op::Call(call) => Some(&call.body),
        Op::Remat(remat) => Some(&remat.body),
        _ => None,
    }
}

/// A low-rank update of some rows of a matrix.
#[derive(Clone)]
struct Update {
    start: usize,
    /// Number of its random stream.
    stream: usize,
    ab: Vec<Value>,
}

/// Matrices of the graph at hand with their updates.
#[derive(Clone)]
struct Updates {
    options: Option<LoraOptions>,
    share: f64,
    key: Option<Value>,
    of: BTreeMap<Value, Vec<Update>>,
}

impl Updates {
    fn inline(&self, b: &mut Builder, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
        graph.inline_with(args, |node, operands| {
            let here = std::mem::replace(&mut b.loc, node.loc.clone());
            let outs = self.node(b, &node.op, operands);
            b.loc = here;
            outs
        })
    }

    fn node(&self, b: &mut Builder, op: &Op, operands: &[Value]) -> ir::Result<Values> {
        if !operands.iter().any(|operand| self.of.contains_key(operand)) {
            return b.emit(op.clone(), operands);
        }
        match op {
            Op::Dot(_) => {
                let mut y = b.one(op.clone(), operands)?;
                for update in self.of.get(&operands[1]).into_iter().flatten() {
                    y = self.added(b, operands[0], y, update)?;
                }
                Ok([y].into_iter().collect())
            }
            // Its derivative knows nothing of the update: what it computes is differentiated instead.
            Op::Composite(composite) => self.inline(b, &composite.body, operands).map(Values::from_vec),
            Op::Call(call) => {
                let (inner, further) = self.inside(b, &call.body, operands)?;
                b.emit(Call::new(inner).into(), &[operands, &further].concat())
            }
            Op::Remat(remat) => {
                let (inner, further) = self.inside(b, &remat.body, operands)?;
                let remat = Remat::with(inner, remat.policy.clone());
                b.emit(remat.into(), &[operands, &further].concat())
            }
            _ => b.emit(op.clone(), operands),
        }
    }

    /// The body of a call with its updates, and the operands that it needs beside its own.
    fn inside(&self, b: &Builder, body: &Graph, operands: &[Value]) -> ir::Result<(Graph, Vec<Value>)> {
        let mut inner = Builder::new();
        let args: Vec<Value> = operands.iter().map(|v| inner.graph.input(b.ty(*v))).collect();
        let mut further = Vec::new();
        let mut carry = |inner: &mut Builder, outside: Value| {
            further.push(outside);
            inner.graph.input(b.ty(outside))
        };
        let mut updates = Updates { of: BTreeMap::new(), ..self.clone() };
        updates.key = self.key.map(|key| carry(&mut inner, key));
        for (operand, arg) in operands.iter().zip(&args) {
            for update in self.of.get(operand).into_iter().flatten() {
                let ab = update.ab.iter().map(|v| carry(&mut inner, *v)).collect();
                updates.of.entry(*arg).or_default().push(Update { ab, ..update.clone() });
            }
        }
        let outs = updates.inline(&mut inner, body, &args)?;
        Ok((inner.finish(&outs), further))
    }

    fn added(&self, b: &mut Builder, x: Value, y: Value, update: &Update) -> ir::Result<Value> {
        let Some(options) = &self.options else { return Ok(y) };
        let mut seen = x;
        if let Some(key) = self.key {
            let stream = b.scalar(DType::U32, update.stream as f64)?;
            seen = dropout(b, x, key, stream, self.share)?;
        }
        let change = options.delta(b, seen, &update.ab)?;
        train::lora::add(b, y, change, update.start)
    }
}

/// The low-rank update of a parameter itself.
fn updated(b: &mut Builder, weight: &mut Value, place: &Place, options: &LoraOptions, ab: &[Value]) -> ir::Result<()> {
    let dtype = b.ty(*weight).dtype;
    let update = train::lora::matrix(b, [ab[0], ab[1]], options.scale())?;
    let update = b.cast(update, dtype)?;
    let update = placed(b, update, *weight, place.piece.dim, place.piece.start, 0.0)?;
    *weight = b.add(*weight, update)?;
    Ok(())
}

/// A matrix times a factor for each row, with its bias, or for each column.
fn multiplied(b: &mut Builder, inputs: &mut [Value], place: &Place, rows: bool, factor: Value) -> ir::Result<()> {
    let weight = inputs[place.param];
    let n = b.ty(factor).numel();
    let factor = b.cast(factor, b.ty(weight).dtype)?;
    let factor = b.reshape(factor, &[n])?;
    let wide = b.broadcast(factor, &place.shape, &[usize::from(!rows)])?;
    let wide = placed(b, wide, weight, place.piece.dim, place.piece.start, 1.0)?;
    inputs[place.param] = b.mul(weight, wide)?;
    if let (true, Some((param, piece))) = (rows, &place.bias) {
        let factor = placed(b, factor, inputs[*param], 0, piece.start, 1.0)?;
        inputs[*param] = b.mul(inputs[*param], factor)?;
    }
    Ok(())
}

/// A part at its place along an axis of a larger tensor that is otherwise constant.
fn placed(b: &mut Builder, part: Value, whole: Value, axis: usize, start: usize, other: f64) -> ir::Result<Value> {
    let (own, ty) = (b.ty(part), b.ty(whole));
    let (mut low, mut high) = (vec![0; ty.rank()], vec![0; ty.rank()]);
    low[axis] = start as i64;
    high[axis] = (ty.shape[axis] - start - own.shape[axis]) as i64;
    let other = b.scalar(ty.dtype, other)?;
    b.pad(part, other, &low, &high, &vec![0; ty.rank()])
}
