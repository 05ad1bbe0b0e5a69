//! The `.module` language.

pub mod diagnostic;
pub mod source;
pub mod span;
pub mod suggest;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use source::Sources;
pub use span::{FileId, Span};
