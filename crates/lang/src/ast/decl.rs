//! Files and their declarations.

use super::{DocString, Expr, Ident, Path, Section, TypeExpr};
use crate::span::{FileId, Span};

/// A whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Which file.
    pub id: FileId,
    /// The documentation string at its top.
    pub doc: Option<DocString>,
    /// Imports and declarations in order.
    pub items: Vec<Item>,
}

/// A top-level item.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `import ...` or `from ... import ...`.
    Import(Import),
    /// A module, block, model or primitive.
    Decl(Decl),
    /// `recipe Name:`.
    Recipe(RecipeDecl),
}

impl Item {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            Item::Import(import) => import.span,
            Item::Decl(decl) => decl.span,
            Item::Recipe(recipe) => recipe.span,
        }
    }
}

/// An import.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The dotted path before a version, braces or star.
    pub path: Path,
    /// `.v2` at its end.
    pub version: Option<Version>,
    /// What is brought in.
    pub names: ImportNames,
    /// The whole import.
    pub span: Span,
}

/// `v2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// Where it stands.
    pub span: Span,
}

/// What an import brings into the file.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportNames {
    /// `import a.b.C [as D]`.
    Path {
        /// The other name.
        alias: Option<Ident>,
    },
    /// `import a.b.{C, D as E}`.
    Braces(Vec<ImportItem>),
    /// `import a.b.*`.
    Star(Span),
    /// `from a.b import C, D as E`.
    From(Vec<ImportItem>),
}

/// `C [as D]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportItem {
    /// The name in the other file.
    pub name: Ident,
    /// The name in this file, if another.
    pub alias: Option<Ident>,
}

impl ImportItem {
    /// The name it has in the importing file.
    pub fn local(&self) -> &Ident {
        self.alias.as_ref().unwrap_or(&self.name)
    }
}

/// Which keyword a declaration has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclKind {
    /// `module`
    Module,
    /// `abstract module`
    AbstractModule,
    /// `block`
    Block,
    /// `model`
    Model,
    /// `primitive`
    Primitive,
}

impl DeclKind {
    /// As it is written.
    pub fn keyword(self) -> &'static str {
        match self {
            DeclKind::Module => "module",
            DeclKind::AbstractModule => "abstract module",
            DeclKind::Block => "block",
            DeclKind::Model => "model",
            DeclKind::Primitive => "primitive",
        }
    }
}

/// A module, block, model or primitive.
#[derive(Clone, Debug, PartialEq)]
pub struct Decl {
    /// Its keyword.
    pub kind: DeclKind,
    /// Its name.
    pub name: Ident,
    /// The parameters between parentheses; `None` for primitives.
    pub params: Option<Vec<Param>>,
    /// What it extends.
    pub extends: Option<Path>,
    /// The sections of its body.
    pub sections: Vec<Section>,
    /// What `params:` of a primitive lists: its attributes.
    pub attributes: Vec<Param>,
    /// The whole declaration.
    pub span: Span,
}

/// A parameter of a declaration.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// `name: type = default`.
    Named {
        /// Its name.
        name: Ident,
        /// Its type, if given.
        ty: Option<TypeExpr>,
        /// Its default, if given.
        default: Option<Expr>,
        /// The whole parameter.
        span: Span,
    },
    /// `...`: left out by the author.
    Elided(Span),
}

impl Param {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            Param::Named { span, .. } | Param::Elided(span) => *span,
        }
    }
}

/// `recipe Name:` with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct RecipeDecl {
    /// Its name; that of a `topology:` is the word itself.
    pub name: Ident,
    /// `topology:`, sizes of groups of devices, and not `recipe Name:`.
    pub topology: bool,
    /// The documentation string under it.
    pub doc: Option<DocString>,
    /// `key: value` lines.
    pub entries: Vec<(Ident, Expr)>,
    /// The whole recipe.
    pub span: Span,
}
