//! Expressions: constants, names, calls.

use super::Ident;
use crate::span::Span;

/// An expression and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// The forms of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// `true` or `false`.
    Bool(bool),
    /// `None`.
    None,
    /// A name.
    Name(String),
    /// `base.name`.
    Attr(Box<Expr>, Ident),
    /// `base[items]`.
    Index(Box<Expr>, Vec<IndexItem>),
    /// `callee(args)`.
    Call(Box<Expr>, Vec<Arg>),
    /// `-x`, `not x`, `!x`.
    Unary(UnaryOp, Box<Expr>),
    /// `a + b` and the like, also `and`, `or`.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `a < b <= c`: true if every neighbouring pair compares true.
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// `then if condition else otherwise`.
    IfElse {
        /// Value when the condition holds.
        then: Box<Expr>,
        /// The condition.
        condition: Box<Expr>,
        /// Value when it does not.
        otherwise: Box<Expr>,
    },
    /// `(x)`, kept so that the formatter keeps the author's grouping.
    Paren(Box<Expr>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `[a, b]`.
    List(Vec<Expr>),
    /// `{key: value}`.
    Dict(Vec<(Expr, Expr)>),
    /// `{layer}`: a placeholder of a weight path.
    Placeholder(Ident),
    /// `x...`.
    Spread(Box<Expr>),
    /// `...`.
    Ellipsis,
    /// `*`, only as an element of a shape.
    Star,
}

/// One item between index brackets.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexItem {
    /// `i`, `-1`, `...`.
    At(Expr),
    /// `start:end`, either may be missing.
    Slice {
        /// First index.
        start: Option<Expr>,
        /// One past the last.
        end: Option<Expr>,
        /// Where it stands.
        span: Span,
    },
}

/// An argument of a call or annotation.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// The name of a `name=value` argument.
    pub name: Option<Ident>,
    /// Its value.
    pub value: Expr,
}

impl Arg {
    /// From name to value.
    pub fn span(&self) -> Span {
        self.name.as_ref().map_or(self.value.span, |name| name.span.to(self.value.span))
    }
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `not`, which binds looser than comparisons.
    Not,
    /// `!`, which binds tighter than any other operator.
    Bang,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `//`
    FloorDiv,
    /// `%`
    Mod,
    /// `**`
    Pow,
    /// `and`, `&&`
    And,
    /// `or`, `||`
    Or,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl BinaryOp {
    /// As the formatter writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "**",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
        }
    }
}

impl CompareOp {
    /// As it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        }
    }
}

impl Expr {
    /// The expression without the parentheses around it.
    pub fn peel(&self) -> &Expr {
        match &self.kind {
            ExprKind::Paren(inner) => inner.peel(),
            _ => self,
        }
    }

    /// The name, if that is all the expression is.
    pub fn as_name(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The dotted path, if the expression is one.
    pub fn as_path(&self) -> Option<super::Path> {
        match &self.kind {
            ExprKind::Name(name) => Some(super::Path { parts: vec![Ident { name: name.clone(), span: self.span }] }),
            ExprKind::Attr(base, name) => {
                let mut path = base.as_path()?;
                path.parts.push(name.clone());
                Some(path)
            }
            _ => None,
        }
    }

    /// The expression's direct children, in order.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::None
            | ExprKind::Name(_)
            | ExprKind::Placeholder(_)
            | ExprKind::Ellipsis
            | ExprKind::Star => Vec::new(),
            ExprKind::Attr(base, _) => vec![base],
            ExprKind::Index(base, items) => {
                let mut children = vec![&**base];
                for item in items {
                    match item {
                        IndexItem::At(expr) => children.push(expr),
                        IndexItem::Slice { start, end, .. } => children.extend(start.iter().chain(end)),
                    }
                }
                children
            }
            ExprKind::Call(callee, args) => {
                std::iter::once(&**callee).chain(args.iter().map(|arg| &arg.value)).collect()
            }
            ExprKind::Unary(_, inner) | ExprKind::Paren(inner) | ExprKind::Spread(inner) => vec![inner],
            ExprKind::Binary(_, left, right) => vec![left, right],
            ExprKind::Compare(first, rest) => std::iter::once(&**first).chain(rest.iter().map(|(_, e)| e)).collect(),
            ExprKind::IfElse { then, condition, otherwise } => vec![then, condition, otherwise],
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().collect(),
            ExprKind::Dict(entries) => entries.iter().flat_map(|(k, v)| [k, v]).collect(),
        }
    }
}
