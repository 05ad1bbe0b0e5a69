//! Exported and re-imported graphs compute the same.

use super::support;
use ir::{Literal, interp};
use prost::Message;
use std::collections::BTreeSet;
use std::path::Path;
use tensorloom_onnx::{ExportNames, ImportOptions};
use testing::compare::{Tolerance, compare};

/// Ops without a counterpart in ONNX.
const REFUSED: [&str; 18] = [
    "bitcast",
    "cholesky",
    "conv",
    "digamma",
    "eigh",
    "erf_inv",
    "lgamma",
    "lu",
    "population_count",
    "qr",
    "shl",
    "shr",
    "sort",
    "svd",
    "triangular_solve",
    "window_gather_max",
    "window_gather_min",
    "window_scatter_max",
];

/// Writes a model and its data for `golden/onnx/check.py`.
fn write(folder: &Path, number: usize, row: &testing::OpSample, model: &[u8]) {
    let tensors = |list: &[Literal]| -> Vec<u8> {
        let mut bytes = Vec::new();
        for x in list {
            let t = tensorloom_onnx::tensor::proto("", x).encode_to_vec();
            bytes.extend((t.len() as u64).to_le_bytes());
            bytes.extend(t);
        }
        bytes
    };
    let results = interp::run(&row.graph, &row.inputs).expect("the row runs");
    let put = |end: &str, bytes: &[u8]| std::fs::write(folder.join(format!("{number}.{end}")), bytes).expect("written");
    put("onnx", model);
    put("name", row.name.as_bytes());
    put("in", &tensors(&row.inputs));
    put("out", &tensors(&results));
}

/// Collectives, which are exported as part of their `shard_map`.
const COLLECTIVES: [&str; 10] =
    ["psum", "pmax", "pmin", "pvary", "all_gather", "psum_scatter", "ppart", "all_to_all", "ppermute", "axis_index"];

/// Compares the re-imported row with the original.
fn compared(row: &testing::OpSample, bytes: &[u8]) -> Result<(), String> {
    let model = tensorloom_onnx::import(bytes, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let inputs: Vec<Literal> = support::arguments(&model, &row.inputs);
    let want = interp::run(&row.graph, &row.inputs).map_err(|e| e.to_string())?;
    let got = interp::run(&model.graph, &inputs).map_err(|e| e.to_string())?;
    if got.len() != want.len() {
        return Err("another number of outputs".into());
    }
    for (got, want) in got.iter().zip(&want) {
        let t = Tolerance::for_dtype(want.ty().dtype);
        compare(got, want, t.scaled(4.0)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[test]
fn every_row_of_the_table_survives() {
    let (mut refused, mut wrong, mut kept) = (BTreeSet::new(), Vec::new(), 0);
    let filter = std::env::var("ONNX_FILTER").unwrap_or_default();
    let rounds: u64 = std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    let seed = testing::rng::run_seed();
    let seeds = std::iter::once(None).chain((0..4 * rounds).map(|k| Some(seed.wrapping_add(k))));
    for (seed, row) in seeds.flat_map(|seed| {
        let rows = seed.map_or_else(testing::samples::all_samples, testing::samples::seeded_samples);
        rows.into_iter().map(move |row| (seed, row))
    }) {
        // ONNX rounds the product of `fma`, which may overflow where the sum doesn't; there is no wider type for f64.
        if !row.name.contains(&filter) || row.name == "fma/f64" {
            continue;
        }
        // If several updates hit the same element, ours rounds narrow floats after each of them; ONNX leaves this open.
        let narrow = |x: &Literal| x.ty().dtype.accumulator() != x.ty().dtype;
        let meet = ["scatter_add", "scatter_mul", "put_along"].contains(&row.op());
        if seed.is_some() && meet && row.inputs.iter().any(narrow) {
            continue;
        }
        let bytes = match tensorloom_onnx::export(&row.graph, &ExportNames::default()) {
            Ok(bytes) => bytes,
            Err(tensorloom_onnx::Error::Export { op, .. }) => {
                refused.insert(op);
                continue;
            }
            Err(e) => {
                wrong.push(format!("{}: {e}", row.name));
                continue;
            }
        };
        if let (None, Some(folder)) = (seed, std::env::var_os("ONNX_EXPORT")) {
            write(folder.as_ref(), kept + wrong.len(), &row, &bytes);
        }
        match compared(&row, &bytes) {
            Ok(()) => kept += 1,
            Err(e) => {
                let seed = seed.map_or(String::new(), |s| format!(", TENSORLOOM_SEED={s}"));
                wrong.push(format!("{}{seed}: {}", row.name, e.lines().next().unwrap_or_default()));
            }
        }
    }
    println!("{kept} kept, {} wrong; refused: {refused:?}", wrong.len());
    wrong.iter().take(60).for_each(|w| println!("{w}"));
    assert!(wrong.is_empty());
    let known =
        |op: &&str| REFUSED.contains(op) || COLLECTIVES.contains(op) || ["window_scatter_min", "zeta"].contains(op);
    let new: Vec<&str> = refused.iter().map(String::as_str).filter(|op| !known(op)).collect();
    assert!(new.is_empty(), "{new:?} can't be exported");
    assert!(kept > 0);
}
