//! The sections of a declaration's body.

use super::{Annotation, DocString, Expr, Graph, Ident, Path, StrLit, TypeExpr, WeightPath};
use crate::span::Span;

/// One section of a body, in the order written.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its content.
    pub kind: SectionKind,
    /// From its keyword to the end of its block.
    pub span: Span,
}

/// The kinds of sections.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionKind {
    /// `"""..."""`.
    Doc(DocString),
    /// `@recipe(Name)` and other annotations of the whole declaration.
    Annotations(Vec<Annotation>),
    /// `let:`.
    Let(Vec<LetItem>),
    /// `params:`.
    Params(Vec<ParamEntry>),
    /// `constants:`.
    Constants(Vec<ConstantEntry>),
    /// `forward:`.
    Forward(Pass),
    /// `backward:`.
    Backward(Pass),
    /// `pattern:`.
    Pattern(Pattern),
    /// `hf_config:`.
    HfConfig(Vec<super::ConfigEntry>),
    /// `hf_mapping:`.
    HfMapping(Vec<super::WeightMapping>),
    /// `hf_export:`.
    HfExport(Vec<super::WeightMapping>),
    /// `save:` of a primitive.
    Save(NameList),
    /// `impl:` of a primitive.
    Impl(KernelImpl),
    /// `invariants:` of a primitive.
    Invariants(Vec<Invariant>),
    /// `precision:`, `memory:`, `fusion:`, `constraints:` of a primitive: words for people, kept as written.
    Remarks {
        /// The section's name.
        name: Ident,
        /// Its lines, with their indentation relative to the section.
        lines: Vec<String>,
    },
    /// `...`: left out by the author.
    Elided,
    /// `_`: an empty body.
    Empty,
}

/// An entry of `let:`.
#[derive(Clone, Debug, PartialEq)]
pub enum LetItem {
    /// `name = expression`.
    Bind {
        /// The name.
        name: Ident,
        /// Its value.
        value: Expr,
    },
    /// `B: batch_dim`: a dimension known when the model runs.
    Dim {
        /// The name.
        name: Ident,
        /// Which dimension it is.
        role: Ident,
    },
    /// `constraint:`.
    Constraints(Vec<Constraint>, Span),
}

impl LetItem {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            LetItem::Bind { name, value } => name.span.to(value.span),
            LetItem::Dim { name, role } => name.span.to(role.span),
            LetItem::Constraints(_, span) => *span,
        }
    }
}

/// `condition, "message"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// What must hold.
    pub condition: Expr,
    /// What to say when it does not.
    pub message: StrLit,
}

/// An entry of `params:`.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamEntry {
    /// Whether it is written `+name`, adding to inherited ones.
    pub adds: bool,
    /// Its name; longer paths annotate a parameter of a contained module.
    pub path: WeightPath,
    /// Its type.
    pub ty: TypeExpr,
    /// Default, in primitives' `params:`.
    pub default: Option<Expr>,
    /// `if condition`.
    pub condition: Option<Expr>,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// The whole entry.
    pub span: Span,
}

/// `name: precompute(...)`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantEntry {
    /// The name.
    pub name: Ident,
    /// How it is computed.
    pub value: Expr,
    /// Annotations.
    pub annotations: Vec<Annotation>,
}

/// `forward:` or `backward:`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Pass {
    /// Its parts in the order written.
    pub items: Vec<PassItem>,
}

impl Pass {
    /// The graph, if there is one.
    pub fn graph(&self) -> Option<&Graph> {
        self.items.iter().find_map(|item| match &item.kind {
            PassItemKind::Graph(graph) => Some(graph),
            _ => None,
        })
    }
}

/// One part of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct PassItem {
    /// Its content.
    pub kind: PassItemKind,
    /// Where it stands.
    pub span: Span,
}

/// The parts of a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum PassItemKind {
    /// `in: ...`.
    In(IoSpec),
    /// `out: ...`.
    Out(IoSpec),
    /// `inputs:` with one tensor a line.
    Inputs(Vec<IoTensor>),
    /// `outputs:` with one tensor a line.
    Outputs(Vec<IoTensor>),
    /// `d_x: [B, T]`, in backward: whether it is given or computed follows from its name.
    Gradients(Vec<IoTensor>),
    /// `graph:`.
    Graph(Graph),
    /// `save: [...]`.
    Save(NameList),
    /// `recompute: [...]`.
    Recompute(NameList),
    /// `impl: kernels.matmul`.
    Impl(KernelImpl),
    /// `d_A = matmul(...)`, in primitives.
    Rule {
        /// The gradient.
        name: Ident,
        /// How it is computed.
        value: Expr,
    },
    /// `...`: left out by the author.
    Elided,
}

/// What follows `in:` or `out:`.
#[derive(Clone, Debug, PartialEq)]
pub struct IoSpec {
    /// The tensors.
    pub tensors: Vec<IoTensor>,
    /// Whether parentheses were written.
    pub tuple: bool,
    /// `= expression`, in primitives.
    pub value: Option<Expr>,
}

/// One input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct IoTensor {
    /// Its name; `in` or `out` if it has none.
    pub name: Option<Ident>,
    /// Its type; may be missing in primitives.
    pub ty: Option<TypeExpr>,
    /// `name?`.
    pub optional: bool,
    /// `name...`.
    pub variadic: bool,
    /// Annotations.
    pub annotations: Vec<Annotation>,
    /// Where it stands.
    pub span: Span,
}

/// `[a, ln*_out, *_rstd, per_layer...]`.
#[derive(Clone, Debug, PartialEq)]
pub struct NameList {
    /// The patterns.
    pub items: Vec<NamePattern>,
    /// The whole list.
    pub span: Span,
}

/// One entry of a save or recompute list.
#[derive(Clone, Debug, PartialEq)]
pub struct NamePattern {
    /// The name, in which `*` stands for any characters.
    pub pattern: String,
    /// `name...`: everything a contained module saves under that name.
    pub spread: bool,
    /// Where it stands.
    pub span: Span,
}

impl NamePattern {
    /// Whether the pattern stands for one name only.
    pub fn is_literal(&self) -> bool {
        !self.pattern.contains('*') && !self.spread
    }

    /// Whether `name` is one of those the pattern stands for.
    pub fn matches(&self, name: &str) -> bool {
        fn fits(pattern: &str, name: &str) -> bool {
            match pattern.split_once('*') {
                None => pattern == name,
                Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
                    rest.char_indices().map(|(i, _)| i).chain([rest.len()]).any(|i| fits(tail, &rest[i..]))
                }),
            }
        }
        fits(&self.pattern, name)
    }
}

/// `pattern: sequential_residual` with its sublayers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Which pattern.
    pub kind: Ident,
    /// One tuple per sublayer.
    pub sublayers: Vec<Vec<Path>>,
}

/// `impl: kernels.matmul`, or `impl:` with one kernel per pass.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelImpl {
    /// One kernel for both passes.
    Single(String),
    /// `forward: ...`, `backward: ...`; kernels are words for people.
    PerPass(Vec<(Ident, String)>),
}

/// `- backward_uses: [out]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Invariant {
    /// What is claimed.
    pub name: Ident,
    /// About which tensors.
    pub names: NameList,
}
