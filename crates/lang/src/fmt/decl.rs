//! Formats files, imports and declarations.

use super::doc::Doc;
use super::printer::Printer;
use crate::ast::{Decl, File, Import, ImportItem, ImportNames, Item, Param, RecipeDecl};
use crate::span::Span;

impl Printer<'_> {
    pub(super) fn file(&mut self, file: &File) {
        if let Some(doc) = &file.doc {
            self.doc_string(doc);
        }
        for (index, item) in file.items.iter().enumerate() {
            match item {
                Item::Import(import) => self.import(import),
                Item::Decl(decl) => {
                    self.separate_item(index, item.span(), file.doc.is_some());
                    self.decl(decl);
                }
                Item::Recipe(recipe) => {
                    self.separate_item(index, item.span(), file.doc.is_some());
                    self.recipe(recipe);
                }
            }
        }
    }

    /// Writes one blank line before a declaration and its leading comments.
    fn separate_item(&mut self, index: usize, span: Span, after_doc: bool) {
        if index > 0 || after_doc {
            // A trailing comment of the previous item stays there.
            if let Some(comment) = self.take_trailing(span.start as usize) {
                self.append_text(&comment);
            }
            self.separate();
        }
    }

    fn import(&mut self, import: &Import) {
        self.line(import.span, |p| {
            let version = import.version.map_or(String::new(), |v| format!(".v{}", v.major));
            let path = format!("{}{version}", import.path);
            let item = |item: &ImportItem| match &item.alias {
                Some(alias) => format!("{} as {}", item.name.name, alias.name),
                None => item.name.name.clone(),
            };
            let span_of = |item: &ImportItem| item.name.span.to(item.local().span);
            match &import.names {
                ImportNames::Path { alias: None } => Doc::text(format!("import {path}")),
                ImportNames::Path { alias: Some(alias) } => Doc::text(format!("import {path} as {}", alias.name)),
                ImportNames::Star(_) => Doc::text(format!("import {path}.*")),
                ImportNames::Braces(items) => {
                    let list = p.list(("{", "}"), items, import.span.end, span_of, |_, found| Doc::text(item(found)));
                    Doc::Seq(vec![Doc::text(format!("import {path}.")), list])
                }
                ImportNames::From(items) => {
                    let names = items.iter().map(item).collect::<Vec<_>>().join(", ");
                    Doc::text(format!("from {path} import {names}"))
                }
            }
        });
    }

    fn decl(&mut self, decl: &Decl) {
        let body = decl.sections.first().map_or(decl.span.end, |section| section.span.start);
        // The header ends at its colon; a comment after that becomes a trailing comment.
        let last = [
            Some(decl.name.span.end),
            decl.params.as_ref().and_then(|params| params.last()).map(|param| param.span().end),
            decl.extends.as_ref().map(|path| path.span().end),
        ];
        let last = last.into_iter().flatten().max().unwrap_or(body);
        let end = closing(self.text, last as usize, body as usize) as u32;
        let head = Span { end, ..decl.span };
        let build = |p: &mut Self| {
            let mut parts = vec![Doc::text(format!("{} {}", decl.kind.keyword(), decl.name.name))];
            if let Some(params) = &decl.params {
                let end = decl.extends.as_ref().map_or(end, |path| path.span().start);
                parts.push(p.list(("(", ")"), params, end, Param::span, |p, param| p.param(param)));
            }
            if let Some(path) = &decl.extends {
                parts.push(Doc::text(format!(" extends {path}")));
            }
            parts.push(Doc::text(":"));
            Doc::Seq(parts)
        };
        self.block(head, build, |p| decl.sections.iter().for_each(|section| p.section(section)));
    }

    fn param(&mut self, param: &Param) -> Doc {
        match param {
            Param::Elided(_) => Doc::text("..."),
            Param::Named { name, ty, default, .. } => {
                let mut parts = vec![Doc::text(&name.name)];
                if let Some(ty) = ty {
                    parts.extend([Doc::text(": "), self.type_expr(ty)]);
                }
                if let Some(default) = default {
                    let sign = if ty.is_some() { " = " } else { "=" };
                    parts.extend([Doc::text(sign), self.expr(default)]);
                }
                Doc::Seq(parts)
            }
        }
    }

    fn recipe(&mut self, recipe: &RecipeDecl) {
        let head = recipe.span.at_start().to(recipe.name.span);
        self.block(
            head,
            |_| match recipe.topology {
                true => Doc::text("topology:"),
                false => Doc::text(format!("recipe {}:", recipe.name.name)),
            },
            |p| {
                if let Some(doc) = &recipe.doc {
                    p.doc_string(doc);
                }
                for (key, value) in &recipe.entries {
                    p.line(key.span.to(value.span), |p| {
                        Doc::Seq(vec![Doc::text(format!("{}: ", key.name)), p.expr(value)])
                    });
                }
            },
        );
    }
}

/// The position of the header's colon: after `from`, and after the comments of a parameter list.
fn closing(text: &str, from: usize, limit: usize) -> usize {
    let mut at = from;
    for line in text[from..limit].split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default();
        if let Some(colon) = code.find(':') {
            return at + colon;
        }
        at += line.len();
    }
    limit
}
