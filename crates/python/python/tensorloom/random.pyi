"""Random numbers from keys, with the names, arguments and bits of JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def PRNGKey(seed: int, *, impl: ArrayLike = None) -> Tensor:
    """The key of a seed. The generator is Threefry, JAX's own default."""

def ball(key: ArrayLike, d: ArrayLike, p: ArrayLike = 2, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Points of the unit ball of a norm."""

def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: int | Sequence[int] | None = None, *, mode: str | None = None) -> Tensor:
    """True with a probability."""

def beta(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the beta distribution."""

def binomial(key: ArrayLike, n: int, p: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the binomial distribution."""

def bits(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'uint32') -> Tensor:
    """Random bits."""

def categorical(key: ArrayLike, logits: ArrayLike, axis: Axes = -1, shape: int | Sequence[int] | None = None, replace: bool = True, *, mode: str | None = None) -> Tensor:
    """Indices along an axis, each with the probability of its logit."""

def cauchy(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Cauchy's distribution."""

def chisquare(key: ArrayLike, df: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the chi-square distribution."""

def choice(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] = (), replace: bool = True, p: ArrayLike = None, axis: Axes = 0, *, mode: str | None = None) -> Tensor:
    """Entries of an array, or numbers below `a`."""

def clone(key: ArrayLike) -> Tensor:
    """The same key."""

def dirichlet(key: ArrayLike, alpha: Any, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Dirichlet's distribution."""

def double_sided_maxwell(key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the two-sided Maxwell distribution."""

def exponential(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Exponential numbers."""

def f(key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the F distribution."""

def fold_in(key: ArrayLike, data: bytes) -> Tensor:
    """A key from a key and a number."""

def gamma(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the gamma distribution."""

def generalized_normal(key: ArrayLike, p: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the generalised normal distribution."""

def geometric(key: ArrayLike, p: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'int32') -> Tensor:
    """Numbers of the geometric distribution."""

def gumbel(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32', *, mode: str | None = None) -> Tensor:
    """Numbers of Gumbel's distribution."""

def key(seed: int, *, impl: ArrayLike = None) -> Tensor:
    """The key of a seed. The generator is Threefry, JAX's own default."""

def key_data(key: ArrayLike) -> Tensor:
    """The numbers of a key: the key itself."""

def laplace(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Laplace's distribution."""

def loggamma(key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the gamma (their logarithms) distribution."""

def logistic(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Logistic numbers."""

def lognormal(key: ArrayLike, sigma: ArrayLike = 1.0, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the log-normal distribution."""

def maxwell(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of Maxwell's distribution."""

def multinomial(key: ArrayLike, n: int, p: ArrayLike, *, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """How often each of several cases comes in n draws. `shape` is that of the result, with the cases along its last axis."""

def multivariate_normal(key: ArrayLike, mean: ArrayLike, cov: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Normal vectors of a mean and a covariance."""

def normal(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Normal numbers."""

def orthogonal(key: ArrayLike, n: int, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32') -> Tensor:
    """Orthogonal matrices."""

def pareto(key: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Pareto distribution."""

def permutation(key: ArrayLike, x: ArrayLike, axis: Axes = 0, independent: bool = False) -> Tensor:
    """The numbers below `x`, or the entries of an array, in random order."""

def poisson(key: ArrayLike, lam: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'int32') -> Tensor:
    """Numbers of the Poisson distribution."""

def rademacher(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'int32') -> Tensor:
    """-1 or 1."""

def randint(key: ArrayLike, shape: int | Sequence[int], minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = 'int32') -> Tensor:
    """Integers from `minval` on and below `maxval`."""

def rayleigh(key: ArrayLike, scale: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Rayleigh distribution."""

def shuffle(key: ArrayLike, x: ArrayLike, axis: Axes = 0) -> Tensor:
    """The entries of an array in random order."""

def split(key: ArrayLike, num: int = 2) -> Tensor:
    """New keys from one."""

def split2(key: ArrayLike) -> tuple[Tensor, Tensor]:
    """Two new keys."""

def t(key: ArrayLike, df: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Student distribution."""

def triangular(key: ArrayLike, left: ArrayLike, mode: str, right: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the triangular distribution."""

def truncated_normal(key: ArrayLike, lower: Any, upper: Any, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Normal numbers between two others."""

def uniform(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = 'float32', minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0) -> Tensor:
    """Numbers between two others."""

def wald(key: ArrayLike, mean: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the inverse normal distribution."""

def weibull_min(key: ArrayLike, scale: ArrayLike, concentration: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers of the Weibull distribution."""

def wrap_key_data(key_bits_array: ArrayLike, *, impl: ArrayLike = None) -> Tensor:
    """The key of two numbers."""
