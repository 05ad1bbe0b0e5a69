//! Diagnostics as data: every stage of the front end returns them, the edge draws them.

mod code;
mod json;
mod render;

pub use code::{Code, Severity};
pub use json::to_json;
pub use render::{ColorStyle, render, render_all};

use crate::span::Span;

/// A span with a few words about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// What the words are about.
    pub span: Span,
    /// A few words, printed beside the caret; may be empty.
    pub text: String,
}

/// One finding: what is wrong, where, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its code, which also decides the severity.
    pub code: Code,
    /// One line that says what is wrong.
    pub message: String,
    /// The culprit.
    pub primary: Label,
    /// Other places that matter, such as an earlier definition.
    pub secondary: Vec<Label>,
    /// Facts that led to the finding.
    pub notes: Vec<String>,
    /// How to mend it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A finding at `span` with nothing further to say.
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

    /// Sets the words beside the caret.
    pub fn with_label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    /// Points at another place.
    pub fn with_secondary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds a fact.
    pub fn with_note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Sets the remedy.
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }

    /// Error or warning, as the code says.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Whether this finding forbids going on to later stages.
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }
}

/// Puts findings in reading order and drops repetitions of the same finding at the same place. What can't be read comes
/// first in its file: names that are missing elsewhere may be missing because of it.
///
/// Checking a module once per combination of its guards finds the same mistake several times.
pub fn sort_and_dedup(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by_key(|d| (d.primary.span.file, d.code != Code::E001, d.primary.span.start, d.code));
    let mut seen = std::collections::BTreeSet::new();
    diagnostics.retain(|d| seen.insert((d.primary.span, d.code, d.message.clone())));
}
