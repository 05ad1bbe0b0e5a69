"""Distributions, by the names of SciPy: `norm.logpdf(x, loc, scale)` and the like."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from .. import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

bernoulli: _Bernoulli
beta: _Beta
cauchy: _Cauchy
expon: _Expon
gamma: _Gamma
laplace: _Laplace
logistic: _Logistic
multivariate_normal: _MultivariateNormal
norm: _Norm
poisson: _Poisson
t: _T
uniform: _Uniform
