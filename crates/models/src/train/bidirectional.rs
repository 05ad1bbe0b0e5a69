//! Bidirectional attention, for masked language modelling.

use crate::error::{Error, Result};
use ir::attr::Attr;
use ir::composites::attention::{AttentionOptions, attention};
use ir::ops::{Call, Composite, Remat};
use ir::{Builder, Graph, GraphBuilder, Op, Value, Values};

/// Removes causal masks from a forward graph; sliding windows stay. `Err` if the model is causal in ways other than its attention.
pub(crate) fn remove_causal_masks(graph: &Graph) -> Result<Graph> {
    if has_recurrence(graph) {
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

fn has_recurrence(graph: &Graph) -> bool {
    let own = |op: &Op| matches!(op, Op::Scan(_) | Op::While(_));
    graph.nodes().iter().any(|node| own(&node.op) || body(&node.op).is_some_and(has_recurrence))
}

fn has_attention(graph: &Graph) -> bool {
    let own = |op: &Op| matches!(op, Op::Composite(c) if c.name == "attention");
    graph.nodes().iter().any(|node| own(&node.op) || body(&node.op).is_some_and(has_attention))
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
        Op::Composite(c) if c.name == "attention" && c.flag("causal") => remove_mask(b, c, operands),
        // Its custom derivative is that of causal attention, so the composite is inlined and its body is differentiated.
        Op::Composite(c) if c.name != "attention" && has_attention(&c.body) => {
            inline(b, &c.body, operands).map(Values::from_vec)
        }
        Op::Call(call) if has_attention(&call.body) => {
            let body = inside(b, &call.body)?;
            b.emit(Call::new(body).into(), operands)
        }
        Op::Remat(remat) if has_attention(&remat.body) => {
            let body = inside(b, &remat.body)?;
            b.emit(Remat::with_policy(body, remat.policy.clone()).into(), operands)
        }
        _ => b.emit(op.clone(), operands),
    }
}

/// The same attention without its mask.
fn remove_mask(b: &mut Builder, c: &Composite, operands: &[Value]) -> ir::Result<Values> {
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
    let options = AttentionOptions {
        causal: false,
        window: c.int("window").and_then(|w| usize::try_from(w).ok()),
        scale: c.float("scale"),
        softcap: c.float("softcap"),
        q_offset,
        kv_lengths: lengths,
        segment_ids: segments,
        alibi_slopes: slopes,
        mask,
    };
    let composite = attention(&b.ty(operands[0]), &b.ty(operands[1]), &b.ty(operands[2]), &options)?;
    b.emit(composite.into(), operands)
}
