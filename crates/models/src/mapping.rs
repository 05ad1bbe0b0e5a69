//! Weight mappings with their placeholders filled in: which tensors make up which parameter.

use crate::architecture::Architecture;
use crate::error::{Error, Result};
use lang::ast::{ExprKind, WeightMapping, WeightPart, WeightSpec};
use lang::lower::Parameter;

/// A tensor of the checkpoint as part of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its HuggingFace name.
    pub tensor: String,
    /// Whether it is stored transposed.
    pub transposed: bool,
}

/// Parts that stand one after the other along a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Along which dimension.
    pub dim: usize,
}

/// What a parameter is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// All of it.
    Whole(Slice),
    /// One slice for each index of the first dimension, such as an expert.
    Stacked(Vec<Slice>),
}

impl Sources {
    /// The slices in order.
    pub fn slices(&self) -> &[Slice] {
        match self {
            Sources::Whole(slice) => std::slice::from_ref(slice),
            Sources::Stacked(slices) => slices,
        }
    }
}

/// The sources of every parameter, in order.
/// A model without a mapping keeps the names of its text.
pub(crate) fn sources(architecture: &Architecture, params: &[Parameter]) -> Result<Vec<Sources>> {
    if architecture.mappings().is_empty() {
        let own = |param: &Parameter| Part { tensor: param.path.clone(), transposed: false };
        return Ok(params.iter().map(|p| Sources::Whole(Slice { parts: vec![own(p)], dim: 0 })).collect());
    }
    params.iter().map(|param| source(architecture, param)).collect()
}

fn source(architecture: &Architecture, param: &Parameter) -> Result<Sources> {
    for mapping in architecture.mappings() {
        let Some((bound, free)) = bind(mapping, &param.path) else {
            continue;
        };
        let filled = |extra: Option<(&str, usize)>| -> Option<Slice> {
            let mut values = bound.clone();
            values.extend(extra.map(|(name, index)| (name.to_string(), index)));
            slice(&mapping.spec, &values)
        };
        let found = match &free {
            None => filled(None).map(Sources::Whole),
            Some(name) => {
                let count = param.ty.shape.first().copied().unwrap_or(0);
                let slices = (0..count).map(|i| filled(Some((name, i)))).collect::<Option<Vec<_>>>();
                slices.map(Sources::Stacked)
            }
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(Error::Unmapped { model: architecture.name.clone(), parameter: param.path.clone() })
}

type Bindings = Vec<(String, usize)>;

/// Matches a path such as `blocks[3].mlp.up_weight`; a placeholder left at the end runs over the first dimension.
fn bind(mapping: &WeightMapping, path: &str) -> Option<(Bindings, Option<String>)> {
    let mut rest = path;
    let mut bound = Vec::new();
    for (index, part) in mapping.path.parts.iter().enumerate() {
        match part {
            WeightPart::Field(name) => {
                if index > 0 {
                    rest = rest.strip_prefix('.')?;
                }
                rest = rest.strip_prefix(name.name.as_str())?;
                if !rest.is_empty() && !rest.starts_with(['.', '[']) {
                    return None;
                }
            }
            WeightPart::Placeholder(name) if rest.is_empty() => {
                let last = index + 1 == mapping.path.parts.len();
                return last.then(|| (bound, Some(name.name.clone())));
            }
            WeightPart::Placeholder(name) => {
                let (number, after) = rest.strip_prefix('[')?.split_once(']')?;
                bound.push((name.name.clone(), number.parse().ok()?));
                rest = after;
            }
            WeightPart::Index(expr) => {
                let (number, after) = rest.strip_prefix('[')?.split_once(']')?;
                let ExprKind::Int(wanted) = expr.kind else { return None };
                (number.parse() == Ok(wanted)).then_some(())?;
                rest = after;
            }
        }
    }
    rest.is_empty().then_some((bound, None))
}

fn slice(spec: &WeightSpec, values: &Bindings) -> Option<Slice> {
    let fill = |text: &str| {
        values
            .iter()
            .fold(text.to_string(), |text, (name, value)| text.replace(&format!("{{{name}}}"), &value.to_string()))
    };
    let part = |text: &str, transposed: bool| Part { tensor: fill(text), transposed };
    match spec {
        WeightSpec::Direct(text) => Some(Slice { parts: vec![part(&text.value, false)], dim: 0 }),
        WeightSpec::Fuse { parts, dim, .. } => {
            let dim = match dim.as_ref().map(|expr| &expr.kind) {
                None => 0,
                Some(ExprKind::Int(n)) => usize::try_from(*n).ok()?,
                Some(_) => return None,
            };
            Some(Slice { parts: parts.iter().map(|text| part(&text.value, false)).collect(), dim })
        }
        WeightSpec::Transform { source, function, .. } if function.name == "transpose" => {
            Some(Slice { parts: vec![part(&source.value, true)], dim: 0 })
        }
        WeightSpec::Transform { .. } | WeightSpec::Split { .. } | WeightSpec::TiedTo { .. } => None,
    }
}
