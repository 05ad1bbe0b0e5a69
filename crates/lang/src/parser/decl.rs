//! Parses files, imports and declarations.

use super::section::section_name;
use super::{ErrorReported, PResult, Parser};
use crate::ast::{
    Decl, DeclKind, File, Ident, Import, ImportItem, ImportNames, Item, Param, Path, RecipeDecl, Section, SectionKind,
    Version,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::lexer::TokenKind;
use crate::span::Span;
use crate::suggest::closest;

const ITEMS: &[&str] = &["import", "from", "module", "abstract", "block", "model", "primitive", "recipe", "topology"];

/// The name, parameters and parent of a declaration.
struct DeclHeader {
    name: Ident,
    params: Option<Vec<Param>>,
    extends: Option<Path>,
}

impl Parser<'_> {
    pub(super) fn file(&mut self) -> File {
        let mut items = Vec::new();
        let mut doc = None;
        if self.is(TokenKind::DocStr) {
            doc = Some(self.doc_string());
            if self.end_line().is_err() {
                self.skip_line();
            }
        }
        while !self.is(TokenKind::Eof) {
            let before = self.at;
            match self.kind() {
                TokenKind::Newline | TokenKind::Dedent => {
                    self.bump();
                }
                TokenKind::Indent => {
                    let span = self.peek().span;
                    self.error(span, "unexpected indentation", "declarations must start in the first column");
                    // The lines of the block are parsed as separate declarations.
                    self.bump();
                }
                _ => match self.item() {
                    Ok(Some(item)) => items.push(item),
                    Ok(None) => {}
                    Err(ErrorReported(())) => self.skip_line(),
                },
            }
            if self.at == before {
                self.bump();
            }
        }
        File { id: self.file, doc, items }
    }

    fn item(&mut self) -> PResult<Option<Item>> {
        let start = self.peek().span;
        let word = match self.kind() {
            TokenKind::Ident => self.text_of(start).to_string(),
            _ => return Err(self.expected("a declaration")),
        };
        let kind = match &*word {
            "import" => return self.import(start).map(|import| Some(Item::Import(import))),
            "from" => return self.selective_import(start).map(|import| Some(Item::Import(import))),
            "recipe" | "topology" => return self.recipe(start, word == "topology"),
            "module" => DeclKind::Module,
            "block" => DeclKind::Block,
            "model" => DeclKind::Model,
            "primitive" => DeclKind::Primitive,
            "abstract" => {
                self.bump();
                if !self.is_word("module") {
                    return Err(self.expected("`module` after `abstract`"));
                }
                DeclKind::AbstractModule
            }
            other => {
                let mut found = Diagnostic::new(Code::E001, start, format!("unknown declaration `{other}`"))
                    .with_label("expected `import`, `module`, `block`, `model`, `primitive`, `recipe` or `topology`");
                if let Some(close) = closest(other, ITEMS.iter().copied()) {
                    found = found.with_hint(format!("did you mean `{close}`?"));
                }
                return Err(self.report(found));
            }
        };
        self.bump();
        self.decl(kind, start)
    }

    /// An error in the header drops the declaration, but its body is still parsed to report errors in it.
    fn decl(&mut self, kind: DeclKind, start: Span) -> PResult<Option<Item>> {
        let header = self.header(kind);
        if header.is_err() {
            while !matches!(self.kind(), TokenKind::Newline | TokenKind::Eof) {
                self.bump();
            }
        }
        let body_span = self.peek().span;
        let sections = self.block(Self::section)?;
        self.report_repeated(&sections);
        let Ok(header) = header else { return Ok(None) };
        if sections.is_empty() {
            self.report(
                Diagnostic::new(Code::E001, body_span, format!("{} `{}` is empty", kind.keyword(), header.name.name))
                    .with_label("expected an indented body"),
            );
        }
        let DeclHeader { name, params, extends } = header;
        let attributes = if kind == DeclKind::Primitive { attributes(&sections) } else { Vec::new() };
        Ok(Some(Item::Decl(Decl { kind, name, params, extends, sections, attributes, span: self.since(start) })))
    }

    fn header(&mut self, kind: DeclKind) -> PResult<DeclHeader> {
        let name = self.ident("a name")?;
        let params = match (kind, self.is(TokenKind::LParen)) {
            (DeclKind::Primitive, false) => None,
            _ => {
                self.expect(TokenKind::LParen)?;
                Some(self.list(TokenKind::RParen, Self::param)?)
            }
        };
        let extends = if self.eat_word("extends").is_some() { Some(self.path("the module to extend")?) } else { None };
        self.expect(TokenKind::Colon)?;
        Ok(DeclHeader { name, params, extends })
    }

    fn param(&mut self) -> PResult<Param> {
        let start = self.peek().span;
        if self.eat(TokenKind::Ellipsis).is_some() {
            return Ok(Param::Elided(start));
        }
        let name = self.ident("a parameter's name")?;
        if self.eat(TokenKind::Ellipsis).is_some() {
            return Ok(Param::Elided(self.since(start)));
        }
        let ty = if self.eat(TokenKind::Colon).is_some() { Some(self.type_expr()?) } else { None };
        let default = if self.eat(TokenKind::Assign).is_some() { Some(self.expr()?) } else { None };
        Ok(Param::Named { name, ty, default, span: self.since(start) })
    }

    fn report_repeated(&mut self, sections: &[Section]) {
        for (index, section) in sections.iter().enumerate() {
            let Some(name) = section_name(&section.kind) else {
                continue;
            };
            let earlier = sections[..index].iter().find(|s| section_name(&s.kind) == Some(name));
            if let Some(earlier) = earlier {
                let head =
                    |span: Span| Span { end: span.start + (name.len() as u32).min(span.end - span.start), ..span };
                self.report(
                    Diagnostic::new(Code::E001, head(section.span), format!("section `{name}` appears twice"))
                        .with_label("second one")
                        .with_secondary(head(earlier.span), "first one")
                        .with_hint("merge them into one section"),
                );
            }
        }
    }

    /// Parses an import: `import a.b.v2 [as C]`, `import a.{B, C}`, `import a.*`.
    fn import(&mut self, start: Span) -> PResult<Import> {
        self.bump();
        let (path, version) = self.module_path(start)?;
        let names = if self.is(TokenKind::Dot) && self.kind_at(1) == TokenKind::LBrace {
            self.bump();
            self.bump();
            ImportNames::Braces(self.list(TokenKind::RBrace, Self::import_item)?)
        } else if self.is(TokenKind::Dot) && self.kind_at(1) == TokenKind::Star {
            self.bump();
            ImportNames::Star(self.bump().span)
        } else {
            ImportNames::Path { alias: self.alias()? }
        };
        let span = self.since(start);
        self.end_line()?;
        Ok(Import { path, version, names, span })
    }

    fn selective_import(&mut self, start: Span) -> PResult<Import> {
        self.bump();
        let (path, version) = self.module_path(start)?;
        if self.eat_word("import").is_none() {
            return Err(self.expected("`import`"));
        }
        let mut items = vec![self.import_item()?];
        while self.eat(TokenKind::Comma).is_some() {
            items.push(self.import_item()?);
        }
        let span = self.since(start);
        self.end_line()?;
        Ok(Import { path, version, names: ImportNames::From(items), span })
    }

    fn import_item(&mut self) -> PResult<ImportItem> {
        let name = self.ident("a name to import")?;
        Ok(ImportItem { name, alias: self.alias()? })
    }

    fn alias(&mut self) -> PResult<Option<Ident>> {
        if self.eat_word("as").is_some() { Ok(Some(self.ident("a name after `as`")?)) } else { Ok(None) }
    }

    /// Parses a dotted path; a last part such as `v2` is its version.
    fn module_path(&mut self, start: Span) -> PResult<(Path, Option<Version>)> {
        let mut parts = vec![self.ident("a module path")?];
        while self.is(TokenKind::Dot) && self.kind_at(1) == TokenKind::Ident {
            self.bump();
            parts.push(self.take_ident());
        }
        let last = parts.last().expect("at least one");
        let major = last.name.strip_prefix('v').and_then(|digits| digits.parse().ok());
        let version = major.map(|major| Version { major, span: last.span });
        if version.is_some() {
            parts.pop();
        }
        if parts.is_empty() {
            let span = self.since(start);
            return Err(self.error(span, "a version without a module path", "expected `import path.v1`"));
        }
        Ok((Path { parts }, version))
    }

    fn recipe(&mut self, start: Span, topology: bool) -> PResult<Option<Item>> {
        self.bump();
        let name = match topology {
            true => Ident { name: "topology".to_string(), span: start },
            false => self.ident("a recipe's name")?,
        };
        self.expect(TokenKind::Colon)?;
        let mut doc = None;
        let entries = self.block(|p| {
            if p.is(TokenKind::DocStr) {
                doc = Some(p.doc_string());
                p.end_line()?;
                return Ok(None);
            }
            let key = p.ident("a setting's name")?;
            p.expect(TokenKind::Colon)?;
            let value = p.expr()?;
            p.end_line()?;
            Ok(Some((key, value)))
        })?;
        let entries = entries.into_iter().flatten().collect();
        Ok(Some(Item::Recipe(RecipeDecl { name, topology, doc, entries, span: self.since(start) })))
    }
}

/// The attributes of a primitive: entries of its `params:` with a simple name.
fn attributes(sections: &[Section]) -> Vec<Param> {
    let entries = sections.iter().filter_map(|section| match &section.kind {
        SectionKind::Params(entries) => Some(entries),
        _ => None,
    });
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.path.as_name()?.clone();
        Some(Param::Named { name, ty: Some(entry.ty.clone()), default: entry.default.clone(), span: entry.span })
    });
    named.collect()
}
