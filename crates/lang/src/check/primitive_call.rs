//! Checks calls of primitives: tensors bind to inputs, constants to attributes, and a shape rule computes the types of the results.

use super::call::CallArgument;
use super::graph::{GraphChecker, OpenCondition};
use super::primitives::{Primitive, ShapeRule};
use super::rules::{self, Attributes, CheckedOperand};
use super::scope::ConstantScope;
use super::signature::{SignatureMismatch, SolvedSignature};
use super::types::{Shape, TensorType, is_integer};
use crate::ast::{Arg, Call, DTYPE_NAMES, IoTensor, Param, TypeExpr, TypeKind};
use crate::consteval::{ConstValue, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use crate::suggest::closest;
use std::collections::BTreeMap;

impl GraphChecker<'_> {
    pub(super) fn primitive_call(
        &mut self,
        call: &Call,
        primitive: &'static Primitive,
        mut inputs: Vec<CheckedOperand>,
        args: &[Arg],
    ) -> Result<Option<Vec<TensorType>>, OpenCondition> {
        let mut attributes = Attributes::new();
        let mut named_inputs: BTreeMap<String, CheckedOperand> = BTreeMap::new();
        let mut next = 0;
        for arg in args {
            if let Some(name) = &arg.name {
                let ty = attribute(primitive, &name.name);
                match (ty, self.argument(&arg.value, ty.is_none())?) {
                    (Some((ty, _)), CallArgument::Constant(value)) => {
                        let value = self.attribute_value(&name.name, ty, value, arg.value.span);
                        attributes.insert(name.name.clone(), value);
                    }
                    (Some(_), CallArgument::Absent) => {
                        attributes.insert(name.name.clone(), ConstValue::None);
                    }
                    (Some(_), CallArgument::Tensor(_)) => {
                        attributes.insert(name.name.clone(), ConstValue::Unknown);
                    }
                    (None, argument) if slot_exists(primitive, &name.name) => {
                        if let CallArgument::Tensor(operand) = argument {
                            named_inputs.insert(name.name.clone(), operand);
                        }
                    }
                    (None, _) => self.unknown_argument(primitive, name.span, &name.name),
                }
                continue;
            }
            match self.argument(&arg.value, true)? {
                CallArgument::Tensor(operand) => inputs.push(operand),
                CallArgument::Absent => {}
                // A number as operand, as in `x -> add(eps)`, is a tensor of rank 0.
                CallArgument::Constant(ConstValue::Int(_) | ConstValue::Float(_))
                    if matches!(primitive.rule, ShapeRule::Broadcast | ShapeRule::Divide | ShapeRule::Compare) =>
                {
                    let text = self.program.sources.slice(arg.value.span).to_string();
                    let shape = Shape::fixed(Vec::new());
                    inputs.push(CheckedOperand { text, ty: TensorType::of(shape), span: arg.value.span });
                }
                // An undefined identifier is reported as a missing tensor, if one is missing.
                CallArgument::Constant(ConstValue::Identifier(word)) if inputs.len() < required(primitive) => {
                    self.undefined(arg.value.span, &word, "no tensor");
                    inputs.push(CheckedOperand { text: word, ty: TensorType::default(), span: arg.value.span });
                }
                CallArgument::Constant(value) => match primitive.attributes.get(next) {
                    Some(Param::Named { name, ty, .. }) => {
                        next += 1;
                        let value = match ty {
                            Some(ty) => self.attribute_value(&name.name, ty, value, arg.value.span),
                            None => value,
                        };
                        attributes.insert(name.name.clone(), value);
                    }
                    // All attributes of `transpose(1, 2)` are bound already.
                    _ => self.too_many(call, arg.value.span),
                },
            }
        }
        if self.missing_attributes(call, primitive, &mut attributes) {
            return Ok(None);
        }
        self.record_primitive(primitive.name, &inputs);
        if primitive.rule == ShapeRule::Opaque {
            return Ok(None);
        }
        let Some(inputs) = self.count_inputs(call, primitive, inputs, named_inputs) else {
            return Ok(None);
        };
        self.dtypes(call, primitive, &inputs);
        if primitive.rule != ShapeRule::Signature {
            let operands: Vec<CheckedOperand> = inputs.into_iter().flatten().collect();
            return Ok(match rules::infer_shapes(primitive.rule, &operands, &attributes) {
                Ok((types, exact)) => {
                    self.note_exact(exact);
                    Some(types)
                }
                Err(error) => {
                    let misfit = SignatureMismatch { expected: String::new(), label: error.label };
                    self.shape_error(call.span, misfit, &operands, error.hint);
                    None
                }
            });
        }
        let constants: BTreeMap<String, ConstValue> = attributes
            .iter()
            .filter(|(_, value)| matches!(value, ConstValue::Int(_)))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let mut scope = ConstantScope::with_constants(self.fresh_scope(), constants);
        let slots: Vec<&IoTensor> = primitive.inputs.iter().collect();
        let outputs: Vec<&IoTensor> = primitive.outputs.iter().collect();
        let mut signature = SolvedSignature::new(&mut scope, &slots, &outputs);
        Ok(self.bind_inputs(call.span, &mut signature, &inputs))
    }

    /// Assigns operands to inputs; optional ones may stay empty. `None` if the number is wrong.
    fn count_inputs(
        &mut self,
        call: &Call,
        primitive: &Primitive,
        inputs: Vec<CheckedOperand>,
        mut named: BTreeMap<String, CheckedOperand>,
    ) -> Option<Vec<Option<CheckedOperand>>> {
        if primitive.inputs.iter().any(|slot| slot.variadic) {
            return Some(inputs.into_iter().map(Some).collect());
        }
        let given = inputs.len() + named.len();
        let mut inputs = inputs.into_iter();
        let mut filled = Vec::new();
        let mut complete = true;
        for slot in &primitive.inputs {
            let name = slot.name.as_ref().map_or("", |name| &name.name);
            let optional = matches!(slot.ty.as_ref().map(|ty| &ty.kind), Some(TypeKind::Optional(_)));
            let operand = named.remove(name).or_else(|| inputs.next());
            complete &= operand.is_some() || optional;
            filled.push(operand);
        }
        if complete && inputs.next().is_none() {
            return Some(filled);
        }
        let names: Vec<&str> =
            primitive.inputs.iter().filter_map(|slot| slot.name.as_ref()).map(|name| &*name.name).collect();
        let needed = primitive.inputs.len();
        let plural = if needed == 1 { "" } else { "s" };
        self.diagnostics.push(
            Diagnostic::new(Code::E003, call.span, format!("wrong number of tensors for `{}`", primitive.name))
                .with_label(format!("takes {needed} tensor{plural}, got {given}"))
                .with_note(format!("inputs: {}", names.join(", "))),
        );
        None
    }

    fn dtypes(&mut self, call: &Call, primitive: &Primitive, inputs: &[Option<CheckedOperand>]) {
        for (slot, operand) in primitive.inputs.iter().zip(inputs) {
            let Some(operand) = operand else { continue };
            let kind = slot.ty.as_ref().map(|ty| match &ty.kind {
                TypeKind::Optional(inner) => &inner.kind,
                kind => kind,
            });
            let wants_integer =
                matches!(kind, Some(TypeKind::Tensor { dtype: Some(dtype), .. }) if is_integer(&dtype.name));
            if wants_integer {
                self.integers.insert(operand.text.clone());
            }
            let Some(dtype) = &operand.ty.dtype else { continue };
            let moves_only =
                matches!(
                    primitive.rule,
                    ShapeRule::Split
                        | ShapeRule::Concat
                        | ShapeRule::View
                        | ShapeRule::Transpose
                        | ShapeRule::Permute
                        | ShapeRule::Fork
                        | ShapeRule::Broadcast
                        | ShapeRule::Divide
                        | ShapeRule::Compare
                        | ShapeRule::Reduce
                ) || matches!(primitive.name, "copy" | "contiguous" | "dequantize" | "all_reduce" | "cumsum");
            let name = slot.name.as_ref().map_or("", |name| &name.name);
            let words = match (wants_integer, is_integer(dtype)) {
                (true, false) => format!("`{name}` holds indices and must be int32"),
                (false, true) if !moves_only && dtype == "int32" => format!("`{name}` must be a float tensor"),
                _ => continue,
            };
            self.diagnostics.push(
                Diagnostic::new(Code::E015, call.span, format!("`{}` cannot take {dtype} here", primitive.name))
                    .with_label(words)
                    .with_secondary(operand.span, format!("this is {dtype}")),
            );
        }
    }

    /// The value of an attribute, unknown if it has the wrong type.
    fn attribute_value(&mut self, name: &str, ty: &TypeExpr, value: ConstValue, span: Span) -> ConstValue {
        if let ConstValue::Identifier(word) = &value {
            let expects_word = match &ty.kind {
                TypeKind::Named { path, .. } => matches!(path.to_string().as_str(), "enum" | "dtype" | "string"),
                _ => false,
            };
            if !expects_word && !DTYPE_NAMES.contains(&word.as_str()) {
                self.undefined(span, word, "no value");
                return ConstValue::Unknown;
            }
        }
        if self.check_kind(name, ty, &value, span) { value } else { ConstValue::Unknown }
    }

    /// Inserts defaults; returns whether an attribute without one is missing.
    fn missing_attributes(&mut self, call: &Call, primitive: &Primitive, attributes: &mut Attributes) -> bool {
        let mut missing = false;
        for param in &primitive.attributes {
            let Param::Named { name, default, .. } = param else {
                continue;
            };
            // Without a dtype, tensors without operands have the model's dtype.
            let counts = matches!(primitive.name, "positions" | "relative_buckets");
            let own = primitive.rule == ShapeRule::Filled && name.name == "dtype" && !counts;
            if attributes.contains_key(&name.name) || own {
                continue;
            }
            match default {
                // Defaults in the table are literals or identifiers.
                Some(default) => {
                    let scope = ConstantScope::empty(0);
                    let value = eval(default, &scope)
                        .unwrap_or_else(|_| ConstValue::Identifier(default.as_name().unwrap_or_default().to_string()));
                    attributes.insert(name.name.clone(), value);
                }
                None => {
                    missing = true;
                    self.diagnostics.push(
                        Diagnostic::new(Code::E012, call.span, format!("`{}` needs `{}`", primitive.name, name.name))
                            .with_label("it has no default"),
                    );
                }
            }
        }
        missing
    }

    fn unknown_argument(&mut self, primitive: &Primitive, span: Span, name: &str) {
        let known = primitive.attributes.iter().filter_map(|param| match param {
            Param::Named { name, .. } => Some(name.name.as_str()),
            Param::Elided(_) => None,
        });
        let mut found = Diagnostic::new(Code::E003, span, format!("`{}` has no argument `{name}`", primitive.name))
            .with_label("unknown argument");
        if let Some(close) = closest(name, known) {
            found = found.with_hint(format!("did you mean `{close}`?"));
        }
        self.diagnostics.push(found);
    }
}

fn attribute<'a>(primitive: &'a Primitive, wanted: &str) -> Option<(&'a TypeExpr, Span)> {
    primitive.attributes.iter().find_map(|param| match param {
        Param::Named { name, ty: Some(ty), span, .. } if name.name == wanted => Some((ty, *span)),
        _ => None,
    })
}

/// The number of required tensor inputs.
fn required(primitive: &Primitive) -> usize {
    let optional = |slot: &&IoTensor| matches!(slot.ty.as_ref().map(|ty| &ty.kind), Some(TypeKind::Optional(_)));
    primitive.inputs.iter().filter(|slot| !optional(slot) && !slot.variadic).count()
}

fn slot_exists(primitive: &Primitive, wanted: &str) -> bool {
    primitive.inputs.iter().any(|slot| slot.name.as_ref().is_some_and(|name| name.name == wanted))
}
