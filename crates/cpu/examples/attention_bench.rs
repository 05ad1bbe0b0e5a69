//! Compares attention with PyTorch's `scaled_dot_product_attention`, in alternating runs, each with `THREADS` threads (2), by the
//! minimum time of many runs.
//!
//! `cargo run --release -p tensorloom-cpu --example attention_bench -- <python with torch>`; without an argument it prints
//! the times of this backend only.

use compiler::{Backend, Bindings, Options};
use ir::composites::attention::{AttentionOptions, attention, attention_backward};
use ir::{Builder, DType, Graph, GraphBuilder, Type};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;
use tensorloom_cpu::Cpu;

/// batch, query heads, key heads, queries, keys, features, causal, with gradients.
const CASES: [(&str, [usize; 6], bool, bool); 7] = [
    ("tiny Llama, forward", [8, 4, 4, 128, 128, 32], true, false),
    ("tiny Llama, training", [8, 4, 4, 128, 128, 32], true, true),
    ("small Llama, forward", [8, 6, 6, 256, 256, 64], true, false),
    ("small Llama, training", [8, 6, 6, 256, 256, 64], true, true),
    ("long, training", [1, 4, 4, 2048, 2048, 64], true, true),
    ("decode, 4096 keys", [1, 8, 8, 1, 4096, 64], false, false),
    ("decode, grouped", [4, 16, 4, 1, 2048, 64], false, false),
];

fn graph([b, h, hkv, tq, tk, d]: [usize; 6], causal: bool, grad: bool) -> Graph {
    let ty = |h: usize, t: usize| Type::new(DType::F32, &[b, h, t, d]);
    let options = AttentionOptions { causal, ..AttentionOptions::default() };
    let (q, k) = (ty(h, tq), ty(hkv, tk));
    let mut builder = Builder::new();
    let args = [&q, &k, &k].map(|t| builder.graph.input(t.clone()));
    let forward = attention(&q, &k, &k, &options).expect("fits");
    let outs = builder.emit(forward.into(), &args).expect("fits");
    if !grad {
        return builder.finish(&outs[..1]);
    }
    let dout = builder.graph.input(q.clone());
    let lse = builder.ty(outs[1]);
    let dlse = builder.zeros(&lse).expect("fits");
    let backward = attention_backward(&q, &k, &k, &options).expect("fits");
    let operands = [&args[..], &outs, &[dout, dlse]].concat();
    let grads = builder.emit(backward.into(), &operands).expect("fits");
    builder.finish(&[&outs[..1], &grads].concat())
}

fn main() {
    let threads = std::env::var("THREADS").ok().and_then(|x| x.parse().ok()).unwrap_or(2);
    let cpu = Cpu::new(threads);
    let mut peer = std::env::args().nth(1).map(|python| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/attention_bench.py");
        let child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the interpreter starts");
        let stdin = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        (stdin, lines)
    });
    println!("{}", cpu.name());
    for (name, sizes, causal, grad) in CASES {
        let graph = graph(sizes, causal, grad);
        let program = compiler::compile(&graph, &cpu, &Options::default()).expect("compiles");
        let exe = cpu.load(program).expect("loads");
        let mut bindings = Bindings::for_program(exe.program(), &cpu).expect("memory");
        for (i, (b, t)) in bindings.inputs.iter().zip(&exe.program().inputs).enumerate() {
            let mut state = i as u32 + 1;
            let data: Vec<u8> = (0..t.numel())
                .flat_map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((state >> 8) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes()
                })
                .collect();
            b.write(0, &data).expect("fits");
        }
        let [b, h, _, tq, tk, d] = sizes;
        let work = (b * h * tq * tk * d) as f64 * 4.0 * if grad { 3.5 } else { 1.0 } * if causal { 0.5 } else { 1.0 };
        let reps = (3e9 / work).clamp(3.0, 2000.0) as usize;
        let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
        for _ in 0..7 {
            for _ in 0..reps {
                let start = Instant::now();
                exe.run(&mut bindings).expect("runs");
                ours = ours.min(start.elapsed().as_nanos() as f64);
            }
            if let Some((stdin, lines)) = &mut peer {
                let flags = [usize::from(causal), usize::from(grad), reps, threads];
                let words: Vec<String> = sizes.iter().chain(&flags).map(usize::to_string).collect();
                writeln!(stdin, "{}", words.join(" ")).expect("the peer listens");
                let line = lines.next().expect("the peer answers").expect("text");
                theirs = theirs.min(line.trim().parse().expect("a number"));
            }
        }
        print!("{name:24} {:9.1} µs, {:6.1} GFLOP/s", ours / 1e3, work / ours);
        if theirs < f64::MAX {
            print!(", PyTorch {:9.1} µs, ratio {:.2}", theirs / 1e3, theirs / ours);
        }
        println!();
    }
}
