//! Chat templates in Jinja, with Python's meaning of values.
//!
//! Templates come with models and are not trusted. Rendering one takes a bounded number of steps, keeps a bounded number of
//! bytes, and recurses to a bounded depth, whatever the template and the messages are. Values print, compare and convert as
//! Python's do, since templates are written for transformers, whose environment this is: `trim_blocks`, `lstrip_blocks`,
//! loop controls, `{% generation %}`, and a sandbox in which values can't be changed. Integers have 64 bits; more is refused.
//! What templates of models don't use is refused by name: `include`, `import`, `extends`, `block`, `autoescape`, and the
//! filters `pprint`, `random`, `striptags`, `urlize` and `wordwrap`.
//!
//! `lex` cuts a source into text, expressions and tags; `parse` makes a tree of them; `eval` runs the tree over `value`s.
//! `ops` are operators, items and attributes; `filters`, `predicates` (tests), `methods`, `format` and `date` are what templates
//! can call; `json` is Python's `json.dumps`.

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

/// Why a template can't be parsed or rendered, and in which line; 0 where that isn't known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Fault {
    /// The same fault in a line, if it has none.
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
    /// The bytes that were written inside of `{% generation %}` blocks.
    pub(crate) generated: Vec<Range<usize>>,
    /// A `{% generation %}` block was in a macro or another captured block, and its place isn't known.
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
