//! Attention that sees both sides: what masked ids are foretold from.

use crate::error::{Error, Result};
use ir::attr::Attr;
use ir::composites::attention::{Attention, attention};
use ir::ops::{Call, Composite, Remat};
use ir::{Build, Builder, Graph, Op, Value, Values};

/// A forward graph without causal masks; windows stay. `Err` where the model's order is not that of its attention alone.
pub(crate) fn both_sides(graph: &Graph) -> Result<Graph> {
    if recurs(graph) {
        return Err(Error::Input(
            "masked language modeling needs bidirectional attention, but this model has recurrent state".into(),
        ));
    }
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let outs = inline(&mut b, graph, &args)?;
    Ok(b.finish(&outs))
}

fn body(op: &Op) -> Option<&Graph> {
    match op {
        Op::Composite(c) if c.name != "attention" => Some(&c.body),
        Op::Call(call) => Some(&call.body),
        Op::Remat(remat) => Some(&remat.body),
        _ => None,
    }
}

fn recurs(graph: &Graph) -> bool {
    let own = |op: &Op| matches!(op, Op::Scan(_) | Op::While(_));
    graph.nodes().iter().any(|node| own(&node.op) || body(&node.op).is_some_and(recurs))
}

fn attends(graph: &Graph) -> bool {
    let own = |op: &Op| matches!(op, Op::Composite(c) if c.name == "attention");
    graph.nodes().iter().any(|node| own(&node.op) || body(&node.op).is_some_and(attends))
}

fn inline(b: &mut Builder, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| {
        let here = std::mem::replace(&mut b.loc, node.loc.clone());
        let outs = rewritten(b, &node.op, operands);
        b.loc = here;
        outs
    })
}

fn rewritten(b: &mut Builder, op: &Op, operands: &[Value]) -> ir::Result<Values> {
    let inside = |b: &Builder, body: &Graph| -> ir::Result<Graph> {
        let mut inner = Builder::new();
        let args: Vec<Value> = operands.iter().map(|v| inner.graph.input(b.ty(*v))).collect();
        let outs = inline(&mut inner, body, &args)?;
        Ok(inner.finish(&outs))
    };
    match op {
        Op::Composite(c) if c.name == "attention" && c.flag("causal") => open(b, c, operands),
        // Its derivative is that of the causal one: what it computes is differentiated instead.
        Op::Composite(c) if c.name != "attention" && attends(&c.body) => {
            inline(b, &c.body, operands).map(Values::from_vec)
        }
        Op::Call(call) if attends(&call.body) => {
            let body = inside(b, &call.body)?;
            b.emit(Call::new(body).into(), operands)
        }
        Op::Remat(remat) if attends(&remat.body) => {
            let body = inside(b, &remat.body)?;
            b.emit(Remat::with(body, remat.policy.clone()).into(), operands)
        }
        _ => b.emit(op.clone(), operands),
    }
}

/// The same attention without its mask.
fn open(b: &mut Builder, c: &Composite, operands: &[Value]) -> ir::Result<Values> {
    let mut rest = operands[3..].iter().map(|v| b.ty(*v));
    let mut next = |present: bool| if present { rest.next() } else { None };
    let q_offset = next(c.flag("q_offset"));
    let lengths = next(c.flag("lengths"));
    let segments = match c.flag("segments") {
        true => next(true).zip(next(true)),
        false => None,
    };
    let slopes = next(c.flag("slopes"));
    let mask = next(matches!(c.param("mask"), Some(Attr::Word(_))));
    let options = Attention {
        causal: false,
        window: c.int("window").and_then(|w| usize::try_from(w).ok()),
        scale: c.float("scale"),
        softcap: c.float("softcap"),
        q_offset,
        lengths,
        segments,
        slopes,
        mask,
    };
    let composite = attention(&b.ty(operands[0]), &b.ty(operands[1]), &b.ty(operands[2]), &options)?;
    b.emit(composite.into(), operands)
}
