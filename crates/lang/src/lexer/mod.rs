//! The lexer: `scan` scans characters, `layout` handles lines and indentation.

mod layout;
mod scan;
mod token;

pub use token::{Comment, Token, TokenKind};

use crate::diagnostic::Diagnostic;
use crate::span::FileId;

/// The tokens of one file, its comments, and its lexical errors.
#[derive(Clone, Debug)]
pub struct Lexed {
    /// Tokens including `Newline`, `Indent`, `Dedent`; the last is always `Eof`.
    pub tokens: Vec<Token>,
    /// Comments in source order, for the formatter.
    pub comments: Vec<Comment>,
    /// Diagnostics of this stage.
    pub diagnostics: Vec<Diagnostic>,
}

/// Splits a text into tokens. Never fails: invalid characters are reported and skipped.
pub fn lex(file: FileId, text: &str) -> Lexed {
    let scanned = scan::scan(file, text);
    layout::lay_out(file, text, scanned)
}
