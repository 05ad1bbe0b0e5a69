//! Weight mappings with resolved placeholders: from which tensors each parameter is assembled.

use crate::architecture::Architecture;
use crate::error::{Error, Result};
use lang::ast::{Expr, ExprKind, WeightMapping, WeightPart, WeightSpec};
use lang::consteval::ConstValue;
use lang::diagnostic::{ColorStyle, render_all};
use lang::lower::Parameter;
use lang::template;

/// A tensor of the checkpoint as part of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTensor {
    /// The tensor's HuggingFace name.
    pub tensor: String,
    /// Whether it is stored transposed.
    pub transposed: bool,
    /// The transform of its elements.
    pub function: ElementTransform,
    /// The range of the tensor that the part takes, if `split` gives one.
    pub range: Option<(usize, usize)>,
}

/// The elementwise transform of `transform("tensor", fn: name)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementTransform {
    /// The identity.
    #[default]
    Identity,
    /// `-x`.
    Negate,
    /// `eˣ`.
    Exp,
    /// `-eˣ`, as state-space models store their decay.
    NegateExp,
}

impl ElementTransform {
    fn from_name(name: &str) -> Option<ElementTransform> {
        Some(match name {
            "negate" => ElementTransform::Negate,
            "exp" => ElementTransform::Exp,
            "negate_exp" => ElementTransform::NegateExp,
            _ => return None,
        })
    }

    /// Converts an element of the checkpoint to the parameter's.
    pub(crate) fn apply(self, x: f32) -> f32 {
        let wide = f64::from(x);
        match self {
            ElementTransform::Identity => x,
            ElementTransform::Negate => -x,
            ElementTransform::Exp => wide.exp() as f32,
            ElementTransform::NegateExp => -wide.exp() as f32,
        }
    }

    /// Converts an element of the parameter to the checkpoint's.
    pub(crate) fn invert(self, y: f32) -> f32 {
        let wide = f64::from(y);
        match self {
            ElementTransform::Identity => y,
            ElementTransform::Negate => -y,
            ElementTransform::Exp => wide.ln() as f32,
            ElementTransform::NegateExp => (-wide).ln() as f32,
        }
    }

    /// The derivative at the point where the parameter is `y`.
    pub(crate) fn derivative_at(self, y: f32) -> f32 {
        match self {
            ElementTransform::Identity => 1.0,
            ElementTransform::Negate => -1.0,
            ElementTransform::Exp | ElementTransform::NegateExp => y,
        }
    }
}

/// Parts that are concatenated along a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSlice {
    /// The parts, in order.
    pub parts: Vec<SourceTensor>,
    /// The dimension of the concatenation.
    pub dim: usize,
    /// Whether it may be absent from a checkpoint.
    pub optional: bool,
}

/// The checkpoint tensors that a parameter is assembled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamSources {
    /// One slice for the whole parameter.
    Whole(ParamSlice),
    /// One slice for each index of the first dimension, such as an expert.
    Stacked(Vec<ParamSlice>),
}

impl ParamSources {
    /// The slices, in order.
    pub fn slices(&self) -> &[ParamSlice] {
        match self {
            ParamSources::Whole(slice) => std::slice::from_ref(slice),
            ParamSources::Stacked(slices) => slices,
        }
    }
}

/// The sources of every parameter, in order. A model without a mapping uses the paths of its parameters as tensor names.
pub(crate) fn sources(architecture: &Architecture, params: &[Parameter]) -> Result<Vec<ParamSources>> {
    let mappings = architecture.mappings();
    if mappings.is_empty() {
        let own = |p: &Parameter| SourceTensor {
            tensor: p.path.clone(),
            transposed: false,
            function: ElementTransform::Identity,
            range: None,
        };
        let whole = |p: &Parameter| ParamSlice { parts: vec![own(p)], dim: 0, optional: false };
        return Ok(params.iter().map(|p| ParamSources::Whole(whole(p))).collect());
    }
    let mapped = params.iter().map(|param| match param_source(architecture, &mappings, param)? {
        Some(found) => Ok(found),
        // Parameters of adapters are not in the base model's checkpoint, and use their own names.
        None if param.adapter => {
            let (tensor, function) = (param.path.clone(), ElementTransform::Identity);
            let part = SourceTensor { tensor, transposed: false, function, range: None };
            Ok(ParamSources::Whole(ParamSlice { parts: vec![part], dim: 0, optional: true }))
        }
        None => Err(Error::Unmapped { model: architecture.name.clone(), parameter: param.path.clone() }),
    });
    mapped.collect()
}

/// The tensors that `hf_export` writes for each parameter; `None` if it has no entry, no parts if it omits the parameter.
pub(crate) fn exports(architecture: &Architecture, params: &[Parameter]) -> Result<Vec<Option<ParamSources>>> {
    let exports = architecture.exports();
    params.iter().map(|param| param_source(architecture, &exports, param)).collect()
}

fn param_source(
    architecture: &Architecture,
    mappings: &[WeightMapping],
    param: &Parameter,
) -> Result<Option<ParamSources>> {
    for mapping in mappings {
        let Some((bound, free)) = bind(mapping, &param.path) else {
            continue;
        };
        let filled = |extra: Option<(&str, usize)>| -> Result<ParamSlice> {
            let mut values = bound.clone();
            values.extend(extra.map(|(name, index)| (name.to_string(), index)));
            build_slice(architecture, &mapping.spec, &values, mapping.path.optional)
        };
        let found = match &free {
            None => ParamSources::Whole(filled(None)?),
            Some(name) => {
                let count = param.ty.shape.first().copied().unwrap_or(0);
                ParamSources::Stacked((0..count).map(|i| filled(Some((name, i)))).collect::<Result<Vec<_>>>()?)
            }
        };
        return Ok(Some(found));
    }
    Ok(None)
}

/// Evaluates a constant expression of a mapping.
fn constant(architecture: &Architecture, expr: &Expr) -> Result<ConstValue> {
    lang::lower::constant(&architecture.program, architecture.item, &architecture.constants, expr)
        .map_err(|found| Error::Language(render_all(&architecture.program.sources, &[*found], ColorStyle::Plain)))
}

type Bindings = Vec<(String, usize)>;

/// Matches a path such as `blocks[3].mlp.up_weight`; a placeholder that remains unbound iterates over the first dimension.
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

/// Substitutes the expressions in a tensor's name: placeholders, and the model's parameters, such as `{2 * layer}` or `{prefix}`.
fn format_name(architecture: &Architecture, text: &str, values: &Bindings) -> Result<String> {
    let wrong = |words: &str| Error::Input(format!("{}: `{text}` in a weight mapping {words}", architecture.name));
    let mut name = String::new();
    for piece in template::pieces(text).map_err(|words| wrong(&format!("is no name: {words}")))? {
        match piece {
            template::NamePiece::Text(text) => name.push_str(text),
            template::NamePiece::Value(word, expr) => match values.iter().find(|(known, _)| known == word) {
                Some((_, value)) => name.push_str(&value.to_string()),
                None => {
                    let mut given = architecture.constants.clone();
                    given.extend(values.iter().map(|(name, value)| (name.clone(), ConstValue::int(*value as i64))));
                    let found = lang::lower::constant(&architecture.program, architecture.item, &given, &expr);
                    match found.map_err(|found| wrong(&format!("has no value: {}", found.message)))? {
                        ConstValue::Str(text) | ConstValue::Identifier(text) => name.push_str(&text),
                        ConstValue::Int(n) => name.push_str(&n.to_string()),
                        other => return Err(wrong(&format!("would have {} in a name", other.kind()))),
                    }
                }
            },
        }
    }
    Ok(name)
}

fn build_slice(
    architecture: &Architecture,
    spec: &WeightSpec,
    values: &Bindings,
    optional: bool,
) -> Result<ParamSlice> {
    let part = |text: &str| -> Result<SourceTensor> {
        let tensor = format_name(architecture, text, values)?;
        Ok(SourceTensor { tensor, transposed: false, function: ElementTransform::Identity, range: None })
    };
    let size = |value: Option<ConstValue>| value.and_then(|n| n.as_int()).and_then(|n| usize::try_from(n).ok());
    let unfit = |expr: &Expr, what: &str| {
        let text = architecture.program.sources.slice(expr.span);
        Error::Input(format!("{}: `{text}` in a weight mapping is not {what}", architecture.name))
    };
    let along = |dim: &Option<Expr>| match dim {
        None => Ok(0),
        Some(expr) => size(Some(constant(architecture, expr)?)).ok_or_else(|| unfit(expr, "a dimension")),
    };
    match spec {
        WeightSpec::Direct(text) => Ok(ParamSlice { parts: vec![part(&text.value)?], dim: 0, optional }),
        WeightSpec::Fuse { parts, dim, .. } => {
            let parts = parts.iter().map(|text| part(&text.value)).collect::<Result<_>>()?;
            Ok(ParamSlice { parts, dim: along(dim)?, optional })
        }
        WeightSpec::Split { parts, dim, .. } => {
            let mut ranged = Vec::new();
            for (text, range) in parts {
                let ends = match constant(architecture, range)? {
                    ConstValue::List(ends) if ends.len() == 2 => {
                        (size(ends.first().cloned()), size(ends.get(1).cloned()))
                    }
                    _ => (None, None),
                };
                let (Some(start), Some(end)) = ends else { return Err(unfit(range, "a range such as `[0, n]`")) };
                let before = ranged.last().map_or(0, |part: &SourceTensor| part.range.map_or(0, |range| range.1));
                if start != before || end <= start {
                    return Err(unfit(range, &format!("the next range: it starts at {before} and is not empty")));
                }
                ranged.push(SourceTensor { range: Some((start, end)), ..part(&text.value)? });
            }
            Ok(ParamSlice { parts: ranged, dim: along(dim)?, optional })
        }
        WeightSpec::Transform { source, function, .. } => {
            let mut part = part(&source.value)?;
            match function.name.as_str() {
                "transpose" => part.transposed = true,
                name => {
                    let known = ElementTransform::from_name(name);
                    let unknown = || Error::Input(format!("{}: unknown weight function `{name}`", architecture.name));
                    part.function = known.ok_or_else(unknown)?;
                }
            }
            Ok(ParamSlice { parts: vec![part], dim: 0, optional })
        }
        // A tied weight: the language shares the parameter, and an export omits it.
        WeightSpec::TiedTo { .. } => Ok(ParamSlice { parts: Vec::new(), dim: 0, optional }),
    }
}

#[cfg(test)]
mod tests {
    use super::ElementTransform;

    #[test]
    fn functions_undo_themselves_and_know_their_slopes() {
        for function in
            [ElementTransform::Identity, ElementTransform::Negate, ElementTransform::Exp, ElementTransform::NegateExp]
        {
            for x in [-1.5f32, 0.25, 2.0] {
                let y = function.apply(x);
                assert!((function.invert(y) - x).abs() < 1e-6, "{function:?}");
                let step = 1e-3;
                let slope = (function.apply(x + step) - function.apply(x - step)) / (2.0 * step);
                assert!((function.derivative_at(y) - slope).abs() < 2e-3, "{function:?}: {slope}");
            }
        }
    }
}
