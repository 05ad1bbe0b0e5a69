//! Inlines calls, and composites that the backend does not support.

use ir::{Builder, Graph, GraphBuilder, Loc, Node, Op, Result, Semantics, Type, Value, Values};

/// Decides which composites are not inlined.
pub type CompositePredicate<'a> = &'a dyn Fn(&ir::ops::Composite, &[Type]) -> bool;

/// Replaces every op that has a graph by that graph, also in sub-graphs. `remat` states whether rematerialized bodies are
/// inlined as well; before CSE they must not be.
pub fn inline(graph: &Graph, claims: CompositePredicate<'_>, remat: bool) -> Result<Graph> {
    let open = super::rewrite_graph(graph, |b, node, operands| node_into(b, graph, node, operands, claims, remat))?;
    Ok(open.pruned())
}

/// Copies the body of an op. The nodes of a composite get the source location of the op that uses it; nodes of other bodies keep
/// their own location, if they have one.
fn body_into(
    b: &mut Builder,
    op: &Node,
    body: &Graph,
    args: &[Value],
    claims: CompositePredicate<'_>,
    remat: bool,
) -> Result<Vec<Value>> {
    let loc = b.loc.clone();
    let ours = matches!(op.op, Op::Composite(_)) && loc != Loc::Unknown;
    body.inline_with(args, |node, operands| {
        b.loc = if ours || node.loc == Loc::Unknown { loc.clone() } else { node.loc.clone() };
        node_into(b, body, node, operands, claims, remat)
    })
}

/// Copies a node of `from` to `b`.
fn node_into(
    b: &mut Builder,
    from: &Graph,
    node: &Node,
    args: &[Value],
    claims: CompositePredicate<'_>,
    remat: bool,
) -> Result<Values> {
    let stays = match &node.op {
        Op::Composite(c) => {
            let types: Vec<Type> = args.iter().map(|&a| b.ty(a)).collect();
            claims(c, &types)
        }
        Op::Remat(_) => !remat,
        _ => false,
    };
    if let (false, Semantics::Inline(body)) = (stays, node.op.semantics()) {
        if let Op::Remat(_) = node.op {
            return Ok(body_into(b, node, &sink_nodes(&body), args, claims, remat)?.into());
        }
        return Ok(body_into(b, node, &body, args, claims, remat)?.into());
    }
    super::copy_node(b, from, node, args, &mut |g| inline(g, claims, remat))
}

/// Moves each node directly before its first consumer.
///
/// A rematerialized body lists the whole forward recomputation first. In that order all its values would be live at once; in this
/// order each value is computed when the backward computation needs it.
fn sink_nodes(graph: &Graph) -> Graph {
    let nodes = graph.nodes();
    let mut needed = vec![usize::MAX; graph.num_values()];
    let mut order: Vec<(usize, usize)> = (0..nodes.len()).map(|i| (i, i)).collect();
    for (i, node) in nodes.iter().enumerate().rev() {
        let first = node.outs.iter().map(|v| needed[v.0 as usize]).min().unwrap_or(usize::MAX);
        if first != usize::MAX {
            order[i].0 = first;
        }
        for v in &node.args {
            needed[v.0 as usize] = needed[v.0 as usize].min(order[i].0);
        }
    }
    order.sort_unstable();
    let (mut g, inputs) = graph.with_inputs_of();
    let mut map = vec![Value(u32::MAX); graph.num_values()];
    graph.inputs().iter().zip(inputs).for_each(|(v, new)| map[v.0 as usize] = new);
    for (_, i) in order {
        let node = &nodes[i];
        let args: Values = node.args.iter().map(|v| map[v.0 as usize]).collect();
        let outs = g.push_like(graph, node, node.op.clone(), &args, node.loc.clone());
        node.outs.iter().zip(outs).for_each(|(v, o)| map[v.0 as usize] = o);
    }
    g.set_outputs(graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    g
}
