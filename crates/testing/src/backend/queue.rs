//! Tests of a device's queue: much asynchronous work, with memory that is freed early; the size is adjustable.

use super::CompareOutcome;
use super::compare_results::{bind, load, results};
use super::contract::{block_on, same, text};
use crate::{FillKind, Rng};
use compiler::{Backend, Bindings, Error, Options};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type, Unary};
use std::sync::Arc;

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct QueueWorkload {
    /// The number of elements of a large value.
    pub elements: usize,
    /// The number of repetitions of a check.
    pub rounds: usize,
    /// The number of programs that are submitted without waiting.
    pub submissions: usize,
}

impl QueueWorkload {
    /// The size for test suites.
    pub const SMALL: QueueWorkload = QueueWorkload { elements: 3000, rounds: 8, submissions: 300 };
    /// The size for GPUs.
    pub const LARGE: QueueWorkload = QueueWorkload { elements: 1 << 20, rounds: 50, submissions: 5000 };
}

/// A check of a queue.
pub type QueueCheck = fn(&dyn Backend, &QueueWorkload) -> Result<CompareOutcome, String>;

/// All checks, by name.
pub const QUEUE_CHECKS: [(&str, QueueCheck); 6] = [
    ("results of work that is dropped", dropped),
    ("reads that are awaited", awaited),
    ("a long run of submissions", many),
    ("copies and parts of buffers", copies),
    ("timings", timings),
    ("runs in an arena of the caller's", ranges),
];

fn filled(t: &Type, seed: u64) -> Literal {
    FillKind::Smooth.random_tensor(t, &mut Rng::new(seed))
}

fn chained(n: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n]);
    let y = b.scale(x, 1.5).expect("floats");
    let y = b.unary(Unary::Tanh, y).expect("floats");
    let s = b.unary(Unary::Logistic, x).expect("floats");
    let y = b.mul(y, s).expect("one type");
    b.finish(&[y])
}

/// Buffers are dropped while work that uses them is in progress, and others reuse their memory.
fn dropped(backend: &dyn Backend, work: &QueueWorkload) -> Result<CompareOutcome, String> {
    let t = Type::new(DType::F32, &[work.elements]);
    let exe = text(load(backend, &chained(work.elements), &Options::default()))?;
    let inputs: Vec<Literal> = (0..4).map(|k| filled(&t, k)).collect();
    let mut want = Vec::new();
    for x in &inputs {
        let mut b = text(bind(backend, &*exe, std::slice::from_ref(x)))?;
        text(exe.run(&mut b))?;
        want.push(text(results(&*exe, &b))?);
    }
    for round in 0..work.rounds {
        let k = round % 4;
        let (x, y) = (text(backend.alloc(t.bytes()))?, text(backend.alloc(t.bytes()))?);
        text(x.write(0, inputs[k].bytes()))?;
        let mut first = Bindings { inputs: vec![x], outputs: vec![y.clone()] };
        let _unwaited = text(exe.submit(&mut first))?;
        drop(first);
        // The input's memory is reused for this buffer, which is overwritten at once.
        let z = text(backend.alloc(t.bytes()))?;
        text(z.write(0, &vec![0xff; t.bytes()]))?;
        let mut got = vec![0; t.bytes()];
        text(y.read(0, &mut got))?;
        let got = Literal::from_bytes(t.clone(), &got).ok_or("size")?;
        same(&[got], &want[k], "where its input was dropped")?;
    }
    Ok(CompareOutcome::Compared)
}

fn awaited(backend: &dyn Backend, work: &QueueWorkload) -> Result<CompareOutcome, String> {
    let n = (work.elements / 4).max(1100);
    let t = Type::new(DType::F32, &[n]);
    let exe = text(load(backend, &chained(n), &Options::default()))?;
    let mut b = text(bind(backend, &*exe, &[filled(&t, 3)]))?;
    text(exe.run(&mut b))?;
    let want = text(results(&*exe, &b))?;
    for _ in 0..work.rounds {
        let fence = text(exe.submit(&mut b))?;
        let early = text(b.outputs[0].read_async(0, t.bytes()))?;
        let part = text(b.outputs[0].read_async(400, 4000))?;
        drop(text(b.outputs[0].read_async(0, t.bytes()))?);
        if text(block_on(backend, early))? != want[0].bytes() {
            return Err("an awaited read gives other bytes".into());
        }
        if text(part.wait())? != want[0].bytes()[400..4400] {
            return Err("a part that is read later gives other bytes".into());
        }
        text(block_on(backend, fence.clone()))?;
        if !fence.is_done() {
            return Err("a fence that was awaited is not done".into());
        }
    }
    Ok(CompareOutcome::Compared)
}

fn many(backend: &dyn Backend, work: &QueueWorkload) -> Result<CompareOutcome, String> {
    let n = 1000;
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n]);
    let y = b.offset(x, 1.0).expect("floats");
    let graph = b.finish(&[y]);
    let exe = text(load(backend, &graph, &Options { donate: vec![(0, 0)], ..Options::default() }))?;
    let mut b = text(bind(backend, &*exe, &[Literal::zeros(Type::new(DType::F32, &[n]))]))?;
    let donated = !exe.program().donated.is_empty();
    for _ in 0..work.submissions {
        let _unwaited = text(exe.submit(&mut b))?;
        if !donated {
            std::mem::swap(&mut b.inputs, &mut b.outputs);
        }
    }
    text(backend.synchronize())?;
    let mut got = vec![0; 4 * n];
    text(if donated { &b.outputs[0] } else { &b.inputs[0] }.read(0, &mut got))?;
    let got = Literal::from_bytes(Type::new(DType::F32, &[n]), &got).ok_or("size")?;
    match got.scalars().all(|s| s.to_f64() == work.submissions as f64) {
        true => Ok(CompareOutcome::Compared),
        false => Err(format!("{} additions of one gave {}", work.submissions, got.get(0))),
    }
}

fn copies(backend: &dyn Backend, work: &QueueWorkload) -> Result<CompareOutcome, String> {
    for bytes in [0usize, 1, 3, 4096, work.elements, 40 * work.elements + 13] {
        let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
        let (a, b) = (text(backend.alloc(bytes))?, text(backend.alloc(bytes))?);
        text(a.write(0, &data))?;
        text(backend.copy(&*a, &*b, bytes))?;
        let mut got = vec![0; bytes];
        text(b.read(0, &mut got))?;
        if got != data {
            return Err(format!("a copy of {bytes} bytes"));
        }
        if bytes > 100 {
            text(a.write(17, &[9; 50]))?;
            text(a.read(10, &mut got[..60]))?;
            if got[7..57] != [9; 50] || got[..7] != data[10..17] {
                return Err(format!("a part of {bytes} bytes"));
            }
        }
        let refused =
            a.read(bytes, &mut [0]).is_err() && a.write(bytes, &[0]).is_err() && a.read_async(bytes, 1).is_err();
        if !refused {
            return Err(format!("what is behind {bytes} bytes can be read or written"));
        }
    }
    Ok(CompareOutcome::Compared)
}

fn timings(backend: &dyn Backend, work: &QueueWorkload) -> Result<CompareOutcome, String> {
    let n = 4 * work.elements;
    let exe = text(load(backend, &chained(n), &Options::default()))?;
    let mut b = text(bind(backend, &*exe, &[filled(&Type::new(DType::F32, &[n]), 1)]))?;
    let found = text(exe.run_timed(&mut b))?;
    // A coarse clock may measure zero for little work.
    let seen =
        |t: &compiler::Timing| t.calls > 0 && (t.time.as_nanos() > 0 || work.elements < QueueWorkload::LARGE.elements);
    match found.is_empty() {
        true => Ok(CompareOutcome::Undetermined("the backend tells no times")),
        false if found.iter().all(seen) => Ok(CompareOutcome::Compared),
        false => Err(format!("{found:?}")),
    }
}

fn ranges(backend: &dyn Backend, _: &QueueWorkload) -> Result<CompareOutcome, String> {
    let n = 64;
    let mut b = Builder::new();
    let (x, w) = (b.input(DType::F32, &[n, n]), b.input(DType::F32, &[n, n]));
    let y = b.matmul(x, w).and_then(|y| b.unary(Unary::Tanh, y)).and_then(|y| b.matmul(y, w)).expect("square");
    let exe = text(load(backend, &b.finish(&[y]), &Options::default()))?;
    let t = Type::new(DType::F32, &[n, n]);
    let mut b = text(bind(backend, &*exe, &[filled(&t, 1), filled(&t, 2)]))?;
    text(exe.run(&mut b))?;
    let want = text(results(&*exe, &b))?;
    let mut arena = text(backend.alloc(exe.arena_bytes()))?;
    let arena = Arc::get_mut(&mut arena).ok_or("an arena that someone else has")?;
    for k in 0..exe.program().steps.len() {
        match exe.run_with_arena(&mut b, arena, k..k + 1) {
            // The error of a backend without such runs, as in the browser.
            Err(Error::Backend(why)) if why.contains("its own memory") => {
                return Ok(CompareOutcome::Undetermined("it runs in memory of its own"));
            }
            ran => text(ran)?,
        }
    }
    same(&want, &text(results(&*exe, &b))?, "step by step").map(|()| CompareOutcome::Compared)
}
