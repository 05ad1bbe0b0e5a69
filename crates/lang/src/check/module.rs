//! Checks one declaration under one set of assumptions: constraints, parameters, forward, backward.

use super::annotation_table::AnnotationTarget;
use super::annotations;
use super::graph::{GraphChecker, GraphEntry, ModuleInstance, OpenCondition};
use super::scope::ConstantScope;
use super::types::TensorType;
use super::{ModuleVariant, backward, memory};
use crate::ast::{
    Annotation, DeclKind, DimExpr, Expr, LetItem, Param, ParamEntry, Section, SectionKind, TypeExpr, TypeKind,
    WeightPart,
};
use crate::consteval::{ConstValue, Ternary, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::{Dim, Symbol};
use crate::resolve::{Entity, ModuleProgram, ModuleView};
use crate::span::Span;
use crate::suggest::closest;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check_variant(
    program: &ModuleProgram,
    view: &ModuleView<'_>,
    assumptions: BTreeMap<String, bool>,
    found: &mut Vec<Diagnostic>,
) -> Result<ModuleVariant, OpenCondition> {
    let scope = ConstantScope::for_module(view, 0, BTreeMap::new(), assumptions.clone());
    if let Some(condition) = scope.undecided.take() {
        return Err(OpenCondition(condition));
    }
    let mut checker = GraphChecker::new(program, view.item.file, scope);
    checker.check_constraints(&view.lets, None);
    checker.check_defaults(view);
    checker.bind_params(view)?;
    checker.declare_io(view);
    checker.check_inputs_are_tensors(view);
    let elided = view.forward.elided;
    if let Some(graph) = view.forward.graph {
        checker.graph(&graph.statements, Code::E007)?;
        checker.check_outputs(view, graph.span);
    }
    if elided {
        checker.report_elided(view.decl.name.span, "the body");
    }
    if view.decl.kind == DeclKind::Block && view.pattern.is_some() {
        checker.check_pattern(view);
    }
    let forward = checker.tensor_types();
    memory::check(&mut checker, view);
    let backward = match &view.backward {
        Some(pass) if view.forward.graph.is_some() => backward::check(&mut checker, view, pass)?,
        _ => BTreeMap::new(),
    };
    let notes: Vec<Annotation> = view.decl.sections.iter().flat_map(annotations_of).cloned().collect();
    annotations::check(&notes, AnnotationTarget::Declaration, &checker.scope, &mut checker.diagnostics);
    checker.check_recipes(&notes);
    checker.check_preserved_in_body(view, &notes);
    let exact = std::mem::take(&mut checker.exact_divisions);
    found.append(&mut checker.scope.diagnostics);
    found.append(&mut checker.diagnostics);
    Ok(ModuleVariant { assumptions, forward, backward, exact_divisions: exact })
}

fn annotations_of(section: &Section) -> &[Annotation] {
    match &section.kind {
        SectionKind::Annotations(list) => list,
        _ => &[],
    }
}

impl GraphChecker<'_> {
    /// Checks that the tensors which a checkpoint of the whole body preserves are defined in it.
    fn check_preserved_in_body(&mut self, view: &ModuleView<'_>, notes: &[Annotation]) {
        let args =
            notes.iter().filter(|note| note.name.name == "checkpoint").flat_map(|note| note.args.iter().flatten());
        let lists = args.filter(|arg| arg.name.as_ref().is_some_and(|name| name.name == "preserve"));
        let items: Vec<&Expr> = lists.flat_map(|arg| annotations::list_items(&arg.value)).collect();
        if items.is_empty() {
            return;
        }
        let mut flows = Vec::new();
        super::reachability::flatten(view.forward.graph.map_or(&[][..], |graph| &graph.statements), &mut flows);
        let mut known: BTreeSet<String> = BTreeSet::new();
        for flow in flows {
            known.extend(flow.dest.items.iter().filter_map(|item| item.name.as_ref()).map(ToString::to_string));
            known.extend(self.reachable_names(flow).tensors);
        }
        for item in items {
            if let Some(name) = annotations::string_value(item).filter(|name| !known.contains(*name)) {
                let mut found = Diagnostic::new(Code::E002, item.span, format!("no tensor named `{name}`"))
                    .with_label("the body does not compute it");
                if let Some(close) = closest(name, known.iter().map(String::as_str)) {
                    found = found.with_hint(format!("did you mean `{close}`?"));
                }
                self.diagnostics.push(found);
            }
        }
    }

    /// Inputs must be tensors: a number is a parameter in the header.
    fn check_inputs_are_tensors(&mut self, view: &ModuleView<'_>) {
        for input in &view.forward.inputs {
            let Some(TypeKind::Named { path, args: None }) = input.ty.as_ref().map(|ty| &ty.kind) else { continue };
            let kind = path.to_string();
            if !matches!(kind.as_str(), "int" | "float" | "bool" | "string") {
                continue;
            }
            let name = input.name.as_ref().map_or("n", |name| &name.name);
            self.diagnostics.push(
                Diagnostic::new(Code::L001, input.span, format!("an input of type {kind} is not supported yet"))
                    .with_label("inputs are tensors")
                    .with_hint(format!("put it between the parentheses: `{}({name}: {kind})`", view.decl.name.name)),
            );
        }
    }

    /// `@recipe(Name)` must name a recipe in scope.
    fn check_recipes(&mut self, list: &[Annotation]) {
        for annotation in list.iter().filter(|annotation| annotation.name.name == "recipe") {
            let Some(arg) = annotation.args.iter().flatten().next() else {
                continue;
            };
            let entity = arg.value.as_path().and_then(|path| self.program.lookup(self.file, &path));
            let recipe = match entity {
                Some(Entity::Item(item)) => self.program.recipe(item),
                _ => None,
            };
            if recipe.is_none() {
                let name = self.program.sources.slice(arg.value.span);
                let mut missing = Diagnostic::new(Code::E002, arg.value.span, format!("no recipe named `{name}`"))
                    .with_label("not declared and not imported");
                let scope = &self.program.files[self.file].scope;
                if let Some(close) = closest(name, scope.keys().map(|s| &**s)) {
                    missing = missing.with_hint(format!("did you mean `{close}`?"));
                }
                self.diagnostics.push(missing);
            }
        }
    }

    /// Decided constraints must be true; open ones are checked when sizes are known. `at` is the call that gave the sizes.
    pub(super) fn check_constraints(&mut self, lets: &[&LetItem], at: Option<(Span, &ConstantScope)>) {
        for item in lets {
            let LetItem::Constraints(constraints, _) = item else {
                continue;
            };
            for constraint in constraints {
                let scope = at.map_or(&self.scope, |(_, scope)| scope);
                let condition = &constraint.condition;
                let finding = match eval(condition, scope) {
                    Ok(ConstValue::Bool(Ternary::Known(false))) => {
                        let span = at.map_or(condition.span, |(span, _)| span);
                        let shown = self.program.sources.slice(condition.span).to_string();
                        let mut violated = Diagnostic::new(Code::E027, span, constraint.message.value.clone())
                            .with_label(format!("violates `{shown}`"));
                        if at.is_some() {
                            violated = violated.with_secondary(condition.span, "the constraint");
                        }
                        violated
                    }
                    Ok(ConstValue::Bool(_) | ConstValue::Unknown) => continue,
                    _ if at.is_some() => continue,
                    Ok(other) => Diagnostic::new(Code::E026, condition.span, "a constraint must be true or false")
                        .with_label(format!("this is {}", other.kind())),
                    Err(error) => self.scope.eval_diagnostic(error, Code::E026),
                };
                self.diagnostics.push(finding);
            }
        }
    }

    /// Checks the defaults against their parameters' types.
    fn check_defaults(&mut self, view: &ModuleView<'_>) {
        for param in &view.header {
            if let Param::Named { name, ty: Some(ty), default: Some(default), .. } = param {
                let value = self.scope.constant(default);
                self.check_kind(&name.name, ty, &value, default.span);
            }
            if let Param::Elided(span) = param {
                self.report_elided(*span, "parameters");
            }
        }
    }

    /// Whether a value has the declared type; reports an error if not (E003).
    pub(super) fn check_kind(&mut self, name: &str, ty: &TypeExpr, value: &ConstValue, span: Span) -> bool {
        let expected = match &ty.kind {
            TypeKind::Optional(_) if *value == ConstValue::None => return true,
            TypeKind::Optional(inner) => return self.check_kind(name, inner, value, span),
            TypeKind::Named { path, args } => match (path.to_string().as_str(), args, value) {
                (_, _, ConstValue::Unknown) => return true,
                ("int", None, ConstValue::Int(_)) | ("float", None, ConstValue::Float(_) | ConstValue::Int(_)) => {
                    return true;
                }
                ("bool", None, ConstValue::Bool(_))
                | ("string", None, ConstValue::Str(_) | ConstValue::Identifier(_)) => return true,
                ("dtype", None, ConstValue::Identifier(word)) if crate::ast::DTYPE_NAMES.contains(&word.as_str()) => {
                    return true;
                }
                ("enum", Some(words), ConstValue::Identifier(word) | ConstValue::Str(word)) => {
                    if words.iter().any(|arg| arg.value.as_name() == Some(word)) {
                        return true;
                    }
                    let words: Vec<&str> = words.iter().filter_map(|arg| arg.value.as_name()).collect();
                    format!("one of {}", words.join(", "))
                }
                ("int" | "float" | "bool" | "string" | "dtype", None, _) => {
                    let article = if path.to_string() == "int" { "an" } else { "a" };
                    format!("{article} {path}")
                }
                ("enum", Some(words), _) => {
                    let words: Vec<&str> = words.iter().filter_map(|arg| arg.value.as_name()).collect();
                    format!("one of {}", words.join(", "))
                }
                _ => return true,
            },
            TypeKind::Tensor { .. } if matches!(value, ConstValue::List(_) | ConstValue::Unknown) => return true,
            TypeKind::Tensor { .. } => "a list".to_string(),
            _ => return true,
        };
        self.diagnostics.push(Diagnostic::new(Code::E003, span, format!("`{name}` must be {expected}")).with_label(
            format!(
                "this is {}",
                if let ConstValue::Identifier(w) = value { format!("`{w}`") } else { value.kind().to_string() }
            ),
        ));
        false
    }

    /// Binds the entries of `params:` and `constants:`.
    fn bind_params(&mut self, view: &ModuleView<'_>) -> Result<(), OpenCondition> {
        for entry in view.params.iter().filter(|entry| entry.path.as_name().is_some()) {
            let Some(name) = entry.path.as_name() else { continue };
            let value = self.param_entry(entry)?;
            annotations::check(&entry.annotations, AnnotationTarget::Parameter, &self.scope, &mut self.diagnostics);
            self.param_annotations(&entry.annotations, &entry.ty, &value);
            self.define_quietly(&name.name, value, entry.span);
            self.params.insert(name.name.clone());
        }
        // Longer paths annotate a parameter of a contained module (§7.8).
        for entry in view.params.iter().filter(|entry| entry.path.as_name().is_none()) {
            annotations::check(&entry.annotations, AnnotationTarget::Parameter, &self.scope, &mut self.diagnostics);
            self.inner_entry(view, entry)?;
        }
        for entry in &view.constants {
            annotations::check(&entry.annotations, AnnotationTarget::Constant, &self.scope, &mut self.diagnostics);
            self.define_quietly(&entry.name.name, GraphEntry::Tensor(TensorType::default()), entry.name.span);
            self.params.insert(entry.name.name.clone());
        }
        Ok(())
    }

    /// Rejects annotations that are invalid for a parameter of this type.
    fn param_annotations(&mut self, notes: &[Annotation], ty: &TypeExpr, entry: &GraphEntry) {
        for note in notes {
            let name = note.name.name.as_str();
            if let TypeKind::TiedTo(path) = &ty.kind {
                self.diagnostics.push(
                    Diagnostic::new(Code::E008, note.span, format!("`@{name}` on a tied parameter"))
                        .with_label("the parameter is tied")
                        .with_hint(format!("put it on `{path}`")),
                );
            } else if name == "gradient" && matches!(entry, GraphEntry::Instance(_) | GraphEntry::Instances(..)) {
                self.diagnostics.push(
                    Diagnostic::new(Code::E008, note.span, "`@gradient` is not allowed on a module")
                        .with_label("it applies to one tensor")
                        .with_hint("`@frozen` applies to all parameters of the module"),
                );
            }
        }
        let stored = annotations::dtype(notes).or_else(|| annotations::storage(notes));
        let declared = match &ty.kind {
            TypeKind::Tensor { dtype, .. } => dtype.as_ref().map(|name| name.name.clone()),
            _ => None,
        };
        let few = |name: &Option<String>| {
            name.as_deref().is_some_and(|name| transform::LowPrecision::from_name(name).is_some())
        };
        let declared_few = declared.as_deref().is_some_and(crate::lower::is_low_precision_dtype);
        if let Some(note) = notes.iter().find(|note| note.name.name == "scaling")
            && !(few(&stored) || stored.is_none() && declared_few)
            && matches!(ty.kind, TypeKind::Tensor { .. } | TypeKind::Optional(_))
        {
            self.diagnostics.push(
                Diagnostic::new(Code::E008, note.span, "`@scaling` of a tensor that is not quantized")
                    .with_label("no low-precision dtype is given with it")
                    .with_hint("write `@dtype(fp8_e4m3) @scaling(...)`, or remove it"),
            );
        }
        // Low-precision storage has scales.
        if let Some(format) = stored.filter(|format| format == "int32")
            && !declared.is_some_and(|dtype| super::types::is_integer(&dtype))
        {
            let at = notes.iter().find(|note| matches!(note.name.name.as_str(), "dtype" | "precision"));
            self.diagnostics.push(
                Diagnostic::new(
                    Code::L001,
                    at.map_or(ty.span, |note| note.span),
                    format!("a weight cannot be stored as {format}"),
                )
                .with_label("fractions would be lost, because it has no scale")
                .with_hint("use bf16, fp16, fp32, or a low-precision format"),
            );
        }
    }

    /// `blocks[{i}].attention.qkv_weight: [...] @frozen`: the path must name a parameter of the same type.
    fn inner_entry(&mut self, view: &ModuleView<'_>, entry: &ParamEntry) -> Result<(), OpenCondition> {
        if let Some(condition) = &entry.condition {
            self.guard(condition)?;
        }
        let before = self.diagnostics.len();
        super::weights::check_path(self.program, view, &entry.path, Code::E002, &mut self.diagnostics);
        if self.diagnostics.len() > before {
            return Ok(());
        }
        let mut refuse = |span, message: &str, label: &str, hint: &str| {
            self.diagnostics.push(Diagnostic::new(Code::E008, span, message).with_label(label).with_hint(hint));
        };
        if !matches!(entry.path.parts.last(), Some(WeightPart::Field(_))) {
            refuse(
                entry.path.span,
                "the path ends in an index",
                "not a parameter",
                "annotate the array, or name a parameter in it",
            );
        } else if entry.adds || entry.default.is_some() || entry.path.optional {
            refuse(
                entry.span,
                "a parameter of a module inside is declared there",
                "only annotations can be added",
                "write `path: [...] @frozen`",
            );
        } else if entry.annotations.is_empty() {
            refuse(
                entry.span,
                "the entry has no annotation",
                "no annotation",
                "write `path: [...] @frozen`, or remove the entry",
            );
        }
        let names = entry.path.parts.iter().filter_map(|part| match part {
            WeightPart::Field(name) => Some(name.clone()),
            _ => None,
        });
        let path = crate::ast::Path { parts: names.collect() };
        let inner = self.path_entry(&path);
        let elided = matches!(&entry.ty.kind, TypeKind::Tensor { dims, .. } if dims.iter().any(|d| matches!(d, DimExpr::Elided(_))));
        if let (Some(GraphEntry::Tensor(inner)), false) = (&inner, elided) {
            let stated = self.scope.tensor(&entry.ty).unwrap_or_default();
            if let (Some(have), Some(want)) = (&stated.shape, &inner.shape)
                && !have.equal(want)
            {
                self.diagnostics.push(
                    Diagnostic::new(Code::E004, entry.ty.span, format!("`{path}` has another shape"))
                        .with_label(format!("stated as {have}, declared as {want}"))
                        .with_hint("write `[...]`: the type is declared inside"),
                );
            }
        } else if !elided && inner.is_some() {
            self.diagnostics.push(
                Diagnostic::new(Code::E003, entry.ty.span, format!("`{path}` is a module"))
                    .with_label("write `[...]` here"),
            );
        }
        if let Some(inner) = inner {
            self.param_annotations(&entry.annotations, &entry.ty, &inner);
        }
        Ok(())
    }

    pub(super) fn param_entry(&mut self, entry: &ParamEntry) -> Result<GraphEntry, OpenCondition> {
        if let Some(condition) = &entry.condition
            && !self.guard(condition)?
        {
            return Ok(GraphEntry::Absent);
        }
        let mut value = self.param_type(&entry.ty);
        if let (GraphEntry::Tensor(ty), Some(dtype)) = (&mut value, annotations::dtype(&entry.annotations)) {
            ty.dtype = Some(dtype);
        }
        Ok(value)
    }

    fn param_type(&mut self, ty: &TypeExpr) -> GraphEntry {
        match &ty.kind {
            TypeKind::Tensor { .. } => GraphEntry::Tensor(self.scope.tensor(ty).unwrap_or_default()),
            TypeKind::Optional(inner) => self.param_type(inner),
            TypeKind::TiedTo(path) => match self.path_entry(path) {
                Some(entry) => entry,
                None => {
                    self.undefined(path.span(), &path.to_string(), "no parameter");
                    GraphEntry::Tensor(TensorType::default())
                }
            },
            TypeKind::Array { length: written, element } => {
                let length = self.scope.dim(written);
                if let Some(count) = length.as_ref().and_then(Dim::as_constant)
                    && (count < 0 || count > crate::lower::MAX_MODULES as i64)
                {
                    let finding = Diagnostic::new(Code::L008, written.span, format!("an array of {count} modules"));
                    self.diagnostics.push(match count < 0 {
                        true => Diagnostic::new(Code::E003, written.span, format!("an array of {count} modules"))
                            .with_label("the length must not be negative"),
                        false => finding
                            .with_label(format!("at most {} modules are lowered", crate::lower::MAX_MODULES))
                            .with_hint("make the array smaller"),
                    });
                }
                self.scope.enter_array();
                let found = self.param_type(element);
                self.scope.leave_array();
                match found {
                    GraphEntry::Instance(instance) => GraphEntry::Instances(instance, length),
                    other => other,
                }
            }
            TypeKind::Named { path, args } => {
                let Some(Entity::Item(item)) = self.program.lookup(self.file, path) else {
                    let mut missing = Diagnostic::new(Code::E002, path.span(), format!("no module named `{path}`"))
                        .with_label("not declared and not imported");
                    let scope = &self.program.files[self.file].scope;
                    if let Some(close) = closest(&path.to_string(), scope.keys().map(|s| &**s)) {
                        missing = missing.with_hint(format!("did you mean `{close}`?"));
                    }
                    self.diagnostics.push(missing);
                    return GraphEntry::Tensor(TensorType::default());
                };
                let given = self.instance_arguments(item, args.as_deref().unwrap_or_default(), ty.span);
                GraphEntry::Instance(ModuleInstance { item, given })
            }
            TypeKind::Tuple(_) | TypeKind::Each { .. } => GraphEntry::Tensor(TensorType::default()),
        }
    }

    fn declare_io(&mut self, view: &ModuleView<'_>) {
        for tensor in &view.forward.inputs {
            annotations::check(&tensor.annotations, AnnotationTarget::Input, &self.scope, &mut self.diagnostics);
            let name = tensor.name.as_ref().map_or("in", |name| &name.name).to_string();
            let mut ty = self.scope.io_tensor(tensor);
            ty.dtype = annotations::dtype(&tensor.annotations).or(ty.dtype);
            self.define_quietly(&name, GraphEntry::Tensor(ty), tensor.span);
        }
    }

    /// Checks that every declared output is computed with the declared shape.
    fn check_outputs(&mut self, view: &ModuleView<'_>, graph: Span) {
        let elided = self.elided;
        // Dimensions that occur only in outputs, such as a number of routed tokens, are inferred from the graph.
        let first_free = self.scope.dimension_count();
        let mut free: BTreeMap<Symbol, Dim> = BTreeMap::new();
        for tensor in &view.forward.outputs {
            annotations::check(&tensor.annotations, AnnotationTarget::Result, &self.scope, &mut self.diagnostics);
            let name = tensor.name.as_ref().map_or("out", |name| &name.name).to_string();
            let mut declared = self.scope.io_tensor(tensor);
            let said = annotations::dtype(&tensor.annotations);
            let explicit = said.is_some() || annotations::has(&tensor.annotations, "scaling");
            declared.dtype = said.or(declared.dtype);
            if let Some(GraphEntry::Tensor(TensorType { shape: Some(have), .. })) =
                self.entries.get(&name).map(|d| &d.entry)
                && let Some(want) = &mut declared.shape
            {
                for (dim, found) in want.dims.iter_mut().zip(&have.dims) {
                    if let Some(symbol) = dim.as_symbol().filter(|s| self.scope.named_since(s, first_free)) {
                        *dim = free.entry(symbol.clone()).or_insert_with(|| found.clone()).clone();
                    }
                }
            }
            match self.entries.get(&name).cloned() {
                Some(defined) => {
                    let GraphEntry::Tensor(computed) = &defined.entry else {
                        continue;
                    };
                    self.check_output(&name, &declared, computed, tensor.span, defined.span, explicit);
                    if computed.shape.is_none() {
                        self.define_quietly(&name, GraphEntry::Tensor(declared), defined.span);
                    }
                }
                None if !elided => self.diagnostics.push(
                    Diagnostic::new(Code::E002, tensor.span, format!("output `{name}` is never computed"))
                        .with_label("declared here")
                        .with_secondary(Span { end: graph.start + 5, ..graph }, "not a destination of this graph"),
                ),
                None => {}
            }
        }
    }

    fn check_output(
        &mut self,
        name: &str,
        declared: &TensorType,
        computed: &TensorType,
        at: Span,
        made: Span,
        explicit: bool,
    ) {
        if let (Some(want), Some(have)) = (&declared.shape, &computed.shape) {
            self.note_exactness(want, have);
            if !want.equal(have) {
                self.diagnostics.push(
                    Diagnostic::new(Code::E004, made, format!("`{name}` does not have its declared shape"))
                        .with_label(format!("computed as {have}"))
                        .with_secondary(at, format!("declared as {want}")),
                );
            }
        }
        if let (Some(want), Some(have)) = (&declared.dtype, &computed.dtype)
            && let (Some(wide), Some(narrow)) = (super::types::float_bits(have), super::types::float_bits(want))
            && narrow < wide
            && !explicit
        {
            // Low-precision types need scales, so they are never converted implicitly (§7.4.4).
            let code = if narrow < 16 { Code::E015 } else { Code::W005 };
            self.diagnostics.push(
                Diagnostic::new(code, made, format!("`{name}` is rounded from {have} to {want}"))
                    .with_label(format!("computed in {have}"))
                    .with_secondary(at, format!("declared as {want}"))
                    .with_hint(format!("write `@dtype({want})` after the destination to make this explicit")),
            );
        }
    }

    /// The sublayers of a residual pattern must be parameters.
    fn check_pattern(&mut self, view: &ModuleView<'_>) {
        let Some(pattern) = view.pattern else { return };
        if !matches!(pattern.kind.name.as_str(), "sequential_residual" | "parallel_residual") {
            self.diagnostics.push(
                Diagnostic::new(
                    Code::L001,
                    pattern.kind.span,
                    format!("pattern `{}` is not supported yet", pattern.kind.name),
                )
                .with_label("`sequential_residual` and `parallel_residual` are"),
            );
        }
        for path in pattern.sublayers.iter().flatten() {
            if self.path_entry(path).is_none() {
                self.undefined(path.span(), &path.to_string(), "no parameter");
            }
        }
    }
}
