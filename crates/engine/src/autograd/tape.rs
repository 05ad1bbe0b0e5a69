//! The tape: the part of the lazy graph that requires gradients, traversed backward (§9).
//!
//! The recorded nodes are the tape; no other structure is kept. Backward collects the nodes between a value and the values whose
//! gradients are requested, builds a Graph from them, and records the ops of its `vjp`. Requested values in the middle (retained
//! gradients, arguments of `gradients`) cut the graph: each piece is differentiated by itself, the latest first.

use super::Leaf;
use crate::context;
use crate::engine::EngineShared;
use crate::error::{Error, Result};
use crate::event::EventKey;
use crate::lru::hash_of;
use crate::node::{Node, NodeKind, ValueRef};
use crate::profile::OpLabel;
use crate::record::LazyBuild;
use crate::state::EngineState;
use ir::ops::{Call, StopGradient};
use ir::{Binary, Graph, GraphBuilder, Loc, Op, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The identity of a value: (instance, position) of its node and the index of the result.
pub(crate) type RefId = (u64, u32, u32);

/// Values that wait for backward, each with its accumulated cotangent.
type Pending = BTreeMap<(EventKey, u32), (ValueRef, ValueRef)>;

/// A part of the lazy graph, converted to a Graph.
struct TapeSubgraph {
    graph: Graph,
    /// The values to differentiate with respect to, then the captured values.
    inputs: Vec<ValueRef>,
    wrt: usize,
    nodes: Vec<Arc<Node>>,
}

impl TapeSubgraph {
    /// The node that the placeholder location of an op, in the graph or in its vjp, refers to.
    fn source(&self, at: &Loc) -> Option<&Arc<Node>> {
        match at {
            Loc::File(place) if place.0.is_empty() => self.nodes.get(place.1 as usize),
            _ => None,
        }
    }

    /// The graph with the source lines of the user's program.
    fn relocated(&self, graph: Graph) -> ir::Result<Graph> {
        let mut new = Graph::new();
        let inputs: Vec<Value> = graph.input_types().into_iter().map(|t| new.input(t)).collect();
        let outs = graph.inline_with(&inputs, |node, args| {
            let at = self.source(&node.loc).map_or_else(|| node.loc.clone(), |n| n.at.clone());
            new.push(node.op.clone(), args, at)
        })?;
        new.set_outputs(outs);
        Ok(new)
    }
}

/// A placeholder source location for a piece's i-th node. One line may run in several modules, so lines don't identify nodes.
/// With placeholders, pieces with equal ops share their vjp whatever their lines are.
fn placeholder_loc(i: usize) -> Loc {
    static PLACES: Mutex<Vec<Loc>> = Mutex::new(Vec::new());
    let mut places = PLACES.lock().unwrap_or_else(|e| e.into_inner());
    while places.len() <= i {
        let place = (String::new(), places.len() as u32, 0);
        places.push(Loc::File(Arc::new(place)));
    }
    places[i].clone()
}

/// The result of a backward traversal.
#[derive(Default)]
pub(crate) struct BackpropResult {
    /// Gradients of leaves, in recording order.
    pub(crate) leaves: Vec<(Arc<Leaf>, ValueRef)>,
    /// Gradients at the cuts.
    pub(crate) cut_gradients: FxHashMap<RefId, ValueRef>,
    /// The nodes that backward traversed.
    pub(crate) nodes: Vec<Arc<Node>>,
}

impl BackpropResult {
    fn add(&mut self, b: &mut LazyBuild<'_>, leaf: Arc<Leaf>, grad: ValueRef) -> Result<()> {
        match self.leaves.iter_mut().find(|(l, _)| Arc::ptr_eq(l, &leaf)) {
            Some((_, sum)) => *sum = plus(b, sum, &grad)?,
            None => self.leaves.push((leaf, grad)),
        }
        Ok(())
    }
}

fn plus(b: &mut LazyBuild<'_>, x: &ValueRef, y: &ValueRef) -> Result<ValueRef> {
    let (x, y) = (b.import_value(x.clone(), None), b.import_value(y.clone(), None));
    let sum = b.add(x, y)?;
    Ok(b.get(sum).clone())
}

/// Adds a cotangent to the pending cotangent of a value.
fn add_pending(b: &mut LazyBuild<'_>, pending: &mut Pending, r: ValueRef, ct: ValueRef) -> Result<()> {
    let key = (r.node.key(), r.out);
    let sum = match pending.remove(&key) {
        Some((_, old)) => plus(b, &old, &ct)?,
        None => ct,
    };
    pending.insert(key, (r, sum));
    Ok(())
}

/// The leaf that retains the gradient of a value.
fn retained(r: &ValueRef) -> Option<Arc<Leaf>> {
    r.node
        .slot()
        .backward_info
        .as_ref()?
        .retained
        .iter()
        .find(|(out, _)| *out == r.out)
        .and_then(|(_, leaf)| leaf.upgrade())
}

impl EngineShared {
    /// Propagates cotangents from values to leaves and cuts.
    pub(crate) fn backprop(
        &self,
        state: &mut EngineState,
        from: Vec<(ValueRef, ValueRef)>,
        cuts: &FxHashSet<RefId>,
        at: &Loc,
    ) -> Result<BackpropResult> {
        let mut pulled = BackpropResult::default();
        let mut pending: Pending = from.into_iter().map(|(r, ct)| ((r.node.key(), r.out), (r, ct))).collect();
        let mut first = true;
        while let Some((_, (root, ct))) = pending.pop_last() {
            if let Some(leaf) = retained(&root) {
                pulled.add(&mut LazyBuild::new(state, at.clone()), leaf, ct.clone())?;
            }
            if cuts.contains(&root.id()) {
                pulled.cut_gradients.insert(root.id(), ct.clone());
            }
            if root.node.leaf.is_some() {
                if let Some(leaf) = root.node.leaf.as_ref().and_then(|l| l.upgrade()) {
                    pulled.add(&mut LazyBuild::new(state, at.clone()), leaf, ct)?;
                }
                continue;
            }
            if root.node.straight_through {
                let Some(source) = root.node.slot().args.first().cloned() else {
                    continue;
                };
                let mut b = LazyBuild::new(state, at.clone());
                add_pending(&mut b, &mut pending, source, ct)?;
                continue;
            }
            let piece = subgraph(state, &root, cuts)?;
            // No requested value lies before this cut, so the traversal ends here.
            if piece.wrt == 0 {
                debug_assert!(!first || !cuts.is_empty(), "a tracked value depends on a leaf");
                continue;
            }
            first = false;
            let grads = self.backprop_subgraph(state, &piece, ct, at)?;
            for (r, grad) in piece.inputs.iter().zip(grads) {
                let mut b = LazyBuild::new(state, at.clone());
                add_pending(&mut b, &mut pending, r.clone(), grad)?;
            }
            pulled.nodes.extend(piece.nodes);
        }
        Ok(pulled)
    }

    /// The reverse-mode graph (vjp) of a graph, cached. For op-by-op execution the gradients of composites
    /// stay single ops (`by_rules`); for a compiler they are expanded.
    pub(crate) fn vjp(&self, graph: &Graph, wrt: usize, by_rules: bool) -> Result<Arc<Graph>> {
        let hash = hash_of(&(graph.structural_hash(), wrt, by_rules));
        let is = |(g, n, r): &(Graph, usize, bool)| (*n, *r) == (wrt, by_rules) && g == graph;
        if let Some(g) = self.vjps.lock().unwrap_or_else(|e| e.into_inner()).get(hash, is) {
            return Ok(g);
        }
        let wanted: Vec<usize> = (0..wrt).collect();
        let back = Arc::new(match by_rules {
            true => transform::slice_gradients::sums_to_concats(&transform::vjp_by_rules(
                &transform::slice_gradients::deduplicate(graph)?,
                &wanted,
            )?)?,
            false => transform::vjp(graph, &wanted)?,
        });
        self.vjps.lock().unwrap_or_else(|e| e.into_inner()).insert(hash, (graph.clone(), wrt, by_rules), back.clone());
        Ok(back)
    }

    /// Records the ops of a piece's vjp. Values of the forward pass are reused, not computed again.
    fn backprop_subgraph(
        &self,
        state: &mut EngineState,
        piece: &TapeSubgraph,
        ct: ValueRef,
        at: &Loc,
    ) -> Result<Vec<ValueRef>> {
        let back = self.vjp(&piece.graph, piece.wrt, true).map_err(|e| match piece.relocated(piece.graph.clone()) {
            // Repeat on the relocated graph, so that the error names the user's line.
            Ok(graph) => match transform::vjp_by_rules(&graph, &(0..piece.wrt).collect::<Vec<_>>()) {
                Err(e) => e.into(),
                Ok(_) => e,
            },
            Err(_) => e,
        })?;
        let known = ForwardValues::new(&piece.nodes);
        // Ops of the backward pass belong to the module of the op that they differentiate. Inside a compiled region they belong
        // to the module of that op's line.
        let here = context::label();
        let in_modules = piece.nodes.iter().filter(|n| n.label.module != 0);
        let of_line: FxHashMap<_, OpLabel> = in_modules.map(|n| (place(&n.at), n.label)).collect();
        let mut b = LazyBuild::new(state, at.clone());
        let mut args: Vec<Value> = piece.inputs.iter().map(|r| b.import_value(r.clone(), None)).collect();
        args.push(b.import_value(ct, None));
        let outs = back.inline_with(&args, |node, operands| {
            let ids: Vec<_> = operands.iter().map(|v| known.id(b.get(*v))).collect();
            if let Some(n) = known.find(&node.op, &ids).cloned() {
                return Ok((0..n.types().len() as u32)
                    .map(|out| b.import_value(ValueRef { node: n.clone(), out }, None))
                    .collect());
            }
            let source = piece.source(&node.loc);
            b.at = source.map_or_else(|| node.loc.clone(), |n| n.at.clone());
            if of_line.is_empty() {
                return b.emit(node.op.clone(), operands);
            }
            let label = source.map(|n| &n.label).or_else(|| of_line.get(&place(&node.loc)));
            let label = label.map_or(here, |l| OpLabel { phase: here.phase, ..*l });
            context::with_label(label, || b.emit(node.op.clone(), operands))
        })?;
        Ok(outs[1..].iter().map(|v| b.get(*v).clone()).collect())
    }
}

/// The nodes of the forward pass, indexed by the op that they compute.
#[derive(Default)]
struct ForwardValues<'a> {
    /// Nodes by hash, with the identities of their operands.
    nodes: FxHashMap<u64, Vec<(&'a Arc<Node>, Vec<RefId>)>>,
    /// Maps each node that repeats a computation to the first such node: every use of a view records the view again.
    first: FxHashMap<RefId, RefId>,
}

impl<'a> ForwardValues<'a> {
    /// Indexes nodes that are given in recording order, operands first.
    fn new(nodes: &'a [Arc<Node>]) -> ForwardValues<'a> {
        let mut known = ForwardValues::default();
        for node in nodes {
            let NodeKind::Op(sig) = &node.work else { continue };
            let ids: Vec<RefId> = node.slot().args.iter().map(|a| known.id(a)).collect();
            if let Some(first) = known.find(&sig.op, &ids).cloned() {
                for out in 0..node.types().len() as u32 {
                    let id = |n: &Arc<Node>| ValueRef { node: n.clone(), out }.id();
                    known.first.insert(id(node), id(&first));
                }
            } else {
                known.nodes.entry(hash_of(&(&*sig.op, &ids))).or_default().push((node, ids));
            }
        }
        known
    }

    fn id(&self, r: &ValueRef) -> RefId {
        let id = canonical_id(r);
        self.first.get(&id).copied().unwrap_or(id)
    }

    fn find(&self, op: &Op, ids: &[RefId]) -> Option<&'a Arc<Node>> {
        let same = |(n, args): &&(&'a Arc<Node>, Vec<RefId>)| {
            matches!(&n.work, NodeKind::Op(sig) if *sig.op == *op) && args.as_slice() == ids
        };
        self.nodes.get(&hash_of(&(op, ids))).and_then(|ns| ns.iter().find(same)).map(|(n, _)| *n)
    }
}

/// A source line as a key.
fn place(at: &Loc) -> Option<(&'static str, u32, u32)> {
    match at {
        Loc::Rust(l) => Some((l.file(), l.line(), l.column())),
        _ => None,
    }
}

/// The identity of a value behind aliases and loads of tracked values, which the recorded graph replaces by their argument.
fn canonical_id(r: &ValueRef) -> RefId {
    let mut r = r.clone();
    while r.node.leaf.is_none() && r.node.tracked && matches!(r.node.work, NodeKind::Alias(_) | NodeKind::Load { .. }) {
        let Some(next) = r.node.slot().args.first().cloned() else {
            break;
        };
        r = next;
    }
    r.id()
}

/// The leaves that a value depends on.
pub(crate) fn leaves(root: &ValueRef) -> Vec<Arc<Leaf>> {
    let mut found: Vec<Arc<Leaf>> = Vec::new();
    let mut seen: FxHashSet<EventKey> = FxHashSet::default();
    let mut stack = vec![root.node.clone()];
    while let Some(node) = stack.pop() {
        if !node.tracked || !seen.insert(node.key()) {
            continue;
        }
        match &node.leaf {
            Some(leaf) => found.extend(leaf.upgrade()),
            None => stack.extend(node.slot().args.iter().map(|a| a.node.clone())),
        }
    }
    found
}

/// Returns an error for nodes that backward has freed, and for saved tensors that were changed in place afterwards (§9.3).
fn check(state: &EngineState, node: &Node) -> Result<()> {
    check_freed(node)?;
    for s in node.slot().saved() {
        let found = state.bases.get(s.base).map_or(s.version, |b| b.scheduled_commits);
        if found != s.version {
            let (op, at) = (node.name().to_string(), node.at.clone());
            return Err(Error::SavedTensorModified { op, at, kept: s.version, found });
        }
    }
    Ok(())
}

fn check_freed(node: &Node) -> Result<()> {
    match node.slot().freed {
        true => Err(Error::BackwardGraphFreed { op: node.name().to_string(), at: node.at.clone() }),
        false => Ok(()),
    }
}

/// The tracked part of the lazy graph that `root` depends on, up to leaves and cuts.
fn subgraph(state: &EngineState, root: &ValueRef, cuts: &FxHashSet<RefId>) -> Result<TapeSubgraph> {
    let is_cut = |r: &ValueRef| {
        r.node.tracked
            && r.id() != root.id()
            && (r.node.leaf.is_some() || r.node.straight_through || cuts.contains(&r.id()) || retained(r).is_some())
    };
    let mut found: BTreeMap<EventKey, Arc<Node>> = BTreeMap::new();
    let mut wrt: BTreeMap<(EventKey, u32), ValueRef> = BTreeMap::new();
    let mut stack = vec![root.node.clone()];
    while let Some(node) = stack.pop() {
        if found.contains_key(&node.key()) {
            continue;
        }
        check(state, &node)?;
        for a in node.slot().args.iter().filter(|a| a.node.tracked) {
            if is_cut(a) {
                wrt.insert((a.node.key(), a.out), a.clone());
            } else {
                stack.push(a.node.clone());
            }
        }
        found.insert(node.key(), node);
    }
    let nodes: Vec<Arc<Node>> = found.into_values().collect();
    let mut piece = TapeSubgraph { graph: Graph::new(), inputs: wrt.into_values().collect(), wrt: 0, nodes };
    piece.wrt = piece.inputs.len();
    let mut map: FxHashMap<RefId, Value> = FxHashMap::default();
    for r in &piece.inputs {
        map.insert(r.id(), piece.graph.input((**r.ty()).clone()));
    }
    for node in &piece.nodes {
        for a in &node.slot().args {
            if !a.node.tracked && !map.contains_key(&a.id()) {
                map.insert(a.id(), piece.graph.input((**a.ty()).clone()));
                piece.inputs.push(a.clone());
            }
        }
    }
    for (i, node) in piece.nodes.iter().enumerate() {
        let args: Vec<Value> = node.slot().args.iter().map(|a| map[&a.id()]).collect();
        let op: Op = match &node.work {
            NodeKind::Op(sig) => (*sig.op).clone(),
            NodeKind::Call(variant) => Call { body: variant.graph.clone() }.into(),
            // A load, an alias or a transfer has the value of its argument.
            _ => {
                let r = ValueRef { node: node.clone(), out: 0 };
                let Some(&v) = args.first() else {
                    return Err(modified_error(node));
                };
                map.entry(r.id()).or_insert(v);
                continue;
            }
        };
        let outs = piece.graph.push(op, &args, placeholder_loc(i))?;
        for (out, v) in outs.into_iter().enumerate() {
            map.entry(ValueRef { node: node.clone(), out: out as u32 }.id()).or_insert(v);
        }
    }
    piece.graph.set_outputs(vec![map[&root.id()]]);
    Ok(piece)
}

fn modified_error(node: &Node) -> Error {
    let reason =
        "a tensor with history was changed in place under no_grad, so its gradient is not defined; change a copy()"
            .into();
    Error::Autograd { reason, at: node.at.clone() }
}

/// The lazy graph between values, as a Graph with inputs `wrt` and captured values. It recomputes everything from immutable
/// values, so later in-place writes don't affect it.
pub(crate) fn graph_between(
    outs: &[ValueRef],
    wrt: &FxHashMap<RefId, usize>,
    leaves: &[(Arc<Leaf>, usize)],
    types: &[ir::Type],
) -> Result<(Graph, Vec<ValueRef>)> {
    let input = |r: &ValueRef| {
        let leaf = r.node.leaf.as_ref().and_then(|l| l.upgrade());
        let of_leaf = leaf.and_then(|l| leaves.iter().find(|(x, _)| Arc::ptr_eq(x, &l)));
        wrt.get(&r.id()).copied().or(of_leaf.map(|(_, i)| *i))
    };
    let mut found: BTreeMap<EventKey, Arc<Node>> = BTreeMap::new();
    let mut stack: Vec<ValueRef> = outs.to_vec();
    while let Some(r) = stack.pop() {
        if input(&r).is_some() || !r.node.tracked || found.contains_key(&r.node.key()) {
            continue;
        }
        check_freed(&r.node)?;
        if r.node.leaf.is_none() {
            stack.extend(r.node.slot().args.iter().cloned());
            found.insert(r.node.key(), r.node.clone());
        }
    }
    let mut graph = Graph::new();
    let inputs: Vec<Value> = types.iter().map(|t| graph.input(t.clone())).collect();
    let mut map: FxHashMap<RefId, Value> = FxHashMap::default();
    let mut captured = Vec::new();
    let mut value = |graph: &mut Graph, map: &mut FxHashMap<RefId, Value>, r: &ValueRef| -> Value {
        if let Some(i) = input(r) {
            return inputs[i];
        }
        *map.entry(r.id()).or_insert_with(|| {
            captured.push(r.clone());
            graph.input((**r.ty()).clone())
        })
    };
    for node in found.values() {
        let args = node.slot().args.clone();
        let args: Vec<Value> = args.iter().map(|a| value(&mut graph, &mut map, a)).collect();
        let op: Op = match &node.work {
            NodeKind::Op(sig) => (*sig.op).clone(),
            NodeKind::Call(variant) => Call { body: variant.graph.clone() }.into(),
            _ => {
                let Some(&v) = args.first() else {
                    return Err(modified_error(node));
                };
                let r = ValueRef { node: node.clone(), out: 0 };
                let v = if node.straight_through {
                    // The current value, with the gradient of the earlier value `v`: `now + (v − v)`.
                    let now = value(&mut graph, &mut map, &r);
                    let mut op = |op: Op, args: &[Value]| Ok::<_, Error>(graph.push(op, args, node.at.clone())?[0]);
                    let now = op(StopGradient.into(), &[now])?;
                    let still = op(StopGradient.into(), &[v])?;
                    let nothing = op(Binary::Sub.into(), &[v, still])?;
                    op(Binary::Add.into(), &[now, nothing])?
                } else {
                    v
                };
                map.insert(r.id(), v);
                continue;
            }
        };
        for (out, v) in graph.push(op, &args, node.at.clone())?.into_iter().enumerate() {
            map.insert(ValueRef { node: node.clone(), out: out as u32 }.id(), v);
        }
    }
    let outputs: Vec<Value> = outs.iter().map(|r| value(&mut graph, &mut map, r)).collect();
    graph.set_outputs(outputs);
    Ok((graph, captured))
}
