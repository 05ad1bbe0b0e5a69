//! Matches tensors with a signature.

use super::scope::ConstantScope;
use super::types::{Shape, TensorType};
use crate::ast::IoTensor;
use crate::dims::{Dim, Symbol, Unifier};
use std::collections::BTreeMap;

/// One input or result of a signature.
#[derive(Clone, Debug)]
pub(super) struct SignatureSlot {
    pub(super) name: String,
    pub(super) ty: TensorType,
    pub(super) optional: bool,
}

/// A signature whose symbols are solved for.
pub(super) struct SolvedSignature {
    pub(super) inputs: Vec<SignatureSlot>,
    pub(super) outputs: Vec<SignatureSlot>,
    pub(super) unifier: Unifier,
    variadic_shapes: BTreeMap<Symbol, Shape>,
}

/// Why a tensor does not match its slot.
pub(super) struct SignatureMismatch {
    pub(super) expected: String,
    pub(super) label: String,
}

pub(super) fn slots(tensors: &[&IoTensor], scope: &mut ConstantScope, default_name: &str) -> Vec<SignatureSlot> {
    tensors
        .iter()
        .map(|tensor| {
            let optional = tensor.optional
                || matches!(tensor.ty.as_ref().map(|ty| &ty.kind), Some(crate::ast::TypeKind::Optional(_)));
            let name = tensor.name.as_ref().map_or(default_name.to_string(), |name| name.name.clone());
            SignatureSlot { name, ty: scope.io_tensor(tensor), optional }
        })
        .collect()
}

impl SolvedSignature {
    pub(super) fn new(scope: &mut ConstantScope, inputs: &[&IoTensor], outputs: &[&IoTensor]) -> SolvedSignature {
        SolvedSignature {
            inputs: slots(inputs, scope, "in"),
            outputs: slots(outputs, scope, "out"),
            unifier: Unifier::new(scope.id),
            variadic_shapes: BTreeMap::new(),
        }
    }

    /// Matches a tensor with a slot's type.
    pub(super) fn unify_slot(&mut self, slot: &TensorType, found: &TensorType) -> Result<(), SignatureMismatch> {
        let (Some(pattern), Some(shape)) = (&slot.shape, &found.shape) else {
            return Ok(());
        };
        let misfit = |this: &Self, label: String| SignatureMismatch { expected: this.show(pattern), label };
        let extra = shape.dims.len().checked_sub(pattern.dims.len());
        match (&pattern.variadic, extra) {
            (None, Some(0)) if shape.variadic.is_none() => {}
            (Some(_), Some(_)) => {}
            _ => {
                let rank = pattern.dims.len();
                let words = if pattern.variadic.is_some() { "at least " } else { "" };
                let plural = if rank == 1 { "" } else { "s" };
                return Err(misfit(self, format!("needs {words}{rank} dimension{plural}, got {shape}")));
            }
        }
        if let Some(pack) = &pattern.variadic {
            let head = Shape { variadic: shape.variadic.clone(), dims: shape.dims[..extra.unwrap_or(0)].to_vec() };
            match self.variadic_shapes.get(pack) {
                None => {
                    self.variadic_shapes.insert(pack.clone(), head);
                }
                Some(bound) if bound.equal(&head) => {}
                Some(bound) => {
                    let label = format!("leading dimensions differ: {bound} and {head}");
                    return Err(misfit(self, label));
                }
            }
        }
        let tail = &shape.dims[extra.unwrap_or(0)..];
        for (pattern_dim, found_dim) in pattern.dims.clone().iter().zip(tail) {
            if let Err(wrong) = self.unifier.unify(pattern_dim, found_dim) {
                let label = format!("needs {} where {} was given", wrong.expected, wrong.found);
                return Err(misfit(self, label));
            }
        }
        Ok(())
    }

    /// Substitutes the solved sizes in a type of the signature; an unsolved size makes the shape unknown.
    pub(super) fn substitute_known(&self, ty: &TensorType) -> TensorType {
        let shape = ty.shape.as_ref().and_then(|shape| {
            let mut solved = match &shape.variadic {
                None => Shape::fixed(Vec::new()),
                Some(pack) => self.variadic_shapes.get(pack)?.clone(),
            };
            for dim in &shape.dims {
                if self.unifier.unsolved(dim).is_some() {
                    return None;
                }
                solved.dims.push(self.unifier.apply(dim));
            }
            Some(solved)
        });
        TensorType { shape, dtype: ty.dtype.clone() }
    }

    /// A slot's shape for messages: solved sizes are substituted, others are shown by name.
    fn show(&self, shape: &Shape) -> String {
        let lead = shape.variadic.as_ref().map(|pack| match self.variadic_shapes.get(pack) {
            Some(bound) if bound.variadic.is_none() => {
                bound.dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")
            }
            _ => "*".to_string(),
        });
        let dims = shape.dims.iter().map(|dim| self.unifier.apply(dim).to_string());
        let all: Vec<String> = lead.into_iter().filter(|l| !l.is_empty()).chain(dims).collect();
        format!("[{}]", all.join(", "))
    }
}
