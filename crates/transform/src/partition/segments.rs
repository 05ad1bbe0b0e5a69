//! Fused weights that hold several side by side (queries, keys and values; gate and up): the graph slices their
//! products. Each such segment is sharded separately, so that every rank has its shard of all segments.

use ir::ops::{Call, Composite, Remat, Scan};
use ir::{Graph, Op, Semantics, Value};
use std::collections::BTreeSet;

/// The sizes of the segments of an input's axis, as the graph slices it; empty if it does not.
pub fn segments(graph: &Graph, input: usize, dim: usize) -> Vec<usize> {
    let mut bounds = BTreeSet::new();
    let mut dims = vec![None; graph.inputs().len()];
    dims[input] = Some(dim);
    trace(graph, &dims, &mut bounds);
    let size = graph.ty(graph.inputs()[input]).shape[dim];
    bounds.retain(|b| *b < size && *b > 0);
    if bounds.is_empty() {
        return Vec::new();
    }
    let ends: Vec<usize> = bounds.into_iter().chain([size]).collect();
    ends.iter().scan(0, |at, &end| Some(end - std::mem::replace(at, end))).collect()
}

/// Follows axes from inputs to outputs, and records where they are sliced.
fn trace(graph: &Graph, inputs: &[Option<usize>], bounds: &mut BTreeSet<usize>) -> Vec<Option<usize>> {
    let mut dims: Vec<Option<usize>> = vec![None; graph.num_values()];
    for (v, d) in graph.inputs().iter().zip(inputs) {
        dims[v.0 as usize] = *d;
    }
    for node in graph.nodes() {
        let of: Vec<Option<usize>> = node.args.iter().map(|a| dims[a.0 as usize]).collect();
        if of.iter().all(Option::is_none) {
            continue;
        }
        let outs: Vec<Option<usize>> = match &node.op {
            Op::Composite(Composite { body, .. }) | Op::Call(Call { body }) | Op::Remat(Remat { body, .. }) => {
                trace(body, &of, bounds)
            }
            Op::Scan(Scan { body, consts, carries, bounded, .. }) => {
                let inner = |(i, d): (usize, &Option<usize>)| match i < consts + carries {
                    true => *d,
                    false => d.and_then(|d| d.checked_sub(1)),
                };
                let of: Vec<Option<usize>> = of[*bounded as usize..].iter().enumerate().map(inner).collect();
                trace(body, &of, bounds);
                vec![None; node.outs.len()]
            }
            Op::Dot(d) => {
                let ranks = [graph.ty(node.args[0]).rank(), graph.ty(node.args[1]).rank()];
                let (left, right) = (d.lhs_free(ranks[0]), d.rhs_free(ranks[1]));
                let at = |free: &[usize], first: usize, dim: Option<usize>| {
                    dim.and_then(|dim| free.iter().position(|f| *f == dim)).map(|p| first + p)
                };
                let batch = d.lhs_batch.len();
                vec![at(&left, batch, of[0]).or_else(|| at(&right, batch + left.len(), of[1]))]
            }
            Op::Permute(p) => vec![of[0].and_then(|d| p.perm.iter().position(|q| *q == d))],
            Op::Broadcast(b) => vec![of[0].map(|d| b.dims[d])],
            Op::Reshape(r) => vec![of[0].and_then(|d| same_place(&graph.ty(node.args[0]).shape, &r.shape, d))],
            Op::Slice(s) => {
                if let Some(d) = of[0] {
                    let n = graph.ty(node.args[0]).shape[d];
                    if (s.start[d], s.limit[d]) != (0, n) && s.stride[d] == 1 {
                        bounds.extend([s.start[d], s.limit[d]]);
                        vec![None]
                    } else {
                        vec![of[0]]
                    }
                } else {
                    vec![None]
                }
            }
            op if matches!(op.semantics(), Semantics::Elementwise(_)) => {
                vec![of.iter().flatten().next().copied(); node.outs.len()]
            }
            _ => vec![None; node.outs.len()],
        };
        for (v, d) in node.outs.iter().zip(outs) {
            dims[v.0 as usize] = d;
        }
    }
    graph.outputs().iter().map(|v: &Value| dims[v.0 as usize]).collect()
}

/// The position of an axis after a reshape that does not change it.
fn same_place(from: &[usize], to: &[usize], dim: usize) -> Option<usize> {
    let before: usize = from[..dim].iter().product();
    let mut product = 1;
    for (i, n) in to.iter().enumerate() {
        if product == before && *n == from[dim] {
            return Some(i);
        }
        product *= n;
    }
    None
}
