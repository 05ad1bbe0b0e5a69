//! Checks `invariants:` of primitives (§9.8.3) against the declaration's backward pass.

use crate::ast::{Decl, NameList, PassItemKind, SectionKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::suggest::closest;

/// Supported invariants.
const CLAIMS: &[&str] = &["backward_uses"];

pub(super) fn check(decl: &Decl, found: &mut Vec<Diagnostic>) {
    let mut saved: Option<&NameList> = None;
    let mut tensors: Vec<&str> = Vec::new();
    let mut named = true;
    for section in &decl.sections {
        match &section.kind {
            SectionKind::Save(list) => saved = Some(list),
            SectionKind::Forward(pass) => {
                for item in &pass.items {
                    let io = match &item.kind {
                        PassItemKind::In(io) => (io, "in"),
                        PassItemKind::Out(io) => (io, "out"),
                        _ => continue,
                    };
                    for tensor in &io.0.tensors {
                        match &tensor.name {
                            Some(name) => tensors.push(&name.name),
                            None => tensors.push(io.1),
                        }
                        named &= !tensor.variadic;
                    }
                }
            }
            _ => {}
        }
    }
    for section in &decl.sections {
        let SectionKind::Invariants(list) = &section.kind else { continue };
        for invariant in list {
            let claim = &invariant.name;
            if !CLAIMS.contains(&claim.name.as_str()) {
                let mut unknown =
                    Diagnostic::new(Code::E008, claim.span, format!("no invariant named `{}`", claim.name))
                        .with_label(format!("known are {}", CLAIMS.join(", ")));
                if let Some(close) = closest(&claim.name, CLAIMS.iter().copied()) {
                    unknown = unknown.with_hint(format!("did you mean `{close}`?"));
                }
                found.push(unknown);
                continue;
            }
            for item in invariant.names.items.iter().filter(|item| item.is_literal()) {
                let name = item.pattern.as_str();
                if named && !tensors.contains(&name) {
                    let mut unknown = Diagnostic::new(Code::E002, item.span, format!("no tensor named `{name}`"))
                        .with_label("neither an input nor a result of the primitive");
                    if let Some(close) = closest(name, tensors.iter().copied()) {
                        unknown = unknown.with_hint(format!("did you mean `{close}`?"));
                    }
                    found.push(unknown);
                } else if let Some(list) = saved
                    && !list.items.iter().any(|saved| saved.matches(name))
                {
                    found.push(
                        Diagnostic::new(Code::E006, item.span, format!("`{name}` is used in backward and not saved"))
                            .with_label("claimed here")
                            .with_secondary(list.span, "the list of what is saved")
                            .with_hint(format!("add `{name}` to the save list")),
                    );
                }
            }
        }
    }
}
