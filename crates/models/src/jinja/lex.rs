//! Splits a source into text, `{{ expressions }}` and `{% tags %}`, with Jinja's rules for white space (`trim_blocks` and
//! `lstrip_blocks` are on, as in transformers).

use super::Fault;
use super::budget::SOURCE;
use super::methods::is_space;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(i64),
    Float(f64),
    Str(String),
    Op(&'static str),
}

#[derive(Debug)]
pub(super) enum TemplatePiece {
    Text(String),
    /// `{{ .. }}`: its tokens and their lines.
    Output(usize, Vec<(usize, Token)>),
    /// `{% .. %}`.
    Tag(usize, Vec<(usize, Token)>),
}

const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",", ";",
];

/// Splits a source into pieces. A newline at its very end is dropped, and all newlines become `\n`, as in Jinja.
pub(super) fn tokenize(source: &str) -> Result<Vec<TemplatePiece>, Fault> {
    if source.len() > SOURCE {
        let what = format!("the template has {} bytes, and the most is {SOURCE}", source.len());
        return Err(Fault { line: 1, what });
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    Lexer { source, at: 0, line: 1, line_start: true, pieces: Vec::new() }.run()
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    /// Whether the previous text ended with a newline.
    line_start: bool,
    pieces: Vec<TemplatePiece>,
}

impl Lexer<'_> {
    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.line, what: what.into() }
    }

    /// Advances and counts lines.
    fn skip(&mut self, bytes: usize) {
        let passed = &self.source[self.at..self.at + bytes];
        self.line += passed.matches('\n').count();
        if !passed.is_empty() {
            self.line_start = passed.ends_with('\n');
        }
        self.at += bytes;
    }

    fn skip_space(&mut self) {
        let rest = &self.source[self.at..];
        self.skip(rest.len() - rest.trim_start_matches(is_space).len());
    }

    fn run(mut self) -> Result<Vec<TemplatePiece>, Fault> {
        loop {
            let rest = &self.source[self.at..];
            let Some(start) = next_tag(rest) else {
                self.text(rest);
                return Ok(self.pieces);
            };
            let kind = rest.as_bytes()[start + 1];
            let sign = rest[start + 2..].chars().next().filter(|c| matches!(c, '-' | '+'));
            self.text(trim_before_tag(&rest[..start], kind != b'{', sign, self.line_start));
            self.skip(start + 2 + sign.map_or(0, char::len_utf8));
            match kind {
                b'#' => {
                    let rest = &self.source[self.at..];
                    let end = rest.find("#}").ok_or_else(|| self.fault("a comment has no end: `#}`"))?;
                    self.skip(end);
                    let strip = self.source[..self.at].ends_with('-') && end > 0;
                    let keep = self.source[..self.at].ends_with('+') && end > 0;
                    self.end_of_tag(strip, keep);
                }
                b'%' if self.raw_begins() => self.raw()?,
                _ => {
                    let (line, close) = (self.line, if kind == b'{' { "}}" } else { "%}" });
                    let tokens = self.tokens(close)?;
                    self.pieces.push(match kind {
                        b'{' => TemplatePiece::Output(line, tokens),
                        _ => TemplatePiece::Tag(line, tokens),
                    });
                }
            }
        }
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.pieces.push(TemplatePiece::Text(text.to_string()));
        }
    }

    /// Skips `%}`, `#}` or `}}`, and the white space that it removes.
    fn end_of_tag(&mut self, strip: bool, keep: bool) {
        let variable = self.source[self.at..].starts_with("}}");
        self.skip(2);
        if strip {
            self.skip_space();
        } else if !variable && !keep && self.source[self.at..].starts_with('\n') {
            self.skip(1);
        }
    }

    /// Skips the rest of `{% raw %}`; returns whether it was one.
    fn raw_begins(&mut self) -> bool {
        let rest = self.source[self.at..].trim_start_matches(is_space);
        let Some(rest) = rest.strip_prefix("raw") else { return false };
        let rest = rest.trim_start_matches(is_space);
        let strip = rest.starts_with('-');
        let Some(rest) = rest.strip_prefix('-').unwrap_or(rest).strip_prefix("%}") else { return false };
        self.skip(self.source.len() - self.at - rest.len());
        if strip {
            self.skip_space();
        }
        true
    }

    /// The text up to `{% endraw %}`.
    fn raw(&mut self) -> Result<(), Fault> {
        let mut from = self.at;
        loop {
            let Some(found) = self.source[from..].find("{%") else {
                return Err(self.fault("`raw` has no end: `{% endraw %}`"));
            };
            let start = from + found;
            let sign = self.source[start + 2..].chars().next().filter(|c| matches!(c, '-' | '+'));
            let rest = self.source[start + 2 + sign.map_or(0, char::len_utf8)..].trim_start_matches(is_space);
            let Some(rest) = rest.strip_prefix("endraw").map(|rest| rest.trim_start_matches(is_space)) else {
                from = start + 2;
                continue;
            };
            let (strip, keep) = (rest.starts_with('-'), rest.starts_with('+'));
            let Some(end) = rest.find("%}").filter(|end| *end == usize::from(strip || keep)) else {
                from = start + 2;
                continue;
            };
            let end = self.source.len() - rest.len() + end;
            let source = self.source;
            self.text(trim_before_tag(&source[self.at..start], true, sign, self.line_start));
            self.skip(end - self.at);
            self.end_of_tag(strip, keep);
            return Ok(());
        }
    }

    /// Reads the tokens up to the end of a tag and skips it.
    fn tokens(&mut self, close: &str) -> Result<Vec<(usize, Token)>, Fault> {
        let (mut tokens, mut open) = (Vec::new(), Vec::new());
        let begin = self.line;
        loop {
            self.skip_space();
            let rest = &self.source[self.at..];
            let Some(c) = rest.chars().next() else {
                return Err(Fault { line: begin, what: format!("a tag has no end: `{close}`") });
            };
            if open.is_empty() {
                let signed = rest.starts_with('-') || rest.starts_with('+') && close == "%}";
                if rest[usize::from(signed)..].starts_with(close) {
                    self.skip(usize::from(signed));
                    self.end_of_tag(rest.starts_with('-'), signed);
                    return Ok(tokens);
                }
            }
            let line = self.line;
            let token = if c.is_alphabetic() || c == '_' {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                self.skip(end);
                Token::Name(rest[..end].to_string())
            } else if c.is_ascii_digit() {
                self.number(rest)?
            } else if c == '"' || c == '\'' {
                self.string(rest, c)?
            } else {
                let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
                    return Err(self.fault(format!("unexpected character {c:?}")));
                };
                match *op {
                    "(" => open.push(")"),
                    "[" => open.push("]"),
                    "{" => open.push("}"),
                    ")" | "]" | "}" => {
                        let expected = open.pop();
                        if expected != Some(*op) {
                            return Err(self.fault(match expected {
                                Some(expected) => format!("unexpected `{op}`, expected `{expected}`"),
                                None => format!("unexpected `{op}`"),
                            }));
                        }
                    }
                    _ => {}
                }
                self.skip(op.len());
                Token::Op(op)
            };
            tokens.push((line, token));
        }
    }

    fn number(&mut self, rest: &str) -> Result<Token, Fault> {
        let digits = |from: usize, of: fn(&char) -> bool| {
            rest[from..].chars().take_while(|c| of(c) || *c == '_').map(char::len_utf8).sum::<usize>() + from
        };
        for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
            if rest.get(..2).is_some_and(|p| p.eq_ignore_ascii_case(prefix)) {
                let end = digits(2, char::is_ascii_alphanumeric);
                let value = i64::from_str_radix(&rest[2..end].replace('_', ""), radix);
                self.skip(end);
                return value.map(Token::Int).map_err(|_| self.fault(format!("not a number: {}", &rest[..end])));
            }
        }
        let mut end = digits(0, char::is_ascii_digit);
        let mut float = false;
        if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            (end, float) = (digits(end + 1, char::is_ascii_digit), true);
        }
        let exponent = rest[end..].strip_prefix(['e', 'E']).map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
        if let Some(e) = exponent.filter(|e| e.starts_with(|c: char| c.is_ascii_digit())) {
            (end, float) = (digits(rest.len() - e.len(), char::is_ascii_digit), true);
        }
        let text = rest[..end].replace('_', "");
        self.skip(end);
        let token = match float {
            true => text.parse().ok().map(Token::Float),
            false => text.parse().ok().map(Token::Int),
        };
        token.ok_or_else(|| self.fault(format!("the number {text} is too large")))
    }

    fn string(&mut self, rest: &str, quote: char) -> Result<Token, Fault> {
        let mut text = String::new();
        let mut chars = rest[1..].chars();
        while let Some(c) = chars.next() {
            if c == quote {
                self.skip(rest.len() - chars.as_str().len());
                return Ok(Token::Str(text));
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let Some(c) = chars.next() else { break };
            let c = match c {
                '\n' => continue,
                '\\' | '\'' | '"' => c,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'v' => '\x0b',
                'x' | 'u' | 'U' | '0'..='7' => {
                    let (digits, most, radix) = match c {
                        'x' => (chars.as_str(), 2, 16),
                        'u' => (chars.as_str(), 4, 16),
                        'U' => (chars.as_str(), 8, 16),
                        _ => (&rest[rest.len() - chars.as_str().len() - 1..], 3, 8),
                    };
                    let count = digits.chars().take(most).take_while(|c| c.is_digit(radix)).count();
                    let code = u32::from_str_radix(&digits[..count], radix).ok().and_then(char::from_u32);
                    let Some(code) = code.filter(|_| radix == 8 || count == most) else {
                        return Err(
                            self.fault(format!("`\\{c}` in a string isn't followed by the number of a character"))
                        );
                    };
                    chars = digits[count..].chars();
                    code
                }
                other => {
                    text.push('\\');
                    other
                }
            };
            text.push(c);
        }
        Err(self.fault("a string has no end"))
    }
}

/// The position of the next tag.
fn next_tag(text: &str) -> Option<usize> {
    text.as_bytes().windows(2).position(|w| w[0] == b'{' && matches!(w[1], b'{' | b'%' | b'#'))
}

/// The text before a tag after stripping: `-` strips all white space, and a block tag also the indentation of its line.
fn trim_before_tag(text: &str, block: bool, sign: Option<char>, line_start: bool) -> &str {
    match sign {
        Some('-') => text.trim_end_matches(is_space),
        None if block => {
            let line = text.rfind('\n').map_or(0, |at| at + 1);
            let blank = !text[line..].is_empty() && text[line..].chars().all(is_space);
            if (line > 0 || line_start) && blank { &text[..line] } else { text }
        }
        _ => text,
    }
}
