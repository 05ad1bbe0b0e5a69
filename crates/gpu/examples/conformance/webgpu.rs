//! Tests of a WebGPU device besides its results: a lost device is an error and a new one works, an allocation that is too large
//! fails with its size, and a thousand steps do not leak.

use crate::Arguments;
use crate::device::{Device, bind, choice, load, outputs, run, same_bits};
use crate::report::Report;
use crate::sizes::chain;
use compiler::{Backend, Error, Options};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type};
use tensorloom_gpu::wgpu::Wgpu;
use testing::{FillKind, Rng};

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// A product, row functions, a reduction, a donated state.
fn sample() -> (Graph, Vec<Literal>) {
    let mut b = Builder::new();
    let (x, w) = (b.input(DType::F32, &[64, 64]), b.input(DType::F32, &[64, 64]));
    let made = (|| {
        let y = b.matmul(x, w)?;
        let y = chain(&mut b, y)?;
        let s = b.scale(y, 0.01)?;
        let next = b.add(w, s)?;
        let total = b.sum_all(y)?;
        Ok::<_, ir::Error>(vec![next, total])
    })();
    let graph = b.finish(&made.expect("it type-checks"));
    let fill = |seed| FillKind::Smooth.random_tensor(&Type::new(DType::F32, &[64, 64]), &mut Rng::new(seed));
    (graph, vec![fill(5), fill(6)])
}

pub(crate) fn all(device: Device, arguments: &Arguments, report: &mut Report) {
    let Some(wgpu) = device.wgpu.clone() else { return };
    report.check("a thousand steps leave nothing behind", || steps(&wgpu), String::new);
    report.check("a lost device is an error, and a new one works", || lost(&device, &wgpu, arguments), String::new);
}

fn steps(wgpu: &Wgpu) -> Result<(), String> {
    let (graph, inputs) = sample();
    let exe = load(wgpu, &graph, &Options { donate: vec![(1, 0)], ..Options::default() })?;
    let mut b = bind(wgpu, &*exe, &inputs)?;
    let mut seen = Vec::new();
    for k in 0..1000 {
        exe.run(&mut b).map_err(text)?;
        let _total = outputs(&b, exe.program())?;
        if k == 10 || k == 999 {
            seen.push((wgpu.usage(), wgpu.kernels()));
        }
    }
    let (submits, dispatches) = wgpu.work();
    println!("steps {seen:?}, {submits} submits, {dispatches} dispatches");
    if seen[0] == seen[1] { Ok(()) } else { Err(format!("{seen:?}")) }
}

fn lost(device: &Device, wgpu: &Wgpu, arguments: &Arguments) -> Result<(), String> {
    let (graph, inputs) = sample();
    let want = run(wgpu, &graph, &inputs, &Options::default())?;
    let exe = load(wgpu, &graph, &Options::default())?;
    let mut b = bind(wgpu, &*exe, &inputs)?;
    wgpu.lose();
    for what in ["run", "again"] {
        match exe.run(&mut b) {
            Err(Error::Backend(e)) if e.contains("was lost") && e.contains("open the device again") => {}
            other => return Err(format!("{what}: {other:?}")),
        }
    }
    match wgpu.alloc(1024).map(drop) {
        Err(Error::Backend(e)) if e.contains("was lost") => {}
        other => return Err(format!("alloc: {other:?}")),
    }
    let choice = choice(&arguments.device).ok_or("another device")?;
    let new = Wgpu::open(choice, device.cpu.clone()).map_err(text)?;
    same_bits(&want, &run(&new, &graph, &inputs, &Options::default())?, "the new device")
}
