//! The benchmark models, written as graphs.

use ir::composites::attention::{AttentionOptions, attention, attention_backward};
use ir::composites::rope::{RopeLayout, RopeOptions, rope};
use ir::composites::{activation, embedding, loss, norm};
use ir::ops::window::WindowConfig;
use ir::ops::{Dot, Name, ReduceKind, Remat, RematPolicy};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Result, Type, Unary, Value};
use transform::{DelayedScaling, LowPrecision, MatmulRounding, Rounding};

const F: DType = DType::F32;

/// Sizes of a Llama and of its batch.
#[derive(Clone)]
pub(crate) struct LlamaConfig {
    pub(crate) vocab: usize,
    pub(crate) width: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// The number of key and value heads; each is shared by `heads / kv_heads` query heads.
    pub(crate) kv_heads: usize,
    pub(crate) hidden: usize,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
    /// Matrix products and attention are in bf16, everything else in f32.
    pub(crate) bf16: bool,
    /// All matrix products but the last are in fp8 with delayed scaling: E4M3 in forward, E5M2 in backward.
    pub(crate) fp8: bool,
    /// The outputs of the gates are recomputed in backward, which takes less memory and more time.
    pub(crate) recompute_gates: bool,
}

pub(crate) const TINY: LlamaConfig = LlamaConfig {
    vocab: 512,
    width: 128,
    layers: 4,
    heads: 4,
    kv_heads: 4,
    hidden: 352,
    batch: 8,
    seq: 128,
    bf16: false,
    fp8: false,
    recompute_gates: false,
};
pub(crate) const SMALL: LlamaConfig = LlamaConfig {
    vocab: 4096,
    width: 384,
    layers: 6,
    heads: 6,
    kv_heads: 6,
    hidden: 1024,
    batch: 8,
    seq: 256,
    bf16: false,
    fp8: false,
    recompute_gates: false,
};

/// A Llama of the size of GPT-2, for GPUs.
pub(crate) const GPT2_SIZE: LlamaConfig = LlamaConfig {
    vocab: 50304,
    width: 768,
    layers: 12,
    heads: 12,
    kv_heads: 12,
    hidden: 2048,
    batch: 32,
    seq: 1024,
    bf16: true,
    fp8: false,
    recompute_gates: true,
};

/// A Llama with a billion parameters.
pub(crate) const BILLION: LlamaConfig = LlamaConfig {
    vocab: 32000,
    width: 2048,
    layers: 16,
    heads: 32,
    kv_heads: 8,
    hidden: 8192,
    batch: 8,
    seq: 2048,
    bf16: true,
    fp8: false,
    recompute_gates: false,
};

/// The sizes of the smallest Qwen 2: a large vocabulary and few key heads.
pub(crate) const QWEN_HALF: LlamaConfig = LlamaConfig {
    vocab: 151_936,
    width: 896,
    layers: 24,
    heads: 14,
    kv_heads: 2,
    hidden: 4864,
    batch: 8,
    seq: 2048,
    bf16: true,
    fp8: false,
    recompute_gates: false,
};

/// The shapes of the parameters, in order: embedding, final norm, then six for each layer.
fn params(c: &LlamaConfig) -> Vec<Vec<usize>> {
    let (d, f) = (c.width, c.hidden);
    let mut shapes = vec![vec![c.vocab, d], vec![d]];
    for _ in 0..c.layers {
        shapes.extend([
            vec![d],
            vec![(c.heads + 2 * c.kv_heads) * (d / c.heads), d],
            vec![d, d],
            vec![d],
            vec![2 * f, d],
            vec![d, f],
        ]);
    }
    shapes
}

/// Returns `x·wᵀ` over the last axes.
fn linear(b: &mut Builder, x: Value, w: Value) -> Result<Value> {
    let rank = b.ty(x).rank();
    b.one(Dot::last_axes(F, rank, 2).into(), &[x, w])
}

fn rms(b: &mut Builder, x: Value, w: Value) -> Result<Value> {
    let c = norm::rmsnorm(&b.ty(x), &b.ty(w), 1e-6)?;
    Ok(b.emit(c.into(), &[x, w])?[0])
}

/// Returns SwiGLU and the matrix product that follows it.
fn swiglu_mlp(b: &mut Builder, up: Value, w: Value) -> Result<Value> {
    let s = activation::swiglu_fused(&b.ty(up))?;
    let s = b.emit(s.into(), &[up])?[0];
    linear(b, s, w)
}

/// The loss of the language model: maps parameters, token IDs and targets to a mean.
fn forward(c: &LlamaConfig) -> Result<Graph> {
    let mut b = Builder::new();
    let p: Vec<Value> = params(c).iter().map(|s| b.input(F, s)).collect();
    let (bs, t, d, h) = (c.batch, c.seq, c.width, c.heads);
    let hd = d / h;
    let ids = b.input(DType::I32, &[bs, t]);
    let targets = b.input(DType::I32, &[bs, t]);
    let angles = |f: fn(f64) -> f64| {
        let table: Vec<f32> = (0..t * hd / 2)
            .map(|i| f((i / (hd / 2)) as f64 / 10000f64.powf((i % (hd / 2)) as f64 * 2.0 / hd as f64)) as f32)
            .collect();
        Literal::new(&[t, hd / 2], &table)
    };
    let (cos, sin) = (b.constant(angles(f64::cos))?, b.constant(angles(f64::sin))?);
    let e = embedding::embedding(&b.ty(p[0]), &b.ty(ids), None)?;
    let mut x = b.emit(e.into(), &[p[0], ids])?[0];
    for layer in p[2..].chunks(6) {
        let n = rms(&mut b, x, layer[0])?;
        let qkv = linear(&mut b, n, layer[1])?;
        let kv = c.kv_heads;
        let split = b.reshape(qkv, &[bs, t, h + 2 * kv, hd])?;
        let heads = b.permute(split, &[0, 2, 1, 3])?;
        let mut parts = Vec::new();
        for (i, (from, to)) in [(0, h), (h, h + kv), (h + kv, h + 2 * kv)].into_iter().enumerate() {
            let one = b.slice_axis(heads, 1, from, to)?;
            parts.push(if i < 2 {
                let layout = RopeOptions { layout: RopeLayout::Halves, has_head_axis: false };
                let r = rope(&b.ty(one), &b.ty(cos), &b.ty(sin), layout)?;
                b.emit(r.into(), &[one, cos, sin])?[0]
            } else {
                one
            });
        }
        let [q, k, v] = [0, 1, 2].map(|i| b.ty(parts[i]));
        let a = attention(&q, &k, &v, &AttentionOptions { causal: true, ..AttentionOptions::default() })?;
        let o = b.emit(a.into(), &parts)?[0];
        let o = b.permute(o, &[0, 2, 1, 3])?;
        let o = b.reshape(o, &[bs, t, d])?;
        let o = linear(&mut b, o, layer[2])?;
        x = b.add(x, o)?;
        let n = rms(&mut b, x, layer[3])?;
        let up = linear(&mut b, n, layer[4])?;
        let down = match c.recompute_gates {
            true => {
                let mut inner = Builder::new();
                let (x, w) = (inner.graph.input(b.ty(up)), inner.graph.input(b.ty(layer[5])));
                let down = swiglu_mlp(&mut inner, x, w)?;
                let body = inner.finish(&[down]);
                b.emit(Remat::with_policy(body, RematPolicy::Nothing).into(), &[up, layer[5]])?[0]
            }
            false => swiglu_mlp(&mut b, up, layer[5])?,
        };
        x = b.add(x, down)?;
    }
    let n = rms(&mut b, x, p[1])?;
    let mut logits = linear(&mut b, n, p[0])?;
    if c.fp8 {
        logits = b.one(Name::new(transform::KEEP_PRECISION).into(), &[logits])?;
    }
    let l = mean_loss(&mut b, logits, targets)?;
    Ok(b.finish(&[l]))
}

pub(crate) fn mean_loss(b: &mut Builder, logits: Value, targets: Value) -> Result<Value> {
    let ce = loss::cross_entropy(&b.ty(logits), &b.ty(targets), loss::CrossEntropyOptions::default())?;
    let rows = b.emit(ce.into(), &[logits, targets])?[0];
    let n = b.ty(rows).numel();
    let s = b.sum_all(rows)?;
    b.scale(s, 1.0 / n as f64)
}

/// One AdamW training step. It maps parameters, first moments, second moments, fp8 histories, token IDs and targets to the loss
/// and the first four.
pub(crate) fn train_step(c: &LlamaConfig) -> Graph {
    let build = || -> Result<Graph> {
        let mut f = forward(c)?;
        if c.bf16 {
            // Residuals are bf16, as in the peers.
            let policy = transform::AutocastPolicy {
                rounded_outputs: vec!["embedding".into()],
                ..transform::AutocastPolicy::new(DType::BF16)
            };
            f = transform::autocast(&f, &policy)?;
        }
        let shapes = params(c);
        let n = shapes.len();
        let mut states = Vec::new();
        if c.fp8 {
            let delay = Some(DelayedScaling { history: 16, interval: 1 });
            let [forward, backward] = [LowPrecision::E4M3, LowPrecision::E5M2]
                .map(|few| Rounding { delayed_scaling: delay, ..Rounding::new(few) });
            f = transform::round_matmuls(&f, &MatmulRounding::new(forward).with_cotangent_rounding(backward))?;
            let stateful = transform::with_state(&f, None)?;
            (f, states) = (stateful.graph, stateful.amax_histories);
        }
        // The gradient of a history is the next value of the history.
        let wrt: Vec<usize> = (0..n).chain(n + 2..n + 2 + states.len()).collect();
        let grad = transform::value_and_grad(&f, &wrt)?;
        let mut b = Builder::new();
        let p: Vec<Value> = shapes.iter().map(|s| b.input(F, s)).collect();
        let m: Vec<Value> = shapes.iter().map(|s| b.input(F, s)).collect();
        let v: Vec<Value> = shapes.iter().map(|s| b.input(F, s)).collect();
        let histories: Vec<Value> = states.into_iter().map(|t| b.graph.input(t)).collect();
        let ids = b.input(DType::I32, &[c.batch, c.seq]);
        let targets = b.input(DType::I32, &[c.batch, c.seq]);
        let args: Vec<Value> = p.iter().copied().chain([ids, targets]).chain(histories).collect();
        let outs = b.inline(&grad, &args)?;
        let (mut np, mut nm, mut nv) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..n {
            let g = outs[1 + i];
            let (keep, new) = (b.scale(m[i], 0.9)?, b.scale(g, 0.1)?);
            let m1 = b.add(keep, new)?;
            let sq = b.mul(g, g)?;
            let (keep, new) = (b.scale(v[i], 0.999)?, b.scale(sq, 0.001)?);
            let v1 = b.add(keep, new)?;
            // The random inputs for the second moment may be negative, unlike a real second moment.
            let size = b.unary(Unary::Abs, v1)?;
            let root = b.unary(Unary::Sqrt, size)?;
            let below = b.offset(root, 1e-8)?;
            let step = b.div(m1, below)?;
            let step = b.scale(step, 1e-3)?;
            let decayed = b.scale(p[i], 0.99999)?;
            np.push(b.sub(decayed, step)?);
            nm.push(m1);
            nv.push(v1);
        }
        let results: Vec<Value> =
            std::iter::once(outs[0]).chain(np).chain(nm).chain(nv).chain(outs[1 + n..].iter().copied()).collect();
        Ok(b.finish(&results))
    };
    build().expect("the model is a valid graph")
}

/// Causal attention in bf16, forward and backward, with the given numbers of query and key heads.
pub(crate) fn attention_step(batch: usize, (heads, kv): (usize, usize), seq: usize, width: usize) -> Graph {
    let build = || -> Result<Graph> {
        let ty = |h: usize| Type::new(DType::BF16, &[batch, h, seq, width]);
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        let mut b = Builder::new();
        let qkv: Vec<Value> = [heads, kv, kv].into_iter().map(|h| b.graph.input(ty(h))).collect();
        let dout = b.graph.input(ty(heads));
        let outs = b.emit(attention(&ty(heads), &ty(kv), &ty(kv), &options)?.into(), &qkv)?;
        let dlse = b.ty(outs[1]);
        let dlse = b.zeros(&dlse)?;
        let args = [&qkv[..], &outs, &[dout, dlse]].concat();
        let grads = b.emit(attention_backward(&ty(heads), &ty(kv), &ty(kv), &options)?.into(), &args)?;
        Ok(b.finish(&[&outs[..1], &grads].concat()))
    };
    build().expect("the model is a valid graph")
}

/// A post-norm transformer encoder, forward only.
pub(crate) fn encoder(batch: usize, seq: usize, d: usize, heads: usize, hidden: usize, layers: usize) -> Graph {
    let build = || -> Result<Graph> {
        let mut b = Builder::new();
        let mut x = b.input(F, &[batch, seq, d]);
        let hd = d / heads;
        for _ in 0..layers {
            let (wqkv, bqkv) = (b.input(F, &[3 * d, d]), b.input(F, &[3 * d]));
            let (wo, bo) = (b.input(F, &[d, d]), b.input(F, &[d]));
            let (w1, b1) = (b.input(F, &[hidden, d]), b.input(F, &[hidden]));
            let (w2, b2) = (b.input(F, &[d, hidden]), b.input(F, &[d]));
            let norms: Vec<Value> = (0..4).map(|_| b.input(F, &[d])).collect();
            let affine = |b: &mut Builder, x: Value, w: Value, bias: Value| -> Result<Value> {
                let y = linear(b, x, w)?;
                let shape = b.ty(y).shape;
                let bias = b.broadcast_to(bias, &shape)?;
                b.add(y, bias)
            };
            let layernorm = |b: &mut Builder, x: Value, w: Value, bias: Value| -> Result<Value> {
                let c = norm::layernorm(&b.ty(x), Some(&b.ty(w)), Some(&b.ty(bias)), 1e-5)?;
                Ok(b.emit(c.into(), &[x, w, bias])?[0])
            };
            let qkv = affine(&mut b, x, wqkv, bqkv)?;
            let split = b.reshape(qkv, &[batch, seq, 3, heads, hd])?;
            let split = b.permute(split, &[2, 0, 3, 1, 4])?;
            let mut parts = Vec::new();
            for i in 0..3 {
                let one = b.slice_axis(split, 0, i, i + 1)?;
                parts.push(b.reshape(one, &[batch, heads, seq, hd])?);
            }
            let ty = b.ty(parts[0]);
            let a = attention(&ty, &ty, &ty, &AttentionOptions::default())?;
            let o = b.emit(a.into(), &parts)?[0];
            let o = b.permute(o, &[0, 2, 1, 3])?;
            let o = b.reshape(o, &[batch, seq, d])?;
            let o = affine(&mut b, o, wo, bo)?;
            let r = b.add(x, o)?;
            x = layernorm(&mut b, r, norms[0], norms[1])?;
            let up = affine(&mut b, x, w1, b1)?;
            let g = activation::gelu(&b.ty(up), activation::Gelu::Erf)?;
            let g = b.emit(g.into(), &[up])?[0];
            let down = affine(&mut b, g, w2, b2)?;
            let r = b.add(x, down)?;
            x = layernorm(&mut b, r, norms[2], norms[3])?;
        }
        Ok(b.finish(&[x]))
    };
    build().expect("the model is a valid graph")
}

/// One SGD step of a small convolutional network on 32 images of 3×32×32.
pub(crate) fn cnn_step() -> Graph {
    let build = || -> Result<Graph> {
        let shapes: [&[usize]; 8] =
            [&[32, 3, 3, 3], &[32], &[64, 32, 3, 3], &[64], &[128, 64, 3, 3], &[128], &[10, 128], &[10]];
        let mut b = Builder::new();
        let p: Vec<Value> = shapes.iter().map(|s| b.input(F, s)).collect();
        let images = b.input(F, &[32, 3, 32, 32]);
        let labels = b.input(DType::I32, &[32]);
        let mut x = images;
        for i in 0..3 {
            x = conv_relu(&mut b, x, p[2 * i], p[2 * i + 1])?;
            if i < 2 {
                x = max_pool(&mut b, x)?;
            }
        }
        let area = (b.ty(x).shape[2] * b.ty(x).shape[3]) as f64;
        let s = b.sum(x, &[2, 3])?;
        let pooled = b.scale(s, 1.0 / area)?;
        let y = linear(&mut b, pooled, p[6])?;
        let bias = b.broadcast_to(p[7], &[32, 10])?;
        let logits = b.add(y, bias)?;
        let l = mean_loss(&mut b, logits, labels)?;
        let f = b.finish(&[l]);
        let grad = transform::value_and_grad(&f, &(0..8).collect::<Vec<_>>())?;
        let mut b = Builder::new();
        let args: Vec<Value> = grad.input_types().into_iter().map(|t| b.graph.input(t)).collect();
        let outs = b.inline(&grad, &args)?;
        let mut results = vec![outs[0]];
        for i in 0..8 {
            let step = b.scale(outs[1 + i], 1e-2)?;
            results.push(b.sub(args[i], step)?);
        }
        Ok(b.finish(&results))
    };
    build().expect("the model is a valid graph")
}

fn conv_relu(b: &mut Builder, x: Value, w: Value, bias: Value) -> Result<Value> {
    let y = b.conv(x, w, WindowConfig::strided(&[1, 1], &[1, 1]), 1)?;
    let shape = b.ty(y).shape;
    let bias = b.broadcast(bias, &shape, &[1])?;
    let z = b.add(y, bias)?;
    let relu = activation::relu(&Type::new(F, &shape))?;
    Ok(b.emit(relu.into(), &[z])?[0])
}

fn max_pool(b: &mut Builder, x: Value) -> Result<Value> {
    b.reduce_window(ReduceKind::Max, x, &[1, 1, 2, 2], WindowConfig::strided(&[1, 1, 2, 2], &[0; 4]))
}
