//! Files and their declarations.

use super::{DocString, Expr, Ident, Path, Section, TypeExpr};
use crate::span::{FileId, Span};

/// A whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The file's ID.
    pub id: FileId,
    /// The documentation string at its top.
    pub doc: Option<DocString>,
    /// Imports and declarations in order.
    pub items: Vec<Item>,
}

/// A top-level item.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An import, `import ...` or `from ... import ...`.
    Import(Import),
    /// A module, block, model or primitive.
    Decl(Decl),
    /// A recipe, `recipe Name:`.
    Recipe(RecipeDecl),
}

impl Item {
    /// Its source span.
    pub fn span(&self) -> Span {
        match self {
            Item::Import(import) => import.span,
            Item::Decl(decl) => decl.span,
            Item::Recipe(recipe) => recipe.span,
        }
    }
}

/// An import statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The dotted path before a version, braces or star.
    pub path: Path,
    /// The version at its end, such as `.v2`.
    pub version: Option<Version>,
    /// The imported names.
    pub names: ImportNames,
    /// The span of the whole import.
    pub span: Span,
}

/// A version, such as `v2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// Its source span.
    pub span: Span,
}

/// The names that an import brings into the file.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportNames {
    /// The form `import a.b.C [as D]`.
    Path {
        /// The local name, if it differs.
        alias: Option<Ident>,
    },
    /// The form `import a.b.{C, D as E}`.
    Braces(Vec<ImportItem>),
    /// The form `import a.b.*`.
    Star(Span),
    /// The form `from a.b import C, D as E`.
    From(Vec<ImportItem>),
}

/// An imported name, `C [as D]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportItem {
    /// The name in the other file.
    pub name: Ident,
    /// The name in this file, if it differs.
    pub alias: Option<Ident>,
}

impl ImportItem {
    /// The local name.
    pub fn local(&self) -> &Ident {
        self.alias.as_ref().unwrap_or(&self.name)
    }
}

/// The keyword of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclKind {
    /// The keyword `module`.
    Module,
    /// The keyword `abstract module`.
    AbstractModule,
    /// The keyword `block`.
    Block,
    /// The keyword `model`.
    Model,
    /// The keyword `primitive`.
    Primitive,
}

impl DeclKind {
    /// The keyword's spelling.
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
    /// The module that it extends.
    pub extends: Option<Path>,
    /// The sections of its body.
    pub sections: Vec<Section>,
    /// The attributes of a primitive, from its `params:`.
    pub attributes: Vec<Param>,
    /// The span of the whole declaration.
    pub span: Span,
}

/// A parameter of a declaration.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// A parameter, `name: type = default`.
    Named {
        /// Its name.
        name: Ident,
        /// Its type, if given.
        ty: Option<TypeExpr>,
        /// Its default, if given.
        default: Option<Expr>,
        /// The span of the whole parameter.
        span: Span,
    },
    /// `...`: omitted by the author.
    Elided(Span),
}

impl Param {
    /// Its source span.
    pub fn span(&self) -> Span {
        match self {
            Param::Named { span, .. } | Param::Elided(span) => *span,
        }
    }
}

/// `recipe Name:` with its settings, or `topology:`.
#[derive(Clone, Debug, PartialEq)]
pub struct RecipeDecl {
    /// Its name; for `topology:`, that word itself.
    pub name: Ident,
    /// Whether it is `topology:`, the sizes of device groups, and not `recipe Name:`.
    pub topology: bool,
    /// The documentation string under it.
    pub doc: Option<DocString>,
    /// The settings, `key: value` lines.
    pub entries: Vec<(Ident, Expr)>,
    /// The span of the whole recipe.
    pub span: Span,
}
