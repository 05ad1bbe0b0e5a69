//! The library of composites: well-known functions that backends may implement with their own kernels.
//!
//! The file of each composite has the functions that build it; [`COMPOSITES`] has its entry. A composite is rebuilt from its
//! name, parameters and operand types when it is batched, so it must accept any leading axes of its row operands.
//!
//! Statistics (means, deviations, log-sum-exps, losses) are computed in [`DType::accumulator`] of the operands, which
//! is f32 for the low-precision floats; results that correspond to operands have the operands' dtype.
//!
//! [`DType::accumulator`]: crate::DType::accumulator

use crate::attr::Attr;
use crate::dtype::DType;
use crate::error::{Error, InferError, Result, TypeError};
use crate::graph::{Graph, Loc};
use crate::ops::{Composite, Derivative, SavedForBackward};
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

/// The relation of an operand to the batch axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRole {
    /// Leading axes are batch axes.
    Rows,
    /// The same for all rows.
    Shared,
    /// Has this many trailing axes; further leading axes are the first batch axes of the rows. Without leading axes it is
    /// the same for all rows.
    Prefix(usize),
}

/// The entry of a composite that can be built from its name and parameters.
pub struct CompositeBuilder {
    /// The composite's name.
    pub name: &'static str,
    /// The batch roles of the operands; the last one repeats for further operands.
    pub roles: fn(&Params<'_>) -> Vec<BatchRole>,
    /// Builds it for operand types.
    pub build: fn(&Params<'_>, &[Type]) -> Result<Composite>,
    /// The operands and results that PyTorch would save for backward.
    pub saves: (&'static [usize], &'static [usize]),
}

/// All composites.
pub const COMPOSITES: &[CompositeBuilder] = &[
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

fn family(name: &str) -> Option<&'static CompositeBuilder> {
    COMPOSITES.iter().find(|f| f.name == name)
}

/// Builds a composite of the library.
pub fn build(name: &str, params: &[(String, Attr)], types: &[Type]) -> Result<Composite> {
    let family = family(name).ok_or_else(|| Error::Invalid(format!("unknown composite `{name}`")))?;
    (family.build)(&Params { name, params }, types)
}

/// Decides for each operand whether it must have the batch axis when a library composite is batched. `None` if the
/// composite cannot be batched directly (it is not a library composite, or a shared operand is batched).
pub(crate) fn batch_axes(name: &str, params: &[(String, Attr)], types: &[Type], batched: &[bool]) -> Option<Vec<bool>> {
    let roles = (family(name)?.roles)(&Params { name, params });
    let last = *roles.last()?;
    types
        .iter()
        .zip(batched)
        .enumerate()
        .map(|(i, (ty, &b))| match roles.get(i).copied().unwrap_or(last) {
            BatchRole::Rows => Some(true),
            BatchRole::Shared => (!b).then_some(false),
            BatchRole::Prefix(own) => Some(b || ty.rank() > own),
        })
        .collect()
}

/// The values that PyTorch would save for backward.
pub(crate) fn saves(name: &str, operands: usize) -> SavedForBackward {
    match family(name) {
        Some(f) => {
            let inputs: Vec<usize> = f.saves.0.iter().copied().filter(|&i| i < operands).collect();
            SavedForBackward { outputs: f.saves.1.iter().copied().collect(), ..SavedForBackward::inputs(&inputs) }
        }
        None => SavedForBackward::none(),
    }
}

/// Builds a composite of the library from its graphs.
fn composite(name: &str, params: ParamList, body: Graph, public: usize, vjp: Option<Graph>) -> Composite {
    Composite {
        name: name.into(),
        params,
        body: Arc::new(body),
        num_public_outputs: public,
        derivative: vjp.map_or(Derivative::Body, |g| Derivative::Vjp(Arc::new(g))),
    }
}

/// A float parameter.
fn float_param(name: &str, x: f64) -> (String, Attr) {
    (name.into(), Attr::Scalar(Scalar::from_f64(DType::F64, x)))
}

/// The error for operands that do not fit, with the expected types.
fn operand_mismatch(name: &str, operands: &[&Type], expected: impl Into<String>) -> Error {
    Error::Type(Box::new(TypeError {
        op: name.into(),
        operands: operands.iter().map(|t| (*t).clone()).collect(),
        problem: InferError::other(expected),
        loc: Loc::Unknown,
    }))
}

/// The error for a wrong number of operands.
fn arity_mismatch(name: &str, operands: &[Type], expected: &str) -> Error {
    let found: Vec<&Type> = operands.iter().collect();
    operand_mismatch(name, &found, format!("takes {expected}, got {} operands", operands.len()))
}
