//! Measures generated kernels on one thread: `cargo run --release --example kernel_bench [avx2|avx512] [case]`.

use compiler::loops::{AccessMode, Atom, Extent, Index, Kernel, KernelBuilder, LoopKind, Reg, Size};
use ir::{Binary, DType, Unary};
use std::time::Instant;
use tensorloom_cpu::codegen::{CompiledKernel, Target, compile};

const F: DType = DType::F32;

fn gelu(b: &mut KernelBuilder, x: Reg) -> Reg {
    let (c0, c1) = (b.constant_from_f64(F, 0.797_884_560_802_865_4), b.constant_from_f64(F, 0.044715));
    let (half, one) = (b.constant_from_f64(F, 0.5), b.constant_from_f64(F, 1.0));
    let s = b.binary(Binary::Mul, x, x);
    let t = b.binary(Binary::Mul, s, x);
    let t = b.binary(Binary::Mul, t, c1);
    let t = b.binary(Binary::Add, t, x);
    let t = b.binary(Binary::Mul, t, c0);
    let t = b.unary(Unary::Tanh, t);
    let t = b.binary(Binary::Add, t, one);
    let h = b.binary(Binary::Mul, x, half);
    b.binary(Binary::Mul, h, t)
}

/// `gelu(1.5 x + 0.5) * sigmoid(x) + x`.
fn chain(n: i64) -> Kernel {
    let mut b = KernelBuilder::new("chain");
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
        let v = b.load(x, i);
        let (a, c) = (b.constant_from_f64(F, 1.5), b.constant_from_f64(F, 0.5));
        let u = b.binary(Binary::Mul, v, a);
        let u = b.binary(Binary::Add, u, c);
        let g = gelu(b, u);
        let s = b.unary(Unary::Logistic, v);
        let r = b.binary(Binary::Mul, g, s);
        let r = b.binary(Binary::Add, r, v);
        b.store(y, i, r);
    });
    b.finish()
}

fn at(r: compiler::loops::Var, n: i64, i: compiler::loops::Var) -> Index {
    Index::from(i).add_var(r, n)
}

fn softmax(rows: i64, n: i64) -> Kernel {
    let mut b = KernelBuilder::new("softmax");
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::ReadWrite));
    let e = || Extent::Exact(Size::Const(n));
    b.for_loop(LoopKind::Parallel, Size::Const(rows), |b, r| {
        let low = b.constant_from_f64(F, f64::NEG_INFINITY);
        let max = b.loop_(LoopKind::Vector, e(), &[(low, Some(Binary::Max))], |b, i, p| {
            let v = b.load(x, at(r, n, i));
            vec![b.binary(Binary::Max, p[0], v)]
        })[0];
        let zero = b.constant_from_f64(F, 0.0);
        let sum = b.loop_(LoopKind::Vector, e(), &[(zero, Some(Binary::Add))], |b, i, p| {
            let v = b.load(x, at(r, n, i));
            let d = b.binary(Binary::Sub, v, max);
            let t = b.unary(Unary::Exp, d);
            b.store(y, at(r, n, i), t);
            vec![b.binary(Binary::Add, p[0], t)]
        })[0];
        let inv = b.unary(Unary::Reciprocal, sum);
        b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
            let v = b.load(y, at(r, n, i));
            let v = b.binary(Binary::Mul, v, inv);
            b.store(y, at(r, n, i), v);
        });
    });
    b.finish()
}

fn layernorm(rows: i64, n: i64) -> Kernel {
    let mut b = KernelBuilder::new("layernorm");
    let (x, g, c) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Read));
    let y = b.buffer(F, AccessMode::Write);
    let e = || Extent::Exact(Size::Const(n));
    b.for_loop(LoopKind::Parallel, Size::Const(rows), |b, r| {
        let zero = b.constant_from_f64(F, 0.0);
        let inv_n = b.constant_from_f64(F, 1.0 / n as f64);
        let sum = b.loop_(LoopKind::Vector, e(), &[(zero, Some(Binary::Add))], |b, i, p| {
            let v = b.load(x, at(r, n, i));
            vec![b.binary(Binary::Add, p[0], v)]
        })[0];
        let mean = b.binary(Binary::Mul, sum, inv_n);
        let var = b.loop_(LoopKind::Vector, e(), &[(zero, Some(Binary::Add))], |b, i, p| {
            let v = b.load(x, at(r, n, i));
            let d = b.binary(Binary::Sub, v, mean);
            let s = b.binary(Binary::Mul, d, d);
            vec![b.binary(Binary::Add, p[0], s)]
        })[0];
        let var = b.binary(Binary::Mul, var, inv_n);
        let eps = b.constant_from_f64(F, 1e-5);
        let var = b.binary(Binary::Add, var, eps);
        let inv = b.unary(Unary::Rsqrt, var);
        b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
            let v = b.load(x, at(r, n, i));
            let d = b.binary(Binary::Sub, v, mean);
            let d = b.binary(Binary::Mul, d, inv);
            let (gain, bias) = (b.load(g, i), b.load(c, i));
            let d = b.binary(Binary::Mul, d, gain);
            let d = b.binary(Binary::Add, d, bias);
            b.store(y, at(r, n, i), d);
        });
    });
    b.finish()
}

/// `c += x[t]; y[t] = c` over `len` steps of `n` lanes.
fn cumsum(n: i64, len: i64) -> Kernel {
    let mut b = KernelBuilder::new("cumsum");
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    let scan = |b: &mut KernelBuilder, i: Option<compiler::loops::Var>| {
        let zero = b.constant_from_f64(F, 0.0);
        b.loop_(LoopKind::Serial, Extent::Exact(Size::Const(len)), &[(zero, None)], |b, t, p| {
            let mut index = Index::default().add_atom(Atom::Var(t), Size::Const(n));
            if let Some(i) = i {
                index = index.add_var(i, 1);
            }
            let v = b.load(x, index.clone());
            let c = b.binary(Binary::Add, p[0], v);
            b.store(y, index, c);
            vec![c]
        });
    };
    if n == 1 {
        scan(&mut b, None);
    } else {
        b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| scan(b, Some(i)));
    }
    b.finish()
}

/// `h = tanh(w h + x[t])` lane by lane.
fn tanh_cell(n: i64, len: i64) -> Kernel {
    let mut b = KernelBuilder::new("tanh_cell");
    let (x, w, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
        let zero = b.constant_from_f64(F, 0.0);
        let weight = b.load(w, i);
        b.loop_(LoopKind::Serial, Extent::Exact(Size::Const(len)), &[(zero, None)], |b, t, p| {
            let v = b.load(x, at(t, n, i));
            let h = b.fma(p[0], weight, v);
            let h = b.unary(Unary::Tanh, h);
            b.store(y, at(t, n, i), h);
            vec![h]
        });
    });
    b.finish()
}

fn column_sum(rows: i64, n: i64) -> Kernel {
    let mut b = KernelBuilder::new("column_sum");
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
        let zero = b.constant_from_f64(F, 0.0);
        let s = b.loop_(LoopKind::Serial, Extent::Exact(Size::Const(rows)), &[(zero, None)], |b, r, p| {
            let v = b.load(x, at(r, n, i));
            vec![b.binary(Binary::Add, p[0], v)]
        })[0];
        b.store(y, i, s);
    });
    b.finish()
}

/// `z = x + y` with sizes and strides as arguments, like single ops.
fn strided_add() -> Kernel {
    let mut b = KernelBuilder::new("strided_add");
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Read));
    let z = b.buffer(F, AccessMode::Write);
    let (n, sx, sy, sz) = (b.size(), b.size(), b.size(), b.size());
    b.for_loop(LoopKind::Vector, n, |b, i| {
        let index = |s| Index::default().add_atom(Atom::Var(i), s);
        let (v, w) = (b.load(x, index(sx)), b.load(y, index(sy)));
        let r = b.binary(Binary::Add, v, w);
        b.store(z, index(sz), r);
    });
    b.finish()
}

/// A long polynomial, which shows how compile time grows.
fn long(ops: usize) -> Kernel {
    let mut b = KernelBuilder::new("long");
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(4096), |b, i| {
        let v = b.load(x, i);
        let mut live = vec![v];
        for k in 0..ops {
            let (p, q) = (live[k * 7919 % live.len()], live[live.len() - 1]);
            let r = b.binary(if k % 2 == 0 { Binary::Add } else { Binary::Mul }, p, q);
            live.push(r);
            if live.len() > 20 {
                live.remove(0);
            }
        }
        b.store(y, i, live[live.len() - 1]);
    });
    b.finish()
}

fn unary(op: Unary, n: i64) -> Kernel {
    let mut b = KernelBuilder::new(op.name());
    let (x, y) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
        let v = b.load(x, i);
        let v = b.unary(op, v);
        b.store(y, i, v);
    });
    b.finish()
}

/// Returns the minimum time of many runs, in seconds.
fn time(code: &CompiledKernel, lens: &[usize], sizes: &[i64], end: i64) -> f64 {
    let mut bufs: Vec<Vec<f32>> =
        lens.iter().map(|&n| (0..n).map(|i| (i % 613) as f32 / 100.0 - 3.0).collect()).collect();
    let pointers: Vec<*mut u8> = bufs.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
    let mut best = f64::MAX;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.3 {
        let mut runs = 0;
        let start = Instant::now();
        while runs == 0 || start.elapsed().as_secs_f64() < 2e-3 {
            // SAFETY: the buffers have the sizes that the kernel was made for.
            unsafe { code.run(&pointers, sizes, 0, end) };
            runs += 1;
        }
        best = best.min(start.elapsed().as_secs_f64() / runs as f64);
    }
    best
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let targets = match args.first().map(String::as_str) {
        Some("avx2") => vec![Target::Avx2],
        Some("avx512") => vec![Target::Avx512],
        _ => match Target::detect() {
            Some(Target::Avx512) => vec![Target::Avx2, Target::Avx512],
            Some(t) => vec![t],
            None => return println!("no code generator for this machine"),
        },
    };
    args.retain(|a| !a.starts_with("avx"));
    for target in targets {
        let run_with = |name: &str, k: Kernel, lens: &[usize], sizes: &[i64], end: i64, work: f64, unit: &str| {
            if args.first().is_some_and(|a| !name.contains(a.as_str())) {
                return;
            }
            let rounds = 20;
            let start = Instant::now();
            let mut code = None;
            for _ in 0..rounds {
                code = Some(compile(&k, target).expect("a kernel"));
            }
            let micros = start.elapsed().as_secs_f64() / rounds as f64 * 1e6;
            let Some(code) = code else { return };
            let t = time(&code, lens, sizes, end);
            println!(
                "{target:?} {name:24} {:9.3} {unit}  compile {micros:6.1} us, {} bytes",
                work / t / 1e9,
                code.code_size()
            );
        };
        let run = |name: &str, k: Kernel, lens: &[usize], end: i64, work: f64, unit: &str| {
            run_with(name, k, lens, &[], end, work, unit);
        };
        for log in [14, 20, 24] {
            let n = 1usize << log;
            run(&format!("chain 2^{log}"), chain(n as i64), &[n, n], 1, n as f64, "Gelem/s");
        }
        let mut tiny = KernelBuilder::new("tiny");
        let (x, y) = (tiny.buffer(F, AccessMode::Read), tiny.buffer(F, AccessMode::Write));
        tiny.for_loop(LoopKind::Vector, Size::Const(16), |b, i| {
            let v = b.load(x, i);
            let (two, one) = (b.constant_from_f64(F, 2.0), b.constant_from_f64(F, 1.0));
            let v = b.binary(Binary::Mul, v, two);
            let v = b.binary(Binary::Add, v, one);
            b.store(y, i, v);
        });
        run("2x+1 on 16", tiny.finish(), &[16, 16], 1, 1e3, "M calls/s");
        let n = 4096 * 1024;
        run("softmax 4096x1024", softmax(4096, 1024), &[n, n], 4096, n as f64, "Gelem/s");
        run("layernorm 4096x1024", layernorm(4096, 1024), &[n, 1024, 1024, n], 4096, n as f64, "Gelem/s");
        for lanes in [1usize, 4, 4096] {
            let k = cumsum(lanes as i64, 1000);
            run(&format!("cumsum n={lanes}"), k, &[1000 * lanes, 1000 * lanes], 1, 1e6, "M iter/s");
        }
        run("tanh cell n=64", tanh_cell(64, 1000), &[64000, 64, 64000], 1, 1e6, "M iter/s");
        run("column sum 1024x1024", column_sum(1024, 1024), &[1 << 20, 1024], 1, (1 << 20) as f64, "Gelem/s");
        for ops in [100, 1000, 4000] {
            run(&format!("long {ops}"), long(ops), &[4096, 4096], 1, 4096.0 * ops as f64, "Gop/s");
        }
        for strides in [[1, 1, 1], [1, 0, 1], [2, 1, 1], [1, 1, 2]] {
            let sizes = [4096, strides[0], strides[1], strides[2]];
            run_with(&format!("strided add {strides:?}"), strided_add(), &[8192; 3], &sizes, 1, 4096.0, "Gelem/s");
        }
        for op in [
            Unary::Exp,
            Unary::Log,
            Unary::Tanh,
            Unary::Logistic,
            Unary::Erf,
            Unary::Sin,
            Unary::Sqrt,
            Unary::Rsqrt,
            Unary::Log1p,
            Unary::Expm1,
        ] {
            run(op.name(), unary(op, 4096), &[4096, 4096], 1, 4096.0, "Gelem/s");
        }
    }
}
