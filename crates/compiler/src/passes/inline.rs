//! Inlines calls, and composites that the backend does not claim.

use ir::{Build, Builder, Graph, Meaning, Node, Op, Result, Type, Value, Values};

/// Which composites stay whole.
pub type Claims<'a> = &'a dyn Fn(&ir::ops::Composite, &[Type]) -> bool;

/// Replaces every op that is a graph by that graph, in sub-graphs too. `remat` says whether rematerialised bodies are
/// opened as well; before CSE they must not be.
pub fn inline(graph: &Graph, claims: Claims<'_>, remat: bool) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = inline_into(&mut b, graph, &args, claims, remat)?;
    Ok(b.finish(&outs).without_dead_nodes())
}

fn inline_into(b: &mut Builder, graph: &Graph, args: &[Value], claims: Claims<'_>, remat: bool) -> Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| node_into(b, node, operands, claims, remat))
}

fn node_into(b: &mut Builder, node: &Node, args: &[Value], claims: Claims<'_>, remat: bool) -> Result<Values> {
    b.loc = node.loc.clone();
    let stays = match &node.op {
        Op::Composite(c) => {
            let types: Vec<Type> = args.iter().map(|&a| b.ty(a)).collect();
            claims(c, &types)
        }
        Op::Remat(_) => !remat,
        _ => false,
    };
    if let (false, Meaning::Inline(body)) = (stays, node.op.meaning()) {
        return Ok(inline_into(b, &body, args, claims, remat)?.into());
    }
    let op = super::map_bodies(&node.op, &mut |g| inline(g, claims, remat))?;
    b.emit(op, args)
}
