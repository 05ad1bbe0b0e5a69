//! Batching.

use crate::builder::TransformBuilder;
use ir::{Error, Graph, GraphBuilder, Result, Value};

/// Batches a graph: inputs marked in `batched` get a leading axis of `size`, and so do the outputs marked in
/// the result, which include those marked in `want`.
pub fn vmap(graph: &Graph, batched: &[bool], want: &[bool], size: usize) -> Result<(Graph, Vec<bool>)> {
    if batched.len() != graph.inputs().len() {
        return Err(Error::Invalid(format!("{} flags for {} inputs", batched.len(), graph.inputs().len())));
    }
    let mut cx = TransformBuilder::new();
    let mut values: Vec<Option<(Value, bool)>> = vec![None; graph.num_values()];
    for (&v, &b) in graph.inputs().iter().zip(batched) {
        let ty = graph.ty(v);
        let ty = if b { ty.batched(size) } else { ty.clone() };
        values[v.0 as usize] = Some((cx.input(ty), b));
    }
    let live = graph.live_values();
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        cx.set_loc(&node.loc);
        let args: Vec<(Value, bool)> =
            node.args.iter().map(|a| values[a.0 as usize].expect("operands come first")).collect();
        let x: Vec<Value> = args.iter().map(|a| a.0).collect();
        let flags: Vec<bool> = args.iter().map(|a| a.1).collect();
        let outs: Vec<(Value, bool)> = if flags.iter().any(|b| *b) {
            node.op.batch(&mut cx, &x, &flags, size).map_err(|e| e.at(&node.loc))?
        } else {
            cx.emit(node.op.clone(), &x)?.into_iter().map(|v| (v, false)).collect()
        };
        for (v, out) in node.outs.iter().zip(outs) {
            debug_assert_eq!(
                cx.ty(out.0),
                if out.1 { graph.ty(*v).batched(size) } else { graph.ty(*v).clone() },
                "{} batched",
                node.op.name()
            );
            values[v.0 as usize] = Some(out);
        }
    }
    let mut outputs = Vec::new();
    let mut flags = Vec::new();
    for (i, v) in graph.outputs().iter().enumerate() {
        let (mut y, mut b) = values[v.0 as usize].expect("outputs are live");
        if !b && want.get(i) == Some(&true) {
            y = cx.broadcast_leading(y, size)?;
            b = true;
        }
        outputs.push(y);
        flags.push(b);
    }
    Ok((cx.finish(&outputs), flags))
}

/// `vmap` with arbitrary batch axes: `in_axes[i]` is the mapped axis of input `i` (`None`: not batched), and
/// output `i` gets the batch axis `out_axes[i]`.
pub fn vmap_axes(graph: &Graph, in_axes: &[Option<usize>], out_axes: &[usize], size: usize) -> Result<Graph> {
    let batched: Vec<bool> = in_axes.iter().map(Option::is_some).collect();
    let want = vec![true; graph.outputs().len()];
    let (inner, _) = vmap(graph, &batched, &want, size)?;
    if out_axes.len() != graph.outputs().len() {
        return Err(Error::Invalid(format!("{} output axes for {} outputs", out_axes.len(), graph.outputs().len())));
    }
    let mut cx = TransformBuilder::new();
    let mut args = Vec::new();
    for (ty, axis) in graph.input_types().iter().zip(in_axes) {
        args.push(match axis {
            None => cx.input(ty.clone()),
            Some(a) if *a > ty.rank() => {
                return Err(Error::Invalid(format!("batch axis {a} is out of range for {} with a batch", ty)));
            }
            Some(a) => {
                let mut wide = ty.clone();
                wide.shape.insert(*a, size);
                let v = cx.input(wide);
                cx.move_axis(v, *a, 0)?
            }
        });
    }
    let mut outs = cx.inline(&inner, &args)?;
    for (v, &a) in outs.iter_mut().zip(out_axes) {
        let rank = cx.ty(*v).rank();
        if a >= rank {
            return Err(Error::Invalid(format!("output batch axis {a} is out of range for rank {rank}")));
        }
        *v = cx.move_axis(*v, 0, a)?;
    }
    Ok(cx.finish(&outs))
}
