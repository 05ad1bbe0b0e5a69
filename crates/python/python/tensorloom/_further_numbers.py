"""Functions of numbers with the further arguments that NumPy and JAX have: running sums, statistics, ranges, comparisons."""

import math as _math

import numpy as _np

from ._further import _NUMBERS, _given, _t, _tnp
from ._rounded import rounded as _rounded
from ._tensorloom import _arrays, asarray
from ._tensorloom import dtype as _dtype


def _plain(*xs):
    """Whether all are numbers of Python's, which have no type of their own."""
    return all(type(x) in _NUMBERS for x in xs)


# Ranges

def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    """Numbers at equal distances; between arrays, along a new axis. With `retstep`, the distance too."""
    tnp = _tnp()
    if _plain(start, stop):
        y = _t("linspace")(float(start), float(stop), num, endpoint, dtype or "float32")
    else:
        y = _rounded(lambda a, b: _between(a, b, num, endpoint), *_floats(start, stop))
        y = tnp.moveaxis(y, 0, axis) if y.ndim > 1 else y
        y = y if dtype is None else (tnp.floor(y) if asarray(0).astype(dtype).dtype.kind in "iu" else y).astype(dtype)
    if not retstep:
        return y
    parts = num - 1 if endpoint else num
    return y, (asarray(stop) - start) / parts if parts > 0 else asarray(_math.nan)


def _floats(*xs):
    """Arrays of floats; a number has the type of the arrays beside it."""
    xs = _arrays(*xs)
    kind = _tnp().result_type(*xs)
    return [x if x.dtype.kind == "f" else x.astype(kind if kind.kind == "f" else "float32") for x in xs]


def _between(a, b, num, endpoint):
    """Numbers at equal distances, along a new axis in front."""
    tnp = _tnp()
    a, b = tnp.broadcast_arrays(a, b)
    t = tnp.arange(num, dtype=tnp.result_type(a, b)).reshape((num, *[1] * a.ndim)) / max(num - 1 if endpoint else num, 1)
    # Both ends are exact.
    return tnp.where(t < 0.5, a + t * (b - a), b - (1 - t) * (b - a))


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """Powers of a base whose exponents are at equal distances."""
    if _plain(start, stop) and isinstance(base, _NUMBERS):
        return _t("logspace")(float(start), float(stop), num, endpoint, base, dtype or "float32")
    y = _rounded(lambda a, b: _tnp().power(base, linspace(a, b, num, endpoint, axis=axis)), *_floats(start, stop))
    return y if dtype is None else y.astype(dtype)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """Numbers with equal ratios."""
    if _plain(start, stop):
        return _t("geomspace")(float(start), float(stop), num, endpoint, dtype or "float32")
    y = _rounded(lambda a, b: _ratios(a, b, num, endpoint, axis), *_floats(start, stop))
    return y if dtype is None else y.astype(dtype)


def _ratios(a, b, num, endpoint, axis):
    tnp = _tnp()
    sign = tnp.sign(a)
    y = tnp.exp(linspace(tnp.log(tnp.abs(a)), tnp.log(tnp.abs(b)), num, endpoint, axis=axis))
    return y * (tnp.expand_dims(sign, axis) if sign.ndim else sign)


def indices(dimensions, dtype="int32", sparse=False):
    """The indices of every element of an array of these sizes; `sparse`, an array for each axis that broadcasts."""
    if not sparse:
        return _t("indices")(tuple(dimensions), dtype)
    tnp, n = _tnp(), len(dimensions)
    return tuple(tnp.arange(d, dtype=dtype).reshape([-1 if i == k else 1 for i in range(n)]) for k, d in enumerate(dimensions))


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Coordinates of a grid; `sparse`, arrays that broadcast to it."""
    tnp = _tnp()
    if not xi:
        return []
    if not sparse:
        return _t("meshgrid")(tnp._promoted([asarray(x) for x in xi]), indexing)
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing {indexing!r}; use \"xy\" or \"ij\"")
    order = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        order[:2] = 1, 0
    return [asarray(x).reshape([-1 if k == place else 1 for k in range(len(xi))]) for x, place in zip(xi, order)]


# Running sums and differences

def _running(name):
    def run(a, axis=None, dtype=None):
        if dtype is None:
            return _t(name)(a, axis)
        a = asarray(a)
        if name.startswith("nan") and a.dtype.kind == "f":
            a = _tnp().where(_tnp().isnan(a), 0 if name == "nancumsum" else 1, a)
        return _t(name.removeprefix("nan"))(a.astype(dtype), axis).astype(dtype)

    return _given(run, name, "Along an axis, from the first element to each; of all elements in a row if it is None.")


cumsum, cumprod, nancumsum, nancumprod = (_running(n) for n in ("cumsum", "cumprod", "nancumsum", "nancumprod"))


def _cumulative(name, f, first):
    def run(x, /, *, axis=None, dtype=None, include_initial=False):
        tnp = _tnp()
        x = asarray(x)
        if axis is None:
            if x.ndim != 1:
                raise ValueError(f"{name} of an array of {x.ndim} axes needs an axis")
            axis = 0
        y = f(x, axis, dtype)
        if not include_initial:
            return y
        shape = [1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)]
        return tnp.concatenate([tnp.full(shape, first, y.dtype), y], axis)

    return _given(run, name, "Along an axis, from the first element to each; `include_initial` puts that of no elements in front.")


cumulative_sum, cumulative_prod = _cumulative("cumulative_sum", cumsum, 0), _cumulative("cumulative_prod", cumprod, 1)


def diff(a, n=1, axis=-1, prepend=None, append=None):
    """Differences of neighbours, n times; of the array with others before and behind it."""
    tnp = _tnp()
    a = asarray(a)
    if n == 0:
        return a
    one = [1 if i == axis % a.ndim else s for i, s in enumerate(a.shape)] if a.ndim else []
    parts = _arrays(*(v for v in (prepend, a, append) if v is not None))
    parts = [tnp.broadcast_to(v, one) if v.ndim == 0 and a.ndim else v for v in parts]
    return _t("diff")(a if len(parts) == 1 else tnp.concatenate(parts, axis), n, axis)


def ediff1d(ary, to_end=None, to_begin=None):
    """Differences of neighbours in a row, with others before and behind them."""
    tnp = _tnp()
    parts = [v.reshape(-1) for v in _arrays(*(v for v in (to_begin, _t("ediff1d")(ary), to_end) if v is not None))]
    return parts[0] if len(parts) == 1 else tnp.concatenate(parts)


def gradient(f, *varargs, axis=None, edge_order=None):
    """Differences in the middle, one-sided at the ends: an array for each axis. Distances are 1, one number, or one for each axis."""
    f = asarray(f)
    axes = list(range(f.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if edge_order not in (None, 1):
        raise NotImplementedError("gradient supports only first-order differences at the edges")
    if any(getattr(v, "ndim", 0) or isinstance(v, (list, tuple)) for v in varargs):
        raise NotImplementedError("gradient supports only equal spacing: one number per axis")
    steps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError(f"{len(steps)} distances for {len(axes)} axes")
    out = [_t("gradient")(f, float(s), a) for s, a in zip(steps, axes)]
    return out[0] if len(out) == 1 else out


def unwrap(p, discont=None, axis=-1, period=2 * _math.pi):
    """Angles without jumps: where neighbours differ by more than half a period, whole periods are added."""
    tnp = _tnp()
    p = asarray(p)
    if discont is None and period == 2 * _math.pi:
        return _t("unwrap")(p, axis)
    p = p if p.dtype.kind == "f" else p.astype("float32")
    half = period / 2
    d = diff(p, axis=axis)
    m = (d + half) % period - half
    m = tnp.where(tnp.logical_and(m == -half, d > 0), half, m)
    fix = tnp.where(tnp.abs(d) < (half if discont is None else discont), 0, m - d)
    shape = [1 if i == axis % p.ndim else n for i, n in enumerate(p.shape)]
    return p + tnp.concatenate([tnp.zeros(shape, p.dtype), cumsum(fix, axis)], axis)


def interp(x, xp, fp, left=None, right=None, period=None):
    """A function by straight lines between points; `left` and `right` are its values outside, `period` makes it periodic."""
    tnp = _tnp()
    x, xp, fp = _arrays(x, xp, fp)
    if period is not None:
        if period == 0:
            raise ValueError("the period must not be 0")
        return _rounded(lambda *xs: _periodic(*xs, abs(period)), x, xp, fp)
    y = _t("interp")(x, xp, fp)
    y = y if left is None else tnp.where(x < xp[0], left, y)
    return y if right is None else tnp.where(x > xp[-1], right, y)


def _periodic(x, xp, fp, period):
    tnp = _tnp()
    x, xp = x % period, xp % period
    order = tnp.argsort(xp)
    xp, fp = xp[order], fp[order]
    xp = tnp.concatenate([xp[-1:] - period, xp, xp[:1] + period])
    return _t("interp")(x, xp, tnp.concatenate([fp[-1:], fp, fp[:1]]))


# Missing numbers

def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """Finite numbers in place of NaN and infinities."""
    tnp = _tnp()
    x = asarray(x)
    if x.dtype.kind != "f":
        return x
    y = tnp.where(tnp.isnan(x), nan, _t("nan_to_num")(x))
    y = y if posinf is None else tnp.where(x == _math.inf, posinf, y)
    return y if neginf is None else tnp.where(x == -_math.inf, neginf, y)


def _without_nan(name, plain, neutral):
    def run(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
        tnp = _tnp()
        if dtype is None and initial is None and where is None:
            return _t(name)(a, axis, keepdims=keepdims)
        a = asarray(a)
        a = a if a.dtype.kind != "f" else tnp.where(tnp.isnan(a), neutral, a)
        named = {} if dtype is None else {"dtype": dtype}
        return getattr(tnp, plain)(a, axis, keepdims=keepdims, initial=initial, where=where, **named)

    return _given(run, name, f"`{plain}` of the elements that are numbers.")


nansum, nanprod = _without_nan("nansum", "sum", 0.0), _without_nan("nanprod", "prod", 1.0)


def nanmax(a, axis=None, keepdims=False, initial=None, where=None):
    """The largest of the elements that are numbers."""
    return _NAN["nanmax"](a, axis, None, keepdims, initial, where)


def nanmin(a, axis=None, keepdims=False, initial=None, where=None):
    """The least of the elements that are numbers."""
    return _NAN["nanmin"](a, axis, None, keepdims, initial, where)


_NAN = {"nanmax": _without_nan("nanmax", "max", -_math.inf), "nanmin": _without_nan("nanmin", "min", _math.inf)}


def _counted(a, where):
    """What counts: elements that are numbers, where a condition holds."""
    tnp = _tnp()
    known = tnp.logical_not(tnp.isnan(a))
    return known if where is None else tnp.logical_and(known, where)


def _typed(a, dtype):
    """An array in the type that a statistic is computed in."""
    a = asarray(a)
    if dtype is not None and a.dtype.kind == "f" and _dtype(dtype).kind != "f":
        raise TypeError(f"the array is {a.dtype}, but {dtype} has no NaN; use a float dtype")
    return a if dtype is None or _dtype(dtype).kind != "f" else a.astype(dtype)


def nanmean(a, axis=None, dtype=None, keepdims=False, where=None):
    """The mean of the elements that are numbers."""
    a = _typed(a, dtype)
    if a.dtype.kind != "f":
        return _tnp().mean(a, axis, dtype, keepdims, where=where)
    if where is None:
        return _t("nanmean")(a, axis, keepdims=keepdims)
    return _tnp().mean(a, axis, keepdims=keepdims, where=_counted(a, where))


def nanvar(a, axis=None, dtype=None, ddof=0, keepdims=False, where=None):
    """The variance of the elements that are numbers."""
    a = _typed(a, dtype)
    if a.dtype.kind != "f":
        return _tnp().var(a, axis, dtype, ddof, keepdims, where=where)
    if where is None:
        return _t("nanvar")(a, axis, ddof, keepdims=keepdims)
    return _tnp().var(a, axis, ddof=ddof, keepdims=keepdims, where=_counted(a, where))


def nanstd(a, axis=None, dtype=None, ddof=0, keepdims=False, where=None):
    """The standard deviation of the elements that are numbers."""
    a = _typed(a, dtype)
    y = _rounded(lambda x: _tnp().sqrt(nanvar(x, axis, None if x.dtype.kind == "f" else dtype, ddof, keepdims, where)), a)
    return y if dtype is None else y.astype(dtype)


# Comparisons

def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether elements are close; NaN is close to NaN if `equal_nan`."""
    tnp = _tnp()
    a, b = _arrays(a, b)
    y = _t("isclose")(a, b, rtol, atol)
    return tnp.logical_or(y, tnp.logical_and(tnp.isnan(a), tnp.isnan(b))) if equal_nan else y


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether all elements are close: a bool of Python's, or of a trace."""
    y = isclose(a, b, rtol, atol, equal_nan).all()
    return y if y._traced else bool(y)


def array_equal(a1, a2, equal_nan=False):
    """Whether two arrays have one shape and equal elements."""
    tnp = _tnp()
    a1, a2 = asarray(a1), asarray(a2)
    if not equal_nan or a1.shape != a2.shape:
        return _t("array_equal")(a1, a2)
    return tnp.logical_or(a1 == a2, tnp.logical_and(tnp.isnan(a1), tnp.isnan(a2))).all()


# Statistics

def average(a, axis=None, weights=None, returned=False, keepdims=False):
    """Means with weights; with `returned`, the sums of the weights too."""
    tnp = _tnp()
    if axis is None and weights is not None and asarray(weights).shape != asarray(a).shape:
        raise TypeError(f"weights of shape {asarray(weights).shape} for {asarray(a).shape}; give an axis")
    y = _t("average")(a, axis, weights, keepdims=keepdims)
    if not returned:
        return y
    a = asarray(a)
    w = tnp.ones_like(a) if weights is None else asarray(weights)
    if w.shape != a.shape:
        w = tnp.broadcast_to(w.reshape([-1 if i == axis % a.ndim else 1 for i in range(a.ndim)]), a.shape)
    return y, tnp.sum(w, axis, keepdims=keepdims)


def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None):
    """Covariances of rows, or of columns if not `rowvar`; `fweights` say how often an observation was made, `aweights` what it counts."""
    given = [v for v in (m, y, fweights, aweights) if v is not None]

    def run(*xs):
        xs = iter(xs)
        x, w = _observations(next(xs), None if y is None else next(xs), rowvar), [None if v is None else next(xs) for v in (fweights, aweights)]
        return _covariances(x, (0 if bias else 1) if ddof is None else ddof, *w)

    return _rounded(run, *given)


def _covariances(x, less, fweights=None, aweights=None):
    """Covariances of rows; with weights, those of observations."""
    if fweights is None and aweights is None:
        d = x - x.mean(1, keepdims=True)
        out = d @ d.T / (x.shape[1] - less)
    else:
        f = 1 if fweights is None else fweights
        w = f if aweights is None else f * aweights
        total = w.sum()
        d = x - (x * w).sum(1, keepdims=True) / total
        n = total - less if aweights is None else total - less * (w * aweights).sum() / total
        out = (d * w) @ d.T / n
    return out.reshape(()) if out.size == 1 else out


def _observations(m, y, rowvar):
    x = _observed(m, rowvar)
    return x if y is None else _tnp().concatenate([x, _observed(y, rowvar)], 0)


def _observed(m, rowvar):
    tnp = _tnp()
    x = tnp.atleast_2d(m)
    if x.ndim > 2:
        raise ValueError(f"an array of {x.ndim} axes; observations have one or two")
    x = x.T if not rowvar and asarray(m).ndim == 2 else x
    return x if x.dtype.kind == "f" else x.astype("float32")


def corrcoef(x, y=None, rowvar=True):
    """Correlations of rows, or of columns if not `rowvar`."""
    return _rounded(lambda *xs: _correlations(_covariances(_observations(xs[0], xs[1] if y is not None else None, rowvar), 1)), *([x] if y is None else [x, y]))


def _correlations(c):
    tnp = _tnp()
    if c.ndim == 0:
        return c / c
    s = tnp.sqrt(tnp.diagonal(c))
    return tnp.clip(c / s[:, None] / s[None, :], -1, 1)


def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    """The polynomial of a degree through points, with weights."""
    if full or cov or rcond is not None:
        raise NotImplementedError("polyfit returns only the coefficients and uses all singular values")
    if w is None:
        return _t("polyfit")(x, y, deg)
    tnp = _tnp()
    x, y, w = asarray(x), asarray(y), asarray(w)
    rows = tnp.vander(x, deg + 1) * w[:, None]
    return tnp.linalg.lstsq(rows, y * (w if y.ndim == 1 else w[:, None]))[0]


def polyint(p, m=1, k=0):
    """The integral of a polynomial, m times; `k` are its constants."""
    constants = [k] * m if isinstance(k, _NUMBERS) else list(k) * (m if len(k) == 1 else 1)
    if len(constants) < m:
        raise ValueError(f"{len(constants)} constants for {m} integrals")
    for c in constants[:m]:
        p = _t("polyint")(p, 1)
        p = p if isinstance(c, _NUMBERS) and c == 0 else p.at[-1].set(c)
    return asarray(p)


def _lines(a, axis):
    """An array with the axes of a reduction as its last one."""
    a = asarray(a)
    if axis is None:
        return a.reshape(-1)
    axes = [i % a.ndim if -a.ndim <= i < a.ndim else i for i in ([axis] if isinstance(axis, int) else axis)]
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis {axis} names one axis twice")
    a = _tnp().moveaxis(a, axes, list(range(a.ndim - len(axes), a.ndim)))
    return a.reshape((*a.shape[:a.ndim - len(axes)], _math.prod(a.shape[a.ndim - len(axes):])))


# For methods of straight lines between elements, where an element stands: n q + alpha + q (1 - alpha - beta) - 1, from 0 on.
_BETWEEN = {
    "interpolated_inverted_cdf": (0, 1), "hazen": (0.5, 0.5), "weibull": (0, 0), "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}


def _place(q, n, method):
    """Where a quantile of n numbers stands: the place below it, and the weight of the next."""
    tnp = _tnp()
    if method in _BETWEEN:
        alpha, beta = _BETWEEN[method]
        at = tnp.clip(n * q + (alpha + q * (1 - alpha - beta)) - 1, 0, tnp.maximum(n - 1, 0))
        return tnp.floor(at), at - tnp.floor(at)
    if method in ("inverted_cdf", "averaged_inverted_cdf"):
        at = n * q - 1
        low = tnp.floor(at)
        return low, tnp.where(at > low, 1.0, 0.0 if method == "inverted_cdf" else 0.5)
    at = (n - 1) * q
    low = tnp.floor(at)
    weight = {"lower": lambda: 0.0, "higher": lambda: 1.0, "nearest": lambda: tnp.round(at) - low, "midpoint": lambda: 0.5}.get(method)
    if weight is None:
        names = ", ".join(["linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf", *_BETWEEN])
        raise ValueError(f"method {method!r}; use {names}")
    return low, tnp.where(at > low, weight(), 0.0)


def _quantiles(name, scale):
    def run(a, q, axis=None, overwrite_input=False, method="linear", keepdims=False):
        tnp = _tnp()
        if isinstance(q, _NUMBERS) or getattr(q, "ndim", 1) == 0:
            return one(a, float(q), axis, method, keepdims)
        q = _np.asarray(q)
        if q.size == 0:
            like = one(a, 0.0, axis, method, keepdims)
            return tnp.zeros((*q.shape, *like.shape), like.dtype)
        return tnp.stack([one(a, float(p), axis, method, keepdims) for p in q.reshape(-1)]).reshape((*q.shape, *_shape_of(a, axis, keepdims)))

    def one(a, q, axis, method, keepdims):
        tnp = _tnp()
        line = _lines(a, axis)
        y = _t(name)(line, q, -1) if method == "linear" else between(tnp, line, q / 100 if "percent" in name else q, method)
        return y.reshape(_shape_of(a, axis, True)) if keepdims else y

    def between(tnp, line, q, method):
        line = tnp.sort(line if line.dtype.kind == "f" else line.astype("float32"), -1)
        if line.shape[-1] == 0 or not 0 <= q <= 1:
            return _t("quantile")(line, q, -1)
        missing = tnp.isnan(line)
        n = tnp.sum(tnp.logical_not(missing), -1).astype("float64") if name.startswith("nan") else asarray(float(line.shape[-1]), "float64")
        low, weight = _place(q, n, method)
        at = lambda i: tnp.take_along_axis(  # noqa: E731
            line, tnp.broadcast_to(tnp.clip(i, 0, tnp.maximum(n - 1, 0)).astype("int64"), line.shape[:-1])[..., None], -1)[..., 0]
        below, above = at(low), at(low + 1)
        weight = weight.astype(line.dtype)
        # An infinity on one side alone doesn't meet a weight of zero.
        y = tnp.where(weight == 0, below, tnp.where(weight == 1, above, below * (1 - weight) + above * weight))
        return y if name.startswith("nan") else tnp.where(missing[..., -1], _math.nan, y)

    return _given(run, name, f"What so many {scale} of the elements lie below; for several, a new axis in front.")


def _medians(name):
    def run(a, axis=None, keepdims=False):
        y = _t(name)(_lines(a, axis), -1)
        return y.reshape(_shape_of(a, axis, True)) if keepdims else y

    return _given(run, name, "The number in the middle, or the mean of the two there." + (" NaN doesn't count." if name.startswith("nan") else ""))


median, nanmedian = _medians("median"), _medians("nanmedian")


def _shape_of(x, axis, keepdims):
    shape = asarray(x).shape
    axes = range(len(shape)) if axis is None else [a % len(shape) for a in ([axis] if isinstance(axis, int) else axis)]
    return [1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes]


quantile, nanquantile = _quantiles("quantile", "parts of 1"), _quantiles("nanquantile", "parts of 1")
percentile, nanpercentile = _quantiles("percentile", "percent"), _quantiles("nanpercentile", "percent")
