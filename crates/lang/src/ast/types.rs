//! Types as written: tensors, tuples, optionals, arrays of modules.

use super::{Arg, Expr, ExprKind, Ident, Path};
use crate::span::Span;

/// A type and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeExpr {
    /// What it is.
    pub kind: TypeKind,
    /// Where it stands.
    pub span: Span,
}

impl TypeExpr {
    /// Whether an argument is the index of an array's element, such as `{layer}`.
    pub fn mentions_index(&self) -> bool {
        fn mentions(expr: &Expr) -> bool {
            matches!(expr.kind, ExprKind::Placeholder(_)) || expr.children().into_iter().any(mentions)
        }
        match &self.kind {
            TypeKind::Named { args: Some(args), .. } => args.iter().any(|arg| mentions(&arg.value)),
            TypeKind::Optional(inner) => inner.mentions_index(),
            TypeKind::Array { length, element } => mentions(length) || element.mentions_index(),
            _ => false,
        }
    }
}

/// The forms of types (§3).
#[derive(Clone, Debug, PartialEq)]
pub enum TypeKind {
    /// `[B, T, C]`, `[B, T, C, bf16]`, `Tensor<[B, T, C]>`.
    Tensor {
        /// The dimensions.
        dims: Vec<DimExpr>,
        /// The element type, if given.
        dtype: Option<Ident>,
        /// How it was spelled.
        spelling: TensorSpelling,
    },
    /// `([B, T], [B, T])`.
    Tuple(Vec<TypeExpr>),
    /// `T?`.
    Optional(Box<TypeExpr>),
    /// `[n] x T`, `[n] × T`, `Array<n, T>`.
    Array {
        /// How many.
        length: Box<Expr>,
        /// Of what.
        element: Box<TypeExpr>,
    },
    /// `int`, `scalar`, `RMSNorm(d_model)`, `enum(NN, NT)`.
    Named {
        /// The name.
        path: Path,
        /// Arguments; `None` without parentheses.
        args: Option<Vec<Arg>>,
    },
    /// `tied_to(embedding)`.
    TiedTo(Path),
    /// `tuple(T for i in range(n))`, in primitives' signatures.
    Each {
        /// The type of one element.
        element: Box<TypeExpr>,
        /// The counting variable.
        index: Ident,
        /// What it counts through.
        range: Box<Expr>,
    },
}

/// How a tensor type was spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorSpelling {
    /// `[B, T]`
    Brackets,
    /// `Tensor<[B, T]>`
    Explicit,
}

/// One dimension of a tensor type.
#[derive(Clone, Debug, PartialEq)]
pub enum DimExpr {
    /// `*`: any number of leading dimensions.
    Variadic(Span),
    /// `...`: left out by the author.
    Elided(Span),
    /// A constant expression.
    Size(Expr),
}

impl DimExpr {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            DimExpr::Variadic(span) | DimExpr::Elided(span) => *span,
            DimExpr::Size(expr) => expr.span,
        }
    }
}

/// The element types of §3.3 and §7.4.1.
pub const DTYPE_NAMES: &[&str] = &["bf16", "fp32", "fp16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "int8", "int4", "int32"];
