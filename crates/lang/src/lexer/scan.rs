//! Scans characters to words, numbers, strings and operators, line by line, without blocks.

use super::token::{Comment, Token, TokenKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::{FileId, Span};

/// The result of scanning: tokens without layout, in order.
pub(super) struct Scanned {
    pub(super) tokens: Vec<Token>,
    pub(super) comments: Vec<Comment>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// Operators, longest first so that the longest match wins.
const OPERATORS: &[(&str, TokenKind)] = &[
    ("...", TokenKind::Ellipsis),
    ("->", TokenKind::Arrow),
    ("=>", TokenKind::FatArrow),
    ("==", TokenKind::EqEq),
    ("!=", TokenKind::NotEq),
    ("<=", TokenKind::Le),
    (">=", TokenKind::Ge),
    ("**", TokenKind::StarStar),
    ("//", TokenKind::SlashSlash),
    ("&&", TokenKind::AndAnd),
    ("||", TokenKind::OrOr),
    ("×", TokenKind::Times),
    (":", TokenKind::Colon),
    ("=", TokenKind::Assign),
    ("<", TokenKind::Lt),
    (">", TokenKind::Gt),
    ("+", TokenKind::Plus),
    ("-", TokenKind::Minus),
    ("*", TokenKind::Star),
    ("/", TokenKind::Slash),
    ("%", TokenKind::Percent),
    ("?", TokenKind::Question),
    ("@", TokenKind::At),
    ("!", TokenKind::Bang),
    ("|", TokenKind::Pipe),
    (",", TokenKind::Comma),
    (".", TokenKind::Dot),
    ("(", TokenKind::LParen),
    (")", TokenKind::RParen),
    ("[", TokenKind::LBracket),
    ("]", TokenKind::RBracket),
    ("{", TokenKind::LBrace),
    ("}", TokenKind::RBrace),
];

pub(super) fn scan(file: FileId, text: &str) -> Scanned {
    let mut scanner = Scanner {
        file,
        text,
        bytes: text.as_bytes(),
        at: 0,
        out: Scanned { tokens: Vec::with_capacity(text.len() / 4), comments: Vec::new(), diagnostics: Vec::new() },
    };
    if text.starts_with('\u{feff}') {
        scanner.at = '\u{feff}'.len_utf8();
    }
    while scanner.at < text.len() {
        scanner.step();
    }
    scanner.out
}

struct Scanner<'a> {
    file: FileId,
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    out: Scanned,
}

impl Scanner<'_> {
    fn step(&mut self) {
        match self.bytes[self.at] {
            b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
            b'#' => self.comment(),
            b'"' if self.rest().starts_with("\"\"\"") => self.doc_string(),
            b'"' => self.string('"'),
            b'\'' => self.single_quoted(),
            b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let end = self.end_of_word(self.at);
                self.push(TokenKind::Ident, end);
            }
            _ => self.operator(),
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end)
    }

    fn push(&mut self, kind: TokenKind, end: usize) {
        let span = self.span(self.at, end);
        self.out.tokens.push(Token { kind, span });
        self.at = end;
    }

    fn report(&mut self, span: Span, message: &str, label: &str) -> &mut Diagnostic {
        self.out.diagnostics.push(Diagnostic::new(Code::E001, span, message).with_label(label));
        self.out.diagnostics.last_mut().expect("just pushed")
    }

    fn end_of_word(&self, from: usize) -> usize {
        from + self.bytes[from..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
    }

    fn end_of_line(&self, from: usize) -> usize {
        self.text[from..].find('\n').map_or(self.text.len(), |n| from + n)
    }

    fn comment(&mut self) {
        let end = self.end_of_line(self.at);
        let trimmed = self.at + self.text[self.at..end].trim_end().len();
        let line_start = self.text[..self.at].rfind('\n').map_or(0, |n| n + 1);
        let own_line = self.text[line_start..self.at].trim_start_matches('\u{feff}').trim().is_empty();
        self.out.comments.push(Comment { span: self.span(self.at, trimmed), own_line });
        self.at = end;
    }

    fn doc_string(&mut self) {
        let start = self.at;
        match self.text[start + 3..].find("\"\"\"") {
            Some(length) => self.push(TokenKind::DocStr, start + 3 + length + 3),
            None => {
                // An unterminated string ends at its line, so that the rest of the file can be parsed.
                let end = self.end_of_line(start);
                self.report(
                    self.span(start, start + 3),
                    "documentation string is not closed",
                    "no closing `\"\"\"` follows",
                );
                self.push(TokenKind::DocStr, end);
            }
        }
    }

    fn string(&mut self, quote: char) {
        let start = self.at;
        let line_end = self.end_of_line(start);
        let mut escaped = false;
        for (offset, c) in self.text[start + 1..line_end].char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return self.push(TokenKind::Str, start + 1 + offset + 1),
                _ => {}
            }
        }
        let end = start + self.text[start..line_end].trim_end().len();
        self.report(self.span(start, end), "string is not closed", "no closing quote on this line");
        self.push(TokenKind::Str, end);
    }

    fn single_quoted(&mut self) {
        let start = self.at;
        let closed = self.text[start + 1..self.end_of_line(start)].find('\'').map(|n| start + n + 2);
        let Some(end) = closed else {
            self.report(self.span(start, start + 1), "unexpected character", "`'` is not a token");
            self.at += 1;
            return;
        };
        self.report(self.span(start, end), "strings are written with double quotes", "use `\"` here").hint =
            Some(format!("write \"{}\"", &self.text[start + 1..end - 1]));
        self.push(TokenKind::Str, end);
    }

    /// A number such as `12`, `25_000_000`, `0.5`, `1e-6`. A dot belongs to it only before a digit: `blocks[0].w` has no float.
    fn number(&mut self) {
        let start = self.at;
        let digits =
            |from: usize| from + self.bytes[from..].iter().take_while(|b| b.is_ascii_digit() || **b == b'_').count();
        let digit_at = |at: usize| self.bytes.get(at).is_some_and(u8::is_ascii_digit);
        let mut end = digits(start);
        let mut kind = TokenKind::Int;
        if self.bytes.get(end) == Some(&b'.') && digit_at(end + 1) {
            kind = TokenKind::Float;
            end = digits(end + 1);
        }
        if matches!(self.bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.bytes.get(end + 1), Some(b'+' | b'-')));
            if digit_at(end + 1 + sign) {
                kind = TokenKind::Float;
                end = digits(end + 1 + sign);
            }
        }
        let word_end = self.end_of_word(end);
        if word_end > end {
            self.report(self.span(start, word_end), "malformed number", "letters follow the digits");
            end = word_end;
        }
        self.push(kind, end);
    }

    fn operator(&mut self) {
        if let Some(&(text, kind)) = OPERATORS.iter().find(|(text, _)| self.rest().starts_with(text)) {
            return self.push(kind, self.at + text.len());
        }
        let Some(c) = self.rest().chars().next() else { return };
        let end = self.at + c.len_utf8();
        if c.is_whitespace() {
            self.at = end;
            return;
        }
        // A run of invalid characters is one error, not one per character.
        let run = self.text[self.at..]
            .char_indices()
            .find(|(_, c)| c.is_ascii() || c.is_whitespace() || *c == '×')
            .map_or(self.text.len(), |(n, _)| self.at + n)
            .max(end);
        let found = self.text[self.at..run].to_string();
        let remedy = match c {
            '→' => Some("write `->`"),
            '·' | '∗' | '⋅' => Some("write `*`"),
            '−' | '–' | '—' => Some("write `-`"),
            '“' | '”' => Some("write `\"`"),
            '≤' => Some("write `<=`"),
            '≥' => Some("write `>=`"),
            '…' => Some("write `...`"),
            c if c.is_alphabetic() => Some("names use ASCII letters, digits and `_`"),
            _ => None,
        };
        let span = self.span(self.at, run);
        self.report(span, "unexpected character", &format!("`{}` is not a token", found.escape_debug())).hint =
            remedy.map(str::to_string);
        self.at = run;
    }
}
