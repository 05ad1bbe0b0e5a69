//! Parses expressions by precedence climbing: `if else` < `or` < `and` < `not` < comparison < `+ -` < `* / // %` < negation <
//! `**` < calls, indices, members.

use super::{PResult, Parser};
use crate::ast::{Arg, BinaryOp, CompareOp, Expr, ExprKind, IndexItem, StrLit, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;

/// Maximum length of a chain of operators or members.
const MAX_CHAIN: usize = 128;

/// Keywords that end an expression and cannot begin one.
const NOT_NAMES: &[&str] = &["if", "else", "and", "or", "not", "for"];

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> PResult<Expr> {
        self.nested(|p| {
            let then = p.binary(1)?;
            if !p.is_word("if") {
                return Ok(then);
            }
            p.bump();
            let condition = Box::new(p.binary(1)?);
            if p.eat_word("else").is_none() {
                return Err(p.expected("`else`"));
            }
            let otherwise = Box::new(p.expr()?);
            let span = then.span.to(otherwise.span);
            Ok(Expr { kind: ExprKind::IfElse { then: Box::new(then), condition, otherwise }, span })
        })
    }

    /// Parses an expression without `if else`, as in `param: [shape] if condition`.
    pub(super) fn condition(&mut self) -> PResult<Expr> {
        self.nested(|p| p.binary(1))
    }

    fn binary_op(&self) -> Option<(BinaryOp, u8)> {
        let op = match self.kind() {
            TokenKind::Plus => (BinaryOp::Add, 5),
            TokenKind::Minus => (BinaryOp::Sub, 5),
            TokenKind::Star => (BinaryOp::Mul, 6),
            TokenKind::Slash => (BinaryOp::Div, 6),
            TokenKind::SlashSlash => (BinaryOp::FloorDiv, 6),
            TokenKind::Percent => (BinaryOp::Mod, 6),
            TokenKind::AndAnd => (BinaryOp::And, 2),
            TokenKind::OrOr => (BinaryOp::Or, 1),
            TokenKind::Ident if self.is_word("and") => (BinaryOp::And, 2),
            TokenKind::Ident if self.is_word("or") => (BinaryOp::Or, 1),
            _ => return None,
        };
        Some(op)
    }

    fn compare_op(&self) -> Option<CompareOp> {
        Some(match self.kind() {
            TokenKind::EqEq => CompareOp::Eq,
            TokenKind::NotEq => CompareOp::Ne,
            TokenKind::Lt => CompareOp::Lt,
            TokenKind::Le => CompareOp::Le,
            TokenKind::Gt => CompareOp::Gt,
            TokenKind::Ge => CompareOp::Ge,
            _ => return None,
        })
    }

    /// Parses operators of precedence `level` or higher; all of them are left-associative.
    fn binary(&mut self, level: u8) -> PResult<Expr> {
        let mut left = match level {
            3 => return self.not(),
            4 => return self.compare(),
            1..=5 => self.binary(level + 1)?,
            6 => self.unary()?,
            _ => return self.unary(),
        };
        let mut links = 0;
        while let Some((op, found)) = self.binary_op()
            && found == level
        {
            self.count_link(&mut links)?;
            self.bump();
            let right = self.binary(level + 1)?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), span };
        }
        Ok(left)
    }

    /// Chains such as `a + b + c` and `a.b.c` nest to the left; their length is limited because later stages recurse.
    fn count_link(&mut self, links: &mut usize) -> PResult<()> {
        *links += 1;
        if *links > MAX_CHAIN {
            let span = self.peek().span;
            return Err(self.error(span, "nested too deeply", "this chain is too long"));
        }
        Ok(())
    }

    fn not(&mut self) -> PResult<Expr> {
        let Some(token) = self.eat_word("not") else {
            return self.binary(4);
        };
        let inner = self.nested(Self::not)?;
        let span = token.span.to(inner.span);
        Ok(Expr { kind: ExprKind::Unary(UnaryOp::Not, Box::new(inner)), span })
    }

    fn compare(&mut self) -> PResult<Expr> {
        let first = self.binary(5)?;
        let mut rest = Vec::new();
        while let Some(op) = self.compare_op() {
            self.bump();
            rest.push((op, self.binary(5)?));
        }
        let Some((_, last)) = rest.last() else { return Ok(first) };
        let span = first.span.to(last.span);
        Ok(Expr { kind: ExprKind::Compare(Box::new(first), rest), span })
    }

    fn unary(&mut self) -> PResult<Expr> {
        let op = match self.kind() {
            TokenKind::Minus => UnaryOp::Neg,
            TokenKind::Bang => UnaryOp::Bang,
            _ => return self.power(),
        };
        let token = self.bump();
        let inner = self.nested(Self::unary)?;
        let span = token.span.to(inner.span);
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(inner)), span })
    }

    fn power(&mut self) -> PResult<Expr> {
        let base = self.postfix()?;
        if self.eat(TokenKind::StarStar).is_none() {
            return Ok(base);
        }
        let exponent = self.nested(Self::unary)?;
        let span = base.span.to(exponent.span);
        Ok(Expr { kind: ExprKind::Binary(BinaryOp::Pow, Box::new(base), Box::new(exponent)), span })
    }

    /// Parses an atom followed by members, indices and calls.
    pub(super) fn postfix(&mut self) -> PResult<Expr> {
        let mut expr = self.atom()?;
        let mut links = 0;
        loop {
            let start = expr.span;
            let kind = match self.kind() {
                TokenKind::Dot => {
                    self.bump();
                    let name = self.ident("a name after `.`")?;
                    ExprKind::Attr(Box::new(expr), name)
                }
                TokenKind::LBracket => {
                    self.bump();
                    let items = self.list(TokenKind::RBracket, Self::index_item)?;
                    ExprKind::Index(Box::new(expr), items)
                }
                TokenKind::LParen => ExprKind::Call(Box::new(expr), self.args()?),
                TokenKind::Ellipsis => {
                    self.bump();
                    ExprKind::Spread(Box::new(expr))
                }
                _ => return Ok(expr),
            };
            self.count_link(&mut links)?;
            expr = Expr { kind, span: self.since(start) };
        }
    }

    fn index_item(&mut self) -> PResult<IndexItem> {
        let start_token = self.peek().span;
        let start = if self.is(TokenKind::Colon) { None } else { Some(self.expr()?) };
        if self.eat(TokenKind::Colon).is_none() {
            return Ok(IndexItem::At(start.expect("it can only be omitted before a colon")));
        }
        let ends = matches!(self.kind(), TokenKind::Comma | TokenKind::RBracket);
        let end = if ends { None } else { Some(self.expr()?) };
        Ok(IndexItem::Slice { start, end, span: self.since(start_token) })
    }

    /// Parses arguments, `(a, name=b)`.
    pub(super) fn args(&mut self) -> PResult<Vec<Arg>> {
        self.expect(TokenKind::LParen)?;
        self.list(TokenKind::RParen, |p| {
            let named = p.is(TokenKind::Ident) && p.kind_at(1) == TokenKind::Assign;
            let name = named.then(|| p.take_ident());
            if named {
                p.bump();
            }
            Ok(Arg { name, value: p.expr()? })
        })
    }

    fn atom(&mut self) -> PResult<Expr> {
        let token = self.peek();
        let kind = match token.kind {
            TokenKind::Int => self.int()?,
            TokenKind::Float => {
                self.bump();
                let digits = self.text_of(token.span).replace('_', "");
                // The lexer has reported a malformed number.
                ExprKind::Float(digits.parse().unwrap_or(0.0))
            }
            TokenKind::Str => ExprKind::Str(self.string()?.value),
            TokenKind::Ellipsis => {
                self.bump();
                ExprKind::Ellipsis
            }
            TokenKind::Star if matches!(self.kind_at(1), TokenKind::Comma | TokenKind::RBracket) => {
                self.bump();
                ExprKind::Star
            }
            TokenKind::LParen => return self.parenthesised(),
            TokenKind::LBracket => {
                self.bump();
                ExprKind::List(self.list(TokenKind::RBracket, Self::expr)?)
            }
            TokenKind::LBrace => self.braces()?,
            TokenKind::Ident => match self.text_of(token.span) {
                "true" => self.word(ExprKind::Bool(true)),
                "false" => self.word(ExprKind::Bool(false)),
                "None" => self.word(ExprKind::None),
                word if NOT_NAMES.contains(&word) => return Err(self.expected("an expression")),
                word => {
                    let name = word.to_string();
                    self.word(ExprKind::Name(name))
                }
            },
            _ => return Err(self.expected("an expression")),
        };
        Ok(Expr { kind, span: self.since(token.span) })
    }

    fn word(&mut self, kind: ExprKind) -> ExprKind {
        self.bump();
        kind
    }

    fn int(&mut self) -> PResult<ExprKind> {
        let token = self.bump();
        let digits: String = self.text_of(token.span).chars().filter(char::is_ascii_digit).collect();
        match digits.parse() {
            Ok(value) => Ok(ExprKind::Int(value)),
            Err(_) => Err(self.report(
                Diagnostic::new(Code::E001, token.span, "number too large")
                    .with_label(format!("the largest integer is {}", i64::MAX))
                    .with_hint("write a float, such as 1e20"),
            )),
        }
    }

    /// A string literal with its escapes resolved.
    pub(super) fn string(&mut self) -> PResult<StrLit> {
        let token = self.expect(TokenKind::Str)?;
        let raw = self.text_of(token.span);
        let inner = raw.get(1..).unwrap_or_default();
        let inner = inner.strip_suffix(['"', '\'']).unwrap_or(inner);
        let mut value = String::with_capacity(inner.len());
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('r') => value.push('\r'),
                    Some(other @ ('"' | '\\')) => value.push(other),
                    Some(other) => value.extend(['\\', other]),
                    None => value.push('\\'),
                },
                c => value.push(c),
            }
        }
        Ok(StrLit { value, span: token.span })
    }

    fn parenthesised(&mut self) -> PResult<Expr> {
        let open = self.expect(TokenKind::LParen)?;
        let mut items = Vec::new();
        let mut comma = false;
        while !self.is(TokenKind::RParen) {
            items.push(self.expr()?);
            comma = self.eat(TokenKind::Comma).is_some();
            if !comma && !self.is(TokenKind::RParen) {
                return Err(self.expected("`,` or `)`"));
            }
        }
        self.bump();
        let span = self.since(open.span);
        let kind = match (items.len(), comma) {
            (1, false) => ExprKind::Paren(Box::new(items.remove(0))),
            _ => ExprKind::Tuple(items),
        };
        Ok(Expr { kind, span })
    }

    /// Parses a placeholder `{layer}` or a dict `{key: value}`.
    fn braces(&mut self) -> PResult<ExprKind> {
        self.expect(TokenKind::LBrace)?;
        if self.is(TokenKind::Ident) && self.kind_at(1) == TokenKind::RBrace {
            let name = self.take_ident();
            self.bump();
            return Ok(ExprKind::Placeholder(name));
        }
        let entries = self.list(TokenKind::RBrace, |p| {
            let key = p.expr()?;
            p.expect(TokenKind::Colon)?;
            Ok((key, p.expr()?))
        })?;
        Ok(ExprKind::Dict(entries))
    }
}
