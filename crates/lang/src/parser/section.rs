//! Parses the sections of a body other than the passes.

use super::{PResult, Parser};
use crate::ast::{
    ConstantEntry, Constraint, DocString, Invariant, LetItem, ParamEntry, Path, Pattern, Section, SectionKind,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;
use crate::span::Span;
use crate::suggest::closest;

const SECTIONS: &[&str] = &[
    "let",
    "params",
    "constants",
    "forward",
    "backward",
    "pattern",
    "hf_config",
    "hf_mapping",
    "hf_export",
    "save",
    "impl",
    "invariants",
];

/// Sections of primitives that contain free text.
const REMARKS: &[&str] = &["precision", "memory", "fusion", "constraints"];

impl Parser<'_> {
    pub(super) fn section(&mut self) -> PResult<Section> {
        let start = self.peek().span;
        let kind = match self.kind() {
            TokenKind::DocStr => {
                let doc = self.doc_string();
                self.end_line()?;
                SectionKind::Doc(doc)
            }
            TokenKind::At => {
                let annotations = self.annotations()?;
                self.end_line()?;
                SectionKind::Annotations(annotations)
            }
            TokenKind::Ellipsis => {
                self.bump();
                self.end_line()?;
                SectionKind::Elided
            }
            TokenKind::Ident if self.is_word("_") && self.ends_at(1) => {
                self.bump();
                self.end_line()?;
                SectionKind::Empty
            }
            _ => self.keyword_section()?,
        };
        Ok(Section { kind, span: self.since(start) })
    }

    fn keyword_section(&mut self) -> PResult<SectionKind> {
        let mut word = self.ident("a section such as `params:` or `forward:`")?;
        if !SECTIONS.contains(&&*word.name) && !REMARKS.contains(&&*word.name) {
            let mut found = Diagnostic::new(Code::E001, word.span, format!("unknown section `{}`", word.name))
                .with_label("no section has this name");
            let close = closest(&word.name, SECTIONS.iter().copied());
            if let Some(close) = close {
                found = found.with_hint(format!("did you mean `{close}:`?"));
            }
            let reported = self.report(found);
            match close {
                // Continues with the probable keyword, to report errors inside the section.
                Some(close) if self.is(TokenKind::Colon) => word.name = close.to_string(),
                _ => return Err(reported),
            }
        }
        self.expect(TokenKind::Colon)?;
        Ok(match &*word.name {
            "let" => SectionKind::Let(self.block(Self::let_item)?),
            "params" => SectionKind::Params(self.block(Self::param_entry)?),
            "constants" => SectionKind::Constants(self.block(Self::constant)?),
            "forward" => SectionKind::Forward(self.pass()?),
            "backward" => SectionKind::Backward(self.pass()?),
            "pattern" => SectionKind::Pattern(self.pattern()?),
            "hf_config" => SectionKind::HfConfig(self.config_entries()?),
            "hf_mapping" => SectionKind::HfMapping(self.mappings(TokenKind::Colon)?),
            "hf_export" => SectionKind::HfExport(self.mappings(TokenKind::Arrow)?),
            "save" => SectionKind::Save(self.name_list_line()?),
            "impl" => SectionKind::Impl(self.impl_section()?),
            "invariants" => SectionKind::Invariants(self.block(Self::invariant)?),
            _ => SectionKind::Remarks { name: word, lines: self.remark_lines()? },
        })
    }

    /// Consumes a documentation string that is known to be next.
    pub(super) fn doc_string(&mut self) -> DocString {
        let token = self.bump();
        let raw = self.text_of(token.span);
        let inner = raw.strip_prefix("\"\"\"").unwrap_or(raw);
        let inner = inner.strip_suffix("\"\"\"").unwrap_or(inner);
        DocString { text: without_indentation(inner), span: token.span }
    }

    fn let_item(&mut self) -> PResult<LetItem> {
        let name = self.ident("a name to bind")?;
        let start = name.span;
        if name.name == "constraint" && self.is(TokenKind::Colon) {
            self.bump();
            let constraints = self.block(Self::constraint)?;
            return Ok(LetItem::Constraints(constraints, self.since(start)));
        }
        let item = match self.kind() {
            TokenKind::Assign => {
                self.bump();
                LetItem::Bind { name, value: self.expr()? }
            }
            TokenKind::Colon => {
                self.bump();
                LetItem::Dim { name, role: self.ident("a dimension such as `batch_dim`")? }
            }
            _ => return Err(self.expected("`=` or `:`")),
        };
        self.end_line()?;
        Ok(item)
    }

    fn constraint(&mut self) -> PResult<Constraint> {
        let condition = self.expr()?;
        if self.eat(TokenKind::Comma).is_none() {
            let span = self.peek().span;
            return Err(self.report(
                Diagnostic::new(Code::E001, span, "constraint without a message")
                    .with_label("expected `, \"message\"`")
                    .with_hint("say what is wrong when the condition is false"),
            ));
        }
        let message = self.string()?;
        self.end_line()?;
        Ok(Constraint { condition, message })
    }

    fn param_entry(&mut self) -> PResult<ParamEntry> {
        let start = self.peek().span;
        let adds = self.eat(TokenKind::Plus).is_some();
        let path = self.weight_path()?;
        self.expect(TokenKind::Colon)?;
        let ty = self.type_expr()?;
        let default = if self.eat(TokenKind::Assign).is_some() { Some(self.expr()?) } else { None };
        let condition = if self.eat_word("if").is_some() { Some(self.condition()?) } else { None };
        let annotations = self.annotations()?;
        let span: Span = self.since(start);
        self.end_line()?;
        Ok(ParamEntry { adds, path, ty, default, condition, annotations, span })
    }

    fn constant(&mut self) -> PResult<ConstantEntry> {
        let name = self.ident("a constant's name")?;
        self.expect(TokenKind::Colon)?;
        let value = self.expr()?;
        let annotations = self.annotations()?;
        self.end_line()?;
        Ok(ConstantEntry { name, value, annotations })
    }

    fn pattern(&mut self) -> PResult<Pattern> {
        let kind = self.ident("a pattern such as `sequential_residual`")?;
        let parts: Vec<Vec<Vec<Path>>> = self.block(|p| {
            if p.eat_word("sublayers").is_none() {
                return Err(p.expected("`sublayers:`"));
            }
            p.expect(TokenKind::Colon)?;
            p.block(|p| {
                p.expect(TokenKind::Minus)?;
                let open = p.expect(TokenKind::LParen)?;
                let names = p.list(TokenKind::RParen, |p| p.path("a parameter's name"))?;
                if names.is_empty() {
                    return Err(p.error(open.span, "sublayer without parameters", "expected `(norm, layer)`"));
                }
                p.end_line()?;
                Ok(names)
            })
        })?;
        Ok(Pattern { kind, sublayers: parts.into_iter().flatten().collect() })
    }

    fn invariant(&mut self) -> PResult<Invariant> {
        self.expect(TokenKind::Minus)?;
        let name = self.ident("an invariant's name")?;
        self.expect(TokenKind::Colon)?;
        let names = self.name_list_line()?;
        Ok(Invariant { name, names })
    }

    /// The lines of a block as written, each with its indentation relative to the section.
    fn remark_lines(&mut self) -> PResult<Vec<String>> {
        if !self.is(TokenKind::Newline) {
            return Ok(vec![self.words()?]);
        }
        self.bump();
        let mut lines = Vec::new();
        let mut depth = 0usize;
        loop {
            match self.kind() {
                TokenKind::Indent => {
                    depth += 1;
                    self.bump();
                }
                TokenKind::Dedent if depth > 0 => {
                    depth -= 1;
                    self.bump();
                }
                TokenKind::Newline if depth > 0 => {
                    self.bump();
                }
                TokenKind::Eof => return Ok(lines),
                _ if depth == 0 => return Ok(lines),
                _ => lines.push("  ".repeat(depth - 1) + &self.words()?),
            }
            if depth == 0 {
                return Ok(lines);
            }
        }
    }
}

/// Removes the common indentation of all lines but the first, and leading and trailing blank lines.
fn without_indentation(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let indent = |line: &str| line.chars().take_while(|c| c.is_whitespace()).count();
    let common = lines.iter().skip(1).filter(|l| !l.is_empty()).map(|l| indent(l)).min().unwrap_or(0);
    let strip = |line: &str, n: usize| line.chars().skip(n).collect::<String>();
    let stripped: Vec<String> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| if index == 0 { line.trim_start().to_string() } else { strip(line, common) })
        .collect();
    let first = stripped.iter().position(|l| !l.is_empty()).unwrap_or(stripped.len());
    let last = stripped.iter().rposition(|l| !l.is_empty()).map_or(first, |n| n + 1);
    stripped[first..last].join("\n")
}

/// The keyword of a section that may occur only once in a body.
pub(super) fn section_name(kind: &SectionKind) -> Option<&str> {
    Some(match kind {
        SectionKind::Doc(_) => "documentation",
        SectionKind::Let(_) => "let",
        SectionKind::Params(_) => "params",
        SectionKind::Constants(_) => "constants",
        SectionKind::Forward(_) => "forward",
        SectionKind::Backward(_) => "backward",
        SectionKind::Pattern(_) => "pattern",
        SectionKind::HfConfig(_) => "hf_config",
        SectionKind::HfMapping(_) => "hf_mapping",
        SectionKind::HfExport(_) => "hf_export",
        SectionKind::Save(_) => "save",
        SectionKind::Impl(_) => "impl",
        SectionKind::Invariants(_) => "invariants",
        SectionKind::Remarks { name, .. } => &name.name,
        SectionKind::Annotations(_) | SectionKind::Elided | SectionKind::Empty => return None,
    })
}
