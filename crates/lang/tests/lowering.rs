//! Checks the values of lowered graphs: computed by hand, explicit backward graphs compared with derived ones, checkpoints.

use ir::{DType, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;
use tensorloom_lang::consteval::ConstValue;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, Lowered, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

const VALUES: &str = include_str!("modules/lower/values.module");
const BACKWARD: &str = include_str!("modules/lower/backward.module");

fn load(text: &str) -> ModuleProgram {
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    found.retain(tensorloom_lang::Diagnostic::is_error);
    assert!(found.is_empty(), "{}", render_all(&program.sources, &found, ColorStyle::Plain));
    program
}

fn lowered(
    program: &ModuleProgram,
    name: &str,
    given: &[(&str, ConstValue)],
    inputs: &[Type],
    written: bool,
) -> Lowered {
    let item = program.export(0, name).unwrap_or_else(|| panic!("{name}"));
    let given: BTreeMap<String, ConstValue> = given.iter().map(|(n, v)| ((*n).to_string(), v.clone())).collect();
    let options = LowerOptions { dtype: DType::F64, custom_backward: written, ..LowerOptions::default() };
    lower(program, item, &given, inputs, &options)
        .unwrap_or_else(|d| panic!("{name}: {}", render_all(&program.sources, &[*d], ColorStyle::Plain)))
}

fn f64s(shape: &[usize]) -> Type {
    Type::new(DType::F64, shape)
}

fn run(text: &str, name: &str, inputs: &[Literal]) -> Vec<Literal> {
    let types: Vec<Type> = inputs.iter().map(|l| l.ty().clone()).collect();
    let lowered = lowered(&load(text), name, &[], &types, true);
    interp::run(&lowered.graph, inputs).expect("runs")
}

fn check(found: &[Literal], expected: &[&[f64]]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let found: Vec<f64> = found.scalars().map(|s| s.to_f64()).collect();
        assert_eq!(found, *expected);
    }
}

#[test]
fn matmul_in_its_four_modes() {
    let a = Literal::new(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = Literal::new(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 2.0, 1.0]);
    let product: &[f64] = &[7.0, 5.0, 16.0, 11.0];
    let tn: &[f64] = &[1.0, 4.0, 6.0, 2.0, 5.0, 9.0, 3.0, 6.0, 12.0];
    let tt: Vec<f64> = tn.iter().map(|x| 2.0 * x).collect();
    check(&run(VALUES, "Products", &[a, b]), &[product, product, tn, &tt]);
}

#[test]
fn shapes_indices_and_reductions() {
    let x = Literal::new(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let expected: &[&[f64]] = &[
        &[3.0, 6.0],
        &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0],
        &[2.0, 3.0, 1.0, 1.0, 5.0, 6.0, 4.0, 4.0],
        &[2.0, 5.0],
        &[3.0, 6.0],
        &[0.0, 1.0, 2.0],
        &[2.5, 2.5],
    ];
    check(&run(VALUES, "Shapes", &[x]), expected);
}

#[test]
fn slices_of_stacked_residual_blocks() {
    let x = Literal::new(&[2], &[1.0, -2.0]);
    let factor = 1.5f64.powi(4);
    check(&run(VALUES, "Stack", &[x]), &[&[factor, -2.0 * factor]]);
}

/// Pseudo-random numbers; token IDs are below 5.
fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| {
        let mixed = ((i + 1) * 7919 + (seed + 3) * 104_729) % 1009;
        match ty.dtype.is_int() {
            true => Scalar::from_i64(ty.dtype, (mixed % 5) as i64),
            false => Scalar::from_f64(ty.dtype, mixed as f64 / 1009.0 - 0.48),
        }
    })
}

fn gradients(lowered: &Lowered) -> Vec<f64> {
    let types = lowered.graph.input_types();
    let wrt: Vec<usize> = (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect();
    let back = transform::vjp(&lowered.graph, &wrt).expect("differentiable");
    let inputs: Vec<Literal> = back.input_types().iter().enumerate().map(|(i, t)| sample(t, i)).collect();
    let outs = interp::run(&back, &inputs).expect("runs");
    outs.iter().flat_map(|l| l.to_vec::<f64>()).collect()
}

fn same(name: &str, a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(0f64, |m, x| m.max(x.abs()));
    let worst = a.iter().zip(b).fold(0f64, |m, (x, y)| m.max((x - y).abs()));
    assert!(size > 1e-3 && worst < 1e-10 * size.max(1.0), "{name}: {worst} of {size}");
}

#[test]
fn written_backward_agrees_with_derived() {
    let ids = |shape: &[usize]| Type::new(DType::I32, shape);
    let cases: &[(&str, Vec<Type>)] = &[
        ("Activations", vec![f64s(&[2, 3, 5])]),
        ("Norms", vec![f64s(&[2, 3, 6])]),
        ("Attention", vec![f64s(&[2, 4, 5, 4]), f64s(&[2, 2, 5, 4]), f64s(&[2, 2, 5, 4])]),
        ("Lookup", vec![ids(&[2, 3])]),
        ("Groups", vec![f64s(&[6, 4]), ids(&[3])]),
    ];
    let program = load(BACKWARD);
    for (name, inputs) in cases {
        let written = lowered(&program, name, &[], inputs, true);
        let derived = lowered(&program, name, &[], inputs, false);
        assert!(written.graph.to_string().contains("vjp"), "{name} has its own derivative");
        same(name, &gradients(&written), &gradients(&derived));
    }
}

#[test]
fn checkpoints_keep_gradients() {
    let program = ModuleProgram::load("std/models/llama", &LibraryLoader(MemoryLoader::new()));
    let sizes = [("vocab_size", 11), ("d_model", 8), ("n_layers", 3), ("heads", 2), ("kv_heads", 1), ("d_ff", 12)];
    let mut results = Vec::new();
    for checkpoint in [false, true] {
        let mut given: Vec<(&str, ConstValue)> = sizes.iter().map(|(n, v)| (*n, ConstValue::int(*v))).collect();
        given.push(("checkpoint", ConstValue::bool(checkpoint)));
        let lowered = lowered(&program, "Llama", &given, &[Type::new(DType::I32, &[2, 5])], true);
        assert_eq!(lowered.graph.to_string().contains("remat"), checkpoint);
        results.push(gradients(&lowered));
    }
    same("checkpoint", &results[1], &results[0]);
}

#[test]
fn what_cannot_be_lowered_is_a_finding() {
    let program =
        load("module M():\n  forward:\n    in: x: [2]\n    out: [2]\n    graph:\n      x -> all_reduce() -> out\n");
    let item = program.export(0, "M").expect("M");
    let found =
        lower(&program, item, &BTreeMap::new(), &[f64s(&[2])], &LowerOptions::default()).expect_err("a finding");
    assert_eq!(found.code, tensorloom_lang::Code::L001);
}
