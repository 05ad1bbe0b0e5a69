//! Constant expressions: what parameters, let bindings and literals come to.

mod eval;
mod value;

pub(crate) use eval::truth;
pub use eval::{EvalError, EvalErrorKind, Names, eval};
pub use value::{Truth, Value};
