//! Conditions of `@assert` (§7.7.1): those on constants are decided now, those on elements become a bool of the graph.

use super::frame::ModuleFrame;
use super::graph::LoweredOperand;
use super::{Lowerer, Result, fail, op_error, unsupported};
use crate::ast::{Arg, BinaryOp, CompareOp, Expr, ExprKind, IndexItem, UnaryOp};
use crate::consteval::{ConstValue as Const, Ternary};
use crate::diagnostic::Code;
use ir::ops::ReduceKind;
use ir::{Binary, Compare, GraphBuilder, Unary, Value};

/// A subexpression of a condition.
enum ConditionTerm {
    Known(Const),
    Tensor(Value),
}

/// The result of a condition.
pub(super) enum ConditionResult {
    Known(bool),
    /// A bool scalar of the graph.
    Computed(Value),
}

impl Lowerer<'_> {
    /// Lowers the condition to a bool scalar, or `None` if it is known to be true.
    pub(super) fn condition(&mut self, expr: &Expr, message: &str, frame: &ModuleFrame) -> Result<Option<Value>> {
        match self.quoted_condition(expr, frame)? {
            ConditionResult::Known(true) => Ok(None),
            ConditionResult::Known(false) => fail(Code::E027, expr.span, message, "is false"),
            ConditionResult::Computed(value) => Ok(Some(value)),
        }
    }

    fn truth(&mut self, expr: &Expr, frame: &ModuleFrame) -> Result<ConditionResult> {
        match self.term(expr, frame)? {
            ConditionTerm::Known(Const::Bool(Ternary::Known(known))) => Ok(ConditionResult::Known(known)),
            ConditionTerm::Known(_) => fail(Code::E003, expr.span, "expected a condition", "this is not true or false"),
            ConditionTerm::Tensor(value) if self.b.graph.ty(value).rank() == 0 => Ok(ConditionResult::Computed(value)),
            ConditionTerm::Tensor(_) => {
                let label = "the condition has a value for each element: write `all(..)` or `any(..)`";
                fail(Code::E003, expr.span, "a condition must be a single true or false", label)
            }
        }
    }

    /// Lowers the condition of a probe, which may be quoted: `condition="has_nan(y)"`.
    pub(super) fn quoted_condition(&mut self, expr: &Expr, frame: &ModuleFrame) -> Result<ConditionResult> {
        let ExprKind::Str(text) = &expr.peel().kind else { return self.truth(expr, frame) };
        match crate::check::parse_condition(text) {
            // Errors in it are reported at the quoted string.
            Some(value) => self.truth(&value, frame).map_err(|mut found| {
                found.primary.span = expr.span;
                found
            }),
            None => fail(
                Code::E008,
                expr.span,
                "the quoted condition cannot be read",
                "expected something like `has_nan(x)`",
            ),
        }
    }

    fn term(&mut self, expr: &Expr, frame: &ModuleFrame) -> Result<ConditionTerm> {
        if let Some(size) = self.size_of_axis(expr, frame)? {
            return Ok(ConditionTerm::Known(Const::int(size as i64)));
        }
        match &expr.kind {
            ExprKind::Paren(inner) => self.term(inner, frame),
            ExprKind::Unary(UnaryOp::Not | UnaryOp::Bang, inner) => match self.term(inner, frame)? {
                ConditionTerm::Known(Const::Bool(Ternary::Known(value))) => {
                    Ok(ConditionTerm::Known(Const::bool(!value)))
                }
                ConditionTerm::Known(_) => fail(Code::E003, inner.span, "expected a condition", ""),
                ConditionTerm::Tensor(value) => self.build_op(expr, |b| b.unary(Unary::Not, value)),
            },
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, c) => {
                let (a, c) = (self.term(a, frame)?, self.term(c, frame)?);
                let and = *op == BinaryOp::And;
                match (a, c) {
                    (ConditionTerm::Known(Const::Bool(Ternary::Known(known))), other)
                    | (other, ConditionTerm::Known(Const::Bool(Ternary::Known(known)))) => {
                        Ok(if known == and { other } else { ConditionTerm::Known(Const::bool(known)) })
                    }
                    (ConditionTerm::Tensor(a), ConditionTerm::Tensor(c)) => {
                        let op = if and { Binary::And } else { Binary::Or };
                        self.build_op(expr, |b| b.binary(op, a, c))
                    }
                    _ => fail(Code::E003, expr.span, "expected two conditions", ""),
                }
            }
            ExprKind::Compare(first, rest) => {
                let mut left = self.term(first, frame)?;
                let mut all: Option<ConditionTerm> = None;
                for (op, right) in rest {
                    let right_term = self.term(right, frame)?;
                    let next = match &right_term {
                        ConditionTerm::Known(value) => ConditionTerm::Known(value.clone()),
                        ConditionTerm::Tensor(value) => ConditionTerm::Tensor(*value),
                    };
                    let one = self.compare_terms(*op, left, right_term, expr, frame)?;
                    all = Some(match (all, one) {
                        (None, one) => one,
                        (Some(ConditionTerm::Tensor(a)), ConditionTerm::Tensor(c)) => {
                            self.build_op(expr, |b| b.binary(Binary::And, a, c))?
                        }
                        _ => return unsupported(expr.span, "a chain of comparisons of constants and tensors"),
                    });
                    left = next;
                }
                Ok(all.unwrap_or(ConditionTerm::Known(Const::bool(true))))
            }
            ExprKind::Call(callee, args) => self.tensor_predicate(expr, callee, args, frame),
            ExprKind::Name(_) | ExprKind::Attr(..) | ExprKind::Index(..) => {
                let known = expr.as_name().and_then(|name| frame.constants.get(name)).cloned();
                let tensor = expr.as_path().and_then(|path| self.entry(&path, frame)).is_some();
                match (tensor || known.is_none(), known) {
                    (false, Some(value)) => Ok(ConditionTerm::Known(value)),
                    _ => match self.operand(expr, frame)? {
                        LoweredOperand::Tensor(value) => Ok(ConditionTerm::Tensor(value)),
                        _ => unsupported(expr.span, "a condition that does not depend on a tensor"),
                    },
                }
            }
            _ => frame.constant(expr).map(ConditionTerm::Known),
        }
    }

    /// Lowers predicates such as `has_nan(x)`, `all(x >= 0)`.
    fn tensor_predicate(
        &mut self,
        expr: &Expr,
        callee: &Expr,
        args: &[Arg],
        frame: &ModuleFrame,
    ) -> Result<ConditionTerm> {
        let name = callee.as_name().unwrap_or("");
        let [arg] = args else { return frame.constant(expr).map(ConditionTerm::Known) };
        if !matches!(name, "has_nan" | "has_inf" | "has_nan_or_inf" | "is_finite" | "all" | "any") {
            return frame.constant(expr).map(ConditionTerm::Known);
        }
        let ConditionTerm::Tensor(x) = self.term(&arg.value, frame)? else {
            return fail(Code::E003, arg.value.span, format!("`{name}` needs a tensor"), "this is a constant");
        };
        let axes: Vec<usize> = (0..self.b.graph.ty(x).rank()).collect();
        self.build_op(expr, |b| {
            let nan = |b: &mut ir::Builder| b.compare(Compare::Ne, x, x);
            let each = match name {
                "all" | "any" => x,
                "is_finite" => b.unary(Unary::IsFinite, x)?,
                "has_nan" => nan(b)?,
                _ => {
                    let finite = b.unary(Unary::IsFinite, x)?;
                    let wild = b.unary(Unary::Not, finite)?;
                    if name == "has_nan_or_inf" {
                        wild
                    } else {
                        let nan = nan(b)?;
                        let number = b.unary(Unary::Not, nan)?;
                        b.binary(Binary::And, wild, number)?
                    }
                }
            };
            let kind = if matches!(name, "all" | "is_finite") { ReduceKind::All } else { ReduceKind::Any };
            b.reduce(kind, each, &axes)
        })
    }

    fn compare_terms(
        &mut self,
        op: CompareOp,
        a: ConditionTerm,
        c: ConditionTerm,
        expr: &Expr,
        frame: &ModuleFrame,
    ) -> Result<ConditionTerm> {
        let op_of = match op {
            CompareOp::Eq => Compare::Eq,
            CompareOp::Ne => Compare::Ne,
            CompareOp::Lt => Compare::Lt,
            CompareOp::Le => Compare::Le,
            CompareOp::Gt => Compare::Gt,
            CompareOp::Ge => Compare::Ge,
        };
        let number = |value: &Const| match value {
            Const::Float(x) => *x,
            other => other.as_int().map(|n| n as f64),
        };
        match (a, c) {
            (ConditionTerm::Known(a), ConditionTerm::Known(c)) => match (number(&a), number(&c)) {
                (Some(a), Some(c)) => {
                    let holds = match op {
                        CompareOp::Eq => a == c,
                        CompareOp::Ne => a != c,
                        CompareOp::Lt => a < c,
                        CompareOp::Le => a <= c,
                        CompareOp::Gt => a > c,
                        CompareOp::Ge => a >= c,
                    };
                    Ok(ConditionTerm::Known(Const::bool(holds)))
                }
                _ => frame.constant(expr).map(ConditionTerm::Known),
            },
            (ConditionTerm::Tensor(a), ConditionTerm::Tensor(c)) => self.build_op(expr, |b| b.compare(op_of, a, c)),
            (ConditionTerm::Tensor(x), ConditionTerm::Known(value)) => {
                let Some(number) = number(&value) else {
                    return fail(
                        Code::E003,
                        expr.span,
                        "elements can only be compared with numbers",
                        format!("this is {value}"),
                    );
                };
                self.build_op(expr, |b| {
                    let other = b.full_like(x, number)?;
                    b.compare(op_of, x, other)
                })
            }
            (ConditionTerm::Known(value), ConditionTerm::Tensor(x)) => {
                let Some(number) = number(&value) else {
                    return fail(
                        Code::E003,
                        expr.span,
                        "elements can only be compared with numbers",
                        format!("this is {value}"),
                    );
                };
                self.build_op(expr, |b| {
                    let other = b.full_like(x, number)?;
                    b.compare(op_of, other, x)
                })
            }
        }
    }

    /// Lowers a size such as `x.shape[-1]`.
    fn size_of_axis(&mut self, expr: &Expr, frame: &ModuleFrame) -> Result<Option<usize>> {
        let ExprKind::Index(base, items) = &expr.kind else { return Ok(None) };
        let ExprKind::Attr(tensor, member) = &base.kind else { return Ok(None) };
        let ([IndexItem::At(index)], "shape") = (&items[..], &*member.name) else { return Ok(None) };
        let value = self.operand(tensor, frame)?.tensor(tensor.span)?;
        let shape = self.b.graph.ty(value).shape.to_vec();
        let index = frame.constant(index)?.as_int().unwrap_or(i64::MAX);
        let axis = if index < 0 { index + shape.len() as i64 } else { index };
        match usize::try_from(axis).ok().and_then(|axis| shape.get(axis)) {
            Some(size) => Ok(Some(*size)),
            None => fail(Code::E004, expr.span, "no such axis", format!("the tensor is {shape:?}")),
        }
    }

    fn build_op(
        &mut self,
        expr: &Expr,
        part: impl FnOnce(&mut ir::Builder) -> ir::Result<Value>,
    ) -> Result<ConditionTerm> {
        part(&mut self.b).map(ConditionTerm::Tensor).map_err(|e| op_error(&e, expr.span, "@assert"))
    }
}
