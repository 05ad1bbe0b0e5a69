//! Names and imports: from one file to all files it needs, with every name bound to what it means.

mod imports;
mod inherit;
mod loader;
mod lock;
mod names;
mod parse;

pub use inherit::{ModuleView, PassView};
pub use loader::{Loaded, Loader, MemoryLoader};
pub use lock::Lock;
pub use parse::ProgramError;

use crate::ast::{self, Decl, Item, Recipe};
use crate::diagnostic::Diagnostic;
use crate::source::Sources;
use crate::span::FileId;
use std::collections::BTreeMap;

/// A file with its names bound.
#[derive(Clone, Debug)]
pub struct ResolvedFile {
    /// Its text's id.
    pub id: FileId,
    /// Its path without extension, with `/`.
    pub path: String,
    /// Its tree.
    pub ast: ast::File,
    /// What names mean in it.
    pub scope: BTreeMap<String, Entity>,
}

/// What a name means.
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
    /// Index into [`Program::files`].
    pub file: usize,
    /// Index into the file's items.
    pub item: usize,
}

/// All files that one file needs. The first is that file.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The texts.
    pub sources: Sources,
    /// The files, importers before what they import.
    pub files: Vec<ResolvedFile>,
    /// What `module.lock` should say for these files.
    pub lock: Lock,
    /// Findings of lexing, parsing and resolving.
    pub diagnostics: Vec<Diagnostic>,
}

impl Program {
    /// Reads `path` and everything it imports.
    pub fn load(path: &str, loader: &dyn Loader) -> Program {
        imports::load(path, loader)
    }

    /// The declaration an item is, if it is one.
    pub fn decl(&self, item: ItemRef) -> Option<&Decl> {
        match self.files.get(item.file)?.ast.items.get(item.item)? {
            Item::Decl(decl) => Some(decl),
            _ => None,
        }
    }

    /// Whether a declaration has a graph of its own or an inherited one.
    pub fn has_graph(&self, item: ItemRef) -> bool {
        ModuleView::new(self, item).is_some_and(|view| view.forward.graph.is_some())
    }

    /// The recipe an item is, if it is one.
    pub fn recipe(&self, item: ItemRef) -> Option<&Recipe> {
        match self.files.get(item.file)?.ast.items.get(item.item)? {
            Item::Recipe(recipe) => Some(recipe),
            _ => None,
        }
    }

    /// What a dotted path means in a file.
    pub fn lookup(&self, file: usize, path: &ast::Path) -> Option<Entity> {
        let names: Vec<&str> = path.parts.iter().map(|part| &*part.name).collect();
        let scope = &self.files.get(file)?.scope;
        // The longest prefix that is a name: `models.llama` may be bound as a whole.
        (1..=names.len()).rev().find_map(|length| {
            let entity = scope.get(&names[..length].join("."))?;
            match (entity, &names[length..]) {
                (entity, []) => Some(entity.clone()),
                (Entity::File(file), [member]) => self.export(*file, member).map(Entity::Item),
                // A file named after one of its declarations stands for that; the others are its members.
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

    /// The item that a file declares under a name.
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
