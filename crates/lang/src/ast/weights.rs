//! Weight mappings and configuration (§8).

use super::{Expr, Ident, StrLit};
use crate::span::Span;

/// The path of a parameter through contained modules, such as `blocks[{layer}].attention.qkv_weight`.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightPath {
    /// Its parts; the first is always a field.
    pub parts: Vec<WeightPart>,
    /// `path?`: may be absent from a checkpoint.
    pub optional: bool,
    /// Its source span.
    pub span: Span,
}

/// A part of a weight path.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightPart {
    /// A field, `.name`.
    Field(Ident),
    /// A placeholder index, `[{layer}]`.
    Placeholder(Ident),
    /// A constant index, `[3]`.
    Index(Expr),
}

impl WeightPath {
    /// The name, if the path is a single field.
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
    /// The parameter of the model.
    pub path: WeightPath,
    /// The tensors of the checkpoint.
    pub spec: WeightSpec,
    /// Its source span.
    pub span: Span,
}

/// How tensors of a checkpoint are combined to a parameter, or the reverse.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightSpec {
    /// A single tensor, `"name"`.
    Direct(StrLit),
    /// A concatenation, `fuse("a", "b", dim=0)`.
    Fuse {
        /// The tensors in order.
        parts: Vec<StrLit>,
        /// The dimension of the concatenation; 0 by default.
        dim: Option<Expr>,
        /// Its source span.
        span: Span,
    },
    /// A split, `split("a": [0, n], "b": [n, m], dim=0)`.
    Split {
        /// The tensors with their ranges.
        parts: Vec<(StrLit, Expr)>,
        /// The dimension of the split; 0 by default.
        dim: Option<Expr>,
        /// Its source span.
        span: Span,
    },
    /// An elementwise transform, `transform("a", fn: negate_exp)`.
    Transform {
        /// The tensor.
        source: StrLit,
        /// The function applied to it.
        function: Ident,
        /// Its source span.
        span: Span,
    },
    /// A tied parameter, `tied_to(embedding)`.
    TiedTo {
        /// The parameter that stores the values.
        target: WeightPath,
        /// Its source span.
        span: Span,
    },
}

impl WeightSpec {
    /// Its source span.
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
    /// `...`: omitted by the author.
    Elided,
}
