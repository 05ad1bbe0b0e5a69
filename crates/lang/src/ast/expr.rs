//! Expressions: constants, names, calls.

use super::Ident;
use crate::span::Span;

/// An expression and its source span.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Its form.
    pub kind: ExprKind,
    /// Its source span.
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
    /// A boolean, `true` or `false`.
    Bool(bool),
    /// The literal `None`.
    None,
    /// A name.
    Name(String),
    /// An attribute, `base.name`.
    Attr(Box<Expr>, Ident),
    /// An index, `base[items]`.
    Index(Box<Expr>, Vec<IndexItem>),
    /// A call, `callee(args)`.
    Call(Box<Expr>, Vec<Arg>),
    /// A unary operation: `-x`, `not x`, `!x`.
    Unary(UnaryOp, Box<Expr>),
    /// A binary operation such as `a + b`, also `and`, `or`.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A comparison chain `a < b <= c`: true if every adjacent pair compares true.
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// A conditional, `then if condition else otherwise`.
    IfElse {
        /// The value if the condition is true.
        then: Box<Expr>,
        /// The condition.
        condition: Box<Expr>,
        /// The value if it is false.
        otherwise: Box<Expr>,
    },
    /// A parenthesized expression `(x)`, kept so that the formatter preserves the author's parentheses.
    Paren(Box<Expr>),
    /// A tuple, `(a, b)`.
    Tuple(Vec<Expr>),
    /// A list, `[a, b]`.
    List(Vec<Expr>),
    /// A dict, `{key: value}`.
    Dict(Vec<(Expr, Expr)>),
    /// A placeholder of a weight path, `{layer}`.
    Placeholder(Ident),
    /// A spread, `x...`.
    Spread(Box<Expr>),
    /// An ellipsis, `...`.
    Ellipsis,
    /// A star, `*`, which is only valid as an element of a shape.
    Star,
}

/// One item between index brackets.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexItem {
    /// A single index: `i`, `-1`, `...`.
    At(Expr),
    /// A slice, `start:end`; either may be omitted.
    Slice {
        /// The first index.
        start: Option<Expr>,
        /// One past the last index.
        end: Option<Expr>,
        /// Its source span.
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
    /// The span from name to value.
    pub fn span(&self) -> Span {
        self.name.as_ref().map_or(self.value.span, |name| name.span.to(self.value.span))
    }
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// The operator `-`.
    Neg,
    /// The operator `not`, which binds looser than comparisons.
    Not,
    /// The operator `!`, which binds tighter than any other operator.
    Bang,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// The operator `+`.
    Add,
    /// The operator `-`.
    Sub,
    /// The operator `*`.
    Mul,
    /// The operator `/`.
    Div,
    /// The operator `//`.
    FloorDiv,
    /// The operator `%`.
    Mod,
    /// The operator `**`.
    Pow,
    /// The operator `and`, also written `&&`.
    And,
    /// The operator `or`, also written `||`.
    Or,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// The operator `==`.
    Eq,
    /// The operator `!=`.
    Ne,
    /// The operator `<`.
    Lt,
    /// The operator `<=`.
    Le,
    /// The operator `>`.
    Gt,
    /// The operator `>=`.
    Ge,
}

impl BinaryOp {
    /// The spelling that the formatter writes.
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
    /// The operator's spelling.
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
    /// Removes enclosing parentheses.
    pub fn peel(&self) -> &Expr {
        match &self.kind {
            ExprKind::Paren(inner) => inner.peel(),
            _ => self,
        }
    }

    /// The name, if the expression is only a name.
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
