//! The queue: work that ends later, memory that is given back early, many threads, and recordings.

use crate::device::{Device, bind, load, outputs, same_bits};
use crate::report::Report;
use crate::sizes::chain;
use compiler::{Backend, Bindings, Options};
use gpu::cuda::Cuda;
use ir::{Build, Builder, DType, Graph, Literal, Type, Unary};
use oracle::{Fill, Rng};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn filled(t: &Type, seed: u64) -> Literal {
    Fill::Smooth.of(t, &mut Rng::new(seed))
}

fn chained(n: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n]);
    let y = chain(&mut b, x).expect("it type-checks");
    b.finish(&[y])
}

pub(crate) fn queue(device: Device, report: &mut Report) {
    let backend = device.backend();
    report.check("results of work that is dropped", || dropped(backend), String::new);
    report.check("reads that are awaited", || awaited(backend), String::new);
    report.check("a long run of submissions", || many(backend), String::new);
    report.check("threads", || threads(backend), String::new);
    report.check("copies and parts of buffers", || copies(backend), String::new);
    report.check("timings", || timings(backend), String::new);
    report.check("runs in an arena of the caller's", || ranges(backend), String::new);
    report.check("buffers of another device", || foreign(&device), String::new);
}

/// Buffers go out of scope while work that uses them is under way, and others take their memory.
fn dropped(backend: &dyn Backend) -> Result<(), String> {
    let graph = chained(1 << 20);
    let exe = load(backend, &graph, &Options::default())?;
    let t = Type::new(DType::F32, &[1 << 20]);
    let inputs: Vec<Literal> = (0..4).map(|k| filled(&t, k)).collect();
    let want: Vec<Vec<Literal>> = inputs
        .iter()
        .map(|x| {
            let mut b = bind(backend, &*exe, std::slice::from_ref(x))?;
            exe.run(&mut b).map_err(text)?;
            outputs(&b, exe.program())
        })
        .collect::<Result<_, _>>()?;
    for round in 0..50 {
        let k = round % 4;
        let x = backend.alloc(t.bytes()).map_err(text)?;
        x.write(0, inputs[k].bytes()).map_err(text)?;
        let y = backend.alloc(t.bytes()).map_err(text)?;
        let mut first = Bindings { inputs: vec![x], outputs: vec![y.clone()] };
        let _unwaited = exe.submit(&mut first).map_err(text)?;
        drop(first);
        // The input's memory goes to this one, which is overwritten at once.
        let z = backend.alloc(t.bytes()).map_err(text)?;
        z.write(0, &vec![0xff; t.bytes()]).map_err(text)?;
        let mut got = vec![0; t.bytes()];
        y.read(0, &mut got).map_err(text)?;
        let got = Literal::from_bytes(t.clone(), &got).ok_or("size")?;
        same_bits(&[got], &want[k], "a dropped run")?;
    }
    Ok(())
}

struct Count(AtomicUsize, std::thread::Thread);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0), std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(x) => return x,
            Poll::Pending => std::thread::park_timeout(std::time::Duration::from_secs(10)),
        }
    }
}

fn awaited(backend: &dyn Backend) -> Result<(), String> {
    let exe = load(backend, &chained(1 << 18), &Options::default())?;
    let t = Type::new(DType::F32, &[1 << 18]);
    let mut b = bind(backend, &*exe, &[filled(&t, 3)])?;
    exe.run(&mut b).map_err(text)?;
    let want = outputs(&b, exe.program())?;
    for _ in 0..20 {
        let fence = exe.submit(&mut b).map_err(text)?;
        let early = b.outputs[0].read_later(0, t.bytes()).map_err(text)?;
        let part = b.outputs[0].read_later(400, 4000).map_err(text)?;
        let forgotten = b.outputs[0].read_later(0, t.bytes()).map_err(text)?;
        drop(forgotten);
        let got = block_on(early).map_err(text)?;
        if got != want[0].bytes() {
            return Err("an awaited read gives other bytes".into());
        }
        if part.wait().map_err(text)? != want[0].bytes()[400..4400] {
            return Err("a part that is read later gives other bytes".into());
        }
        block_on(fence.clone()).map_err(text)?;
        if !fence.is_done() {
            return Err("a fence that was awaited is not done".into());
        }
    }
    Ok(())
}

fn many(backend: &dyn Backend) -> Result<(), String> {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[1000]);
    let y = b.offset(x, 1.0).expect("it type-checks");
    let graph = b.finish(&[y]);
    let exe = load(backend, &graph, &Options { donate: vec![(0, 0)], ..Options::default() })?;
    let mut b = bind(backend, &*exe, &[Literal::zeros(Type::new(DType::F32, &[1000]))])?;
    let donated = !exe.program().donated.is_empty();
    for _ in 0..5000 {
        let _unwaited = exe.submit(&mut b).map_err(text)?;
        if !donated {
            std::mem::swap(&mut b.inputs, &mut b.outputs);
        }
    }
    backend.synchronize().map_err(text)?;
    let last = if donated { &b.outputs[0] } else { &b.inputs[0] };
    let mut got = vec![0; 4000];
    last.read(0, &mut got).map_err(text)?;
    let got = Literal::from_bytes(Type::new(DType::F32, &[1000]), &got).ok_or("size")?;
    match got.scalars().all(|s| s.to_f64() == 5000.0) {
        true => Ok(()),
        false => Err(format!("5000 additions of one gave {}", got.get(0))),
    }
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
                    same_bits(&want, &outputs(&b, exe.program())?, "a run beside others")?;
                }
                Ok(())
            }
        };
        let all: Vec<_> = (0..4).map(|k| scope.spawn(work(k))).collect();
        all.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

fn copies(backend: &dyn Backend) -> Result<(), String> {
    for bytes in [0usize, 1, 3, 4096, 1 << 20, (40 << 20) + 13] {
        let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
        let (a, b) = (backend.alloc(bytes).map_err(text)?, backend.alloc(bytes).map_err(text)?);
        a.write(0, &data).map_err(text)?;
        backend.copy(&*a, &*b, bytes).map_err(text)?;
        let mut got = vec![0; bytes];
        b.read(0, &mut got).map_err(text)?;
        if got != data {
            return Err(format!("a copy of {bytes} bytes"));
        }
        if bytes > 100 {
            a.write(17, &[9; 50]).map_err(text)?;
            a.read(10, &mut got[..60]).map_err(text)?;
            if got[7..57] != [9; 50] || got[..7] != data[10..17] {
                return Err(format!("a part of {bytes} bytes"));
            }
        }
        let beyond =
            a.read(bytes, &mut [0]).is_err() && a.write(bytes, &[0]).is_err() && a.read_later(bytes, 1).is_err();
        if !beyond {
            return Err(format!("reading beyond {bytes} bytes is no error"));
        }
    }
    Ok(())
}

fn timings(backend: &dyn Backend) -> Result<(), String> {
    let exe = load(backend, &chained(1 << 22), &Options::default())?;
    let mut b = bind(backend, &*exe, &[filled(&Type::new(DType::F32, &[1 << 22]), 1)])?;
    let found = exe.run_timed(&mut b).map_err(text)?;
    println!("timings {found:?}");
    let ok = !found.is_empty() && found.iter().all(|t| t.calls > 0 && t.time.as_secs_f64() > 0.0);
    if ok { Ok(()) } else { Err(format!("{found:?}")) }
}

fn ranges(backend: &dyn Backend) -> Result<(), String> {
    let n = 64;
    let mut b = Builder::new();
    let (x, w) = (b.input(DType::F32, &[n, n]), b.input(DType::F32, &[n, n]));
    let y = b.matmul(x, w).and_then(|y| b.unary(Unary::Tanh, y)).and_then(|y| b.matmul(y, w)).map_err(text)?;
    let graph = b.finish(&[y]);
    let exe = load(backend, &graph, &Options::default())?;
    let t = Type::new(DType::F32, &[n, n]);
    let mut b = bind(backend, &*exe, &[filled(&t, 1), filled(&t, 2)])?;
    exe.run(&mut b).map_err(text)?;
    let want = outputs(&b, exe.program())?;
    let mut arena = backend.alloc(exe.arena_bytes()).map_err(text)?;
    let arena = Arc::get_mut(&mut arena).ok_or("an arena that someone else has")?;
    for k in 0..exe.program().steps.len() {
        exe.run_in(&mut b, arena, k..k + 1).map_err(text)?;
    }
    same_bits(&want, &outputs(&b, exe.program())?, "step by step")
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

/// A step of gradient descent by hand: `w ← w − 0.01·xᵀ(tanh(x·w) − t)`, with the parameter donated.
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
