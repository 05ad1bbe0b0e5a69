//! Operands of matrix products: which views they read in place, which operands they compute while packing, and which units read
//! their results.

use crate::fuse::{self, FusionUnit, Param};
use crate::program::{BufferSlice, Matmul, MatmulOperand, Prologue};
use crate::schedule::buffer_slice_of;
use crate::strided::{Strided, merge_strides, resolve_views};
use crate::target::Target;
use crate::{Error, Result};
use ir::ops::Dot;
use ir::{Graph, Node, Op, Semantics, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Rematerializes cheap values for distant consumers, given the values that fusion would keep in memory.
pub(crate) fn recompute(graph: &Graph, target: &Target) -> Graph {
    let base = |node: &Node, i: usize| operand(graph, node, i).base;
    let kept = fuse::materialized_values(graph, &graph.live_values(), &|node, i| Some(base(node, i)), target);
    let standalone = |node: &Node| fuse::is_standalone(node, target);
    crate::passes::rematerialize_cheap::rematerialize_cheap(graph, &kept, &standalone, &base, &target.recompute)
}

/// The units that read each result of a matrix product, in execution order.
pub(crate) fn readers(
    graph: &Graph,
    order: &[FusionUnit],
    in_memory: &[bool],
    base: &dyn Fn(&Node, usize) -> Option<Value>,
) -> FxHashMap<Value, Vec<usize>> {
    let product = |v: Value| graph.node_of(v).is_some_and(|n| matches!(n.op, Op::Dot(_)));
    let mut found: FxHashMap<Value, Vec<usize>> = FxHashMap::default();
    for (k, unit) in order.iter().enumerate() {
        let mut seen = FxHashSet::default();
        let mut stack: Vec<Value> = Vec::new();
        match unit {
            FusionUnit::Standalone(n) => {
                let node = &graph.nodes()[*n];
                for i in 0..node.args.len() {
                    match base(node, i) {
                        Some(v) if product(v) && seen.insert(v) => found.entry(v).or_default().push(k),
                        Some(_) => {}
                        None => stack.push(node.args[i]),
                    }
                }
            }
            FusionUnit::Group(g) => {
                let args = |v: Value| graph.node_of(v).map(|n| n.args.to_vec()).unwrap_or_default();
                stack.extend(g.roots.iter().flat_map(|r| args(r.value)));
            }
        }
        let own = |v: Value| matches!(unit, FusionUnit::Group(g) if g.roots.iter().any(|r| r.value == v));
        // Follow an expression back to values in memory.
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

/// The buffer slice from which an op reads an operand.
pub(crate) fn read(graph: &Graph, node: &Node, i: usize, places: &[Option<BufferSlice>]) -> Result<BufferSlice> {
    let view = operand(graph, node, i);
    let mut place = buffer_slice_of(places, view.base)?;
    place.offset += view.offset * graph.ty(view.base).dtype.size() as i64;
    Ok(place)
}

/// The layout in which an op reads an operand: a matrix product supports three strides, other ops need dense values. A
/// reshaped value stays dense, so it is read in place; loops and branches also read a dense part of a value in place.
fn operand(graph: &Graph, node: &Node, i: usize) -> Strided {
    let v = node.args[i];
    if let Op::Dot(dot) = &node.op {
        let view = resolve_views(graph, v);
        if matrix(graph, dot, node, i, &view).is_some() {
            return view;
        }
        return Strided::dense(graph, v);
    }
    let view = resolve_views(graph, v);
    let parts = matches!(node.op, Op::Scan(_) | Op::While(_) | Op::Cond(_));
    if view.is_dense(&graph.ty(v).shape) && (parts || view.offset == 0) { view } else { Strided::dense(graph, v) }
}

/// The batch, free and contracted axes of an operand, each merged to one (size, stride).
fn matrix(graph: &Graph, dot: &Dot, node: &Node, i: usize, view: &Strided) -> Option<[(usize, i64); 3]> {
    let shape = &graph.ty(node.args[i]).shape;
    let (batch, contract, free) = match i {
        0 => (&dot.lhs_batch, &dot.lhs_contract, dot.lhs_free(shape.len())),
        _ => (&dot.rhs_batch, &dot.rhs_contract, dot.rhs_free(shape.len())),
    };
    let one = |axes: &[usize]| {
        let sizes: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
        let strides: Vec<i64> = axes.iter().map(|&a| view.strides[a]).collect();
        merge_strides(&sizes, &strides)
    };
    Some([one(batch)?, one(&free)?, one(contract)?])
}

/// The operands that matrix products compute while packing, and the values in memory.
#[derive(Clone, Copy)]
pub(crate) struct FusedOperands<'a> {
    pub(crate) computed: &'a FxHashSet<Value>,
    pub(crate) in_memory: &'a [bool],
}

/// The value that an op needs in memory for an operand; none if it computes the operand while it reads it.
pub(crate) fn memory_operand(graph: &Graph, computed: &FxHashSet<Value>, node: &Node, i: usize) -> Option<Value> {
    if matches!(node.op, Op::Dot(_)) && computed.contains(&node.args[i]) {
        return None;
    }
    Some(operand(graph, node, i).base)
}

/// The operands that only matrix products read, and that they can compute while packing.
pub(crate) fn prologues(graph: &Graph, target: &Target, elements: Option<usize>) -> FxHashSet<Value> {
    let Some(limits) = target.matmul.prologues else { return FxHashSet::default() };
    let elements = elements.unwrap_or(limits.min_elements);
    // For each value the number of matrix products that read it or a view of it, and whether it has other consumers.
    let mut products = vec![0u32; graph.num_values()];
    let mut other = vec![false; graph.num_values()];
    graph.outputs().iter().for_each(|v| other[v.0 as usize] = true);
    for node in graph.nodes().iter().rev() {
        for (i, v) in node.args.iter().enumerate() {
            let v = v.0 as usize;
            match &node.op {
                Op::Dot(dot) if should_fuse_prologue(graph, dot, node, i, elements) => products[v] += 1,
                op if matches!(op.semantics(), Semantics::View(_)) => {
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
            if should_fuse_prologue(graph, dot, node, i, elements) && products[base] <= 2 && !other[base] {
                chosen.insert(v);
            }
        }
    }
    // Remove operands that are in memory anyway, are too expensive, or cannot be lowered to a kernel over blocks.
    while !chosen.is_empty() {
        let base = |node: &Node, i: usize| memory_operand(graph, &chosen, node, i);
        let (kept, cost) = fuse::materialized_values(graph, &graph.live_values(), &base, target);
        let source = |v: Value| match kept[v.0 as usize] {
            true => fuse::ValueSource::Memory { shift: None },
            false => fuse::ValueSource::Inline,
        };
        let mut bad = Vec::new();
        for node in graph.nodes() {
            let Op::Dot(dot) = &node.op else { continue };
            for (i, &v) in node.args.iter().enumerate() {
                if chosen.contains(&v)
                    && (kept[v.0 as usize]
                        || kept[operand(graph, node, i).base.0 as usize]
                        || cost[v.0 as usize] > limits.max_element_cost
                        || fuse::lower_prologue(graph, v, &classify_axes(graph, dot, node, i), &source, target)
                            .is_err())
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

/// Whether an operand of a matrix product is an elementwise expression, not just a view, and the product is large enough for
/// packing.
fn should_fuse_prologue(graph: &Graph, dot: &Dot, node: &Node, i: usize, elements: usize) -> bool {
    let Some(made) = graph.node_of(operand(graph, node, i).base) else { return false };
    let (l, r) = (graph.ty(node.args[0]), graph.ty(node.args[1]));
    let size = |t: &Type, axes: &[usize]| axes.iter().map(|&a| t.shape[a]).product::<usize>();
    let (m, n) = (size(l, &dot.lhs_free(l.rank())), size(r, &dot.rhs_free(r.rank())));
    let k = size(l, &dot.lhs_contract);
    // Matrix-vector products read their matrix in place.
    m.min(n).min(k) >= elements.min(16) && graph.ty(node.args[i]).numel() >= elements && fuse::in_place(made)
}

/// Whether each axis of an operand is a batch (0), row (1) or column (2) axis: A is m × k, B is k × n.
fn classify_axes(graph: &Graph, dot: &Dot, node: &Node, i: usize) -> Vec<usize> {
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

pub(crate) fn matmul(
    graph: &Graph,
    dot: &Dot,
    node: &Node,
    fused: FusedOperands<'_>,
    places: &[Option<BufferSlice>],
    target: &Target,
) -> Result<(Matmul, MatmulOperand, MatmulOperand)> {
    let dtype = graph.ty(node.args[0]).dtype;
    let mut sides = Vec::with_capacity(2);
    for i in 0..2 {
        if fused.computed.contains(&node.args[i]) {
            sides.push(computed(graph, dot, node, i, fused.in_memory, places, target)?);
            continue;
        }
        let view = operand(graph, node, i);
        let axes = matrix(graph, dot, node, i, &view)
            .ok_or_else(|| Error::Internal("a product whose axes were not put in order".into()))?;
        let mut place = buffer_slice_of(places, view.base)?;
        place.offset += view.offset * dtype.size() as i64;
        sides.push((axes, MatmulOperand::Memory(place)));
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

/// A prologue operand: its sizes as if it were dense, and the kernel that writes its blocks.
fn computed(
    graph: &Graph,
    dot: &Dot,
    node: &Node,
    i: usize,
    in_memory: &[bool],
    places: &[Option<BufferSlice>],
    target: &Target,
) -> Result<([(usize, i64); 3], MatmulOperand)> {
    let v = node.args[i];
    let axes = matrix(graph, dot, node, i, &Strided::dense(graph, v))
        .ok_or_else(|| Error::Internal("a product whose axes were not put in order".into()))?;
    let source = |v: Value| match in_memory[v.0 as usize] {
        true => fuse::ValueSource::Memory { shift: None },
        false => fuse::ValueSource::Inline,
    };
    let lowered = fuse::lower_prologue(graph, v, &classify_axes(graph, dot, node, i), &source, target)
        .map_err(|e| Error::Internal(format!("an operand can't be computed by its product: {e:?}")))?;
    let mut args = Vec::with_capacity(lowered.params.len());
    for p in &lowered.params[1..] {
        match p {
            Param::Value(v) => args.push(buffer_slice_of(places, *v)?),
            Param::Scratch(_) => return Err(Error::Internal("an operand that needs scratch".into())),
        }
    }
    Ok((axes, MatmulOperand::Computed(Box::new(Prologue { kernel: Arc::new(lowered.kernel), args }))))
}
