//! Sizes and values of parameters, identifiers as arguments, indices of arrays, 32-bit constants.

use ir::{DType, Type};
use std::collections::BTreeMap;
use tensorloom_lang::Code;
use tensorloom_lang::consteval::ConstValue;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, Lowered, check_given, input_types, lower};
use tensorloom_lang::resolve::{ItemRef, MemoryLoader, ModuleProgram};

fn load(text: &str) -> (ModuleProgram, Vec<tensorloom_lang::Diagnostic>) {
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    (program, found)
}

fn clean(text: &str) -> (ModuleProgram, ItemRef) {
    let (program, found) = load(text);
    assert!(found.is_empty(), "{}", render_all(&program.sources, &found, ColorStyle::Plain));
    let item = program.export(0, "M").expect("there");
    (program, item)
}

fn given(values: &[(&str, ConstValue)]) -> BTreeMap<String, ConstValue> {
    values.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect()
}

const SIZED: &str = "\
module M(d: int = 8, heads: int = 2, mode: enum(fast, slow) = fast, eps: float = 0.5, deep: bool = false):
  let:
    N: batch_dim
    S: seq_dim
    h = d // heads
    wide = 2 * h + 1
    rows = S * heads

  forward:
    in: (x: [N, rows, h, wide - 1], y: [N, heads * h, 3], z: [N, ceil_div(d, 3)]?)
    out: [N, rows, h, 2 * h]
    graph:
      x -> relu() -> out
";

#[test]
fn inputs_may_have_sizes_of_let_and_arithmetic() {
    let (program, item) = clean(SIZED);
    let sizes = |values: &[(&str, ConstValue)]| {
        let free = |name: &str, role: Option<&str>| match (name, role) {
            (_, Some("batch_dim")) => Some(3),
            (_, Some("seq_dim")) => Some(5),
            _ => None,
        };
        input_types(&program, item, &given(values), &free, &[], DType::F32)
    };
    let shapes = |types: Vec<Type>| types.iter().map(|ty| ty.shape.to_vec()).collect::<Vec<_>>();
    let found = shapes(sizes(&[]).expect("sizes"));
    assert_eq!(found, [vec![3, 10, 4, 8], vec![3, 8, 3], vec![3, 3]]);
    let found = shapes(sizes(&[("d", ConstValue::int(12)), ("heads", ConstValue::int(3))]).expect("sizes"));
    assert_eq!(found, [vec![3, 15, 4, 8], vec![3, 12, 3], vec![3, 4]]);
    // A division by zero is reported at its location, and a negative size is an error.
    let zero = sizes(&[("heads", ConstValue::int(0))]).expect_err("a finding");
    assert!(zero.message.contains("division by zero"), "{zero:?}");
    let zero = lower(&program, item, &given(&[("heads", ConstValue::int(0))]), &[], &LowerOptions::default())
        .expect_err("a finding");
    assert!(zero.message.contains("division by zero"), "{zero:?}");
    let negative = sizes(&[("d", ConstValue::int(-4))]).expect_err("a finding");
    assert!(negative.message.contains("negative"), "{negative:?}");
}

#[test]
fn given_values_are_checked_by_name_and_kind() {
    let (program, item) = clean(SIZED);
    let text = |s: &str| ConstValue::Str(s.to_string());
    for (name, value, expected) in [
        ("nosuch", ConstValue::int(3), "has no parameter `nosuch`"),
        ("head", ConstValue::int(3), "did you mean `heads`?"),
        ("d", text("eight"), "must be an integer"),
        ("d", ConstValue::Float(Some(1.5)), "must be an integer"),
        ("d", ConstValue::int(1 << 40), "32 bits"),
        ("eps", text("small"), "must be a number"),
        ("deep", ConstValue::int(1), "true or false"),
        ("mode", text("medium"), "one of fast, slow"),
        ("N", ConstValue::int(-2), "negative"),
        ("wide", ConstValue::int(3), "has no parameter"),
    ] {
        let fault = check_given(&program, item, &given(&[(name, value)])).expect_err(name);
        assert!(fault.contains(expected), "{name}: {fault}");
    }
    let checked = check_given(
        &program,
        item,
        &given(&[("mode", text("slow")), ("eps", ConstValue::int(1)), ("N", ConstValue::int(2))]),
    );
    assert_eq!(checked.expect("fine")["mode"], ConstValue::Identifier("slow".into()));
}

fn lowered(text: &str) -> Lowered {
    let (program, item) = clean(text);
    lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F32, &[2, 4])], &LowerOptions::default())
        .unwrap_or_else(|d| panic!("{}", render_all(&program.sources, &[*d], ColorStyle::Plain)))
}

const LAYER: &str = "\
block Layer(mode: enum(plain, gated) = plain):
  params:
    w: [4]

  forward:
    in: [B, 4]
    out: [B, 4]
    graph:
      in -> mul(w) -> a
      if mode == gated:
        a -> silu() -> out
      else:
        a -> out

";

#[test]
fn words_of_an_enum_are_arguments() {
    let model = |arguments: &str| {
        format!(
            "{LAYER}module M():\n  params:\n    one: Layer({arguments})\n\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> one -> out\n"
        )
    };
    for (arguments, gated) in [("gated", true), ("mode=gated", true), ("plain", false), ("", false)] {
        assert_eq!(lowered(&model(arguments)).graph.to_string().contains("silu"), gated, "{arguments}");
    }
    let (_, found) = load(&model("weird"));
    assert!(found.iter().any(tensorloom_lang::Diagnostic::is_error), "{found:?}");
}

#[test]
fn arrays_are_indexed_from_the_end() {
    let model = |call: &str| {
        format!(
            "{LAYER}module M():\n  params:\n    last: [3] x Layer()\n\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> {call} -> out\n"
        )
    };
    let run = |call: &str| lowered(&model(call)).graph.to_string();
    assert_eq!(run("last[-1]()"), run("last[2]()"));
    assert_eq!(run("last[-2:]()"), run("last[1:3]()"));
    assert_eq!(run("last[:-1]()"), run("last[0:2]()"));
    assert_ne!(run("last[-1]()"), run("last[0]()"));
    for wrong in ["last[-4]()", "last[3]()", "last[2:1]()", "last[:-5]()"] {
        let (_, found) = load(&model(wrong));
        assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::E004], "{wrong}");
    }
}

#[test]
fn constants_have_32_bits() {
    let model = |lets: &str| {
        format!(
            "module M(d: int = 4):\n  let:\n    {lets}\n\n  forward:\n    in: [B, d]\n    out: [B, d]\n    graph:\n      in -> relu() -> out\n"
        )
    };
    for wrong in ["a = 3_000_000_000", "a = 65536 * 65536", "a = 2 ** 31", "a = 1.0e39"] {
        let (program, found) = load(&model(wrong));
        let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
        assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::E003], "{wrong}: {drawn}");
        assert!(drawn.contains("32 bits"), "{drawn}");
    }
    for fine in ["a = 2_147_483_647", "a = -2_147_483_648 + 1", "a = 1.0e38", "a = 2 ** 30"] {
        let (_, found) = load(&model(fine));
        assert!(found.is_empty(), "{fine}: {found:?}");
    }
    // A constant that overflows only for certain sizes is reported when they are known.
    let (program, item) = clean(&model("a = d * 65536 * 65536"));
    let found = lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F32, &[2, 4])], &LowerOptions::default());
    assert!(found.expect_err("a finding").message.contains("32 bits"));
}

/// `_` is valid only as an empty body or branch.
#[test]
fn a_lone_underscore_is_an_empty_body() {
    let text = "module M(norm: bool = true):\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> relu() -> out\n      if norm:\n        out -> silu() -> unused\n      else:\n        _\n\nmodule Same() extends M:\n  _\n";
    let (program, _) = clean(text);
    assert_eq!(tensorloom_lang::fmt::format(text).expect("no mistakes"), text);
    let item = program.export(0, "Same").expect("there");
    lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F32, &[2, 4])], &LowerOptions::default())
        .expect("lowers");
}

/// `flash_attention_backward` with softcap, a window and slopes is the derivative of the forward op with them.
#[test]
fn attention_backward_has_all_options_of_forward() {
    let text = |options: &str, slopes: &str| {
        format!(
            "module M():\n  params:\n    slopes: [2] @frozen\n\n  forward:\n    in: (q: [1, 2, 5, 4], k: [1, 1, 5, 4], v: [1, 1, 5, 4])\n    \
             out: out: [1, 2, 5, 4]\n    graph:\n      (q, k, v) -> flash_attention({options}{slopes}) -> (out, lse)\n    \
             save: [q, k, v, out, lse]\n\n  backward:\n    d_out: [1, 2, 5, 4]\n    graph:\n      \
             (d_out, saved.q, saved.k, saved.v, saved.out, saved.lse) -> flash_attention_backward({options}{slopes}) -> (d_q, d_k, d_v)\n"
        )
    };
    let types: Vec<Type> = [2, 1, 1].iter().map(|heads| Type::new(DType::F64, &[1, *heads, 5, 4])).collect();
    for (options, slopes) in [
        ("causal=true", ""),
        ("causal=true, softcap=0.7", ""),
        ("causal=true, softcap=0.7, window_size=2", ", alibi_slopes=slopes"),
        ("causal=false, softmax_scale=0.3", ", alibi_slopes=slopes"),
        ("causal=true", ", alibi_slopes=[0.5, 0.25]"),
    ] {
        let (program, found) = load(&text(options, slopes));
        let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
        assert!(found.iter().all(|d| !d.is_error()), "{drawn}");
        let item = program.export(0, "M").expect("there");
        let checks = tensorloom_lang::verify::verify_backward(&program, item, &BTreeMap::new(), &types);
        let checks = checks.unwrap_or_else(|e| panic!("{options}{slopes}: {e:?}"));
        for check in checks.iter().filter(|check| check.name != "slopes") {
            assert!(check.passes(), "{options}{slopes}: {check:?}");
        }
    }
    let (program, _) = load(&text("causal=true, window_size=-1", ""));
    let item = program.export(0, "M").expect("there");
    lower(&program, item, &BTreeMap::new(), &types, &LowerOptions::default()).expect_err("a negative window");
}

/// §10.2's `Linear(in, out, bias=true)`, where a flag and a tensor have the same name, and the ways to pass the tensor.
#[test]
fn a_flag_may_have_the_name_of_its_tensor() {
    let instance = |arguments: &str| {
        format!(
            "from std.modules.linear import Linear\n\nmodule M():\n  params:\n    l: Linear(4, 4{arguments})\n\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> l -> out\n"
        )
    };
    for (arguments, count) in [("", 1), (", bias=true", 2), (", true", 2), (", use_bias=true", 2), (", bias=false", 1)]
    {
        assert_eq!(lowered(&instance(arguments)).params.len(), count, "{arguments}");
    }
    let called = |call: &str| {
        format!(
            "from std.modules.linear import Linear\n\nmodule M(bias: bool = true):\n  params:\n    w: [4, 4]\n    bias: [4] if bias\n\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> {call} -> out\n"
        )
    };
    let sum = |call: &str| lowered(&called(call)).graph.to_string();
    assert!(sum("Linear(w, bias=bias if bias else None)").contains("add("));
    assert!(!sum("Linear(w)").contains("add("));
}

/// Division of integers gives a float; a fraction is not truncated.
#[test]
fn whole_numbers_divide_truly() {
    let run = |graph: &str| {
        let text = format!(
            "module M():\n  forward:\n    in: (a: [N, int32], b: [N, int32])\n    out: [N]\n    graph:\n      {graph}\n"
        );
        let (program, item) = clean(&text);
        let types = [Type::new(DType::I32, &[3]), Type::new(DType::I32, &[3])];
        let made = lower(&program, item, &BTreeMap::new(), &types, &LowerOptions::default())?;
        let given = [[7, -7, 1], [2, 2, 4]].map(|x| ir::Literal::new(&[3], &x.map(|v: i32| v)));
        let out = ir::interp::run(&made.graph, &given).expect("runs");
        Ok::<_, Box<tensorloom_lang::Diagnostic>>((out[0].ty().dtype, out[0].to_vec::<f32>()))
    };
    assert_eq!(run("(a, b) -> div() -> out").unwrap(), (DType::F32, vec![3.5, -3.5, 0.25]));
    assert_eq!(run("a -> div(b) -> out").unwrap(), (DType::F32, vec![3.5, -3.5, 0.25]));
    assert_eq!(run("a -> div(2) -> out").unwrap(), (DType::F32, vec![3.5, -3.5, 0.5]));
    let cut = run("a -> mul(0.5) -> out").unwrap_err();
    assert!(cut.message.contains("fraction"), "{}", cut.message);
}
