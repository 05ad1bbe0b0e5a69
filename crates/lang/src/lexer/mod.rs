//! Text to tokens: characters are scanned in `scan`, lines and indentation laid out in `layout`.

mod layout;
mod scan;
mod token;

pub use token::{Comment, Token, TokenKind};

use crate::diagnostic::Diagnostic;
use crate::span::FileId;

/// The tokens of one file, its comments, and what was wrong with its characters.
#[derive(Clone, Debug)]
pub struct Lexed {
    /// Tokens with `Newline`, `Indent`, `Dedent` laid out; the last is always `Eof`.
    pub tokens: Vec<Token>,
    /// Comments in order, kept for the formatter.
    pub comments: Vec<Comment>,
    /// Findings of this stage.
    pub diagnostics: Vec<Diagnostic>,
}

/// Cuts a text into tokens. Never fails: bad characters are reported and left out.
pub fn lex(file: FileId, text: &str) -> Lexed {
    let scanned = scan::scan(file, text);
    layout::lay_out(file, text, scanned)
}
