//! Declaring parameters: every tensor of `params:` becomes an input of the graph, in order, depth first.

use super::frame::{Entry, Frame, Instance};
use super::notes::{Notes, find};
use super::rope_table::RopeTable;
use super::{Lowerer, Parameter, Result, fail, misfit, unsupported};
use crate::ast::{Annotation, Arg, Param, ParamEntry, TypeExpr, TypeKind};
use crate::consteval::Value as Const;
use crate::diagnostic::Code;
use crate::resolve::{Entity, ModuleView};
use crate::span::Span;
use ir::{Build, DType, Type};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a declaration passes on to the parameters inside.
#[derive(Clone, Debug)]
pub(super) struct Traits {
    /// A parameter like those inside, without path and type.
    like: Parameter,
    /// How many are stacked along a first axis.
    stacked: Option<usize>,
}

impl Default for Traits {
    fn default() -> Traits {
        Traits { like: Parameter::new(String::new(), Type::new(DType::F32, &[])), stacked: None }
    }
}

impl Traits {
    /// With what annotations say: `@trainable` takes back an outer `@frozen`.
    fn with(&self, notes: &[&Annotation], frame: &Frame) -> Result<Traits> {
        let mut traits = self.clone();
        if find(notes, "frozen").is_some() {
            traits.like.trainable = false;
        }
        if let Some(note) = find(notes, "trainable") {
            traits.like.trainable = true;
            let number = |key: &str| -> Result<Option<f64>> {
                match note.argument(key).map(|expr| frame.constant(expr)).transpose()? {
                    Some(Const::Float(value)) => Ok(value),
                    Some(other) => Ok(other.as_int().map(|n| n as f64)),
                    None => Ok(None),
                }
            };
            traits.like.lr_scale = number("lr_scale")?.unwrap_or(traits.like.lr_scale);
            traits.like.wd_scale = number("wd_scale")?.unwrap_or(traits.like.wd_scale);
            traits.like.grad_clip = number("grad_clip")?.or(traits.like.grad_clip);
        }
        Ok(traits)
    }
}

impl Lowerer<'_> {
    /// An instance of a module whose constants are in `frame`.
    pub(super) fn declare(
        &mut self,
        view: &ModuleView<'_>,
        frame: &Frame,
        prefix: &str,
        traits: &Traits,
    ) -> Result<Instance> {
        self.enter(view.decl.name.span)?;
        let mut frame = frame.clone();
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
            frame.entries.insert(constant.name.name.clone(), Entry::Table(Rc::new(table)));
        }
        self.declare_adapters(prefix, &mut frame, traits.stacked)?;
        self.depth -= 1;
        Ok(Instance { item: view.item, given: frame.constants, entries: frame.entries, path: prefix.to_string() })
    }

    fn declare_entry(&mut self, entry: &ParamEntry, frame: &Frame, path: &str, traits: &Traits) -> Result<Entry> {
        if let Some(condition) = &entry.condition
            && !frame.condition(condition)?
        {
            return Ok(Entry::Absent);
        }
        let notes: Vec<&Annotation> = entry.annotations.iter().collect();
        self.unheeded(&notes);
        let declared = self.declare_type(&entry.ty, frame, path, &traits.with(&notes, frame)?, &notes)?;
        match (declared, find(&notes, "gradient")) {
            (Entry::Tensor(value), Some(note)) => self.gradient(note, value, frame).map(Entry::Tensor),
            (declared, _) => Ok(declared),
        }
    }

    fn declare_type(
        &mut self,
        ty: &TypeExpr,
        frame: &Frame,
        path: &str,
        traits: &Traits,
        notes: &[&Annotation],
    ) -> Result<Entry> {
        match &ty.kind {
            TypeKind::Tensor { dtype, .. } => {
                let dtype = match dtype {
                    Some(name) => dtype_named(&name.name, name.span)?,
                    None => self.options.dtype,
                };
                // A format of storage: what is computed with has the dtype that it would have had.
                let stored = match find(notes, "dtype").and_then(|note| note.word("type")) {
                    Some(name) => Some(name),
                    None => find(notes, "precision").and_then(|note| note.word("storage")),
                };
                let stored = match stored {
                    Some(name) => dtype_named(&name, ty.span)?,
                    None => dtype,
                };
                let mut shape = frame.shape(ty)?;
                if let Some(count) = traits.stacked {
                    shape.insert(0, count);
                }
                let span = ty.span;
                let ty = Type::new(stored, &shape);
                // Whole numbers have no gradient.
                let trainable = traits.like.trainable && stored.is_float();
                let like = traits.like.clone();
                self.params.push(Parameter { path: path.to_string(), ty: ty.clone(), trainable, ..like });
                let value = self.b.graph.input(ty);
                (self.b.cast(value, dtype)).map(Entry::Tensor).map_err(|e| misfit(&e, span, "@dtype"))
            }
            TypeKind::Optional(_) if self.options.absent.contains(path) => Ok(Entry::Absent),
            TypeKind::Optional(inner) => self.declare_type(inner, frame, path, traits, notes),
            TypeKind::TiedTo(target) => {
                let mut parts = target.parts.iter();
                let mut entry = parts.next().and_then(|part| frame.entries.get(&part.name)).cloned();
                for part in parts {
                    entry = match entry {
                        Some(Entry::Instance(instance)) => instance.entries.get(&part.name).cloned(),
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
                if self.options.scan && traits.stacked.is_none() {
                    let inside = Traits { stacked: Some(count), ..traits.clone() };
                    return match self.declare_type(element, frame, &format!("{path}[*]"), &inside, notes)? {
                        Entry::Instance(instance) => Ok(Entry::Stack(count, instance)),
                        _ => unsupported(ty.span, "an array of tensors"),
                    };
                }
                let mut instances = Vec::new();
                for index in 0..count {
                    match self.declare_type(element, frame, &format!("{path}[{index}]"), traits, notes)? {
                        Entry::Instance(instance) => instances.push(instance),
                        _ => return unsupported(ty.span, "an array of tensors"),
                    }
                }
                Ok(Entry::Array(instances))
            }
            TypeKind::Named { path: name, args } => {
                let Some(Entity::Item(item)) = self.program.lookup(frame.file, name) else {
                    return fail(Code::E002, name.span(), format!("no module named `{name}`"), "");
                };
                let Some(view) = ModuleView::new(self.program, item) else {
                    return fail(Code::E002, name.span(), format!("`{name}` is not a module"), "");
                };
                let given = self.given(&view, args.as_deref().unwrap_or_default(), frame, ty.span)?;
                let mut inner = Frame::new(item.file, given);
                inner.defaults(&view, ty.span)?;
                inner.lets(&view, false)?;
                Ok(Entry::Instance(Rc::new(self.declare(&view, &inner, path, traits)?)))
            }
            TypeKind::Tuple(_) | TypeKind::Each { .. } => unsupported(ty.span, "a parameter of this type"),
        }
    }

    /// The constants that arguments give to a module's parameters.
    fn given(&self, view: &ModuleView<'_>, args: &[Arg], frame: &Frame, at: Span) -> Result<BTreeMap<String, Const>> {
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
            given.insert(name.clone(), frame.constant(&arg.value)?);
        }
        Ok(given)
    }
}

/// Names of the parameters between a module's parentheses.
pub(super) fn header(view: &ModuleView<'_>) -> Vec<String> {
    let name = |param: &&Param| match param {
        Param::Named { name, .. } => Some(name.name.clone()),
        Param::Elided(_) => None,
    };
    view.header.iter().filter_map(name).collect()
}

/// The dtype with this name in the language.
pub(super) fn dtype_named(name: &str, span: Span) -> Result<DType> {
    Ok(match name {
        "fp32" => DType::F32,
        "bf16" => DType::BF16,
        "fp16" => DType::F16,
        "int32" => DType::I32,
        "int8" => DType::I8,
        _ => return unsupported(span, format!("dtype {name}")),
    })
}
