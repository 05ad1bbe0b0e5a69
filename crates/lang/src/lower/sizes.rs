//! Sizes from outside: types of the inputs of a declaration, and constants of it, before it is lowered.

use super::declare::dtype_named;
use super::frame::Frame;
use super::{Result, fail};
use crate::ast::{DimExpr, Expr, LetItem, TypeExpr, TypeKind};
use crate::consteval::{Names, Value as Const};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ItemRef, ModuleView, Program};
use crate::span::Span;
use ir::{DType, Type};
use std::collections::BTreeMap;

/// Types of a declaration's inputs. Sizes may be parameters, `let` bindings and arithmetic on both; a name that nothing
/// gives a value is asked of `free`, with its role (`batch_dim`, `seq_dim`) where `let:` gives it one, and `*` is `lead`.
pub fn input_types(
    program: &Program,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    free: &dyn Fn(&str, Option<&str>) -> Option<usize>,
    lead: &[usize],
    dtype: DType,
) -> Result<Vec<Type>> {
    let (view, mut frame) = frame_of(program, item, given)?;
    frame.lead = Some(lead.to_vec());
    let role = |name: &str| {
        view.lets.iter().find_map(|entry| match entry {
            LetItem::Dim { name: known, role } if known.name == name => Some(role.name.clone()),
            _ => None,
        })
    };
    // What `let:` computes from sizes of inputs is known once those are, so names are asked for in two rounds.
    for plain in [true, false] {
        for ty in view.forward.inputs.iter().filter_map(|input| input.ty.as_ref()) {
            for expr in dims(ty) {
                if plain && expr.as_name().is_none() {
                    continue;
                }
                for (name, span) in names(expr) {
                    if frame.value(&name).is_some() || bound(&view, &name) {
                        continue;
                    }
                    let Some(size) = free(&name, role(&name).as_deref()) else {
                        let found = Diagnostic::new(Code::E012, span, format!("the size `{name}` is not known"))
                            .label("neither a parameter with a value nor bound by `let`")
                            .hint(format!("give it a value: `--set {name}=..`"));
                        return Err(Box::new(found));
                    };
                    frame.constants.insert(name, Const::int(size as i64));
                }
            }
        }
        frame.lets(&view, !plain)?;
    }
    let mut types = Vec::new();
    for input in &view.forward.inputs {
        let Some(ty) = input.ty.as_ref().filter(|ty| !matches!(ty.kind, TypeKind::Tuple(_) | TypeKind::Each { .. }))
        else {
            return fail(Code::E003, input.span, "an input without a tensor type", "its size is not known");
        };
        types.push(Type::new(dtype_of(ty, dtype)?, &frame.shape(ty)?));
    }
    if view.pattern.is_some() && view.forward.inputs.is_empty() {
        return fail(
            Code::E003,
            view.decl.name.span,
            "a residual pattern does not say how wide its input is",
            "look at a model that uses it",
        );
    }
    Ok(types)
}

/// The value of a constant expression of a declaration: parameters and `let` bindings count.
pub fn constant(program: &Program, item: ItemRef, given: &BTreeMap<String, Const>, expr: &Expr) -> Result<Const> {
    frame_of(program, item, given)?.1.constant(expr)
}

fn frame_of<'a>(
    program: &'a Program,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
) -> Result<(ModuleView<'a>, Frame)> {
    let Some(view) = ModuleView::new(program, item) else {
        let span = Span::new(program.files[0].id, 0, 0);
        return fail(Code::E002, span, "not a module or model", "");
    };
    let mut frame = Frame::new(item.file, given.clone());
    frame.defaults(&view, view.decl.name.span)?;
    frame.lets(&view, false)?;
    Ok((view, frame))
}

fn bound(view: &ModuleView<'_>, name: &str) -> bool {
    view.lets.iter().any(|entry| matches!(entry, LetItem::Bind { name: known, .. } if known.name == name))
}

fn dtype_of(ty: &TypeExpr, default: DType) -> Result<DType> {
    match &ty.kind {
        TypeKind::Tensor { dtype: Some(name), .. } => match name.name.as_str() {
            // The model's own dtype stands for the floats that models declare.
            "int32" | "int8" => dtype_named(&name.name, name.span),
            _ => Ok(default),
        },
        TypeKind::Optional(inner) => dtype_of(inner, default),
        _ => Ok(default),
    }
}

fn dims(ty: &TypeExpr) -> Vec<&Expr> {
    match &ty.kind {
        TypeKind::Tensor { dims, .. } => dims
            .iter()
            .filter_map(|dim| match dim {
                DimExpr::Size(expr) => Some(expr),
                _ => None,
            })
            .collect(),
        TypeKind::Optional(inner) => dims(inner),
        _ => Vec::new(),
    }
}

/// The names of an expression, functions aside.
fn names(expr: &Expr) -> Vec<(String, Span)> {
    if let Some(name) = expr.as_name() {
        return vec![(name.to_string(), expr.span)];
    }
    let callee = match &expr.kind {
        crate::ast::ExprKind::Call(callee, _) => Some(&**callee),
        _ => None,
    };
    let inside = expr.children().into_iter().filter(|child| callee.is_none_or(|callee| !std::ptr::eq(callee, *child)));
    inside.flat_map(names).collect()
}
