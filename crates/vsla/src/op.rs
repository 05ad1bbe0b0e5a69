//! The ops of §3.1 with their attributes. Each is a pure function of its operands.

/// Which semiring a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub enum Model {
    /// Addition and convolution: polynomials.
    #[default]
    A = 0,
    /// Addition and Kronecker product.
    B,
}

/// Which form of gelu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum GeluForm {
    /// By the error function.
    #[default]
    Erf,
    /// By a hyperbolic tangent.
    Tanh,
}

/// An op.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `a + b` in the ambient shape.
    Add,
    /// `a - b` in the ambient shape.
    Sub,
    /// `a ⊙ b` in the ambient shape.
    Hadamard,
    /// Convolution along the last axis (model A): lengths `m`, `n` give `m + n - 1`, or 0 if one is empty.
    Conv1d,
    /// Kronecker product, axis by axis (model B): sizes `m`, `n` give `m·n`.
    Kronecker,
    /// Softmax along the last axis of the logical shape.
    Softmax,
    /// `(x - mean)·rstd·gamma + beta` along the last axis; operands `x`, `gamma`, `beta`.
    LayerNorm {
        /// Added to the variance.
        eps: f64,
    },
    /// `x·rsqrt(mean(x²) + eps)·gamma` along the last axis; operands `x`, `gamma`.
    RmsNorm {
        /// Added to the mean square.
        eps: f64,
    },
    /// Scaled dot-product attention over a ragged batch of sequences, whose tokens lie one after the other along the
    /// first axis: operands `q`, `k`, `v` of shape `[tokens, width]`. A token sees those of its own sequence.
    Attention {
        /// Heads that share the width.
        heads: usize,
        /// Tokens of each sequence.
        lengths: Vec<usize>,
    },
    /// Product over the last two axes; leading axes are batch. A right operand of rank 2 serves every batch.
    Matmul,
    /// `max(0, x)`; its slope at 0 is 0.
    Relu,
    /// The Gaussian error linear unit.
    Gelu(GeluForm),
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x ⊙ M / (1 - rate)` with a random mask from the program's seed.
    Dropout {
        /// Share of elements that become 0.
        rate: f64,
    },
    /// Sum along an axis, which disappears; of a vector it gives shape `[1]`.
    Sum {
        /// The axis; negative counts from the back.
        axis: i64,
    },
    /// Mean along an axis of the logical shape; of an empty axis it is 0.
    Mean {
        /// The axis; negative counts from the back.
        axis: i64,
    },
    /// `k` tensors of one rank along a new first axis, promoted to their ambient shape.
    Stack,
    /// The stream of stacks of `size` neighbours, one every `stride`: several operands, several results.
    Window {
        /// Tensors in a window.
        size: usize,
        /// Tensors from one window to the next.
        stride: usize,
    },
    /// One tensor stacked `count` times.
    Repeat {
        /// How often.
        count: usize,
    },
    /// Same elements in row-major order of the logical shape.
    Reshape {
        /// The new shape.
        shape: Vec<usize>,
    },
    /// Reorders axes.
    Transpose {
        /// Result axis `i` is operand axis `permutation[i]`.
        permutation: Vec<usize>,
    },
    /// A box out of a tensor; what lies beyond the logical shape is zero.
    Slice {
        /// First index on each axis.
        start: Vec<usize>,
        /// First index no more on each axis.
        limit: Vec<usize>,
    },
    /// Slices of the first axis in the order of the indices.
    Gather {
        /// Which.
        indices: Vec<usize>,
    },
    /// Slice `i` of the first axis is added at place `indices[i]` of a tensor of zeros.
    Scatter {
        /// Where.
        indices: Vec<usize>,
        /// Size of the result's first axis.
        size: usize,
    },
    /// `x ⊙ m` where `m` is a constant: it gets no gradient.
    Mask,
    /// `exp(x)` on the logical shape.
    Exp,
    /// `log(x)` on the logical shape.
    Log,
    /// `s·x` by a number, or by a second operand of shape `[1]`.
    MulScalar {
        /// The number; `None` takes the second operand.
        value: Option<f64>,
    },
}

impl Op {
    /// The name in messages and listings.
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

    /// The model an op belongs to, where it belongs to one.
    pub fn model(&self) -> Option<Model> {
        match self {
            Op::Conv1d => Some(Model::A),
            Op::Kronecker => Some(Model::B),
            _ => None,
        }
    }

    /// Whether the op depends on the class alone. The others act on the representative's logical shape: they are not 0
    /// at 0, divide by a size, or lay elements out by it. (A Kronecker product depends on how many trailing zeros its
    /// right factor carries.)
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
