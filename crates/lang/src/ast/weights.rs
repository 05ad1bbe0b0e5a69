//! Weight mappings and configuration (§8).

use super::{Expr, Ident, StrLit};
use crate::span::Span;

/// The path of a parameter through contained modules, such as `blocks[{layer}].attention.qkv_weight`.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightPath {
    /// Its parts; the first is always a field.
    pub parts: Vec<WeightPart>,
    /// `path?`: may be missing.
    pub optional: bool,
    /// Where it stands.
    pub span: Span,
}

/// A part of a weight path.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightPart {
    /// `.name`
    Field(Ident),
    /// `[{layer}]`
    Placeholder(Ident),
    /// `[3]`
    Index(Expr),
}

impl WeightPath {
    /// The name, if the path is just one.
    pub fn as_name(&self) -> Option<&Ident> {
        match &self.parts[..] {
            [WeightPart::Field(name)] => Some(name),
            _ => None,
        }
    }
}

/// `path: spec` in `hf_mapping`, `path -> spec` in `hf_export`.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightMapping {
    /// The parameter here.
    pub path: WeightPath,
    /// The tensors there.
    pub spec: WeightSpec,
    /// Where it stands.
    pub span: Span,
}

/// How tensors of a checkpoint make up a parameter, or the other way round.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightSpec {
    /// `"name"`.
    Direct(StrLit),
    /// `fuse("a", "b", dim=0)`.
    Fuse {
        /// The tensors in order.
        parts: Vec<StrLit>,
        /// Along which dimension; 0 if not given.
        dim: Option<Expr>,
        /// Where it stands.
        span: Span,
    },
    /// `split("a": [0, n], "b": [n, m], dim=0)`.
    Split {
        /// The tensors with the range each takes.
        parts: Vec<(StrLit, Expr)>,
        /// Along which dimension; 0 if not given.
        dim: Option<Expr>,
        /// Where it stands.
        span: Span,
    },
    /// `transform("a", fn: negate_exp)`.
    Transform {
        /// The tensor.
        source: StrLit,
        /// The function applied to it.
        function: Ident,
        /// Where it stands.
        span: Span,
    },
    /// `tied_to(embedding)`.
    TiedTo {
        /// The parameter that holds the values.
        target: WeightPath,
        /// Where it stands.
        span: Span,
    },
}

impl WeightSpec {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            WeightSpec::Direct(text) => text.span,
            WeightSpec::Fuse { span, .. }
            | WeightSpec::Split { span, .. }
            | WeightSpec::Transform { span, .. }
            | WeightSpec::TiedTo { span, .. } => *span,
        }
    }
}

/// `key: value` in `hf_config`, possibly nested.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The key.
    pub key: Ident,
    /// The value.
    pub value: ConfigValue,
}

/// A value of `hf_config`.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// A string, number or field name.
    Expr(Expr),
    /// A nested block such as `param_mapping:`.
    Map(Vec<ConfigEntry>),
    /// `...`: left out by the author.
    Elided,
}
