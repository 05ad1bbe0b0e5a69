//! Moves with sub-graphs, and composites.

use super::{Gen, Move};
use ir::composites;
use ir::ops::{Call, Checkpoint, Composite, Derivative, Remat, Scan};
use ir::{DType, Literal, Scalar, Type, Value};
use std::sync::Arc;

pub(super) const MOVES: &[Move] = &[
    (4, true, scan),
    (2, true, call),
    (2, true, remat),
    (2, true, custom),
    (2, true, library),
];

/// Some values, and what they hold.
fn some(g: &mut Gen, n: usize) -> Option<Vec<Value>> {
    (0..n).map(|_| g.pick(|_| true)).collect()
}

fn samples(g: &Gen, values: &[Value]) -> Vec<Literal> {
    values.iter().map(|&v| g.lit(v).clone()).collect()
}

/// Types of a body's outputs: those of values that exist, floats in smooth mode.
fn result_types(g: &mut Gen, n: usize) -> Option<Vec<Type>> {
    (0..n).map(|_| g.any().map(|v| g.ty(v))).collect()
}

fn call(g: &mut Gen) -> Option<()> {
    let (op, args) = sub_graph(g)?;
    g.emit(Call::new(op), &args)?;
    Some(())
}

fn remat(g: &mut Gen) -> Option<()> {
    let (op, args) = sub_graph(g)?;
    g.emit(Remat::new(op), &args)?;
    Some(())
}

fn sub_graph(g: &mut Gen) -> Option<(ir::Graph, Vec<Value>)> {
    let n = 1 + g.rng.below(3);
    let args = some(g, n)?;
    let m = 1 + g.rng.below(2);
    let outs = result_types(g, m)?;
    let inputs = samples(g, &args);
    Some((g.body(inputs, &outs)?, args))
}

fn scan(g: &mut Gen) -> Option<()> {
    let length = if g.smooth() { 1 + g.rng.below(3) } else { g.rng.below(4) };
    let (nc, nk) = (g.rng.below(2), g.rng.below(3));
    let consts = some(g, nc)?;
    let carries = some(g, nk)?;
    // Scanned operands: values with an axis of this length, or made so.
    let mut xs = Vec::new();
    for _ in 0..g.rng.below(2) + (nk == 0) as usize {
        let v = match g.pick(|t| t.shape.first() == Some(&length)) {
            Some(v) => v,
            None => {
                let t = g.any().map(|v| g.ty(v))?;
                g.like(&t.batched(length))?
            }
        };
        xs.push(v);
    }
    let mut inputs = samples(g, &consts);
    inputs.extend(samples(g, &carries));
    for &v in &xs {
        let ty = g.ty(v).unbatched();
        let n = ty.bytes();
        inputs.push(match length {
            0 => Literal::zeros(ty),
            _ => Literal::from_bytes(ty, &g.lit(v).bytes()[..n])?,
        });
    }
    let mut outs: Vec<Type> = carries.iter().map(|&v| g.ty(v)).collect();
    let ny = g.rng.below(2) + (nk == 0) as usize;
    outs.extend(result_types(g, ny)?);
    let body = g.body(inputs, &outs)?;
    let bounded = g.rng.chance(0.3);
    let checkpoint = match g.rng.below(4) {
        0 => Checkpoint::Every(1 + g.rng.below(3)),
        _ => Checkpoint::All,
    };
    let mut args = Vec::new();
    if bounded {
        let n = g.rng.range(-1, length as i64 + 2);
        args.push(g.constant(Literal::scalar(Scalar::from_i64(DType::I32, n)))?);
    }
    args.extend(consts.into_iter().chain(carries).chain(xs));
    let op = Scan {
        reverse: g.rng.chance(0.5),
        bounded,
        checkpoint,
        ..Scan::over(nc, nk, length, body)
    };
    g.emit(op, &args)?;
    Some(())
}

/// A composite of our own: its derivative comes from its body, or is the body's derived rule given as its own.
fn custom(g: &mut Gen) -> Option<()> {
    let (body, args) = sub_graph(g)?;
    let public = 1 + g.rng.below(body.outputs().len());
    let floats: Vec<usize> = (0..args.len()).filter(|&i| g.ty(args[i]).dtype.is_float()).collect();
    let visible: Vec<usize> = (0..public)
        .filter(|&k| body.output_types()[k].dtype.is_float())
        .collect();
    let derivative = match g.rng.below(3) {
        _ if floats.is_empty() || visible.is_empty() => Derivative::Body,
        0 => Derivative::Body,
        1 => {
            let active: Vec<bool> = (0..args.len()).map(|i| floats.contains(&i)).collect();
            let want = vec![true; body.outputs().len()];
            let (full, has) = transform::jvp(&body, &active, &want).ok()?;
            let at = |k: usize| body.outputs().len() + has[..k].iter().filter(|h| **h).count();
            let outs: Vec<Value> = visible.iter().map(|&k| full.outputs()[at(k)]).collect();
            let mut graph = full.clone();
            graph.set_outputs(outs);
            Derivative::Jvp(Arc::new(graph))
        }
        _ => Derivative::Vjp(Arc::new(own_vjp(&body, public, &floats)?)),
    };
    let op = Composite {
        name: "random".into(),
        params: Vec::new(),
        body: Arc::new(body),
        public,
        derivative,
    };
    g.emit(op, &args)?;
    Some(())
}

/// The derived reverse rule with the interface of a composite's own: (inputs, outputs, cotangents) to cotangents.
fn own_vjp(body: &ir::Graph, public: usize, floats: &[usize]) -> Option<ir::Graph> {
    use ir::{Build, Builder};
    let derived = transform::vjp(body, floats).ok()?;
    let mut b = Builder::new();
    let mut args: Vec<Value> = body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let types = body.output_types();
    for t in &types {
        b.graph.input(t.clone());
    }
    for (k, t) in types.iter().enumerate().filter(|(_, t)| t.dtype.is_float()) {
        args.push(if k < public {
            b.graph.input(t.clone())
        } else {
            b.zeros(t).ok()?
        });
    }
    let outs = b.inline(&derived, &args).ok()?;
    Some(b.finish(&outs[types.len()..]))
}

/// A composite of the library.
fn library(g: &mut Gen) -> Option<()> {
    let x = g.pick(|t| t.dtype.is_float() && t.rank() > 0 && t.shape[t.rank() - 1] > 0)?;
    let ty = g.ty(x);
    let w = g.like(&ty.with_shape(&ty.shape[ty.rank() - 1..]))?;
    let op = composites::norm::rmsnorm(&ty, &g.ty(w), 1e-2).ok()?;
    g.emit(op, &[x, w])?;
    Some(())
}
