//! Combines the gradients of slices of a value.
//!
//! Each slice of a value (`narrow`, `index`, `split`) has a zero-padded gradient, and these are added up: each pad and
//! each sum is as large as the whole value. In eager execution they dominate the memory traffic. Here equal slices are merged
//! before differentiation, and sums of padded slices that do not overlap become one concatenation.

use ir::ops::{Concat, Pad};
use ir::{Binary, Graph, Literal, Op, Result, Type, Value, Values};
use std::collections::{BTreeMap, HashMap};

/// Merges equal ops, because every use of a view is recorded as a new op.
pub fn deduplicate(graph: &Graph) -> Result<Graph> {
    let mut new = Graph::new();
    let inputs: Vec<Value> = graph.input_types().into_iter().map(|t| new.input(t)).collect();
    let mut known: HashMap<(Op, Values), Values> = HashMap::new();
    let outs = graph.inline_with(&inputs, |node, args| {
        let key = (node.op.clone(), Values::from_slice(args));
        if let Some(outs) = known.get(&key) {
            return Ok(outs.clone());
        }
        let outs = new.push(node.op.clone(), args, node.loc.clone())?;
        known.insert(key, outs.clone());
        Ok(outs)
    })?;
    new.set_outputs(outs);
    Ok(new)
}

/// A value that is zero except for a slice along one axis.
#[derive(Clone, Copy)]
struct PaddedSlice {
    inner: Value,
    axis: usize,
    from: usize,
    size: usize,
}

/// Rewrites sums of padded slices to concatenations.
pub fn sums_to_concats(graph: &Graph) -> Result<Graph> {
    let sums = PaddedSliceSums::new(graph);
    if sums.roots.is_empty() {
        return Ok(graph.clone());
    }
    let mut new = Graph::new();
    let mut map: Vec<Option<Value>> = vec![None; graph.num_values()];
    for &v in graph.inputs() {
        map[v.0 as usize] = Some(new.input(graph.ty(v).clone()));
    }
    for (i, node) in graph.nodes().iter().enumerate() {
        let of = |v: &Value| map[v.0 as usize].ok_or_else(|| ir::Error::Invalid("a value before its op".into()));
        let outs = match sums.roots.get(&i) {
            None => {
                let args = node.args.iter().map(of).collect::<Result<Values>>()?;
                new.push(node.op.clone(), &args, node.loc.clone())?
            }
            Some(root) => {
                let pieces = root.parts.iter().map(|p| of(&p.inner)).collect::<Result<Vec<Value>>>()?;
                let mut sum = new.push(Concat { axis: root.axis }.into(), &pieces, node.loc.clone())?[0];
                if let Some(pad) = &root.pad {
                    let zero = Literal::zeros(Type::scalar(graph.ty(node.outs[0]).dtype));
                    let zero = new.push(ir::ops::Const(zero).into(), &[], node.loc.clone())?[0];
                    sum = new.push(pad.clone().into(), &[sum, zero], node.loc.clone())?[0];
                }
                for other in &root.others {
                    sum = new.push(Binary::Add.into(), &[sum, of(other)?], node.loc.clone())?[0];
                }
                Values::from_slice(&[sum])
            }
        };
        for (v, out) in node.outs.iter().zip(outs) {
            map[v.0 as usize] = Some(out);
        }
    }
    let outs: Option<Vec<Value>> = graph.outputs().iter().map(|v| map[v.0 as usize]).collect();
    new.set_outputs(outs.ok_or_else(|| ir::Error::Invalid("an output that nothing computes".into()))?);
    Ok(new.without_dead_nodes())
}

/// A sum that becomes a concatenation, and the other summands.
struct ConcatSum {
    axis: usize,
    parts: Vec<PaddedSlice>,
    /// The padding around the concatenation.
    pad: Option<Pad>,
    others: Vec<Value>,
}

struct PaddedSliceSums<'a> {
    graph: &'a Graph,
    maker: Vec<Option<usize>>,
    uses: Vec<usize>,
    /// Sums, by the node of the last addition.
    roots: BTreeMap<usize, ConcatSum>,
}

impl<'a> PaddedSliceSums<'a> {
    fn new(graph: &'a Graph) -> PaddedSliceSums<'a> {
        let mut maker = vec![None; graph.num_values()];
        let mut uses = vec![0; graph.num_values()];
        for (i, node) in graph.nodes().iter().enumerate() {
            node.outs.iter().for_each(|v| maker[v.0 as usize] = Some(i));
            node.args.iter().for_each(|v| uses[v.0 as usize] += 1);
        }
        graph.outputs().iter().for_each(|v| uses[v.0 as usize] += 1);
        let mut sums = PaddedSliceSums { graph, maker, uses, roots: BTreeMap::new() };
        // Nested sums are part of the outer sum.
        let mut inner = vec![false; graph.nodes().len()];
        for (i, node) in graph.nodes().iter().enumerate().rev() {
            if inner[i] || !is_sum(&node.op) {
                continue;
            }
            let mut leaves = Vec::new();
            sums.summands(i, &mut inner, &mut leaves);
            if let Some(root) = sums.root(&leaves) {
                sums.roots.insert(i, root);
            }
        }
        sums
    }

    /// Collects the summands of an addition, through additions without other uses.
    fn summands(&self, sum: usize, inner: &mut [bool], found: &mut Vec<Value>) {
        for &v in &self.graph.nodes()[sum].args {
            match self.maker[v.0 as usize] {
                Some(i) if self.uses[v.0 as usize] == 1 && is_sum(&self.graph.nodes()[i].op) => {
                    inner[i] = true;
                    self.summands(i, inner, found);
                }
                _ => found.push(v),
            }
        }
    }

    fn root(&self, leaves: &[Value]) -> Option<ConcatSum> {
        let parts: Vec<(usize, PaddedSlice)> =
            leaves.iter().enumerate().filter_map(|(i, v)| self.padded_slice(*v).map(|p| (i, p))).collect();
        let axis = parts.first()?.1.axis;
        let mut row: Vec<(usize, PaddedSlice)> = Vec::new();
        let mut sorted: Vec<&(usize, PaddedSlice)> = parts.iter().filter(|(_, p)| p.axis == axis).collect();
        sorted.sort_by_key(|(_, p)| p.from);
        for &&(i, p) in &sorted {
            // The slice starts where the previous one ends.
            if row.last().is_none_or(|(_, last)| last.from + last.size == p.from) {
                row.push((i, p));
            }
        }
        let (first, last) = (row.first()?.1, row.last()?.1);
        if row.len() < 2 {
            return None;
        }
        let ty = self.graph.ty(leaves[0]);
        let (low, high) = (first.from, ty.shape[axis] - last.from - last.size);
        let pad = (low + high > 0).then(|| {
            let mut pad = Pad {
                low: ty.shape.iter().map(|_| 0).collect(),
                high: ty.shape.iter().map(|_| 0).collect(),
                interior: ty.shape.iter().map(|_| 0).collect(),
            };
            (pad.low[axis], pad.high[axis]) = (low as i64, high as i64);
            pad
        });
        let taken = |i: usize| row.iter().any(|(k, _)| *k == i);
        let others = leaves.iter().enumerate().filter(|(i, _)| !taken(*i)).map(|(_, v)| *v).collect();
        Some(ConcatSum { axis, parts: row.iter().map(|(_, p)| *p).collect(), pad, others })
    }

    /// Matches a value that only the sum reads: zero padding around a slice, along one axis.
    fn padded_slice(&self, v: Value) -> Option<PaddedSlice> {
        let node = &self.graph.nodes()[self.maker[v.0 as usize]?];
        let Op::Pad(pad) = &node.op else { return None };
        let zero = &self.graph.nodes()[self.maker[node.args[1].0 as usize]?];
        let is_zero = matches!(&zero.op, Op::Const(c) if c.0.bytes().iter().all(|b| *b == 0));
        if !is_zero || self.uses[v.0 as usize] != 1 || pad.interior.iter().any(|n| *n != 0) {
            return None;
        }
        let changed: Vec<usize> = (0..pad.low.len()).filter(|&a| pad.low[a] != 0 || pad.high[a] != 0).collect();
        let [axis] = changed[..] else { return None };
        let from = usize::try_from(pad.low[axis]).ok()?;
        usize::try_from(pad.high[axis]).ok()?;
        Some(PaddedSlice { inner: node.args[0], axis, from, size: self.graph.ty(node.args[0]).shape[axis] })
    }
}

fn is_sum(op: &Op) -> bool {
    *op == Op::from(Binary::Add)
}
