//! A recursive descent parser with error recovery.
//!
//! An error affects only its line: the parser reports it, skips to the end of the line and continues, so that all errors of a
//! file are reported. Three rules guarantee this:
//! - `ErrorReported` can only be created by reporting, so no error is silent;
//! - every loop consumes a token or stops, so the parser terminates;
//! - nesting is limited by `MAX_DEPTH`, so the stack does not overflow.

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

/// Maximum nesting depth of expressions, types and blocks.
const MAX_DEPTH: usize = 64;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The tree, without lines that have errors.
    pub file: ast::File,
    /// Comments in source order.
    pub comments: Vec<Comment>,
    /// Syntax errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// Parses a file. The tree contains everything outside the lines with errors.
///
/// ```
/// let parsed = tensorloom_lang::parser::parse(Default::default(), "import std.primitives\n");
/// assert!(parsed.diagnostics.is_empty());
/// assert_eq!(parsed.file.items.len(), 1);
/// ```
pub fn parse(file: FileId, text: &str) -> Parsed {
    let lexed = lexer::lex(file, text);
    // One diagnostic per line: further errors after an invalid character are unreliable.
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

/// Parses a text that consists of one expression, or returns the error. Spans are relative to `text`.
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

/// Proof that a diagnostic was reported.
#[derive(Debug)]
struct ErrorReported(());

type PResult<T> = Result<T, ErrorReported>;

struct Parser<'a> {
    file: FileId,
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    bad_lines: HashSet<usize>,
    /// Computed by the first report, so that a file without errors has no cost.
    line_starts: Option<Vec<usize>>,
    diagnostics: Vec<Diagnostic>,
}

fn line_of(text: &str, offset: u32) -> usize {
    text.as_bytes()[..(offset as usize).min(text.len())].iter().filter(|b| **b == b'\n').count()
}
