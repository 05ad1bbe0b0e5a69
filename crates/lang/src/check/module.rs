//! One declaration under one set of assumptions: constraints, parameters, forward, backward.

use super::annotation_table::Place;
use super::annotations;
use super::graph::{Entry, GraphChecker, Instance, Undecided};
use super::scope::Scope;
use super::types::TensorType;
use super::{Variant, backward, memory};
use crate::ast::{
    Annotation, DeclKind, DimExpr, Expr, LetItem, Param, ParamEntry, Section, SectionKind, TypeExpr, TypeKind,
    WeightPart,
};
use crate::consteval::{Truth, Value, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::{Dim, Symbol};
use crate::resolve::{Entity, ModuleView, Program};
use crate::span::Span;
use crate::suggest::closest;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check_variant(
    program: &Program,
    view: &ModuleView<'_>,
    assumptions: BTreeMap<String, bool>,
    found: &mut Vec<Diagnostic>,
) -> Result<Variant, Undecided> {
    let scope = Scope::of_module(view, 0, BTreeMap::new(), assumptions.clone());
    if let Some(condition) = scope.undecided.take() {
        return Err(Undecided(condition));
    }
    let mut checker = GraphChecker::new(program, view.item.file, scope);
    checker.constraints(&view.lets, None);
    checker.defaults(view);
    checker.params(view)?;
    checker.declare_io(view);
    checker.numbers(view);
    let elided = view.forward.elided;
    if let Some(graph) = view.forward.graph {
        checker.graph(&graph.statements, Code::E007)?;
        checker.outputs(view, graph.span);
    }
    if elided {
        checker.left_out(view.decl.name.span, "the body");
    }
    if view.decl.kind == DeclKind::Block && view.pattern.is_some() {
        checker.pattern(view);
    }
    let forward = checker.tensor_types();
    memory::check(&mut checker, view);
    let backward = match &view.backward {
        Some(pass) if view.forward.graph.is_some() => backward::check(&mut checker, view, pass)?,
        _ => BTreeMap::new(),
    };
    let notes: Vec<Annotation> = view.decl.sections.iter().flat_map(annotations_of).cloned().collect();
    annotations::check(&notes, Place::Declaration, &checker.scope, &mut checker.diagnostics);
    checker.recipes(&notes);
    checker.kept_in_body(view, &notes);
    let exact = std::mem::take(&mut checker.exact);
    found.append(&mut checker.scope.diagnostics);
    found.append(&mut checker.diagnostics);
    Ok(Variant { assumptions, forward, backward, exact })
}

fn annotations_of(section: &Section) -> &[Annotation] {
    match &section.kind {
        SectionKind::Annotations(list) => list,
        _ => &[],
    }
}

impl GraphChecker<'_> {
    /// What a checkpoint of the whole body preserves is in it.
    fn kept_in_body(&mut self, view: &ModuleView<'_>, notes: &[Annotation]) {
        let args =
            notes.iter().filter(|note| note.name.name == "checkpoint").flat_map(|note| note.args.iter().flatten());
        let lists = args.filter(|arg| arg.name.as_ref().is_some_and(|name| name.name == "preserve"));
        let items: Vec<&Expr> = lists.flat_map(|arg| annotations::items(&arg.value)).collect();
        if items.is_empty() {
            return;
        }
        let mut flows = Vec::new();
        super::reach::flatten(view.forward.graph.map_or(&[][..], |graph| &graph.statements), &mut flows);
        let mut known: BTreeSet<String> = BTreeSet::new();
        for flow in flows {
            known.extend(flow.dest.items.iter().filter_map(|item| item.name.as_ref()).map(ToString::to_string));
            known.extend(self.reach(flow).tensors);
        }
        for item in items {
            if let Some(name) = annotations::text(item).filter(|name| !known.contains(*name)) {
                let mut found = Diagnostic::new(Code::E002, item.span, format!("no tensor named `{name}`"))
                    .label("the body does not compute it");
                if let Some(close) = closest(name, known.iter().map(String::as_str)) {
                    found = found.hint(format!("did you mean `{close}`?"));
                }
                self.diagnostics.push(found);
            }
        }
    }

    /// Inputs are tensors: a number that a graph needs is a parameter of the header.
    fn numbers(&mut self, view: &ModuleView<'_>) {
        for input in &view.forward.inputs {
            let Some(TypeKind::Named { path, args: None }) = input.ty.as_ref().map(|ty| &ty.kind) else { continue };
            let kind = path.to_string();
            if !matches!(kind.as_str(), "int" | "float" | "bool" | "string") {
                continue;
            }
            let name = input.name.as_ref().map_or("n", |name| &name.name);
            self.diagnostics.push(
                Diagnostic::new(Code::L001, input.span, format!("an input of type {kind} is not supported yet"))
                    .label("inputs are tensors")
                    .hint(format!("put it between the parentheses: `{}({name}: {kind})`", view.decl.name.name)),
            );
        }
    }

    /// `@recipe(Name)` names a recipe in reach.
    fn recipes(&mut self, list: &[Annotation]) {
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
                    .label("not declared and not imported");
                let scope = &self.program.files[self.file].scope;
                if let Some(close) = closest(name, scope.keys().map(|s| &**s)) {
                    missing = missing.hint(format!("did you mean `{close}`?"));
                }
                self.diagnostics.push(missing);
            }
        }
    }

    /// Constraints that are decided must hold; open ones wait for sizes. `at` is the call that gave the sizes.
    pub(super) fn constraints(&mut self, lets: &[&LetItem], at: Option<(Span, &Scope)>) {
        for item in lets {
            let LetItem::Constraints(constraints, _) = item else {
                continue;
            };
            for constraint in constraints {
                let scope = at.map_or(&self.scope, |(_, scope)| scope);
                let condition = &constraint.condition;
                let finding = match eval(condition, scope) {
                    Ok(Value::Bool(Truth::Known(false))) => {
                        let span = at.map_or(condition.span, |(span, _)| span);
                        let shown = self.program.sources.slice(condition.span).to_string();
                        let mut violated = Diagnostic::new(Code::E027, span, constraint.message.value.clone())
                            .label(format!("violates `{shown}`"));
                        if at.is_some() {
                            violated = violated.also(condition.span, "the constraint");
                        }
                        violated
                    }
                    Ok(Value::Bool(_) | Value::Unknown) => continue,
                    _ if at.is_some() => continue,
                    Ok(other) => Diagnostic::new(Code::E026, condition.span, "a constraint must be true or false")
                        .label(format!("this is {}", other.kind())),
                    Err(error) => self.scope.explain(error, Code::E026),
                };
                self.diagnostics.push(finding);
            }
        }
    }

    /// Defaults must be of their parameter's type.
    fn defaults(&mut self, view: &ModuleView<'_>) {
        for param in &view.header {
            if let Param::Named { name, ty: Some(ty), default: Some(default), .. } = param {
                let value = self.scope.constant(default);
                self.check_kind(&name.name, ty, &value, default.span);
            }
            if let Param::Elided(span) = param {
                self.left_out(*span, "parameters");
            }
        }
    }

    /// Whether a value is of a declared type; reports if not (E003).
    pub(super) fn check_kind(&mut self, name: &str, ty: &TypeExpr, value: &Value, span: Span) -> bool {
        let expected = match &ty.kind {
            TypeKind::Optional(_) if *value == Value::None => return true,
            TypeKind::Optional(inner) => return self.check_kind(name, inner, value, span),
            TypeKind::Named { path, args } => match (path.to_string().as_str(), args, value) {
                (_, _, Value::Unknown) => return true,
                ("int", None, Value::Int(_)) | ("float", None, Value::Float(_) | Value::Int(_)) => return true,
                ("bool", None, Value::Bool(_)) | ("string", None, Value::Str(_) | Value::Word(_)) => return true,
                ("dtype", None, Value::Word(word)) if crate::ast::DTYPE_NAMES.contains(&word.as_str()) => return true,
                ("enum", Some(words), Value::Word(word) | Value::Str(word)) => {
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
            TypeKind::Tensor { .. } if matches!(value, Value::List(_) | Value::Unknown) => return true,
            TypeKind::Tensor { .. } => "a list".to_string(),
            _ => return true,
        };
        self.diagnostics.push(Diagnostic::new(Code::E003, span, format!("`{name}` must be {expected}")).label(
            format!("this is {}", if let Value::Word(w) = value { format!("`{w}`") } else { value.kind().to_string() }),
        ));
        false
    }

    /// Binds the entries of `params:` and `constants:`.
    fn params(&mut self, view: &ModuleView<'_>) -> Result<(), Undecided> {
        for entry in view.params.iter().filter(|entry| entry.path.as_name().is_some()) {
            let Some(name) = entry.path.as_name() else { continue };
            let value = self.param_entry(entry)?;
            annotations::check(&entry.annotations, Place::Parameter, &self.scope, &mut self.diagnostics);
            self.param_annotations(&entry.annotations, &entry.ty, &value);
            self.define_quietly(&name.name, value, entry.span);
            self.params.insert(name.name.clone());
        }
        // Longer paths say something about a parameter of a module inside (§7.8).
        for entry in view.params.iter().filter(|entry| entry.path.as_name().is_none()) {
            annotations::check(&entry.annotations, Place::Parameter, &self.scope, &mut self.diagnostics);
            self.inner_entry(view, entry)?;
        }
        for entry in &view.constants {
            annotations::check(&entry.annotations, Place::Constant, &self.scope, &mut self.diagnostics);
            self.define_quietly(&entry.name.name, Entry::Tensor(TensorType::default()), entry.name.span);
            self.params.insert(entry.name.name.clone());
        }
        Ok(())
    }

    /// What annotations can't mean on a parameter of this type.
    fn param_annotations(&mut self, notes: &[Annotation], ty: &TypeExpr, entry: &Entry) {
        for note in notes {
            let name = note.name.name.as_str();
            if let TypeKind::TiedTo(path) = &ty.kind {
                self.diagnostics.push(
                    Diagnostic::new(Code::E008, note.span, format!("`@{name}` on a tied parameter"))
                        .label("the parameter is tied")
                        .hint(format!("put it on `{path}`")),
                );
            } else if name == "gradient" && matches!(entry, Entry::Instance(_) | Entry::Instances(..)) {
                self.diagnostics.push(
                    Diagnostic::new(Code::E008, note.span, "`@gradient` is not allowed on a module")
                        .label("it applies to one tensor")
                        .hint("`@frozen` applies to all parameters of the module"),
                );
            }
        }
        let stored = annotations::dtype(notes).or_else(|| annotations::storage(notes));
        let declared = match &ty.kind {
            TypeKind::Tensor { dtype, .. } => dtype.as_ref().map(|name| name.name.clone()),
            _ => None,
        };
        let few = |name: &Option<String>| name.as_deref().is_some_and(|name| transform::Few::named(name).is_some());
        let declared_few = declared.as_deref().is_some_and(crate::lower::is_few);
        if let Some(note) = notes.iter().find(|note| note.name.name == "scaling")
            && !(few(&stored) || stored.is_none() && declared_few)
            && matches!(ty.kind, TypeKind::Tensor { .. } | TypeKind::Optional(_))
        {
            self.diagnostics.push(
                Diagnostic::new(Code::E008, note.span, "`@scaling` of a tensor that is not quantized")
                    .label("no low-precision dtype is given with it")
                    .hint("write `@dtype(fp8_e4m3) @scaling(...)`, or remove it"),
            );
        }
        // Those of few bits have scales.
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
                .label("fractions would be lost, because it has no scale")
                .hint("use bf16, fp16, fp32, or a low-precision format"),
            );
        }
    }

    /// `blocks[{i}].attention.qkv_weight: [...] @frozen`: the path leads to a parameter, and the type is its own.
    fn inner_entry(&mut self, view: &ModuleView<'_>, entry: &ParamEntry) -> Result<(), Undecided> {
        if let Some(condition) = &entry.condition {
            self.guard(condition)?;
        }
        let before = self.diagnostics.len();
        super::weights::check_path(self.program, view, &entry.path, Code::E002, &mut self.diagnostics);
        if self.diagnostics.len() > before {
            return Ok(());
        }
        let mut refuse = |span, message: &str, label: &str, hint: &str| {
            self.diagnostics.push(Diagnostic::new(Code::E008, span, message).label(label).hint(hint));
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
        if let (Some(Entry::Tensor(inner)), false) = (&inner, elided) {
            let stated = self.scope.tensor(&entry.ty).unwrap_or_default();
            if let (Some(have), Some(want)) = (&stated.shape, &inner.shape)
                && !have.equal(want)
            {
                self.diagnostics.push(
                    Diagnostic::new(Code::E004, entry.ty.span, format!("`{path}` has another shape"))
                        .label(format!("stated as {have}, declared as {want}"))
                        .hint("write `[...]`: the type is declared inside"),
                );
            }
        } else if !elided && inner.is_some() {
            self.diagnostics.push(
                Diagnostic::new(Code::E003, entry.ty.span, format!("`{path}` is a module")).label("write `[...]` here"),
            );
        }
        if let Some(inner) = inner {
            self.param_annotations(&entry.annotations, &entry.ty, &inner);
        }
        Ok(())
    }

    pub(super) fn param_entry(&mut self, entry: &ParamEntry) -> Result<Entry, Undecided> {
        if let Some(condition) = &entry.condition
            && !self.guard(condition)?
        {
            return Ok(Entry::Absent);
        }
        let mut value = self.param_type(&entry.ty);
        if let (Entry::Tensor(ty), Some(dtype)) = (&mut value, annotations::dtype(&entry.annotations)) {
            ty.dtype = Some(dtype);
        }
        Ok(value)
    }

    fn param_type(&mut self, ty: &TypeExpr) -> Entry {
        match &ty.kind {
            TypeKind::Tensor { .. } => Entry::Tensor(self.scope.tensor(ty).unwrap_or_default()),
            TypeKind::Optional(inner) => self.param_type(inner),
            TypeKind::TiedTo(path) => match self.path_entry(path) {
                Some(entry) => entry,
                None => {
                    self.undefined(path.span(), &path.to_string(), "no parameter");
                    Entry::Tensor(TensorType::default())
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
                            .label("the length must not be negative"),
                        false => finding
                            .label(format!("at most {} modules are lowered", crate::lower::MAX_MODULES))
                            .hint("make the array smaller"),
                    });
                }
                self.scope.enter_array();
                let found = self.param_type(element);
                self.scope.leave_array();
                match found {
                    Entry::Instance(instance) => Entry::Instances(instance, length),
                    other => other,
                }
            }
            TypeKind::Named { path, args } => {
                let Some(Entity::Item(item)) = self.program.lookup(self.file, path) else {
                    let mut missing = Diagnostic::new(Code::E002, path.span(), format!("no module named `{path}`"))
                        .label("not declared and not imported");
                    let scope = &self.program.files[self.file].scope;
                    if let Some(close) = closest(&path.to_string(), scope.keys().map(|s| &**s)) {
                        missing = missing.hint(format!("did you mean `{close}`?"));
                    }
                    self.diagnostics.push(missing);
                    return Entry::Tensor(TensorType::default());
                };
                let given = self.instance_arguments(item, args.as_deref().unwrap_or_default(), ty.span);
                Entry::Instance(Instance { item, given })
            }
            TypeKind::Tuple(_) | TypeKind::Each { .. } => Entry::Tensor(TensorType::default()),
        }
    }

    fn declare_io(&mut self, view: &ModuleView<'_>) {
        for tensor in &view.forward.inputs {
            annotations::check(&tensor.annotations, Place::Input, &self.scope, &mut self.diagnostics);
            let name = tensor.name.as_ref().map_or("in", |name| &name.name).to_string();
            let mut ty = self.scope.io_tensor(tensor);
            ty.dtype = annotations::dtype(&tensor.annotations).or(ty.dtype);
            self.define_quietly(&name, Entry::Tensor(ty), tensor.span);
        }
    }

    /// Every declared output must be computed, with the declared shape.
    fn outputs(&mut self, view: &ModuleView<'_>, graph: Span) {
        let elided = self.elided;
        // Dimensions that only outputs name, such as a count of routed tokens, are what the graph makes them.
        let first_free = self.scope.dimension_count();
        let mut free: BTreeMap<Symbol, Dim> = BTreeMap::new();
        for tensor in &view.forward.outputs {
            annotations::check(&tensor.annotations, Place::Result, &self.scope, &mut self.diagnostics);
            let name = tensor.name.as_ref().map_or("out", |name| &name.name).to_string();
            let mut declared = self.scope.io_tensor(tensor);
            let said = annotations::dtype(&tensor.annotations);
            let explicit = said.is_some() || annotations::has(&tensor.annotations, "scaling");
            declared.dtype = said.or(declared.dtype);
            if let Some(Entry::Tensor(TensorType { shape: Some(have), .. })) = self.entries.get(&name).map(|d| &d.entry)
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
                    let Entry::Tensor(computed) = &defined.entry else {
                        continue;
                    };
                    self.check_output(&name, &declared, computed, tensor.span, defined.span, explicit);
                    if computed.shape.is_none() {
                        self.define_quietly(&name, Entry::Tensor(declared), defined.span);
                    }
                }
                None if !elided => self.diagnostics.push(
                    Diagnostic::new(Code::E002, tensor.span, format!("output `{name}` is never computed"))
                        .label("declared here")
                        .also(Span { end: graph.start + 5, ..graph }, "not a destination of this graph"),
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
                        .label(format!("computed as {have}"))
                        .also(at, format!("declared as {want}")),
                );
            }
        }
        if let (Some(want), Some(have)) = (&declared.dtype, &computed.dtype)
            && let (Some(wide), Some(narrow)) = (super::types::float_bits(have), super::types::float_bits(want))
            && narrow < wide
            && !explicit
        {
            // Few bits need scales, which nobody gives without a word (§7.4.4).
            let code = if narrow < 16 { Code::E015 } else { Code::W005 };
            self.diagnostics.push(
                Diagnostic::new(code, made, format!("`{name}` is rounded from {have} to {want}"))
                    .label(format!("computed in {have}"))
                    .also(at, format!("declared as {want}"))
                    .hint(format!("write `@dtype({want})` after the destination to make this explicit")),
            );
        }
    }

    /// The sublayers of a residual pattern must be parameters.
    fn pattern(&mut self, view: &ModuleView<'_>) {
        let Some(pattern) = view.pattern else { return };
        if !matches!(pattern.kind.name.as_str(), "sequential_residual" | "parallel_residual") {
            self.diagnostics.push(
                Diagnostic::new(
                    Code::L001,
                    pattern.kind.span,
                    format!("pattern `{}` is not supported yet", pattern.kind.name),
                )
                .label("`sequential_residual` and `parallel_residual` are"),
            );
        }
        for path in pattern.sublayers.iter().flatten() {
            if self.path_entry(path).is_none() {
                self.undefined(path.span(), &path.to_string(), "no parameter");
            }
        }
    }
}
