"""Random numbers from keys, with the names, arguments and bits of JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def PRNGKey(seed: int) -> Tensor:
    """The key of a seed."""

def ball(key: ArrayLike, d: int, p: float, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Uniform in the unit ball of the p-norm in `d` dimensions; `shape` is that of the batch."""

def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: int | Sequence[int] | None = None) -> Tensor:
    """True with a probability."""

def beta(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the beta distribution with these parameters."""

def binomial(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the binomial distribution with these parameters."""

def bits(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'uint32') -> Tensor:
    """Random bits."""

def categorical(key: ArrayLike, logits: ArrayLike, axis: Axes = -1, shape: int | Sequence[int] | None = None, replace: bool = True) -> Tensor:
    """Indices along an axis, each with the probability of its logit."""

def cauchy(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Cauchy's distribution."""

def chisquare(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the chi-square distribution with this parameter."""

def choice(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] = (), replace: bool = True, p: ArrayLike = None, axis: Axes = 0) -> Tensor:
    """Entries of an array, or numbers below `a`."""

def clone(key: ArrayLike) -> Tensor:
    """The same key."""

def dirichlet(key: ArrayLike, alpha: Any, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Dirichlet's distribution."""

def double_sided_maxwell(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, loc: ArrayLike, scale: ArrayLike) -> Tensor:
    """Maxwell with a random sign, scaled and moved."""

def exponential(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Exponential numbers."""

def f(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, dfnum: float, dfden: float) -> Tensor:
    """Fisher's F with degrees of freedom of numerator and denominator."""

def fold_in(key: ArrayLike, data: bytes) -> Tensor:
    """A key from a key and a number."""

def gamma(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the gamma distribution with this parameter."""

def generalized_normal(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, p: float) -> Tensor:
    """The distribution with density proportional to `exp(−|x|ᵖ)`."""

def geometric(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'int32') -> Tensor:
    """Numbers of the geometric distribution with this parameter."""

def gumbel(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Gumbel's distribution."""

def key(seed: int) -> Tensor:
    """The key of a seed."""

def key_data(key: ArrayLike) -> Tensor:
    """The numbers of a key: the key itself."""

def laplace(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Laplace's distribution."""

def loggamma(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the gamma (their logarithms) distribution with this parameter."""

def logistic(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Logistic numbers."""

def lognormal(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, sigma: ArrayLike) -> Tensor:
    """`exp(sigma · normal)`."""

def maxwell(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Maxwell's distribution."""

def multinomial(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, n: ArrayLike, p: ArrayLike) -> Tensor:
    """How often each outcome came up in `n` trials; probabilities are along the last axis of `p`, and `shape` is that of the batch. Gives floats."""

def multivariate_normal(key: ArrayLike, mean: ArrayLike, cov: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Normal vectors of a mean and a covariance."""

def normal(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Normal numbers."""

def orthogonal(key: ArrayLike, n: int, shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Orthogonal matrices `[n, n]`, all directions equally likely; `shape` is that of the batch."""

def pareto(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Pareto distribution with this parameter."""

def permutation(key: ArrayLike, x: ArrayLike, axis: Axes = 0, independent: bool = False) -> Tensor:
    """The numbers below `x`, or the entries of an array, in random order."""

def poisson(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'int32') -> Tensor:
    """Numbers of the Poisson distribution with this parameter."""

def rademacher(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'int32') -> Tensor:
    """-1 or 1."""

def randint(key: ArrayLike, shape: int | Sequence[int], minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = 'int32') -> Tensor:
    """Integers from `minval` on and below `maxval`."""

def rayleigh(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, scale: ArrayLike) -> Tensor:
    """Rayleigh with a scale."""

def shuffle(key: ArrayLike, x: ArrayLike, axis: int) -> Tensor:
    """The slices of `x` along an axis in random order."""

def split(key: ArrayLike, num: int = 2) -> Tensor:
    """New keys from one."""

def split2(key: ArrayLike) -> tuple[Tensor, Tensor]:
    """Two new keys."""

def t(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Student distribution with this parameter."""

def triangular(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, left: ArrayLike, mode: ArrayLike, right: ArrayLike) -> Tensor:
    """Triangular over `[left, right]` with its peak at `mode`."""

def truncated_normal(key: ArrayLike, lower: Any, upper: Any, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Normal numbers between two others."""

def uniform(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32', minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0) -> Tensor:
    """Numbers between two others."""

def wald(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike, mean: float) -> Tensor:
    """Wald's distribution, the inverse Gaussian, with a mean."""

def weibull_min(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Weibull distribution with these parameters."""

def wrap_key_data(data: bytes) -> Tensor:
    """The key of two numbers."""
