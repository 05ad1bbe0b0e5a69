//! Paths of parameters with placeholders, such as `blocks[{i}].attention.qkv_weight`: matching and filling in.

use crate::ast::{WeightPart, WeightPath};
use crate::consteval::{NameResolver, eval};

/// What placeholders stand for: a number, or `*` where blocks are stacked.
pub(super) type PlaceholderValues = Vec<(String, String)>;

/// How a path and the name of a parameter go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathMatch {
    /// They don't.
    No,
    /// The path names it.
    Yes(PlaceholderValues),
    /// The path names one of the blocks that are stacked here.
    OneOfStacked,
}

/// Whether a path names a parameter.
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

/// The name that a path is with its placeholders filled in; `None` if one is not bound.
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
