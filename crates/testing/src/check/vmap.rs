//! Compares batching with a loop.

use super::{CheckResult, Transforms, check_verifier, run};
use crate::Rng;
use crate::compare::{Tolerance, compare};
use ir::types::{for_each_index, offset};
use ir::{Graph, Literal, Scalar, Type};

/// Checks that every choice of batched inputs (a sample if there are many), each with random batch axes of inputs and outputs,
/// equals a loop over the batch. Batches of size one and zero are also tested.
pub fn check_vmap(graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> CheckResult {
    check_vmap_with(&Transforms::default(), graph, inputs, rng)
}

/// Like [`check_vmap`], for given transforms.
pub fn check_vmap_with(t: &Transforms, graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> CheckResult {
    let n = inputs.len().min(16);
    let all = (1u32 << n) - 1;
    let masks: Vec<u32> = match n {
        0 => Vec::new(),
        1..=3 => (1..=all).collect(),
        _ => {
            let mut masks = vec![all];
            masks.extend((0..3).map(|_| 1 << rng.below(n)));
            masks.extend((0..3).map(|_| rng.bits() as u32 & all).filter(|&m| m != 0));
            masks
        }
    };
    for (k, mask) in masks.into_iter().enumerate() {
        let size = match k {
            1 => 1,
            _ => 3,
        };
        one_mix(t, graph, inputs, mask, size, rng)?;
    }
    if n > 0 { one_mix(t, graph, inputs, all, 0, rng) } else { Ok(()) }
}

fn one_mix(t: &Transforms, graph: &Graph, inputs: &[Literal], mask: u32, size: usize, rng: &mut Rng) -> CheckResult {
    let in_axes: Vec<Option<usize>> =
        inputs.iter().enumerate().map(|(i, x)| (mask >> i & 1 == 1).then(|| rng.below(x.ty().rank() + 1))).collect();
    let out_types = graph.output_types();
    let out_axes: Vec<usize> = out_types.iter().map(|t| rng.below(t.rank() + 1)).collect();
    let place = || format!("vmap over {in_axes:?} to {out_axes:?} with {size}");
    let wide = (t.vmap)(graph, &in_axes, &out_axes, size).map_err(|e| format!("{}: {e}\n{graph}", place()))?;
    check_verifier(&wide).map_err(|e| format!("{} gives an {e}\nof\n{graph}", place()))?;

    let batch: Vec<Vec<Literal>> = (0..size)
        .map(|k| {
            let one = inputs.iter().zip(&in_axes);
            one.map(|(x, a)| if a.is_some() { varied(x, k) } else { x.clone() }).collect()
        })
        .collect();
    let args: Vec<Literal> = (0..inputs.len())
        .map(|i| match in_axes[i] {
            None => inputs[i].clone(),
            Some(axis) => {
                let items: Vec<Literal> = batch.iter().map(|one| one[i].clone()).collect();
                stack(&items, inputs[i].ty(), axis)
            }
        })
        .collect();
    let got = run(&wide, &args)?;
    for (k, one) in batch.iter().enumerate() {
        let want = run(graph, one)?;
        for (j, w) in want.iter().enumerate() {
            let slice = unstack(&got[j], out_axes[j], k);
            compare(&slice, w, Tolerance::for_dtype(w.ty().dtype))
                .map_err(|m| format!("{}: element {k} of output {j}: {m}\nof {graph}batched {wide}", place()))?;
        }
    }
    Ok(())
}

/// A graph over a random batch of three equal samples, with some shared inputs, for checks of other laws.
pub fn batched(graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> Result<(Graph, Vec<Literal>), String> {
    let lone = inputs.len() == 1;
    let in_axes: Vec<Option<usize>> =
        inputs.iter().map(|x| (lone || rng.bernoulli(0.5)).then(|| rng.below(x.ty().rank() + 1))).collect();
    let out_axes = vec![0; graph.outputs().len()];
    let wide = transform::vmap_axes(graph, &in_axes, &out_axes, 3).map_err(|e| format!("vmap: {e}\n{graph}"))?;
    let args = inputs
        .iter()
        .zip(in_axes)
        .map(|(x, axis)| match axis {
            Some(a) => stack(&[x.clone(), x.clone(), x.clone()], x.ty(), a),
            None => x.clone(),
        })
        .collect();
    Ok((wide, args))
}

/// Another sample from the same domain: the elements of `x` rotated, or a scalar made smaller.
fn varied(x: &Literal, k: usize) -> Literal {
    let n = x.ty().numel();
    let dtype = x.ty().dtype;
    if x.ty().rank() > 0 {
        return Literal::from_fn(x.ty().clone(), |i| x.get((i + k * 2) % n.max(1)));
    }
    let s = x.get(0);
    Literal::scalar(match dtype {
        d if d.is_float() => Scalar::from_f64(d, s.to_f64() * (1.0 - 0.1 * k as f64)),
        d if d.is_int() => Scalar::from_i64(d, s.to_i64().saturating_sub(k as i64).max(0)),
        _ => Scalar::bool(s.to_bool() ^ (k == 1)),
    })
}

/// Stacks tensors of one type along a new axis; an empty list gives an axis of size 0.
pub fn stack(items: &[Literal], ty: &Type, axis: usize) -> Literal {
    let mut wide = ty.clone();
    wide.shape.insert(axis, items.len());
    let strides = ty.strides();
    let mut elements = Vec::with_capacity(wide.numel());
    for_each_index(&wide.shape, |index| {
        let mut index = index.to_vec();
        let k = index.remove(axis);
        elements.push(items[k].get(offset(&index, &strides)));
    });
    Literal::from_fn(wide, |i| elements[i])
}

/// The `k`-th slice along an axis.
pub fn unstack(x: &Literal, axis: usize, k: usize) -> Literal {
    let mut ty = x.ty().clone();
    ty.shape.remove(axis);
    let strides = x.ty().strides();
    let mut elements = Vec::with_capacity(ty.numel());
    for_each_index(&ty.shape, |index| {
        let mut index = index.to_vec();
        index.insert(axis, k);
        elements.push(x.get(offset(&index, &strides)));
    });
    Literal::from_fn(ty, |i| elements[i])
}
