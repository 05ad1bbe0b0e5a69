//! Benchmarks of a GPU: one line of JSON for each case.
//!
//! ```text
//! gpu_bench [--device cuda|wgpu] [--only NAME,NAME] [--seconds S] [--steps true] [--tune SIZES,SIZES]
//! ```
//!
//! `--tune 1x512x768x3072` (batch, m, k, n; `t` after a size of m or n transposes that operand, `f16:` before them selects f16)
//! autotunes matrix products on WebGPU and stores the best variants.
//!
//! A case runs for the given number of seconds; its time is the median of rounds, each of many runs that are submitted
//! without waiting. `--steps true` adds the time of each step.

mod everyday;

use compiler::{Backend, Bindings, Options};
use cpu::Cpu;
use ir::composites::activation::{Gelu, gelu};
use ir::composites::norm::{layernorm, rmsnorm};
use ir::composites::softmax::softmax;
use ir::ops::{ReduceKind, Scan};
use ir::{Builder, DType, Graph, GraphBuilder, Result as Made, Type, Unary, Value};
use std::sync::Arc;
use std::time::Instant;
use tensorloom_gpu::cuda::Cuda;

struct Case {
    name: String,
    graph: Graph,
    /// The minimum bytes of memory traffic.
    bytes: f64,
    /// The floating-point operations of matrix products.
    flops: f64,
}

fn case(
    name: &str,
    types: &[Type],
    bytes: f64,
    flops: f64,
    f: impl FnOnce(&mut Builder, &[Value]) -> Made<Vec<Value>>,
) -> Case {
    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = f(&mut b, &args).unwrap_or_else(|e| panic!("{name}: {e}"));
    Case { name: name.into(), graph: b.finish(&outs), bytes, flops }
}

const GIB: f64 = (1u64 << 30) as f64;

fn chain(b: &mut Builder, x: Value) -> Made<Value> {
    let t = b.ty(x);
    let y = b.scale(x, 1.5)?;
    let y = b.offset(y, 0.5)?;
    let y = b.emit(gelu(&t, Gelu::Tanh)?.into(), &[y])?[0];
    let s = b.unary(Unary::Logistic, x)?;
    let y = b.mul(y, s)?;
    b.add(y, x)
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (d, name) in [(DType::F32, "f32"), (DType::BF16, "bf16")] {
        let n = (1usize << 30) / d.size();
        let t = Type::new(d, &[n]);
        all.push(case(&format!("chain1g_{name}"), std::slice::from_ref(&t), 2.0 * GIB, 0.0, |b, x| {
            Ok(vec![chain(b, x[0])?])
        }));
        all.push(case(&format!("scale1g_{name}"), &[t], 2.0 * GIB, 0.0, |b, x| {
            let y = b.scale(x[0], 1.5)?;
            Ok(vec![b.offset(y, 0.5)?])
        }));
        for cols in [1024usize, 4096] {
            let t = Type::new(d, &[n / cols, cols]);
            let w = Type::new(d, &[cols]);
            all.push(case(&format!("softmax1g_{cols}_{name}"), std::slice::from_ref(&t), 2.0 * GIB, 0.0, |b, x| {
                Ok(vec![b.emit(softmax(&t)?.into(), &[x[0]])?[0]])
            }));
            let three = [t.clone(), w.clone(), w.clone()];
            all.push(case(&format!("layernorm1g_{cols}_{name}"), &three, 2.0 * GIB, 0.0, |b, x| {
                Ok(vec![b.emit(layernorm(&t, Some(&w), Some(&w), 1e-5)?.into(), x)?[0]])
            }));
            all.push(case(&format!("rmsnorm1g_{cols}_{name}"), &three[..2], 2.0 * GIB, 0.0, |b, x| {
                Ok(vec![b.emit(rmsnorm(&t, &w, 1e-5)?.into(), x)?[0]])
            }));
        }
    }
    let f = |shape: &[usize]| Type::new(DType::F32, shape);
    let quarter = 4.0 * (1u64 << 26) as f64;
    all.push(case("sum_all_2^26", &[f(&[1 << 26])], quarter, 0.0, |b, x| Ok(vec![b.sum_all(x[0])?])));
    all.push(case("max_all_2^28", &[f(&[1 << 28])], GIB, 0.0, |b, x| {
        Ok(vec![b.reduce(ReduceKind::Max, x[0], &[0])?])
    }));
    all.push(case("sum_rows_8192", &[f(&[8192, 8192])], quarter, 0.0, |b, x| Ok(vec![b.sum(x[0], &[1])?])));
    all.push(case("sum_columns_8192", &[f(&[8192, 8192])], quarter, 0.0, |b, x| Ok(vec![b.sum(x[0], &[0])?])));
    all.push(case("sum_columns_tall", &[f(&[1 << 20, 64])], quarter, 0.0, |b, x| Ok(vec![b.sum(x[0], &[0])?])));
    all.push(case("transpose_16384", &[f(&[16384, 16384])], 2.0 * GIB, 0.0, |b, x| {
        Ok(vec![b.permute(x[0], &[1, 0])?])
    }));
    let t = f(&[1 << 25]);
    all.push(case("gelu_128m", std::slice::from_ref(&t), GIB / 4.0, 0.0, |b, x| Ok(vec![chain(b, x[0])?])));
    let t = f(&[1 << 15, 1024]);
    all.push(case("softmax_128m", std::slice::from_ref(&t), GIB / 4.0, 0.0, |b, x| {
        Ok(vec![b.emit(softmax(&t)?.into(), &[x[0]])?[0]])
    }));
    // Decoding: one row.
    for (k, n) in [(768usize, 3072usize), (3072, 768), (768, 50257)] {
        let (x, w) = (f(&[1, k]), f(&[k, n]));
        all.push(case(&format!("gemv_{k}_{n}"), &[x, w], 4.0 * (k * n) as f64, 2.0 * (k * n) as f64, |b, x| {
            Ok(vec![b.matmul(x[0], x[1])?])
        }));
    }
    for (d, name, n) in [
        (DType::F32, "f32", 1024),
        (DType::F32, "f32", 4096),
        (DType::F16, "f16", 4096),
        (DType::BF16, "bf16", 8192usize),
        (DType::F16, "f16", 8192),
    ] {
        let t = Type::new(d, &[n, n]);
        let flops = 2.0 * (n as f64).powi(3);
        all.push(case(&format!("matmul_{name}_{n}"), &[t.clone(), t.clone()], 0.0, flops, |b, x| {
            Ok(vec![b.matmul(x[0], x[1])?])
        }));
        all.push(case(&format!("matmul_nt_{name}_{n}"), &[t.clone(), t], 0.0, flops, |b, x| {
            let r = b.permute(x[1], &[1, 0])?;
            Ok(vec![b.matmul(x[0], r)?])
        }));
    }
    for (name, n) in [("scan_cumsum", 1usize), ("scan_cumsum_4096", 4096)] {
        let length = 1000;
        let mut b = Builder::new();
        let (h, x) = (b.input(DType::F32, &[n]), b.input(DType::F32, &[n]));
        let y = b.add(h, x).expect("it type-checks");
        let body = b.finish(&[y, y]);
        let bytes = 8.0 * (n * length) as f64;
        all.push(case(name, &[f(&[n]), f(&[length, n])], bytes, 0.0, |b, x| {
            Ok(b.emit(Scan::over(0, 1, length, body).into(), x)?.to_vec())
        }));
    }
    all.push(case("small_2x+1", &[f(&[16])], 128.0, 0.0, |b, x| {
        let y = b.scale(x[0], 2.0)?;
        Ok(vec![b.offset(y, 1.0)?])
    }));
    all
}

fn main() {
    let (mut only, mut seconds, mut steps, mut device) = (Vec::new(), 0.5f64, false, "cuda".to_string());
    let mut tune: Vec<String> = Vec::new();
    let mut words = std::env::args().skip(1);
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        match word.as_str() {
            "--device" => device = value,
            "--tune" => tune = value.split(',').map(str::to_string).collect(),
            "--only" => only = value.split(',').map(str::to_string).collect::<Vec<_>>(),
            "--seconds" => seconds = value.parse().unwrap_or(seconds),
            "--steps" => steps = value == "true",
            _ => eprintln!("unknown argument {word}"),
        }
    }
    let host: Arc<dyn Backend> = Arc::new(Cpu::new(2));
    let started = Instant::now();
    #[cfg(feature = "wgpu")]
    if !tune.is_empty() {
        return tuned(&tune, host);
    }
    if !tune.is_empty() {
        eprintln!("--tune needs the feature `wgpu`");
        std::process::exit(1);
    }
    let opened = match device.as_str() {
        "cuda" => Cuda::open(0, host).map(|c| Arc::new(c) as Arc<dyn Backend>),
        #[cfg(feature = "wgpu")]
        "wgpu" => tensorloom_gpu::wgpu::Wgpu::open(tensorloom_gpu::wgpu::WgpuOptions::default(), host)
            .map(|w| Arc::new(w) as Arc<dyn Backend>),
        other => Err(compiler::Error::Backend(format!("no device {other}; wgpu needs the feature `wgpu`"))),
    };
    let gpu = match opened {
        Ok(c) => c,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    };
    let gpu = &*gpu;
    println!("{{\"device\": \"{}\", \"open_s\": {:.3}}}", gpu.name(), started.elapsed().as_secs_f64());
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| name.starts_with(o.as_str()));
    for (name, bytes) in [("copy_128m", 1 << 27), ("copy1g", 1usize << 30)].into_iter().filter(|c| wanted(c.0)) {
        match copy(gpu, bytes, seconds) {
            Ok(t) => println!(
                "{{\"case\": \"{name}\", \"ms\": {:.4}, \"tb_s\": {:.3}}}",
                t * 1e3,
                2.0 * bytes as f64 / t / 1e12
            ),
            Err(e) => println!("{{\"case\": \"{name}\", \"error\": {:?}}}", e.to_string()),
        }
    }
    for c in cases().into_iter().chain(everyday::cases()).filter(|c| wanted(&c.name)) {
        match one(gpu, &c, seconds, steps) {
            Ok(line) => println!("{line}"),
            Err(e) => println!("{{\"case\": {:?}, \"error\": {:?}}}", c.name, e.to_string()),
        }
    }
}

/// The seconds per run, as the median of rounds.
fn timed(
    gpu: &dyn Backend,
    seconds: f64,
    mut f: impl FnMut() -> compiler::Result<()>,
) -> compiler::Result<(f64, usize)> {
    // Several warm-up runs, so that CUDA graphs are captured.
    for _ in 0..3 {
        f()?;
    }
    gpu.synchronize()?;
    let started = Instant::now();
    f()?;
    gpu.synchronize()?;
    let first = started.elapsed().as_secs_f64().max(1e-6);
    let runs = ((seconds / 7.0 / first) as usize).clamp(1, 2000);
    let mut rounds = Vec::new();
    for _ in 0..7 {
        let started = Instant::now();
        for _ in 0..runs {
            f()?;
        }
        gpu.synchronize()?;
        rounds.push(started.elapsed().as_secs_f64() / runs as f64);
    }
    rounds.sort_by(f64::total_cmp);
    Ok((rounds[3], runs * 7))
}

fn copy(gpu: &dyn Backend, bytes: usize, seconds: f64) -> compiler::Result<f64> {
    let (a, b) = (gpu.alloc(bytes)?, gpu.alloc(bytes)?);
    Ok(timed(gpu, seconds, || gpu.copy(&*a, &*b, bytes))?.0)
}

fn one(gpu: &dyn Backend, c: &Case, seconds: f64, steps: bool) -> compiler::Result<String> {
    let started = Instant::now();
    let program = compiler::compile(&c.graph, gpu, &Options::default())?;
    let exe = gpu.load(program)?;
    let load = started.elapsed().as_secs_f64();
    let mut b = Bindings::for_program(exe.program(), gpu)?;
    for (buffer, t) in b.inputs.iter().zip(&exe.program().inputs) {
        let noise = noise(t.dtype, 32 << 20);
        for at in (0..t.bytes()).step_by(noise.len()) {
            buffer.write(at, &noise[..noise.len().min(t.bytes() - at)])?;
        }
    }
    let (t, runs) = timed(gpu, seconds, || exe.submit(&mut b).map(|_unwaited| ()))?;
    let mut line = format!(
        "{{\"case\": {:?}, \"us\": {:.2}, \"runs\": {runs}, \"compile_ms\": {:.1}, \"steps\": {}",
        c.name,
        t * 1e6,
        load * 1e3,
        exe.program().steps.len()
    );
    if c.bytes > 0.0 {
        line.push_str(&format!(", \"tb_s\": {:.3}", c.bytes / t / 1e12));
    }
    if c.flops > 0.0 {
        line.push_str(&format!(", \"tflop_s\": {:.1}", c.flops / t / 1e12));
    }
    if steps {
        let times = exe.run_timed(&mut b)?;
        let each: Vec<String> =
            times.iter().map(|t| format!("[{:?}, {}, {:.2}]", t.label, t.calls, t.time.as_secs_f64() * 1e6)).collect();
        line.push_str(&format!(", \"each_us\": [{}]", each.join(", ")));
    }
    line.push('}');
    Ok(line)
}

/// Numbers in ±1.
fn noise(d: DType, bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        let bits = ir::Scalar::from_f64(d, next()).bits().to_le_bytes();
        all.extend_from_slice(&bits[..d.size()]);
    }
    all
}

/// Autotunes matrix products, and stores the best variants.
#[cfg(feature = "wgpu")]
fn tuned(sizes: &[String], host: Arc<dyn Backend>) {
    let device =
        tensorloom_gpu::wgpu::Wgpu::open(tensorloom_gpu::wgpu::WgpuOptions::default(), host).expect("an adapter");
    for full in sizes {
        let (d, name) = match full.strip_prefix("f16:") {
            Some(rest) => (DType::F16, rest),
            None => (DType::F32, &full[..]),
        };
        let turned: Vec<bool> = name.split('x').map(|n| n.ends_with('t')).collect();
        let n: Vec<usize> = name.split('x').filter_map(|n| n.trim_end_matches('t').parse().ok()).collect();
        let [batch, m, k, n] = n[..] else { panic!("{name}: batch, m, k, n") };
        let strides = |rows: usize, columns: usize, turned: bool| {
            let (r, c) = (rows as isize, columns as isize);
            if turned { [r * c, 1, r] } else { [r * c, c, 1] }
        };
        let (a, b, c) = (strides(m, k, turned[1]), strides(k, n, turned[3]), strides(m, n, false));
        let shape = compiler::program::Matmul { dtype: d, acc: DType::F32, out: d, batch, m, n, k, a, b, c };
        match device.tune(&shape) {
            Ok(mut trials) => {
                let wrong = trials.iter().filter(|t| t.time.is_none()).count();
                trials.sort_by_key(|t| t.time.unwrap_or(std::time::Duration::MAX));
                let flops = 2.0 * (batch * m * n * k) as f64;
                let show = |t: &tensorloom_gpu::wgpu::Trial| {
                    let s = t.time.map_or(f64::NAN, |t| t.as_secs_f64());
                    format!("[{:?}, {:.1}, {:.1}]", t.way, s * 1e6, flops / s / 1e12)
                };
                let usual = trials.iter().find(|t| t.way == "usual").map(show).unwrap_or_default();
                let best: Vec<String> = trials.iter().take(4).map(show).collect();
                println!(
                    "{{\"tune\": {name:?}, \"ways\": {}, \"wrong\": {wrong}, \"usual\": {usual}, \"best\": [{}]}}",
                    trials.len(),
                    best.join(", ")
                );
            }
            Err(e) => println!("{{\"tune\": {name:?}, \"error\": {:?}}}", e.to_string()),
        }
    }
}
