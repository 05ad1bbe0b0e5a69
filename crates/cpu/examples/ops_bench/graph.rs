//! The graph of a case.

use crate::case::Case;
use ir::composites::attention::{AttentionOptions, attention};
use ir::composites::{activation, embedding, loss, norm, softmax};
use ir::ops::{
    Cholesky, Clamp, Conv, Dot, Eigh, Fft, FftKind, GatherMode, Lu, Qr, ReduceKind, ScatterKind, ScatterMode,
};
use ir::ops::{SliceDims, Sort, Svd, TopK, TriangularSolve, WindowConfig};
use ir::{Binary, Builder, Compare, DType, Error, Graph, GraphBuilder, Result, Scalar, Type, Unary, Value};

const I: DType = DType::I32;

/// Builds the graph of a case, with its gradients for all float inputs if requested.
pub(crate) fn build(c: &Case) -> Result<Graph> {
    let mut b = Builder::new();
    let outs = outputs(c, &mut b)?;
    let g = b.finish(&outs);
    if !c.backward {
        return Ok(g);
    }
    let wrt: Vec<usize> =
        g.input_types().iter().enumerate().filter(|(_, t)| t.dtype.is_float()).map(|(i, _)| i).collect();
    transform::vjp(&g, &wrt)
}

fn kind(name: &str) -> ReduceKind {
    match name {
        "prod" => ReduceKind::Prod,
        "max" => ReduceKind::Max,
        "min" => ReduceKind::Min,
        _ => ReduceKind::Sum,
    }
}

fn outputs(c: &Case, b: &mut Builder) -> Result<Vec<Value>> {
    let (d, s) = (c.dtype, c.shape.clone());
    let op = c.op.as_str();
    if let Some(f) = Unary::from_name(op) {
        let x = b.input(d, &s);
        return Ok(vec![b.unary(f, x)?]);
    }
    if let Some(f) = Binary::from_name(op) {
        let (x, y) = (b.input(d, &s), b.input(d, &s));
        return Ok(vec![b.binary(f, x, y)?]);
    }
    if let Some(f) = Compare::from_name(op) {
        let (x, y) = (b.input(d, &s), b.input(d, &s));
        return Ok(vec![b.compare(f, x, y)?]);
    }
    if let Some(k) = op.strip_prefix("reduce_") {
        let x = b.input(d, &s);
        return Ok(vec![b.reduce(kind(k), x, &c.list("axes"))?]);
    }
    if let Some(k) = op.strip_prefix("cum") {
        let x = b.input(d, &s);
        return Ok(vec![b.cumulative(kind(k), x, c.number("axis"), false)?]);
    }
    if let Some(k) = op.strip_prefix("pool_") {
        return pool(c, b, kind(k)).map(|v| vec![v]);
    }
    if let Some(k) = op.strip_prefix("scatter_") {
        return scatter(c, b, k).map(|v| vec![v]);
    }
    if op.ends_with("fft") {
        return fourier(c, b);
    }
    let axis = c.number("axis");
    Ok(match op {
        "select" => {
            let (m, x, y) = (b.input(DType::Bool, &s), b.input(d, &s), b.input(d, &s));
            vec![b.select(m, x, y)?]
        }
        "clamp" => {
            let x = b.input(d, &s);
            let (low, high) = (b.full_like(x, -1.0)?, b.full_like(x, 1.0)?);
            vec![b.one(Clamp.into(), &[x, low, high])?]
        }
        "cast" => {
            let to = c.word("to").and_then(|w| w.parse().ok()).unwrap_or(d);
            let x = b.input(d, &s);
            vec![b.cast(x, to)?]
        }
        "gelu" | "gelu_tanh" | "silu" | "relu" => {
            let (x, t) = (b.input(d, &s), Type::new(d, &s));
            let f = match op {
                "gelu" => activation::gelu(&t, activation::Gelu::Erf)?,
                "gelu_tanh" => activation::gelu(&t, activation::Gelu::Tanh)?,
                "silu" => activation::silu(&t)?,
                _ => activation::relu(&t)?,
            };
            vec![b.emit(f.into(), &[x])?[0]]
        }
        "add_row" | "add_column" => {
            let at = usize::from(op == "add_row");
            let (x, y) = (b.input(d, &s), b.input(d, &[s[at]]));
            let y = b.broadcast(y, &s, &[at])?;
            vec![b.add(x, y)?]
        }
        "argmax" => {
            let x = b.input(d, &s);
            vec![b.argmax(x, axis, I)?]
        }
        "variance" => {
            let x = b.input(d, &s);
            let axes = c.list("axes");
            vec![moments(b, x, &axes)?.1]
        }
        "softmax" | "log_softmax" | "logsumexp" => along(c, b, op, axis)?,
        "layernorm" | "rmsnorm" => {
            let n = *s.last().expect("a row");
            let (t, w) = (Type::new(d, &s), Type::new(d, &[n]));
            let (x, weight) = (b.input(d, &s), b.input(d, &[n]));
            if op == "rmsnorm" {
                vec![b.emit(norm::rmsnorm(&t, &w, 1e-6)?.into(), &[x, weight])?[0]]
            } else {
                let bias = b.input(d, &[n]);
                vec![b.emit(norm::layernorm(&t, Some(&w), Some(&w), 1e-5)?.into(), &[x, weight, bias])?[0]]
            }
        }
        "group_norm" | "batch_norm" => vec![channel_norm(c, b)?],
        "cross_entropy" => {
            let (x, labels) = (b.input(d, &s), b.input(I, &s[..1]));
            let f = loss::cross_entropy(&Type::new(d, &s), &Type::new(I, &s[..1]), Default::default())?;
            vec![b.emit(f.into(), &[x, labels])?[0]]
        }
        "permute" => {
            let x = b.input(d, &s);
            vec![b.permute(x, &c.list("perm"))?]
        }
        "concat" => {
            let parts: Vec<Value> = (0..c.number("parts")).map(|_| b.input(d, &s)).collect();
            vec![b.concat(&parts, axis)?]
        }
        "flip" => {
            let x = b.input(d, &s);
            vec![b.flip(x, &[axis])?]
        }
        "pad" => {
            let x = b.input(d, &s);
            let zero = b.scalar(d, 0.0)?;
            let mut by = vec![0i64; s.len()];
            by[axis] = 3;
            vec![b.pad(x, zero, &by, &by, &vec![0; s.len()])?]
        }
        "slice" => {
            let x = b.input(d, &s);
            let mut stride = vec![1; s.len()];
            stride[axis] = 2;
            vec![b.slice(x, &vec![0; s.len()], &s, &stride)?]
        }
        "tile" => {
            let x = b.input(d, &s);
            vec![b.concat(&[x, x], axis)?]
        }
        "roll" => {
            let x = b.input(d, &s);
            let (head, tail) = (b.slice_axis(x, axis, 0, 100)?, b.slice_axis(x, axis, 100, s[axis])?);
            vec![b.concat(&[tail, head], axis)?]
        }
        "take" => {
            let (x, i) = (b.input(d, &s), b.input(I, &[c.number("n")]));
            vec![b.take(x, i, axis, GatherMode::Clip)?]
        }
        "take_along" => {
            let (x, i) = (b.input(d, &s), b.input(I, &s));
            vec![b.take_along_axis(x, i, axis, GatherMode::Clip)?]
        }
        "histogram" => {
            let i = b.input(d, &s);
            let zero = b.zeros(&Type::new(I, &[c.number("classes")]))?;
            let one = b.full(&Type::new(I, &s), Scalar::from_i64(I, 1))?;
            let at = b.index_vectors(i)?;
            vec![b.scatter(ScatterKind::Add, SliceDims::take(1, 0, 1), ScatterMode::Drop, zero, at, one)?]
        }
        "embedding" => {
            let ids = Type::new(I, &[c.number("n")]);
            let (x, i) = (b.input(d, &s), b.input(I, &ids.shape));
            vec![b.emit(embedding::embedding(&Type::new(d, &s), &ids, None)?.into(), &[x, i])?[0]]
        }
        "sort" => {
            let x = b.input(d, &s);
            vec![b.one(Sort { axis, num_keys: 1, descending: false }.into(), &[x])?]
        }
        "argsort" => {
            let x = b.input(d, &s);
            let i = b.iota(I, &s, axis)?;
            vec![b.emit(Sort { axis, num_keys: 1, descending: false }.into(), &[x, i])?[1]]
        }
        "top_k" => {
            let x = b.input(d, &s);
            b.emit(TopK { k: c.number("k"), axis: s.len() - 1 }.into(), &[x])?.to_vec()
        }
        "conv" | "conv_transpose" | "conv1d" => vec![conv(c, b)?],
        "matmul" => {
            let (x, y) = (b.input(d, &[s[0], s[1]]), b.input(d, &[s[1], s[2]]));
            let plain = Dot::matmul(d);
            let dot = if d == DType::I8 { Dot { acc: I, out: I, ..plain } } else { plain };
            vec![b.one(dot.into(), &[x, y])?]
        }
        "batch_matmul" => {
            let (x, y) = (b.input(d, &[s[0], s[1], s[2]]), b.input(d, &[s[0], s[2], s[3]]));
            vec![b.one(Dot::batched_matmul(d, 1).into(), &[x, y])?]
        }
        "attention" => {
            let t = Type::new(d, &s);
            let args: Vec<Value> = (0..3).map(|_| b.input(d, &s)).collect();
            let options = AttentionOptions { causal: c.number("causal") == 1, ..AttentionOptions::default() };
            vec![b.emit(attention(&t, &t, &t, &options)?.into(), &args)?[0]]
        }
        _ => return linear(c, b),
    })
}

fn linear(c: &Case, b: &mut Builder) -> Result<Vec<Value>> {
    let (d, s) = (c.dtype, &c.shape);
    let x = b.input(d, s);
    Ok(match c.op.as_str() {
        "cholesky" => b.emit(Cholesky.into(), &[x])?.to_vec(),
        "lu" => b.emit(Lu.into(), &[x])?.to_vec(),
        "qr" => b.emit(Qr { full: false }.into(), &[x])?.to_vec(),
        "eigh" => b.emit(Eigh.into(), &[x])?.to_vec(),
        "svd" => b.emit(Svd { vectors: true }.into(), &[x])?.to_vec(),
        "svd_values" => b.emit(Svd { vectors: false }.into(), &[x])?.to_vec(),
        "triangular_solve" => {
            let y = b.input(d, s);
            let op = TriangularSolve { left: true, lower: true, transpose: false, unit: false };
            b.emit(op.into(), &[x, y])?.to_vec()
        }
        other => return Err(Error::Invalid(format!("there is no case of {other:?}"))),
    })
}

/// Mean and variance as a user writes them: the mean, then the mean of squared differences.
fn moments(b: &mut Builder, x: Value, axes: &[usize]) -> Result<(Value, Value)> {
    let ty = b.ty(x);
    let n: usize = axes.iter().map(|&a| ty.shape[a]).product();
    let sum = b.sum(x, axes)?;
    let mean = b.scale(sum, 1.0 / n as f64)?;
    let wide = b.expand_reduced(mean, &ty.shape, axes)?;
    let centred = b.sub(x, wide)?;
    let square = b.mul(centred, centred)?;
    let sum = b.sum(square, axes)?;
    Ok((centred, b.scale(sum, 1.0 / n as f64)?))
}

fn channel_norm(c: &Case, b: &mut Builder) -> Result<Value> {
    let (d, s) = (c.dtype, &c.shape);
    let (x, w, bias) = (b.input(d, s), b.input(d, &[s[1]]), b.input(d, &[s[1]]));
    let (x, axes) = match c.op.as_str() {
        "group_norm" => {
            let g = c.number("groups");
            (b.reshape(x, &[s[0], g, s[1] / g, s[2], s[3]])?, vec![2, 3, 4])
        }
        _ => (x, vec![0, 2, 3]),
    };
    let (centred, var) = moments(b, x, &axes)?;
    let var = b.offset(var, 1e-5)?;
    let scale = b.unary(Unary::Rsqrt, var)?;
    let shape = b.ty(x).shape;
    let scale = b.expand_reduced(scale, &shape, &axes)?;
    let y = b.mul(centred, scale)?;
    let y = b.reshape(y, s)?;
    let (w, bias) = (b.broadcast(w, s, &[1])?, b.broadcast(bias, s, &[1])?);
    let y = b.mul(y, w)?;
    b.add(y, bias)
}

/// Applies a composite over one axis by moving it to the end, as `nn::softmax` does.
fn along(c: &Case, b: &mut Builder, op: &str, axis: usize) -> Result<Vec<Value>> {
    let x = b.input(c.dtype, &c.shape);
    let last = c.shape.len() - 1;
    let moved = b.move_axis(x, axis, last)?;
    let ty = b.ty(moved);
    let f = match op {
        "softmax" => softmax::softmax(&ty)?,
        "log_softmax" => softmax::log_softmax(&ty)?,
        _ => softmax::logsumexp(&ty)?,
    };
    let y = b.emit(f.into(), &[moved])?[0];
    Ok(vec![if op == "logsumexp" { y } else { b.move_axis(y, last, axis)? }])
}

fn pool(c: &Case, b: &mut Builder, kind: ReduceKind) -> Result<Value> {
    let s = &c.shape;
    let x = b.input(c.dtype, s);
    let spatial = if s.len() == 4 { 2 } else { 1 };
    let (mut window, mut strides) = (vec![1; s.len()], vec![1; s.len()]);
    for a in s.len() - spatial..s.len() {
        (window[a], strides[a]) = (c.number("window"), c.number("stride"));
    }
    b.reduce_window(kind, x, &window, WindowConfig::strided(&strides, &vec![0; s.len()]))
}

fn scatter(c: &Case, b: &mut Builder, how: &str) -> Result<Value> {
    let (d, s, axis, n) = (c.dtype, &c.shape, c.number("axis"), c.number("n"));
    let x = b.input(d, s);
    let i = b.input(I, &[n]);
    let mut shape = s.clone();
    shape[axis] = n;
    let u = b.input(d, &shape);
    let kind = match how {
        "set" => ScatterKind::Set,
        "max" => ScatterKind::Max,
        _ => ScatterKind::Add,
    };
    let at = b.index_vectors(i)?;
    b.scatter(kind, SliceDims::take(s.len(), axis, 1), ScatterMode::Drop, x, at, u)
}

fn fourier(c: &Case, b: &mut Builder) -> Result<Vec<Value>> {
    let axes = c.list("axes");
    let s = &c.shape;
    let last = *axes.last().expect("an axis");
    let op = |kind| Fft { kind, axes: axes[..].into() };
    Ok(match c.op.as_str() {
        "fft" => {
            let (re, im) = (b.input(c.dtype, s), b.input(c.dtype, s));
            b.emit(op(FftKind::Forward).into(), &[re, im])?.to_vec()
        }
        "rfft" => {
            let x = b.input(c.dtype, s);
            b.emit(op(FftKind::Real).into(), &[x])?.to_vec()
        }
        _ => {
            let mut half = s.clone();
            half[last] = s[last] / 2 + 1;
            let (re, im) = (b.input(c.dtype, &half), b.input(c.dtype, &half));
            b.emit(op(FftKind::InverseReal { length: s[last] }).into(), &[re, im])?.to_vec()
        }
    })
}

fn conv(c: &Case, b: &mut Builder) -> Result<Value> {
    let (d, s) = (c.dtype, &c.shape);
    let x = b.input(d, s);
    let (out, k, stride, groups) = (c.number("out"), c.number("kernel"), c.number("stride"), c.number("groups"));
    let spatial = s.len() - 2;
    let mut kernel = vec![out, s[1] / groups];
    kernel.extend(vec![k; spatial]);
    let w = b.input(d, &kernel);
    let windows = match c.op.as_str() {
        // The cotangent of a convolution with this stride without padding.
        "conv_transpose" => {
            let edge = vec![k as i64 - 1; spatial];
            WindowConfig {
                base_dilation: vec![stride; spatial][..].into(),
                ..WindowConfig::strided(&vec![1; spatial], &edge)
            }
        }
        _ => {
            let plain = WindowConfig::strided(&vec![stride; spatial], &vec![(k / 2) as i64; spatial]);
            WindowConfig { window_dilation: vec![c.number("dilation"); spatial][..].into(), ..plain }
        }
    };
    b.one(Conv { groups, ..Conv::new(d, windows) }.into(), &[x, w])
}
