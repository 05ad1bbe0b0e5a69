//! Weight mappings with their placeholders filled in: which tensors make up which parameter.

use crate::architecture::Architecture;
use crate::error::{Error, Result};
use lang::ast::{Expr, ExprKind, WeightMapping, WeightPart, WeightSpec};
use lang::consteval::Value;
use lang::diagnostic::{Style, render_all};
use lang::lower::Parameter;
use lang::template;

/// A tensor of the checkpoint as part of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its HuggingFace name.
    pub tensor: String,
    /// Whether it is stored transposed.
    pub transposed: bool,
    /// What is done to its elements.
    pub function: Function,
    /// The range of the parameter that it takes, where `split` says so.
    pub range: Option<(usize, usize)>,
}

/// What `transform("tensor", fn: name)` does to each element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Function {
    /// Nothing.
    #[default]
    Identity,
    /// `-x`.
    Negate,
    /// `eˣ`.
    Exp,
    /// `-eˣ`, as state-space models store their decay.
    NegateExp,
}

impl Function {
    fn named(name: &str) -> Option<Function> {
        Some(match name {
            "negate" => Function::Negate,
            "exp" => Function::Exp,
            "negate_exp" => Function::NegateExp,
            _ => return None,
        })
    }

    /// From the checkpoint to the parameter.
    pub(crate) fn apply(self, x: f32) -> f32 {
        let wide = f64::from(x);
        match self {
            Function::Identity => x,
            Function::Negate => -x,
            Function::Exp => wide.exp() as f32,
            Function::NegateExp => -wide.exp() as f32,
        }
    }

    /// From the parameter to the checkpoint.
    pub(crate) fn undo(self, y: f32) -> f32 {
        let wide = f64::from(y);
        match self {
            Function::Identity => y,
            Function::Negate => -y,
            Function::Exp => wide.ln() as f32,
            Function::NegateExp => (-wide).ln() as f32,
        }
    }

    /// The slope at the place where the parameter is `y`.
    pub(crate) fn slope(self, y: f32) -> f32 {
        match self {
            Function::Identity => 1.0,
            Function::Negate => -1.0,
            Function::Exp | Function::NegateExp => y,
        }
    }
}

/// Parts that stand one after the other along a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Along which dimension.
    pub dim: usize,
    /// Whether a checkpoint may do without it.
    pub optional: bool,
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
    let mappings = architecture.mappings();
    if mappings.is_empty() {
        let own = |p: &Parameter| Part {
            tensor: p.path.clone(),
            transposed: false,
            function: Function::Identity,
            range: None,
        };
        let whole = |p: &Parameter| Slice { parts: vec![own(p)], dim: 0, optional: false };
        return Ok(params.iter().map(|p| Sources::Whole(whole(p))).collect());
    }
    let mapped = params.iter().map(|param| match source(architecture, &mappings, param)? {
        Some(found) => Ok(found),
        // What an annotation brings is not in the base model's checkpoint, and goes by its own name.
        None if param.adapter => {
            let (tensor, function) = (param.path.clone(), Function::Identity);
            let part = Part { tensor, transposed: false, function, range: None };
            Ok(Sources::Whole(Slice { parts: vec![part], dim: 0, optional: true }))
        }
        None => Err(Error::Unmapped { model: architecture.name.clone(), parameter: param.path.clone() }),
    });
    mapped.collect()
}

/// What `hf_export` makes of each parameter; `None` where it says nothing, no parts where it leaves the parameter out.
pub(crate) fn exports(architecture: &Architecture, params: &[Parameter]) -> Result<Vec<Option<Sources>>> {
    let exports = architecture.exports();
    params.iter().map(|param| source(architecture, &exports, param)).collect()
}

fn source(architecture: &Architecture, mappings: &[WeightMapping], param: &Parameter) -> Result<Option<Sources>> {
    for mapping in mappings {
        let Some((bound, free)) = bind(mapping, &param.path) else {
            continue;
        };
        let filled = |extra: Option<(&str, usize)>| -> Result<Slice> {
            let mut values = bound.clone();
            values.extend(extra.map(|(name, index)| (name.to_string(), index)));
            slice(architecture, &mapping.spec, &values, mapping.path.optional)
        };
        let found = match &free {
            None => Sources::Whole(filled(None)?),
            Some(name) => {
                let count = param.ty.shape.first().copied().unwrap_or(0);
                Sources::Stacked((0..count).map(|i| filled(Some((name, i)))).collect::<Result<Vec<_>>>()?)
            }
        };
        return Ok(Some(found));
    }
    Ok(None)
}

/// The value of a constant expression of a mapping.
fn constant(architecture: &Architecture, expr: &Expr) -> Result<Value> {
    lang::lower::constant(&architecture.program, architecture.item, &architecture.given, expr)
        .map_err(|found| Error::Language(render_all(&architecture.program.sources, &[*found], Style::Plain)))
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

/// A tensor's name with its expressions filled in: placeholders, and the model's parameters, such as `{2 * layer}` or `{prefix}`.
fn named(architecture: &Architecture, text: &str, values: &Bindings) -> Result<String> {
    let wrong = |words: &str| Error::Input(format!("{}: `{text}` in a weight mapping {words}", architecture.name));
    let mut name = String::new();
    for piece in template::pieces(text).map_err(|words| wrong(&format!("is no name: {words}")))? {
        match piece {
            template::Piece::Text(text) => name.push_str(text),
            template::Piece::Value(word, expr) => match values.iter().find(|(known, _)| known == word) {
                Some((_, value)) => name.push_str(&value.to_string()),
                None => {
                    let mut given = architecture.given.clone();
                    given.extend(values.iter().map(|(name, value)| (name.clone(), Value::int(*value as i64))));
                    let found = lang::lower::constant(&architecture.program, architecture.item, &given, &expr);
                    match found.map_err(|found| wrong(&format!("has no value: {}", found.message)))? {
                        Value::Str(text) | Value::Word(text) => name.push_str(&text),
                        Value::Int(n) => name.push_str(&n.to_string()),
                        other => return Err(wrong(&format!("would have {} in a name", other.kind()))),
                    }
                }
            },
        }
    }
    Ok(name)
}

fn slice(architecture: &Architecture, spec: &WeightSpec, values: &Bindings, optional: bool) -> Result<Slice> {
    let part = |text: &str| -> Result<Part> {
        let tensor = named(architecture, text, values)?;
        Ok(Part { tensor, transposed: false, function: Function::Identity, range: None })
    };
    let size = |value: Option<Value>| value.and_then(|n| n.as_int()).and_then(|n| usize::try_from(n).ok());
    let unfit = |expr: &Expr, what: &str| {
        let text = architecture.program.sources.slice(expr.span);
        Error::Input(format!("{}: `{text}` in a weight mapping is not {what}", architecture.name))
    };
    let along = |dim: &Option<Expr>| match dim {
        None => Ok(0),
        Some(expr) => size(Some(constant(architecture, expr)?)).ok_or_else(|| unfit(expr, "a dimension")),
    };
    match spec {
        WeightSpec::Direct(text) => Ok(Slice { parts: vec![part(&text.value)?], dim: 0, optional }),
        WeightSpec::Fuse { parts, dim, .. } => {
            let parts = parts.iter().map(|text| part(&text.value)).collect::<Result<_>>()?;
            Ok(Slice { parts, dim: along(dim)?, optional })
        }
        WeightSpec::Split { parts, dim, .. } => {
            let mut ranged = Vec::new();
            for (text, range) in parts {
                let ends = match constant(architecture, range)? {
                    Value::List(ends) if ends.len() == 2 => (size(ends.first().cloned()), size(ends.get(1).cloned())),
                    _ => (None, None),
                };
                let (Some(start), Some(end)) = ends else { return Err(unfit(range, "a range such as `[0, n]`")) };
                let before = ranged.last().map_or(0, |part: &Part| part.range.map_or(0, |range| range.1));
                if start != before || end <= start {
                    return Err(unfit(range, &format!("the next range: it starts at {before} and is not empty")));
                }
                ranged.push(Part { range: Some((start, end)), ..part(&text.value)? });
            }
            Ok(Slice { parts: ranged, dim: along(dim)?, optional })
        }
        WeightSpec::Transform { source, function, .. } => {
            let mut part = part(&source.value)?;
            match function.name.as_str() {
                "transpose" => part.transposed = true,
                name => {
                    let known = Function::named(name);
                    let unknown = || Error::Input(format!("{}: unknown weight function `{name}`", architecture.name));
                    part.function = known.ok_or_else(unknown)?;
                }
            }
            Ok(Slice { parts: vec![part], dim: 0, optional })
        }
        // Another parameter holds it: the language makes them one, and an export leaves it out.
        WeightSpec::TiedTo { .. } => Ok(Slice { parts: Vec::new(), dim: 0, optional }),
    }
}

#[cfg(test)]
mod tests {
    use super::Function;

    #[test]
    fn functions_undo_themselves_and_know_their_slopes() {
        for function in [Function::Identity, Function::Negate, Function::Exp, Function::NegateExp] {
            for x in [-1.5f32, 0.25, 2.0] {
                let y = function.apply(x);
                assert!((function.undo(y) - x).abs() < 1e-6, "{function:?}");
                let step = 1e-3;
                let slope = (function.apply(x + step) - function.apply(x - step)) / (2.0 * step);
                assert!((function.slope(y) - slope).abs() < 2e-3, "{function:?}: {slope}");
            }
        }
    }
}
