//! What becomes of a function: its graph, its program, its kernels, and where the time goes.

use crate::function::Leaves;
use crate::value::fault;
use compiler::clock::Instant;
use compiler::program::{Step, library_name};
use compiler::{Backend, Bindings, OpPlacement, Options};

/// Graph, program, kernels and timings, each as a text. Kernels of WebGPU are in WGSL; JavaScript has to measure those.
pub(crate) fn explain(f: impl Fn(Leaves) -> Leaves + Copy, args: Leaves, on_gpu: bool) -> Result<Vec<String>, String> {
    let graph = tensorloom::make_graph(f, args.clone()).map_err(fault)?;
    if on_gpu {
        let host = tensorloom::devices::open("cpu").map_err(fault)?;
        let backend = gpu::wgpu::Wgpu::open(host).map_err(fault)?;
        let program = compiler::compile(&graph, &backend, &Options::default()).map_err(fault)?;
        let text = program.to_string();
        let mut shown = Vec::new();
        program.steps.iter().for_each(|s| hosted(s, &backend, &mut shown));
        // The kernel first, then the functions that it calls: WGSL doesn't mind.
        shown.extend(backend.texts(program).map_err(fault)?.into_iter().map(|text| match text.find("@group(0)") {
            Some(at) => format!("{}\n{}", &text[at..], &text[..at]),
            None => text,
        }));
        return Ok(vec![graph.to_string(), text, shown.join("\n\n"), String::new()]);
    }
    let backend = tensorloom::devices::open("cpu").map_err(fault)?;
    let program = compiler::compile(&graph, &*backend, &Options::default()).map_err(fault)?;
    let mut shown = Vec::new();
    program.steps.iter().for_each(|s| s.kernels(&mut |k| shown.push(k.to_string())));
    let text = program.to_string();
    let exe = backend.load(program).map_err(fault)?;
    let mut b = Bindings::for_program(exe.program(), &*backend).map_err(fault)?;
    // Captured tensors are inputs too, and stand behind the arguments.
    for (buffer, x) in b.inputs.iter().zip(&args.0) {
        buffer.write(0, x.to_literal().map_err(fault)?.bytes()).map_err(fault)?;
    }
    // Once to warm up.
    exe.run(&mut b).map_err(fault)?;
    // Pages have coarse clocks: as many runs as take a while, then their mean.
    let begun = Instant::now();
    let mut runs = 0;
    while runs < 3 || (runs < 2000 && begun.elapsed().as_millis() < 40) {
        exe.run(&mut b).map_err(fault)?;
        runs += 1;
    }
    let whole = begun.elapsed().as_secs_f64() * 1e6 / runs as f64;
    let mut steps: Vec<(String, usize, f64)> = Vec::new();
    let timed = runs.min(400);
    for _ in 0..timed {
        for t in exe.run_timed(&mut b).map_err(fault)? {
            let time = t.time.as_secs_f64() * 1e6 / timed as f64;
            match steps.iter_mut().find(|s| s.0 == t.label) {
                Some(s) => s.2 += time,
                None => steps.push((t.label, t.calls, time)),
            }
        }
    }
    steps.sort_by(|a, b| b.2.total_cmp(&a.2));
    let mut lines = vec![format!("{whole:>10.1} µs  a run, mean of {runs}")];
    lines.extend(steps.iter().map(|(label, calls, time)| format!("{time:>10.1} µs  {calls:>5}×  {label}")));
    Ok(vec![graph.to_string(), text, shown.join("\n\n"), lines.join("\n")])
}

/// Lines about what a GPU leaves to the host.
fn hosted(step: &Step, backend: &dyn Backend, out: &mut Vec<String>) {
    match step {
        Step::Library { op, args, .. } => {
            let types: Vec<_> = args.iter().map(|(_, t)| t.clone()).collect();
            if backend.placement(op, &types) == OpPlacement::HostFallback {
                out.push(format!("// on the host, in WebAssembly: {}", library_name(op)));
            }
        }
        Step::Loop(l) => l.body.iter().for_each(|s| hosted(s, backend, out)),
        Step::Branch { branches, .. } => branches.iter().flatten().for_each(|s| hosted(s, backend, out)),
        _ => {}
    }
}
