//! The typed syntax tree. Every node has a source span; names are not resolved here.

mod decl;
mod expr;
mod graph;
mod section;
mod types;
mod weights;

pub use decl::*;
pub use expr::*;
pub use graph::*;
pub use section::*;
pub use types::*;
pub use weights::*;

use crate::span::Span;

/// A name with its source span.
#[derive(Clone, Debug, PartialEq)]
pub struct Ident {
    /// The name.
    pub name: String,
    /// Its source span.
    pub span: Span,
}

/// A dotted name, such as `ln1.weight` or `std.modules.linear`.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Its parts; never empty.
    pub parts: Vec<Ident>,
}

impl Path {
    /// The whole path's span.
    pub fn span(&self) -> Span {
        self.parts[0].span.to(self.last().span)
    }

    /// The last part.
    pub fn last(&self) -> &Ident {
        self.parts.last().expect("a path has at least one part")
    }

    /// The name, if the path has only one part.
    pub fn as_name(&self) -> Option<&Ident> {
        match &self.parts[..] {
            [name] => Some(name),
            _ => None,
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { "." }, part.name)?;
        }
        Ok(())
    }
}

/// A string literal with its escapes resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct StrLit {
    /// Its value.
    pub value: String,
    /// Its span, quotes included.
    pub span: Span,
}

/// A documentation string without its common indentation, so that it does not depend on the nesting.
#[derive(Clone, Debug, PartialEq)]
pub struct DocString {
    /// Its text.
    pub text: String,
    /// Its span, quotes included.
    pub span: Span,
}

/// An annotation, `@name(args)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// The name after `@`.
    pub name: Ident,
    /// Arguments; `None` without parentheses.
    pub args: Option<Vec<Arg>>,
    /// The span from `@` to the closing parenthesis.
    pub span: Span,
}
