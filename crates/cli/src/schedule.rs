//! The Schedule IR as JSON (§9.7.2): the steps in order, the buffers that they read and write, and the offsets of the buffers.

use compiler::Program;
use compiler::program::{BufferKind, BufferRef, BufferSlice, Step, TripCount};
use lang::lower::Lowered;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Returns a program as JSON.
pub(crate) fn schedule_json(name: &str, lowered: &Lowered, program: &Program) -> Json {
    let kind = |class: &BufferKind| match class {
        BufferKind::Input(i) if *i < lowered.params.len() => ("weight", Some(lowered.params[*i].path.clone())),
        BufferKind::Input(i) => ("input", lowered.inputs.get(i - lowered.params.len()).cloned()),
        BufferKind::Output(i) => ("output", lowered.outputs.get(*i).cloned()),
        BufferKind::Constant(_) => ("constant", None),
        BufferKind::Activation => ("activation", None),
    };
    let arena = |b: &compiler::program::Buffer| b.kind == BufferKind::Activation;
    let overlap = |a: &compiler::program::Buffer, b: &compiler::program::Buffer| {
        a.offset < b.offset + b.ty.bytes() && b.offset < a.offset + a.ty.bytes()
    };
    let buffers = program.buffers.iter().enumerate().map(|(id, buffer)| {
        let (kind, name) = kind(&buffer.kind);
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
            "lifetime_start": buffer.lifetime.map(|live| live.0),
            "lifetime_end": buffer.lifetime.map(|live| live.1),
            "aliases": shares.map(|(other, _)| other).collect::<Vec<_>>(),
        })
    });
    json!({
        "name": name,
        "buffers": buffers.collect::<Vec<_>>(),
        "ops": steps(&program.steps),
        "activation_bytes": program.arena_bytes,
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
                    let often = match &l.trip_count {
                        TripCount::Exact(n) => n.to_string(),
                        TripCount::Bounded { bound, .. } => format!("at most {bound}"),
                        TripCount::While { .. } => "while".to_string(),
                    };
                    (format!("loop {often}"), Some(steps(&l.body)))
                }
                Step::Branch { branches, .. } => {
                    ("branch".to_string(), Some(branches.iter().flat_map(|b| steps(b)).collect()))
                }
            };
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            if inner.is_none() {
                step.for_each_slice(&mut |place, written| {
                    let list = if written { &mut outputs } else { &mut inputs };
                    list.push(reference(place));
                });
            }
            json!({ "order": order, "kernel": kernel, "inputs": inputs, "outputs": outputs, "ops": inner })
        })
        .collect()
}

fn reference(place: &BufferSlice) -> Json {
    let id = match place.buffer {
        BufferRef::Fixed(id) => json!(id.0),
        BufferRef::DoubleBuffered(_, a, b) => json!([a.0, b.0]),
    };
    json!({ "buffer": id, "offset": place.offset })
}

/// Returns forward and backward as one schedule, with the pass of each op, the recomputed segments, and the residuals.
pub(crate) fn training_schedule_json(lowered: &Lowered, program: &Program) -> Json {
    let (params, results) = (lowered.params.len(), lowered.graph.outputs().len());
    let touched: Vec<(BTreeSet<usize>, BTreeSet<usize>)> = program.steps.iter().map(buffers_accessed).collect();
    // Forward is the steps that the results need. Of the other steps, those that don't depend on a cotangent are recomputation.
    let mut needed: BTreeSet<usize> = BTreeSet::new();
    let mut wanted: BTreeSet<usize> = ids(program, |class| matches!(class, BufferKind::Output(i) if *i < results));
    for (step, (reads, writes)) in touched.iter().enumerate().rev() {
        if writes.iter().any(|id| wanted.contains(id)) {
            needed.insert(step);
            wanted.extend(reads);
        }
    }
    let given = lowered.graph.inputs().len();
    let mut gradients: BTreeSet<usize> = ids(program, |class| matches!(class, BufferKind::Input(i) if *i >= given));
    let mut passes = Vec::new();
    for (step, (reads, writes)) in touched.iter().enumerate() {
        let tainted = reads.iter().any(|id| gradients.contains(id));
        passes.push(match (needed.contains(&step), tainted) {
            (true, _) => "forward",
            (false, true) => "backward",
            (false, false) => "recompute",
        });
        if tainted {
            gradients.extend(writes);
        }
    }
    let name = |class: &BufferKind| match class {
        BufferKind::Input(i) if *i < params => ("weight", Some(lowered.params[*i].path.clone())),
        BufferKind::Input(i) if *i < given => ("input", lowered.inputs.get(i - params).cloned()),
        BufferKind::Input(i) => ("gradient", lowered.outputs.get(i - given).map(|name| format!("d_{name}"))),
        BufferKind::Output(i) if *i < results => ("output", lowered.outputs.get(*i).cloned()),
        BufferKind::Output(i) => {
            let trained = lowered.params.iter().filter(|param| param.trainable).nth(i - results);
            ("gradient", trained.map(|param| format!("d_{}", param.path)))
        }
        BufferKind::Constant(_) => ("constant", None),
        BufferKind::Activation => ("activation", None),
    };
    let buffers = program.buffers.iter().enumerate().map(|(id, buffer)| {
        let (kind, name) = name(&buffer.kind);
        let kind = if kind == "activation" && gradients.contains(&id) { "gradient" } else { kind };
        json!({
            "id": id, "name": name, "kind": kind, "dtype": buffer.ty.dtype.to_string(),
            "shape": buffer.ty.shape.to_vec(), "size_bytes": buffer.ty.bytes(),
            "offset": (buffer.kind == BufferKind::Activation).then_some(buffer.offset),
            "lifetime_start": buffer.lifetime.map(|live| live.0), "lifetime_end": buffer.lifetime.map(|live| live.1),
        })
    });
    let buffers: Vec<Json> = buffers.collect();
    // Consecutive recomputed steps form a segment, with the buffers that it reads.
    let mut segments: Vec<(usize, usize, BTreeSet<usize>)> = Vec::new();
    let mut ops = steps(&program.steps);
    for (step, op) in ops.iter_mut().enumerate() {
        op["pass"] = passes[step].into();
        if passes[step] != "recompute" {
            continue;
        }
        match segments.last_mut() {
            Some((_, last, reads)) if *last + 1 == step => {
                *last = step;
                reads.extend(&touched[step].0);
            }
            _ => segments.push((step, step, touched[step].0.clone())),
        }
        op["recompute"] = (segments.len() - 1).into();
    }
    let segments = segments.iter().enumerate().map(|(id, (first, last, reads))| {
        let made: BTreeSet<usize> = touched[*first..=*last].iter().flat_map(|(_, writes)| writes).copied().collect();
        let frontier: Vec<usize> = reads.difference(&made).copied().collect();
        json!({ "id": id, "first_op": first, "last_op": last, "frontier": frontier })
    });
    let segments: Vec<Json> = segments.collect();
    // Buffers that forward writes and later steps read.
    let of = |pass: &str| -> BTreeSet<usize> {
        let steps = (0..passes.len()).filter(|step| (passes[*step] == "forward") == (pass == "forward"));
        let ids = steps.flat_map(|step| if pass == "forward" { &touched[step].1 } else { &touched[step].0 });
        ids.copied().collect()
    };
    let (made, read) = (of("forward"), of("rest"));
    let mut total = 0;
    let mut fields = Vec::new();
    for &id in made.intersection(&read).filter(|id| program.buffers[**id].kind == BufferKind::Activation) {
        let buffer = &program.buffers[id];
        let size = buffer.ty.bytes();
        fields.push(json!({
            "buffer": id, "offset": buffer.offset, "size_bytes": size, "dtype": buffer.ty.dtype.to_string(),
            "shape": buffer.ty.shape.to_vec(),
        }));
        total += size;
    }
    json!({
        "buffers": buffers,
        "ops": ops,
        "recompute_segments": segments,
        "activation_layout": { "fields": fields, "total_size": total },
        "sync_points": [],
        "activation_bytes": program.arena_bytes,
    })
}

fn ids(program: &Program, wanted: impl Fn(&BufferKind) -> bool) -> BTreeSet<usize> {
    let all = program.buffers.iter().enumerate();
    all.filter(|(_, buffer)| wanted(&buffer.kind)).map(|(id, _)| id).collect()
}

/// Returns the buffers that a step reads and those that it writes, including those of nested steps.
fn buffers_accessed(step: &Step) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
    let mut visit = |place: &BufferSlice, written: bool| {
        let list = if written { &mut writes } else { &mut reads };
        match place.buffer {
            BufferRef::Fixed(id) => {
                list.insert(id.0 as usize);
            }
            BufferRef::DoubleBuffered(_, a, b) => list.extend([a.0 as usize, b.0 as usize]),
        }
    };
    visit_slices(step, &mut visit);
    (reads, writes)
}

fn visit_slices(step: &Step, visit: &mut dyn FnMut(&BufferSlice, bool)) {
    match step {
        Step::Loop(l) => {
            if let TripCount::While { test, .. } = &l.trip_count {
                test.iter().for_each(|step| visit_slices(step, visit));
            }
            l.body.iter().for_each(|step| visit_slices(step, visit));
        }
        Step::Branch { branches, .. } => branches.iter().flatten().for_each(|step| visit_slices(step, visit)),
        step => step.for_each_slice(&mut |place, written| visit(place, written)),
    }
}
