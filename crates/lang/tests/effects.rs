//! Every accepted annotation has an effect. Every annotation, with every argument and several values, is placed at every target
//! of the grammar: each time the lowered model must change, or a diagnostic must explain why not.

use ir::{DType, Type};
use std::collections::BTreeMap;
use tensorloom_lang::ast::DTYPE_NAMES;
use tensorloom_lang::check::{AnnotationRow, AnnotationTarget, ArgumentKind, annotation_rows};
use tensorloom_lang::diagnostic::{Code, ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

/// A module with a placeholder for each target.
const TEMPLATE: &str = "\
recipe Halves:
  forward_activation_dtype: bf16

module Inner(width: int):
  params:
    u: [width, width]

  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> matmul(u, transpose=NT) -> c
      c -> silu() -> out
    save: [in]
    recompute: [c]

module M(width: int = 4):
  {Declaration}

  params:
    inner: Inner(width)
    w: [width, width] {Parameter}
    v: [width]

  constants:
    freqs: precompute_rope_freqs(8, width, 10000.0) {Constant}

  forward:
    in: x: [B, width] {Input}
    out: y: [B, width] {Result}
    graph:
      x -> matmul(w, transpose=NT) {Step} -> add(v) -> inner -> silu() -> a {Output}
      a -> split([2, width - 2], dim=-1) -> (b {Item}, d)
      (b, d) -> concat(dim=-1) -> y
    save: [x]
    recompute: [a, b]

module Written(width: int = 4):
  params:
    v: [width]

  forward:
    in: x: [B, width]
    out: y: [B, width]
    graph:
      (x, v) -> mul() -> y
    save: [x]

  backward:
    d_y: [B, width]
    d_x: [B, width] {Gradient}
    graph:
      (d_y, v) -> mul() -> d_x {Backward}
      (d_y, saved.x) -> mul() -> e
      e -> reduce_sum(dims=[0]) -> d_v
";

fn name(place: AnnotationTarget) -> String {
    format!("{{{place:?}}}")
}

/// The template with an annotation at a target, and additional text at the head of the declaration.
fn text(place: AnnotationTarget, annotation: &str, head: &str) -> String {
    let mut text = TEMPLATE.to_string();
    for hole in AnnotationTarget::ALL {
        let own = if *hole == place { annotation } else { "" };
        let head = if *hole == AnnotationTarget::Declaration { head } else { "" };
        text = text.replace(&name(*hole), [head, own].join("").trim());
    }
    text
}

enum Outcome {
    /// A diagnostic rejects it.
    Refused(String),
    /// A warning reports that it has no effect here.
    Told,
    /// The lowered model.
    Accepted(String),
}

fn outcome(place: AnnotationTarget, annotation: &str, head: &str) -> Outcome {
    outcome_with(place, annotation, head, true)
}

/// The outcome of an annotation, with or without recompute lists.
fn outcome_with(place: AnnotationTarget, annotation: &str, head: &str, lists: bool) -> Outcome {
    let mut text = text(place, annotation, head);
    if !lists {
        text = text.replace("    save: [x]\n    recompute: [a, b]\n", "    save: [x, a]\n");
    }
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", &text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
    if found.iter().any(tensorloom_lang::Diagnostic::is_error) {
        assert!(found.iter().all(|d| !d.primary.text.is_empty() || d.hint.is_some()), "{annotation}: {drawn}");
        return Outcome::Refused(drawn);
    }
    if found.iter().any(|d| d.code == Code::L102) {
        assert!(found.iter().filter(|d| d.code == Code::L102).all(|d| d.hint.is_some()), "{drawn}");
        return Outcome::Told;
    }
    let module = if matches!(place, AnnotationTarget::Backward | AnnotationTarget::Gradient) { "Written" } else { "M" };
    let item = program.export(0, module).expect("there");
    let options =
        LowerOptions { dtype: DType::F64, probes: true, asserts: true, training: true, ..LowerOptions::default() };
    match lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F64, &[3, 4])], &options) {
        Err(found) => Outcome::Refused(render_all(&program.sources, &[*found], ColorStyle::Plain)),
        Ok(l) => {
            let warned: Vec<Code> = found.iter().map(|d| d.code).collect();
            let fusions: Vec<_> = l.fusions.iter().map(|f| (f.first, f.last, f.required)).collect();
            Outcome::Accepted(format!(
                "{}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{fusions:?}\n{:?}\n{:?}\n{:?}\n{warned:?}",
                l.graph,
                l.params,
                l.tied,
                l.observations,
                l.gradient_probes,
                l.hook_points,
                l.trace,
                l.profiled,
                l.profiled_memory,
                l.grad_reduction
            ))
        }
    }
}

/// A valid value of an argument, for annotations that require one.
fn usual(row: &AnnotationRow, key: &str) -> String {
    match (row.name, key) {
        ("memory", _) => "save".into(),
        ("hook", "point") => "Point".into(),
        ("recipe", "name") => "Halves".into(),
        ("assert", "condition") => "!has_nan(a)".into(),
        ("kernel" | "profile", "name") => "\"name\"".into(),
        ("dtype", "type") => "bf16".into(),
        ("partition", "stage") => "0".into(),
        _ => match row.kind(key) {
            Some(ArgumentKind::Word(words)) => words[0].to_string(),
            _ => "nothing".into(),
        },
    }
}

/// Valid and invalid values to test.
fn values(row: &AnnotationRow, key: &str, kind: ArgumentKind) -> Vec<String> {
    let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<String>>();
    match kind {
        ArgumentKind::Word(words) => own(words).into_iter().chain(own(&["weird", "\"blah\"", "3", "true"])).collect(),
        ArgumentKind::Dtype => own(DTYPE_NAMES).into_iter().chain(own(&["fp99", "3", "\"float\""])).collect(),
        ArgumentKind::Int(least) => {
            let low = least.checked_sub(1).map(|n| n.to_string());
            own(&["2", "7", "1.5", "\"two\"", "nosuch", "width"]).into_iter().chain(low).collect()
        }
        ArgumentKind::Number(..) => own(&["0.5", "2", "-1.0", "-3", "\"half\"", "nosuch"]),
        ArgumentKind::Finite => own(&["0.5", "-2", "true", "nosuch", "1.0e39"]),
        ArgumentKind::Fraction => own(&["0.5", "1.0", "-0.1", "nosuch"]),
        ArgumentKind::Flag => own(&["true", "false", "3", "nosuch"]),
        ArgumentKind::Text => own(&["\"words\"", "3", "word"]),
        ArgumentKind::Label => match (row.name, key) {
            ("fuse" | "fuse_required", _) => own(&["linear_bias_act", "residual_norm", "weird", "3"]),
            ("lifetime", _) => own(&["matmul", "split", "weird", "3"]),
            ("recipe", _) => own(&["Halves", "Thirds", "3"]),
            _ => own(&["Other", "\"other\"", "3"]),
        },
        ArgumentKind::Names => match row.name {
            "fuse" | "fuse_required" => own(&["[matmul, add]", "[relu]", "[weird]", "3"]),
            "adapter" => own(&["[b]", "[weird]", "3"]),
            _ => own(&["[c]", "[weird]", "[3]", "3"]),
        },
        ArgumentKind::Condition => {
            own(&["all(a >= 0)", "\"has_nan(a)\"", "has_nan(nosuch)", "weird(a)", "\"has_nan(\"", "a", "3"])
        }
        ArgumentKind::Pair => own(&["(32, 32)", "32", "(0, 1)"]),
    }
}

/// Annotations that are only checked, and arguments that equal the default.
fn says_what_holds(row: &AnnotationRow, place: AnnotationTarget, key: &str, value: &str) -> bool {
    matches!(
        (row.name, key, value),
        // Checked against the statement.
        ("fuse" | "fuse_required", "pattern", "linear_bias_act")
            | ("fuse" | "fuse_required", "ops", "[matmul, add]")
            | ("lifetime", "start" | "end", _)
            // Free text.
            | ("nofuse", "reason", _)
            // Defaults.
            | ("fuse" | "fuse_required", "scope", "local")
            | ("gradient", "mode", "compute" | "accumulate")
            | ("precision", "accumulate", "fp32")
            | ("assert", "enabled", "true")
            | ("probe", "capture", "stats")
            | ("profile", "memory" | "cuda_events" | "nvtx", "false")
            | ("trace", "level", "ops")
            | ("checkpoint", "granularity", "full")
            | ("comm", "group", "default")
            | ("comm", "async", "true")
            | ("lifetime", "scope", _)
            // Tested with registered hooks: `a_hook_must_fit_its_point`, `points_run_by_their_priority`.
            | ("hook", "mode" | "priority", _)
            // By default, an adapter is a LoRA adapter of rank 16.
            | ("adapter", "type", "lora")
    ) || place == AnnotationTarget::Parameter && matches!((row.name, value), ("memory", "save" | "pin"))
        || matches!((row.name, value), ("memory", "pin"))
}

/// Annotations that are only checked claims.
const CLAIMS: &[&str] = &["noalias", "alias"];

/// `@trainable` overrides an outer `@frozen`: `paths_reach_parameters_of_modules_inside`.
fn bare(row: &AnnotationRow, key: &str) -> bool {
    row.name == "trainable" && key.is_empty()
}

#[test]
fn annotations_have_an_effect_or_are_refused() {
    let plain: BTreeMap<String, String> = [AnnotationTarget::Output, AnnotationTarget::Backward]
        .iter()
        .map(|place| match outcome(*place, "", "") {
            Outcome::Accepted(shown) => (format!("{}", matches!(place, AnnotationTarget::Backward)), shown),
            Outcome::Refused(why) => panic!("the template is clean: {why}"),
            Outcome::Told => panic!("the template is clean"),
        })
        .collect();
    let checked = match outcome(AnnotationTarget::Output, "", "@checkpoint ") {
        Outcome::Accepted(shown) => shown,
        _ => panic!("the template is clean"),
    };
    let (mut tried, mut effective, mut refused, mut told) = (0, 0, 0, 0);
    let mut silent = Vec::new();
    for row in annotation_rows() {
        let required = row.required().map(|key| (key, format!("{key}={}", usual(row, key))));
        for place in AnnotationTarget::ALL {
            let inside = matches!(place, AnnotationTarget::Backward | AnnotationTarget::Gradient);
            let mut attempt = |arguments: &str, key: &str, value: &str, without: Option<&str>| {
                tried += 1;
                let arguments = match place {
                    // The tensor in conditions is defined at that point.
                    AnnotationTarget::Item => arguments.replace("(a", "(b"),
                    _ => arguments.to_string(),
                };
                let annotation =
                    if arguments.is_empty() { format!("@{}", row.name) } else { format!("@{}({arguments})", row.name) };
                // `none` disables an outer checkpoint, so there must be one.
                let outer = row.name == "checkpoint" && value == "none" && *place == AnnotationTarget::Output;
                let head = if outer { "@checkpoint " } else { "" };
                match outcome(*place, &annotation, head) {
                    Outcome::Refused(_) => refused += 1,
                    Outcome::Told => told += 1,
                    Outcome::Accepted(shown) => {
                        let nothing = if outer { &checked } else { &plain[&format!("{inside}")] };
                        let base = match without {
                            Some(base) => match outcome(*place, base, head) {
                                Outcome::Accepted(shown) => shown,
                                _ => nothing.clone(),
                            },
                            None => nothing.clone(),
                        };
                        let claim =
                            CLAIMS.contains(&row.name) || bare(row, key) || says_what_holds(row, *place, key, value);
                        let unlisted = || {
                            let with = outcome_with(*place, &annotation, head, false);
                            let none = outcome_with(*place, without.unwrap_or(""), head, false);
                            matches!((with, none), (Outcome::Accepted(a), Outcome::Accepted(b)) if a != b)
                        };
                        match shown != base || !claim && unlisted() {
                            true => effective += 1,
                            false if claim => {}
                            false => silent.push(format!("{annotation} on {place:?}")),
                        }
                    }
                }
            };
            let (first, key) = required.as_ref().map_or(("", ""), |(key, text)| (text.as_str(), *key));
            attempt(first, key, &row.required().map_or(String::new(), |key| usual(row, key)), None);
            for (key, kind) in row.args {
                for value in values(row, key, *kind) {
                    let (arguments, base) = match &required {
                        Some((first, _)) if first == key => (format!("{key}={value}"), None),
                        Some((_, first)) => {
                            (format!("{first}, {key}={value}"), Some(format!("@{}({first})", row.name)))
                        }
                        None => (format!("{key}={value}"), None),
                    };
                    attempt(&arguments, key, &value, base.as_deref());
                    if row.positional() == Some(key) {
                        attempt(&value, key, &value, None);
                    }
                }
            }
            for (arguments, key) in [("nosuch=3", "nosuch"), ("3, 4, 5", ""), ("mode=weird, mode=weird", "mode")] {
                attempt(arguments, key, "3", None);
            }
        }
    }
    println!("{tried} annotations: {effective} change the model, {told} are warned about, {refused} are refused");
    assert!(silent.is_empty(), "accepted without an effect:\n{}", silent.join("\n"));
    assert!(effective > 150 && refused > 1000, "{effective} {refused}");
}

/// Two annotations at once: a repeated one, and contradictions.
#[test]
fn what_is_said_twice_or_contradicts_itself_is_refused() {
    let pairs = [
        (AnnotationTarget::Output, "@memory(save) @memory(recompute)"),
        (AnnotationTarget::Output, "@memory(save) @lifetime(scope=block)"),
        (AnnotationTarget::Output, "@dtype(bf16) @dtype(fp32)"),
        (AnnotationTarget::Output, "@fuse @nofuse"),
        (AnnotationTarget::Output, "@alias @noalias"),
        (AnnotationTarget::Output, "@gradient(skip, scale=2.0)"),
        (AnnotationTarget::Output, "@precision(policy=bf16, compute=fp32)"),
        (AnnotationTarget::Output, "@adapter(ia3, rank=3)"),
        (AnnotationTarget::Output, "@checkpoint(none, preserve=[c])"),
        (AnnotationTarget::Output, "@memory(save, priority=3)"),
        (AnnotationTarget::Output, "@hook(P, mode=observe, mode=modify)"),
        (AnnotationTarget::Parameter, "@frozen @trainable"),
        (AnnotationTarget::Parameter, "@precision(compute=bf16)"),
        (AnnotationTarget::Parameter, "@dtype(int32)"),
        (AnnotationTarget::Parameter, "@scaling(per_tensor)"),
        (AnnotationTarget::Output, "@precision(bf16) @scaling(per_tensor)"),
        (AnnotationTarget::Declaration, "@profile(\"a\") @profile(\"b\")"),
        (AnnotationTarget::Output, "@comm(all_reduce, bucket_size=100)"),
        (AnnotationTarget::Output, "@comm(all_gather, group=\"pp\")"),
        (AnnotationTarget::Output, "@comm(all_reduce, group=\"nobody\")"),
        (AnnotationTarget::Output, "@comm(reduce)"),
        (AnnotationTarget::Backward, "@comm(all_gather, bucket_size=100)"),
        (AnnotationTarget::Backward, "@comm(all_reduce, group=\"tp\", bucket_size=100)"),
        (AnnotationTarget::Backward, "@comm(all_reduce, bucket_size=0)"),
    ];
    for (place, annotation) in pairs {
        match outcome(place, annotation, "") {
            Outcome::Refused(_) => {}
            _ => panic!("{annotation} on {place:?} is accepted"),
        }
    }
}

/// A hint for other machines gives only a warning, which names the location.
#[test]
fn hints_for_other_machines_are_warned_about() {
    for (place, annotation) in [
        (AnnotationTarget::Output, "@kernel(\"fast\")"),
        (AnnotationTarget::Output, "@shard(column, tp_size=2)"),
        (AnnotationTarget::Backward, "@shard(column)"),
        (AnnotationTarget::Parameter, "@shard(sequence)"),
        (AnnotationTarget::Step, "@partition(0)"),
        (AnnotationTarget::Output, "@comm(send, group=\"tp\")"),
        (AnnotationTarget::Backward, "@comm(all_reduce, group=\"dp\")"),
        (AnnotationTarget::Parameter, "@memory(offload, priority=1)"),
        (AnnotationTarget::Output, "@profile(\"p\", nvtx=true)"),
    ] {
        assert!(matches!(outcome(place, annotation, ""), Outcome::Told), "{annotation}");
    }
}
