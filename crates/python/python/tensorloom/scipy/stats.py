"""Distributions, by the names of SciPy: `norm.logpdf(x, loc, scale)` and the like."""

import functools as _functools
import math as _math
from inspect import signature as _signature

from .. import numpy as _n
from .. import special as _s
from .._rounded import rounded as _rounded


def _method(f):
    """A function of a distribution: its arguments meet, and those of narrow floats are computed in float32."""

    @_functools.wraps(f)
    def run(self, *args, **kwargs):
        bound = _signature(f).bind(self, *args, **kwargs)
        bound.apply_defaults()
        names = [n for n in bound.arguments if n not in ("self", "allow_singular")]
        return _rounded(lambda *xs: f(self, **dict(zip(names, xs))), *(bound.arguments[n] for n in names))

    return run


class _Distribution:
    """Functions of one distribution."""

    def __init_subclass__(cls):
        for name in [n for n in vars(cls) if not n.startswith("_")]:
            setattr(cls, name, _method(vars(cls)[name]))


class _Continuous(_Distribution):
    """A distribution with a density."""

    def __init_subclass__(cls):
        def pdf(self, x, *args, **kwargs):
            """The density."""
            return _n.exp(self.logpdf(x, *args, **kwargs))

        pdf.__signature__ = _signature(cls.logpdf)
        cls.pdf = pdf
        super().__init_subclass__()


def _floats(*xs):
    kind = _n.result_type(*xs)
    return [x if x.dtype.kind == "f" else x.astype(kind if kind.kind == "f" else "float32") for x in xs]


class _Norm(_Continuous):
    """The normal distribution."""

    def logpdf(self, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = _floats(x, loc, scale)
        z = (x - loc) / scale
        return -0.5 * z * z - _n.log(scale) - 0.5 * _math.log(2 * _math.pi)

    def cdf(self, x, loc=0, scale=1):
        """The probability of less."""
        x, loc, scale = _floats(x, loc, scale)
        return _s.ndtr((x - loc) / scale)

    def logcdf(self, x, loc=0, scale=1):
        """Its logarithm."""
        x, loc, scale = _floats(x, loc, scale)
        return _s.log_ndtr((x - loc) / scale)

    def sf(self, x, loc=0, scale=1):
        """The probability of more."""
        x, loc, scale = _floats(x, loc, scale)
        return _s.ndtr((loc - x) / scale)

    def logsf(self, x, loc=0, scale=1):
        """Its logarithm."""
        x, loc, scale = _floats(x, loc, scale)
        return _s.log_ndtr((loc - x) / scale)

    def ppf(self, q, loc=0, scale=1):
        """Where the probability of less is q."""
        q, loc, scale = _floats(q, loc, scale)
        return _s.ndtri(q) * scale + loc

    def isf(self, q, loc=0, scale=1):
        """Where the probability of more is q."""
        q, loc, scale = _floats(q, loc, scale)
        return -_s.ndtri(q) * scale + loc


class _Uniform(_Continuous):
    """The uniform distribution from `loc` to `loc + scale`."""

    def logpdf(self, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = _floats(x, loc, scale)
        return _n.where(_n.logical_or(x < loc, x > loc + scale), -_math.inf, -_n.log(scale))

    def cdf(self, x, loc=0, scale=1):
        """The probability of less."""
        x, loc, scale = _floats(x, loc, scale)
        return _n.clip((x - loc) / scale, 0.0, 1.0)


class _Expon(_Continuous):
    """The exponential distribution."""

    def logpdf(self, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = _floats(x, loc, scale)
        return _n.where(x < loc, -_math.inf, -(x - loc) / scale - _n.log(scale))

    def cdf(self, x, loc=0, scale=1):
        """The probability of less."""
        x, loc, scale = _floats(x, loc, scale)
        return _n.where(x < loc, 0.0, -_n.expm1(-(x - loc) / scale))


class _Laplace(_Continuous):
    """Laplace's distribution."""

    def logpdf(self, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = _floats(x, loc, scale)
        return -_n.abs((x - loc) / scale) - _n.log(2.0 * scale)

    def cdf(self, x, loc=0, scale=1):
        """The probability of less."""
        x, loc, scale = _floats(x, loc, scale)
        z = (x - loc) / scale
        return _n.where(z < 0, 0.5 * _n.exp(_n.minimum(z, 0.0)), 1.0 - 0.5 * _n.exp(-_n.maximum(z, 0.0)))


class _Logistic(_Continuous):
    """The logistic distribution."""

    def logpdf(self, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = _floats(x, loc, scale)
        z = (x - loc) / scale
        return -2.0 * _n.logaddexp(0.5 * z, -0.5 * z) - _n.log(scale)

    def cdf(self, x, loc=0, scale=1):
        """The probability of less."""
        x, loc, scale = _floats(x, loc, scale)
        return _s.expit((x - loc) / scale)


class _Cauchy(_Continuous):
    """Cauchy's distribution."""

    def logpdf(self, x, loc=0, scale=1):
        """The logarithm of the density."""
        x, loc, scale = _floats(x, loc, scale)
        z = (x - loc) / scale
        return -_math.log(_math.pi) - _n.log(scale) - _n.log1p(z * z)

    def cdf(self, x, loc=0, scale=1):
        """The probability of less."""
        x, loc, scale = _floats(x, loc, scale)
        return _n.arctan2(1.0, (loc - x) / scale) / _math.pi


class _Gamma(_Continuous):
    """The gamma distribution."""

    def logpdf(self, x, a, loc=0, scale=1):
        """The logarithm of the density."""
        x, a, loc, scale = _floats(x, a, loc, scale)
        z = (x - loc) / scale
        return _n.where(z < 0, -_math.inf, _s.xlogy(a - 1.0, z) - z - _s.gammaln(a) - _n.log(scale))


class _Beta(_Continuous):
    """The beta distribution."""

    def logpdf(self, x, a, b, loc=0, scale=1):
        """The logarithm of the density."""
        x, a, b, loc, scale = _floats(x, a, b, loc, scale)
        z = (x - loc) / scale
        y = _s.xlogy(a - 1.0, z) + _s.xlog1py(b - 1.0, -z) - _s.betaln(a, b) - _n.log(scale)
        return _n.where(_n.logical_or(z < 0, z > 1), -_math.inf, y)


class _T(_Continuous):
    """Student's distribution."""

    def logpdf(self, x, df, loc=0, scale=1):
        """The logarithm of the density."""
        x, df, loc, scale = _floats(x, df, loc, scale)
        z = (x - loc) / scale
        return -_s.betaln(df / 2.0, 0.5) - 0.5 * _n.log(df) - _n.log(scale) - (df + 1.0) / 2.0 * _n.log1p(z * z / df)


class _MultivariateNormal(_Continuous):
    """The normal distribution of vectors."""

    def logpdf(self, x, mean, cov, allow_singular=None):
        """The logarithm of the density."""
        x, mean, cov = _floats(x, mean, cov)
        if mean.ndim == 0:
            return norm.logpdf(x, mean, _n.sqrt(cov))
        from . import linalg

        n = mean.shape[-1]
        root = _n.linalg.cholesky(cov if cov.ndim else cov * _n.eye(n))
        d = x - mean
        y = linalg.solve_triangular(root, d.reshape((-1, n)).T, lower=True).T.reshape(d.shape)
        return -0.5 * (y * y).sum(-1) - 0.5 * n * _math.log(2 * _math.pi) - _n.log(_n.diagonal(root)).sum(-1)


class _Bernoulli(_Distribution):
    """True or false."""

    def logpmf(self, k, p, loc=0):
        """The logarithm of the probability."""
        k, p, loc = _floats(k, p, loc)
        x = k - loc
        y = _s.xlogy(x, p) + _s.xlog1py(1.0 - x, -p)
        return _n.where(_n.logical_or(x < 0, x > 1), -_math.inf, y)

    def pmf(self, k, p, loc=0):
        """The probability."""
        return _n.exp(self.logpmf(k, p, loc))


class _Poisson(_Distribution):
    """Poisson's distribution."""

    def logpmf(self, k, mu, loc=0):
        """The logarithm of the probability."""
        k, mu, loc = _floats(k, mu, loc)
        x = k - loc
        y = _s.xlogy(x, mu) - _s.gammaln(x + 1.0) - mu
        return _n.where(_n.logical_or(x < 0, x != _n.floor(x)), -_math.inf, y)

    def pmf(self, k, mu, loc=0):
        """The probability."""
        return _n.exp(self.logpmf(k, mu, loc))


norm, uniform, expon, laplace, logistic, cauchy = _Norm(), _Uniform(), _Expon(), _Laplace(), _Logistic(), _Cauchy()
gamma, beta, t, multivariate_normal, bernoulli, poisson = _Gamma(), _Beta(), _T(), _MultivariateNormal(), _Bernoulli(), _Poisson()
