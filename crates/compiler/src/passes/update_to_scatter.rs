//! Rewrites an update of a slice of a donated input to a scatter of that slice, if the backend scatters in place. A kernel would
//! copy every element to change a few; the KV cache of a decoding step is updated this way.

use super::Result;
use ir::ops::{Scatter, ScatterKind, ScatterMode, SliceDims};
use ir::{Builder, DType, Graph, GraphBuilder, Node, Op, Shape, Value, Values};

/// The minimum ratio of the sizes of the input and the slice.
const MIN_SIZE_RATIO: usize = 2;

/// Rewrites updates for `replaced` pairs of an input and an output.
pub(crate) fn updates_to_scatters(
    graph: &Graph,
    replaced: &[(usize, usize)],
    overwrites: &dyn Fn(&Op) -> bool,
) -> Result<Graph> {
    let is_replaced = |node: &Node| {
        replaced
            .iter()
            .any(|&(i, o)| graph.inputs().get(i) == node.args.first() && graph.outputs().get(o) == node.outs.first())
    };
    super::rewrite_graph(graph, |b, node, operands| {
        if matches!(node.op, Op::DynamicUpdateSlice(_))
            && is_replaced(node)
            && let Some(v) = scattered(b, operands, overwrites)?
        {
            return Ok(Values::from_slice(&[v]));
        }
        let loc = node.loc.clone();
        Ok(b.graph.push_like(graph, node, node.op.clone(), operands, loc))
    })
}

fn scattered(b: &mut Builder, operands: &[Value], overwrites: &dyn Fn(&Op) -> bool) -> Result<Option<Value>> {
    let [x, update, starts @ ..] = operands else { return Ok(None) };
    let (whole, part) = (b.ty(*x), b.ty(*update));
    // An axis that is written completely has only one start index.
    let free: Shape = (0..whole.rank()).filter(|&a| part.shape[a] < whole.shape[a]).collect();
    let wide = free.iter().any(|&a| b.ty(starts[a]).dtype == DType::I64);
    let known = free.iter().all(|&a| matches!(b.ty(starts[a]).dtype, DType::I32 | DType::I64));
    let dims = SliceDims { offset: (0..whole.rank()).collect(), index_map: free.clone(), ..SliceDims::default() };
    let op: Op = Scatter { kind: ScatterKind::Set, dims, mode: ScatterMode::Clip }.into();
    let small = part.numel() > 0 && part.numel().saturating_mul(MIN_SIZE_RATIO) <= whole.numel();
    if free.is_empty() || !known || !small || !overwrites(&op) {
        return Ok(None);
    }
    let mut index = Vec::with_capacity(free.len());
    for &a in &free {
        let start = b.cast(starts[a], if wide { DType::I64 } else { DType::I32 })?;
        index.push(b.reshape(start, &[1])?);
    }
    let index = if let [one] = index[..] { one } else { b.concat(&index, 0)? };
    Ok(Some(b.one(op, &[*x, index, *update])?))
}
