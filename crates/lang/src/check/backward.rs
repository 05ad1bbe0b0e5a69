//! Checks the contract of an explicit backward graph (§5.12): it is complete, its shapes are right, and it reads only saved tensors.

use super::annotations;
use super::graph::{Definition, GraphChecker, GraphEntry, OpenCondition};
use super::types::{TensorType, float_bits, is_integer};
use crate::ast::{IoTensor, TypeKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ModuleView, PassView};
use crate::span::Span;
use std::collections::BTreeMap;

pub(super) fn check(
    checker: &mut GraphChecker<'_>,
    view: &ModuleView<'_>,
    pass: &PassView<'_>,
) -> Result<BTreeMap<String, TensorType>, OpenCondition> {
    let Some(graph) = pass.graph else {
        if pass.elided {
            checker.report_elided(view.decl.name.span, "the backward graph");
        }
        return Ok(BTreeMap::new());
    };
    let forward = std::mem::take(&mut checker.entries);
    checker.in_backward = true;
    checker.producers.clear();
    checker.annotations.clear();
    // Parameters are in scope, and so are inputs without gradients; everything else is read as `saved.x`.
    for (name, defined) in &forward {
        let skipped = view.forward.inputs.iter().any(|input| {
            io_name(input, "in") == *name && annotations::has_argument(&input.annotations, "gradient", "skip")
        });
        if checker.params.contains(name) || skipped {
            checker.entries.insert(name.clone(), defined.clone());
        }
    }
    let explicit = !pass.inputs.is_empty();
    for tensor in &pass.inputs {
        let ty = checker.scope.io_tensor(tensor);
        let name = io_name(tensor, "d_out");
        checker.define_quietly(&name, GraphEntry::Tensor(ty), tensor.span);
    }
    for output in &view.forward.outputs {
        let name = io_name(output, "out");
        let gradient = format!("d_{name}");
        if let (Some(Definition { entry: GraphEntry::Tensor(ty), .. }), false) = (forward.get(&name), explicit) {
            checker.define_quietly(&gradient, GraphEntry::Tensor(ty.clone()), output.span);
        }
    }
    declared_gradients(checker, pass, &forward);

    checker.graph(&graph.statements, Code::E019)?;
    let head = Span { end: graph.span.start + 5, ..graph.span };
    gradient_shapes(checker, &forward);
    if !checker.elided {
        check_all_gradients(checker, view, pass, &forward, head);
        unused_saves(checker, view);
    }
    let types = checker.tensor_types();
    checker.in_backward = false;
    Ok(types)
}

fn io_name(tensor: &IoTensor, default: &str) -> String {
    tensor.name.as_ref().map_or(default.to_string(), |name| name.name.clone())
}

/// `d_x: [...]` must have the shape of `x` and a compatible dtype (E018, E020).
fn declared_gradients(checker: &mut GraphChecker<'_>, pass: &PassView<'_>, forward: &BTreeMap<String, Definition>) {
    for tensor in pass.gradients.iter().chain(&pass.outputs) {
        let name = io_name(tensor, "d_in");
        annotations::check(
            &tensor.annotations,
            super::annotation_table::AnnotationTarget::Gradient,
            &checker.scope,
            &mut checker.diagnostics,
        );
        let declared = checker.scope.io_tensor(tensor);
        let Some(Definition { entry: GraphEntry::Tensor(original), span }) =
            name.strip_prefix("d_").and_then(|name| forward.get(name))
        else {
            continue;
        };
        compare(checker, &name, &declared, original, tensor.span, *span, false);
    }
}

fn gradient_shapes(checker: &mut GraphChecker<'_>, forward: &BTreeMap<String, Definition>) {
    let made: Vec<(String, TensorType, Span)> = checker
        .producers
        .keys()
        .filter_map(|name| match checker.entries.get(name) {
            Some(Definition { entry: GraphEntry::Tensor(ty), span }) => Some((name.clone(), ty.clone(), *span)),
            _ => None,
        })
        .collect();
    for (name, ty, span) in made {
        let Some(Definition { entry: GraphEntry::Tensor(original), span: at }) =
            name.strip_prefix("d_").and_then(|name| forward.get(name))
        else {
            continue;
        };
        let explicit = checker
            .annotations
            .get(&name)
            .is_some_and(|notes| annotations::has(notes, "precision") || annotations::has(notes, "dtype"));
        compare(checker, &name, &ty, original, span, *at, explicit);
    }
}

fn compare(
    checker: &mut GraphChecker<'_>,
    name: &str,
    gradient: &TensorType,
    original: &TensorType,
    at: Span,
    declared: Span,
    explicit: bool,
) {
    let base = name.strip_prefix("d_").unwrap_or(name);
    if let (Some(have), Some(want)) = (&gradient.shape, &original.shape)
        && !have.equal(want)
    {
        checker.diagnostics.push(
            Diagnostic::new(Code::E018, at, format!("`{name}` does not have the shape of `{base}`"))
                .with_label(format!("this is {have}"))
                .with_secondary(declared, format!("`{base}` is {want}")),
        );
    }
    if let (Some(have), Some(want)) = (&gradient.dtype, &original.dtype) {
        let narrower = float_bits(have).zip(float_bits(want)).is_some_and(|(have, want)| have < want);
        if !explicit && (is_integer(have) != is_integer(want) || narrower) {
            checker.diagnostics.push(
                Diagnostic::new(Code::E020, at, format!("`{name}` cannot accumulate into {want}"))
                    .with_label(format!("this is {have}"))
                    .with_secondary(declared, format!("`{base}` is {want}"))
                    .with_hint(format!("cast it: `@dtype({want})` after the destination")),
            );
        }
    }
}

/// Every input and trainable parameter needs a gradient (E005).
fn check_all_gradients(
    checker: &mut GraphChecker<'_>,
    view: &ModuleView<'_>,
    pass: &PassView<'_>,
    forward: &BTreeMap<String, Definition>,
    head: Span,
) {
    let mut required: Vec<(String, Span)> = Vec::new();
    if pass.outputs.is_empty() {
        for input in &view.forward.inputs {
            let name = io_name(input, "in");
            let skipped = annotations::has_argument(&input.annotations, "gradient", "skip")
                || checker.integers.contains(&name)
                || matches!(&input.ty, Some(ty) if matches!(ty.kind, TypeKind::Named { .. }));
            if !skipped {
                required.push((name, input.span));
            }
        }
    }
    for output in &pass.outputs {
        let name = io_name(output, "d_in");
        if let Some(base) = name.strip_prefix("d_") {
            required.push((base.to_string(), output.span));
        }
    }
    for entry in &view.params {
        let tensor = matches!(&entry.ty.kind, TypeKind::Tensor { .. })
            || matches!(&entry.ty.kind, TypeKind::Optional(inner) if matches!(inner.kind, TypeKind::Tensor { .. }));
        let frozen = annotations::has(&entry.annotations, "frozen");
        let optional = matches!(&entry.ty.kind, TypeKind::Optional(_));
        let Some(name) = entry.path.as_name() else { continue };
        let present = matches!(forward.get(&name.name), Some(Definition { entry: GraphEntry::Tensor(_), .. }));
        if tensor && !frozen && present && !optional {
            required.push((name.name.clone(), entry.span));
        }
    }
    for (name, span) in required {
        let gradient = format!("d_{name}");
        let integer = matches!(
            forward.get(&name),
            Some(Definition { entry: GraphEntry::Tensor(TensorType { dtype: Some(dtype), .. }), .. }) if is_integer(dtype)
        );
        if !integer && !checker.producers.contains_key(&gradient) && !checker.requested_gradients.contains(&gradient) {
            checker.diagnostics.push(
                Diagnostic::new(Code::E005, head, format!("`{gradient}` is never computed"))
                    .with_label("this graph must compute it")
                    .with_secondary(span, format!("the gradient of `{name}` is required"))
                    .with_hint("compute it, or mark an input `@gradient(skip)`, a parameter `@frozen`"),
            );
        }
    }
}

fn unused_saves(checker: &mut GraphChecker<'_>, view: &ModuleView<'_>) {
    let Some(save) = view.forward.save else { return };
    for item in save.items.iter().filter(|item| item.is_literal() && !item.pattern.contains('.')) {
        let known = checker.saved.contains_key(&item.pattern);
        if known && !checker.saved_used.contains(&item.pattern) {
            checker.diagnostics.push(
                Diagnostic::new(Code::W004, item.span, format!("`{}` is saved but never used", item.pattern))
                    .with_label(format!("the backward graph has no `saved.{}`", item.pattern))
                    .with_hint("remove it from the list to save memory"),
            );
        }
    }
}
