//! Computes one row of a graph's first result instead of all: after a prompt only the last position is needed, and the product
//! with the vocabulary is the largest of the model.
//!
//! The slice of a row is moved up through row-wise computations (elementwise ops, products,
//! broadcasts) and stays a slice at any other op.

use crate::error::Result;
use ir::ops::{Semantics, View};
use ir::{Builder, DType, Graph, GraphBuilder, Shape, Type, Value};
use std::collections::BTreeMap;

/// Returns the graph with an additional input, the row index (i32), whose first output is this row along `axis`.
pub(crate) fn select_last_token(graph: &Graph, axis: usize) -> Result<Graph> {
    let mut b = Builder::new();
    let inputs: Vec<Value> = graph.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    let row = b.graph.input(Type::new(DType::I32, &[]));
    let mut map: BTreeMap<Value, Value> = graph.inputs().iter().copied().zip(inputs).collect();
    for node in graph.nodes() {
        let args: Vec<Value> = node.args.iter().map(|arg| map[arg]).collect();
        b.loc = node.loc.clone();
        let outs = b.emit(node.op.clone(), &args)?;
        map.extend(node.outs.iter().copied().zip(outs));
    }
    let Some((&first, rest)) = graph.outputs().split_first() else { return Ok(b.finish(&[])) };
    let mut rows = RowSelector { graph, map: &map, row, done: BTreeMap::new() };
    let one = rows.select(&mut b, first, axis, 0)?;
    let outs: Vec<Value> = std::iter::once(one).chain(rest.iter().map(|out| map[out])).collect();
    Ok(b.finish(&outs))
}

/// The operand of the product that computes the first result, as the only output: the hidden states before the head.
pub(crate) fn head_input(graph: &Graph) -> Option<Value> {
    let mut at = *graph.outputs().first()?;
    loop {
        let node = graph.node_of(at)?;
        match (node.op.semantics(), &node.op) {
            (Semantics::DotGeneral(_), _) => return node.args.first().copied(),
            (Semantics::Elementwise(_), _) => {
                let same = |arg: &&Value| graph.ty(**arg).shape == graph.ty(at).shape && !is_constant(graph, **arg);
                at = *node.args.iter().find(same)?;
            }
            (Semantics::View(_), _) => at = *node.args.first()?,
            _ => return None,
        }
    }
}

fn is_constant(graph: &Graph, value: Value) -> bool {
    match graph.node_of(value) {
        None => false,
        Some(node) => node.args.iter().all(|arg| is_constant(graph, *arg)),
    }
}

/// Maximum depth of a chain of ops that is recomputed for a row.
const MAX_DEPTH: usize = 32;

struct RowSelector<'a> {
    graph: &'a Graph,
    /// The full values in the new graph.
    map: &'a BTreeMap<Value, Value>,
    row: Value,
    done: BTreeMap<(Value, usize), Value>,
}

impl RowSelector<'_> {
    /// Returns the row of a value along an axis.
    fn select(&mut self, b: &mut Builder, value: Value, axis: usize, depth: usize) -> ir::Result<Value> {
        if let Some(done) = self.done.get(&(value, axis)) {
            return Ok(*done);
        }
        let found = match self.select_operands(b, value, axis, depth)? {
            Some(found) => found,
            None => {
                let ty = self.graph.ty(value);
                let zero = b.scalar(DType::I32, 0.0)?;
                let starts: Vec<Value> = (0..ty.rank()).map(|a| if a == axis { self.row } else { zero }).collect();
                let mut sizes = ty.shape.clone();
                sizes[axis] = 1;
                b.dynamic_slice(self.map[&value], &starts, &sizes)?
            }
        };
        self.done.insert((value, axis), found);
        Ok(found)
    }

    /// Computes the row of a value from the rows of its operands, if possible.
    fn select_operands(
        &mut self,
        b: &mut Builder,
        value: Value,
        axis: usize,
        depth: usize,
    ) -> ir::Result<Option<Value>> {
        let Some(node) = self.graph.node_of(value).filter(|node| depth < MAX_DEPTH && node.outs.len() == 1) else {
            return Ok(None);
        };
        let shape = &self.graph.ty(value).shape;
        match (node.op.semantics(), &node.op) {
            (Semantics::Elementwise(_), op) => {
                if node.args.iter().any(|arg| self.graph.ty(*arg).shape != *shape) {
                    return Ok(None);
                }
                let mut args = Vec::new();
                for arg in &node.args {
                    args.push(self.select(b, *arg, axis, depth + 1)?);
                }
                b.loc = node.loc.clone();
                Ok(Some(b.one(op.clone(), &args)?))
            }
            (Semantics::DotGeneral(dot), op) => {
                let rank = self.graph.ty(node.args[0]).rank();
                let mut free = (0..rank).filter(|a| !dot.lhs_batch.contains(a) && !dot.lhs_contract.contains(a));
                let Some(own) = axis.checked_sub(dot.lhs_batch.len()).and_then(|n| free.nth(n)) else {
                    return Ok(None);
                };
                let left = self.select(b, node.args[0], own, depth + 1)?;
                b.loc = node.loc.clone();
                Ok(Some(b.one(op.clone(), &[left, self.map[&node.args[1]]])?))
            }
            (Semantics::View(View::Broadcast(dims)), _) => {
                let from = match dims.iter().position(|d| *d == axis) {
                    None => self.map[&node.args[0]],
                    Some(own) if self.graph.ty(node.args[0]).shape[own] == shape[axis] && shape[axis] > 1 => {
                        self.select(b, node.args[0], own, depth + 1)?
                    }
                    Some(_) => return Ok(None),
                };
                let mut to: Shape = shape.clone();
                to[axis] = 1;
                b.loc = node.loc.clone();
                Ok(Some(b.broadcast(from, &to, &dims)?))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{Literal, Op, Scalar, interp};

    /// Tests that the rows of products, sums and broadcasts equal those of the full computation.
    #[test]
    fn a_row_is_that_of_the_whole() {
        let ty = |shape: &[usize]| Type::new(DType::F32, shape);
        let mut b = Builder::new();
        let (x, w) = (b.graph.input(ty(&[1, 5, 3])), b.graph.input(ty(&[7, 3])));
        let bias = b.graph.input(ty(&[7]));
        let sum = b.sum(x, &[2]).expect("sum");
        let sum = b.broadcast(sum, &[1, 5, 3], &[0, 1]).expect("fits");
        let normal = b.sub(x, sum).expect("fits");
        let y = b.one(ir::ops::Dot::last_axes(DType::F32, 3, 2).into(), &[normal, w]).expect("fits");
        let wide = b.broadcast(bias, &[1, 5, 7], &[2]).expect("fits");
        let y = b.add(y, wide).expect("fits");
        let whole = b.finish(&[y, x]);
        let one = select_last_token(&whole, 1).expect("rewritten");
        assert_eq!(one.ty(one.outputs()[0]).shape[..], [1, 1, 7]);
        let products = one.live_values();
        let large = one.nodes().iter().any(|n| {
            matches!(n.op, Op::Dot(_)) && products[n.outs[0].0 as usize] && one.ty(n.outs[0]).shape[..] == [1, 5, 7]
        });
        assert!(!large, "the product of all rows is still computed");
        let fill =
            |t: Type, k: usize| Literal::from_fn(t, |i| Scalar::from_f64(DType::F32, ((i * k) % 11) as f64 - 4.0));
        let args = [fill(ty(&[1, 5, 3]), 3), fill(ty(&[7, 3]), 5), fill(ty(&[7]), 7)];
        let all = interp::run(&whole, &args).expect("runs");
        for row in 0..5usize {
            let at = Literal::from_fn(Type::new(DType::I32, &[]), |_| Scalar::from_f64(DType::I32, row as f64));
            let given: Vec<Literal> = args.iter().cloned().chain([at]).collect();
            let found = interp::run(&one, &given).expect("runs");
            let want: Vec<_> = (0..7).map(|i| all[0].get(row * 7 + i)).collect();
            assert_eq!(found[0].scalars().collect::<Vec<_>>(), want);
        }
        assert_eq!(head_input(&whole), whole.node_of(y).and_then(|n| whole.node_of(n.args[0])).map(|n| n.args[0]));
    }
}
