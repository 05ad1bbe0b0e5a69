//! Determines the types of a declaration's inputs, and evaluates its constants, before it is lowered.

use super::declare::parse_dtype;
use super::frame::ModuleFrame;
use super::{Result, fail};
use crate::ast::{DimExpr, Expr, ExprKind, LetItem, Param, TypeExpr, TypeKind};
use crate::consteval::{ConstValue as Const, NameResolver};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ItemRef, ModuleProgram, ModuleView};
use crate::span::Span;
use ir::{DType, Type};
use std::collections::BTreeMap;

/// The types of a declaration's inputs. Sizes may be parameters, `let` bindings and expressions of both; for an unbound name,
/// `free` is called, with its role (`batch_dim`, `seq_dim`) if `let:` declares one, and `*` is `lead`.
pub fn input_types(
    program: &ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    free: &dyn Fn(&str, Option<&str>) -> Option<usize>,
    lead: &[usize],
    dtype: DType,
) -> Result<Vec<Type>> {
    let (view, mut frame) = frame_of(program, item, given)?;
    frame.variadic_dims = Some(lead.to_vec());
    let role = |name: &str| {
        view.lets.iter().find_map(|entry| match entry {
            LetItem::Dim { name: known, role } if known.name == name => Some(role.name.clone()),
            _ => None,
        })
    };
    // Sizes that occur only in `let:`.
    let declared = view.lets.iter().filter_map(|entry| match entry {
        LetItem::Dim { name, .. } => Some(vec![name.name.clone()]),
        LetItem::Bind { value, .. } => Some(names(value).into_iter().map(|(name, _)| name).collect()),
        LetItem::Constraints(..) => None,
    });
    for name in declared.flatten().collect::<Vec<String>>() {
        if frame.value(&name).is_none()
            && !bound(&view, &name)
            && let Some(size) = free(&name, role(&name).as_deref())
        {
            frame.constants.insert(name, Const::int(size as i64));
        }
    }
    // `let:` bindings that depend on sizes of inputs are known only after those, so names are requested in two rounds.
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
                            .with_label("neither a parameter with a value nor bound by `let`")
                            .with_hint(format!("give it a value: `--set {name}=..`"));
                        return Err(Box::new(found));
                    };
                    frame.constants.insert(name, Const::int(size as i64));
                }
            }
        }
        frame.eval_lets(&view, !plain)?;
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
            "a residual pattern does not determine the width of its input",
            "lower a model that uses it",
        );
    }
    Ok(types)
}

/// Evaluates a constant expression of a declaration with its parameters and `let` bindings.
pub fn constant(program: &ModuleProgram, item: ItemRef, given: &BTreeMap<String, Const>, expr: &Expr) -> Result<Const> {
    frame_of(program, item, given)?.1.constant(expr)
}

fn frame_of<'a>(
    program: &'a ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
) -> Result<(ModuleView<'a>, ModuleFrame)> {
    let Some(view) = ModuleView::new(program, item) else {
        let span = Span::new(program.files[0].id, 0, 0);
        return fail(Code::E002, span, "not a module or model", "");
    };
    let mut frame = ModuleFrame::new(item.file, given.clone());
    frame.defaults(&view, view.decl.name.span)?;
    frame.eval_lets(&view, false)?;
    Ok((view, frame))
}

fn bound(view: &ModuleView<'_>, name: &str) -> bool {
    view.lets.iter().any(|entry| matches!(entry, LetItem::Bind { name: known, .. } if known.name == name))
}

fn dtype_of(ty: &TypeExpr, default: DType) -> Result<DType> {
    match &ty.kind {
        TypeKind::Tensor { dtype: Some(name), .. } => match name.name.as_str() {
            // The model's dtype replaces the float dtypes that models declare.
            "int32" | "int8" => parse_dtype(&name.name, name.span),
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

/// The names in an expression, without functions.
fn names(expr: &Expr) -> Vec<(String, Span)> {
    if let Some(name) = expr.as_name() {
        return vec![(name.to_string(), expr.span)];
    }
    let callee = match &expr.kind {
        ExprKind::Call(callee, _) => Some(&**callee),
        _ => None,
    };
    let inside = expr.children().into_iter().filter(|child| callee.is_none_or(|callee| !std::ptr::eq(callee, *child)));
    inside.flat_map(names).collect()
}

/// Checks values for a declaration's parameters: each must have the name of a parameter or of a size of the inputs, and the
/// parameter's type. Identifiers of an `enum` may be strings. The error is one line with its remedy.
pub fn check_given(
    program: &ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
) -> std::result::Result<BTreeMap<String, Const>, String> {
    let Some(view) = ModuleView::new(program, item) else { return Err("not a module or model".to_string()) };
    let mut checked = BTreeMap::new();
    for (name, value) in given {
        let param = view.header.iter().find_map(|param| match param {
            Param::Named { name: known, ty, default, .. } if known.name == *name => Some((ty, default)),
            _ => None,
        });
        let value = match param {
            Some((ty, default)) => match fitting(&view, name, ty.as_ref(), default.as_ref(), value) {
                Ok(value) => value,
                Err(expected) => return Err(format!("`{name}` must be {expected}, got {}", shown(value))),
            },
            None if is_dimension(&view, name) => match value.as_int() {
                Some(size) if size < 0 => {
                    return Err(format!("`{name}` is a size and must not be negative, got {size}"));
                }
                Some(_) => value.clone(),
                None => return Err(format!("`{name}` must be a size, got {}", shown(value))),
            },
            None => {
                let known: Vec<&str> = view.header.iter().filter_map(|param| super::param_name(param)).collect();
                let owner = &view.decl.name.name;
                return Err(match crate::suggest::closest(name, known.iter().copied()) {
                    Some(close) => format!("`{owner}` has no parameter `{name}`: did you mean `{close}`?"),
                    None if known.is_empty() => format!("`{owner}` has no parameter `{name}`: it has none"),
                    None => format!("`{owner}` has no parameter `{name}`: its parameters are {}", known.join(", ")),
                });
            }
        };
        checked.insert(name.clone(), value);
    }
    Ok(checked)
}

fn shown(value: &Const) -> String {
    match value {
        Const::Str(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// Converts a value to the parameter's type, or returns the expected type.
fn fitting(
    view: &ModuleView<'_>,
    name: &str,
    ty: Option<&TypeExpr>,
    default: Option<&Expr>,
    value: &Const,
) -> std::result::Result<Const, String> {
    let (kind, words) = match ty.map(|ty| &ty.kind) {
        Some(TypeKind::Optional(_)) if *value == Const::None => return Ok(Const::None),
        Some(TypeKind::Optional(inner)) => return fitting(view, name, Some(inner), None, value),
        Some(TypeKind::Named { path, args }) => (path.to_string(), args.as_deref()),
        Some(_) => return Ok(value.clone()),
        None => match default.map(|default| &default.peel().kind) {
            Some(ExprKind::Bool(_)) => ("bool".to_string(), None),
            Some(ExprKind::Float(_)) => ("float".to_string(), None),
            Some(ExprKind::Str(_)) => ("string".to_string(), None),
            Some(ExprKind::Int(_)) | None => ("int".to_string(), None),
            Some(_) => return Ok(value.clone()),
        },
    };
    let word = match value {
        Const::Str(word) | Const::Identifier(word) => Some(word.as_str()),
        _ => None,
    };
    match (kind.as_str(), value) {
        ("int", Const::Int(_)) => match value.as_int() {
            Some(n) if i32::try_from(n).is_err() => Err("an int of 32 bits".to_string()),
            _ => Ok(value.clone()),
        },
        ("float", Const::Int(_) | Const::Float(_)) | ("bool", Const::Bool(_)) => Ok(value.clone()),
        // A number is converted to a string if the parameter is one.
        ("string", _) => Ok(match value {
            Const::Str(_) | Const::Identifier(_) => value.clone(),
            other => Const::Str(other.to_string()),
        }),
        ("enum", _) => {
            let known: Vec<&str> = words.unwrap_or_default().iter().filter_map(|arg| arg.value.as_name()).collect();
            match word.filter(|word| known.contains(word)) {
                Some(word) => Ok(Const::Identifier(word.to_string())),
                None => Err(format!("one of {}", known.join(", "))),
            }
        }
        ("dtype", _) => match word.filter(|word| crate::ast::DTYPE_NAMES.contains(word)) {
            Some(word) => Ok(Const::Identifier(word.to_string())),
            None => Err(format!("a dtype, such as {}", crate::ast::DTYPE_NAMES[0])),
        },
        ("int", _) => Err("an integer".to_string()),
        ("float", _) => Err("a number".to_string()),
        ("bool", _) => Err("true or false".to_string()),
        _ => Ok(value.clone()),
    }
}

/// Whether a name is a size that occurs only in shapes of inputs.
fn is_dimension(view: &ModuleView<'_>, name: &str) -> bool {
    let declared =
        view.lets.iter().any(|entry| matches!(entry, LetItem::Dim { name: known, .. } if known.name == name));
    let types = view.forward.inputs.iter().filter_map(|input| input.ty.as_ref());
    declared || !bound(view, name) && types.flat_map(dims).flat_map(names).any(|(known, _)| known == name)
}
