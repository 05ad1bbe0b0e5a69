//! Computes what a statement or a module reaches: primitives, named tensors, contained modules.

use super::graph::{GraphChecker, GraphEntry};
use super::primitives;
use crate::ast::{Call, Flow, FlowSource, Path, Statement, StepKind, TypeExpr, TypeKind};
use crate::resolve::{Entity, ItemRef, ModuleProgram, ModuleView};
use std::collections::BTreeSet;

/// The reachable names.
#[derive(Clone, Debug, Default)]
pub(super) struct ReachableNames {
    /// Names of primitives.
    pub(super) primitives: BTreeSet<String>,
    /// Names of tensors in graphs.
    pub(super) tensors: BTreeSet<String>,
    seen: BTreeSet<ItemRef>,
}

impl GraphChecker<'_> {
    /// Computes what a statement of the module under check reaches.
    pub(super) fn reachable_names(&mut self, flow: &Flow) -> ReachableNames {
        let mut reach = ReachableNames::default();
        for call in calls(flow) {
            let array = call.args.iter().flatten().next().and_then(|arg| arg.value.as_path());
            let stack = call.callee.path.to_string().starts_with("StackedBlocks");
            let path = array.filter(|_| stack).unwrap_or_else(|| call.callee.path.clone());
            match self.path_entry(&path) {
                Some(GraphEntry::Instance(instance) | GraphEntry::Instances(instance, _)) => {
                    reach.module(self.program, instance.item);
                }
                _ => reach.call(self.program, self.file, &path),
            }
        }
        reach
    }
}

impl ReachableNames {
    fn call(&mut self, program: &ModuleProgram, file: usize, path: &Path) {
        match program.lookup(file, path) {
            Some(Entity::Item(item)) if ModuleView::new(program, item).is_some_and(|v| v.forward.graph.is_some()) => {
                self.module(program, item);
            }
            _ => {
                if let Some(primitive) = primitives::find_by_module_name(&path.last().name) {
                    self.primitives.insert(primitive.name.to_string());
                }
            }
        }
    }

    fn module(&mut self, program: &ModuleProgram, item: ItemRef) {
        if !self.seen.insert(item) {
            return;
        }
        let Some(view) = ModuleView::new(program, item) else { return };
        let mut flows = Vec::new();
        flatten(view.forward.graph.map_or(&[][..], |graph| &graph.statements), &mut flows);
        for entry in &view.params {
            if let Some(inner) = module_of(program, item.file, &entry.ty) {
                self.module(program, inner);
            }
        }
        for flow in flows {
            self.tensors.extend(flow.dest.items.iter().filter_map(|item| item.name.as_ref()).map(Path::to_string));
            for call in calls(flow) {
                self.call(program, item.file, &call.callee.path);
            }
        }
    }
}

/// The module of a type, or of an array's elements.
pub(super) fn module_of(program: &ModuleProgram, file: usize, ty: &TypeExpr) -> Option<ItemRef> {
    match &ty.kind {
        TypeKind::Array { element, .. } => module_of(program, file, element),
        TypeKind::Optional(inner) => module_of(program, file, inner),
        TypeKind::Named { path, .. } => match program.lookup(file, path)? {
            Entity::Item(item) => Some(item),
            _ => None,
        },
        _ => None,
    }
}

/// The calls of a statement.
pub(crate) fn calls(flow: &Flow) -> Vec<&Call> {
    let source = match &flow.source {
        FlowSource::Call(call) => Some(call),
        _ => None,
    };
    let steps = flow.steps.iter().filter_map(|step| match &step.kind {
        StepKind::Call(call) => Some(call),
        StepKind::Shape(_) => None,
    });
    source.into_iter().chain(steps).collect()
}

/// All statements, including all branches.
pub(crate) fn flatten<'s>(statements: &'s [Statement], flows: &mut Vec<&'s Flow>) {
    for statement in statements {
        match statement {
            Statement::Flow(flow) => flows.push(flow),
            Statement::If(branch) => {
                flatten(&branch.then, flows);
                flatten(branch.otherwise.as_deref().unwrap_or_default(), flows);
            }
            Statement::Recompute { body, .. } => flatten(body, flows),
            Statement::Elided(_) | Statement::Empty(_) => {}
        }
    }
}
