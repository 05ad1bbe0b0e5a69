//! The mesh axes over which values vary: a second type besides dtype and shape, for bodies that run on every rank of a mesh.
//!
//! A value varies over an axis if ranks along it may hold different values. An op's results vary over the axes of its operands;
//! collectives change that. A float operand that varies over fewer axes than the result goes through
//! `pvary`, whose transpose is `psum`: so the gradient of a replicated value is summed where necessary, and only there. A
//! missing or additional sum is an error here, not a wrong number later.

use crate::attr::Attr;
use crate::error::{Error, InferError, Result, TypeError};
use crate::graph::{Graph, Loc, Node, Value, Values};
use crate::mesh::{AxisSet, Mesh};
use crate::ops::{Call, Collective, CollectiveKind, Cond, Op, Remat, Scan, While};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inserts `pvary` where necessary, and returns the axes over which each output varies, given those of the inputs.
pub fn insert_pvary(graph: &Graph, mesh: &Mesh, inputs: &[AxisSet]) -> Result<(Graph, Vec<AxisSet>)> {
    write(graph, mesh, inputs, false)
}

/// Like [`insert_pvary`], for a graph that a transform created: there a sum over ranks with equal values is intended, as the
/// transpose of a `pvary` whose uses have a cotangent that does not vary.
pub fn insert_pvary_derived(graph: &Graph, mesh: &Mesh, inputs: &[AxisSet]) -> Result<(Graph, Vec<AxisSet>)> {
    write(graph, mesh, inputs, true)
}

fn write(graph: &Graph, mesh: &Mesh, inputs: &[AxisSet], derived: bool) -> Result<(Graph, Vec<AxisSet>)> {
    if inputs.len() != graph.inputs().len() {
        return Err(Error::Invalid(format!("{} sets of axes for {} inputs", inputs.len(), graph.inputs().len())));
    }
    let slots = vec![None; graph.num_values()];
    let mut w = PvaryInserter { mesh, from_transform: derived, g: Graph::new(), slots, pvaried: BTreeMap::new() };
    for (&v, &set) in graph.inputs().iter().zip(inputs) {
        let own = w.g.input(graph.ty(v).clone());
        w.slots[v.0 as usize] = Some(Slot { value: own, set, fixed: false });
    }
    let live = graph.live_values();
    for node in graph.nodes() {
        if node.outs.iter().any(|v| live[v.0 as usize]) {
            w.node(graph, node).map_err(|e| e.at(&node.loc))?;
        }
    }
    let outs: Vec<Slot> = graph.outputs().iter().map(|&v| w.slot(v)).collect();
    w.g.set_outputs(outs.iter().map(|s| s.value).collect::<Vec<_>>());
    Ok((w.g, outs.iter().map(|s| s.set).collect()))
}

/// The mesh axes over which ranks communicate in a graph.
pub fn communicates_over(graph: &Graph, mesh: &Mesh) -> Result<AxisSet> {
    fn within(attr: &Attr, mesh: &Mesh) -> Result<AxisSet> {
        match attr {
            Attr::Graph(g) => communicates_over(g, mesh),
            Attr::List(items) => items.iter().try_fold(AxisSet::default(), |s, a| Ok(s.union(within(a, mesh)?))),
            _ => Ok(AxisSet::default()),
        }
    }
    let mut set = AxisSet::default();
    for node in graph.nodes() {
        match &node.op {
            Op::Collective(c) if c.communicates() => {
                set = set.union(mesh.set(&c.axes).map_err(|p| problem(&node.op, p))?);
            }
            Op::Call(_) | Op::Remat(_) | Op::Scan(_) | Op::Cond(_) | Op::While(_) | Op::ShardMap(_) => {
                for (_, attr) in node.op.attrs() {
                    set = set.union(within(&attr, mesh)?);
                }
            }
            _ => {}
        }
    }
    Ok(set)
}

fn problem(op: &Op, problem: InferError) -> Error {
    Error::Type(Box::new(TypeError { op: op.name().to_string(), operands: Vec::new(), problem, loc: Loc::Unknown }))
}

#[derive(Clone, Copy)]
struct Slot {
    value: Value,
    set: AxisSet,
    /// Whether it is computed only from constants: it has no gradient, so it needs no `pvary`.
    fixed: bool,
}

struct PvaryInserter<'a> {
    mesh: &'a Mesh,
    /// Whether a transform created the graph.
    from_transform: bool,
    g: Graph,
    slots: Vec<Option<Slot>>,
    /// The results of `pvary` by operand, so that each gradient is summed once.
    pvaried: BTreeMap<(Value, u32), Value>,
}

impl PvaryInserter<'_> {
    fn slot(&self, old: Value) -> Slot {
        self.slots[old.0 as usize].expect("operands come first")
    }

    fn names(&self, set: AxisSet) -> String {
        let names: Vec<String> = self.mesh.axes_in(set).iter().map(|a| format!("`{}`", a.name)).collect();
        names.join(", ")
    }

    /// Makes a value vary over `want` at least.
    fn vary_over(&mut self, slot: Slot, want: AxisSet) -> Result<Slot> {
        let missing = want.difference(slot.set);
        if missing.is_empty() || slot.fixed || !self.g.ty(slot.value).dtype.is_float() {
            return Ok(Slot { set: slot.set.union(want), ..slot });
        }
        self.widen_always(slot, missing)
    }

    fn widen_always(&mut self, slot: Slot, missing: AxisSet) -> Result<Slot> {
        let value = match self.pvaried.get(&(slot.value, missing.0)) {
            Some(v) => *v,
            None => {
                let op = Collective::new(CollectiveKind::PVary, &self.mesh.axes_in(missing));
                let v = self.g.push(op.into(), &[slot.value], Loc::Unknown)?[0];
                self.pvaried.insert((slot.value, missing.0), v);
                v
            }
        };
        Ok(Slot { value, set: slot.set.union(missing), fixed: false })
    }

    fn put(&mut self, node: &Node, op: Op, args: &[Slot], sets: &[AxisSet]) -> Result<()> {
        let values: Values = args.iter().map(|s| s.value).collect();
        let fixed = args.iter().all(|s| s.fixed) && sets.iter().all(|s| s.is_empty());
        let outs = self.g.push(op, &values, node.loc.clone())?;
        for ((old, value), set) in node.outs.iter().zip(outs).zip(sets) {
            self.slots[old.0 as usize] = Some(Slot { value, set: *set, fixed });
        }
        Ok(())
    }

    fn node(&mut self, graph: &Graph, node: &Node) -> Result<()> {
        let args: Vec<Slot> = node.args.iter().map(|&v| self.slot(v)).collect();
        match &node.op {
            Op::Collective(c) => self.collective(graph, node, c, args),
            Op::Call(c) => self.body(node, &c.body, args, |g| Call::new(g).into()),
            Op::Remat(r) => {
                let policy = r.policy.clone();
                self.body(node, &r.body, args, |g| Remat::with_policy(g, policy).into())
            }
            Op::Scan(s) => self.scan(node, s, args),
            Op::Cond(c) => self.cond(node, c, args),
            Op::While(l) => self.while_loop(node, l, args),
            Op::ShardMap(_) => {
                Err(problem(&node.op, InferError::other("shard_map cannot be nested; put all axes into one mesh")))
            }
            op => {
                let all = args.iter().fold(AxisSet::default(), |s, a| s.union(a.set));
                let wide: Vec<Slot> = args.into_iter().map(|a| self.vary_over(a, all)).collect::<Result<_>>()?;
                self.put(node, op.clone(), &wide, &vec![all; node.outs.len()])
            }
        }
    }

    fn collective(&mut self, graph: &Graph, node: &Node, c: &Collective, args: Vec<Slot>) -> Result<()> {
        let refuse = |text: String| {
            let operands = node.args.iter().map(|&v| graph.ty(v).clone()).collect();
            let (op, problem, loc) = (node.op.name().to_string(), InferError::Other(text), node.loc.clone());
            Err(Error::Type(Box::new(TypeError { op, operands, problem, loc })))
        };
        let axes = self.mesh.set(&c.axes).map_err(|p| problem(&node.op, p))?;
        let Some(&x) = args.first() else {
            return self.put(node, node.op.clone(), &[], &[axes]);
        };
        let missing = axes.difference(x.set);
        let (x, set) = match &c.kind {
            CollectiveKind::Sum | CollectiveKind::ReduceScatter { .. }
                if !missing.is_empty() && !x.fixed && !self.from_transform =>
            {
                return refuse(format!(
                    "the operand does not vary over {}: all ranks have the same value, and their sum would be a \
                     multiple of it; remove the axis, or use `pvary` if this is intended",
                    self.names(missing)
                ));
            }
            CollectiveKind::Sum | CollectiveKind::Max | CollectiveKind::Min => {
                let x = if missing.is_empty() { x } else { self.widen_always(x, missing)? };
                (x, x.set.difference(axes))
            }
            CollectiveKind::AllGather { same, .. } => {
                let x = if missing.is_empty() { x } else { self.widen_always(x, missing)? };
                (x, if *same { x.set.difference(axes) } else { x.set })
            }
            CollectiveKind::ReduceScatter { .. } | CollectiveKind::AllToAll { .. } | CollectiveKind::Permute { .. } => {
                let x = if missing.is_empty() { x } else { self.widen_always(x, missing)? };
                (x, x.set)
            }
            CollectiveKind::PVary | CollectiveKind::ShardSlice { .. } => {
                let twice = axes.intersection(x.set);
                if !twice.is_empty() {
                    return refuse(format!(
                        "the operand already varies over {}; only a replicated value can be marked as varying",
                        self.names(twice)
                    ));
                }
                (x, x.set.union(axes))
            }
            CollectiveKind::AxisIndex => (x, axes),
        };
        self.put(node, node.op.clone(), &[x], &[set])
    }

    fn body(&mut self, node: &Node, body: &Graph, args: Vec<Slot>, wrap: impl FnOnce(Graph) -> Op) -> Result<()> {
        let sets: Vec<AxisSet> = args.iter().map(|a| a.set).collect();
        let (args, sets) = self.hoist_pvary(body, args, sets)?;
        let (body, outs) = write(body, self.mesh, &sets, self.from_transform)?;
        self.put(node, wrap(body), &args, &outs)
    }

    /// Moves a `pvary` of operands out of a body, so that their gradients are summed once.
    fn hoist_pvary(&mut self, body: &Graph, args: Vec<Slot>, sets: Vec<AxisSet>) -> Result<(Vec<Slot>, Vec<AxisSet>)> {
        let (inner, _) = write(body, self.mesh, &sets, self.from_transform)?;
        let mut wanted = sets;
        // Operands for which the body already contains a `pvary`.
        let own: Vec<usize> = (body.nodes().iter())
            .filter(|n| matches!(&n.op, Op::Collective(c) if c.kind == CollectiveKind::PVary))
            .filter_map(|n| body.inputs().iter().position(|v| *v == n.args[0]))
            .collect();
        for node in inner.nodes() {
            if let (Op::Collective(c), Some(a)) = (&node.op, node.args.first())
                && c.kind == CollectiveKind::PVary
                && let Some(i) = inner.inputs().iter().position(|v| v == a)
                && !own.contains(&i)
            {
                wanted[i] = wanted[i].union(self.mesh.set(&c.axes).map_err(|p| problem(&node.op, p))?);
            }
        }
        let args = args.into_iter().zip(&wanted).map(|(a, w)| self.vary_over(a, *w)).collect::<Result<_>>()?;
        Ok((args, wanted))
    }

    /// Processes a body whose first outputs are carries: they vary over the axes of their initial and of their next values. The
    /// inputs of the body are `consts` others, then the carries, then others.
    fn carried(&self, body: &Graph, mut sets: Vec<AxisSet>, consts: usize, carries: usize) -> Result<Carried> {
        loop {
            let (inner, outs) = write(body, self.mesh, &sets, self.from_transform)?;
            let grown = (0..carries).any(|i| !sets[consts + i].contains_all(outs[i]));
            if !grown {
                let wanted: Vec<AxisSet> =
                    (0..outs.len()).map(|i| if i < carries { sets[consts + i] } else { outs[i] }).collect();
                return Ok(Carried { body: widened(self.mesh, inner, &outs, &wanted)?, sets, outs: wanted });
            }
            for i in 0..carries {
                sets[consts + i] = sets[consts + i].union(outs[i]);
            }
        }
    }

    fn scan(&mut self, node: &Node, s: &Scan, mut args: Vec<Slot>) -> Result<()> {
        let count = s.bounded.then(|| args.remove(0));
        let over = communicates_over(&s.body, self.mesh)?;
        if let Some(n) = count.filter(|n| !n.set.intersection(over).is_empty()) {
            return Err(problem(
                &node.op,
                InferError::other(format!(
                    "the number of iterations varies over {}, but the body communicates over it: ranks would deadlock",
                    self.names(n.set.intersection(over))
                )),
            ));
        }
        let mut sets: Vec<AxisSet> = args.iter().map(|a| a.set).collect();
        if let Some(n) = count {
            // Carries also vary over the axes of the trip count.
            sets.iter_mut().for_each(|set| *set = set.union(n.set));
        }
        let found = self.carried(&s.body, sets, s.consts, s.carries)?;
        let (_, wanted) = self.hoist_pvary(&found.body, args.clone(), found.sets)?;
        let found = self.carried(&s.body, wanted, s.consts, s.carries)?;
        let mut all: Vec<Slot> = count.into_iter().collect();
        for (a, w) in args.into_iter().zip(&found.sets) {
            all.push(self.vary_over(a, *w)?);
        }
        let scan = Scan { body: Arc::new(found.body), ..s.clone() };
        self.put(node, scan.into(), &all, &found.outs)
    }

    fn cond(&mut self, node: &Node, c: &Cond, args: Vec<Slot>) -> Result<()> {
        let index = args[0];
        for b in &c.branches {
            let over = communicates_over(b, self.mesh)?.intersection(index.set);
            if !over.is_empty() {
                return Err(problem(
                    &node.op,
                    InferError::other(format!(
                        "the branch index varies over {}, but a branch communicates over it: ranks would deadlock",
                        self.names(over)
                    )),
                ));
            }
        }
        let mut all = vec![index];
        for &a in &args[1..] {
            all.push(self.vary_over(a, index.set)?);
        }
        let sets: Vec<AxisSet> = all[1..].iter().map(|a| a.set).collect();
        let found =
            c.branches.iter().map(|b| write(b, self.mesh, &sets, self.from_transform)).collect::<Result<Vec<_>>>()?;
        let outs: Vec<AxisSet> =
            (0..node.outs.len()).map(|o| found.iter().fold(index.set, |s, (_, outs)| s.union(outs[o]))).collect();
        let mut branches = Vec::new();
        for (body, have) in found {
            branches.push(widened(self.mesh, body, &have, &outs)?);
        }
        self.put(node, Cond::new(branches).into(), &all, &outs)
    }

    fn while_loop(&mut self, node: &Node, l: &While, args: Vec<Slot>) -> Result<()> {
        let (nc, nb) = (l.cond_consts, l.body_consts);
        let mut carries: Vec<AxisSet> = args[nc + nb..].iter().map(|a| a.set).collect();
        let cond_sets: Vec<AxisSet> = args[..nc].iter().map(|a| a.set).collect();
        let body_sets: Vec<AxisSet> = args[nc..nc + nb].iter().map(|a| a.set).collect();
        loop {
            let (cond, flag) = write(&l.cond, self.mesh, &[&cond_sets[..], &carries].concat(), self.from_transform)?;
            let found = self.carried(&l.body, [&body_sets[..], &carries].concat(), nb, carries.len())?;
            let next: Vec<AxisSet> = found.sets[nb..].iter().map(|s| s.union(flag[0])).collect();
            if next != carries {
                carries = next;
                continue;
            }
            let over = communicates_over(&l.body, self.mesh)?
                .union(communicates_over(&l.cond, self.mesh)?)
                .intersection(flag[0]);
            if !over.is_empty() {
                return Err(problem(
                    &node.op,
                    InferError::other(format!(
                        "the loop condition varies over {}, but the loop communicates over it: ranks would deadlock",
                        self.names(over)
                    )),
                ));
            }
            let mut all = args[..nc + nb].to_vec();
            for (a, w) in args[nc + nb..].iter().zip(&carries) {
                all.push(self.vary_over(*a, *w)?);
            }
            let op = While::new(nc, nb, cond, found.body);
            return self.put(node, op.into(), &all, &carries);
        }
    }
}

struct Carried {
    body: Graph,
    sets: Vec<AxisSet>,
    outs: Vec<AxisSet>,
}

/// Makes the outputs of a graph vary over `want`.
fn widened(mesh: &Mesh, mut graph: Graph, have: &[AxisSet], want: &[AxisSet]) -> Result<Graph> {
    let mut outs = graph.outputs().to_vec();
    for (i, out) in outs.iter_mut().enumerate() {
        let missing = want[i].difference(have[i]);
        if !missing.is_empty() && graph.ty(*out).dtype.is_float() {
            let op = Collective::new(CollectiveKind::PVary, &mesh.axes_in(missing));
            *out = graph.push(op.into(), &[*out], Loc::Unknown)?[0];
        }
    }
    graph.set_outputs(outs);
    Ok(graph)
}
