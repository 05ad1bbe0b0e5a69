//! The formatter: one canonical layout.
//!
//! Two spaces per block, lines of up to [`WIDTH`] columns, at most one consecutive blank line. Comments keep their position: on a
//! separate line, at the end of their line, or beside their element of a broken list. The result depends only on the tree, the
//! comments and the blank lines, so formatting is idempotent.

mod decl;
mod doc;
mod expr;
mod graph;
mod printer;
mod section;

use crate::diagnostic::Diagnostic;
use crate::parser;
use crate::span::FileId;

/// The maximum line width that the formatter aims for.
pub const WIDTH: usize = 100;

/// Formats a file, or returns its syntax errors.
///
/// ```
/// let tidy = tensorloom_lang::fmt::format("module  Double( n:int ):\n    forward:\n        in: [n]\n").unwrap();
/// assert_eq!(tidy, "module Double(n: int):\n  forward:\n    in: [n]\n");
/// ```
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let parsed = parser::parse(FileId::default(), text);
    if parsed.diagnostics.iter().any(Diagnostic::is_error) {
        return Err(parsed.diagnostics);
    }
    let mut printer = printer::Printer::new(text, parsed.comments);
    printer.file(&parsed.file);
    Ok(printer.finish())
}
