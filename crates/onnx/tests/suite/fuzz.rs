//! Corrupt files: for any bytes, the import ends with a model or an error, soon and with little memory.
//!
//! A few seconds by default; `ONNX_FUZZ_SECONDS=600` runs longer.

use super::support;
use ir::Literal;
use prost::Message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tensorloom_onnx::proto::{AttributeProto, GraphProto, ModelProto};
use tensorloom_onnx::{ImportOptions, InputInfo};
use testing::Rng;

fn pick<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.below(list.len())]
}

/// Flips, truncates, repeats and inserts bytes.
fn mangle(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + rng.below(6) {
        if out.is_empty() {
            break;
        }
        let at = rng.below(out.len());
        match rng.below(6) {
            0 => out[at] ^= 1 << rng.below(8),
            1 => out[at] = pick(rng, &[0, 1, 0x7f, 0x80, 0xff]),
            2 => out.truncate(at),
            3 => {
                let end = (at + 1 + rng.below(16)).min(out.len());
                out.drain(at..end);
            }
            4 => {
                let end = (at + 1 + rng.below(16)).min(out.len());
                let part = out[at..end].to_vec();
                out.splice(at..at, part);
            }
            _ => out.insert(at, rng.below(256) as u8),
        }
    }
    out
}

const NUMBERS: [i64; 14] = [0, 1, -1, 2, 3, 7, 64, -2, 1 << 20, 1 << 31, i64::MAX, i64::MIN, 1 << 40, -(1 << 33)];

fn bend_attribute(a: &mut AttributeProto, rng: &mut Rng) {
    match rng.below(6) {
        0 => a.i = Some(pick(rng, &NUMBERS)),
        1 if !a.ints.is_empty() => {
            let k = rng.below(a.ints.len());
            a.ints[k] = pick(rng, &NUMBERS);
        }
        2 => a.ints.push(pick(rng, &NUMBERS)),
        3 => a.f = Some(pick(rng, &[0.0, -1.0, 1e30, f32::NAN, f32::INFINITY])),
        4 => {
            if let Some(t) = &mut a.t {
                t.dims = (0..rng.below(4)).map(|_| pick(rng, &NUMBERS)).collect();
            }
        }
        _ => {
            if let Some(g) = &mut a.g {
                bend_graph(g, rng);
            }
        }
    }
}

/// Modifies the contents of a well-formed message.
fn bend_graph(g: &mut GraphProto, rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let (nodes, tensors) = (g.node.len(), g.initializer.len());
        match rng.below(8) {
            0 if nodes > 0 => {
                let node = &mut g.node[rng.below(nodes)];
                if !node.attribute.is_empty() {
                    let k = rng.below(node.attribute.len());
                    bend_attribute(&mut node.attribute[k], rng);
                }
            }
            1 if nodes > 0 => {
                let other = g.node[rng.below(nodes)].op_type.clone();
                g.node[rng.below(nodes)].op_type = other;
            }
            2 if nodes > 0 => {
                let names: Vec<String> = g.node.iter().flat_map(|n| n.output.iter().chain(&n.input)).cloned().collect();
                let node = &mut g.node[rng.below(nodes)];
                if !node.input.is_empty() && !names.is_empty() {
                    let k = rng.below(node.input.len());
                    node.input[k] =
                        if rng.bernoulli(0.2) { String::new() } else { names[rng.below(names.len())].clone() };
                }
            }
            3 if nodes > 0 => {
                let node = &mut g.node[rng.below(nodes)];
                let op = pick(
                    rng,
                    &[
                        "Reshape", "Conv", "Resize", "Pad", "Loop", "Slice", "Gather", "Tile", "Range", "Einsum",
                        "LSTM", "TopK", "Split", "Concat",
                    ],
                );
                node.op_type = Some(op.into());
            }
            4 if tensors > 0 => {
                let t = &mut g.initializer[rng.below(tensors)];
                match rng.below(3) {
                    0 => t.dims = (0..rng.below(5)).map(|_| pick(rng, &NUMBERS)).collect(),
                    1 => t.data_type = Some(rng.below(30) as i32),
                    _ => t.int64_data = vec![pick(rng, &NUMBERS); rng.below(4)],
                }
            }
            5 if nodes > 0 => drop(g.node.remove(rng.below(nodes))),
            6 if nodes > 0 => {
                let node = g.node[rng.below(nodes)].clone();
                g.node.push(node);
            }
            _ => {
                if let Some(a) = g.node.iter_mut().flat_map(|n| &mut n.attribute).next() {
                    bend_attribute(a, rng);
                }
            }
        }
    }
}

#[test]
fn broken_files_are_errors() {
    let seconds = std::env::var("ONNX_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4u64);
    let mut cases = support::read(&support::golden("nodes.bin.zz"));
    cases.extend(support::read(&support::golden("models.bin.zz")));
    let mut rng = Rng::new(std::env::var("ONNX_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x0ff));
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut tried, mut imported, mut slowest) = (0usize, 0usize, Duration::ZERO);
    while Instant::now() < until {
        let case = &cases[rng.below(cases.len())];
        let bytes = match ModelProto::decode(case.model.clone()) {
            Ok(mut model) if rng.bernoulli(0.6) => {
                if let Some(g) = &mut model.graph {
                    bend_graph(g, &mut rng);
                }
                model.encode_to_vec()
            }
            _ => mangle(&case.model, &mut rng),
        };
        let mut options = ImportOptions::default();
        // Values for wrong shapes too.
        if let Ok(model) = ModelProto::decode(&bytes[..])
            && rng.bernoulli(0.5)
        {
            for (info, _) in model.graph.iter().flat_map(|g| g.input.iter().zip(0..8)) {
                let n = rng.below(4);
                let list: Vec<i64> = (0..n).map(|_| pick(&mut rng, &NUMBERS)).collect();
                let given = match rng.below(3) {
                    0 => InputInfo::Value(Literal::new(&[n], &list)),
                    1 => InputInfo::Shape((0..n).map(|_| pick(&mut rng, &[0usize, 1, 3, 1 << 20, 1 << 40])).collect()),
                    _ => continue,
                };
                options.inputs.insert(info.name.clone().unwrap_or_default(), given);
            }
        }
        let timed = || {
            let start = Instant::now();
            (catch_unwind(AssertUnwindSafe(|| tensorloom_onnx::import(&bytes, &options))), start.elapsed())
        };
        let (result, mut took) = timed();
        // A busy machine may pause a process for this long, so slow cases are repeated.
        if took > Duration::from_secs(5) {
            took = took.min(timed().1);
        }
        slowest = slowest.max(took);
        let keep = |why: &str| -> ! {
            let path = std::env::temp_dir().join("broken.onnx");
            let _ = std::fs::write(&path, &bytes);
            panic!("{}: {why}; {} holds it, options {options:?}", case.name, path.display());
        };
        match result {
            Err(_) => keep("a panic"),
            Ok(_) if took > Duration::from_secs(5) => keep("it took too long"),
            Ok(Ok(model)) => {
                imported += 1;
                if let Err(e) = ir::verify::verify(&model.graph) {
                    keep(&e.to_string());
                }
            }
            Ok(Err(e)) => {
                if e.to_string().contains("node `` ") || e.to_string().contains("node  ") {
                    keep(&format!("an error that names no node: {e}"));
                }
            }
        }
        tried += 1;
    }
    println!("{tried} files, {imported} of them still models; the slowest took {slowest:?}");
    assert!(tried > 100, "{tried} files");
}
