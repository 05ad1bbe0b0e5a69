//! Masks attention between documents of one sequence: attention stays inside the segment between two end tokens, and no end token
//! is trained to predict the next document.
//!
//! Segments are computed from the token IDs, so batches are unchanged. Rotary embeddings and ALiBi slopes are relative, so each
//! document has the same loss and gradients as alone.

use crate::error::{Error, Result};
use crate::model::Model;
use ir::attr::Attr;
use ir::composites::attention::{AttentionOptions, attention};
use ir::ops::{Call, Composite, ReduceKind, Remat};
use ir::{Builder, Compare, DType, Graph, GraphBuilder, Op, Value, Values};

/// Returns why documents can't be masked in a model, if they can't.
pub(crate) fn check_supported(model: &Model, graph: &Graph) -> Result<()> {
    let refused =
        |what: &str| Err(Error::Input(format!("document masking is not supported: {what}; remove `--document-mask`")));
    if model.limits.max_positions.is_some() {
        return refused("the model's learned positions continue from document to document");
    }
    if mixes_positions(graph) {
        return refused("the model has recurrent state besides attention");
    }
    if !has_attention(graph) {
        return refused("the model has no attention");
    }
    Ok(())
}

fn bodies(op: &Op) -> Vec<&Graph> {
    match op {
        Op::Composite(c) if c.name != "attention" => vec![&c.body],
        Op::Call(call) => vec![&call.body],
        Op::Remat(remat) => vec![&remat.body],
        _ => Vec::new(),
    }
}

fn mixes_positions(graph: &Graph) -> bool {
    let own = |op: &Op| matches!(op, Op::Scan(_) | Op::While(_) | Op::Cond(_) | Op::Conv(_));
    graph.nodes().iter().any(|node| own(&node.op) || bodies(&node.op).into_iter().any(mixes_positions))
}

fn has_attention(graph: &Graph) -> bool {
    let own = |op: &Op| matches!(op, Op::Composite(c) if c.name == "attention");
    graph.nodes().iter().any(|node| own(&node.op) || bodies(&node.op).into_iter().any(has_attention))
}

/// The segment of each token `[rows, seq]`: the number of documents that ended before it.
fn segment_ids(b: &mut Builder, ids: Value, end: i32) -> ir::Result<Value> {
    let ended = is_end(b, ids, end)?;
    let ended = b.cast(ended, DType::I32)?;
    let upto = b.cumulative(ReduceKind::Sum, ended, 1, false)?;
    b.sub(upto, ended)
}

fn is_end(b: &mut Builder, ids: Value, end: i32) -> ir::Result<Value> {
    let mark = b.full_like(ids, f64::from(end))?;
    b.compare(Compare::Eq, ids, mark)
}

/// Masks the labels of end tokens.
pub(crate) fn mask_end_labels(b: &mut Builder, ids: Value, labels: Value, end: i32) -> ir::Result<Value> {
    let ended = is_end(b, ids, end)?;
    let none = b.full_like(labels, -100.0)?;
    b.select(ended, none, labels)
}

/// Masks attention between documents in a forward graph; `ids` is the input with the token IDs.
pub(crate) fn mask_documents(graph: &Graph, ids: usize, end: i32) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let segments = segment_ids(&mut b, args[ids], end)?;
    let outs = inline(&mut b, graph, &args, segments)?;
    Ok(b.finish(&outs))
}

fn inline(b: &mut Builder, graph: &Graph, args: &[Value], segments: Value) -> ir::Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| {
        let here = std::mem::replace(&mut b.loc, node.loc.clone());
        let outs = rewritten(b, &node.op, operands, segments);
        b.loc = here;
        outs
    })
}

fn rewritten(b: &mut Builder, op: &Op, operands: &[Value], segments: Value) -> ir::Result<Values> {
    let inside = |body: &Graph| -> ir::Result<(Graph, Vec<Value>)> {
        let mut inner = Builder::new();
        let args: Vec<Value> = operands.iter().map(|v| inner.graph.input(b.ty(*v))).collect();
        let own = inner.graph.input(b.ty(segments));
        let outs = inline(&mut inner, body, &args, own)?;
        let further: Vec<Value> = operands.iter().copied().chain([segments]).collect();
        Ok((inner.finish(&outs), further))
    };
    match op {
        Op::Composite(c) if c.name == "attention" && c.flag("causal") => masked_attention(b, c, operands, segments),
        // Its custom derivative ignores segments, so the composite is inlined and its body is differentiated.
        Op::Composite(c) if has_attention(&c.body) => inline(b, &c.body, operands, segments).map(Values::from_vec),
        Op::Call(call) if has_attention(&call.body) => {
            let (body, args) = inside(&call.body)?;
            b.emit(Call::new(body).into(), &args)
        }
        Op::Remat(remat) if has_attention(&remat.body) => {
            let (body, args) = inside(&remat.body)?;
            b.emit(Remat::with_policy(body, remat.policy.clone()).into(), &args)
        }
        _ => b.emit(op.clone(), operands),
    }
}

/// The same attention with segments of queries and keys.
fn masked_attention(b: &mut Builder, c: &Composite, operands: &[Value], segments: Value) -> ir::Result<Values> {
    let ty = b.ty(segments);
    let mut rest = operands[3..].iter().copied();
    let mut next = |present: bool| rest.next().filter(|_| present);
    let (offset, lengths) =
        (if c.flag("q_offset") { next(true) } else { None }, if c.flag("lengths") { next(true) } else { None });
    let slopes = if c.flag("slopes") { next(true) } else { None };
    let mask = if matches!(c.param("mask"), Some(Attr::Word(_))) { next(true) } else { None };
    let options = AttentionOptions {
        causal: true,
        window: c.int("window").and_then(|w| usize::try_from(w).ok()),
        scale: c.float("scale"),
        softcap: c.float("softcap"),
        q_offset: offset.map(|v| b.ty(v)),
        kv_lengths: lengths.map(|v| b.ty(v)),
        segment_ids: Some((ty.clone(), ty)),
        alibi_slopes: slopes.map(|v| b.ty(v)),
        mask: mask.map(|v| b.ty(v)),
    };
    let composite = attention(&b.ty(operands[0]), &b.ty(operands[1]), &b.ty(operands[2]), &options)?;
    let further = offset.into_iter().chain(lengths).chain([segments, segments]).chain(slopes).chain(mask);
    let args: Vec<Value> = operands[..3].iter().copied().chain(further).collect();
    b.emit(composite.into(), &args)
}
