//! Parses `forward:` and `backward:`: inputs, outputs, graph, save and recompute lists.

use super::{PResult, Parser};
use crate::ast::{Graph, IoSpec, IoTensor, KernelImpl, NameList, NamePattern, Pass, PassItem, PassItemKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;

/// Types without brackets; any other single name is the name of a tensor.
const SCALAR_TYPES: &[&str] = &["scalar", "int", "float", "bool", "string", "tuple", "Tensor", "Array"];

/// The keywords of a pass, for suggestions.
const PASS_WORDS: &[&str] = &["in", "out", "inputs", "outputs", "graph", "save", "recompute", "impl"];

impl Parser<'_> {
    /// Parses the part after `forward:` or `backward:`.
    pub(super) fn pass(&mut self) -> PResult<Pass> {
        Ok(Pass { items: self.block(Self::pass_item)? })
    }

    fn pass_item(&mut self) -> PResult<PassItem> {
        let start = self.peek().span;
        if self.eat(TokenKind::Ellipsis).is_some() {
            self.end_line()?;
            return Ok(PassItem { kind: PassItemKind::Elided, span: start });
        }
        let word = self.ident("a part such as `in:`, `out:` or `graph:`")?;
        if self.eat(TokenKind::Assign).is_some() {
            let value = self.expr()?;
            self.end_line()?;
            return Ok(PassItem { kind: PassItemKind::Rule { name: word, value }, span: self.since(start) });
        }
        self.expect(TokenKind::Colon)?;
        let kind = match &*word.name {
            "in" => PassItemKind::In(self.io_line()?),
            "out" => PassItemKind::Out(self.io_line()?),
            "inputs" => PassItemKind::Inputs(self.io_block()?),
            "outputs" => PassItemKind::Outputs(self.io_block()?),
            "graph" => {
                let statements = self.statements()?;
                PassItemKind::Graph(Graph { statements, span: self.since(start) })
            }
            "save" => PassItemKind::Save(self.name_list_line()?),
            "recompute" => PassItemKind::Recompute(self.name_list_line()?),
            "impl" => PassItemKind::Impl(self.impl_section()?),
            name if name.starts_with("d_") => {
                let mut tensors = vec![self.io_tensor_after_name(word)?];
                while self.eat(TokenKind::Comma).is_some() {
                    tensors.push(self.io_tensor()?);
                }
                self.end_line()?;
                PassItemKind::Gradients(tensors)
            }
            name => {
                let mut found = Diagnostic::new(Code::E001, word.span, format!("unknown part `{name}:`"))
                    .with_label("a pass has `in`, `out`, `inputs`, `outputs`, `graph`, `save` and `recompute`");
                if let Some(close) = crate::suggest::closest(name, PASS_WORDS.iter().copied()) {
                    found = found.with_hint(format!("did you mean `{close}:`?"));
                }
                return Err(self.report(found));
            }
        };
        Ok(PassItem { kind, span: self.since(start) })
    }

    fn io_line(&mut self) -> PResult<IoSpec> {
        let spec = self.io_spec()?;
        self.end_line()?;
        Ok(spec)
    }

    fn io_spec(&mut self) -> PResult<IoSpec> {
        let tuple = self.eat(TokenKind::LParen).is_some();
        let tensors = if tuple { self.list(TokenKind::RParen, Self::io_tensor)? } else { vec![self.io_tensor()?] };
        let value = if self.eat(TokenKind::Assign).is_some() { Some(self.expr()?) } else { None };
        Ok(IoSpec { tensors, tuple, value })
    }

    /// Parses `inputs:` with one tensor per line, or all on the same line.
    fn io_block(&mut self) -> PResult<Vec<IoTensor>> {
        if self.is(TokenKind::Newline) {
            return self.block(|p| {
                let tensor = p.io_tensor()?;
                p.eat(TokenKind::Comma);
                p.end_line()?;
                Ok(tensor)
            });
        }
        let mut tensors = vec![self.io_tensor()?];
        while self.eat(TokenKind::Comma).is_some() {
            tensors.push(self.io_tensor()?);
        }
        self.end_line()?;
        Ok(tensors)
    }

    fn io_tensor(&mut self) -> PResult<IoTensor> {
        let start = self.peek().span;
        let is_name = self.is(TokenKind::Ident)
            && (self.kind_at(1) == TokenKind::Colon || !SCALAR_TYPES.contains(&self.text_of(start)));
        if !is_name {
            let ty = Some(self.type_expr()?);
            let annotations = self.annotations()?;
            let span = self.since(start);
            return Ok(IoTensor { name: None, ty, optional: false, variadic: false, annotations, span });
        }
        let name = self.take_ident();
        if self.eat(TokenKind::Colon).is_some() {
            return self.io_tensor_after_name(name);
        }
        let optional = self.eat(TokenKind::Question).is_some();
        let variadic = self.eat(TokenKind::Ellipsis).is_some();
        let annotations = self.annotations()?;
        let span = self.since(start);
        Ok(IoTensor { name: Some(name), ty: None, optional, variadic, annotations, span })
    }

    /// Parses the rest of `name: type @annotations`; the colon is consumed.
    fn io_tensor_after_name(&mut self, name: crate::ast::Ident) -> PResult<IoTensor> {
        let start = name.span;
        let ty = Some(self.type_expr()?);
        let annotations = self.annotations()?;
        let span = self.since(start);
        Ok(IoTensor { name: Some(name), ty, optional: false, variadic: false, annotations, span })
    }

    pub(super) fn name_list_line(&mut self) -> PResult<NameList> {
        let list = self.name_list()?;
        self.end_line()?;
        Ok(list)
    }

    /// Parses a name list, `[x, ln*_out, per_layer...]`.
    pub(super) fn name_list(&mut self) -> PResult<NameList> {
        let open = self.expect(TokenKind::LBracket)?;
        let items = self.list(TokenKind::RBracket, Self::name_pattern)?;
        Ok(NameList { items, span: self.since(open.span) })
    }

    fn name_pattern(&mut self) -> PResult<NamePattern> {
        let start = self.peek().span;
        let mut end = start.start;
        while matches!(self.kind(), TokenKind::Ident | TokenKind::Star | TokenKind::StarStar | TokenKind::Dot)
            && (self.peek().span.start == end)
        {
            end = self.bump().span.end;
        }
        let pattern = self.text[start.start as usize..end as usize].to_string();
        let spread = self.is(TokenKind::Ellipsis);
        if spread {
            self.bump();
        }
        if pattern.is_empty() && !spread {
            return Err(self.expected("the name of a tensor"));
        }
        Ok(NamePattern { pattern, spread, span: self.since(start) })
    }

    /// Parses `impl: kernel`, or `impl:` with `forward:` and `backward:` lines.
    pub(super) fn impl_section(&mut self) -> PResult<KernelImpl> {
        if !self.is(TokenKind::Newline) {
            return Ok(KernelImpl::Single(self.words()?));
        }
        let entries = self.block(|p| {
            let pass = p.ident("`forward:` or `backward:`")?;
            p.expect(TokenKind::Colon)?;
            Ok((pass, p.words()?))
        })?;
        Ok(KernelImpl::PerPass(entries))
    }

    /// The rest of the line as written, with runs of spaces collapsed.
    pub(super) fn words(&mut self) -> PResult<String> {
        let start = self.peek().span;
        while !matches!(self.kind(), TokenKind::Newline | TokenKind::Eof | TokenKind::Dedent | TokenKind::Indent) {
            self.bump();
        }
        let span = self.since(start);
        let text = self.text_of(span).split_whitespace().collect::<Vec<_>>().join(" ");
        if text.is_empty() {
            return Err(self.expected("a string"));
        }
        self.end_line()?;
        Ok(text)
    }
}
