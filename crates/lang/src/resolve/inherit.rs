//! Combines a declaration with its inherited parts (§4.2, §4.3).

use super::{Entity, ItemRef, ModuleProgram};
use crate::ast::{
    Annotation, ConfigEntry, ConfigValue, ConstantEntry, Decl, DeclKind, Graph, IoTensor, LetItem, NameList, Param,
    ParamEntry, Pass, PassItemKind, Pattern, SectionKind, TypeKind, WeightMapping, WeightPart, WeightPath,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::suggest::closest;

/// A declaration with resolved inheritance: parents' entries first, then its own.
#[derive(Clone, Debug)]
pub struct ModuleView<'a> {
    /// The declaration itself.
    pub decl: &'a Decl,
    /// The item of the declaration.
    pub item: ItemRef,
    /// The parameters of its header.
    pub header: Vec<&'a Param>,
    /// `let:` bindings and constraints.
    pub lets: Vec<&'a LetItem>,
    /// Parameters, inherited first.
    pub params: Vec<&'a ParamEntry>,
    /// Constants, inherited first.
    pub constants: Vec<&'a ConstantEntry>,
    /// The forward pass.
    pub forward: PassView<'a>,
    /// The backward pass; `None` if it is derived.
    pub backward: Option<PassView<'a>>,
    /// The residual pattern of a block.
    pub pattern: Option<&'a Pattern>,
    /// The `hf_config:` section; a child's entries, including those of `param_mapping:`, replace the parent's.
    pub config: Vec<ConfigEntry>,
    /// `hf_mapping:`, a child's paths first: the first match is used.
    pub mappings: Vec<&'a WeightMapping>,
    /// `hf_export:`, in the same order.
    pub exports: Vec<&'a WeightMapping>,
    /// Annotations of the declaration, with their files; its own replace inherited ones of the same name.
    pub annotations: Vec<(&'a Annotation, usize)>,
}

impl ModuleView<'_> {
    /// The identifiers that header parameters accept: those of `mode: enum(fast, slow)`.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let types = self.header.iter().filter_map(|param| match param {
            Param::Named { ty: Some(ty), .. } => Some(ty),
            _ => None,
        });
        let lists = types.filter_map(|ty| match &ty.kind {
            TypeKind::Named { path, args: Some(args) } if path.to_string() == "enum" => Some(args),
            _ => None,
        });
        lists.flatten().filter_map(|arg| arg.value.as_name())
    }
}

/// The parts of a pass; a child's parts replace the parent's.
#[derive(Clone, Debug, Default)]
pub struct PassView<'a> {
    /// Inputs.
    pub inputs: Vec<&'a IoTensor>,
    /// Outputs.
    pub outputs: Vec<&'a IoTensor>,
    /// `d_...` declarations of a backward pass, both inputs and outputs.
    pub gradients: Vec<&'a IoTensor>,
    /// The graph.
    pub graph: Option<&'a Graph>,
    /// The save list.
    pub save: Option<&'a NameList>,
    /// The recompute list.
    pub recompute: Option<&'a NameList>,
    /// Whether a part was omitted with `...`.
    pub elided: bool,
}

impl<'a> ModuleView<'a> {
    /// Creates the view of an item; `None` if it is not a declaration.
    pub fn new(program: &'a ModuleProgram, item: ItemRef) -> Option<ModuleView<'a>> {
        let decl = program.decl(item)?;
        let mut view = match parent(program, item, decl) {
            Some((parent_item, _)) if !ancestors(program, item).contains(&item) => {
                let mut view = ModuleView::new(program, parent_item)?;
                view.decl = decl;
                view.item = item;
                // Parameters with the same name in parent and child are bound together; other parents' parameters keep their defaults.
                let own: Vec<&str> = decl.params.iter().flatten().filter_map(param_name).collect();
                view.header.retain(|param| param_name(param).is_some_and(|name| !own.contains(&name)));
                view
            }
            _ => ModuleView {
                decl,
                item,
                header: Vec::new(),
                lets: Vec::new(),
                params: Vec::new(),
                constants: Vec::new(),
                forward: PassView::default(),
                backward: None,
                pattern: None,
                config: Vec::new(),
                mappings: Vec::new(),
                exports: Vec::new(),
                annotations: Vec::new(),
            },
        };
        let inherited = std::mem::take(&mut view.header);
        view.header = decl.params.iter().flatten().chain(&decl.attributes).chain(inherited).collect();
        let own = || {
            decl.sections.iter().flat_map(|section| match &section.kind {
                SectionKind::Annotations(list) => &list[..],
                _ => &[],
            })
        };
        view.annotations.retain(|(old, _)| !own().any(|note| note.name.name == old.name.name));
        view.annotations.extend(own().map(|note| (note, item.file)));
        for section in &decl.sections {
            match &section.kind {
                SectionKind::Let(items) => view.lets.extend(items),
                SectionKind::Params(_) if decl.kind == DeclKind::Primitive => {}
                SectionKind::Params(entries) => {
                    for entry in entries {
                        let name = entry.path.as_name().map(|name| &name.name);
                        view.params.retain(|old| name.is_none() || old.path.as_name().map(|n| &n.name) != name);
                        view.params.push(entry);
                    }
                }
                SectionKind::Constants(entries) => view.constants.extend(entries),
                SectionKind::Forward(pass) => view.forward.extend(pass),
                SectionKind::Backward(pass) => view.backward.get_or_insert_default().extend(pass),
                SectionKind::Pattern(pattern) => view.pattern = Some(pattern),
                SectionKind::HfConfig(entries) => merge(&mut view.config, entries),
                SectionKind::HfMapping(mappings) => put_first(&mut view.mappings, mappings),
                SectionKind::HfExport(mappings) => put_first(&mut view.exports, mappings),
                SectionKind::Elided => view.forward.elided = true,
                _ => {}
            }
        }
        Some(view)
    }
}

/// Merges entries of a configuration into inherited ones.
fn merge(old: &mut Vec<ConfigEntry>, new: &[ConfigEntry]) {
    for entry in new {
        let known = old.iter_mut().find(|old| old.key.name == entry.key.name);
        match (known, &entry.value) {
            (Some(ConfigEntry { value: ConfigValue::Map(old), .. }), ConfigValue::Map(new)) => merge(old, new),
            (Some(old), _) => *old = entry.clone(),
            (None, _) => old.push(entry.clone()),
        }
    }
}

/// A child's mappings, then those of its parent that it does not replace.
fn put_first<'a>(old: &mut Vec<&'a WeightMapping>, new: &'a [WeightMapping]) {
    let same = |a: &WeightPath, b: &WeightPath| {
        a.parts.len() == b.parts.len()
            && a.parts.iter().zip(&b.parts).all(|pair| match pair {
                (WeightPart::Field(a), WeightPart::Field(b)) => a.name == b.name,
                (WeightPart::Placeholder(_), WeightPart::Placeholder(_)) => true,
                (WeightPart::Index(a), WeightPart::Index(b)) => a.kind == b.kind,
                _ => false,
            })
    };
    old.retain(|old| !new.iter().any(|new| same(&old.path, &new.path)));
    *old = new.iter().chain(old.iter().copied()).collect();
}

impl<'a> PassView<'a> {
    fn extend(&mut self, pass: &'a Pass) {
        for item in &pass.items {
            match &item.kind {
                PassItemKind::In(spec) => self.inputs = spec.tensors.iter().collect(),
                PassItemKind::Out(spec) => self.outputs = spec.tensors.iter().collect(),
                PassItemKind::Inputs(tensors) => self.inputs = tensors.iter().collect(),
                PassItemKind::Outputs(tensors) => self.outputs = tensors.iter().collect(),
                PassItemKind::Gradients(tensors) => self.gradients.extend(tensors),
                PassItemKind::Graph(graph) => self.graph = Some(graph),
                PassItemKind::Save(names) => self.save = Some(names),
                PassItemKind::Recompute(names) => self.recompute = Some(names),
                PassItemKind::Impl(_) | PassItemKind::Rule { .. } => {}
                PassItemKind::Elided => self.elided = true,
            }
        }
    }
}

fn param_name(param: &Param) -> Option<&str> {
    match param {
        Param::Named { name, .. } => Some(&name.name),
        Param::Elided(_) => None,
    }
}

fn parent<'a>(program: &'a ModuleProgram, item: ItemRef, decl: &Decl) -> Option<(ItemRef, &'a Decl)> {
    match program.lookup(item.file, decl.extends.as_ref()?)? {
        Entity::Item(parent) => Some((parent, program.decl(parent)?)),
        _ => None,
    }
}

/// The names of other declarations in a declaration's parameters and graphs.
pub(super) fn names_used(decl: &Decl) -> Vec<String> {
    fn of_type(ty: &crate::ast::TypeExpr, found: &mut Vec<String>) {
        match &ty.kind {
            TypeKind::Named { path, .. } => found.push(path.to_string()),
            TypeKind::Array { element, .. } => of_type(element, found),
            TypeKind::Optional(inner) => of_type(inner, found),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for section in &decl.sections {
        match &section.kind {
            SectionKind::Params(entries) => entries.iter().for_each(|entry| of_type(&entry.ty, &mut found)),
            SectionKind::Forward(pass) | SectionKind::Backward(pass) => {
                let mut flows = Vec::new();
                crate::check::flatten(pass.graph().map_or(&[][..], |graph| &graph.statements), &mut flows);
                let calls = flows.into_iter().flat_map(crate::check::calls);
                for path in calls.map(|call| call.callee.path.to_string()) {
                    let base = path.strip_suffix("_backward").or_else(|| path.strip_suffix("Backward"));
                    found.extend(base.map(str::to_string));
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    found
}

/// The chain of parents, nearest first; stops at a cycle.
pub(super) fn ancestors(program: &ModuleProgram, item: ItemRef) -> Vec<ItemRef> {
    let mut chain = Vec::new();
    let mut current = item;
    while let Some((next, _)) = program.decl(current).and_then(|decl| parent(program, current, decl)) {
        let repeats = chain.contains(&next);
        chain.push(next);
        if repeats {
            break;
        }
        current = next;
    }
    chain
}

/// Checks the parent of a declaration (E002, E011).
pub(super) fn check(program: &ModuleProgram, item: ItemRef, decl: &Decl, found: &mut Vec<Diagnostic>) {
    let Some(path) = &decl.extends else { return };
    let Some((parent_item, parent_decl)) = parent(program, item, decl) else {
        let known = program.files[item.file].scope.keys().map(|name| &**name);
        let mut missing = Diagnostic::new(Code::E002, path.span(), format!("no module named `{path}`"))
            .with_label("not declared and not imported");
        if let Some(close) = closest(&path.to_string(), known) {
            missing = missing.with_hint(format!("did you mean `{close}`?"));
        }
        return found.push(missing);
    };
    if ancestors(program, item).contains(&item) {
        return found.push(
            Diagnostic::new(Code::E011, path.span(), format!("`{}` extends itself", decl.name.name))
                .with_label("this leads back to it"),
        );
    }
    let fits = matches!(
        (decl.kind, parent_decl.kind),
        (DeclKind::Module | DeclKind::AbstractModule, DeclKind::Module | DeclKind::AbstractModule)
            | (DeclKind::Block, DeclKind::Block | DeclKind::Module | DeclKind::AbstractModule)
            | (DeclKind::Model, DeclKind::Model)
    );
    if !fits {
        let (child, parent) = (decl.kind.keyword(), parent_decl.kind.keyword());
        return found.push(
            Diagnostic::new(Code::E011, path.span(), format!("a {child} cannot extend a {parent}"))
                .with_label("not a module")
                .with_secondary(parent_decl.name.span, "declared here"),
        );
    }
    let Some(parent_view) = ModuleView::new(program, parent_item) else {
        return;
    };
    check_params(program, decl, &parent_view, found);
    let concrete = decl.kind != DeclKind::AbstractModule;
    if let Some(view) = ModuleView::new(program, item)
        && concrete
        && view.forward.graph.is_none()
        && view.pattern.is_none()
        && !view.forward.elided
    {
        found.push(
            Diagnostic::new(Code::E011, decl.name.span, format!("`{}` has no graph", decl.name.name))
                .with_label(format!("`{path}` is abstract, so `forward` must be defined here"))
                .with_hint("write `forward:` with a `graph:`, or declare it `abstract module`"),
        );
    }
}

/// A parameter of the child must be new (`+name`), or have the inherited type.
fn check_params(program: &ModuleProgram, decl: &Decl, parent: &ModuleView<'_>, found: &mut Vec<Diagnostic>) {
    let entries = decl.sections.iter().filter_map(|section| match &section.kind {
        SectionKind::Params(entries) => Some(entries),
        _ => None,
    });
    for entry in entries.flatten() {
        let Some(name) = entry.path.as_name() else { continue };
        let inherited = parent.params.iter().find(|old| old.path.as_name().is_some_and(|n| n.name == name.name));
        let text = |entry: &ParamEntry| program.sources.slice(entry.ty.span).split_whitespace().collect::<String>();
        match inherited {
            Some(old) if entry.adds || text(old) != text(entry) => {
                let message = format!("`{}` is inherited with another type", name.name);
                let message = if entry.adds { format!("`+{}` is inherited already", name.name) } else { message };
                found.push(
                    Diagnostic::new(Code::E011, entry.span, message)
                        .with_label("redefined here")
                        .with_secondary(old.span, "inherited from here")
                        .with_hint("remove it, or choose another name"),
                );
            }
            _ => {}
        }
    }
}
