//! The standard library: every file is clean, and its models lower to valid graphs with the backward that is written.

use ir::{DType, Literal, Scalar, Type, interp};
use lang::consteval::Value;
use lang::diagnostic::{Style, render_all};
use lang::library::{self, WithLibrary};
use lang::lower::{Options, lower};
use lang::resolve::{MemoryLoader, Program};
use std::collections::BTreeMap;

fn load(path: &str) -> Program {
    let program = Program::load(path, &WithLibrary(MemoryLoader::new()));
    let mut findings = program.diagnostics.clone();
    findings.extend(lang::check::check(&program).diagnostics);
    assert!(findings.is_empty(), "{}", render_all(&program.sources, &findings, Style::Plain));
    program
}

#[test]
fn every_model_is_clean_and_formatted() {
    for path in library::models() {
        let program = load(path);
        for (_, file) in program.sources.iter() {
            let tidy = lang::fmt::format(file.text()).expect("no mistakes");
            assert_eq!(tidy, file.text(), "{}", file.name());
        }
    }
}

fn sizes(given: &[(&str, i64)]) -> BTreeMap<String, Value> {
    given.iter().map(|(n, v)| ((*n).to_string(), Value::int(*v))).collect()
}

/// Small numbers that differ from place to place.
fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| match ty.dtype.is_int() {
        true => Scalar::from_i64(ty.dtype, ((i * 7 + seed) % 11) as i64),
        false => Scalar::from_f64(ty.dtype, ((i * 31 + seed * 17) % 23) as f64 / 23.0 - 0.45),
    })
}

#[test]
fn written_and_derived_backward_agree() {
    let program = load("std/models/llama");
    let item = program.export(0, "Llama").expect("the model");
    let given =
        sizes(&[("vocab_size", 11), ("d_model", 8), ("n_layers", 2), ("heads", 2), ("kv_heads", 1), ("d_ff", 12)]);
    let ids = Type::new(DType::I32, &[2, 5]);
    let mut gradients = Vec::new();
    for written_backward in [true, false] {
        let options = Options { dtype: DType::F64, written_backward, ..Options::default() };
        let lowered = lower(&program, item, &given, &[ids.clone()], &options)
            .unwrap_or_else(|d| panic!("{}", render_all(&program.sources, &[*d], Style::Plain)));
        assert_eq!(lowered.params.len(), 3 + 2 * 6);
        assert_eq!(lowered.params[1].path, "blocks[0].norm1.weight");
        ir::verify::verify(&lowered.graph).expect("a valid graph");
        let wrt: Vec<usize> = (0..lowered.params.len()).collect();
        let back = transform::vjp(&lowered.graph, &wrt).expect("differentiable");
        let types = back.input_types();
        let inputs: Vec<Literal> = types.iter().enumerate().map(|(i, t)| sample(t, i)).collect();
        let outs = interp::run(&back, &inputs).expect("runs");
        gradients.push(outs.iter().flat_map(|l| l.to_vec::<f64>()).collect::<Vec<f64>>());
    }
    let worst = (gradients[0].iter().zip(&gradients[1])).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst < 1e-10, "{worst}");
    assert!(gradients[0].iter().any(|g| g.abs() > 1e-3));
}
