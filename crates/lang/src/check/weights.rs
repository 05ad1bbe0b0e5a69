//! Checks weight mappings: they name existing parameters, each once, with bound placeholders (§8, E010).

use crate::ast::{
    ConfigEntry, ConfigValue, ExprKind, LetItem, Param, ParamEntry, SectionKind, StrLit, TypeKind, WeightMapping,
    WeightPart, WeightPath, WeightSpec,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ModuleProgram, ModuleView};
use crate::span::Span;
use crate::suggest::closest;
use crate::template;
use std::collections::BTreeMap;

/// The functions of `transform`.
const FUNCTIONS: &[&str] = &["transpose", "negate", "exp", "negate_exp"];

pub(super) fn check(program: &ModuleProgram, view: &ModuleView<'_>, found: &mut Vec<Diagnostic>) {
    // Tensor names may use parameters and `let:` bindings.
    let lets = view.lets.iter().filter_map(|item| match item {
        LetItem::Bind { name, .. } => Some(name.name.as_str()),
        _ => None,
    });
    let constants: Vec<&str> = header(view).chain(lets).collect();
    for section in &view.decl.sections {
        if let SectionKind::HfConfig(entries) = &section.kind {
            check_config(view, entries, found);
        }
        if let SectionKind::HfMapping(mappings) | SectionKind::HfExport(mappings) = &section.kind {
            let mut seen: BTreeMap<String, Span> = BTreeMap::new();
            for mapping in mappings {
                let text = program.sources.slice(mapping.path.span).to_string();
                if let Some(first) = seen.insert(text.clone(), mapping.path.span) {
                    found.push(
                        Diagnostic::new(Code::E010, mapping.path.span, format!("`{text}` is mapped twice"))
                            .with_label("second mapping")
                            .with_secondary(first, "first mapping"),
                    );
                }
                check_path(program, view, &mapping.path, Code::E010, found);
                check_spec(mapping, &constants, found);
                if matches!(section.kind, SectionKind::HfExport(_)) {
                    check_export(mapping, found);
                }
                if let WeightSpec::TiedTo { target, .. } = &mapping.spec {
                    check_path(program, view, target, Code::E010, found);
                }
            }
        }
    }
}

/// Checks that an export can be computed from the parameter, and inverted.
fn check_export(mapping: &WeightMapping, found: &mut Vec<Diagnostic>) {
    match &mapping.spec {
        WeightSpec::Fuse { span, .. } => found.push(
            invalid(*span, "`fuse` concatenates tensors when reading".to_string(), "an export splits tensors")
                .with_hint("write `split(\"a\": [0, n], \"b\": [n, m], dim=0)`"),
        ),
        WeightSpec::Transform { function, .. } if matches!(function.name.as_str(), "exp" | "negate_exp") => found.push(
            invalid(
                function.span,
                format!("`{}` is not allowed in an export", function.name),
                "it is inverted when exporting",
            )
            .with_hint("write it in `hf_mapping:`; the export inverts it"),
        ),
        _ => {}
    }
}

/// Checks that the keys of `param_mapping:` are parameters of the model, and that the other keys are known.
fn check_config(view: &ModuleView<'_>, entries: &[ConfigEntry], found: &mut Vec<Diagnostic>) {
    const KEYS: &[&str] = &["architecture", "config_class", "param_mapping"];
    for entry in entries.iter().filter(|entry| !KEYS.contains(&entry.key.name.as_str())) {
        let label = format!("known are {}", KEYS.join(", "));
        let mut unknown = invalid(entry.key.span, format!("`hf_config` has no `{}`", entry.key.name), label);
        if let Some(close) = closest(&entry.key.name, KEYS.iter().copied()) {
            unknown = unknown.with_hint(format!("did you mean `{close}:`?"));
        }
        found.push(unknown);
    }
    let maps = entries.iter().filter(|entry| entry.key.name == "param_mapping");
    for key in maps
        .filter_map(|entry| match &entry.value {
            ConfigValue::Map(entries) => Some(entries),
            _ => None,
        })
        .flatten()
        .map(|entry| &entry.key)
    {
        if header(view).any(|name| name == key.name) {
            continue;
        }
        let owner = &view.decl.name.name;
        let mut missing = invalid(key.span, format!("`{owner}` has no parameter `{}`", key.name), "not a parameter");
        if let Some(close) = closest(&key.name, header(view)) {
            missing = missing.with_hint(format!("did you mean `{close}`?"));
        }
        found.push(missing);
    }
}

/// The names of the header's parameters.
fn header<'a>(view: &ModuleView<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    view.header.clone().into_iter().filter_map(|param| match param {
        Param::Named { name, .. } => Some(name.name.as_str()),
        Param::Elided(_) => None,
    })
}

fn invalid(span: Span, message: String, label: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::E010, span, message).with_label(label)
}

/// Resolves a path through contained modules.
pub(super) fn check_path(
    program: &ModuleProgram,
    view: &ModuleView<'_>,
    path: &WeightPath,
    code: Code,
    found: &mut Vec<Diagnostic>,
) {
    let invalid = |span: Span, message: String, label: &str| Diagnostic::new(code, span, message).with_label(label);
    let mut current = view.clone();
    let mut parts = path.parts.iter().peekable();
    while let Some(part) = parts.next() {
        let WeightPart::Field(name) = part else { continue };
        let named = |entry: &&&ParamEntry| entry.path.as_name().is_some_and(|n| n.name == name.name);
        let Some(entry) = current.params.iter().find(named) else {
            let names: Vec<&str> =
                current.params.iter().filter_map(|e| e.path.as_name()).map(|n| n.name.as_str()).collect();
            let owner = &current.decl.name.name;
            let mut missing =
                invalid(name.span, format!("`{owner}` has no parameter `{}`", name.name), "not a parameter");
            if let Some(close) = closest(&name.name, names) {
                missing = missing.with_hint(format!("did you mean `{close}`?"));
            }
            return found.push(missing);
        };
        let indexed = matches!(parts.peek(), Some(WeightPart::Index(_) | WeightPart::Placeholder(_)));
        let is_array = matches!(entry.ty.kind, TypeKind::Array { .. });
        // An index after a tensor selects a slice along its first dimension, such as one expert's weight.
        let is_tensor = matches!(entry.ty.kind, TypeKind::Tensor { .. });
        if indexed != is_array && !(indexed && is_tensor) {
            let (message, label) = if is_array {
                (format!("`{}` is an array", name.name), "add `[{layer}]`")
            } else {
                (format!("`{}` is not an array", name.name), "remove the index")
            };
            return found.push(invalid(name.span, message, label));
        }
        match super::reachability::module_of(program, current.item.file, &entry.ty) {
            Some(next) => match ModuleView::new(program, next) {
                Some(view) => current = view,
                None => return,
            },
            None => {
                if let Some(WeightPart::Field(rest)) = parts.find(|part| matches!(part, WeightPart::Field(_)))
                    && matches!(entry.ty.kind, TypeKind::Tensor { .. } | TypeKind::Optional(_))
                {
                    let message = format!("`{}` is a tensor and has no parts", name.name);
                    found.push(invalid(rest.span, message, "it has no parameters inside"));
                }
                return;
            }
        }
    }
}

fn check_spec(mapping: &WeightMapping, constants: &[&str], found: &mut Vec<Diagnostic>) {
    let texts: Vec<&StrLit> = match &mapping.spec {
        WeightSpec::Direct(text) => vec![text],
        WeightSpec::Fuse { parts, span, .. } => {
            if parts.len() < 2 {
                found.push(invalid(*span, "`fuse` needs at least two tensors".into(), "only one is named"));
            }
            parts.iter().collect()
        }
        WeightSpec::Split { parts, span, .. } => {
            if parts.len() < 2 {
                found.push(invalid(*span, "`split` needs at least two tensors".into(), "only one is named"));
            }
            for (_, range) in parts {
                if !matches!(&range.peel().kind, ExprKind::List(ends) if ends.len() == 2) {
                    let label = "expected `[start, end]`";
                    found.push(invalid(range.span, "a part of `split` needs a range".into(), label));
                }
            }
            parts.iter().map(|(text, _)| text).collect()
        }
        WeightSpec::Transform { source, function, .. } => {
            if !FUNCTIONS.contains(&function.name.as_str()) {
                let known = format!("known are {}", FUNCTIONS.join(", "));
                let message = format!("no function `{}` to transform a tensor with", function.name);
                let mut unknown = invalid(function.span, message, known);
                if let Some(close) = closest(&function.name, FUNCTIONS.iter().copied()) {
                    unknown = unknown.with_hint(format!("did you mean `{close}`?"));
                }
                found.push(unknown);
            }
            vec![source]
        }
        WeightSpec::TiedTo { .. } => Vec::new(),
    };
    let bound: Vec<&str> = mapping
        .path
        .parts
        .iter()
        .filter_map(|part| match part {
            WeightPart::Placeholder(name) => Some(name.name.as_str()),
            _ => None,
        })
        .collect();
    for text in texts {
        let pieces = match template::pieces(&text.value) {
            Ok(pieces) => pieces,
            Err(words) => {
                let label = "braces must contain a constant expression, such as `{2 * layer}`";
                found.push(invalid(text.span, format!("not a tensor name: {words}"), label));
                continue;
            }
        };
        let used: Vec<&str> = pieces
            .iter()
            .flat_map(|piece| match piece {
                template::NamePiece::Text(_) => Vec::new(),
                template::NamePiece::Value(_, expr) => template::names(expr),
            })
            .collect();
        if let Some(free) = used.iter().find(|name| !bound.contains(name) && !constants.contains(name)) {
            found.push(
                invalid(text.span, format!("placeholder `{{{free}}}` is not bound"), "it has no value")
                    .with_secondary(mapping.path.span, "the parameter has no such placeholder"),
            );
        }
        if let Some(lost) = bound.iter().find(|name| !used.contains(name)) {
            found.push(
                invalid(
                    text.span,
                    format!("placeholder `{{{lost}}}` is not used"),
                    "every layer would read the same tensor",
                )
                .with_secondary(mapping.path.span, "bound here"),
            );
        }
    }
}
