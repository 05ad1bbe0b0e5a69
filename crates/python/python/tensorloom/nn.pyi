"""Activations, losses and other functions of networks, by the names of JAX and PyTorch."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

from . import initializers as initializers

def binary_cross_entropy(p: ArrayLike, target: ArrayLike) -> Tensor:
    """Binary cross entropy of probabilities; logarithms are at least −100, as in PyTorch."""

def binary_cross_entropy_with_logits(x: ArrayLike, target: ArrayLike) -> Tensor:
    """Binary cross entropy of logits, without overflow."""

def celu(x: ArrayLike, alpha: Any = 1.0) -> Tensor:
    """x, or alpha (e^(x / alpha) - 1) where it is negative."""

def clip_grad_norm(params: Sequence[ArrayLike], max_norm: float) -> Tensor:
    """Scales all gradients together so that their norm is at most `max_norm`; gives the norm they had."""

def clip_grad_norm_by(params: Sequence[ArrayLike], max_norm: float, p: float) -> Tensor:
    """[`clip_grad_norm_`] by another norm: the p-th root of a sum of p-th powers, or the largest size if `p` is infinite."""

def cosine_similarity(x: ArrayLike, y: ArrayLike, axis: int, eps: float) -> Tensor:
    """The cosine of the angle between rows along an axis; lengths are at least `eps`."""

def dot_product_attention(query: ArrayLike, key: ArrayLike, value: float, bias: ArrayLike = None, mask: ArrayLike = None, *, scale: ArrayLike = None, is_causal: bool = False) -> Tensor:
    """Attention of `[batch, length, heads, size]`; fewer heads of keys and values serve several of queries."""

def dropout(x: ArrayLike, rate: float, key: ArrayLike) -> Tensor:
    """`x/(1 − rate)` where a draw by a key keeps it, else 0: dropout for pure functions."""

def elu(x: ArrayLike, alpha: Any = 1.0) -> Tensor:
    """x, or alpha (eˣ - 1) where it is negative."""

def gelu(x: ArrayLike, approximate: bool = True) -> Tensor:
    """The Gaussian error linear unit; by tanh, unless `approximate` is false."""

def glu(x: ArrayLike, axis: Axes = -1) -> Tensor:
    """The first half times the sigmoid of the second."""

def hard_sigmoid(x: ArrayLike) -> Tensor:
    """`relu6(x + 3)/6`."""

def hard_silu(x: ArrayLike) -> Tensor:
    """`x·hard_sigmoid(x)`."""

def hard_swish(x: ArrayLike) -> Tensor:
    """The same as [`hard_silu`]."""

def hard_tanh(x: ArrayLike) -> Tensor:
    """`x` between −1 and 1."""

def huber_loss(x: ArrayLike, target: ArrayLike, delta: float) -> Tensor:
    """`delta` times [`smooth_l1_loss`]."""

def identity(x: ArrayLike) -> Tensor:
    """`x` itself."""

def kl_div(x: ArrayLike, target: ArrayLike) -> Tensor:
    """The mean of `target·(log target − x)` for log-probabilities `x`; where the target is 0 it counts as 0."""

def l1_loss(x: ArrayLike, target: ArrayLike) -> Tensor:
    """The mean of absolute differences."""

def leaky_relu(x: ArrayLike, negative_slope: float = 0.01) -> Tensor:
    """x, or a part of it where it is negative."""

def log1mexp(x: ArrayLike) -> Tensor:
    """`log(1 − e⁻ˣ)` for positive `x`."""

def log_sigmoid(x: ArrayLike) -> Tensor:
    """`log(sigmoid(x))`."""

def log_softmax(x: ArrayLike, axis: Axes = -1) -> Tensor:
    """The logarithm of `softmax`."""

def logmeanexp(x: ArrayLike, axis: Axes = None) -> Tensor:
    """`log` of the mean of `eˣ`."""

def logsumexp(a: ArrayLike, axis: Axes = None, b: ArrayLike = None, keepdims: bool = False, where: ArrayLike = None) -> Tensor:
    """The logarithm of a sum of exponentials, each times `b` if that is given."""

def mish(x: ArrayLike) -> Tensor:
    """`x·tanh(softplus(x))`."""

def mse_loss(x: ArrayLike, target: ArrayLike) -> Tensor:
    """The mean of squared differences."""

def nll_loss(log_probs: ArrayLike, labels: ArrayLike) -> Tensor:
    """Minus the log-probability (`[.., V]`) of each label (`[..]`)."""

def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = 'float32', axis: Axes = -1) -> Tensor:
    """Indices as vectors of zeros with a one."""

def relu(x: ArrayLike) -> Tensor:
    """`max(x, 0)`; the gradient at 0 is 0."""

def relu6(x: ArrayLike) -> Tensor:
    """`min(max(x, 0), 6)`; the gradient is 0 at both ends."""

def selu(x: ArrayLike) -> Tensor:
    """The self-normalising [`elu`]."""

def sigmoid(x: ArrayLike) -> Tensor:
    """`1/(1 + e⁻ˣ)`."""

def silu(x: ArrayLike) -> Tensor:
    """`x·sigmoid(x)`."""

def smooth_l1_loss(x: ArrayLike, target: ArrayLike, beta: float) -> Tensor:
    """Half the square of differences within `beta` (over `beta`), absolute differences less `beta/2` beyond."""

def soft_sign(x: ArrayLike) -> Tensor:
    """`x/(1 + |x|)`."""

def softmax(x: ArrayLike, axis: Axes = -1, where: ArrayLike = None) -> Tensor:
    """Exponentials that sum to 1; with `where`, of those elements alone."""

def softplus(x: ArrayLike) -> Tensor:
    """`log(1 + eˣ)`."""

def sparse_plus(x: ArrayLike) -> Tensor:
    """0 below −1, `x` above 1, a parabola between."""

def sparse_sigmoid(x: ArrayLike) -> Tensor:
    """`(x + 1)/2` between 0 and 1."""

def squareplus(x: ArrayLike, b: ArrayLike = 4.0) -> Tensor:
    """A smooth ramp without exponentials."""

def standardize(x: ArrayLike, axis: Axes = -1, epsilon: ArrayLike = 1e-05) -> Tensor:
    """With mean 0 and variance 1 along axes."""

def swish(x: ArrayLike) -> Tensor:
    """The same as [`silu`]."""

def tanh(x: ArrayLike) -> Tensor:
    """`tanh(x)`."""
