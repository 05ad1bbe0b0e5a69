//! The benchmark cases, under the names that the peers use.

use crate::measure::{PreparedProgram, fail, peak_mib, prepare};
use crate::{models, vision};
use compiler::{Backend, Result};
use cpu::Cpu;
use ir::composites::{activation, norm, softmax};
use ir::ops::{Cumulative, ReduceKind, Scan, Sort, TopK};
use ir::{Builder, DType, Graph, GraphBuilder, Type, Unary};
use std::collections::BTreeMap;

const F: DType = DType::F32;

/// The names of all cases, as the peers use them.
pub(crate) const CASE_NAMES: &[&str] = &[
    "matmul256",
    "matmul512",
    "matmul1024",
    "matmul2048",
    "matmul1024_bf16",
    "matmul2048_bf16",
    "chain2^14",
    "chain2^20",
    "chain2^24",
    "softmax4096x1024",
    "layernorm4096x1024",
    "dispatch16",
    "scan_cumsum_scalar_L1000",
    "scan_cumsum_n4_L1000",
    "scan_cumsum_n4096_L1000",
    "grad_scan_tanh64_L1000",
    "encoder_fwd_4x128",
    "train_cnn_32x3x32x32",
    "train_mobile_32x3x32x32",
    "train_unet_8x3x64x64",
    "train_tiny",
    "train_small",
    "train_small_bf16",
    "decode_small",
    "compile_layers2",
    "compile_layers6",
    "compile_layers12",
    "compile_layers24",
    "compile_layers48",
];

/// Cases for devices with a large memory.
pub(crate) const LARGE_MEMORY_CASES: &[&str] = &[
    "chain1g",
    "softmax1g",
    "layernorm1g",
    "sort2^20",
    "cumsum2^24",
    "top50_of_32x50304",
    "attention_12x64",
    "attention_32x64",
    "attention_16x128",
    "train_124m",
    "train_1b",
    "train_1b_fp8",
    "train_qwen05b",
    "decode_1b_b1",
    "decode_1b_b32",
];

/// Returns the graph of a case, the number of runs per timing, and the number of classes of its integer inputs.
pub(crate) fn graph(case: &str) -> Option<(Graph, usize, i64)> {
    let number = |prefix: &str| case.strip_prefix(prefix)?.parse::<usize>().ok();
    Some(match case {
        "softmax4096x1024" => (softmax_rows(4096, 1024), 4, 1),
        "layernorm4096x1024" => (layernorm_rows(4096, 1024), 4, 1),
        "dispatch16" => (increment(), 20_000, 1),
        "scan_cumsum_scalar_L1000" => (cumsum(&[], 1000), 500, 1),
        "scan_cumsum_n4_L1000" => (cumsum(&[4], 1000), 500, 1),
        "scan_cumsum_n4096_L1000" => (cumsum(&[4096], 1000), 5, 1),
        "grad_scan_tanh64_L1000" => (grad_tanh_scan(64, 1000), 50, 1),
        "encoder_fwd_4x128" => (models::encoder(4, 128, 384, 12, 1536, 6), 1, 1),
        "train_cnn_32x3x32x32" => (models::cnn_step(), 1, 10),
        "train_mobile_32x3x32x32" => (vision::mobile_step(), 1, 10),
        "train_unet_8x3x64x64" => (vision::unet_step(), 1, 2),
        "train_small_bf16" => {
            let narrow = models::LlamaConfig { bf16: true, ..models::SMALL };
            (models::train_step(&narrow), 1, narrow.vocab as i64)
        }
        "train_tiny" => (models::train_step(&models::TINY), 1, models::TINY.vocab as i64),
        "train_small" => (models::train_step(&models::SMALL), 1, models::SMALL.vocab as i64),
        "chain1g" => (chain(1 << 28), 4, 1),
        "softmax1g" => (softmax_rows(1 << 18, 1024), 4, 1),
        "layernorm1g" => (layernorm_rows(1 << 18, 1024), 4, 1),
        "sort2^20" => (sorted(1 << 20), 4, 1),
        "cumsum2^24" => (running_sum(1 << 24), 4, 1),
        "top50_of_32x50304" => (largest(32, 50304, 50), 4, 1),
        "attention_12x64" => (models::attention_step(32, (12, 12), 1024, 64), 4, 1),
        "attention_32x64" => (models::attention_step(8, (32, 8), 2048, 64), 4, 1),
        "attention_16x128" => (models::attention_step(4, (16, 16), 4096, 128), 4, 1),
        "train_124m" => (models::train_step(&models::GPT2_SIZE), 1, models::GPT2_SIZE.vocab as i64),
        "train_1b" => (models::train_step(&models::BILLION), 1, models::BILLION.vocab as i64),
        "train_1b_fp8" => {
            let fp8 = models::LlamaConfig { fp8: true, ..models::BILLION };
            (models::train_step(&fp8), 1, fp8.vocab as i64)
        }
        "train_small_fp8" => {
            let fp8 = models::LlamaConfig { bf16: true, fp8: true, ..models::SMALL };
            (models::train_step(&fp8), 1, fp8.vocab as i64)
        }
        "train_qwen05b" => (models::train_step(&models::QWEN_HALF), 1, models::QWEN_HALF.vocab as i64),
        _ if case.ends_with("_bf16") => match case.trim_end_matches("_bf16").strip_prefix("matmul")?.parse() {
            Ok(n @ 1..=4096) => (matmul(n, DType::BF16), (2048 / n).max(1), 1),
            _ => return None,
        },
        _ => match (number("matmul"), number("chain2^")) {
            (Some(n @ 1..=4096), _) => (matmul(n, F), (2048 / n).max(1), 1),
            (_, Some(p @ 1..=26)) => (chain(1 << p), ((1 << 22) >> p).max(1), 1),
            _ => return None,
        },
    })
}

/// A program that an earlier case compiled, with the time and memory of its first use.
pub(crate) struct CachedCase {
    ready: PreparedProgram,
    inner: usize,
    first_s: f64,
    rss_mib: f64,
}

/// Measures the compile time of the small Llama's training step with the given number of layers, from graph to loaded machine
/// code.
fn compile_time(device: &dyn Backend, case: &str, layers: usize, reps: usize) -> Result<String> {
    let graph = models::train_step(&models::LlamaConfig { layers, ..models::SMALL });
    let state = graph.outputs().len() - 1;
    let mut times = Vec::with_capacity(reps);
    let mut steps = 0;
    for _ in 0..reps {
        // A fresh backend has an empty kernel cache.
        let fresh = Cpu::new(1);
        let options = compiler::Options { donate: (0..state).map(|i| (i, i + 1)).collect(), ..Default::default() };
        let start = std::time::Instant::now();
        let exe = fresh.load(compiler::compile(&graph, device, &options)?)?;
        times.push(start.elapsed().as_secs_f64());
        steps = exe.program().steps.len();
    }
    times.sort_by(f64::total_cmp);
    let nodes = graph.nodes().len();
    Ok(format!("{{\"case\": {case:?}, \"s\": {:e}, \"nodes\": {nodes}, \"steps\": {steps}}}", times[reps / 2]))
}

/// Measures the small Llama on a prefill of 128 tokens and the generation of 128 tokens with a KV cache, without compile time.
fn decode(device: &dyn Backend, case: &str, reps: usize) -> Result<String> {
    let sizes = [
        ("vocab_size", models::SMALL.vocab),
        ("d_model", models::SMALL.width),
        ("n_layers", models::SMALL.layers),
        ("heads", models::SMALL.heads),
        ("kv_heads", models::SMALL.heads),
        ("d_ff", models::SMALL.hidden),
        ("max_seq", 256),
    ];
    let mut given: BTreeMap<String, lang::consteval::ConstValue> =
        sizes.iter().map(|(name, n)| (name.to_string(), lang::consteval::ConstValue::int(*n as i64))).collect();
    given.insert("tied".into(), lang::consteval::ConstValue::bool(true));
    let broken = |e: ::models::Error| fail(&e.to_string());
    let architecture = ::models::Architecture::from_library("llama", given).map_err(broken)?;
    let model = ::models::Model::new_random(architecture, F, 1).map_err(broken)?;
    let prompt: Vec<i32> = (0..128).map(|i| i * 29 % models::SMALL.vocab as i32).collect();
    let mut times = Vec::with_capacity(reps);
    let (mut first, mut rate) = (0.0, 0.0);
    for _ in 0..reps {
        let found = model.generate_greedy(&prompt, 128, device).map_err(broken)?;
        let (read, rest) = (found.prompt_time.as_secs_f64(), found.decode_time.as_secs_f64());
        times.push(read + rest);
        (first, rate) = (read, 127.0 / rest);
    }
    times.sort_by(f64::total_cmp);
    Ok(format!(
        "{{\"case\": {case:?}, \"s\": {:e}, \"first_s\": {first:.4}, \"tokens_per_s\": {rate:.0}}}",
        times[reps / 2]
    ))
}

/// The length of the KV caches, and the number of filled positions.
const CACHED: (usize, i32) = (1024, 512);

/// Decodes one token for each sequence of a batch with a Llama of a billion parameters, in bf16 with the KV caches on the device,
/// compiled by `Model::decoding`. The host's work on the logits is not measured.
fn decode_large(device: &dyn Backend, case: &str, batch: usize, reps: usize) -> Result<String> {
    let c = models::BILLION;
    let sizes = [
        ("vocab_size", c.vocab),
        ("d_model", c.width),
        ("n_layers", c.layers),
        ("heads", c.heads),
        ("kv_heads", c.kv_heads),
        ("d_ff", c.hidden),
        ("max_seq", CACHED.0),
    ];
    let mut given: BTreeMap<String, lang::consteval::ConstValue> =
        sizes.iter().map(|(name, n)| (name.to_string(), lang::consteval::ConstValue::int(*n as i64))).collect();
    given.insert("tied".into(), lang::consteval::ConstValue::bool(true));
    let broken = |e: ::models::Error| fail(&e.to_string());
    let architecture = ::models::Architecture::from_library("llama", given).map_err(broken)?;
    let options = lang::lower::LowerOptions {
        dtype: DType::BF16,
        decode: Some(CACHED.0),
        custom_backward: false,
        ..lang::lower::LowerOptions::default()
    };
    let lowered = architecture.lower_with(batch, 1, &options).map_err(broken)?;
    let (n, results) = (lowered.params.len(), lowered.outputs.len());
    let donate = (0..lowered.caches.len()).map(|i| (n + 2 + i, results + i)).collect();
    let mut ready = prepare(device, &lowered.graph, (0.02, c.vocab as i64), donate)?;
    ready.bindings.inputs[n + 1].write(0, &CACHED.1.to_le_bytes())?;
    ready.run()?;
    let s = ready.median(reps, 16)?;
    print_step_times(&mut ready)?;
    let program = ready.exe.program();
    let bytes: usize = program.inputs[..n].iter().map(Type::bytes).sum();
    Ok(format!(
        "{{\"case\": {case:?}, \"s\": {s:e}, \"compile_s\": {:.4}, \"tokens_per_s\": {:.0}, \"weights_gb_per_s\": {:.0}, \"steps\": {}}}",
        ready.compile_s,
        batch as f64 / s,
        bytes as f64 / s / 1e9,
        program.steps.len()
    ))
}

/// Prints the time of each step of a program, if requested.
fn print_step_times(ready: &mut PreparedProgram) -> Result<()> {
    if std::env::var_os("LOOM_TIMES").is_some() {
        for t in ready.exe.run_timed(&mut ready.bindings)? {
            eprintln!("{:9.1} µs {:5} × {}", t.time.as_secs_f64() * 1e6, t.calls, t.label);
        }
    }
    Ok(())
}

/// Runs a case and writes the answer.
pub(crate) fn run_case(
    device: &dyn Backend,
    case: &str,
    reps: usize,
    known: &mut BTreeMap<String, CachedCase>,
) -> Result<String> {
    if let Some(layers) = case.strip_prefix("compile_layers").and_then(|n| n.parse::<usize>().ok()) {
        return compile_time(device, case, layers.clamp(1, 1000), reps);
    }
    if case == "decode_small" {
        return decode(device, case, reps);
    }
    if let Some(batch) = case.strip_prefix("decode_1b_b").and_then(|n| n.parse::<usize>().ok()) {
        return decode_large(device, case, batch.clamp(1, 1024), reps);
    }
    if !known.contains_key(case) {
        let (graph, inner, classes) = graph(case).ok_or_else(|| fail("there is no such case; --list names them"))?;
        let (before, start) = (peak_mib(), std::time::Instant::now());
        // A training step returns its loss, then every parameter and moment that it was given.
        let state = if case.starts_with("train_") { graph.outputs().len() - 1 } else { 0 };
        // Training starts from small weights, as in the peers.
        let scale = if state > 0 { 0.02 } else { 1.0 };
        let mut ready = prepare(device, &graph, (scale, classes), (0..state).map(|i| (i, i + 1)).collect())?;
        ready.run()?;
        let first_s = start.elapsed().as_secs_f64();
        // Parameters exist before the step, as in the peers; AdamW's moments do not.
        let params = if case.starts_with("train_cnn") { state } else { state / 3 };
        let params: usize = ready.exe.program().inputs[..params].iter().map(Type::bytes).sum();
        let rss_mib = peak_mib() - before - params as f64 / (1 << 20) as f64;
        known.insert(case.into(), CachedCase { ready, inner, first_s, rss_mib });
    }
    let k = known.get_mut(case).expect("just made");
    let s = k.ready.median(reps, k.inner)?;
    print_step_times(&mut k.ready)?;
    Ok(format!(
        "{{\"case\": {case:?}, \"s\": {s:e}, \"compile_s\": {:.4}, \"first_s\": {:.4}, \"rss_mib\": {:.0}, \"arena_mib\": {}}}",
        k.ready.compile_s,
        k.first_s,
        k.rss_mib,
        k.ready.exe.program().arena_bytes >> 20
    ))
}

fn build(f: impl FnOnce(&mut Builder) -> ir::Result<Vec<ir::Value>>) -> Graph {
    let mut b = Builder::new();
    let outs = f(&mut b).expect("a case is a valid graph");
    b.finish(&outs)
}

fn matmul(n: usize, dtype: DType) -> Graph {
    build(|b| {
        let (x, y) = (b.input(dtype, &[n, n]), b.input(dtype, &[n, n]));
        Ok(vec![b.matmul(x, y)?])
    })
}

/// `gelu(1.5x + 0.5) · sigmoid(x) + x`.
fn chain(n: usize) -> Graph {
    build(|b| {
        let x = b.input(F, &[n]);
        let s = b.scale(x, 1.5)?;
        let z = b.offset(s, 0.5)?;
        let gelu = activation::gelu(&Type::new(F, &[n]), activation::Gelu::Tanh)?;
        let g = b.emit(gelu.into(), &[z])?[0];
        let sig = b.unary(Unary::Logistic, x)?;
        let p = b.mul(g, sig)?;
        Ok(vec![b.add(p, x)?])
    })
}

fn softmax_rows(rows: usize, cols: usize) -> Graph {
    build(|b| {
        let x = b.input(F, &[rows, cols]);
        let s = softmax::softmax(&Type::new(F, &[rows, cols]))?;
        Ok(vec![b.emit(s.into(), &[x])?[0]])
    })
}

fn layernorm_rows(rows: usize, cols: usize) -> Graph {
    build(|b| {
        let x = b.input(F, &[rows, cols]);
        let (w, bias) = (b.input(F, &[cols]), b.input(F, &[cols]));
        let v = Type::new(F, &[cols]);
        let l = norm::layernorm(&Type::new(F, &[rows, cols]), Some(&v), Some(&v), 1e-5)?;
        Ok(vec![b.emit(l.into(), &[x, w, bias])?[0]])
    })
}

fn sorted(n: usize) -> Graph {
    build(|b| {
        let x = b.input(F, &[n]);
        Ok(b.emit(Sort { axis: 0, num_keys: 1, descending: false }.into(), &[x])?.to_vec())
    })
}

fn running_sum(n: usize) -> Graph {
    build(|b| {
        let x = b.input(F, &[n]);
        Ok(b.emit(Cumulative { kind: ReduceKind::Sum, axis: 0, reverse: false }.into(), &[x])?.to_vec())
    })
}

fn largest(rows: usize, cols: usize, k: usize) -> Graph {
    build(|b| {
        let x = b.input(F, &[rows, cols]);
        Ok(b.emit(TopK { k, axis: 1 }.into(), &[x])?.to_vec())
    })
}

fn increment() -> Graph {
    build(|b| {
        let x = b.input(F, &[16]);
        let d = b.scale(x, 2.0)?;
        Ok(vec![b.offset(d, 1.0)?])
    })
}

fn cumsum(shape: &[usize], length: usize) -> Graph {
    let body = build(|b| {
        let (c, x) = (b.input(F, shape), b.input(F, shape));
        let s = b.add(c, x)?;
        Ok(vec![s, s])
    });
    build(|b| {
        let wide = Type::new(F, shape).batched(length);
        let xs = b.graph.input(wide);
        let zero = b.zeros(&Type::new(F, shape))?;
        Ok(b.emit(Scan::over(0, 1, length, body).into(), &[zero, xs])?.to_vec())
    })
}

fn grad_tanh_scan(width: usize, length: usize) -> Graph {
    let body = build(|b| {
        let (c, x) = (b.input(F, &[width]), b.input(F, &[width]));
        let s = b.scale(c, 0.9)?;
        let z = b.add(s, x)?;
        Ok(vec![b.unary(Unary::Tanh, z)?])
    });
    let loss = build(|b| {
        let xs = b.input(F, &[length, width]);
        let zero = b.zeros(&Type::new(F, &[width]))?;
        let c = b.emit(Scan::over(0, 1, length, body).into(), &[zero, xs])?[0];
        Ok(vec![b.sum_all(c)?])
    });
    transform::grad(&loss, &[0]).expect("a smooth loss")
}
