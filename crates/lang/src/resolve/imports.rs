//! Resolves imports across files and binds the imported names.
//!
//! A path is searched in the standard library, then beside the importing file, then in the project's root. Its last part may be a
//! file, a declaration in a file, or a declaration in any file of a folder.

use super::loader::Loader;
use super::lock::ModuleLock;
use super::names;
use super::{Entity, ItemRef, ModuleProgram, ResolvedFile};
use crate::ast::{Ident, Import, ImportNames, Item};
use crate::check::primitives;
use crate::diagnostic::{Code, Diagnostic};
use crate::parser;
use crate::span::Span;
use crate::suggest::closest;
use std::collections::BTreeMap;

/// The target of an imported path.
enum ImportTarget {
    Item(ItemRef),
    File(usize),
    Primitive(String),
    /// `import primitives`: built-in names, which are always in scope.
    Builtin,
}

pub(super) fn load(path: &str, loader: &dyn Loader) -> ModuleProgram {
    let pinned = loader.lock().map(|text| ModuleLock::parse(&text)).unwrap_or_default();
    let mut resolver = Resolver {
        loader,
        pinned,
        program: ModuleProgram::default(),
        by_path: BTreeMap::new(),
        open: Vec::new(),
        versions: Vec::new(),
    };
    if resolver.file(path, None).is_none() {
        let id = resolver.program.sources.add(format!("{path}.module"), "");
        let at = Span::new(id, 0, 0);
        let missing = match loader.read_error(path, None) {
            Some(fault) => Diagnostic::new(Code::L002, at, format!("`{path}.module` cannot be read")).with_label(fault),
            None => Diagnostic::new(Code::L002, at, format!("no file `{path}.module`")),
        };
        resolver.program.diagnostics.push(missing);
    }
    let mut program = resolver.program;
    names::check(&mut program);
    crate::diagnostic::sort_and_dedup(&mut program.diagnostics);
    program
}

struct Resolver<'a> {
    loader: &'a dyn Loader,
    pinned: ModuleLock,
    program: ModuleProgram,
    by_path: BTreeMap<(String, Option<u32>), usize>,
    /// Files whose imports are being resolved, outermost first.
    open: Vec<usize>,
    /// The version of each file.
    versions: Vec<String>,
}

impl Resolver<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.program.diagnostics.push(diagnostic);
    }

    /// Loads a file and its imports; `None` if there is no such file.
    fn file(&mut self, path: &str, major: Option<u32>) -> Option<usize> {
        let key = (path.to_string(), major);
        if let Some(&index) = self.by_path.get(&key) {
            return Some(index);
        }
        let loaded = self.loader.read(path, major)?;
        let id = self.program.sources.add(loaded.name, loaded.text);
        let parsed = parser::parse(id, self.program.sources.file(id).text());
        if parsed.file.items.is_empty() && parsed.diagnostics.is_empty() {
            self.report(
                Diagnostic::new(Code::E001, Span::new(id, 0, 0), "the file has no declarations")
                    .with_label("the file has no `module`, `block`, `model` or `primitive`")
                    .with_hint("write `module Name(n: int):` and below it, indented, `forward:` with `in:`, `out:` and `graph:`"),
            );
        }
        self.program.diagnostics.extend(parsed.diagnostics);
        let index = self.program.files.len();
        let imports: Vec<Import> = parsed
            .file
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Import(import) => Some(import.clone()),
                _ => None,
            })
            .collect();
        let file = ResolvedFile { id, path: path.to_string(), ast: parsed.file, scope: BTreeMap::new() };
        self.program.files.push(file);
        if index > 0 {
            self.program.lock.modules.entry(path.replace('/', ".")).or_default().insert(loaded.version.clone());
        }
        self.versions.push(loaded.version);
        self.by_path.insert(key, index);
        self.open.push(index);
        let mut bound: BTreeMap<String, Span> = BTreeMap::new();
        for import in &imports {
            self.import(index, import, &mut bound);
        }
        self.open.pop();
        Some(index)
    }

    fn import(&mut self, file: usize, import: &Import, bound: &mut BTreeMap<String, Span>) {
        let parts: Vec<&str> = import.path.parts.iter().map(|part| &*part.name).collect();
        let major = import.version.map(|v| v.major);
        match &import.names {
            ImportNames::Path { alias } => {
                let Some(target) = self.find(file, &parts, major) else {
                    return self.not_found(import, import.path.span(), &import.path.to_string());
                };
                self.check_target(file, import, &target);
                let name = alias.as_ref().unwrap_or(import.path.last());
                if alias.is_none() && !matches!(target, ImportTarget::Builtin) {
                    // Qualified names are bound in addition to the short one.
                    self.bind_quietly(file, &parts.join("."), &target);
                }
                self.bind(file, name, alias.is_some(), target, bound);
            }
            ImportNames::Star(_) => {
                if let ["primitives"] | ["std", "primitives"] = parts[..] {
                    return;
                }
                let files = self.find_files(file, &parts, major);
                if files.is_empty() {
                    return self.not_found(import, import.path.span(), &import.path.to_string());
                }
                for other in files {
                    self.check_target(file, import, &ImportTarget::File(other));
                    for (name, item) in self.exports(other) {
                        let name = Ident { name, span: import.span };
                        self.bind(file, &name, false, ImportTarget::Item(item), bound);
                    }
                }
            }
            ImportNames::Braces(items) | ImportNames::From(items) => {
                for item in items {
                    let mut full = parts.clone();
                    full.push(&item.name.name);
                    match self.find(file, &full, major) {
                        Some(target) => {
                            self.check_target(file, import, &target);
                            self.bind(file, item.local(), item.alias.is_some(), target, bound);
                        }
                        None => self.not_found(import, item.name.span, &full.join(".")),
                    }
                }
            }
        }
    }

    fn not_found(&mut self, import: &Import, span: Span, path: &str) {
        let version = import.version.map_or(String::new(), |v| format!(" in version {}", v.major));
        let major = import.version.map(|v| v.major);
        let mut found = Diagnostic::new(Code::L002, span, format!("`{path}`{version} was not found"))
            .with_label("neither the standard library nor the project has it");
        // The file itself, or the one that would declare the last part.
        let place = path.replace('.', "/");
        let places = [Some(place.as_str()), place.rsplit_once('/').map(|(folder, _)| folder)];
        if let Some(fault) = places.into_iter().flatten().find_map(|place| self.loader.read_error(place, major)) {
            return self
                .report(Diagnostic::new(Code::L002, span, format!("`{path}` cannot be read")).with_label(fault));
        }
        if import.version.is_some() {
            found = found.with_hint("omit the version to get the latest");
        } else if let Some((folder, name)) = path.rsplit_once('.') {
            // Suggestions are taken from the files of the folder and the declarations of the file.
            let folder = folder.replace('.', "/");
            let known: Vec<String> = self
                .loader
                .list(&folder)
                .iter()
                .map(|file| file.rsplit('/').next().unwrap_or_default().to_string())
                .chain(
                    self.by_path
                        .get(&(folder.clone(), None))
                        .into_iter()
                        .flat_map(|file| self.exports(*file).into_iter().map(|(name, _)| name)),
                )
                .collect();
            if let Some(close) = closest(name, known.iter().map(|s| &**s)) {
                found = found.with_hint(format!("did you mean `{close}`?"));
            }
        }
        self.report(found);
    }

    /// Checks for cycles, and the version in the lock file.
    fn check_target(&mut self, file: usize, import: &Import, target: &ImportTarget) {
        let other = match target {
            ImportTarget::Item(item) => item.file,
            ImportTarget::File(other) => *other,
            _ => return,
        };
        if self.open.contains(&other) {
            let start = self.open.iter().position(|f| *f == other).unwrap_or(0);
            let circle: Vec<String> = self.open[start..].iter().map(|f| self.program.files[*f].path.clone()).collect();
            let (message, hint) = if other == file {
                ("file imports itself", "remove the import: its names are already in scope")
            } else {
                ("files import one another in a cycle", "move the shared declarations into a third file")
            };
            let back = &self.program.files[other].path;
            let note = format!("{} -> {back}", circle.join(" -> "));
            self.report(
                Diagnostic::new(Code::L003, import.span, message)
                    .with_label("this import closes the cycle")
                    .with_note(note)
                    .with_hint(hint),
            );
            return;
        }
        let path = self.program.files[other].path.replace('/', ".");
        let resolved = self.versions.get(other).cloned().unwrap_or_default();
        if let Some(pinned) = self.pinned.modules.get(&path)
            && !pinned.contains(&resolved)
        {
            let pinned = pinned.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let found = Diagnostic::new(Code::L004, import.span, format!("`{path}` is locked to another version"))
                .with_label(format!("resolves to {resolved}"))
                .with_note(format!("module.lock says {pinned}"))
                .with_hint("update module.lock, or import the locked version");
            self.report(found);
        }
    }

    /// Resolves a dotted path, as seen from a file.
    fn find(&mut self, file: usize, parts: &[&str], major: Option<u32>) -> Option<ImportTarget> {
        if let ["primitives"] | ["std", "primitives"] = parts {
            return Some(ImportTarget::Builtin);
        }
        if let ["std", "primitives", name] | ["primitives", name] = parts
            && primitives::find(name).is_some()
            && major.is_none_or(|major| major == 1)
        {
            return Some(ImportTarget::Primitive((*name).to_string()));
        }
        self.candidate_paths(file, parts).iter().find_map(|place| self.find_at(place, major))
    }

    /// The search locations of a path, in order (§4.7.1): the standard library, beside the importing file, the root.
    fn candidate_paths(&self, file: usize, parts: &[&str]) -> Vec<String> {
        let folder = self.program.files[file].path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = parts.join("/");
        let sibling = (!folder.is_empty()).then(|| format!("{folder}/{path}"));
        match parts[0] {
            "std" => std::iter::once(path).chain(sibling).collect(),
            _ => sibling.into_iter().chain([path]).collect(),
        }
    }

    /// The file at a path, or all files of the folder there.
    fn find_files(&mut self, file: usize, parts: &[&str], major: Option<u32>) -> Vec<usize> {
        for place in self.candidate_paths(file, parts) {
            let mut found: Vec<usize> = self.file(&place, major).into_iter().collect();
            if found.is_empty() {
                let inside = self.loader.list(&place);
                found =
                    inside.iter().filter_map(|path| self.file(path, major)).filter(|other| *other != file).collect();
            }
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn find_at(&mut self, path: &str, major: Option<u32>) -> Option<ImportTarget> {
        if let Some(file) = self.file(path, major) {
            // A file named after its only declaration is an alias of it.
            let name = path.rsplit('/').next().unwrap_or(path);
            let item = self.exports(file).into_iter().find(|(declared, _)| super::same_name(name, declared));
            return Some(item.map_or(ImportTarget::File(file), |(_, item)| ImportTarget::Item(item)));
        }
        let (folder, name) = path.rsplit_once('/')?;
        if let Some(file) = self.file(folder, major)
            && let Some(item) = self.program.export(file, name)
        {
            return Some(ImportTarget::Item(item));
        }
        for candidate in self.loader.list(folder) {
            // A file that is being loaded cannot be the target of its own import.
            if let Some(file) = self.file(&candidate, major)
                && let Some(item) = self.program.export(file, name)
            {
                return Some(ImportTarget::Item(item));
            }
        }
        None
    }

    fn exports(&self, file: usize) -> Vec<(String, ItemRef)> {
        let items = self.program.files[file].ast.items.iter().enumerate();
        items
            .filter_map(|(item, found)| {
                let name = match found {
                    Item::Decl(decl) => &decl.name.name,
                    Item::Recipe(recipe) => &recipe.name.name,
                    Item::Import(_) => return None,
                };
                Some((name.clone(), ItemRef { file, item }))
            })
            .collect()
    }

    fn bind_quietly(&mut self, file: usize, name: &str, target: &ImportTarget) {
        let entity = match target {
            ImportTarget::Item(item) => Entity::Item(*item),
            ImportTarget::File(other) => Entity::File(*other),
            ImportTarget::Primitive(name) => Entity::Primitive(name.clone()),
            ImportTarget::Builtin => return,
        };
        self.program.files[file].scope.insert(name.to_string(), entity);
    }

    /// Binds a name; reports an error if it is taken (E023, E024).
    fn bind(
        &mut self,
        file: usize,
        name: &Ident,
        alias: bool,
        target: ImportTarget,
        bound: &mut BTreeMap<String, Span>,
    ) {
        let entity = match &target {
            ImportTarget::Item(item) => Entity::Item(*item),
            ImportTarget::File(other) => Entity::File(*other),
            ImportTarget::Primitive(name) => Entity::Primitive(name.clone()),
            ImportTarget::Builtin => return,
        };
        let earlier = bound.get(&name.name).copied();
        let declared = self.program.files[file].ast.items.iter().find_map(|item| match item {
            Item::Decl(decl) if decl.name.name == name.name => Some(decl.name.span),
            Item::Recipe(recipe) if recipe.name.name == name.name => Some(recipe.name.span),
            _ => None,
        });
        if alias && let Some(span) = earlier.or(declared) {
            return self.report(
                Diagnostic::new(Code::E024, name.span, format!("alias `{}` shadows an existing name", name.name))
                    .with_label("already taken")
                    .with_secondary(span, "taken here")
                    .with_hint("choose another name after `as`"),
            );
        }
        if alias && primitives::find(&name.name).is_some() {
            return self.report(
                Diagnostic::new(Code::E024, name.span, format!("alias `{}` shadows a primitive", name.name))
                    .with_label("already the name of a primitive")
                    .with_hint("choose another name after `as`"),
            );
        }
        if let Some(span) = earlier
            && self.program.files[file].scope.get(&name.name) != Some(&entity)
        {
            return self.report(
                Diagnostic::new(Code::E023, name.span, format!("two imports bring in `{}`", name.name))
                    .with_label("second one")
                    .with_secondary(span, "first one")
                    .with_hint(format!("rename one of them: `... as Other{}`", name.name)),
            );
        }
        bound.insert(name.name.clone(), name.span);
        self.program.files[file].scope.insert(name.name.clone(), entity);
    }
}
