//! What becomes of a function: its graph, its program, its kernels, and where the time goes.

use crate::function::Leaves;
use crate::value::fault;
use compiler::loops::Kernel;
use compiler::program::Step;
use compiler::{Bindings, Options};
use std::sync::Arc;

/// Graph, program, kernels and timings, each as a text.
pub(crate) fn explain(f: impl Fn(Leaves) -> Leaves + Copy, args: Leaves) -> Result<Vec<String>, String> {
    let graph = tensorloom::make_graph(f, args.clone()).map_err(fault)?;
    let backend = tensorloom::devices::open("cpu").map_err(fault)?;
    let program = compiler::compile(&graph, &*backend, &Options::default()).map_err(fault)?;
    let mut kernels = Vec::new();
    program.steps.iter().for_each(|s| collect(s, &mut kernels));
    let shown: Vec<String> = kernels.iter().map(|k| k.to_string()).collect();
    let text = program.to_string();
    let exe = backend.load(program).map_err(fault)?;
    let mut b = Bindings::for_program(exe.program(), &*backend).map_err(fault)?;
    // Captured tensors are inputs too, and stand behind the arguments.
    for (buffer, x) in b.inputs.iter().zip(&args.0) {
        buffer.write(0, x.to_literal().map_err(fault)?.bytes()).map_err(fault)?;
    }
    // Once to warm up.
    exe.run(&mut b).map_err(fault)?;
    let times = exe.run_timed(&mut b).map_err(fault)?;
    let times = times.iter().map(|t| format!("{:>10.1} µs  {:>5}×  {}", t.time.as_secs_f64() * 1e6, t.calls, t.label));
    Ok(vec![graph.to_string(), text, shown.join("\n\n"), times.collect::<Vec<_>>().join("\n")])
}

fn collect(step: &Step, out: &mut Vec<Arc<Kernel>>) {
    match step {
        Step::Kernel { kernel, .. } => out.push(kernel.clone()),
        Step::Matmul { epilogue: Some(e), .. } => out.push(e.kernel.clone()),
        Step::Loop(l) => l.body.iter().for_each(|s| collect(s, out)),
        Step::Branch { branches, .. } => branches.iter().flatten().for_each(|s| collect(s, out)),
        _ => {}
    }
}
