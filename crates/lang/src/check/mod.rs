//! The type checker: symbolic shapes of modules, and the rules of graphs: single assignment, saving, backward contracts.
//!
//! A declaration is checked for all sizes at once: its parameters are symbols. Open conditions on parameters are checked for both
//! values, so a module with two flags has up to four variants, each without any `if`.

mod annotation_table;
mod annotations;
mod backward;
mod call;
mod graph;
mod invariants;
mod memory;
mod module;
mod module_call;
mod operand;
mod primitive_call;
pub mod primitives;
mod reachability;
mod recursion;
mod rules;
mod scope;
mod signature;
mod types;
mod weights;

pub use annotation_table::{AnnotationRow, AnnotationTarget, ArgumentKind, annotation_rows};
pub(crate) use annotations::{check as check_annotations, parse_condition};
pub(crate) use graph::names_read as graph_uses;
pub(crate) use reachability::{calls, flatten};
pub use types::{Shape, TensorType};

use crate::diagnostic::{Code, Diagnostic, sort_and_dedup};
use crate::dims::ExactDivision;
use crate::resolve::{ItemRef, ModuleProgram, ModuleView};
use std::collections::BTreeMap;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// One entry per declaration that could be checked, except primitives.
    pub modules: Vec<CheckedModule>,
    /// Diagnostics, in source order.
    pub diagnostics: Vec<Diagnostic>,
}

/// A checked declaration.
#[derive(Clone, Debug)]
pub struct CheckedModule {
    /// The declaration.
    pub item: ItemRef,
    /// Its name.
    pub name: String,
    /// Its variants, one per combination of its open conditions.
    pub variants: Vec<ModuleVariant>,
}

/// A declaration under assumptions about its open conditions.
#[derive(Clone, Debug, Default)]
pub struct ModuleVariant {
    /// The assumed conditions, such as `use_bias`.
    pub assumptions: BTreeMap<String, bool>,
    /// The types of inputs, parameters and tensors of the forward graph.
    pub forward: BTreeMap<String, TensorType>,
    /// The types of the tensors of an explicit backward graph.
    pub backward: BTreeMap<String, TensorType>,
    /// Divisions that must be exact for the shapes to agree; to be checked when sizes are known.
    pub exact_divisions: Vec<ExactDivision>,
}

/// The maximum number of variants.
const MAX_VARIANTS: usize = 32;

/// Checks every declaration of a program.
pub fn check(program: &ModuleProgram) -> CheckReport {
    let mut report = CheckReport::default();
    for (file, resolved) in program.files.iter().enumerate() {
        for item in 0..resolved.ast.items.len() {
            let item = ItemRef { file, item };
            if let Some(recipe) = program.recipe(item) {
                match recipe.topology {
                    true => annotations::check_topology(recipe, &mut report.diagnostics),
                    false => annotations::check_recipe(recipe, &mut report.diagnostics),
                }
            }
            let Some(view) = ModuleView::new(program, item) else {
                continue;
            };
            recursion::check(program, &view, &mut report.diagnostics);
            if view.decl.kind == crate::ast::DeclKind::Primitive {
                invariants::check(view.decl, &mut report.diagnostics);
                if view.forward.graph.is_none() {
                    continue;
                }
                if view.backward.is_some() {
                    report.diagnostics.push(
                        Diagnostic::new(
                            Code::L001,
                            view.decl.name.span,
                            "a backward section for a primitive with a graph",
                        )
                        .with_label("its backward is derived from the graph")
                        .with_hint("remove `backward:`, or declare a `module`"),
                    );
                }
            }
            report.modules.push(check_module(program, &view, &mut report.diagnostics));
            weights::check(program, &view, &mut report.diagnostics);
        }
    }
    sort_and_dedup(&mut report.diagnostics);
    report
}

fn check_module(program: &ModuleProgram, view: &ModuleView<'_>, found: &mut Vec<Diagnostic>) -> CheckedModule {
    let mut variants = Vec::new();
    let mut waiting = vec![BTreeMap::new()];
    while let Some(assumptions) = waiting.pop() {
        if variants.len() >= MAX_VARIANTS {
            break;
        }
        match module::check_variant(program, view, assumptions.clone(), found) {
            Ok(variant) => variants.push(variant),
            Err(graph::OpenCondition(condition)) => {
                for answer in [false, true] {
                    let mut assumptions = assumptions.clone();
                    assumptions.insert(condition.clone(), answer);
                    waiting.push(assumptions);
                }
            }
        }
    }
    CheckedModule { item: view.item, name: view.decl.name.name.clone(), variants }
}
