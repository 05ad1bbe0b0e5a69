//! How long what `@profile` names takes, and the bytes it writes: the program is run on made-up operands.

use crate::command::UsageError;
use compiler::program::{BufferRef, Step};
use compiler::{Backend, Bindings};
use ir::{Graph, Literal, Scalar};
use lang::lower::Lowered;
use std::collections::BTreeSet;
use std::time::Duration;

/// Runs whose fastest counts.
const TIMED_RUNS: usize = 5;

/// What was measured about one name.
pub(crate) struct NamedProfile {
    pub(crate) name: String,
    /// Steps that compute something of it, alone or with something else.
    pub(crate) steps: usize,
    pub(crate) time: Duration,
    /// Of the whole program.
    pub(crate) share: f64,
    /// What those steps write.
    pub(crate) bytes: usize,
}

/// Compiles a graph and times it.
pub(crate) fn measure(graph: &Graph, lowered: &Lowered, cpu: &dyn Backend) -> Result<Vec<NamedProfile>, UsageError> {
    let fault = |e: compiler::Error| UsageError(e.to_string());
    let (program, notes) = compiler::explain(graph, cpu, &compiler::Options::default()).map_err(fault)?;
    let loaded = cpu.load(program).map_err(fault)?;
    let program = loaded.program();
    let mut bindings = Bindings::for_program(program, cpu).map_err(fault)?;
    for (buffer, ty) in bindings.inputs.iter().zip(&program.inputs) {
        // Whole numbers are ids, and 0 always is one.
        let value = |i: usize| if ty.dtype.is_float() { ((i * 7919 + 13) % 101) as f64 / 101.0 - 0.5 } else { 0.0 };
        let literal = Literal::from_fn(ty.clone(), |i| Scalar::from_f64(ty.dtype, value(i)));
        buffer.write(0, literal.bytes()).map_err(fault)?;
    }
    let mut best = None;
    for _ in 0..TIMED_RUNS {
        let timings = loaded.run_timed(&mut bindings).map_err(fault)?;
        let total: Duration = timings.iter().map(|timing| timing.time).sum();
        if best.as_ref().is_none_or(|(least, _)| total < *least) {
            best = Some((total, timings));
        }
    }
    let (total, timings) = best.unwrap_or_default();
    let profile = |name: &String| {
        let numbers = steps_of(&notes, name);
        let times = timings.iter().flat_map(|timing| &timing.steps).filter(|(step, _)| numbers.contains(step));
        let time: Duration = times.map(|(_, time)| *time).sum();
        NamedProfile {
            name: name.clone(),
            steps: numbers.len(),
            time,
            share: time.as_secs_f64() / total.as_secs_f64().max(1e-12),
            bytes: bytes_written(program, &numbers),
        }
    };
    Ok(lowered.profiled.iter().map(profile).collect())
}

/// The steps that compute something of what a name marks.
pub(crate) fn steps_of(notes: &compiler::Explanation, name: &str) -> BTreeSet<usize> {
    let marker = format!("[{name}] ");
    let named = notes.steps.iter().filter(|note| {
        let places = note.fused.iter().chain([&note.description]);
        places.filter_map(|line| line.rsplit_once(" at ")).any(|(_, place)| place.starts_with(&marker))
    });
    named.filter_map(|note| note.step.split('.').next()?.parse().ok()).collect()
}

/// The bytes that some steps write.
pub(crate) fn bytes_written(program: &compiler::Program, steps: &BTreeSet<usize>) -> usize {
    let buffers = steps.iter().filter_map(|&step| program.steps.get(step)).flat_map(outputs);
    let buffers: BTreeSet<usize> = buffers.collect();
    buffers.iter().map(|&buffer| program.buffers[buffer].ty.bytes()).sum()
}

/// The buffers that a step writes.
fn outputs(step: &Step) -> Vec<usize> {
    let mut found = Vec::new();
    let mut visit = |step: &Step| {
        step.for_each_slice(&mut |place, written| {
            if written {
                match place.buffer {
                    BufferRef::Fixed(id) => found.push(id.0 as usize),
                    BufferRef::DoubleBuffered(_, a, b) => found.extend([a.0 as usize, b.0 as usize]),
                }
            }
        });
    };
    match step {
        Step::Loop(l) => l.body.iter().for_each(&mut visit),
        Step::Branch { branches, .. } => branches.iter().flatten().for_each(&mut visit),
        step => visit(step),
    }
    found
}
