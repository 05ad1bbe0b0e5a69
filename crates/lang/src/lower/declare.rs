//! Declares parameters: every tensor of `params:` becomes an input of the graph, in order, depth first.

use super::annotate::FrameNames;
use super::annotations::{AnnotationArgs, find};
use super::frame::{FrameEntry, LoweredInstance, ModuleFrame};
use super::paths::{PathMatch, fill_placeholders, match_path};
use super::quantized_types::is_low_precision_dtype;
use super::recipe::{PrecisionRecipe, TensorFormat};
use super::rope_table::RopeTable;
use super::{Lowerer, MAX_MODULES, Parameter, Result, Shard, fail, op_error, too_large, unsupported};
use crate::ast::{Annotation, Arg, Ident, Param, ParamEntry, TypeExpr, TypeKind};
use crate::check::AnnotationTarget;
use crate::consteval::{ConstValue as Const, INDEX, NameResolver};
use crate::diagnostic::Code;
use crate::resolve::{Entity, ModuleView};
use crate::span::Span;
use ir::{DType, GraphBuilder, Type, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use transform::Rounding;

/// Defaults that a declaration passes on to contained parameters.
#[derive(Clone, Debug)]
pub(super) struct ParameterDefaults {
    /// The attributes of contained parameters, without path and type.
    template: Parameter,
    /// The number of blocks that are stacked along a first axis.
    stacked: Option<usize>,
    /// The storage format given by an outer declaration, and whether it comes from a recipe.
    stored: Option<TensorFormat>,
    by_recipe: bool,
    /// Annotations of outer modules on contained parameters by path, outermost first.
    outer_annotations: Rc<Vec<OuterAnnotation>>,
}

impl Default for ParameterDefaults {
    fn default() -> ParameterDefaults {
        let like = Parameter::new(String::new(), Type::new(DType::F32, &[]));
        ParameterDefaults {
            template: like,
            stacked: None,
            stored: None,
            by_recipe: false,
            outer_annotations: Rc::default(),
        }
    }
}

/// An annotation by path, such as `blocks[{i}].attention.qkv_weight: [...] @frozen` (§7.8).
#[derive(Debug)]
struct OuterAnnotation {
    /// The annotating module.
    owner: String,
    entry: ParamEntry,
    frame: ModuleFrame,
}

impl OuterAnnotation {
    /// Whether it matches the parameter at this path.
    fn applies_to(&self, path: &str) -> Result<bool> {
        let own = match self.owner.as_str() {
            "" => Some(path),
            owner => path.strip_prefix(owner).and_then(|rest| rest.strip_prefix('.')),
        };
        match own.map_or(PathMatch::No, |own| match_path(&self.entry.path, own, &self.frame)) {
            PathMatch::No => Ok(false),
            PathMatch::Yes(_) => Ok(true),
            PathMatch::OneOfStacked => {
                unsupported(self.entry.path.span, "one layer of its own where blocks run as a scan")
            }
        }
    }
}

impl ParameterDefaults {
    /// Applies annotations: `@trainable` overrides an outer `@frozen`.
    fn with(
        &self,
        l: &Lowerer<'_>,
        notes: &[&Annotation],
        declared: Option<&Ident>,
        frame: &ModuleFrame,
    ) -> Result<ParameterDefaults> {
        let mut traits = self.clone();
        if let Some(stored) = l.storage(notes, declared, &FrameNames(frame))? {
            (traits.stored, traits.by_recipe) = (Some(stored), false);
        }
        if let Some(note) = find(notes, "shard") {
            traits.template.shard = note.word("strategy").and_then(|name| Shard::from_name(&name));
        }
        if find(notes, "frozen").is_some() {
            traits.template.trainable = false;
        }
        if let Some(note) = find(notes, "trainable") {
            traits.template.trainable = true;
            let number = |key: &str| -> Result<Option<f64>> {
                match note.argument(key).map(|expr| frame.constant(expr)).transpose()? {
                    Some(Const::Float(value)) => Ok(value),
                    Some(other) => Ok(other.as_int().map(|n| n as f64)),
                    None => Ok(None),
                }
            };
            traits.template.lr_scale = number("lr_scale")?.unwrap_or(traits.template.lr_scale);
            traits.template.wd_scale = number("wd_scale")?.unwrap_or(traits.template.wd_scale);
            traits.template.grad_clip = number("grad_clip")?.or(traits.template.grad_clip);
        }
        Ok(traits)
    }
}

impl Lowerer<'_> {
    /// Declares an instance of a module whose constants are in `frame`.
    pub(super) fn declare(
        &mut self,
        view: &ModuleView<'_>,
        frame: &ModuleFrame,
        prefix: &str,
        traits: &ParameterDefaults,
    ) -> Result<LoweredInstance> {
        self.enter(view.decl.name.span)?;
        self.modules += 1;
        if self.modules > MAX_MODULES {
            return too_large(
                view.decl.name.span,
                format!("more than {MAX_MODULES} modules in one model"),
                "one of them",
            );
        }
        let mut frame = frame.clone();
        let mut traits = traits.clone();
        let mut said = Vec::new();
        for entry in view.params.iter().filter(|entry| entry.path.as_name().is_none()) {
            let holds = entry.condition.as_ref().is_none_or(|condition| frame.condition(condition).is_ok_and(|v| v));
            if holds {
                self.recheck_annotations(&entry.annotations, AnnotationTarget::Parameter, &frame)?;
                said.push(OuterAnnotation { owner: prefix.to_string(), entry: (*entry).clone(), frame: frame.clone() });
            }
        }
        if !said.is_empty() {
            let mut all: Vec<OuterAnnotation> = Vec::new();
            for old in traits.outer_annotations.iter() {
                all.push(OuterAnnotation {
                    owner: old.owner.clone(),
                    entry: old.entry.clone(),
                    frame: old.frame.clone(),
                });
            }
            all.extend(said);
            traits.outer_annotations = Rc::new(all);
        }
        if traits.stored.is_none() {
            (traits.stored, traits.by_recipe) = (self.stored_by_recipe(view)?, true);
        }
        let traits = &traits;
        for entry in &view.params {
            let Some(name) = entry.path.as_name() else { continue };
            let path = match prefix {
                "" => name.name.clone(),
                _ => format!("{prefix}.{}", name.name),
            };
            let value = self.declare_entry(entry, &frame, &path, traits)?;
            frame.entries.insert(name.name.clone(), value);
        }
        for constant in &view.constants {
            let table = RopeTable::of(&constant.value, &frame)?;
            frame.entries.insert(constant.name.name.clone(), FrameEntry::Table(Rc::new(table)));
        }
        self.declare_adapters(prefix, &mut frame, traits.stacked)?;
        self.depth -= 1;
        Ok(LoweredInstance {
            item: view.item,
            given: frame.constants,
            entries: frame.entries,
            path: prefix.to_string(),
        })
    }

    fn declare_entry(
        &mut self,
        entry: &ParamEntry,
        frame: &ModuleFrame,
        path: &str,
        traits: &ParameterDefaults,
    ) -> Result<FrameEntry> {
        if let Some(condition) = &entry.condition
            && !frame.condition(condition)?
        {
            return Ok(FrameEntry::Absent);
        }
        self.recheck_annotations(&entry.annotations, AnnotationTarget::Parameter, frame)?;
        let notes: Vec<&Annotation> = entry.annotations.iter().collect();
        self.record_ignored(&notes);
        let mut own = traits.with(self, &notes, declared_dtype(&entry.ty), frame)?;
        let mut gradients: Vec<(&Annotation, &ModuleFrame)> =
            find(&notes, "gradient").map(|note| (note, frame)).into_iter().collect();
        // Annotations of outer modules take precedence.
        for said in traits.outer_annotations.iter().rev() {
            if !said.applies_to(path)? {
                continue;
            }
            let notes: Vec<&Annotation> = said.entry.annotations.iter().collect();
            self.record_ignored(&notes);
            own = own.with(self, &notes, None, &said.frame)?;
            if let Some(note) = find(&notes, "gradient") {
                gradients = vec![(note, &said.frame)];
            }
        }
        let mut declared = self.declare_type(&entry.ty, frame, path, &own)?;
        for (note, frame) in gradients {
            if let FrameEntry::Tensor(value) = declared {
                declared = FrameEntry::Tensor(self.gradient(note, value, frame)?);
            }
        }
        Ok(declared)
    }

    /// The weight format of the declaration's recipe, or of the given one.
    fn stored_by_recipe(&self, view: &ModuleView<'_>) -> Result<Option<TensorFormat>> {
        if let Some(recipe) = &self.options.recipe {
            return Ok(recipe.stored);
        }
        for (note, file) in view.annotations.iter().filter(|(note, _)| note.name.name == "recipe") {
            let path = note.args.iter().flatten().next().and_then(|arg| arg.value.as_path());
            let Some(Entity::Item(item)) = path.and_then(|path| self.program.lookup(*file, &path)) else { continue };
            if let Some(declared) = self.program.recipe(item) {
                return Ok(PrecisionRecipe::from_decl(declared)?.stored);
            }
        }
        Ok(None)
    }

    /// The parameter that `hf_mapping` ties this one to.
    fn tied_by_mapping(&self, path: &str, frame: &ModuleFrame) -> Option<(String, Span)> {
        self.ties.iter().find_map(|(from, to)| match match_path(from, path, frame) {
            PathMatch::Yes(bound) => Some((fill_placeholders(to, &bound, frame)?, to.span)),
            _ => None,
        })
    }

    fn declare_type(
        &mut self,
        ty: &TypeExpr,
        frame: &ModuleFrame,
        path: &str,
        traits: &ParameterDefaults,
    ) -> Result<FrameEntry> {
        match &ty.kind {
            TypeKind::Tensor { dtype, .. } => {
                let dtype = match dtype {
                    Some(name) if !is_low_precision_dtype(&name.name) => parse_dtype(&name.name, name.span)?,
                    _ => self.options.dtype,
                };
                // A storage format does not change the compute dtype.
                let fits = |wide: &DType| wide.is_float() == dtype.is_float();
                let stored = traits.stored.and_then(TensorFormat::native_dtype).filter(fits).unwrap_or(dtype);
                let mut shape = frame.shape(ty)?;
                // A recipe applies to matrices; an annotation of a single parameter applies to it in any case.
                let few = traits.stored.and_then(TensorFormat::rounding).filter(|_| dtype.is_float());
                let few = few.filter(|_| !traits.by_recipe || shape.len() > 1);
                if let Some(count) = traits.stacked {
                    shape.insert(0, count);
                }
                let span = ty.span;
                let ty = Type::new(stored, &shape);
                if let Some((target, at)) = self.tied_by_mapping(path, frame) {
                    let Some((value, other)) = self.made.get(&target) else {
                        let label = "must be declared before";
                        return fail(Code::E010, at, format!("no parameter named `{target}`"), label);
                    };
                    if *other != ty {
                        let label = format!("`{path}` is {ty}, `{target}` is {other}");
                        return fail(Code::E010, at, "tied parameters have one type", label);
                    }
                    let value = *value;
                    self.tied.push((path.to_string(), target));
                    return self.read(value, dtype, few, traits.stacked.is_some(), span);
                }
                // Integers have no gradient.
                let trainable = traits.template.trainable && stored.is_float();
                let like = traits.template.clone();
                let stacked = traits.stacked.is_some();
                self.params.push(Parameter {
                    path: path.to_string(),
                    ty: ty.clone(),
                    trainable,
                    stacked,
                    rounding: few,
                    ..like
                });
                let value = self.b.graph.input(ty.clone());
                self.made.insert(path.to_string(), (value, ty));
                self.read(value, dtype, few, stacked, span)
            }
            TypeKind::Optional(_) if self.options.absent.contains(path) => Ok(FrameEntry::Absent),
            TypeKind::Optional(inner) => self.declare_type(inner, frame, path, traits),
            TypeKind::TiedTo(target) => {
                let mut parts = target.parts.iter();
                let mut entry = parts.next().and_then(|part| frame.entries.get(&part.name)).cloned();
                for part in parts {
                    entry = match entry {
                        Some(FrameEntry::Instance(instance)) => instance.entries.get(&part.name).cloned(),
                        _ => None,
                    };
                }
                let own = path.rsplit_once('.').map_or(String::new(), |(head, _)| format!("{head}."));
                self.tied.push((path.to_string(), format!("{own}{target}")));
                match entry {
                    Some(entry) => Ok(entry),
                    None => fail(
                        Code::E002,
                        target.span(),
                        format!("no parameter named `{target}`"),
                        "must be declared before",
                    ),
                }
            }
            TypeKind::Array { length, element } => {
                let count = frame.size(length)?;
                if count > MAX_MODULES {
                    let label = "make the array smaller";
                    return too_large(
                        length.span,
                        format!("an array of {count} modules: the maximum is {MAX_MODULES}"),
                        label,
                    );
                }
                // Different blocks cannot be stacked.
                let differ = element.mentions_index() && !self.elements_are_identical(element, frame, count)?;
                if self.options.scan && traits.stacked.is_none() && !differ {
                    let stacked = ParameterDefaults { stacked: Some(count), ..traits.clone() };
                    let mut inside = frame.clone();
                    inside.constants.insert(INDEX.to_string(), Const::int(0));
                    return match self.declare_type(element, &inside, &format!("{path}[*]"), &stacked)? {
                        FrameEntry::Instance(instance) => Ok(FrameEntry::Stack(count, instance)),
                        _ => unsupported(ty.span, "an array of tensors"),
                    };
                }
                let mut instances = Vec::new();
                let mut inside = frame.clone();
                for index in 0..count {
                    inside.constants.insert(INDEX.to_string(), Const::int(index as i64));
                    match self.declare_type(element, &inside, &format!("{path}[{index}]"), traits)? {
                        FrameEntry::Instance(instance) => instances.push(instance),
                        _ => return unsupported(ty.span, "an array of tensors"),
                    }
                }
                Ok(FrameEntry::Array(instances))
            }
            TypeKind::Named { path: name, args } => {
                let Some(Entity::Item(item)) = self.program.lookup(frame.file, name) else {
                    return fail(Code::E002, name.span(), format!("no module named `{name}`"), "");
                };
                let Some(view) = ModuleView::new(self.program, item) else {
                    return fail(Code::E002, name.span(), format!("`{name}` is not a module"), "");
                };
                let given = self.given(&view, args.as_deref().unwrap_or_default(), frame, ty.span)?;
                let mut inner = ModuleFrame::new(item.file, given);
                inner.defaults(&view, ty.span)?;
                inner.eval_lets(&view, false)?;
                Ok(FrameEntry::Instance(Rc::new(self.declare(&view, &inner, path, traits)?)))
            }
            TypeKind::Tuple(_) | TypeKind::Each { .. } => unsupported(ty.span, "a parameter of this type"),
        }
    }

    /// The value of a parameter where it is read.
    fn read(
        &mut self,
        value: Value,
        dtype: DType,
        few: Option<Rounding>,
        stacked: bool,
        span: Span,
    ) -> Result<FrameEntry> {
        let Some(few) = few else {
            return (self.b.cast(value, dtype)).map(FrameEntry::Tensor).map_err(|e| op_error(&e, span, "@dtype"));
        };
        self.note_emulated(span, &format!("stored in {}, multiplied in f32", few.describe()));
        self.read_stored(value, &few, stacked, span).map(FrameEntry::Tensor)
    }

    /// Whether all elements of an array have the same arguments, although the index occurs in them.
    fn elements_are_identical(&self, element: &TypeExpr, frame: &ModuleFrame, count: usize) -> Result<bool> {
        let TypeKind::Named { path: name, args: Some(args) } = &element.kind else { return Ok(false) };
        let Some(Entity::Item(item)) = self.program.lookup(frame.file, name) else { return Ok(false) };
        let Some(view) = ModuleView::new(self.program, item) else { return Ok(false) };
        let mut inside = frame.clone();
        let mut first = None;
        for index in 0..count {
            inside.constants.insert(INDEX.to_string(), Const::int(index as i64));
            let given = self.given(&view, args, &inside, element.span)?;
            if *first.get_or_insert_with(|| given.clone()) != given {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The constants bound to a module's parameters by the arguments.
    fn given(
        &self,
        view: &ModuleView<'_>,
        args: &[Arg],
        frame: &ModuleFrame,
        at: Span,
    ) -> Result<BTreeMap<String, Const>> {
        let header = header(view);
        let mut given = BTreeMap::new();
        for (index, arg) in args.iter().enumerate() {
            let name = match &arg.name {
                Some(name) => &name.name,
                None => match header.get(index) {
                    Some(name) => name,
                    None => return fail(Code::E003, at, "too many arguments", ""),
                },
            };
            let value = match arg.value.as_name().filter(|word| accepts_word(view, name, word)) {
                Some(word) if frame.value(word).is_none() => Const::Identifier(word.to_string()),
                _ => frame.constant(&arg.value)?,
            };
            given.insert(name.clone(), value);
        }
        Ok(given)
    }
}

/// The dtype in a type.
pub(super) fn declared_dtype(ty: &TypeExpr) -> Option<&Ident> {
    match &ty.kind {
        TypeKind::Tensor { dtype, .. } => dtype.as_ref(),
        TypeKind::Optional(inner) => declared_dtype(inner),
        _ => None,
    }
}

/// The names of the parameters in a module's header.
pub(super) fn header(view: &ModuleView<'_>) -> Vec<String> {
    let name = |param: &&Param| match param {
        Param::Named { name, .. } => Some(name.name.clone()),
        Param::Elided(_) => None,
    };
    view.header.iter().filter_map(name).collect()
}

/// Whether an identifier is a valid value of a module's parameter: one of an `enum`, or a dtype.
pub(crate) fn accepts_word(view: &ModuleView<'_>, parameter: &str, word: &str) -> bool {
    view.header.iter().any(|param| match param {
        Param::Named { name, ty: Some(ty), .. } if name.name == parameter => match &ty.kind {
            TypeKind::Named { path, args: Some(words) } if path.to_string() == "enum" => {
                words.iter().any(|arg| arg.value.as_name() == Some(word))
            }
            TypeKind::Named { path, args: None } if path.to_string() == "dtype" => {
                crate::ast::DTYPE_NAMES.contains(&word)
            }
            _ => false,
        },
        _ => false,
    })
}

/// The dtype with this name in the language.
pub(super) fn parse_dtype(name: &str, span: Span) -> Result<DType> {
    Ok(match name {
        "fp32" => DType::F32,
        "bf16" => DType::BF16,
        "fp16" => DType::F16,
        "int32" => DType::I32,
        "int8" => DType::I8,
        _ => {
            let label = "low-precision values need scales: make the tensor in bf16 and `quantize` it";
            return fail(Code::E015, span, format!("a tensor cannot have the dtype {name} here"), label);
        }
    })
}
