//! Declaring parameters: every tensor of `params:` becomes an input of the graph, in order, depth first.

use super::frame::{Entry, Frame, Instance};
use super::rope_table::RopeTable;
use super::{Lowerer, Parameter, Result, fail, unsupported};
use crate::ast::{Arg, Param, ParamEntry, TypeExpr, TypeKind};
use crate::consteval::Value as Const;
use crate::diagnostic::Code;
use crate::resolve::{Entity, ModuleView};
use crate::span::Span;
use ir::{DType, Type};
use std::collections::BTreeMap;
use std::rc::Rc;

impl Lowerer<'_> {
    /// An instance of a module whose constants are in `frame`.
    pub(super) fn declare(&mut self, view: &ModuleView<'_>, frame: &Frame, prefix: &str) -> Result<Instance> {
        self.enter(view.decl.name.span)?;
        let mut frame = frame.clone();
        for entry in &view.params {
            let Some(name) = entry.path.as_name() else { continue };
            let path = match prefix {
                "" => name.name.clone(),
                _ => format!("{prefix}.{}", name.name),
            };
            let value = self.declare_entry(entry, &frame, &path)?;
            frame.entries.insert(name.name.clone(), value);
        }
        for constant in &view.constants {
            let table = RopeTable::of(&constant.value, &frame)?;
            frame.entries.insert(constant.name.name.clone(), Entry::Table(Rc::new(table)));
        }
        self.depth -= 1;
        Ok(Instance { item: view.item, given: frame.constants, entries: frame.entries })
    }

    fn declare_entry(&mut self, entry: &ParamEntry, frame: &Frame, path: &str) -> Result<Entry> {
        if let Some(condition) = &entry.condition
            && !frame.condition(condition)?
        {
            return Ok(Entry::Absent);
        }
        let trainable = !entry.annotations.iter().any(|a| a.name.name == "frozen");
        self.declare_type(&entry.ty, frame, path, trainable)
    }

    fn declare_type(&mut self, ty: &TypeExpr, frame: &Frame, path: &str, trainable: bool) -> Result<Entry> {
        match &ty.kind {
            TypeKind::Tensor { dtype, .. } => {
                let dtype = match dtype {
                    Some(name) => dtype_named(&name.name, name.span)?,
                    None => self.options.dtype,
                };
                let ty = Type::new(dtype, &frame.shape(ty)?);
                self.params.push(Parameter { path: path.to_string(), ty: ty.clone(), trainable });
                Ok(Entry::Tensor(self.b.graph.input(ty)))
            }
            TypeKind::Optional(inner) => self.declare_type(inner, frame, path, trainable),
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
                let mut instances = Vec::new();
                for index in 0..count {
                    match self.declare_type(element, frame, &format!("{path}[{index}]"), trainable)? {
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
                Ok(Entry::Instance(Rc::new(self.declare(&view, &inner, path)?)))
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
