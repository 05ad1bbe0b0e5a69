//! Resolves tensors in a graph: names, parameters of instances, saved tensors, indices.

use super::graph::{GraphChecker, GraphEntry};
use super::rules::CheckedOperand;
use super::types::{Shape, TensorType};
use crate::ast::{Expr, ExprKind, IndexItem, Path};
use crate::consteval::ConstValue;
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::Dim;
use crate::span::Span;

impl GraphChecker<'_> {
    /// A tensor used as a source or argument.
    pub(super) fn operand(&mut self, expr: &Expr) -> CheckedOperand {
        let text = self.program.sources.slice(expr.span).to_string();
        let ty = match &expr.kind {
            ExprKind::Index(base, items) => {
                let base = self.operand(base).ty;
                self.indexed(base, items, expr.span)
            }
            ExprKind::Spread(_) => TensorType::default(),
            _ => match expr.as_path() {
                Some(path) => self.path_tensor(&path),
                None => TensorType::default(),
            },
        };
        CheckedOperand { text, ty, span: expr.span }
    }

    fn path_tensor(&mut self, path: &Path) -> TensorType {
        if let [saved, name] = &path.parts[..]
            && saved.name == "saved"
        {
            return self.saved_tensor(&name.name, path.span());
        }
        match self.path_entry(path) {
            Some(GraphEntry::Tensor(ty)) => ty,
            Some(GraphEntry::Instance(_) | GraphEntry::Instances(..)) => TensorType::default(),
            Some(GraphEntry::Absent) => {
                self.diagnostics.push(
                    Diagnostic::new(Code::E003, path.span(), format!("`{path}` may be None here"))
                        .with_label("its condition is not known to be true in this branch")
                        .with_hint("use it under the condition of its declaration"),
                );
                TensorType::default()
            }
            None => {
                self.undefined(path.span(), &path.to_string(), "no tensor");
                TensorType::default()
            }
        }
    }

    fn saved_tensor(&mut self, name: &str, span: Span) -> TensorType {
        self.saved_used.insert(name.to_string());
        match self.saved.get(name) {
            Some(ty) if self.in_backward => ty.clone(),
            _ => {
                let message = format!("`saved.{name}` is not available");
                let found = Diagnostic::new(Code::E006, span, message);
                self.diagnostics.push(if self.in_backward {
                    found
                        .with_label("the forward pass does not save it")
                        .with_hint(format!("add `{name}` to the save list"))
                } else {
                    found.with_label("only the backward pass reads saved tensors").with_hint(format!("write `{name}`"))
                });
                TensorType::default()
            }
        }
    }

    /// The entry of a path: a name, or a parameter inside an instance.
    pub(super) fn path_entry(&mut self, path: &Path) -> Option<GraphEntry> {
        if let Some(defined) = self.entries.get(&path.to_string()) {
            return Some(defined.entry.clone());
        }
        let mut entry = self.entries.get(&path.parts[0].name)?.entry.clone();
        for part in &path.parts[1..] {
            entry = match entry {
                GraphEntry::Instance(instance) | GraphEntry::Instances(instance, _) => {
                    self.member(&instance, &part.name)?
                }
                _ => return None,
            };
        }
        Some(entry)
    }

    fn indexed(&mut self, base: TensorType, items: &[IndexItem], span: Span) -> TensorType {
        let dtype = base.dtype.clone();
        let unknown = TensorType { shape: None, dtype: dtype.clone() };
        let Some(shape) = base.shape else { return unknown };
        let ellipsis = |item: &IndexItem| matches!(item, IndexItem::At(Expr { kind: ExprKind::Ellipsis, .. }));
        let named = items.iter().filter(|item| !ellipsis(item)).count();
        if shape.variadic.is_some() && !items.iter().any(ellipsis) {
            return unknown;
        }
        if named > shape.dims.len() {
            self.diagnostics.push(
                Diagnostic::new(Code::E004, span, "more indices than dimensions")
                    .with_label(format!("{named} indices into {shape}")),
            );
            return unknown;
        }
        let mut result = Shape { variadic: shape.variadic.clone(), dims: Vec::new() };
        let mut axis = 0;
        for item in items {
            match item {
                item if ellipsis(item) => {
                    let skipped = shape.dims.len() - named;
                    result.dims.extend(shape.dims[axis..axis + skipped].iter().cloned());
                    axis += skipped;
                }
                IndexItem::At(index) => {
                    self.scope.constant(index);
                    axis += 1;
                }
                IndexItem::Slice { start, end, .. } => {
                    let size = shape.dims[axis].clone();
                    axis += 1;
                    let mut bound = |expr: &Option<Expr>, default: Dim| match expr {
                        None => Some(default),
                        Some(expr) => match self.scope.constant(expr) {
                            ConstValue::Int(dim) if dim.as_constant().is_some_and(|n| n < 0) => {
                                Some(size.clone() + dim)
                            }
                            ConstValue::Int(dim) => Some(dim),
                            _ => None,
                        },
                    };
                    let (Some(start), Some(end)) = (bound(start, Dim::default()), bound(end, size.clone())) else {
                        return unknown;
                    };
                    result.dims.push(end - start);
                }
            }
        }
        result.dims.extend(shape.dims[axis.min(shape.dims.len())..].iter().cloned());
        TensorType { shape: Some(result), dtype }
    }
}
