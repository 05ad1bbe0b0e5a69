//! Imports: their targets, names and versions.

use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

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

/// Loads a file in `models/` with one import and one call, and returns the diagnostics and the lock file.
fn load(import: &str, call: &str) -> (String, String) {
    let text = format!("{import}\n\nmodule Main(n: int):\n{}", RELU.replace("relu()", call));
    let loader = library().with("models/main", "local", &text);
    let program = ModuleProgram::load("models/main", &loader);
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    (render_all(&program.sources, &found, ColorStyle::Plain), program.lock.to_string())
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
        // A file named after its only module is an alias of it under the file's name.
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
    let program = ModuleProgram::load("main", &loader);
    assert!(program.diagnostics.is_empty());
    assert_eq!(program.lock.to_string(), lock);
}

#[test]
fn a_missing_file_is_a_finding() {
    let program = ModuleProgram::load("nowhere", &library());
    assert_eq!(program.diagnostics.len(), 1);
    assert_eq!(program.diagnostics[0].code, tensorloom_lang::Code::L002);
}

fn findings(program: &ModuleProgram) -> String {
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(program).diagnostics);
    render_all(&program.sources, &found, ColorStyle::Plain)
}

/// Imports of the standard library (§10.1) and of a project (§4.7.1), with the real library.
#[test]
fn the_library_and_a_project_are_searched_in_order() {
    let own = MemoryLoader::new()
        .with("std/extra/gates", "local@1", &module("Gate"))
        .with("std/modules/mine", "local@2", &module("Mine"))
        .with("parts/llama", "local@3", &format!("{}\n{}", module("Llama"), module("Attention")))
        .with("parts/deep/more", "local@4", &module("More"));
    for (import, call) in [
        // A project's own files under `std`, besides the library's.
        ("from std.extra.gates import Gate", "Gate()"),
        ("import std.modules.Mine", "Mine()"),
        ("import std.modules.mine", "std.modules.mine.Mine()"),
        // Files named after a declaration: the others are members of the qualified name.
        ("import parts.llama", "parts.llama.Attention()"),
        ("import parts.llama", "llama()"),
        ("import parts.llama.*", "Attention() -> Llama()"),
        ("import parts.deep.*", "More()"),
        ("import parts.deep.more.*", "More()"),
        // Primitives: one by one, by file, and as files.
        ("import std.primitives.*", "softmax()"),
        ("import std.primitives.activation", "activation.silu()"),
        ("from std.primitives.activation import silu as soft", "soft()"),
        ("import std.primitives.activation.relu", "relu()"),
        ("import std.primitives.activation", "std.primitives.activation.relu()"),
        // In the spelling of modules (§5.3, §5.4).
        ("", "ReLU() -> Softmax()"),
    ] {
        let text = format!("{import}\n\nmodule Main(n: int):\n{}", RELU.replace("relu()", call));
        let loader = LibraryLoader(own.clone().with("main", "local", &text));
        let found = findings(&ModuleProgram::load("main", &loader));
        assert!(found.is_empty(), "{import}:\n{found}");
    }
    for (import, name) in [
        ("from std.modules.attention.mha import MHA", "MHA(8, 2)"),
        ("from std.modules.attention.gqa import GQA", "GQA(8, 2, 1)"),
        ("from std.modules.attention.mqa import MQA", "MQA(8, 2)"),
        ("import std.modules.attention.gqa", "gqa(8, 2, 1)"),
        ("import std.modules.attention", "attention.MHA(8, 2)"),
        ("from std.modules.moe.expert import ExpertMLP", "ExpertMLP(8, 16)"),
        ("from std.modules.norm import RMSNormParams", "RMSNormParams(8)"),
    ] {
        let text = format!(
            "{import}\n\nmodule Main():\n  params:\n    inner: {name}\n\n  forward:\n    in: [B, T, 8]\n    out: [B, T, 8]\n    \
             graph:\n      in -> inner -> out\n"
        );
        let program = ModuleProgram::load("main", &LibraryLoader(MemoryLoader::new().with("main", "local", &text)));
        let found = findings(&program);
        assert!(found.is_empty(), "{import}:\n{found}");
        let item = program.export(0, "Main").expect("there");
        let input = ir::Type::new(ir::DType::F32, &[1, 4, 8]);
        let lowered = tensorloom_lang::lower::lower(&program, item, &Default::default(), &[input], &Default::default());
        lowered.unwrap_or_else(|d| panic!("{import}: {}", render_all(&program.sources, &[*d], ColorStyle::Plain)));
    }
    let text = "from std.modules.moe.router import Router\nimport std.models.qwen\n\nmodule Main():\n  params:\n    r: Router(8, 4)\n\n  \
                forward:\n    in: [B, T, 8]\n    out: y: [B * T, 2]\n    graph:\n      in -> r -> (y, i, aux)\n";
    let found = findings(&ModuleProgram::load("main", &LibraryLoader(MemoryLoader::new().with("main", "local", text))));
    assert!(found.is_empty(), "{found}");
}

/// The files of primitives agree with the compiler's table.
#[test]
fn files_of_primitives_are_the_table() {
    use tensorloom_lang::check::primitives;
    let mut seen = Vec::new();
    for path in tensorloom_lang::library::files().filter(|path| path.starts_with("std/primitives/")) {
        let program = ModuleProgram::load(path, &LibraryLoader(MemoryLoader::new()));
        for item in 0..program.files[0].ast.items.len() {
            let item = tensorloom_lang::resolve::ItemRef { file: 0, item };
            let Some(view) = tensorloom_lang::resolve::ModuleView::new(&program, item) else { continue };
            let primitive = primitives::find(&view.decl.name.name).unwrap_or_else(|| panic!("{}", view.decl.name.name));
            let names = |tensors: &[&tensorloom_lang::ast::IoTensor]| -> Vec<String> {
                tensors.iter().map(|t| t.name.as_ref().map_or(String::new(), |n| n.name.clone())).collect()
            };
            let inputs: Vec<&tensorloom_lang::ast::IoTensor> = primitive.inputs.iter().collect();
            let outputs: Vec<&tensorloom_lang::ast::IoTensor> = primitive.outputs.iter().collect();
            assert_eq!(names(&view.forward.inputs), names(&inputs), "{}", primitive.name);
            assert_eq!(names(&view.forward.outputs), names(&outputs), "{}", primitive.name);
            assert_eq!(view.header.len(), primitive.attributes.len(), "{}", primitive.name);
            seen.push(primitive.name);
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, primitives::names().collect::<Vec<_>>());
}

/// A declared primitive with a graph takes precedence over the built-in one; without a graph, and without
/// a built-in one of that name, it cannot be called.
#[test]
fn declared_primitives_shadow_and_run() {
    let primitive = |name: &str, graph: &str| {
        format!(
            "primitive {name}:\n  params:\n    factor: float = 2.0\n\n  forward:\n    in: (x: [*, n], y: [*, n])\n    out: z: [*, n]\n{graph}\n\
             module M():\n  forward:\n    in: [B, 4]\n    out: [B, 4]\n    graph:\n      (in, in) -> {name}(factor=3.0) -> out\n"
        )
    };
    let graph = "    graph:\n      (x, y) -> sub() -> d\n      x -> scale(factor) -> s\n      (d, s) -> add() -> z\n";
    for name in ["mul", "mine"] {
        let text = primitive(name, graph);
        let program = ModuleProgram::load("m", &MemoryLoader::new().with("m", "v1.0.0", &text));
        let mut found = program.diagnostics.clone();
        found.extend(tensorloom_lang::check::check(&program).diagnostics);
        let codes: Vec<tensorloom_lang::Code> = found.iter().map(|d| d.code).collect();
        let expected = if name == "mul" { vec![tensorloom_lang::Code::W001] } else { Vec::new() };
        assert_eq!(codes, expected, "{}", render_all(&program.sources, &found, ColorStyle::Plain));
        let item = program.export(0, "M").expect("there");
        let ty = ir::Type::new(ir::DType::F64, &[1, 4]);
        let options = tensorloom_lang::lower::LowerOptions { dtype: ir::DType::F64, ..Default::default() };
        let lowered =
            tensorloom_lang::lower::lower(&program, item, &Default::default(), &[ty], &options).expect("lowers");
        let given = ir::Literal::new(&[1, 4], &[1.0f64, 2.0, -3.0, 0.5]);
        let outs = ir::interp::run(&lowered.graph, &[given]).expect("runs");
        assert_eq!(outs[0].to_vec::<f64>(), [3.0, 6.0, -9.0, 1.5], "{name}: x - x + 3 x");
    }
    let written =
        primitive("mine", graph).replace("\nmodule M", "\n  backward:\n    d_x = scale(d_z, factor)\n\nmodule M");
    let program = ModuleProgram::load("m", &MemoryLoader::new().with("m", "v1.0.0", &written));
    let codes: Vec<tensorloom_lang::Code> =
        tensorloom_lang::check::check(&program).diagnostics.iter().map(|d| d.code).collect();
    assert_eq!(codes.first(), Some(&tensorloom_lang::Code::L001), "its backward is derived");
    let program = ModuleProgram::load("m", &MemoryLoader::new().with("m", "v1.0.0", &primitive("mine", "")));
    let codes: Vec<tensorloom_lang::Code> =
        tensorloom_lang::check::check(&program).diagnostics.iter().map(|d| d.code).collect();
    assert_eq!(codes, [tensorloom_lang::Code::E014]);
}

/// The lock file may contain two versions of one file, and both are pinned.
#[test]
fn two_versions_stand_in_one_lock() {
    let text = format!(
        "from std.modules.linear.v1 import Linear as Old\nfrom std.modules.linear.v2 import Linear as New\n\nmodule Main(n: int):\n{}",
        RELU.replace("relu()", "Old() -> New()")
    );
    let loader = library().with("main", "local", &text);
    let program = ModuleProgram::load("main", &loader);
    let lock = program.lock.to_string();
    assert!(lock.contains("std.modules.linear: v1.0.0, v2.3.1"), "{lock}");
    let pinned = ModuleProgram::load("main", &loader.clone().with_lock(&lock));
    assert!(pinned.diagnostics.is_empty(), "{}", findings(&pinned));
    let other = ModuleProgram::load("main", &loader.with_lock(&lock.replace("v2.3.1", "v2.0.0")));
    assert_eq!(other.diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), [tensorloom_lang::Code::L004]);
}

/// Inherited parts from another file keep the meaning of their names.
#[test]
fn inherited_parts_keep_their_names() {
    let base = "from std.modules.linear import Linear\n\nmodule Base(n: int):\n  params:\n    w: [n, n]\n\n  forward:\n    in: [B, n]\n    \
                out: [B, n]\n    graph:\n      in -> Linear(w) -> out\n";
    let child = "from base import Base\n\nmodule Child(n: int) extends Base:\n  _\n";
    let load = |child: &str| {
        let loader = MemoryLoader::new().with("base", "local", base).with("main", "local", child);
        ModuleProgram::load("main", &LibraryLoader(loader))
    };
    assert_eq!(findings(&load(child)), "");
    let clash = format!("{child}\nmodule Linear(n: int):\n{RELU}");
    let program = load(&clash);
    assert_eq!(
        program.diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(),
        [tensorloom_lang::Code::E011],
        "{}",
        findings(&program)
    );
}

/// The cause of further errors is reported first, and the error of an empty file explains what to write.
#[test]
fn causes_come_first() {
    let text = format!("module Main(n: int):\n  params:\n    w: [n\n{}", RELU.replace("relu()", "mul(w)"));
    let program = ModuleProgram::load("main", &MemoryLoader::new().with("main", "local", &text));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    tensorloom_lang::diagnostic::sort_and_dedup(&mut found);
    assert_eq!(
        found[0].code,
        tensorloom_lang::Code::E001,
        "{}",
        render_all(&program.sources, &found, ColorStyle::Plain)
    );
    let late = "module Main(n: int):\n  forward:\n    in: [B, n]\n    out: [B, n]\n    graph:\n      in -> mul(w) -> out\n\n  params:\n    w = [n]\n    u: [n]\n";
    let program = ModuleProgram::load("main", &MemoryLoader::new().with("main", "local", late));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    tensorloom_lang::diagnostic::sort_and_dedup(&mut found);
    let codes: Vec<tensorloom_lang::Code> = found.iter().map(|d| d.code).collect();
    assert_eq!(
        (codes[0], codes.contains(&tensorloom_lang::Code::E002)),
        (tensorloom_lang::Code::E001, true),
        "{codes:?}"
    );
    for text in ["", "\n\n", "# nothing\n", "\"\"\"Words.\"\"\"\n"] {
        let program = ModuleProgram::load("main", &MemoryLoader::new().with("main", "local", text));
        assert_eq!(program.diagnostics.len(), 1, "{text:?}");
        let found = &program.diagnostics[0];
        assert!(
            found.code == tensorloom_lang::Code::E001 && found.hint.as_ref().is_some_and(|h| h.contains("module Name")),
            "{found:?}"
        );
    }
}
