//! Formats the sections of a body.

use super::doc::Doc;
use super::printer::Printer;
use crate::ast::{
    ConfigEntry, ConfigValue, DocString, Expr, Ident, IoSpec, IoTensor, KernelImpl, LetItem, NameList, ParamEntry,
    Pass, PassItem, PassItemKind, Pattern, Section, SectionKind, StrLit, WeightMapping, WeightPart, WeightPath,
    WeightSpec,
};
use crate::span::Span;

impl Printer<'_> {
    pub(super) fn section(&mut self, section: &Section) {
        let span = section.span;
        match &section.kind {
            SectionKind::Doc(doc) => self.doc_string(doc),
            SectionKind::Annotations(annotations) => self.line(span, |p| {
                let separated = annotations.iter().enumerate().flat_map(|(index, annotation)| {
                    [Doc::text(if index == 0 { "" } else { " " }), p.annotation(annotation)]
                });
                Doc::Seq(separated.collect())
            }),
            SectionKind::Let(items) => self.titled(span, "let", |p| items.iter().for_each(|item| p.let_item(item))),
            SectionKind::Params(entries) => {
                self.titled(span, "params", |p| entries.iter().for_each(|entry| p.param_entry(entry)));
            }
            SectionKind::Constants(entries) => self.titled(span, "constants", |p| {
                for entry in entries {
                    let end = entry.annotations.last().map_or(entry.value.span, |a| a.span);
                    p.line(entry.name.span.to(end), |p| {
                        let value = p.expr(&entry.value);
                        let name = Doc::text(format!("{}: ", entry.name.name));
                        Doc::Seq(vec![name, value, p.annotations(&entry.annotations)])
                    });
                }
            }),
            SectionKind::Forward(pass) => self.titled(span, "forward", |p| p.pass(pass)),
            SectionKind::Backward(pass) => self.titled(span, "backward", |p| p.pass(pass)),
            SectionKind::Pattern(pattern) => self.pattern(span, pattern),
            SectionKind::HfConfig(entries) => self.titled(span, "hf_config", |p| p.config(entries)),
            SectionKind::HfMapping(mappings) => self.titled(span, "hf_mapping", |p| p.mappings(mappings, ": ")),
            SectionKind::HfExport(mappings) => self.titled(span, "hf_export", |p| p.mappings(mappings, " -> ")),
            SectionKind::Save(names) => self.line(span, |p| p.name_list("save", names)),
            SectionKind::Impl(kernel) => self.impl_section(span, kernel),
            SectionKind::Invariants(invariants) => self.titled(span, "invariants", |p| {
                for invariant in invariants {
                    p.line(invariant.name.span.to(invariant.names.span), |p| {
                        p.name_list(&format!("- {}", invariant.name.name), &invariant.names)
                    });
                }
            }),
            SectionKind::Remarks { name, lines } => {
                let inline = self
                    .slice(span)
                    .split_once(':')
                    .is_some_and(|(_, rest)| !rest.trim_start_matches([' ', '\t']).starts_with(['\r', '\n', '#']));
                match (&lines[..], inline) {
                    ([line], true) => self.line(span, |_| Doc::text(format!("{}: {line}", name.name))),
                    _ => self.remarks(span, name, lines),
                }
            }
            SectionKind::Elided => self.line(span, |_| Doc::text("...")),
            SectionKind::Empty => self.line(span, |_| Doc::text("_")),
        }
    }

    /// Writes `name:` and a block.
    fn titled(&mut self, span: Span, name: &str, body: impl FnOnce(&mut Self)) {
        let head = Span { end: span.start + name.len() as u32, ..span };
        self.block(head, |_| Doc::text(format!("{name}:")), body);
    }

    /// Remarks have no syntax nodes, so comments inside them are moved before the section.
    fn remarks(&mut self, span: Span, name: &Ident, lines: &[String]) {
        let inner = " ".repeat(self.indent + 2);
        let text = lines.iter().fold(format!("{}:", name.name), |text, line| format!("{text}\n{inner}{line}"));
        self.line(span, |_| Doc::text(text));
    }

    pub(super) fn doc_string(&mut self, doc: &DocString) {
        let quotes = "\"\"\"";
        let single = !doc.text.contains('\n') && !doc.text.ends_with('"') && !doc.text.ends_with('\\');
        let text = if single {
            format!("{quotes}{}{quotes}", doc.text)
        } else {
            let indent = " ".repeat(self.indent);
            let lines: String = doc.text.split('\n').map(|line| format!("\n{indent}{line}")).collect();
            format!("{quotes}{lines}\n{indent}{quotes}")
        };
        self.line(doc.span, |_| Doc::text(text));
    }

    fn let_item(&mut self, item: &LetItem) {
        match item {
            LetItem::Bind { name, value } => {
                self.line(item.span(), |p| Doc::Seq(vec![Doc::text(format!("{} = ", name.name)), p.expr(value)]))
            }
            LetItem::Dim { name, role } => {
                self.line(item.span(), |_| Doc::text(format!("{}: {}", name.name, role.name)));
            }
            LetItem::Constraints(constraints, span) => self.titled(*span, "constraint", |p| {
                for constraint in constraints {
                    p.line(constraint.condition.span.to(constraint.message.span), |p| {
                        let condition = p.expr(&constraint.condition);
                        Doc::Seq(vec![condition, Doc::text(", "), p.str_lit(&constraint.message)])
                    });
                }
            }),
        }
    }

    fn str_lit(&mut self, text: &StrLit) -> Doc {
        Doc::text(self.slice(text.span))
    }

    fn param_entry(&mut self, entry: &ParamEntry) {
        self.line(entry.span, |p| {
            let plus = if entry.adds { "+" } else { "" };
            let mut parts = vec![Doc::text(plus), p.weight_path(&entry.path), Doc::text(": "), p.type_expr(&entry.ty)];
            if let Some(default) = &entry.default {
                parts.extend([Doc::text(" = "), p.expr(default)]);
            }
            if let Some(condition) = &entry.condition {
                parts.extend([Doc::text(" if "), p.expr(condition)]);
            }
            parts.push(p.annotations(&entry.annotations));
            Doc::Seq(parts)
        });
    }

    fn weight_path(&mut self, path: &WeightPath) -> Doc {
        let mut parts = Vec::new();
        for (index, part) in path.parts.iter().enumerate() {
            match part {
                WeightPart::Field(name) if index == 0 => parts.push(Doc::text(&name.name)),
                WeightPart::Field(name) => parts.push(Doc::text(format!(".{}", name.name))),
                WeightPart::Placeholder(name) => parts.push(Doc::text(format!("[{{{}}}]", name.name))),
                WeightPart::Index(expr) => parts.extend([Doc::text("["), self.expr(expr), Doc::text("]")]),
            }
        }
        if path.optional {
            parts.push(Doc::text("?"));
        }
        Doc::Seq(parts)
    }

    pub(super) fn pass(&mut self, pass: &Pass) {
        for item in &pass.items {
            self.pass_item(item);
        }
    }

    fn pass_item(&mut self, item: &PassItem) {
        let span = item.span;
        match &item.kind {
            PassItemKind::In(spec) => self.line(span, |p| p.io_spec("in", spec, span)),
            PassItemKind::Out(spec) => self.line(span, |p| p.io_spec("out", spec, span)),
            PassItemKind::Inputs(tensors) => self.io_block(span, "inputs", tensors),
            PassItemKind::Outputs(tensors) => self.io_block(span, "outputs", tensors),
            PassItemKind::Gradients(tensors) => self.line(span, |p| {
                let separated = tensors
                    .iter()
                    .enumerate()
                    .flat_map(|(index, tensor)| [Doc::text(if index == 0 { "" } else { ", " }), p.io_tensor(tensor)]);
                Doc::Seq(separated.collect())
            }),
            PassItemKind::Graph(graph) => self.titled(span, "graph", |p| p.statements(&graph.statements)),
            PassItemKind::Save(names) => self.line(span, |p| p.name_list("save", names)),
            PassItemKind::Recompute(names) => self.line(span, |p| p.name_list("recompute", names)),
            PassItemKind::Impl(kernel) => self.impl_section(span, kernel),
            PassItemKind::Rule { name, value } => {
                self.line(span, |p| Doc::Seq(vec![Doc::text(format!("{} = ", name.name)), p.expr(value)]))
            }
            PassItemKind::Elided => self.line(span, |_| Doc::text("...")),
        }
    }

    fn io_block(&mut self, span: Span, name: &str, tensors: &[IoTensor]) {
        self.titled(span, name, |p| {
            for tensor in tensors {
                p.line(tensor.span, |p| p.io_tensor(tensor));
            }
        });
    }

    fn io_spec(&mut self, name: &str, spec: &IoSpec, span: Span) -> Doc {
        let end = spec.value.as_ref().map_or(span.end, |value| value.span.start);
        let tensors = if spec.tuple {
            self.list(("(", ")"), &spec.tensors, end, |t| t.span, |p, t| p.io_tensor(t))
        } else {
            self.io_tensor(&spec.tensors[0])
        };
        let mut parts = vec![Doc::text(format!("{name}: ")), tensors];
        if let Some(value) = &spec.value {
            parts.extend([Doc::text(" = "), self.expr(value)]);
        }
        Doc::Seq(parts)
    }

    fn io_tensor(&mut self, tensor: &IoTensor) -> Doc {
        let mut parts = Vec::new();
        match (&tensor.name, &tensor.ty) {
            (Some(name), Some(ty)) => parts.extend([Doc::text(format!("{}: ", name.name)), self.type_expr(ty)]),
            (None, Some(ty)) => parts.push(self.type_expr(ty)),
            (Some(name), None) => parts.push(Doc::text(&name.name)),
            (None, None) => {}
        }
        parts.extend(tensor.optional.then(|| Doc::text("?")));
        parts.extend(tensor.variadic.then(|| Doc::text("...")));
        parts.push(self.annotations(&tensor.annotations));
        Doc::Seq(parts)
    }

    fn name_list(&mut self, title: &str, names: &NameList) -> Doc {
        let list = self.list(
            ("[", "]"),
            &names.items,
            names.span.end,
            |item| item.span,
            |_, item| Doc::text(format!("{}{}", item.pattern, if item.spread { "..." } else { "" })),
        );
        Doc::Seq(vec![Doc::text(format!("{title}: ")), list])
    }

    fn impl_section(&mut self, span: Span, kernel: &KernelImpl) {
        match kernel {
            KernelImpl::Single(words) => self.line(span, |_| Doc::text(format!("impl: {words}"))),
            KernelImpl::PerPass(entries) => self.titled(span, "impl", |p| {
                for (pass, words) in entries {
                    p.line(pass.span, |_| Doc::text(format!("{}: {words}", pass.name)));
                }
            }),
        }
    }

    fn pattern(&mut self, span: Span, pattern: &Pattern) {
        let head = span.at_start().to(pattern.kind.span);
        self.block(
            head,
            |_| Doc::text(format!("pattern: {}", pattern.kind.name)),
            |p| {
                if pattern.sublayers.is_empty() {
                    return;
                }
                let start = pattern.kind.span.end as usize;
                let word = p.text[start..].find("sublayers").map_or(start, |n| start + n);
                let head = Span { start: word as u32, end: word as u32 + 9, ..span };
                p.block(
                    head,
                    |_| Doc::text("sublayers:"),
                    |p| {
                        for sublayer in &pattern.sublayers {
                            let Some(first) = sublayer.first() else { continue };
                            let span = first.span().to(sublayer[sublayer.len() - 1].span());
                            p.line(span, |p| {
                                let list = p.list(
                                    ("(", ")"),
                                    sublayer,
                                    span.end,
                                    |n| n.span(),
                                    |_, n| Doc::text(n.to_string()),
                                );
                                Doc::Seq(vec![Doc::text("- "), list])
                            });
                        }
                    },
                );
            },
        );
    }

    fn config(&mut self, entries: &[ConfigEntry]) {
        for entry in entries {
            let key = &entry.key;
            match &entry.value {
                ConfigValue::Expr(value) => self.line(key.span.to(value.span), |p| {
                    Doc::Seq(vec![Doc::text(format!("{}: ", key.name)), p.expr(value)])
                }),
                ConfigValue::Map(entries) => {
                    self.block(key.span, |_| Doc::text(format!("{}:", key.name)), |p| p.config(entries));
                }
                ConfigValue::Elided => self.line(key.span, |_| Doc::text(format!("{}: ...", key.name))),
            }
        }
    }

    fn mappings(&mut self, mappings: &[WeightMapping], separator: &str) {
        for mapping in mappings {
            self.line(mapping.span, |p| {
                let path = p.weight_path(&mapping.path);
                Doc::Seq(vec![path, Doc::text(separator), p.weight_spec(&mapping.spec)])
            });
        }
    }

    fn weight_spec(&mut self, spec: &WeightSpec) -> Doc {
        /// A part, or the `dim` argument at any position.
        enum Element<'a> {
            Part(&'a StrLit, Option<&'a Expr>),
            Dim(&'a Expr),
        }
        let (name, mut elements, dim, span) = match spec {
            WeightSpec::Direct(text) => return self.str_lit(text),
            WeightSpec::Fuse { parts, dim, span } => {
                ("fuse", parts.iter().map(|part| Element::Part(part, None)).collect::<Vec<_>>(), dim, span)
            }
            WeightSpec::Split { parts, dim, span } => {
                ("split", parts.iter().map(|(name, range)| Element::Part(name, Some(range))).collect(), dim, span)
            }
            WeightSpec::Transform { source, function, .. } => {
                let source = self.slice(source.span);
                return Doc::text(format!("transform({source}, fn: {})", function.name));
            }
            WeightSpec::TiedTo { target, .. } => {
                return Doc::Seq(vec![Doc::text("tied_to("), self.weight_path(target), Doc::text(")")]);
            }
        };
        elements.extend(dim.as_ref().map(Element::Dim));
        let span_of = |element: &Element<'_>| match element {
            Element::Part(name, range) => range.map_or(name.span, |range| name.span.to(range.span)),
            Element::Dim(value) => value.span,
        };
        let list = self.list(("(", ")"), &elements, span.end, span_of, |p, element| match element {
            Element::Part(name, None) => p.str_lit(name),
            Element::Part(name, Some(range)) => Doc::Seq(vec![p.str_lit(name), Doc::text(": "), p.expr(range)]),
            Element::Dim(value) => Doc::Seq(vec![Doc::text("dim="), p.expr(value)]),
        });
        Doc::Seq(vec![Doc::text(name), list])
    }
}
