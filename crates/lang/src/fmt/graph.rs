//! Formats graph statements. A flow that does not fit on its line is continued on lines that start with `->` or `@`.

use super::WIDTH;
use super::doc::Doc;
use super::printer::Printer;
use crate::ast::{Call, Dest, DestItem, Flow, FlowSource, FlowStep, Statement, StepKind};
use crate::span::Span;

/// The part between two arrows, or one trailing annotation.
struct FlowSegment {
    /// The trailing comment of the previous segment.
    behind_previous: Option<String>,
    /// Comments before it.
    before: Vec<String>,
    doc: Doc,
}

impl Printer<'_> {
    pub(super) fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Flow(flow) => self.flow(flow),
            Statement::If(cond) => {
                let column = cond.span;
                let head = Span { end: cond.guard.span.end, ..cond.span };
                let build = |p: &mut Self| Doc::Seq(vec![Doc::text("if "), p.expr(&cond.guard), Doc::text(":")]);
                self.block(head, build, |p| p.statements(&cond.then));
                let Some(otherwise) = &cond.otherwise else { return };
                // `else` has no span: it precedes its first statement, in the column of `if`.
                let start = otherwise.first().map_or(cond.span.end, |s| s.span().start);
                let word = self.text[..start as usize].rfind("else").map_or(start, |n| n as u32);
                let head = Span { start: word, end: word + 4, ..column };
                self.block(head, |_| Doc::text("else:"), |p| p.statements(otherwise));
            }
            Statement::Recompute { body, span } => {
                let head = Span { end: span.start + "recompute".len() as u32, ..*span };
                self.block(head, |_| Doc::text("recompute:"), |p| p.statements(body));
            }
            Statement::Elided(span) => self.line(*span, |_| Doc::text("...")),
            Statement::Empty(span) => self.line(*span, |_| Doc::text("_")),
        }
    }

    fn flow(&mut self, flow: &Flow) {
        let indent = self.indent;
        self.line(flow.span, |p| {
            let mut nodes = vec![p.segment(flow.source.span(), |p| p.source(&flow.source))];
            for step in &flow.steps {
                nodes.push(p.segment(step.span, |p| p.step(step)));
            }
            nodes.push(p.segment(flow.dest.span, |p| p.dest(&flow.dest)));
            let annotations: Vec<_> = flow.annotations.iter().map(|a| p.segment(a.span, |p| p.annotation(a))).collect();
            lay_out(indent, nodes, annotations)
        });
    }

    fn segment(&mut self, span: Span, build: impl FnOnce(&mut Self) -> Doc) -> FlowSegment {
        // A trailing comment of the previous segment stays there; others get separate lines.
        let behind_previous = self.take_trailing(span.start as usize);
        let mut before = Vec::new();
        while let Some(comment) = self.take_comment(span.start as usize) {
            before.push(self.comment_text(&comment));
        }
        FlowSegment { behind_previous, before, doc: build(self) }
    }

    fn source(&mut self, source: &FlowSource) -> Doc {
        match source {
            FlowSource::Tensors { items, tuple: true, span } => {
                self.list(("(", ")"), items, span.end, |item| item.span, |p, item| p.expr(item))
            }
            FlowSource::Tensors { items, .. } => self.expr(&items[0]),
            FlowSource::Call(call) => self.call(call),
            FlowSource::Elided(_) => Doc::text("..."),
        }
    }

    fn step(&mut self, step: &FlowStep) -> Doc {
        let doc = match &step.kind {
            StepKind::Call(call) => self.call(call),
            StepKind::Shape(dims) => self.list(("[", "]"), dims, step.span.end, |dim| dim.span, |p, dim| p.expr(dim)),
        };
        Doc::Seq(vec![doc, self.annotations(&step.annotations)])
    }

    fn call(&mut self, call: &Call) -> Doc {
        let mut parts = vec![Doc::text(call.callee.path.to_string())];
        parts.extend(call.callee.index.as_ref().map(|items| self.index(items, call.callee.span.end)));
        parts.extend(call.args.as_ref().map(|args| self.args(args, call.span.end)));
        Doc::Seq(parts)
    }

    fn dest(&mut self, dest: &Dest) -> Doc {
        let item = |p: &mut Self, item: &DestItem| {
            let name = item.name.as_ref().map_or("_".to_string(), |path| path.to_string());
            Doc::Seq(vec![Doc::text(name), p.annotations(&item.annotations)])
        };
        if !dest.tuple {
            return item(self, &dest.items[0]);
        }
        let span_of = |item: &DestItem| item.annotations.last().map_or(item.span, |a| item.span.to(a.span));
        self.list(("(", ")"), &dest.items, dest.span.end, span_of, item)
    }
}

/// All on one line if it fits; else the annotations on separate lines; else every arrow on its own line.
fn lay_out(indent: usize, nodes: Vec<FlowSegment>, annotations: Vec<FlowSegment>) -> Doc {
    let flat = |segments: &[FlowSegment], separator: &str| -> Option<String> {
        let plain = segments.iter().all(|s| s.before.is_empty() && s.behind_previous.is_none());
        let texts = segments.iter().map(|s| s.doc.flat()).collect::<Option<Vec<_>>>()?;
        plain.then(|| texts.join(separator))
    };
    let flow = flat(&nodes, " -> ");
    let fits = |text: &str| indent + text.chars().count() <= WIDTH;
    if let (Some(flow), Some(notes)) = (&flow, flat(&annotations, " ")) {
        let line = if notes.is_empty() { flow.clone() } else { format!("{flow} {notes}") };
        if fits(&line) {
            return Doc::text(line);
        }
    }
    let mut out = String::new();
    let inner = format!("\n{}", " ".repeat(indent + 2));
    let mut pending = Vec::new();
    match flow {
        Some(flow) if fits(&flow) && !annotations.is_empty() => out.push_str(&flow),
        _ => pending.extend(nodes.into_iter().enumerate().map(|(n, s)| (if n == 0 { "" } else { "-> " }, s))),
    }
    pending.extend(annotations.into_iter().map(|s| ("", s)));
    for (arrow, segment) in pending {
        if let Some(comment) = &segment.behind_previous {
            out.push_str(&format!("  {comment}"));
        }
        for comment in &segment.before {
            out.push_str(&format!("{inner}{comment}"));
        }
        if !out.is_empty() {
            out.push_str(&inner);
        }
        out.push_str(arrow);
        // Columns count from the start of the line, so the document is written after its indentation.
        let depth = if out.is_empty() { indent } else { indent + 2 };
        let mut line = " ".repeat(depth) + arrow;
        let start = line.len();
        segment.doc.write(&mut line, depth, 0);
        out.push_str(&line[start..]);
    }
    Doc::text(out)
}
