//! Gradient reduction in buckets: many gradients share one message, which is sent as soon as they are computed.
//!
//! Each all-reduce has a latency that does not depend on its size, so gradients that are reduced over the same mesh axes are
//! concatenated into buckets, in the order in which the backward pass computes them. Each reduction stands in the graph where its
//! operands are ready, and its result is awaited where the norm of all gradients needs it: reductions run concurrently with the
//! rest of the backward pass. Sums are elementwise, so results do not depend on the buckets.

use ir::ops::{Collective, CollectiveKind};
use ir::{Builder, Def, Graph, GraphBuilder, MeshAxis, Op, Result, Value};

/// Default size of a bucket in bytes.
pub const DEFAULT_BUCKET_BYTES: usize = 25 << 20;

/// The maximum number of gradients in a bucket: limits the number of buffers that the concatenation kernel reads.
const MAX_BUCKET_GRADIENTS: usize = 32;

/// Groups gradients into buckets by their mesh axes, from the last gradient to the first, given the bytes and axes of each.
fn assign_buckets(sizes: &[usize], axes: &[Vec<MeshAxis>], most: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut open: Vec<(&Vec<MeshAxis>, usize)> = Vec::new();
    for i in (0..sizes.len()).rev() {
        let Some(over) = axes.get(i).filter(|over| !over.is_empty()) else { continue };
        let own = open.iter().position(|(a, _)| *a == over);
        match own {
            Some(k) if all[open[k].1].0 + sizes[i] <= most && all[open[k].1].1.len() < MAX_BUCKET_GRADIENTS => {
                let (bytes, list) = &mut all[open[k].1];
                *bytes += sizes[i];
                list.push(i);
            }
            found => {
                if let Some(k) = found {
                    open.swap_remove(k);
                }
                open.push((over, all.len()));
                all.push((sizes[i], vec![i]));
            }
        }
    }
    all.into_iter().map(|(_, list)| list).collect()
}

/// Sums each gradient over its mesh axes, in buckets of at most `most` bytes.
pub fn all_reduce_gradients(
    b: &mut Builder,
    gradients: &mut [Value],
    axes: &[Vec<MeshAxis>],
    most: usize,
) -> Result<()> {
    let sizes: Vec<usize> = gradients.iter().map(|g| b.ty(*g).bytes()).collect();
    for list in assign_buckets(&sizes, axes, most) {
        let over = &axes[list[0]];
        let dtype = b.ty(gradients[list[0]]).dtype;
        if list.len() == 1 || list.iter().any(|&i| b.ty(gradients[i]).dtype != dtype) {
            for i in list {
                gradients[i] = b.psum(gradients[i], over)?;
            }
            continue;
        }
        let mut flat = Vec::new();
        for &i in &list {
            let n = b.ty(gradients[i]).numel();
            flat.push(b.reshape(gradients[i], &[n])?);
        }
        let all = b.concat(&flat, 0)?;
        let all = b.psum(all, over)?;
        let mut at = 0;
        for &i in &list {
            let shape = b.ty(gradients[i]).shape;
            let n: usize = shape.iter().product();
            let own = b.slice_axis(all, 0, at, at + n)?;
            gradients[i] = b.reshape(own, &shape)?;
            at += n;
        }
    }
    Ok(())
}

/// Returns the same graph with reductions placed where their operands become ready; sharded parameters are gathered while the
/// values that need the previous ones are computed.
pub fn overlap_reductions(graph: &Graph) -> Result<Graph> {
    let nodes = graph.nodes();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let from = |v: &Value| match graph.def(*v) {
        Def::Node(n, _) => Some(n as usize),
        Def::Input(_) => None,
    };
    for (k, node) in nodes.iter().enumerate() {
        node.args.iter().filter_map(from).for_each(|n| users[n].push(k));
    }
    let mut moves = vec![false; nodes.len()];
    for (k, node) in nodes.iter().enumerate().rev() {
        moves[k] = match &node.op {
            Op::Collective(c) => c.kind == CollectiveKind::Sum && c.ranks() > 1,
            Op::Reshape(_) | Op::Concat(_) => {
                !users[k].is_empty()
                    && users[k].iter().all(|u| moves[*u])
                    && node.outs.iter().all(|v| !graph.outputs().contains(v))
            }
            _ => false,
        };
    }
    let (mut when, mut gathered) = (vec![0; nodes.len()], 0);
    for (k, node) in nodes.iter().enumerate() {
        let ready = node.args.iter().filter_map(from).map(|n| when[n]).max().unwrap_or(0);
        let stored =
            matches!(&node.op, Op::Collective(Collective { kind: CollectiveKind::AllGather { same: false, .. }, .. }));
        when[k] = match (moves[k], stored) {
            (true, _) => ready,
            (_, true) => ready.max(std::mem::replace(&mut gathered, k)),
            _ => k,
        };
    }
    // Moving a node behind its operands' last definition keeps the order valid.
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&k| (when[k], k));
    let mut g = Graph::new();
    let mut map = vec![Value(u32::MAX); graph.num_values()];
    for &v in graph.inputs() {
        map[v.0 as usize] = g.input(graph.ty(v).clone());
    }
    for k in order {
        let node = &nodes[k];
        let args: Vec<Value> = node.args.iter().map(|a| map[a.0 as usize]).collect();
        let outs = g.push(node.op.clone(), &args, node.loc.clone())?;
        node.outs.iter().zip(outs).for_each(|(v, o)| map[v.0 as usize] = o);
    }
    g.set_outputs(graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    Ok(g)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{DType, Unary};

    #[test]
    fn gradients_of_one_kind_share_buckets_from_the_last_on() {
        let (dp, tp) = (vec![MeshAxis::new("dp", 2)], vec![MeshAxis::new("tp", 2)]);
        let axes = [dp.clone(), tp.clone(), vec![], dp.clone(), dp.clone(), tp];
        assert_eq!(assign_buckets(&[10, 10, 10, 60, 30, 10], &axes, 100), [vec![5, 1], vec![4, 3, 0]]);
        assert_eq!(assign_buckets(&[20, 10, 10, 60, 30, 10], &axes, 100), [vec![5, 1], vec![4, 3], vec![0]]);
        assert_eq!(assign_buckets(&[10, 10, 10, 600, 30, 10], &axes, 100), [vec![5, 1], vec![4], vec![3], vec![0]]);
        assert_eq!(
            assign_buckets(&[1; 70], &vec![dp; 70], 1 << 20).iter().map(Vec::len).collect::<Vec<_>>(),
            [32, 32, 6]
        );
    }

    #[test]
    fn sums_stand_where_their_operands_are_ready() {
        let axes = [MeshAxis::new("dp", 2)];
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[4]);
        let first = b.unary(Unary::Exp, x).unwrap();
        let second = b.unary(Unary::Sin, first).unwrap();
        let mut gradients = [first, second];
        all_reduce_gradients(&mut b, &mut gradients, &[axes.to_vec(), axes.to_vec()], 16).unwrap();
        let graph = b.finish(&gradients);
        let names = |g: &Graph| g.nodes().iter().map(|n| n.op.name()).collect::<Vec<_>>();
        assert_eq!(names(&graph), ["exp", "sin", "psum", "psum"]);
        assert_eq!(names(&overlap_reductions(&graph).unwrap()), ["exp", "psum", "sin", "psum"]);
    }
}
