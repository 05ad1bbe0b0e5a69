//! Generators of ops with sub-graphs, and of composites.

use super::{GraphGenerator, Move};
use ir::attr::Attr;
use ir::composites;
use ir::ops::{Call, Composite, Cond, Derivative, Remat, RematPolicy, Scan, ScanCheckpoint, While};
use ir::{DType, Literal, Scalar, Type, Value};
use std::sync::Arc;

pub(super) const MOVES: &[Move] = &[
    (4, true, scan),
    (2, true, call),
    (2, true, remat),
    (2, true, custom),
    (2, true, cond),
    (1, false, while_loop),
    (6, true, library),
];

/// Some values, and their data.
fn some(g: &mut GraphGenerator, n: usize) -> Option<Vec<Value>> {
    (0..n).map(|_| g.pick(|_| true)).collect()
}

fn samples(g: &GraphGenerator, values: &[Value]) -> Vec<Literal> {
    values.iter().map(|&v| g.lit(v).clone()).collect()
}

/// The types of a body's outputs: those of existing values, floats in smooth mode.
fn result_types(g: &mut GraphGenerator, n: usize) -> Option<Vec<Type>> {
    (0..n).map(|_| g.any().map(|v| g.ty(v))).collect()
}

fn call(g: &mut GraphGenerator) -> Option<()> {
    let (op, args) = sub_graph(g)?;
    g.emit(Call::new(op), &args)?;
    Some(())
}

fn remat(g: &mut GraphGenerator) -> Option<()> {
    let (op, args) = sub_graph(g)?;
    let policy = match g.rng.below(4) {
        0 => RematPolicy::Everything,
        1 => RematPolicy::Dots,
        2 => RematPolicy::Names(vec!["h".into()]),
        _ => RematPolicy::Nothing,
    };
    g.emit(Remat::with_policy(op, policy), &args)?;
    Some(())
}

fn sub_graph(g: &mut GraphGenerator) -> Option<(ir::Graph, Vec<Value>)> {
    let n = 1 + g.rng.below(3);
    let args = some(g, n)?;
    let m = 1 + g.rng.below(2);
    let outs = result_types(g, m)?;
    let inputs = samples(g, &args);
    Some((g.body(inputs, &outs)?, args))
}

fn scan(g: &mut GraphGenerator) -> Option<()> {
    let length = if g.smooth() { 1 + g.rng.below(3) } else { g.rng.below(4) };
    let (nc, nk) = (g.rng.below(2), g.rng.below(3));
    let consts = some(g, nc)?;
    let carries = some(g, nk)?;
    // Scanned operands: values with an axis of this length, or values that are reshaped to have one.
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
    let bounded = g.rng.bernoulli(0.3);
    let checkpoint = match g.rng.below(4) {
        0 => ScanCheckpoint::EveryN(1 + g.rng.below(3)),
        _ => ScanCheckpoint::All,
    };
    let mut args = Vec::new();
    if bounded {
        let n = g.rng.range(-1, length as i64 + 2);
        args.push(g.constant(Literal::scalar(Scalar::from_i64(DType::I32, n)))?);
    }
    args.extend(consts.into_iter().chain(carries).chain(xs));
    let op = Scan { reverse: g.rng.bernoulli(0.5), bounded, checkpoint, ..Scan::over(nc, nk, length, body) };
    g.emit(op, &args)?;
    Some(())
}

/// A custom composite: its derivative is computed from its body, or is the body's derived rule as an explicit one.
fn custom(g: &mut GraphGenerator) -> Option<()> {
    let (body, args) = sub_graph(g)?;
    let public = 1 + g.rng.below(body.outputs().len());
    let floats: Vec<usize> = (0..args.len()).filter(|&i| g.ty(args[i]).dtype.is_float()).collect();
    let visible: Vec<usize> = (0..public).filter(|&k| body.output_types()[k].dtype.is_float()).collect();
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
        num_public_outputs: public,
        derivative,
    };
    g.emit(op, &args)?;
    Some(())
}

/// The derived reverse rule with the interface of a composite's rule: (inputs, outputs, cotangents) to cotangents.
fn own_vjp(body: &ir::Graph, public: usize, floats: &[usize]) -> Option<ir::Graph> {
    use ir::{Builder, GraphBuilder};
    let derived = transform::vjp(body, floats).ok()?;
    let mut b = Builder::new();
    let mut args: Vec<Value> = body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let types = body.output_types();
    for t in &types {
        b.graph.input(t.clone());
    }
    for (k, t) in types.iter().enumerate().filter(|(_, t)| t.dtype.is_float()) {
        args.push(if k < public { b.graph.input(t.clone()) } else { b.zeros(t).ok()? });
    }
    let outs = b.inline(&derived, &args).ok()?;
    Some(b.finish(&outs[types.len()..]))
}

fn cond(g: &mut GraphGenerator) -> Option<()> {
    let n = 1 + g.rng.below(3);
    let args = some(g, n)?;
    let m = 1 + g.rng.below(2);
    let outs = result_types(g, m)?;
    let branches: Option<Vec<ir::Graph>> = (0..1 + g.rng.below(3))
        .map(|_| {
            let inputs = samples(g, &args);
            g.body(inputs, &outs)
        })
        .collect();
    let at = g.rng.range(-1, 4);
    let mut operands = vec![g.constant(Literal::scalar(Scalar::from_i64(DType::I32, at)))?];
    operands.extend(args);
    g.emit(Cond::new(branches?), &operands)?;
    Some(())
}

/// A counting loop around a random body.
fn while_loop(g: &mut GraphGenerator) -> Option<()> {
    use ir::{Binary, Builder, Compare, GraphBuilder};
    let n = 1 + g.rng.below(2);
    let carries = some(g, n)?;
    let types: Vec<Type> = carries.iter().map(|&v| g.ty(v)).collect();
    let inputs = samples(g, &carries);
    let step = g.body(inputs, &types)?;
    let counter = Type::scalar(DType::I32);
    let mut b = Builder::new();
    let bound = b.graph.input(counter.clone());
    let i = b.graph.input(counter.clone());
    types.iter().for_each(|t| {
        b.graph.input(t.clone());
    });
    let more = b.compare(Compare::Lt, i, bound).ok()?;
    let cond = b.finish(&[more]);
    let mut b = Builder::new();
    let i = b.graph.input(counter.clone());
    let x: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let one = b.full_like(i, 1.0).ok()?;
    let next = b.binary(Binary::Add, i, one).ok()?;
    let mut outs = vec![next];
    outs.extend(b.inline(&step, &x).ok()?);
    let body = b.finish(&outs);
    let number = |g: &mut GraphGenerator, x: i64| g.constant(Literal::scalar(Scalar::from_i64(DType::I32, x)));
    let end = g.rng.range(0, 4);
    let mut args = vec![number(g, end)?, number(g, 0)?];
    args.extend(carries);
    g.emit(While::new(1, 0, cond, body), &args)?;
    Some(())
}

fn float_param(name: &str, x: f64) -> (String, Attr) {
    (name.into(), Attr::Scalar(Scalar::from_f64(DType::F64, x)))
}

fn word(name: &str, w: &str) -> (String, Attr) {
    (name.into(), Attr::Word(w.into()))
}

fn yes(name: &str) -> (String, Attr) {
    (name.into(), Attr::Bool(true))
}

/// A composite of the library, with suitable operands.
fn library(g: &mut GraphGenerator) -> Option<()> {
    let smooth = g.smooth();
    let x = g.pick(|t| {
        let float = if smooth { t.dtype == DType::F64 } else { t.dtype.is_float() };
        float && t.rank() > 0 && t.shape[t.rank() - 1] > 0
    })?;
    let ty = g.ty(x);
    let last = ty.shape[ty.rank() - 1];
    let row = ty.with_shape(&[last]);
    let rows = ty.with_shape(&ty.shape[..ty.rank() - 1]);
    let name = g.rng.pick(composites::COMPOSITES).name;
    let form = word("form", if g.rng.bernoulli(0.5) { "erf" } else { "tanh" });
    let pairs = word("pairs", if g.rng.bernoulli(0.5) { "halves" } else { "interleaved" });
    let (params, types): (Vec<(String, Attr)>, Vec<Type>) = match name {
        "relu" | "relu2" | "silu" | "softmax" | "log_softmax" | "logsumexp" => (vec![], vec![ty]),
        "gelu" => (vec![form], vec![ty]),
        "swiglu" if g.rng.bernoulli(0.5) => (vec![], vec![ty]),
        "swiglu" => (vec![], vec![ty.clone(), ty]),
        "geglu" => (vec![form], vec![ty.clone(), ty]),
        "rmsnorm" => (vec![float_param("eps", 0.1)], vec![ty, row]),
        "layernorm" => (vec![float_param("eps", 0.1)], vec![ty, row.clone(), row]),
        "fused_residual_rmsnorm" => (vec![float_param("eps", 0.1)], vec![ty.clone(), ty, row]),
        "qk_norm" => (vec![float_param("eps", 0.1)], vec![ty.clone(), ty, row.clone(), row]),
        "dropout" => (vec![float_param("rate", 0.25)], vec![ty.clone(), ty.with_dtype(DType::Bool)]),
        "cross_entropy" => (vec![float_param("z_loss", 0.1)], vec![ty, rows.with_dtype(DType::I32)]),
        "embedding" if ty.rank() == 2 => (vec![], vec![ty, Type::new(DType::I32, &[3])]),
        "rope" if ty.rank() >= 2 && last >= 2 => {
            let table = ty.with_shape(&[ty.shape[ty.rank() - 2], last / 2]);
            (vec![pairs], vec![ty, table.clone(), table])
        }
        "attention" if ty.rank() == 3 => {
            let params = if g.rng.bernoulli(0.5) { vec![yes("causal")] } else { vec![] };
            (params, vec![ty.clone(), ty.clone(), ty])
        }
        _ => return None,
    };
    let op = composites::build(name, &params, &types).ok()?;
    let mut args = vec![x];
    for t in &types[1..] {
        args.push(g.like(t)?);
    }
    g.emit(op, &args)?;
    Some(())
}
