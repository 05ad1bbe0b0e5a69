//! Checks names without types: duplicates, reserved names, shadowing, repeated parameters, inheritance.

use super::{Entity, ItemRef, ModuleProgram, inherit};
use crate::ast::{Decl, DeclKind, Ident, Item, LetItem, Param, PassItemKind, SectionKind};
use crate::check::primitives;
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use std::collections::BTreeMap;

/// Reserved names of the language (appendix B). Annotation names are not reserved: they follow `@`, where no other name can occur.
const RESERVED: &[&str] = &[
    "Tensor",
    "int",
    "float",
    "bool",
    "string",
    "bf16",
    "fp32",
    "fp16",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp4_e2m1",
    "int8",
    "int32",
    "tied_to",
    "fuse",
    "transform",
    "saved",
    "recompute",
    "true",
    "false",
    "None",
];

pub(super) fn check(program: &mut ModuleProgram) {
    let mut found = Vec::new();
    for file in 0..program.files.len() {
        declare(program, file, &mut found);
    }
    inherit_scopes(program, &mut found);
    for file in 0..program.files.len() {
        for (item, node) in program.files[file].ast.items.iter().enumerate() {
            if let Item::Decl(decl) = node {
                check_decl(decl, &mut found);
                inherit::check(program, ItemRef { file, item }, decl, &mut found);
            }
        }
    }
    program.diagnostics.extend(found);
}

/// Adds a file's own declarations to its scope.
fn declare(program: &mut ModuleProgram, file: usize, found: &mut Vec<Diagnostic>) {
    let mut seen: BTreeMap<String, Span> = BTreeMap::new();
    let names: Vec<(usize, Ident, bool)> = program.files[file]
        .ast
        .items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| match item {
            Item::Decl(decl) => Some((index, decl.name.clone(), decl.kind == DeclKind::Primitive)),
            Item::Recipe(recipe) => Some((index, recipe.name.clone(), false)),
            Item::Import(_) => None,
        })
        .collect();
    for (item, name, is_primitive) in names {
        if let Some(first) = seen.insert(name.name.clone(), name.span) {
            found.push(
                Diagnostic::new(Code::L005, name.span, format!("`{}` is declared twice", name.name))
                    .with_label("second declaration")
                    .with_secondary(first, "first declaration")
                    .with_hint("rename one of them"),
            );
            continue;
        }
        reserved(&name, found);
        // The library's own files describe the built-in primitives.
        let described = is_primitive && program.files[file].path.starts_with("std/primitives/");
        if !described && primitives::find(&name.name).is_some() {
            let wins = !is_primitive || program.has_graph(ItemRef { file, item });
            let label = if wins {
                "in this file the declaration wins"
            } else {
                "it has no graph, so the built-in primitive is used"
            };
            found.push(
                Diagnostic::new(Code::W001, name.span, format!("`{}` is also a primitive", name.name))
                    .with_label(label),
            );
        }
        let scope = &mut program.files[file].scope;
        if matches!(scope.get(&name.name), Some(Entity::Item(other)) if other.file != file) {
            found.push(
                Diagnostic::new(Code::W002, name.span, format!("`{}` is also imported", name.name))
                    .with_label("in this file the declaration wins")
                    .with_hint("import it under another name to use both"),
            );
        }
        scope.insert(name.name, Entity::Item(ItemRef { file, item }));
    }
}

/// Adds the names that inherited parts from another file use; they must not have another meaning here.
fn inherit_scopes(program: &mut ModuleProgram, found: &mut Vec<Diagnostic>) {
    for file in 0..program.files.len() {
        for item in 0..program.files[file].ast.items.len() {
            let child = ItemRef { file, item };
            for parent in inherit::ancestors(program, child).into_iter().filter(|parent| parent.file != file) {
                let Some(decl) = program.decl(parent) else { continue };
                for name in inherit::names_used(decl) {
                    let Some(theirs) = program.files[parent.file].scope.get(&name).cloned() else { continue };
                    match program.files[file].scope.get(&name) {
                        Some(ours) if *ours != theirs => {
                            let (Some(own), Some(decl)) = (program.decl(child), program.decl(parent)) else { continue };
                            let parent = &decl.name.name;
                            found.push(
                                Diagnostic::new(
                                    Code::E011,
                                    own.name.span,
                                    format!("`{name}` has another meaning in `{parent}`"),
                                )
                                .with_label(format!("the inherited sections use `{name}`"))
                                .with_secondary(decl.name.span, "from here")
                                .with_hint(format!("give `{name}` another name in this file")),
                            );
                        }
                        Some(_) => {}
                        None => {
                            program.files[file].scope.insert(name, theirs);
                        }
                    }
                }
            }
        }
    }
}

fn reserved(name: &Ident, found: &mut Vec<Diagnostic>) {
    if RESERVED.contains(&&*name.name) {
        found.push(
            Diagnostic::new(Code::L006, name.span, format!("`{}` is a reserved name", name.name))
                .with_label("choose another name"),
        );
    }
}

/// Reports duplicate names in a list.
fn distinct<'a>(names: impl Iterator<Item = &'a Ident>, what: &str, found: &mut Vec<Diagnostic>) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for name in names {
        reserved(name, found);
        if let Some(first) = seen.insert(&name.name, name.span) {
            found.push(
                Diagnostic::new(Code::E009, name.span, format!("{what} `{}` is given twice", name.name))
                    .with_label("second one")
                    .with_secondary(first, "first one"),
            );
        }
    }
}

fn check_decl(decl: &Decl, found: &mut Vec<Diagnostic>) {
    let header = decl.params.iter().flatten().filter_map(|param| match param {
        Param::Named { name, .. } => Some(name),
        Param::Elided(_) => None,
    });
    distinct(header, "parameter", found);
    for section in &decl.sections {
        match &section.kind {
            SectionKind::Params(entries) => {
                distinct(entries.iter().filter_map(|entry| entry.path.as_name()), "parameter", found);
            }
            SectionKind::Let(items) => {
                let names = items.iter().filter_map(|item| match item {
                    LetItem::Bind { name, .. } | LetItem::Dim { name, .. } => Some(name),
                    LetItem::Constraints(..) => None,
                });
                distinct(names, "binding", found);
            }
            SectionKind::Constants(entries) => distinct(entries.iter().map(|entry| &entry.name), "constant", found),
            SectionKind::Forward(pass) | SectionKind::Backward(pass) => {
                for item in &pass.items {
                    let tensors = match &item.kind {
                        PassItemKind::In(spec) | PassItemKind::Out(spec) => &spec.tensors,
                        PassItemKind::Inputs(tensors)
                        | PassItemKind::Outputs(tensors)
                        | PassItemKind::Gradients(tensors) => tensors,
                        _ => continue,
                    };
                    distinct(tensors.iter().filter_map(|t| t.name.as_ref()), "tensor", found);
                }
            }
            _ => {}
        }
    }
}
