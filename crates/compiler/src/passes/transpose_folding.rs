//! Folds permutations that cancel across a computation: `permute(f(permute(x)))` is `f` with renamed axes.
//!
//! A softmax over a middle axis is one over the last axis between two permutations. With renamed axes it accesses memory in its
//! original order, and is one kernel.

use ir::ops::Reduce;
use ir::{Builder, GraphBuilder, Op, Result, Semantics, Shape, Value};
use rustc_hash::FxHashMap;

/// The maximum number of nodes in the search.
const MAX_NODES: usize = 64;

/// `permute(v, perm)` without the permutation, if the value consists of permutations that this one cancels, of broadcast values,
/// and of elementwise functions and reductions of such values.
pub(super) fn fold_permutation(b: &mut Builder, v: Value, perm: &[usize]) -> Result<Option<Value>> {
    let mut look = PermutationSearch { perm: perm.into(), seen: 0, undone: false, renamed: FxHashMap::default() };
    if !look.possible(b, v, &mut FxHashMap::default()) || !look.undone {
        return Ok(None);
    }
    look.rename(b, v).map(Some)
}

struct PermutationSearch {
    perm: Shape,
    seen: usize,
    /// Whether a permutation is cancelled.
    undone: bool,
    renamed: FxHashMap<Value, Value>,
}

impl PermutationSearch {
    /// The new position of an axis.
    fn place(&self, axis: usize) -> Option<usize> {
        self.perm.iter().position(|&a| a == axis)
    }

    fn increasing(&self, axes: &[usize]) -> bool {
        let to: Vec<Option<usize>> = axes.iter().map(|&a| self.place(a)).collect();
        to.windows(2).all(|w| w[0] < w[1])
    }

    /// Whether the axes of the value can be renamed; records whether that removes a permutation.
    fn possible(&mut self, b: &Builder, v: Value, known: &mut FxHashMap<(Value, bool), bool>) -> bool {
        if let Some(&k) = known.get(&(v, true)) {
            return k;
        }
        self.seen += 1;
        let Some(node) = b.graph.node_of(v).filter(|_| self.seen < MAX_NODES) else { return false };
        let args = &node.args;
        let can = match &node.op {
            Op::Permute(q) => {
                let undone = self.perm.iter().enumerate().all(|(i, &a)| q.perm[a] == i);
                self.undone |= undone;
                undone
            }
            Op::Broadcast(o) => self.increasing(&o.dims) && self.kept(b, args[0], known),
            op if node.outs.len() == 1 && matches!(op.semantics(), Semantics::Elementwise(_)) => {
                args.iter().all(|&a| self.possible(b, a, known))
            }
            _ => false,
        };
        known.insert((v, true), can);
        can
    }

    /// Whether a value without some of the axes can stay unchanged: always, except that a reduction of a value whose axes cannot be
    /// renamed would be computed twice.
    fn kept(&mut self, b: &Builder, v: Value, known: &mut FxHashMap<(Value, bool), bool>) -> bool {
        if let Some(&k) = known.get(&(v, false)) {
            return k;
        }
        self.seen += 1;
        let Some(node) = b.graph.node_of(v) else { return true };
        if self.seen >= MAX_NODES {
            return false;
        }
        let args = &node.args;
        let can = match &node.op {
            Op::Reduce(r) if b.ty(args[0]).rank() == self.perm.len() => {
                let others: Vec<usize> = (0..self.perm.len()).filter(|a| !r.axes.contains(a)).collect();
                self.increasing(&others) && self.possible(b, args[0], known)
            }
            op if matches!(op.semantics(), Semantics::Elementwise(_)) => args.iter().all(|&a| self.kept(b, a, known)),
            _ => true,
        };
        known.insert((v, false), can);
        can
    }

    fn rename(&mut self, b: &mut Builder, v: Value) -> Result<Value> {
        if let Some(&r) = self.renamed.get(&v) {
            return Ok(r);
        }
        let node = b.graph.node_of(v).expect("looked at before");
        let (op, args) = (node.op.clone(), node.args.clone());
        let r = match &op {
            Op::Permute(_) => args[0],
            Op::Broadcast(o) => {
                let shape: Shape = self.perm.iter().map(|&a| o.shape[a]).collect();
                let dims: Shape = o.dims.iter().filter_map(|&d| self.place(d)).collect();
                let x = self.restate(b, args[0])?;
                b.broadcast(x, &shape, &dims)?
            }
            _ => {
                let args: Vec<Value> = args.iter().map(|&a| self.rename(b, a)).collect::<Result<_>>()?;
                b.one(op, &args)?
            }
        };
        self.renamed.insert(v, r);
        Ok(r)
    }

    /// The same value, with reductions of operands whose axes are renamed.
    fn restate(&mut self, b: &mut Builder, v: Value) -> Result<Value> {
        let Some(node) = b.graph.node_of(v) else { return Ok(v) };
        let (op, args) = (node.op.clone(), node.args.clone());
        match &op {
            Op::Reduce(r) if b.ty(args[0]).rank() == self.perm.len() => {
                let mut axes: Shape = r.axes.iter().filter_map(|&a| self.place(a)).collect();
                axes.sort_unstable();
                let x = self.rename(b, args[0])?;
                b.one(Reduce { kind: r.kind, axes }.into(), &[x])
            }
            _ if matches!(op.semantics(), Semantics::Elementwise(_)) && !args.is_empty() => {
                let args: Vec<Value> = args.iter().map(|&a| self.restate(b, a)).collect::<Result<_>>()?;
                b.one(op, &args)
            }
            _ => Ok(v),
        }
    }
}
