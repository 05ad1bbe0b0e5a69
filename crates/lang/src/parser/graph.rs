//! Parses graphs. A flow consists of nodes between arrows; its first node is the source, its last the destination.

use super::{ErrorReported, PResult, Parser};
use crate::ast::{
    Annotation, Call, Callee, Dest, DestItem, Expr, ExprKind, Flow, FlowSource, FlowStep, If, IndexItem, Statement,
    StepKind,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;
use crate::span::Span;

/// A node between two arrows.
struct FlowNode {
    kind: NodeKind,
    annotations: Vec<Annotation>,
    span: Span,
}

enum NodeKind {
    /// A tuple, `(a, b @gradient(skip))`.
    Tuple(Vec<(Expr, Vec<Annotation>)>),
    /// Any other expression.
    Single(Expr),
}

impl Parser<'_> {
    /// Parses the statements after `graph:`, `if ...:`, `else:`, `recompute:`.
    pub(super) fn statements(&mut self) -> PResult<Vec<Statement>> {
        self.block(Self::statement)
    }

    fn statement(&mut self) -> PResult<Statement> {
        let start = self.peek().span;
        if self.is(TokenKind::Ellipsis) && self.kind_at(1) != TokenKind::Arrow {
            self.bump();
            self.end_line()?;
            return Ok(Statement::Elided(start));
        }
        if self.is_word("_") && self.ends_at(1) {
            self.bump();
            self.end_line()?;
            return Ok(Statement::Empty(start));
        }
        if self.is_word("if") && self.kind_at(1) != TokenKind::Arrow {
            return self.if_statement(start);
        }
        if self.is_word("recompute") && self.kind_at(1) == TokenKind::Colon {
            self.bump();
            self.bump();
            let body = self.statements()?;
            return Ok(Statement::Recompute { body, span: self.since(start) });
        }
        if self.is_word("else") && self.kind_at(1) == TokenKind::Colon {
            return Err(self.error(start, "`else` without `if`", "there is no `if` at this indentation before it"));
        }
        let flow = self.flow(start)?;
        self.end_line()?;
        Ok(Statement::Flow(flow))
    }

    /// Whether the line ends after this many tokens.
    pub(super) fn ends_at(&self, ahead: usize) -> bool {
        matches!(self.kind_at(ahead), TokenKind::Newline | TokenKind::Dedent | TokenKind::Eof)
    }

    fn if_statement(&mut self, start: Span) -> PResult<Statement> {
        self.bump();
        let guard = self.condition()?;
        self.expect(TokenKind::Colon)?;
        let then = self.statements()?;
        let mut otherwise = None;
        if self.is_word("else") && self.kind_at(1) == TokenKind::Colon {
            self.bump();
            self.bump();
            otherwise = Some(self.statements()?);
        }
        Ok(Statement::If(If { guard, then, otherwise, span: self.since(start) }))
    }

    fn flow(&mut self, start: Span) -> PResult<Flow> {
        let mut nodes = vec![self.node()?];
        while self.eat(TokenKind::Arrow).is_some() {
            nodes.push(self.node()?);
        }
        let span = self.since(start);
        if !matches!(self.kind(), TokenKind::Newline | TokenKind::Eof | TokenKind::Dedent) {
            return Err(self.not_an_arrow());
        }
        if nodes.len() < 2 {
            return Err(self.report(
                Diagnostic::new(Code::E001, span, "statement moves no tensor")
                    .with_label("expected `->` after this")
                    .with_hint("write `source -> operation() -> destination`"),
            ));
        }
        let last = nodes.pop().expect("at least two");
        let mut nodes = nodes.into_iter();
        let source = nodes.next().expect("at least two");
        let source = self.source(source)?;
        let steps = nodes.map(|node| self.step(node)).collect::<PResult<Vec<_>>>()?;
        let (dest, annotations) = self.dest(last)?;
        Ok(Flow { source, steps, dest, annotations, span })
    }

    fn not_an_arrow(&mut self) -> ErrorReported {
        let token = self.peek();
        let name = match token.kind {
            TokenKind::Plus => "add",
            TokenKind::Star => "mul",
            _ => return self.expected("`->` or the end of the line"),
        };
        self.report(
            Diagnostic::new(Code::E001, token.span, "graphs have no operators")
                .with_label("expected `->`")
                .with_hint(format!("write `(a, b) -> {name}() -> c`")),
        )
    }

    fn node(&mut self) -> PResult<FlowNode> {
        let start = self.peek().span;
        let kind = if self.eat(TokenKind::LParen).is_some() {
            NodeKind::Tuple(self.list(TokenKind::RParen, |p| Ok((p.postfix()?, p.annotations()?)))?)
        } else {
            NodeKind::Single(self.postfix()?)
        };
        let span = self.since(start);
        Ok(FlowNode { kind, annotations: self.annotations()?, span })
    }

    fn source(&mut self, node: FlowNode) -> PResult<FlowSource> {
        if let Some(annotation) = node.annotations.first() {
            return Err(self.misplaced_annotation(annotation.span));
        }
        match node.kind {
            NodeKind::Tuple(items) => {
                if let Some(annotation) = items.iter().flat_map(|(_, annotations)| annotations).next() {
                    return Err(self.misplaced_annotation(annotation.span));
                }
                let items = items.into_iter().map(|(item, _)| self.operand(item)).collect::<PResult<Vec<_>>>()?;
                Ok(FlowSource::Tensors { items, tuple: true, span: node.span })
            }
            NodeKind::Single(expr) => match expr.kind {
                ExprKind::Ellipsis => Ok(FlowSource::Elided(node.span)),
                ExprKind::Call(..) => Ok(FlowSource::Call(self.call(expr)?)),
                _ => Ok(FlowSource::Tensors { items: vec![self.operand(expr)?], tuple: false, span: node.span }),
            },
        }
    }

    fn misplaced_annotation(&mut self, span: Span) -> ErrorReported {
        self.report(
            Diagnostic::new(Code::E001, span, "annotation on a source")
                .with_label("annotations follow an operation or a destination")
                .with_hint("annotate the tensor where it is defined"),
        )
    }

    /// Checks a tensor operand: `x`, `saved.x`, `x[0]`, `params...`.
    fn operand(&mut self, expr: Expr) -> PResult<Expr> {
        let fine = match &expr.kind {
            ExprKind::Index(base, _) | ExprKind::Spread(base) => base.as_path().is_some(),
            _ => expr.as_path().is_some(),
        };
        if fine {
            return Ok(expr);
        }
        Err(self.error(expr.span, "expected a tensor", "name a tensor, an index of one, or `saved.name`"))
    }

    fn step(&mut self, node: FlowNode) -> PResult<FlowStep> {
        let kind = match node.kind {
            NodeKind::Single(Expr { kind: ExprKind::List(dims), .. }) => StepKind::Shape(dims),
            NodeKind::Single(expr) => StepKind::Call(self.call(expr)?),
            NodeKind::Tuple(_) => {
                return Err(self.report(
                    Diagnostic::new(Code::E001, node.span, "tuple in the middle of a flow")
                        .with_label("expected an operation")
                        .with_hint("end the statement here and start the next one with the tuple"),
                ));
            }
        };
        Ok(FlowStep { kind, annotations: node.annotations, span: node.span })
    }

    /// Converts a call: `matmul(w)`, `attention`, `blocks[0:8]()`, `mlp.backward()`.
    fn call(&mut self, expr: Expr) -> PResult<Call> {
        let span = expr.span;
        let (callee, args) = match expr.kind {
            ExprKind::Call(callee, args) => (*callee, Some(args)),
            kind => (Expr { kind, span }, None),
        };
        let callee_span = callee.span;
        let (path, index): (_, Option<Vec<IndexItem>>) = match callee.kind {
            ExprKind::Index(base, items) => (base.as_path(), Some(items)),
            _ => (callee.as_path(), None),
        };
        match path {
            Some(path) => Ok(Call { callee: Callee { path, index, span: callee_span }, args, span }),
            None => Err(self.error(callee_span, "expected an operation", "call a primitive, a module or an instance")),
        }
    }

    fn dest(&mut self, node: FlowNode) -> PResult<(Dest, Vec<Annotation>)> {
        let (items, tuple) = match node.kind {
            NodeKind::Tuple(items) => (items, true),
            NodeKind::Single(expr) => (vec![(expr, Vec::new())], false),
        };
        let items = items
            .into_iter()
            .map(|(expr, annotations)| {
                let span = expr.span;
                let Some(path) = expr.as_path() else {
                    return Err(self.not_a_name(&expr));
                };
                let ignored = path.as_name().is_some_and(|name| name.name == "_");
                Ok(DestItem { name: (!ignored).then_some(path), annotations, span })
            })
            .collect::<PResult<Vec<_>>>()?;
        Ok((Dest { items, tuple, span: node.span }, node.annotations))
    }

    fn not_a_name(&mut self, expr: &Expr) -> ErrorReported {
        match expr.kind {
            ExprKind::Call(..) => self.report(
                Diagnostic::new(Code::E001, expr.span, "flow ends in an operation")
                    .with_label("its result has no name")
                    .with_hint("add `-> name`, or `-> _` to ignore the result"),
            ),
            _ => self.error(expr.span, "expected a destination", "name the result"),
        }
    }
}
