//! Renders a diagnostic as text.
//!
//! ```text
//! error[E004]: shapes do not fit
//!   ┌─ models/mine.module:31:17
//! 31│       (x, w) -> matmul(transpose=TN) -> y
//!   │                 ^^^^^^^^^^^^^^^^^^^^ A[k,m]·B[k,n] needs equal first axes
//!   = x: [B·T, 512]   w: [2048, 512]
//!   = transpose=NT would fit: y: [B·T, 2048]
//! ```

use super::{Diagnostic, Label, Severity};
use crate::source::{SourceFile, Sources};
use std::fmt::Write;

/// Whether to color the text with ANSI escapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColorStyle {
    /// No escapes.
    Plain,
    /// Escapes for a terminal.
    Ansi,
}

impl ColorStyle {
    fn paint(self, escape: &str, text: &str) -> String {
        match self {
            ColorStyle::Plain => text.to_string(),
            ColorStyle::Ansi => format!("\x1b[{escape}m{text}\x1b[0m"),
        }
    }
}

const BOLD_RED: &str = "1;31";
const BOLD_YELLOW: &str = "1;33";
const BLUE: &str = "34";
const GREEN: &str = "32";

/// Renders one diagnostic; the text ends with a newline.
pub fn render(sources: &Sources, diagnostic: &Diagnostic, style: ColorStyle) -> String {
    let file = sources.file(diagnostic.primary.span.file);
    let accent = match diagnostic.severity() {
        Severity::Error => BOLD_RED,
        Severity::Warning => BOLD_YELLOW,
    };
    let labels = labels_by_line(sources, diagnostic);
    let gutter = labels.iter().map(|l| (l.line + 1).to_string().len()).max().unwrap_or(1).max(2);
    let blank = " ".repeat(gutter);

    let mut out = String::new();
    let head = format!("{}[{}]", diagnostic.severity(), diagnostic.code);
    let _ = writeln!(out, "{}: {}", style.paint(accent, &head), diagnostic.message);
    let place = file.line_column(diagnostic.primary.span.start);
    let _ = writeln!(out, "{blank}{} {}:{}:{}", style.paint(BLUE, "┌─"), file.name(), place.line, place.column);

    let bar = style.paint(BLUE, "│");
    let mut previous: Option<(&str, usize)> = None;
    for label in &labels {
        let here = (label.file.name(), label.line);
        if let Some(before) = previous {
            if before.0 != here.0 {
                let place = label.file.line_column(label.label.span.start);
                let _ = writeln!(out, "{blank}{} {}:{}:{}", style.paint(BLUE, "├─"), here.0, place.line, place.column);
            } else if here.1 > before.1 + 1 {
                let _ = writeln!(out, "{blank}{}", style.paint(BLUE, "·"));
            }
        }
        if previous != Some(here) {
            let number = format!("{:>gutter$}", label.line + 1);
            let text = label.file.line_text(label.line).replace('\t', " ");
            let _ = writeln!(out, "{}{bar}{}", style.paint(BLUE, &number), space_if(&text));
        }
        previous = Some(here);
        let (pad, width) = caret(label);
        let (mark, colour) = if label.primary { ('^', accent) } else { ('-', BLUE) };
        let marks = std::iter::repeat_n(mark, width).collect::<String>();
        let words = if label.label.text.is_empty() { String::new() } else { format!(" {}", label.label.text) };
        let _ = writeln!(out, "{blank}{bar} {}{}", " ".repeat(pad), style.paint(colour, &format!("{marks}{words}")));
    }
    for note in &diagnostic.notes {
        let _ = writeln!(out, "{blank}{} {note}", style.paint(BLUE, "="));
    }
    if let Some(hint) = &diagnostic.hint {
        let _ = writeln!(out, "{blank}{} {}", style.paint(BLUE, "="), style.paint(GREEN, hint));
    }
    out
}

/// Renders all diagnostics, separated by blank lines.
pub fn render_all(sources: &Sources, diagnostics: &[Diagnostic], style: ColorStyle) -> String {
    diagnostics.iter().map(|d| render(sources, d, style)).collect::<Vec<_>>().join("\n")
}

struct PlacedLabel<'a> {
    file: &'a SourceFile,
    line: usize,
    label: &'a Label,
    primary: bool,
}

/// Labels in source order, those of the primary label's file first.
fn labels_by_line<'a>(sources: &'a Sources, diagnostic: &'a Diagnostic) -> Vec<PlacedLabel<'a>> {
    let home = diagnostic.primary.span.file;
    let mut labels: Vec<_> = std::iter::once((&diagnostic.primary, true))
        .chain(diagnostic.secondary.iter().map(|label| (label, false)))
        .map(|(label, primary)| {
            let file = sources.file(label.span.file);
            let end = file.text().len() as u32;
            PlacedLabel { file, line: file.line_index(label.span.start.min(end)), label, primary }
        })
        .collect();
    labels.sort_by_key(|l| (l.label.span.file != home, l.label.span.file, l.line, l.label.span.start));
    labels
}

/// The indentation and the number of carets; never beyond the end of the line.
fn caret(label: &PlacedLabel<'_>) -> (usize, usize) {
    let text = label.file.line_text(label.line);
    let start = label.file.line_column(label.label.span.start).column - 1;
    let line_end = label.file.line_start(label.line) + text.len() as u32;
    let end = label.label.span.end.min(line_end);
    let end = if end > label.label.span.start { label.file.line_column(end).column - 1 } else { start };
    (start, end.saturating_sub(start).max(1))
}

fn space_if(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" {text}") }
}
