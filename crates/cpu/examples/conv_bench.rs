//! Compares convolutions with PyTorch, in alternating runs, each with `THREADS` threads (2), by the minimum time of many runs:
//! layers of 3×3 convolution, relu and optionally 2×2 max pooling,
//! forward and as a training step (with the gradients of all kernels).
//!
//! `cargo run --release -p tensorloom-cpu --example conv_bench -- <python with torch>`; without an argument it prints the
//! times of this backend only.

use compiler::{Backend, Bindings, Options};
use ir::ops::{Conv, ReduceKind, ReduceWindow, WindowConfig};
use ir::{Binary, Builder, DType, Graph, GraphBuilder, Value};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;
use tensorloom_cpu::Cpu;

/// Name, batch, size, pooling, with gradients, features.
const CASES: [(&str, usize, usize, bool, bool, &[usize]); 6] = [
    ("3→32, forward", 32, 32, false, false, &[3, 32]),
    ("32→64, forward", 32, 32, false, false, &[32, 64]),
    ("64→128, forward", 32, 32, false, false, &[64, 128]),
    ("64→128, training", 32, 16, false, true, &[64, 128]),
    ("CNN with pooling, training", 32, 32, true, true, &[3, 32, 64, 128]),
    ("CNN, training", 32, 32, false, true, &[3, 32, 64, 128]),
];

fn layer(b: &mut Builder, x: Value, w: Value, pool: bool) -> ir::Result<Value> {
    let h = b.one(Conv::new(DType::F32, WindowConfig::strided(&[1, 1], &[1, 1])).into(), &[x, w])?;
    let zero = b.full_like(h, 0.0)?;
    let h = b.binary(Binary::Max, h, zero)?;
    if !pool {
        return Ok(h);
    }
    let windows = WindowConfig::strided(&[1, 1, 2, 2], &[0; 4]);
    b.one(ReduceWindow { kind: ReduceKind::Max, window: [1, 1, 2, 2][..].into(), windows }.into(), &[h])
}

fn graph(n: usize, size: usize, pool: bool, grad: bool, features: &[usize]) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n, features[0], size, size]);
    let ws: Vec<Value> = features.windows(2).map(|c| b.input(DType::F32, &[c[1], c[0], 3, 3])).collect();
    let mut h = x;
    for &w in &ws {
        h = layer(&mut b, h, w, pool)?;
    }
    if !grad {
        return Ok(b.finish(&[h]));
    }
    let sq = b.mul(h, h)?;
    let loss = b.sum_all(sq)?;
    transform::grad(&b.finish(&[loss]), &(1..=ws.len()).collect::<Vec<_>>())
}

fn main() {
    let threads = std::env::var("THREADS").ok().and_then(|x| x.parse().ok()).unwrap_or(2);
    let cpu = Cpu::new(threads);
    let mut peer = std::env::args().nth(1).map(|python| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/conv_bench.py");
        let child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the interpreter starts");
        let stdin = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        (stdin, lines)
    });
    println!("{}", cpu.name());
    let wanted = std::env::var("CASE").unwrap_or_default();
    for (name, n, size, pool, grad, features) in CASES.into_iter().filter(|c| c.0.contains(&wanted)) {
        let graph = graph(n, size, pool, grad, features).expect("fits");
        let program = compiler::compile(&graph, &cpu, &Options::default()).expect("compiles");
        let exe = cpu.load(program).expect("loads");
        let mut bindings = Bindings::for_program(exe.program(), &cpu).expect("memory");
        for (i, (b, t)) in bindings.inputs.iter().zip(&exe.program().inputs).enumerate() {
            let mut state = i as u32 + 1;
            let data: Vec<u8> = (0..t.numel())
                .flat_map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * 0.1).to_le_bytes()
                })
                .collect();
            b.write(0, &data).expect("fits");
        }
        let mut area = size * size;
        let mut work = 0.0;
        for c in features.windows(2) {
            work += (n * area * c[0] * c[1] * 18) as f64;
            area /= if pool { 4 } else { 1 };
        }
        work *= if grad { 3.0 } else { 1.0 };
        let reps = (4e9 / work).clamp(2.0, 60.0) as usize;
        let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
        for _ in 0..7 {
            for _ in 0..reps {
                let start = Instant::now();
                exe.run(&mut bindings).expect("runs");
                ours = ours.min(start.elapsed().as_nanos() as f64);
            }
            if let Some((stdin, lines)) = &mut peer {
                let words = [n, size, usize::from(pool), usize::from(grad), reps, threads];
                let words: Vec<String> = words.iter().chain(features).map(usize::to_string).collect();
                writeln!(stdin, "{}", words.join(" ")).expect("the peer listens");
                let line = lines.next().expect("the peer answers").expect("text");
                theirs = theirs.min(line.trim().parse().expect("a number"));
            }
        }
        print!("{name:28} {:9.1} µs, {:6.1} GFLOP/s", ours / 1e3, work / ours);
        if theirs < f64::MAX {
            print!(", PyTorch {:9.1} µs, ratio {:.2}", theirs / 1e3, theirs / ours);
        }
        println!();
    }
}
