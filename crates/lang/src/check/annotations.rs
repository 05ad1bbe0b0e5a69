//! Checks annotations (§7): each must have a target where it has an effect, known arguments, and valid values (E008, E013, E025).
//! Unsupported ones are rejected, or a warning if ignoring them changes no results (L102).

use super::annotation_table::{self as table, AnnotationRow, AnnotationTarget, ArgumentKind, FUSION_PATTERNS, RECIPE};
use super::primitives;
use crate::ast::{Annotation, Arg, Expr, ExprKind, Flow, Item, LetItem, RecipeDecl, SectionKind, StepKind};
use crate::consteval::{ConstValue, EvalErrorKind, NameResolver, Ternary, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use crate::suggest::closest;

/// Predicates on tensors in conditions of `@assert` and `@probe`.
const TENSOR_PREDICATES: &[&str] = &["has_nan", "has_inf", "has_nan_or_inf", "is_finite", "all", "any"];

/// Annotations that contradict each other on one tensor.
const CONFLICTING: &[(&str, &str)] = &[
    ("frozen", "trainable"),
    ("alias", "noalias"),
    ("fuse", "nofuse"),
    ("fuse_required", "nofuse"),
    ("fuse", "fuse_required"),
    ("memory", "lifetime"),
];

fn invalid_argument(span: Span, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::E008, span, message).with_label(label)
}

fn not_supported(span: Span, message: impl Into<String>, label: impl Into<String>, hint: &str) -> Diagnostic {
    Diagnostic::new(Code::L001, span, message).with_label(label).with_hint(hint)
}

fn no_effect(span: Span, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::L102, span, message).with_label(label)
}

/// Checks the annotations of one target; `names` resolves constants, as far as they are known.
pub(crate) fn check(
    annotations: &[Annotation],
    place: AnnotationTarget,
    names: &dyn NameResolver,
    found: &mut Vec<Diagnostic>,
) {
    for (index, annotation) in annotations.iter().enumerate() {
        let name = &annotation.name.name;
        let repeats = table::find(name).is_some_and(|row| row.repeatable);
        let earlier = annotations[..index].iter().find(|other| other.name.name == *name);
        if let (false, Some(earlier)) = (repeats, earlier) {
            let twice = invalid_argument(annotation.span, format!("`@{name}` is given twice"), "second one");
            found.push(twice.with_secondary(earlier.span, "first one").with_hint("keep one of them"));
            continue;
        }
        check_one(annotation, place, names, found);
    }
    for (a, b) in CONFLICTING {
        let find = |name: &str| annotations.iter().find(|annotation| annotation.name.name == name);
        if let (Some(first), Some(second)) = (find(a), find(b)) {
            let message = format!("`@{a}` and `@{b}` cannot be combined");
            let both = invalid_argument(second.span, message, "first one").with_secondary(first.span, "second one");
            found.push(both.with_hint("remove one of them"));
        }
    }
}

fn check_one(annotation: &Annotation, place: AnnotationTarget, names: &dyn NameResolver, found: &mut Vec<Diagnostic>) {
    let name = &annotation.name.name;
    let Some(row) = table::find(name) else {
        let mut unknown = invalid_argument(
            annotation.name.span,
            format!("unknown annotation `@{name}`"),
            "no annotation has this name",
        );
        if let Some(close) = closest(name, table::annotation_rows().iter().map(|row| row.name)) {
            unknown = unknown.with_hint(format!("did you mean `@{close}`?"));
        }
        return found.push(unknown);
    };
    if !row.targets.contains(&place) {
        let mut misplaced =
            invalid_argument(annotation.span, format!("`@{name}` is not allowed on {}", place.words()), "misplaced");
        if row.targets.contains(&AnnotationTarget::Output)
            && matches!(place, AnnotationTarget::Step | AnnotationTarget::Item)
        {
            misplaced = misplaced.with_hint(match place {
                AnnotationTarget::Step => "end the statement here and put the annotation after the destination",
                _ => "put it after the closing parenthesis",
            });
        }
        return found.push(misplaced);
    }
    let args = annotation.args.as_deref().unwrap_or_default();
    let before = found.len();
    let mut given: Vec<(&str, Span)> = Vec::new();
    for (index, arg) in args.iter().enumerate() {
        let key = match &arg.name {
            Some(key) => match row.keys().find(|known| *known == key.name) {
                Some(known) => known,
                None => {
                    found.push(unknown_argument(row, key));
                    continue;
                }
            },
            None => match row.positional().filter(|_| index == 0) {
                Some(key) => key,
                None => {
                    let message = format!("`@{name}` takes no argument here");
                    found.push(invalid_argument(arg.value.span, message, "name it: `key=value`"));
                    continue;
                }
            },
        };
        if let Some((_, first)) = given.iter().find(|(other, _)| *other == key) {
            let twice = invalid_argument(arg.span(), format!("`{key}` is given twice"), "second one");
            found.push(twice.with_secondary(*first, "first one"));
            continue;
        }
        given.push((key, arg.span()));
        if let Some(kind) = row.kind(key) {
            check_value(name, key, kind, &arg.value, names, found);
        }
    }
    if let Some(needed) = row.required()
        && !given.iter().any(|(key, _)| *key == needed)
        && found.len() == before
    {
        let example = row.kind(needed).map_or(String::new(), |kind| example(needed, kind));
        let missing = invalid_argument(annotation.span, format!("`@{name}` needs `{needed}`"), "not given");
        return found.push(missing.with_hint(format!("write `@{name}({example})`")));
    }
    if found.len() == before {
        check_combination(annotation, args, place, names, found);
    }
}

fn unknown_argument(row: &AnnotationRow, key: &crate::ast::Ident) -> Diagnostic {
    let unknown =
        invalid_argument(key.span, format!("`@{}` has no argument `{}`", row.name, key.name), "unknown argument");
    let keys: Vec<&str> = row.keys().collect();
    match closest(&key.name, keys.iter().copied()) {
        Some(close) => unknown.with_hint(format!("did you mean `{close}`?")),
        None if keys.is_empty() => unknown.with_hint("it takes no arguments"),
        None => unknown.with_hint(format!("it takes {}", keys.join(", "))),
    }
}

/// An example of a valid argument.
fn example(key: &str, kind: ArgumentKind) -> String {
    match kind {
        ArgumentKind::Word(words) => words.first().map_or(String::new(), ToString::to_string),
        ArgumentKind::Dtype => "bf16".to_string(),
        ArgumentKind::Int(least) => least.max(0).to_string(),
        ArgumentKind::Condition => "!has_nan(x)".to_string(),
        ArgumentKind::Label if key == "point" => "AfterAttention".to_string(),
        ArgumentKind::Label if key == "name" => "Name".to_string(),
        _ => format!("{key}=..."),
    }
}

/// Checks a value against the kind of its argument.
fn check_value(
    name: &str,
    key: &str,
    kind: ArgumentKind,
    value: &Expr,
    names: &dyn NameResolver,
    found: &mut Vec<Diagnostic>,
) {
    let inner = value.peel();
    let word = match &inner.kind {
        ExprKind::Name(word) | ExprKind::Str(word) => Some(word.as_str()),
        _ => None,
    };
    let unknown = |known: &[&'static str]| {
        let message = format!("invalid value for `@{name}`");
        let finding = invalid_argument(value.span, message, format!("expected one of {}", known.join(", ")));
        match word.and_then(|word| closest(word, known.iter().copied())) {
            Some(close) => finding.with_hint(format!("did you mean `{close}`?")),
            None => finding,
        }
    };
    match kind {
        ArgumentKind::Word(words) if !word.is_some_and(|word| words.contains(&word)) => found.push(unknown(words)),
        ArgumentKind::Dtype if !word.is_some_and(table::is_dtype) => found.push(unknown(crate::ast::DTYPE_NAMES)),
        ArgumentKind::Word(_) | ArgumentKind::Dtype => {}
        ArgumentKind::Label if word.is_none() && inner.as_path().is_none() => {
            found.push(invalid_argument(
                value.span,
                format!("`{key}` must be a name"),
                "expected a name or a quoted string",
            ));
        }
        ArgumentKind::Text if !matches!(inner.kind, ExprKind::Str(_)) => {
            found.push(invalid_argument(value.span, format!("`{key}` must be a string"), "expected a quoted string"));
        }
        ArgumentKind::Label | ArgumentKind::Text => {}
        ArgumentKind::Names => {
            let items = match &inner.kind {
                ExprKind::List(items) => &items[..],
                _ => std::slice::from_ref(inner),
            };
            let plain = |item: &&Expr| matches!(item.peel().kind, ExprKind::Name(_) | ExprKind::Str(_));
            if let Some(other) = items.iter().find(|item| !plain(item)) {
                found.push(invalid_argument(
                    other.span,
                    format!("`{key}` must be a list of names"),
                    "this is not a list of names",
                ));
            }
        }
        ArgumentKind::Condition => condition(value, names, found),
        ArgumentKind::Pair => {
            let sizes = match &inner.kind {
                ExprKind::Tuple(items) | ExprKind::List(items) => &items[..],
                _ => &[],
            };
            let size = |item: &Expr| eval(item, names).is_ok_and(|v| v.as_int().is_none_or(|n| n > 0));
            if sizes.len() != 2 || !sizes.iter().all(size) {
                found.push(invalid_argument(
                    value.span,
                    format!("`{key}` must be a pair of sizes"),
                    "expected something like `(32, 32)`",
                ));
            }
        }
        ArgumentKind::Int(_)
        | ArgumentKind::Number(..)
        | ArgumentKind::Finite
        | ArgumentKind::Fraction
        | ArgumentKind::Flag => {
            number(key, kind, value, names, found);
        }
    }
}

fn number(key: &str, kind: ArgumentKind, value: &Expr, names: &dyn NameResolver, found: &mut Vec<Diagnostic>) {
    let constant = match eval(value, names) {
        Ok(constant) => constant,
        Err(error) => {
            let finding = match error.kind {
                EvalErrorKind::Undefined(name) => {
                    Diagnostic::new(Code::E002, error.span, format!("no value named `{name}`"))
                        .with_label("not a parameter, not bound by `let`")
                }
                EvalErrorKind::ZeroDivision => invalid_argument(error.span, "division by zero", "the divisor is 0"),
                EvalErrorKind::Type(words) => invalid_argument(error.span, words, "not a value for this argument"),
                EvalErrorKind::Runtime(name) => {
                    invalid_argument(error.span, "not known at compile time", format!("`{name}` is a tensor"))
                }
                EvalErrorKind::NotAFunction(name) => {
                    invalid_argument(error.span, format!("`{name}` is not a function of constants"), "not a value")
                }
            };
            return found.push(finding);
        }
    };
    let real = match &constant {
        ConstValue::Float(x) => *x,
        other => other.as_int().map(|n| n as f64),
    };
    let (fits, expected) = match kind {
        ArgumentKind::Flag => (matches!(constant, ConstValue::Bool(_)), "true or false".to_string()),
        ArgumentKind::Int(i64::MIN) => (matches!(constant, ConstValue::Int(_)), "an integer".to_string()),
        ArgumentKind::Int(least) => {
            let fits = matches!(constant, ConstValue::Int(_)) && constant.as_int().is_none_or(|n| n >= least);
            (fits, format!("an integer of at least {least}"))
        }
        ArgumentKind::Number(least, above) => {
            let enough = |x: f64| x.is_finite() && if above { x > least } else { x >= least };
            let fits = matches!(constant, ConstValue::Int(_) | ConstValue::Float(_)) && real.is_none_or(enough);
            (
                fits || (above && constant == ConstValue::None),
                format!("a number {} {least}", if above { "above" } else { "of at least" }),
            )
        }
        ArgumentKind::Fraction => {
            let fits = matches!(constant, ConstValue::Int(_) | ConstValue::Float(_))
                && real.is_none_or(|x| (0.0..1.0).contains(&x));
            (fits, "a number of at least 0 and less than 1".to_string())
        }
        _ => {
            let fits = matches!(constant, ConstValue::Int(_) | ConstValue::Float(_)) && real.is_none_or(f64::is_finite);
            (fits, "a number".to_string())
        }
    };
    if !fits && constant != ConstValue::Unknown {
        found.push(invalid_argument(value.span, format!("`{key}` must be {expected}"), format!("this is {constant}")));
    }
}

/// Checks a condition, which may be quoted; the names in it must exist.
fn condition(value: &Expr, names: &dyn NameResolver, found: &mut Vec<Diagnostic>) {
    fn unknown<'e>(expr: &'e Expr, names: &dyn NameResolver) -> Option<(&'e str, &'static str)> {
        match &expr.kind {
            ExprKind::Name(name) => {
                let known = names.is_tensor(name) || names.value(name).is_some();
                (!known).then_some((name.as_str(), "no tensor or value"))
            }
            ExprKind::Call(callee, args) => {
                let name = callee.as_name().unwrap_or("this");
                if !TENSOR_PREDICATES.contains(&name) && !crate::consteval::INTRINSICS.contains(&name) {
                    return Some((name, "no condition function"));
                }
                args.iter().find_map(|arg| unknown(&arg.value, names))
            }
            _ => expr.children().into_iter().find_map(|child| unknown(child, names)),
        }
    }
    let quoted;
    let expr = match &value.peel().kind {
        ExprKind::Str(text) => match parse_condition(text) {
            Some(parsed) => {
                quoted = parsed;
                &quoted
            }
            None => {
                let message = "the quoted condition cannot be read";
                return found.push(invalid_argument(value.span, message, "expected something like `has_nan(x)`"));
            }
        },
        _ => value,
    };
    if let Some((name, what)) = unknown(expr, names) {
        let span = if std::ptr::eq(expr, value) { find_name(value, name).unwrap_or(value.span) } else { value.span };
        let mut finding =
            Diagnostic::new(Code::E002, span, format!("{what} named `{name}`")).with_label("not known here");
        if what == "no condition function" {
            let close = closest(name, TENSOR_PREDICATES.iter().copied());
            finding = finding.with_hint(match close {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("conditions support {}", TENSOR_PREDICATES.join(", ")),
            });
        }
        found.push(finding);
    }
}

fn find_name(expr: &Expr, name: &str) -> Option<Span> {
    if expr.as_name() == Some(name) {
        return Some(expr.span);
    }
    expr.children().into_iter().find_map(|child| find_name(child, name))
}

/// Parses a quoted condition.
pub(crate) fn parse_condition(text: &str) -> Option<Expr> {
    if text.contains('\n') {
        return None;
    }
    let file = format!("module quoted():\n  let:\n    condition = {text}\n");
    let parsed = crate::parser::parse(crate::span::FileId::default(), &file);
    if !parsed.diagnostics.is_empty() {
        return None;
    }
    let Some(Item::Decl(decl)) = parsed.file.items.into_iter().next() else { return None };
    decl.sections.into_iter().find_map(|section| match section.kind {
        SectionKind::Let(items) => items.into_iter().find_map(|item| match item {
            LetItem::Bind { value, .. } => Some(value),
            _ => None,
        }),
        _ => None,
    })
}

/// Checks combinations of arguments, and what this machine does not support.
fn check_combination(
    annotation: &Annotation,
    args: &[Arg],
    place: AnnotationTarget,
    names: &dyn NameResolver,
    found: &mut Vec<Diagnostic>,
) {
    let name = annotation.name.name.as_str();
    let Some(row) = table::find(name) else { return };
    let get = |key: &str| {
        let named = args.iter().find(|arg| arg.name.as_ref().is_some_and(|name| name.name == key));
        let first = || args.first().filter(|arg| arg.name.is_none() && row.positional() == Some(key));
        named.or_else(first).map(|arg| &arg.value)
    };
    let word = |key: &str| get(key).and_then(string_value);
    let flag = |key: &str| {
        let value = get(key).and_then(|value| eval(value, names).ok());
        match value {
            Some(ConstValue::Bool(Ternary::Known(value))) => Some(value),
            _ => None,
        }
    };
    let stray = |keys: &[&'static str], why: &str, found: &mut Vec<Diagnostic>| {
        for key in keys {
            if let Some(value) = get(key) {
                found.push(invalid_argument(value.span, format!("`{key}` has no meaning here"), why.to_string()));
            }
        }
    };
    match name {
        "memory" => match word("mode") {
            Some("offload" | "stream") => found.push(
                no_effect(annotation.span, "the device has one memory", "stays where it is")
                    .with_hint("the tensor is kept in memory, as with `@memory(pin)`"),
            ),
            Some(mode @ ("recompute" | "temporary")) if place == AnnotationTarget::Parameter => found.push(
                invalid_argument(
                    annotation.span,
                    format!("a parameter cannot be `{mode}`"),
                    "a parameter is not computed",
                )
                .with_hint("parameters are kept: `@memory(pin)`"),
            ),
            _ => stray(&["priority", "prefetch", "async"], "only `offload` and `stream` have it", found),
        },
        "checkpoint" if word("granularity") == Some("none") => {
            stray(&["preserve"], "without a checkpoint, all tensors are saved", found);
        }
        "adapter" => match word("type") {
            Some(kind @ ("prefix" | "prompt" | "adapter")) => found.push(not_supported(
                get("type").map_or(annotation.span, |value| value.span),
                format!("`{kind}` adapters are not supported yet"),
                "only `lora` and `ia3` are",
                "use `@adapter(lora, ...)`",
            )),
            Some("ia3") => {
                let others = ["rank", "alpha", "dropout", "length", "hidden_dim", "bottleneck_dim", "activation"];
                stray(&others, "`ia3` takes only `targets`", found);
            }
            _ => stray(&["length", "hidden_dim", "bottleneck_dim", "activation"], "`lora` does not have it", found),
        },
        "probe" if word("capture").is_some_and(|what| what.starts_with("grad_")) => {
            if let Some(condition) = get("condition") {
                found.push(not_supported(
                    condition.span,
                    "a condition on a probe of gradients is not supported yet",
                    "gradients are not known in the forward graph",
                    "remove it",
                ));
            }
        }
        "gradient" => {
            if args.is_empty() {
                let nothing =
                    invalid_argument(annotation.span, "`@gradient` has no arguments", "neither mode, scale nor clip");
                found.push(
                    nothing.with_hint("write `@gradient(skip)`, `@gradient(scale=0.5)` or `@gradient(clip=1.0)`"),
                );
            }
            match word("mode") {
                Some("skip") => stray(&["scale", "clip"], "a skipped gradient has no further options", found),
                Some("checkpoint") => found.push(not_supported(
                    annotation.span,
                    "`@gradient(checkpoint)` is not supported yet",
                    "gradients are not kept",
                    "use `@checkpoint` for recomputation in backward",
                )),
                _ => {}
            }
        }
        "kernel" if flag("fallback") == Some(false) => found.push(not_supported(
            annotation.span,
            "kernels cannot be chosen by name yet",
            "`fallback=false` requires this kernel",
            "remove `fallback=false`: the compiler generates the kernels",
        )),
        "kernel" => found.push(
            no_effect(annotation.span, "`@kernel` has no effect yet", "the compiler generates its own kernels")
                .with_hint("remove the annotation, or look at `loom explain`"),
        ),
        "profile" => {
            for key in ["cuda_events", "nvtx"] {
                if flag(key) == Some(true) {
                    let at = get(key).map_or(annotation.span, |value| value.span);
                    found.push(
                        no_effect(at, format!("`{key}` has no effect yet"), "steps are timed with the wall clock")
                            .with_hint("remove it, or write `false`"),
                    );
                }
            }
        }
        // Sizes and communication are determined by the mesh.
        "shard"
            if matches!(place, AnnotationTarget::Output | AnnotationTarget::Item | AnnotationTarget::Step)
                || place == AnnotationTarget::Parameter
                    && matches!(word("strategy"), Some("column" | "row" | "replicated" | "expert" | "head")) =>
        {
            for key in ["tp_size", "ep_size", "pp_size", "async_comm", "reduce_scatter"] {
                if let Some(value) = get(key) {
                    found.push(
                        no_effect(
                            value.span,
                            format!("`{key}` has no effect here"),
                            "the number is given by the mesh of the run",
                        )
                        .with_hint("remove it and give the mesh: loom train --mesh tp=2"),
                    );
                }
            }
        }
        "partition" if place != AnnotationTarget::Output => found.push(
            no_effect(
                annotation.span,
                "`@partition` has no effect here",
                "stages are assigned to results, not to operations",
            )
            .with_hint("write it after the result: `x -> blocks[0:4]() -> y @partition(0)`"),
        ),
        "partition" => {
            for key in ["micro_batch", "recompute"] {
                if let Some(value) = get(key) {
                    found.push(
                        no_effect(
                            value.span,
                            format!("`{key}` has no effect"),
                            "stages run one micro-batch after another and recompute activations in backward",
                        )
                        .with_hint(
                            "remove it and set the number of micro-batches: loom train --mesh pp=2 \
                             --gradient-accumulation-steps 8",
                        ),
                    );
                }
            }
        }
        "comm" if place == AnnotationTarget::Backward => {
            if let Some(op) = get("op").filter(|_| word("op") != Some("all_reduce")) {
                let gradients = invalid_argument(op.span, "gradients are summed", "expected `all_reduce`");
                return found
                    .push(gradients.with_hint("write `@comm(all_reduce, group=\"dp\", bucket_size=25_000_000)`"));
            }
            if let Some(group) = get("group").filter(|_| !matches!(word("group"), Some("dp" | "default"))) {
                let other =
                    invalid_argument(group.span, "gradients are summed over ranks that share a batch", "expected `dp`");
                return found.push(other.with_hint("write `group=\"dp\"`; sums over others follow from `@shard`"));
            }
            if get("bucket_size").is_none() && flag("async") != Some(false) {
                found.push(
                    no_effect(
                        annotation.span,
                        "gradients are summed by default",
                        "neither `bucket_size` nor `async=false`",
                    )
                    .with_hint("remove it, or give the bucket size: `bucket_size=25_000_000`"),
                );
            }
        }
        "comm" if matches!(place, AnnotationTarget::Output | AnnotationTarget::Item | AnnotationTarget::Step) => {
            stray(&["bucket_size"], "only gradients are bucketed: write it in a backward graph", found);
            if word("group") == Some("pp") {
                let at = get("group").map_or(annotation.span, |value| value.span);
                let stages =
                    invalid_argument(at, "pipeline stages share no tensors", "this group does not communicate here");
                return found.push(stages.with_hint("remove it: stages communicate as `@partition` specifies"));
            }
            if matches!(word("op"), Some("send" | "recv")) {
                found.push(
                    no_effect(
                        annotation.span,
                        "stages communicate automatically",
                        "the transfers follow from `@partition`",
                    )
                    .with_hint("remove it, and mark the stages: `-> x @partition(0)`"),
                );
            }
        }
        "shard" | "comm" => found.push(
            no_effect(
                annotation.span,
                format!("`@{name}` has no effect here"),
                "communication follows from `@shard` of the parameters and from the mesh",
            )
            .with_hint("remove it; `loom compile --mesh tp=2 --emit graph` shows the inserted collectives"),
        ),
        "scaling" => {
            let strategy = word("strategy");
            if strategy != Some("delayed") {
                stray(&["history_len", "update_interval"], "only `delayed` has a history", found);
            }
            if strategy != Some("per_block") {
                stray(&["block_size"], "only `per_block` has blocks", found);
            }
        }
        _ => {}
    }
    if name == "precision" {
        match place {
            AnnotationTarget::Parameter => {
                let others = ["policy", "compute", "accumulate", "output"];
                stray(&others, "a parameter supports only `storage`", found);
            }
            _ => stray(&["storage"], "`storage` is only allowed on parameters", found),
        }
        if let Some(policy) = get("policy") {
            for key in ["compute", "output"] {
                if let Some(value) = get(key) {
                    let both = invalid_argument(value.span, format!("`policy` decides `{key}` already"), "first one");
                    found.push(both.with_secondary(policy.span, "second one"));
                }
            }
        }
        if let Some(sum) = get("accumulate").filter(|_| word("accumulate") != Some("fp32")) {
            found.push(not_supported(
                sum.span,
                "sums are accumulated in fp32",
                "another format is not supported yet",
                "write fp32",
            ));
        }
        if args.is_empty() {
            found.push(invalid_argument(
                annotation.span,
                "`@precision` has no arguments",
                "expected `compute=`, `output=` or `policy=`",
            ));
        }
    }
}

/// The items of a list; any other expression is a single item.
pub(super) fn list_items(expr: &Expr) -> &[Expr] {
    match &expr.peel().kind {
        ExprKind::List(items) => items,
        _ => std::slice::from_ref(expr),
    }
}

pub(super) fn string_value(expr: &Expr) -> Option<&str> {
    match &expr.peel().kind {
        ExprKind::Name(word) | ExprKind::Str(word) => Some(word),
        _ => None,
    }
}

/// The positional argument, or the argument with this key.
fn argument<'a>(args: &'a [Arg], key: &str) -> Option<&'a Expr> {
    args.iter()
        .enumerate()
        .find(|(index, arg)| arg.name.as_ref().map_or(*index == 0, |name| name.name == key))
        .map(|(_, arg)| &arg.value)
}

/// Checks that a statement performs the operations of its fusion pattern: `performed` are its primitives, including those of modules.
pub(super) fn check_fuse(flow: &Flow, performed: &std::collections::BTreeSet<String>, found: &mut Vec<Diagnostic>) {
    let marks = flow.annotations.iter().filter(|a| matches!(a.name.name.as_str(), "fuse" | "fuse_required"));
    for arg in marks.flat_map(|annotation| annotation.args.iter().flatten()) {
        let key = arg.name.as_ref().map_or("pattern", |name| name.name.as_str());
        match (key, &arg.value.kind) {
            ("pattern", ExprKind::Name(name) | ExprKind::Str(name)) => {
                if !FUSION_PATTERNS.contains(&name.as_str()) {
                    let known = &mut FUSION_PATTERNS.iter().copied();
                    found.push(no_fusion(arg.value.span, name, "fusion pattern", known));
                } else if let Some(lacking) = missing(name, performed) {
                    found.push(
                        Diagnostic::new(Code::E013, arg.value.span, format!("the statement is not a `{name}`"))
                            .with_label(format!("it has no {lacking}"))
                            .with_secondary(flow.span, "this statement"),
                    );
                }
            }
            ("ops", ExprKind::List(items)) => {
                for item in items {
                    let Some(name) = string_value(item) else { continue };
                    if primitives::find(name).is_none() {
                        found.push(no_fusion(item.span, name, "primitive", &mut primitives::names()));
                    } else if !performed.contains(name) {
                        found.push(
                            Diagnostic::new(Code::E013, item.span, format!("the statement does not run `{name}`"))
                                .with_label("cannot be fused")
                                .with_secondary(flow.span, "this statement"),
                        );
                    }
                }
            }
            _ => {}
        }
    }
}

fn no_fusion(span: Span, name: &str, what: &str, known: &mut dyn Iterator<Item = &'static str>) -> Diagnostic {
    let wrong = Diagnostic::new(Code::E013, span, format!("no {what} named `{name}`")).with_label("cannot be fused");
    match closest(name, known) {
        Some(close) => wrong.with_hint(format!("did you mean `{close}`?")),
        None => wrong,
    }
}

/// A primitive that the pattern requires and the statement lacks.
fn missing(pattern: &str, performed: &std::collections::BTreeSet<String>) -> Option<&'static str> {
    const NORMS: (&str, &[&str]) = ("norm", &["rmsnorm", "layernorm", "group_rmsnorm", "fused_residual_rmsnorm"]);
    const SUMS: (&str, &[&str]) = ("addition", &["add", "bias_add", "add3", "fused_residual_rmsnorm"]);
    const PRODUCTS: (&str, &[&str]) = ("product", &["matmul", "batched_matmul", "grouped_gemm"]);
    const GATES: (&str, &[&str]) = ("gate", &["swiglu", "geglu", "silu_mul"]);
    const SPLITS: (&str, &[&str]) = ("split", &["split"]);
    const SOFTMAXES: (&str, &[&str]) = ("softmax", &["softmax", "flash_attention"]);
    const ACTIVATIONS: (&str, &[&str]) =
        ("activation", &["silu", "relu", "relu2", "gelu", "sigmoid", "tanh", "swiglu", "geglu", "silu_mul"]);
    let needs: &[(&'static str, &[&str])] = match pattern {
        "residual_norm" => &[SUMS, NORMS],
        "norm_linear" => &[NORMS, PRODUCTS],
        "gated_mlp" => &[SPLITS, GATES],
        "attention_softmax" => &[SOFTMAXES],
        "bias_activation" => &[SUMS, ACTIVATIONS],
        "linear_bias_act" => &[PRODUCTS, SUMS, ACTIVATIONS],
        _ => &[],
    };
    needs.iter().find(|(_, any)| !any.iter().any(|op| performed.contains(*op))).map(|(what, _)| *what)
}

/// Checks that the settings of a recipe are known, have the right kinds, and are consistent.
pub(super) fn check_recipe(recipe: &RecipeDecl, found: &mut Vec<Diagnostic>) {
    let before = found.len();
    let mut seen: Vec<(&str, Span)> = Vec::new();
    for (key, value) in &recipe.entries {
        let Some((known, kind)) = RECIPE.iter().find(|(name, _)| *name == key.name) else {
            let names: Vec<&str> = RECIPE.iter().map(|(name, _)| *name).collect();
            let unknown = invalid_argument(
                key.span,
                format!("a recipe has no `{}`", key.name),
                format!("known are {}", names.join(", ")),
            );
            found.push(match closest(&key.name, names.iter().copied()) {
                Some(close) => unknown.with_hint(format!("did you mean `{close}`?")),
                None => unknown,
            });
            continue;
        };
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == key.name) {
            found.push(
                invalid_argument(key.span, format!("`{}` is given twice", key.name), "second one")
                    .with_secondary(*first, "first one"),
            );
        }
        seen.push((&key.name, key.span));
        if *kind == ArgumentKind::Dtype && !string_value(value).is_some_and(table::is_dtype) {
            let known = crate::ast::DTYPE_NAMES;
            let finding = invalid_argument(
                value.span,
                format!("`{}` is a dtype", key.name),
                format!("expected one of {}", known.join(", ")),
            );
            found.push(match string_value(value).and_then(|word| closest(word, known.iter().copied())) {
                Some(close) => finding.with_hint(format!("did you mean `{close}`?")),
                None => finding,
            });
        } else if *kind != ArgumentKind::Dtype {
            check_value("recipe", known, *kind, value, &crate::lower::NoNames, found);
        }
    }
    if found.len() == before
        && let Err(wrong) = crate::lower::PrecisionRecipe::from_decl(recipe)
    {
        found.push(*wrong);
    }
}

/// `@alias` names an existing tensor, so the statement must not compute one.
pub(super) fn check_alias(flow: &Flow, found: &mut Vec<Diagnostic>) {
    const VIEWS: &[&str] = &["view", "reshape", "transpose", "permute", "split", "contiguous", "fork"];
    if let (Some(apart), true) = (flow.annotations.iter().find(|a| a.name.name == "noalias"), flow.steps.is_empty()) {
        found.push(
            invalid_argument(apart.span, "`@noalias` on another name for the same tensor", "no copy is made")
                .with_hint("write `x -> copy() -> y @noalias`"),
        );
    }
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
                .with_label("an alias is the same tensor, or a view of it")
                .with_secondary(step.span, "this computes a new one"),
        );
    }
}

/// `topology:` gives the sizes of device groups (§7.6.0): the default mesh of a run.
pub(super) fn check_topology(topology: &RecipeDecl, found: &mut Vec<Diagnostic>) {
    const SIZES: &[&str] = &["dp_size", "tp_size", "pp_size", "ep_size"];
    for (key, value) in &topology.entries {
        if !SIZES.contains(&key.name.as_str()) {
            let mut unknown = Diagnostic::new(Code::E008, key.span, format!("a topology has no `{}`", key.name))
                .with_label(format!("known are {}", SIZES.join(", ")));
            if let Some(close) = closest(&key.name, SIZES.iter().copied()) {
                unknown = unknown.with_hint(format!("did you mean `{close}`?"));
            }
            found.push(unknown);
        } else if !matches!(value.peel().kind, ExprKind::Int(n) if n > 0) {
            let message = format!("`{}` is a number of devices", key.name);
            found.push(Diagnostic::new(Code::E003, value.span, message).with_label("expected a positive number"));
        }
    }
}

/// Whether the annotations contain `@name(word)`.
pub(super) fn has_argument(annotations: &[Annotation], name: &str, word: &str) -> bool {
    annotations.iter().any(|annotation| {
        annotation.name.name == name
            && argument(annotation.args.as_deref().unwrap_or_default(), "mode")
                .is_some_and(|value| value.as_name() == Some(word))
    })
}

/// Whether the annotations contain `@name`.
pub(super) fn has(annotations: &[Annotation], name: &str) -> bool {
    annotations.iter().any(|annotation| annotation.name.name == name)
}

/// The format of `@precision(storage=..)`.
pub(super) fn storage(annotations: &[Annotation]) -> Option<String> {
    let args = annotations.iter().filter(|annotation| annotation.name.name == "precision");
    let mut args = args.flat_map(|annotation| annotation.args.iter().flatten());
    let arg = args.find(|arg| arg.name.as_ref().is_some_and(|name| name.name == "storage"))?;
    string_value(&arg.value).map(str::to_string)
}

/// The dtype of `@dtype`.
pub(super) fn dtype(annotations: &[Annotation]) -> Option<String> {
    let annotation = annotations.iter().find(|annotation| annotation.name.name == "dtype")?;
    argument(annotation.args.as_deref()?, "type")?.as_name().map(str::to_string)
}

/// A checkpointed statement must be inside one pipeline stage (E025).
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
                    .with_label(format!("the checkpointed statement is in {whole}"))
                    .with_secondary(span, format!("this operation is in stage {number}"))
                    .with_hint("write one checkpointed statement per stage, with `@partition` after its destination"),
            );
        }
    }
}
