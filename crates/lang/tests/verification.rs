//! `verify_backward` accepts every correct backward pass and finds the error in ten incorrect ones.

use ir::{DType, Type};
use std::collections::BTreeMap;
use tensorloom_lang::consteval::ConstValue;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::{self, LibraryLoader};
use tensorloom_lang::resolve::{ItemRef, MemoryLoader, ModuleProgram, ModuleView};
use tensorloom_lang::verify::{GradientCheck, GradientCheckError, verify_backward};

fn load(path: &str, text: Option<&str>) -> ModuleProgram {
    let loader = text.map_or(MemoryLoader::new(), |text| MemoryLoader::new().with(path, "v1.0.0", text));
    let program = ModuleProgram::load(path, &LibraryLoader(loader));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    found.retain(tensorloom_lang::Diagnostic::is_error);
    assert!(found.is_empty(), "{}", render_all(&program.sources, &found, ColorStyle::Plain));
    program
}

fn verify(program: &ModuleProgram, item: ItemRef, given: &[(&str, ConstValue)], inputs: &[Type]) -> Vec<GradientCheck> {
    let given: BTreeMap<String, ConstValue> = given.iter().map(|(n, v)| ((*n).to_string(), v.clone())).collect();
    verify_backward(program, item, &given, inputs).unwrap_or_else(|failure| match failure {
        GradientCheckError::Diagnostic(d) => panic!("{}", render_all(&program.sources, &[*d], ColorStyle::Plain)),
        GradientCheckError::Graph(e) => panic!("{e}"),
    })
}

fn f32s(shape: &[usize]) -> Type {
    Type::new(DType::F32, shape)
}

/// Constants and inputs for a module.
type Case<'a> = (Vec<(&'a str, ConstValue)>, Vec<Type>);

#[test]
fn every_written_backward_of_the_library_holds() {
    let mut seen = Vec::new();
    for path in library::files() {
        let program = load(path, None);
        for item in (0..program.files[0].ast.items.len()).map(|item| ItemRef { file: 0, item }) {
            let Some(view) = ModuleView::new(&program, item).filter(|view| view.backward.is_some()) else { continue };
            let name = view.decl.name.name.clone();
            // A new module with an explicit backward graph needs an entry here.
            let ints = |pairs: &[(&'static str, i64)]| -> Vec<(&'static str, ConstValue)> {
                pairs.iter().map(|(name, n)| (*name, ConstValue::int(*n))).collect()
            };
            let cases: Vec<Case<'_>> = match name.as_str() {
                "Linear" => vec![
                    (ints(&[("in_dim", 3), ("out_dim", 5)]), vec![f32s(&[2, 4, 3])]),
                    (
                        [ints(&[("in_dim", 3), ("out_dim", 5)]), vec![("use_bias", ConstValue::bool(true))]].concat(),
                        vec![f32s(&[4, 3])],
                    ),
                ],
                "SwiGLU_MLP" => vec![(ints(&[("d_model", 4), ("d_ff", 3)]), vec![f32s(&[2, 3, 4])])],
                "Embedding" => {
                    vec![(ints(&[("rows", 7), ("width", 3)]), vec![Type::new(DType::I32, &[2, 3])])]
                }
                "DenseTransformerBlock" => {
                    let sizes = ints(&[("d_model", 8), ("num_heads", 4), ("num_kv_heads", 2), ("d_ff", 6)]);
                    let normed = [sizes.clone(), vec![("use_qk_norm", ConstValue::bool(true))]].concat();
                    let stream = || vec![f32s(&[2, 3, 8]), f32s(&[2, 3, 8])];
                    vec![(sizes, stream()), (normed, stream())]
                }
                other => panic!("no case for `{other}`"),
            };
            for (given, inputs) in &cases {
                let checks = verify(&program, item, given, inputs);
                assert!(checks.iter().all(GradientCheck::passes), "{name}: {checks:?}");
                assert!(!checks.is_empty() && checks.iter().all(|check| !check.skipped));
            }
            seen.push(name);
        }
    }
    assert_eq!(seen, ["Linear", "SwiGLU_MLP", "Embedding", "DenseTransformerBlock"]);
}

#[test]
fn written_backwards_of_the_tests_hold() {
    let text = include_str!("modules/lower/backward.module");
    let program = load("m", Some(text));
    let cases = [
        ("Activations", vec![f32s(&[2, 3, 5])]),
        ("Norms", vec![f32s(&[2, 3, 6])]),
        ("Attention", vec![f32s(&[2, 4, 5, 4]), f32s(&[2, 2, 5, 4]), f32s(&[2, 2, 5, 4])]),
        ("Lookup", vec![Type::new(DType::I32, &[2, 3])]),
    ];
    for (name, inputs) in cases {
        let checks = verify(&program, program.export(0, name).expect("it"), &[], &inputs);
        assert!(checks.iter().all(GradientCheck::passes), "{name}: {checks:?}");
    }
    let program = load("m", Some(include_str!("modules/lower/contained.module")));
    let checks = verify(&program, program.export(0, "Sublayer").expect("it"), &[], &[f32s(&[3, 4])]);
    let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["norm", "gate.up", "gate.down", "scale.weight", "in"]);
    assert!(checks.iter().all(GradientCheck::passes), "{checks:?}");
}

/// A correct module: two projections with an activation and a norm between them; each error is one change of its text.
const RIGHT: &str = "module M(n: int = 3):
  params:
    w: [n, n]
    v: [n, n]
    g: [n]
  forward:
    in: [B, n]
    out: [B, n]
    graph:
      in -> matmul(w, transpose=NT) -> a
      a -> silu() -> b
      (b, g) -> rmsnorm(eps=0.00001) -> (c, rstd)
      c -> matmul(v, transpose=NT) -> e
      e -> matmul(w, transpose=NT) -> f
      (in, f) -> add() -> out
    save: [in, a, b, c, e, f, rstd]
  backward:
    d_out: [B, n]
    d_in: [B, n]
    graph:
      (d_out, w) -> matmul() -> d_e
      (d_out, saved.e) -> matmul(transpose=TN, accumulate=true) -> d_w
      (d_e, v) -> matmul() -> d_c
      (d_e, saved.c) -> matmul(transpose=TN) -> d_v
      (d_c, saved.b, g, saved.rstd) -> rmsnorm_backward(eps=0.00001) -> (d_b, d_g)
      (d_b, saved.a) -> silu_backward() -> d_a
      (d_a, saved.in) -> matmul(transpose=TN, accumulate=true) -> d_w
      (d_a, w) -> matmul() -> d_x
      (d_out, d_x) -> add() -> d_in
";

#[test]
fn ten_broken_backwards_are_found() {
    let wrong = |text: &str| -> Vec<String> {
        let program = load("m", Some(text));
        let checks = verify(&program, program.export(0, "M").expect("M"), &[], &[f32s(&[3, 3])]);
        checks.into_iter().filter(|check| !check.passes()).map(|check| check.name).collect()
    };
    assert_eq!(wrong(RIGHT), [""; 0]);
    let cases: &[(&str, &str, &str, &[&str])] = &[
        (
            "wrong transpose of a weight",
            "(d_e, v) -> matmul() -> d_c",
            "(d_e, v) -> matmul(transpose=NT) -> d_c",
            &["w", "g", "in"],
        ),
        (
            "wrong transpose of the first weight",
            "(d_a, w) -> matmul() -> d_x",
            "(d_a, w) -> matmul(transpose=NT) -> d_x",
            &["in"],
        ),
        (
            "missing accumulate",
            "(d_a, saved.in) -> matmul(transpose=TN, accumulate=true) -> d_w",
            "(d_a, saved.in) -> matmul(transpose=TN) -> unused",
            &["w"],
        ),
        ("wrong save", "(d_e, saved.c) ->", "(d_e, saved.b) ->", &["v"]),
        (
            "operands swapped",
            "(d_e, saved.c) -> matmul(transpose=TN)",
            "(saved.c, d_e) -> matmul(transpose=TN)",
            &["v"],
        ),
        (
            "derivative at the wrong tensor",
            "(d_b, saved.a) -> silu_backward()",
            "(d_b, saved.b) -> silu_backward()",
            &["w", "in"],
        ),
        ("another activation's derivative", "silu_backward()", "relu_backward()", &["w", "in"]),
        ("a step left out", "(d_b, saved.a) -> silu_backward() -> d_a", "d_b -> d_a", &["w", "in"]),
        ("the residual forgotten", "(d_out, d_x) -> add() -> d_in", "d_x -> d_in", &["in"]),
        (
            "a gradient scaled",
            "(d_e, v) -> matmul() -> d_c",
            "(d_e, v) -> matmul() -> scale(2.0) -> d_c",
            &["w", "g", "in"],
        ),
    ];
    assert_eq!(cases.len(), 10);
    for (what, right, broken, expected) in cases {
        assert!(RIGHT.matches(right).count() == 1, "{what}");
        let mut found = wrong(&RIGHT.replace(right, broken));
        found.retain(|name| expected.contains(&name.as_str()));
        assert_eq!(found, *expected, "{what}");
    }
}
