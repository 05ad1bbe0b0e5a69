//! Constant expressions: the values of parameters, let bindings and literals.

mod eval;
mod value;

pub use eval::{EvalError, EvalErrorKind, NameResolver, eval};
pub(crate) use eval::{INDEX, INTRINSICS, truth};
pub use value::{ConstValue, Ternary};
