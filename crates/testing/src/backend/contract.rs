//! The contract of a device besides correct results.

use super::compare_results::{bind, load, results};
use crate::{FillKind, Rng};
use compiler::{Backend, Bindings, DeviceBuffer, Error, Executable, Options};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

type Promise = fn(&dyn Backend) -> Result<(), String>;

/// All checks, by name.
pub(super) const ALL: [(&str, Promise); 13] = [
    ("submissions keep their order", |b| often(b, order)),
    ("memory handed on at once holds its new value", |b| often(b, handed_on)),
    ("a buffer dropped early lives as long as its work", dropped_early),
    ("fences end, and reads can be awaited", fences),
    ("one buffer may be several inputs", shared_input),
    ("a donated input is replaced", donated),
    ("a donated cache gets one more row", cached),
    ("several threads run one program", threads),
    ("two runs give the same bits", same_bits),
    ("nothing is a fine size", nothing),
    ("many operands are as good as few", many),
    ("bindings that don't fit are refused", misfits),
    ("memory that isn't there is refused, and the device goes on", out_of_memory),
];

const F: DType = DType::F32;

pub(super) fn text<T>(r: compiler::Result<T>) -> Result<T, String> {
    r.map_err(|e| e.to_string())
}

/// `x·scale + shift` over this many elements.
fn affine(n: usize, scale: f64, shift: f64) -> Graph {
    let mut b = Builder::new();
    let x = b.input(F, &[n]);
    let y = b.scale(x, scale).expect("floats");
    let y = b.offset(y, shift).expect("floats");
    b.finish(&[y])
}

/// A graph with a product, rows and a reduction: `softmax(x·w)` and the sum of its logarithms.
fn mixed(n: usize) -> Graph {
    let mut b = Builder::new();
    let (x, w) = (b.input(F, &[n, n]), b.input(F, &[n, n]));
    let z = b.matmul(x, w).expect("square");
    let e = b.unary(ir::Unary::Exp, z).expect("floats");
    let s = b.sum(e, &[1]).expect("an axis");
    let s = b.broadcast(s, &[n, n], &[0]).expect("rows");
    let p = b.div(e, s).expect("one type");
    let l = b.unary(ir::Unary::Log, p).expect("floats");
    let total = b.sum_all(l).expect("floats");
    b.finish(&[p, total])
}

fn floats(buffer: &dyn DeviceBuffer, n: usize) -> Result<Vec<f32>, String> {
    let mut bytes = vec![0; 4 * n];
    text(buffer.read(0, &mut bytes))?;
    Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn all(x: &[f32], want: f32, what: &str) -> Result<(), String> {
    match x.iter().position(|v| *v != want) {
        None => Ok(()),
        Some(i) => Err(format!("{what}: element {i} is {} instead of {want}", x[i])),
    }
}

fn alloc(backend: &dyn Backend, n: usize) -> Result<Arc<dyn DeviceBuffer>, String> {
    text(backend.alloc(4 * n))
}

fn submit(exe: &dyn Executable, input: &Arc<dyn DeviceBuffer>, output: &Arc<dyn DeviceBuffer>) -> Result<(), String> {
    let mut b = Bindings { inputs: vec![input.clone()], outputs: vec![output.clone()] };
    text(exe.submit(&mut b)).map(drop)
}

/// Repeats a check, because a device with an ordering bug may pass it by chance.
fn often(backend: &dyn Backend, promise: Promise) -> Result<(), String> {
    (0..8).try_for_each(|_| promise(backend))
}

fn order(backend: &dyn Backend) -> Result<(), String> {
    let n = 300;
    let double = text(load(backend, &affine(n, 2.0, 1.0), &Options::default()))?;
    let (a, b, c) = (alloc(backend, n)?, alloc(backend, n)?, alloc(backend, n)?);
    text(a.write(0, &bytes(&vec![1.0; n])))?;
    // a -> b -> a -> b ..: each reads what the previous one wrote, and overwrites what the previous one read.
    for k in 0..6 {
        let (from, to) = if k % 2 == 0 { (&a, &b) } else { (&b, &a) };
        submit(&*double, from, to)?;
    }
    submit(&*double, &a, &c)?;
    all(&floats(&*a, n)?, 127.0, "after six runs")?;
    all(&floats(&*b, n)?, 63.0, "after five runs")?;
    all(&floats(&*c, n)?, 255.0, "after seven runs")
}

fn handed_on(backend: &dyn Backend) -> Result<(), String> {
    let n = 200;
    let same = text(load(backend, &affine(n, 1.0, 0.5), &Options::default()))?;
    let (input, first, second) = (alloc(backend, n)?, alloc(backend, n)?, alloc(backend, n)?);
    text(input.write(0, &bytes(&vec![1.0; n])))?;
    submit(&*same, &input, &first)?;
    // The input is written again when the first run may not have started.
    text(input.write(0, &bytes(&vec![2.0; n])))?;
    submit(&*same, &input, &second)?;
    text(backend.copy(&*first, &*input, 4 * n))?;
    all(&floats(&*first, n)?, 1.5, "the first run")?;
    all(&floats(&*second, n)?, 2.5, "the second run")?;
    all(&floats(&*input, n)?, 1.5, "the copy")
}

fn dropped_early(backend: &dyn Backend) -> Result<(), String> {
    let n = 500;
    let f = text(load(backend, &affine(n, 3.0, 0.0), &Options::default()))?;
    let mut outs = Vec::new();
    for k in 0..8 {
        let (input, out) = (alloc(backend, n)?, alloc(backend, n)?);
        text(input.write(0, &bytes(&vec![k as f32; n])))?;
        submit(&*f, &input, &out)?;
        outs.push(out);
        // The input is dropped here; the next user of its memory writes to it.
        drop(input);
        text(alloc(backend, n)?.write(0, &bytes(&vec![-1.0; n])))?;
    }
    drop(f);
    for (k, out) in outs.iter().enumerate() {
        all(&floats(&**out, n)?, 3.0 * k as f32, "a run whose input was dropped")?;
    }
    Ok(())
}

fn fences(backend: &dyn Backend) -> Result<(), String> {
    let n = 64;
    let f = text(load(backend, &affine(n, 2.0, 0.0), &Options::default()))?;
    let (a, b) = (alloc(backend, n)?, alloc(backend, n)?);
    text(a.write(0, &bytes(&vec![4.0; n])))?;
    let mut bindings = Bindings { inputs: vec![a], outputs: vec![b.clone()] };
    let fence = text(f.submit(&mut bindings))?;
    let later = text(b.read_async(4, 8))?;
    text(fence.wait())?;
    if !fence.is_done() {
        return Err("a fence that was waited for is not done".into());
    }
    if text(later.wait())? != bytes(&[8.0, 8.0]) {
        return Err("a read that was waited for gives other bytes".into());
    }
    let fence = text(f.submit(&mut bindings))?;
    text(block_on(backend, fence))?;
    let got = text(block_on(backend, text(b.read_async(0, 4))?))?;
    if got != bytes(&[8.0]) {
        return Err("an awaited read gives other bytes".into());
    }
    text(backend.synchronize())
}

/// Polls a future to completion. In the browser no other thread makes progress, so it waits for the device.
pub(super) fn block_on<T>(backend: &dyn Backend, f: impl Future<Output = T>) -> T {
    let mut f = pin!(f);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(x) = f.as_mut().poll(&mut cx) {
            return x;
        }
        match cfg!(target_arch = "wasm32") {
            true => drop(backend.synchronize()),
            false => std::thread::yield_now(),
        }
    }
}

fn shared_input(backend: &dyn Backend) -> Result<(), String> {
    let n = 40;
    let mut b = Builder::new();
    let (x, y) = (b.input(F, &[n]), b.input(F, &[n]));
    let z = b.mul(x, y).expect("one type");
    let exe = text(load(backend, &b.finish(&[z]), &Options::default()))?;
    let (both, out) = (alloc(backend, n)?, alloc(backend, n)?);
    text(both.write(0, &bytes(&vec![3.0; n])))?;
    let mut bindings = Bindings { inputs: vec![both.clone(), both.clone()], outputs: vec![out.clone()] };
    text(exe.run(&mut bindings))?;
    all(&floats(&*out, n)?, 9.0, "the square")?;
    all(&floats(&*both, n)?, 3.0, "the input")
}

fn donated(backend: &dyn Backend) -> Result<(), String> {
    let n = 70;
    let options = Options { donate: vec![(0, 0)], ..Options::default() };
    let exe = text(load(backend, &affine(n, 1.0, 1.0), &options))?;
    if exe.program().donated != [(0, 0)] {
        return Err("an elementwise result can't take its operand's place".into());
    }
    let state = alloc(backend, n)?;
    text(state.write(0, &bytes(&vec![0.0; n])))?;
    for _ in 0..5 {
        submit(&*exe, &state, &state)?;
    }
    all(&floats(&*state, n)?, 5.0, "five steps in place")?;
    // If it is not bound to the same buffer, the input is unchanged.
    let out = alloc(backend, n)?;
    submit(&*exe, &state, &out)?;
    all(&floats(&*out, n)?, 6.0, "a step elsewhere")?;
    all(&floats(&*state, n)?, 5.0, "its input")
}

/// A cache of rows, of which each step writes one: the others do not change, in place or in a copy.
fn cached(backend: &dyn Backend) -> Result<(), String> {
    let (rows, width) = (50, 24);
    let mut b = Builder::new();
    let (cache, x, at) = (b.input(F, &[rows, width]), b.input(F, &[1, width]), b.input(DType::I32, &[]));
    let twice = b.add(x, x).map_err(|e| e.to_string())?;
    let zero = b.scalar(DType::I32, 0.0).map_err(|e| e.to_string())?;
    let next = b.dynamic_update_slice(cache, twice, &[at, zero]).map_err(|e| e.to_string())?;
    let options = Options { donate: vec![(0, 0)], ..Options::default() };
    let exe = text(load(backend, &b.finish(&[next]), &options))?;
    if exe.program().donated != [(0, 0)] {
        return Err("a cache can't be written in place".into());
    }
    let (state, row, position) = (alloc(backend, rows * width)?, alloc(backend, width)?, alloc(backend, 1)?);
    let mut want: Vec<f32> = (0..rows * width).map(|i| i as f32).collect();
    text(state.write(0, &bytes(&want)))?;
    let step = |at: i32, to: &Arc<dyn DeviceBuffer>, want: &mut [f32]| -> Result<(), String> {
        let value = at as f32 + 0.5;
        text(row.write(0, &bytes(&vec![value; width])))?;
        text(position.write(0, &at.to_le_bytes()))?;
        let inputs = vec![state.clone(), row.clone(), position.clone()];
        text(exe.run(&mut Bindings { inputs, outputs: vec![to.clone()] }))?;
        // An index beyond the end is clamped to the last row.
        let at = (at as usize).min(rows - 1);
        want[at * width..][..width].fill(2.0 * value);
        if floats(&**to, rows * width)? == want { Ok(()) } else { Err(format!("row {at} is not all that changed")) }
    };
    for at in [3, 40, 3, 60] {
        step(at, &state, &mut want)?;
    }
    let before = want.clone();
    step(7, &alloc(backend, rows * width)?, &mut want)?;
    if floats(&*state, rows * width)? == before { Ok(()) } else { Err("a cache that was only read has changed".into()) }
}

fn sample(n: usize, seed: u64) -> Vec<Literal> {
    let mut rng = Rng::new(seed);
    (0..2).map(|_| FillKind::Smooth.random_tensor(&Type::new(F, &[n, n]), &mut rng)).collect()
}

fn threads(backend: &dyn Backend) -> Result<(), String> {
    let exe = text(load(backend, &mixed(24), &Options::default()))?;
    let once = |seed: u64| -> Result<Vec<Literal>, String> {
        let mut b = text(bind(backend, &*exe, &sample(24, seed)))?;
        text(exe.run(&mut b))?;
        text(results(&*exe, &b))
    };
    let alone: Vec<Vec<Literal>> = (0..4).map(once).collect::<Result<_, _>>()?;
    if cfg!(target_arch = "wasm32") {
        // There is only one thread in the browser.
        return (0..4).try_for_each(|k| same(&once(k)?, &alone[k as usize], "again"));
    }
    std::thread::scope(|s| {
        let running: Vec<_> =
            (0..4).map(|k| (k, s.spawn(move || (0..3).map(|_| once(k)).collect::<Vec<_>>()))).collect();
        for (k, thread) in running {
            for got in thread.join().map_err(|_| "a thread panicked".to_string())? {
                same(&got?, &alone[k as usize], "among other threads")?;
            }
        }
        Ok(())
    })
}

pub(super) fn same(a: &[Literal], b: &[Literal], what: &str) -> Result<(), String> {
    match a.iter().zip(b).position(|(a, b)| a.bytes() != b.bytes()) {
        None => Ok(()),
        Some(i) => Err(format!("result {i} has other bits {what}")),
    }
}

fn same_bits(backend: &dyn Backend) -> Result<(), String> {
    let graph = mixed(40);
    let inputs = sample(40, 9);
    let first = text(super::compare_results::run(backend, &graph, &inputs, &Options::default()))?;
    let exe = text(load(backend, &graph, &Options::default()))?;
    let mut b = text(bind(backend, &*exe, &inputs))?;
    for _ in 0..3 {
        text(exe.run(&mut b))?;
        same(&text(results(&*exe, &b))?, &first, "in another run")?;
    }
    Ok(())
}

fn nothing(backend: &dyn Backend) -> Result<(), String> {
    let mut b = Builder::new();
    let (x, w) = (b.input(F, &[3, 0]), b.input(F, &[0, 2]));
    let z = b.matmul(x, w).expect("sizes fit");
    let s = b.sum_all(x).expect("floats");
    let y = b.mul(x, x).expect("one type");
    let graph = b.finish(&[z, s, y]);
    let empty = |shape: &[usize]| Literal::from_bytes(Type::new(F, shape), &[]).expect("no bytes for no elements");
    let inputs = [empty(&[3, 0]), empty(&[0, 2])];
    let got = text(super::compare_results::run(backend, &graph, &inputs, &Options::default()))?;
    if got[0].scalars().chain(got[1].scalars()).any(|s| s.to_f64() != 0.0) {
        return Err("a sum of nothing is not zero".into());
    }
    Ok(())
}

/// More operands than any kernel supports: concatenated, added, and carried through a loop.
fn many(backend: &dyn Backend) -> Result<(), String> {
    let n = 45;
    let mut b = Builder::new();
    let xs: Vec<_> = (0..n).map(|_| b.input(F, &[3])).collect();
    let all = b.concat(&xs, 0).expect("one type");
    let mut total = xs[0];
    for &x in &xs[1..] {
        let scaled = b.scale(x, 1.5).expect("floats");
        total = b.add(total, scaled).expect("one type");
    }
    let mut inner = Builder::new();
    let carried: Vec<_> = (0..n).map(|_| inner.input(F, &[3])).collect();
    let next: Vec<_> = (0..n).map(|k| inner.add(carried[k], carried[(k + 1) % n]).expect("one type")).collect();
    let scan = ir::ops::Scan::over(0, n, 3, inner.finish(&next));
    let mut outs = b.emit(scan.into(), &xs).expect("a scan").to_vec();
    outs.extend([all, total]);
    let graph = b.finish(&outs);
    let mut rng = Rng::new(5);
    let inputs: Vec<Literal> = (0..n).map(|_| FillKind::Smooth.random_tensor(&Type::new(F, &[3]), &mut rng)).collect();
    let got = text(super::compare_results::run(backend, &graph, &inputs, &Options::default()))?;
    crate::rounding_noise::agrees_with_interpreter(&graph, &inputs, &got, &mut rng)
}

fn misfits(backend: &dyn Backend) -> Result<(), String> {
    let exe = text(load(backend, &affine(16, 1.0, 1.0), &Options::default()))?;
    let (small, right) = (alloc(backend, 15)?, alloc(backend, 16)?);
    let foreign: Arc<dyn DeviceBuffer> = Arc::new(Foreign);
    let cases = [
        ("no inputs", vec![], vec![right.clone()]),
        ("too many outputs", vec![right.clone()], vec![right.clone(), right.clone()]),
        ("a short input", vec![small.clone()], vec![right.clone()]),
        ("a short output", vec![right.clone()], vec![small.clone()]),
        ("memory of another device", vec![foreign], vec![right.clone()]),
    ];
    for (what, inputs, outputs) in cases {
        let mut b = Bindings { inputs, outputs };
        if exe.submit(&mut b).and_then(|f| f.wait()).is_ok() {
            return Err(format!("{what} was accepted"));
        }
    }
    if right.write(1, &[0; 64]).is_ok() || right.read(60, &mut [0; 8]).is_ok() {
        return Err("bytes behind a buffer's end were accepted".into());
    }
    text(exe.run(&mut Bindings { inputs: vec![right], outputs: vec![alloc(backend, 16)?] }))
}

/// The buffer of a device that does not exist.
struct Foreign;

impl DeviceBuffer for Foreign {
    fn bytes(&self) -> usize {
        1 << 20
    }

    fn write(&self, _: usize, _: &[u8]) -> compiler::Result<()> {
        Ok(())
    }

    fn read(&self, _: usize, _: &mut [u8]) -> compiler::Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn out_of_memory(backend: &dyn Backend) -> Result<(), String> {
    // A 32-bit address space may have space for one such block, but not for three.
    let mut held = Vec::new();
    for _ in 0..3 {
        match backend.alloc(isize::MAX as usize / 8 * 7) {
            Err(Error::OutOfMemory { .. }) => break,
            Err(e) => return Err(format!("memory that isn't there: {e}")),
            Ok(more) => held.push(more),
        }
    }
    if held.len() == 3 {
        return Err("more memory than there are addresses was found".into());
    }
    drop(held);
    order(backend)
}
