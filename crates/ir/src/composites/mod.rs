//! The library of composites: functions that people know by name and backends may claim whole.
//!
//! Each family's file has the functions that build it and its line in [`FAMILIES`]. A composite is rebuilt from its
//! name, parameters and operand types when it is batched, so leading axes of its row operands must be free.
//!
//! Statistics (means, deviations, log-sum-exps, losses) are computed in [`DType::accumulator`] of the operands and so
//! are f32 for the narrow floats; results that stand for the operands have the operands' dtype.
//!
//! [`DType::accumulator`]: crate::DType::accumulator

use crate::attr::Attr;
use crate::dtype::DType;
use crate::error::{Error, Problem, Result, TypeError};
use crate::graph::{Graph, Loc};
use crate::ops::{Composite, Derivative, Saves};
use crate::scalar::Scalar;
use crate::types::Type;
use std::sync::Arc;

pub mod activation;
pub mod attention;
pub mod convolve;
pub mod dropout;
pub mod embedding;
pub mod loss;
pub mod norm;
pub mod quantized;
pub mod rope;
mod rows;
pub mod softmax;

/// How a composite takes an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leading axes are batch axes.
    Rows,
    /// The same for all rows.
    Shared,
    /// Has this many axes of its own; further ones in front are the first batch axes of the rows. Without any it is
    /// the same for all rows.
    Prefix(usize),
}

/// A composite that can be built from data.
pub struct Family {
    /// The composite's name.
    pub name: &'static str,
    /// Roles of the operands; the last one repeats for further operands.
    pub roles: fn(&Params<'_>) -> Vec<Role>,
    /// Builds it for operand types.
    pub build: fn(&Params<'_>, &[Type]) -> Result<Composite>,
    /// What PyTorch would keep for backward: operands, results.
    pub saves: (&'static [usize], &'static [usize]),
}

/// All families.
pub const FAMILIES: &[Family] = &[
    activation::RELU,
    activation::RELU2,
    activation::GELU,
    activation::SILU,
    activation::SWIGLU,
    activation::GEGLU,
    norm::RMSNORM,
    norm::LAYERNORM,
    norm::FUSED_RESIDUAL_RMSNORM,
    norm::QK_NORM,
    softmax::SOFTMAX,
    softmax::LOG_SOFTMAX,
    softmax::LOGSUMEXP,
    rope::ROPE,
    attention::ATTENTION,
    attention::ATTENTION_BACKWARD,
    embedding::EMBEDDING,
    loss::CROSS_ENTROPY,
    dropout::DROPOUT,
    convolve::FFT_CONVOLVE,
    quantized::DEQUANTIZE,
    quantized::QUANTIZE_BLOCKS,
    quantized::FAKE_QUANTIZE,
];

/// Named parameters.
type ParamList = Vec<(String, Attr)>;

/// Parameters of a composite, read by name.
pub struct Params<'a> {
    name: &'a str,
    params: &'a [(String, Attr)],
}

impl Params<'_> {
    /// A float.
    pub fn float(&self, name: &str) -> Result<f64> {
        self.float_opt(name).ok_or_else(|| Error::Invalid(format!("{} needs a float parameter `{name}`", self.name)))
    }

    /// A float, if given.
    pub fn float_opt(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(Attr::Scalar(s)) => Some(s.to_f64()),
            _ => None,
        }
    }

    /// An integer, if given.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Attr::Int(i)) => Some(*i),
            _ => None,
        }
    }

    /// A flag; absent is false.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Attr::Bool(true)))
    }

    /// A word, if given.
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Attr::Word(w)) => Some(w),
            _ => None,
        }
    }

    fn get(&self, name: &str) -> Option<&Attr> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }
}

fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name)
}

/// Builds a composite of the library.
pub fn build(name: &str, params: &[(String, Attr)], types: &[Type]) -> Result<Composite> {
    let family = family(name).ok_or_else(|| Error::Invalid(format!("unknown composite `{name}`")))?;
    (family.build)(&Params { name, params }, types)
}

/// How a library composite takes a batch: whether each operand must be given the batch axis, or `None` where the
/// composite can't take the batch as such (it is no library composite, or a shared operand is batched).
pub(crate) fn batch_axes(name: &str, params: &[(String, Attr)], types: &[Type], batched: &[bool]) -> Option<Vec<bool>> {
    let roles = (family(name)?.roles)(&Params { name, params });
    let last = *roles.last()?;
    types
        .iter()
        .zip(batched)
        .enumerate()
        .map(|(i, (ty, &b))| match roles.get(i).copied().unwrap_or(last) {
            Role::Rows => Some(true),
            Role::Shared => (!b).then_some(false),
            Role::Prefix(own) => Some(b || ty.rank() > own),
        })
        .collect()
}

/// What PyTorch would keep for backward.
pub(crate) fn saves(name: &str, operands: usize) -> Saves {
    match family(name) {
        Some(f) => {
            let inputs: Vec<usize> = f.saves.0.iter().copied().filter(|&i| i < operands).collect();
            Saves { outputs: f.saves.1.iter().copied().collect(), ..Saves::inputs(&inputs) }
        }
        None => Saves::nothing(),
    }
}

/// A composite of the library from its graphs.
fn composite(name: &str, params: ParamList, body: Graph, public: usize, vjp: Option<Graph>) -> Composite {
    Composite {
        name: name.into(),
        params,
        body: Arc::new(body),
        public,
        derivative: vjp.map_or(Derivative::Body, |g| Derivative::Vjp(Arc::new(g))),
    }
}

/// A float parameter.
fn float_param(name: &str, x: f64) -> (String, Attr) {
    (name.into(), Attr::Scalar(Scalar::from_f64(DType::F64, x)))
}

/// Operands that don't fit, with what was expected.
fn misfit(name: &str, operands: &[&Type], expected: impl Into<String>) -> Error {
    Error::Type(Box::new(TypeError {
        op: name.into(),
        operands: operands.iter().map(|t| (*t).clone()).collect(),
        problem: Problem::other(expected),
        loc: Loc::Unknown,
    }))
}

/// The error of a wrong number of operands.
fn misfit_arity(name: &str, operands: &[Type], expected: &str) -> Error {
    let found: Vec<&Type> = operands.iter().collect();
    misfit(name, &found, format!("takes {expected}, got {} operands", operands.len()))
}
