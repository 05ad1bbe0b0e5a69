//! The backend suite on a WebGPU adapter with default limits and the rules of browsers; on lavapipe if there is no GPU.
//!
//! `TENSORLOOM_WGPU=1` uses the second adapter, `TENSORLOOM_ROUNDS=100` runs a hundred times as many graphs. Without an adapter
//! the tests are skipped; with `CI` set they fail.

#![cfg(feature = "wgpu")]

use compiler::OpPlacement;
use compiler::{Backend, Error, Options};
use ir::composites::attention::{AttentionOptions, attention, attention_backward};
use ir::ops::gather::GatherMode;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type, interp};
use std::sync::Arc;
use tensorloom_gpu::wgpu::{Wgpu, WgpuOptions, adapters};
use testing::backend::{BackendSuite, bind, load, results, run, run_suite};
use testing::rng::run_seed;
use testing::{FillKind, Rng};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The adapter under test.
fn open(strict: bool) -> Option<Wgpu> {
    let choice = WgpuOptions { index: number("TENSORLOOM_WGPU").unwrap_or(0) as usize, default_limits_only: strict };
    match Wgpu::open(choice, Arc::new(cpu::Cpu::new(1))) {
        Ok(w) => {
            println!("{}", w.name());
            Some(w)
        }
        Err(e) if std::env::var_os("CI").is_some() => panic!("no adapter: {e}"),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

#[test]
fn an_adapter_with_default_limits_passes_the_suite() {
    let Some(w) = open(true) else { return };
    let rounds = number("TENSORLOOM_ROUNDS").unwrap_or(1);
    let what = BackendSuite { seed: run_seed(), graphs: 60 * rounds, every: if rounds > 1 { 1 } else { 12 } };
    let report = run_suite(&w, &what);
    report.failures.iter().for_each(|f| println!("{f}\n"));
    report.assert_passed(&[("table", 60), ("random", 10), ("exact", 1), ("promises", 12), ("queue", 4)]);
}

#[test]
fn adapters_are_named_and_numbered() {
    let all = adapters();
    println!("{all:?}");
    let missing = Wgpu::open(WgpuOptions { index: 1000, default_limits_only: false }, Arc::new(cpu::Cpu::new(1)));
    let message = missing.err().expect("nobody has so many").to_string();
    assert!(message.contains("wgpu:1000") || message.contains("install a Vulkan driver"), "{message}");
}

/// The sum of the elementwise product of two matrix products, each of which is materialized.
fn two_products(n: usize) -> (Graph, Vec<Literal>) {
    let f = DType::F32;
    let mut b = Builder::new();
    let (x, y) = (b.input(f, &[n, 4]), b.input(f, &[4, n]));
    let (z, w) = (b.input(f, &[n, 4]), b.input(f, &[4, n]));
    let made = (|| {
        let (p, q) = (b.matmul(x, y)?, b.matmul(z, w)?);
        let r = b.mul(p, q)?;
        b.sum_all(r)
    })();
    let graph = b.finish(&[made.expect("it type-checks")]);
    let ones = |shape: &[usize]| Literal::full(shape, Scalar::from_f64(f, 1.0));
    (graph, vec![ones(&[n, 4]), ones(&[4, n]), ones(&[n, 4]), ones(&[4, n])])
}

#[test]
fn an_arena_above_the_binding_limit_runs_and_one_above_the_buffer_limit_is_refused() {
    let Some(w) = open(true) else { return };
    // Two values of 97 MiB; a binding has at most 128 MiB.
    let n = 5056;
    let (graph, inputs) = two_products(n);
    let exe = load(&w, &graph, &Options::default()).unwrap();
    assert!(exe.arena_bytes() > 128 << 20, "{} bytes", exe.arena_bytes());
    let mut b = bind(&w, &*exe, &inputs).unwrap();
    exe.run(&mut b).unwrap();
    let got = results(&*exe, &b).unwrap()[0].get(0).to_f64();
    let want = 16.0 * (n * n) as f64;
    assert!((got - want).abs() < 1e-5 * want, "{got} instead of {want}");
    // Two values of 162 MiB: more than a binding and a buffer may have.
    let (graph, inputs) = two_products(6528);
    match run(&w, &graph, &inputs, &Options::default()) {
        Err(Error::OutOfMemory { bytes, hint }) if bytes > 128 << 20 && !hint.is_empty() => {}
        other => panic!("{other:?}"),
    }
    // The device still works.
    let (graph, inputs) = two_products(64);
    let got = run(&w, &graph, &inputs, &Options::default()).unwrap()[0].get(0).to_f64();
    assert_eq!(got, 16.0 * 64.0 * 64.0);
}

#[test]
fn a_lost_device_is_an_error_and_a_new_one_works() {
    let Some(w) = open(false) else { return };
    let (graph, inputs) = two_products(32);
    let exe = load(&w, &graph, &Options::default()).unwrap();
    let mut b = bind(&w, &*exe, &inputs).unwrap();
    exe.run(&mut b).unwrap();
    w.lose();
    for _ in 0..2 {
        let e = exe.run(&mut b).expect_err("it is gone").to_string();
        assert!(e.contains("was lost") && e.contains("open the device again"), "{e}");
    }
    assert!(w.alloc(64).is_err());
    let Some(new) = open(false) else { return };
    let got = run(&new, &graph, &inputs, &Options::default()).unwrap()[0].get(0).to_f64();
    assert_eq!(got, 16.0 * 32.0 * 32.0);
}

#[test]
fn steps_leave_nothing_behind() {
    let Some(w) = open(false) else { return };
    let (graph, inputs) = two_products(40);
    let exe = load(&w, &graph, &Options::default()).unwrap();
    let mut b = bind(&w, &*exe, &inputs).unwrap();
    let steps = number("TENSORLOOM_STEPS").unwrap_or(100);
    let mut first = None;
    let before = w.work().0;
    for k in 0..steps {
        exe.run(&mut b).unwrap();
        results(&*exe, &b).unwrap();
        let now = (w.usage(), w.kernels());
        if k >= 5 {
            assert_eq!(*first.get_or_insert(now), now, "step {k}");
        }
    }
    // One submission for the program, one for the read.
    let submits = w.work().0 - before;
    assert!(submits <= 2 * steps as usize, "{submits} submissions in {steps} steps");
}

#[test]
fn types_that_webgpu_lacks_are_refused_by_name() {
    let Some(w) = open(true) else { return };
    for d in [DType::F64, DType::I64, DType::U64] {
        let mut b = Builder::new();
        let x = b.input(d, &[4]);
        let y = b.add(x, x).expect("one type");
        let e = compiler::compile(&b.finish(&[y]), &w, &Options::default()).expect_err("it has none").to_string();
        assert!(e.contains(d.name()) && e.contains("cast it"), "{e}");
    }
}

/// A value larger than a binding, written by a product and read by a reduction; and a parameter larger than a binding, read row
/// by row and by a product, and written to.
#[test]
fn values_above_the_binding_limit_run() {
    let Some(w) = open(true) else { return };
    let f = DType::F32;
    let n = 6528;
    let mut b = Builder::new();
    let (x, y) = (b.input(f, &[n, 4]), b.input(f, &[4, n]));
    let made = (|| {
        let p = b.matmul(x, y)?;
        let total = b.sum_all(p)?;
        let rows = b.slice(p, &[n - 2, n - 3], &[n, n], &[1, 1])?;
        Ok::<_, ir::Error>(vec![total, rows])
    })();
    let graph = b.finish(&made.expect("it type-checks"));
    let exe = load(&w, &graph, &Options::default()).unwrap();
    assert!(exe.arena_bytes() > 160 << 20, "{} bytes", exe.arena_bytes());
    let count = |shape: &[usize]| {
        let mut k = 0;
        Literal::from_fn(Type::new(f, shape), |_| {
            k += 1;
            Scalar::from_f64(f, (k % 7) as f64 - 3.0)
        })
    };
    let (a, c) = (count(&[n, 4]), count(&[4, n]));
    let at = |i: usize, j: usize| (0..4).map(|k| a.get(i * 4 + k).to_f64() * c.get(k * n + j).to_f64()).sum::<f64>();
    let total: f64 = (0..4)
        .map(|k| {
            (0..n).map(|i| a.get(i * 4 + k).to_f64()).sum::<f64>()
                * (0..n).map(|j| c.get(k * n + j).to_f64()).sum::<f64>()
        })
        .sum();
    let mut bound = bind(&w, &*exe, &[a.clone(), c.clone()]).unwrap();
    exe.run(&mut bound).unwrap();
    let got = results(&*exe, &bound).unwrap();
    assert!((got[0].get(0).to_f64() - total).abs() <= 1.0 + 1e-4 * total.abs(), "{:?} instead of {total}", got[0]);
    for i in 0..2 {
        for j in 0..3 {
            assert_eq!(got[1].get(3 * i + j).to_f64(), at(n - 2 + i, n - 3 + j), "{i} {j}");
        }
    }
    // 40 million numbers: 153 MiB.
    let (rows, wide) = (40_000, 1_000);
    let mut b = Builder::new();
    let (table, ids) = (b.input(f, &[rows, wide]), b.input(DType::I32, &[5]));
    let made = (|| {
        let found = b.take(table, ids, 0, GatherMode::Clip)?;
        let turned = b.permute(table, &[1, 0])?;
        let scores = b.matmul(found, turned)?;
        let more = b.scale(table, 2.0)?;
        Ok::<_, ir::Error>(vec![found, scores, more])
    })();
    let graph = b.finish(&made.expect("it type-checks"));
    let numbers = Literal::from_fn(Type::new(f, &[rows, wide]), |at| {
        Scalar::from_f64(f, ((at * 7 + at / 1000) % 11) as f64 - 5.0)
    });
    let ids = Literal::from_fn(Type::new(DType::I32, &[5]), |k| {
        Scalar::from_i64(DType::I32, [0, 39_999, 33_554, 33_555, 20_000][k])
    });
    let got = run(&w, &graph, &[numbers.clone(), ids.clone()], &Options::default()).unwrap();
    let number = |row: usize, c: usize| numbers.get(row * wide + c).to_f64();
    for k in 0..5 {
        let row = ids.get(k).to_i64() as usize;
        for c in [0, 431, 432, 433, 999] {
            assert_eq!(got[0].get(k * wide + c).to_f64(), number(row, c), "row {row}, element {c}");
            assert_eq!(got[2].get(row * wide + c).to_f64(), 2.0 * number(row, c), "row {row}, element {c}");
        }
        for other in [0, 1, 33_553, 33_554, 33_555, 39_999] {
            let want: f64 = (0..wide).map(|c| number(row, c) * number(other, c)).sum();
            assert_eq!(got[1].get(k * rows + other).to_f64(), want, "rows {row} and {other}");
        }
    }
}

/// Every library op of the table in a separate program: sorts, cumulative sums, pooling, convolutions, scatters run as kernels
/// and agree with the interpreter.
#[test]
fn library_ops_run_on_the_device() {
    let Some(w) = open(true) else { return };
    let mut rng = Rng::new(run_seed());
    let (mut taken, mut left) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    let mut seen = std::collections::BTreeSet::new();
    for row in testing::samples::all_samples() {
        for node in row.graph.nodes() {
            let types: Vec<Type> = node.args.iter().map(|v| row.graph.ty(*v).clone()).collect();
            let known = types.iter().all(|t| w.target().dtypes.contains(&t.dtype));
            if !matches!(node.op.semantics(), ir::Semantics::Opaque) || !known {
                continue;
            }
            if w.placement(&node.op, &types) == OpPlacement::HostFallback {
                left.insert(node.op.name());
                continue;
            }
            taken.insert(node.op.name());
            // One sample of each kind.
            if !seen.insert((node.op.name(), types[0].dtype, types[0].rank())) {
                continue;
            }
            let mut b = Builder::new();
            let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
            let outs = b.emit(node.op.clone(), &args).expect("it type-checked");
            let graph = b.finish(&outs);
            let inputs: Vec<Literal> = types
                .iter()
                .enumerate()
                .map(|(i, t)| match &node.op {
                    Op::Scatter(_) if i == 1 => {
                        Literal::from_fn(t.clone(), |_| Scalar::from_i64(t.dtype, rng.below(4) as i64))
                    }
                    _ => FillKind::Smooth.random_tensor(t, &mut rng),
                })
                .collect();
            let submits = w.work().0;
            let got = run(&w, &graph, &inputs, &Options::default()).unwrap();
            let submits = w.work().0 - submits;
            assert!(submits <= 1 + outs.len(), "{}: {submits} submits", row.name);
            let want = interp::run(&graph, &inputs).unwrap();
            for (g, w) in got.iter().zip(&want) {
                let tolerance = if g.ty().dtype.size() < 4 { 2e-2 } else { 1e-5 };
                for (i, (a, b)) in g.scalars().zip(w.scalars()).map(|(a, b)| (a.to_f64(), b.to_f64())).enumerate() {
                    let close = (a - b).abs() <= tolerance * (1.0 + b.abs());
                    assert!(
                        a == b || (a.is_nan() && b.is_nan()) || close,
                        "{}, element {i}: {a}, expected {b}",
                        row.name
                    );
                }
            }
        }
    }
    println!("on the device: {taken:?}, on the host: {left:?}");
    for name in ["sort", "top_k", "cumsum", "conv", "scatter_set", "reduce_window_max", "window_scatter_max"] {
        assert!(taken.contains(name), "{name} is left to the host");
    }
}

/// Forward and backward of a random attention.
fn attention_case(rng: &mut Rng, many: bool) -> (String, DType, Graph, Vec<Literal>) {
    let dtype = *rng.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
    let kv = if many { 130 } else { 1 + rng.below(3) };
    let (batch, heads) = if many { (2, kv) } else { (1 + rng.below(2), kv * (1 + rng.below(3))) };
    let wide = *rng.pick(&[4, 8, 24, 33, 64, 72, 128]);
    let wide = if many { 8 } else { wide };
    let wide_v = if many || rng.bernoulli(0.7) { wide } else { *rng.pick(&[5, 16, 40, 96]) };
    let most = if many { 24 } else { 90 };
    let tk = 1 + rng.below(most);
    let tq = if rng.bernoulli(0.5) { tk.max(16) } else { 16 + rng.below(most) };
    let prefix = |rng: &mut Rng| match rng.bernoulli(0.5) {
        true => Type::new(DType::I32, &[batch]),
        false => Type::new(DType::I32, &[]),
    };
    let options = AttentionOptions {
        causal: rng.bernoulli(0.6),
        window: rng.bernoulli(0.25).then(|| 1 + rng.below(most)),
        scale: rng.bernoulli(0.2).then_some(0.3),
        softcap: rng.bernoulli(0.2).then_some(3.0),
        q_offset: rng.bernoulli(0.25).then(|| prefix(rng)),
        kv_lengths: rng.bernoulli(0.25).then(|| prefix(rng)),
        ..AttentionOptions::default()
    };
    let ty = |own: &[usize]| Type::new(dtype, &[&[batch], own].concat());
    let (q, k, v) = (ty(&[heads, tq, wide]), ty(&[kv, tk, wide]), ty(&[kv, tk, wide_v]));
    let mut b = Builder::new();
    let forward = attention(&q, &k, &v, &options).expect("it type-checks");
    let backward = attention_backward(&q, &k, &v, &options).expect("it type-checks");
    let args: Vec<_> = forward.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(forward.into(), &args).expect("it type-checks");
    let (dout, dlse) = (b.ty(outs[0]), b.ty(outs[1]));
    let cotangents = [b.graph.input(dout), b.graph.input(dlse)];
    let all = [&args[..], &outs, &cotangents].concat();
    let grads = b.emit(backward.into(), &all).expect("it type-checks");
    let graph = b.finish(&[&outs[..], &grads].concat());
    let inputs = (graph.input_types().iter())
        .map(|t| match t.dtype {
            DType::I32 => Literal::from_fn(t.clone(), |_| Scalar::from_i64(DType::I32, rng.range(-3, tk as i64 + 4))),
            d => Literal::from_fn(t.clone(), |_| Scalar::from_f64(d, rng.uniform(-1.5, 1.5))),
        })
        .collect();
    (format!("{q} {k} {v} {options:?}"), dtype, graph, inputs)
}

#[test]
fn attention_and_its_backward_are_kernels_that_agree() {
    for strict in [true, false] {
        let Some(w) = open(strict) else { return };
        let mut rng = Rng::new(run_seed());
        for k in 0..number("TENSORLOOM_ATTENTIONS").unwrap_or(4) {
            let (name, dtype, graph, inputs) = attention_case(&mut rng, k % 4 == 3);
            let exe = load(&w, &graph, &Options::default()).unwrap();
            let claimed = exe.program().steps.len();
            assert!(claimed <= 4, "{claimed} steps for {name}");
            let want = interp::run(&graph, &inputs).unwrap();
            let got = run(&w, &graph, &inputs, &Options::default()).unwrap();
            let again = run(&w, &graph, &inputs, &Options::default()).unwrap();
            let tolerance = match dtype {
                DType::F32 => 2e-5,
                DType::F16 => 4e-3,
                _ => 3e-2,
            };
            for (n, (g, w)) in got.iter().zip(&want).enumerate() {
                assert_eq!(g.bytes(), again[n].bytes(), "two runs of {name}");
                let numbers = || w.scalars().map(Scalar::to_f64);
                // The error of a sum with many terms is relative to its largest results.
                let largest = numbers().filter(|x| x.is_finite()).fold(0.5, |a: f64, x| a.max(x.abs()));
                for (i, (a, b)) in g.scalars().map(Scalar::to_f64).zip(numbers()).enumerate() {
                    let close = (a - b).abs() <= tolerance * (largest + b.abs()) / 2.0;
                    assert!(a == b || close, "{name}: result {n}, element {i} is {a}, expected {b}");
                }
            }
        }
    }
}
