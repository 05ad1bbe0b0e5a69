//! Inserts an adapter into a model's graph: low-rank updates are added beside the products with an adapted matrix, so that no
//! gradient of the full matrix is needed; scaling factors, and updates of matrices with other uses, are applied to the parameter itself.

use crate::adapter::{AdaptedMatrix, Adapter, AdapterOptions};
use crate::error::{Error, Result};
use crate::lora::LoraOptions;
use ir::ops::{Call, Dot, Remat};
use ir::{Builder, DType, Graph, GraphBuilder, Node, Op, Value, Values};
use lang::lower::dropout;
use std::collections::BTreeMap;
use std::sync::Arc;
use train::step::key_type;

/// Returns a forward graph whose first inputs are the adapter's tensors, followed by its own inputs. In training, an adapter with
/// dropout needs a random key, the last input, unless the forward graph already ends with one (`keyed`).
pub(crate) fn insert_adapter(forward: &Graph, keyed: bool, adapter: &Adapter, training: bool) -> Result<Graph> {
    let mut b = Builder::new();
    let tensors: Vec<Value> = adapter.tensors().into_iter().map(|(_, ty)| b.graph.input(ty)).collect();
    let mut inputs: Vec<Value> = forward.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let share = if training { adapter.options.dropout() } else { 0.0 };
    let key = match (share > 0.0, keyed) {
        (false, _) => None,
        (true, true) => inputs.last().copied(),
        (true, false) => Some(b.graph.input(key_type())),
    };
    let parts = adapter.matrices.iter().zip(tensors.chunks_exact(adapter.tensors_per_matrix()));
    let mut updates = AdapterUpdates { options: None, dropout: share, key, updates: BTreeMap::new() };
    for (index, (place, values)) in parts.enumerate() {
        match &adapter.options {
            AdapterOptions::Lora(options) if is_product(forward, forward.inputs()[place.param]) => {
                let update = LowRankUpdate { start: place.slice.start, stream: index, ab: values.to_vec() };
                updates.options = Some(options.clone());
                updates.updates.entry(inputs[place.param]).or_default().push(update);
            }
            AdapterOptions::Lora(_) if share > 0.0 => {
                return Err(Error::Input(format!(
                    "dropout is only supported where `{}` is used in matrix products only: remove `dropout=` or this \
                     target",
                    place.module
                )));
            }
            AdapterOptions::Lora(options) => update_weight(&mut b, &mut inputs[place.param], place, options, values)?,
            AdapterOptions::Ia3(options) => {
                let rows = !options.is_feedforward(&place.module);
                scale_rows(&mut b, &mut inputs, place, rows, values[0])?;
            }
        }
    }
    let outs = updates.inline(&mut b, forward, &inputs)?;
    Ok(b.finish(&outs))
}

/// Whether a value is only used as the right operand of `[.., in] · [out, in]ᵀ`, also inside called subgraphs.
pub(crate) fn is_product(graph: &Graph, value: Value) -> bool {
    let reads = graph.nodes().iter().filter(|node| node.args.contains(&value));
    let fits = |node: &Node| match &node.op {
        Op::Dot(dot) => {
            node.args[1] == value && node.args[0] != value && is_projection(dot, graph.ty(node.args[0]).rank())
        }
        op => body(op).is_some_and(|body| {
            let inside = node.args.iter().zip(body.inputs()).filter(|(arg, _)| **arg == value);
            inside.into_iter().all(|(_, input)| is_product(body, *input))
        }),
    };
    reads.into_iter().all(fits) && !graph.outputs().contains(&value)
}

/// Whether a value is only used as the matrices `[experts, out, in]` of a grouped product, also inside called subgraphs.
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

/// Whether the products with a matrix are ranked before any other product uses them: an expert router.
pub(crate) fn is_router(graph: &Graph, matrix: Value) -> bool {
    let given: Vec<MatrixRole> =
        graph.inputs().iter().map(|v| if *v == matrix { MatrixRole::Matrix } else { MatrixRole::Other }).collect();
    propagate_roles(graph, &given).is_none()
}

/// The relation of a value to the matrix that is traced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatrixRole {
    Other,
    Matrix,
    /// Computed from a product with it, without a further product.
    Scores,
}

/// The relations of a graph's results; none if scores are ranked inside.
fn propagate_roles(graph: &Graph, given: &[MatrixRole]) -> Option<Vec<MatrixRole>> {
    let mut parts: BTreeMap<Value, MatrixRole> = graph.inputs().iter().copied().zip(given.iter().copied()).collect();
    let part = |parts: &BTreeMap<Value, MatrixRole>, v: &Value| parts.get(v).copied().unwrap_or(MatrixRole::Other);
    for node in graph.nodes() {
        let args: Vec<MatrixRole> = node.args.iter().map(|v| part(&parts, v)).collect();
        let scores = args.contains(&MatrixRole::Scores);
        let outs = match &node.op {
            Op::TopK(_) | Op::Sort(_) if scores => return None,
            Op::Dot(_) if args.contains(&MatrixRole::Matrix) => vec![MatrixRole::Scores],
            Op::Dot(_) | Op::RaggedDot(_) => vec![MatrixRole::Other],
            op => match body(op) {
                Some(body) if args.iter().any(|part| *part != MatrixRole::Other) => propagate_roles(body, &args)?,
                _ => vec![if scores { MatrixRole::Scores } else { MatrixRole::Other }; node.outs.len()],
            },
        };
        parts.extend(node.outs.iter().copied().zip(outs).filter(|(_, part)| *part != MatrixRole::Other));
    }
    Some(graph.outputs().iter().map(|v| part(&parts, v)).collect())
}

fn is_projection(dot: &Dot, rank: usize) -> bool {
    dot.lhs_batch.is_empty() && dot.rhs_contract[..] == [1] && dot.lhs_contract[..] == [rank - 1]
}

/// The body graph of an op that maps operands to its inputs.
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
struct LowRankUpdate {
    start: usize,
    /// The number of its random stream.
    stream: usize,
    ab: Vec<Value>,
}

/// The matrices of the current graph with their updates.
#[derive(Clone)]
struct AdapterUpdates {
    options: Option<LoraOptions>,
    dropout: f64,
    key: Option<Value>,
    updates: BTreeMap<Value, Vec<LowRankUpdate>>,
}

impl AdapterUpdates {
    fn inline(&self, b: &mut Builder, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
        graph.inline_with(args, |node, operands| {
            let here = std::mem::replace(&mut b.loc, node.loc.clone());
            let outs = self.node(b, &node.op, operands);
            b.loc = here;
            outs
        })
    }

    fn node(&self, b: &mut Builder, op: &Op, operands: &[Value]) -> ir::Result<Values> {
        if !operands.iter().any(|operand| self.updates.contains_key(operand)) {
            return b.emit(op.clone(), operands);
        }
        match op {
            Op::Dot(_) => {
                let mut y = b.one(op.clone(), operands)?;
                for update in self.updates.get(&operands[1]).into_iter().flatten() {
                    y = self.add_update(b, operands[0], y, update)?;
                }
                Ok([y].into_iter().collect())
            }
            // Its custom derivative ignores the update, so the composite is inlined and its body is differentiated.
            Op::Composite(composite) => self.inline(b, &composite.body, operands).map(Values::from_vec),
            Op::Call(call) => {
                let (inner, further) = self.inline_body(b, &call.body, operands)?;
                b.emit(Call::new(inner).into(), &[operands, &further].concat())
            }
            Op::Remat(remat) => {
                let (inner, further) = self.inline_body(b, &remat.body, operands)?;
                let remat = Remat::with_policy(inner, remat.policy.clone());
                b.emit(remat.into(), &[operands, &further].concat())
            }
            _ => b.emit(op.clone(), operands),
        }
    }

    /// The body of a call with its updates, and the additional operands that it needs.
    fn inline_body(&self, b: &Builder, body: &Graph, operands: &[Value]) -> ir::Result<(Graph, Vec<Value>)> {
        let mut inner = Builder::new();
        let args: Vec<Value> = operands.iter().map(|v| inner.graph.input(b.ty(*v))).collect();
        let mut further = Vec::new();
        let mut carry = |inner: &mut Builder, outside: Value| {
            further.push(outside);
            inner.graph.input(b.ty(outside))
        };
        let mut updates = AdapterUpdates { updates: BTreeMap::new(), ..self.clone() };
        updates.key = self.key.map(|key| carry(&mut inner, key));
        for (operand, arg) in operands.iter().zip(&args) {
            for update in self.updates.get(operand).into_iter().flatten() {
                let ab = update.ab.iter().map(|v| carry(&mut inner, *v)).collect();
                updates.updates.entry(*arg).or_default().push(LowRankUpdate { ab, ..update.clone() });
            }
        }
        let outs = updates.inline(&mut inner, body, &args)?;
        Ok((inner.finish(&outs), further))
    }

    fn add_update(&self, b: &mut Builder, x: Value, y: Value, update: &LowRankUpdate) -> ir::Result<Value> {
        let Some(options) = &self.options else { return Ok(y) };
        let mut seen = x;
        if let Some(key) = self.key {
            let stream = b.scalar(DType::U32, update.stream as f64)?;
            seen = dropout(b, x, key, stream, self.dropout)?;
        }
        let change = options.delta(b, seen, &update.ab)?;
        train::lora::add_delta(b, y, change, update.start)
    }
}

/// Adds the low-rank update to a parameter itself.
fn update_weight(
    b: &mut Builder,
    weight: &mut Value,
    place: &AdaptedMatrix,
    options: &LoraOptions,
    ab: &[Value],
) -> ir::Result<()> {
    let dtype = b.ty(*weight).dtype;
    let update = train::lora::delta_weight(b, [ab[0], ab[1]], options.scale())?;
    let update = b.cast(update, dtype)?;
    let update = pad_into(b, update, *weight, place.slice.dim, place.slice.start, 0.0)?;
    *weight = b.add(*weight, update)?;
    Ok(())
}

/// Scales the rows of a matrix and its bias, or its columns.
fn scale_rows(
    b: &mut Builder,
    inputs: &mut [Value],
    place: &AdaptedMatrix,
    rows: bool,
    factor: Value,
) -> ir::Result<()> {
    let weight = inputs[place.param];
    let n = b.ty(factor).numel();
    let factor = b.cast(factor, b.ty(weight).dtype)?;
    let factor = b.reshape(factor, &[n])?;
    let wide = b.broadcast(factor, &place.shape, &[usize::from(!rows)])?;
    let wide = pad_into(b, wide, weight, place.slice.dim, place.slice.start, 1.0)?;
    inputs[place.param] = b.mul(weight, wide)?;
    if let (true, Some((param, piece))) = (rows, &place.bias) {
        let factor = pad_into(b, factor, inputs[*param], 0, piece.start, 1.0)?;
        inputs[*param] = b.mul(inputs[*param], factor)?;
    }
    Ok(())
}

/// Embeds a tensor at a position along an axis of a larger constant tensor.
fn pad_into(b: &mut Builder, part: Value, whole: Value, axis: usize, start: usize, other: f64) -> ir::Result<Value> {
    let (own, ty) = (b.ty(part), b.ty(whole));
    let (mut low, mut high) = (vec![0; ty.rank()], vec![0; ty.rank()]);
    low[axis] = start as i64;
    high[axis] = (ty.shape[axis] - start - own.shape[axis]) as i64;
    let other = b.scalar(ty.dtype, other)?;
    b.pad(part, other, &low, &high, &vec![0; ty.rank()])
}
