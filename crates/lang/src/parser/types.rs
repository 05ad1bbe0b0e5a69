//! Parses types and annotations.

use super::{PResult, Parser};
use crate::ast::{Annotation, DTYPE_NAMES, DimExpr, Expr, ExprKind, Ident, TensorSpelling, TypeExpr, TypeKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;
use crate::span::Span;

impl Parser<'_> {
    pub(super) fn type_expr(&mut self) -> PResult<TypeExpr> {
        self.nested(|p| {
            let start = p.peek().span;
            let mut ty = p.type_atom()?;
            if p.eat(TokenKind::Question).is_some() {
                ty = TypeExpr { kind: TypeKind::Optional(Box::new(ty)), span: p.since(start) };
            }
            Ok(ty)
        })
    }

    fn type_atom(&mut self) -> PResult<TypeExpr> {
        let start = self.peek().span;
        let kind = match self.kind() {
            TokenKind::LBracket => self.tensor_or_array()?,
            TokenKind::LParen => {
                self.bump();
                TypeKind::Tuple(self.list(TokenKind::RParen, Self::type_expr)?)
            }
            TokenKind::Ident => match (self.text_of(start), self.kind_at(1)) {
                ("Tensor", TokenKind::Lt) => self.explicit_tensor()?,
                ("Tensor", TokenKind::LBracket) => self.deprecated_tensor()?,
                ("Array", TokenKind::Lt) => self.generic_array()?,
                ("tied_to", TokenKind::LParen) => self.tied_to()?,
                ("tuple", TokenKind::LParen) => self.each()?,
                _ => {
                    let path = self.path("a type")?;
                    let args = if self.is(TokenKind::LParen) { Some(self.args()?) } else { None };
                    TypeKind::Named { path, args }
                }
            },
            _ => return Err(self.expected("a type such as `[B, T, C]`")),
        };
        Ok(TypeExpr { kind, span: self.since(start) })
    }

    fn tensor_or_array(&mut self) -> PResult<TypeKind> {
        let (dims, dtype) = self.dims()?;
        let times = self.is(TokenKind::Times)
            || (self.is_word("x")
                && matches!(self.kind_at(1), TokenKind::Ident | TokenKind::LBracket | TokenKind::LParen));
        if !times {
            return Ok(TypeKind::Tensor { dims, dtype, spelling: TensorSpelling::Brackets });
        }
        let times = self.bump();
        let mut dims = dims;
        match (dims.pop(), dims.is_empty(), dtype) {
            (Some(DimExpr::Size(length)), true, None) => {
                let element = Box::new(self.type_expr()?);
                Ok(TypeKind::Array { length: Box::new(length), element })
            }
            _ => Err(self.error(times.span, "an array takes one length", "write `[n] x Module(...)`")),
        }
    }

    /// Parses `[B, T, C, bf16]`, including the brackets.
    fn dims(&mut self) -> PResult<(Vec<DimExpr>, Option<Ident>)> {
        self.expect(TokenKind::LBracket)?;
        let mut dims = self.list(TokenKind::RBracket, |p| {
            let token = p.peek();
            let alone = matches!(p.kind_at(1), TokenKind::Comma | TokenKind::RBracket);
            match token.kind {
                TokenKind::Star if alone => {
                    p.bump();
                    Ok(DimExpr::Variadic(token.span))
                }
                TokenKind::Ellipsis => {
                    p.bump();
                    Ok(DimExpr::Elided(token.span))
                }
                _ => Ok(DimExpr::Size(p.expr()?)),
            }
        })?;
        let dtype = match dims.last() {
            Some(DimExpr::Size(Expr { kind: ExprKind::Name(name), span })) if DTYPE_NAMES.contains(&&**name) => {
                Some(Ident { name: name.clone(), span: *span })
            }
            _ => None,
        };
        if dtype.is_some() {
            dims.pop();
        }
        Ok((dims, dtype))
    }

    fn explicit_tensor(&mut self) -> PResult<TypeKind> {
        self.bump();
        self.expect(TokenKind::Lt)?;
        let (dims, dtype) = self.dims()?;
        self.expect(TokenKind::Gt)?;
        Ok(TypeKind::Tensor { dims, dtype, spelling: TensorSpelling::Explicit })
    }

    /// Parses `Tensor[B, T]`, which the formatter rewrites to `[B, T]`.
    fn deprecated_tensor(&mut self) -> PResult<TypeKind> {
        let word = self.bump();
        let (dims, dtype) = self.dims()?;
        self.report(
            Diagnostic::new(Code::L101, word.span, "`Tensor[...]` is deprecated")
                .with_label("not needed")
                .with_hint("write only the brackets, or `Tensor<[...]>` where that is ambiguous"),
        );
        Ok(TypeKind::Tensor { dims, dtype, spelling: TensorSpelling::Brackets })
    }

    fn generic_array(&mut self) -> PResult<TypeKind> {
        self.bump();
        self.expect(TokenKind::Lt)?;
        let length = Box::new(self.expr()?);
        self.expect(TokenKind::Comma)?;
        let element = Box::new(self.type_expr()?);
        self.expect(TokenKind::Gt)?;
        Ok(TypeKind::Array { length, element })
    }

    fn tied_to(&mut self) -> PResult<TypeKind> {
        self.bump();
        self.bump();
        let path = self.path("the parameter it shares")?;
        self.expect(TokenKind::RParen)?;
        Ok(TypeKind::TiedTo(path))
    }

    fn each(&mut self) -> PResult<TypeKind> {
        self.bump();
        self.bump();
        let element = Box::new(self.type_expr()?);
        if self.eat_word("for").is_none() {
            return Err(self.expected("`for`"));
        }
        let index = self.ident("a counting variable")?;
        if self.eat_word("in").is_none() {
            return Err(self.expected("`in`"));
        }
        let range = Box::new(self.expr()?);
        self.expect(TokenKind::RParen)?;
        Ok(TypeKind::Each { element, index, range })
    }

    /// Parses annotations `@a @b(c=d)`, possibly none.
    pub(super) fn annotations(&mut self) -> PResult<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.is(TokenKind::At) {
            let at = self.bump();
            let name = self.ident("an annotation's name")?;
            let args = if self.is(TokenKind::LParen) { Some(self.args()?) } else { None };
            let span: Span = self.since(at.span);
            annotations.push(Annotation { name, args, span });
        }
        Ok(annotations)
    }
}
