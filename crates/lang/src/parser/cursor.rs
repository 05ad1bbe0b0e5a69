//! Moves through the tokens: lookahead, expectation, error reports, recovery.

use super::{ErrorReported, MAX_DEPTH, PResult, Parser};
use crate::ast::{Ident, Path};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::{Token, TokenKind};
use crate::span::Span;

impl Parser<'_> {
    pub(super) fn peek(&self) -> Token {
        self.tokens[self.at]
    }

    pub(super) fn kind(&self) -> TokenKind {
        self.peek().kind
    }

    /// The kind of the token `n` positions ahead.
    pub(super) fn kind_at(&self, n: usize) -> TokenKind {
        self.tokens.get(self.at + n).map_or(TokenKind::Eof, |t| t.kind)
    }

    pub(super) fn is(&self, kind: TokenKind) -> bool {
        self.kind() == kind
    }

    pub(super) fn text_of(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// Whether the next token is this identifier.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.is(TokenKind::Ident) && self.text_of(self.peek().span) == word
    }

    /// Consumes the next token; never moves past the end of the file.
    pub(super) fn bump(&mut self) -> Token {
        let token = self.peek();
        if token.kind != TokenKind::Eof {
            self.at += 1;
        }
        token
    }

    pub(super) fn eat(&mut self, kind: TokenKind) -> Option<Token> {
        self.is(kind).then(|| self.bump())
    }

    pub(super) fn eat_word(&mut self, word: &str) -> Option<Token> {
        self.is_word(word).then(|| self.bump())
    }

    pub(super) fn expect(&mut self, kind: TokenKind) -> PResult<Token> {
        if self.is(kind) { Ok(self.bump()) } else { Err(self.expected(kind.describe())) }
    }

    pub(super) fn ident(&mut self, what: &str) -> PResult<Ident> {
        if !self.is(TokenKind::Ident) {
            return Err(self.expected(what));
        }
        Ok(self.take_ident())
    }

    /// Consumes an identifier that is known to be next.
    pub(super) fn take_ident(&mut self) -> Ident {
        let token = self.bump();
        Ident { name: self.text_of(token.span).to_string(), span: token.span }
    }

    pub(super) fn path(&mut self, what: &str) -> PResult<Path> {
        let mut parts = vec![self.ident(what)?];
        while self.eat(TokenKind::Dot).is_some() {
            parts.push(self.ident("a name after `.`")?);
        }
        Ok(Path { parts })
    }

    /// The span from `start` to the last consumed token.
    pub(super) fn since(&self, start: Span) -> Span {
        let mut last = self.at;
        while last > 0 {
            last -= 1;
            let token = self.tokens[last];
            if !matches!(token.kind, TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent) {
                return if token.span.end > start.start { start.to(token.span) } else { start };
            }
        }
        start
    }

    /// Reports that a different token was expected.
    pub(super) fn expected(&mut self, what: &str) -> ErrorReported {
        let found = self.peek();
        let shown = match found.kind {
            TokenKind::Ident | TokenKind::Int | TokenKind::Float => format!("`{}`", self.text_of(found.span)),
            kind => kind.describe().to_string(),
        };
        self.error(found.span, format!("expected {what}, found {shown}"), format!("expected {what}"))
    }

    pub(super) fn error(&mut self, span: Span, message: impl Into<String>, label: impl Into<String>) -> ErrorReported {
        self.report(Diagnostic::new(Code::E001, span, message).with_label(label))
    }

    /// Reports a diagnostic, unless its line already has one.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> ErrorReported {
        let text = self.text;
        let starts = self
            .line_starts
            .get_or_insert_with(|| std::iter::once(0).chain(text.match_indices('\n').map(|(n, _)| n + 1)).collect());
        let line = starts.partition_point(|&start| start <= diagnostic.primary.span.start as usize) - 1;
        if !diagnostic.is_error() || self.bad_lines.insert(line) {
            self.diagnostics.push(diagnostic);
        }
        ErrorReported(())
    }

    /// Runs `parse` one level deeper, or reports that the nesting is too deep.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> PResult<T>) -> PResult<T> {
        if self.depth >= MAX_DEPTH {
            let span = self.peek().span;
            return Err(self.error(span, "nested too deeply", format!("more than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Expects the end of the line.
    pub(super) fn end_line(&mut self) -> PResult<()> {
        match self.kind() {
            TokenKind::Newline => {
                self.bump();
                Ok(())
            }
            TokenKind::Eof | TokenKind::Dedent => Ok(()),
            _ => Err(self.expected("the end of the line")),
        }
    }

    /// Skips the rest of the line and the block under it, if it has one.
    pub(super) fn skip_line(&mut self) {
        while !matches!(self.kind(), TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent | TokenKind::Eof) {
            self.bump();
        }
        self.eat(TokenKind::Newline);
        self.skip_block();
    }

    /// Skips a block, if one starts here.
    pub(super) fn skip_block(&mut self) {
        let mut depth = 0;
        loop {
            match self.kind() {
                TokenKind::Indent => depth += 1,
                TokenKind::Dedent if depth > 0 => depth -= 1,
                TokenKind::Eof => return,
                _ if depth == 0 => return,
                _ => {}
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    /// Parses the entries of the indented block after a `:`; an entry with an error is skipped. The block may be empty, for
    /// example if it contains only a comment.
    pub(super) fn block<T>(&mut self, mut entry: impl FnMut(&mut Self) -> PResult<T>) -> PResult<Vec<T>> {
        if !self.is(TokenKind::Newline) {
            return Err(self.expected("the end of the line and an indented block"));
        }
        self.bump();
        let mut entries = Vec::new();
        if self.eat(TokenKind::Indent).is_none() {
            return Ok(entries);
        }
        self.nested_block(&mut entries, &mut entry)?;
        Ok(entries)
    }

    fn nested_block<T>(
        &mut self,
        entries: &mut Vec<T>,
        entry: &mut impl FnMut(&mut Self) -> PResult<T>,
    ) -> PResult<()> {
        let too_deep = self.depth >= MAX_DEPTH;
        if too_deep {
            let span = self.peek().span;
            self.error(span, "nested too deeply", format!("more than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        while !matches!(self.kind(), TokenKind::Dedent | TokenKind::Eof) {
            let before = self.at;
            if self.is(TokenKind::Indent) {
                let span = self.peek().span;
                self.error(span, "unexpected indentation", "deeper than the block it belongs to");
                self.skip_block();
            } else if too_deep {
                self.skip_line();
            } else {
                match entry(self) {
                    Ok(node) => entries.push(node),
                    Err(ErrorReported(())) => self.skip_line(),
                }
            }
            if self.at == before {
                self.bump();
            }
        }
        self.depth -= 1;
        self.eat(TokenKind::Dedent);
        Ok(())
    }

    /// Parses elements between brackets, separated by commas; a trailing comma is allowed. The opening bracket is already consumed.
    pub(super) fn list<T>(
        &mut self,
        close: TokenKind,
        mut element: impl FnMut(&mut Self) -> PResult<T>,
    ) -> PResult<Vec<T>> {
        let mut elements = Vec::new();
        while !self.is(close) {
            elements.push(self.nested(&mut element)?);
            if self.eat(TokenKind::Comma).is_none() && !self.is(close) {
                let what = format!("`,` or {}", close.describe());
                return Err(self.expected(&what));
            }
        }
        self.bump();
        Ok(elements)
    }
}
