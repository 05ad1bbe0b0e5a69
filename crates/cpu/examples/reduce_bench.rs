//! Compares reductions of a long vector with the memory copy bandwidth, on all threads:
//! `cargo run --release --example reduce_bench [log2 of the elements] [threads]`.
//!
//! Copies and reductions alternate in one process. Their maximum speeds are compared in bytes per second, and the bits of the
//! results with 1, 2, 3 and all threads.

use compiler::{Backend, Bindings, Options};
use ir::ops::{ArgReduce, ReduceKind};
use ir::{Builder, DType, Graph, GraphBuilder, Unary};
use std::time::Instant;
use tensorloom_cpu::Cpu;

fn graphs(n: usize) -> Vec<(&'static str, Graph)> {
    let reduce = |f: &dyn Fn(&mut Builder, ir::Value) -> ir::Value| {
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[n]);
        let y = f(&mut b, x);
        b.finish(&[y])
    };
    vec![
        ("sum", reduce(&|b, x| b.sum(x, &[0]).expect("a sum"))),
        ("max", reduce(&|b, x| b.reduce(ReduceKind::Max, x, &[0]).expect("a maximum"))),
        (
            "argmax",
            reduce(&|b, x| {
                let op = ArgReduce { max: true, axis: 0, index: DType::I32 };
                b.one(op.into(), &[x]).expect("a place")
            }),
        ),
        (
            "norm",
            reduce(&|b, x| {
                let squares = b.mul(x, x).expect("squares");
                let total = b.sum(squares, &[0]).expect("a sum");
                b.unary(Unary::Sqrt, total).expect("a root")
            }),
        ),
    ]
}

fn main() -> compiler::Result<()> {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let n = 1usize << args.next().unwrap_or(26);
    let threads = args.next().unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let data: Vec<u8> =
        (0..n).flat_map(|i| ((i.wrapping_mul(2_654_435_761) >> 8 & 0xffff) as f32 / 65536.0).to_le_bytes()).collect();
    let mut bits: Vec<Vec<u8>> = Vec::new();
    let mut counts = vec![1, 2, 3, threads];
    counts.dedup();
    for &count in &counts {
        let cpu = Cpu::new(count);
        let mut results = Vec::new();
        let mut lines = Vec::new();
        // A copy reads as much as it writes.
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[n]);
        let y = b.unary(Unary::Neg, x).expect("a map");
        let copy = b.finish(&[y]);
        let load = |g: &Graph| -> compiler::Result<_> {
            let exe = cpu.load(compiler::compile(g, &cpu, &Options::default())?)?;
            let bindings = Bindings::for_program(exe.program(), &cpu)?;
            bindings.inputs[0].write(0, &data)?;
            Ok((exe, bindings))
        };
        let (copy, mut copied) = load(&copy)?;
        for (name, g) in graphs(n) {
            let (exe, mut bindings) = load(&g)?;
            let (mut best, mut best_copy) = (f64::MAX, f64::MAX);
            for _ in 0..12 {
                let started = Instant::now();
                copy.run(&mut copied)?;
                best_copy = best_copy.min(started.elapsed().as_secs_f64());
                let started = Instant::now();
                exe.run(&mut bindings)?;
                best = best.min(started.elapsed().as_secs_f64());
            }
            let (speed, memory) = (4.0 * n as f64 / best, 8.0 * n as f64 / best_copy);
            lines.push(format!(
                "{name} {:.2} ms, {:.2} of the copy's {:.1} GB/s",
                best * 1e3,
                speed / memory,
                memory / 1e9
            ));
            let mut out = vec![0; exe.program().outputs[0].bytes()];
            bindings.outputs[0].read(0, &mut out)?;
            results.extend(out);
        }
        println!("{count} threads: {}", lines.join("; "));
        bits.push(results);
    }
    println!("the same bits: {}", bits.iter().all(|b| *b == bits[0]));
    Ok(())
}
