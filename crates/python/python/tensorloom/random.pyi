"""Random numbers by key, as in JAX: the same key gives the same numbers."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def ball(key: ArrayLike, d: int, p: float, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Uniform in the unit ball of the p-norm in `d` dimensions; `shape` is that of the batch."""

def bernoulli(key: ArrayLike, shape: int | Sequence[int], p: ArrayLike) -> Tensor:
    """True with probability `p`, a number or an f32 or f64 tensor that broadcasts to the shape."""

def beta(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, a: ArrayLike, b: ArrayLike) -> Tensor:
    """Beta with two shape parameters."""

def binomial(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, n: ArrayLike, p: ArrayLike) -> Tensor:
    """Successes in `n` trials with probability `p` each; both broadcast to the shape. Gives floats: NaN where there is no such distribution."""

def bits(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Random bits of an unsigned dtype."""

def categorical(key: ArrayLike, logits: ArrayLike, axis: int, prefix: int | Sequence[int]) -> Tensor:
    """Indices drawn with the probabilities `softmax(logits)` along an axis. The shape is `prefix` and then that of the other axes of the logits. Gives i32."""

def cauchy(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Cauchy with location 0 and scale 1."""

def chisquare(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, df: ArrayLike) -> Tensor:
    """χ² with degrees of freedom."""

def choice(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int], replace: bool = False, p: ArrayLike | None = None) -> Tensor:
    """Slices of `a` along its first axis, drawn with or without putting back, with probabilities `p` if given."""

def dirichlet(key: ArrayLike, alpha: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Dirichlet with concentrations along the last axis; `shape` is that of the batch."""

def double_sided_maxwell(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, loc: ArrayLike, scale: ArrayLike) -> Tensor:
    """Maxwell with a random sign, scaled and moved."""

def exponential(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Exponential with mean 1."""

def f(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, dfnum: float, dfden: float) -> Tensor:
    """Fisher's F with degrees of freedom of numerator and denominator."""

def fold_in(key: ArrayLike, data: int) -> Tensor:
    """A new key from a key and a number, such as a step or a layer."""

def gamma(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, alpha: ArrayLike) -> Tensor:
    """Gamma with a shape parameter and scale 1."""

def generalized_normal(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, p: float) -> Tensor:
    """The distribution with density proportional to `exp(−|x|ᵖ)`."""

def geometric(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, p: ArrayLike) -> Tensor:
    """The number of trials up to the first success, of probability `p`."""

def gumbel(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Gumbel with location 0 and scale 1."""

def key(seed: int) -> Tensor:
    """The key of a seed."""

def laplace(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Laplace with location 0 and scale 1."""

def loggamma(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, alpha: ArrayLike) -> Tensor:
    """The logarithm of a gamma sample, exact where the sample itself would be 0."""

def logistic(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Logistic with location 0 and scale 1."""

def lognormal(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, sigma: ArrayLike) -> Tensor:
    """`exp(sigma · normal)`."""

def maxwell(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Maxwell: the length of a normal vector in three dimensions."""

def multinomial(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, n: ArrayLike, p: ArrayLike) -> Tensor:
    """How often each outcome came up in `n` trials; probabilities are along the last axis of `p`, and `shape` is that of the batch. Gives floats."""

def multivariate_normal(key: ArrayLike, mean: ArrayLike, cov: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Normal vectors with a mean `[.., n]` and a covariance `[.., n, n]`; `shape` is that of the batch."""

def normal(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Normal with mean 0 and variance 1."""

def orthogonal(key: ArrayLike, n: int, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Orthogonal matrices `[n, n]`, all directions equally likely; `shape` is that of the batch."""

def pareto(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, alpha: ArrayLike) -> Tensor:
    """Pareto with a shape parameter."""

def permutation(key: ArrayLike, n: int) -> Tensor:
    """`0..n` in random order, as i32."""

def poisson(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, rate: ArrayLike) -> Tensor:
    """Numbers of events of a Poisson process with a rate, which broadcasts to the shape. Gives integers."""

def rademacher(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """−1 or 1."""

def randint(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, minval: int, maxval: int) -> Tensor:
    """Uniform integers in `[minval, maxval)`."""

def rayleigh(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, scale: ArrayLike) -> Tensor:
    """Rayleigh with a scale."""

def shuffle(key: ArrayLike, x: ArrayLike, axis: int) -> Tensor:
    """The slices of `x` along an axis in random order."""

def split(key: ArrayLike, n: int) -> Tensor:
    """`n` new keys, `u32[n, 2]`."""

def split2(key: ArrayLike) -> tuple[Tensor, Tensor]:
    """Two new keys."""

def t(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, df: ArrayLike) -> Tensor:
    """Student's t with degrees of freedom."""

def triangular(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, left: ArrayLike, mode: ArrayLike, right: ArrayLike) -> Tensor:
    """Triangular over `[left, right]` with its peak at `mode`."""

def truncated_normal(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, lower: float, upper: float) -> Tensor:
    """Normal, cut to `(lower, upper)`."""

def uniform(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, minval: ArrayLike, maxval: ArrayLike) -> Tensor:
    """Uniform floats in `[minval, maxval)`."""

def wald(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, mean: float) -> Tensor:
    """Wald's distribution, the inverse Gaussian, with a mean."""

def weibull_min(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, scale: ArrayLike, concentration: ArrayLike) -> Tensor:
    """Weibull with a scale and a concentration."""
