//! Checks what the forward pass saves for the backward pass: save and recompute lists, `@memory` (§7.2).

use super::annotations;
use super::graph::{GraphChecker, GraphEntry};
use super::primitives;
use crate::ast::{NameList, NamePattern};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::ModuleView;
use crate::suggest::closest;
use std::collections::BTreeSet;

pub(super) fn check(checker: &mut GraphChecker<'_>, view: &ModuleView<'_>) {
    let Some(graph) = view.forward.graph else { return };
    let saved = saved_tensors(checker, view.forward.save, "save");
    let recomputed = saved_tensors(checker, view.forward.recompute, "recompute");
    for list in [view.forward.save, view.forward.recompute].into_iter().flatten() {
        for item in &list.items {
            check_pattern(checker, item);
        }
    }
    let available = |checker: &GraphChecker<'_>, name: &str| saved.contains(name) || checker.params.contains(name);
    for name in &recomputed {
        let Some(producer) = checker.producers.get(name) else {
            continue;
        };
        let missing = producer.reads.iter().find(|read| {
            let known = checker.entries.contains_key(*read) && is_tensor(checker, read);
            // Operands of a temporary tensor that backward needs are recomputed too.
            let notes = checker.annotations.get(*read).map_or(&[][..], |notes| notes);
            let again = recomputed.contains(*read) || annotations::has_argument(notes, "memory", "temporary");
            known && !available(checker, read) && !again
        });
        if let Some(missing) = missing {
            let span = checker.entries.get(name).map_or(graph.span, |defined| defined.span);
            let found = Diagnostic::new(Code::E021, span, format!("`{name}` cannot be recomputed"))
                .with_label(format!("needs `{missing}`, which is neither saved nor recomputed"))
                .with_hint(format!("add `{missing}` to the save list or to the recompute list"));
            checker.diagnostics.push(found);
        }
    }
    for name in &saved {
        if let Some(super::graph::Definition { entry: GraphEntry::Tensor(ty), .. }) = checker.entries.get(name) {
            checker.saved.insert(name.clone(), ty.clone());
        }
    }
    if view.backward.is_none() && view.forward.save.is_some() && !checker.elided {
        check_derived_backward(checker, &saved, &recomputed);
    }
}

fn is_tensor(checker: &GraphChecker<'_>, name: &str) -> bool {
    checker.entries.get(name).is_some_and(|defined| matches!(defined.entry, GraphEntry::Tensor(_)))
}

/// The tensors that a list or a `@memory` annotation saves; the annotation takes precedence over the list (§7.2.0).
fn saved_tensors(checker: &GraphChecker<'_>, list: Option<&NameList>, mode: &str) -> BTreeSet<String> {
    let other = if mode == "save" { "recompute" } else { "save" };
    let listed = |name: &str| list.is_some_and(|list| list.items.iter().any(|item| item.matches(name)));
    checker
        .entries
        .keys()
        .filter(|name| is_tensor(checker, name) && !checker.params.contains(*name))
        .filter(|name| {
            let notes = checker.annotations.get(*name).map_or(&[][..], |notes| notes);
            annotations::has_argument(notes, "memory", mode)
                || (listed(name) && !annotations::has_argument(notes, "memory", other))
        })
        .cloned()
        .collect()
}

fn check_pattern(checker: &mut GraphChecker<'_>, item: &NamePattern) {
    let known = checker.entries.keys().any(|name| item.matches(name));
    if item.spread
        || item.pattern.contains('.')
        || known
        || checker.elided
        || checker.scope.tensors.contains(&item.pattern)
    {
        return;
    }
    let mut found = Diagnostic::new(Code::E002, item.span, format!("no tensor named `{}`", item.pattern))
        .with_label("the forward graph does not compute it");
    if let Some(close) = closest(&item.pattern, checker.entries.keys().map(|s| &**s)) {
        found = found.with_hint(format!("did you mean `{close}`?"));
    }
    checker.diagnostics.push(found);
}

/// A derived backward pass that needs a tensor which is not saved recomputes part of the forward pass (W003).
fn check_derived_backward(checker: &mut GraphChecker<'_>, saved: &BTreeSet<String>, recomputed: &BTreeSet<String>) {
    let mut found = Vec::new();
    for producer in checker.producers.values() {
        for (name, operands) in &producer.primitives {
            let Some(primitive) = primitives::find(name) else {
                continue;
            };
            for (slot, operand) in primitive.inputs.iter().zip(operands) {
                let needed = slot.name.as_ref().is_some_and(|slot| primitive.saves.contains(&slot.name.as_str()));
                let kept = saved.contains(operand) || recomputed.contains(operand) || checker.params.contains(operand);
                let Some(defined) = checker.entries.get(operand).filter(|_| needed && !kept) else {
                    continue;
                };
                found.push(
                    Diagnostic::new(Code::W003, defined.span, format!("the derived backward needs `{operand}`"))
                        .with_label(format!("`{name}` needs it, and it is not saved"))
                        .with_hint(format!("add `{operand}` to the save list or to the recompute list")),
                );
            }
        }
    }
    checker.diagnostics.append(&mut found);
}
