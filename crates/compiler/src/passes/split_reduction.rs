//! Splits long reductions with few results into blocks, whose results are then reduced, so that all threads take part.
//!
//! The split depends only on the shape and the kind of device, so results have the same bits with any number of threads.

use crate::target::SplitReduction;
use ir::ops::ReduceKind;
use ir::{Builder, DType, Graph, GraphBuilder, Op, Result, Shape, Value, Values};

/// Splits the long reductions of a graph, also in sub-graphs.
pub fn split_reductions(graph: &Graph, target: &SplitReduction) -> Result<Graph> {
    super::rewrite_graph(graph, |b, node, operands| {
        if let Op::Reduce(r) = &node.op
            && let Some(v) = split_reduction(b, r.kind, operands[0], &r.axes, target, target.max_stages)?
        {
            return Ok(Values::from_slice(&[v]));
        }
        super::copy_node(b, graph, node, operands, &mut |g| split_reductions(g, target))
    })
}

/// Splits a reduction into at most `stages` stages, if that is faster.
fn split_reduction(
    b: &mut Builder,
    kind: ReduceKind,
    x: Value,
    axes: &[usize],
    target: &SplitReduction,
    stages: u32,
) -> Result<Option<Value>> {
    let ty = b.ty(x);
    let total = ty.numel();
    let reduced = |a: usize| axes.contains(&a);
    let kept: usize = (0..ty.rank()).filter(|&a| !reduced(a)).map(|a| ty.shape[a]).product();
    let Some(last) = ty.rank().checked_sub(1) else { return Ok(None) };
    let shares = if reduced(last) { kept } else { kept / ty.shape[last].max(1) * (ty.shape[last] / 64).max(1) };
    let short = shares >= target.min_parallel_results && total / shares.max(1) < target.min_elements_per_share;
    if stages < 2 || total < target.min_elements || shares >= target.saturating_results || short {
        return Ok(None);
    }
    // The longest group of adjacent reduced axes is merged into one axis, which is split.
    let mut run = 0..0;
    let mut longest = 1;
    for start in (0..ty.rank()).filter(|&a| reduced(a) && (a == 0 || !reduced(a - 1))) {
        let end = (start..ty.rank()).find(|&a| !reduced(a)).unwrap_or(ty.rank());
        let size: usize = ty.shape[start..end].iter().product();
        if size > longest {
            (run, longest) = (start..end, size);
        }
    }
    // The other elements of a block: other reduced axes, and the columns of column sums.
    let around = total / longest.max(1) / if reduced(last) { kept.max(1) } else { 1 };
    let near = (total / target.blocks.max(1)).clamp(target.block.0, target.block.1) / around.max(1);
    // Column sums: no stage that adds partial results has more of them than a block has rows.
    let near = if reduced(last) { near } else { near.max(root(longest, stages)) };
    let block = block_near(longest, near.max(1));
    let blocks = longest / block;
    if blocks < 2 {
        return Ok(None);
    }
    let rounds = matches!(kind, ReduceKind::Sum | ReduceKind::Prod);
    let wide = if rounds { ty.dtype.accumulator() } else { ty.dtype };
    let shape = |middle: &[usize]| -> Shape {
        ty.shape[..run.start].iter().chain(middle).chain(&ty.shape[run.end..]).copied().collect()
    };
    let flat = b.reshape(x, &shape(&[longest]))?;
    let whole = blocks * block == longest;
    let main = if whole { flat } else { b.slice_axis(flat, run.start, 0, blocks * block)? };
    let main = b.reshape(main, &shape(&[blocks, block]))?;
    // Axes after the merged axis have moved, because it became two axes.
    let inner: Vec<usize> = (0..ty.rank())
        .filter(|&a| reduced(a) && !run.contains(&a))
        .map(|a| if a < run.start { a } else { a + 2 - run.len() })
        .chain([run.start + 1])
        .collect();
    let mut total = reduce_as(b, kind, wide, main, &inner)?;
    let kept_before = (0..run.start).filter(|&a| !reduced(a)).count();
    total = match split_reduction(b, kind, total, &[kept_before], target, stages - 1)? {
        Some(v) => v,
        None => b.reduce(kind, total, &[kept_before])?,
    };
    if !whole {
        let rest = b.slice_axis(flat, run.start, blocks * block, longest)?;
        let axes: Vec<usize> = inner.iter().map(|&a| if a > run.start { a - 1 } else { a }).collect();
        let rest = reduce_as(b, kind, wide, rest, &axes)?;
        total = b.binary(kind.combine(), total, rest)?;
    }
    Ok(Some(b.cast(total, ty.dtype)?))
}

fn reduce_as(b: &mut Builder, kind: ReduceKind, wide: DType, x: Value, axes: &[usize]) -> Result<Value> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    let x = b.cast(x, wide)?;
    b.reduce(kind, x, &axes)
}

/// The largest number whose `power`-th power does not exceed `n`.
fn root(n: usize, power: u32) -> usize {
    let mut least = 1;
    while (least + 1usize).checked_pow(power).is_some_and(|p| p <= n) {
        least += 1;
    }
    least
}

/// A divisor of `n` near `target`, or `target` if there is none.
fn block_near(n: usize, target: usize) -> usize {
    let near = |d: &usize| n.is_multiple_of(*d);
    (target / 2..=target).rev().filter(|d| *d > 0).find(near).unwrap_or(target).min(n)
}
