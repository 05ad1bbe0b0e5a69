//! The `.module` language.

pub mod ast;
pub mod diagnostic;
pub mod lexer;
pub mod parser;
pub mod source;
pub mod span;
pub mod suggest;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use source::Sources;
pub use span::{FileId, Span};
