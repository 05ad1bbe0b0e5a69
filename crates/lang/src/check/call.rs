//! Checks calls: resolves the callee, binds arguments, and computes the types of the results.
//!
//! Tensors bind to inputs and then to parameters in order, constants to attributes or to the module's parameters in order; sizes
//! that are not given are inferred from the tensors.

use super::graph::{GraphChecker, GraphEntry, ModuleInstance, OpenCondition};
use super::primitives::{self, Primitive};
use super::rules::CheckedOperand;
use super::signature::{SignatureMismatch, SolvedSignature};
use super::types::{TensorType, float_bits, promoted};
use crate::ast::{Arg, Call, DeclKind, Expr, ExprKind, IndexItem};
use crate::consteval::ConstValue;
use crate::diagnostic::{Code, Diagnostic};
use crate::dims::Dim;
use crate::resolve::{Entity, ItemRef};
use crate::span::Span;
use crate::suggest::closest;

/// The target of a call.
enum CallTarget {
    Primitive(&'static Primitive),
    Module(ItemRef),
    Instance(ModuleInstance),
    /// A callee whose results are not tracked: the backward pass of a module, a declared primitive.
    Opaque,
    /// A declared primitive without an implementation.
    Bodiless(ItemRef),
    /// A stack of blocks, each applied to the results of the previous one.
    StackedBlocks,
    Unknown,
}

/// An argument that has been classified as a tensor or a constant.
pub(super) enum CallArgument {
    Tensor(CheckedOperand),
    Constant(ConstValue),
    Absent,
}

impl GraphChecker<'_> {
    fn resolve_callee(&mut self, call: &Call) -> CallTarget {
        let path = &call.callee.path;
        match self.entries.get(&path.parts[0].name).map(|defined| defined.entry.clone()) {
            Some(GraphEntry::Instances(instance, length)) if path.parts.len() == 1 => {
                self.slice_in_range(call, length);
                return CallTarget::Instance(instance);
            }
            Some(GraphEntry::Instance(instance)) if path.parts.len() == 1 => return CallTarget::Instance(instance),
            Some(GraphEntry::Instance(_) | GraphEntry::Instances(..)) if path.last().name == "backward" => {
                return CallTarget::Opaque;
            }
            Some(GraphEntry::Instance(_) | GraphEntry::Instances(..)) => {
                if let Some(GraphEntry::Instance(inner)) = self.path_entry(path) {
                    return CallTarget::Instance(inner);
                }
            }
            _ => {}
        }
        match self.program.lookup(self.file, path) {
            Some(Entity::Item(item)) => {
                return match self.program.decl(item).map(|decl| decl.kind) {
                    // A declared primitive with a graph is implemented by it; without one it describes the built-in one.
                    Some(DeclKind::Primitive) if self.program.has_graph(item) => CallTarget::Module(item),
                    Some(DeclKind::Primitive) => {
                        match self.program.decl(item).and_then(|d| primitives::find(&d.name.name)) {
                            Some(primitive) => CallTarget::Primitive(primitive),
                            None => CallTarget::Bodiless(item),
                        }
                    }
                    Some(_) => CallTarget::Module(item),
                    None => CallTarget::Unknown,
                };
            }
            Some(Entity::Primitive(name)) => {
                if let Some(primitive) = primitives::find(&name) {
                    return CallTarget::Primitive(primitive);
                }
            }
            _ => {}
        }
        let name = path.to_string();
        if let Some(primitive) = primitives::find_by_module_name(&name) {
            return CallTarget::Primitive(primitive);
        }
        match name.as_str() {
            "StackedBlocks" => return CallTarget::StackedBlocks,
            "StackedBlocksBackward" => return CallTarget::Opaque,
            _ => {}
        }
        // `Linear_backward` and `LinearBackward` name the backward pass of a module in scope.
        let base = name.strip_suffix("_backward").or_else(|| name.strip_suffix("Backward"));
        if let Some(base) = base
            && (self.entries.contains_key(base) || self.program.files[self.file].scope.contains_key(base))
        {
            return CallTarget::Opaque;
        }
        CallTarget::Unknown
    }

    /// The slice of `blocks[8:16]()` must lie inside the array, if both are constant.
    fn slice_in_range(&mut self, call: &Call, length: Option<Dim>) {
        let Some(length) = length.and_then(|length| length.as_constant()) else {
            return;
        };
        for item in call.callee.index.iter().flatten() {
            // Negative numbers count from the end.
            let mut place = |expr: &Expr| {
                let n = self.scope.constant(expr).as_int()?;
                Some(if n < 0 { n + length } else { n })
            };
            let (ok, span) = match item {
                IndexItem::At(expr) => (place(expr).is_none_or(|n| (0..length).contains(&n)), expr.span),
                IndexItem::Slice { start, end, span } => {
                    let start = start.as_ref().map_or(Some(0), &mut place);
                    let end = end.as_ref().map_or(Some(length), &mut place);
                    let ok = start.zip(end).is_none_or(|(start, end)| 0 <= start && start <= end && end <= length);
                    (ok, *span)
                }
            };
            if !ok {
                self.diagnostics.push(
                    Diagnostic::new(Code::E004, span, "index past the end of the array")
                        .with_label(format!("`{}` has {length} elements", call.callee.path)),
                );
            }
        }
    }

    /// Reports an undefined callee.
    pub(super) fn callee_exists(&mut self, call: &Call) -> bool {
        let unknown = matches!(self.resolve_callee(call), CallTarget::Unknown);
        if unknown {
            self.report_unknown(call);
        }
        !unknown
    }

    fn report_unknown(&mut self, call: &Call) {
        let name = call.callee.path.to_string();
        let is_module = call.callee.path.last().name.starts_with(|c: char| c.is_ascii_uppercase());
        let (code, message) = match is_module {
            true => (Code::E002, format!("no module named `{name}`")),
            false => (Code::E014, format!("no operation named `{name}`")),
        };
        let own = self.program.files[self.file].scope.keys().chain(self.entries.keys());
        let own: Vec<&str> = own.map(String::as_str).collect();
        let close = closest(&name, own).or_else(|| closest(&name, primitives::names())).map(str::to_string);
        let label = if is_module { "not declared and not imported" } else { "neither a primitive nor a module" };
        let mut found = Diagnostic::new(code, call.callee.span, message).with_label(label);
        if let Some(close) = close {
            found = found.with_hint(format!("did you mean `{close}`?"));
        }
        self.diagnostics.push(found);
    }

    /// The results of a call; `None` if they are not tracked.
    pub(super) fn call(
        &mut self,
        call: &Call,
        inputs: Vec<CheckedOperand>,
    ) -> Result<Option<Vec<TensorType>>, OpenCondition> {
        let target = self.resolve_callee(call);
        let args = call.args.as_deref().unwrap_or_default();
        match target {
            CallTarget::Unknown => {
                self.report_unknown(call);
                Ok(None)
            }
            CallTarget::Bodiless(item) => {
                let name = call.callee.path.to_string();
                let mut found =
                    Diagnostic::new(Code::E014, call.callee.span, format!("`{name}` has no implementation"))
                        .with_label("declared without a graph, and no primitive has its name")
                        .with_hint("give its `forward:` a `graph:`");
                if let Some(decl) = self.program.decl(item) {
                    found = found.with_secondary(decl.name.span, "declared here");
                }
                self.diagnostics.push(found);
                Ok(None)
            }
            CallTarget::Opaque => {
                self.visit_arguments(args)?;
                self.check_backward_parameters(call, args);
                Ok(None)
            }
            CallTarget::Primitive(primitive) => self.primitive_call(call, primitive, inputs, args),
            CallTarget::Module(item) => self.module_call(call, item, None, inputs, args),
            CallTarget::Instance(instance) => self.module_call(call, instance.item, Some(instance.given), inputs, args),
            CallTarget::StackedBlocks => self.stacked_call(call, inputs, args),
        }
    }

    /// Records the parameters whose gradients `LinearBackward(w)` computes; `StackedBlocksBackward(blocks, n)` reads the inputs
    /// that the forward graph passed to the stack.
    fn check_backward_parameters(&mut self, call: &Call, args: &[Arg]) {
        let name = call.callee.path.to_string();
        if !name.ends_with("ackward") {
            return;
        }
        for given in args.iter().filter_map(|arg| arg.value.as_name()).filter(|name| self.params.contains(*name)) {
            self.requested_gradients.insert(format!("d_{given}"));
        }
        if let (true, Some(array)) = (name == "StackedBlocksBackward", args.first().and_then(|arg| arg.value.as_path()))
        {
            let inputs = self.stacks.get(&array.to_string()).cloned().unwrap_or_default();
            self.saved_used.extend(inputs);
        }
    }

    fn visit_arguments(&mut self, args: &[Arg]) -> Result<(), OpenCondition> {
        for arg in args {
            self.argument(&arg.value, true)?;
        }
        Ok(())
    }

    /// Classifies an argument as a tensor or a constant; `tensor_first` decides for names that are both.
    pub(super) fn argument(&mut self, expr: &Expr, tensor_first: bool) -> Result<CallArgument, OpenCondition> {
        match &expr.kind {
            ExprKind::Paren(inner) => return self.argument(inner, tensor_first),
            ExprKind::None => return Ok(CallArgument::Absent),
            ExprKind::Ellipsis => {
                self.report_elided(expr.span, "arguments");
                return Ok(CallArgument::Absent);
            }
            ExprKind::IfElse { then, condition, otherwise } => {
                let branch = if self.guard(condition)? { then } else { otherwise };
                return self.argument(branch, tensor_first);
            }
            ExprKind::Name(name) => {
                let tensor = self.entries.contains_key(name);
                let constant = self.scope.has_constant(name);
                if let Some(super::graph::Definition { entry: GraphEntry::Absent, .. }) = self.entries.get(name)
                    && !constant
                {
                    return Ok(CallArgument::Absent);
                }
                if tensor && (tensor_first || !constant) {
                    return Ok(CallArgument::Tensor(self.operand(expr)));
                }
                if !tensor && !constant {
                    return Ok(CallArgument::Constant(ConstValue::Identifier(name.clone())));
                }
            }
            ExprKind::Attr(..) | ExprKind::Index(..) | ExprKind::Spread(_) => {
                return Ok(CallArgument::Tensor(self.operand(expr)));
            }
            _ => {}
        }
        if let ExprKind::List(items) | ExprKind::Tuple(items) = &expr.kind
            && items.iter().all(|item| item.as_name().is_none_or(|name| !self.scope.has_constant(name)))
            && items.iter().any(|item| item.as_name().is_some_and(|name| self.entries.contains_key(name)))
        {
            return Ok(CallArgument::Constant(ConstValue::Unknown));
        }
        // Runtime dimensions such as B may occur in shape arguments.
        let value = match &expr.kind {
            // A list of sizes, unless an element is clearly not one.
            ExprKind::List(items) if !items.iter().any(|item| matches!(item.peel().kind, ExprKind::Float(_))) => {
                ConstValue::List(
                    items
                        .iter()
                        .map(|item| self.scope.dim(item).map_or(ConstValue::Unknown, ConstValue::Int))
                        .collect(),
                )
            }
            _ => self.scope.constant(expr),
        };
        Ok(CallArgument::Constant(value))
    }

    /// Matches operands with the inputs of a signature and returns the types of its results.
    pub(super) fn bind_inputs(
        &mut self,
        span: Span,
        signature: &mut SolvedSignature,
        inputs: &[Option<CheckedOperand>],
    ) -> Option<Vec<TensorType>> {
        let operands: Vec<CheckedOperand> = inputs.iter().flatten().cloned().collect();
        let slots = signature.inputs.clone();
        for (slot, operand) in slots.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            if let Err(misfit) = signature.unify_slot(&slot.ty, &operand.ty) {
                let hint = format!("`{}` should be {}", operand.text, misfit.expected);
                self.shape_error(span, misfit, &operands, Some(hint));
                return None;
            }
        }
        self.note_exact(signature.unifier.exactness().to_vec());
        for (slot, operand) in slots.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            if let (Some(want), Some(have)) = (&slot.ty.dtype, &operand.ty.dtype)
                && float_bits(want).zip(float_bits(have)).is_some_and(|(want, have)| want < have)
            {
                // Low-precision types need scales, so they are never converted implicitly (§7.4.4).
                if float_bits(want).is_some_and(|bits| bits < 16) {
                    self.diagnostics.push(
                        Diagnostic::new(
                            Code::E015,
                            operand.span,
                            format!("`{}` is not converted to {want} implicitly", operand.text),
                        )
                        .with_label(format!("this is {have}, and `{}` is declared as {want}", slot.name))
                        .with_hint("`quantize` it, or write `@scaling(per_tensor)` after the input's declaration"),
                    );
                    continue;
                }
                self.diagnostics.push(
                    Diagnostic::new(
                        Code::W005,
                        operand.span,
                        format!("`{}` is rounded from {have} to {want}", operand.text),
                    )
                    .with_label(format!("`{}` is declared as {want}", slot.name))
                    .with_hint(format!("write `@dtype({want})` where it is computed to make this explicit")),
                );
            }
        }
        let dtype = promoted(operands.iter().map(|operand| operand.ty.dtype.as_deref()));
        Some(
            signature
                .outputs
                .iter()
                .map(|slot| {
                    let mut ty = signature.substitute_known(&slot.ty);
                    ty.dtype = ty.dtype.or_else(|| dtype.clone());
                    ty
                })
                .collect(),
        )
    }

    pub(super) fn shape_error(
        &mut self,
        span: Span,
        misfit: SignatureMismatch,
        operands: &[CheckedOperand],
        hint: Option<String>,
    ) {
        let mut found = Diagnostic::new(Code::E004, span, "shapes do not fit").with_label(misfit.label);
        let shown: Vec<String> = operands.iter().map(|o| format!("{}: {}", o.text, o.ty)).collect();
        found = found.with_note(shown.join("   "));
        found.hint = hint;
        self.diagnostics.push(found);
    }

    pub(super) fn too_many(&mut self, call: &Call, span: Span) {
        let name = call.callee.path.to_string();
        self.diagnostics.push(
            Diagnostic::new(Code::E003, span, format!("`{name}` takes fewer arguments"))
                .with_label("unexpected argument"),
        );
    }
}
