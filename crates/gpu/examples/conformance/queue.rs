//! Tests of the queue: asynchronous work, memory that is freed early, several threads, and CUDA graphs.

use crate::device::{Device, bind, load, outputs, same_bits};
use crate::report::Report;
use crate::sizes::chain;
use compiler::{Backend, Bindings, Options};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type, Unary};
use std::sync::Arc;
use tensorloom_gpu::cuda::Cuda;
use testing::backend::{QUEUE_CHECKS, QueueWorkload};
use testing::{FillKind, Rng};

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn filled(t: &Type, seed: u64) -> Literal {
    FillKind::Smooth.random_tensor(t, &mut Rng::new(seed))
}

fn chained(n: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n]);
    let y = chain(&mut b, x).expect("it type-checks");
    b.finish(&[y])
}

pub(crate) fn queue(device: Device, report: &mut Report) {
    let backend = device.backend();
    for (name, check) in QUEUE_CHECKS {
        report.check(name, || check(backend, &QueueWorkload::LARGE).map(|_| ()), String::new);
    }
    report.check("threads", || threads(backend), String::new);
    report.check("buffers of another device", || foreign(&device), String::new);
}

fn threads(backend: &dyn Backend) -> Result<(), String> {
    let n = 300;
    let mut b = Builder::new();
    let (x, w) = (b.input(DType::F32, &[n, n]), b.input(DType::F32, &[n, n]));
    let made = (|| {
        let y = b.matmul(x, w)?;
        let y = b.scale(y, 0.05)?;
        let y = b.unary(Unary::Tanh, y)?;
        let y = b.matmul(y, w)?;
        let s = b.sum(y, &[1])?;
        Ok::<_, ir::Error>(vec![y, s])
    })();
    let graph = b.finish(&made.map_err(text)?);
    let exe = load(backend, &graph, &Options::default())?;
    let t = Type::new(DType::F32, &[n, n]);
    std::thread::scope(|scope| {
        let work = |k: u64| {
            let exe = &exe;
            let t = &t;
            move || -> Result<(), String> {
                let mut b = bind(backend, &**exe, &[filled(t, k), filled(t, k + 100)])?;
                exe.run(&mut b).map_err(text)?;
                let want = outputs(&b, exe.program())?;
                for _ in 0..30 {
                    exe.run(&mut b).map_err(text)?;
                    same_bits(&want, &outputs(&b, exe.program())?, "a run concurrent with others")?;
                }
                Ok(())
            }
        };
        let all: Vec<_> = (0..4).map(|k| scope.spawn(work(k))).collect();
        all.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

fn foreign(device: &Device) -> Result<(), String> {
    if device.cuda.is_none() {
        return Ok(());
    }
    let exe = load(device.backend(), &chained(100), &Options::default())?;
    let mut b = Bindings::for_program(exe.program(), &*device.cpu).map_err(text)?;
    match exe.run(&mut b) {
        Err(compiler::Error::Bindings(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

pub(crate) fn replay(device: Device, report: &mut Report) {
    let Some(cuda) = &device.cuda else { return };
    report.check("training with and without recordings", || trained(&device, cuda), String::new);
}

/// A step of gradient descent with an explicit gradient: `w ← w − 0.01·xᵀ(tanh(x·w) − t)`, with the parameter donated.
fn trained(device: &Device, cuda: &Arc<Cuda>) -> Result<(), String> {
    let (m, n, k) = (128, 96, 200);
    let mut b = Builder::new();
    let (w, x, t) = (b.input(DType::F32, &[k, n]), b.input(DType::F32, &[m, k]), b.input(DType::F32, &[m, n]));
    let made = (|| {
        let y = b.matmul(x, w)?;
        let y = b.unary(Unary::Tanh, y)?;
        let e = b.sub(y, t)?;
        let xt = b.permute(x, &[1, 0])?;
        let g = b.matmul(xt, e)?;
        let g = b.scale(g, 0.001)?;
        let next = b.sub(w, g)?;
        let sq = b.mul(e, e)?;
        Ok::<_, ir::Error>(vec![next, b.sum_all(sq)?])
    })();
    let graph = b.finish(&made.map_err(text)?);
    let types = graph.input_types();
    let inputs: Vec<Literal> = types.iter().enumerate().map(|(i, t)| filled(t, i as u64)).collect();
    let plain = Cuda::with_options(0, device.cpu.clone(), false).map_err(text)?;
    let curve = |backend: &dyn Backend| -> Result<Vec<Literal>, String> {
        let exe = load(backend, &graph, &Options { donate: vec![(0, 0)], ..Options::default() })?;
        let mut b = bind(backend, &*exe, &inputs)?;
        let mut losses = Vec::new();
        for _ in 0..40 {
            exe.run(&mut b).map_err(text)?;
            losses.push(outputs(&b, exe.program())?.remove(1));
            if exe.program().donated.is_empty() {
                let (from, to) = (b.outputs[0].clone(), b.inputs[0].clone());
                backend.copy(&*from, &*to, types[0].bytes()).map_err(text)?;
            }
        }
        losses.push(outputs(&b, exe.program())?.remove(0));
        Ok(losses)
    };
    let recorded = curve(&**cuda)?;
    same_bits(&recorded, &curve(&plain)?, "recorded and plain")?;
    let on_cpu = curve(&*device.cpu)?;
    for (g, w) in recorded.iter().zip(&on_cpu) {
        crate::sizes::close(g, w)?;
    }
    let (first, last) = (recorded[0].get(0).to_f64(), recorded[39].get(0).to_f64());
    if last < first { Ok(()) } else { Err(format!("the loss went from {first} to {last}")) }
}
