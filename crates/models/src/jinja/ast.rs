//! The tree of a template.

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
    pub(super) only: Option<Expr>,
    pub(super) body: Vec<Stmt>,
    pub(super) otherwise: Vec<Stmt>,
    pub(super) recursive: bool,
}

#[derive(Debug)]
pub(super) struct MacroDef {
    /// A `call` block has none.
    pub(super) name: Option<Rc<str>>,
    pub(super) params: Vec<(Rc<str>, Option<Expr>)>,
    pub(super) body: Vec<Stmt>,
    /// Which of `caller`, `kwargs` and `varargs` it names.
    pub(super) named: [bool; 3],
}

/// What a macro can name without declaring it.
pub(super) const SPECIAL: [&str; 3] = ["caller", "kwargs", "varargs"];

/// What is assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Rc<str>),
    /// An attribute of a namespace.
    Attr(Rc<str>, Rc<str>),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(super) struct Expr {
    /// Levels of expressions in it.
    pub(super) height: u32,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
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
    Binary(Binary, Box<Expr>, Box<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    Concat(Vec<Expr>),
    Cond {
        test: Box<Expr>,
        yes: Box<Expr>,
        no: Option<Box<Expr>>,
    },
    Attr(Box<Expr>, Rc<str>),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, [Option<Box<Expr>>; 3]),
    Call(Box<Expr>, Args),
    /// Without a value inside of `{% filter %}` and `{% set x | .. %}`, which filter what they captured.
    Filter(Option<Box<Expr>>, String, Args),
    Test(Box<Expr>, String, Args),
}

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Expr>,
    pub(super) named: Vec<(Rc<str>, Expr)>,
    /// `*args`, `**kwargs`.
    pub(super) star: Option<Box<Expr>>,
    pub(super) stars: Option<Box<Expr>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl Binary {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::FloorDiv => "//",
            Binary::Mod => "%",
            Binary::Pow => "** or pow()",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
