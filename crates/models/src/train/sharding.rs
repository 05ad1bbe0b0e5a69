//! Distributed training: the sharding of parameters, moments and batches over a mesh.
//!
//! | axis | what it divides |
//! | axis | what it shards |
//! | `dp` | the batch; gradients are summed |
//! | `fsdp` | the batch, parameters and moments: parameters are gathered before use, gradients are reduce-scattered |
//! | `tp` | parameters by their `@shard`: columns, rows, heads |
//! | `ep` | the batch, and experts: each rank computes the tokens that are routed to its experts |
//! | `sp` | sequences; attention gathers keys and values |
//! | `pp` | layers, one after another (`pipeline.rs`) |
//!
//! The loss graph is partitioned by [`transform::partition`]; every rank then runs the same program.

use crate::error::{Error, Result};
use crate::param_sharding::{self, ParamInfo, axis_indices, param_sharding};
use dist::Comm;
use ir::ops::{Collective, CollectiveKind};
use ir::{AxisSet, Graph, Mesh, MeshAxis, Node, Op, Spec, Type, Value, Values};
use std::sync::Arc;
use train::GradReduction;
use train::LossGraph;
use train::buckets::overlap_reductions;
use train::shard_ranges::for_each_contiguous_run;
use transform::{DimSharding, Sharding};

/// The sharding of a run's tensors over a mesh.
#[derive(Clone)]
pub(crate) struct ShardingPlan {
    pub(crate) comm: Arc<Comm>,
    /// Sharding of the inputs of the loss: trainable parameters, frozen parameters.
    pub(crate) params: Vec<Sharding>,
    /// Sharding of token IDs and labels.
    pub(crate) batch: Sharding,
    /// The axes over which the gradient reduction may be deferred.
    pub(crate) deferred_axes: Vec<MeshAxis>,
    /// The pipeline stage that alone has a parameter; none if all have it, or if there is no pipeline.
    pub(crate) pipeline_stage: Vec<Option<usize>>,
    pub(crate) sums: GradReduction,
}

/// The axes that shard the rows of a batch, outermost first; the expert axis shards the rows that the others leave.
const BATCH_AXES: [&str; 3] = ["dp", "fsdp", "ep"];

/// All supported axes.
const AXES: [&str; 6] = ["dp", "fsdp", "tp", "ep", "sp", "pp"];

/// The number of row groups with independent expert routing in a batch.
pub(crate) fn num_row_groups(mesh: &Mesh) -> usize {
    mesh.axes().iter().filter(|a| BATCH_AXES[..2].contains(&a.name.as_str())).map(|a| a.size).product()
}

pub(crate) fn failed(p: impl ToString) -> Error {
    Error::Input(p.to_string())
}

impl ShardingPlan {
    /// Partitions a loss graph: its graphs become those of one rank.
    pub(crate) fn of(objective: &mut LossGraph, about: &[ParamInfo], comm: Arc<Comm>) -> Result<ShardingPlan> {
        let mut division = ShardingPlan::plan_sharding(objective, about, comm)?;
        division.shard_parameters(objective);
        let mesh = division.comm.mesh().clone();
        let mut ins = division.params.clone();
        ins.extend([division.batch.clone(), division.batch.clone()]);
        // Gradients are reduced once for all micro-batches, unless rows of different ranks interact: then they are reduced in each.
        let both = |late: &[MeshAxis]| -> Result<(Graph, Graph)> {
            let one = |graph: &Graph| local_loss(graph, &mesh, &ins, late, about.len());
            let loss = one(&objective.loss)?;
            // Most models have no randomness.
            let plain = if objective.eval_loss == objective.loss { loss.clone() } else { one(&objective.eval_loss)? };
            Ok((loss, plain))
        };
        let (graphs, late) = match both(&division.deferred_axes) {
            Ok(graphs) => (graphs, division.deferred_axes.clone()),
            Err(_) => (both(&[])?, Vec::new()),
        };
        (objective.loss, objective.eval_loss) = graphs;
        for placement in division.params.iter().take(objective.trained.len()) {
            let own = mesh.axes_in(placement.axes(&mesh).map_err(failed)?);
            division.sums.gradient_axes.push(late.iter().filter(|a| !own.contains(a)).cloned().collect());
            if !own.is_empty() && !division.sums.all_groups.contains(&own) {
                division.sums.all_groups.push(own.clone());
            }
            division.sums.norm_groups.push(own.clone());
            division.sums.square_axes.push(own);
        }
        Ok(division)
    }

    /// Plans the sharding of parameters and batches, without FSDP.
    pub(crate) fn plan_sharding(objective: &LossGraph, about: &[ParamInfo], comm: Arc<Comm>) -> Result<ShardingPlan> {
        let mesh = comm.mesh().clone();
        if let Some(other) = mesh.axes().iter().find(|a| !AXES.contains(&a.name.as_str()) && a.size > 1) {
            return Err(Error::Input(format!(
                "`--mesh {mesh}`: training does not support axis `{}`; use {}",
                other.name,
                AXES.join(", ")
            )));
        }
        let axis = |name: &str| mesh.axes().iter().position(|a| a.name == name);
        let cut_by: Vec<usize> = BATCH_AXES.iter().filter_map(|name| axis(name)).collect();
        let along: Vec<usize> = axis("sp").into_iter().collect();
        let rows = objective.loss.ty(objective.loss.inputs()[about.len()]).clone();
        let batch = Sharding {
            spec: vec![DimSharding::over_axes(cut_by.clone()), DimSharding::over_axes(along)],
            storage_sharding: None,
        };
        for (cut, size, name) in
            [(&batch.spec[0], rows.shape[0], "micro-batch-size"), (&batch.spec[1], rows.shape[1], "seq-len")]
        {
            if !cut.divides(&mesh, size) {
                let parts = cut.num_shards(&mesh);
                return Err(Error::Input(format!(
                    "`--{name} {size}` is not divisible by {parts}, the number of parts on {mesh}: give a multiple of {parts}"
                )));
            }
        }
        let params =
            about.iter().enumerate().map(|(i, about)| param_sharding(&mesh, &objective.loss, i, *about)).collect();
        let late = cut_by.iter().map(|&a| mesh.axes()[a].clone()).collect();
        Ok(ShardingPlan {
            comm,
            params,
            batch,
            deferred_axes: late,
            pipeline_stage: Vec::new(),
            sums: GradReduction::default(),
        })
    }

    /// Shards stored parameters if the mesh has an axis for it: along the longest axis that can be split evenly, or the first of several.
    pub(crate) fn shard_parameters(&mut self, objective: &LossGraph) {
        let mesh = self.comm.mesh().clone();
        let Some(over) = mesh.axis("fsdp").filter(|a| a.size > 1) else { return };
        for (placement, &v) in self.params.iter_mut().zip(objective.loss.inputs()) {
            let own = placement.local_type(&mesh, objective.loss.ty(v));
            let fit = (0..own.rank()).filter(|&d| own.shape[d] % over.size == 0);
            if let Some(dim) = fit.max_by_key(|&d| (own.shape[d], std::cmp::Reverse(d))) {
                placement.storage_sharding = Some((dim, vec![over.clone()]));
            }
        }
    }

    /// Whether this rank writes files.
    pub(crate) fn is_main_process(&self) -> bool {
        self.comm.rank() == 0
    }

    /// A rank's shard of a full tensor.
    pub(crate) fn local_part(&self, placement: &Sharding, ty: &Type, whole: &[u8]) -> Vec<u8> {
        param_sharding::local_part(placement, ty, self.comm.mesh(), self.comm.rank(), whole)
    }

    /// One rank for each shard of a parameter.
    fn holders(&self, param: usize) -> Result<Vec<usize>> {
        let mesh = self.comm.mesh();
        let cut = self.params[param].axes(mesh).map_err(failed)?;
        let mut same = mesh.axes_in(AxisSet(u32::MAX >> (32 - mesh.axes().len().max(1))).difference(cut));
        let home = self.pipeline_stage.get(param).copied().flatten();
        same.retain(|a| home.is_none() || a.name != "pp");
        let there = |r: &usize| home.is_none_or(|home| mesh.coordinate(*r, "pp") == home);
        Ok((0..mesh.ranks()).filter(|&r| mesh.index(r, &same) == 0).filter(there).collect())
    }

    /// Whether this rank is the first of those that have the same shard.
    pub(crate) fn is_first_holder(&self, param: usize) -> Result<bool> {
        Ok(self.holders(param)?.contains(&self.comm.rank()))
    }

    /// Gathers a full parameter, or a tensor with the same sharding, on rank 0. `own` is this
    /// rank's shard, if it is the first holder of one.
    pub(crate) fn gather_whole(&self, param: usize, ty: &Type, own: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let (mesh, placement) = (self.comm.mesh(), &self.params[param]);
        let holders = self.holders(param)?;
        let rank = self.comm.rank();
        if rank != 0 {
            let sends: Vec<(usize, &[u8])> = match &own {
                Some(own) if holders.contains(&rank) => vec![(0, own)],
                _ => Vec::new(),
            };
            self.comm.send_recv("parts", &sends, &mut []).map_err(failed)?;
            return Ok(Vec::new());
        }
        let bytes = placement.local_type(mesh, ty).bytes();
        let mut came: Vec<Vec<u8>> = holders.iter().map(|_| vec![0; bytes]).collect();
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        for (&r, bytes) in holders.iter().zip(&mut came) {
            match (r, &own) {
                (0, Some(own)) => bytes.copy_from_slice(own),
                _ => receives.push((r, bytes)),
            }
        }
        self.comm.send_recv("parts", &[], &mut receives).map_err(failed)?;
        let (mut whole, size) = (vec![0; ty.bytes()], ty.dtype.size());
        for (&r, bytes) in holders.iter().zip(&came) {
            for_each_contiguous_run(&axis_indices(placement, ty, mesh, r), ty, |at, own, n| {
                whole[at * size..(at + n) * size].copy_from_slice(&bytes[own * size..(own + n) * size]);
            });
        }
        Ok(whole)
    }

    /// Whether the condition is true on any rank.
    pub(crate) fn any_rank(&self, own: bool) -> Result<bool> {
        self.comm.all_reduce_any(own).map_err(failed)
    }
}

/// Partitions a graph for one rank; also returns the sharding of its outputs and the axes over which they vary. Parameters are
/// treated as varying along `late`: their gradients are partial sums, which are reduced later. `given`
/// lists the axes over which the last inputs vary.
pub(crate) fn local_graph(
    graph: &Graph,
    mesh: &Mesh,
    ins: &[Sharding],
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
        sets.push(if i < params { own.union(along) } else { own });
    }
    let first = sets.len() - given.len();
    sets[first..].copy_from_slice(given);
    let (graph, varies) = ir::varying_axes::insert_pvary(&found.graph, mesh, &sets)?;
    Ok((graph, found.outs, varies))
}

/// Partitions a loss for one rank; its result is the same on all ranks.
fn local_loss(graph: &Graph, mesh: &Mesh, ins: &[Sharding], late: &[MeshAxis], params: usize) -> Result<Graph> {
    let types = graph.input_types();
    let mut ins = ins.to_vec();
    // The random key is the same on all ranks.
    ins.extend(
        types[ins.len()..]
            .iter()
            .map(|t| Sharding { spec: vec![DimSharding::default(); t.rank()], storage_sharding: None }),
    );
    let outs = vec![Some(Spec::replicated()); graph.outputs().len()];
    let (mut graph, _, varies) = local_graph(graph, mesh, &ins, &outs, late, params, &[])?;
    let mut outputs = graph.outputs().to_vec();
    for (i, set) in varies.iter().enumerate().filter(|(_, set)| !set.is_empty()) {
        if i == 0 {
            return Err(Error::Input(format!(
                "the loss does not depend on the batch, so it cannot be summed over the ranks of {mesh}"
            )));
        }
        let worst = Collective::new(CollectiveKind::Max, &mesh.axes_in(*set));
        outputs[i] = graph.push(worst.into(), &[outputs[i]], Default::default())?[0];
    }
    graph.set_outputs(outputs);
    Ok(graph)
}

/// The end of the forward pass in the body of a micro-batch loop: the value that is added to the first sum.
fn forward_end(body: &Graph) -> Value {
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

/// Prepares a step for several ranks: regathers sharded parameters, and starts communication as early as possible, unless `waits`.
pub(crate) fn arrange_collectives(graph: &Graph, waits: bool) -> ir::Result<Graph> {
    let graph = regather_parameters(graph, graph.outputs()[0])?;
    if waits { Ok(graph) } else { overlap_reductions(&graph) }
}

/// Gathers parameters again for the backward pass instead of saving them: a rank then holds few full parameters at a time. The
/// backward pass is the part after `end`, the loss.
pub(crate) fn regather_parameters(graph: &Graph, end: Value) -> ir::Result<Graph> {
    let nodes = graph.nodes();
    let limit = match graph.def(end) {
        ir::Def::Node(n, _) => n as usize,
        ir::Def::Input(_) => 0,
    };
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.num_values()];
    for (k, node) in nodes.iter().enumerate() {
        node.args.iter().for_each(|a| readers[a.0 as usize].push(k));
    }
    // The first use of a gathered value after `end`.
    let second = |node: &Node| -> Option<usize> {
        let Op::Collective(Collective { kind: CollectiveKind::AllGather { same: false, .. }, .. }) = &node.op else {
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
                    let CollectiveKind::AllGather { dim, same, .. } = c.kind else { continue };
                    let op = Collective::new(CollectiveKind::AllGather { dim, same, turn: 1 }, &c.axes);
                    let v = g.push(op.into(), &[map[nodes[n].args[0].0 as usize]], nodes[n].loc.clone())?[0];
                    late[a.0 as usize] = Some(v);
                    v
                }
            });
        }
        let op = match &node.op {
            Op::Scan(s) => {
                ir::ops::Scan { body: Arc::new(regather_parameters(&s.body, forward_end(&s.body))?), ..s.clone() }
                    .into()
            }
            op => op.clone(),
        };
        let outs = g.push(op, &args, node.loc.clone())?;
        node.outs.iter().zip(outs).for_each(|(v, o)| map[v.0 as usize] = o);
    }
    g.set_outputs(graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    Ok(g)
}
