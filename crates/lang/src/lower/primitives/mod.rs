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

use super::graph::Operand;
use super::sequence::TimeAxis;
use super::{Lowerer, Result, misfit};
use crate::consteval::{Ternary, Value as Const};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use ir::{Type, Value};
use std::collections::BTreeMap;

/// A call of a primitive: slots in the order of its signature, attributes with their defaults.
#[derive(Clone, Debug)]
pub(super) struct Primitive {
    pub(super) name: &'static str,
    pub(super) span: Span,
    pub(super) slots: Vec<Option<Operand>>,
    /// Tensors given by a name that is no slot: `alibi_slopes=slopes`.
    pub(super) named: BTreeMap<String, Operand>,
    pub(super) attributes: BTreeMap<String, Const>,
    /// Where the attribute `shape` has the positions.
    pub(super) time_axis: TimeAxis,
}

/// Why a primitive could not be lowered.
enum Fault {
    /// An op refused its operands.
    Ir(ir::Error),
    /// It was given something it does not take; the words say what.
    Given(String),
    /// It comes later.
    Later(String),
    /// Another finding.
    Found(Box<Diagnostic>),
}

impl From<ir::Error> for Fault {
    fn from(error: ir::Error) -> Fault {
        Fault::Ir(error)
    }
}

impl From<Box<Diagnostic>> for Fault {
    fn from(found: Box<Diagnostic>) -> Fault {
        Fault::Found(found)
    }
}

type Lowering<T> = std::result::Result<T, Fault>;

/// Writes a primitive into the current builder.
pub(super) fn lower(l: &mut Lowerer<'_>, p: &Primitive) -> Result<Vec<Value>> {
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
        Fault::Ir(error) => misfit(&error, p.span, p.name),
        Fault::Given(words) => Box::new(Diagnostic::new(Code::E003, p.span, format!("`{}` {words}", p.name))),
        Fault::Later(what) => {
            let message = format!("{what} is not supported yet");
            Box::new(Diagnostic::new(Code::L001, p.span, message).label("cannot be lowered"))
        }
        Fault::Found(found) => found,
    })
}

impl Primitive {
    pub(super) fn new(name: &'static str, span: Span) -> Primitive {
        Primitive {
            name,
            span,
            slots: Vec::new(),
            named: BTreeMap::new(),
            attributes: BTreeMap::new(),
            time_axis: TimeAxis::None,
        }
    }

    fn tensor(&self, slot: usize) -> Lowering<Value> {
        match self.slots.get(slot) {
            Some(Some(operand)) => Ok(operand.tensor(self.span)?),
            _ => Err(Fault::Given(format!("needs tensor {}", slot + 1))),
        }
    }

    fn optional(&self, slot: usize) -> Lowering<Option<Value>> {
        match self.slots.get(slot) {
            Some(Some(operand)) => Ok(Some(operand.tensor(self.span)?)),
            _ => Ok(None),
        }
    }

    fn tensors(&self) -> Lowering<Vec<Value>> {
        let given = self.slots.iter().flatten();
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

    /// A word, for who is outside of this folder.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.word(name)
    }

    fn word(&self, name: &str) -> Option<&str> {
        match self.attributes.get(name)? {
            Const::Word(word) | Const::Str(word) => Some(word),
            _ => None,
        }
    }

    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attributes.get(name)? {
            Const::List(items) => items.iter().map(Const::as_int).collect(),
            other => other.as_int().map(|n| vec![n]),
        }
    }

    /// An axis by number; negative ones count from the last.
    fn axis(&self, number: i64, rank: usize) -> Lowering<usize> {
        let axis = if number < 0 { number + rank as i64 } else { number };
        match usize::try_from(axis) {
            Ok(axis) if axis < rank => Ok(axis),
            _ => Err(Fault::Given(format!("has no axis {number} in a tensor of rank {rank}"))),
        }
    }
}

/// Types of values.
fn types(l: &Lowerer<'_>, values: &[Value]) -> Vec<Type> {
    values.iter().map(|v| l.b.graph.ty(*v).clone()).collect()
}
