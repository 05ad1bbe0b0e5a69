//! A training loop of compiled steps, timed: the Rust side of `bench/python_loop.py`.
//!
//! Reads names of cases from standard input and answers each with the seconds of a step, by the clock and of CPU, as JSON.

use std::io::BufRead;
use std::time::Instant;
use tensorloom::{DType, Tensor, engine, jit, np, value_and_grad};

type Params = Vec<Tensor>;

/// Batch, width of the input, of two hidden layers, of the output.
fn sizes(case: &str) -> Option<[usize; 4]> {
    match case {
        "mlp_32x64" => Some([32, 64, 64, 10]),
        "mlp_128x512" => Some([128, 784, 512, 10]),
        _ => None,
    }
}

/// Numbers that both sides make alike.
fn wave(shape: &[usize], scale: f64) -> Tensor {
    let n: usize = shape.iter().product();
    let list: Vec<f32> = (0..n).map(|i| (((i * 37 + 11) % 101) as f64 / 50.0 - 1.0) as f32 * scale as f32).collect();
    engine().tensor(&list, shape)
}

fn loss((params, x, y): (Params, Tensor, Tensor)) -> Tensor {
    let h = np::tanh(&(np::matmul(&x, &params[0]) + &params[1]));
    let h = np::tanh(&(np::matmul(&h, &params[2]) + &params[3]));
    let d = np::matmul(&h, &params[4]) + &params[5] - &y;
    np::mean(&(&d * &d), ())
}

/// Seconds that the threads of this process have run; 0 where the system doesn't tell.
fn cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("schedstat")).ok());
    texts.filter_map(|t| t.split(' ').next()?.parse::<u64>().ok()).sum::<u64>() as f64 / 1e9
}

fn seconds(case: &str) -> Option<[f64; 2]> {
    let [batch, width, hidden, out] = sizes(case)?;
    let shapes = [vec![width, hidden], vec![hidden], vec![hidden, hidden], vec![hidden], vec![hidden, out], vec![out]];
    let mut params: Params = shapes.iter().map(|s| wave(s, 0.05)).collect();
    let (x, y) = (wave(&[batch, width], 1.0), wave(&[batch, out], 0.5));
    let step = jit(|(params, x, y): (Params, Tensor, Tensor)| {
        let (value, (grads, ..)) = value_and_grad(loss).call((params.clone(), x, y));
        let next: Params = params.iter().zip(&grads).map(|(p, g)| p - &(g * 0.1)).collect();
        (next, value)
    });
    let mut last = engine().zeros(DType::F32, &[]);
    let mut run = |n: usize| -> Option<[f64; 2]> {
        let (start, spent) = (Instant::now(), cpu());
        for _ in 0..n {
            (params, last) = step.call((std::mem::take(&mut params), x.clone(), y.clone()));
        }
        last.item::<f32>().ok()?;
        let per = |s: f64| s / n as f64;
        Some([per(start.elapsed().as_secs_f64()), per(cpu() - spent)])
    };
    let [once, _] = run(20)?;
    let n = ((0.3 / once) as usize).clamp(20, 20_000);
    run(n)
}

fn main() {
    for case in std::io::stdin().lock().lines().map_while(Result::ok) {
        match seconds(case.trim()) {
            Some([s, cpu]) => println!("{{\"s\": {s}, \"cpu\": {cpu}}}"),
            None => println!("{{\"error\": \"no case {case}\"}}"),
        }
    }
}
