//! Resolves names and imports: loads all files that a file needs, and binds every name.

mod imports;
mod inherit;
mod loader;
mod lock;
mod names;
mod parse;

pub use inherit::{ModuleView, PassView};
pub use loader::{LoadedFile, Loader, MemoryLoader};
pub use lock::ModuleLock;
pub use parse::ProgramError;

use crate::ast::{self, Decl, Item, RecipeDecl};
use crate::diagnostic::Diagnostic;
use crate::source::Sources;
use crate::span::FileId;
use std::collections::BTreeMap;

/// A file with its bound names.
#[derive(Clone, Debug)]
pub struct ResolvedFile {
    /// The ID of its source text.
    pub id: FileId,
    /// Its path without extension, with `/`.
    pub path: String,
    /// Its syntax tree.
    pub ast: ast::File,
    /// The meaning of names in it.
    pub scope: BTreeMap<String, Entity>,
}

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A declaration or recipe: file and item.
    Item(ItemRef),
    /// A primitive of the language.
    Primitive(String),
    /// A whole file, whose declarations are its members.
    File(usize),
}

/// Names one top-level item of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemRef {
    /// Index into [`ModuleProgram::files`].
    pub file: usize,
    /// Index into the file's items.
    pub item: usize,
}

/// All files that one file needs; that file is the first.
#[derive(Clone, Debug, Default)]
pub struct ModuleProgram {
    /// The source texts.
    pub sources: Sources,
    /// The files; importing files precede imported ones.
    pub files: Vec<ResolvedFile>,
    /// The contents of `module.lock` for these files.
    pub lock: ModuleLock,
    /// Diagnostics of lexing, parsing and resolving.
    pub diagnostics: Vec<Diagnostic>,
}

impl ModuleProgram {
    /// Loads `path` and everything that it imports.
    pub fn load(path: &str, loader: &dyn Loader) -> ModuleProgram {
        imports::load(path, loader)
    }

    /// The declaration of an item, if it is one.
    pub fn decl(&self, item: ItemRef) -> Option<&Decl> {
        match self.files.get(item.file)?.ast.items.get(item.item)? {
            Item::Decl(decl) => Some(decl),
            _ => None,
        }
    }

    /// Whether a declaration has its own or an inherited graph.
    pub fn has_graph(&self, item: ItemRef) -> bool {
        ModuleView::new(self, item).is_some_and(|view| view.forward.graph.is_some())
    }

    /// The recipe of an item, if it is one.
    pub fn recipe(&self, item: ItemRef) -> Option<&RecipeDecl> {
        match self.files.get(item.file)?.ast.items.get(item.item)? {
            Item::Recipe(recipe) => Some(recipe),
            _ => None,
        }
    }

    /// The meaning of a dotted path in a file.
    pub fn lookup(&self, file: usize, path: &ast::Path) -> Option<Entity> {
        let names: Vec<&str> = path.parts.iter().map(|part| &*part.name).collect();
        let scope = &self.files.get(file)?.scope;
        // The longest prefix that is bound: `models.llama` may be bound as a whole.
        (1..=names.len()).rev().find_map(|length| {
            let entity = scope.get(&names[..length].join("."))?;
            match (entity, &names[length..]) {
                (entity, []) => Some(entity.clone()),
                (Entity::File(file), [member]) => self.export(*file, member).map(Entity::Item),
                // A file named after one of its declarations is an alias of it; the others are its members.
                (Entity::Item(item), [member]) if self.stands_for_file(*item) => {
                    self.export(item.file, member).map(Entity::Item)
                }
                _ => None,
            }
        })
    }

    fn stands_for_file(&self, item: ItemRef) -> bool {
        let (Some(file), Some(decl)) = (self.files.get(item.file), self.decl(item)) else { return false };
        same_name(file.path.rsplit('/').next().unwrap_or(&file.path), &decl.name.name)
    }

    /// The item that a file declares with this name.
    pub fn export(&self, file: usize, name: &str) -> Option<ItemRef> {
        let items = &self.files.get(file)?.ast.items;
        let item = items.iter().position(|item| match item {
            Item::Decl(decl) => decl.name.name == name,
            Item::Recipe(recipe) => recipe.name.name == name,
            Item::Import(_) => false,
        })?;
        Some(ItemRef { file, item })
    }
}

/// Whether a file is named after a declaration: `gqa` and `GQA`, `swiglu_mlp` and `SwiGLU_MLP`.
fn same_name(file: &str, declared: &str) -> bool {
    declared.replace('_', "").eq_ignore_ascii_case(&file.replace('_', ""))
}
