//! Decides which values are materialized in memory, and which are computed in one kernel.
//!
//! A value is *needed* when it must exist in memory: graph results, operands of ops that are not scalar expressions, results of
//! reductions, and expensive values with several consumers. All other values are computed inline where they are used. A needed
//! value then joins the group of a value it reads, if the domains fit, the dependency graph stays acyclic, and the
//! combined kernel can be generated.

use super::generate::{LowerFailure, ValueSource, uniform};
use super::lower::{Group, Root, ValueRole, lower};
use crate::target::{LoopSchedule, Target};
use ir::ops::Indexing;
use ir::{Graph, Node, Op, Semantics, Shape, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The maximum depth of inlined chains; a value in memory breaks longer ones.
const MAX_DEPTH: u32 = 120;
const MAX_COST: u32 = 4000;
/// The minimum length of the innermost loop for which a kernel accepts a value of another shape.
const MIN_VECTOR_RUN: i64 = 128;

/// A unit of execution.
#[derive(Clone, Debug)]
pub(crate) enum FusionUnit {
    /// Fused kernels.
    Group(Group),
    /// A node that is lowered separately.
    Standalone(usize),
}

/// The units of a graph in execution order, and the values in memory.
pub(crate) struct FusionPlan {
    pub(crate) order: Vec<FusionUnit>,
    pub(crate) in_memory: Vec<bool>,
    /// The values that could not be fused with a related unit, and why.
    pub(crate) unfused: Vec<Unfused>,
}

/// A value that was not fused into a unit.
#[derive(Clone, Debug)]
pub(crate) struct Unfused {
    pub(crate) value: Value,
    /// A value of that unit.
    pub(crate) other: Value,
    pub(crate) reason: UnfusedReason,
}

/// Why a value was not fused into a unit.
#[derive(Clone, Debug)]
pub(crate) enum UnfusedReason {
    TooManyResults(usize),
    DomainMismatch,
    Cycle,
    CheaperToRecompute,
    NoFuse,
    ShortInnerLoop,
    LowerFailed(LowerFailure),
    TooManyBuffers(usize),
}

impl std::fmt::Display for UnfusedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UnfusedReason::TooManyResults(n) => return write!(f, "a kernel has at most {n} results"),
            UnfusedReason::DomainMismatch => "they run over different elements",
            UnfusedReason::Cycle => "a step between them needs one and gives the other",
            UnfusedReason::CheaperToRecompute => {
                "one computes again what the other computes, so that it need not be kept"
            }
            UnfusedReason::NoFuse => "it is asked for by itself",
            UnfusedReason::ShortInnerLoop => "together they would run over few elements at a time",
            UnfusedReason::LowerFailed(LowerFailure::Mismatch) => {
                "one is needed at other elements than the one being computed"
            }
            UnfusedReason::LowerFailed(LowerFailure::Refine(_)) => "no division of the loops fits both",
            UnfusedReason::LowerFailed(LowerFailure::NotScalar) => "an op on the way is no scalar expression",
            UnfusedReason::TooManyBuffers(n) => return write!(f, "a kernel has at most {n} buffers"),
        })
    }
}

/// The role of a node in fusion.
#[derive(Clone, Copy, PartialEq)]
enum NodeKind {
    Scalar,
    Reduce,
    Memory,
    Standalone,
}

fn kind(node: &Node, target: &Target) -> NodeKind {
    match node.op.semantics() {
        _ if has_many_concat_operands(node, target) => NodeKind::Standalone,
        Semantics::Elementwise(_) | Semantics::View(_) | Semantics::Index(_) => NodeKind::Scalar,
        Semantics::Constant => match &node.op {
            Op::Const(c) if uniform(&c.0).is_none() => NodeKind::Memory,
            _ => NodeKind::Scalar,
        },
        Semantics::Reduce(..) => NodeKind::Reduce,
        Semantics::DotGeneral(_) | Semantics::Inline(_) | Semantics::Opaque => NodeKind::Standalone,
    }
}

/// Whether a concatenation has too many operands for one kernel, so that they are copied one after the other.
fn has_many_concat_operands(node: &Node, target: &Target) -> bool {
    let few = matches!(target.schedule, LoopSchedule::Workers(_));
    few && matches!(node.op, Op::Concat(_)) && node.args.len() > target.kernel.max_space_splits / 2
}

/// Whether a value is an elementwise function of others, or a view.
pub(crate) fn in_place(node: &Node) -> bool {
    matches!(node.op.semantics(), Semantics::Elementwise(_) | Semantics::View(_)) && !is_nofuse(node)
}

/// Whether a value must be stored, with no fusion across it.
fn is_nofuse(node: &Node) -> bool {
    matches!(&node.op, Op::Name(name) if name.is_nofuse())
}

/// Whether a node is a separate step.
pub(crate) fn is_standalone(node: &Node, target: &Target) -> bool {
    kind(node, target) == NodeKind::Standalone
}

struct Grouping<'a> {
    graph: &'a Graph,
    target: &'a Target,
    needed: Vec<bool>,
    /// The unit that computes each needed value.
    unit_of: Vec<Option<usize>>,
    units: Vec<FusionUnit>,
    /// The units that each unit depends on, and the units that depend on it.
    deps: Vec<Vec<usize>>,
    users: Vec<Vec<usize>>,
    /// The latest unit among each unit and its dependencies; later units need no search.
    latest: Vec<usize>,
    /// The needed values that each root reads.
    reads: BTreeMap<Value, Vec<Value>>,
    /// Value numbers: values with equal expressions have equal numbers.
    value_number: Vec<u32>,
    /// The values that each unit computes, by value number.
    computes: Vec<FxHashMap<u32, Value>>,
    unfused: Vec<Unfused>,
}

/// Divides a graph into fusion units. `operand_base` returns the value that an op needs in memory for an operand (the operand
/// itself, or the base of a strided view), or none if the op computes the operand while it reads it. `replaced` are pairs of an
/// input and an output that is written over it: where possible, the consumers of the input run first.
pub(crate) fn plan_fusion(
    graph: &Graph,
    operand_base: &dyn Fn(&Node, usize) -> Option<Value>,
    replaced: &[(Value, Value)],
    target: &Target,
) -> FusionPlan {
    let live = graph.live_values();
    let (needed, _) = materialized_values(graph, &live, operand_base, target);
    let n = graph.num_values();
    let mut g = Grouping {
        graph,
        target,
        needed,
        unit_of: vec![None; n],
        units: Vec::new(),
        deps: Vec::new(),
        users: Vec::new(),
        latest: Vec::new(),
        reads: BTreeMap::new(),
        value_number: number_values(graph, target),
        computes: Vec::new(),
        unfused: Vec::new(),
    };
    for (k, node) in graph.nodes().iter().enumerate() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        match kind(node, target) {
            NodeKind::Memory => {}
            NodeKind::Standalone => {
                let reads = g.standalone_reads(node, operand_base);
                g.new_unit(FusionUnit::Standalone(k), &node.outs, &reads);
            }
            NodeKind::Scalar | NodeKind::Reduce => {
                for &v in &node.outs {
                    if g.needed[v.0 as usize] && live[v.0 as usize] {
                        g.root(v, node);
                    }
                }
            }
        }
    }
    g.replace_last(replaced, operand_base);
    g.finish(operand_base)
}

/// Decides which values are kept in memory, and computes the cost of inlining each other value.
pub(crate) fn materialized_values(
    graph: &Graph,
    live: &[bool],
    operand_base: &dyn Fn(&Node, usize) -> Option<Value>,
    target: &Target,
) -> (Vec<bool>, Vec<u32>) {
    let costly = target.recompute.max_duplicate_cost;
    let n = graph.num_values();
    let mut needed = vec![false; n];
    let mut uses = vec![0u32; n];
    for v in graph.inputs() {
        needed[v.0 as usize] = true;
    }
    for v in graph.outputs() {
        needed[v.0 as usize] = true;
    }
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        match kind(node, target) {
            NodeKind::Standalone => {
                node.outs.iter().for_each(|v| needed[v.0 as usize] = true);
                for v in (0..node.args.len()).filter_map(|i| operand_base(node, i)) {
                    needed[v.0 as usize] = true;
                }
            }
            NodeKind::Reduce | NodeKind::Memory => needed[node.outs[0].0 as usize] = true,
            // A table is read at computed indices, so it must be in memory.
            NodeKind::Scalar if matches!(node.op.semantics(), Semantics::Index(Indexing::Gather(_))) => {
                needed[node.args[0].0 as usize] = true;
            }
            NodeKind::Scalar if is_nofuse(node) => {
                needed[node.args[0].0 as usize] = true;
                needed[node.outs[0].0 as usize] = true;
            }
            NodeKind::Scalar => {}
        }
        node.args.iter().for_each(|a| uses[a.0 as usize] += 1);
    }
    let (mut cost, mut depth) = (vec![1u32; n], vec![0u32; n]);
    let mut leaves: Vec<SmallVec<[Value; 4]>> = vec![SmallVec::new(); n];
    let mut reads: Vec<SmallVec<[Value; 4]>> = vec![SmallVec::new(); n];
    for node in graph.nodes() {
        if kind(node, target) != NodeKind::Scalar || !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        let v = node.outs[0].0 as usize;
        let mut read = all_reads(&node.args, &needed, &reads);
        while read.len() > target.kernel.max_operands {
            let open = node.args.iter().filter(|a| !needed[a.0 as usize] && reads[a.0 as usize].len() > 1);
            let Some(widest) = open.max_by_key(|a| reads[a.0 as usize].len()) else { break };
            needed[widest.0 as usize] = true;
            read = all_reads(&node.args, &needed, &reads);
        }
        reads[v] = read;
        let mut own = node.op.semantics().cost();
        let mut deep = 0;
        let mut large: SmallVec<[Value; 4]> = SmallVec::new();
        let size = graph.ty(node.outs[0]).numel();
        for &leaf in node.args.iter() {
            let own = [leaf];
            let below = if needed[leaf.0 as usize] { &own[..] } else { &leaves[leaf.0 as usize] };
            for x in below {
                if large.len() < 4 && !large.contains(x) && 2 * graph.ty(*x).numel() >= size {
                    large.push(*x);
                }
            }
        }
        for &v in &node.args {
            let a = v.0 as usize;
            // The operand of a broadcast is computed once for all its repetitions.
            let repeats = match node.op {
                Op::Broadcast(_) => (size / graph.ty(v).numel().max(1)).clamp(1, u32::MAX as usize) as u32,
                _ => 1,
            };
            own = own.saturating_add(if needed[a] { 1 } else { cost[a] / repeats });
            deep = deep.max(if needed[a] { 0 } else { depth[a] + 1 });
        }
        for o in &node.outs {
            cost[o.0 as usize] = own;
            depth[o.0 as usize] = deep;
        }
        for o in &node.outs {
            let uses = uses[o.0 as usize];
            // Reading a value back is cheaper than recomputing it from several values of its size.
            let wide = (large.len() >= 3 && uses >= 2) || (large.len() >= 2 && uses >= 3);
            leaves[o.0 as usize] = large.clone();
            let many = wide || (uses >= 2 && own >= costly);
            if many || deep > MAX_DEPTH || own > MAX_COST {
                needed[o.0 as usize] = true;
            }
        }
        // The operand of a broadcast is computed once.
        if let Op::Broadcast(_) = node.op {
            let a = node.args[0].0 as usize;
            let grows = graph.ty(node.outs[0]).numel() > graph.ty(node.args[0]).numel();
            if grows && !needed[a] && cost[a] >= costly {
                needed[a] = true;
                cost[v] = 1;
                depth[v] = 0;
            }
        }
    }
    (needed, cost)
}

/// The materialized values that operands are computed from, without duplicates.
fn all_reads(args: &[Value], needed: &[bool], reads: &[SmallVec<[Value; 4]>]) -> SmallVec<[Value; 4]> {
    let mut all: SmallVec<[Value; 4]> = SmallVec::new();
    for a in args {
        match needed[a.0 as usize] {
            true => all.push(*a),
            false => all.extend_from_slice(&reads[a.0 as usize]),
        }
    }
    all.sort_unstable_by_key(|v| v.0);
    all.dedup();
    all
}

impl Grouping<'_> {
    fn new_unit(&mut self, unit: FusionUnit, outs: &[Value], reads: &[Value]) -> usize {
        let id = self.units.len();
        self.units.push(unit);
        self.deps.push(Vec::new());
        self.users.push(Vec::new());
        self.latest.push(id);
        self.computes.push(FxHashMap::default());
        for v in outs {
            self.unit_of[v.0 as usize] = Some(id);
        }
        self.depend(id, reads);
        id
    }

    /// Adds the values that a unit reads to its dependencies.
    fn depend(&mut self, id: usize, reads: &[Value]) {
        for v in reads {
            if let Some(u) = self.unit_of[v.0 as usize] {
                self.run_after(id, u);
            }
        }
    }

    fn run_after(&mut self, id: usize, u: usize) {
        if u == id || self.deps[id].contains(&u) {
            return;
        }
        self.deps[id].push(u);
        self.users[u].push(id);
        let mut raise = vec![(id, self.latest[u])];
        while let Some((x, to)) = raise.pop() {
            if self.latest[x] < to {
                self.latest[x] = to;
                raise.extend(self.users[x].iter().map(|&y| (y, to)));
            }
        }
    }

    /// Orders the writer of each output that replaces an input after all consumers of the input.
    fn replace_last(&mut self, replaced: &[(Value, Value)], operand_base: &dyn Fn(&Node, usize) -> Option<Value>) {
        if replaced.is_empty() {
            return;
        }
        let mut readers: BTreeMap<Value, Vec<usize>> = replaced.iter().map(|(i, _)| (*i, Vec::new())).collect();
        for (u, unit) in self.units.iter().enumerate() {
            let mut note = |v: Value| {
                if let Some(list) = readers.get_mut(&v)
                    && list.last() != Some(&u)
                {
                    list.push(u);
                }
            };
            match unit {
                FusionUnit::Standalone(k) => {
                    let node = &self.graph.nodes()[*k];
                    self.standalone_reads(node, operand_base).into_iter().for_each(note);
                }
                FusionUnit::Group(g) => g.roots.iter().flat_map(|r| &self.reads[&r.value]).for_each(|v| note(*v)),
            }
        }
        for (input, output) in replaced {
            let Some(writer) = self.unit_of[output.0 as usize] else { continue };
            for &u in &readers[input] {
                if u != writer && !self.reaches(u, writer) {
                    self.run_after(writer, u);
                }
            }
        }
    }

    /// Whether `from` depends on `to`, directly or indirectly.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut stack = vec![from];
        let mut seen = FxHashSet::default();
        while let Some(x) = stack.pop() {
            if x == to {
                return true;
            }
            if self.latest[x] >= to && seen.insert(x) {
                stack.extend(&self.deps[x]);
            }
        }
        false
    }

    /// The needed values that the computation of `v` reads.
    fn reads(&self, v: Value) -> Vec<Value> {
        self.expression(v).0
    }

    /// The needed values that the computation of `v` reads, and the inlined values.
    fn expression(&self, v: Value) -> (Vec<Value>, Vec<Value>) {
        let (mut out, mut arithmetic) = (Vec::new(), vec![v]);
        let mut seen = FxHashSet::default();
        let mut stack: Vec<Value> = self.graph.node_of(v).map(|n| n.args.to_vec()).unwrap_or_default();
        while let Some(a) = stack.pop() {
            if !seen.insert(a) {
                continue;
            }
            if self.needed[a.0 as usize] {
                out.push(a);
            } else if let Some(node) = self.graph.node_of(a) {
                if matches!(node.op.semantics(), Semantics::Elementwise(_)) {
                    arithmetic.push(a);
                }
                stack.extend(&node.args);
            }
        }
        out.sort();
        (out, arithmetic)
    }

    /// Whether a unit already computes a value with the same number. CSE has merged equal nodes before: the remaining duplicates
    /// were created by rematerialization, so that the first copy need not be stored for the second.
    fn computes_duplicate(&self, u: usize, arithmetic: &[Value]) -> bool {
        let duplicate = |v: &Value| self.computes[u].get(&self.value_number[v.0 as usize]).is_some_and(|w| w != v);
        arithmetic.iter().any(duplicate)
    }

    /// The needed values that a separate op reads.
    fn standalone_reads(&self, node: &Node, operand_base: &dyn Fn(&Node, usize) -> Option<Value>) -> Vec<Value> {
        let mut found = Vec::new();
        for i in 0..node.args.len() {
            match operand_base(node, i) {
                Some(v) => found.push(v),
                None => found.extend(self.reads(node.args[i])),
            }
        }
        found
    }

    fn root(&mut self, v: Value, node: &Node) {
        let (reads, arithmetic) = self.expression(v);
        let numbered =
            |g: &Self| -> Vec<(u32, Value)> { arithmetic.iter().map(|&x| (g.value_number[x.0 as usize], x)).collect() };
        let mut candidates: Vec<usize> = reads
            .iter()
            .rev()
            .filter_map(|r| self.unit_of[r.0 as usize])
            .filter(|&u| matches!(self.units[u], FusionUnit::Group(_)))
            .collect();
        if is_nofuse(node) {
            candidates.clear();
        }
        // Groups that read the same values over the same domain.
        let recent = if is_nofuse(node) { self.units.len() } else { self.units.len().saturating_sub(12) };
        for u in (recent..self.units.len()).rev() {
            if let FusionUnit::Group(g) = &self.units[u]
                && g.roots
                    .iter()
                    .any(|r| self.reads[&r.value].iter().any(|x| reads.contains(x) && self.graph.ty(*x).rank() > 0))
            {
                candidates.push(u);
            }
        }
        let mut tried = BTreeSet::new();
        for u in candidates {
            if !tried.insert(u) || tried.len() > 6 {
                continue;
            }
            let FusionUnit::Group(group) = &self.units[u] else { continue };
            let other = group.roots[0].value;
            let circle =
                || reads.iter().any(|r| self.unit_of[r.0 as usize].is_some_and(|d| d != u && self.reaches(d, u)));
            let joint = self.fuse_root(group, v, node).and_then(|joint| {
                if self.computes_duplicate(u, &arithmetic) {
                    return Err(UnfusedReason::CheaperToRecompute);
                }
                match circle() {
                    true => Err(UnfusedReason::Cycle),
                    false => self.try_lower(&joint).map(|()| joint),
                }
            });
            let joint = match joint {
                Ok(joint) => joint,
                Err(why) => {
                    self.unfused.push(Unfused { value: v, other, reason: why });
                    continue;
                }
            };
            self.units[u] = FusionUnit::Group(joint);
            let numbered = numbered(self);
            self.computes[u].extend(numbered);
            self.unit_of[v.0 as usize] = Some(u);
            self.depend(u, &reads);
            self.reads.insert(v, reads);
            return;
        }
        let group = single_value_group(self.graph, v, node);
        let u = self.new_unit(FusionUnit::Group(group), &[v], &reads);
        let numbered = numbered(self);
        self.computes[u].extend(numbered);
        self.reads.insert(v, reads);
    }

    /// Returns the group with one more root, if the domains fit.
    // Not inlined: otherwise tests of op fields are hoisted before the test of the op's kind. That is sound, because the result is
    // then unused, but memcheck reports a branch on uninitialized bytes.
    #[inline(never)]
    fn fuse_root(&self, group: &Group, v: Value, node: &Node) -> Result<Group, UnfusedReason> {
        if group.roots.len() >= self.target.kernel.max_results {
            return Err(UnfusedReason::TooManyResults(self.target.kernel.max_results));
        }
        if group.roots.iter().any(|r| self.graph.node_of(r.value).is_some_and(is_nofuse)) {
            return Err(UnfusedReason::NoFuse);
        }
        let mut g = group.clone();
        let kept: Shape = (0..g.domain.len()).filter(|a| !g.reduced_axes.contains(a)).map(|a| g.domain[a]).collect();
        let role = match &node.op {
            Op::Reduce(r) => {
                let shape = &self.graph.ty(node.args[0]).shape;
                let mut axes = r.axes.to_vec();
                axes.sort_unstable();
                let outer: Shape = (0..shape.len()).filter(|a| !axes.contains(a)).map(|a| shape[a]).collect();
                if g.reduced_axes.is_empty() && g.domain == *shape && is_suffix(&axes, shape.len()) {
                    g.reduced_axes = axes;
                } else if g.reduced_axes.is_empty() && g.domain == outer && !axes.is_empty() {
                    g.domain = shape.clone();
                    g.reduced_axes = axes;
                    g.roots.iter_mut().for_each(|r| r.role = ValueRole::Row);
                } else if g.domain != *shape || g.reduced_axes != axes {
                    return Err(UnfusedReason::DomainMismatch);
                }
                ValueRole::Reduce(r.kind)
            }
            _ => {
                let shape = &self.graph.ty(v).shape;
                if g.domain == *shape && (g.reduced_axes.is_empty() || is_suffix(&g.reduced_axes, g.domain.len())) {
                    ValueRole::Full
                } else if !g.reduced_axes.is_empty() && kept == *shape {
                    ValueRole::Row
                } else if self.can_fuse_reshaped(group, v) {
                    ValueRole::Full
                } else {
                    return Err(UnfusedReason::DomainMismatch);
                }
            }
        };
        g.roots.push(Root { value: v, role, stored: true });
        Ok(g)
    }

    /// Whether a row's kernel may compute a value that has the elements of its domain, in order, under another shape, so that
    /// the value it is computed from stays out of memory (the gradient of a group norm). A grid instead distributes it over more
    /// than the rows. A row that a matrix product computes stays with the product.
    fn can_fuse_reshaped(&self, group: &Group, v: Value) -> bool {
        let reads = self.reads(v);
        let product = |v: &Value| self.graph.node_of(*v).is_some_and(|n| matches!(n.op, Op::Dot(_)));
        matches!(self.target.schedule, LoopSchedule::Workers(_))
            && !group.reduced_axes.is_empty()
            && is_suffix(&group.reduced_axes, group.domain.len())
            && self.graph.ty(v).numel() == group.domain.iter().product::<usize>()
            && group.roots.iter().any(|r| r.role == ValueRole::Full && reads.contains(&r.value))
            && !group.roots.iter().any(|r| self.reads[&r.value].iter().any(product))
    }

    fn try_lower(&self, group: &Group) -> Result<(), UnfusedReason> {
        let lowered = lower(self.graph, group, &|v| source(&self.needed, group, v), self.target)
            .map_err(UnfusedReason::LowerFailed)?;
        // Loops that are split for another shape must leave the vector enough elements.
        let regrouped =
            group.roots.iter().any(|r| r.role == ValueRole::Full && self.graph.ty(r.value).shape != group.domain);
        if regrouped && lowered.iter().any(|l| l.run < MIN_VECTOR_RUN) {
            return Err(UnfusedReason::ShortInnerLoop);
        }
        let buffers = lowered.iter().map(|l| l.params.len()).max().unwrap_or(0);
        let most = self.target.kernel.buffers;
        if buffers > most { Err(UnfusedReason::TooManyBuffers(most)) } else { Ok(()) }
    }

    fn finish(mut self, operand_base: &dyn Fn(&Node, usize) -> Option<Value>) -> FusionPlan {
        // A root is stored only if a consumer is outside its group.
        let mut outside = vec![false; self.graph.num_values()];
        for v in self.graph.outputs() {
            outside[v.0 as usize] = true;
        }
        for u in 0..self.units.len() {
            match &self.units[u] {
                FusionUnit::Standalone(k) => {
                    let node = &self.graph.nodes()[*k];
                    for v in self.standalone_reads(node, operand_base) {
                        outside[v.0 as usize] = true;
                    }
                }
                FusionUnit::Group(g) => {
                    for r in &g.roots {
                        for x in &self.reads[&r.value] {
                            if self.unit_of[x.0 as usize] != Some(u) {
                                outside[x.0 as usize] = true;
                            }
                        }
                    }
                }
            }
        }
        let mut in_memory = vec![false; self.graph.num_values()];
        for (v, m) in in_memory.iter_mut().enumerate() {
            *m = self.needed[v] && self.unit_of[v].is_none();
        }
        for unit in &mut self.units {
            match unit {
                FusionUnit::Standalone(k) => {
                    for v in &self.graph.nodes()[*k].outs {
                        in_memory[v.0 as usize] = true;
                    }
                }
                FusionUnit::Group(g) => {
                    for r in &mut g.roots {
                        r.stored = outside[r.value.0 as usize];
                        in_memory[r.value.0 as usize] = r.stored;
                    }
                }
            }
        }
        let order = self.topological();
        let mut units: Vec<Option<FusionUnit>> = self.units.into_iter().map(Some).collect();
        FusionPlan {
            order: order.into_iter().filter_map(|u| units[u].take()).collect(),
            in_memory,
            unfused: self.unfused,
        }
    }

    /// The execution order: the order of the graph, as far as dependencies allow.
    fn topological(&self) -> Vec<usize> {
        let last = |u: usize| match &self.units[u] {
            FusionUnit::Standalone(k) => self.graph.nodes()[*k].outs.last().map_or(0, |v| v.0),
            FusionUnit::Group(g) => g.roots.iter().map(|r| r.value.0).max().unwrap_or(0),
        };
        let n = self.units.len();
        let mut waiting: Vec<usize> = self.deps.iter().map(Vec::len).collect();
        let below = &self.users;
        let mut ready: BinaryHeap<std::cmp::Reverse<(u32, usize)>> =
            (0..n).filter(|&u| waiting[u] == 0).map(|u| std::cmp::Reverse((last(u), u))).collect();
        let mut order = Vec::with_capacity(n);
        while let Some(std::cmp::Reverse((_, u))) = ready.pop() {
            order.push(u);
            for &b in &below[u] {
                waiting[b] -= 1;
                if waiting[b] == 0 {
                    ready.push(std::cmp::Reverse((last(b), b)));
                }
            }
        }
        debug_assert_eq!(order.len(), n, "units depend on each other in a circle");
        order
    }
}

/// Computes value numbers: equal for scalar expressions with equal ops and operands.
fn number_values(graph: &Graph, target: &Target) -> Vec<u32> {
    let mut number: Vec<u32> = (0..graph.num_values() as u32).collect();
    let mut first: FxHashMap<(&Op, SmallVec<[u32; 4]>), Value> = FxHashMap::default();
    for node in graph.nodes().iter().filter(|n| matches!(kind(n, target), NodeKind::Scalar | NodeKind::Reduce)) {
        let args = node.args.iter().map(|a| number[a.0 as usize]).collect();
        let Some(&out) = node.outs.first() else { continue };
        let known = *first.entry((&node.op, args)).or_insert(out);
        if let Some(known) = graph.node_of(known) {
            known.outs.iter().zip(&node.outs).for_each(|(k, v)| number[v.0 as usize] = k.0);
        }
    }
    number
}

fn is_suffix(axes: &[usize], rank: usize) -> bool {
    axes.iter().rev().enumerate().all(|(i, &a)| a == rank - 1 - i)
}

/// A group with one value.
fn single_value_group(graph: &Graph, v: Value, node: &Node) -> Group {
    match &node.op {
        Op::Reduce(r) => {
            let mut red = r.axes.to_vec();
            red.sort_unstable();
            let full = graph.ty(node.args[0]).shape.clone();
            Group {
                domain: full,
                reduced_axes: red,
                roots: vec![Root { value: v, role: ValueRole::Reduce(r.kind), stored: true }],
            }
        }
        _ => {
            let full = graph.ty(v).shape.clone();
            Group {
                domain: full,
                reduced_axes: Vec::new(),
                roots: vec![Root { value: v, role: ValueRole::Full, stored: true }],
            }
        }
    }
}

/// The source of a value in a group's kernel.
pub(crate) fn source(in_memory: &[bool], group: &Group, v: Value) -> ValueSource {
    let mut reductions = 0;
    for r in &group.roots {
        let is_reduce = matches!(r.role, ValueRole::Reduce(_));
        if r.value == v {
            return if is_reduce { ValueSource::Reduced(reductions) } else { ValueSource::Result };
        }
        reductions += is_reduce as usize;
    }
    if in_memory[v.0 as usize] { ValueSource::Memory { shift: None } } else { ValueSource::Inline }
}
