//! Graphs: data flow, conditionals, recompute blocks.

use super::{Annotation, Arg, Expr, Path};
use crate::span::Span;

/// The statements under `graph:`.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The statements in order.
    pub statements: Vec<Statement>,
    /// The span from `graph:` to the end of its block.
    pub span: Span,
}

/// One statement of a graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A flow, `source -> op -> destination`.
    Flow(Flow),
    /// A conditional, `if guard: ... else: ...`.
    If(If),
    /// A block `recompute: ...`, in backward graphs.
    Recompute {
        /// The statements to recompute.
        body: Vec<Statement>,
        /// The span from `recompute:` to the end of its block.
        span: Span,
    },
    /// `...`: omitted by the author.
    Elided(Span),
    /// `_`: an empty statement.
    Empty(Span),
}

impl Statement {
    /// Its source span.
    pub fn span(&self) -> Span {
        match self {
            Statement::Flow(flow) => flow.span,
            Statement::If(cond) => cond.span,
            Statement::Recompute { span, .. } | Statement::Elided(span) | Statement::Empty(span) => *span,
        }
    }
}

/// A data flow, `source -> step -> step -> destination @annotations`.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The tensors that flow in.
    pub source: FlowSource,
    /// The operations, in order; empty for an alias.
    pub steps: Vec<FlowStep>,
    /// The names of the results.
    pub dest: Dest,
    /// Annotations after the destination.
    pub annotations: Vec<Annotation>,
    /// The span of the whole statement.
    pub span: Span,
}

/// The left end of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowSource {
    /// One or several tensors: `x`, `(a, b)`, `saved.x`, `x[0]`, `ln.weight`.
    Tensors {
        /// One operand per tensor.
        items: Vec<Expr>,
        /// Whether parentheses were written.
        tuple: bool,
        /// Its source span.
        span: Span,
    },
    /// `zeros([B, T])`: an operation without tensor inputs.
    Call(Call),
    /// `...`: omitted by the author.
    Elided(Span),
}

impl FlowSource {
    /// Its source span.
    pub fn span(&self) -> Span {
        match self {
            FlowSource::Tensors { span, .. } | FlowSource::Elided(span) => *span,
            FlowSource::Call(call) => call.span,
        }
    }
}

/// One operation of a flow, with the annotations that follow it.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStep {
    /// The operation.
    pub kind: StepKind,
    /// Annotations between this step and the next arrow.
    pub annotations: Vec<Annotation>,
    /// The operation without its annotations.
    pub span: Span,
}

/// The form of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// A call: `matmul(w)`, `attention`, `blocks[0:8]()`, `mlp.backward()`.
    Call(Call),
    /// `[B, T, H, D]`: a shape annotation in the middle of a flow.
    Shape(Vec<Expr>),
}

/// A call of a primitive, module or instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The callee.
    pub callee: Callee,
    /// Arguments; `None` without parentheses.
    pub args: Option<Vec<Arg>>,
    /// Its source span.
    pub span: Span,
}

/// The callee of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Callee {
    /// The path of the callee: `matmul`, `mlp.backward`, `blocks`.
    pub path: Path,
    /// The index `[0:8]` or `[i]` after it.
    pub index: Option<Vec<super::IndexItem>>,
    /// Its source span.
    pub span: Span,
}

/// The right end of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Dest {
    /// One item per result; may be fewer than the operation has.
    pub items: Vec<DestItem>,
    /// Whether parentheses were written.
    pub tuple: bool,
    /// Its source span.
    pub span: Span,
}

/// One name of a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct DestItem {
    /// The name; `None` for `_`. Gradients of an instance's parameters are dotted: `d_ln1.weight`.
    pub name: Option<Path>,
    /// Annotations inside the tuple.
    pub annotations: Vec<Annotation>,
    /// Its source span.
    pub span: Span,
}

/// A conditional part of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct If {
    /// The condition, a constant expression.
    pub guard: Expr,
    /// The statements if it is true.
    pub then: Vec<Statement>,
    /// The statements if it is false; `None` without `else`.
    pub otherwise: Option<Vec<Statement>>,
    /// The span from `if` to the end of the last block.
    pub span: Span,
}
