//! The annotations of §7 in one table: where they may stand and what they take (E008, E013, E025).

use super::primitives;
use crate::ast::{Annotation, Arg, DTYPE_NAMES, Expr, ExprKind, Flow, Recipe, StepKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::suggest::closest;

/// Where an annotation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Output,
    Parameter,
    Input,
    Declaration,
}

struct Row {
    name: &'static str,
    places: &'static [Place],
    /// What the first positional argument may be; empty if it is free or there is none.
    words: &'static [&'static str],
    /// Whether a first positional argument may be given at all.
    positional: bool,
    keys: &'static [&'static str],
}

const TENSOR: &[Place] = &[Place::Output, Place::Parameter, Place::Input];
const OUTPUT: &[Place] = &[Place::Output];
const BODY: &[Place] = &[Place::Output, Place::Declaration];
const PARAMETER: &[Place] = &[Place::Parameter];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { name: "memory", places: TENSOR, positional: true, words: &["save", "recompute", "temporary", "pin", "offload", "stream"], keys: &["mode", "priority", "prefetch", "async"] },
    Row { name: "checkpoint", places: BODY, positional: true, words: &["full", "selective", "none"], keys: &["granularity", "preserve"] },
    Row { name: "lifetime", places: OUTPUT, positional: true, words: &["operation", "sublayer", "block", "layer", "global"], keys: &["scope", "start", "end"] },
    Row { name: "hook", places: OUTPUT, positional: true, words: &[], keys: &["point", "mode", "priority"] },
    Row { name: "adapter", places: OUTPUT, positional: true, words: &["lora", "ia3", "prefix", "prompt", "adapter"], keys: &["type", "rank", "alpha", "dropout", "targets", "length", "hidden_dim", "bottleneck_dim", "activation"] },
    Row { name: "probe", places: OUTPUT, positional: true, words: &[], keys: &["name", "capture", "condition", "frequency"] },
    Row { name: "dtype", places: TENSOR, positional: true, words: DTYPE_NAMES, keys: &["type"] },
    Row { name: "precision", places: TENSOR, positional: true, words: &[], keys: &["compute", "accumulate", "output", "policy", "storage"] },
    Row { name: "scaling", places: TENSOR, positional: true, words: &["per_tensor", "per_channel", "per_token", "per_block", "delayed", "dynamic"], keys: &["strategy", "history_len", "update_interval", "block_size", "margin"] },
    Row { name: "fuse", places: BODY, positional: true, words: &[], keys: &["pattern", "ops", "scope"] },
    Row { name: "fuse_required", places: BODY, positional: true, words: &[], keys: &["pattern", "ops", "scope"] },
    Row { name: "nofuse", places: OUTPUT, positional: false, words: &[], keys: &["reason"] },
    Row { name: "kernel", places: OUTPUT, positional: true, words: &[], keys: &["name", "autotune", "workspace", "fallback"] },
    Row { name: "shard", places: TENSOR, positional: true, words: &["column", "row", "replicated", "expert", "sequence", "batch", "head"], keys: &["strategy", "tp_size", "ep_size", "pp_size", "async_comm", "reduce_scatter"] },
    Row { name: "partition", places: BODY, positional: true, words: &[], keys: &["stage", "micro_batch", "recompute"] },
    Row { name: "comm", places: OUTPUT, positional: true, words: &["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "broadcast"], keys: &["op", "group", "async", "bucket_size"] },
    Row { name: "assert", places: OUTPUT, positional: true, words: &[], keys: &["condition", "message", "enabled"] },
    Row { name: "profile", places: BODY, positional: true, words: &[], keys: &["name", "memory", "cuda_events", "nvtx"] },
    Row { name: "trace", places: BODY, positional: true, words: &["ops", "tensors", "values"], keys: &["level"] },
    Row { name: "frozen", places: PARAMETER, positional: false, words: &[], keys: &[] },
    Row { name: "trainable", places: PARAMETER, positional: false, words: &[], keys: &["lr_scale", "wd_scale", "grad_clip"] },
    Row { name: "gradient", places: TENSOR, positional: true, words: &["compute", "skip", "accumulate", "checkpoint"], keys: &["mode", "scale", "clip"] },
    Row { name: "alias", places: OUTPUT, positional: false, words: &[], keys: &[] },
    Row { name: "noalias", places: OUTPUT, positional: false, words: &[], keys: &[] },
    Row { name: "barrier", places: OUTPUT, positional: false, words: &[], keys: &[] },
    Row { name: "recipe", places: &[Place::Declaration], positional: true, words: &[], keys: &[] },
];

/// The fusions of §7.5.1.
const FUSION_PATTERNS: &[&str] =
    &["residual_norm", "norm_linear", "gated_mlp", "attention_softmax", "bias_activation", "linear_bias_act"];

pub(super) fn check(annotations: &[Annotation], place: Place, found: &mut Vec<Diagnostic>) {
    for annotation in annotations {
        check_one(annotation, place, found);
    }
}

fn check_one(annotation: &Annotation, place: Place, found: &mut Vec<Diagnostic>) {
    let name = &annotation.name.name;
    let Some(row) = TABLE.iter().find(|row| row.name == name) else {
        let mut unknown = Diagnostic::new(Code::E008, annotation.name.span, format!("unknown annotation `@{name}`"))
            .label("no annotation has this name");
        if let Some(close) = closest(name, TABLE.iter().map(|row| row.name)) {
            unknown = unknown.hint(format!("did you mean `@{close}`?"));
        }
        return found.push(unknown);
    };
    if !row.places.contains(&place) {
        let at = match place {
            Place::Output => "a result",
            Place::Parameter => "a parameter",
            Place::Input => "an input",
            Place::Declaration => "a declaration",
        };
        return found.push(
            Diagnostic::new(Code::E008, annotation.span, format!("`@{name}` cannot stand on {at}")).label("misplaced"),
        );
    }
    let args = annotation.args.as_deref().unwrap_or_default();
    for (index, arg) in args.iter().enumerate() {
        match &arg.name {
            Some(key) if !row.keys.contains(&&*key.name) => {
                let mut unknown =
                    Diagnostic::new(Code::E008, key.span, format!("`@{name}` has no argument `{}`", key.name))
                        .label("unknown argument");
                unknown = match closest(&key.name, row.keys.iter().copied()) {
                    Some(close) => unknown.hint(format!("did you mean `{close}`?")),
                    None if row.keys.is_empty() => unknown.hint("it takes no arguments"),
                    None => unknown.hint(format!("it takes {}", row.keys.join(", "))),
                };
                found.push(unknown);
            }
            None if index > 0 || !row.positional => found.push(
                Diagnostic::new(Code::E008, arg.value.span, format!("`@{name}` takes no argument here"))
                    .label("name it: `key=value`"),
            ),
            None if !row.words.is_empty() => {
                let given = match &arg.value.kind {
                    ExprKind::Name(word) | ExprKind::Str(word) => Some(word.as_str()),
                    _ => None,
                };
                if !given.is_some_and(|word| row.words.contains(&word)) {
                    let mut wrong =
                        Diagnostic::new(Code::E008, arg.value.span, format!("`@{name}` does not know this value"))
                            .label(format!("expected one of {}", row.words.join(", ")));
                    if let Some(close) = given.and_then(|word| closest(word, row.words.iter().copied())) {
                        wrong = wrong.hint(format!("did you mean `{close}`?"));
                    }
                    found.push(wrong);
                }
            }
            _ => {}
        }
    }
    match name.as_str() {
        "fuse" | "fuse_required" => check_fuse(args, found),
        "adapter" => check_adapter(args, found),
        "dtype" | "precision" => check_formats(annotation, args, found),
        "shard" | "partition" | "comm" => found.push(
            Diagnostic::new(Code::L102, annotation.span, format!("`@{name}` has no effect yet"))
                .label("several devices come later")
                .hint("the model runs whole on one device"),
        ),
        "scaling" => found.push(
            Diagnostic::new(Code::L001, annotation.span, "scaling is not supported yet")
                .label("quantised formats come later")
                .hint("remove the annotation, or keep the tensor in bf16 or fp32"),
        ),
        _ => {}
    }
}

/// The word of the first argument, or of the argument with a key.
fn argument<'a>(args: &'a [Arg], key: &str) -> Option<&'a Expr> {
    args.iter()
        .enumerate()
        .find(|(index, arg)| arg.name.as_ref().map_or(*index == 0, |name| name.name == key))
        .map(|(_, arg)| &arg.value)
}

fn check_fuse(args: &[Arg], found: &mut Vec<Diagnostic>) {
    let unknown = |span, name: &str, what: &str, known: &mut dyn Iterator<Item = &'static str>| {
        let wrong = Diagnostic::new(Code::E013, span, format!("no {what} named `{name}`")).label("cannot be fused");
        match closest(name, known) {
            Some(close) => wrong.hint(format!("did you mean `{close}`?")),
            None => wrong,
        }
    };
    for arg in args {
        let key = arg.name.as_ref().map_or("pattern", |name| name.name.as_str());
        match (key, &arg.value.kind) {
            ("pattern", ExprKind::Name(name) | ExprKind::Str(name)) if !FUSION_PATTERNS.contains(&name.as_str()) => {
                found.push(unknown(arg.value.span, name, "fusion pattern", &mut FUSION_PATTERNS.iter().copied()));
            }
            ("ops", ExprKind::List(items)) => {
                for item in items {
                    if let Some(name) = item.as_name()
                        && primitives::find(name).is_none()
                    {
                        found.push(unknown(item.span, name, "primitive", &mut primitives::names()));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Eight bits and fewer come later.
fn check_formats(annotation: &Annotation, args: &[Arg], found: &mut Vec<Diagnostic>) {
    for arg in args {
        if let Some(name) = arg.value.as_name().filter(|name| is_small_format(name)) {
            found.push(
                Diagnostic::new(Code::L001, annotation.span, format!("`{name}` is not supported yet"))
                    .label("quantised formats come later")
                    .hint("use bf16, fp16 or fp32"),
            );
        }
    }
}

/// Whether a word is a format of eight bits or fewer, or a policy that uses one.
pub(super) fn is_small_format(name: &str) -> bool {
    name.starts_with("fp8") || name.starts_with("fp4")
}

/// `@alias` stands for the same tensor, so nothing may compute it.
pub(super) fn check_alias(flow: &Flow, found: &mut Vec<Diagnostic>) {
    const VIEWS: &[&str] = &["view", "reshape", "transpose", "permute", "split", "contiguous", "fork"];
    let Some(alias) = flow.annotations.iter().find(|a| a.name.name == "alias") else {
        return;
    };
    let computes = flow.steps.iter().find(|step| match &step.kind {
        StepKind::Call(call) => !VIEWS.contains(&call.callee.path.to_string().as_str()),
        StepKind::Shape(_) => false,
    });
    if let Some(step) = computes {
        found.push(
            Diagnostic::new(Code::E008, alias.span, "`@alias` cannot stand on a computed result")
                .label("an alias is the same tensor, or a view of it")
                .also(step.span, "this computes a new one"),
        );
    }
}

fn check_adapter(args: &[Arg], found: &mut Vec<Diagnostic>) {
    if let Some(value) = argument(args, "type")
        && let Some(kind @ ("prefix" | "prompt" | "adapter")) = value.as_name()
    {
        found.push(
            Diagnostic::new(Code::L001, value.span, format!("`{kind}` adapters are not supported yet"))
                .label("only `lora` and `ia3` are")
                .hint("use `@adapter(lora, ...)`"),
        );
    }
}

/// `topology:` gives sizes of groups of devices (§7.6.0); there is one device.
pub(super) fn check_topology(topology: &Recipe, found: &mut Vec<Diagnostic>) {
    const SIZES: &[&str] = &["dp_size", "tp_size", "pp_size", "ep_size"];
    for (key, value) in &topology.entries {
        if !SIZES.contains(&key.name.as_str()) {
            let mut unknown = Diagnostic::new(Code::E008, key.span, format!("a topology has no `{}`", key.name))
                .label(format!("known are {}", SIZES.join(", ")));
            if let Some(close) = closest(&key.name, SIZES.iter().copied()) {
                unknown = unknown.hint(format!("did you mean `{close}`?"));
            }
            found.push(unknown);
        } else if !matches!(value.peel().kind, ExprKind::Int(n) if n > 0) {
            let message = format!("`{}` is a number of devices", key.name);
            found.push(Diagnostic::new(Code::E003, value.span, message).label("expected a number above 0"));
        }
    }
    found.push(
        Diagnostic::new(Code::L102, topology.name.span, "`topology` has no effect yet")
            .label("several devices come later; the model runs on one"),
    );
}

/// Whether annotations include `@name(word)`.
pub(super) fn says(annotations: &[Annotation], name: &str, word: &str) -> bool {
    annotations.iter().any(|annotation| {
        annotation.name.name == name
            && argument(annotation.args.as_deref().unwrap_or_default(), "mode")
                .is_some_and(|value| value.as_name() == Some(word))
    })
}

/// Whether annotations include `@name`.
pub(super) fn has(annotations: &[Annotation], name: &str) -> bool {
    annotations.iter().any(|annotation| annotation.name.name == name)
}

/// The dtype that `@dtype` gives.
pub(super) fn dtype(annotations: &[Annotation]) -> Option<String> {
    let annotation = annotations.iter().find(|annotation| annotation.name.name == "dtype")?;
    argument(annotation.args.as_deref()?, "type")?.as_name().map(str::to_string)
}

/// A checkpointed statement must lie in one pipeline stage (E025).
pub(super) fn check_stages(flow: &Flow, found: &mut Vec<Diagnostic>) {
    let Some(checkpoint) = flow.annotations.iter().find(|a| a.name.name == "checkpoint") else {
        return;
    };
    let stage = |annotations: &[Annotation]| {
        let partition = annotations.iter().find(|a| a.name.name == "partition")?;
        match argument(partition.args.as_deref()?, "stage")?.kind {
            ExprKind::Int(stage) => Some((stage, partition.span)),
            _ => None,
        }
    };
    let own = stage(&flow.annotations);
    for step in &flow.steps {
        let Some((number, span)) = stage(&step.annotations) else {
            continue;
        };
        if own.map(|(n, _)| n) != Some(number) {
            let whole = own.map_or("no stage".to_string(), |(n, _)| format!("stage {n}"));
            return found.push(
                Diagnostic::new(Code::E025, checkpoint.span, "checkpoint spans pipeline stages")
                    .label(format!("the checkpointed statement is in {whole}"))
                    .also(span, format!("this operation is in stage {number}"))
                    .hint("write one checkpointed statement per stage, with `@partition` behind its destination"),
            );
        }
    }
}
