//! Training on several ranks: how parameters, moments and batches are divided over a mesh.
//!
//! | axis | what it divides |
//! | --- | --- |
//! | `dp` | the batch; gradients are summed |
//! | `fsdp` | the batch, and parameters and moments too: gathered where they are used, gradients come summed and in parts |
//! | `tp` | parameters as their `@shard` says: columns, rows |
//!
//! The loss graph is divided by [`transform::partition`]; every rank then runs one program, and its steps are the same on all.

use super::step::Objective;
use crate::error::{Error, Result};
use dist::Comm;
use ir::ops::{Collective, CollectiveKind};
use ir::{AxisSet, Build, DType, Graph, Mesh, MeshAxis, Node, Op, Spec, Type, Value, Values};
use lang::lower::Shard;
use std::sync::Arc;
use transform::{Cut, Placement};

/// What is known of an input of the loss that is a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) shard: Option<Shard>,
    pub(crate) stacked: bool,
}

/// Sums that a step needs beside those inside of the loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// Over which ranks each gradient is summed.
    pub(crate) gradients: Vec<Vec<MeshAxis>>,
    /// Over which ranks the squares of each are.
    pub(crate) squares: Vec<Vec<MeshAxis>>,
}

/// How a run's tensors lie on the ranks of a mesh.
pub(crate) struct Division {
    pub(crate) comm: Arc<Comm>,
    /// Of the inputs of the loss: trained, fixed.
    pub(crate) params: Vec<Placement>,
    /// Of ids and labels.
    pub(crate) batch: Placement,
    pub(crate) sums: Sums,
}

/// The axes that divide a batch.
const BATCH: [&str; 2] = ["dp", "fsdp"];

fn failed(p: impl ToString) -> Error {
    Error::Input(p.to_string())
}

impl Division {
    /// Divides an objective: its graphs become those of one rank.
    pub(crate) fn of(objective: &mut Objective, about: &[About], comm: Arc<Comm>) -> Result<Division> {
        let mesh = comm.mesh().clone();
        if let Some(other) = mesh.axes().iter().find(|a| !["dp", "fsdp", "tp"].contains(&a.name.as_str()) && a.size > 1)
        {
            return Err(Error::Input(format!(
                "`--mesh {mesh}`: training has no axis `{}`; it divides by dp, fsdp and tp",
                other.name
            )));
        }
        let axis = |name: &str| mesh.axes().iter().position(|a| a.name == name);
        let types = objective.loss.input_types();
        let (tp, fsdp) = (axis("tp"), axis("fsdp"));
        let cut_by: Vec<usize> = BATCH.iter().filter_map(|name| axis(name)).collect();
        let rows = &types[about.len()];
        let batch = Placement { layout: vec![Cut::by(cut_by.clone()), Cut::default()], stored: None };
        if !batch.fits(&mesh, rows) {
            let parts = batch.layout[0].parts(&mesh);
            return Err(Error::Input(format!(
                "`--batch {}` can't be divided among {parts} ranks of {mesh}: give a multiple of {parts}",
                rows.shape[0]
            )));
        }
        let mut params = Vec::new();
        for (i, (about, ty)) in about.iter().zip(&types).enumerate() {
            let mut placement = Placement { layout: vec![Cut::default(); ty.rank()], stored: None };
            let first = usize::from(about.stacked);
            let dim = match about.shard {
                Some(Shard::Column | Shard::Head) => Some(first),
                Some(Shard::Row) => ty.rank().checked_sub(1).filter(|d| *d > first),
                Some(Shard::Replicated | Shard::Expert) | None => None,
            };
            if let (Some(tp), Some(dim)) = (tp, dim.filter(|d| *d < ty.rank())) {
                let cut = Cut { axes: vec![tp], segments: transform::segments(&objective.loss, i, dim) };
                if cut.fits(&mesh, ty.shape[dim]) {
                    placement.layout[dim] = cut;
                }
            }
            if let Some(fsdp) = fsdp {
                let own = placement.local(&mesh, ty);
                let over = mesh.axes()[fsdp].clone();
                let fit = (0..ty.rank()).filter(|&d| own.shape[d] % over.size == 0);
                // The longest axis, the first of those.
                if let Some(dim) = fit.max_by_key(|&d| (own.shape[d], std::cmp::Reverse(d))) {
                    placement.stored = Some((dim, vec![over]));
                }
            }
            params.push(placement);
        }
        let batch_axes: Vec<MeshAxis> = cut_by.iter().map(|&a| mesh.axes()[a].clone()).collect();
        let mut ins = params.clone();
        ins.extend([batch.clone(), batch.clone()]);
        objective.loss = local(&objective.loss, &mesh, &ins, &batch_axes, about.len())?;
        objective.plain = local(&objective.plain, &mesh, &ins, &batch_axes, about.len())?;
        let mut sums = Sums::default();
        for placement in params.iter().take(objective.trained.len()) {
            let own = mesh.of(placement.axes(&mesh).map_err(failed)?);
            sums.gradients.push(batch_axes.iter().filter(|a| !own.contains(a)).cloned().collect());
            sums.squares.push(own);
        }
        Ok(Division { comm, params, batch, sums })
    }

    /// The rank that writes files.
    pub(crate) fn leads(&self) -> bool {
        self.comm.rank() == 0
    }

    /// A rank's part of a whole tensor.
    pub(crate) fn part(&self, placement: &Placement, ty: &Type, whole: &[u8]) -> Vec<u8> {
        let mut part = vec![0; placement.local(self.comm.mesh(), ty).bytes()];
        let size = ty.dtype.size();
        each_run(&places(placement, ty, self.comm.mesh(), self.comm.rank()), ty, |at, own, n| {
            part[own * size..(own + n) * size].copy_from_slice(&whole[at * size..(at + n) * size]);
        });
        part
    }

    /// The whole of a tensor of which each rank has its part: on rank 0, from all that have one of their own.
    pub(crate) fn whole(&self, placement: &Placement, ty: &Type, own: Vec<u8>) -> Result<Vec<u8>> {
        let mesh = self.comm.mesh();
        let cut = placement.axes(mesh).map_err(failed)?;
        let others = mesh.of(AxisSet(u32::MAX >> (32 - mesh.axes().len().max(1))).without(cut));
        let holders: Vec<usize> = (0..mesh.ranks()).filter(|&r| mesh.index(r, &others) == 0).collect();
        let rank = self.comm.rank();
        if rank != 0 {
            let sends: Vec<(usize, &[u8])> = if holders.contains(&rank) { vec![(0, &own)] } else { Vec::new() };
            self.comm.exchange("parts", &sends, &mut []).map_err(failed)?;
            return Ok(Vec::new());
        }
        let mut came: Vec<Vec<u8>> = holders.iter().map(|_| vec![0; own.len()]).collect();
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        for (&r, bytes) in holders.iter().zip(&mut came) {
            match r {
                0 => bytes.copy_from_slice(&own),
                _ => receives.push((r, bytes)),
            }
        }
        self.comm.exchange("parts", &[], &mut receives).map_err(failed)?;
        let (mut whole, size) = (vec![0; ty.bytes()], ty.dtype.size());
        for (&r, bytes) in holders.iter().zip(&came) {
            each_run(&places(placement, ty, mesh, r), ty, |at, own, n| {
                whole[at * size..(at + n) * size].copy_from_slice(&bytes[own * size..(own + n) * size]);
            });
        }
        Ok(whole)
    }

    /// Whether some rank says so.
    pub(crate) fn any(&self, own: bool) -> Result<bool> {
        let op = Collective::new(CollectiveKind::Max, self.comm.mesh().axes());
        let mut out = [0; 4];
        self.comm.run(&op, &Type::scalar(DType::I32), &i32::from(own).to_le_bytes(), &mut out).map_err(failed)?;
        Ok(out != [0; 4])
    }
}

/// The graph of one rank. Parameters count as each rank's own along the batch: their gradients are parts of a sum, which is
/// taken once for all micro-batches.
fn local(graph: &Graph, mesh: &Mesh, ins: &[Placement], batch: &[MeshAxis], params: usize) -> Result<Graph> {
    let types = graph.input_types();
    let mut ins = ins.to_vec();
    // A key of what is random is the same for all.
    ins.extend(types[ins.len()..].iter().map(|t| Placement { layout: vec![Cut::default(); t.rank()], stored: None }));
    let outs = vec![Some(Spec::replicated()); graph.outputs().len()];
    let found = transform::partition(graph, mesh, &ins, &outs)?;
    let along = mesh.set(batch).map_err(failed)?;
    let mut sets = Vec::new();
    for (i, placement) in ins.iter().enumerate() {
        let own = placement.axes(mesh)?;
        sets.push(if i < params { own.and(along) } else { own });
    }
    let (mut graph, varies) = ir::vary::vary(&found.graph, mesh, &sets)?;
    let mut outputs = graph.outputs().to_vec();
    for (i, set) in varies.iter().enumerate().filter(|(_, set)| !set.is_empty()) {
        if i == 0 {
            return Err(Error::Input(format!(
                "the loss is not one for all ranks of {mesh}: it does not depend on the batch"
            )));
        }
        let worst = Collective::new(CollectiveKind::Max, &mesh.of(*set));
        outputs[i] = graph.push(worst.into(), &[outputs[i]], Default::default())?[0];
    }
    graph.set_outputs(outputs);
    Ok(graph)
}

/// For each axis of a tensor, which of its indices a rank has, in order.
fn places(placement: &Placement, ty: &Type, mesh: &Mesh, rank: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for (d, cut) in placement.layout.iter().enumerate() {
        let (parts, at) = (cut.parts(mesh), mesh.index(rank, &cut.mesh_axes(mesh)));
        let whole = [ty.shape[d]];
        let segments = if cut.segments.is_empty() { &whole[..] } else { &cut.segments };
        let (mut own, mut start) = (Vec::new(), 0);
        for s in segments {
            let each = s / parts;
            own.extend(start + at * each..start + (at + 1) * each);
            start += s;
        }
        if let Some((dim, axes)) = &placement.stored
            && *dim == d
        {
            let parts: usize = axes.iter().map(|a| a.size).product();
            let (each, at) = (own.len() / parts, mesh.index(rank, axes));
            own = own[at * each..(at + 1) * each].to_vec();
        }
        all.push(own);
    }
    all
}

/// Calls `f` with (place in the whole, place in the part, length) for every run of neighbours.
fn each_run(places: &[Vec<usize>], ty: &Type, mut f: impl FnMut(usize, usize, usize)) {
    let strides = ty.strides();
    let Some((last, outer)) = places.split_last() else { return f(0, 0, 1) };
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (own, &at) in last.iter().enumerate() {
        match runs.last_mut() {
            Some((start, _, n)) if *start + *n == at => *n += 1,
            _ => runs.push((at, own, 1)),
        }
    }
    let sizes: Vec<usize> = outer.iter().map(Vec::len).collect();
    let mut row = 0;
    ir::types::for_each_index(&sizes, |index| {
        let base: usize = index.iter().enumerate().map(|(d, &i)| outer[d][i] * strides[d]).sum();
        runs.iter().for_each(|&(at, own, n)| f(base + at, row * last.len() + own, n));
        row += 1;
    });
}

/// The same step with parameters gathered a second time where backward needs them, instead of being kept: a rank then holds
/// few whole parameters at once.
pub(crate) fn gathered_again(graph: &Graph) -> ir::Result<Graph> {
    let nodes = graph.nodes();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.num_values()];
    for (k, node) in nodes.iter().enumerate() {
        node.args.iter().for_each(|a| readers[a.0 as usize].push(k));
    }
    // Where the second group of readers of a gathered value begins.
    let second = |node: &Node| -> Option<usize> {
        let Op::Collective(Collective { kind: CollectiveKind::Gather { same: false, .. }, .. }) = &node.op else {
            return None;
        };
        let read = &readers[node.outs[0].0 as usize];
        let gap = read.windows(2).max_by_key(|w| w[1] - w[0])?;
        (gap[1] - gap[0] > nodes.len() / 16).then_some(gap[1])
    };
    let again: Vec<Option<usize>> = nodes.iter().map(second).collect();
    let mut g = Graph::new();
    let mut map = vec![Value(u32::MAX); graph.num_values()];
    let mut late: Vec<Option<Value>> = vec![None; graph.num_values()];
    for &v in graph.inputs() {
        map[v.0 as usize] = g.input(graph.ty(v).clone());
    }
    for (k, node) in nodes.iter().enumerate() {
        let mut args = Values::new();
        for a in &node.args {
            let from = match graph.def(*a) {
                ir::Def::Node(n, _) => Some(n as usize),
                ir::Def::Input(_) => None,
            };
            let behind = from.and_then(|n| again[n].filter(|at| k >= *at).map(|_| n));
            args.push(match (behind, late[a.0 as usize]) {
                (None, _) => map[a.0 as usize],
                (Some(_), Some(v)) => v,
                (Some(n), None) => {
                    let Op::Collective(c) = &nodes[n].op else { continue };
                    let CollectiveKind::Gather { dim, same, .. } = c.kind else { continue };
                    let op = Collective::new(CollectiveKind::Gather { dim, same, turn: 1 }, &c.axes);
                    let v = g.push(op.into(), &[map[nodes[n].args[0].0 as usize]], nodes[n].loc.clone())?[0];
                    late[a.0 as usize] = Some(v);
                    v
                }
            });
        }
        let op = match &node.op {
            Op::Scan(s) => ir::ops::Scan { body: Arc::new(gathered_again(&s.body)?), ..s.clone() }.into(),
            op => op.clone(),
        };
        let outs = g.push(op, &args, node.loc.clone())?;
        node.outs.iter().zip(outs).for_each(|(v, o)| map[v.0 as usize] = o);
    }
    g.set_outputs(graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    Ok(g)
}

impl Sums {
    /// A gradient summed over the ranks that have a part of the sum.
    pub(crate) fn gradient(&self, b: &mut ir::Builder, i: usize, g: Value) -> ir::Result<Value> {
        match self.gradients.get(i) {
            Some(axes) if !axes.is_empty() => b.psum(g, axes),
            _ => Ok(g),
        }
    }

    /// A sum of squares over the ranks that have parts of the tensor.
    pub(crate) fn squares(&self, b: &mut ir::Builder, i: usize, sum: Value) -> ir::Result<Value> {
        match self.squares.get(i) {
            Some(axes) if !axes.is_empty() => b.psum(sum, axes),
            _ => Ok(sum),
        }
    }
}
