//! The cases, by the names that the peers use.

use crate::llama;
use crate::measure::{Options, fail, peak_mib, prepare};
use compiler::Result;
use cpu::Cpu;
use ir::composites::{activation, norm, softmax};
use ir::ops::Scan;
use ir::{Build, Builder, DType, Graph, Type, Unary};

const F: DType = DType::F32;

/// Runs every case that was asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let cpu = Cpu::new(options.threads);
    let mut known = Vec::new();
    let mut case = |name: String, inner: usize, graph: &dyn Fn() -> Graph| -> Result<()> {
        known.push(name.clone());
        if options.wants(&name) {
            let s = prepare(&cpu, &graph(), 10)?.median(options.reps, inner)?;
            println!("{{\"case\": \"{name}\", \"s\": {s:e}}}");
        }
        Ok(())
    };
    for n in [256, 512, 1024, 2048] {
        case(format!("matmul{n}"), (2048 / n).max(1), &|| matmul(n))?;
    }
    for p in [14, 20, 24] {
        case(format!("chain2^{p}"), ((1 << 22) >> p).max(1), &|| chain(1 << p))?;
    }
    case("softmax4096x1024".into(), 1, &|| softmax_rows(4096, 1024))?;
    case("layernorm4096x1024".into(), 1, &|| layernorm_rows(4096, 1024))?;
    case("dispatch16".into(), 20_000, &increment)?;
    for (name, shape) in [("scalar", &[][..]), ("n4", &[4]), ("n4096", &[4096])] {
        case(format!("scan_cumsum_{name}_L1000"), if shape.is_empty() { 200 } else { 20 }, &|| cumsum(shape, 1000))?;
    }
    case("grad_scan_tanh64_L1000".into(), 20, &|| grad_tanh_scan(64, 1000))?;
    case("encoder_fwd_4x128".into(), 1, &|| llama::encoder(4, 128, 384, 12, 1536, 6))?;
    case("train_cnn_32x3x32x32".into(), 1, &llama::cnn_step)?;
    for (name, c) in [("train_tiny", llama::TINY), ("train_small", llama::SMALL)] {
        known.push(name.into());
        if options.wants(name) {
            train(&cpu, name, &c, options.reps)?;
        }
    }
    match options.only.iter().find(|o| !known.contains(o)) {
        Some(o) => Err(fail(&format!("there is no case {o:?}; cases are {}", known.join(", ")))),
        None => Ok(()),
    }
}

fn train(cpu: &Cpu, name: &str, c: &llama::Config, reps: usize) -> Result<()> {
    let graph = llama::train_step(c);
    let before = peak_mib();
    let start = std::time::Instant::now();
    let mut ready = prepare(cpu, &graph, c.vocab as i64)?;
    let compile_s = ready.compile_s;
    ready.run()?;
    let first_s = start.elapsed().as_secs_f64();
    let s = ready.median(reps, 1)?;
    let rss = peak_mib() - before;
    let arena = ready.exe.program().arena >> 20;
    println!(
        "{{\"case\": \"{name}\", \"s\": {s:e}, \"tok_s\": {:.0}, \"compile_s\": {compile_s:.3}, \"first_s\": {first_s:.3}, \"rss_mib\": {rss:.0}, \"arena_mib\": {arena}}}",
        (c.batch * c.seq) as f64 / s,
    );
    Ok(())
}

fn build(f: impl FnOnce(&mut Builder) -> ir::Result<Vec<ir::Value>>) -> Graph {
    let mut b = Builder::new();
    let outs = f(&mut b).expect("a case is a valid graph");
    b.finish(&outs)
}

fn matmul(n: usize) -> Graph {
    build(|b| {
        let (x, y) = (b.input(F, &[n, n]), b.input(F, &[n, n]));
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
