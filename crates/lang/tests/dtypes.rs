//! Operands of several dtypes (§7.4.4): the result has the widest dtype in any order, and narrowing is a warning (W005).

use ir::{DType, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;
use tensorloom_lang::Code;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

fn load(text: &str) -> (ModuleProgram, Vec<tensorloom_lang::Diagnostic>) {
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    (program, found)
}

/// The value `y` of a graph with tensors `a` and `b` of the given dtypes, and the checker's dtype of it.
fn result(call: &str, a: &str, b: &str, more: &str) -> (Type, Vec<f64>, Option<String>) {
    let text = format!(
        "module M(n: int = 4):\n  params:\n    w: [n]\n\n  forward:\n    in: (a: [2, n, {a}], b: [2, n, {b}])\n    out: y\n    \
         graph:\n      {call}\n{more}"
    );
    let (program, found) = load(&text);
    let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
    assert!(found.iter().all(|d| !d.is_error()), "{text}\n{drawn}");
    let checked =
        tensorloom_lang::check::check(&program).modules[0].variants[0].forward.get("y").and_then(|ty| ty.dtype.clone());
    let item = program.export(0, "M").expect("there");
    let input = Type::new(DType::F32, &[2, 4]);
    let lowered = lower(&program, item, &BTreeMap::new(), &[input.clone(), input], &LowerOptions::default())
        .unwrap_or_else(|d| panic!("{text}\n{}", render_all(&program.sources, &[*d], ColorStyle::Plain)));
    let ty = lowered.graph.output_types()[0].clone();
    let inputs: Vec<Literal> = (lowered.graph.input_types().iter().enumerate())
        .map(|(k, ty)| {
            Literal::from_fn(ty.clone(), |i| Scalar::from_f64(ty.dtype, ((i * 7 + k * 3) % 11) as f64 / 8.0))
        })
        .collect();
    let outs = interp::run(&lowered.graph, &inputs).expect("runs");
    (ty, outs[0].scalars().map(|s| s.to_f64()).collect(), checked)
}

const CALLS: &[&str] = &[
    "({a}, {b}) -> add() -> y",
    "({a}, {b}) -> mul() -> y",
    "({a}, {b}) -> add3(w) -> y",
    "({a}, {b}) -> concat(dim=-1) -> y",
    "({a}, {b}) -> swiglu() -> y",
    "({a}, {b}) -> geglu() -> y",
    "({a}, {b}) -> silu_mul() -> y",
    "({a}, {b}) -> matmul(transpose=NT) -> y",
    "({a}, {b}) -> batched_matmul(transpose=NT) -> y",
    "({a}, {b}) -> fused_residual_rmsnorm(w) -> (r, y)",
    "({a}, {b}) -> bias_add() -> y",
];

#[test]
fn results_are_of_the_widest_dtype_in_any_order() {
    let wide = |a: &str, b: &str| match (a, b) {
        (a, b) if a == b => a.to_string(),
        // No narrower type represents both 16-bit formats.
        _ => "fp32".to_string(),
    };
    let dtype = |name: &str| match name {
        "fp32" => DType::F32,
        "bf16" => DType::BF16,
        _ => DType::F16,
    };
    for call in CALLS {
        // A parameter `w` has the model's dtype, which is fp32 here.
        let weighted = call.contains('w') && call.contains("(w)");
        for a in ["fp32", "bf16", "fp16"] {
            for b in ["fp32", "bf16", "fp16"] {
                let want = if weighted { "fp32".to_string() } else { wide(a, b) };
                for (x, y) in [("a", "b"), ("b", "a")] {
                    let text = call.replace("{a}", x).replace("{b}", y);
                    let (ty, _, checked) = result(&text, a, b, "");
                    assert_eq!(ty.dtype, dtype(&want), "{text} of {a} and {b}");
                    assert!(checked.is_none_or(|checked| checked == want), "{text} of {a} and {b}: the checker");
                }
            }
        }
    }
}

#[test]
fn sums_do_not_depend_on_the_order_of_operands() {
    for made in ["ones([2, n], dtype=bf16)", "fill([2, n], 0.3, dtype=fp16)", "zeros([2, n], dtype=bf16)"] {
        for op in ["add", "mul", "sub"] {
            let sign = if op == "sub" { -1.0 } else { 1.0 };
            let first = result(&format!("{made} -> o\n      (o, a) -> {op}() -> y"), "fp32", "fp32", "");
            let second = result(&format!("{made} -> o\n      (a, o) -> {op}() -> y"), "fp32", "fp32", "");
            assert_eq!((first.0.dtype, second.0.dtype), (DType::F32, DType::F32), "{made}");
            assert!(first.1.iter().zip(&second.1).all(|(x, y)| *x == sign * y), "{made} {op}: {first:?} {second:?}");
        }
    }
    // A primitive with several results.
    let (ty, ..) = result(
        "zeros([2, n], dtype=bf16) -> o\n      (o, a) -> fused_residual_rmsnorm(w) -> (r, y)",
        "fp32",
        "fp32",
        "",
    );
    assert_eq!(ty.dtype, DType::F32);
}

/// Declared dtypes apply at the boundary of a module; an implicit conversion to a narrower one is a warning.
#[test]
fn narrowing_without_a_word_is_a_warning() {
    let text = |out: &str, note: &str| {
        format!(
            "module Narrow(n: int = 4):\n  forward:\n    in: [B, n, bf16]\n    out: [B, n]\n    graph:\n      in -> silu() -> out\n\n\
             module M(n: int = 4):\n  forward:\n    in: (a: [B, n, fp32], b: [B, n, bf16])\n    out: {out}\n    \
             graph:\n      (b, a) -> add() -> c\n      c -> Narrow() -> d\n      (b, c) -> mul() -> y{note}\n"
        )
    };
    let warned = |text: &str| {
        let (program, found) = load(text);
        let item = program.export(0, "M").expect("there");
        let input = Type::new(DType::F32, &[2, 4]);
        let lowered = lower(&program, item, &BTreeMap::new(), &[input.clone(), input], &LowerOptions::default());
        let dtype = lowered.expect("lowers").graph.output_types()[0].dtype;
        assert!(
            found.iter().all(|d| d.code == Code::W005),
            "{}",
            render_all(&program.sources, &found, ColorStyle::Plain)
        );
        (found.len(), dtype)
    };
    // `c` is fp32 and is passed to a bf16 module; `y` is fp32 and declared as bf16.
    assert_eq!(warned(&text("y: [B, n, bf16]", "")), (2, DType::BF16));
    assert_eq!(warned(&text("y: [B, n, bf16]", " @dtype(bf16)")), (1, DType::BF16));
    assert_eq!(warned(&text("y: [B, n] @dtype(bf16)", "")), (1, DType::BF16));
    assert_eq!(warned(&text("y: [B, n]", "")), (1, DType::F32));
}

/// In bf16, an explicit backward graph stays in bf16 although saved sums of the forward pass are wider.
#[test]
fn backward_graphs_keep_the_dtype_of_the_model() {
    let program = ModuleProgram::load("std/blocks/dense", &LibraryLoader(MemoryLoader::new()));
    let item = program.export(0, "DenseTransformerBlock").expect("there");
    let sizes = [("d_model", 8), ("num_heads", 2), ("num_kv_heads", 1), ("d_ff", 12)];
    let given =
        sizes.iter().map(|(n, v)| ((*n).to_string(), tensorloom_lang::consteval::ConstValue::int(*v))).collect();
    let input = Type::new(DType::BF16, &[1, 3, 8]);
    let options = LowerOptions { dtype: DType::BF16, ..LowerOptions::default() };
    let lowered = lower(&program, item, &given, &[input.clone(), input], &options)
        .unwrap_or_else(|d| panic!("{}", render_all(&program.sources, &[*d], ColorStyle::Plain)));
    let wrt: Vec<usize> = (0..lowered.graph.inputs().len()).collect();
    let back = transform::vjp(&lowered.graph, &wrt).expect("differentiable");
    assert!(back.output_types().iter().all(|ty| ty.dtype == DType::BF16), "{:?}", back.output_types());
}
