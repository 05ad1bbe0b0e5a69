//! Types in source form: tensors, tuples, optionals, arrays of modules.

use super::{Arg, Expr, ExprKind, Ident, Path};
use crate::span::Span;

/// A type and its source span.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeExpr {
    /// Its form.
    pub kind: TypeKind,
    /// Its source span.
    pub span: Span,
}

impl TypeExpr {
    /// Whether an argument contains the index of an array's element, such as `{layer}`.
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
    /// A tensor type: `[B, T, C]`, `[B, T, C, bf16]`, `Tensor<[B, T, C]>`.
    Tensor {
        /// The dimensions.
        dims: Vec<DimExpr>,
        /// The element type, if given.
        dtype: Option<Ident>,
        /// The spelling.
        spelling: TensorSpelling,
    },
    /// A tuple type, `([B, T], [B, T])`.
    Tuple(Vec<TypeExpr>),
    /// An optional type, `T?`.
    Optional(Box<TypeExpr>),
    /// An array type: `[n] x T`, `[n] × T`, `Array<n, T>`.
    Array {
        /// The length.
        length: Box<Expr>,
        /// The element type.
        element: Box<TypeExpr>,
    },
    /// A named type: `int`, `scalar`, `RMSNorm(d_model)`, `enum(NN, NT)`.
    Named {
        /// The name.
        path: Path,
        /// Arguments; `None` without parentheses.
        args: Option<Vec<Arg>>,
    },
    /// A tied parameter, `tied_to(embedding)`.
    TiedTo(Path),
    /// `tuple(T for i in range(n))`, in primitives' signatures.
    Each {
        /// The type of one element.
        element: Box<TypeExpr>,
        /// The index variable.
        index: Ident,
        /// The range of the index.
        range: Box<Expr>,
    },
}

/// The spelling of a tensor type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorSpelling {
    /// The spelling `[B, T]`.
    Brackets,
    /// The spelling `Tensor<[B, T]>`.
    Explicit,
}

/// One dimension of a tensor type.
#[derive(Clone, Debug, PartialEq)]
pub enum DimExpr {
    /// A star, `*`: any number of leading dimensions.
    Variadic(Span),
    /// `...`: omitted by the author.
    Elided(Span),
    /// A constant expression.
    Size(Expr),
}

impl DimExpr {
    /// Its source span.
    pub fn span(&self) -> Span {
        match self {
            DimExpr::Variadic(span) | DimExpr::Elided(span) => *span,
            DimExpr::Size(expr) => expr.span,
        }
    }
}

/// The element types of §3.3 and §7.4.1.
pub const DTYPE_NAMES: &[&str] = &["bf16", "fp32", "fp16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "int8", "int4", "int32"];
