//! Graph → steps: units become kernels, matrix products, library calls and loops over shared buffers.

use crate::explain::Explanation;
use crate::fuse::{self, Apart, Group, Lowered, Param, ScanParam, Unit, Units};
use crate::program::*;
use crate::strided::{Strided, joined, strided};
use crate::{Error, Result};
use ir::ops::{Dot, Scan, While};
use ir::{Graph, Literal, Loc, Meaning, Node, Op, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Collects the buffers and steps of one program.
pub(crate) struct Lowering {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) levels: usize,
    /// Inputs and the outputs that are to be written over them; of the graph that is lowered first.
    pub(crate) replaced: Vec<(Value, Value)>,
    pub(crate) computed_operands: usize,
    /// Notes on what is fused, where someone asked.
    pub(crate) explanation: Option<Explanation>,
}

impl Lowering {
    pub(crate) fn buffer(&mut self, ty: Type, class: Class) -> BufferId {
        self.buffers.push(Buffer { ty, class, offset: 0, live: None });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Appends the steps that compute a graph from `inputs`. Outputs go where `dests` says.
    pub(crate) fn graph(
        &mut self,
        graph: &Graph,
        inputs: &[Place],
        dests: &[Place],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let computed = prologues(graph, self.computed_operands);
        let base = |node: &Node, i: usize| memory_operand(graph, &computed, node, i);
        let replaced = std::mem::take(&mut self.replaced);
        let Units { order, in_memory, apart } = fuse::units(graph, &base, &replaced);
        let readers = readers(graph, &order, &in_memory, &base);
        let mut places: Vec<Option<Place>> = vec![None; graph.num_values()];
        for (v, p) in graph.inputs().iter().zip(inputs) {
            places[v.0 as usize] = Some(p.clone());
        }
        for node in graph.nodes() {
            if let Op::Const(c) = &node.op
                && in_memory[node.outs[0].0 as usize]
                && fuse::uniform(&c.0).is_none()
            {
                places[node.outs[0].0 as usize] = Some(Place::of(self.constant(&c.0)));
            }
        }
        for (v, d) in graph.outputs().iter().zip(dests) {
            let slot = &mut places[v.0 as usize];
            if slot.is_none() {
                *slot = Some(d.clone());
            }
        }
        let mut k = 0;
        while k < order.len() {
            match &order[k] {
                Unit::Group(g) => {
                    self.note_group(graph, g, &in_memory, &apart, steps.len());
                    self.group(graph, g, &in_memory, &mut places, steps)?;
                }
                Unit::Anchor(n) => {
                    let node = &graph.nodes()[*n];
                    // A product whose only reader is the next unit hands its tiles over while they are hot.
                    let mut why = None;
                    if let Op::Dot(dot) = &node.op {
                        let read_by = readers.get(&node.outs[0]).map_or(&[][..], |r| r);
                        why = match order.get(k + 1) {
                            _ if graph.outputs().contains(&node.outs[0]) => {
                                Some("its result is a result of the program")
                            }
                            _ if read_by.len() > 1 => Some("several steps read its result"),
                            Some(Unit::Group(g)) if read_by == [k + 1] => {
                                let at = steps.len();
                                let fused = Fused { computed: &computed, in_memory: &in_memory };
                                if self.dot_with_epilogue(graph, dot, node, g, fused, &mut places, steps)? {
                                    self.note_anchor(graph, node, None, at);
                                    self.note_group(graph, g, &in_memory, &apart, at);
                                    k += 2;
                                    continue;
                                }
                                Some("what reads its result needs more than a tile of it")
                            }
                            _ => Some("what reads its result runs later, or takes it whole"),
                        };
                    }
                    self.note_anchor(graph, node, why, steps.len());
                    if let Some(e) = &mut self.explanation {
                        e.path.push(steps.len().to_string());
                    }
                    let fused = Fused { computed: &computed, in_memory: &in_memory };
                    self.anchor(graph, node, fused, &mut places, level, steps)?;
                    if let Some(e) = &mut self.explanation {
                        e.path.pop();
                    }
                }
            }
            k += 1;
        }
        for (v, d) in graph.outputs().iter().zip(dests) {
            let from = place_of(&places, *v)?;
            if from != *d {
                steps.push(Step::Copy { from, to: d.clone(), bytes: graph.ty(*v).bytes() });
            }
        }
        Ok(())
    }

    fn constant(&mut self, l: &Literal) -> BufferId {
        let same = |b: &Buffer| matches!(&b.class, Class::Constant(c) if c == l);
        match self.buffers.iter().position(same) {
            Some(i) => BufferId(i as u32),
            None => self.buffer(l.ty().clone(), Class::Constant(l.clone())),
        }
    }

    /// The place of a value, made now if it has none.
    fn make(&mut self, graph: &Graph, v: Value, places: &mut [Option<Place>]) -> Place {
        match &places[v.0 as usize] {
            Some(p) => p.clone(),
            None => {
                let p = Place::of(self.buffer(graph.ty(v).clone(), Class::Activation));
                places[v.0 as usize] = Some(p.clone());
                p
            }
        }
    }

    fn group(
        &mut self,
        graph: &Graph,
        group: &Group,
        in_memory: &[bool],
        places: &mut [Option<Place>],
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let lowered = fuse::lower(graph, group, &|v| fuse::source(in_memory, group, v))
            .map_err(|e| Error::Internal(format!("a fused group can't be written as a kernel: {e:?}")))?;
        // A value without elements has a place, though no kernel writes it.
        for r in group.roots.iter().filter(|r| r.stored) {
            self.make(graph, r.value, places);
        }
        for Lowered { kernel, params, parallel, .. } in lowered {
            let args = self.kernel_args(graph, &params, places)?;
            steps.push(Step::Kernel { kernel: Arc::new(kernel), args, parallel });
        }
        Ok(())
    }

    fn kernel_args(&mut self, graph: &Graph, params: &[Param], places: &mut [Option<Place>]) -> Result<Vec<KernelArg>> {
        Ok(params
            .iter()
            .map(|p| match p {
                Param::Value(v) => KernelArg::Place(self.make(graph, *v, places)),
                Param::Scratch(n) => KernelArg::Scratch(*n),
            })
            .collect())
    }

    fn anchor(
        &mut self,
        graph: &Graph,
        node: &Node,
        fused: Fused<'_>,
        places: &mut [Option<Place>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        match &node.op {
            Op::Dot(dot) => {
                let (shape, a, b) = matmul(graph, dot, node, fused, places)?;
                let c = self.make(graph, node.outs[0], places);
                steps.push(Step::Matmul { shape: Box::new(shape), a, b, c: Some(c), epilogue: None });
                Ok(())
            }
            Op::Scan(scan) => self.scan(graph, scan, node, places, level, steps),
            Op::While(w) => self.while_loop(graph, w, node, places, level, steps),
            Op::Cond(c) => {
                let index = read(graph, node, 0, places)?;
                let inputs: Vec<Place> =
                    (1..node.args.len()).map(|i| read(graph, node, i, places)).collect::<Result<_>>()?;
                let dests: Vec<Place> = node.outs.iter().map(|&v| self.make(graph, v, places)).collect();
                let mut branches = Vec::with_capacity(c.branches.len());
                for b in &c.branches {
                    let mut steps = Vec::new();
                    self.graph(b, &inputs, &dests, level, &mut steps)?;
                    branches.push(steps);
                }
                steps.push(Step::Branch { index, branches });
                Ok(())
            }
            op => {
                let mut args = Vec::with_capacity(node.args.len());
                for (i, &a) in node.args.iter().enumerate() {
                    args.push((read(graph, node, i, places)?, graph.ty(a).clone()));
                }
                let outs = node.outs.iter().map(|&v| (self.make(graph, v, places), graph.ty(v).clone())).collect();
                steps.push(Step::Library { op: Box::new(op.clone()), args, outs });
                Ok(())
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call site, which has all of it at hand")]
    fn dot_with_epilogue(
        &mut self,
        graph: &Graph,
        dot: &Dot,
        node: &Node,
        group: &Group,
        fused: Fused<'_>,
        places: &mut [Option<Place>],
        steps: &mut Vec<Step>,
    ) -> Result<bool> {
        let in_memory = fused.in_memory;
        let rank = (dot.lhs_batch.len(), dot.lhs_free(graph.ty(node.args[0]).rank()).len());
        let Ok(lowered) =
            fuse::lower_epilogue(graph, group, node.outs[0], rank, &|v| fuse::source(in_memory, group, v))
        else {
            return Ok(false);
        };
        let (shape, a, b) = matmul(graph, dot, node, fused, places)?;
        let mut args = Vec::with_capacity(lowered.params.len());
        for p in &lowered.params[1..] {
            match p {
                Param::Value(v) => args.push(self.make(graph, *v, places)),
                Param::Scratch(_) => return Ok(false),
            }
        }
        let epilogue = Some(Epilogue { kernel: Arc::new(lowered.kernel), args, whole_rows: !group.red.is_empty() });
        steps.push(Step::Matmul { shape: Box::new(shape), a, b, c: None, epilogue });
        Ok(true)
    }

    fn scan(
        &mut self,
        graph: &Graph,
        scan: &Scan,
        node: &Node,
        places: &mut [Option<Place>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        if self.scan_kernel(graph, scan, node, places, steps)? {
            return Ok(());
        }
        let first = scan.bounded as usize;
        let operands = &node.args[first..];
        let (nc, nk) = (scan.consts, scan.carries);
        let mut inputs = Vec::with_capacity(operands.len());
        for i in 0..nc {
            inputs.push(read(graph, node, first + i, places)?);
        }
        let carried = self.carries(graph, node, first + nc, &node.outs[..nk], places, level, steps)?;
        inputs.extend(carried.now);
        let mut dests = carried.next;
        for (i, &v) in operands.iter().enumerate().skip(nc + nk) {
            let mut p = read(graph, node, first + i, places)?;
            p.strides.push((level, graph.ty(v).unbatched().bytes() as i64));
            inputs.push(p);
        }
        let trip = match scan.bounded {
            true => Trip::Bounded { bound: scan.length, count: read(graph, node, 0, places)? },
            false => Trip::Exact(scan.length),
        };
        for &v in &node.outs[nk..] {
            let p = self.make(graph, v, places);
            if scan.bounded {
                steps.push(Step::Zero { to: p.clone(), bytes: graph.ty(v).bytes() });
            }
            let mut slice = p;
            slice.strides.push((level, graph.ty(v).unbatched().bytes() as i64));
            dests.push(slice);
        }
        self.levels = self.levels.max(level + 1);
        let mut body = Vec::new();
        self.graph(&scan.body, &inputs, &dests, level + 1, &mut body)?;
        steps.push(Step::Loop(Box::new(LoopStep { level, trip, reverse: scan.reverse, body, after: carried.after })));
        Ok(())
    }
}

impl Lowering {
    fn while_loop(
        &mut self,
        graph: &Graph,
        w: &While,
        node: &Node,
        places: &mut [Option<Place>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (nc, nb) = (w.cond_consts, w.body_consts);
        let consts: Vec<Place> = (0..nc + nb).map(|i| read(graph, node, i, places)).collect::<Result<_>>()?;
        let carried = self.carries(graph, node, nc + nb, &node.outs, places, level, steps)?;
        self.levels = self.levels.max(level + 1);
        let flag = Place::of(self.buffer(Type::scalar(ir::DType::Bool), Class::Activation));
        let mut test = Vec::new();
        let inputs: Vec<Place> = consts[..nc].iter().chain(&carried.now).cloned().collect();
        self.graph(&w.cond, &inputs, std::slice::from_ref(&flag), level + 1, &mut test)?;
        let mut body = Vec::new();
        let inputs: Vec<Place> = consts[nc..].iter().chain(&carried.now).cloned().collect();
        self.graph(&w.body, &inputs, &carried.next, level + 1, &mut body)?;
        let trip = Trip::While { test, flag };
        steps.push(Step::Loop(Box::new(LoopStep { level, trip, reverse: false, body, after: carried.after })));
        Ok(())
    }

    /// Two buffers for each carried value, which change roles with each iteration; the first values are the operands from
    /// `init` on.
    #[expect(clippy::too_many_arguments, reason = "what a loop is, at its two call sites")]
    fn carries(
        &mut self,
        graph: &Graph,
        node: &Node,
        init: usize,
        outs: &[Value],
        places: &mut [Option<Place>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<Carries> {
        let mut c = Carries { now: Vec::new(), next: Vec::new(), after: Vec::new() };
        for (i, &out) in outs.iter().enumerate() {
            let ty = graph.ty(node.args[init + i]).clone();
            let (even, odd) = (self.buffer(ty.clone(), Class::Activation), self.buffer(ty.clone(), Class::Activation));
            let from = read(graph, node, init + i, places)?;
            steps.push(Step::Copy { from, to: Place::of(even), bytes: ty.bytes() });
            let alternating =
                |a, b| Place { slot: Slot::Alternating(level, a, b), offset: 0, strides: SmallVec::new() };
            c.now.push(alternating(even, odd));
            c.next.push(alternating(odd, even));
            c.after.push((alternating(even, odd), self.make(graph, out, places), ty.bytes()));
        }
        Ok(c)
    }
}

impl Lowering {
    /// A scan as one kernel, where its body is elementwise.
    fn scan_kernel(
        &mut self,
        graph: &Graph,
        scan: &Scan,
        node: &Node,
        places: &mut [Option<Place>],
        steps: &mut Vec<Step>,
    ) -> Result<bool> {
        let Ok((lowered, params)) = fuse::lower_scan(scan) else { return Ok(false) };
        let first = scan.bounded as usize;
        let mut args = Vec::with_capacity(params.len());
        for p in params {
            args.push(match p {
                ScanParam::Count => KernelArg::Place(read(graph, node, 0, places)?),
                ScanParam::Operand(i) => KernelArg::Place(read(graph, node, first + i, places)?),
                ScanParam::Init(k) => KernelArg::Place(read(graph, node, first + scan.consts + k, places)?),
                ScanParam::Result(k) => KernelArg::Place(self.make(graph, node.outs[k], places)),
                ScanParam::Scratch(n) => KernelArg::Scratch(n),
            });
        }
        if scan.bounded {
            for &v in &node.outs[scan.carries..] {
                let to = self.make(graph, v, places);
                steps.push(Step::Zero { to, bytes: graph.ty(v).bytes() });
            }
        }
        steps.push(Step::Kernel { kernel: Arc::new(lowered.kernel), args, parallel: lowered.parallel });
        Ok(true)
    }
}

/// The graph with cheap values computed anew for distant readers, by what fusion would keep in memory.
pub(crate) fn recompute(graph: &Graph) -> ir::Result<Graph> {
    let base = |node: &Node, i: usize| operand(graph, node, i).base;
    let kept = fuse::kept(graph, &graph.live(), &|node, i| Some(base(node, i)));
    crate::passes::recompute::recompute(graph, &kept, &fuse::is_anchor, &base)
}

/// Where a loop's carried values are, where their next values go, and where the last ones are copied.
struct Carries {
    now: Vec<Place>,
    next: Vec<Place>,
    after: Vec<(Place, Place, usize)>,
}

fn place_of(places: &[Option<Place>], v: Value) -> Result<Place> {
    places[v.0 as usize].clone().ok_or_else(|| Error::Internal(format!("%{} is read before it is computed", v.0)))
}

/// Which units read each value that a product computes, in execution order.
fn readers(
    graph: &Graph,
    order: &[Unit],
    in_memory: &[bool],
    base: &dyn Fn(&Node, usize) -> Option<Value>,
) -> FxHashMap<Value, Vec<usize>> {
    let product = |v: Value| graph.node_of(v).is_some_and(|n| matches!(n.op, Op::Dot(_)));
    let mut found: FxHashMap<Value, Vec<usize>> = FxHashMap::default();
    for (k, unit) in order.iter().enumerate() {
        let mut seen = FxHashSet::default();
        let mut stack: Vec<Value> = Vec::new();
        match unit {
            Unit::Anchor(n) => {
                let node = &graph.nodes()[*n];
                for i in 0..node.args.len() {
                    match base(node, i) {
                        Some(v) if product(v) && seen.insert(v) => found.entry(v).or_default().push(k),
                        Some(_) => {}
                        None => stack.push(node.args[i]),
                    }
                }
            }
            Unit::Group(g) => {
                let args = |v: Value| graph.node_of(v).map(|n| n.args.to_vec()).unwrap_or_default();
                stack.extend(g.roots.iter().flat_map(|r| args(r.value)));
            }
        }
        let own = |v: Value| matches!(unit, Unit::Group(g) if g.roots.iter().any(|r| r.value == v));
        // An expression reaches as far as values in memory.
        while let Some(v) = stack.pop() {
            if !seen.insert(v) {
                continue;
            }
            if product(v) {
                found.entry(v).or_default().push(k);
            } else if let Some(n) = graph.node_of(v)
                && (own(v) || !in_memory[v.0 as usize])
            {
                stack.extend(&n.args);
            }
        }
    }
    found
}

/// Notes for people who ask what was fused.
impl Lowering {
    fn note_group(&mut self, graph: &Graph, group: &Group, in_memory: &[bool], apart: &[Apart], step: usize) {
        let Some(e) = &mut self.explanation else { return };
        let what = format!(
            "kernel over {:?}{}",
            &group.full[..],
            match &group.red[..] {
                [] => String::new(),
                axes => format!(", reduced over {axes:?}"),
            }
        );
        let mut fused = Vec::new();
        let mut reasons = Vec::new();
        for r in &group.roots {
            let Some(node) = graph.node_of(r.value) else { continue };
            let mut ops = BTreeMap::new();
            let mut stack = vec![node];
            let mut seen = FxHashSet::default();
            while let Some(n) = stack.pop() {
                if !seen.insert(n.outs[0]) {
                    continue;
                }
                *ops.entry(n.op.name()).or_insert(0usize) += 1;
                let ends = |v: Value| in_memory[v.0 as usize] || group.roots.iter().any(|r| r.value == v);
                stack.extend(n.args.iter().filter(|a| !ends(**a)).filter_map(|a| graph.node_of(*a)));
            }
            let list: Vec<String> =
                (ops.iter()).map(|(name, n)| if *n == 1 { name.to_string() } else { format!("{name} ×{n}") }).collect();
            let kept = if r.stored { "" } else { ", not stored" };
            let at = if node.loc == Loc::Unknown { String::new() } else { format!(" at {}", node.loc) };
            fused.push(format!("%{} {}{kept} = {}{at}", r.value.0, graph.ty(r.value), list.join(", ")));
            for a in apart.iter().filter(|a| a.value == r.value) {
                if !group.roots.iter().any(|r| r.value == a.other) {
                    reasons.push(format!("%{} from %{}: {}", a.value.0, a.other.0, a.why));
                }
            }
        }
        e.add(step, what, fused, reasons);
    }

    fn note_anchor(&mut self, graph: &Graph, node: &Node, why: Option<&str>, step: usize) {
        let Some(e) = &mut self.explanation else { return };
        let types: Vec<String> = node.args.iter().map(|a| graph.ty(*a).to_string()).collect();
        let name = crate::program::library_name(&node.op);
        let at = if node.loc == Loc::Unknown { String::new() } else { format!(" at {}", node.loc) };
        let apart = why.map(|w| format!("what follows: {w}")).into_iter().collect();
        e.add(step, format!("{name} {}{at}", types.join(", ")), Vec::new(), apart);
    }
}

/// Where an op reads an operand.
fn read(graph: &Graph, node: &Node, i: usize, places: &[Option<Place>]) -> Result<Place> {
    let view = operand(graph, node, i);
    let mut place = place_of(places, view.base)?;
    place.offset += view.offset * graph.ty(view.base).dtype.size() as i64;
    Ok(place)
}

/// How an op reads an operand: a matrix product takes any strides that three numbers can say, other ops dense values. A
/// reshaped value is as dense as it was, so it is read where it lies; loops and branches read a dense part of one too.
fn operand(graph: &Graph, node: &Node, i: usize) -> Strided {
    let v = node.args[i];
    if let Op::Dot(dot) = &node.op {
        let view = strided(graph, v);
        if matrix(graph, dot, node, i, &view).is_some() {
            return view;
        }
        return Strided::dense(graph, v);
    }
    let view = strided(graph, v);
    let parts = matches!(node.op, Op::Scan(_) | Op::While(_) | Op::Cond(_));
    if view.is_dense(&graph.ty(v).shape) && (parts || view.offset == 0) { view } else { Strided::dense(graph, v) }
}

/// Batch, free and contracted axes of an operand, each as one (size, stride).
fn matrix(graph: &Graph, dot: &Dot, node: &Node, i: usize, view: &Strided) -> Option<[(usize, i64); 3]> {
    let shape = &graph.ty(node.args[i]).shape;
    let (batch, contract, free) = match i {
        0 => (&dot.lhs_batch, &dot.lhs_contract, dot.lhs_free(shape.len())),
        _ => (&dot.rhs_batch, &dot.rhs_contract, dot.rhs_free(shape.len())),
    };
    let one = |axes: &[usize]| {
        let sizes: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
        let strides: Vec<i64> = axes.iter().map(|&a| view.strides[a]).collect();
        joined(&sizes, &strides)
    };
    Some([one(batch)?, one(&free)?, one(contract)?])
}

/// What products compute as they read it, and what is in memory.
#[derive(Clone, Copy)]
struct Fused<'a> {
    computed: &'a FxHashSet<Value>,
    in_memory: &'a [bool],
}

/// The value that an op wants in memory for an operand; none if it computes the operand as it reads it.
fn memory_operand(graph: &Graph, computed: &FxHashSet<Value>, node: &Node, i: usize) -> Option<Value> {
    if matches!(node.op, Op::Dot(_)) && computed.contains(&node.args[i]) {
        return None;
    }
    Some(operand(graph, node, i).base)
}

/// What an element of a computed operand may cost: some products and sums, a conversion.
const PROLOGUE_COST: u32 = 12;

/// Operands that products alone read, and can compute as they pack them.
fn prologues(graph: &Graph, elements: usize) -> FxHashSet<Value> {
    // How many products read a value, itself or a view of it, and whether anything else does.
    let mut products = vec![0u32; graph.num_values()];
    let mut other = vec![false; graph.num_values()];
    graph.outputs().iter().for_each(|v| other[v.0 as usize] = true);
    for node in graph.nodes().iter().rev() {
        for (i, v) in node.args.iter().enumerate() {
            let v = v.0 as usize;
            match &node.op {
                Op::Dot(dot) if worth_computing(graph, dot, node, i, elements) => products[v] += 1,
                op if matches!(op.meaning(), Meaning::View(_)) => {
                    let out = node.outs[0].0 as usize;
                    products[v] += products[out];
                    other[v] |= other[out];
                }
                _ => other[v] = true,
            }
        }
    }
    let mut chosen = FxHashSet::default();
    for node in graph.nodes() {
        let Op::Dot(dot) = &node.op else { continue };
        for (i, &v) in node.args.iter().enumerate() {
            let base = operand(graph, node, i).base.0 as usize;
            if worth_computing(graph, dot, node, i, elements) && products[base] <= 2 && !other[base] {
                chosen.insert(v);
            }
        }
    }
    // What is kept in memory anyway, costs too much or can't be written as a kernel over blocks is not computed.
    while !chosen.is_empty() {
        let base = |node: &Node, i: usize| memory_operand(graph, &chosen, node, i);
        let (kept, cost) = fuse::kept(graph, &graph.live(), &base);
        let source = |v: Value| match kept[v.0 as usize] {
            true => fuse::Source::Memory { shift: None },
            false => fuse::Source::Inline,
        };
        let mut bad = Vec::new();
        for node in graph.nodes() {
            let Op::Dot(dot) = &node.op else { continue };
            for (i, &v) in node.args.iter().enumerate() {
                if chosen.contains(&v)
                    && (kept[v.0 as usize]
                        || kept[operand(graph, node, i).base.0 as usize]
                        || cost[v.0 as usize] > PROLOGUE_COST
                        || fuse::lower_prologue(graph, v, &classes(graph, dot, node, i), &source).is_err())
                {
                    bad.push(v);
                }
            }
        }
        if bad.is_empty() {
            break;
        }
        bad.iter().for_each(|v| {
            chosen.remove(v);
        });
    }
    chosen
}

/// Whether an operand of a product is arithmetic, not a mere view, and the product large enough to pack it.
fn worth_computing(graph: &Graph, dot: &Dot, node: &Node, i: usize, elements: usize) -> bool {
    let Some(made) = graph.node_of(operand(graph, node, i).base) else { return false };
    let (l, r) = (graph.ty(node.args[0]), graph.ty(node.args[1]));
    let size = |t: &Type, axes: &[usize]| axes.iter().map(|&a| t.shape[a]).product::<usize>();
    let (m, n) = (size(l, &dot.lhs_free(l.rank())), size(r, &dot.rhs_free(r.rank())));
    let k = size(l, &dot.lhs_contract);
    // Products of vectors read their matrix where it is.
    m.min(n).min(k) >= elements.min(16) && graph.ty(node.args[i]).numel() >= elements && fuse::in_place(made)
}

/// Which axes of an operand count matrices (0), its rows (1) and its columns (2): A is m × k, B is k × n.
fn classes(graph: &Graph, dot: &Dot, node: &Node, i: usize) -> Vec<usize> {
    let (batch, contract, [free, summed]) = match i {
        0 => (&dot.lhs_batch, &dot.lhs_contract, [1, 2]),
        _ => (&dot.rhs_batch, &dot.rhs_contract, [2, 1]),
    };
    let class = |a: usize| match (batch.contains(&a), contract.contains(&a)) {
        (true, _) => 0,
        (_, true) => summed,
        _ => free,
    };
    (0..graph.ty(node.args[i]).rank()).map(class).collect()
}

fn matmul(
    graph: &Graph,
    dot: &Dot,
    node: &Node,
    fused: Fused<'_>,
    places: &[Option<Place>],
) -> Result<(Matmul, Factor, Factor)> {
    let dtype = graph.ty(node.args[0]).dtype;
    let mut sides = Vec::with_capacity(2);
    for i in 0..2 {
        if fused.computed.contains(&node.args[i]) {
            sides.push(computed(graph, dot, node, i, fused.in_memory, places)?);
            continue;
        }
        let view = operand(graph, node, i);
        let axes = matrix(graph, dot, node, i, &view)
            .ok_or_else(|| Error::Internal("a product whose axes were not put in order".into()))?;
        let mut place = place_of(places, view.base)?;
        place.offset += view.offset * dtype.size() as i64;
        sides.push((axes, Factor::Memory(place)));
    }
    let (b, pb) = sides.pop().expect("two operands");
    let (a, pa) = sides.pop().expect("two operands");
    let (m, n, k) = (a[1].0, b[1].0, a[2].0);
    let shape = Matmul {
        dtype,
        acc: dot.acc,
        out: dot.out,
        batch: a[0].0,
        m,
        n,
        k,
        a: [a[0].1 as isize, a[1].1 as isize, a[2].1 as isize],
        b: [b[0].1 as isize, b[2].1 as isize, b[1].1 as isize],
        c: [(m * n) as isize, n as isize, 1],
    };
    Ok((shape, pa, pb))
}

/// An operand that the product computes: its sizes, as if it were dense, and the kernel that writes its blocks.
fn computed(
    graph: &Graph,
    dot: &Dot,
    node: &Node,
    i: usize,
    in_memory: &[bool],
    places: &[Option<Place>],
) -> Result<([(usize, i64); 3], Factor)> {
    let v = node.args[i];
    let axes = matrix(graph, dot, node, i, &Strided::dense(graph, v))
        .ok_or_else(|| Error::Internal("a product whose axes were not put in order".into()))?;
    let source = |v: Value| match in_memory[v.0 as usize] {
        true => fuse::Source::Memory { shift: None },
        false => fuse::Source::Inline,
    };
    let lowered = fuse::lower_prologue(graph, v, &classes(graph, dot, node, i), &source)
        .map_err(|e| Error::Internal(format!("an operand can't be computed by its product: {e:?}")))?;
    let mut args = Vec::with_capacity(lowered.params.len());
    for p in &lowered.params[1..] {
        match p {
            Param::Value(v) => args.push(place_of(places, *v)?),
            Param::Scratch(_) => return Err(Error::Internal("an operand that needs scratch".into())),
        }
    }
    Ok((axes, Factor::Computed(Box::new(Prologue { kernel: Arc::new(lowered.kernel), args }))))
}
