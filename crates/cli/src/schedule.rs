//! The Schedule IR as JSON (§9.7.2): steps in order, the buffers they read and write, and where those lie.

use compiler::Program;
use compiler::program::{Class, Place, Slot, Step, Trip};
use lang::lower::Lowered;
use serde_json::{Value as Json, json};

/// A program as data.
pub(crate) fn json(name: &str, lowered: &Lowered, program: &Program) -> Json {
    let kind = |class: &Class| match class {
        Class::Input(i) if *i < lowered.params.len() => ("weight", Some(lowered.params[*i].path.clone())),
        Class::Input(i) => ("input", lowered.inputs.get(i - lowered.params.len()).cloned()),
        Class::Output(i) => ("output", lowered.outputs.get(*i).cloned()),
        Class::Constant(_) => ("constant", None),
        Class::Activation => ("activation", None),
    };
    let arena = |b: &compiler::program::Buffer| b.class == Class::Activation;
    let overlap = |a: &compiler::program::Buffer, b: &compiler::program::Buffer| {
        a.offset < b.offset + b.ty.bytes() && b.offset < a.offset + a.ty.bytes()
    };
    let buffers = program.buffers.iter().enumerate().map(|(id, buffer)| {
        let (kind, name) = kind(&buffer.class);
        let shares = program.buffers.iter().enumerate();
        let shares = shares.filter(|(other, b)| *other != id && arena(buffer) && arena(b) && overlap(buffer, b));
        json!({
            "id": id,
            "name": name,
            "kind": kind,
            "dtype": buffer.ty.dtype.to_string(),
            "shape": buffer.ty.shape.to_vec(),
            "size_bytes": buffer.ty.bytes(),
            "offset": arena(buffer).then_some(buffer.offset),
            "lifetime_start": buffer.live.map(|live| live.0),
            "lifetime_end": buffer.live.map(|live| live.1),
            "aliases": shares.map(|(other, _)| other).collect::<Vec<_>>(),
        })
    });
    json!({
        "name": name,
        "buffers": buffers.collect::<Vec<_>>(),
        "ops": steps(&program.steps),
        "activation_bytes": program.arena,
    })
}

fn steps(list: &[Step]) -> Vec<Json> {
    let order = list.iter().enumerate();
    order
        .map(|(order, step)| {
            let (kernel, inner) = match step {
                Step::Kernel { kernel, .. } => (kernel.name.clone(), None),
                Step::Matmul { shape: s, epilogue, .. } => {
                    let tail = if epilogue.is_some() { " with an epilogue" } else { "" };
                    (format!("matmul {}x{}x{}x{}{tail}", s.batch, s.m, s.n, s.k), None)
                }
                Step::Library { op, .. } => (compiler::program::library_name(op).to_string(), None),
                Step::Copy { .. } => ("copy".to_string(), None),
                Step::Zero { .. } => ("zero".to_string(), None),
                Step::Loop(l) => {
                    let often = match &l.trip {
                        Trip::Exact(n) => n.to_string(),
                        Trip::Bounded { bound, .. } => format!("at most {bound}"),
                        Trip::While { .. } => "while".to_string(),
                    };
                    (format!("loop {often}"), Some(steps(&l.body)))
                }
                Step::Branch { branches, .. } => {
                    ("branch".to_string(), Some(branches.iter().flat_map(|b| steps(b)).collect()))
                }
            };
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            if inner.is_none() {
                step.places(&mut |place, written| {
                    let list = if written { &mut outputs } else { &mut inputs };
                    list.push(reference(place));
                });
            }
            json!({ "order": order, "kernel": kernel, "inputs": inputs, "outputs": outputs, "ops": inner })
        })
        .collect()
}

fn reference(place: &Place) -> Json {
    let id = match place.slot {
        Slot::Fixed(id) => json!(id.0),
        Slot::Alternating(_, a, b) => json!([a.0, b.0]),
    };
    json!({ "buffer": id, "offset": place.offset })
}
