//! Measures the decoding speed of quantized models: tokens per second of a Llama of half a billion random parameters, in bf16,
//! q8, q4 and nf4, alternately in one process, and the fraction of the memory bandwidth that this is.
//!
//! `cargo run --release -p tensorloom-models --example quantised_speed [LAYERS [THREADS]]`

use cpu::Cpu;
use ir::DType;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tensorloom_models::{Architecture, DecodeSession, Model, QuantizationConfig};

const ROUNDS: usize = 12;
const TOKENS: usize = 4;

fn architecture(layers: i64) -> Architecture {
    let sizes = [("vocab_size", 32000), ("d_model", 1024), ("n_layers", layers), ("heads", 16), ("kv_heads", 16)];
    let sizes = sizes.into_iter().chain([("d_ff", 4096), ("max_seq", 512)]);
    let given: BTreeMap<_, _> =
        sizes.map(|(name, n)| (name.to_string(), lang::consteval::ConstValue::int(n))).collect();
    Architecture::from_library("llama", given).expect("a model")
}

/// Bytes of weights that a decode step reads: everything but the embedding table, of which it reads one row.
fn bytes(model: &Model) -> f64 {
    let table = 32000.0 * 1024.0;
    let each = |(name, n): (&String, &usize)| match name.as_str() {
        "int8" => *n as f64 * 8.5 / 8.0,
        "int4" | "nf4" => *n as f64 * 4.5 / 8.0,
        _ => (*n as f64 - table) * 2.0,
    };
    model.storage_formats().iter().map(each).sum()
}

/// A filled array in memory pages as large as those of the weights.
fn filled(n: usize) -> &'static [u64] {
    let buffer = Box::leak(Box::new(cpu::HostBuffer::new(n * 8).expect("memory")));
    // SAFETY: the block has room for them, and nothing else knows of it.
    let words = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr().cast::<u64>(), n) };
    words.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
    words
}

/// Measures the memory bandwidth of all threads together in bytes per second.
fn memory(words: &[u64], threads: usize) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for part in words.chunks(words.len().div_ceil(threads)) {
            scope.spawn(move || {
                let mut sums = [0u64; 32];
                for chunk in part.chunks_exact(32) {
                    (0..32).for_each(|i| sums[i] ^= chunk[i]);
                }
                black_box(sums);
            });
        }
    });
    (words.len() * 8) as f64 / started.elapsed().as_secs_f64()
}

fn main() {
    let mut words = std::env::args().skip(1).filter_map(|w| w.parse::<usize>().ok());
    let layers = words.next().unwrap_or(24);
    let threads = words.next().unwrap_or(2);
    let cpu = Cpu::new(threads);
    let mut models: Vec<(&str, Model)> = Vec::new();
    for name in ["bf16", "q8", "q4", "nf4"] {
        let mut model = Model::new_random(architecture(layers as i64), DType::BF16, 1).expect("a model");
        if name != "bf16" {
            model.quantize(&name.parse::<QuantizationConfig>().expect("a scheme")).expect("quantises");
        }
        models.push((name, model));
    }
    println!("{} parameters, {threads} threads", models[0].1.parameter_count());
    let mut decodings: Vec<DecodeSession<'_>> =
        models.iter().map(|(_, model)| model.decode_session(ROUNDS * TOKENS + 8, &cpu).expect("decodes")).collect();
    for decoding in &mut decodings {
        decoding.append(&[1]).expect("runs");
    }
    let buffer = filled(64 << 20);
    let mut best = vec![Duration::MAX; models.len()];
    let mut speed = 0f64;
    for _ in 0..ROUNDS {
        for (decoding, best) in decodings.iter_mut().zip(&mut best) {
            for token in 0..TOKENS {
                decoding.append(&[token as i32 + 2]).expect("runs");
                *best = (*best).min(decoding.last_run_time());
            }
        }
        speed = speed.max(memory(buffer, threads));
    }
    println!("memory {:.1} GB/s", speed / 1e9);
    let base = best[0].as_secs_f64();
    println!("format  ms/token  tokens/s  of bf16  GB/token  GB/s  of memory");
    for ((name, model), best) in models.iter().zip(&best) {
        let (time, bytes) = (best.as_secs_f64(), bytes(model));
        println!(
            "{name:6} {:9.2} {:9.1} {:7.2}x {:9.3} {:5.1} {:8.0}%",
            time * 1e3,
            1.0 / time,
            base / time,
            bytes / 1e9,
            bytes / time / 1e9,
            bytes / time / speed * 100.0
        );
    }
}
