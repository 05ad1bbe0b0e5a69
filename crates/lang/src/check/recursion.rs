//! Detects modules that always contain themselves (E007).

use super::reachability::{calls, module_of};
use crate::ast::{ParamEntry, Statement, TypeKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{Entity, ItemRef, ModuleProgram, ModuleView};
use crate::span::Span;

pub(super) fn check(program: &ModuleProgram, view: &ModuleView<'_>, found: &mut Vec<Diagnostic>) {
    let mut way = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let Some(span) = leads_to(program, view.item, view.item, &mut way, &mut seen) else { return };
    let name = |item: &ItemRef| program.decl(*item).map_or("", |decl| decl.name.name.as_str());
    let mut names: Vec<&str> = vec![&view.decl.name.name];
    names.extend(way.iter().rev().map(name));
    found.push(
        Diagnostic::new(Code::E007, span, format!("`{}` contains itself", view.decl.name.name))
            .with_label("this leads back to it")
            .with_note(names.join(" contains "))
            .with_hint("put it under an `if` that ends the recursion, or remove it"),
    );
}

/// The location in `from` that unconditionally leads to `to`; `way` receives the modules in between, last first.
fn leads_to(
    program: &ModuleProgram,
    from: ItemRef,
    to: ItemRef,
    way: &mut Vec<ItemRef>,
    seen: &mut std::collections::BTreeSet<ItemRef>,
) -> Option<Span> {
    let view = ModuleView::new(program, from)?;
    // An array may be empty.
    let sure = |entry: &&&ParamEntry| entry.condition.is_none() && !matches!(entry.ty.kind, TypeKind::Array { .. });
    let contained = view.params.iter().filter(sure);
    let contained = contained.filter_map(|entry| Some((module_of(program, from.file, &entry.ty)?, entry.ty.span)));
    let statements = view.forward.graph.map_or(&[][..], |graph| &graph.statements).iter();
    let flows = statements.filter_map(|statement| match statement {
        Statement::Flow(flow) => Some(flow),
        _ => None,
    });
    let called = flows.flat_map(calls).filter_map(|call| match program.lookup(from.file, &call.callee.path)? {
        Entity::Item(item) => Some((item, call.callee.span)),
        _ => None,
    });
    let next: Vec<(ItemRef, Span)> = contained.chain(called).collect();
    for (item, span) in next {
        if item == to {
            way.push(item);
            return Some(span);
        }
        if seen.insert(item) && leads_to(program, item, to, way, seen).is_some() {
            way.push(item);
            return Some(span);
        }
    }
    None
}
