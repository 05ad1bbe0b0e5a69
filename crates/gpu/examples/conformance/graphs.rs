//! Compares the table of ops, random graphs and exact expressions with the interpreter.

use crate::device::{Device, bind, load, outputs, run, same_bits};
use crate::report::Report;
use crate::{Arguments, Slice};
use compiler::{Backend, Options};
use ir::{Graph, Literal, interp};
use testing::Rng;
use testing::random::{SampleOptions as Shape, exact_expressions, integer_expressions, sample};

pub(crate) fn ops(mut device: Device, slice: Slice, report: &mut Report) {
    for (k, row) in testing::samples::all_samples().into_iter().enumerate() {
        if slice.has(k as u64) {
            report.at(k as u64, &row.name);
            one(&mut device, &row.name, &row.graph, &row.inputs, report);
        }
    }
}

pub(crate) fn random(mut device: Device, slice: Slice, arguments: &Arguments, report: &mut Report) {
    for k in (0..arguments.random).filter(|k| slice.has(*k)) {
        let seed = arguments.seed.wrapping_add(k);
        let s = sample(seed, &Shape::ANY);
        let name = format!("seed {seed}");
        report.at(k, &name);
        one(&mut device, &name, &s.graph, &s.inputs, report);
    }
}

/// Exact expressions: one for every five random graphs, alternating between floats and integers.
pub(crate) fn exacts(mut device: Device, slice: Slice, arguments: &Arguments, report: &mut Report) {
    for k in (0..arguments.random.div_ceil(5)).filter(|k| slice.has(*k)) {
        let seed = arguments.seed.wrapping_add(k);
        let s = if k % 2 == 0 { exact_expressions(seed) } else { integer_expressions(seed) };
        let name = format!("seed {}", s.seed);
        report.at(k, &name);
        judged(&mut device, &name, &s.graph, &s.inputs, equals, report);
    }
}

/// Checks that every bit equals the interpreter's results.
fn equals(backend: &dyn Backend, graph: &Graph, inputs: &[Literal]) -> Result<(), String> {
    testing::backend::matches_bitwise(backend, graph, inputs).map(drop)
}

fn one(device: &mut Device, name: &str, graph: &Graph, inputs: &[Literal], report: &mut Report) {
    judged(device, name, graph, inputs, agrees, report);
}

type Judge = fn(&dyn Backend, &Graph, &[Literal]) -> Result<(), String>;

fn judged(device: &mut Device, name: &str, graph: &Graph, inputs: &[Literal], judge: Judge, report: &mut Report) {
    let attempt = std::panic::AssertUnwindSafe(|| match device.compiled(graph) {
        Some(compiled) => compiled,
        None => match device.refused(graph) {
            Some(refused) => refused,
            None => judge(device.backend(), graph, inputs),
        },
    });
    let result = std::panic::catch_unwind(attempt).unwrap_or_else(|_| Err("it panicked".into()));
    if let Err(e) = result {
        device.mend(&e);
        let given: Vec<String> = inputs.iter().map(|x| format!("{x:?}")).collect();
        let details = format!("{}\ninputs: {}", device.show(graph, &Options::default()), given.join("\n"));
        report.failed(name, &e, details);
    }
}

/// Checks that the results agree with the interpreter, are identical in each run, and with donated inputs.
fn agrees(backend: &dyn Backend, graph: &Graph, inputs: &[Literal]) -> Result<(), String> {
    interp::run(graph, inputs).map_err(|e| e.to_string())?;
    let exe = load(backend, graph, &Options::default())?;
    let mut b = bind(backend, &*exe, inputs)?;
    exe.run(&mut b).map_err(|e| format!("run: {e}"))?;
    let got = outputs(&b, exe.program())?;
    exe.run(&mut b).map_err(|e| format!("second run: {e}"))?;
    same_bits(&got, &outputs(&b, exe.program())?, "two runs")?;
    // The third run with the same memory replays a CUDA graph.
    exe.run(&mut b).map_err(|e| format!("third run: {e}"))?;
    same_bits(&got, &outputs(&b, exe.program())?, "first run and replay")?;
    let donate = donations(graph);
    let donated = match donate.is_empty() {
        true => None,
        false => Some(run(backend, graph, inputs, &Options { donate, ..Options::default() })?),
    };
    // Vectors of factorizations are determined only up to their sign, and the positions of infinities in an FFT depend on its
    // butterflies; the tests of these routines compare them more precisely.
    let text = graph.to_string();
    if ["eigh(", "svd(", "qr(", "fft("].iter().any(|op| text.contains(op)) {
        return Ok(());
    }
    // Whether padding is multiplied by an infinite weight (0·∞) or skipped depends on the implementation of a convolution.
    let finite = |l: &Literal| l.scalars().all(|s| s.to_f64().is_finite());
    if text.contains("conv(") && !(inputs.iter().all(finite) && got.iter().all(finite)) {
        return Ok(());
    }
    testing::rounding_noise::agrees_with_interpreter(graph, inputs, &got, &mut Rng::new(1))?;
    match donated {
        Some(again) if !got.iter().zip(&again).all(|(a, b)| a.bytes() == b.bytes()) => {
            testing::rounding_noise::agrees_with_interpreter(graph, inputs, &again, &mut Rng::new(1))
                .map_err(|e| format!("with donated inputs: {e}"))
        }
        _ => Ok(()),
    }
}

/// Pairs each input with the first unused output of its type.
fn donations(graph: &Graph) -> Vec<(usize, usize)> {
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
