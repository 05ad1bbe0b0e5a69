//! Dead code elimination inside ops with sub-graphs.
//!
//! - A result without uses is not computed: a loop's stacked output, a carry that only feeds itself, a branch's
//!   or a function's result.
//! - An operand that a sub-graph does not read is not passed.
//! - A result that always equals an operand (an input forwarded by a call or by all branches, a loop-invariant carry) is
//!   replaced by that operand; inside a loop such a carry becomes a constant.
//!
//! Composites keep their operands and results, because backends recognize them by their interface.

use ir::ops::{Call, Cond, Remat, Scan, While};
use ir::{Graph, Node, Op, Result, Value};
use std::sync::Arc;

/// Removes dead code inside the sub-graphs of a function; its own inputs and outputs stay.
pub fn prune(graph: &Graph) -> Result<Graph> {
    let mut live = vec![false; graph.num_values()];
    let mark = |live: &mut Vec<bool>, v: Value| live[v.0 as usize] = true;
    for &v in graph.outputs() {
        mark(&mut live, v);
    }
    // In reverse order, so that a node's consumers are pruned before its uses are counted.
    let mut plans: Vec<Option<NodePlan>> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes().iter().rev() {
        let needed: Vec<bool> = node.outs.iter().map(|v| live[v.0 as usize]).collect();
        let plan = match needed.contains(&true) {
            true => Some(plan(node, &needed)?),
            false => None,
        };
        for &i in plan.iter().flat_map(|p| p.op.iter().flat_map(|(_, args)| args)) {
            mark(&mut live, node.args[i]);
        }
        for from in plan.iter().flat_map(|p| &p.outs) {
            if let ResultSource::Arg(i) = from {
                mark(&mut live, node.args[*i]);
            }
        }
        plans.push(plan);
    }
    plans.reverse();

    let mut g = Graph::new();
    let mut map = vec![Value(u32::MAX); graph.num_values()];
    for &v in graph.inputs() {
        map[v.0 as usize] = g.input(graph.ty(v).clone());
    }
    for (node, plan) in graph.nodes().iter().zip(plans) {
        let Some(plan) = plan else { continue };
        let results = match plan.op {
            Some((op, places)) => {
                let args: Vec<Value> = places.iter().map(|&i| map[node.args[i].0 as usize]).collect();
                g.push(op, &args, node.loc.clone())?
            }
            None => Default::default(),
        };
        for (old, from) in node.outs.iter().zip(plan.outs) {
            map[old.0 as usize] = match from {
                ResultSource::Result(k) => results[k],
                ResultSource::Arg(i) => map[node.args[i].0 as usize],
                ResultSource::Unused => continue,
            };
        }
    }
    g.set_outputs(graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    Ok(g)
}

/// The pruned form of a node.
struct NodePlan {
    /// The op with the operands that remain; `None` if all results are operands.
    op: Option<(Op, Vec<usize>)>,
    /// The source of each result.
    outs: Vec<ResultSource>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultSource {
    Result(usize),
    Arg(usize),
    Unused,
}

fn plan(node: &Node, needed: &[bool]) -> Result<NodePlan> {
    match &node.op {
        Op::Call(c) => plan_branches(&[&c.body], 0, needed, |mut b| Call::new(b.remove(0)).into()),
        Op::Remat(r) => {
            plan_branches(&[&r.body], 0, needed, |mut b| Remat::with_policy(b.remove(0), r.policy.clone()).into())
        }
        Op::Cond(c) => {
            let branches: Vec<&Arc<Graph>> = c.branches.iter().collect();
            plan_branches(&branches, 1, needed, |b| Cond::new(b).into())
        }
        Op::Scan(s) => plan_scan(s, needed),
        Op::While(w) => plan_while(w, needed),
        op => Ok(NodePlan {
            op: Some((op.clone(), (0..node.args.len()).collect())),
            outs: (0..needed.len()).map(ResultSource::Result).collect(),
        }),
    }
}

fn marked(flags: &[bool]) -> impl Iterator<Item = usize> + '_ {
    (0..flags.len()).filter(|&i| flags[i])
}

/// The graph with some of its outputs, pruned.
fn with_outputs(graph: &Graph, outs: &[bool]) -> Result<Graph> {
    let mut g = graph.clone();
    g.set_outputs(marked(outs).map(|i| graph.outputs()[i]).collect::<Vec<_>>());
    prune(&g)
}

/// The graph with only these inputs, in this order; it must not read others.
fn with_inputs(graph: &Graph, order: &[usize]) -> Result<Graph> {
    let mut g = Graph::new();
    let mut args = vec![Value(u32::MAX); graph.inputs().len()];
    for &i in order {
        args[i] = g.input(graph.ty(graph.inputs()[i]).clone());
    }
    let outs = graph.inline(&mut g, &args)?;
    g.set_outputs(outs);
    Ok(g)
}

/// The input that an output forwards, if it does.
fn forwarded_input(graph: &Graph, out: usize) -> Option<usize> {
    let v = graph.outputs()[out];
    graph.inputs().iter().position(|&i| i == v)
}

/// Prunes an op with several graphs over the same operands, which follow `first` operands of the op itself.
fn plan_branches(
    branches: &[&Arc<Graph>],
    first: usize,
    needed: &[bool],
    make: impl FnOnce(Vec<Graph>) -> Op,
) -> Result<NodePlan> {
    let whole = branches.iter().map(|b| prune(b)).collect::<Result<Vec<_>>>()?;
    let mut outs = vec![ResultSource::Unused; needed.len()];
    let mut computed = vec![false; needed.len()];
    let mut results = 0;
    for i in marked(needed) {
        let through: Vec<Option<usize>> = whole.iter().map(|b| forwarded_input(b, i)).collect();
        outs[i] = match through[0] {
            Some(k) if through.iter().all(|t| *t == Some(k)) => ResultSource::Arg(first + k),
            _ => {
                computed[i] = true;
                results += 1;
                ResultSource::Result(results - 1)
            }
        };
    }
    if results == 0 {
        return Ok(NodePlan { op: None, outs });
    }
    let parts = (whole.iter()).map(|b| with_outputs(b, &computed)).collect::<Result<Vec<_>>>()?;
    let read: Vec<Vec<bool>> = parts.iter().map(Graph::used_inputs).collect();
    let kept: Vec<usize> = (0..whole[0].inputs().len()).filter(|&i| read.iter().any(|r| r[i])).collect();
    let bodies = parts.iter().map(|b| with_inputs(b, &kept)).collect::<Result<Vec<_>>>()?;
    let args = (0..first).chain(kept.iter().map(|i| first + i)).collect();
    Ok(NodePlan { op: Some((make(bodies), args)), outs })
}

/// The carries of a loop: which are invariant, and which are needed.
struct Carries {
    invariant: Vec<bool>,
    kept: Vec<bool>,
}

impl Carries {
    /// Carry `i` is input `first + i` of the body and its output `i`; `wanted` marks those that are read outside or by the
    /// predicate, `others` the further outputs that are read. Also returns the body with the remaining outputs.
    fn of(body: &Graph, first: usize, wanted: &[bool], others: &[bool]) -> Result<(Carries, Graph)> {
        let n = wanted.len();
        let fixed: Vec<bool> = (0..n).map(|i| forwarded_input(body, i) == Some(first + i)).collect();
        let mut kept: Vec<bool> = (0..n).map(|i| wanted[i] && !fixed[i]).collect();
        loop {
            let part = with_outputs(body, &[&kept[..], others].concat())?;
            let read = part.used_inputs();
            let more: Vec<usize> = (0..n).filter(|&i| read[first + i] && !fixed[i] && !kept[i]).collect();
            if more.is_empty() {
                return Ok((Carries { invariant: fixed, kept }, part));
            }
            for i in more {
                kept[i] = true;
            }
        }
    }

    /// The invariant carries that a graph reads as inputs from `first` on.
    fn invariant_carries(&self, read: &[bool], first: usize) -> Vec<usize> {
        marked(&self.invariant).filter(|&i| read[first + i]).map(|i| first + i).collect()
    }
}

fn plan_scan(scan: &Scan, needed: &[bool]) -> Result<NodePlan> {
    let (nc, nk) = (scan.consts, scan.carries);
    let first = scan.bounded as usize;
    let body = prune(&scan.body)?;
    let (carries, body) = Carries::of(&body, nc, &needed[..nk], &needed[nk..])?;
    let read = body.used_inputs();
    let mut outs = vec![ResultSource::Unused; needed.len()];
    let mut results = 0;
    for (i, out) in outs.iter_mut().enumerate() {
        let stays = if i < nk { carries.kept[i] } else { needed[i] };
        if stays {
            *out = ResultSource::Result(results);
            results += 1;
        } else if needed[i] {
            *out = ResultSource::Arg(first + nc + i);
        }
    }
    if results == 0 {
        return Ok(NodePlan { op: None, outs });
    }
    let mut order: Vec<usize> = (0..nc).filter(|&i| read[i]).collect();
    order.extend(carries.invariant_carries(&read, nc));
    let consts = order.len();
    order.extend(marked(&carries.kept).map(|i| nc + i));
    let kept = order.len() - consts;
    order.extend((nc + nk..read.len()).filter(|&i| read[i]));
    let smaller = Scan { body: Arc::new(with_inputs(&body, &order)?), consts, carries: kept, ..scan.clone() };
    let args = (0..first).chain(order.iter().map(|i| first + i)).collect();
    Ok(NodePlan { op: Some((smaller.into(), args)), outs })
}

fn plan_while(loop_: &While, needed: &[bool]) -> Result<NodePlan> {
    let (nc, nb, nk) = (loop_.cond_consts, loop_.body_consts, needed.len());
    let (cond, body) = (prune(&loop_.cond)?, prune(&loop_.body)?);
    let asked = cond.used_inputs();
    let wanted: Vec<bool> = (0..nk).map(|i| needed[i] || asked[nc + i]).collect();
    let (carries, body) = Carries::of(&body, nb, &wanted, &[])?;
    let read = body.used_inputs();
    let mut outs = vec![ResultSource::Unused; nk];
    for i in marked(needed) {
        outs[i] = match carries.invariant[i] {
            true => ResultSource::Arg(nc + nb + i),
            false => ResultSource::Result(carries.kept[..i].iter().filter(|k| **k).count()),
        };
    }
    // Only the trip count would remain, which has no observable effect.
    if marked(needed).all(|i| carries.invariant[i]) {
        return Ok(NodePlan { op: None, outs });
    }
    let kept: Vec<usize> = marked(&carries.kept).collect();
    let mut cond_order: Vec<usize> = (0..nc).filter(|&i| asked[i]).collect();
    cond_order.extend(carries.invariant_carries(&asked, nc));
    let mut body_order: Vec<usize> = (0..nb).filter(|&i| read[i]).collect();
    body_order.extend(carries.invariant_carries(&read, nb));
    let (cond_consts, body_consts) = (cond_order.len(), body_order.len());
    let of_cond = |i: usize| if i < nc { i } else { nb + i };
    let args: Vec<usize> = (cond_order.iter().map(|&i| of_cond(i)))
        .chain(body_order.iter().map(|i| nc + i))
        .chain(kept.iter().map(|i| nc + nb + i))
        .collect();
    cond_order.extend(kept.iter().map(|i| nc + i));
    body_order.extend(kept.iter().map(|i| nb + i));
    let smaller =
        While::new(cond_consts, body_consts, with_inputs(&cond, &cond_order)?, with_inputs(&body, &body_order)?);
    Ok(NodePlan { op: Some((smaller.into(), args)), outs })
}
