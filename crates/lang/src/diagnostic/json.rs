//! Diagnostics for editors and other programs.

use super::Diagnostic;
use crate::source::Sources;
use std::fmt::Write;

/// The diagnostics as a JSON array of `{code, severity, file, line, column, message}`.
pub fn to_json(sources: &Sources, diagnostics: &[Diagnostic]) -> String {
    let mut out = String::from("[");
    for (index, d) in diagnostics.iter().enumerate() {
        let file = sources.file(d.primary.span.file);
        let place = file.line_column(d.primary.span.start);
        let separator = if index == 0 { "\n" } else { ",\n" };
        let (code, severity) = (d.code, d.severity());
        let (name, message) = (quote(file.name()), quote(&d.message));
        let _ = write!(
            out,
            "{separator}  {{\"code\": \"{code}\", \"severity\": \"{severity}\", \"file\": {name}, \
             \"line\": {}, \"column\": {}, \"message\": {message}}}",
            place.line, place.column
        );
    }
    out.push_str(if diagnostics.is_empty() { "]\n" } else { "\n]\n" });
    out
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
