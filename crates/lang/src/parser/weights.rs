//! Parses `hf_config:`, `hf_mapping:`, `hf_export:` and weight paths.

use super::{PResult, Parser};
use crate::ast::{ConfigEntry, ConfigValue, Expr, WeightMapping, WeightPart, WeightPath, WeightSpec};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;
use crate::span::Span;

impl Parser<'_> {
    /// Parses a weight path, `blocks[{layer}].attention.qkv_weight?`.
    pub(super) fn weight_path(&mut self) -> PResult<WeightPath> {
        let first = self.ident("a parameter's name")?;
        let start = first.span;
        let mut parts = vec![WeightPart::Field(first)];
        loop {
            match self.kind() {
                TokenKind::Dot => {
                    self.bump();
                    parts.push(WeightPart::Field(self.ident("a name after `.`")?));
                }
                TokenKind::LBracket => {
                    self.bump();
                    let placeholder = self.is(TokenKind::LBrace) && self.kind_at(2) == TokenKind::RBrace;
                    if placeholder && self.kind_at(1) == TokenKind::Ident {
                        self.bump();
                        parts.push(WeightPart::Placeholder(self.take_ident()));
                        self.bump();
                    } else {
                        parts.push(WeightPart::Index(self.expr()?));
                    }
                    self.expect(TokenKind::RBracket)?;
                }
                _ => break,
            }
        }
        let optional = self.eat(TokenKind::Question).is_some();
        Ok(WeightPath { parts, optional, span: self.since(start) })
    }

    /// Parses the part after `hf_mapping:`.
    pub(super) fn mappings(&mut self, separator: TokenKind) -> PResult<Vec<WeightMapping>> {
        self.block(|p| {
            let path = p.weight_path()?;
            p.expect(separator)?;
            let spec = p.weight_spec()?;
            p.end_line()?;
            let span = path.span.to(spec.span());
            Ok(WeightMapping { path, spec, span })
        })
    }

    fn weight_spec(&mut self) -> PResult<WeightSpec> {
        if self.is(TokenKind::Str) {
            return Ok(WeightSpec::Direct(self.string()?));
        }
        let word = self.ident("a tensor's name in quotes, or `fuse`, `split`, `transform`, `tied_to`")?;
        let start = word.span;
        match &*word.name {
            "fuse" => {
                let (parts, dim) = self.weight_parts(Self::string)?;
                Ok(WeightSpec::Fuse { parts, dim, span: self.since(start) })
            }
            "split" => {
                let (parts, dim) = self.weight_parts(|p| {
                    let name = p.string()?;
                    p.expect(TokenKind::Colon)?;
                    Ok((name, p.expr()?))
                })?;
                Ok(WeightSpec::Split { parts, dim, span: self.since(start) })
            }
            "transform" => {
                self.expect(TokenKind::LParen)?;
                let source = self.string()?;
                self.expect(TokenKind::Comma)?;
                if self.eat_word("fn").is_none() {
                    return Err(self.expected("`fn:`"));
                }
                if self.eat(TokenKind::Assign).is_none() {
                    self.expect(TokenKind::Colon)?;
                }
                let function = self.ident("a function's name")?;
                self.eat(TokenKind::Comma);
                self.expect(TokenKind::RParen)?;
                Ok(WeightSpec::Transform { source, function, span: self.since(start) })
            }
            "tied_to" => {
                self.expect(TokenKind::LParen)?;
                let target = self.weight_path()?;
                self.expect(TokenKind::RParen)?;
                Ok(WeightSpec::TiedTo { target, span: self.since(start) })
            }
            other => Err(self.report(
                Diagnostic::new(Code::E001, start, format!("unknown weight mapping `{other}`"))
                    .with_label("expected a string, `fuse`, `split`, `transform` or `tied_to`"),
            )),
        }
    }

    /// Parses the parts of a mapping, `(part, part, dim=0)`.
    fn weight_parts<T>(&mut self, mut part: impl FnMut(&mut Self) -> PResult<T>) -> PResult<(Vec<T>, Option<Expr>)> {
        self.expect(TokenKind::LParen)?;
        let mut dim = None;
        let parts = self.list(TokenKind::RParen, |p| {
            if p.is_word("dim") && p.kind_at(1) == TokenKind::Assign {
                let at: Span = p.bump().span;
                p.bump();
                let value = p.expr()?;
                if dim.replace(value).is_some() {
                    return Err(p.error(at, "`dim` is given twice", "given before"));
                }
                return Ok(None);
            }
            part(p).map(Some)
        })?;
        Ok((parts.into_iter().flatten().collect(), dim))
    }

    /// Parses the part after `hf_config:`.
    pub(super) fn config_entries(&mut self) -> PResult<Vec<ConfigEntry>> {
        self.block(|p| {
            let key = p.ident("a configuration key")?;
            p.expect(TokenKind::Colon)?;
            let value = match p.kind() {
                TokenKind::Newline => ConfigValue::Map(p.config_entries()?),
                TokenKind::Ellipsis => {
                    p.bump();
                    p.end_line()?;
                    ConfigValue::Elided
                }
                _ => {
                    let value = p.expr()?;
                    p.end_line()?;
                    ConfigValue::Expr(value)
                }
            };
            Ok(ConfigEntry { key, value })
        })
    }
}
