//! The ops of §3.1 with their attributes. Each op is a pure function of its operands.

/// The semiring of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub enum Model {
    /// Addition and convolution: polynomials.
    #[default]
    A = 0,
    /// Addition and Kronecker product.
    B,
}

/// The form of gelu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum GeluForm {
    /// The exact form, with the error function.
    #[default]
    Erf,
    /// The approximation with a hyperbolic tangent.
    Tanh,
}

/// An op.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `a + b`, with both operands promoted to the ambient shape.
    Add,
    /// `a - b`, with both operands promoted to the ambient shape.
    Sub,
    /// `a ⊙ b`, with both operands promoted to the ambient shape.
    Hadamard,
    /// Convolution along the last axis (model A). Lengths `m` and `n` give `m + n - 1`, or 0 if one operand is empty.
    Conv1d,
    /// Kronecker product on every axis (model B). Sizes `m` and `n` give `m·n`.
    Kronecker,
    /// Softmax along the last axis of the logical shape.
    Softmax,
    /// `(x - mean)·rstd·gamma + beta` along the last axis; operands `x`, `gamma`, `beta`.
    LayerNorm {
        /// A small number added to the variance.
        eps: f64,
    },
    /// `x·rsqrt(mean(x²) + eps)·gamma` along the last axis; operands `x`, `gamma`.
    RmsNorm {
        /// A small number added to the mean square.
        eps: f64,
    },
    /// Scaled dot-product attention over a ragged batch of sequences, whose tokens are concatenated along the first axis. The
    /// operands `q`, `k`, `v` have shape `[tokens, width]`. A token attends to the tokens of its own sequence.
    Attention {
        /// The number of heads that the width is split into.
        heads: usize,
        /// The number of tokens of each sequence.
        lengths: Vec<usize>,
    },
    /// Matrix product over the last two axes; leading axes are batch axes. A right operand of rank 2 is used for every batch
    /// entry.
    Matmul,
    /// `max(0, x)`; its derivative at 0 is 0.
    Relu,
    /// The Gaussian error linear unit.
    Gelu(GeluForm),
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x ⊙ M / (1 - rate)` with a random mask from the program's seed.
    Dropout {
        /// Probability that an element becomes 0.
        rate: f64,
    },
    /// Sum along an axis, which is removed; the sum of a vector has shape `[1]`.
    Sum {
        /// The axis; negative values count from the last axis.
        axis: i64,
    },
    /// Mean along an axis of the logical shape; the mean of an empty axis is 0.
    Mean {
        /// The axis; negative values count from the last axis.
        axis: i64,
    },
    /// `k` tensors of the same rank, promoted to their ambient shape and stacked along a new first axis.
    Stack,
    /// Stacks of `size` consecutive tensors, one every `stride` tensors: several operands, several results.
    Window {
        /// The number of tensors in a window.
        size: usize,
        /// The number of tensors between the starts of two windows.
        stride: usize,
    },
    /// `count` copies of one tensor, stacked along a new first axis.
    Repeat {
        /// The number of copies.
        count: usize,
    },
    /// The same elements in row-major order of the logical shape, with another shape.
    Reshape {
        /// The new shape.
        shape: Vec<usize>,
    },
    /// A permutation of the axes.
    Transpose {
        /// Result axis `i` is operand axis `permutation[i]`.
        permutation: Vec<usize>,
    },
    /// A slice of a tensor; elements beyond the logical shape are zero.
    Slice {
        /// First index on each axis.
        start: Vec<usize>,
        /// End index (exclusive) on each axis.
        limit: Vec<usize>,
    },
    /// The slices of the first axis at the given indices.
    Gather {
        /// The indices.
        indices: Vec<usize>,
    },
    /// Slice `i` of the first axis is added at index `indices[i]` of a tensor of zeros.
    Scatter {
        /// The indices.
        indices: Vec<usize>,
        /// Size of the result's first axis.
        size: usize,
    },
    /// `x ⊙ m` where `m` is a constant, so it gets no gradient.
    Mask,
    /// `exp(x)` on the logical shape.
    Exp,
    /// `log(x)` on the logical shape.
    Log,
    /// `s·x`, where `s` is a number or a second operand of shape `[1]`.
    MulScalar {
        /// The number; `None` uses the second operand.
        value: Option<f64>,
    },
}

impl Op {
    /// Returns the name in messages and listings.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Add => "add",
            Op::Sub => "sub",
            Op::Hadamard => "hadamard",
            Op::Conv1d => "conv1d",
            Op::Kronecker => "kronecker",
            Op::Softmax => "softmax",
            Op::LayerNorm { .. } => "layernorm",
            Op::RmsNorm { .. } => "rmsnorm",
            Op::Attention { .. } => "attention",
            Op::Matmul => "matmul",
            Op::Relu => "relu",
            Op::Gelu(_) => "gelu",
            Op::Sigmoid => "sigmoid",
            Op::Tanh => "tanh",
            Op::Dropout { .. } => "dropout",
            Op::Sum { .. } => "sum",
            Op::Mean { .. } => "mean",
            Op::Stack => "stack",
            Op::Window { .. } => "window",
            Op::Repeat { .. } => "repeat",
            Op::Reshape { .. } => "reshape",
            Op::Transpose { .. } => "transpose",
            Op::Slice { .. } => "slice",
            Op::Gather { .. } => "gather",
            Op::Scatter { .. } => "scatter",
            Op::Mask => "mask",
            Op::Exp => "exp",
            Op::Log => "log",
            Op::MulScalar { .. } => "mul_scalar",
        }
    }

    /// Returns the model that the op requires, or `None` if it supports both.
    pub fn model(&self) -> Option<Model> {
        match self {
            Op::Conv1d => Some(Model::A),
            Op::Kronecker => Some(Model::B),
            _ => None,
        }
    }

    /// Whether the result depends only on the operands' equivalence classes. The other ops depend on the representative's logical
    /// shape: they are not 0 at 0, divide by a size, or order elements by it. (A Kronecker product depends on the number of
    /// trailing zeros of its right factor.)
    pub fn is_class_invariant(&self) -> bool {
        !matches!(
            self,
            Op::Softmax
                | Op::Attention { .. }
                | Op::LayerNorm { .. }
                | Op::RmsNorm { .. }
                | Op::Mean { .. }
                | Op::Sigmoid
                | Op::Exp
                | Op::Log
                | Op::Reshape { .. }
                | Op::Kronecker
        )
    }
}
