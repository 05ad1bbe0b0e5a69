//! Diagnostics as data: every stage of the front end returns them, and only the command line renders them.

mod code;
mod json;
mod render;

pub use code::{Code, Severity};
pub use json::to_json;
pub use render::{ColorStyle, render, render_all};

use crate::span::Span;

/// A span with a short text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The labelled span.
    pub span: Span,
    /// A short text, printed beside the carets; may be empty.
    pub text: String,
}

/// A diagnostic: what is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its code, which also determines the severity.
    pub code: Code,
    /// A one-line description.
    pub message: String,
    /// The span of the problem.
    pub primary: Label,
    /// Other relevant spans, such as an earlier definition.
    pub secondary: Vec<Label>,
    /// Facts that explain the diagnostic.
    pub notes: Vec<String>,
    /// How to fix it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A diagnostic at `span` without notes and hint.
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            message: message.into(),
            primary: Label { span, text: String::new() },
            secondary: Vec::new(),
            notes: Vec::new(),
            hint: None,
        }
    }

    /// Sets the text beside the carets.
    pub fn with_label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    /// Adds a secondary span.
    pub fn with_secondary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds a note.
    pub fn with_note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Sets the hint.
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// The severity of its code.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Whether it prevents later stages.
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }
}

/// Sorts diagnostics in source order and removes duplicates. Syntax errors come first in their file: undefined names elsewhere
/// may be a consequence of them.
///
/// Checking a module once per combination of its conditions reports the same problem several times.
pub fn sort_and_dedup(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by_key(|d| (d.primary.span.file, d.code != Code::E001, d.primary.span.start, d.code));
    let mut seen = std::collections::BTreeSet::new();
    diagnostics.retain(|d| seen.insert((d.primary.span, d.code, d.message.clone())));
}
