//! What is accepted has its effect. Every annotation, with every argument and a row of values, is put at every place of the
//! grammar where one can be written: each time something about the lowered model must change, or a finding must say why not.

use ir::{DType, Type};
use std::collections::BTreeMap;
use tensorloom_lang::ast::DTYPE_NAMES;
use tensorloom_lang::check::{AnnotationRow, ArgumentKind, Place, annotation_rows};
use tensorloom_lang::diagnostic::{Code, Style, render_all};
use tensorloom_lang::library::WithLibrary;
use tensorloom_lang::lower::{Options, lower};
use tensorloom_lang::resolve::{MemoryLoader, Program};

/// A module with a hole for each place.
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

fn name(place: Place) -> String {
    format!("{{{place:?}}}")
}

/// The template with an annotation at a place, and further text at the head of the declaration.
fn text(place: Place, annotation: &str, head: &str) -> String {
    let mut text = TEMPLATE.to_string();
    for hole in Place::ALL {
        let own = if *hole == place { annotation } else { "" };
        let head = if *hole == Place::Declaration { head } else { "" };
        text = text.replace(&name(*hole), [head, own].join("").trim());
    }
    text
}

enum Outcome {
    /// A finding refuses it.
    Refused(String),
    /// A finding says that it has no effect here.
    Told,
    /// What the model became.
    Accepted(String),
}

fn outcome(place: Place, annotation: &str, head: &str) -> Outcome {
    outcome_with(place, annotation, head, true)
}

/// The same, with or without lists of what is computed again.
fn outcome_with(place: Place, annotation: &str, head: &str, lists: bool) -> Outcome {
    let mut text = text(place, annotation, head);
    if !lists {
        text = text.replace("    save: [x]\n    recompute: [a, b]\n", "    save: [x, a]\n");
    }
    let program = Program::load("m", &WithLibrary(MemoryLoader::new().with("m", "v1.0.0", &text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    let drawn = render_all(&program.sources, &found, Style::Plain);
    if found.iter().any(tensorloom_lang::Diagnostic::is_error) {
        assert!(found.iter().all(|d| !d.primary.text.is_empty() || d.hint.is_some()), "{annotation}: {drawn}");
        return Outcome::Refused(drawn);
    }
    if found.iter().any(|d| d.code == Code::L102) {
        assert!(found.iter().filter(|d| d.code == Code::L102).all(|d| d.hint.is_some()), "{drawn}");
        return Outcome::Told;
    }
    let module = if matches!(place, Place::Backward | Place::Gradient) { "Written" } else { "M" };
    let item = program.export(0, module).expect("there");
    let options = Options { dtype: DType::F64, probes: true, asserts: true, training: true, ..Options::default() };
    match lower(&program, item, &BTreeMap::new(), &[Type::new(DType::F64, &[3, 4])], &options) {
        Err(found) => Outcome::Refused(render_all(&program.sources, &[*found], Style::Plain)),
        Ok(l) => {
            let warned: Vec<Code> = found.iter().map(|d| d.code).collect();
            let fusions: Vec<_> = l.fusions.iter().map(|f| (f.first, f.last, f.required)).collect();
            Outcome::Accepted(format!(
                "{}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{fusions:?}\n{:?}\n{:?}\n{:?}\n{warned:?}",
                l.graph,
                l.params,
                l.tied,
                l.observed,
                l.tapped,
                l.points,
                l.trace,
                l.profiled,
                l.profiled_memory,
                l.summing
            ))
        }
    }
}

/// A value that an argument may have, for annotations that need one.
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

/// Values to try, right and wrong ones.
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
        ArgumentKind::Share => own(&["0.5", "1.0", "-0.1", "nosuch"]),
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

/// Claims that are checked and change nothing, and arguments that say what is the case anyway.
fn says_what_holds(row: &AnnotationRow, place: Place, key: &str, value: &str) -> bool {
    matches!(
        (row.name, key, value),
        // Checked against the statement.
        ("fuse" | "fuse_required", "pattern", "linear_bias_act")
            | ("fuse" | "fuse_required", "ops", "[matmul, add]")
            | ("lifetime", "start" | "end", _)
            // Words for people.
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
            // Seen where hooks are registered: `a_hook_must_fit_its_point`, `points_run_by_their_priority`.
            | ("hook", "mode" | "priority", _)
            // A usual adapter is a LoRA one of rank 16.
            | ("adapter", "type", "lora")
    ) || place == Place::Parameter && matches!((row.name, value), ("memory", "save" | "pin"))
        || matches!((row.name, value), ("memory", "pin"))
}

/// Annotations that only claim something; the claim is checked.
const CLAIMS: &[&str] = &["noalias", "alias"];

/// `@trainable` takes an outer `@frozen` back: `paths_reach_parameters_of_modules_inside`.
fn bare(row: &AnnotationRow, key: &str) -> bool {
    row.name == "trainable" && key.is_empty()
}

#[test]
fn annotations_have_an_effect_or_are_refused() {
    let plain: BTreeMap<String, String> = [Place::Output, Place::Backward]
        .iter()
        .map(|place| match outcome(*place, "", "") {
            Outcome::Accepted(shown) => (format!("{}", matches!(place, Place::Backward)), shown),
            Outcome::Refused(why) => panic!("the template is clean: {why}"),
            Outcome::Told => panic!("the template is clean"),
        })
        .collect();
    let checked = match outcome(Place::Output, "", "@checkpoint ") {
        Outcome::Accepted(shown) => shown,
        _ => panic!("the template is clean"),
    };
    let (mut tried, mut effective, mut refused, mut told) = (0, 0, 0, 0);
    let mut silent = Vec::new();
    for row in annotation_rows() {
        let required = row.required().map(|key| (key, format!("{key}={}", usual(row, key))));
        for place in Place::ALL {
            let inside = matches!(place, Place::Backward | Place::Gradient);
            let mut attempt = |arguments: &str, key: &str, value: &str, without: Option<&str>| {
                tried += 1;
                let arguments = match place {
                    // The tensor that conditions ask about is there by then.
                    Place::Item => arguments.replace("(a", "(b"),
                    _ => arguments.to_string(),
                };
                let annotation =
                    if arguments.is_empty() { format!("@{}", row.name) } else { format!("@{}({arguments})", row.name) };
                // `none` switches an outer checkpoint off, so there must be one.
                let outer = row.name == "checkpoint" && value == "none" && *place == Place::Output;
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

/// The same for two annotations at once: a repeated one, and contradictions.
#[test]
fn what_is_said_twice_or_contradicts_itself_is_refused() {
    let pairs = [
        (Place::Output, "@memory(save) @memory(recompute)"),
        (Place::Output, "@memory(save) @lifetime(scope=block)"),
        (Place::Output, "@dtype(bf16) @dtype(fp32)"),
        (Place::Output, "@fuse @nofuse"),
        (Place::Output, "@alias @noalias"),
        (Place::Output, "@gradient(skip, scale=2.0)"),
        (Place::Output, "@precision(policy=bf16, compute=fp32)"),
        (Place::Output, "@adapter(ia3, rank=3)"),
        (Place::Output, "@checkpoint(none, preserve=[c])"),
        (Place::Output, "@memory(save, priority=3)"),
        (Place::Output, "@hook(P, mode=observe, mode=modify)"),
        (Place::Parameter, "@frozen @trainable"),
        (Place::Parameter, "@precision(compute=bf16)"),
        (Place::Parameter, "@dtype(int32)"),
        (Place::Parameter, "@scaling(per_tensor)"),
        (Place::Output, "@precision(bf16) @scaling(per_tensor)"),
        (Place::Declaration, "@profile(\"a\") @profile(\"b\")"),
        (Place::Output, "@comm(all_reduce, bucket_size=100)"),
        (Place::Output, "@comm(all_gather, group=\"pp\")"),
        (Place::Output, "@comm(all_reduce, group=\"nobody\")"),
        (Place::Output, "@comm(reduce)"),
        (Place::Backward, "@comm(all_gather, bucket_size=100)"),
        (Place::Backward, "@comm(all_reduce, group=\"tp\", bucket_size=100)"),
        (Place::Backward, "@comm(all_reduce, bucket_size=0)"),
    ];
    for (place, annotation) in pairs {
        match outcome(place, annotation, "") {
            Outcome::Refused(_) => {}
            _ => panic!("{annotation} on {place:?} is accepted"),
        }
    }
}

/// A warning is all that a hint for other machines gets, and it names the place.
#[test]
fn hints_for_other_machines_are_warned_about() {
    for (place, annotation) in [
        (Place::Output, "@kernel(\"fast\")"),
        (Place::Output, "@shard(column, tp_size=2)"),
        (Place::Backward, "@shard(column)"),
        (Place::Parameter, "@shard(sequence)"),
        (Place::Step, "@partition(0)"),
        (Place::Output, "@comm(send, group=\"tp\")"),
        (Place::Backward, "@comm(all_reduce, group=\"dp\")"),
        (Place::Parameter, "@memory(offload, priority=1)"),
        (Place::Output, "@profile(\"p\", nvtx=true)"),
    ] {
        assert!(matches!(outcome(place, annotation, ""), Outcome::Told), "{annotation}");
    }
}
