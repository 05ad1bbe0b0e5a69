//! Checks calls of modules and instances: tensors bind to inputs and parameters, constants to the module's own parameters, and
//! sizes that are not given are inferred from the tensors.

use super::call::CallArgument;
use super::graph::{GraphChecker, GraphEntry, ModuleInstance, OpenCondition};
use super::rules::CheckedOperand;
use super::scope::ConstantScope;
use super::signature::SolvedSignature;
use super::types::TensorType;
use crate::ast::{Arg, Call, DeclKind, ExprKind, Param};
use crate::consteval::{ConstValue, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ItemRef, ModuleView};
use crate::span::Span;
use crate::suggest::closest;
use std::collections::BTreeMap;

impl GraphChecker<'_> {
    fn reject_abstract(&mut self, view: &ModuleView<'_>, span: Span) {
        if view.decl.kind == DeclKind::AbstractModule {
            self.diagnostics.push(
                Diagnostic::new(Code::L007, span, format!("`{}` is abstract", view.decl.name.name))
                    .with_label("it has no graph to run")
                    .with_secondary(view.decl.name.span, "declared here")
                    .with_hint("use a module that extends it"),
            );
        }
    }

    /// The arguments of an instance (E003, E012, L007).
    pub(super) fn instance_arguments(
        &mut self,
        item: ItemRef,
        args: &[Arg],
        span: Span,
    ) -> BTreeMap<String, ConstValue> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return BTreeMap::new();
        };
        self.reject_abstract(&view, span);
        let mut given = BTreeMap::new();
        let header = header_names(&view);
        for (index, arg) in args.iter().enumerate() {
            if matches!(arg.value.kind, ExprKind::Ellipsis) {
                self.report_elided(arg.value.span, "arguments");
                return given;
            }
            let name = match &arg.name {
                Some(name) if header.contains(&&*name.name) => name.name.clone(),
                Some(name) => {
                    let mut found = Diagnostic::new(
                        Code::E003,
                        name.span,
                        format!("`{}` has no parameter `{}`", view.decl.name.name, name.name),
                    )
                    .with_label("unknown parameter");
                    if let Some(close) = closest(&name.name, header.iter().copied()) {
                        found = found.with_hint(format!("did you mean `{close}`?"));
                    }
                    self.diagnostics.push(found);
                    continue;
                }
                None => match header.get(index) {
                    Some(name) => (*name).to_string(),
                    None => {
                        self.diagnostics.push(
                            Diagnostic::new(
                                Code::E003,
                                arg.value.span,
                                format!("`{}` takes {} parameters", view.decl.name.name, header.len()),
                            )
                            .with_label("unexpected argument"),
                        );
                        break;
                    }
                },
            };
            let word = arg.value.as_name().filter(|word| crate::lower::accepts_word(&view, &name, word));
            let value = match word.filter(|word| !self.scope.has_constant(word)) {
                Some(word) => ConstValue::Identifier(word.to_string()),
                None => self.scope.constant(&arg.value),
            };
            given.insert(name, value);
        }
        for param in &view.header {
            let Param::Named { name, ty, default, .. } = param else {
                continue;
            };
            if let (Some(ty), Some(value)) = (ty, given.get(&name.name)) {
                let value = value.clone();
                self.check_kind(&name.name, ty, &value, span);
            }
            if given.contains_key(&name.name) {
                continue;
            }
            match default {
                Some(default) => {
                    // A default may use preceding parameters.
                    let scope = ConstantScope::with_constants(0, given.clone());
                    let value = eval(default, &scope).unwrap_or(ConstValue::Unknown);
                    given.insert(name.name.clone(), value);
                }
                None => self.diagnostics.push(
                    Diagnostic::new(Code::E012, span, format!("`{}` needs `{}`", view.decl.name.name, name.name))
                        .with_label("missing, and it has no default")
                        .with_secondary(name.span, "declared here"),
                ),
            }
        }
        let scope = ConstantScope::for_module(&view, self.fresh_scope(), given.clone(), BTreeMap::new());
        self.check_constraints(&view.lets, Some((span, &scope)));
        given
    }

    /// A parameter of an instance, in terms of the sizes of the module under check.
    pub(super) fn member(&mut self, instance: &ModuleInstance, name: &str) -> Option<GraphEntry> {
        let view = ModuleView::new(self.program, instance.item)?;
        let entry = view.params.iter().find(|entry| entry.path.as_name().is_some_and(|n| n.name == name))?;
        let id = self.fresh_scope();
        let scope = ConstantScope::for_module(&view, id, instance.given.clone(), BTreeMap::new());
        // It is checked separately: only its type is needed here.
        let mut inner = GraphChecker::new(self.program, instance.item.file, scope);
        let entry = inner.param_entry(entry).unwrap_or(GraphEntry::Tensor(TensorType::default()));
        Some(match entry {
            GraphEntry::Tensor(ty) if mentions(&ty, id) => {
                GraphEntry::Tensor(TensorType { shape: None, dtype: ty.dtype })
            }
            other => other,
        })
    }

    pub(super) fn module_call(
        &mut self,
        call: &Call,
        item: ItemRef,
        given: Option<BTreeMap<String, ConstValue>>,
        mut inputs: Vec<CheckedOperand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, OpenCondition> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return Ok(None);
        };
        // The arguments of an instance were checked at its declaration.
        let is_instance = given.is_some();
        let mut given = given.unwrap_or_default();
        if view.decl.kind == DeclKind::AbstractModule && !is_instance {
            self.reject_abstract(&view, call.span);
            return Ok(None);
        }
        // A residual pattern without declared inputs maps a tensor to one of the same type.
        if view.pattern.is_some() && view.forward.inputs.is_empty() && inputs.len() == 1 {
            return Ok(Some(inputs.into_iter().map(|input| input.ty).collect()));
        }
        let header = header_names(&view);
        let entries: Vec<String> =
            view.params.iter().filter_map(|e| e.path.as_name()).map(|n| n.name.clone()).collect();
        let mut weights: Vec<(String, CheckedOperand)> = Vec::new();
        let mut next = 0;
        for arg in args {
            let key = arg.name.as_ref().map(|name| name.name.as_str());
            // A name that is both a flag and a tensor binds to a tensor argument, if there is one.
            let tensor_first = key.is_none_or(|key| !header.contains(&key) || entries.iter().any(|name| name == key));
            match self.argument(&arg.value, tensor_first)? {
                // A primitive has no weights: further tensors are operands.
                CallArgument::Tensor(operand) if view.decl.kind == DeclKind::Primitive => inputs.push(operand),
                CallArgument::Tensor(operand) => {
                    let name = key.map(str::to_string).or_else(|| entries.get(weights.len()).cloned());
                    match name {
                        Some(name) if entries.contains(&name) => weights.push((name, operand)),
                        _ => self.too_many(call, arg.value.span),
                    }
                }
                CallArgument::Constant(value) => {
                    let name = key.map(str::to_string).or_else(|| header.get(next).map(|name| (*name).to_string()));
                    next += usize::from(key.is_none());
                    match name {
                        Some(name) if header.contains(&name.as_str()) => {
                            given.insert(name, value);
                        }
                        _ => self.too_many(call, arg.value.span),
                    }
                }
                CallArgument::Absent => {}
            }
        }
        fill_defaults(&view, &mut given);
        let id = self.fresh_scope();
        let mut scope = ConstantScope::for_module(&view, id, given.clone(), BTreeMap::new());
        let mut signature = SolvedSignature::new(&mut scope, &view.forward.inputs, &view.forward.outputs);
        if inputs.len() > signature.inputs.len()
            || signature.inputs.iter().skip(inputs.len()).any(|slot| !slot.optional)
        {
            let names: Vec<&str> = signature.inputs.iter().map(|slot| &*slot.name).collect();
            let (needed, got) = (names.len(), inputs.len());
            let plural = if needed == 1 { "" } else { "s" };
            self.diagnostics.push(
                Diagnostic::new(Code::E003, call.span, format!("wrong number of inputs for `{}`", view.decl.name.name))
                    .with_label(format!("takes {needed} tensor{plural}, got {got}"))
                    .with_note(format!("inputs: {}", names.join(", "))),
            );
            return Ok(None);
        }
        for (name, operand) in &weights {
            let Some(entry) = view.params.iter().find(|e| e.path.as_name().is_some_and(|n| n.name == *name)) else {
                continue;
            };
            let Some(slot) = scope.tensor(&entry.ty) else { continue };
            if let Err(misfit) = signature.unify_slot(&slot, &operand.ty) {
                let hint = format!("parameter `{name}` should be {}", misfit.expected);
                let operands: Vec<CheckedOperand> =
                    inputs.iter().chain(weights.iter().map(|(_, o)| o)).cloned().collect();
                self.shape_error(call.span, misfit, &operands, Some(hint));
                return Ok(None);
            }
        }
        let inputs: Vec<Option<CheckedOperand>> = inputs.into_iter().map(Some).collect();
        let Some(first) = self.bind_inputs(call.span, &mut signature, &inputs) else {
            return Ok(None);
        };
        let results = self.infer_parameters(call, &view, &mut signature, &scope, first, is_instance);
        let solved: BTreeMap<String, ConstValue> = header
            .iter()
            .filter_map(|name| {
                let value = given.get(*name).cloned().or_else(|| {
                    let value = signature.unifier.value(scope.symbol(name)?)?;
                    Some(ConstValue::Int(value.clone()))
                })?;
                Some(((*name).to_string(), value))
            })
            .collect();
        if !is_instance {
            let scope = ConstantScope::for_module(&view, self.fresh_scope(), solved, BTreeMap::new());
            self.check_constraints(&view.lets, Some((call.span, &scope)));
        }
        Ok(Some(results))
    }

    /// Parameters that were neither given nor inferred take their default, or are missing (E012).
    fn infer_parameters(
        &mut self,
        call: &Call,
        view: &ModuleView<'_>,
        signature: &mut SolvedSignature,
        scope: &ConstantScope,
        first: Vec<TensorType>,
        is_instance: bool,
    ) -> Vec<TensorType> {
        for param in &view.header {
            let Param::Named { name, default, .. } = param else {
                continue;
            };
            let Some(symbol) = scope.symbol(&name.name) else {
                continue;
            };
            if signature.unifier.value(symbol).is_some() {
                continue;
            }
            match default.as_ref().map(|default| eval(default, scope)) {
                Some(Ok(ConstValue::Int(value))) => signature.unifier.bind(symbol.clone(), value),
                Some(_) => {}
                None if is_instance => {}
                None => self.diagnostics.push(
                    Diagnostic::new(Code::E012, call.span, format!("`{}` needs `{}`", view.decl.name.name, name.name))
                        .with_label("missing, and no tensor determines it")
                        .with_secondary(name.span, "declared here"),
                ),
            }
        }
        let dtype = first.first().and_then(|ty| ty.dtype.clone());
        signature
            .outputs
            .iter()
            .map(|slot| {
                let mut ty = signature.substitute_known(&slot.ty);
                ty.dtype = ty.dtype.or_else(|| dtype.clone());
                ty
            })
            .collect()
    }

    /// `(x, r) -> StackedBlocks(blocks, n) -> (y, s)`: each block takes the results of the previous one.
    pub(super) fn stacked_call(
        &mut self,
        call: &Call,
        inputs: Vec<CheckedOperand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, OpenCondition> {
        let Some(first) = args.first() else {
            self.diagnostics.push(
                Diagnostic::new(Code::E012, call.span, "`StackedBlocks` needs an array of blocks")
                    .with_label("expected `StackedBlocks(blocks, n)`"),
            );
            return Ok(None);
        };
        let entry = first.value.as_path().and_then(|path| self.path_entry(&path));
        let Some(GraphEntry::Instances(instance, _)) = entry else {
            self.diagnostics.push(
                Diagnostic::new(Code::E003, first.value.span, "`StackedBlocks` needs an array of blocks")
                    .with_label("declare it as `blocks: [n] x Block(...)`"),
            );
            return Ok(None);
        };
        for arg in &args[1..] {
            self.scope.constant(&arg.value);
        }
        if let Some(array) = first.value.as_path() {
            self.stacks.insert(array.to_string(), inputs.iter().map(|input| input.text.clone()).collect());
        }
        let results = self.module_call(call, instance.item, Some(instance.given), inputs.clone(), &[])?;
        if let Some(types) = &results {
            for (index, (input, result)) in inputs.iter().zip(types).enumerate() {
                if let (Some(a), Some(b)) = (&input.ty.shape, &result.shape)
                    && !a.equal(b)
                {
                    self.diagnostics.push(
                        Diagnostic::new(Code::E004, call.span, "the results of a stacked block must match its inputs")
                            .with_label(format!("result {} is {b}, input `{}` is {a}", index + 1, input.text)),
                    );
                }
            }
        }
        Ok(results)
    }
}

/// Binds the defaults of parameters that are not sizes: sizes may still be inferred from tensors.
fn fill_defaults(view: &ModuleView<'_>, given: &mut BTreeMap<String, ConstValue>) {
    for param in &view.header {
        let Param::Named { name, default: Some(default), .. } = param else {
            continue;
        };
        if given.contains_key(&name.name) {
            continue;
        }
        if let Ok(value) = eval(default, &ConstantScope::with_constants(0, given.clone()))
            && !matches!(value, ConstValue::Int(_))
        {
            given.insert(name.name.clone(), value);
        }
    }
}

fn header_names<'a>(view: &ModuleView<'a>) -> Vec<&'a str> {
    view.header
        .iter()
        .filter_map(|param| match param {
            Param::Named { name, .. } => Some(name.name.as_str()),
            Param::Elided(_) => None,
        })
        .collect()
}

/// Whether a type contains unsolved symbols of a call's scope.
fn mentions(ty: &TensorType, scope: u32) -> bool {
    ty.shape.as_ref().is_some_and(|shape| {
        shape.variadic.as_ref().is_some_and(|lead| lead.scope == scope)
            || shape.dims.iter().any(|dim| dim.symbols().iter().any(|symbol| symbol.scope == scope))
    })
}
