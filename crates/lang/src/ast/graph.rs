//! Graphs: data flow, conditionals, recompute blocks.

use super::{Annotation, Arg, Expr, Path};
use crate::span::Span;

/// The statements under `graph:`.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The statements in order.
    pub statements: Vec<Statement>,
    /// From `graph:` to the end of its block.
    pub span: Span,
}

/// One statement of a graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `source -> op -> destination`.
    Flow(Flow),
    /// `if guard: ... else: ...`.
    If(If),
    /// `recompute: ...`, in backward graphs.
    Recompute {
        /// What to run again.
        body: Vec<Statement>,
        /// From `recompute:` to the end of its block.
        span: Span,
    },
    /// `...`: left out by the author.
    Elided(Span),
    /// `_`: nothing happens here.
    Empty(Span),
}

impl Statement {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            Statement::Flow(flow) => flow.span,
            Statement::If(cond) => cond.span,
            Statement::Recompute { span, .. } | Statement::Elided(span) | Statement::Empty(span) => *span,
        }
    }
}

/// `source -> step -> step -> destination @annotations`.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Where the tensors come from.
    pub source: FlowSource,
    /// What happens to them, in order; empty for an alias.
    pub steps: Vec<FlowStep>,
    /// The names of the results.
    pub dest: Dest,
    /// Annotations after the destination.
    pub annotations: Vec<Annotation>,
    /// The whole statement.
    pub span: Span,
}

/// The left end of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowSource {
    /// `x`, `(a, b)`, `saved.x`, `x[0]`, `ln.weight`.
    Tensors {
        /// One operand per tensor.
        items: Vec<Expr>,
        /// Whether parentheses were written.
        tuple: bool,
        /// Where it stands.
        span: Span,
    },
    /// `zeros([B, T])`: an operation without tensor inputs.
    Call(Call),
    /// `...`: left out by the author.
    Elided(Span),
}

impl FlowSource {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            FlowSource::Tensors { span, .. } | FlowSource::Elided(span) => *span,
            FlowSource::Call(call) => call.span,
        }
    }
}

/// One operation of a flow, with annotations written right after it.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStep {
    /// The operation.
    pub kind: StepKind,
    /// Annotations between this step and the next arrow.
    pub annotations: Vec<Annotation>,
    /// The operation without its annotations.
    pub span: Span,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// `matmul(w)`, `attention`, `blocks[0:8]()`, `mlp.backward()`.
    Call(Call),
    /// `[B, T, H, D]`: states the shape in passing.
    Shape(Vec<Expr>),
}

/// A call of a primitive, module or instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// Arguments; `None` without parentheses.
    pub args: Option<Vec<Arg>>,
    /// Where it stands.
    pub span: Span,
}

/// What a call names.
#[derive(Clone, Debug, PartialEq)]
pub struct Callee {
    /// `matmul`, `mlp.backward`, `blocks`.
    pub path: Path,
    /// `[0:8]` or `[i]` after it.
    pub index: Option<Vec<super::IndexItem>>,
    /// Where it stands.
    pub span: Span,
}

/// The right end of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Dest {
    /// One per result; may be fewer than the operation has.
    pub items: Vec<DestItem>,
    /// Whether parentheses were written.
    pub tuple: bool,
    /// Where it stands.
    pub span: Span,
}

/// One name of a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct DestItem {
    /// The name; `None` for `_`. Gradients of an instance's parameters are dotted: `d_ln1.weight`.
    pub name: Option<Path>,
    /// Annotations inside the tuple.
    pub annotations: Vec<Annotation>,
    /// Where it stands.
    pub span: Span,
}

/// A conditional part of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct If {
    /// The guard, a constant expression.
    pub guard: Expr,
    /// Statements when it holds.
    pub then: Vec<Statement>,
    /// Statements when it does not; `None` without `else`.
    pub otherwise: Option<Vec<Statement>>,
    /// From `if` to the end of the last block.
    pub span: Span,
}
