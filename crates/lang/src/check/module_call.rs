//! Calls of modules and instances: tensors fill inputs and parameters, constants the module's own parameters, and sizes
//! that are not given follow from the tensors.

use super::call::Argument;
use super::graph::{Entry, GraphChecker, Instance, Undecided};
use super::rules::Operand;
use super::scope::Scope;
use super::signature::Signature;
use super::types::TensorType;
use crate::ast::{Arg, Call, DeclKind, ExprKind, Param};
use crate::consteval::{Value, eval};
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
                    .label("it has no graph to run")
                    .also(view.decl.name.span, "declared here")
                    .hint("use a module that extends it"),
            );
        }
    }

    /// The parameters given to an instance between its parentheses (E003, E012, L007).
    pub(super) fn instance_arguments(&mut self, item: ItemRef, args: &[Arg], span: Span) -> BTreeMap<String, Value> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return BTreeMap::new();
        };
        self.reject_abstract(&view, span);
        let mut given = BTreeMap::new();
        let header = header_names(&view);
        for (index, arg) in args.iter().enumerate() {
            if matches!(arg.value.kind, ExprKind::Ellipsis) {
                self.left_out(arg.value.span, "arguments");
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
                    .label("unknown parameter");
                    if let Some(close) = closest(&name.name, header.iter().copied()) {
                        found = found.hint(format!("did you mean `{close}`?"));
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
                            .label("unexpected argument"),
                        );
                        break;
                    }
                },
            };
            let word = arg.value.as_name().filter(|word| crate::lower::takes_word(&view, &name, word));
            let value = match word.filter(|word| !self.scope.has_constant(word)) {
                Some(word) => Value::Word(word.to_string()),
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
                    // A default may name parameters before it.
                    let scope = Scope::with_constants(0, given.clone());
                    let value = eval(default, &scope).unwrap_or(Value::Unknown);
                    given.insert(name.name.clone(), value);
                }
                None => self.diagnostics.push(
                    Diagnostic::new(Code::E012, span, format!("`{}` needs `{}`", view.decl.name.name, name.name))
                        .label("missing, and it has no default")
                        .also(name.span, "declared here"),
                ),
            }
        }
        let scope = Scope::of_module(&view, self.fresh_scope(), given.clone(), BTreeMap::new());
        self.constraints(&view.lets, Some((span, &scope)));
        given
    }

    /// A parameter of an instance, in the sizes of the module under check.
    pub(super) fn member(&mut self, instance: &Instance, name: &str) -> Option<Entry> {
        let view = ModuleView::new(self.program, instance.item)?;
        let entry = view.params.iter().find(|entry| entry.path.as_name().is_some_and(|n| n.name == name))?;
        let id = self.fresh_scope();
        let scope = Scope::of_module(&view, id, instance.given.clone(), BTreeMap::new());
        // Checked on its own elsewhere: here only the type is of interest.
        let mut inner = GraphChecker::new(self.program, instance.item.file, scope);
        let entry = inner.param_entry(entry).unwrap_or(Entry::Tensor(TensorType::default()));
        Some(match entry {
            Entry::Tensor(ty) if mentions(&ty, id) => Entry::Tensor(TensorType { shape: None, dtype: ty.dtype }),
            other => other,
        })
    }

    pub(super) fn module_call(
        &mut self,
        call: &Call,
        item: ItemRef,
        given: Option<BTreeMap<String, Value>>,
        mut inputs: Vec<Operand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, Undecided> {
        let Some(view) = ModuleView::new(self.program, item) else {
            return Ok(None);
        };
        // The parameters of an instance were checked where it was declared.
        let is_instance = given.is_some();
        let mut given = given.unwrap_or_default();
        if view.decl.kind == DeclKind::AbstractModule && !is_instance {
            self.reject_abstract(&view, call.span);
            return Ok(None);
        }
        // A residual pattern without declared inputs maps a tensor to one like it.
        if view.pattern.is_some() && view.forward.inputs.is_empty() && inputs.len() == 1 {
            return Ok(Some(inputs.into_iter().map(|input| input.ty).collect()));
        }
        let header = header_names(&view);
        let entries: Vec<String> =
            view.params.iter().filter_map(|e| e.path.as_name()).map(|n| n.name.clone()).collect();
        let mut weights: Vec<(String, Operand)> = Vec::new();
        let mut next = 0;
        for arg in args {
            let key = arg.name.as_ref().map(|name| name.name.as_str());
            // A name that is both a flag and a tensor is the tensor, where one is given.
            let tensor_first = key.is_none_or(|key| !header.contains(&key) || entries.iter().any(|name| name == key));
            match self.argument(&arg.value, tensor_first)? {
                // A primitive has no weights: what it is given beside its operands is one more of them.
                Argument::Tensor(operand) if view.decl.kind == DeclKind::Primitive => inputs.push(operand),
                Argument::Tensor(operand) => {
                    let name = key.map(str::to_string).or_else(|| entries.get(weights.len()).cloned());
                    match name {
                        Some(name) if entries.contains(&name) => weights.push((name, operand)),
                        _ => self.too_many(call, arg.value.span),
                    }
                }
                Argument::Constant(value) => {
                    let name = key.map(str::to_string).or_else(|| header.get(next).map(|name| (*name).to_string()));
                    next += usize::from(key.is_none());
                    match name {
                        Some(name) if header.contains(&name.as_str()) => {
                            given.insert(name, value);
                        }
                        _ => self.too_many(call, arg.value.span),
                    }
                }
                Argument::Absent => {}
            }
        }
        fill_defaults(&view, &mut given);
        let id = self.fresh_scope();
        let mut scope = Scope::of_module(&view, id, given.clone(), BTreeMap::new());
        let mut signature = Signature::new(&mut scope, &view.forward.inputs, &view.forward.outputs);
        if inputs.len() > signature.inputs.len()
            || signature.inputs.iter().skip(inputs.len()).any(|slot| !slot.optional)
        {
            let names: Vec<&str> = signature.inputs.iter().map(|slot| &*slot.name).collect();
            let (needed, got) = (names.len(), inputs.len());
            let plural = if needed == 1 { "" } else { "s" };
            self.diagnostics.push(
                Diagnostic::new(Code::E003, call.span, format!("wrong number of inputs for `{}`", view.decl.name.name))
                    .label(format!("takes {needed} tensor{plural}, got {got}"))
                    .note(format!("inputs: {}", names.join(", "))),
            );
            return Ok(None);
        }
        for (name, operand) in &weights {
            let Some(entry) = view.params.iter().find(|e| e.path.as_name().is_some_and(|n| n.name == *name)) else {
                continue;
            };
            let Some(slot) = scope.tensor(&entry.ty) else { continue };
            if let Err(misfit) = signature.fit(&slot, &operand.ty) {
                let hint = format!("parameter `{name}` should be {}", misfit.expected);
                let operands: Vec<Operand> = inputs.iter().chain(weights.iter().map(|(_, o)| o)).cloned().collect();
                self.shape_error(call.span, misfit, &operands, Some(hint));
                return Ok(None);
            }
        }
        let inputs: Vec<Option<Operand>> = inputs.into_iter().map(Some).collect();
        let Some(first) = self.fit_all(call.span, &mut signature, &inputs) else {
            return Ok(None);
        };
        let results = self.solve_header(call, &view, &mut signature, &scope, first, is_instance);
        let solved: BTreeMap<String, Value> = header
            .iter()
            .filter_map(|name| {
                let value = given.get(*name).cloned().or_else(|| {
                    let value = signature.unifier.value(scope.symbol(name)?)?;
                    Some(Value::Int(value.clone()))
                })?;
                Some(((*name).to_string(), value))
            })
            .collect();
        if !is_instance {
            let scope = Scope::of_module(&view, self.fresh_scope(), solved, BTreeMap::new());
            self.constraints(&view.lets, Some((call.span, &scope)));
        }
        Ok(Some(results))
    }

    /// Parameters that were neither given nor follow from the tensors take their default, or are missing (E012).
    fn solve_header(
        &mut self,
        call: &Call,
        view: &ModuleView<'_>,
        signature: &mut Signature,
        scope: &Scope,
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
                Some(Ok(Value::Int(value))) => signature.unifier.bind(symbol.clone(), value),
                Some(_) => {}
                None if is_instance => {}
                None => self.diagnostics.push(
                    Diagnostic::new(Code::E012, call.span, format!("`{}` needs `{}`", view.decl.name.name, name.name))
                        .label("missing, and no tensor determines it")
                        .also(name.span, "declared here"),
                ),
            }
        }
        let dtype = first.first().and_then(|ty| ty.dtype.clone());
        signature
            .outputs
            .iter()
            .map(|slot| {
                let mut ty = signature.solved(&slot.ty);
                ty.dtype = ty.dtype.or_else(|| dtype.clone());
                ty
            })
            .collect()
    }

    /// `(x, r) -> StackedBlocks(blocks, n) -> (y, s)`: each block takes the results of the one before.
    pub(super) fn stacked_call(
        &mut self,
        call: &Call,
        inputs: Vec<Operand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, Undecided> {
        let Some(first) = args.first() else {
            self.diagnostics.push(
                Diagnostic::new(Code::E012, call.span, "`StackedBlocks` needs an array of blocks")
                    .label("expected `StackedBlocks(blocks, n)`"),
            );
            return Ok(None);
        };
        let entry = first.value.as_path().and_then(|path| self.path_entry(&path));
        let Some(Entry::Instances(instance, _)) = entry else {
            self.diagnostics.push(
                Diagnostic::new(Code::E003, first.value.span, "`StackedBlocks` needs an array of blocks")
                    .label("declare it as `blocks: [n] x Block(...)`"),
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
                            .label(format!("result {} is {b}, input `{}` is {a}", index + 1, input.text)),
                    );
                }
            }
        }
        Ok(results)
    }
}

/// Gives parameters that are not sizes their defaults: sizes may still follow from tensors.
fn fill_defaults(view: &ModuleView<'_>, given: &mut BTreeMap<String, Value>) {
    for param in &view.header {
        let Param::Named { name, default: Some(default), .. } = param else {
            continue;
        };
        if given.contains_key(&name.name) {
            continue;
        }
        if let Ok(value) = eval(default, &Scope::with_constants(0, given.clone()))
            && !matches!(value, Value::Int(_))
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

/// Whether a type has symbols of a call's scope left in it.
fn mentions(ty: &TensorType, scope: u32) -> bool {
    ty.shape.as_ref().is_some_and(|shape| {
        shape.lead.as_ref().is_some_and(|lead| lead.scope == scope)
            || shape.dims.iter().any(|dim| dim.symbols().iter().any(|symbol| symbol.scope == scope))
    })
}
