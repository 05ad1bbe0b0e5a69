//! Formats expressions, types and annotations as documents.

use super::doc::{Doc, List, ListItem};
use super::printer::Printer;
use crate::ast::{Annotation, Arg, DimExpr, Expr, ExprKind, IndexItem, TensorSpelling, TypeExpr, TypeKind, UnaryOp};
use crate::span::Span;

impl Printer<'_> {
    /// Elements between brackets with their comments. `end` is the end of the closing bracket.
    pub(super) fn list<T>(
        &mut self,
        brackets: (&'static str, &'static str),
        items: &[T],
        end: u32,
        span_of: impl Fn(&T) -> Span,
        mut build: impl FnMut(&mut Self, &T) -> Doc,
    ) -> Doc {
        let mut built: Vec<ListItem> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let before = self.own_lines(span_of(item).start);
            let doc = build(self, item);
            let next = items.get(index + 1).map_or(end, |next| span_of(next).start);
            let after = self.take_trailing(next as usize);
            built.push(ListItem { before, doc, after });
        }
        let tail = self.own_lines(end);
        Doc::List(List { open: brackets.0, items: built, tail, close: brackets.1, comma: false })
    }

    fn own_lines(&mut self, end: u32) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(comment) = self.take_comment(end as usize) {
            lines.push(self.comment_text(&comment));
        }
        lines
    }

    pub(super) fn args(&mut self, args: &[Arg], end: u32) -> Doc {
        self.list(("(", ")"), args, end, Arg::span, |p, arg| {
            let value = p.expr(&arg.value);
            match &arg.name {
                Some(name) => Doc::Seq(vec![Doc::text(format!("{}=", name.name)), value]),
                None => value,
            }
        })
    }

    fn expr_list(&mut self, brackets: (&'static str, &'static str), items: &[Expr], end: u32) -> Doc {
        self.list(brackets, items, end, |item| item.span, |p, item| p.expr(item))
    }

    pub(super) fn expr(&mut self, expr: &Expr) -> Doc {
        let end = expr.span.end;
        match &expr.kind {
            // Literals keep their spelling: `1e-6`, `25_000_000`.
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) => Doc::text(self.slice(expr.span)),
            ExprKind::Bool(value) => Doc::text(value.to_string()),
            ExprKind::None => Doc::text("None"),
            ExprKind::Name(name) => Doc::text(name),
            ExprKind::Attr(base, name) => Doc::Seq(vec![self.expr(base), Doc::text(format!(".{}", name.name))]),
            ExprKind::Index(base, items) => {
                let base = self.expr(base);
                Doc::Seq(vec![base, self.index(items, end)])
            }
            ExprKind::Call(callee, args) => {
                let callee = self.expr(callee);
                Doc::Seq(vec![callee, self.args(args, end)])
            }
            ExprKind::Unary(op, inner) => {
                let op = match op {
                    UnaryOp::Neg => "-",
                    UnaryOp::Not => "not ",
                    UnaryOp::Bang => "!",
                };
                Doc::Seq(vec![Doc::text(op), self.expr(inner)])
            }
            ExprKind::Binary(op, left, right) => {
                let left = self.expr(left);
                Doc::Seq(vec![left, Doc::text(format!(" {} ", op.symbol())), self.expr(right)])
            }
            ExprKind::Compare(first, rest) => {
                let mut parts = vec![self.expr(first)];
                for (op, right) in rest {
                    parts.push(Doc::text(format!(" {} ", op.symbol())));
                    parts.push(self.expr(right));
                }
                Doc::Seq(parts)
            }
            ExprKind::IfElse { then, condition, otherwise } => {
                let then = self.expr(then);
                let condition = self.expr(condition);
                let otherwise = self.expr(otherwise);
                Doc::Seq(vec![then, Doc::text(" if "), condition, Doc::text(" else "), otherwise])
            }
            ExprKind::Paren(inner) => Doc::Seq(vec![Doc::text("("), self.expr(inner), Doc::text(")")]),
            ExprKind::Tuple(items) => {
                let mut doc = self.expr_list(("(", ")"), items, end);
                if let Doc::List(list) = &mut doc {
                    list.comma = items.len() == 1;
                }
                doc
            }
            ExprKind::List(items) => self.expr_list(("[", "]"), items, end),
            ExprKind::Dict(entries) => {
                let span_of = |(key, value): &(Expr, Expr)| key.span.to(value.span);
                self.list(("{", "}"), entries, end, span_of, |p, (key, value)| {
                    Doc::Seq(vec![p.expr(key), Doc::text(": "), p.expr(value)])
                })
            }
            ExprKind::Placeholder(name) => Doc::text(format!("{{{}}}", name.name)),
            ExprKind::Spread(inner) => Doc::Seq(vec![self.expr(inner), Doc::text("...")]),
            ExprKind::Ellipsis => Doc::text("..."),
            ExprKind::Star => Doc::text("*"),
        }
    }

    pub(super) fn index(&mut self, items: &[IndexItem], end: u32) -> Doc {
        let span_of = |item: &IndexItem| match item {
            IndexItem::At(expr) => expr.span,
            IndexItem::Slice { span, .. } => *span,
        };
        self.list(("[", "]"), items, end, span_of, |p, item| match item {
            IndexItem::At(expr) => p.expr(expr),
            IndexItem::Slice { start, end, .. } => {
                let mut parts = Vec::new();
                parts.extend(start.as_ref().map(|e| p.expr(e)));
                parts.push(Doc::text(":"));
                parts.extend(end.as_ref().map(|e| p.expr(e)));
                Doc::Seq(parts)
            }
        })
    }

    pub(super) fn type_expr(&mut self, ty: &TypeExpr) -> Doc {
        let end = ty.span.end;
        match &ty.kind {
            TypeKind::Tensor { dims, dtype, spelling } => {
                // The dtype is the last element in the source; it is treated as one so that its comments are kept.
                let mut elements: Vec<DimOrDtype<'_>> = dims.iter().map(DimOrDtype::Dim).collect();
                elements.extend(dtype.as_ref().map(DimOrDtype::Dtype));
                let list = self.list(("[", "]"), &elements, end, DimOrDtype::span, |p, element| match element {
                    DimOrDtype::Dim(DimExpr::Variadic(_)) => Doc::text("*"),
                    DimOrDtype::Dim(DimExpr::Elided(_)) => Doc::text("..."),
                    DimOrDtype::Dim(DimExpr::Size(expr)) => p.expr(expr),
                    DimOrDtype::Dtype(name) => Doc::text(&name.name),
                });
                match spelling {
                    TensorSpelling::Brackets => list,
                    TensorSpelling::Explicit => Doc::Seq(vec![Doc::text("Tensor<"), list, Doc::text(">")]),
                }
            }
            TypeKind::Tuple(items) => self.list(("(", ")"), items, end, |item| item.span, |p, item| p.type_expr(item)),
            TypeKind::Optional(inner) => Doc::Seq(vec![self.type_expr(inner), Doc::text("?")]),
            TypeKind::Array { length, element } => {
                let length = self.expr(length);
                Doc::Seq(vec![Doc::text("["), length, Doc::text("] x "), self.type_expr(element)])
            }
            TypeKind::Named { path, args } => {
                let mut parts = vec![Doc::text(path.to_string())];
                parts.extend(args.as_ref().map(|args| self.args(args, end)));
                Doc::Seq(parts)
            }
            TypeKind::TiedTo(path) => Doc::text(format!("tied_to({path})")),
            TypeKind::Each { element, index, range } => {
                let element = self.type_expr(element);
                let counting = Doc::text(format!(" for {} in ", index.name));
                Doc::Seq(vec![Doc::text("tuple("), element, counting, self.expr(range), Doc::text(")")])
            }
        }
    }

    pub(super) fn annotation(&mut self, annotation: &Annotation) -> Doc {
        let mut parts = vec![Doc::text(format!("@{}", annotation.name.name))];
        parts.extend(annotation.args.as_ref().map(|args| self.args(args, annotation.span.end)));
        Doc::Seq(parts)
    }

    /// ` @a @b`, each preceded by a space.
    pub(super) fn annotations(&mut self, annotations: &[Annotation]) -> Doc {
        let parts = annotations.iter().flat_map(|a| [Doc::text(" "), self.annotation(a)]).collect();
        Doc::Seq(parts)
    }
}

enum DimOrDtype<'a> {
    Dim(&'a DimExpr),
    Dtype(&'a crate::ast::Ident),
}

impl DimOrDtype<'_> {
    fn span(&self) -> Span {
        match self {
            DimOrDtype::Dim(dim) => dim.span(),
            DimOrDtype::Dtype(name) => name.span,
        }
    }
}
