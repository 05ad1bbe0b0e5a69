//! The sections of a declaration's body.

use super::{Annotation, DocString, Expr, Graph, Ident, Path, StrLit, TypeExpr, WeightPath};
use crate::span::Span;

/// One section of a body, in source order.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its content.
    pub kind: SectionKind,
    /// The span from its keyword to the end of its block.
    pub span: Span,
}

/// The kinds of sections.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionKind {
    /// A documentation string, `"""..."""`.
    Doc(DocString),
    /// `@recipe(Name)` and other annotations of the whole declaration.
    Annotations(Vec<Annotation>),
    /// The section `let:`.
    Let(Vec<LetItem>),
    /// The section `params:`.
    Params(Vec<ParamEntry>),
    /// The section `constants:`.
    Constants(Vec<ConstantEntry>),
    /// The section `forward:`.
    Forward(Pass),
    /// The section `backward:`.
    Backward(Pass),
    /// The section `pattern:`.
    Pattern(Pattern),
    /// The section `hf_config:`.
    HfConfig(Vec<super::ConfigEntry>),
    /// The section `hf_mapping:`.
    HfMapping(Vec<super::WeightMapping>),
    /// The section `hf_export:`.
    HfExport(Vec<super::WeightMapping>),
    /// `save:` of a primitive.
    Save(NameList),
    /// `impl:` of a primitive.
    Impl(KernelImpl),
    /// `invariants:` of a primitive.
    Invariants(Vec<Invariant>),
    /// `precision:`, `memory:`, `fusion:`, `constraints:` of a primitive: free text, kept as written.
    Remarks {
        /// The section's name.
        name: Ident,
        /// Its lines, with their indentation relative to the section.
        lines: Vec<String>,
    },
    /// `...`: omitted by the author.
    Elided,
    /// `_`: an empty body.
    Empty,
}

/// An entry of `let:`.
#[derive(Clone, Debug, PartialEq)]
pub enum LetItem {
    /// A binding, `name = expression`.
    Bind {
        /// The name.
        name: Ident,
        /// Its value.
        value: Expr,
    },
    /// `B: batch_dim`: a dimension that is known only at run time.
    Dim {
        /// The name.
        name: Ident,
        /// The role of the dimension.
        role: Ident,
    },
    /// The block `constraint:`.
    Constraints(Vec<Constraint>, Span),
}

impl LetItem {
    /// Its source span.
    pub fn span(&self) -> Span {
        match self {
            LetItem::Bind { name, value } => name.span.to(value.span),
            LetItem::Dim { name, role } => name.span.to(role.span),
            LetItem::Constraints(_, span) => *span,
        }
    }
}

/// A constraint, written `condition, "message"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// The required condition.
    pub condition: Expr,
    /// The message if it is false.
    pub message: StrLit,
}

/// An entry of `params:`.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamEntry {
    /// Whether it is written `+name`, in addition to inherited parameters.
    pub adds: bool,
    /// Its name; a longer path annotates a parameter of a contained module.
    pub path: WeightPath,
    /// Its type.
    pub ty: TypeExpr,
    /// The default, in primitives.
    pub default: Option<Expr>,
    /// The condition after `if`.
    pub condition: Option<Expr>,
    /// Its annotations.
    pub annotations: Vec<Annotation>,
    /// The span of the whole entry.
    pub span: Span,
}

/// An entry of `constants:`, written `name: precompute(...)`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantEntry {
    /// The name.
    pub name: Ident,
    /// The expression that computes it.
    pub value: Expr,
    /// Its annotations.
    pub annotations: Vec<Annotation>,
}

/// The contents of `forward:` or `backward:`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Pass {
    /// Its parts in source order.
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
    /// Its source span.
    pub span: Span,
}

/// The parts of a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum PassItemKind {
    /// The entry `in: ...`.
    In(IoSpec),
    /// The entry `out: ...`.
    Out(IoSpec),
    /// `inputs:` with one tensor per line.
    Inputs(Vec<IoTensor>),
    /// `outputs:` with one tensor per line.
    Outputs(Vec<IoTensor>),
    /// `d_x: [B, T]`, in backward: the name determines whether it is an input or an output.
    Gradients(Vec<IoTensor>),
    /// The entry `graph:`.
    Graph(Graph),
    /// The entry `save: [...]`.
    Save(NameList),
    /// The entry `recompute: [...]`.
    Recompute(NameList),
    /// The entry `impl: kernels.matmul`.
    Impl(KernelImpl),
    /// `d_A = matmul(...)`, in primitives.
    Rule {
        /// The gradient.
        name: Ident,
        /// The expression that computes it.
        value: Expr,
    },
    /// `...`: omitted by the author.
    Elided,
}

/// The tensors after `in:` or `out:`.
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
    /// Its name; `in` or `out` by default.
    pub name: Option<Ident>,
    /// Its type; optional in primitives.
    pub ty: Option<TypeExpr>,
    /// Whether it is optional, written `name?`.
    pub optional: bool,
    /// Whether it is variadic, written `name...`.
    pub variadic: bool,
    /// Its annotations.
    pub annotations: Vec<Annotation>,
    /// Its source span.
    pub span: Span,
}

/// `[a, ln*_out, *_rstd, per_layer...]`.
#[derive(Clone, Debug, PartialEq)]
pub struct NameList {
    /// The patterns.
    pub items: Vec<NamePattern>,
    /// The span of the whole list.
    pub span: Span,
}

/// One entry of a save or recompute list.
#[derive(Clone, Debug, PartialEq)]
pub struct NamePattern {
    /// The name, in which `*` matches any characters.
    pub pattern: String,
    /// `name...`: all saved tensors of a contained module with that name.
    pub spread: bool,
    /// Its source span.
    pub span: Span,
}

impl NamePattern {
    /// Whether the pattern contains no wildcard and no spread.
    pub fn is_literal(&self) -> bool {
        !self.pattern.contains('*') && !self.spread
    }

    /// Whether `name` matches the pattern.
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
    /// The name of the pattern.
    pub kind: Ident,
    /// One tuple per sublayer.
    pub sublayers: Vec<Vec<Path>>,
}

/// `impl: kernels.matmul`, or `impl:` with one kernel per pass.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelImpl {
    /// One kernel for both passes.
    Single(String),
    /// `forward: ...`, `backward: ...`; kernel names are free text.
    PerPass(Vec<(Ident, String)>),
}

/// `- backward_uses: [out]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Invariant {
    /// The name of the invariant.
    pub name: Ident,
    /// The tensors that it concerns.
    pub names: NameList,
}
