//! Common subexpressions are computed once; nodes that nobody needs are dropped.

use ir::ops::Svd;
use ir::{Graph, Node, Op, Result, Value, Values};
use rustc_hash::FxHashMap;

/// Merges equal nodes. Every op is pure, so equal op and operands mean equal results; a rematerialised body is the one
/// thing that must not be merged with what it repeats, and it is an op of its own here. Singular values alone are those
/// that come with vectors, where somebody wants these too, as the values' gradient does.
pub fn cse(graph: &Graph) -> Result<Graph> {
    let with_vectors = |n: &Node| matches!(n.op, Op::Svd(Svd { vectors: true }));
    let live;
    let graph = match graph.nodes().iter().any(with_vectors) {
        true => {
            live = graph.without_dead_nodes();
            &live
        }
        false => graph,
    };
    let vectors: Vec<Value> = graph.nodes().iter().filter(|n| with_vectors(n)).map(|n| n.args[0]).collect();
    let mut g = Graph::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| g.input(t)).collect();
    let mut known: FxHashMap<(Op, Values), Values> = FxHashMap::default();
    let outs = graph.inline_with(&args, |node, operands| {
        let values = matches!(node.op, Op::Svd(Svd { vectors: false })) && vectors.contains(&node.args[0]);
        let op = match values {
            true => Svd { vectors: true }.into(),
            false => super::map_bodies(&node.op, &mut |g| cse(g))?,
        };
        let key = (op, Values::from_slice(operands));
        let outs = match known.get(&key) {
            Some(outs) => outs.clone(),
            None => {
                let outs = g.push(key.0.clone(), operands, node.loc.clone())?;
                known.insert(key, outs.clone());
                outs
            }
        };
        Ok(if values { Values::from_slice(&outs[1..2]) } else { outs })
    })?;
    g.set_outputs(outs);
    Ok(g.without_dead_nodes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{Build, Builder, DType, Literal, Scalar, Type, interp};

    /// A graph of singular values, and of vectors if so.
    fn graph(vectors: bool) -> Graph {
        let mut b = Builder::new();
        let x = b.input(DType::F64, &[2, 4, 3]);
        let mut outs = b.emit(Svd { vectors: false }.into(), &[x]).unwrap();
        if vectors {
            outs.push(b.emit(Svd { vectors: true }.into(), &[x]).unwrap()[0]);
        }
        b.finish(&outs)
    }

    #[test]
    fn singular_values_come_with_vectors_that_are_wanted() {
        for vectors in [false, true] {
            let before = graph(vectors);
            let after = cse(&before).unwrap();
            let ops: Vec<&Op> = after.nodes().iter().map(|n| &n.op).collect();
            assert!(matches!(ops[..], [Op::Svd(Svd { vectors: v })] if *v == vectors), "{ops:?}");
            let x = Literal::from_fn(Type::new(DType::F64, &[2, 4, 3]), |i| {
                Scalar::from_f64(DType::F64, ((7 * i + 3) % 11) as f64)
            });
            let (want, got) = (interp::run(&before, &[x.clone()]).unwrap(), interp::run(&after, &[x]).unwrap());
            for (want, got) in want.iter().zip(&got) {
                assert_eq!(want.ty(), got.ty());
                for i in 0..want.ty().numel() {
                    assert!((want.get(i).to_f64() - got.get(i).to_f64()).abs() < 1e-12);
                }
            }
        }
    }
}
