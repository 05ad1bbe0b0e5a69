//! Access to the arguments of annotations, by name or positional.

use crate::ast::{Annotation, Expr, ExprKind};

/// The arguments of an annotation.
pub(super) trait AnnotationArgs {
    /// Returns an argument by its name; the first one may be positional.
    fn argument(&self, key: &str) -> Option<&Expr>;

    /// Returns an argument that is an identifier or a string.
    fn word(&self, key: &str) -> Option<String> {
        self.argument(key).and_then(text)
    }
}

impl AnnotationArgs for Annotation {
    fn argument(&self, key: &str) -> Option<&Expr> {
        let args = self.args.as_deref()?;
        let named = args.iter().find(|arg| arg.name.as_ref().is_some_and(|name| name.name == key));
        let first =
            || args.first().filter(|arg| arg.name.is_none() && POSITIONAL_ARGUMENTS.contains(&(&*self.name.name, key)));
        named.or_else(first).map(|arg| &arg.value)
    }
}

/// The names of positional arguments.
const POSITIONAL_ARGUMENTS: &[(&str, &str)] = &[
    ("memory", "mode"),
    ("checkpoint", "granularity"),
    ("lifetime", "scope"),
    ("hook", "point"),
    ("adapter", "type"),
    ("probe", "name"),
    ("dtype", "type"),
    ("precision", "policy"),
    ("scaling", "strategy"),
    ("assert", "condition"),
    ("profile", "name"),
    ("trace", "level"),
    ("gradient", "mode"),
    ("shard", "strategy"),
    ("partition", "stage"),
    ("comm", "op"),
];

/// The text of an expression that is an identifier or a string.
pub(super) fn text(expr: &Expr) -> Option<String> {
    match &expr.peel().kind {
        ExprKind::Name(word) | ExprKind::Str(word) => Some(word.clone()),
        _ => None,
    }
}

/// The texts of a list, or of a single expression.
pub(super) fn words(expr: &Expr) -> Vec<String> {
    match &expr.peel().kind {
        ExprKind::List(items) => items.iter().filter_map(text).collect(),
        _ => text(expr).into_iter().collect(),
    }
}

/// Finds an annotation by name.
pub(super) fn find<'n>(notes: &[&'n Annotation], name: &str) -> Option<&'n Annotation> {
    notes.iter().copied().find(|note| note.name.name == name)
}
