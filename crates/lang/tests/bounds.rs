//! Files that ask for more work than any model needs are refused quickly, and the bound is named.

use ir::{DType, Type};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tensorloom_lang::Code;
use tensorloom_lang::consteval::Value;
use tensorloom_lang::library::WithLibrary;
use tensorloom_lang::lower::{MAX_MODULES, MAX_STATEMENTS, Options, lower};
use tensorloom_lang::resolve::{MemoryLoader, Program};

fn refused(text: &str, given: &[(&str, i64)], bound: usize) {
    let started = Instant::now();
    let program = Program::load("m", &WithLibrary(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    let given: BTreeMap<String, Value> = given.iter().map(|(n, v)| ((*n).to_string(), Value::int(*v))).collect();
    let item = program.export(0, "M").expect("there");
    let failed = lower(&program, item, &given, &[Type::new(DType::F32, &[2, 4])], &Options::default());
    found.push(*failed.expect_err("too large"));
    let last = found.last().expect("a finding");
    assert_eq!(last.code, Code::L008, "{last:?}");
    assert!(last.message.contains(&bound.to_string()), "{last:?}");
    assert!(!last.primary.text.is_empty());
    // Other tests run at the same time; without a bound it takes years.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

const LAYER: &str = "\
block Layer(n: int = 4):
  params:
    w: [n]

  forward:
    in: [B, n]
    out: [B, n]
    graph:
      in -> mul(w) -> out
";

#[test]
fn long_arrays_are_refused() {
    let text = format!(
        "{LAYER}\nmodel M(layers: int = 100_000_000):\n  params:\n    blocks: [layers] x Layer()\n\n  forward:\n    in: [B, 4]\n    \
         out: [B, 4]\n    graph:\n      in -> StackedBlocks(blocks, layers) -> out\n"
    );
    refused(&text, &[], MAX_MODULES);
    refused(&text, &[("layers", 2_000_000_000)], MAX_MODULES);
    refused(&text, &[("layers", MAX_MODULES as i64 + 1)], MAX_MODULES);
}

/// Each module contains the one before twice.
#[test]
fn modules_nested_twice_are_refused() {
    let mut text = LAYER.replace("Layer", "M0");
    for depth in 1..=40 {
        let name = if depth == 40 { "M".to_string() } else { format!("M{depth}") };
        let inner = depth - 1;
        text += &format!(
            "\nmodule {name}(n: int = 4):\n  params:\n    a: M{inner}(n)\n    b: M{inner}(n)\n\n  forward:\n    in: [B, n]\n    \
             out: [B, n]\n    graph:\n      in -> a -> b -> out\n"
        );
    }
    refused(&text, &[], MAX_MODULES);
}

/// Modules without parameters, which are only called: nothing is declared, but every call is lowered.
#[test]
fn modules_that_call_twice_are_refused() {
    let mut text = "module M0():\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> silu() -> out\n"
        .to_string();
    for depth in 1..=40 {
        let name = if depth == 40 { "M".to_string() } else { format!("M{depth}") };
        let inner = depth - 1;
        text += &format!(
            "\nmodule {name}():\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      in -> M{inner}() -> x\n      \
             x -> M{inner}() -> out\n"
        );
    }
    refused(&text, &[], MAX_STATEMENTS);
}

/// What contains itself in any case is found by checking; what an `if` ends is fine.
#[test]
fn recursion_is_found_by_checking() {
    let codes = |text: &str| {
        let program = Program::load("m", &WithLibrary(MemoryLoader::new().with("m", "v1.0.0", text)));
        let mut found = program.diagnostics.clone();
        found.extend(tensorloom_lang::check::check(&program).diagnostics);
        found.iter().map(|d| (d.code, d.message.clone())).collect::<Vec<_>>()
    };
    let module = |name: &str, params: &str, graph: &str| {
        format!(
            "module {name}(n: int = 4):\n{params}  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n{graph}\n"
        )
    };
    let own = module("A", "  params:\n    inner: A(n)\n\n", "      in -> inner -> out\n");
    assert_eq!(codes(&own), [(Code::E007, "`A` contains itself".to_string())]);
    let called = module("A", "", "      in -> B() -> out\n") + &module("B", "", "      in -> A() -> out\n");
    let found = codes(&called);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(code, _)| *code == Code::E007), "{found:?}");
    let ended = module(
        "A",
        "  params:\n    inner: A(n - 1) if n > 0\n\n",
        "      if n > 0:\n        in -> inner -> out\n      else:\n        in -> out\n",
    );
    assert_eq!(codes(&ended), []);
    let program = Program::load("m", &WithLibrary(MemoryLoader::new().with("m", "v1.0.0", &ended)));
    let item = program.export(0, "A").expect("there");
    lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F32, &[2, 4])], &Options::default()).expect("it ends");
}
