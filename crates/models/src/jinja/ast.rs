//! The syntax tree of a template.

use super::value::Str;
use std::rc::Rc;

#[derive(Debug)]
pub(super) struct Stmt {
    pub(super) line: usize,
    pub(super) kind: StmtKind,
}

#[derive(Debug)]
pub(super) enum StmtKind {
    Text(String),
    Output(Expr),
    If { branches: Vec<(Expr, Vec<Stmt>)>, otherwise: Vec<Stmt> },
    For(Rc<For>),
    Set { target: Target, value: Expr },
    SetBlock { target: Target, filter: Option<Expr>, body: Vec<Stmt> },
    Macro(Rc<MacroDef>),
    Call { call: Expr, def: Rc<MacroDef> },
    Filter { filter: Expr, body: Vec<Stmt> },
    With { values: Vec<(Target, Expr)>, body: Vec<Stmt> },
    Generation(Vec<Stmt>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) iter: Expr,
    pub(super) filter: Option<Expr>,
    pub(super) body: Vec<Stmt>,
    pub(super) else_body: Vec<Stmt>,
    pub(super) recursive: bool,
}

#[derive(Debug)]
pub(super) struct MacroDef {
    /// None for a `call` block.
    pub(super) name: Option<Rc<str>>,
    pub(super) params: Vec<(Rc<str>, Option<Expr>)>,
    pub(super) body: Vec<Stmt>,
    /// Which of `caller`, `kwargs` and `varargs` the body uses.
    pub(super) named: [bool; 3],
}

/// Names that a macro can use without declaring them.
pub(super) const IMPLICIT_NAMES: [&str; 3] = ["caller", "kwargs", "varargs"];

/// The target of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Name(Rc<str>),
    /// An attribute of a namespace.
    Attr(Rc<str>, Rc<str>),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(super) struct Expr {
    /// The height of its expression tree.
    pub(super) height: u32,
    pub(super) kind: TemplateExprKind,
}

#[derive(Debug)]
pub(super) enum TemplateExprKind {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Str),
    Name(Rc<str>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Negate(Box<Expr>),
    Plus(Box<Expr>),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Binary(TemplateBinaryOp, Box<Expr>, Box<Expr>),
    Compare(Box<Expr>, Vec<(TemplateCompareOp, Expr)>),
    Concat(Vec<Expr>),
    Cond {
        test: Box<Expr>,
        yes: Box<Expr>,
        no: Option<Box<Expr>>,
    },
    Attr(Box<Expr>, Rc<str>),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, [Option<Box<Expr>>; 3]),
    Call(Box<Expr>, CallArgs),
    /// A filter. It has no value inside `{% filter %}` and `{% set x | .. %}`, which filter the captured text.
    Filter(Option<Box<Expr>>, String, CallArgs),
    Test(Box<Expr>, String, CallArgs),
}

#[derive(Debug, Default)]
pub(super) struct CallArgs {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(Rc<str>, Expr)>,
    /// `*args`, `**kwargs`.
    pub(super) star: Option<Box<Expr>>,
    pub(super) stars: Option<Box<Expr>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateBinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl TemplateBinaryOp {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            TemplateBinaryOp::Add => "+",
            TemplateBinaryOp::Sub => "-",
            TemplateBinaryOp::Mul => "*",
            TemplateBinaryOp::Div => "/",
            TemplateBinaryOp::FloorDiv => "//",
            TemplateBinaryOp::Mod => "%",
            TemplateBinaryOp::Pow => "** or pow()",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateCompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
