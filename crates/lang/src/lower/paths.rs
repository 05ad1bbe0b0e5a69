//! Matches parameter paths with placeholders, such as `blocks[{i}].attention.qkv_weight`.

use crate::ast::{WeightPart, WeightPath};
use crate::consteval::{NameResolver, eval};

/// The values of placeholders: a number, or `*` for stacked blocks.
pub(super) type PlaceholderValues = Vec<(String, String)>;

/// The result of matching a path with a parameter's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathMatch {
    /// The path does not match.
    No,
    /// The path matches.
    Yes(PlaceholderValues),
    /// The path names one of several stacked blocks.
    OneOfStacked,
}

/// Matches a path with a parameter's name.
pub(super) fn match_path(path: &WeightPath, name: &str, names: &dyn NameResolver) -> PathMatch {
    let mut rest = name;
    let (mut bound, mut stacked) = (PlaceholderValues::new(), false);
    for (index, part) in path.parts.iter().enumerate() {
        let next = match part {
            WeightPart::Field(field) => {
                let inner = if index > 0 { rest.strip_prefix('.') } else { Some(rest) };
                let inner = inner.and_then(|rest| rest.strip_prefix(field.name.as_str()));
                inner.filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            }
            WeightPart::Placeholder(_) | WeightPart::Index(_) => {
                let found = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                found.and_then(|(number, rest)| match part {
                    WeightPart::Placeholder(placeholder) => {
                        bound.push((placeholder.name.clone(), number.to_string()));
                        Some(rest)
                    }
                    WeightPart::Index(expr) => {
                        let wanted = eval(expr, names).ok().and_then(|value| value.as_int());
                        stacked |= number == "*";
                        (number == "*" || number.parse::<i64>().ok() == wanted).then_some(rest)
                    }
                    WeightPart::Field(_) => None,
                })
            }
        };
        match next {
            Some(next) => rest = next,
            None => return PathMatch::No,
        }
    }
    match (rest.is_empty(), stacked) {
        (false, _) => PathMatch::No,
        (true, true) => PathMatch::OneOfStacked,
        (true, false) => PathMatch::Yes(bound),
    }
}

/// Substitutes the placeholders of a path; `None` if one is unbound.
pub(super) fn fill_placeholders(
    path: &WeightPath,
    bound: &PlaceholderValues,
    names: &dyn NameResolver,
) -> Option<String> {
    let mut text = String::new();
    for (index, part) in path.parts.iter().enumerate() {
        match part {
            WeightPart::Field(name) => {
                text.push_str(if index > 0 { "." } else { "" });
                text.push_str(&name.name);
            }
            WeightPart::Placeholder(name) => {
                let (_, value) = bound.iter().find(|(known, _)| *known == name.name)?;
                text.push_str(&format!("[{value}]"));
            }
            WeightPart::Index(expr) => {
                text.push_str(&format!("[{}]", eval(expr, names).ok()?.as_int()?));
            }
        }
    }
    Some(text)
}
