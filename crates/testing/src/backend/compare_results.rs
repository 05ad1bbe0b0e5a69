//! Compares one graph on a backend with the interpreter.

use crate::{Rng, Tolerance, compare};
use compiler::{Backend, Bindings, Executable, Options};
use ir::{Graph, Literal, Op, Type, interp};
use std::sync::Arc;

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOutcome {
    /// Every result was compared.
    Compared,
    /// It ran, but the expected result is not determined; contains the reason.
    Undetermined(&'static str),
    /// The device does not support a dtype of the graph, and reported that.
    Unsupported,
}

/// Whether a target supports every dtype of a graph and its bodies.
pub fn has_types(backend: &dyn Backend, graph: &Graph) -> bool {
    let known = |t: &Type| backend.target().dtypes.contains(&t.dtype);
    graph.input_types().iter().all(known)
        && graph.nodes().iter().all(|n| {
            n.outs.iter().all(|v| known(graph.ty(*v)))
                && match &n.op {
                    Op::Scan(s) => has_types(backend, &s.body),
                    Op::While(w) => has_types(backend, &w.cond) && has_types(backend, &w.body),
                    Op::Cond(c) => c.branches.iter().all(|b| has_types(backend, b)),
                    Op::Remat(r) => has_types(backend, &r.body),
                    op => match op.semantics() {
                        ir::Semantics::Inline(body) => has_types(backend, &body),
                        _ => true,
                    },
                }
        })
}

/// Compiles and loads a graph.
pub fn load(backend: &dyn Backend, graph: &Graph, options: &Options) -> compiler::Result<Arc<dyn Executable>> {
    backend.load(compiler::compile(graph, backend, options)?)
}

/// Fresh bindings with the inputs written.
pub fn bind(backend: &dyn Backend, exe: &dyn Executable, inputs: &[Literal]) -> compiler::Result<Bindings> {
    let b = Bindings::for_program(exe.program(), backend)?;
    for (buffer, x) in b.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes())?;
    }
    Ok(b)
}

/// Reads the results from bindings.
pub fn results(exe: &dyn Executable, b: &Bindings) -> compiler::Result<Vec<Literal>> {
    let types = &exe.program().outputs;
    let read = |(buffer, ty): (&Arc<dyn compiler::DeviceBuffer>, &Type)| {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes)?;
        Ok(Literal::from_bytes(ty.clone(), &bytes).expect("as many bytes as the type has"))
    };
    b.outputs.iter().zip(types).map(read).collect()
}

/// Compiles a graph, runs it and reads its results.
pub fn run(
    backend: &dyn Backend,
    graph: &Graph,
    inputs: &[Literal],
    options: &Options,
) -> compiler::Result<Vec<Literal>> {
    let exe = load(backend, graph, options)?;
    let mut b = bind(backend, &*exe, inputs)?;
    exe.run(&mut b)?;
    results(&*exe, &b)
}

/// Pairs each input with the first unused output of its type.
pub fn donations(graph: &Graph) -> Vec<(usize, usize)> {
    let (inputs, outputs) = (graph.input_types(), graph.output_types());
    let mut taken = vec![false; outputs.len()];
    let mut pairs = Vec::new();
    for (i, t) in inputs.iter().enumerate() {
        if let Some(o) = (0..outputs.len()).find(|&o| !taken[o] && outputs[o] == *t) {
            taken[o] = true;
            pairs.push((i, o));
        }
    }
    pairs
}

/// The reason if results are not determined, so that only the tests of their routines compare them.
fn undetermined(graph: &Graph) -> Option<&'static str> {
    let text = graph.to_string();
    if ["eigh(", "svd(", "qr("].iter().any(|op| text.contains(op)) {
        return Some("vectors of factorisations are determined up to their sign");
    }
    if text.contains("fft(") {
        return Some("where a transform's infinities go depends on its butterflies");
    }
    None
}

/// Runs a graph twice, the second time with donated inputs, sizes as kernel arguments and operands as prologues of
/// their products, and compares both with the interpreter.
pub fn matches_interpreter(backend: &dyn Backend, graph: &Graph, inputs: &[Literal]) -> Result<CompareOutcome, String> {
    interp::run(graph, inputs).map_err(|e| e.to_string())?;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| both(backend, graph, inputs)));
    let outcome = caught.map_err(|_| "it panicked".to_string())?;
    let (got, again) = match outcome {
        Err(compiler::Error::Backend(_)) if !has_types(backend, graph) => return Ok(CompareOutcome::Unsupported),
        Err(e) => return Err(e.to_string()),
        Ok(pair) => pair,
    };
    if let Some(why) = undetermined(graph) {
        return Ok(CompareOutcome::Undetermined(why));
    }
    crate::rounding_noise::agrees_with_interpreter(graph, inputs, &got, &mut Rng::new(1))?;
    if got.iter().zip(&again).any(|(a, b)| a.bytes() != b.bytes()) {
        let changed = "with donated inputs, sizes as arguments and computed operands";
        crate::rounding_noise::agrees_with_interpreter(graph, inputs, &again, &mut Rng::new(1))
            .map_err(|e| format!("{changed}: {e}"))?;
    }
    Ok(CompareOutcome::Compared)
}

/// Runs a graph and compares every bit with the interpreter; all NaNs are equal.
pub fn matches_bitwise(backend: &dyn Backend, graph: &Graph, inputs: &[Literal]) -> Result<CompareOutcome, String> {
    let want = interp::run(graph, inputs).map_err(|e| e.to_string())?;
    let got = match run(backend, graph, inputs, &Options::default()) {
        Err(compiler::Error::Backend(_)) if !has_types(backend, graph) => return Ok(CompareOutcome::Unsupported),
        other => other.map_err(|e| e.to_string())?,
    };
    for (n, (g, w)) in got.iter().zip(&want).enumerate() {
        compare(g, w, Tolerance::EXACT).map_err(|e| format!("output {n}: {e}"))?;
    }
    Ok(CompareOutcome::Compared)
}

/// Runs an elementwise graph, and reports the first elements that differ from the expected values.
pub fn matches_function_values(
    backend: &dyn Backend,
    graph: &Graph,
    inputs: &[Literal],
    want: &Literal,
) -> Result<CompareOutcome, String> {
    let got = match run(backend, graph, inputs, &Options::default()) {
        Err(compiler::Error::Backend(_)) if !has_types(backend, graph) => return Ok(CompareOutcome::Unsupported),
        other => other.map_err(|e| e.to_string())?,
    };
    let same = |i: usize| {
        let (g, w) = (got[0].get(i), want.get(i));
        g == w || (g.to_f64().is_nan() && w.to_f64().is_nan())
    };
    let wrong: Vec<usize> = (0..want.ty().numel()).filter(|&i| !same(i)).collect();
    if wrong.is_empty() {
        return Ok(CompareOutcome::Compared);
    }
    let shown: Vec<String> = wrong
        .iter()
        .take(8)
        .map(|&i| {
            let args: Vec<String> = inputs.iter().map(|x| x.get(i).to_string()).collect();
            format!("({}) is {:?}, not {:?}", args.join(", "), got[0].get(i), want.get(i))
        })
        .collect();
    Err(format!("{} of {}: {}", wrong.len(), want.ty().numel(), shown.join("; ")))
}

fn both(backend: &dyn Backend, graph: &Graph, inputs: &[Literal]) -> compiler::Result<(Vec<Literal>, Vec<Literal>)> {
    let got = run(backend, graph, inputs, &Options::default())?;
    let options = Options { donate: donations(graph), computed_operands: Some(1), ..Options::default() };
    let exe = backend.load_shape_generic(compiler::compile(graph, backend, &options)?)?;
    let mut b = bind(backend, &*exe, inputs)?;
    exe.run(&mut b)?;
    Ok((got, results(&*exe, &b)?))
}
