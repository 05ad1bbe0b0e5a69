//! The `.module` language: lexer, parser, name resolution, constant evaluation, shape checker, lowering; all errors are reported.
//!
//! The crate's README describes the modules.

pub mod ast;
pub mod check;
pub mod consteval;
pub mod diagnostic;
pub mod dims;
pub mod fmt;
pub mod lexer;
pub mod library;
pub mod lower;
pub mod parser;
pub mod resolve;
pub mod source;
pub mod span;
pub mod suggest;
pub mod template;
pub mod verify;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use resolve::{ModuleProgram, ProgramError};
pub use source::Sources;
pub use span::{FileId, Span};
