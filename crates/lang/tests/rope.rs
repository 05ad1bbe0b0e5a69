//! Compares every variant of rotary embeddings with transformers. `golden/rope.py` generates the data.

use ir::{DType, Literal, Type, interp};
use std::collections::BTreeMap;
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

#[test]
fn tables_are_those_of_transformers() {
    let golden = include_str!("data/rope.txt");
    let mut lines = golden.lines();
    let mut kinds = Vec::new();
    while let (Some(words), Some(values)) = (lines.next(), lines.next()) {
        let pairs: Vec<(&str, &str)> = words.split(' ').filter_map(|word| word.split_once('=')).collect();
        let value = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| *v).expect("a word");
        let (rows, dim): (usize, usize) = (value("rows").parse().unwrap(), value("dim").parse().unwrap());
        let given = pairs.iter().filter(|(name, _)| *name != "rows");
        let given: Vec<String> = given
            .map(|(name, v)| if *name == "scaling" { format!("scaling=\"{v}\"") } else { format!("{name}={v}") })
            .collect();
        let text = format!(
            "module M():\n  constants:\n    freqs: precompute_rope_freqs({})\n  forward:\n    in: (q: [1, 1, T, {dim}], k: [1, 1, T, {dim}])\n    out: [1, 1, T, {dim}]\n    graph:\n      (q, k, freqs) -> rope() -> (out, rest)\n",
            given.join(", ")
        );
        let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", &text)));
        let item = program.export(0, "M").expect("M");
        let ty = Type::new(DType::F32, &[1, 1, rows, dim]);
        let types = [ty.clone(), ty];
        let lowered = lower(&program, item, &BTreeMap::new(), &types, &LowerOptions::default()).expect("lowers");
        // Ones in the first half of the features are rotated to cosines and sines.
        let ones: Vec<f32> = (0..rows * dim).map(|i| f32::from(i % dim < dim / 2)).collect();
        let ones = Literal::new(&[1, 1, rows, dim], &ones);
        let found: Vec<f32> = interp::run(&lowered.graph, &[ones.clone(), ones]).expect("runs")[0].to_vec();
        let expected: Vec<f32> = values.split(' ').map(|v| v.parse().unwrap()).collect();
        let last = &found[(rows - 1) * dim..];
        for (a, b) in last.iter().zip(&expected) {
            assert!((a - b).abs() < 2e-5, "{words}: {last:?} instead of {expected:?}");
        }
        kinds.push(value("scaling").to_string());
    }
    kinds.dedup();
    assert_eq!(kinds, ["default", "linear", "dynamic", "yarn", "longrope", "llama3"]);
}

/// Sizes come from files: a table that is far larger than any head is rejected before it is computed.
#[test]
fn tables_wider_than_heads_are_refused() {
    for dim in [10, 1 << 30] {
        let text = format!(
            "module M():\n  constants:\n    freqs: precompute_rope_freqs(dim={dim})\n  forward:\n    in: (q: [1, 1, T, 8], k: [1, 1, T, 8])\n    out: [1, 1, T, 8]\n    graph:\n      (q, k, freqs) -> rope() -> (out, rest)\n"
        );
        let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", &text)));
        let item = program.export(0, "M").expect("M");
        let ty = Type::new(DType::F32, &[1, 1, 3, 8]);
        let types = [ty.clone(), ty];
        let wrong = lower(&program, item, &BTreeMap::new(), &types, &LowerOptions::default()).err().expect("refused");
        let said = format!("{wrong:?}");
        assert!(said.contains(&format!("rotates {dim} elements of heads that have 8")), "{said}");
    }
}
