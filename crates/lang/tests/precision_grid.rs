//! Every combination of policy, scaling and layout (§7.4): each setting has an effect in the graph, or is rejected by name;
//! annotations of operations and parameters take precedence over the recipe.

use ir::{DType, Graph, Op, Type, Value};
use std::collections::BTreeMap;
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, Lowered, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

const POLICIES: &[&str] = &["fp32", "bf16", "fp16", "fp8_hybrid", "fp8_pure", "fp4"];
const FORMATS: &[&str] = &["fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "int8", "int4"];
const SCALINGS: &[&str] = &[
    "per_tensor",
    "per_tensor, margin=0.5",
    "dynamic, margin=0.25",
    "per_channel",
    "per_token",
    "per_block",
    "per_block, block_size=(1, 16)",
    "per_block, block_size=(16, 16)",
    "per_block, block_size=(8, 8)",
    "delayed",
    "delayed, history_len=4, update_interval=2",
];

/// A product and its matrix, in each layout.
const LAYOUTS: &[(&str, &str, &str)] = &[
    ("NT", "[32, 64]", "x -> matmul(w, transpose=NT) -> h"),
    ("NN", "[64, 32]", "x -> matmul(w) -> h"),
    ("groups, NT", "[2, 32, 64]", "(x, w, offsets) -> grouped_gemm(transpose=NT) -> h"),
    ("groups, NN", "[2, 64, 32]", "(x, w, offsets) -> grouped_gemm(transpose=NN) -> h"),
];

struct Said<'a> {
    recipe: &'a str,
    stored: &'a str,
    note: &'a str,
}

fn text((_, shape, statement): (&str, &str, &str), said: &Said) -> String {
    let (recipe, at) = match said.recipe {
        "" => (String::new(), ""),
        body => (format!("recipe R:\n  {}\n\n", body.replace('\n', "\n  ")), "  @recipe(R)\n\n"),
    };
    format!(
        "{recipe}model M():\n{at}  params:\n    w: {shape} {}\n    v: [48, 32]\n\n  forward:\n    in: (x: [B, 64], offsets: [3, int32])\n    out: y: [B, 48]\n    \
         graph:\n      {statement} {}\n      h -> matmul(v, transpose=NT) -> y @precision(fp32)\n",
        said.stored, said.note
    )
}

fn lowered(layout: (&str, &str, &str), said: &Said, training: bool) -> Result<Lowered, String> {
    let text = text(layout, said);
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text.as_str())));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    found.retain(tensorloom_lang::Diagnostic::is_error);
    if !found.is_empty() {
        return Err(render_all(&program.sources, &found, ColorStyle::Plain));
    }
    let item = program.export(0, "M").expect("there");
    let inputs = [Type::new(DType::F32, &[4, 64]), Type::new(DType::I32, &[3])];
    let made = lower(&program, item, &BTreeMap::new(), &inputs, &LowerOptions { training, ..LowerOptions::default() })
        .map_err(|found| render_all(&program.sources, &[*found], ColorStyle::Plain))?;
    ir::verify::verify(&made.graph).unwrap_or_else(|e| panic!("{text}\n{e}"));
    Ok(made)
}

/// The operations on a value before a product, and on the product's result before the next one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Effect {
    left: Vec<String>,
    right: Vec<String>,
    product: String,
    result: Vec<String>,
}

impl Effect {
    /// Only the roundings: of operands, result and cotangent.
    fn roundings(&self) -> [Vec<String>; 3] {
        [&self.left, &self.right, &self.result]
            .map(|all| all.iter().filter(|s| s.starts_with("rounded")).cloned().collect())
    }
}

fn describe(op: &Op) -> String {
    match op {
        Op::Composite(c) => format!("{} {:?}", c.name, c.params),
        Op::Cast(dtype) => format!("cast {dtype:?}"),
        other => other.name().to_string(),
    }
}

/// The chain of nodes that use a value, up to and including a product.
fn chain(graph: &Graph, from: Value) -> (Vec<String>, Option<usize>) {
    let (mut at, mut all) = (from, Vec::new());
    loop {
        let Some(k) = graph.nodes().iter().position(|node| node.args.contains(&at)) else { return (all, None) };
        let node = &graph.nodes()[k];
        if matches!(node.op, Op::Dot(_) | Op::RaggedDot(_)) {
            return (all, Some(k));
        }
        // Name ops are markers without computation.
        if !matches!(node.op, Op::Name(_) | Op::Permute(_)) {
            all.push(describe(&node.op));
        }
        at = node.outs[0];
    }
}

fn effect(l: &Lowered) -> Effect {
    let input = |i: usize| l.graph.inputs()[i];
    let ((right, product), (left, same)) = (chain(&l.graph, input(0)), chain(&l.graph, input(2)));
    assert_eq!(product, same, "both meet in one product");
    let node = &l.graph.nodes()[product.expect("a product")];
    let of = l.graph.ty(node.args[0]).dtype;
    let (result, _) = chain(&l.graph, node.outs[0]);
    Effect { left, right, product: format!("{of}"), result }
}

fn notes() -> Vec<String> {
    let mut all: Vec<String> = POLICIES.iter().map(|p| format!("@precision({p})")).collect();
    all.extend(FORMATS.iter().map(|f| format!("@precision(compute={f})")));
    all.extend(FORMATS.iter().map(|f| format!("@precision(compute={f}, output=fp16)")));
    all.extend(SCALINGS.iter().map(|s| format!("@scaling({s})")));
    for (p, s) in POLICIES.iter().flat_map(|p| SCALINGS.iter().map(move |s| (p, s))) {
        all.push(format!("@precision({p}) @scaling({s})"));
    }
    for (f, s) in FORMATS.iter().flat_map(|f| SCALINGS.iter().map(move |s| (f, s))) {
        all.push(format!("@precision(compute={f}) @scaling({s})"));
    }
    all
}

/// Recipes that affect products: each forward format, with and without a gradient format, with each scaling, and native ones.
fn recipes() -> Vec<String> {
    let mut all = vec!["forward_activation_dtype: bf16".to_string(), "forward_activation_dtype: fp16".to_string()];
    for (i, format) in FORMATS.iter().enumerate() {
        let few = format!("forward_activation_dtype: {format}");
        let back = format!("{few}\nbackward_gradient_dtype: fp8_e5m2");
        all.extend([few.clone(), back.clone()]);
        for (j, scaling) in ["per_tensor", "per_channel", "per_token", "per_block", "delayed"].iter().enumerate() {
            let body = if (i + j) % 2 == 0 { &few } else { &back };
            all.push(format!("{body}\nscaling_strategy: {scaling}"));
        }
    }
    all
}

/// Errors have a code, and name their subject.
fn is_named(why: &str, said: &Said) -> bool {
    let words = ["scal", "per_block", "quantiz", "block", "precision", "dtype", "low-precision", "fp32"];
    why.contains("error[") && words.iter().any(|word| why.contains(word)) && !said.note.is_empty()
        || why.contains("error[") && !said.recipe.is_empty()
}

/// A single annotation: an effect or an error, and different arguments have different effects.
#[test]
fn every_annotation_has_an_effect_or_is_refused_by_name() {
    for &layout in LAYOUTS {
        let plain = effect(&lowered(layout, &Said { recipe: "", stored: "", note: "" }, false).expect("plain"));
        let mut seen: BTreeMap<(Effect, usize), String> = BTreeMap::new();
        let (mut taken, mut refused) = (0, 0);
        for note in notes() {
            let said = Said { recipe: "", stored: "", note: &note };
            match lowered(layout, &said, true) {
                Ok(l) => {
                    taken += 1;
                    let found = effect(&l);
                    assert!(found != plain || note == "@precision(fp32)", "{}: `{note}` does nothing", layout.0);
                    let few = found.roundings().iter().any(|all| !all.is_empty());
                    assert_eq!(few, !l.emulated.is_empty(), "{}: `{note}` says {:?}", layout.0, l.emulated);
                    assert_eq!(l.amax_histories.is_empty(), !note.contains("delayed"), "{}: {note}", layout.0);
                    if let Some(other) = seen.insert((found, l.amax_histories.len()), note.clone()) {
                        assert!(alike(&other, &note), "{}: `{other}` and `{note}` are the same", layout.0);
                    }
                }
                Err(why) => {
                    refused += 1;
                    assert!(is_named(&why, &said), "{}: `{note}`: {why}", layout.0);
                }
            }
        }
        assert!(taken > 60 && refused > 20, "{}: {taken} taken, {refused} refused", layout.0);
    }
}

/// Whether two annotations are equivalent: dynamic per-tensor scaling is the default, and E4M3 the default format.
fn alike(a: &str, b: &str) -> bool {
    let plain = |note: &str| {
        let note =
            note.replace("@scaling(per_tensor)", "").replace("@scaling(per_block, block_size=(1, 16))", "@fours");
        let note = if note.contains("fp4") || note.contains("compute=fp4") { note.replace("@fours", "") } else { note };
        let note = note.trim().to_string();
        match note.as_str() {
            "" => "@precision(compute=fp8_e4m3)".to_string(),
            s if s.starts_with("@scaling") || s.starts_with("@fours") => format!("@precision(compute=fp8_e4m3) {s}"),
            s => s.to_string(),
        }
    };
    // A policy's result is always bf16; roundings of operands distinguish the others.
    plain(a) == plain(b)
}

/// With every recipe, an annotated operation computes the same as without it.
#[test]
fn what_an_operation_says_beats_every_recipe() {
    for &layout in LAYOUTS {
        let alone: Vec<(String, Result<Effect, String>)> = notes()
            .into_iter()
            .map(|note| {
                let l = lowered(layout, &Said { recipe: "", stored: "", note: &note }, false);
                (note, l.map(|l| effect(&l)))
            })
            .collect();
        for (i, recipe) in recipes().iter().enumerate() {
            let by_recipe = match lowered(layout, &Said { recipe, stored: "", note: "" }, false) {
                Ok(l) => effect(&l),
                Err(why) => {
                    assert!(is_named(&why, &Said { recipe, stored: "", note: "" }), "{recipe}: {why}");
                    continue;
                }
            };
            let plain = effect(&lowered(layout, &Said { recipe: "", stored: "", note: "" }, false).expect("plain"));
            assert_ne!(by_recipe, plain, "{}: {recipe}", layout.0);
            // A third of the annotations for each recipe, all of them over all recipes.
            for (k, (note, want)) in alone.iter().enumerate() {
                if k % 3 != i % 3 || note.starts_with("@scaling") {
                    continue;
                }
                let found = lowered(layout, &Said { recipe, stored: "", note }, false).map(|l| effect(&l));
                match (found, want) {
                    (Ok(found), Ok(want)) => {
                        assert_eq!(found.roundings(), want.roundings(), "{}: `{note}` under {recipe}", layout.0);
                        assert_eq!(found.product, want.product, "{}: `{note}` under {recipe}", layout.0);
                    }
                    (Err(_), Err(_)) => {}
                    (found, want) => panic!("{}: `{note}` under {recipe}: {found:?}, alone {want:?}", layout.0),
                }
            }
        }
    }
}

/// `@scaling` alone scales the recipe's format, the same as beside that format.
#[test]
fn scaling_alone_is_of_the_recipes_format() {
    for &layout in LAYOUTS {
        for format in FORMATS {
            let recipe = format!("forward_activation_dtype: {format}");
            for scaling in SCALINGS {
                let note = format!("@scaling({scaling})");
                let both = format!("@precision(compute={format}) {note}");
                let found = lowered(layout, &Said { recipe: &recipe, stored: "", note: &note }, false);
                let want = lowered(layout, &Said { recipe: "", stored: "", note: &both }, false);
                match (found, want) {
                    (Ok(found), Ok(want)) => {
                        assert_eq!(effect(&found).roundings(), effect(&want).roundings(), "{}: {both}", layout.0)
                    }
                    (Err(_), Err(_)) => {}
                    (found, want) => panic!("{}: {both}: {:?}, {:?}", layout.0, found.err(), want.err()),
                }
            }
        }
    }
}

/// An annotated storage format takes precedence over every recipe, as the graph shows.
#[test]
fn what_a_parameter_says_beats_every_recipe() {
    for &layout in LAYOUTS {
        for recipe in ["", "weight_storage_dtype: int8", "weight_storage_dtype: fp8_e5m2", "weight_storage_dtype: int4"]
        {
            for format in FORMATS {
                for scaling in std::iter::once(&"").chain(SCALINGS) {
                    let scale = if scaling.is_empty() { String::new() } else { format!("@scaling({scaling})") };
                    let stored = format!("@dtype({format}) {scale}");
                    match lowered(layout, &Said { recipe, stored: &stored, note: "" }, false) {
                        Ok(l) => {
                            let few =
                                l.params[0].rounding.unwrap_or_else(|| panic!("{}: `{stored}` is lost", layout.0));
                            assert_eq!(few.format.name(), *format, "{}: {stored} under {recipe}", layout.0);
                            let shown = effect(&l).right.join(" ");
                            let shown = shown.contains("rounded") && shown.contains(format);
                            assert!(shown, "{}: {stored} under {recipe}: {:?}", layout.0, effect(&l));
                        }
                        Err(why) => {
                            assert!(!scaling.is_empty(), "{}: {stored}: {why}", layout.0);
                            let named = why.contains("error[") && (why.contains("per_") || why.contains("block"));
                            assert!(named, "{}: {stored}: {why}", layout.0);
                        }
                    }
                }
            }
        }
    }
}
