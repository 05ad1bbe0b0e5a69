//! Recursive descent from tokens to the tree, with recovery.
//!
//! A mistake costs its line: the parser reports it, skips to the end of the line and goes on, so that every mistake
//! of a file is reported. Three rules keep it honest:
//! - `Reported` can only be made by reporting, so nothing fails silently;
//! - every loop consumes a token or stops, so nothing hangs;
//! - nesting is bounded by `MAX_DEPTH`, so nothing overflows the stack.

mod cursor;
mod decl;
mod expr;
mod graph;
mod pass;
mod section;
mod types;
mod weights;

use crate::ast;
use crate::diagnostic::Diagnostic;
use crate::lexer::{self, Comment, Token};
use crate::span::FileId;
use std::collections::HashSet;

/// Deepest nesting of expressions, types and blocks.
const MAX_DEPTH: usize = 64;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What could be understood.
    pub file: ast::File,
    /// Comments in order.
    pub comments: Vec<Comment>,
    /// What could not.
    pub diagnostics: Vec<Diagnostic>,
}

/// Parses a file. The tree holds everything outside the lines with mistakes.
///
/// ```
/// let parsed = tensorloom_lang::parser::parse(Default::default(), "import std.primitives\n");
/// assert!(parsed.diagnostics.is_empty());
/// assert_eq!(parsed.file.items.len(), 1);
/// ```
pub fn parse(file: FileId, text: &str) -> Parsed {
    let lexed = lexer::lex(file, text);
    // One finding per line: what follows a bad character on its line is guesswork.
    let bad_lines = lexed.diagnostics.iter().map(|d| line_of(text, d.primary.span.start)).collect();
    let mut parser = Parser {
        file,
        text,
        tokens: lexed.tokens,
        at: 0,
        depth: 0,
        bad_lines,
        line_starts: None,
        diagnostics: lexed.diagnostics,
    };
    let file = parser.file();
    let mut diagnostics = parser.diagnostics;
    diagnostics.sort_by_key(|d| d.primary.span.start);
    Parsed { file, comments: lexed.comments, diagnostics }
}

/// Parses one expression and nothing behind it; what is wrong with it otherwise. Its places are those in `text`.
pub fn expression(text: &str) -> Result<ast::Expr, String> {
    let file = FileId::default();
    let lexed = lexer::lex(file, text);
    let mut parser = Parser {
        file,
        text,
        tokens: lexed.tokens,
        at: 0,
        depth: 0,
        bad_lines: HashSet::new(),
        line_starts: None,
        diagnostics: lexed.diagnostics,
    };
    let parsed = parser.expr();
    while matches!(parser.kind(), lexer::TokenKind::Newline | lexer::TokenKind::Dedent) {
        parser.bump();
    }
    match (parsed, parser.diagnostics.first()) {
        (_, Some(found)) => Err(found.message.clone()),
        (Ok(found), None) if parser.is(lexer::TokenKind::Eof) => Ok(found),
        _ => Err("expected one expression".to_string()),
    }
}

/// Proof that a diagnostic was issued.
#[derive(Debug)]
struct Reported(());

type PResult<T> = Result<T, Reported>;

struct Parser<'a> {
    file: FileId,
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    bad_lines: HashSet<usize>,
    /// Filled by the first report, so that a file without mistakes never pays for it.
    line_starts: Option<Vec<usize>>,
    diagnostics: Vec<Diagnostic>,
}

fn line_of(text: &str, offset: u32) -> usize {
    text.as_bytes()[..(offset as usize).min(text.len())].iter().filter(|b| **b == b'\n').count()
}
