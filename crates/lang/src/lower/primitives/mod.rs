//! The primitives of §6 as ops and composites of the Graph, one file per family.

mod attention;
mod buckets;
mod elementwise;
mod experts;
mod gradients;
mod linear;
mod norm;
mod shape;
mod state_space;
mod windows;

pub use elementwise::mean_cross_entropy;
pub(super) use experts::{sorted_experts, where_expert};

use super::graph::LoweredOperand;
use super::sequence::PositionAxis;
use super::{Lowerer, Result, op_error};
use crate::consteval::{ConstValue as Const, Ternary};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use ir::{Type, Value};
use std::collections::BTreeMap;

/// A call of a primitive: inputs in the order of its signature, attributes with their defaults.
#[derive(Clone, Debug)]
pub(super) struct PrimitiveCall {
    pub(super) name: &'static str,
    pub(super) span: Span,
    pub(super) operands: Vec<Option<LoweredOperand>>,
    /// Tensors bound to an attribute: `alibi_slopes=slopes`.
    pub(super) named: BTreeMap<String, LoweredOperand>,
    pub(super) attributes: BTreeMap<String, Const>,
    /// The axis of the positions in the attribute `shape`.
    pub(super) time_axis: PositionAxis,
}

/// Why a primitive could not be lowered.
enum PrimitiveError {
    /// An op rejected its operands.
    Ir(ir::Error),
    /// An invalid argument, with the message.
    InvalidArgument(String),
    /// A feature that is not implemented yet.
    Unsupported(String),
    /// Any other diagnostic.
    Diagnostic(Box<Diagnostic>),
}

impl From<ir::Error> for PrimitiveError {
    fn from(error: ir::Error) -> PrimitiveError {
        PrimitiveError::Ir(error)
    }
}

impl From<Box<Diagnostic>> for PrimitiveError {
    fn from(found: Box<Diagnostic>) -> PrimitiveError {
        PrimitiveError::Diagnostic(found)
    }
}

type LowerResult<T> = std::result::Result<T, PrimitiveError>;

/// Lowers a primitive into the current builder.
pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> Result<Vec<Value>> {
    let result = match p.name {
        "matmul" | "batched_matmul" | "grouped_gemm" | "grouped_gemm_weight_grad" | "weight_grad" => {
            linear::lower(l, p)
        }
        "rmsnorm" | "fused_residual_rmsnorm" | "layernorm" | "group_rmsnorm" | "qk_norm" => norm::lower(l, p),
        "flash_attention" | "rope" => attention::lower(l, p),
        "split" | "concat" | "view" | "reshape" | "transpose" | "permute" | "contiguous" | "fork" | "copy"
        | "zeros" | "ones" | "fill" | "full" | "positions" | "reduce_sum" | "reduce_mean" | "reduce_max" | "cumsum"
        | "take_rows" => shape::lower(l, p),
        "conv1d" | "conv2d" => windows::lower(l, p),
        "relative_buckets" => buckets::lower(l, p),
        "moe_router" | "moe_compute_offsets" | "moe_permute" | "moe_unpermute" => experts::lower(l, p),
        "mamba_conv1d" | "mamba_selective_scan" | "mamba_split_proj" | "mamba_split_conv" => state_space::lower(l, p),
        name if name.ends_with("_backward") => gradients::lower(l, p),
        _ => elementwise::lower(l, p),
    };
    result.map_err(|fault| match fault {
        PrimitiveError::Ir(error) => op_error(&error, p.span, p.name),
        PrimitiveError::InvalidArgument(words) => {
            Box::new(Diagnostic::new(Code::E003, p.span, format!("`{}` {words}", p.name)))
        }
        PrimitiveError::Unsupported(what) => {
            let message = format!("{what} is not supported yet");
            Box::new(Diagnostic::new(Code::L001, p.span, message).with_label("cannot be lowered"))
        }
        PrimitiveError::Diagnostic(found) => found,
    })
}

impl PrimitiveCall {
    pub(super) fn new(name: &'static str, span: Span) -> PrimitiveCall {
        PrimitiveCall {
            name,
            span,
            operands: Vec::new(),
            named: BTreeMap::new(),
            attributes: BTreeMap::new(),
            time_axis: PositionAxis::None,
        }
    }

    fn tensor(&self, slot: usize) -> LowerResult<Value> {
        match self.operands.get(slot) {
            Some(Some(operand)) => Ok(operand.tensor(self.span)?),
            _ => Err(PrimitiveError::InvalidArgument(format!("needs tensor {}", slot + 1))),
        }
    }

    fn optional(&self, slot: usize) -> LowerResult<Option<Value>> {
        match self.operands.get(slot) {
            Some(Some(operand)) => Ok(Some(operand.tensor(self.span)?)),
            _ => Ok(None),
        }
    }

    fn tensors(&self) -> LowerResult<Vec<Value>> {
        let given = self.operands.iter().flatten();
        given.map(|operand| Ok(operand.tensor(self.span)?)).collect()
    }

    fn float(&self, name: &str) -> Option<f64> {
        match self.attributes.get(name)? {
            Const::Float(value) => *value,
            other => other.as_int().map(|n| n as f64),
        }
    }

    fn int(&self, name: &str) -> Option<i64> {
        self.attributes.get(name)?.as_int()
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.attributes.get(name), Some(Const::Bool(Ternary::Known(true))))
    }

    /// Returns an attribute that is an identifier.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.word(name)
    }

    fn word(&self, name: &str) -> Option<&str> {
        match self.attributes.get(name)? {
            Const::Identifier(word) | Const::Str(word) => Some(word),
            _ => None,
        }
    }

    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attributes.get(name)? {
            Const::List(items) => items.iter().map(Const::as_int).collect(),
            other => other.as_int().map(|n| vec![n]),
        }
    }

    /// An axis by its index; negative ones count from the end.
    fn axis(&self, number: i64, rank: usize) -> LowerResult<usize> {
        let axis = if number < 0 { number + rank as i64 } else { number };
        match usize::try_from(axis) {
            Ok(axis) if axis < rank => Ok(axis),
            _ => Err(PrimitiveError::InvalidArgument(format!("has no axis {number} in a tensor of rank {rank}"))),
        }
    }
}

/// The types of values.
fn types(l: &Lowerer<'_>, values: &[Value]) -> Vec<Type> {
    values.iter().map(|v| l.b.graph.ty(*v).clone()).collect()
}
