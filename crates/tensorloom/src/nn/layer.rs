//! Layers with parameters of their own, by PyTorch's names, shapes and first values.

use super::{Attention, Layer, Module, Training, Visit, dot_product_attention};
use crate::{Tensor, engine, record};
use ir::composites::norm;

/// A parameter with elements between `-bound` and `bound`.
pub(super) fn uniform(shape: &[usize], bound: f64) -> Tensor {
    (engine().rand(shape) * (2.0 * bound) - bound).requires_grad_()
}

/// `x·Wᵀ + b`.
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Option<Bias>,
}

/// A bias, which stands under its own name.
#[derive(Clone, Debug, macros::Tree)]
pub struct Bias(pub Tensor);

impl Module for Bias {
    fn walk(&self, v: &mut Visit<'_>) {
        self.0.walk(v);
    }
}

impl Linear {
    /// With a bias; elements are uniform within `1/√in`.
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let bias = Some(Bias(uniform(&[outputs], bound)));
        Linear { weight: uniform(&[outputs, inputs], bound), bias }
    }

    /// Without a bias.
    pub fn without_bias(inputs: usize, outputs: usize) -> Linear {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        Linear { weight: uniform(&[outputs, inputs], bound), bias: None }
    }
}

impl Layer for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        let y = x.matmul(&self.weight.t());
        match &self.bias {
            Some(Bias(b)) => y + b,
            None => y,
        }
    }
}

/// Rows of a table.
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct Embedding {
    /// `[count, width]`.
    pub weight: Tensor,
}

impl Embedding {
    /// Elements are normal.
    pub fn new(count: usize, width: usize) -> Embedding {
        Embedding { weight: engine().randn(&[count, width]).requires_grad_() }
    }
}

impl Layer for Embedding {
    /// The rows for integer ids.
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Tensor {
        let _here = record::here();
        self.weight.embedding(ids)
    }
}

/// Mean 0 and variance 1 over the last axis, then scaled and moved.
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct LayerNorm {
    /// The scale.
    pub weight: Tensor,
    /// What is added.
    pub bias: Tensor,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// Scale 1, nothing added, `eps` 1e-5.
    pub fn new(width: usize) -> LayerNorm {
        let (weight, bias) = (crate::ones(&[width]), crate::zeros(&[width]));
        LayerNorm { weight: weight.requires_grad_(), bias: bias.requires_grad_(), eps: 1e-5 }
    }
}

impl Layer for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        x.layernorm(&self.weight, &self.bias, self.eps)
    }
}

/// Root mean square 1 over the last axis, then scaled.
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct RmsNorm {
    /// The scale.
    pub weight: Tensor,
    /// Added to the mean square.
    pub eps: f64,
}

impl RmsNorm {
    /// Scale 1, `eps` 1e-6.
    pub fn new(width: usize) -> RmsNorm {
        RmsNorm { weight: crate::ones(&[width]).requires_grad_(), eps: 1e-6 }
    }
}

impl Layer for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        x.rmsnorm(&self.weight, self.eps)
    }
}

/// Mean 0 and variance 1 over groups of features `[N, C, ..]` and all their places, then scaled and moved by feature.
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct GroupNorm {
    /// The scale of each feature.
    pub weight: Tensor,
    /// What is added to each feature.
    pub bias: Tensor,
    /// Features are divided into this many groups.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// Scale 1, nothing added, `eps` 1e-5.
    pub fn new(groups: usize, features: usize) -> GroupNorm {
        let (weight, bias) = (crate::ones(&[features]), crate::zeros(&[features]));
        GroupNorm { weight: weight.requires_grad_(), bias: bias.requires_grad_(), groups, eps: 1e-5 }
    }
}

impl Layer for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        record::one(&[x, &self.weight, &self.bias], |b, v| {
            let ty = b.ty(v[0]);
            if ty.rank() < 2 || self.groups == 0 || ty.shape[1] % self.groups != 0 {
                let why = format!("needs [N, C, ..] with C a multiple of the {} groups", self.groups);
                return Err(record::misfit("group_norm", &[ty], why));
            }
            let rows: usize = ty.shape[0] * self.groups;
            let x = b.reshape(v[0], &[rows, ty.numel().checked_div(rows).unwrap_or(0)])?;
            let op = norm::layernorm(&b.ty(x), None, None, self.eps)?;
            let y = b.emit(op.into(), &[x])?[0];
            let y = b.reshape(y, &ty.shape)?;
            let (w, c) = (b.broadcast(v[1], &ty.shape, &[1])?, b.broadcast(v[2], &ty.shape, &[1])?);
            let y = b.mul(y, w)?;
            b.add(y, c)
        })
    }
}

/// How a convolution layer slides.
#[derive(Clone, Copy, Debug, macros::Tree)]
pub struct Sliding {
    /// Places from one window to the next.
    pub stride: usize,
    /// Zeros on both sides.
    pub padding: usize,
    /// Places from one kernel element to the next.
    pub dilation: usize,
    /// Features are divided into this many groups.
    pub groups: usize,
}

impl Default for Sliding {
    fn default() -> Sliding {
        Sliding { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $f:ident $n:expr),*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, macros::Module, macros::Tree)]
        pub struct $name {
            /// `[out, in/groups, window..]`.
            pub weight: Tensor,
            /// `[out]`.
            pub bias: Option<Bias>,
            /// Stride, padding, dilation, groups.
            #[module(skip)]
            pub sliding: Sliding,
        }

        impl $name {
            /// With a bias; elements are uniform within `1/√(inputs of one output)`.
            pub fn new(inputs: usize, outputs: usize, window: usize, sliding: Sliding) -> $name {
                let mut shape = vec![outputs, inputs / sliding.groups.max(1)];
                shape.extend([window; $n]);
                let bound = 1.0 / (shape[1..].iter().product::<usize>().max(1) as f64).sqrt();
                let bias = Some(Bias(uniform(&[outputs], bound)));
                $name { weight: uniform(&shape, bound), bias, sliding }
            }

            /// Without a bias, as before a normalisation that takes it away again.
            pub fn without_bias(inputs: usize, outputs: usize, window: usize, sliding: Sliding) -> $name {
                $name { bias: None, ..$name::new(inputs, outputs, window, sliding) }
            }
        }

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
                super::$f(x, &self.weight, self.bias.as_ref().map(|b| &b.0), self.sliding)
            }
        }
    )* };
}
convolutions! {
    /// A convolution of `[N, C, L]`.
    Conv1d conv1d 1,
    /// A convolution of `[N, C, H, W]`.
    Conv2d conv2d 2
}

/// Zeros with probability `rate` while training; see [`Module::train`]. In pure functions: [`dropout`](super::dropout).
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct Dropout {
    /// The probability.
    pub rate: f64,
    training: Training,
}

impl Dropout {
    /// Training is on.
    pub fn new(rate: f64) -> Dropout {
        Dropout { rate, training: Training::default() }
    }
}

impl Layer for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        if self.rate > 0.0 && self.training.is_on() { x.dropout(self.rate) } else { x.clone() }
    }
}

/// Attention with several heads over `[B, T, width]`; parameters have PyTorch's names and shapes.
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct MultiheadAttention {
    /// Queries, keys and values: `[3·width, width]`.
    pub in_proj_weight: Tensor,
    /// `[3·width]`.
    pub in_proj_bias: Tensor,
    /// What joins the heads.
    pub out_proj: Linear,
    /// The number of heads, which divides the width.
    pub heads: usize,
}

impl MultiheadAttention {
    /// Elements are uniform as Xavier has them, biases zero.
    pub fn new(width: usize, heads: usize) -> MultiheadAttention {
        let bound = (6.0 / (4 * width.max(1)) as f64).sqrt();
        let mut out_proj = Linear::without_bias(width, width);
        out_proj.bias = Some(Bias(crate::zeros(&[width]).requires_grad_()));
        MultiheadAttention {
            in_proj_weight: uniform(&[3 * width, width], bound),
            in_proj_bias: crate::zeros(&[3 * width]).requires_grad_(),
            out_proj,
            heads,
        }
    }

    /// Queries `[B, T, width]` over keys and values `[B, S, width]`; with `causal` a query sees keys up to its own place.
    #[track_caller]
    pub fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, causal: bool) -> Tensor {
        let _here = record::here();
        let width = self.in_proj_weight.size(-1);
        if self.heads == 0 || width % self.heads != 0 || query.rank() != 3 {
            let text =
                format!("{} is not [B, T, {width}], or the width is not divisible by {} heads", query.ty(), self.heads);
            return query.error().map_or_else(|| record::invalid("attention", text), Tensor::from_error);
        }
        let head = (width / self.heads) as isize;
        let part = |x: &Tensor, i: usize| {
            let w = self.in_proj_weight.narrow(0, i * width, width);
            let y = x.matmul(&w.t()) + self.in_proj_bias.narrow(0, i * width, width);
            let (batch, time) = (x.size(0) as isize, x.size(1) as isize);
            y.reshape(&[batch, time, self.heads as isize, head])
        };
        let options = Attention { causal, ..Attention::default() };
        let y = dot_product_attention(&part(query, 0), &part(key, 1), &part(value, 2), &options);
        let (batch, time) = (query.size(0) as isize, query.size(1) as isize);
        self.out_proj.forward(&y.reshape(&[batch, time, width as isize]))
    }
}

impl Layer for MultiheadAttention {
    /// Self-attention without a mask.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        self.attend(x, x, x, false)
    }
}

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident => |$x:ident| $y:expr),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, macros::Module, macros::Tree)]
        pub struct $name;

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Tensor {
        let _here = record::here();
                $y
            }
        }
    )* };
}
activations! {
    /// `max(x, 0)`.
    Relu => |x| x.relu(),
    /// The Gaussian error linear unit by the error function.
    Gelu => |x| super::gelu(x, false),
    /// The Gaussian error linear unit by a hyperbolic tangent.
    GeluTanh => |x| super::gelu(x, true),
    /// `x·sigmoid(x)`.
    Silu => |x| x.silu(),
    /// Hyperbolic tangent.
    Tanh => |x| x.tanh(),
    /// `1/(1 + e⁻ˣ)`.
    Sigmoid => |x| x.sigmoid(),
}
