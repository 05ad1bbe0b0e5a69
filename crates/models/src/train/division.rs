//! Training on several ranks: how parameters, moments and batches are divided over a mesh.
//!
//! | axis | what it divides |
//! | --- | --- |
//! | `dp` | the batch; gradients are summed |
//! | `fsdp` | the batch, and parameters and moments too: gathered where they are used, gradients come summed and in parts |
//! | `tp` | parameters as their `@shard` says: columns, rows, heads |
//! | `ep` | the batch, and experts: each rank computes those tokens that are its experts' |
//! | `sp` | sequences; attention gathers keys and values |
//! | `pp` | layers, one after another (`pipeline.rs`) |
//!
//! The loss graph is divided by [`transform::partition`]; every rank then runs one program, and its steps are the same on all.

use crate::error::{Error, Result};
use crate::placing::{self, About, by_shard, places};
use dist::Comm;
use ir::ops::{Collective, CollectiveKind};
use ir::{AxisSet, Graph, Mesh, MeshAxis, Node, Op, Spec, Type, Value, Values};
use std::sync::Arc;
use train::Objective;
use train::Sums;
use train::buckets::early;
use train::places::each_run;
use transform::{Cut, Placement};

/// How a run's tensors lie on the ranks of a mesh.
#[derive(Clone)]
pub(crate) struct Division {
    pub(crate) comm: Arc<Comm>,
    /// Of the inputs of the loss: trained, fixed.
    pub(crate) params: Vec<Placement>,
    /// Of ids and labels.
    pub(crate) batch: Placement,
    /// The axes over which gradients may be summed late.
    pub(crate) late: Vec<MeshAxis>,
    /// The stage of a pipeline that alone has a parameter; none where all have, or there is no pipeline.
    pub(crate) homes: Vec<Option<usize>>,
    pub(crate) sums: Sums,
}

/// The axes that divide the rows of a batch, outermost first: an axis of experts shares what the others leave together.
const BATCH: [&str; 3] = ["dp", "fsdp", "ep"];

/// All axes that training knows.
const AXES: [&str; 6] = ["dp", "fsdp", "tp", "ep", "sp", "pp"];

/// Into how many groups of rows a batch falls whose tokens never meet: those of experts are sorted within a group.
pub(crate) fn groups(mesh: &Mesh) -> usize {
    mesh.axes().iter().filter(|a| BATCH[..2].contains(&a.name.as_str())).map(|a| a.size).product()
}

pub(crate) fn failed(p: impl ToString) -> Error {
    Error::Input(p.to_string())
}

impl Division {
    /// Divides an objective: its graphs become those of one rank.
    pub(crate) fn of(objective: &mut Objective, about: &[About], comm: Arc<Comm>) -> Result<Division> {
        let mut division = Division::plan(objective, about, comm)?;
        division.store(objective);
        let mesh = division.comm.mesh().clone();
        let mut ins = division.params.clone();
        ins.extend([division.batch.clone(), division.batch.clone()]);
        // Gradients are summed once for all micro-batches, unless rows of different ranks meet somewhere: then where they arise.
        let both = |late: &[MeshAxis]| -> Result<(Graph, Graph)> {
            let one = |graph: &Graph| whole_loss(graph, &mesh, &ins, late, about.len());
            let loss = one(&objective.loss)?;
            // Most models have nothing random in them.
            let plain = if objective.plain == objective.loss { loss.clone() } else { one(&objective.plain)? };
            Ok((loss, plain))
        };
        let (graphs, late) = match both(&division.late) {
            Ok(graphs) => (graphs, division.late.clone()),
            Err(_) => (both(&[])?, Vec::new()),
        };
        (objective.loss, objective.plain) = graphs;
        for placement in division.params.iter().take(objective.trained.len()) {
            let own = mesh.of(placement.axes(&mesh).map_err(failed)?);
            division.sums.gradients.push(late.iter().filter(|a| !own.contains(a)).cloned().collect());
            if !own.is_empty() && !division.sums.all.contains(&own) {
                division.sums.all.push(own.clone());
            }
            division.sums.groups.push(own.clone());
            division.sums.squares.push(own);
        }
        Ok(division)
    }

    /// How parameters and batches are cut; nothing is stored in parts yet.
    pub(crate) fn plan(objective: &Objective, about: &[About], comm: Arc<Comm>) -> Result<Division> {
        let mesh = comm.mesh().clone();
        if let Some(other) = mesh.axes().iter().find(|a| !AXES.contains(&a.name.as_str()) && a.size > 1) {
            return Err(Error::Input(format!(
                "`--mesh {mesh}`: training has no axis `{}`; it divides by {}",
                other.name,
                AXES.join(", ")
            )));
        }
        let axis = |name: &str| mesh.axes().iter().position(|a| a.name == name);
        let cut_by: Vec<usize> = BATCH.iter().filter_map(|name| axis(name)).collect();
        let along: Vec<usize> = axis("sp").into_iter().collect();
        let rows = objective.loss.ty(objective.loss.inputs()[about.len()]).clone();
        let batch = Placement { layout: vec![Cut::by(cut_by.clone()), Cut::by(along)], stored: None };
        for (cut, size, name) in [(&batch.layout[0], rows.shape[0], "batch"), (&batch.layout[1], rows.shape[1], "seq")]
        {
            if !cut.fits(&mesh, size) {
                let parts = cut.parts(&mesh);
                return Err(Error::Input(format!(
                    "`--{name} {size}` can't be divided among {parts} ranks of {mesh}: give a multiple of {parts}"
                )));
            }
        }
        let params = about.iter().enumerate().map(|(i, about)| by_shard(&mesh, &objective.loss, i, *about)).collect();
        let late = cut_by.iter().map(|&a| mesh.axes()[a].clone()).collect();
        Ok(Division { comm, params, batch, late, homes: Vec::new(), sums: Sums::default() })
    }

    /// Parameters are stored in parts where the mesh has an axis for that: along the longest axis that can be cut, the first of
    /// those.
    pub(crate) fn store(&mut self, objective: &Objective) {
        let mesh = self.comm.mesh().clone();
        let Some(over) = mesh.axis("fsdp").filter(|a| a.size > 1) else { return };
        for (placement, &v) in self.params.iter_mut().zip(objective.loss.inputs()) {
            let own = placement.local(&mesh, objective.loss.ty(v));
            let fit = (0..own.rank()).filter(|&d| own.shape[d] % over.size == 0);
            if let Some(dim) = fit.max_by_key(|&d| (own.shape[d], std::cmp::Reverse(d))) {
                placement.stored = Some((dim, vec![over.clone()]));
            }
        }
    }

    /// The rank that writes files.
    pub(crate) fn leads(&self) -> bool {
        self.comm.rank() == 0
    }

    /// A rank's part of a whole tensor.
    pub(crate) fn part(&self, placement: &Placement, ty: &Type, whole: &[u8]) -> Vec<u8> {
        placing::part(placement, ty, self.comm.mesh(), self.comm.rank(), whole)
    }

    /// The ranks that have a parameter, one for each part.
    fn holders(&self, param: usize) -> Result<Vec<usize>> {
        let mesh = self.comm.mesh();
        let cut = self.params[param].axes(mesh).map_err(failed)?;
        let mut same = mesh.of(AxisSet(u32::MAX >> (32 - mesh.axes().len().max(1))).without(cut));
        let home = self.homes.get(param).copied().flatten();
        same.retain(|a| home.is_none() || a.name != "pp");
        let there = |r: &usize| home.is_none_or(|home| mesh.coordinate(*r, "pp") == home);
        Ok((0..mesh.ranks()).filter(|&r| mesh.index(r, &same) == 0).filter(there).collect())
    }

    /// Whether this rank is the first of those that have the same part.
    pub(crate) fn holds(&self, param: usize) -> Result<bool> {
        Ok(self.holders(param)?.contains(&self.comm.rank()))
    }

    /// The whole of a parameter, or what is divided like it, of which each rank has its part: on rank 0, from all that have one of
    /// their own. `own` is the rank's, if it has one.
    pub(crate) fn whole(&self, param: usize, ty: &Type, own: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let (mesh, placement) = (self.comm.mesh(), &self.params[param]);
        let holders = self.holders(param)?;
        let rank = self.comm.rank();
        if rank != 0 {
            let sends: Vec<(usize, &[u8])> = match &own {
                Some(own) if holders.contains(&rank) => vec![(0, own)],
                _ => Vec::new(),
            };
            self.comm.exchange("parts", &sends, &mut []).map_err(failed)?;
            return Ok(Vec::new());
        }
        let bytes = placement.local(mesh, ty).bytes();
        let mut came: Vec<Vec<u8>> = holders.iter().map(|_| vec![0; bytes]).collect();
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        for (&r, bytes) in holders.iter().zip(&mut came) {
            match (r, &own) {
                (0, Some(own)) => bytes.copy_from_slice(own),
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
        self.comm.any(own).map_err(failed)
    }
}

/// The graph of one rank, with how its outputs are cut and over which axes they vary. Parameters count as each rank's own along
/// `late`: their gradients are parts of a sum, which is taken later. `given` says over which axes the last inputs vary.
pub(crate) fn local(
    graph: &Graph,
    mesh: &Mesh,
    ins: &[Placement],
    outs: &[Option<Spec>],
    late: &[MeshAxis],
    params: usize,
    given: &[AxisSet],
) -> Result<(Graph, Vec<Spec>, Vec<AxisSet>)> {
    let found = transform::partition(graph, mesh, ins, outs)?;
    let along = mesh.set(late).map_err(failed)?;
    let mut sets = Vec::new();
    for (i, placement) in ins.iter().enumerate() {
        let own = placement.axes(mesh)?;
        sets.push(if i < params { own.and(along) } else { own });
    }
    let first = sets.len() - given.len();
    sets[first..].copy_from_slice(given);
    let (graph, varies) = ir::vary::vary(&found.graph, mesh, &sets)?;
    Ok((graph, found.outs, varies))
}

/// The graph of one rank of a loss, the same on all.
fn whole_loss(graph: &Graph, mesh: &Mesh, ins: &[Placement], late: &[MeshAxis], params: usize) -> Result<Graph> {
    let types = graph.input_types();
    let mut ins = ins.to_vec();
    // A key of what is random is the same for all.
    ins.extend(types[ins.len()..].iter().map(|t| Placement { layout: vec![Cut::default(); t.rank()], stored: None }));
    let outs = vec![Some(Spec::replicated()); graph.outputs().len()];
    let (mut graph, _, varies) = local(graph, mesh, &ins, &outs, late, params, &[])?;
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

/// Where the forward part of a loop over micro-batches ends: at what is added to its first sum.
fn end_of(body: &Graph) -> Value {
    let mut v = body.outputs()[0];
    while let Some(node) = body.node_of(v) {
        let given = |a: &Value| matches!(body.def(*a), ir::Def::Input(_));
        match (&node.op, &node.args[..]) {
            (Op::Binary(_), [a, b]) if given(a) && !given(b) => v = *b,
            _ => break,
        }
    }
    v
}

/// A step as ranks run it: what is stored in parts is gathered again, and talk begins as early as it can, unless ranks wait.
pub(crate) fn arranged(graph: &Graph, waits: bool) -> ir::Result<Graph> {
    let graph = gathered_again(graph, graph.outputs()[0])?;
    if waits { Ok(graph) } else { early(&graph) }
}

/// The same step with parameters gathered a second time where backward needs them, instead of being kept: a rank then holds
/// few whole parameters at once. Backward is what comes behind `end`, the loss.
pub(crate) fn gathered_again(graph: &Graph, end: Value) -> ir::Result<Graph> {
    let nodes = graph.nodes();
    let limit = match graph.def(end) {
        ir::Def::Node(n, _) => n as usize,
        ir::Def::Input(_) => 0,
    };
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.num_values()];
    for (k, node) in nodes.iter().enumerate() {
        node.args.iter().for_each(|a| readers[a.0 as usize].push(k));
    }
    // The first reader of a gathered value behind the end.
    let second = |node: &Node| -> Option<usize> {
        let Op::Collective(Collective { kind: CollectiveKind::Gather { same: false, .. }, .. }) = &node.op else {
            return None;
        };
        let read = &readers[node.outs[0].0 as usize];
        read.iter().copied().find(|k| *k > limit).filter(|_| read.iter().any(|k| *k <= limit))
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
            Op::Scan(s) => {
                ir::ops::Scan { body: Arc::new(gathered_again(&s.body, end_of(&s.body))?), ..s.clone() }.into()
            }
            op => op.clone(),
        };
        let outs = g.push(op, &args, node.loc.clone())?;
        node.outs.iter().zip(outs).for_each(|(v, o)| map[v.0 as usize] = o);
    }
    g.set_outputs(graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    Ok(g)
}
