//! Chat templates in Jinja, with the semantics of Python values.
//!
//! Templates come with models and are not trusted. Rendering takes a bounded number of steps, a bounded amount of memory and a
//! bounded recursion depth for any template and any messages. Values print, compare and convert as in Python, since templates are
//! written for transformers, and the environment is the same: `trim_blocks`, `lstrip_blocks`, loop controls, `{% generation %}`,
//! and a sandbox with immutable values. Integers have 64 bits; an overflow is an error. Features that model templates don't use
//! are rejected by name: `include`, `import`, `extends`, `block`, `autoescape`, and the filters `pprint`,
//! `random`, `striptags`, `urlize` and `wordwrap`.
//!
//! `lex` splits a source into text, expressions and tags; `parse` builds the syntax tree; `eval` evaluates the tree over the
//! types of `value`. `ops` contains operators, items and attributes; `filters`, `predicates` (tests), `methods`, `format` and
//! `date` contain what templates can call; `json` is Python's `json.dumps`.

mod ast;
mod budget;
mod date;
mod eval;
mod filters;
mod format;
mod json;
mod lex;
mod methods;
mod ops;
mod parse;
mod predicates;
#[cfg(test)]
mod tests;
mod value;

use serde_json::{Map, Value as Json};
use std::ops::Range;

/// Why a template can't be parsed or rendered, and the line; 0 if it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Fault {
    /// Adds the line to an error without one.
    fn at(self, line: usize) -> Fault {
        Fault { line: if self.line == 0 { line } else { self.line }, ..self }
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Fault {
        Fault { line: 0, what }
    }
}

/// A rendered template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// The byte ranges that were written inside `{% generation %}` blocks.
    pub(crate) generated: Vec<Range<usize>>,
    /// Whether a `{% generation %}` block was in a macro or another captured block, so that its position is unknown.
    pub(crate) lost: bool,
}

/// Checks the syntax of a template.
pub(crate) fn check(source: &str) -> Result<(), Fault> {
    budget::reset();
    parse::parse(source).map(|_| ())
}

/// Renders a template with these variables.
pub(crate) fn render(source: &str, variables: &Map<String, Json>) -> Result<Rendered, Fault> {
    budget::reset();
    let body = parse::parse(source)?;
    eval::run(&body, variables)
}
