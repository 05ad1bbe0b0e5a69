//! The lexer: text → tokens with their source positions.

use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// An optional sign and any characters that a number may contain; the parser validates it.
    Number(String),
    Str(String),
    /// `%name`.
    Name(String),
    Symbol(char),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SourcePos {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl SourcePos {
    pub(super) fn error<T>(self, message: impl Into<String>) -> Result<T> {
        Err(Error::Parse { line: self.line, column: self.column, message: message.into() })
    }
}

pub(super) fn lex(text: &str) -> Result<Vec<(Token, SourcePos)>> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    let mut place = SourcePos { line: 1, column: 1 };
    while let Some(&c) = chars.peek() {
        let start = place;
        let mut bump = |place: &mut SourcePos| {
            let c = chars.next();
            match c {
                Some('\n') => *place = SourcePos { line: place.line + 1, column: 1 },
                Some(_) => place.column += 1,
                None => {}
            }
            (c, chars.peek().copied())
        };
        if c.is_whitespace() {
            bump(&mut place);
            continue;
        }
        if c == '#' {
            while bump(&mut place).1.is_some_and(|n| n != '\n') {}
            continue;
        }
        let mut take_while = |place: &mut SourcePos, ok: fn(char) -> bool| {
            let mut s = String::new();
            loop {
                let (c, next) = bump(place);
                s.extend(c);
                if !next.is_some_and(ok) {
                    return s;
                }
            }
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let token = match c {
            'a'..='z' | 'A'..='Z' | '_' => Token::Word(take_while(&mut place, word)),
            // `-inf`, `1e-5` and `0xff` are one token each; the parser interprets them.
            '0'..='9' | '-' | '+' => {
                let mut s = take_while(&mut place, |c| c.is_ascii_alphanumeric() || c == '.');
                while s.ends_with(['e', 'E']) && !s.starts_with("0x") && chars.peek().is_some_and(|c| "+-".contains(*c))
                {
                    let sign = chars.next().expect("peeked");
                    place.column += 1;
                    s.push(sign);
                    while let Some(d) = chars.peek().copied().filter(char::is_ascii_digit) {
                        chars.next();
                        place.column += 1;
                        s.push(d);
                    }
                }
                Token::Number(s)
            }
            '%' => {
                let s = take_while(&mut place, |c| c.is_ascii_alphanumeric() || c == '_');
                if s.len() == 1 {
                    return start.error("a value name must follow `%`");
                }
                Token::Name(s[1..].to_string())
            }
            '"' => {
                let mut s = String::new();
                bump(&mut place);
                loop {
                    match bump(&mut place).0 {
                        Some('"') => break,
                        Some('\\') => match bump(&mut place).0 {
                            Some('n') => s.push('\n'),
                            Some('t') => s.push('\t'),
                            Some('r') => s.push('\r'),
                            Some('0') => s.push('\0'),
                            // `\u{1f600}`, as Rust prints unprintable characters.
                            Some('u') => {
                                let mut digits = String::new();
                                loop {
                                    match bump(&mut place).0 {
                                        Some('{') if digits.is_empty() => {}
                                        Some('}') => break,
                                        Some(c) if c.is_ascii_hexdigit() && digits.len() < 6 => digits.push(c),
                                        _ => return start.error("a character is written \\u{hex}"),
                                    }
                                }
                                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                                match code {
                                    Some(c) => s.push(c),
                                    None => return start.error("\\u{..} is not a character"),
                                }
                            }
                            Some(c) => s.push(c),
                            None => return start.error("a string without its end"),
                        },
                        Some(c) => s.push(c),
                        None => return start.error("a string without its end"),
                    }
                }
                Token::Str(s)
            }
            '(' | ')' | '{' | '}' | '[' | ']' | ',' | ':' | '=' => {
                bump(&mut place);
                Token::Symbol(c)
            }
            other => return start.error(format!("unexpected character {other:?}")),
        };
        tokens.push((token, start));
    }
    tokens.push((Token::End, place));
    Ok(tokens)
}
