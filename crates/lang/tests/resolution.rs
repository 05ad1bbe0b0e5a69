//! Imports: where they lead, under which names, in which version.

use lang::diagnostic::{Style, render_all};
use lang::resolve::{MemoryLoader, Program};

const RELU: &str = "  forward:\n    in: [*, n]\n    out: [*, n]\n    graph:\n      in -> relu() -> out\n";

fn module(name: &str) -> String {
    format!("module {name}(n: int = 4):\n{RELU}")
}

fn library() -> MemoryLoader {
    MemoryLoader::new()
        .with("std/modules/linear", "v1.0.0", &module("Linear"))
        .with("std/modules/linear", "v2.3.1", &module("Linear"))
        .with("std/modules/mlp", "v1.1.0", &format!("{}\n{}", module("Gated"), module("Plain")))
        .with("std/modules/attention/gqa", "v1.0.0", &module("GQA"))
        .with("models/parts", "local@1", &format!("{}\n{}", module("Norm"), module("Gate")))
        .with("models/deep/inner", "local@2", &module("Inner"))
}

/// Loads a file in `models/` with one import and one call, and returns the findings and the lock.
fn load(import: &str, call: &str) -> (String, String) {
    let text = format!("{import}\n\nmodule Main(n: int):\n{}", RELU.replace("relu()", call));
    let loader = library().with("models/main", "local", &text);
    let program = Program::load("models/main", &loader);
    let mut found = program.diagnostics.clone();
    found.extend(lang::check::check(&program).diagnostics);
    (render_all(&program.sources, &found, Style::Plain), program.lock.to_string())
}

#[test]
fn every_form_of_import_finds_its_module() {
    for (import, call, locked) in [
        ("import std.modules.linear", "Linear()", None),
        ("import std.modules.linear.Linear", "Linear()", Some("std.modules.linear: v2.3.1")),
        ("import std.modules.linear.Linear", "std.modules.linear.Linear()", None),
        ("import std.modules.linear.v1 as Line", "Line()", Some("std.modules.linear: v1.0.0")),
        ("import std.modules.{Linear, Gated as G}", "G()", Some("std.modules.mlp: v1.1.0")),
        ("import std.modules.attention.GQA as Attention", "Attention()", None),
        ("import std.modules.mlp", "mlp.Plain()", None),
        ("from std.modules.mlp import Gated, Plain as P", "P()", None),
        ("from parts import Norm", "Norm()", Some("models.parts: local@1")),
        ("import parts.*", "Gate()", None),
        ("import deep.inner.Inner", "Inner()", None),
        ("from models.deep.inner import Inner", "Inner()", Some("models.deep.inner: local@2")),
        ("import std.primitives\nimport primitives", "softmax()", None),
        ("import std.primitives.softmax.v1", "softmax()", None),
        ("import std.primitives.softmax as soft", "soft()", None),
    ] {
        // A file named after its only module stands for it under the file's name.
        let call = if import == "import std.modules.linear" { "linear()" } else { call };
        let (found, lock) = load(import, call);
        assert!(found.is_empty(), "{import}:\n{found}");
        assert!(locked.is_none_or(|entry| lock.contains(entry)), "{import}:\n{lock}");
    }
}

#[test]
fn a_matching_lock_is_silent() {
    let lock = "version: 1\nresolved_modules:\n  std.modules.linear: v2.3.1\n";
    let text = format!("from std.modules.linear import Linear\n\n{}", module("Main"));
    let loader = library().with("main", "local", &text).with_lock(lock);
    let program = Program::load("main", &loader);
    assert!(program.diagnostics.is_empty());
    assert_eq!(program.lock.to_string(), lock);
}

#[test]
fn a_missing_file_is_a_finding() {
    let program = Program::load("nowhere", &library());
    assert_eq!(program.diagnostics.len(), 1);
    assert_eq!(program.diagnostics[0].code, lang::Code::L002);
}
