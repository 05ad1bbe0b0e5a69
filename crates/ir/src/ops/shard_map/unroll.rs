//! Unrolls a `shard_map` to a graph for one process: the bodies of all ranks, with collectives expanded.

use super::ShardMap;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value, Values};
use crate::mesh::{Mesh, Spec};
use crate::ops::{Call, Collective, CollectiveKind, Cond, Op, ReduceKind, Remat, Scan, While};
use crate::scalar::Scalar;
use crate::types::Type;
use crate::varying_axes::communicates_over;
use crate::{Literal, ops};
use std::sync::Arc;

/// One value per rank.
type Ranks = Vec<Value>;

/// The graph of all ranks, from whole operands to whole results.
pub(super) fn unroll(map: &ShardMap) -> Result<Graph> {
    let mesh = &map.mesh;
    let mut b = Builder::new();
    let mut inputs = Vec::new();
    for (&v, spec) in map.body.inputs().iter().zip(&map.ins) {
        let whole = spec.global_type(mesh, map.body.ty(v)).map_err(invalid)?;
        let x = b.graph.input(whole);
        inputs.push(parts(&mut b, mesh, spec, x)?);
    }
    let outs = ranks(&mut b, mesh, &map.body, inputs)?;
    let mut results = Vec::new();
    for (values, spec) in outs.iter().zip(&map.outs) {
        results.push(whole(&mut b, mesh, spec, values)?);
    }
    Ok(b.finish(&results))
}

fn invalid(p: crate::InferError) -> Error {
    Error::Invalid(format!("shard_map: {p}"))
}

/// Slices every rank's shard of a value.
fn parts(b: &mut Builder, mesh: &Mesh, spec: &Spec, x: Value) -> Result<Ranks> {
    let ty = b.ty(x);
    let mut found: Vec<(Vec<(usize, usize)>, Value)> = Vec::new();
    let mut all = Vec::new();
    for rank in 0..mesh.ranks() {
        let part = spec.shard_range(mesh, &ty, rank).map_err(invalid)?;
        // Ranks with the same shard share it.
        let known = found.iter().find(|(p, _)| *p == part).map(|(_, v)| *v);
        let v = match known {
            Some(v) => v,
            None => {
                let start: Vec<usize> = part.iter().map(|p| p.0).collect();
                let limit: Vec<usize> = part.iter().map(|p| p.0 + p.1).collect();
                let v = if limit == ty.shape.to_vec() && start.iter().all(|s| *s == 0) {
                    x
                } else {
                    b.slice(x, &start, &limit, &vec![1; limit.len()])?
                };
                found.push((part, v));
                v
            }
        };
        all.push(v);
    }
    Ok(all)
}

/// Assembles a whole value from the shards of all ranks.
fn whole(b: &mut Builder, mesh: &Mesh, spec: &Spec, values: &Ranks) -> Result<Value> {
    fn join(
        b: &mut Builder,
        mesh: &Mesh,
        spec: &Spec,
        values: &Ranks,
        at: &mut Vec<(String, usize)>,
        dim: usize,
    ) -> Result<Value> {
        if dim == spec.0.len() {
            let has = |r: &usize| {
                mesh.axes().iter().all(|a| {
                    let want = at.iter().find(|(n, _)| *n == a.name).map_or(0, |(_, c)| *c);
                    mesh.coordinate(*r, &a.name) == want
                })
            };
            let rank = (0..mesh.ranks()).find(has).unwrap_or(0);
            return Ok(values[rank]);
        }
        let cuts = spec.mesh_axes(mesh, dim);
        let n: usize = cuts.iter().map(|a| a.size).product();
        let mut pieces = Vec::new();
        for mut i in 0..n {
            let depth = at.len();
            for a in cuts.iter().rev() {
                at.push((a.name.clone(), i % a.size));
                i /= a.size;
            }
            pieces.push(join(b, mesh, spec, values, at, dim + 1)?);
            at.truncate(depth);
        }
        match pieces[..] {
            [one] => Ok(one),
            _ => b.concat(&pieces, dim),
        }
    }
    join(b, mesh, spec, values, &mut Vec::new(), 0)
}

/// Unrolls a body for all ranks.
fn ranks(b: &mut Builder, mesh: &Mesh, body: &Graph, inputs: Vec<Ranks>) -> Result<Vec<Ranks>> {
    let n = mesh.ranks();
    let mut values: Vec<Option<Ranks>> = vec![None; body.num_values()];
    for (v, x) in body.inputs().iter().zip(inputs) {
        values[v.0 as usize] = Some(x);
    }
    let live = body.live_values();
    for node in body.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        b.loc = node.loc.clone();
        let args: Vec<&Ranks> = node.args.iter().map(|a| values[a.0 as usize].as_ref().expect("in order")).collect();
        let outs: Vec<Ranks> = match &node.op {
            Op::Collective(c) => vec![collective(b, mesh, c, args.first().copied())?],
            op if !joint_body(op, mesh)? => {
                let mut done: Vec<(Values, Values)> = Vec::new();
                let mut outs = vec![Vec::with_capacity(n); node.outs.len()];
                for r in 0..n {
                    let own: Values = args.iter().map(|a| a[r]).collect();
                    // Ops with equal operands on several ranks are computed once.
                    let found = match done.iter().find(|(a, _)| *a == own) {
                        Some((_, o)) => o.clone(),
                        None => {
                            let o = b.emit(op.clone(), &own)?;
                            done.push((own, o.clone()));
                            o
                        }
                    };
                    for (out, v) in outs.iter_mut().zip(found) {
                        out.push(v);
                    }
                }
                outs
            }
            op => with_body(b, mesh, op, node, &args)?,
        };
        for (v, o) in node.outs.iter().zip(outs) {
            values[v.0 as usize] = Some(o);
        }
    }
    Ok(body.outputs().iter().map(|v| values[v.0 as usize].clone().expect("outputs are live")).collect())
}

/// Whether an op has a body in which ranks communicate or use their rank index.
fn joint_body(op: &Op, mesh: &Mesh) -> Result<bool> {
    fn asks(graph: &Graph, mesh: &Mesh) -> Result<bool> {
        if !communicates_over(graph, mesh)?.is_empty() {
            return Ok(true);
        }
        for node in graph.nodes() {
            if matches!(node.op, Op::Collective(_)) || joint_body(&node.op, mesh)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
    Ok(match op {
        Op::Call(c) => asks(&c.body, mesh)?,
        Op::Remat(r) => asks(&r.body, mesh)?,
        Op::Scan(s) => asks(&s.body, mesh)?,
        Op::While(w) => asks(&w.body, mesh)? || asks(&w.cond, mesh)?,
        Op::Cond(c) => {
            let mut found = false;
            for branch in &c.branches {
                found |= asks(branch, mesh)?;
            }
            found
        }
        _ => false,
    })
}

/// Unrolls a body for all ranks: it has each input and each output once per rank.
fn joint(mesh: &Mesh, body: &Graph) -> Result<Graph> {
    let mut b = Builder::new();
    let mut inputs = Vec::new();
    for &v in body.inputs() {
        inputs.push((0..mesh.ranks()).map(|_| b.graph.input(body.ty(v).clone())).collect());
    }
    let outs = ranks(&mut b, mesh, body, inputs)?;
    let outs: Vec<Value> = outs.into_iter().flatten().collect();
    Ok(b.finish(&outs))
}

/// Unrolls an op with a body for all ranks.
fn with_body(b: &mut Builder, mesh: &Mesh, op: &Op, node: &Node, args: &[&Ranks]) -> Result<Vec<Ranks>> {
    let n = mesh.ranks();
    // Operands that must be equal on all ranks are taken from the first.
    let first = match op {
        Op::Scan(s) => s.bounded as usize,
        Op::Cond(_) => 1,
        _ => 0,
    };
    let mut operands: Vec<Value> = args[..first].iter().map(|a| a[0]).collect();
    operands.extend(args[first..].iter().flat_map(|a| a.iter().copied()));
    let whole: Op = match op {
        Op::Call(c) => Call::new(joint(mesh, &c.body)?).into(),
        Op::Remat(r) => Remat::with_policy(joint(mesh, &r.body)?, r.policy.clone()).into(),
        Op::Scan(s) => {
            Scan { body: Arc::new(joint(mesh, &s.body)?), consts: s.consts * n, carries: s.carries * n, ..s.clone() }
                .into()
        }
        Op::Cond(c) => Cond::new(c.branches.iter().map(|g| joint(mesh, g)).collect::<Result<Vec<_>>>()?).into(),
        Op::While(w) => {
            let mut cond = joint(mesh, &w.cond)?;
            cond.set_outputs(vec![cond.outputs()[0]]);
            While::new(w.cond_consts * n, w.body_consts * n, cond, joint(mesh, &w.body)?).into()
        }
        other => return Err(Error::Invalid(format!("{} has no body", other.name()))),
    };
    let outs = b.emit(whole, &operands)?;
    debug_assert_eq!(outs.len(), node.outs.len() * n);
    Ok(outs.chunks(n).map(<[Value]>::to_vec).collect())
}

/// The result of a collective on each rank.
fn collective(b: &mut Builder, mesh: &Mesh, c: &Collective, x: Option<&Ranks>) -> Result<Ranks> {
    let n = mesh.ranks();
    let mut out: Vec<Option<Value>> = vec![None; n];
    for rank in 0..n {
        if out[rank].is_some() {
            continue;
        }
        let group = mesh.group(rank, &c.axes);
        let results = match x {
            None => {
                let index = |i: usize| Literal::scalar(Scalar::from_f64(DType::I32, i as f64));
                (0..group.len()).map(|i| b.constant(index(i))).collect::<Result<Vec<_>>>()?
            }
            Some(x) => together(b, c, &group.iter().map(|&r| x[r]).collect::<Vec<_>>())?,
        };
        for (&r, v) in group.iter().zip(results) {
            out[r] = Some(v);
        }
    }
    Ok(out.into_iter().flatten().collect())
}

/// The result of a collective for each rank of one group.
fn together(b: &mut Builder, c: &Collective, x: &[Value]) -> Result<Vec<Value>> {
    let n = x.len();
    let ty = b.ty(x[0]);
    Ok(match &c.kind {
        CollectiveKind::PVary | CollectiveKind::AxisIndex => x.to_vec(),
        CollectiveKind::Sum => vec![reduced(b, ReduceKind::Sum, x, &ty)?; n],
        CollectiveKind::Max => vec![reduced(b, ReduceKind::Max, x, &ty)?; n],
        CollectiveKind::Min => vec![reduced(b, ReduceKind::Min, x, &ty)?; n],
        CollectiveKind::AllGather { dim, .. } => vec![b.concat(x, *dim)?; n],
        CollectiveKind::ReduceScatter { dim } => {
            let sum = reduced(b, ReduceKind::Sum, x, &ty)?;
            (0..n).map(|i| piece(b, sum, *dim, i, n)).collect::<Result<_>>()?
        }
        CollectiveKind::ShardSlice { dim } => (0..n).map(|i| piece(b, x[i], *dim, i, n)).collect::<Result<_>>()?,
        CollectiveKind::AllToAll { split, join } => {
            let mut all = Vec::new();
            for i in 0..n {
                let mut pieces = Vec::new();
                for v in x {
                    pieces.push(piece(b, *v, *split, i, n)?);
                }
                all.push(b.concat(&pieces, *join)?);
            }
            all
        }
        CollectiveKind::Permute { pairs } => {
            let mut all = Vec::new();
            for i in 0..n {
                all.push(match pairs.iter().find(|(_, to)| *to == i) {
                    Some((from, _)) => x[*from],
                    None => b.zeros(&ty)?,
                });
            }
            all
        }
    })
}

fn piece(b: &mut Builder, x: Value, dim: usize, i: usize, n: usize) -> Result<Value> {
    let size = b.ty(x).shape[dim] / n;
    b.slice_axis(x, dim, i * size, (i + 1) * size)
}

/// Reduces the values of all ranks, in the order of ranks.
fn reduced(b: &mut Builder, kind: ReduceKind, x: &[Value], ty: &Type) -> Result<Value> {
    let row: Vec<usize> = std::iter::once(1).chain(ty.shape.iter().copied()).collect();
    let rows = x.iter().map(|&v| b.reshape(v, &row)).collect::<Result<Vec<_>>>()?;
    let stacked = b.one(ops::Concat { axis: 0 }.into(), &rows)?;
    b.reduce(kind, stacked, &[0])
}
