//! Files that need more work than any model are rejected quickly, and the error names the limit.

use ir::{DType, Type};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tensorloom_lang::Code;
use tensorloom_lang::consteval::ConstValue;
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, MAX_MODULES, MAX_STATEMENTS, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

fn refused(text: &str, given: &[(&str, i64)], bound: usize) {
    let started = Instant::now();
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    let given: BTreeMap<String, ConstValue> =
        given.iter().map(|(n, v)| ((*n).to_string(), ConstValue::int(*v))).collect();
    let item = program.export(0, "M").expect("there");
    let failed = lower(&program, item, &given, &[Type::new(DType::F32, &[2, 4])], &LowerOptions::default());
    found.push(*failed.expect_err("too large"));
    let last = found.last().expect("a finding");
    assert_eq!(last.code, Code::L008, "{last:?}");
    assert!(last.message.contains(&bound.to_string()), "{last:?}");
    assert!(!last.primary.text.is_empty());
    // Other tests run at the same time; without the limit it would take years.
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

/// Each module contains the previous one twice.
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

/// Modules without parameters that are only called: nothing is declared, but every call is lowered.
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

/// Unconditional recursion is reported by the checker; recursion under an `if` is valid.
#[test]
fn recursion_is_found_by_checking() {
    let codes = |text: &str| {
        let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
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
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", &ended)));
    let item = program.export(0, "A").expect("there");
    lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F32, &[2, 4])], &LowerOptions::default())
        .expect("it ends");
}
