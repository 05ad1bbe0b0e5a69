//! Tensors outside of compiled regions: the cost of recording and evaluating ops, and training steps of Llamas.

use crate::measure::fail;
use crate::models::{GPT2_SIZE, LlamaConfig, TINY};
use compiler::{Backend, Result};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tensorloom::nn::{Attention, CrossEntropy, cross_entropy, dot_product_attention};
use tensorloom::optimizer::{AdamW, Optimizer};
use tensorloom::{DType, Engine, Tensor};

/// The names of the cases.
pub(crate) const CASE_NAMES: &[&str] = &["record_op", "force_chain", "eager_train_tiny", "eager_train_124m"];
/// The names of cases for devices with a large memory.
pub(crate) const LARGE_MEMORY_CASES: &[&str] = &["eager_train_124m"];

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the seconds of a case: per recorded op, per evaluated op, or per step.
pub(crate) fn seconds(case: &str, device: Arc<dyn Backend>, reps: usize) -> Result<f64> {
    let engine = Engine::new(device);
    let bad = |e: tensorloom::Error| fail(&e.to_string());
    match case {
        "record_op" => record(&engine, reps).map_err(bad),
        "force_chain" => chain(&engine, reps).map_err(bad),
        "eager_train_124m" => train(&engine, &GPT2_SIZE, reps).map_err(bad),
        _ => train(&engine, &TINY, reps).map_err(bad),
    }
}

fn record(engine: &Engine, reps: usize) -> tensorloom::Result<f64> {
    let (x, y) = (engine.ones(DType::F32, &[16]), engine.ones(DType::F32, &[16]));
    engine.force(&(x.clone(), y.clone()))?;
    let n = 2_000;
    let mut times = Vec::new();
    for _ in 0..reps * 20 {
        let start = Instant::now();
        let kept: Vec<Tensor> = (0..n).map(|_| black_box(&x) + black_box(&y)).collect();
        times.push(start.elapsed().as_secs_f64() / n as f64);
        drop(kept);
        engine.mark_step()?;
    }
    Ok(median(times))
}

/// A chain of 1,000 ops on 16 elements that is recorded, evaluated and dropped.
fn chain(engine: &Engine, reps: usize) -> tensorloom::Result<f64> {
    let (x, y) = (engine.ones(DType::F32, &[16]), engine.full(DType::F32, &[16], 0.5));
    engine.force(&(x.clone(), y.clone()))?;
    let n = 500;
    let mut times = Vec::new();
    for _ in 0..reps * 5 {
        let start = Instant::now();
        let mut z = x.clone();
        for _ in 0..n {
            z = &(&z * &y) + &x;
        }
        engine.force(&z)?;
        times.push(start.elapsed().as_secs_f64() / (2 * n) as f64);
    }
    Ok(median(times))
}

struct Block {
    norm1: Tensor,
    qkv: Tensor,
    out: Tensor,
    norm2: Tensor,
    up: Tensor,
    down: Tensor,
}

struct Llama {
    embed: Tensor,
    norm: Tensor,
    blocks: Vec<Block>,
    cos: Tensor,
    sin: Tensor,
}

impl Llama {
    fn new(e: &Engine, c: &LlamaConfig) -> Llama {
        let (d, f) = (c.width, c.hidden);
        let w = |s: &[usize]| (e.randn(s) * 0.02).requires_grad_();
        let one = || e.ones(DType::F32, &[d]).requires_grad_();
        let block = |_| Block {
            norm1: one(),
            qkv: w(&[3 * d, d]),
            out: w(&[d, d]),
            norm2: one(),
            up: w(&[2 * f, d]),
            down: w(&[d, f]),
        };
        let half = d / c.heads / 2;
        let angle = |i: usize, k: usize| i as f64 * 10000f64.powf(-(k as f64) / half as f64);
        let table = |f: fn(f64) -> f64| {
            let data: Vec<f32> = (0..c.seq).flat_map(|i| (0..half).map(move |k| f(angle(i, k)) as f32)).collect();
            e.tensor(&data, &[c.seq, 1, half])
        };
        Llama {
            embed: w(&[c.vocab, d]),
            norm: one(),
            blocks: (0..c.layers).map(block).collect(),
            cos: table(f64::cos),
            sin: table(f64::sin),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        let mut all = vec![self.embed.clone(), self.norm.clone()];
        for b in &self.blocks {
            all.extend([&b.norm1, &b.qkv, &b.out, &b.norm2, &b.up, &b.down].map(Tensor::clone));
        }
        all
    }

    fn rotate(&self, t: &Tensor) -> Tensor {
        let half = t.size(-1) / 2;
        let (a, b) = (t.narrow(-1, 0, half), t.narrow(-1, half, half));
        Tensor::concat(&[&(&a * &self.cos - &b * &self.sin), &(&a * &self.sin + &b * &self.cos)], -1)
    }

    fn loss(&self, c: &LlamaConfig, ids: &Tensor, targets: &Tensor) -> Tensor {
        let (batch, seq, d) = (c.batch as isize, c.seq as isize, c.width as isize);
        if c.bf16 {
            return self.in_bf16().loss(&LlamaConfig { bf16: false, ..c.clone() }, ids, targets);
        }
        let mut x = self.embed.embedding(ids);
        for b in &self.blocks {
            let parts = x.rmsnorm(&b.norm1, 1e-6).matmul(&b.qkv.t());
            let parts = parts.view(&[batch, seq, 3, c.heads as isize, d / c.heads as isize]);
            let part = |i| parts.index(2, i);
            let options = Attention { causal: true, ..Attention::default() };
            let mixed = dot_product_attention(&self.rotate(&part(0)), &self.rotate(&part(1)), &part(2), &options);
            x = &x + mixed.reshape(&[batch, seq, d]).matmul(&b.out.t());
            let wide = x.rmsnorm(&b.norm2, 1e-6).matmul(&b.up.t());
            let (gate, up) = (wide.narrow(-1, 0, c.hidden), wide.narrow(-1, c.hidden, c.hidden));
            x = &x + (gate.silu() * up).matmul(&b.down.t());
        }
        let logits = x.rmsnorm(&self.norm, 1e-6).matmul(&self.embed.t());
        cross_entropy(&logits.cast(DType::F32), targets, CrossEntropy::default())
    }

    /// Returns the model with parameters rounded to bf16; gradients pass through the cast.
    fn in_bf16(&self) -> Llama {
        let narrow = |t: &Tensor| t.cast(DType::BF16);
        let block = |b: &Block| Block {
            norm1: narrow(&b.norm1),
            qkv: narrow(&b.qkv),
            out: narrow(&b.out),
            norm2: narrow(&b.norm2),
            up: narrow(&b.up),
            down: narrow(&b.down),
        };
        Llama {
            embed: narrow(&self.embed),
            norm: narrow(&self.norm),
            blocks: self.blocks.iter().map(block).collect(),
            cos: narrow(&self.cos),
            sin: narrow(&self.sin),
        }
    }
}

/// Runs forward, backward and AdamW op by op.
fn train(engine: &Engine, c: &LlamaConfig, reps: usize) -> tensorloom::Result<f64> {
    let model = Llama::new(engine, c);
    let optimizer = AdamW::new(model.parameters(), 1e-3);
    let ids = engine.randint(0, c.vocab as i64, &[c.batch, c.seq]);
    let targets = engine.randint(0, c.vocab as i64, &[c.batch, c.seq]);
    engine.force(&(ids.clone(), targets.clone(), model.parameters()))?;
    let step = || -> tensorloom::Result<Tensor> {
        optimizer.zero_grad();
        let loss = model.loss(c, &ids, &targets);
        loss.backward()?;
        optimizer.step()?;
        engine.mark_step()?;
        Ok(loss)
    };
    let mut times = Vec::new();
    for i in 0..reps + 2 {
        let start = Instant::now();
        let loss = step()?;
        // Devices run asynchronously, so a step ends when its loss can be read.
        loss.item::<f32>()?;
        if i > 1 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    if std::env::var_os("LOOM_TIMES").is_some() {
        let (done, profile) = engine.profile(step);
        done?;
        eprintln!("{profile}");
    }
    Ok(median(times))
}
