//! Lines and indentation: inserts `Newline`, `Indent` and `Dedent`.
//!
//! - Newlines inside brackets are ignored.
//! - A line that starts with `->` continues the previous line, and so does a line that starts with `@` and is indented deeper
//!   than its block (§7.5.1, §10.3).
//! - If a line returns to the indentation of the line with an open bracket, the closing bracket is missing: this is reported once
//!   and the bracket is closed, so that the rest of the file can be parsed.

use super::Lexed;
use super::scan::Scanned;
use super::token::{Token, TokenKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::{FileId, Span};

/// The width of a tab; it matters only for files that mix tabs and spaces, which is an error.
const TAB_COLUMNS: usize = 4;

struct OpenBracket {
    token: Token,
    /// The indentation of the logical line with the bracket.
    line_indent: usize,
}

struct IndentationPass<'a> {
    text: &'a str,
    out: Vec<Token>,
    diagnostics: Vec<Diagnostic>,
    indents: Vec<usize>,
    brackets: Vec<OpenBracket>,
    /// The indentation character of the first indented line.
    indent_char: Option<char>,
    mixed_reported: bool,
    line_indent: usize,
}

pub(super) fn lay_out(file: FileId, text: &str, scanned: Scanned) -> Lexed {
    let mut layout = IndentationPass {
        text,
        out: Vec::with_capacity(scanned.tokens.len() + scanned.tokens.len() / 4),
        diagnostics: scanned.diagnostics,
        indents: vec![0],
        brackets: Vec::new(),
        indent_char: None,
        mixed_reported: false,
        line_indent: 0,
    };
    let mut previous_end = 0;
    for token in scanned.tokens {
        let between = &text[previous_end as usize..token.span.start as usize];
        if previous_end == 0 || between.contains('\n') {
            layout.start_line(token);
        }
        layout.push(token);
        previous_end = token.span.end;
    }
    let end = Span::new(file, text.len(), text.len());
    layout.finish(end);
    layout.diagnostics.sort_by_key(|d| d.primary.span.start);
    Lexed { tokens: layout.out, comments: scanned.comments, diagnostics: layout.diagnostics }
}

impl IndentationPass<'_> {
    fn start_line(&mut self, first: Token) {
        let start = first.span.start as usize;
        let line_start = self.text[..start].rfind('\n').map_or(0, |n| n + 1);
        let blanks = self.text[line_start..start].trim_start_matches('\u{feff}');
        let width = blanks.chars().map(|c| if c == '\t' { TAB_COLUMNS } else { 1 }).sum();

        if let Some(open) = self.brackets.first() {
            let forgotten = width <= open.line_indent && !first.kind.is_closer();
            if !forgotten && !self.opens_section(first) {
                return;
            }
            self.report_unclosed(Some(first.span));
        }
        self.check_blanks(blanks, line_start, first);

        let after_colon = self.out.last().is_none_or(|t| t.kind == TokenKind::Colon);
        let deeper = width > *self.indents.last().expect("never empty");
        let continues = match first.kind {
            TokenKind::Arrow => true,
            TokenKind::At => deeper,
            _ => false,
        };
        if continues && !after_colon {
            return;
        }
        if self.out.last().is_some_and(|t| !matches!(t.kind, TokenKind::Newline)) {
            let end = self.out.last().expect("checked").span.at_end();
            self.out.push(Token { kind: TokenKind::Newline, span: end });
        }
        self.line_indent = width;
        self.indent_to(width, first.span.at_start());
    }

    /// Whether the line is only `word:`, which no bracketed list contains.
    fn opens_section(&self, first: Token) -> bool {
        let start = first.span.start as usize;
        let line = self.text[start..].lines().next().unwrap_or_default();
        let line = line.split('#').next().unwrap_or_default().trim_end();
        first.kind == TokenKind::Ident
            && line.len() == (first.span.end - first.span.start) as usize + 1
            && line.ends_with(':')
    }

    fn indent_to(&mut self, width: usize, at: Span) {
        let current = *self.indents.last().expect("never empty");
        if width > current {
            self.indents.push(width);
            self.out.push(Token { kind: TokenKind::Indent, span: at });
            return;
        }
        while width < *self.indents.last().expect("never empty") {
            self.indents.pop();
            self.out.push(Token { kind: TokenKind::Dedent, span: at });
        }
        let landed = *self.indents.last().expect("never empty");
        if width != landed && !self.mixed_reported {
            self.diagnostics.push(
                Diagnostic::new(Code::E001, at, "indentation does not match any open block")
                    .with_label(format!("{width} columns, but the enclosing block has {landed}"))
                    .with_hint("align the line with one of the blocks above it"),
            );
        }
        // The line is treated as part of the enclosing block.
        self.line_indent = landed;
    }

    fn check_blanks(&mut self, blanks: &str, line_start: usize, first: Token) {
        let Some(c) = blanks.chars().next() else { return };
        let expected = *self.indent_char.get_or_insert(c);
        if self.mixed_reported || blanks.chars().all(|c| c == expected) {
            return;
        }
        self.mixed_reported = true;
        let name = |c: char| if c == '\t' { "tabs" } else { "spaces" };
        let span = Span::new(first.span.file, line_start, first.span.start as usize);
        self.diagnostics.push(
            Diagnostic::new(Code::E001, span, "indentation mixes tabs and spaces")
                .with_label(format!("this file indents with {}", name(expected)))
                .with_hint("indent with two spaces per block; `loom fmt` does this"),
        );
    }

    fn push(&mut self, token: Token) {
        if token.kind.closer().is_some() {
            self.brackets.push(OpenBracket { token, line_indent: self.line_indent });
        } else if token.kind.is_closer() {
            match self.brackets.last() {
                Some(open) if open.token.kind.closer() == Some(token.kind) => {
                    self.brackets.pop();
                }
                // `(a, b]`: the wrong closing bracket closes its own opening bracket if there is one, else it is ignored.
                Some(open) => {
                    self.diagnostics.push(
                        Diagnostic::new(Code::E001, token.span, "brackets do not match")
                            .with_label(format!("unmatched {}", token.kind.describe()))
                            .with_secondary(open.token.span, "this bracket is open"),
                    );
                    let matching = self.brackets.iter().rposition(|o| o.token.kind.closer() == Some(token.kind));
                    let Some(index) = matching else { return };
                    while self.brackets.len() > index {
                        let open = self.brackets.pop().expect("longer than index");
                        let kind = open.token.kind.closer().expect("only openers are kept");
                        self.out.push(Token { kind, span: token.span });
                    }
                    return;
                }
                None => {
                    self.diagnostics.push(
                        Diagnostic::new(Code::E001, token.span, "brackets do not match")
                            .with_label(format!("unmatched {}", token.kind.describe())),
                    );
                    return;
                }
            }
        }
        self.out.push(token);
    }

    /// Reports the innermost open bracket and closes all open brackets.
    fn report_unclosed(&mut self, before: Option<Span>) {
        let Some(open) = self.brackets.last() else { return };
        let mut found = Diagnostic::new(Code::E001, open.token.span, "bracket is not closed")
            .with_label(format!("{} is opened here", open.token.kind.describe()));
        if let Some(span) = before {
            found = found.with_secondary(span, "the bracket must be closed before this line");
        }
        self.diagnostics.push(found);
        let end = self.out.last().map_or(open.token.span, |t| t.span).at_end();
        while let Some(open) = self.brackets.pop() {
            let kind = open.token.kind.closer().expect("only openers are kept");
            self.out.push(Token { kind, span: end });
        }
    }

    fn finish(&mut self, end: Span) {
        self.report_unclosed(None);
        if self.out.last().is_some_and(|t| t.kind != TokenKind::Newline) {
            let at = self.out.last().expect("checked").span.at_end();
            self.out.push(Token { kind: TokenKind::Newline, span: at });
        }
        while self.indents.len() > 1 {
            self.indents.pop();
            self.out.push(Token { kind: TokenKind::Dedent, span: end });
        }
        self.out.push(Token { kind: TokenKind::Eof, span: end });
    }
}
