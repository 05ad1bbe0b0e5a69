"""Functions of `special`, by the names of SciPy."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from .. import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def beta(a: ArrayLike, b: ArrayLike) -> Tensor:
    """`B(a, b) = Γ(a)·Γ(b)/Γ(a + b)`."""

def betaln(a: ArrayLike, b: ArrayLike) -> Tensor:
    """`log |B(a, b)|`."""

def digamma(x: ArrayLike) -> Tensor:
    """The derivative of `log Γ`."""

def entr(x: ArrayLike) -> Tensor:
    """`−x·log x`, 0 at 0 and −∞ below."""

def erf(x: ArrayLike) -> Tensor:
    """The error function."""

def erfc(x: ArrayLike) -> Tensor:
    """`1 − erf(x)`, exact where that is small."""

def erfinv(x: ArrayLike) -> Tensor:
    """The inverse of [`erf`]."""

def expit(x: ArrayLike) -> Tensor:
    """`1/(1 + e⁻ˣ)`."""

def factorial(n: ArrayLike) -> Tensor:
    """`n!`, as `Γ(n + 1)`; 0 for negative numbers."""

def gamma(x: ArrayLike) -> Tensor:
    """`Γ(x)`."""

def gammaln(x: ArrayLike) -> Tensor:
    """`log |Γ(x)|`."""

def i0(x: ArrayLike) -> Tensor:
    """The modified Bessel function of order 0."""

def i0e(x: ArrayLike) -> Tensor:
    """The modified Bessel function of order 0, scaled by `e^−|x|`."""

def i1(x: ArrayLike) -> Tensor:
    """The modified Bessel function of order 1."""

def i1e(x: ArrayLike) -> Tensor:
    """The modified Bessel function of order 1, scaled by `e^−|x|`."""

def kl_div(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x·log(x/y) − x + y`, the terms of the Kullback–Leibler divergence; ∞ outside of positive numbers."""

def log_ndtr(x: ArrayLike) -> Tensor:
    """`log ndtr(x)`, exact far below 0 too."""

def log_softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Logarithm of softmax along an axis."""

def logit(p: ArrayLike) -> Tensor:
    """`log(p/(1 − p))`."""

def logsumexp(a: ArrayLike, axis: Axes = None, b: ArrayLike = None, keepdims: bool = False, where: ArrayLike = None) -> Tensor:
    """The logarithm of a sum of exponentials, each times `b` if that is given."""

def multigammaln(a: ArrayLike, d: int) -> Tensor:
    """The logarithm of the multivariate Γ of order `d`."""

def ndtr(x: ArrayLike) -> Tensor:
    """The distribution function of the standard normal."""

def ndtri(p: ArrayLike) -> Tensor:
    """The inverse of [`ndtr`]."""

def psi(x: ArrayLike) -> Tensor:
    """The same as [`digamma`]."""

def rel_entr(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x·log(x/y)`, the terms of relative entropy; ∞ outside of positive numbers."""

def softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Softmax along an axis."""

def xlog1py(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x·log(1 + y)`, 0 for `x = 0`."""

def xlogy(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x·log y`, 0 for `x = 0`."""
