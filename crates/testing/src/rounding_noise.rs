//! Evaluation with simulated rounding errors, to distinguish a wrong result from an ill-conditioned one.
//!
//! Backends may differ from the interpreter by a few ulp in each operation. If such differences grow (a comparison of
//! nearly equal numbers, a difference of large ones, a bit pattern read as an integer), no tolerance fits all graphs.
//! Evaluation with random errors of that size shows how precisely each element is determined.

use crate::compare::{Mismatch, Tolerance, compare};
use crate::coverage::{each_node, op_name};
use crate::rng::Rng;
use ir::attr::Attr;
use ir::{Graph, Literal, Scalar, Type, interp};

/// The number of noisy runs per comparison.
const RUNS: usize = 24;

/// Runs a graph, adding a random error of up to `ulps` to every float result of every node.
pub fn eval_with_rounding_noise(
    graph: &Graph,
    inputs: &[Literal],
    ulps: i64,
    rng: &mut Rng,
) -> ir::Result<Vec<Literal>> {
    let mut values: Vec<Option<Literal>> = vec![None; graph.num_values()];
    for (v, x) in graph.inputs().iter().zip(inputs) {
        values[v.0 as usize] = Some(x.clone());
    }
    let live = graph.live_values();
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        let args: Vec<Literal> = node.args.iter().filter_map(|a| values[a.0 as usize].clone()).collect();
        let types: Vec<Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
        let outs = match node.op.semantics() {
            ir::Semantics::Inline(body) => eval_with_rounding_noise(&body, &args, ulps, rng)?,
            ir::Semantics::View(_) | ir::Semantics::Constant | ir::Semantics::Index(_) => {
                interp::eval(&node.op, &args, &types)?
            }
            ir::Semantics::Elementwise(_) => {
                interp::eval(&node.op, &args, &types)?.iter().map(|l| shaken(l, ulps, rng)).collect()
            }
            // A sum of many numbers also rounds intermediate results: errors of its terms represent that.
            _ => {
                let args: Vec<Literal> = args.iter().map(|l| shaken(l, 2, rng)).collect();
                let scale: f64 = args.iter().map(magnitude).filter(|m| *m > 0.0).product();
                let outs = interp::eval(&node.op, &args, &types)?;
                outs.iter().map(|l| cancelled(&shaken(l, ulps, rng), scale, rng)).collect()
            }
        };
        for (v, out) in node.outs.iter().zip(outs) {
            values[v.0 as usize] = Some(out);
        }
    }
    Ok(graph.outputs().iter().filter_map(|v| values[v.0 as usize].clone()).collect())
}

/// Moves every finite float by up to `ulps` steps; zeros stay, or move a little if a sum may have cancelled.
fn shaken(l: &Literal, ulps: i64, rng: &mut Rng) -> Literal {
    let ty = l.ty().clone();
    if !ty.dtype.is_float() {
        return l.clone();
    }
    let largest = magnitude(l);
    Literal::from_fn(ty.clone(), |i| {
        let s = l.get(i);
        let x = s.to_f64();
        // The sign of a NaN is not specified.
        if x.is_nan() && rng.bernoulli(0.5) {
            return Scalar::from_f64(ty.dtype, -x);
        }
        if !x.is_finite() {
            return s;
        }
        let by = rng.range(-2 * ulps, 2 * ulps + 1) as f64 * 0.5;
        if x == 0.0 {
            let tiny = largest * epsilon(&ty) * by * 0.5;
            return if rng.bernoulli(0.5) { s } else { Scalar::from_f64(ty.dtype, tiny) };
        }
        Scalar::from_f64(ty.dtype, x * (1.0 + by * epsilon(&ty)))
    })
}

/// The result of a sum after cancellation may also be zero.
fn cancelled(l: &Literal, scale: f64, rng: &mut Rng) -> Literal {
    let ty = l.ty().clone();
    Literal::from_fn(ty.clone(), |i| {
        let s = l.get(i);
        let small = ty.dtype.is_float() && s.to_f64().abs() < 16.0 * epsilon(&ty) * scale;
        if small && rng.bernoulli(0.3) { Scalar::zero(ty.dtype) } else { s }
    })
}

fn magnitude(l: &Literal) -> f64 {
    match l.ty().dtype.is_float() {
        true => l.scalars().map(|s| s.to_f64().abs()).filter(|x| x.is_finite()).fold(0.0, f64::max),
        false => 0.0,
    }
}

/// Every float that occurs during the evaluation.
fn seen(graph: &Graph, inputs: &[Literal]) -> ir::Result<Vec<f64>> {
    let mut all = graph.clone();
    all.set_outputs((0..graph.num_values() as u32).map(ir::Value).collect::<Vec<_>>());
    Ok(interp::run(&all, inputs)?.iter().flat_map(floats).collect())
}

/// The floats in constants, including those in bodies, whose other values are not visible from outside.
fn held(graph: &Graph) -> Vec<f64> {
    let mut all = Vec::new();
    each_node(graph, &mut |node| {
        for (_, attr) in node.op.attrs() {
            if let Attr::Literal(l) = attr {
                all.extend(floats(&l));
            }
        }
    });
    all
}

fn floats(l: &Literal) -> Vec<f64> {
    if l.ty().dtype.is_float() { l.scalars().map(|s| s.to_f64()).collect() } else { Vec::new() }
}

/// Whether a graph contains attention.
fn attends(graph: &Graph) -> bool {
    let mut found = false;
    each_node(graph, &mut |node| found |= op_name(&node.op).starts_with("attention"));
    found
}

fn epsilon(ty: &Type) -> f64 {
    match ty.dtype {
        ir::DType::F64 => 2f64.powi(-52),
        ir::DType::F32 => 2f64.powi(-23),
        ir::DType::F16 => 2f64.powi(-10),
        ir::DType::BF16 => 2f64.powi(-7),
        ir::DType::F8E4M3 => 2f64.powi(-3),
        _ => 2f64.powi(-2),
    }
}

/// Compares results with the interpreter's, element by element, with the precision with which noisy runs agree.
pub fn agrees_with_interpreter(
    graph: &Graph,
    inputs: &[Literal],
    got: &[Literal],
    rng: &mut Rng,
) -> Result<(), String> {
    let want = interp::run(graph, inputs).map_err(|e| e.to_string())?;
    if got.len() != want.len() {
        return Err(format!("{} results, {} expected", got.len(), want.len()));
    }
    let exact: Result<(), Mismatch> =
        got.iter().zip(&want).try_for_each(|(g, w)| compare(g, w, Tolerance::for_dtype(w.ty().dtype).scaled(4.0)));
    let Err(first) = exact else { return Ok(()) };
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(eval_with_rounding_noise(graph, inputs, 4, rng).map_err(|e| e.to_string())?);
    }
    // Sums here are computed in f64; with such large numbers, a sum in a narrower dtype or in another order may overflow
    // in between, and all later values differ. The table of ops compares extreme values op by op.
    let seen = seen(graph, inputs).map_err(|e| e.to_string())?;
    if seen.iter().chain(&held(graph)).any(|x| x.is_finite() && x.abs() > 1e15) {
        return Ok(());
    }
    // Attention kernels skip masked keys; here their values are multiplied by zero, which does not give zero
    // if they are not finite.
    if attends(graph) && seen.iter().any(|x| !x.is_finite()) {
        return Ok(());
    }
    // No noise is added inside loops and branches, so the uncertainty of their results is underestimated.
    let nested = graph.nodes().iter().any(|n| matches!(n.op, ir::Op::Scan(_) | ir::Op::While(_) | ir::Op::Cond(_)));
    for (k, (g, w)) in got.iter().zip(&want).enumerate() {
        if nested && !w.ty().dtype.is_float() {
            continue;
        }
        let tolerance = Tolerance::for_dtype(w.ty().dtype).scaled(4.0);
        for i in 0..w.ty().numel() {
            let (x, y) = (g.get(i), w.get(i));
            if tolerance.is_close(x, y) {
                continue;
            }
            let others: Vec<Scalar> = runs.iter().map(|r| r[k].get(i)).collect();
            let spread = others.iter().map(|o| (o.to_f64() - y.to_f64()).abs()).fold(0.0, f64::max);
            let undetermined = others.iter().any(|o| o.to_f64().is_finite() != y.to_f64().is_finite());
            let distance = (x.to_f64() - y.to_f64()).abs();
            let slack = if nested { 64.0 * spread + 1e-3 * y.to_f64().abs() } else { 4.0 * spread };
            if undetermined || distance <= slack {
                continue;
            }
            return Err(format!(
                "{first}\n(result {k} element {i}: noise moves it by {spread:e}, got is {distance:e} away)"
            ));
        }
    }
    Ok(())
}
